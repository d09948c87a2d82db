"""What every guarantee can promise for n rows and k queries: its best settings, one function each.

A strategy returns the numbers of a plan, or None where the guarantee does not apply. The accuracy is always a bound
that holds; better settings would only make it smaller.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil, log, sqrt

import numpy as np
from scipy.special import expit

from holdfast.guarantees import information, paper, posterior
from holdfast.guarantees.mathematics import amplification, composition, transfer
from holdfast.guarantees.mathematics.concentration import clopper_pearson_width, hoeffding_radius, laplace_radius
from holdfast.guarantees.mathematics.search import Vector, zoom

MOST_ROWS = 10**15
MOST_MASS = 0.16  # so that a group, with three outcomes, is still at most half noise
FULL_SCAN_SLACK = 1.25  # Laplace answers read so many rows that they are at most a quarter wider than a full scan


@dataclass(frozen=True)
class Goal:
    """What a strategy is asked for."""

    rows: int
    queries: int  # answers with an interval
    beta: float
    rows_per_query: int | None = None
    sampling: int = 0  # sampling counting queries beside them

    @property
    def statements(self) -> int:
        """How many statements about the population must hold at once: the k of the theorems."""
        return self.queries + self.sampling


@dataclass(frozen=True)
class Numbers:
    """The numbers that a session runs on."""

    accuracy: float
    rows_per_query: int
    flips: int
    flip_probability: float = 0.0
    constants: Mapping[str, float] = field(default_factory=dict)


Strategy = Callable[[Goal], Numbers | None]


@lru_cache(maxsize=4096)
def posterior_coins(goal: Goal) -> Numbers | None:
    """Coins with a planned flip probability; beta enters by its logarithm."""
    n, k, beta, fixed = goal.rows, goal.queries, goal.beta, goal.rows_per_query
    if goal.sampling or n < 2:
        return None  # nothing is claimed about q(S), so nothing about sampling counting queries

    def accuracy(log_ell: Vector, log_a: Vector, logit: Vector) -> Vector:
        ell, a, split = np.exp(log_ell), np.exp(log_a), expit(logit)
        level = (1 - split) * beta / (np.e * k)
        chi = posterior.chi_array(n, k * ell, a, split * beta)
        width: Vector = clopper_pearson_width(ell, level) / (1 - 2 * a) + np.sqrt(chi) / 2
        return width

    ells = (log(n) * 0.2, log(n)) if fixed is None else (log(fixed), log(fixed))
    log_ell, log_a, logit = zoom(accuracy, [ells, (log(1e-7), log(MOST_MASS)), (-1.5, 5.0)], points=8)
    ell = fixed or max(1, int(np.exp(log_ell)))
    a, beta1 = float(np.exp(log_a)), float(expit(logit)) * beta
    chi = posterior.chi(n, k * ell, a, beta1)
    width = float(clopper_pearson_width(ell, posterior.level(beta - beta1, k=k)))
    return Numbers(
        accuracy=min(1.0, width / (1 - 2 * a) + sqrt(chi) / 2),
        rows_per_query=ell,
        flips=k * ell,
        flip_probability=a,
        constants={"beta1": beta1, "beta2": beta - beta1, "chi": chi},
    )


@lru_cache(maxsize=4096)
def information_coins(goal: Goal) -> Numbers | None:
    """Coins flipped with probability 1/n; also the guarantee of sampling counting queries."""
    n, k, beta, fixed = goal.rows, goal.statements, goal.beta, goal.rows_per_query
    if n < 20:
        return None  # ten rows an outcome, or the answers are mostly noise

    def accuracy(log_ell: Vector, logit: Vector) -> Vector:
        ell, split = np.exp(log_ell), expit(logit)
        b1 = split * beta
        entropy = -b1 * np.log(b1) - (1 - b1) * np.log1p(-b1)
        r = ((goal.queries * ell + goal.sampling) / (2 * n) + entropy) / b1 + log(2 * k)
        width: Vector = clopper_pearson_width(ell, (1 - split) * beta / k) * n / (n - 2) + np.sqrt(r / (2 * n))
        return width

    ells = (0.0, log(n)) if fixed is None else (log(fixed), log(fixed))
    log_ell, logit = zoom(accuracy, [ells, (-1.5, 6.0)])
    ell = fixed or max(1, int(np.exp(log_ell)))
    # Flips alone need no binomial interval; a twentieth is kept for the averages that `flips` releases.
    beta1 = float(expit(logit)) * beta if goal.queries else 0.95 * beta
    flips = goal.queries * ell + goal.sampling
    r = information.radius(flips, n=n, k=k, beta=beta1)
    if goal.queries:
        width = float(clopper_pearson_width(ell, (beta - beta1) / k)) * n / (n - 2) + sqrt(r / (2 * n))
    else:
        width = information.sampling_accuracy(n=n, r=r)
    return Numbers(
        accuracy=min(1.0, width),
        rows_per_query=ell if goal.queries else 1,
        flips=flips,
        flip_probability=1 / n,
        constants={"beta1": beta1, "beta2": beta - beta1, "radius": r},
    )


def _sampled_laplace(error: Callable[[int], float], full: float, n: int, fixed: int | None) -> int:
    """Return the fewest rows per answer whose error is within FULL_SCAN_SLACK of the full scan's."""
    if fixed is not None:
        return fixed
    low, high = 1, n
    while low < high:
        middle = (low + high) // 2
        if error(middle) <= FULL_SCAN_SLACK * full:
            high = middle
        else:
            low = middle + 1
    return low


