"""Coins by way of posterior means: what the posterior and the exchange guarantee have in common.

Every draw carries a planned extra mass per outcome. Exact binomial intervals of the coins contain posterior means; each
guarantee has a theorem on how far the population's means can be from those. The two theorems have different failure
events, so a ledger that begins under one guarantee stays under it.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import e
from typing import Any

import numpy as np

from holdfast.cached import cached_property
from holdfast.guarantees.guarantee import EVERYTHING, AnswerGuarantee
from holdfast.guarantees.mathematics import descent, groups, moments, privacy, shares
from holdfast.guarantees.mathematics.concentration import clopper_pearson_each, clopper_pearson_width, clopper_pearsons
from holdfast.guarantees.mathematics.shares import clip
from holdfast.guarantees.statistic import Interval, OfGroup, Release, Statistic, Tally, refuse_noise
from holdfast.guarantees.terms import Fits, Terms

MOST_RANDOM = 0.25  # largest share of the draws of one pass that is replaced by random outcomes
MOST_RANDOM_OF_BOTH = 0.175  # the same for two groups: from here on, a pass for each gives a narrower difference
FEW_SHARES, FEW_GROUPS = 20, 32  # up to so many, one by one is faster than arrays
ALONE = 0.25  # part of the level of two groups' intervals for each group alone; the rest is for their difference


def as_pairs(ends: Any) -> list[Interval]:
    """Return the intervals whose lower ends are in the first row of an array, and upper ends in the second."""
    return list(zip(*ends.tolist(), strict=True))


@dataclass(frozen=True, kw_only=True)
class CoinTerms(Terms):
    """`mass` is the extra mass of every outcome; `beta2` is for the exact binomial intervals."""

    mass: float
    beta2: float


class CoinGuarantee(AnswerGuarantee):
    """Coins with a planned extra mass. A subclass says how far the population is from the posterior means."""

    terms: CoinTerms
    covers_slices = True

    def __init__(self, terms: CoinTerms, level: float) -> None:
        super().__init__(terms)
        self.level = level  # of every interval

    @property
    @abstractmethod
    def step(self) -> float:
        """The most by which the population's mean of a value in [0, 1] differs from its posterior mean."""

    @abstractmethod
    def widen(self, mean: Interval) -> Interval:
        """Return the interval for the population's mean from that of the posterior `mean`."""

    @abstractmethod
    def widen_group(self, mean: Interval, share: float) -> Interval:
        """Return the same for a group whose posterior share is at least `share`, which is positive."""

    def widen_all(self, means: Any) -> list[Interval]:
        """Return what `widen` does for many means: their lower ends, and their upper ends, in two rows."""
        return [self.widen(mean) for mean in as_pairs(means)]

    def widen_groups(self, means: Any, shares: Any) -> list[Interval]:
        """Return what `widen_group` does for many groups with at least these `shares`, which may be 0."""
        each = zip(as_pairs(means), shares.tolist(), strict=True)
        return [self.widen_group(mean, share) if share > 0 else EVERYTHING for mean, share in each]

    @abstractmethod
    def step_of_difference(self, both: tuple[groups.Known, groups.Known]) -> float:
        """Return how far the difference of two groups can be from that of their posterior means; inf: any distance."""

    def supports(self, statistic: Statistic) -> None:
        """Anything but single flips and histograms that would be mostly noise."""
        self.refuse_flips(statistic)
        refuse_noise(statistic, mass=self.terms.mass, planned=self.terms.answers > 0)

    def charge(self, statistic: Statistic, draws: int) -> int:
        """c-1 for a draw with c outcomes."""
        return draws * privacy.draw_cost(statistic.outcomes)

    @property
    def flexible(self) -> bool:
        """Any number of draws has a margin."""
        return True

    def _margin(self, draws: int) -> float:
        width = float(clopper_pearson_width(draws, self.level))
        return min(1.0, width / (1 - 2 * self.terms.mass) + self.step)

    def group_margin(self, statistic: OfGroup, draws: int, share: float, mean: float) -> float:
        """The margin if the group's counts are as expected."""
        return self.expected_group_margin(statistic, draws, share, mean, mass=self.terms.mass)

    def share(self, release: Release, part: int) -> Interval:
        """The exact binomial interval, debiased and widened."""
        tally, mass = self.tally(release), self.terms.mass
        count, outcomes = tally.counts[tally.reported[part]], len(tally.counts)
        mean = shares.outcome_mean(count, tally.draws, outcomes=outcomes, mass=mass, level=self.level)
        return self.widen(mean)

    def shares(self, release: Release, count: int) -> list[Interval]:
        """The same, for all outcomes; if they are many, at once, in arrays."""
        tally, mass = self.tally(release), self.terms.mass
        counts, outcomes = [tally.counts[outcome] for outcome in tally.reported[:count]], len(tally.counts)
        if count > FEW_SHARES:
            ends = (np.array(clopper_pearsons(counts, tally.draws, self.level)) - mass) / (1 - outcomes * mass)
            return self.widen_all(np.minimum(1.0, np.maximum(0.0, ends)))
        each = clopper_pearson_each(counts, tally.draws, self.level)
        return [self.widen(shares.debiased(ends, outcomes=outcomes, mass=mass)) for ends in each]

    def shares_within(self, release: Release, count: int) -> list[Interval]:
        """Posterior shares within the group, each widened as a group's mean."""
        tally = self.tally(release)
        counts = [tally.count(part) for part in range(1, len(tally.reported))]  # all of the group make up its share
        means, group = groups.shares_within(counts, tally.draws, mass=self.terms.mass, level=self.level)
        return [self._group((low, high), group) for low, high in means[:count].tolist()]

    def ordered(self, release: Release, cells: int) -> tuple[list[Interval], list[Interval]]:
        """Unions of cells within each group, each widened as a group's mean."""
        tally, sizes = self.tally(release), np.arange(cells - 1, 0, -1)
        found = []
        for first in (0, cells):
            counts = np.array([tally.count(part) for part in range(first, first + cells)], dtype=float)
            above, group = groups.unions_within(
                counts[::-1].cumsum()[-2::-1],
                sizes,
                cells,
                counts.sum(),
                tally.draws,
                outcomes=len(tally.counts),
                mass=self.terms.mass,
                level=self.level,
            )
            found.append([self._group((low, high), group) for low, high in above.tolist()])
        return found[0], found[1]

    def group(self, release: Release, part: int = 0) -> Interval:
        """The interval for the group's posterior mean, widened."""
        return self._group(*self._of_group(self.tally(release), part, self.level))

    def member(self, release: Release, part: int) -> Interval:
        """The share of two outcomes together, widened."""
        return self.groups(release, part + 1)[part][1]

    def groups(self, release: Release, count: int) -> list[tuple[Interval, Interval]]:
        """All groups of a release at once, in arrays."""
        return self.groups_of_all([(release, count)])

    def groups_of_all(self, releases: Sequence[tuple[Release, int]]) -> list[tuple[Interval, Interval]]:
        """All groups of all releases; if they are many, at once, in arrays."""
        zeros: list[int] = []
        ones: list[int] = []
        outcomes: list[int] = []
        for release, count in releases:
            counts = self.tally(release).counts
            zeros += counts[1 : 2 * count : 2]
            ones += counts[2 : 2 * count + 1 : 2]
            outcomes += count * [len(counts)]
        draws, mass, level = releases[0][0].draws, self.terms.mass, self.level
        if len(zeros) > FEW_GROUPS:
            means, sizes = groups.group_means(zeros, ones, draws, outcomes=outcomes, mass=mass, level=level)
            return list(zip(self.widen_groups(means.T, sizes[:, 0]), self.widen_all(sizes.T), strict=True))
        known = groups.means_of_few(zeros, ones, draws, outcomes=outcomes, mass=mass, level=level)
        return [(self._group(mean, share), self.widen(share)) for mean, share in known]

    def _of_group(self, tally: Tally, part: int, level: float) -> tuple[Interval, Interval]:
        """Return the intervals at `level` for the posterior mean and the posterior share of a group."""
        (zeros, ones), outcomes, mass = tally.members(part), len(tally.counts), self.terms.mass
        return shares.group_mean(ones, zeros + ones, tally.draws, mass=mass, level=level, outcomes=outcomes)

    def _group(self, mean: Interval, share: Interval) -> Interval:
        return self.widen_group(mean, share[0]) if share[0] > 0 else EVERYTHING

    @property
    def difference_passes(self) -> int:  # type: ignore[override]
        """One if little of its draws, which have five outcomes, is random; else a pass for each group, with three."""
        return 1 if 5 * self.terms.mass <= MOST_RANDOM_OF_BOTH else 2

    def difference(self, *releases: Release) -> tuple[Interval, Interval, Interval]:
        """By each group alone, in one pass also by both together, and then one step to the population.

        The step is that of the difference of the posterior means: less than the two of the groups' own intervals.
        """
        if len(releases) == 1:
            means, joint = self._in_one_pass(self.tally(releases[0]))
        else:
            means, joint = [self._of_group(self.tally(release), 0, self.level) for release in releases], (-1.0, 1.0)
        known = [(mean, self._group(mean, share), share[0]) for mean, share in means]
        (one, first, _), (other, second, _) = known
        step = self.step_of_difference((known[0], known[1]))
        low = max(one[0] - other[1], joint[0]) - step
        high = min(one[1] - other[0], joint[1]) + step
        return first, second, (max(first[0] - second[1], low), min(first[1] - second[0], high))

    def _in_one_pass(self, tally: Tally) -> tuple[list[tuple[Interval, Interval]], Interval]:
        """Return the intervals for posterior means and shares of two groups, and for the difference of the means."""
        alone, mass, draws = self.level * ALONE, self.terms.mass, tally.draws
        means = [self._of_group(tally, part, alone) for part in range(2)]
        x = groups.joint_exponent(groups.tail_of(self.level - alone, intervals=4))
        return means, groups.joint_difference(tally.members(0), tally.members(1), draws, mass=mass, x=x)

    def spread_out(self, mean: Interval, within: Interval, second: float) -> Interval:
        """Return the interval for the population's mean of a function of a row, from that of its posterior mean.

        Parameters
        ----------
        mean
            The interval for its posterior mean.
        within
            The range of the function.
        second
            A bound on the posterior mean of its square.
        """
        (least, most), (low, high) = within, mean
        span, step = most - least, self.spread_step(second, within)
        ends = clip((low - least) / span), clip((high - least) / span)
        first, last = (least + span * end for end in self.widen(ends))
        return max(first, low - step), min(last, high + step)

    def sliced(self, releases: Sequence[Release], edges: Sequence[float]) -> Interval:
        """By the joint region of all coins, and the second moment that the slices allow."""
        tallies, cuts = [self.tally(release) for release in releases], np.array(edges)
        ones, draws = [tally.counts[1] for tally in tallies], [tally.draws for tally in tallies]
        x = moments.sum_exponent(groups.tail_of(self.level, intervals=1), len(ones))
        coins = moments.CoinSums(ones, draws, mass=self.terms.mass, x=x)
        widths = np.diff(cuts)
        center = min(1.0, max(0.0, float(widths @ [tally.values[0] for tally in tallies])))
        ends = -coins.largest(-widths) - center, coins.largest(widths) - center
        rise = np.diff((cuts - center) ** 2)
        # Which slices raise the square depends on the counts, so those that lower it are bounded separately.
        second = center**2 + coins.largest(np.maximum(rise, 0.0)) + coins.largest(np.minimum(rise, 0.0))
        low, high = self.spread_out((max(-center, ends[0]), min(1 - center, ends[1])), (-center, 1 - center), second)
        return max(0.0, center + low), min(1.0, center + high)

    @abstractmethod
    def spread_step(self, second: float, within: Interval) -> float:
        """Return how far a function's mean can be from its posterior mean, by the posterior mean of its square."""

    @property
    def most_at_once(self) -> int:
        """As many outcomes as leave three quarters of the draws unchanged by randomization."""
        return max(3, int(MOST_RANDOM / self.terms.mass))

    @cached_property
    def coin_mass(self) -> float:
        """The planned mass."""
        return self.terms.mass

    @property
    def fits(self) -> Fits:
        """By `posterior_excess`; in expectation by information, whose theorem needs a mass of at least 1/n.

        The level is the failure probability that one interval stands for; other statements do not lose the factor e.
        """

        def excess(on_rows: float, *, R: float, lipschitz: float, curvature: float) -> float | None:
            return descent.posterior_excess(on_rows, R=R, lipschitz=lipschitz, H=curvature, step=self.step)

        fits = Fits((self.terms.mechanism,), e * self.level, excess)
        return replace(fits, expected_step=self.information_step) if self.terms.mass >= 1 / self.terms.rows else fits
