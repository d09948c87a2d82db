"""Queries about whole units, and about rows that do not all count equally.

A row source of units draws a unit and then one of its rows, chosen at random, so that every unit counts equally
whatever the question is. Two kinds of queries ask for something else:

    WholeUnit    all rows of the unit together: any, all, at least a given number of them, their sum up to a cap
    Accepted     a row counts with a probability: its weight over the largest weight, or such that all rows count
                 equally, whatever the size of their unit; the mean is over the rows that count
                 (docs/proofs/units.md, Theorem W)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast import check
from holdfast.cached import cached_property
from holdfast.errors import InvalidArgument, InvalidQuery
from holdfast.guarantees.statistic import GroupMean, OneMean, OneShare, Statistic
from holdfast.queries.build import QueryLike, condition, rowwise
from holdfast.queries.evaluate import RowFunction, booleans, floats
from holdfast.queries.measures import Measure, encode_facts
from holdfast.queries.node import with_article
from holdfast.queries.query import Composed, Function, Query, RowValues, Values
from holdfast.schema import Schema, Type

Numbers = NDArray[np.float64]
Truths = NDArray[np.bool_]
HAVING = ("any", "all")


class Fold(Protocol):
    """How the rows of a unit become one value: from the number of rows that count and the sum of their values."""

    @property
    def bounds(self) -> tuple[float, float]:
        """The range of the value."""

    def text(self, value: str, unit: str) -> str:
        """Return the question about this value, in words."""

    def __call__(self, counted: Numbers, total: Numbers) -> Values:
        """Return one value for each unit, in [0, 1]."""


@dataclass(frozen=True)
class AtLeast:
    """Whether at least this many rows meet the condition."""

    rows: int
    bounds = (0.0, 1.0)

    def text(self, value: str, unit: str) -> str:
        """Return the question in words."""
        return f"share of units ({unit}) with {value} in at least {self.rows:,} row{'' if self.rows == 1 else 's'}"

    def __call__(self, counted: Numbers, total: Numbers) -> Values:
        """Return whether enough rows meet it."""
        return total >= self.rows


@dataclass(frozen=True)
class Every:
    """Whether all rows meet the condition."""

    bounds = (0.0, 1.0)

    def text(self, value: str, unit: str) -> str:
        """Return the question in words."""
        return f"share of units ({unit}) with {value} in all rows"

    def __call__(self, counted: Numbers, total: Numbers) -> Values:
        """Return whether all rows that count meet it."""
        return total >= counted


@dataclass(frozen=True)
class SumUpTo:
    """The sum of the rows' numbers, or the number of rows that meet a condition, clipped to [0, cap]."""

    cap: float

    @property
    def bounds(self) -> tuple[float, float]:
        """From 0 to the cap."""
        return 0.0, self.cap

    def text(self, value: str, unit: str) -> str:
        """Return the question in words."""
        return f"mean over units ({unit}) of the sum of {value}, each up to {self.cap:.15g}"

    def __call__(self, counted: Numbers, total: Numbers) -> Values:
        """Rescale to [0, 1]; infinity minus infinity counts as 0."""
        scaled: Values = np.nan_to_num(np.clip(total, 0.0, self.cap) / self.cap, nan=0.0)
        return scaled


