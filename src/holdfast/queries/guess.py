"""A guess at a share or a mean, and the cells that tell how it fares."""

import json
from dataclasses import dataclass
from fractions import Fraction
from math import inf, nextafter

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.guarantees.release import HOLDS, TOO_FEW, TOO_HIGH, TOO_LOW
from holdfast.guarantees.statistic import GroupMean, Statistic
from holdfast.queries.evaluate import booleans
from holdfast.queries.measures import Measure, Share
from holdfast.queries.query import Direct, Query, Values

Interval = tuple[float, float]
Totals = NDArray[np.float64]  # counts, which are exact up to 2^53, and sums


@dataclass(frozen=True)
class Guess(Query):
    """That a measure lies within `margin` of `guess`, in its own units, on at least `at_least` rows.

    Its ends are exact fractions of the declared range: which cell a count falls into does not depend on rounding.
    """

    measure: Measure
    guess: float
    margin: float
    at_least: int

    @property
    def group(self) -> bool:
        """Whether it is about a group, which may turn out to be too small."""
        return isinstance(self.statistic, GroupMean)

    def speaking(self, rows: int) -> int:
        """Return how many rows speak at least, of so many."""
        return self.at_least if self.group else rows

    @property
    def holds(self) -> tuple[Fraction, Fraction]:
        """The cell of a guess that holds, both ends included, in [0, 1]."""
        low, high = map(Fraction, self.bounds)
        guess, margin = Fraction(self.guess), Fraction(self.margin)
        first, last = ((end - low) / (high - low) for end in (guess - margin, guess + margin))
        return max(Fraction(0), first), min(Fraction(1), last)

    @property
    def cell(self) -> Interval:
        """The same as floating-point numbers, rounded outward."""
        first, last = self.holds
        return max(0.0, nextafter(float(first), -inf)), min(1.0, nextafter(float(last), inf))

    @property
    def bounds(self) -> Interval:
        """The declared range."""
        return self.measure.bounds

    @property
    def statistic(self) -> Statistic:
        """What is guessed."""
        return self.measure.statistic

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return self.measure.columns

    @property
    def work(self) -> int:  # type: ignore[override]
        """The steps that one row takes."""
        return self.measure.work

    @property
    def text(self) -> str:
        """How it reads."""
        rows = f", on at least {self.at_least:,} rows" if self.group else ""
        return f"{self._subject} is {self.guess:.15g} ± {self.margin:.15g}{rows}"

    @property
    def _subject(self) -> str:
        return self.measure.text

    @property
    def identity(self) -> str | None:
        """Canonical text of the measure; the numbers are the caller's to add."""
        return self.measure.identity

    @property
    def direct(self) -> Direct | None:
        """The same on arrays."""
        return None if self._counts_a_group else self.measure.direct

    def evaluate(self, rows: pl.DataFrame) -> Values:
        """Return what each of these rows says; of a share in a group 0 outside, 1 for no and 2 for yes."""
        where = self.measure.where
        if where is None or not self._counts_a_group:
            return self.measure.evaluate(rows)
        inside, yes = booleans(where.series(rows)), booleans(self.measure.value.series(rows))
        codes: Values = np.add(inside, inside & yes, dtype=np.int8)
        return codes

    @property
    def _counts_a_group(self) -> bool:
        return isinstance(self.measure, Share) and self.measure.where is not None

    def totals(self, values: Values) -> Totals:
        """Return how many of these rows count, and the sum of what they say, in one or two parts."""
        return np.array([self._part(values)]).T

    def _part(self, values: Values) -> tuple[float, float]:
        if values.dtype == np.bool_:
            return values.size, float(np.count_nonzero(values))
        if self._counts_a_group:
            return int(np.count_nonzero(values)), float(np.count_nonzero(values == 2))
        if not self.group:
            return values.size, float(np.sum(values))
        missing = np.isnan(values)
        known = np.where(missing, 0.0, values)  # for all of them, lest the time tell how many are missing
        return values.size - int(np.count_nonzero(missing)), float(np.sum(known))

    def outcome(self, totals: Totals) -> str:
        """Return the cell that the mean falls into."""
        counts, sums = totals
        if counts.min() < self.at_least:
            return TOO_FEW
        low, high = self.holds
        mean = self._value([Fraction(total) / Fraction(count) for count, total in zip(counts, sums, strict=True)])
        return TOO_HIGH if mean < low else TOO_LOW if mean > high else HOLDS

    def _value(self, means: list[Fraction]) -> Fraction:
        (mean,) = means
        return mean


@dataclass(frozen=True)
class DifferenceGuess(Guess):
    """The same of the difference to another group; rows that are in both count in the first alone.

    With N rows in either group at least, (1 + difference)/2 is a mean of values in [0, 1] in which no row weighs more
    than 1/(2N): the mean in the first group, and one less the mean in the other, half and half.
    """

    other: Measure

    @property
    def group(self) -> bool:
        """Two groups."""
        return True

    def speaking(self, rows: int) -> int:
        """Return how many rows speak at least: of both groups."""
        return 2 * self.at_least

    @property
    def bounds(self) -> Interval:
        """The range of a difference."""
        low, high = self.measure.bounds
        return low - high, high - low

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of both."""
        return tuple(dict.fromkeys((*self.measure.columns, *self.other.columns)))

    @property
    def work(self) -> int:  # type: ignore[override]
        """The steps of both."""
        return self.measure.work + self.other.work

    @property
    def _subject(self) -> str:
        return f"{self.measure.text} less {self.other.text}"

    @property
    def identity(self) -> str | None:
        """Canonical text of both."""
        own, other = self.measure.identity, self.other.identity
        return None if own is None or other is None else json.dumps([own, other])

    @property
    def direct(self) -> None:
        """Two lines of values are not made from arrays."""

    def evaluate(self, rows: pl.DataFrame) -> Values:
        """Return two values for each row, of which at most one is a number."""
        own, other = (measure.evaluate(rows).astype(np.float64) for measure in (self.measure, self.other))
        return np.column_stack([own, np.where(np.isnan(own), other, np.nan)])

    def totals(self, values: Values) -> Totals:
        """Return counts and sums of both groups."""
        missing = np.isnan(values)
        known = np.where(missing, 0.0, values)
        return np.array([len(values) - np.count_nonzero(missing, axis=0), known.sum(axis=0)])

    def _value(self, means: list[Fraction]) -> Fraction:
        own, other = means
        return (1 + own - other) / 2
