"""A guess at a share or a mean, and the cells that tell how it fares."""

from dataclasses import dataclass
from fractions import Fraction
from math import inf, nextafter

import polars as pl

from holdfast.guarantees.statistic import GroupMean, Statistic
from holdfast.queries.measures import Measure
from holdfast.queries.query import Direct, Query, Values

Interval = tuple[float, float]


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

    @property
    def holds(self) -> tuple[Fraction, Fraction]:
        """The cell of a guess that holds, both ends included, in [0, 1]."""
        low, high = map(Fraction, self.measure.bounds)
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
    def text(self) -> str:
        """How it reads."""
        rows = f", on at least {self.at_least:,} rows" if self.group else ""
        return f"{self.measure.text} is {self.guess:.15g} ± {self.margin:.15g}{rows}"

    @property
    def identity(self) -> str | None:
        """Canonical text of the measure; the numbers are the caller's to add."""
        return self.measure.identity

    @property
    def direct(self) -> Direct | None:
        """The same on arrays."""
        return self.measure.direct

    def evaluate(self, rows: pl.DataFrame) -> Values:
        """Return what each of these rows says."""
        return self.measure.evaluate(rows)
