"""Several groups in one pass of coins, and the difference of two of them.

A draw has c outcomes: outside all groups, and zero or one in each of them. Each single group has the same interval as
if it had been asked about alone (`group_means`). For the difference of two groups there is more: one joint region for
the four counts (`joint_difference`), and one step from posterior means to the population for the difference itself,
because a sample that is far off in one group cannot be as far off in the other (`exchange_step`, `posterior_step`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import e, exp, inf, log, sqrt
from typing import Any

import numpy as np

from holdfast.guarantees.mathematics import exchange, moments, special, theorem
from holdfast.guarantees.mathematics.concentration import (
    ONE,
    SAFE,
    TINY,
    ZERO,
    clopper_pearson,
    clopper_pearson_beside,
    clopper_pearson_each,
    clopper_pearsons,
    kl_lower,
    kl_upper,
    tangents,
)
from holdfast.guarantees.mathematics.shares import debiased, group_mean_range, level_among

PROOF = "groups.md"
Interval = tuple[float, float]
Counts = tuple[int, int]  # zeros and ones of a group
Map = tuple[float, float]  # (b, c) for b theta - c
NOTHING_KNOWN: tuple[Map, ...] = ((0.0, 0.0),)
Bound = tuple[float, float, float]
Division = tuple[float, float, float, float, float]  # y; theta and its rate at y, of one group; at x - y, of the other
Known = tuple[Interval, Interval, float]  # posterior mean, mean in the population, and the least posterior share
OUTWARD = np.array([[-1.0], [1.0]])  # which way from 1/2 the lower and the upper end move as a group shrinks
DIVISIONS, NEAR = 6, 5e-4  # most divisions of a joint region's exponent that are tried; when one is good enough
LEAST_EXPONENT = 0.7  # of either group: a tail of about one half
LEAST_X = 2 * log(2)  # of both: less promises nothing (`joint_tail`), and half of it is a tail of one half
ROUNDING = 2e-15  # of a few sums of numbers near 1
RATE_SLACK = 1e-6  # relative, more than the rounding of a slope from differences of large logarithms


@theorem("here (several groups in one pass)", proof=PROOF)
def group_means(zeros: Any, ones: Any, ell: int, *, outcomes: Any, mass: float, level: float) -> tuple[Any, Any]:
    """Return the intervals for the posterior means of groups and for their posterior shares: arrays with two columns.

    Statement
        Draws with `outcomes` outcomes, two of them for every group. A group's included share pi at `level`, its ones
        among the included, theta, at `level_among`; the range of theta + a (2 theta - 1)/(pi - 2a) over both; and
        (pi - 2a)/(1 - ca) for the share. Two of the k intervals for every group.

    Not covered
        A group that may be empty: its mean is in [0, 1].

    >>> means, shares = group_means([0], [0], 100, outcomes=5, mass=0.01, level=0.01)
    >>> means.tolist(), shares[:, 0].tolist()
    ([[0.0, 1.0]], [0.0])
    """
    zeros, ones = np.asarray(zeros, dtype=float), np.asarray(ones, dtype=float)
    included, both = zeros + ones, np.array(2 * mass)
    pi = np.array(clopper_pearsons(included, ell, level))
    over, left = pi - both, 1 - np.asarray(outcomes) * mass  # for all groups, or for each
    shares = np.minimum(ONE, np.maximum(ZERO, over / left))
    means, some = np.zeros(pi.shape), over[0] > ZERO
    means[1] = 1.0
    known: Any = slice(None) if np.logical_and.reduce(some) else some
    inside, (least, most) = included[known], over[:, known]
    theta = np.array(clopper_pearsons(ones[known], inside, level_among(level, pi[0, known], inside, ell)))
    tilt = np.array(mass) * (theta + theta - ONE)
    means[:, known] = theta + OUTWARD * np.maximum(OUTWARD * tilt / least, OUTWARD * tilt / most)
    means = np.minimum(ONE, np.maximum(ZERO, means))
    return means.T, shares.T


def means_of_few(
    zeros: Sequence[int], ones: Sequence[int], ell: int, *, outcomes: Sequence[int], mass: float, level: float
) -> list[tuple[Interval, Interval]]:
    """Return the same as a pair of intervals for each group: for a few groups, whose ends alone may take arrays."""
    included = [zero + one for zero, one in zip(zeros, ones, strict=True)]
    pi = clopper_pearson_each(included, ell, level)
    known = [group for group, (least, _) in enumerate(pi) if least > 2 * mass]  # the others may be empty
    inside = [included[group] for group in known]
    levels = [level_among(level, pi[group][0], included[group], ell) for group in known]
    means = [(0.0, 1.0)] * len(pi)
    for group, theta in zip(
        known, clopper_pearson_beside([ones[group] for group in known], inside, levels), strict=True
    ):
        means[group] = group_mean_range(theta, pi[group], mass=mass)
    each = zip(pi, outcomes, strict=True)
    shares = [debiased(ends, outcomes=number, mass=mass, together=2) for ends, number in each]
    return list(zip(means, shares, strict=True))


@theorem("here (categories within a group)", proof=PROOF)
def shares_within(counts: Any, ell: int, *, mass: float, level: float) -> tuple[Any, Interval]:
    """Return the intervals for the posterior shares of categories within a group, and for the group's posterior share.

    Statement
        m outcomes of a draw are the group's categories, one is outside. The included share pi at `level`, each category
        among the included, theta, at `level_among`; the range of (theta pi - a)/(pi - m a), which grows with theta, and
        with pi where theta < 1/m. Each category makes one statement, the group another.

    Not covered
        A group that may be empty: [0, 1].

    >>> shares_within([0, 0], 100, mass=0.01, level=0.01)[0].tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    m = np.asarray(counts).size
    return unions_within(counts, 1, m, float(np.sum(counts)), ell, outcomes=m + 1, mass=mass, level=level)


