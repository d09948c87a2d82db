"""Sample splitting: every question gets rows of its own, exactly averaged."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.errors import BudgetExhausted
from holdfast.mechanisms.base import Price, Release, answer_from, intervals, statistics
from holdfast.queries.query import Query
from holdfast.rows import draws
from holdfast.rows.source import RowSource

BLOCK = 1_000_000  # rows evaluated at once in a full scan


def scan(query: Query, source: RowSource, rows: NDArray[np.int64] | None = None) -> list[NDArray[np.float64]]:
    """Return every statistic on every row (or on these rows), block by block. Secret."""
    n = len(source) if rows is None else len(rows)
    blocks = []
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        indices = np.arange(start, stop) if rows is None else rows[start:stop]
        blocks.append(statistics(query, query.evaluate(source.gather(indices, query.columns))))
    return [np.concatenate(parts) for parts in zip(*blocks, strict=True)]


def _means(parts: list[NDArray[np.float64]]) -> tuple[float, ...]:
    return tuple(float(part.mean()) for part in parts)


@dataclass(frozen=True, kw_only=True)
class FreshRows:
    """Sample splitting: every query gets rows of its own, exactly averaged.

    `key` fixes a secret order of the rows, `start` how many of them are used up. Rows of a sorted file are thus still
    taken at random, and no row is ever used twice.
    """

    draws: int
    key: int
    start: int = 0

    def __post_init__(self) -> None:
        check.whole(draws=self.draws)
        check.whole(0, key=self.key, start=self.start)

    def price(self, query: Query, n: int) -> Price:
        """Charge the rows used up (here "flips" are fresh rows: there are n of them in all)."""
        return Price(self.draws, intervals(query), self.draws)

    def release(self, query: Query, source: RowSource, rng: Generator) -> Release:
        """Average the next rows of the secret order."""
        n = len(source)
        if self.start + self.draws > n:
            raise BudgetExhausted(
                f"Splitting has {n - self.start:,} fresh rows left and needs {self.draws:,}.",
                cost=self.draws,
                left=n - self.start,
                total=n,
                unit="rows",
            )
        rows = draws.permuted_block(self.key, n, self.start, self.draws)
        parts = scan(query, source, rows)
        values = _means(parts)
        # Counts where rows are counted; the values of a mean or group are averaged, not counted.
        counted = {"share": parts, "histogram": parts, "group": parts[:1]}.get(query.kind, [])
        counts = tuple(int(part.sum()) for part in counted)
        return Release(answer_from(query, values), self.draws, counts=counts, values=values)
