"""The posterior guarantee: the failure probability enters through its logarithm; rare events have narrow intervals.

All draws of a session carry extra mass at least a per outcome. The population mean of every query, asked or not, is
then within sqrt(chi mu (1-mu)) of mu, its mean under the posterior of the rows given the transcript; and exact
binomial intervals of the coins contain mu. chi depends on n, B, a and beta only. If rows are independent but not
identically distributed, h replaces chi, and h (mu (1-mu) + h) replaces chi mu (1-mu).
"""

from dataclasses import dataclass
from functools import lru_cache
from math import inf, log, sqrt
from typing import Any

import numpy as np

from holdfast import check
from holdfast.guarantees import GUARANTEES
from holdfast.guarantees.coins import CoinGuarantee, CoinTerms
from holdfast.guarantees.guarantee import Planning
from holdfast.guarantees.mathematics import groups, special, theorem
from holdfast.guarantees.mathematics.concentration import SAFE, clopper_pearson_width
from holdfast.guarantees.mathematics.search import Vector, zoom
from holdfast.guarantees.mathematics.shares import group_mean, level, outcome_mean
from holdfast.guarantees.statistic import Interval
from holdfast.guarantees.terms import Goal

MOST_MASS = 0.16  # so that a group, with three outcomes, is still at most half noise
ORDERS = np.arange(2, 21)  # moments p that are tried


@theorem("here (moments of the leave-one-out ratios)", proof="posterior.md")
def sigma(n: Any, charge: Any, mass: Any, p: Any) -> Any:
    """Return sigma_p with E[W^p | S] <= (2p-1)!! sigma_p^p; inf where the bound is useless. Takes arrays.

    Statement
        e0 = n/(n-1)^2, V = e0 B, A = n a(1-a)/(1-2a)^2, g = sqrt(e0 (1-a)/a), kap = (1+g/sqrt A)^(2p-2),
        A' = A/(2p-1), G = (2p-1) g, s = G/sqrt V:
            sigma_p = ( sqrt( (A'+G^2+G sqrt V)/(1+s) (exp(kap (1+s) V/A') - 1) ) + (2p-2) g )^2.

    Not covered
        p = 1 (a simpler bound holds); draws with extra mass below a.
    """
    n, a = np.asarray(n, dtype=float), np.asarray(mass, dtype=float)
    e0 = n / (n - 1) ** 2
    V = e0 * charge
    A = n * a * (1 - a) / (1 - 2 * a) ** 2
    g = np.sqrt(e0 * (1 - a) / a)
    odd = 2 * p - 1
    kap = np.exp((2 * p - 2) * np.log1p(g / np.sqrt(A)))
    A1, G = A / odd, odd * g
    s = G / np.sqrt(V)
    exponent = kap * (1 + s) * V / A1
    tau = (A1 + G * G + G * np.sqrt(V)) / (1 + s) * np.expm1(np.minimum(exponent, 600.0))
    return np.where(exponent > 600, inf, (np.sqrt(tau) + (2 * p - 2) * g) ** 2)


def _heights(n: Any, charge: Any, mass: Any, beta: Any, p: Any) -> Any:
    """h = (sigma_p/n) ((2p-1)!!/beta)^(1/p), the bound on the posterior's chi-square before h/(1-h)."""
    log_double_factorial = special.gammaln(2 * p + 1) - p * log(2) - special.gammaln(p + 1)
    return sigma(n, charge, mass, p) / n * np.exp((log_double_factorial - np.log(beta)) / p)


def height_array(n: Any, charge: Any, mass: Any, beta: Any) -> Any:
    """Return h for arrays of settings (an axis for p is added, and reduced by its minimum)."""
    n, charge, mass, beta = (np.asarray(x, dtype=float)[..., None] for x in (n, charge, mass, beta))
    return np.min(_heights(n, charge, mass, beta, ORDERS), axis=-1)


def chi_array(n: Any, charge: Any, mass: Any, beta: Any) -> Any:
    """Return chi for arrays of settings; inf where refused."""
    h = height_array(n, charge, mass, beta)
    return np.where(h < 1, h / np.where(h < 1, 1 - h, 1.0), inf)


