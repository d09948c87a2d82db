"""The paper's sample sizes and rows per query, with constants that hold.

Sound and enormous: they are here so that the paper's system can be used as published, and to show why it is not the
default. "A1", "A3" and so on name the systems as in docs/explanation/paper.md.
"""

from dataclasses import dataclass
from math import atanh, ceil, exp, expm1, log, log1p, log2, sqrt

from holdfast import check
from holdfast.guarantees.mathematics import privacy, theorem


@dataclass(frozen=True)
class Size:
    """What one of the paper's systems needs: rows, rows per query, and its settings."""

    n: int
    ell: int
    epsilon_per_query: float  # eps0, on all n rows
    mass: float = 0.0


@theorem("Fish, Reyzin and Rubinstein, thm:lsq, repaired", proof="paper-sizes.md")
def a1(alpha: float, beta: float, k: int, *, replacement: bool = False, epsilon0: float | None = None) -> Size:
    """Return the rows with which ell sampled rows + Laplace noise answer k statistical queries.

    Statement
        alpha_S = alpha/8, beta_S = alpha beta/16, epsilon = alpha/64, delta = alpha beta/32,
        eps0 = epsilon/(2 sqrt(2k log(1/delta))), ell = 2 log(4k/beta_S)/alpha_S^2. The noise 1/(ell eps') on the drawn
        rows, eps' the exact inverse of amplification at eps0, stays below alpha_S/2 for all k answers once
            eps' >= 2 log(2k/beta_S)/(ell alpha_S).

    Not covered
        The printed eps' = epsilon n/(4 ell sqrt(2k log(1/delta))) where it exceeds 1.

    >>> size = a1(0.1, 0.05, 1000)
    >>> round(size.ell, -4), round(size.n / 1e8, 1)
    (210000, 4.3)
    """
    check.whole(k=k)
    demand = privacy.statistical_queries(alpha, beta)
    sample, fail = demand.alpha_on_sample, demand.beta_on_sample
    eps0 = epsilon0 or privacy.advanced_step(demand.epsilon, demand.delta, k=k)
    ell = ceil(2 * log(4 * k / fail) / sample**2)
    least = 2 * log(2 * k / fail) / (ell * sample)
    return Size(_rows(ell, least, eps0, replacement), ell, eps0)


def _rows(ell: int, least: float, eps0: float, replacement: bool = False) -> int:
    """Return the fewest rows n for which eps0 on all n rows allows at least `least` on ell drawn rows."""
    if replacement:
        return ceil(expm1(least) / expm1(eps0 / ell))
    return max(ell, ceil(ell * expm1(least) / expm1(eps0)))


@theorem("Fish, Reyzin and Rubinstein, thm:sampling_thm, exact price", proof="paper-sizes.md")
def a3(alpha: float, beta: float, k: int) -> Size:
    """Return the rows with which one randomized row each answers k sampling counting queries.

    Statement
        Flip a = alpha/2; each answer costs log(1 + (1-2a)/(a n)), k of them by the paper's lemma at most
        (alpha/64, alpha beta/16); and n >= 1024 log(2k/beta)/alpha^2.

    Not covered
        Averages of the answers: see `cq_by_scq`.

    >>> a3(0.1, 0.05, 1000).n > 1024 * log(40_000) / 0.01
    True
    """
    demand = privacy.sampling_queries(alpha, beta, k=k)
    mass = alpha / 2
    eps0 = privacy.advanced_step(demand.epsilon, demand.delta, k=k)
    n = max((1 - 2 * mass) / (mass * expm1(eps0)), demand.least_rows)
    return Size(ceil(n), 1, eps0, mass)


@theorem("Fish, Reyzin and Rubinstein, Section 5, first half", proof="paper-sizes.md")
def cq_by_scq(alpha: float, beta: float, k: int) -> Size:
    """Return the rows with which averages of ell sampling counting queries answer k counting queries.

    Statement
        ell = 2 log(4k/beta)/alpha^2 answers each, k ell in all, (alpha/2, beta/2)-accurate by `a3`; Hoeffding at
        alpha/2 and beta/(2k) does the rest.

    Not covered
        Looking at a running average more than once without charging for it.
    """
    check.probability(alpha=alpha, beta=beta)
    check.whole(k=k)
    ell = ceil(2 * log(4 * k / beta) / alpha**2)
    inner = a3(alpha / 2, beta / 2, k * ell)
    return Size(inner.n, ell, inner.epsilon_per_query, inner.mass)


