"""Variances, covariances, their quotients, differences of paired values; and means of numbers with few large values.

A moment is computed from the means of a few quadratic functions of one row, asked one after the other. Later functions
are centered at the means (for a quotient, also at the quotient) that earlier answers gave, so that little uncertainty
is left.

The range of a number is cut into slices, each asked about by coins of its own: a value is the sum of its slices. If
values are rarely large, most slices are near 0 or 1 and their coins have narrow intervals; and the second moment of the
value, which the slices also bound, narrows the step to the population.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import inf, sqrt
from typing import Any

import numpy as np

from holdfast.guarantees.mathematics import exchange, special, theorem
from holdfast.guarantees.mathematics.concentration import SAFE, binomial_highs, binomial_lows

PROOF = "moments.md"
Interval = tuple[float, float]
CELLS = 48  # steps in which the exponent is divided between the coins
AHEAD = (0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 1.8)  # values of x - y that `sum_tail` tries
SLOPES = np.geomspace(1e-6, 1.0, 33)  # prices of the exponent that are tried, relative to the largest sum
BETWEEN = np.linspace(-1.0, 1.0, 33)  # then, on a log scale, prices between the neighbors of the best one


@dataclass(frozen=True)
class QuadraticForm:
    """A quadratic function of two numbers in [0, 1]: of their distances X, Y to a point `about`, without a constant."""

    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    yy: float = 0.0
    about: Interval = (0.0, 0.0)

    def moved(self, about: Interval) -> "QuadraticForm":
        """Return the same function of the distances to another point."""
        return replace(self, about=about)

    def at(self, X: Any, Y: Any) -> Any:
        """Return its value, from the distances."""
        return X * (self.x + self.xx * X + self.xy * Y) + Y * (self.y + self.yy * Y)

    @property
    def range(self) -> Interval:
        """Its least and largest value for numbers in [0, 1]."""
        return self.over(*((-center, 1 - center) for center in self.about))

    def over(self, first: Interval, second: Interval) -> Interval:
        """Return its least and largest value for distances in these intervals, by `extremes_of_quadratic`."""
        return extremes_of_quadratic(self, first, second)


@theorem("here (quadratic functions)", proof=PROOF)
def extremes_of_quadratic(form: QuadraticForm, first: Interval, second: Interval) -> Interval:
    """Return the least and the largest value of a quadratic function on a rectangle.

    Statement
        It is extreme at a corner, where its derivative along an edge is 0, or where both derivatives are.

    Not covered
        Rounding: a few units in the last place.

    >>> extremes_of_quadratic(QuadraticForm(xy=1.0), (-1.0, 2.0), (-1.0, 1.0))
    (-2.0, 2.0)
    >>> extremes_of_quadratic(QuadraticForm(xx=1.0, x=-1.0), (0.0, 1.0), (0.0, 0.0))
    (-0.25, 0.0)
    """
    points = list(product(first, second))
    if form.yy:
        points += [(X, -(form.y + form.xy * X) / (2 * form.yy)) for X in first]
    if form.xx:
        points += [(-(form.x + form.xy * Y) / (2 * form.xx), Y) for Y in second]
    bend = 4 * form.xx * form.yy - form.xy**2
    if bend:
        points.append(
            ((form.xy * form.y - 2 * form.yy * form.x) / bend, (form.xy * form.x - 2 * form.xx * form.y) / bend)
        )
    values = [form.at(X, Y) for X, Y in points if first[0] <= X <= first[1] and second[0] <= Y <= second[1]]
    return min(values), max(values)


@theorem("here (central moments)", proof=PROOF)
def central(form: QuadraticForm, mean: Interval, first: Interval, second: Interval) -> Interval:
    """Return the range of a quadratic function's mean about the true means, from that about a point near them.

    Statement
        For a form without linear terms, E f(x - Ex, y - Ey) = E f(x - a, y - b) - f(Ex - a, Ey - b). The first is in
        `mean`, Ex - a and Ey - b are in `first` and `second`.

    Not covered
        Forms with linear terms.

    >>> low, high = central(QuadraticForm(xx=1.0), (0.1, 0.2), (-0.1, 0.2), (0.0, 0.0))
    >>> round(low, 9), round(high, 9)
    (0.06, 0.2)
    """
    least, most = form.over(first, second)
    return mean[0] - most, mean[1] - least


@theorem("here (quotients)", proof=PROOF)
def quotient(tried: Sequence[tuple[float, Interval]], below: Interval) -> Interval:
    """Return the range of N/M, M > 0, from intervals for N - r M at several r.

    Statement
        N/M = r + (N - r M)/M, for every r. Where N - r M is known to be positive, N/M is at least r, however little is
        known of M, which lies in `below`.

    Not covered
        M = 0.

    >>> quotient([(0.5, (0.0, 0.3))], (0.0, 2.0))
    (0.5, inf)
    >>> quotient([(0.5, (-0.1, 0.3))], (0.5, 2.0))
    (0.3, 1.1)
    """
    low, high = -inf, inf
    for r, (first, last) in tried:
        low = max(low, r + _divided(first, below))
        high = min(high, r - _divided(-last, below))
    return low, high


def _divided(end: float, below: Interval) -> float:
    """Return the least of end/M."""
    if end >= 0:
        return end / below[1] if end else 0.0
    return end / below[0] if below[0] > 0 else -inf


@theorem("here (spread), by Theorem K", proof=PROOF)
def exchange_spread(J: float, second: float, most: float, reach: float, *, identical: bool = True) -> float:
    """Return how far the mean of a function can be from its posterior mean, from its second moment; inf: no promise.

    Statement
        phi has range `reach`, its square (about any number) is at most `most` for every row, and `second` on average
        under the posterior. Then step^2 (1-J) = J (second + most hi(second/most)), plus J^2 reach^2/2 for rows that are
        not identical.

    Not covered
        J >= 1.

    >>> exchange_spread(0.001, 0.0, 1.0, 1.0) == sqrt(0.001 * exchange.hi(0.0, 0.001) / 0.999) * SAFE
    True
    """
    if not J < 1:
        return inf
    second = max(0.0, second)  # negative only if counts contradict each other, which is rare
    other = most * exchange.hi(min(1.0, second / most), J, identical=identical) if most > 0 else 0.0
    apart = 0.0 if identical else J * reach * reach / 2
    return sqrt(J * (second + other + apart) / (1 - J)) * SAFE


# -- slices -----------------------------------------------------------------------------------------------------------


@theorem("here (slices)", proof=PROOF)
def sum_tail(x: float, coins: int) -> float:
    """Return a bound on the probability that the exponents of this many coins, at the posterior mean, sum to over x.

    Statement
        An exponent is -log of an exact one-sided p-value, convex in the coin's bias; given the rows the coins are
        independent, so for every y < x: P(sum > x) <= (Q_1 + ... + Q_m)(y)/(x - y), Q_i the tail of i exponential
        variables.

    Not covered
        Coins that share draws.

    >>> sum_tail(40.0, 5) < 1e-9 < sum_tail(20.0, 5)
    True
    """
    orders = np.arange(1, coins + 1)
    tails = [float(special.gammaincc(orders, x - ahead).sum()) / ahead for ahead in AHEAD if ahead <= x]
    return min([1.0, *(tail * SAFE for tail in tails)])


@lru_cache(maxsize=4096)
def sum_exponent(beta: float, coins: int) -> float:
    """Return an x with `sum_tail(x, coins)` at most beta, by bisection: the tail falls with x."""
    low, high = 0.0, 1_000.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if sum_tail(middle, coins) <= beta else (middle, high)
    return high


class CoinSums:
    """What several coins, each with draws of its own, say together about their biases before the extra mass."""

    def __init__(self, ones: Any, draws: Any, *, mass: float, x: float) -> None:
        ones, draws = np.asarray(ones, dtype=float), np.asarray(draws, dtype=float)
        self.x, self._grid = x, np.linspace(0.0, x, CELLS + 1)
        tails = np.exp(-self._grid[1:])[None, :] + np.zeros((ones.size, 1))
        counts, trials = (np.broadcast_to(each[:, None], tails.shape) for each in (ones, draws))
        lows, highs = binomial_lows(counts, trials, tails), binomial_highs(counts, trials, tails)
        self._lows, self._highs = (np.clip((ends - mass) / (1 - 2 * mass), 0, 1) for ends in (lows, highs))

    @property
    def each(self) -> list[Interval]:
        """The interval of every coin, if it may take all of the exponent."""
        return list(zip(self._lows[:, -1].tolist(), self._highs[:, -1].tolist(), strict=True))

    def largest(self, weights: Any) -> float:
        """Return a bound on the largest weighted sum of biases, by `largest_sum`."""
        weights = np.asarray(weights, dtype=float)[:, None]
        return largest_sum(np.where(weights > 0, weights * self._highs, weights * self._lows), self._grid)


@theorem("here (slices, the division)", proof=PROOF)
def largest_sum(ends: Any, grid: Any) -> float:
    """Return a bound on the largest sum of terms whose exponents add up to at most x, the end of the `grid` from 0.

    Statement
        Term j is at most ends[j, i] at exponents up to grid[i+1], which grows with i. For every price p >= 0 of the
        exponent the sum is at most p x + sum_j max_i (ends[j, i] - p grid[i]); the best of several prices is taken. It
        is convex in p, so the best of all is between the neighbors of the best of some.

    Not covered
        Terms whose sign depends on the counts: their p-values are one-sided.

    >>> round(largest_sum([[0.5, 1.0], [0.5, 1.0]], [0.0, 1.0, 2.0]), 6)
    2.0
    """
    ends, grid = np.asarray(ends, dtype=float), np.asarray(grid, dtype=float)
    x = grid[-1]

    def at(prices: Any) -> Any:
        return (ends - np.multiply.outer(prices, grid[:-1])[:, None, :]).max(axis=2).sum(axis=1) + prices * x

    prices = SLOPES * (float((ends.max(axis=1) - ends.min(axis=1)).sum()) / x)
    found = at(prices)
    near = prices[int(found.argmin())] * (SLOPES[1] / SLOPES[0]) ** BETWEEN
    return float(min(found.min(), at(near).min()))