@lru_cache(maxsize=4096)
def information_laplace(goal: Goal) -> Numbers | None:
    """Sampled rows + Laplace noise, charged by n^2 eps0^2 flips an answer."""
    n, k, beta = goal.rows, goal.queries, goal.beta
    if goal.sampling or n < 20:
        return None

    def radius_term(eps0: Vector, b1: Vector) -> Vector:
        entropy = -b1 * np.log(b1) - (1 - b1) * np.log1p(-b1)
        r = (k * n * eps0**2 / 2 + entropy) / b1 + log(2 * k)
        term: Vector = np.sqrt(r / (2 * n))
        return term

    def full_scan(log_eps: Vector, logit: Vector) -> Vector:
        eps0, split = np.exp(log_eps), expit(logit)
        level = (1 - split) * beta / (2 * k)
        total: Vector = np.log(1 / level) / (n * eps0) + radius_term(eps0, split * beta)
        return total

    log_eps, logit = zoom(full_scan, [(log(1e-3 / n), log(2.0)), (-1.5, 6.0)], levels=11)
    eps0, beta1 = float(np.exp(log_eps)), float(expit(logit)) * beta
    flips_each = ceil(information.private_cost(eps0, n=n))
    r = information.radius(k * flips_each, n=n, k=k, beta=beta1)
    level = (beta - beta1) / (2 * k)

    def error(ell: int) -> float:
        eps = amplification.epsilon_without_replacement(eps0, ell=ell, n=n)
        sampling = hoeffding_radius(ell, level) if ell < n else 0.0
        return sampling + laplace_radius(1 / (ell * eps), level) + sqrt(r / (2 * n))

    ell = min(n, _sampled_laplace(error, error(n), n, goal.rows_per_query))
    return Numbers(
        accuracy=min(1.0, error(ell)),
        rows_per_query=ell,
        flips=k * flips_each,
        constants={"beta1": beta1, "beta2": beta - beta1, "radius": r, "epsilon": eps0},
    )


