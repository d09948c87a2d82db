"""Histograms: how many rows have each of several listed values, or a number in each bin.

A `Position` is the place of a row's value in a list: the category of a histogram, and the group of a mean.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.cached import cached_property
from holdfast.guarantees.statistic import OutcomeShares, SharesWithin, SomeShares, SomeSharesWithin, Statistic
from holdfast.queries.evaluate import RowFunction, booleans, floats
from holdfast.queries.measures import Measure, encode_facts
from holdfast.queries.node import literal_text
from holdfast.queries.query import Direct, Function, OnePass, RowValues, Values
from holdfast.schema import Category, Column, Type

Numbers = NDArray[np.int64]

LARGEST = np.uint64(2**63 - 1)
FEW_TEXTS = 1_000  # up to this many are looked up faster one by one
FEW_EDGES = 100


@dataclass(frozen=True)
class _InList:
    """A function's value, compared with a list."""

    of: RowFunction
    listed: tuple[Category, ...]
    nullable = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return self.of.columns

    @property
    def work(self) -> int:
        """Steps that one row takes."""
        return self.of.work


@dataclass(frozen=True)
class Position(_InList):
    """The place of a function's value in a list; the list's length for other values, NULL included."""

    type = Type.INT

    @property
    def identity(self) -> str | None:
        """The identity of the function; the caller adds the list."""
        return self.of.identity

    @cached_property
    def direct(self) -> Direct | None:
        """How to evaluate on arrays, without a frame."""
        value = self.of.direct
        return None if value is None else lambda columns: self._in_array(value(columns))

    def _in_array(self, values: NDArray[Any]) -> Numbers:
        if values.dtype == object:  # texts
            return np.array([self._known.get(text, len(self.listed)) for text in values], dtype=np.int64)
        return _in_array(values, self._ordered)

    def series(self, rows: pl.DataFrame) -> pl.Series:
        """Return one place per row."""
        return self.places_of(self.of.series(rows))

    def places_of(self, values: pl.Series) -> pl.Series:
        """Return the place of each of these values."""
        if values.dtype == pl.String and values.len() <= FEW_TEXTS:
            other = len(self.listed)
            return pl.Series([self._known.get(text, other) for text in values.to_list()], dtype=pl.Int64)
        return _in_series(values, self.listed)

    @cached_property
    def _known(self) -> dict[Any, int]:
        return {value: place for place, value in enumerate(self.listed)}

    @cached_property
    def _ordered(self) -> tuple[NDArray[Any], Numbers]:
        """The values in increasing order, and the place of each."""
        listed = np.asarray(self.listed)
        order = np.argsort(listed)
        return listed[order], order


@dataclass(frozen=True)
class Unlisted(_InList):
    """Whether a function's value is not in a list; false for NULL."""

    type = Type.BOOL
    direct = None
    range = None

    @property
    def reads(self) -> dict[str, Column]:
        """The same columns, by name."""
        return self.of.reads

    @property
    def text(self) -> str:
        """Human-readable text."""
        return f"{self.of.text} not in ({', '.join(map(literal_text, self.listed))})"

    @property
    def identity(self) -> str | None:
        """Canonical text; None if the function has none."""
        return None if self.of.identity is None else f"{self.of.identity} not in {self.listed!r}"

    def series(self, rows: pl.DataFrame) -> pl.Series:
        """Return true or false per row."""
        values = self.of.series(rows)
        found = Position(self.of, self.listed).places_of(values)
        return values.is_not_null() & (found == len(self.listed))


def places(row_values: RowValues) -> Numbers:
    """Return the values of a `Position` as an array."""
    return row_values.to_numpy() if isinstance(row_values, pl.Series) else row_values


def _in_array(values: NDArray[Any], listed: tuple[NDArray[Any], Numbers]) -> Numbers:
    if values.dtype == np.uint64:
        values = np.minimum(values, LARGEST).astype(np.int64)  # clipped, as everywhere else
    ordered, order = listed
    found = np.maximum(count_up_to(values, ordered), 1) - 1
    found_at: Numbers = ordered.size + (order.take(found) - ordered.size) * (ordered.take(found) == values)
    return found_at


def count_up_to(values: NDArray[Any], edges: NDArray[Any]) -> NDArray[np.unsignedinteger | np.signedinteger]:
    """Return how many of these increasing edges are at most each value; for NaN, none or all of them.

    Comparing with each of a few edges is several times faster than searching among them, whose branches a processor
    cannot predict, and takes as long whatever the values are.
    """
    if edges.size > FEW_EDGES:
        return np.searchsorted(edges, values, side="right")
    count = np.zeros(values.size, np.uint8)
    for edge in edges:
        count += (values >= edge).view(np.uint8)
    return count


def _in_series(values: pl.Series, listed: Sequence[Category]) -> pl.Series:
    other = len(listed)
    if values.dtype == pl.String:
        codes = values.cast(pl.Enum([str(one) for one in listed]), strict=False).to_physical()
        return codes.cast(pl.Int64).fill_null(other)
    values_of = pl.Series(listed, dtype=values.dtype, strict=False)
    return values.replace_strict(values_of, range(other), default=other, return_dtype=pl.Int64)


@dataclass(frozen=True)
class Histogram(Measure):
    """Which of the declared categories a row falls into; everything else, NULL included, is "other"."""

    value: RowFunction
    categories: tuple[Category, ...]

    @cached_property
    def statistic(self) -> Statistic:
        """The share of each category, then of "other"."""
        return OutcomeShares(len(self.categories) + 1)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """What each outcome is called."""
        return _labels(str(category) for category in self.categories)

    @cached_property
    def text(self) -> str:
        """The question in words."""
        shown = ", ".join(literal_text(category) for category in self.categories[:8])
        more = f" and {len(self.categories) - 8} more" if len(self.categories) > 8 else ""
        return f"histogram of {self.value.text} over {shown}{more}"

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """The number of the category."""
        return (Position(self.value, self.categories),)

    def _identity(self, value: str, where: str | None) -> str:
        categories = [literal_text(category) for category in self.categories]  # their order is part of the question
        return encode_facts({"kind": "histogram", "categories": categories, "value": value, "where": where})

    def _values(self, values: Any, inside: NDArray[np.bool_] | None) -> Values:
        return places(values)


