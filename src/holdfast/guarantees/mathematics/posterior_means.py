"""What coins say about posterior means: the mean of a question over the rows, given all that was released.

A posterior mean mu is never computed. Exact binomial intervals of the coins contain it, and a theorem (`posterior`,
`exchange`) says how far from it the population's mean can be.
"""

from math import e

from holdfast import check
from holdfast.guarantees.mathematics import debias
from holdfast.guarantees.mathematics.concentration import clopper_pearson
from holdfast.guarantees.mathematics.theorem import theorem

Interval = tuple[float, float]


@theorem("here (Theorem 2)", proof="posterior.md")
def level(beta: float, *, k: int) -> float:
    """Return the two-sided level of each of k exact binomial intervals.

    Statement
        At level beta/(e k), e = 2.718..., all intervals contain the posterior means of their coins' biases with
        probability >= 1 - beta.

    Not covered
        A number of draws decided after the first coin.

    >>> round(level(0.01, k=1000) * e * 1000, 12)
    0.01
    """
    check.probability(beta=beta)
    check.whole(k=k)
    return beta / (e * k)


@theorem("here (Looks)", proof="endless.md")
def look_share(number: int) -> float:
    """Return the part of a question's level that look number 1, 2, ... at it has.

    Statement
        1/(i(i+1)). They sum to 1: so whether look i is taken, and when, may depend on the looks before it, if the level
        of all of them was fixed before the first draw.

    Not covered
        A level that is chosen when the look is taken: who saw the draws before it would choose a large one if they
        stray.

    >>> sum(look_share(number) for number in range(1, 1000)) < 1
    True
    """
    check.whole(number=number)
    return 1 / (number * (number + 1))


@theorem("here (Theorem 2)", proof="posterior.md")
def outcome_mean(count: int, ell: int, *, outcomes: int, mass: float, level: float) -> Interval:
    """Return the interval for the posterior mean of one outcome's share: of a share, a mean, one bar of a histogram.

    Statement
        Exact binomial interval at `level`, both ends debiased with the mass.

    Not covered
        outcomes * mass >= 1.

    >>> outcome_mean(0, 0, outcomes=2, mass=0.01, level=0.01)
    (0.0, 1.0)
    """
    low, high = clopper_pearson(count, ell, level)
    return debias.debias(low, outcomes=outcomes, mass=mass), debias.debias(high, outcomes=outcomes, mass=mass)


@theorem("here (conditional means)", proof="posterior.md")
def group_mean(
    ones: int, included: int, ell: int, *, mass: float, level: float, outcomes: int = 3
) -> tuple[Interval, float]:
    """Return the interval for the posterior mean of a group, and the least that its posterior share can be.

    Statement
        Two of the outcomes of a draw are the group's 0 and 1. The included share pi at `level` from all ell draws; the
        ones among the included at 2a `level`; the range of the group mean over both; the share from the lower end of
        pi. Two of the k intervals. For several groups at once: `groups.group_means`.

    Not covered
        A group that may be empty: [0, 1], and share 0.

    >>> group_mean(0, 0, 100, mass=0.01, level=0.01)
    ((0.0, 1.0), 0.0)
    """
    pi = clopper_pearson(included, ell, level)
    theta = clopper_pearson(ones, included, 2 * mass * level)
    return debias.group_mean_range(theta, pi, mass=mass), debias.group_share(pi[0], mass=mass, outcomes=outcomes)
