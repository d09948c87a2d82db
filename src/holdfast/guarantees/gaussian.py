"""The gaussian guarantee: means of all rows plus Gaussian noise, by the exchange theorem.

For tables that are cheap to scan. No rows are drawn at random: the noise alone keeps posterior means near the
population. The noise is discrete, on the grid that holds the mean itself, so the theorem is exact for what a computer
releases.

In a session of coins under the exchange guarantee, single answers may also read all rows: each is charged as many coins
as would be equally noisy (`ScansBesideCoins`).
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, e, exp, log, sqrt
from typing import Any, Self

import numpy as np

from holdfast.cached import cached_property
from holdfast.guarantees import GUARANTEES
from holdfast.guarantees.coins import CoinGuarantee
from holdfast.guarantees.guarantee import EVERYTHING, AnswerGuarantee, Planning, around, ratio
from holdfast.guarantees.mathematics import exchange, privacy, special
from holdfast.guarantees.mathematics.concentration import SAFE
from holdfast.guarantees.mathematics.search import Vector, zoom
from holdfast.guarantees.mathematics.shares import level
from holdfast.guarantees.statistic import Interval, Release, Statistic, grid_bits
from holdfast.guarantees.terms import NOTHING, Amounts, Goal, Terms


@dataclass(frozen=True, kw_only=True)
class GaussianTerms(Terms):
    """`sigma` is the noise's standard deviation in every mean; om2, s and L are the constants of the theorem."""

    sigma: float
    om2: float
    s: float
    L: float
    beta2: float  # for the noise

    @cached_property
    def charge_per_answer(self) -> int:
        """Every noisy mean costs as much as 1/(4 sigma^2) coins."""
        return ceil(privacy.gaussian_cost(self.sigma, n=self.rows))

    @property
    def beta1(self) -> float:
        """The failure probability of the step from posterior means to the population."""
        return exp(-self.L)

    @cached_property
    def j(self) -> float:
        """J = 2 Ibar/n; inf: no promise."""
        constants = (self.om2, self.s, self.L)
        ibar = exchange.gaussian_ibar(self.rows, self.charge, *constants, identical=self.identical)
        return exchange.j(self.rows, ibar)

    @property
    def level(self) -> float:
        """The failure probability of the interval of one posterior mean."""
        return level(self.beta2, k=self.statements)

    @cached_property
    def radius(self) -> float:
        """How far a posterior mean can be from the noisy mean."""
        return self.sigma * _quantile(self.level)


class Scans(AnswerGuarantee):
    """Means of all rows plus Gaussian noise. A subclass says how much noise, at which level, and how far to widen."""

    planning = Planning(("gaussian",), reads_all_rows=True, takes_unlike_rows=True)
    level: float

    @abstractmethod
    def sigma(self, draws: int) -> float:
        """Return the standard deviation of the noise of an answer that counts as this many `draws`."""

    @abstractmethod
    def widen(self, mean: Interval) -> Interval:
        """Return the interval for the population's mean from that of the posterior `mean`."""

    @abstractmethod
    def widen_group(self, mean: Interval, share: float) -> Interval:
        """Return the same for a group whose posterior share is at least `share`, which is positive."""

    def share(self, release: Release, part: int) -> Interval:
        """The noise's interval for the posterior mean, widened; grid rounding is added before and after widening."""
        return _outward(self.widen(self._mean(release, part)), self.noisy(release).grid)

    def group(self, release: Release, part: int = 0) -> Interval:
        """The range of the ratio of two posterior means, widened for a group."""
        share, total = self._mean(release, 2 * part), self._mean(release, 2 * part + 1)
        if share[0] <= 0:
            return EVERYTHING
        return _outward(self.widen_group(ratio(total, share), share[0]), self.noisy(release).grid)

    def _mean(self, release: Release, part: int) -> Interval:
        noisy = self.noisy(release)
        return around(noisy.means[part], noisy.scale * _quantile(self.level) + noisy.grid)


class GaussianScans(Scans):
    """Every answer reads all rows; one margin for every noisy mean."""

    terms: GaussianTerms
    name = "gaussian"
    terms_class = GaussianTerms

    def __init__(self, terms: GaussianTerms) -> None:
        super().__init__(terms)
        self._j, self.level = terms.j, terms.level

    @classmethod
    def plan(cls, goal: Goal, mechanism: str) -> GaussianTerms | None:
        """Return the best noise and split of beta; an answer reads all rows, or there is no plan."""
        whole = goal.rows_per_query in (None, goal.rows)
        return _planned(goal, mechanism) if whole and not goal.flips and goal.rows >= 2 else None

    def sigma(self, draws: int) -> float:
        """The planned noise."""
        return self.terms.sigma

    def widen(self, mean: Interval) -> Interval:
        """By `lo` and `hi`."""
        return exchange.interval(mean, self._j, identical=self.terms.identical)

    def widen_group(self, mean: Interval, share: float) -> Interval:
        """By `group_lower` and `group_upper`."""
        return exchange.group_range(mean, share, self._j, identical=self.terms.identical)

    def charge(self, statistic: Statistic, draws: int) -> int:
        """The same for every noisy mean."""
        return statistic.intervals * self.terms.charge_per_answer


