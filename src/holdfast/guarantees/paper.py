"""The paper's sample sizes and rows per query, with constants that hold.

Sound and enormous: they are here so that the paper's system can be used as published, and to show why it is not the
default. "A1", "A3" and so on name the systems as in docs/explanation/paper.md.
"""

from dataclasses import dataclass
from math import ceil, expm1, log, sqrt

from holdfast import check
from holdfast.guarantees import amplification, composition, transfer
from holdfast.guarantees.theorem import theorem


@dataclass(frozen=True)
class Size:
    """What one of the paper's systems needs: rows, rows per query, and its settings."""

    n: int
    ell: int
    epsilon_per_query: float  # eps0, on all n rows
    flip: float = 0.0


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
    demand = transfer.statistical_queries(alpha, beta)
    sample, fail = demand.alpha_on_sample, demand.beta_on_sample
    eps0 = epsilon0 or composition.advanced_step(demand.epsilon, demand.delta, k=k)
    ell = ceil(2 * log(4 * k / fail) / sample**2)
    least = 2 * log(2 * k / fail) / (ell * sample)
    n = expm1(least) / expm1(eps0 / ell) if replacement else ell * expm1(least) / expm1(eps0)
    return Size(max(ceil(n), ell), ell, eps0)


def a1_noise(size: Size, *, n: int, replacement: bool = False) -> float:
    """Return the scale of A1's Laplace noise on n rows: 1/(ell eps')."""
    invert = amplification.epsilon_with_replacement if replacement else amplification.epsilon_without_replacement
    return 1 / (size.ell * invert(size.epsilon_per_query, ell=size.ell, n=n))


@theorem("Fish, Reyzin and Rubinstein, thm:sampling_thm, exact price", proof="paper-sizes.md")
def a3(alpha: float, beta: float, k: int) -> Size:
    """Return the rows with which one flipped row each answers k sampling counting queries.

    Statement
        Flip a = alpha/2; each answer costs log(1 + (1-2a)/(a n)), k of them by the paper's lemma at most
        (alpha/64, alpha beta/16); and n >= 1024 log(k/beta)/alpha^2.

    Not covered
        Averages of the answers: see `cq_by_scq`.

    >>> a3(0.1, 0.05, 1000).n > 1024 * log(20_000) / 0.01
    True
    """
    demand = transfer.sampling_queries(alpha, beta, k=k)
    flip = alpha / 2
    eps0 = composition.advanced_step(demand.epsilon, demand.delta, k=k)
    n = max((1 - 2 * flip) / (flip * expm1(eps0)), demand.least_rows)
    return Size(ceil(n), 1, eps0, flip)


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
    ell = ceil(2 * log(4 * k / beta) / alpha**2)
    inner = a3(alpha / 2, beta / 2, k * ell)
    return Size(inner.n, ell, inner.epsilon_per_query, inner.flip)


@theorem("sample splitting: Hoeffding and a union over k", proof="concentration.md")
def split(alpha: float, beta: float, k: int) -> Size:
    """Return the rows with which k queries, each on rows of its own, are accurate.

    Statement
        log(2k/beta)/(2 alpha^2) fresh rows a query.

    Not covered
        Using a row twice.

    >>> split(0.1, 0.05, 1000).n
    530000
    """
    check.probability(alpha=alpha, beta=beta)
    ell = ceil(log(2 * k / beta) / (2 * alpha**2))
    return Size(k * ell, ell, 0.0)


def split_accuracy(beta: float, *, k: int, n: int) -> float:
    """Return the error of splitting n rows over k queries."""
    return sqrt(log(2 * k / beta) / (2 * (n // k))) if n >= k else 1.0
