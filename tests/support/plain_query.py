"""Queries made of plain functions, and rows read through them, for tests of what lies beneath queries."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast.guarantees.statistic import OneMean, OutcomeShares, Statistic
from holdfast.queries.query import Query, Values
from holdfast.rows.draws import AllRows, Indices
from holdfast.rows.source import RowSource


@dataclass(frozen=True)
class PlainQuery(Query):
    """Says what `function` says; with `parts`, the function is handed the part and the draw too."""

    reads: tuple[str, ...]
    function: Callable[..., Values]
    outcomes: int = 2
    parts: int = 1

    @property
    def statistic(self) -> Statistic:
        return OneMean() if self.outcomes == 2 else OutcomeShares(self.outcomes)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.reads

    @property
    def text(self) -> str:
        return "plain"

    def evaluate(self, rows: pl.DataFrame) -> Values:
        return self.function(rows)

    def evaluate_parts(self, rows: pl.DataFrame, part: NDArray[np.int64], draw: NDArray[np.int64]) -> Values:
        return self.function(rows) if self.parts == 1 else self.function(rows, part, draw)


@dataclass(frozen=True)
class These:
    """A selection of the rows that are named."""

    chosen: Sequence[int]

    def indices(self, n: int, rng: Generator) -> Indices:
        return np.array(self.chosen, dtype=np.int64)


def rows_of(
    source: RowSource, chosen: Sequence[int] | None = None, columns: Sequence[str] | None = None
) -> pl.DataFrame:
    """Return these rows (or all) as a query sees them."""
    seen: list[pl.DataFrame] = []

    def keep(rows: pl.DataFrame) -> Values:
        seen.append(rows)
        return np.ones(rows.height, dtype=np.bool_)

    query = PlainQuery(tuple(columns or source.schema.names), keep)
    source.sample(query, AllRows() if chosen is None else These(chosen), np.random.default_rng(0))
    return pl.concat(seen)
