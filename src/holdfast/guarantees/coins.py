"""Coins by way of posterior means: what the posterior and the exchange guarantee have in common.

Every draw carries a planned extra mass per outcome. Exact binomial intervals of the coins contain posterior means; how
far from those the population's means can be is what the two theorems say, each with a failure event of its own. So a
ledger begins with one of them, and stays with it.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import e

from holdfast.guarantees.guarantee import EVERYTHING, Guarantee, Terms, refuse_noise
from holdfast.guarantees.mathematics import cost, descent, posterior_means
from holdfast.guarantees.mathematics.concentration import clopper_pearson_width
from holdfast.guarantees.release import Release
from holdfast.guarantees.statistic import Interval, Statistic


@dataclass(frozen=True, kw_only=True)
class CoinTerms(Terms):
    """`mass` is the extra mass of every outcome; `beta2` is for the exact binomial intervals."""

    mass: float
    beta2: float


class CoinGuarantee(Guarantee):
    """Coins with a planned extra mass. A subclass says how far the population is from the posterior means."""

    terms: CoinTerms
    mechanisms = ("coins",)

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

    def supports(self, statistic: Statistic) -> None:
        """Anything but single flips and histograms that would be mostly noise."""
        self.refuse_flips(statistic)
        refuse_noise(statistic, mass=self.terms.mass)

    def charge(self, statistic: Statistic, draws: int) -> int:
        """c-1 for a draw with c outcomes."""
        return draws * cost.draw_cost(statistic.outcomes)

    @property
    def flexible(self) -> bool:
        """Any number of draws has a margin."""
        return True

    def _margin(self, draws: int) -> float:
        width = float(clopper_pearson_width(draws, self.level))
        return min(1.0, width / (1 - 2 * self.terms.mass) + self.step)

    def share(self, release: Release, part: int) -> Interval:
        """The exact binomial interval, debiased and widened."""
        tally, mass = self.tally(release), self.terms.mass
        count, outcomes = tally.count(part), len(tally.counts)
        mean = posterior_means.outcome_mean(count, tally.draws, outcomes=outcomes, mass=mass, level=self.level)
        return self.widen(mean)

    def group(self, release: Release) -> Interval:
        """The interval for the group's posterior mean, widened."""
        _, zeros, ones = self.tally(release).counts
        included, mass = zeros + ones, self.terms.mass
        mean, share = posterior_means.group_mean(ones, included, release.draws, mass=mass, level=self.level)
        return self.widen_group(mean, share) if share > 0 else EVERYTHING

    @cached_property
    def coin_mass(self) -> float:
        """The planned mass."""
        return self.terms.mass

    @property
    def statement_level(self) -> float:
        """What one interval uses; other statements need no factor e."""
        return e * self.level

    def excess(self, on_rows: float, *, R: float, lipschitz: float, curvature: float) -> float | None:
        """By `posterior_excess`."""
        return descent.posterior_excess(on_rows, R=R, lipschitz=lipschitz, H=curvature, step=self.step)

    def expected_excess_step(self, R: float) -> float | None:
        """By information, whose theorem needs a mass of at least 1/n."""
        return super().expected_excess_step(R) if self.terms.mass >= 1 / self.terms.rows else None
