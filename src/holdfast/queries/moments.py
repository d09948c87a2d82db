"""Two coins for the same row: what variances, covariances and differences of pairs are worked out of."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.guarantees.statistic import GroupMean, JointCells, Statistic
from holdfast.queries.measures import Mean, Share, encode_facts
from holdfast.queries.query import Composed, Function, Said, Values

Law = NDArray[np.float64]
Measured = Share | Mean


def about(measure: Measured) -> str:
    """Return how the value of a measure reads, without what is asked of it."""
    return measure.text.removeprefix("mean of ").removeprefix("share of ")


class TwoCoins(Composed):
    """The law of a few cells for each row. A row without a value, or outside `where`, is in none."""

    @property
    @abstractmethod
    def measures(self) -> tuple[Measured, ...]:
        """The values that the cells depend on, each rescaled to [0, 1]."""

    @abstractmethod
    def law(self, *values: Law) -> list[Law]:
        """Return the probability of each cell, from the values."""

    @property
    @abstractmethod
    def cells(self) -> int:
        """How many cells there are."""

    @property
    def unions(self) -> tuple[tuple[int, ...], ...]:
        """Sets of cells whose shares are worth an interval of their own."""
        return ()

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called in its identity."""

    @cached_property
    def some_left_out(self) -> bool:
        """Whether there may be rows that do not count; then they are the first outcome."""
        return any(isinstance(one.statistic, GroupMean) for one in self.measures)

    @cached_property
    def statistic(self) -> Statistic:
        """The law of the cells, after the outcome of those left out."""
        shift = int(self.some_left_out)
        return JointCells(self.cells + shift, tuple(tuple(cell + shift for cell in union) for union in self.unions))

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """Those of the values."""
        return tuple(function for one in self.measures for function in one.functions)

    @cached_property
    def identity(self) -> str | None:
        """Canonical text."""
        parts = [one.identity for one in self.measures]
        return None if None in parts else encode_facts({"kind": self.name, "of": parts})

    def combined(self, said: Sequence[Said]) -> Values:
        """Return the probabilities of all outcomes but the first."""
        values, rest = [], iter(said)
        for one in self.measures:
            values.append(one.combined(list(islice(rest, len(one.functions)))).astype(np.float64))
        law = np.stack(self.law(*values), axis=1)
        if not self.some_left_out:
            return law[:, 1:]
        law[np.isnan(law).any(axis=1)] = 0.0
        return law


@dataclass(frozen=True)
class TwoOfOne(TwoCoins):
    """Two coins of one value: how many of them fall on one. Cells: none, one, both.

    A row counts only if it also has a value of `beside`, if that is given: a covariance with it is of such rows.
    """

    measure: Measured
    beside: Measured | None = None
    cells = 3
    name = "two coins"

    @property
    def measures(self) -> tuple[Measured, ...]:
        """The one, and what a row must have beside it."""
        return (self.measure,) if self.beside is None else (self.measure, self.beside)

    @property
    def text(self) -> str:
        """How it reads."""
        return f"two coins of {about(self.measure)}"

    def law(self, *values: Law) -> list[Law]:
        """None, one, both."""
        v = np.where(np.isnan(values[-1]), np.nan, values[0])
        return [(1 - v) ** 2, 2 * v * (1 - v), v * v]


@dataclass(frozen=True)
class OneOfTwo(TwoCoins):
    """A coin of each of two values. Cells: neither, the second only, the first only, both."""

    first: Measured
    second: Measured
    cells = 4
    name = "a coin of each"
    unions = ((2, 3), (1, 3), (0, 3))  # the first, the second, both alike

    @property
    def measures(self) -> tuple[Measured, ...]:
        """Both."""
        return self.first, self.second

    @property
    def text(self) -> str:
        """How it reads."""
        return f"a coin of {about(self.first)} and one of {about(self.second)}"

    def law(self, *values: Law) -> list[Law]:
        """Neither, the second only, the first only, both."""
        x, y = values
        return [(1 - x) * (1 - y), (1 - x) * y, x * (1 - y), x * y]


@dataclass(frozen=True)
class Paired(TwoCoins):
    """Which of two values of a row is larger, by a coin with their distance as its bias. Cells: none, second, first."""

    first: Measured
    second: Measured
    cells = 3
    name = "difference of a pair"

    @property
    def measures(self) -> tuple[Measured, ...]:
        """Both."""
        return self.first, self.second

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """Those of the difference."""
        (low, high), (other_low, other_high) = self.first.bounds, self.second.bounds
        return low - other_high, high - other_low

    @property
    def text(self) -> str:
        """How it reads."""
        return f"{self.first.text} less {about(self.second)}"

    def law(self, *values: Law) -> list[Any]:
        """None, the second, the first."""
        gap = values[0] - values[1]
        return [1 - np.abs(gap), np.maximum(-gap, 0), np.maximum(gap, 0)]