@lru_cache(maxsize=4096)
def dp_laplace(goal: Goal) -> Numbers | None:
    """Sampled rows + Laplace noise, by differential privacy and the transfer theorem of Jung et al."""
    n, k, beta = goal.rows, goal.queries, goal.beta
    if goal.sampling or n < 2:
        return None

    def full_scan(log_eps: Vector, log_c: Vector, log_d: Vector) -> Vector:
        eps, c, d = np.exp(log_eps), np.exp(log_c), np.exp(log_d)
        nats = -np.log(d * beta / 2)
        eps0 = eps / (np.sqrt(nats + eps) + np.sqrt(nats)) * sqrt(2 / k)
        total: Vector = np.log(4 * k / (c * beta)) / (n * eps0) + np.expm1(eps) + c + 2 * d
        return total

    box = [(log(1e-9), log(1.0)), (log(1e-12), log(0.5)), (log(1e-12), log(0.5))]
    eps, c, d = (float(np.exp(x)) for x in zoom(full_scan, box, points=8, levels=12))
    delta, fail = d * beta / 2, c * beta / 2
    eps0 = composition.zcdp_step(eps, delta, k=k)

    def error(ell: int) -> float:
        on_drawn = amplification.epsilon_without_replacement(eps0, ell=ell, n=n)
        sampling = hoeffding_radius(ell, fail / (2 * k)) if ell < n else 0.0
        on_sample = sampling + laplace_radius(1 / (ell * on_drawn), fail / (2 * k))
        return transfer.jung(on_sample, fail, eps, delta, c=c, d=d)[0]

    ell = min(n, _sampled_laplace(error, error(n), n, goal.rows_per_query))
    return Numbers(
        accuracy=min(1.0, error(ell)),
        rows_per_query=ell,
        flips=k * ceil(information.private_cost(eps0, n=n)),
        constants={"epsilon": eps0},
    )


def _smallest_error(size: Callable[[float], paper.Size], goal: Goal) -> float | None:
    """Return the smallest alpha the paper's size allows on these rows (and rows per query), on the safe side."""

    def fits(alpha: float) -> bool:
        needed = size(alpha)
        return needed.n <= goal.rows and needed.ell <= (goal.rows_per_query or MOST_ROWS)

    good = 1 - 1e-9
    if not fits(good):
        return None
    bad = 0.0
    while good - bad > 1e-6 * good:
        middle = (good + bad) / 2
        if middle < 1e-7 or not fits(middle):
            bad = middle
        else:
            good = middle
    return good


@lru_cache(maxsize=4096)
def paper_laplace(goal: Goal) -> Numbers | None:
    """The paper's mechanism for statistical queries, with the constants of its proof repaired."""
    if goal.sampling:
        return None
    alpha = _smallest_error(lambda a: paper.a1(a, goal.beta, goal.queries), goal)
    if alpha is None:
        return None
    size = paper.a1(alpha, goal.beta, goal.queries)
    cost = ceil(information.private_cost(size.epsilon_per_query, n=goal.rows))
    ell = goal.rows_per_query or size.ell
    constants = {"epsilon": size.epsilon_per_query}
    return Numbers(alpha, ell, goal.queries * cost, constants=constants)


@lru_cache(maxsize=4096)
def paper_coins(goal: Goal) -> Numbers | None:
    """The paper's sampling counting queries, averaged."""
    if goal.sampling and goal.queries:
        return None
    if goal.sampling:
        alpha = _smallest_error(lambda a: paper.a3(a, goal.beta, goal.sampling), goal)
    else:
        alpha = _smallest_error(lambda a: paper.cq_by_scq(a, goal.beta, goal.queries), goal)
    if alpha is None:
        return None
    if goal.sampling:
        return Numbers(alpha, 1, goal.sampling, alpha / 2)
    size = paper.cq_by_scq(alpha, goal.beta, goal.queries)
    return Numbers(alpha, size.ell, goal.queries * size.ell, size.flip)


def split(goal: Goal) -> Numbers | None:
    """Fresh rows for every query: simple, and soon out of rows."""
    if goal.sampling or goal.rows < goal.queries:
        return None
    ell = min(goal.rows_per_query or goal.rows, goal.rows // goal.queries)
    return Numbers(min(1.0, hoeffding_radius(ell, goal.beta / goal.queries)), ell, goal.rows)


def naive(goal: Goal) -> Numbers | None:
    """The mean of all rows, over and over: right only if no question depends on an earlier answer."""
    if goal.sampling:
        return None
    return Numbers(min(1.0, hoeffding_radius(goal.rows, goal.beta / goal.queries)), goal.rows, 0)


STRATEGIES: dict[tuple[str, str], Strategy] = {
    ("posterior", "coins"): posterior_coins,
    ("information", "coins"): information_coins,
    ("information", "laplace"): information_laplace,
    ("dp", "laplace"): dp_laplace,
    ("paper", "laplace"): paper_laplace,
    ("paper", "coins"): paper_coins,
    ("split", "fresh rows"): split,
    ("naive", "full scan"): naive,
}