class ScansBesideCoins(Scans):
    """Single answers that read all rows, in a session of coins under the exchange guarantee.

    An answer with `draws` has noise of standard deviation 1/(2 sqrt(draws)), like the mean of that many fair coins, and
    is charged like them. The theorem's constants for coins cover it, because a noisy mean says no more about the
    exchanges than the coins do. So levels and widening are those of `coins` at the same place.
    """

    def __init__(self, coins: CoinGuarantee) -> None:
        super().__init__(replace(coins.terms, mechanism=self.planning.mechanisms[0]))
        self._coins, self.name, self.level = coins, coins.name, coins.level  # type: ignore[misc]

    def at(self, charge: int, before: int, statements: int = 1) -> Self:
        """Beside the coins at that place."""
        coins = self._coins.at(charge, before, statements)
        return self if coins is self._coins else type(self)(coins)

    def widen(self, mean: Interval) -> Interval:
        """As for coins."""
        return self._coins.widen(mean)

    def widen_group(self, mean: Interval, share: float) -> Interval:
        """As for coins."""
        return self._coins.widen_group(mean, share)

    def rows_at(self, intervals: int) -> int:
        """As many as an ordinary answer by coins, so that it is equally noisy."""
        return self._coins.rows_at(intervals)

    def margin_after(self, more: int, spent: Amounts = NOTHING) -> float:
        """An ordinary answer is by coins."""
        return self._coins.margin_after(more, spent)

    @classmethod
    def plan(cls, goal: Goal, mechanism: str) -> None:
        """Not planned: it accompanies a plan for coins."""
        return

    def sigma(self, draws: int) -> float:
        """The standard deviation of the mean of that many fair coins."""
        return 1 / (2 * sqrt(draws))

    def charge(self, statistic: Statistic, draws: int) -> int:
        """Every noisy mean costs as much as that many coins."""
        return statistic.intervals * draws

    @property
    def flexible(self) -> bool:
        """Any noise has a margin."""
        return True

    def margin(self, draws: int) -> float:
        """The noise, and the step to the population."""
        return self._margin(draws)

    def _margin(self, draws: int) -> float:
        grid = 2 * 2.0 ** -grid_bits(self.terms.rows)
        return min(1.0, self.sigma(draws) * _quantile(self.level) + self._coins.step + grid)


def _quantile(level: float) -> float:
    """Return z with P(|N(0,1)| > z) = level."""
    return float(-special.ndtri(level / 2)) * SAFE


def _outward(ends: Interval, grid: float) -> Interval:
    return max(0.0, ends[0] - grid), min(1.0, ends[1] + grid)


@lru_cache(maxsize=4096)
def _planned(goal: Goal, mechanism: str) -> GaussianTerms:
    n, k, beta, identical = goal.rows, goal.queries, goal.beta, goal.identical

    def nats(charge: Any, om2: Any, beta1: Any) -> tuple[Any, Any]:
        about = (1 + om2) * (charge / (4 * n) - np.log(beta1) / om2)
        s = 1 - 1 / (2 * about + 2 + np.log(2 * about))
        return exchange.gaussian_ibar(n, charge, om2, s, -np.log(beta1) * SAFE, identical=identical), s

    def margin(log_sigma: Vector, logit: Vector, log_om2: Vector) -> Vector:
        sigma, split = np.exp(log_sigma), special.expit(logit)
        J = 2 * nats(k / (4 * sigma * sigma), np.exp(log_om2), split * beta)[0] / n
        width = -sigma * special.ndtri((1 - split) * beta / (2 * e * k))
        total: Vector = width + np.where(J < 1, exchange.worst_case(J, identical=identical), np.sqrt(J))
        return total

    box = [(log(1e-3 / sqrt(n)), log(0.5)), (-6.0, 4.0), (log(1e-3), log(10.0))]
    log_sigma, logit, log_om2 = zoom(margin, box, points=6, levels=10)
    sigma, beta1, om2 = float(np.exp(log_sigma)), float(special.expit(logit)) * beta, float(np.exp(log_om2))
    charge = k * ceil(privacy.gaussian_cost(sigma, n=n))
    _, s = nats(charge, om2, beta1)
    own = {"sigma": sigma, "om2": om2, "s": float(s), "L": -log(beta1) * SAFE, "beta2": beta - beta1}
    terms = goal.met_by(GaussianTerms, mechanism, margin=1.0, rows_per_query=n, charge=charge, **own)
    reached = terms.radius + float(exchange.worst_case(terms.j, identical=identical)) + 2 * 2.0 ** -grid_bits(n)
    return goal.met_by(GaussianTerms, mechanism, margin=reached, rows_per_query=n, charge=charge, **own)


GUARANTEES.register(GaussianScans.name, GaussianScans)
