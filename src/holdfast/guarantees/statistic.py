"""What a question asks of the population, and what leaves a mechanism, as a guarantee sees them.

A row drawn for a question has one of finitely many outcomes. A statistic is a share of outcomes, or a ratio of shares:

    OneShare        yes or no                        the share of yes
    SingleFlips     yes or no, each flip released    the expectation of every flip, and the share of yes
    OneMean         a coin with the row's value as   the mean of a value in [0, 1]
                    its bias
    GroupMean       outside, or 0 or 1 in one of     the mean of a value in [0, 1] in each group
                    the groups
    Difference      the same, for two groups         the difference of their means
    OutcomeShares   one of c categories              the share of each
    SharesWithin    the same, or outside             the share of each among rows inside

A statistic says how many statements an answer makes, reads values off what was released, and asks the guarantee for
the interval of each. Mechanisms and guarantees work with statistics; they know nothing about question kinds.

A release is all that anybody learns about the rows, in one of the forms that guarantees can certify.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from holdfast.cached import cached_property
from holdfast.errors import InvalidArgument
from holdfast.guarantees.mathematics import shares
from holdfast.guarantees.mathematics.shares import clip

if TYPE_CHECKING:
    from holdfast.guarantees.guarantee import AnswerGuarantee

Values = NDArray[np.bool_] | NDArray[np.float64] | NDArray[np.int64]  # the values of drawn rows; see `queries.query`
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
        """Split the values of rows into `intervals` statistical queries with values in [0, 1]."""

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
    def certify(self, release: "Release", guarantee: "AnswerGuarantee") -> list[Interval]:
        """Ask the guarantee for the interval of every value."""


class _OneNumber(Statistic):
    """Two outcomes, of which the second counts."""

    outcomes = 2
    intervals = 1
    reported = (1,)

    def columns(self, values: Values) -> Columns:
        """The values themselves; missing values count as zero."""
        return [np.nan_to_num(values.astype(np.float64), nan=0.0)]

    def from_means(self, means: Sequence[float]) -> tuple[float, ...]:
        """The mean itself."""
        return (clip(means[0]),)

    def from_counts(self, counts: Sequence[int], draws: int, *, mass: float) -> tuple[float, ...]:
        """The debiased share of ones."""
        return (shares.debias(counts[1] / draws, outcomes=2, mass=mass),)

    def certify(self, release: "Release", guarantee: "AnswerGuarantee") -> list[Interval]:
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
    """The mean of a value in [0, 1] in each of one or several groups that share no row.

    With one group, a row gives its value, or NaN if it is excluded. With several, it gives either the outcome itself,
    or a pair: the number of its group (NaN if it is in none) and its value.
    """

    groups: int = 1

    @cached_property
    def outcomes(self) -> int:
        """Outside, and 0 and 1 in each group."""
        return 2 * self.groups + 1

    @cached_property
    def intervals(self) -> int:
        """The share and the mean of each group."""
        return 2 * self.groups

    def columns(self, values: Values) -> Columns:
        """For each group, whether a row is in it, and what the row adds to its sum."""
        if values.ndim == 2:
            number, value = values[:, 0], values[:, 1]
        elif values.dtype.kind == "f":
            number, value = np.where(np.isnan(values), np.nan, 0.0), values
        else:
            number, value = np.where(values > 0, (values - 1) // 2, np.nan), (values - 1) % 2
        found = []
        for group in range(self.groups):
            inside = number == group
            found += [inside.astype(np.float64), np.where(inside, value, 0.0)]
        return found

    def from_means(self, means: Sequence[float]) -> tuple[float, ...]:
        """Sum over size; 1/2 for a group that seems empty."""
        pairs = zip(means[::2], means[1::2], strict=True)
        return tuple(clip(total / size) if size > 0 else 0.5 for size, total in pairs)

    def from_counts(self, counts: Sequence[int], draws: int, *, mass: float) -> tuple[float, ...]:
        """Ones among the included, debiased; 1/2 for a group that seems empty."""
        pairs = zip(counts[1::2], counts[2::2], strict=True)
        return tuple(_group_mean(zeros, ones, draws, mass) for zeros, ones in pairs)

    def expected(self, draws: int, share: float, mean: float, *, mass: float) -> "Tally":
        """Return the tally of the first group, if its counts are as expected, with this share and mean."""
        zeros, ones = _expected(draws, (share * (1 - mean), share * mean), self.outcomes, mass)
        counts = (max(0, draws - zeros - ones), zeros, ones, *(0,) * (self.outcomes - 3))
        return Tally((mean,) * self.groups, draws, counts, ())

    def first(self, release: "Release", guarantee: "AnswerGuarantee") -> Interval:
        """Ask for the interval of the first group alone."""
        return guarantee.group(release)

    def counted(self, columns: Columns) -> tuple[int | None, ...]:
        """Sizes of groups are counted, sums are not."""
        return tuple(int(column.sum()) if place % 2 == 0 else None for place, column in enumerate(columns))

    def certify(self, release: "Release", guarantee: "AnswerGuarantee") -> list[Interval]:
        """One interval for each group, from two statements."""
        if self.groups == 1:
            return [guarantee.group(release)]
        return [mean for mean, _ in guarantee.groups(release, self.groups)]


def _expected(draws: int, shares: Sequence[float], outcomes: int, mass: float) -> list[int]:
    """Return the expected counts of outcomes with these shares of the rows, each with its extra mass."""
    return [round(draws * (mass + (1 - outcomes * mass) * share)) for share in shares]


def _group_mean(zeros: int, ones: int, draws: int, mass: float) -> float:
    included = zeros + ones
    if included <= 2 * mass * draws:
        return 0.5
    return shares.mean_of_group(ones / included, included / draws, mass=mass)


@dataclass(frozen=True)
class Difference(GroupMean):
    """The means of two groups, and then their difference."""

    groups: int = 2

    def from_means(self, means: Sequence[float]) -> tuple[float, ...]:
        """Both means, and the first less the second."""
        return _with_difference(super().from_means(means))

    def from_counts(self, counts: Sequence[int], draws: int, *, mass: float) -> tuple[float, ...]:
        """Both means, and the first less the second."""
        return _with_difference(super().from_counts(counts, draws, mass=mass))

    def certify(self, release: "Release", guarantee: "AnswerGuarantee") -> list[Interval]:
        """Three intervals, from the four statements of two groups."""
        return list(guarantee.difference(release))


def _with_difference(means: tuple[float, ...]) -> tuple[float, ...]:
    first, second = means
    return first, second, first - second


@dataclass(frozen=True)
class OutcomeShares(Statistic):
    """The share of each of several outcomes."""

    outcomes: int = 2

    @property
    def intervals(self) -> int:
        """One for each outcome."""
        return self.outcomes

    @cached_property
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
        left = 1 - self.outcomes * mass  # as `shares.debias`
        found = [(count / draws - mass) / left for count in counts]
        return tuple([share if 0.0 < share < 1.0 else float(share >= 1.0) for share in found])

    def counted(self, columns: Columns) -> tuple[int | None, ...]:
        """Rows are counted."""
        return tuple(int(column.sum()) for column in columns)

    def certify(self, release: "Release", guarantee: "AnswerGuarantee") -> list[Interval]:
        """One interval for each outcome."""
        return guarantee.shares(release, self.outcomes)


@dataclass(frozen=True)
class SomeShares(OutcomeShares):
    """The share of each of several outcomes; one more outcome, the last, is all others, and is not reported."""

    @property
    def intervals(self) -> int:
        """One for each outcome that is reported."""
        return self.outcomes - 1

    @cached_property
    def reported(self) -> tuple[int, ...]:
        """All but the last."""
        return tuple(range(self.outcomes - 1))

    def columns(self, values: Values) -> Columns:
        """One column for each outcome that is reported: whether the row has it."""
        return super().columns(values)[:-1]

    def from_counts(self, counts: Sequence[int], draws: int, *, mass: float) -> tuple[float, ...]:
        """Debiased shares."""
        return super().from_counts(counts, draws, mass=mass)[:-1]

    def certify(self, release: "Release", guarantee: "AnswerGuarantee") -> list[Interval]:
        """One interval for each outcome that is reported."""
        return guarantee.shares(release, self.outcomes - 1)


@dataclass(frozen=True)
class SharesWithin(OutcomeShares):
    """The share of each of several outcomes among rows inside a group; one more outcome, the last, is outside."""

    @cached_property
    def reported(self) -> tuple[int, ...]:
        """The outcome outside, then the others."""
        return (self.outcomes - 1, *range(self.outcomes - 1))

    def columns(self, values: Values) -> Columns:
        """Whether a row is outside, then whether it has each of the other outcomes."""
        return [(values == outcome).astype(np.float64) for outcome in self.reported]

    def from_means(self, means: Sequence[float]) -> tuple[float, ...]:
        """Each share over the share inside; equal shares for a group that seems empty."""
        inside, rest = 1 - means[0], means[1:]
        return tuple(clip(mean / inside) if inside > 0 else 1 / (self.outcomes - 1) for mean in rest)

    def from_counts(self, counts: Sequence[int], draws: int, *, mass: float) -> tuple[float, ...]:
        """Debiased shares, each over the share inside."""
        shares = super().from_counts(counts, draws, mass=mass)
        return self.from_means((clip(1 - sum(shares[:-1])), *shares[:-1]))

    def expected(self, draws: int, share: float, mean: float, *, mass: float) -> "Tally":
        """Return the tally of a group with this share of the rows; `mean` is the share of its first outcome in it."""
        others = self.outcomes - 2
        inside = _expected(draws, (share * mean, *[share * (1 - mean) / others] * others), self.outcomes, mass)
        return Tally((), draws, (*inside, max(0, draws - sum(inside))), self.reported)

    def first(self, release: "Release", guarantee: "AnswerGuarantee") -> Interval:
        """Ask for the interval of the first outcome inside alone."""
        return guarantee.shares_within(release, 1)[0]

    def certify(self, release: "Release", guarantee: "AnswerGuarantee") -> list[Interval]:
        """One interval for each outcome inside."""
        return guarantee.shares_within(release, self.outcomes - 1)


@dataclass(frozen=True)
class SomeSharesWithin(SharesWithin):
    """The same, but the last outcome inside is all others, and is not reported."""

    @property
    def intervals(self) -> int:
        """One for the outcome outside, and one for each outcome that is reported."""
        return self.outcomes - 1

    def columns(self, values: Values) -> Columns:
        """Whether a row is outside, then whether it has each outcome that is reported."""
        return super().columns(values)[:-1]

    def from_counts(self, counts: Sequence[int], draws: int, *, mass: float) -> tuple[float, ...]:
        """Debiased shares, each over the share inside."""
        return super().from_counts(counts, draws, mass=mass)[:-1]

    def certify(self, release: "Release", guarantee: "AnswerGuarantee") -> list[Interval]:
        """One interval for each outcome that is reported."""
        return guarantee.shares_within(release, self.outcomes - 2)


OfGroup = GroupMean | SharesWithin  # what is asked of a group, whose margin depends on its share of the rows


GRID = 40  # values that get noise are rounded to multiples of 2^-40


def grid_bits(count: int) -> int:
    """Return the number of bits of a grid for `count` values in [0, 1] whose sum must fit in 62 bits."""
    return max(1, min(GRID, 62 - int(count).bit_length()))


@dataclass(frozen=True)
class Release:
    """The released values, in [0, 1] before bounds are applied; one for each number that was asked for."""

    values: tuple[float, ...]
    draws: int

    def repeated(self, times: int) -> "Release":
        """Return the release of so many times these draws: made up, and as certain as what it stands for."""
        return self  # noise, or a cell, is that of the answer already


@dataclass(frozen=True)
class Tally(Release):
    """How often each outcome came up among `draws` randomized draws; `reported` are the outcomes asked about."""

    counts: tuple[int, ...]
    reported: tuple[int, ...]

    def count(self, part: int) -> int:
        """Return how often the outcome number `part` of those asked about came up."""
        return self.counts[self.reported[part]]

    def members(self, group: int) -> tuple[int, int]:
        """Return how many draws gave zero, and how many gave one, in a group."""
        return self.counts[2 * group + 1], self.counts[2 * group + 2]

    def repeated(self, times: int) -> "Tally":
        """Return the same with so many times these counts."""
        return replace(self, draws=times * self.draws, counts=tuple(times * count for count in self.counts))


@dataclass(frozen=True)
class NoisyMeans(Release):
    """Means of `draws` sampled rows each, one for every statistical query, plus noise; not clipped.

    `scale` is that of the noise; `grid` is how far rounding to its grid can move a mean.
    """

    means: tuple[float, ...]
    scale: float
    grid: float


HOLDS, TOO_LOW, TOO_HIGH, TOO_FEW = OUTCOMES = ("holds", "too low", "too high", "too few rows")


@dataclass(frozen=True)
class Cell(Release):
    """Whether a guess holds: its `outcome`, and no value.

    `rows` is the least number of rows that the guess is about: all of them, or the declared number of a group.
    """

    rows: int
    outcome: str


@dataclass(frozen=True)
class ExactMeans(Release):
    """Exact means of `draws` rows that no earlier question used; `counts` are None where values were averaged."""

    means: tuple[float, ...]
    counts: tuple[int | None, ...]

    def repeated(self, times: int) -> "ExactMeans":
        """Return the same with so many times these counts."""
        counts = tuple(None if count is None else times * count for count in self.counts)
        return replace(self, draws=times * self.draws, counts=counts)


@dataclass(frozen=True)
class GridCell(Release):
    """Which cell of a fixed grid a mean falls into, counted from 1. Shown only if it is better than all before it."""

    cell: int


def refuse_noise(statistic: Statistic, *, mass: float, planned: bool = True) -> None:
    """Refuse a question with so many outcomes that its answer would be mostly noise."""
    if statistic.outcomes * mass > 0.5:
        raise noise(statistic.outcomes, int(0.5 / mass), planned=planned)


def noise(outcomes: int, most: int, how: str = "", *, planned: bool) -> InvalidArgument:
    """Return the refusal of so many `outcomes`, where `most` are allowed: in one pass, unless it says `how`."""
    more = "plan with guarantee='information'" if planned else "begin a session with a plan (queries=100), with less"
    return InvalidArgument(
        f"A question with {outcomes} outcomes would be mostly noise in this session; it allows {most}{how}."
        f" Ask about fewer categories at once, or about one group at a time; or {more}.",
        outcomes=outcomes,
        most=most,
    )
