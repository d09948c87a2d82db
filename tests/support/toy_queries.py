"""Tiny queries over columns, for tests that are not about the language of questions."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.guarantees.statistic import GroupMean, OneMean, OneShare, OutcomeShares
from holdfast.queries.query import Query, Values


@dataclass(frozen=True)
class Share(Query):
    """Rows whose value in `column` is above `limit`."""

    column: str = "x"
    limit: float = 0.5

    statistic = OneShare()

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def text(self) -> str:
        return f"{self.column} > {self.limit}"

    def evaluate(self, rows: pl.DataFrame) -> Values:
        return rows[self.column].to_numpy() > self.limit


@dataclass(frozen=True)
class Mean(Query):
    """The mean of `column`, declared within `bounds`; values outside are clipped."""

    column: str = "x"
    bounds: tuple[float, float] = (0.0, 1.0)

    statistic = OneMean()

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def text(self) -> str:
        return f"mean of {self.column}"

    def evaluate(self, rows: pl.DataFrame) -> Values:
        low, high = self.bounds
        values = rows[self.column].to_numpy().astype(np.float64)
        return np.clip((values - low) / (high - low), 0.0, 1.0)


@dataclass(frozen=True)
class Group(Query):
    """The mean of `column` over the rows where `member` is above one half."""

    column: str = "x"
    member: str = "g"
    bounds: tuple[float, float] = (0.0, 1.0)

    statistic = GroupMean()

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column, self.member)

    @property
    def text(self) -> str:
        return f"mean of {self.column} where {self.member}"

    def evaluate(self, rows: pl.DataFrame) -> Values:
        values = Mean(self.column, self.bounds).evaluate(rows)
        return np.where(rows[self.member].to_numpy() > 0.5, values, np.nan)


@dataclass(frozen=True)
class Histogram(Query):
    """Equal bins of [0, 1], the last one closed."""

    column: str = "x"
    outcomes: int = 4

    @property
    def statistic(self) -> OutcomeShares:
        return OutcomeShares(self.outcomes)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def text(self) -> str:
        return f"histogram of {self.column}"

    def evaluate(self, rows: pl.DataFrame) -> Values:
        shares = np.clip(rows[self.column].to_numpy(), 0.0, 1.0)
        bars: NDArray[np.int64] = np.minimum((shares * self.outcomes).astype(np.int64), self.outcomes - 1)
        return bars
