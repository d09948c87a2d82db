"""A query made of a plain function, for tests of what lies beneath queries."""

from collections.abc import Callable

import polars as pl

from holdfast.guarantees.statistic import OneShare, OutcomeShares, Statistic
from holdfast.queries.query import Query, Values


class PlainQuery(Query):
    """Says what `says` says: yes or no, or one of several outcomes."""

    text = "plain"

    def __init__(self, columns: tuple[str, ...], says: Callable[[pl.DataFrame], Values], outcomes: int = 2) -> None:
        self._columns = columns
        self.says = says
        self._statistic = OneShare() if outcomes == 2 else OutcomeShares(outcomes)

    @property
    def statistic(self) -> Statistic:
        return self._statistic

    @property
    def columns(self) -> tuple[str, ...]:
        return self._columns

    def evaluate(self, rows: pl.DataFrame) -> Values:
        return self.says(rows)