@theorem("here (Theorem 1)", proof="posterior.md")
def chi(n: int, charge: float, mass: float, beta: float) -> float:
    """Return chi: with probability >= 1 - beta, (q(D)-mu_q)^2 <= chi mu_q(1-mu_q) for every query. inf: no promise.

    Statement
        h = min over p = 2..20 of (sigma_p/n) ((2p-1)!!/beta)^(1/p). If h < 1, chi = h/(1-h).

    Not covered
        Anything about q(S); sessions that release draws with less extra mass or noise of another kind.

    >>> round(chi(10**6, 18309 * 10**4, 0.0109, 0.812 * 0.05), 5)
    0.00138
    """
    check.whole(2, n=n)
    check.positive(charge=charge)
    check.probability(mass=mass, beta=beta)
    check.at_most("1/2", 0.4999, mass=mass)
    return float(chi_array(n, charge, mass, beta)) * SAFE


@theorem("here (Theorem N)", proof="posterior.md")
def height(n: int, charge: float, mass: float, beta: float) -> float:
    """Return h: with probability >= 1 - beta, (p-mu)^2 <= h (mu(1-mu) + h) for every query. inf: no promise.

    Statement
        h as for `chi`. p is the query's mean under the average of the rows' laws; the query may depend on the row's
        place.

    Not covered
        As for `chi`.

    >>> round(height(10**6, 18309 * 10**4, 0.0109, 0.812 * 0.05), 5)
    0.00138
    """
    h = float(height_array(n, charge, mass, beta)) * SAFE
    return h if h < 1 else inf


def widen_unlike(posterior: Interval, *, h: float, share: float = 1.0) -> Interval:
    """Return [lo, hi] from [L, U] by Theorem N: for a mean, or for that of a group with at least this `share`."""
    if not share > h:
        return 0.0, 1.0
    low, high = posterior
    k, more = (h, h) if share == 1 else (h / (share - h), h / share)
    below, above = (sqrt(k * (x * (1 - x) + more)) * SAFE for x in posterior)
    return max(0.0, low - below), min(1.0, high + above)


def widen(posterior: Interval, *, chi: float) -> Interval:
    """Return [lo, hi] for q(D) from [L, U] for mu, by Theorem 1."""
    low, high = posterior
    lo = 0.0 if not low > chi / (1 + chi) else max(0.0, low - sqrt(chi * low * (1 - low)))
    hi = 1.0 if not high < 1 / (1 + chi) else min(1.0, high + sqrt(chi * high * (1 - high)))
    return lo, hi


@theorem("here (Theorem 2)", proof="posterior.md")
def outcome_interval(count: int, ell: int, *, outcomes: int, mass: float, chi: float, level: float) -> Interval:
    """Return the interval for the share of one outcome: a share, a mean, one bar of a histogram.

    Statement
        Exact binomial interval at `level`, both ends debiased with the mass, then L - sqrt(chi L(1-L)) and
        U + sqrt(chi U(1-U)); 0 if L <= chi/(1+chi), 1 if U >= 1/(1+chi).

    Not covered
        outcomes * mass >= 1.

    >>> outcome_interval(50, 100, outcomes=2, mass=0.01, chi=inf, level=0.01)
    (0.0, 1.0)
    """
    return widen(outcome_mean(count, ell, outcomes=outcomes, mass=mass, level=level), chi=chi)


@theorem("here (conditional means)", proof="posterior.md")
def group_interval(ones: int, included: int, ell: int, *, mass: float, chi: float, level: float) -> Interval:
    """Return the interval for the mean of a group, from draws with outcomes excluded, 0 and 1.

    Statement
        The included share pi at `level` from all ell draws; the ones among the included at `level_among`; the range
        of the group mean over both; then widened with chi/(g - chi), g the lower end of the group's share. Two of the k
        intervals, two coins a draw.

    Not covered
        g <= chi, or a group that may be empty: the answer is [0, 1].

    >>> group_interval(0, 0, 100, mass=0.01, chi=0.001, level=0.01)
    (0.0, 1.0)
    """
    mean, (share, _) = group_mean(ones, included, ell, mass=mass, level=level)
    return widen_group(mean, share, chi=chi)


