"""An expression in steps, so that its running time does not reveal what the rows hold.

Polars takes shortcuts where an expression chooses (when, then, otherwise). If all rows choose alike, the other branch
is not evaluated; and the result may be a single value for all rows, so that whatever follows is computed only once. One
differing row among thousands would show in the time of an answer. So everything that a choice mentions is evaluated
beforehand, for every row; the choice is made here; and its result is written out for every row.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl
from polars.exceptions import ShapeError


@dataclass(frozen=True)
class Case:
    """For every row the value whose condition is the first to be true; `otherwise` where none is. All of one type."""

    branches: tuple[tuple[pl.Expr, pl.Expr], ...]
    otherwise: pl.Expr

    @property
    def parts(self) -> tuple[pl.Expr, ...]:
        """Everything it mentions: the last value, then conditions and values from the last to the first."""
        return (self.otherwise, *(part for branch in reversed(self.branches) for part in branch))

    @staticmethod
    def among(parts: list[pl.Series]) -> pl.Series:
        """Choose each row's value, from the values of the parts."""
        chosen = parts[0]
        for condition, value in zip(parts[1::2], parts[2::2], strict=True):
            chosen = value.zip_with(condition, chosen)  # NULL is not true
        return chosen


@dataclass(frozen=True)
class AddedColumn:
    """A column to be added: an expression, with NULL for NaN if `cleaned`, or a choice."""

    name: str
    value: pl.Expr | Case
    cleaned: bool = False

    @property
    def parts(self) -> tuple[pl.Expr, ...]:
        """The expressions to be evaluated for it."""
        return self.value.parts if isinstance(self.value, Case) else (self.value,)

    def of(self, parts: list[pl.Series]) -> pl.Series:
        """Return the column, from the values of its parts."""
        values = Case.among(parts) if isinstance(self.value, Case) else parts[0]
        return (without_nan(values) if self.cleaned else values).alias(self.name)


@dataclass(frozen=True)
class Step:
    """Columns that are evaluated together."""

    columns: tuple[AddedColumn, ...]
    parts: tuple[pl.Expr, ...]

    @classmethod
    def of(cls, columns: Iterable[AddedColumn]) -> "Step":
        """Return a step that adds these columns."""
        added = tuple(columns)
        parts = [part for column in added for part in column.parts]
        return cls(added, tuple(part.alias(str(place)) for place, part in enumerate(parts)))

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows with the new columns."""
        # Sequentially: a draw is too small for threads to pay off.
        try:
            found = rows.select_seq(self.parts).get_columns()
        except ShapeError:  # Polars folded a part to a constant, and does not repeat it beside other columns
            found = [rows.select_seq(part).to_series() for part in self.parts]
        values = (repeated(each, rows.height) for each in found)
        return rows.hstack([column.of([next(values) for _ in column.parts]) for column in self.columns])


@dataclass(frozen=True)
class Steps:
    """An expression, and the steps before it."""

    before: tuple[Step, ...]
    value: pl.Expr

    def __call__(self, rows: pl.DataFrame) -> pl.Series:
        """Return one value per row; a constant may be one value for all of them."""
        for step in self.before:
            rows = step(rows)
        if self.value.meta.is_column():
            return rows.get_column(self.value.meta.output_name())
        return rows.select_seq(self.value).to_series()


class StepWriter:
    """Collects the steps of one expression over the given columns."""

    def __init__(self, columns: Iterable[str]) -> None:
        self._stem = max(columns, key=len, default="")  # names that extend the longest column name are new
        self._numbers: dict[str, int] = {}  # the step in which each new column is evaluated
        self._steps: list[list[AddedColumn]] = []

    def apart(self, value: pl.Expr | Case, *, cleaned: bool = False) -> pl.Expr:
        """Have the value evaluated beforehand for every row, with NULL for NaN if `cleaned`; return its column."""
        column = AddedColumn(f"{self._stem}#{len(self._numbers)}", value, cleaned)
        roots = (root for part in column.parts for root in part.meta.root_names())
        number = 1 + max((self._numbers.get(root, -1) for root in roots), default=-1)
        if number == len(self._steps):
            self._steps.append([])
        self._steps[number].append(column)
        self._numbers[column.name] = number
        return pl.col(column.name)

    def steps(self, value: pl.Expr) -> Steps:
        """Return all steps, the last of which gives the value."""
        return Steps(tuple(map(Step.of, self._steps)), value)


def repeated(values: pl.Series, count: int) -> pl.Series:
    """Return one value per row where Polars computed a constant expression once for all."""
    return values if values.len() == count else values.new_from_index(0, count)


def without_nan(series: pl.Series) -> pl.Series:
    """Return floats with NULL for NaN, by the same steps whether there are any or not; other types unchanged."""
    if not series.dtype.is_float():
        return series
    return series.zip_with(series.is_not_nan(), pl.Series(series.name, [None], dtype=series.dtype))
