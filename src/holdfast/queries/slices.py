"""The slices of a number, each asked by coins of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from holdfast.guarantees.statistic import OneMean, Statistic
from holdfast.queries.measures import Mean, Share, encode_facts
from holdfast.queries.moments import Quadratic
from holdfast.queries.query import Composed, Function, RowValues, Values

_ONE = OneMean()


@dataclass(frozen=True)
class Sliced(Composed):
    """How much of one slice of a number's range lies below the number; 0 for rows that do not count.

    Parameters
    ----------
    measure
        The mean that is asked.
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
        """Those of the mean."""
        return self.measure.functions

    @cached_property
    def text(self) -> str:
        """How it reads."""
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
        np.fmax(part, 0.0, out=part)  # also where it is NaN
        return np.minimum(part, 1.0, out=part)