def widen_group(posterior: Interval, share: float, *, chi: float) -> Interval:
    """Return the interval for the mean of a group with at least this posterior share, by Theorem 1 for groups."""
    return widen(posterior, chi=chi / (share - chi)) if share > chi else (0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class PosteriorTerms(CoinTerms):
    """`widening` is for the step to the population: chi, or h for rows that are not identical; None: no promise."""

    beta1: float  # for the widening
    widening: float | None


class Posterior(CoinGuarantee):
    """Coins with a planned extra mass, by moments of the posterior: narrowest for very few questions."""

    terms: PosteriorTerms
    name = "posterior"
    planning = Planning(("coins",), takes_unlike_rows=True)
    terms_class = PosteriorTerms

    def __init__(self, terms: PosteriorTerms) -> None:
        super().__init__(terms, level(terms.beta2, k=terms.statements))
        self._widening = inf if terms.widening is None else terms.widening

    @classmethod
    def plan(cls, goal: Goal, mechanism: str) -> PosteriorTerms | None:
        """Return the best rows per answer, mass and split of beta; nothing is claimed about single flips."""
        return None if goal.flips or goal.rows < 2 else _planned(goal, mechanism)

    @property
    def step(self) -> float:
        """sqrt(chi)/2, or its counterpart for rows that are not identical."""
        return float(_step(self._widening, self.terms.identical))

    def widen(self, mean: Interval) -> Interval:
        """By Theorem 1 or N."""
        if self.terms.identical:
            return widen(mean, chi=self._widening)
        return widen_unlike(mean, h=self._widening)

    def widen_group(self, mean: Interval, share: float) -> Interval:
        """By Theorem 1 or N for groups."""
        if self.terms.identical:
            return widen_group(mean, share, chi=self._widening)
        return widen_unlike(mean, h=self._widening, share=share)

    def spread_step(self, second: float, within: Interval) -> float:
        """sqrt(chi second moment); for rows that are not identical sqrt(h (second moment + h range^2))."""
        widening, (low, high) = self._widening, within
        unlike = 0.0 if self.terms.identical else widening * (high - low) ** 2
        return sqrt(widening) * sqrt(max(0.0, second) + unlike) * SAFE

    def step_of_difference(self, both: tuple[groups.Known, groups.Known]) -> float:
        """By `posterior_step`."""
        return groups.posterior_step(both, self._widening, identical=self.terms.identical)


def _step(widening: Any, identical: bool) -> Any:
    # A product of roots, not the root of a product, which would overflow.
    return np.sqrt(widening) / 2 if identical else np.sqrt(widening) * np.sqrt(0.25 + widening)


@lru_cache(maxsize=4096)
def _planned(goal: Goal, mechanism: str) -> PosteriorTerms:
    n, k, beta, fixed = goal.rows, goal.queries, goal.beta, goal.rows_per_query

    def margin(log_ell: Vector, log_a: Vector, logit: Vector) -> Vector:
        ell, a, split = np.exp(log_ell), np.exp(log_a), special.expit(logit)
        each = (1 - split) * beta / (np.e * k)
        found = (chi_array if goal.identical else height_array)(n, k * ell, a, split * beta)
        step: Vector = _step(found, goal.identical)
        width: Vector = clopper_pearson_width(ell, each) / (1 - 2 * a) + step
        return width

    ells = (log(n) * 0.2, log(n)) if fixed is None else (log(fixed), log(fixed))
    log_ell, log_a, logit = zoom(margin, [ells, (log(1e-7), log(MOST_MASS)), (-1.5, 5.0)], points=8)
    ell = fixed or max(1, int(np.exp(log_ell)))
    a, beta1 = float(np.exp(log_a)), float(special.expit(logit)) * beta
    widening = (chi if goal.identical else height)(n, k * ell, a, beta1)
    width = float(clopper_pearson_width(ell, level(beta - beta1, k=k)))
    margin_reached = width / (1 - 2 * a) + float(_step(widening, goal.identical))
    own = {"mass": a, "beta1": beta1, "beta2": beta - beta1, "widening": None if widening == inf else widening}
    return goal.met_by(PosteriorTerms, mechanism, margin=margin_reached, rows_per_query=ell, charge=k * ell, **own)


GUARANTEES.register(Posterior.name, Posterior)
