"""Several groups in one pass of coins, and the difference of two of them.

A draw has c outcomes: outside all groups, and zero or one in each of them. Each single group has the same interval as
if it had been asked about alone (`group_means`). For the difference of two groups there is more: one joint region for
the four counts (`joint_region`), and one step from posterior means to the population for the difference itself, because
a sample that is far off in one group cannot be as far off in the other (`exchange_step`, `posterior_step`).
"""

from functools import lru_cache
from math import e, log, sqrt
from typing import Any

import numpy as np

from holdfast.guarantees.mathematics import exchange, special
from holdfast.guarantees.mathematics.concentration import (
    SAFE,
    binomial_highs,
    binomial_lows,
    clopper_pearson,
    clopper_pearsons,
    kl_lower,
    kl_upper,
)
from holdfast.guarantees.mathematics.posterior_means import level_among
from holdfast.guarantees.mathematics.theorem import theorem

PROOF = "groups.md"
Interval = tuple[float, float]
Counts = tuple[int, int]  # zeros and ones of a group
Known = tuple[Interval, Interval, float]  # posterior mean, mean in the population, and the least posterior share
OUTWARD = np.array([[-1.0], [1.0]])  # which way from 1/2 the lower and the upper end move as a group shrinks
CELLS = 64  # steps in which the exponent of a joint region is divided between two groups
AHEAD = (0.9, 1.0, 1.1, 1.2, 1.35, 1.5)  # values of x - y that `joint_tail` tries


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
    included = zeros + ones
    pi = np.array(clopper_pearsons(included, ell, level))
    left = 1 - np.asarray(outcomes) * mass  # for all groups, or for each
    shares = np.minimum(1.0, np.maximum(0.0, (pi - 2 * mass) / left))
    means = np.zeros(pi.shape)
    means[1] = 1.0
    known = np.flatnonzero(pi[0] > 2 * mass)
    if known.size:
        least, most = pi[:, known]
        inside = included[known]
        theta = np.array(clopper_pearsons(ones[known], inside, level_among(level, least, inside, ell)))
        tilt = 2 * theta - 1
        at = np.where(tilt * OUTWARD > 0, least, most)
        means[:, known] = np.minimum(1.0, np.maximum(0.0, theta + mass * tilt / (at - 2 * mass)))
    return means.T, shares.T


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
    best = 1.0
    for ahead in AHEAD:
        y = max(0.0, x - ahead - 2 * log(2))
        best = min(best, float(sum(special.gammaincc(m, y) for m in (1, 2, 3, 4))) / ahead)
    return best * SAFE


@lru_cache(maxsize=4096)
def joint_exponent(beta: float) -> float:
    """Return an x with `joint_tail(x)` at most beta, by bisection: the tail falls with x."""
    low, high = 0.0, 1_000.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if joint_tail(middle) <= beta else (middle, high)
    return high


@theorem("here (the joint region of two groups)", proof=PROOF)
def joint_region(first: Counts, second: Counts, ell: int, *, outcomes: int, mass: float, x: float) -> "Joint":
    """Return what two groups of one release say together: their means, the difference of these, and their shares.

    Statement
        All of it holds for the posterior means at once, except with probability 2 `joint_tail(x)`. The exponent x may
        be divided in any way between the two groups' p-values: the largest difference over all divisions is bounded by
        steps of x/64, each end taken where it is further out. The groups' shares are within a divergence of x/ell.

    Not covered
        Groups that share rows; a group that may be empty: nothing is said.
    """
    one, other = Group.of(first, ell, mass, x, outcomes), Group.of(second, ell, mass, x, outcomes)
    parts = np.linspace(0.0, x, CELLS + 1)
    more, less = parts[1:], x - parts[:-1]
    high = float(np.max(one.highs(more) - other.lows(less)))
    low = float(np.min(one.lows(more) - other.highs(less)))
    return Joint(one, other, (max(-1.0, low), min(1.0, high)))


class Group:
    """One group inside a joint region: its counts, and the least and largest its included share can be."""

    def __init__(self, counts: Counts, pi: Interval, mass: float, x: float, outcomes: int) -> None:
        self._zeros, self._ones = counts
        self._pi, self._mass = pi, mass
        whole = np.array([x])
        self.mean: Interval = float(self.lows(whole)[0]), float(self.highs(whole)[0])
        low, high = (min(1.0, max(0.0, (end - 2 * mass) / (1 - outcomes * mass))) for end in pi)
        self.share: Interval = low, high

    @classmethod
    def of(cls, counts: Counts, ell: int, mass: float, x: float, outcomes: int) -> "Group":
        """Return a group with these counts of zeros and ones among ell draws."""
        share = sum(counts) / ell
        return cls(counts, (kl_lower(share, x / ell), kl_upper(share, x / ell)), mass, x, outcomes)

    def highs(self, exponents: Any) -> Any:
        """Return how large the posterior mean can be, if its p-value takes this much of the exponent."""
        return self._mean(binomial_highs(self._ones, self._ones + self._zeros, np.exp(-exponents)), up=True)

    def lows(self, exponents: Any) -> Any:
        """Return how small it can be."""
        return self._mean(binomial_lows(self._ones, self._ones + self._zeros, np.exp(-exponents)), up=False)

    def _mean(self, theta: Any, *, up: bool) -> Any:
        if self._pi[0] <= 2 * self._mass:
            return np.full(theta.shape, 1.0 if up else 0.0)
        away = theta > 0.5 if up else theta < 0.5
        pi = np.where(away, self._pi[0], self._pi[1])
        return np.clip(theta + self._mass * (2 * theta - 1) / (pi - 2 * self._mass), 0.0, 1.0)


class Joint:
    """What two groups say together about posterior means."""

    def __init__(self, one: Group, other: Group, difference: Interval) -> None:
        self.one, self.other, self.difference = one, other, difference


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

    An interval at level beta/(e k) stands for beta/k of the failure probability (`posterior_means.level`).
    """
    return intervals * level * e / 2