@dataclass(frozen=True)
class Bins(Measure):
    """Which right-open bin [edge, next edge) a number falls into; everything else, NULL included, is "other"."""

    value: RowFunction
    edges: tuple[float, ...]

    @cached_property
    def statistic(self) -> Statistic:
        """The share of each bin, then of "other"."""
        return OutcomeShares(len(self.edges))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """What each outcome is called."""
        pairs = zip(self.edges, self.edges[1:], strict=False)
        return _labels(f"[{_edge(low)}, {_edge(high)})" for low, high in pairs)

    @cached_property
    def text(self) -> str:
        """The question in words."""
        low, high = self.edges[0], self.edges[-1]
        return f"histogram of {self.value.text} in {len(self.edges) - 1} bins over [{low:.15g}, {high:.15g})"

    def _identity(self, value: str, where: str | None) -> str:
        return encode_facts({"kind": "bins", "edges": self.edges, "value": value, "where": where})

    def _values(self, values: Any, inside: NDArray[np.bool_] | None) -> Values:
        """Return the number of the bin per row."""
        edges, numbers = self._table
        return numbers.take(count_up_to(floats(values), edges))

    @cached_property
    def _table(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The edges, and the number of the bin by how many of them are at most a value."""
        other = len(self.edges) - 1
        return np.array(self.edges), np.array([other, *range(other), other])


@dataclass(frozen=True)
class SomeOutcomes(OnePass):
    """Some outcomes of a histogram, from `start` to `stop` - 1; the last outcome is all others."""

    histogram: Histogram | Bins
    start: int
    stop: int

    @cached_property
    def statistic(self) -> Statistic:
        """The shares of these outcomes."""
        return SomeShares(self.stop - self.start + 1)

    @property
    def labels(self) -> tuple[str, ...]:
        """What each outcome is called."""
        return (*self.histogram.labels[self.start : self.stop], "all others")

    @property
    def value(self) -> RowFunction:
        """What the histogram is of."""
        return self.histogram.value

    @property
    def text(self) -> str:
        """The question in words."""
        return self.histogram.text

    @property
    def functions(self) -> tuple[Function, ...]:
        """The functions of the histogram."""
        return self.histogram.functions

    def combined(self, row_values: Sequence[RowValues]) -> Values:
        """Return the number of the outcome per row, counted from `start`."""
        outcomes: Any = self.histogram.combined(row_values)
        numbers: Values = self._numbers.take(outcomes)
        return numbers

    def of_whole(self, counts: Numbers) -> Numbers:
        """Return the counts of its own outcomes, and of all others."""
        own = np.append(counts[self.start : self.stop], counts.sum())
        own[-1] -= own[:-1].sum()
        return own

    @cached_property
    def _numbers(self) -> NDArray[np.int64]:
        """The number of each outcome of the histogram."""
        numbers = np.full(self.histogram.statistic.outcomes, self.stop - self.start)
        numbers[self.start : self.stop] = np.arange(self.stop - self.start)
        return numbers


@dataclass(frozen=True)
class HistogramWithin(OnePass):
    """A histogram of the rows for which a condition is true; the last outcome is all other rows."""

    histogram: Histogram | Bins | SomeOutcomes
    where: RowFunction

    @cached_property
    def statistic(self) -> Statistic:
        """The share of each category among the rows inside."""
        some = isinstance(self.histogram, SomeOutcomes)
        return (SomeSharesWithin if some else SharesWithin)(self.histogram.statistic.outcomes + 1)

    @property
    def labels(self) -> tuple[str, ...]:
        """What each category is called."""
        return self.histogram.labels

    @cached_property
    def text(self) -> str:
        """The question in words."""
        return f"{self.histogram.text} where {self.where.text}"

    @cached_property
    def identity(self) -> str | None:
        """Canonical text."""
        parts = (self.histogram.identity, self.where.identity)
        return None if None in parts else encode_facts({"kind": "within", "of": parts})

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """The functions of the histogram, and the condition."""
        return (*self.histogram.functions, self.where)

    def of_whole(self, counts: Numbers) -> Numbers:
        """Return the counts of its own outcomes inside, and of all others; outside is outside."""
        inside = self.histogram.of_whole(counts[:-1]) if isinstance(self.histogram, SomeOutcomes) else counts[:-1]
        return np.append(inside, counts[-1])

    def combined(self, row_values: Sequence[RowValues]) -> Values:
        """Return the number of the category per row; the last for rows outside."""
        *others, inside = row_values
        last = self.statistic.outcomes - 1
        numbers: Any = self.histogram.combined(others)
        outcomes: Values = last + (numbers - last) * booleans(inside)
        return outcomes


def _edge(x: float) -> str:
    """Write an edge with 15 digits if they identify the number, else with all digits."""
    text = f"{x:.15g}"
    return text if float(text) == x else repr(x)


def _labels(named: Iterable[str]) -> tuple[str, ...]:
    """Add a label for everything else, in as many parentheses as it takes to differ from all others.

    >>> _labels(["a", "b"]), _labels(["other", "(other)"])
    (('a', 'b', 'other'), ('other', '(other)', '((other))'))
    """
    labels = tuple(named)
    other = "other"
    while other in labels:
        other = f"({other})"
    return (*labels, other)
