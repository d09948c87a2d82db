"""Tiny queries over columns, for tests that are not about the language of questions."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.queries.query import Said


@dataclass(frozen=True)
class Share:
    """Rows whose value in `column` is above `limit`."""

    column: str = "x"
    limit: float = 0.5
    kind: ClassVar[str] = "share"
    outcomes: ClassVar[int] = 2
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    identity: ClassVar[str | None] = None

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def text(self) -> str:
        return f"{self.column} > {self.limit}"

    def evaluate(self, rows: pl.DataFrame) -> Said:
        return rows[self.column].to_numpy() > self.limit


@dataclass(frozen=True)
class Mean:
    """The mean of `column`, declared within `bounds`; values outside are clipped."""

    column: str = "x"
    bounds: tuple[float, float] = (0.0, 1.0)
    kind: ClassVar[str] = "mean"
    outcomes: ClassVar[int] = 2
    identity: ClassVar[str | None] = None

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def text(self) -> str:
        return f"mean of {self.column}"

    def evaluate(self, rows: pl.DataFrame) -> Said:
        low, high = self.bounds
        values = rows[self.column].to_numpy().astype(np.float64)
        return np.clip((values - low) / (high - low), 0.0, 1.0)


@dataclass(frozen=True)
class Group:
    """The mean of `column` over the rows where `member` is above one half."""

    column: str = "x"
    member: str = "g"
    bounds: tuple[float, float] = (0.0, 1.0)
    kind: ClassVar[str] = "group"
    outcomes: ClassVar[int] = 3
    identity: ClassVar[str | None] = None

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column, self.member)

    @property
    def text(self) -> str:
        return f"mean of {self.column} where {self.member}"

    def evaluate(self, rows: pl.DataFrame) -> Said:
        said = Mean(self.column, self.bounds).evaluate(rows)
        return np.where(rows[self.member].to_numpy() > 0.5, said, np.nan)


@dataclass(frozen=True)
class Histogram:
    """Equal bins of [0, 1], the last one closed."""

    column: str = "x"
    outcomes: int = 4
    kind: ClassVar[str] = "histogram"
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    identity: ClassVar[str | None] = None

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def text(self) -> str:
        return f"histogram of {self.column}"

    def evaluate(self, rows: pl.DataFrame) -> Said:
        shares = np.clip(rows[self.column].to_numpy(), 0.0, 1.0)
        bars: NDArray[np.int64] = np.minimum((shares * self.outcomes).astype(np.int64), self.outcomes - 1)
        return bars
