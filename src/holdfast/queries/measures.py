"""The measures of one row: shares, means, comparisons with a threshold.

Quadratic forms of a row's values are behind moments, slices of a number behind means with long tails.
"""

import json
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from json.encoder import encode_basestring
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.cached import cached_property
from holdfast.guarantees.mathematics.moments import QuadraticForm
from holdfast.guarantees.statistic import GroupMean, OneMean, OneShare, Statistic
from holdfast.queries.evaluate import RowFunction, booleans, floats, nan_unless
from holdfast.queries.node import identifier
from holdfast.queries.query import Composed, Function, RowValues, Values

_SHARE, _MEAN, _GROUP = OneShare(), OneMean(), GroupMean()
encode_facts = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode


@cache
def _cached(kind: type) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """Return the cached properties of a measure that every question needs, each after those that it uses."""
    names = ("statistic", "bounds", "text", "identity", "functions", "columns", "work")
    found = ((name, getattr(kind, name)) for name in names)
    return tuple((name, one.func) for name, one in found if isinstance(one, cached_property))


class Measure(Composed):
    """A value per row and, with `where`, the group of rows that count."""

    value: RowFunction
    where: RowFunction | None = None

    def complete(self) -> Self:
        """Compute all cached properties now, so that they are ready when the same text is asked again."""
        own = self.__dict__
        for name, compute in _cached(type(self)):  # their lock would cost more than the computation
            own[name] = compute(self)
        return self

    @abstractmethod
    def _identity(self, value: str, where: str | None) -> str:
        """Return the canonical text, from the canonical texts of `value` and `where`."""

    @abstractmethod
    def _values(self, values: Any, inside: NDArray[np.bool_] | None) -> Values:
        """Return each row's outcome, from its value (a series or an array) and whether it is inside the group."""

    @cached_property
    def identity(self) -> str | None:
        """Canonical text."""
        value, where = self.value.identity, None if self.where is None else self.where.identity
        if value is None or (self.where is not None and where is None):
            return None
        return self._identity(value, where)

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """The value and, if there is one, the condition of the group."""
        return (self.value,) if self.where is None else (self.value, self.where)

    def combined(self, row_values: Sequence[RowValues]) -> Values:
        """Return each row's outcome; NaN outside the group."""
        return self._values(row_values[0], None if self.where is None else booleans(row_values[1]))

    def _where_text(self) -> str:
        return "" if self.where is None else f" where {self.where.text}"


@dataclass(frozen=True)
class Share(Measure):
    """How often a condition is true. NULL counts as false; with `where`, only rows for which that is true count."""

    value: RowFunction
    where: RowFunction | None = None

    @cached_property
    def statistic(self) -> Statistic:
        """A share of all rows, or of a group."""
        return _SHARE if self.where is None else _GROUP

    @cached_property
    def text(self) -> str:
        """The question in words."""
        return f"share of {self.value.text}{self._where_text()}"

    def _identity(self, value: str, where: str | None) -> str:
        """Spelled out as `encode_facts` does it, because most questions are shares."""
        inside = "null" if where is None else encode_basestring(where)
        return f'{{"kind":"share","value":{encode_basestring(value)},"where":{inside}}}'

    def _values(self, values: Any, inside: NDArray[np.bool_] | None) -> Values:
        yes = booleans(values)
        return yes if inside is None else nan_unless(inside, yes)


class OfNumber(Measure):
    """What a number is. Rows without one do not count."""

    @cached_property
    def incomplete(self) -> str | None:  # type: ignore[override]
        """The column, if all that is asked about is one whose values may be missing."""
        if self.where is not None or not self.value.nullable or len(self.value.columns) != 1:
            return None
        (name,) = self.value.columns
        return identifier(name) if self.value.text in (identifier(name), str(pl.col(name))) else None


@dataclass(frozen=True)
class Mean(OfNumber):
    """The mean of a number, clipped to declared bounds. Rows without a value, or outside `where`, do not count."""

    value: RowFunction
    bounds: tuple[float, float] = (0.0, 1.0)
    where: RowFunction | None = None

    @cached_property
    def statistic(self) -> Statistic:
        """A mean over all rows, or over those that have a value."""
        return _GROUP if self.value.nullable or self.where is not None else _MEAN

    @cached_property
    def text(self) -> str:
        """The question in words."""
        low, high = self.bounds
        return f"mean of {self.value.text} within [{low:.15g}, {high:.15g}]{self._where_text()}"

    def _identity(self, value: str, where: str | None) -> str:
        return encode_facts({"kind": "mean", "within": self.bounds, "value": value, "where": where})

    def _values(self, values: Any, inside: NDArray[np.bool_] | None) -> Values:
        """Rescale from the bounds to [0, 1]; NaN where a row does not count."""
        low, high = self.bounds
        scaled = floats(values) - low
        scaled /= high - low
        scaled.clip(0.0, 1.0, out=scaled)  # also what rounding puts slightly above 1; NaN stays NaN
        if self.statistic is _MEAN:
            scaled[np.isnan(scaled)] = 0.0  # not nullable, so this is infinity minus infinity: counts as low
        return scaled if inside is None else nan_unless(inside, scaled)


