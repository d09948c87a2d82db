"""A query made of a plain function, for tests of what lies beneath queries."""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from holdfast.queries.query import Said


@dataclass(frozen=True)
class PlainQuery:
    """Says what `says` says."""

    columns: tuple[str, ...]
    says: Callable[[pl.DataFrame], Said]
    outcomes: int = 2
    kind: str = "share"
    bounds: tuple[float, float] = (0.0, 1.0)
    text: str = "plain"
    identity: str | None = None

    def evaluate(self, rows: pl.DataFrame) -> Said:
        return self.says(rows)
