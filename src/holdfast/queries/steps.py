"""An expression in steps, so that its time does not tell what the rows hold.

Polars takes shortcuts where an expression chooses (when, then, otherwise). If all rows choose alike, the other branch
is not evaluated; and what comes out may be a single value for all rows, so that whatever follows is computed once. A
row that differs, one among thousands, would show in the time of an answer. So everything a choice mentions is evaluated
before it, for every row, and what it gives is written out for every row.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import polars as pl


@dataclass(frozen=True)
class Step:
    """Columns to be added: their expressions, and which of them have NULL for NaN."""

    values: tuple[pl.Expr, ...]
    cleaned: tuple[bool, ...]

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows with the new columns."""
        added = [repeated(values, rows.height) for values in rows.select_seq(self.values).get_columns()]
        chosen = zip(added, self.cleaned, strict=True)
        return rows.hstack([without_nan(values) if cleaned else values for values, cleaned in chosen])


@dataclass(frozen=True)
class Steps:
    """An expression, and the steps before it."""

    before: tuple[Step, ...]
    value: pl.Expr

    def __call__(self, rows: pl.DataFrame) -> pl.Series:
        """Return one value per row; a constant may be one value for all of them."""
        for step in self.before:
            rows = step(rows)
        return rows.select_seq(self.value).to_series()


class StepWriter:
    """Collects the steps of one expression over the given columns."""

    def __init__(self, columns: Iterable[str]) -> None:
        self._stem = max(columns, key=len, default="")  # names that go on where the longest ends are new
        self._numbers: dict[str, int] = {}  # of the step in which each new column is evaluated
        self._steps: list[list[tuple[pl.Expr, bool]]] = []

    def apart(self, value: pl.Expr, *, cleaned: bool = False) -> pl.Expr:
        """Have the value evaluated beforehand for every row, with NULL for NaN if `cleaned`; return its column."""
        name = f"{self._stem}#{len(self._numbers)}"
        number = 1 + max((self._numbers.get(root, -1) for root in value.meta.root_names()), default=-1)
        if number == len(self._steps):
            self._steps.append([])
        self._steps[number].append((value.alias(name), cleaned))
        self._numbers[name] = number
        return pl.col(name)

    def steps(self, value: pl.Expr) -> Steps:
        """Return all steps, the last of which gives the value."""
        before = (zip(*step, strict=True) for step in self._steps)
        return Steps(tuple(Step(*columns) for columns in before), value)


def repeated(values: pl.Series, count: int) -> pl.Series:
    """Return one value per row where Polars computed a constant expression once for all."""
    return values if values.len() == count else values.new_from_index(0, count)


def without_nan(series: pl.Series) -> pl.Series:
    """Return floats with NULL for NaN, in the same way whether there are any or not; anything else as it is."""
    if not series.dtype.is_float():
        return series
    values: Any = series.to_numpy()  # NULL is NaN here
    return pl.Series(series.name, values, nan_to_null=True)
