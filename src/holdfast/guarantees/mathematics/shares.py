"""Shares that are known up to intervals, and what follows from them: from coins back to rows, ratios, areas.

A draw with c outcomes, each given extra mass a, has the law P_z = (1 - c a) f_z + a, f the law on the rows. The
interval for P is turned into one for f; for a group (two of the outcomes are its 0 and 1) the interval for the included
share and for the ones among the included are turned into one for the group's mean.
"""

from collections.abc import Sequence
from itertools import pairwise

from holdfast.guarantees.mathematics import theorem

Interval = tuple[float, float]
SLACK = 1e-14  # more than the few roundings of numbers up to 1
AREA_SLACK = 1e-12  # more than the roundings of a sum of at most a few hundred products


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
    return min(1.0, max(0.0, (p - mass) / (1 - outcomes * mass)))


@theorem("here", proof="information.md")
def group_mean(theta: float, pi: float, *, mass: float) -> float:
    """Return the mean of a group from the law of a draw two of whose outcomes are the group's 0 and 1.

    Statement
        pi = P_0 + P_1 = (1-ca) g + 2a, theta = P_1/pi. Then mu = theta + a (2 theta - 1)/(pi - 2a), which increases
        with theta, and moves away from 1/2 as pi falls.

    Not covered
        pi <= 2a: an empty group.

    >>> group_mean(0.5, 0.3, mass=0.01)
    0.5
    """
    return min(1.0, max(0.0, theta + mass * (2 * theta - 1) / (pi - 2 * mass)))


def group_mean_range(theta: tuple[float, float], pi: tuple[float, float], *, mass: float) -> tuple[float, float]:
    """Return the range of `group_mean` over a rectangle; [0, 1] when the group may be empty."""
    if pi[0] <= 2 * mass:
        return 0.0, 1.0
    low = group_mean(theta[0], pi[0] if theta[0] < 0.5 else pi[1], mass=mass)
    high = group_mean(theta[1], pi[0] if theta[1] > 0.5 else pi[1], mass=mass)
    return low, high


def group_share(pi: float, *, mass: float, outcomes: int = 3) -> float:
    """Return g, the share of rows in the group, from pi = (1-ca) g + 2a; c is 3 if there is one group."""
    return min(1.0, max(0.0, (pi - 2 * mass) / (1 - outcomes * mass)))


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
