"""What a question asks of the population, as a guarantee sees it.

A row drawn for a question has one of finitely many outcomes. What is asked is a share of them, or a ratio:

    OneShare        yes or no                        the share of yes
    SingleFlips     yes or no, each flip released    the expectation of every flip, and the share of yes
    OneMean         a coin with the row's value as   the mean of a value in [0, 1]
                    its bias
    GroupMean       excluded, 0 or 1                 the mean among rows that are not excluded
    OutcomeShares   one of c categories              the share of each

A statistic says how many statements an answer makes, reads values off what was released, and asks the guarantee for
the interval of each. Mechanisms and guarantees speak about statistics; none of them knows a kind of question.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from holdfast.guarantees.mathematics import debias

if TYPE_CHECKING:
    from holdfast.guarantees.guarantee import Guarantee
    from holdfast.guarantees.release import Release

Values = NDArray[np.bool_] | NDArray[np.float64] | NDArray[np.int64]  # what each drawn row says; see `queries.query`
Columns = list[NDArray[np.float64]]
Interval = tuple[float, float]


class Statistic(ABC):
    """One or several numbers in [0, 1] about the population."""

    @property
    @abstractmethod
    def outcomes(self) -> int:
        """How many outcomes one draw can have."""

    @property
    @abstractmethod
    def intervals(self) -> int:
        """How many statements about the population one answer makes: its part of the k of the theorems."""

    @property
    def reported(self) -> tuple[int, ...]:
        """The outcomes whose shares are reported."""
        return ()

    @abstractmethod
    def columns(self, values: Values) -> Columns:
        """Split what rows say into `intervals` statistical queries with values in [0, 1]."""

    @abstractmethod
    def from_means(self, means: Sequence[float]) -> tuple[float, ...]:
        """Read the values off (noisy) means of `columns`."""

    @abstractmethod
    def from_counts(self, counts: Sequence[int], draws: int, *, mass: float) -> tuple[float, ...]:
        """Read the values off counts of outcomes, each of which got extra mass."""

    @abstractmethod
    def counted(self, columns: Columns) -> tuple[int | None, ...]:
        """Return the sums of those columns that count rows; None for those that average values."""

    @abstractmethod
    def certify(self, release: "Release", guarantee: "Guarantee") -> list[Interval]:
        """Ask the guarantee for the interval of every value."""


class _OneNumber(Statistic):
    """Two outcomes, of which the second counts."""

    outcomes = 2
    intervals = 1
    reported = (1,)

    def columns(self, values: Values) -> Columns:
        """The values themselves; what is missing counts as zero."""
        return [np.nan_to_num(values.astype(np.float64), nan=0.0)]

    def from_means(self, means: Sequence[float]) -> tuple[float, ...]:
        """The mean itself."""
        return (clip(means[0]),)

    def from_counts(self, counts: Sequence[int], draws: int, *, mass: float) -> tuple[float, ...]:
        """The debiased share of ones."""
        return (debias.debias(counts[1] / draws, outcomes=2, mass=mass),)

    def certify(self, release: "Release", guarantee: "Guarantee") -> list[Interval]:
        """One interval."""
        return [guarantee.share(release, 0)]


@dataclass(frozen=True)
class OneShare(_OneNumber):
    """The share of rows that say yes."""

    def counted(self, columns: Columns) -> tuple[int | None, ...]:
        """Rows are counted."""
        return (int(columns[0].sum()),)


@dataclass(frozen=True)
class SingleFlips(OneShare):
    """The share of rows that say yes, by flips that are released one by one (sampling counting queries)."""


@dataclass(frozen=True)
class OneMean(_OneNumber):
    """The mean of a value in [0, 1]."""

    def counted(self, columns: Columns) -> tuple[int | None, ...]:
        """Values are averaged."""
        return (None,)


@dataclass(frozen=True)
class GroupMean(Statistic):
    """The mean of a value in [0, 1] among the rows that are not excluded."""

    outcomes = 3  # excluded, 0 and 1
    intervals = 2  # the group's share, and its mean

    def columns(self, values: Values) -> Columns:
        """Who is in the group, and what they add to its sum."""
        numbers = values.astype(np.float64)
        included = ~np.isnan(numbers)
        return [included.astype(np.float64), np.where(included, numbers, 0.0)]

    def from_means(self, means: Sequence[float]) -> tuple[float, ...]:
        """Sum over size; 1/2 for a group that seems empty."""
        return (clip(means[1] / means[0]) if means[0] > 0 else 0.5,)

    def from_counts(self, counts: Sequence[int], draws: int, *, mass: float) -> tuple[float, ...]:
        """Ones among the included, debiased; 1/2 for a group that seems empty."""
        included = counts[1] + counts[2]
        pi = included / draws
        if pi <= 2 * mass:
            return (0.5,)
        return (debias.group_mean(counts[2] / included, pi, mass=mass),)

    def counted(self, columns: Columns) -> tuple[int | None, ...]:
        """The group's size is counted, its sum is not."""
        return (int(columns[0].sum()), None)

    def certify(self, release: "Release", guarantee: "Guarantee") -> list[Interval]:
        """One interval, from two statements."""
        return [guarantee.group(release)]


@dataclass(frozen=True)
class OutcomeShares(Statistic):
    """The share of each of several outcomes."""

    outcomes: int = 2

    @property
    def intervals(self) -> int:
        """One for each outcome."""
        return self.outcomes

    @property
    def reported(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(range(self.outcomes))

    def columns(self, values: Values) -> Columns:
        """One column for each outcome: whether the row has it."""
        return [(values == outcome).astype(np.float64) for outcome in range(self.outcomes)]

    def from_means(self, means: Sequence[float]) -> tuple[float, ...]:
        """The means themselves."""
        return tuple(clip(mean) for mean in means)

    def from_counts(self, counts: Sequence[int], draws: int, *, mass: float) -> tuple[float, ...]:
        """Debiased shares."""
        return tuple(debias.debias(count / draws, outcomes=self.outcomes, mass=mass) for count in counts)

    def counted(self, columns: Columns) -> tuple[int | None, ...]:
        """Rows are counted."""
        return tuple(int(column.sum()) for column in columns)

    def certify(self, release: "Release", guarantee: "Guarantee") -> list[Interval]:
        """One interval for each outcome."""
        return [guarantee.share(release, part) for part in range(self.outcomes)]


def clip(x: float) -> float:
    """Return x, moved into [0, 1]."""
    return min(1.0, max(0.0, x))
