"""How good the point returned by descent is: on the rows, and on the population.

Descent steps x_{t+1} = project(x_t - eta_t g_t) with noisy gradients g_t, and returns an average of x_1..x_T. D is the
diameter of the domain, M a bound on |g_t|, s the spread of one coordinate's noise, H the strong convexity, R a bound on
|loss(x, row) - loss(y, row)|.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, expm1, inf, log, sqrt

import numpy as np
from numpy.typing import NDArray

from holdfast import check
from holdfast.guarantees.mathematics import theorem

AVERAGES = ("uniform", "suffix", "weighted")
PROOF = "descent.md"

Vector = NDArray[np.float64]


@theorem("here (the oracle)", proof=PROOF)
def coin_moment(G: float, widths: Sequence[float], *, ell: float, mass: float) -> float:
    """Return Gh with E|g_t|^2 <= Gh^2 for a gradient whose coordinates are averages of ell debiased coins.

    Statement
        Coordinate j in an interval of width w_j, each of its ell coins about one of ell slices of it (or about all of
        it, which varies no less): Gh^2 = G^2 + sum_j w_j^2/(4 ell (1-2a)^2).

    Not covered
        Coins that are clipped after debiasing (biased); coordinates that share draws.

    >>> round(coin_moment(1.0, [2.0] * 100, ell=100, mass=1e-12), 9)  # twice G^2 at ell = d
    1.414213562
    """
    check.positive(ell=ell)
    return sqrt(G * G + sum(w * w for w in widths) / (4 * ell * (1 - 2 * mass) ** 2))


@theorem("here (the oracle)", proof=PROOF)
def laplace_moment(G: float, widths: Sequence[float], *, ell: float, scale: float) -> float:
    """Return Gh for coordinates answered from ell sampled rows plus Laplace noise of `scale` times their width.

    Statement
        Gh^2 = G^2 + sum_j w_j^2 (1/(4 ell) + 2 scale^2).

    Not covered
        High probability: Laplace noise has no largest value.

    >>> laplace_moment(3.0, [0.0], ell=1, scale=1.0)
    3.0
    """
    check.positive(ell=ell)
    return sqrt(G * G + sum(w * w for w in widths) * (1 / (4 * ell) + 2 * scale * scale))


@theorem("here (coins are bounded)", proof=PROOF)
def largest_gradient(lows: Sequence[float], highs: Sequence[float], *, mass: float) -> float:
    """Return M >= |g_t|, surely, for a gradient made of debiased coins, however few of them.

    Statement
        A debiased coin for a coordinate in [lo, hi] lies in [lo - a' w, hi + a' w], a' = a/(1-2a), w = hi - lo.
        M^2 is the sum of the squares of the larger ends.

    Not covered
        An exact term added to the gradient: add its norm.

    >>> largest_gradient([-1.0] * 4, [1.0] * 4, mass=0.25)
    4.0
    """
    low, high = np.asarray(lows, dtype=float), np.asarray(highs, dtype=float)
    reach = mass / (1 - 2 * mass) * (high - low)
    return float(np.linalg.norm(np.maximum(np.abs(low - reach), np.abs(high + reach))))


@theorem("Hoeffding's lemma", proof=PROOF)
def spread(widths: Sequence[float], *, ell: float, mass: float) -> float:
    """Return s: the noise of the gradient in any direction v is sub-Gaussian with variance proxy s^2 |v|^2.

    Statement
        s^2 = max_j w_j^2/(4 ell (1-2a)^2), coordinates being independent given the past.

    Not covered
        Laplace noise.

    >>> spread([2.0, 1.0], ell=4, mass=1e-18)
    0.5
    """
    return max(widths) / (2 * sqrt(ell) * (1 - 2 * mass))


def step(D: float, H: float, t: int, squares: float) -> float:
    """Return eta_t: 2/(H t) if H > 0, else D/sqrt(2 squares), where squares = |g_1|^2 + ... + |g_t|^2."""
    if H > 0:
        return 2 / (H * t)
    return D / sqrt(2 * squares) if squares > 0 else 0.0  # nothing was released yet


def weights(average: str, T: int) -> Vector:
    """Return how much x_1..x_T count in the returned point: all alike, the last half, or in proportion to t."""
    check.one_of("average", average, AVERAGES)
    t = np.arange(1, T + 1, dtype=float)
    if average == "suffix":
        return np.where(t > T // 2, 1.0, 0.0)
    return t if average == "weighted" else np.ones(T)


@theorem("Fish, Reyzin and Rubinstein, thm:conv_opt, with unbiased gradients and adaptive steps", proof=PROOF)
def convex_excess(D: float, M: float, T: int, *, average: str = "uniform") -> float:
    """Return a bound on the excess on the rows: in expectation for M = Gh, up to `convex_tail` for M >= |g_t|.

    Statement
        eta_t = D/sqrt(2 sum of |g_s|^2, s <= t), with w_t g_t in place of g_t if x_t has weight w_t:
        sqrt(2) D M |w|_2/|w|_1, so sqrt(2) D M/sqrt(T) for the plain average. For the average of the last half, with
        plain steps, 1.52 in place of sqrt(2).

    Not covered
        Averages of x_2..x_{T+1}; steps without projection.

    >>> round(convex_excess(2.0, 1.0, 100), 9) == round(2 * sqrt(2) / 10, 9)
    True
    """
    check.positive(D=D, M=M)
    check.whole(T=T)
    w = weights(average, T)
    constant = 1.52 if average == "suffix" else sqrt(2)
    return float(constant * D * M * np.linalg.norm(w) / w.sum())


@theorem("Fish, Reyzin and Rubinstein, thm:str_conv_opt, with unbiased gradients", proof=PROOF)
def strongly_convex_excess(M: float, H: float, T: int, *, average: str = "uniform") -> float:
    """Return the same for H-strongly convex losses and eta_t = 2/(H t).

    Statement
        M^2 (1 + log T)/(H T) for the plain average; max(w) T/sum(w) times as much for weights w, as no term of the
        sum is negative.

    Not covered
        Steps without projection; an H that fails for rows with missing values, whose loss is 0.

    >>> strongly_convex_excess(1.0, 1.0, 1)
    1.0
    """
    check.positive(M=M, H=H)
    check.whole(T=T)
    return M * M * (1 + log(T)) / (H * T) * _unevenness(average, T)


def _unevenness(average: str, T: int) -> float:
    if average == "uniform":
        return 1.0
    w = weights(average, T)
    return float(w.max() * T / w.sum())


@theorem("here (with high probability)", proof=PROOF)
def convex_tail(D: float, s: float, T: int, beta: float, *, average: str = "uniform") -> float:
    """Return what to add to `convex_excess` (M >= |g_t|) so that it fails with probability at most beta.

    Statement
        D s sqrt(2 log(1/beta) sum w^2)/sum w. It bounds the excess on the rows, and also the posterior mean of that
        excess given everything released.

    Not covered
        Laplace noise.

    >>> round(convex_tail(1.0, 1.0, 200, 0.1353352832366127), 9)
    0.141421356
    """
    check.probability(beta=beta)
    w = weights(average, T)
    return float(D * s * sqrt(2 * log(1 / beta)) * np.linalg.norm(w) / w.sum())


@theorem("here (with high probability)", proof=PROOF)
def strongly_convex_tail(s: float, H: float, T: int, beta: float, *, average: str = "uniform") -> float:
    """Return the same for `strongly_convex_excess`.

    Statement
        2 s^2 log(1/beta)/(H T), times max(w) T/sum(w): strong convexity pays for the noise.

    Not covered
        Laplace noise.

    >>> round(strongly_convex_tail(1.0, 1.0, 100, 0.1353352832366127), 9)
    0.04
    """
    check.positive(H=H)
    check.probability(beta=beta)
    return 2 * s * s * log(1 / beta) / (H * T) * _unevenness(average, T)


@theorem("here (what was released certifies itself)", proof=PROOF)
def released_regret(inner: float, least: float, weight: float) -> float:
    """Return the regret of the released gradients, which may stand in for `convex_excess`, with the same tail.

    Statement
        inner = sum_t w_t <g_t, x_t>, least = min over the domain of <sum_t w_t g_t, u>, weight = sum_t w_t: the excess
        on the rows is at most (inner - least)/weight plus `convex_tail`, whatever the steps were.

    Not covered
        Gradients that were not all used, or weights chosen after seeing them.

    >>> released_regret(1.0, -1.0, 4.0)
    0.5
    """
    return (inner - least) / weight


@theorem("here (what was released certifies itself)", proof=PROOF)
def released_regret_strong(
    inner: float, gradient: Sequence[float], mean: Sequence[float], scatter: float, weight: float, H: float
) -> float:
    """Return the same for H-strongly convex losses, with `strongly_convex_tail`.

    Statement
        gradient = sum_t w_t g_t, mean = the returned point, scatter = sum_t w_t |x_t - mean|^2. Half of H is kept for
        the tail: [inner - <gradient, mean> + |gradient|^2/(H weight) - H scatter/4]/weight.

    Not covered
        H larger than the strong convexity.

    >>> released_regret_strong(0.0, [1.0], [0.0], 0.0, 1.0, 2.0)
    0.5
    """
    total, center = np.asarray(gradient, dtype=float), np.asarray(mean, dtype=float)
    best = inner - total @ center + total @ total / (H * weight) - H * scatter / 4
    return float(best) / weight


@theorem("here (from the sample to the population)", proof=PROOF)
def information_step(R: float, *, nats: float, n: int) -> float:
    """Return how much more excess the population may show, in expectation, than the rows.

    Statement
        2 R sqrt(I/(2n)), I the nats of the session up to this query.

    Not covered
        High probability: see `radius_step` and `posterior_excess`. An R chosen after answers: then the excess divided
        by R is what has this expectation.

    >>> information_step(1.0, nats=2.0, n=100)
    0.2
    """
    return 2 * R * sqrt(nats / (2 * n))


@theorem("here (from the sample to the population)", proof=PROOF)
def radius_step(R: float, *, r: float, n: int) -> float:
    """Return the same for all queries at once, in a session under the information guarantee.

    Statement
        The difference of two losses is one of the k queries with n kl <= r, of width 2R: 2 R sqrt(r/(2n)).

    Not covered
        A query that was not counted among the k.

    >>> radius_step(1.0, r=2.0, n=100)
    0.2
    """
    return 2 * R * sqrt(r / (2 * n))


@theorem("here (from the sample to the population)", proof=PROOF)
def privacy_step(R: float, *, epsilon: float, delta: float) -> float:
    """Return the same, in expectation, for a session that is (epsilon, delta)-DP.

    Statement
        2 R (e^epsilon - 1 + delta).

    Not covered
        High probability.

    >>> privacy_step(1.0, epsilon=0.0, delta=0.25)
    0.5
    """
    return 2 * R * (expm1(epsilon) + delta)


@theorem("here (from the sample to the population)", proof=PROOF)
def posterior_excess(expected: float, *, R: float, lipschitz: float, H: float, step: float) -> float:
    """Return a bound on the population's excess from the posterior mean of the excess on the rows.

    Statement
        `step` is the most by which the population's mean of a value in [0, 1] differs from its posterior mean, for all
        values at once: sqrt(chi)/2 in the posterior guarantee, sqrt(J/(2-J)) in the exchange guarantee. The difference
        of two losses lies in [-R, R]: excess <= E[excess on S | T] + 2 R step. If the loss is H-strongly convex and
        lipschitz in each row, R may be replaced by lipschitz |x - x*| <= lipschitz sqrt(2 excess/H): the larger root
        of e = E + b sqrt(e), b = 2 lipschitz step sqrt(2/H).

    Not covered
        Sessions outside these two guarantees.

    >>> posterior_excess(0.5, R=1.0, lipschitz=1.0, H=0.0, step=0.25)
    1.0
    """
    if step == inf:
        return inf
    plain = expected + 2 * R * step
    if H <= 0:
        return plain
    b = 2 * lipschitz * step * sqrt(2 / H)
    return min(plain, ((b + sqrt(b * b + 4 * expected)) / 2) ** 2)


@theorem("here (in expectation)", proof=PROOF)
def expected_from_likely(likely: float, *, beta: float, most: float) -> float:
    """Return a bound on the expected excess from one that holds except with probability beta.

    Statement
        The excess is at most `likely`, fixed before the session, except with probability beta, and always at most
        `most`: E[excess] <= likely + beta * most.

    Not covered
        A `likely` that was computed from what was released; a `most` chosen after answers.

    >>> expected_from_likely(0.25, beta=0.0625, most=4.0)
    0.5
    """
    check.probability(beta=beta)
    return min(most, likely + beta * most)


@theorem("here (how far from the best point)", proof=PROOF)
def distance_from_minimizer(excess: float, H: float) -> float:
    """Return how far a point can be from the one minimizer over the domain, by its excess.

    Statement
        L is H-strongly convex and x* minimizes it over a convex domain that contains x: |x - x*| <= sqrt(2 excess/H).

    Not covered
        Losses that are only convex: a small excess says nothing about where the minimizer is.

    >>> distance_from_minimizer(0.125, 4.0)
    0.25
    """
    check.positive(H=H)
    return sqrt(2 * excess / H)


@dataclass(frozen=True)
class FitSizes:
    """What k optimization queries need: rows, iterations each, rows per coordinate, and coins in all."""

    n: int
    iterations: int
    ell: int
    charge: int


@theorem("here (a sample size)", proof=PROOF)
def sample_size(R: float, D: float, G: float, d: int, *, k: int, alpha: float) -> FitSizes:
    """Return the rows with which each of k adaptive convex losses has expected excess at most alpha.

    Statement
        Coordinates in [-G, G], |gradient| <= G, alpha <= D G: n = max(1000, 8.5 R D G d sqrt(k)/alpha^2), ell = d,
        T = round(18 (D G/alpha)^2), k T d^2 coins.

    Not covered
        Coordinates whose range exceeds the bound on the norm.

    >>> sample_size(1.0, 1.0, 1.0, 10, k=100, alpha=0.1)
    FitSizes(n=85000, iterations=1800, ell=10, charge=18000000)
    """
    check.positive(R=R, D=D, G=G, alpha=alpha)
    check.whole(d=d, k=k)
    check.at_most("D G", D * G, alpha=alpha)
    T = round(18 * (D * G / alpha) ** 2)
    n = max(1000, ceil(8.5 * R * D * G * d * sqrt(k) / alpha**2 * (1 - 1e-12)))
    return FitSizes(n, T, d, k * T * d * d)