@theorem("here (categories within a group)", proof=PROOF)
def unions_within(
    counts: Any, sizes: Any, m: int, included: float, ell: int, *, outcomes: int, mass: float, level: float
) -> tuple[Any, Interval]:
    """Return the same for unions of categories (their `counts` and `sizes`) of a group: m categories, `included` draws.

    Statement
        A union of s categories has the share (theta pi - s a)/(pi - m a) within its group, which grows with theta, and
        with pi where theta < s/m. Each union makes one statement, the group another.

    Not covered
        Unions that are chosen after seeing the counts.

    >>> ((low, high),) = unions_within([0], 2, 3, 0, 100, outcomes=7, mass=0.01, level=0.01)[0].tolist()
    >>> low, high
    (0.0, 1.0)
    """
    counts = np.asarray(counts, dtype=float)
    sizes = np.broadcast_to(np.asarray(sizes, dtype=float), counts.shape)
    least, most = clopper_pearson(int(included), ell, level)
    share = tuple(min(1.0, max(0.0, (end - m * mass) / (1 - outcomes * mass))) for end in (least, most))
    if least <= m * mass:
        return np.tile([0.0, 1.0], (counts.size, 1)), (0.0, share[1])
    low, high = clopper_pearsons(counts, included, level_among(level, least, included, ell))
    ends = []
    for theta, (below, above) in ((low, (least, most)), (high, (most, least))):
        pi = np.where(theta < sizes / m, below, above)
        ends.append(np.clip((theta * pi - sizes * mass) / (pi - m * mass), 0.0, 1.0))
    return np.stack(ends, axis=1), (share[0], share[1])


@theorem("here (the joint region of two groups)", proof=PROOF)
def joint_tail(x: float) -> float:
    """Return a bound on the probability that the joint exponent of two groups, at the posterior mean, exceeds x.

    Statement
        K = -log of two independent one-sided p-values, one in each group, plus ell times the divergence of the observed
        from the expected shares of the groups. It is convex in the law of a draw, and given the rows it is dominated by
        2 log 2 plus the sum of four exponential variables, so for every y < x
            P(K > x) <= (Q_1 + Q_2 + Q_3 + Q_4)(y - 2 log 2)/(x - y),   Q_m the tail of m of them.

    Not covered
        More than two groups.

    >>> joint_tail(30.0) < 1e-6 < joint_tail(20.0)
    True
    """
    return moments.sum_tail(x - 2 * log(2), 4)


def joint_exponent(beta: float) -> float:
    """Return an x with `joint_tail(x)` at most beta."""
    return (moments.sum_exponent(beta, 4) + 2 * log(2)) * SAFE


@theorem("here (the joint region of two groups)", proof=PROOF)
def joint_difference(first: Counts, second: Counts, ell: int, *, mass: float, x: float) -> Interval:
    """Return the interval for the difference of the posterior means of two groups of one release: the joint region.

    Statement
        It contains the difference except with probability 2 `joint_tail(x)`. The exponent x may be divided in any way
        between the two groups' p-values; the shares of both groups are within a divergence of x/ell.

    Not covered
        Groups that share rows; a group that may be empty: its mean is in [0, 1].

    >>> low, high = joint_difference((40, 60), (60, 40), 400, mass=0.01, x=12.0)
    >>> round(low, 2), round(high, 2)
    (-0.1, 0.54)
    """
    x = max(x, LEAST_X)
    one, other = (Least.of(counts, ell, mass, x) for counts in (first, second))
    return max(-1.0, least_sum(one, other.mirrored, x) - 1), min(1.0, 1 - least_sum(one.mirrored, other, x))