@dataclass(frozen=True)
class WholeUnit(Query):
    """One value from all rows of a unit. With `where`, from the rows inside; a unit without any does not count."""

    value: RowFunction
    where: RowFunction | None
    fold: Fold
    unit: str

    speaks_of_units = True

    @cached_property
    def statistic(self) -> Statistic:
        """A share or a mean of all units, or of those with a row that counts."""
        if not self._everybody_counts:
            return GroupMean()
        return OneMean() if isinstance(self.fold, SumUpTo) else OneShare()

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """The bounds of the fold."""
        return self.fold.bounds

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        others = () if self.where is None else self.where.columns
        return tuple(dict.fromkeys((*self.value.columns, *others)))

    @cached_property
    def text(self) -> str:
        """The question in words."""
        where = "" if self.where is None else f", among rows where {self.where.text}"
        return self.fold.text(self.value.text, self.unit) + where

    @cached_property
    def work(self) -> int:  # type: ignore[override]
        """Steps that one row takes."""
        return self.value.work + (0 if self.where is None else self.where.work)

    @cached_property
    def identity(self) -> str | None:
        """Canonical text."""
        where = None if self.where is None else self.where.identity
        if self.value.identity is None or (self.where is not None and where is None):
            return None
        return encode_facts({"unit": repr(self.fold), "value": self.value.identity, "where": where})

    @property
    def _is_number(self) -> bool:
        return self.value.type is not Type.BOOL

    @cached_property
    def contributions_directly(self) -> Callable[[Any], tuple[Truths | None, Numbers | Truths]] | None:
        """Does the same as `contributions`, on arrays; None if that is not possible."""
        value, where = self.value.direct, None if self.where is None else self.where.direct
        if value is None or (self.where is not None and where is None):
            return None
        return lambda arrays: self._contributions(value(arrays), None if where is None else where(arrays))

    def contributions(self, rows: pl.DataFrame) -> tuple[Truths | None, Numbers | Truths]:
        """Return for each row whether it counts (None: all do), and what it adds to the sum of its unit."""
        return self._contributions(self.value.series(rows), None if self.where is None else self.where.series(rows))

    def _contributions(self, values: Any, inside: Any) -> tuple[Truths | None, Numbers | Truths]:
        if not self._is_number:
            adds = booleans(values)
            counts = None if inside is None else booleans(inside)
            return counts, adds if counts is None else adds & counts
        numbers = floats(values)
        if self._everybody_counts:
            return None, numbers
        counts = ~np.isnan(numbers)
        if inside is not None:
            counts &= booleans(inside)
        return counts, np.where(counts, numbers, 0.0)

    @cached_property
    def _everybody_counts(self) -> bool:
        return self.where is None and not (self._is_number and self.value.nullable)

    def folded(self, counted: Numbers, total: Numbers) -> Values:
        """Return each unit's value; NaN for a unit without a row that counts, if there can be such units."""
        values = self.fold(counted, total)
        return np.where(counted > 0, values, np.nan) if isinstance(self.statistic, GroupMean) else values

    def evaluate(self, rows: pl.DataFrame) -> Values:
        """Return each row's value, as if it were a unit by itself."""
        counts, adds = self.contributions(rows)
        counted = np.ones(rows.height) if counts is None else counts.astype(np.float64)
        return self.folded(counted, adds.astype(np.float64))


@dataclass(frozen=True)
class Accepted(Composed):
    """A share or a mean in which a drawn row counts with a probability.

    By weight it is weight/largest: larger weights count as the largest, missing and negative ones as 0. With the most
    rows that a unit has it is rows/rows_per_unit, so that all rows count equally.
    """

    measure: Measure
    weight: RowFunction | None = None
    largest: float = 1.0
    rows_per_unit: int | None = None
    unit: str | None = None

    @property
    def speaks_of_units(self) -> bool:  # type: ignore[override]
        """Whether all rows count equally, whatever their unit."""
        return self.rows_per_unit is not None

    @property
    def weighs(self) -> bool:  # type: ignore[override]
        """Whether rows have weights."""
        return self.weight is not None

    @cached_property
    def statistic(self) -> Statistic:
        """A mean over the rows that count."""
        return GroupMean()

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """The bounds of the measure."""
        return self.measure.bounds

    @cached_property
    def text(self) -> str:
        """The question in words."""
        weighted = "" if self.weight is None else f", weighted by {self.weight.text} up to {self.largest:.15g}"
        alike = f", every row alike, at most {self.rows_per_unit:,} a unit ({self.unit})" if self.rows_per_unit else ""
        return f"{self.measure.text}{weighted}{alike}"

    @cached_property
    def identity(self) -> str | None:
        """Canonical text."""
        weight = None if self.weight is None else self.weight.identity
        if self.measure.identity is None or (self.weight is not None and weight is None):
            return None
        facts = {"weight": weight, "largest": self.largest, "rows_per_unit": self.rows_per_unit}
        return encode_facts(facts | {"accepted": self.measure.identity})

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """The functions of the measure, and the weight."""
        return self.measure.functions if self.weight is None else (*self.measure.functions, self.weight)

    def combined(self, row_values: Sequence[RowValues]) -> Values:
        """Return each row's outcome; with weights, the probabilities of 0 and of 1."""
        if self.weight is None:
            return self.measure.combined(row_values).astype(np.float64)
        *others, weights = row_values
        ones = self.measure.combined(others).astype(np.float64)
        accepted = np.nan_to_num(np.clip(floats(weights) / self.largest, 0.0, 1.0), nan=0.0)
        accepted[np.isnan(ones)] = 0.0
        ones = accepted * np.nan_to_num(ones, nan=0.0)
        return np.column_stack([accepted - ones, ones])


