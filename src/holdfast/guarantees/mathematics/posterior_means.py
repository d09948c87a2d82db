"""What coins say about posterior means: the mean of a question over the rows, given all that was released.

A posterior mean mu is never computed. Exact binomial intervals of the coins contain it, and a theorem (`posterior`,
`exchange`) says how far from it the population's mean can be.
"""

from math import e
from typing import Any

from holdfast import check
from holdfast.guarantees.mathematics import shares, theorem
from holdfast.guarantees.mathematics.concentration import clopper_pearson
from holdfast.guarantees.mathematics.shares import group_share

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


@theorem("here (looks)", proof="endless.md")
def look_share(look: int) -> float:
    """Return the share of a question's level that belongs to the interval of one `look` at it, counted from 1.

    Statement
        Looks after N_1 < N_2 < ... draws in all, fixed beforehand: with levels 1/(i(i+1)) times that of one interval,
        the pooled intervals of all looks, taken or not, miss together no more often than that one interval.

    Not covered
        Looks that are paid for only if they are taken, each with a level of its own.

    >>> look_share(1), sum(map(look_share, range(1, 1_000))) < 1
    (0.5, True)
    """
    check.whole(look=look)
    return 1 / (look * (look + 1))


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
    return debiased(clopper_pearson(count, ell, level), outcomes=outcomes, mass=mass)


def debiased(ends: Interval, *, outcomes: int, mass: float) -> Interval:
    """Return an interval for the share of an outcome among draws as one for its posterior mean."""
    (low, high), left = ends, 1 - outcomes * mass
    return min(1.0, max(0.0, (low - mass) / left)), min(1.0, max(0.0, (high - mass) / left))  # `shares.debias`


@theorem("here (conditional means)", proof="posterior.md")
def level_among(level: float, least: Any, included: Any, ell: int) -> Any:
    """Return the level of the exact interval for the ones among the `included` of ell draws. Takes arrays.

    Statement
        `least` is the lower end of the included share pi at `level`. With `level` least (ell+1)/(included+1), which is
        nearly `level` except for small groups, the event that pi is at least `least` but the interval does not contain
        the ratio of the posterior means, of ones and of included, is no likelier than a miss of an interval at `level`.

    Not covered
        least = 0.

    >>> round(level_among(0.01, 0.45, 49, 99), 12)
    0.009
    """
    return level * (ell + 1) * least / (included + 1)


@theorem("here (conditional means)", proof="posterior.md")
def group_mean(
    ones: int,
    included: int,
    ell: int,
    *,
    mass: float,
    level: float,
    outcomes: int = 3,
    pi: Interval | None = None,
) -> tuple[Interval, Interval]:
    """Return the intervals for the posterior mean of a group and for its posterior share.

    Statement
        Two of the outcomes of a draw are the group's 0 and 1. The included share pi at `level` from all ell draws; the
        ones among the included at `level_among`; the range of the group mean over both; the share from pi. Two of the k
        intervals. For many groups at once: `groups.group_means`. The interval for pi may be given, if it is known.

    Not covered
        A group that may be empty: its mean is in [0, 1].

    >>> mean, (least, most) = group_mean(0, 0, 100, mass=0.01, level=0.01)
    >>> mean, least, round(most, 3)
    ((0.0, 1.0), 0.0, 0.033)
    """
    pi = low, high = pi or clopper_pearson(included, ell, level)
    share = group_share(low, mass=mass, outcomes=outcomes), group_share(high, mass=mass, outcomes=outcomes)
    if low <= 2 * mass:
        return (0.0, 1.0), share
    theta = clopper_pearson(ones, included, level_among(level, low, included, ell))
    return shares.group_mean_range(theta, pi, mass=mass), share