@dataclass(frozen=True)
class Least:
    """How small a group's posterior mean can be, as its p-value takes more of the exponent.

    `maps` are pairs (b, c): the mean is at least the smallest b theta - c, theta the least share of ones among the
    included; and at least 0, which is all that is known of a group that may be empty.
    """

    zeros: int
    ones: int
    maps: tuple[Map, ...] = NOTHING_KNOWN

    @classmethod
    def of(cls, counts: Counts, ell: int, mass: float, x: float) -> "Least":
        """Return it for these counts of zeros and ones among ell draws: theta + a (2 theta - 1)/(pi - 2a)."""
        share = sum(counts) / ell
        ends = kl_lower(share, x / ell), kl_upper(share, x / ell)
        if ends[0] <= 2 * mass:
            return cls(*counts)
        tilts = [mass / (pi - 2 * mass) for pi in ends]
        return cls(*counts, tuple((1 + 2 * tilt, tilt) for tilt in tilts))

    @property
    def mirrored(self) -> "Least":
        """The same with zeros for ones: 1 less how large the mean can be."""
        return Least(self.ones, self.zeros, self.maps)

    def at(self, y: float) -> tuple[float, float]:
        """Return theta at exponent y, and the rate at which a line below it falls from there."""
        ((theta, slope),) = tangents((self.ones,), self.ones + self.zeros, exp(-y))
        return theta, theta / slope

    @property
    def variance(self) -> float:
        """About that of the mean that is seen."""
        scale, zeros, ones = self.maps[0][0], self.zeros + 0.5, self.ones + 0.5
        return scale * scale * zeros * ones / (zeros + ones) ** 3 + TINY

    def mean(self, y: float) -> float:
        """Return a bound on the mean at exponent y."""
        theta, _ = self.at(y)
        return min(scale * theta - less for scale, less in self.maps)

    @property
    def used_up(self) -> float:
        """The exponent at which the mean may be 0; more of it changes nothing."""
        scale, less = self.maps[0]  # that of the smallest share, which is the smallest near 0
        if not (self.ones and scale):
            return 0.0
        return -log(max(TINY, special.beta_law(float(self.ones), self.zeros + 1.0, less / scale) * (1 - 1e-6)))


@theorem("here (the joint region of two groups, the division)", proof=PROOF)
def least_sum(one: Least, other: Least, x: float) -> float:
    """Return a bound on the smallest sum of the means of two groups whose exponents add up to at most x.

    Statement
        Each theta is a convex function of its exponent, above its tangents (`tangents`). So for every pair of maps the
        sum, as a function of the division y, x - y, is convex and above a line for each division that is tried. Where
        the lines of the nearest divisions on both sides of its minimum meet, or one of them ends, is a bound. A group
        whose mean may be 0 needs no more exponent, so all divisions are between those where either has used up its own.

    Not covered
        Rounding of slopes, for which each line is lowered by RATE_SLACK of the rates.

    >>> alone = tangents([50], 100, exp(-12.0))[0][0]
    >>> 0.99 < least_sum(Least(50, 50, ((1.0, 0.0),)), Least(50, 50), 12.0) / alone <= 1
    True
    """
    first, last = max(0.0, x - other.used_up), min(x, one.used_up)
    if first > last:
        return 0.0
    pairs = list(product(one.maps, other.maps))
    tried: list[Division] = []
    edge = min(LEAST_EXPONENT, x / 2)
    # Where both would fall equally fast, if they were normal.
    y, bound = min(max(first, x * one.variance / (one.variance + other.variance)), last), 0.0
    for _ in range(DIVISIONS):
        y = min(max(edge, y), x - edge)
        tried.append((y, *one.at(y), *other.at(x - y)))
        bound, missing, better = min(_lowest(tried, *maps, x, first, last) for maps in pairs)
        if missing <= 0 or better == y:
            break
        y = better
    if first > 0 and last == x:  # the other mean may be 0, but not less
        bound = max(bound, one.mean(x))
    if last < x and first == 0:
        bound = max(bound, other.mean(x))
    return max(0.0, bound - ROUNDING)


