"""What privacy on a random subset of the rows is worth on all of them, and back."""

from math import expm1, log1p

from holdfast import check
from holdfast.guarantees.mathematics.theorem import theorem


@theorem("Balle, Barthe and Gaboardi 2018, Theorem 9", proof="amplification.md")
def without_replacement(epsilon: float, *, ell: int, n: int) -> float:
    """Return the epsilon, on n rows, of an epsilon-DP step run on ell of them.

    Statement
        M is epsilon-DP on ell rows (replace one row), and I is a uniform ell-subset of {1..n}, independent of M's
        coins. Then x -> M(x_I) is epsilon'-DP on n rows, with
            epsilon' = log(1 + (ell/n) (e^epsilon - 1)).

    Not covered
        Add-or-remove-one neighbors; subsets whose membership is revealed.

    >>> round(without_replacement(1.0, ell=10, n=1_000), 6)
    0.017037
    >>> without_replacement(1.0, ell=1_000, n=1_000)  # no subsampling, no gain
    1.0
    """
    check.positive(epsilon=epsilon, ell=ell)
    check.at_most("n", n, ell=ell)
    return log1p(ell / n * expm1(epsilon))


def epsilon_without_replacement(amplified: float, *, ell: int, n: int) -> float:
    """Invert `without_replacement`: what may be spent on the drawn rows.

    >>> round(epsilon_without_replacement(0.017036863236176657, ell=10, n=1_000), 9)
    1.0
    """
    check.positive(amplified=amplified, ell=ell)
    check.at_most("n", n, ell=ell)
    return log1p(n / ell * expm1(amplified))


@theorem("here; the printed form (Bun et al. 2015) fails for ell >= 2", proof="amplification.md")
def with_replacement(epsilon: float, *, ell: int, n: int) -> float:
    """Return the epsilon, on n rows, of an epsilon-DP step run on ell draws with replacement.

    Statement
        M is epsilon-DP on ell rows (replace one). Drawing ell rows independently and uniformly from n and running
        M on them is epsilon'-DP on n rows, with
            epsilon' = ell log(1 + (e^epsilon - 1)/n),
        and no smaller number holds for every M. At n = 1 it is ell * epsilon: the one row is drawn ell times.

    Not covered
        Add-or-remove-one neighbors; draws that are revealed.

    >>> round(with_replacement(0.5, ell=3, n=1), 12)
    1.5
    """
    check.positive(epsilon=epsilon, ell=ell)
    check.whole(n=n)
    return ell * log1p(expm1(epsilon) / n)


def epsilon_with_replacement(amplified: float, *, ell: int, n: int) -> float:
    """Invert `with_replacement`: what may be spent on the drawn rows.

    >>> round(epsilon_with_replacement(1.5, ell=3, n=1), 12)
    0.5
    """
    check.positive(amplified=amplified, ell=ell)
    check.whole(n=n)
    return log1p(n * expm1(amplified / ell))


@theorem("Fish, Reyzin and Rubinstein, lem:sampling, with its exact constant", proof="amplification.md")
def coin_epsilon(mass: float, *, n: int) -> float:
    """Return the exact epsilon, on n rows, of one sampled coin turned over with probability `mass`.

    Statement
        Draw one of n rows uniformly, release q(row) in {0, 1}, turned over with probability a. The largest log-ratio
        over neighboring samples and both answers is log(1 + (1-2a)/(a n)), reached at a count of 0 or n.

    Not covered
        a = 0, which protects nothing; a > 1/2, which says the opposite.

    >>> round(coin_epsilon(0.25, n=1), 12) == round(log1p(2), 12)
    True
    """
    check.positive(mass=mass, n=n)
    check.at_most("1/2", 0.5, mass=mass)
    return log1p((1 - 2 * mass) / (mass * n))