@dataclass(frozen=True)
class Total(Mean):
    """What a number adds to a sum: nothing for rows without a value, or outside `where`. Its bounds include 0."""

    within: tuple[float, float] = (0.0, 1.0)  # the declared bounds, to which a value is clipped

    incomplete = None  # missing values count as 0 here

    @cached_property
    def statistic(self) -> Statistic:
        """A mean over all rows."""
        return _MEAN

    @cached_property
    def text(self) -> str:
        """The question in words."""
        return Mean(self.value, self.within, self.where).text

    def _identity(self, value: str, where: str | None) -> str:
        return encode_facts({"kind": "total", "within": self.within, "value": value, "where": where})

    def _values(self, values: Any, inside: NDArray[np.bool_] | None) -> Values:
        """Rescale from the bounds to [0, 1]; rows that do not count are put where 0 is."""
        low, high = self.bounds
        numbers = np.nan_to_num(np.clip(floats(values), *self.within), nan=0.0)
        if inside is not None:
            numbers *= inside
        return np.clip((numbers - low) / (high - low), 0.0, 1.0)


@dataclass(frozen=True)
class AtMost(OfNumber):
    """How often a value is at most `threshold`, among rows that have one: what quantiles ask."""

    value: RowFunction
    threshold: float
    where: RowFunction | None = None

    @cached_property
    def statistic(self) -> Statistic:
        """A share of all rows, or of those that have a value."""
        return _GROUP if self.value.nullable or self.where is not None else _SHARE

    @property
    def text(self) -> str:
        """The question in words."""
        return f"share of {self.value.text} <= {self.threshold:.15g}{self._where_text()}"

    def _identity(self, value: str, where: str | None) -> str:
        return encode_facts({"kind": "at_most", "threshold": self.threshold, "value": value, "where": where})

    def _values(self, values: Any, inside: NDArray[np.bool_] | None) -> Values:
        numbers = floats(values)
        below = numbers <= self.threshold
        if self.statistic is _SHARE:
            return below
        known = ~np.isnan(numbers)
        return nan_unless(known if inside is None else known & inside, below)


def about(measure: Composed) -> str:
    """Return the text of a measure without its leading "mean of" or "share of"."""
    return measure.text.removeprefix("mean of ").removeprefix("share of ")


@dataclass(frozen=True)
class Quadratic(Composed):
    """The mean of a form of one or two values, each rescaled to [0, 1].

    A value is a share, a mean, or the mean of one group. A row that lacks one of them, or is outside `where` or the
    group, does not count.
    """

    measures: tuple[Composed, ...]
    form: QuadraticForm  # of one value: of X alone
    everywhere: bool = False  # whether such rows count after all, as 0, so that the mean is over all rows

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """The range of the form, widened to include 0."""
        low, high = self.form.range
        return min(0.0, low), max(0.0, high)

    @property
    def some_left_out(self) -> bool:
        """Whether there may be rows that do not count."""
        return not self.everywhere and any(isinstance(one.statistic, GroupMean) for one in self.measures)

    @property
    def statistic(self) -> Statistic:
        """A mean, among rows that count."""
        return GroupMean() if self.some_left_out else OneMean()

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """The functions of all values."""
        return tuple(function for one in self.measures for function in one.functions)

    @cached_property
    def text(self) -> str:
        """The question in words."""
        return f"a moment of {' and '.join(map(about, self.measures))}"

    @cached_property
    def identity(self) -> str | None:
        """Canonical text."""
        parts = [one.identity for one in self.measures]
        return None if None in parts else encode_facts({"kind": "form", "form": repr(self.form), "of": parts})

    def combined(self, row_values: Sequence[RowValues]) -> Values:
        """Return the form of every row, rescaled to [0, 1]; without a value NaN, or 0 rescaled if `everywhere`."""
        rest = iter(row_values)
        first, *others = (
            np.subtract(one.combined(list(islice(rest, len(one.functions)))), center, dtype=np.float64)
            for one, center in zip(self.measures, self.form.about, strict=False)
        )
        low, high = self.bounds
        found: NDArray[np.float64] = self.form.at(first, others[0] if others else -self.form.about[1])
        if self.everywhere:
            found[np.isnan(found)] = 0.0
        found -= low
        found /= high - low
        return np.clip(found, 0.0, 1.0, out=found)


_ONE = OneMean()


@dataclass(frozen=True)
class Sliced(Composed):
    """How much of one slice of a number's range lies below the number; 0 for rows that do not count.

    The range of the mean that is asked for is cut at `edges`, rescaled to [0, 1], both ends included; there are none if
    that is found out first.
    """

    measure: Composed
    edges: tuple[float, ...]
    place: int = 0  # which slice; -1: whether the row counts at all
    cuts: tuple[float, ...] = field(
        default=(), compare=False
    )  # where the caller cut, in units of the number: for the text

    @property
    def statistic(self) -> Statistic:
        """A mean over all rows."""
        return _ONE

    @property
    def functions(self) -> tuple[Function, ...]:
        """The functions of the mean."""
        return self.measure.functions

    @cached_property
    def text(self) -> str:
        """The question in words."""
        if not self.cuts:
            return self.measure.text
        return f"{self.measure.text} in slices at {', '.join(f'{cut:.15g}' for cut in self.cuts)}"

    @cached_property
    def identity(self) -> str | None:
        """Canonical text."""
        own = self.measure.identity
        return None if own is None else encode_facts({"kind": "slices", "edges": self.edges, "of": own})

    def combined(self, row_values: Sequence[RowValues]) -> Values:
        """Return the part of the slice that is below the number."""
        values = self.measure.combined(row_values)
        if self.place < 0:
            return 1.0 - np.isnan(values)
        first, last = self.edges[self.place], self.edges[self.place + 1]
        part = np.subtract(values, first, dtype=np.float64)
        part /= last - first
        np.fmax(part, 0.0, out=part)  # also turns NaN into 0
        return np.minimum(part, 1.0, out=part)
