"""Shares that are known up to intervals, and what follows from them: from coins back to rows, ratios, areas.

A draw with c outcomes, each given extra mass a, has the law P_z = (1 - c a) f_z + a, f the law on the rows. The
interval for P is turned into one for f; for a group (two of the outcomes are its 0 and 1) the interval for the included
share and for the ones among the included are turned into one for the group's mean.

f may be the law given all that was released: a posterior mean is never computed, but exact binomial intervals of the
coins contain it, and a theorem (`posterior`, `exchange`) says how far from it the population's mean can be.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import e
from typing import Any

from holdfast import check
from holdfast.guarantees.mathematics import theorem
from holdfast.guarantees.mathematics.concentration import clopper_pearson

Interval = tuple[float, float]
SLACK = 1e-14  # more than the few roundings of numbers up to 1
AREA_SLACK = 1e-12  # more than the roundings of a sum of at most a few hundred products


def clip(x: float) -> float:
    """Return x, moved into [0, 1]; half the steps of `min` and `max`.

    >>> clip(-0.1), clip(0.25), clip(1.5)
    (0.0, 0.25, 1.0)
    """
    return x if 0.0 < x < 1.0 else float(x >= 1.0)


@theorem("here", proof="information.md")
def debias(p: float, *, outcomes: int, mass: float) -> float:
    """Return f for P = (1 - c a) f + a, clipped to [0, 1].

    Statement
        f = (P - a)/(1 - c a), an increasing map, so it carries intervals to intervals.

    Not covered
        c a >= 1: nothing but noise.

    >>> debias(0.1, outcomes=2, mass=0.1)
    0.0
    """
    return clip((p - mass) / (1 - outcomes * mass))


@theorem("here", proof="information.md")
def mean_of_group(theta: float, pi: float, *, mass: float) -> float:
    """Return the mean of a group from the law of a draw two of whose outcomes are the group's 0 and 1.

    Statement
        pi = P_0 + P_1 = (1-ca) g + 2a, theta = P_1/pi. Then mu = theta + a (2 theta - 1)/(pi - 2a), which increases
        with theta, and moves away from 1/2 as pi falls.

    Not covered
        pi <= 2a: an empty group.

    >>> mean_of_group(0.5, 0.3, mass=0.01)
    0.5
    """
    return clip(theta + mass * (2 * theta - 1) / (pi - 2 * mass))


def group_mean_range(theta: tuple[float, float], pi: tuple[float, float], *, mass: float) -> tuple[float, float]:
    """Return the range of `mean_of_group` over a rectangle; [0, 1] when the group may be empty."""
    if pi[0] <= 2 * mass:
        return 0.0, 1.0
    low = mean_of_group(theta[0], pi[0] if theta[0] < 0.5 else pi[1], mass=mass)
    high = mean_of_group(theta[1], pi[0] if theta[1] > 0.5 else pi[1], mass=mass)
    return low, high


def group_share(pi: float, *, mass: float, outcomes: int = 3) -> float:
    """Return g, the share of rows in the group, from pi = (1-ca) g + 2a; c is 3 if there is one group."""
    return clip((pi - 2 * mass) / (1 - outcomes * mass))


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


def debiased(ends: Interval, *, outcomes: int, mass: float, together: int = 1) -> Interval:
    """Return an interval for the share of an outcome, or of some `together`, as one for its posterior mean."""
    left, low, high = 1 - outcomes * mass, ends[0] - together * mass, ends[1] - together * mass
    low, high = low / left, high / left  # as `debias` and `group_share`; `clip`, written out
    return (low if 0.0 < low < 1.0 else float(low >= 1.0)), (high if 0.0 < high < 1.0 else float(high >= 1.0))


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
    ones: int, included: int, ell: int, *, mass: float, level: float, outcomes: int = 3
) -> tuple[Interval, Interval]:
    """Return the intervals for the posterior mean of a group and for its posterior share.

    Statement
        Two of the outcomes of a draw are the group's 0 and 1. The included share pi at `level` from all ell draws; the
        ones among the included at `level_among`; the range of the group mean over both; the share from pi. Two of the k
        intervals. For several groups at once: `groups.group_means`.

    Not covered
        A group that may be empty: its mean is in [0, 1].

    >>> mean, (least, most) = group_mean(0, 0, 100, mass=0.01, level=0.01)
    >>> mean, least, round(most, 3)
    ((0.0, 1.0), 0.0, 0.033)
    """
    pi = clopper_pearson(included, ell, level)
    share = debiased(pi, outcomes=outcomes, mass=mass, together=2)
    if pi[0] <= 2 * mass:
        return (0.0, 1.0), share
    theta = clopper_pearson(ones, included, level_among(level, pi[0], included, ell))
    return group_mean_range(theta, pi, mass=mass), share


@theorem("here (a share of shares)", proof="ratios.md")
def ratio_range(part: Interval, rest: Interval, others: Interval = (0.0, 1.0)) -> Interval:
    """Return the smallest and the largest p/(p + q) with p in `part`, q in `rest`, 1 - p - q in `others`.

    Statement
        The shares p, q, r of a division into three are at least 0 and sum to 1. If each lies in its interval, then
        p/(p + q) lies in the range returned here, and no smaller interval contains all values it can have. If p + q can
        be 0, where the ratio is undefined, or if no shares fit the intervals, the range is [0, 1].

    Not covered
        Intervals that do not hold at once; shares that are estimated and not known up to intervals.

    >>> low, high = ratio_range((0.2, 0.3), (0.1, 0.2))
    >>> round(low, 6), round(high, 6)
    (0.5, 0.75)
    >>> low, high = ratio_range((0.2, 0.3), (0.1, 0.2), others=(0.6, 0.6))
    >>> round(low, 6), round(high, 6)
    (0.5, 0.75)
    >>> low, high = ratio_range((0.2, 0.3), (0.1, 0.2), others=(0.55, 0.55))
    >>> round(low, 6), round(high, 6)
    (0.555556, 0.666667)
    """
    least, most = max(0.0, 1 - others[1]), 1 - others[0]  # of p + q
    smallest, beside = max(part[0], least - rest[1]), max(rest[0], least - part[1])
    against, largest = min(rest[1], most - smallest), min(part[1], most - beside)
    fewest, all_of_them = max(part[0] + rest[0], least), min(part[1] + rest[1], most)
    below, above = smallest + max(against, 0.0), max(largest, 0.0) + beside
    if fewest <= 0 or fewest > all_of_them + SLACK or min(below, above) <= 0:
        return 0.0, 1.0  # p + q = 0 is possible, or no shares fit: nothing is known
    return max(0.0, (smallest - SLACK) / below), min(1.0, (max(largest, 0.0) + SLACK) / above)


@theorem("here (the area between staircases)", proof="auc.md")
def area_under(positives: Sequence[Interval], negatives: Sequence[Interval], *, tied: bool = False) -> Interval:
    """Return the range of P(a positive scores higher than a negative) + P(they score alike)/2.

    Statement
        Rows have scores; at increasing thresholds the shares of positives, and of negatives, that score at least as
        high lie in these intervals. Then the area lies between that of two staircases: one with the least shares of
        positives and the largest of negatives, each step counted as if negatives came last within it; and the mirrored
        one. If all scores of a step are equal (`tied`), each step counts half.

    Not covered
        Intervals that do not hold at once.

    >>> low, high = area_under([(0.8, 0.8)], [(0.3, 0.3)])
    >>> round(low, 9), round(high, 9)
    (0.56, 0.94)
    >>> low, high = area_under([(0.8, 0.8)], [(0.3, 0.3)], tied=True)
    >>> round(low, 9), round(high, 9)
    (0.75, 0.75)
    """
    low = _staircase([low for low, _ in positives], [high for _, high in negatives], tied=tied)
    high = 1 - _staircase([low for low, _ in negatives], [high for _, high in positives], tied=tied)
    return max(0.0, low - AREA_SLACK), min(1.0, high + AREA_SLACK)


def _staircase(least: Sequence[float], most: Sequence[float], *, tied: bool) -> float:
    """Return a bound on how often one of the first kind is in a higher step than one of the second, from below.

    If scores within a step are `tied`, pairs in the same step count half.
    """
    ones, others = [1.0, *least, 0.0], [1.0, *most, 0.0]
    for place in range(len(ones) - 2, 0, -1):  # shares fall: later ones are no larger
        ones[place] = max(ones[place], ones[place + 1])
    for place in range(1, len(others)):
        others[place] = min(others[place], others[place - 1])
    steps = zip(pairwise(others), pairwise(ones), strict=True)
    return sum((first - last) * ((at + above) / 2 if tied else above) for (first, last), (at, above) in steps)