@theorem("Fish, Reyzin and Rubinstein, cor:lsq_exp, repaired", proof="paper-sizes.md")
def a1_in_expectation(alpha: float, k: int) -> Size:
    """Return the rows with which A1 is accurate in expectation at every round: E|a_i - q_i(D)| <= alpha.

    Statement
        epsilon = alpha/16, delta = alpha/8, eps0 by the paper's lemma, ell = 4/alpha^2, eps' >= 4/(ell alpha), and
        n >= 256 log(2)/alpha^2. (In signed form, |E[a_i - q_i(D)]| <= alpha, unclipped answers ask nothing of n.)

    Not covered
        Expectations conditioned on a prefix of the transcript: given one, the rows are no longer draws from D.

    >>> a1_in_expectation(0.1, 1000).ell
    400
    """
    check.probability(alpha=alpha)
    eps0 = privacy.advanced_step(alpha / 16, alpha / 8, k=k)
    ell = ceil(4 / alpha**2)
    return Size(max(_rows(ell, 4 / (ell * alpha), eps0), ceil(256 * log(2) / alpha**2)), ell, eps0)


@theorem("Fish, Reyzin and Rubinstein, Section 5, second half, repaired", proof="paper-sizes.md")
def scq_by_cq(alpha: float, beta: float, k: int) -> Size:
    """Return the rows with which full-scan noisy means, each turned into one coin, answer k sampling queries.

    Statement
        With the noise of each answer held fixed: epsilon = alpha/64, delta = alpha beta/32, and
        n >= 2 log(2k/beta)/(alpha eps0), n >= 1024 log(4k/beta)/alpha^2. Every answer reads all n rows.

    Not covered
        The expectation over the noise as well, which asks for less.
    """
    check.probability(alpha=alpha, beta=beta)
    eps0 = privacy.advanced_step(alpha / 64, alpha * beta / 32, k=k)
    n = max(2 * log(2 * k / beta) / (alpha * eps0), 1024 * log(4 * k / beta) / alpha**2)
    return Size(ceil(n), ceil(n), eps0)


@theorem("Fish, Reyzin and Rubinstein, prop:lower_bound, with a constant", proof="paper-sizes.md")
def least_evaluations(alpha: float, beta: float, k: int, *, universe: int) -> float:
    """Return how many query evaluations any (alpha, beta)-accurate mechanism needs for k queries.

    Statement
        eta = 2 exp(-|X| alpha^2/2), s = 2(beta + eta) < 1, alpha < 1/4:
            k (1-s) log((2-s)/s) / (8 alpha artanh(4 alpha)).

    Not covered
        Mechanisms that reach values other than by evaluating a query on a point.

    >>> round(1000 / least_evaluations(0.1, 0.2, 1000, universe=10**6) / 0.1**2) < 46
    True
    """
    check.probability(alpha=alpha, beta=beta)
    check.at_most("1/4", 0.2499, alpha=alpha)
    s = 2 * (beta + 2 * exp(-universe * alpha**2 / 2))
    return k * (1 - s) * log((2 - s) / s) / (8 * alpha * atanh(4 * alpha)) if s < 1 else 0.0


@dataclass(frozen=True)
class Private:
    """How private a session planned by the paper is, and what its fits may rely on.

    gap     the most by which T-chosen functions with values in [0, 1] differ between rows and population
    level   failure probability of one fit on the rows, for which all statements together fail with at most beta
    """

    epsilon: float
    delta: float
    gap: float
    level: float


@theorem("Fish, Reyzin and Rubinstein, thm:conv_opt_whp inside a planned session", proof="paper-sizes.md")
def private_answers(alpha: float, beta: float, *, k: int, n: int) -> Private:
    """Return what fits may rely on in a session of k noisy answers planned by `a1`.

    Statement
        The session is (alpha/64, alpha beta/32)-DP. Its answers fail with probability at most 0.45 beta; any k T-chosen
        functions differ by at most gap = max(alpha/2, 16 sqrt(log(4k/beta)/n)) except with probability beta/2; the
        rest, beta/(20k) each, is left for what happens on the rows.

    Not covered
        More than k statements.

    >>> private_answers(0.1, 0.05, k=1000, n=10**9).gap
    0.05
    """
    return Private(alpha / 64, alpha * beta / 32, max(alpha / 2, 16 * sqrt(log(4 * k / beta) / n)), beta / (20 * k))


@theorem("Fish, Reyzin and Rubinstein, thm:conv_opt_whp inside a planned session", proof="paper-sizes.md")
def private_coins(alpha: float, beta: float, *, k: int, n: int) -> Private:
    """Return the same in a session of k averages of coins planned by `cq_by_scq`.

    Statement
        The session is (alpha/128, alpha beta/64)-DP, and n >= 4096 log(4 k ell/beta)/alpha^2: T-chosen functions differ
        by at most alpha/4 except with probability beta/2. The averages share the other half, beta/(2k) each; a fit
        takes the share of one of them.

    Not covered
        More than k statements.

    >>> private_coins(0.1, 0.05, k=1000, n=10**9).gap
    0.025
    """
    return Private(alpha / 128, alpha * beta / 64, alpha / 4, beta / (2 * k))


@dataclass(frozen=True)
class DescentSize:
    """What descent through A1 needs: rows, rows per coordinate, steps, runs, and the price of one answer."""

    n: int
    ell: int
    steps: int
    runs: int
    epsilon_per_query: float


