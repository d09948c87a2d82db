"""The queries behind moments and means with long tails: quadratic forms of a row's values, and slices of a number."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from holdfast.guarantees.mathematics.moments import QuadraticForm
from holdfast.guarantees.statistic import GroupMean, OneMean, Statistic
from holdfast.queries.measures import Mean, Share, encode_facts
from holdfast.queries.query import Composed, Function, RowValues, Values

Measured = Share | Mean


def about(measure: Measured) -> str:
    """Return the text of a measure without its leading "mean of" or "share of"."""
    return measure.text.removeprefix("mean of ").removeprefix("share of ")


@dataclass(frozen=True)
class Quadratic(Composed):
    """The mean of a form of one or two values, each rescaled to [0, 1].

    Parameters
    ----------
    measures
        The values. A row that lacks one of them, or is outside `where`, does not count.
    form
        The function of them; with one value, of X alone.
    everywhere
        Whether such rows count after all, as 0, so that the mean is over all rows.
    """

    measures: tuple[Measured, ...]
    form: QuadraticForm
    everywhere: bool = False

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

    Parameters
    ----------
    measure
        The mean that is asked for.
    edges
        Where its range is cut, rescaled to [0, 1], both ends included.
    place
        Which slice; -1: whether the row counts at all.
    """

    measure: Share | Mean | Quadratic
    edges: tuple[float, ...]
    place: int = 0

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
        low, high = self.measure.bounds
        cuts = ", ".join(f"{low + (high - low) * edge:.15g}" for edge in self.edges[1:-1])
        return f"{self.measure.text} in slices at {cuts}"

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