def build_whole_unit(
    query: QueryLike,
    schema: Schema,
    *,
    having: str | None = None,
    at_least: int | None = None,
    cap: float | None = None,
    where: QueryLike | None = None,
) -> WholeUnit:
    """Return a query about all rows of a unit together, or about those for which `where` is true.

    At most one is given of `having`, "any" (the default) or "all" of the rows; `at_least`, this many rows; and `cap`,
    the most that their sum counts. The query is a condition; with `cap`, also a number.
    """
    asked = {"having": having, "at_least": at_least, "cap": cap}
    given = [name for name, value in asked.items() if value is not None]
    if len(given) > 1:
        raise InvalidArgument(f"Give at most one of {', '.join(asked)}; got {' and '.join(given)}.", name=given[1])
    unit = _unit_of(schema, "This question")
    fold: Fold = AtLeast(1)
    if cap is not None:
        check.positive(cap=cap)
        check.scale("cap", float(cap))
        fold = SumUpTo(float(cap))
    elif at_least is not None:
        check.whole(at_least=at_least)
        fold = AtLeast(int(at_least))
    elif having not in (None, *HAVING):
        raise InvalidArgument(f"having must be one of {', '.join(HAVING)}; got {having!r}.", name="having")
    elif having == "all":
        fold = Every()
    value = rowwise(query, schema)
    if value.type is not Type.BOOL and (cap is None or not value.type.is_number):
        needed = "A share of units needs a condition" if cap is None else "A sum needs numbers or a condition"
        hint = "; give cap= for the mean of their sums" if cap is None and value.type.is_number else ""
        raise InvalidQuery(f"{needed}; '{value.text}' is {with_article(value.type)}{hint}.")
    return WholeUnit(value, condition(where, schema), fold, unit)


def build_accepted(
    measure: Measure,
    schema: Schema,
    *,
    rows_per_unit: int | None = None,
    weight: QueryLike | None = None,
    largest_weight: float | None = None,
) -> Query:
    """Return a share or a mean whose rows count by weight, or equally in units of any size; without options, itself.

    `weight` is a number per row that says how much it counts, `largest_weight` the largest it may be, and
    `rows_per_unit` the most rows that a unit has.
    """
    if rows_per_unit is None and weight is None and largest_weight is None:
        return measure
    if rows_per_unit is not None:
        _unit_of(schema, "rows_per_unit")
        check.whole(rows_per_unit=rows_per_unit)
        rows_per_unit = int(rows_per_unit)
    number, largest = _weight(weight, largest_weight, schema)
    return Accepted(measure, number, largest, rows_per_unit, schema.unit)


def _unit_of(schema: Schema, what: str) -> str:
    if schema.unit is None:
        raise InvalidArgument(
            f"{what} is for data with units, and {schema.dataset} has none. Say which column names them where the data"
            " are opened: unit='patient'.",
            name="unit",
        )
    return schema.unit


def _weight(weight: QueryLike | None, largest_weight: float | None, schema: Schema) -> tuple[RowFunction | None, float]:
    if weight is None and largest_weight is None:
        return None, 1.0
    if weight is None:
        raise InvalidArgument("largest_weight must be left out unless weight is given.", name="largest_weight")
    if largest_weight is None:
        raise InvalidArgument(
            "largest_weight must be given with weight: the largest that you know of, without looking; larger ones count"
            " as that.",
            name="largest_weight",
        )
    check.positive(largest_weight=largest_weight)
    number = rowwise(weight, schema)
    if not number.type.is_number:
        raise InvalidQuery(f"A weight must be a number; '{number.text}' is {with_article(number.type)}.")
    return number, float(largest_weight)