@theorem("Fish, Reyzin and Rubinstein, thm:conv_opt and thm:str_conv_opt, with constants", proof="paper-sizes.md")
def descent(
    alpha: float, k: int, *, d: int, diameter: float, gradient: float, width: float, spread: float, strong: float = 0.0
) -> DescentSize:
    """Return the rows with which descent through A1 has expected excess loss alpha for k adaptive losses.

    Statement
        D the diameter, G a bound on the gradient's norm, w the width of a coordinate's range, R the spread of the
        loss of a row, H > 0 for strongly convex losses (`strong`). With T = 18 D^2 G^2/alpha^2 steps, or for
        x = 4G^2/(H alpha) T = 2x(1+log 2x), ell = d w^2/(2G^2), epsilon = log(1+alpha/(8R)), delta = alpha/(8R),
        eps' >= 2 w sqrt(d)/(ell G): E[excess population loss] <= alpha.

    Not covered
        High probability (see `boosted_descent`).

    >>> descent(0.1, 1, d=1, diameter=1, gradient=1, width=2, spread=1).steps
    1800
    """
    check.positive(alpha=alpha, diameter=diameter, gradient=gradient, width=width, spread=spread)
    check.whole(k=k, d=d)
    ell = max(1, ceil(d * width**2 / (2 * gradient**2)))
    steps = _steps(alpha, 18.0, 4.0, diameter, gradient, strong)
    part = alpha / (8 * spread)
    eps0 = privacy.advanced_step(min(log1p(part), 0.999), min(part, 0.5), k=k * steps * d)
    n = _rows(ell, 2 * width * sqrt(d) / (ell * gradient), eps0)
    return DescentSize(n, ell, steps, 1, eps0)


@theorem("Bassily et al. 2016, convex optimization queries, constants as for `descent`", proof="paper-sizes.md")
def full_gradient_descent(
    alpha: float, k: int, *, d: int, diameter: float, gradient: float, width: float, spread: float, strong: float = 0.0
) -> DescentSize:
    """Return the rows with which descent on full gradients plus Laplace noise has expected excess loss alpha.

    Statement
        As `descent`, but each coordinate is the mean of all n rows plus noise of scale w/(n eps0), at most G/sqrt(2d)
        once n >= sqrt(2d) w/(G eps0). Every step evaluates all n rows.

    Not covered
        High probability.

    >>> sizes = full_gradient_descent(0.1, 1, d=1, diameter=1, gradient=1, width=2, spread=1)
    >>> sizes.ell == sizes.n
    True
    """
    through_samples = descent(
        alpha, k, d=d, diameter=diameter, gradient=gradient, width=width, spread=spread, strong=strong
    )
    eps0 = through_samples.epsilon_per_query
    n = ceil(sqrt(2 * d) * width / (gradient * eps0))
    return DescentSize(n, n, through_samples.steps, 1, eps0)


@theorem(
    "Fish, Reyzin and Rubinstein, thm:conv_opt_whp and thm:str_conv_opt_whp, with constants", proof="paper-sizes.md"
)
def boosted_descent(
    alpha: float,
    beta: float,
    k: int,
    *,
    d: int,
    diameter: float,
    gradient: float,
    width: float,
    spread: float,
    strong: float = 0.0,
) -> DescentSize:
    """Return the rows with which the best of several descents has excess loss alpha, all k at once, w.p. 1 - beta.

    Statement
        m = log2(3k/beta) runs, T = 288 D^2 G^2/alpha^2 steps (x = 16G^2/(H alpha) if strongly convex),
        gamma = alpha/(4R) <= 1, eps0 by the paper's lemma for (gamma/32, gamma beta/24) and k(mTd+1) answers; the
        best run by the exponential mechanism at eps0; and n >= 8R log(3km/beta)/(alpha eps0), 256 log(6k/beta)/gamma^2.

    Not covered
        alpha > 4R: nothing to learn.
    """
    check.positive(alpha=alpha, diameter=diameter, gradient=gradient, width=width, spread=spread)
    check.probability(beta=beta)
    check.at_most("4 spread", 4 * spread, alpha=alpha)
    runs = ceil(log2(3 * k / beta))
    ell = max(1, ceil(d * width**2 / (2 * gradient**2)))
    steps = _steps(alpha, 288.0, 16.0, diameter, gradient, strong)
    gamma = alpha / (4 * spread)
    eps0 = privacy.advanced_step(gamma / 32, gamma * beta / 24, k=k * (runs * steps * d + 1))
    n = max(
        _rows(ell, 2 * width * sqrt(d) / (ell * gradient), eps0),
        ceil(8 * spread * log(3 * k * runs / beta) / (alpha * eps0)),
        ceil(256 * log(6 * k / beta) / gamma**2),
    )
    return DescentSize(n, ell, steps, runs, eps0)


def _steps(alpha: float, convex: float, strongly: float, diameter: float, gradient: float, strong: float) -> int:
    if strong <= 0:
        return ceil(convex * diameter**2 * gradient**2 / alpha**2)
    x = strongly * gradient**2 / (strong * alpha)
    return ceil(2 * x * (1 + log(2 * x))) if x >= 0.5 else 1
