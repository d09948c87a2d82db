"""The information guarantee: a session of B coins tells at most B/(2n) nats about the rows.

Every draw gets extra mass 1/n per outcome. Valid for any mixture of coins, single flips (sampling counting queries) and
noisy answers whose cost is stated in coins.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, exp, log, log1p, sqrt

import numpy as np

from holdfast import check
from holdfast.cached import cached_property
from holdfast.errors import InvalidArgument
from holdfast.guarantees import GUARANTEES
from holdfast.guarantees.guarantee import EVERYTHING, AnswerGuarantee, Planning, around, ratio
from holdfast.guarantees.mathematics import descent, privacy, special, theorem
from holdfast.guarantees.mathematics import shares as coins
from holdfast.guarantees.mathematics.concentration import (
    SAFE,
    clopper_pearson,
    clopper_pearson_width,
    hoeffding_radius,
    kl,
    kl_range,
    laplace_radius,
)
from holdfast.guarantees.mathematics.search import Vector, sampled_rows, zoom
from holdfast.guarantees.statistic import Interval, OfGroup, Release, Statistic, Tally, refuse_noise
from holdfast.guarantees.terms import Fits, Goal, Terms

ROWS_PER_OUTCOME = 10  # with fewer rows per outcome, answers are mostly noise


@theorem("here (simultaneous, adaptive)", proof="information.md")
def radius(charge: float, *, n: int, k: int, beta: float) -> float:
    """Return r: with probability >= 1 - beta, n kl(q(S) || q(D)) <= r for all of k adaptive queries.

    Statement
        r is the smallest number >= log(2k/beta) with kl(beta || 2k e^-r) >= B/(2n).

    Not covered
        More than k queries or B coins.

    >>> radius(1e8, n=10**6, k=10**4, beta=0.04) <= simple_radius(1e8, n=10**6, k=10**4, beta=0.04)
    True
    """
    check.whole(k=k)
    check.probability(beta=beta)
    nats = privacy.session_nats(charge, n=n)
    # In y = r - log(2k): f(y) = kl(beta || e^-y) is convex and increasing above log(1/beta). Newton from above.
    y = simple = simple_radius(charge, n=n, k=k, beta=beta) - log(2 * k)
    for _ in range(60):
        x = exp(-y)
        slope = (beta - x) / (1 - x)
        step = (_divergence_from(beta, y) - nats) / slope if slope > 0 else 0.0
        if not step > 1e-13 * y:
            break
        y = max(y - step, log(1 / beta))
    return min(simple, y * SAFE) + log(2 * k)


def _divergence_from(beta: float, y: float) -> float:
    """kl(beta || e^-y), where e^-y may be far too small for a floating-point number."""
    x = exp(-y)
    if x > beta / 1000:
        return kl(beta, x)
    return beta * (y + log(beta)) + (1 - beta) * (log1p(-beta) - log1p(-x))


def simple_radius(charge: float, *, n: int, k: int, beta: float) -> float:
    """Return the simple sufficient form (B/(2n) + h(beta))/beta + log(2k), h the binary entropy."""
    entropy = -beta * log(beta) - (1 - beta) * log(1 - beta)
    return (privacy.session_nats(charge, n=n) + entropy) / beta * SAFE + log(2 * k)


@theorem("here", proof="information.md")
def outcome_interval(count: int, ell: int, *, outcomes: int, n: int, r: float, level: float) -> Interval:
    """Return the interval for the share of one outcome: a share, a mean, one bar of a histogram.

    Statement
        Exact binomial interval of the coins at `level` = beta2/k, both ends debiased with mass 1/n, then all d with
        n kl(s || d) <= r.

    Not covered
        A number of draws decided after the first coin; n < 10 outcomes (refused: mostly noise).
    """
    ends = clopper_pearson(count, ell, level)
    low, high = (coins.debias(p, outcomes=outcomes, mass=1 / n) for p in ends)
    return kl_range((low, high), n=n, r=r)


@theorem("here (conditional means)", proof="information.md")
def group_interval(
    ones: int, included: int, ell: int, *, n: int, r: float, level: float, outcomes: int = 3
) -> Interval:
    """Return the interval for the mean of a group, from draws two of whose outcomes are the group's 0 and 1.

    Statement
        Exact intervals for the included share (from ell) and for the ones among the included (from their number),
        each at `level`; the range of the group mean over both; then widened with n_eff = n g, g the lower end of the
        group's share on the sample. Two of the k intervals.

    Not covered
        A group that may be empty on the sample: the answer is [0, 1].

    >>> group_interval(0, 0, 100, n=1000, r=10.0, level=0.01)
    (0.0, 1.0)
    """
    mass = 1 / n
    pi = clopper_pearson(included, ell, level)
    theta = clopper_pearson(ones, included, level)
    if pi[0] <= 2 * mass:
        return 0.0, 1.0
    sample = coins.group_mean_range(theta, pi, mass=mass)
    return kl_range(sample, n=n * coins.group_share(pi[0], mass=mass, outcomes=outcomes), r=r)


@theorem("here (sampling counting queries)", proof="information.md")
def flip_margin(*, n: int, r: float) -> float:
    """Return the margin alpha with |E[M(q)] - q(D)| <= alpha for every flip of the session.

    Statement
        A flip has expectation within 1/n of q(S), and q(S) is within sqrt(r/(2n)) of q(D).

    Not covered
        What a single 0 or 1 says: only its expectation is promised.

    >>> round(flip_margin(n=10**6, r=200.0), 6)
    0.010001
    """
    check.positive(n=n)
    return 1 / n + sqrt(r / (2 * n))


@dataclass(frozen=True, kw_only=True)
class InformationTerms(Terms):
    """`radius` is r of the theorem; `epsilon` is that of one noisy answer, if noisy answers are planned."""

    beta1: float  # for the radius
    beta2: float  # for the intervals of coins and noise
    radius: float
    epsilon: float | None = None

    @property
    def mass(self) -> float:
        """The extra mass of every outcome."""
        return 1 / self.rows

    @cached_property
    def charge_per_answer(self) -> int:
        """Noisy answers cost n^2 epsilon^2 coins each."""
        if self.epsilon is None:
            return super().charge_per_answer
        return ceil(privacy.private_cost(self.epsilon, n=self.rows))


class Information(AnswerGuarantee):
    """Coins, single flips and Laplace answers in any mixture; the failure probability enters through its inverse."""

    terms: InformationTerms
    name = "information"
    planning = Planning(("coins", "laplace"))
    terms_class = InformationTerms

    def __init__(self, terms: InformationTerms) -> None:
        super().__init__(terms)
        self.level = terms.beta2 / terms.statements

    @classmethod
    def plan(cls, goal: Goal, mechanism: str) -> InformationTerms | None:
        """Return the best rows per answer and split of beta."""
        if goal.rows < 2 * ROWS_PER_OUTCOME:
            return None
        return _PLANNERS[mechanism](goal)

    def supports(self, statistic: Statistic) -> None:
        """Anything but histograms that would be mostly noise; single flips by coins only."""
        if self.terms.epsilon is not None:
            self.refuse_flips(statistic)
        if ROWS_PER_OUTCOME * statistic.outcomes > self.terms.rows:
            raise InvalidArgument(
                f"A question with {statistic.outcomes} outcomes needs at least"
                f" {ROWS_PER_OUTCOME * statistic.outcomes:,} rows, or its answer is mostly noise; there are"
                f" {self.terms.rows:,}. Ask about fewer categories at once.",
                outcomes=statistic.outcomes,
                most=self.terms.rows // ROWS_PER_OUTCOME,
            )
        refuse_noise(statistic, mass=self.terms.mass)

    def charge(self, statistic: Statistic, draws: int) -> int:
        """c-1 for a draw with c outcomes; n^2 epsilon^2 for every noisy mean."""
        if self.terms.epsilon is None:
            return draws * privacy.draw_cost(statistic.outcomes)
        return statistic.intervals * self.terms.charge_per_answer

    @property
    def flexible(self) -> bool:
        """Coins have a margin for any number of draws; noisy answers were planned for one."""
        return self.terms.epsilon is None

    def _margin(self, draws: int) -> float:
        width = float(clopper_pearson_width(draws, self.level))
        step = sqrt(self.terms.radius / (2 * self.terms.rows))
        return min(1.0, width / (1 - 2 * self.terms.mass) + step)

    def group_margin(self, statistic: OfGroup, draws: int, share: float, mean: float) -> float | None:
        """The margin if the counts of coins are as expected."""
        if self.terms.epsilon is not None:
            return None
        return self.expected_group_margin(statistic, draws, share, mean, mass=self.terms.mass)

    def share(self, release: Release, part: int) -> Interval:
        """By `outcome_interval` for coins; by noise, sampling and the radius for noisy means."""
        n, r = self.terms.rows, self.terms.radius
        if isinstance(release, Tally):
            outcomes = len(release.counts)
            return outcome_interval(release.count(part), release.draws, outcomes=outcomes, n=n, r=r, level=self.level)
        return kl_range(self._on_sample(release, part), n=n, r=r)

    def group(self, release: Release, part: int = 0) -> Interval:
        """By `group_interval` for coins; by a ratio for noisy means."""
        n, r, level = self.terms.rows, self.terms.radius, self.level
        if isinstance(release, Tally):
            zeros, ones = release.members(part)
            outcomes = len(release.counts)
            return group_interval(ones, zeros + ones, release.draws, n=n, r=r, level=level, outcomes=outcomes)
        share, total = (self._on_sample(release, 2 * part + place) for place in range(2))
        return kl_range(ratio(total, share), n=n * share[0], r=r) if share[0] > 0 else EVERYTHING

    def member(self, release: Release, part: int) -> Interval:
        """For coins, the share of two outcomes together; for noisy means, a mean itself."""
        if not isinstance(release, Tally):
            return super().member(release, part)
        mass, outcomes = self.terms.mass, len(release.counts)
        ends = clopper_pearson(sum(release.members(part)), release.draws, self.level)
        low, high = (coins.group_share(end, mass=mass, outcomes=outcomes) for end in ends)
        return kl_range((low, high), n=self.terms.rows, r=self.terms.radius)

    def _on_sample(self, release: Release, part: int) -> Interval:
        """Return the interval for a mean on the sample from its noisy answer: noise, its grid, and subsampling."""
        noisy, level = self.noisy(release), self.level / 2
        radius = laplace_radius(noisy.scale, level) + noisy.grid
        if noisy.draws < self.terms.rows:
            radius += hoeffding_radius(noisy.draws, level)
        return around(noisy.means[part], radius)

    @cached_property
    def coin_mass(self) -> float:
        """1/n."""
        return self.terms.mass

    def epsilon_for(self, draws: int) -> float:
        """The planned epsilon, or the one at which an answer costs as much as `draws` coins."""
        if self.terms.epsilon is not None:
            return self.terms.epsilon
        return sqrt(draws) / self.terms.rows * (1 - 1e-12)  # so that rounding never charges one coin more

    @property
    def fits(self) -> Fits:
        """Any mixture, each with an equal part of beta2, by `radius_step`; in expectation by information."""

        def excess(on_rows: float, *, R: float, lipschitz: float, curvature: float) -> float | None:
            return on_rows + descent.radius_step(R, r=self.terms.radius, n=self.terms.rows)

        return Fits(self.planning.mechanisms, self.level, excess, self.information_step)


@lru_cache(maxsize=4096)
def _planned_coins(goal: Goal) -> InformationTerms:
    n, k, beta, fixed = goal.rows, goal.statements, goal.beta, goal.rows_per_query

    def margin(log_ell: Vector, logit: Vector) -> Vector:
        ell, split = np.exp(log_ell), special.expit(logit)
        b1 = split * beta
        r = ((goal.queries * ell + goal.flips) / (2 * n) + _entropy(b1)) / b1 + log(2 * k)
        width: Vector = clopper_pearson_width(ell, (1 - split) * beta / k) * n / (n - 2) + np.sqrt(r / (2 * n))
        return width

    ells = (0.0, log(n)) if fixed is None else (log(fixed), log(fixed))
    log_ell, logit = zoom(margin, [ells, (-1.5, 6.0)])
    ell = fixed or max(1, int(np.exp(log_ell)))
    # Flips alone need no binomial interval; a twentieth is kept for the averages that `flips` releases.
    beta1 = float(special.expit(logit)) * beta if goal.queries else 0.95 * beta
    charge = goal.queries * ell + goal.flips
    r = radius(charge, n=n, k=k, beta=beta1)
    if goal.queries:
        width = float(clopper_pearson_width(ell, (beta - beta1) / k)) * n / (n - 2) + sqrt(r / (2 * n))
    else:
        width = flip_margin(n=n, r=r)
    own = {"beta1": beta1, "beta2": beta - beta1, "radius": r}
    each = ell if goal.queries else 1
    return goal.met_by(InformationTerms, "coins", margin=width, rows_per_query=each, charge=charge, **own)


@lru_cache(maxsize=4096)
def _planned_laplace(goal: Goal) -> InformationTerms | None:
    n, k, beta = goal.rows, goal.queries, goal.beta
    if goal.flips:
        return None

    def full_scan(log_eps: Vector, logit: Vector) -> Vector:
        eps0, split = np.exp(log_eps), special.expit(logit)
        b1, level = split * beta, (1 - split) * beta / (2 * k)
        r = (k * n * eps0**2 / 2 + _entropy(b1)) / b1 + log(2 * k)
        total: Vector = np.log(1 / level) / (n * eps0) + np.sqrt(r / (2 * n))
        return total

    log_eps, logit = zoom(full_scan, [(log(1e-3 / n), log(2.0)), (-1.5, 6.0)], levels=11)
    eps0, beta1 = float(np.exp(log_eps)), float(special.expit(logit)) * beta
    each = ceil(privacy.private_cost(eps0, n=n))
    r = radius(k * each, n=n, k=k, beta=beta1)
    level = (beta - beta1) / (2 * k)

    def margin(ell: int) -> float:
        eps = privacy.epsilon_without_replacement(eps0, ell=ell, n=n)
        sampling = hoeffding_radius(ell, level) if ell < n else 0.0
        return sampling + laplace_radius(1 / (ell * eps), level) + sqrt(r / (2 * n))

    ell = min(n, goal.rows_per_query or sampled_rows(margin, n))
    own = {"beta1": beta1, "beta2": beta - beta1, "radius": r, "epsilon": eps0}
    return goal.met_by(InformationTerms, "laplace", margin=margin(ell), rows_per_query=ell, charge=k * each, **own)


def _entropy(b: Vector) -> Vector:
    binary: Vector = -b * np.log(b) - (1 - b) * np.log1p(-b)
    return binary


_PLANNERS: dict[str, Callable[[Goal], InformationTerms | None]] = {"coins": _planned_coins, "laplace": _planned_laplace}
GUARANTEES.register(Information.name, Information)
