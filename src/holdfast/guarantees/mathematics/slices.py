"""Means of numbers with few large values: the range is cut into slices, each asked by coins of its own.

A value is the sum of its slices. Where values are rarely large, most slices are near 0 or 1 and their coins say so
exactly; and the second moment of the value, which the slices bound as well, narrows the step to the population.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from holdfast.guarantees.mathematics import special
from holdfast.guarantees.mathematics.concentration import SAFE, binomial_highs, binomial_lows
from holdfast.guarantees.mathematics.theorem import theorem

PROOF = "moments.md"
Interval = tuple[float, float]
CELLS = 48  # of the exponent, for its division between the coins
AHEAD = (0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 1.8)  # how far the exponent is above where its excess is counted from
SLOPES = np.geomspace(1e-6, 1.0, 33)  # prices of the exponent that are tried, relative to the largest sum
BETWEEN = np.linspace(-1.0, 1.0, 33)  # and then, as logarithms, between the neighbors of the best one


@theorem("here (slices)", proof=PROOF)
def sum_tail(x: float, coins: int) -> float:
    """Return a bound on the probability that the exponents of so many coins, at the posterior mean, add up to over x.

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
    """Return an x with `sum_tail(x, coins)` at most beta, by halving: the tail falls with x."""
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
