"""Sample splitting: every question gets rows of its own, which are averaged exactly.

Rows are used in a random order, so even rows of a sorted file are taken at random; no row is ever used twice.
"""

from dataclasses import dataclass, field
from typing import Self

from numpy.random import Generator

from holdfast import check
from holdfast.errors import BudgetExhausted
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.statistic import ExactMeans, Statistic
from holdfast.mechanisms import MECHANISMS
from holdfast.queries.query import Query
from holdfast.rows.draws import Fresh, Order, check_key
from holdfast.rows.source import RowSource


@dataclass(frozen=True, kw_only=True)
class FreshRows:
    """The next `draws` rows: `key` fixes the order of all rows, `start` is how many of them are used up."""

    draws: int
    key: bytes = field(repr=False)
    start: int = 0

    def __post_init__(self) -> None:
        check.whole(draws=self.draws)
        check.whole(0, start=self.start)
        check_key(self.key)

    @classmethod
    def under(cls, guarantee: Guarantee, draws: int, order: Order | None) -> Self:
        """Return the mechanism for the next rows in the ledger's secret order."""
        if order is None or not guarantee.in_order:
            raise guarantee.cannot_certify("fresh rows")
        return cls(draws=draws, key=order.key, start=order.start)

    @staticmethod
    def rows_read(statistic: Statistic, draws: int, rows: int) -> int:
        """One pass over the fresh rows."""
        return draws

    def release(self, query: Query, source: RowSource, rng: Generator) -> ExactMeans:
        """Average the next rows of the order."""
        left = len(source) - self.start
        if self.draws > left:
            raise BudgetExhausted(
                f"Splitting has {left:,} fresh rows left and needs {self.draws:,}.",
                cost=self.draws,
                left=left,
                total=len(source),
                unit="rows",
            )
        values = source.sample(query, Fresh(self.key, self.start, self.draws), rng)
        columns = query.statistic.columns(values)
        means = tuple(float(column.mean()) for column in columns)
        return ExactMeans(query.statistic.from_means(means), self.draws, means, query.statistic.counted(columns))


MECHANISMS.register("fresh_rows", FreshRows)