def _lowest(tried: list[Division], one: Map, other: Map, x: float, first: float, last: float) -> Bound:
    """Return for one pair of maps a bound on the sum, by how much it is not near enough, and a division to try next."""
    reached, left, right = inf, None, None
    for y, theta, falls, theta_other, falls_other in tried:
        total = one[0] * theta - one[1] + other[0] * theta_other - other[1]
        rate, against = one[0] * falls, other[0] * falls_other
        line = y, total - RATE_SLACK * x * (rate + against), against - rate
        if line[2] < 0:
            left = line if left is None or y > left[0] else left
        else:
            right = line if right is None or y < right[0] else right
        reached = min(reached, total)
    enough = reached - NEAR * x * (rate + against)
    if left is not None and right is not None:
        (from_left, low, falling), (from_right, high, rising) = left, right
        meeting = (high - rising * from_right - low + falling * from_left) / (falling - rising)
        meeting = min(max(first, meeting), last)
        bound = max(low + falling * (meeting - from_left), high + rising * (meeting - from_right))
        return bound, enough - bound, meeting
    (start, total, slope), end = (left, last) if left is not None else (right or line, first)
    bound = total + slope * (end - start)
    # Half-widths grow nearly like square roots of exponents: this is where both would fall equally fast.
    weight, weight_other = rate * rate * y, against * against * (x - y)
    better = x * weight / (weight + weight_other) if weight + weight_other > 0 else y
    return bound, enough - bound, min(max(first, better), last)


@theorem("here (the difference of two groups), by Theorem K", proof=PROOF)
def exchange_step(both: tuple[Known, Known], J: float, *, identical: bool = True) -> float:
    """Return how far the difference of two groups can be from that of their posterior means; inf: no promise.

    Statement
        For each group its posterior mean mu and its mean t in the population lie in intervals, and its posterior share
        is at least g > J; k = J/g, r = most_over(g). For groups that share no row
            step^2 = sum over both of k max(mu + t - 2 mu t + (r-1) t(1-t)),
        for rows that are not identical plus J^2 R^2/2, where R is the range of (q - t)/g over both groups, with the
        sign reversed in the second.

    Not covered
        g <= J.

    >>> one = ((0.2, 0.2), (0.2, 0.2), 0.5)
    >>> more = exchange.hi(0.5, 0.001) / 0.5 - 1
    >>> abs(exchange_step((one, one), 0.001) ** 2 - 2 * 0.002 * (0.32 + more * 0.16)) < 1e-9
    True
    """
    total = 0.0
    for mean, population, share in both:
        if not share > J:
            return float("inf")
        k, more = J / share, exchange.most_over(share, J, identical=identical) - 1
        total += k * max(_most(mu, population, more) for mu in mean)
    if not identical:
        total += (J * _range(both)) ** 2 / 2
    return sqrt(total) * SAFE


def _range(both: tuple[Known, Known]) -> float:
    """Return the range of (q - t)/g over both groups, with the sign reversed in the second."""
    (_, (a_low, a_high), a), (_, (b_low, b_high), b) = both
    return max((1 - a_low) / a, b_high / b) + max(a_high / a, (1 - b_low) / b)


def _most(mu: float, population: Interval, more: float) -> float:
    """Return the largest mu + t - 2 mu t + more t(1-t) for t in the interval: it is concave in t, and linear in mu."""
    low, high = population
    top = low if mu >= 0.5 else high
    if more > 0:
        top = min(high, max(low, 0.5 + (1 - 2 * mu) / (2 * more)))
    return mu + top - 2 * mu * top + more * top * (1 - top)


@theorem("here (the difference of two groups), by Theorems 1 and N", proof=PROOF)
def posterior_step(both: tuple[Known, Known], widening: float, *, identical: bool = True) -> float:
    """Return the same under the posterior guarantee; `widening` is chi, or h for rows that are not identical.

    Statement
        step^2 = chi (v_A/(g_A - chi) + v_B/(g_B - chi)), v the largest mu(1-mu) for each group. For rows that are not
        identical step^2 = h (sum over both of max((mu-t)^2 + mu(1-mu))/g + h R^2), R as for `exchange_step`.

    Not covered
        g <= chi, or h.

    >>> one = ((0.2, 0.2), (0.2, 0.2), 0.5)
    >>> abs(posterior_step((one, one), 0.001) ** 2 - 0.001 * 2 * 0.16 / 0.499) < 1e-9
    True
    """
    total = 0.0
    for (low, high), population, share in both:
        if not share > widening:
            return float("inf")
        middle = min(high, max(low, 0.5))
        if identical:
            total += middle * (1 - middle) / (share - widening)
        else:  # linear in mu, convex in t
            total += max(t * t - 2 * mu * t + mu for mu in (low, high) for t in population) / share
    if not identical:
        total += widening * _range(both) ** 2
    return sqrt(widening * total) * SAFE


def tail_of(level: float, *, intervals: int) -> float:
    """Return the failure probability of each tail of a joint statement that replaces this many intervals at `level`.

    An interval at level beta/(e k) stands for beta/k of the failure probability (`shares.level`).
    """
    return intervals * level * e / 2
