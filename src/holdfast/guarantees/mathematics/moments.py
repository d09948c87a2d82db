"""Numbers that several outcomes of one draw say together: variances, covariances, differences of paired values.

Two coins tossed for the same drawn row multiply to what a product needs: with biases x and y, both fall on one with
probability xy. Every outcome and some unions of outcomes have exact binomial intervals; the laws of a draw that these
allow are a polytope, and what is linear in the law is extreme at its corners.
"""

from itertools import combinations
from math import inf, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.guarantees.mathematics import exchange
from holdfast.guarantees.mathematics.concentration import SAFE
from holdfast.guarantees.mathematics.theorem import theorem

PROOF = "moments.md"
Interval = tuple[float, float]
Laws = NDArray[np.float64]  # one law of the outcomes in each line
OUTWARD = 1e-9  # how far a corner may be outside, and how far ends are moved: more than all rounding


@theorem("here (the corners)", proof=PROOF)
def corners(sets: Any, lows: Any, highs: Any) -> Laws:
    """Return the corners of all laws whose sums over given sets of outcomes lie in intervals; none if there is none.

    Statement
        A linear function of a law is extreme over these laws at a corner, where as many constraints are equalities as
        the law has free coordinates. Corners that miss a constraint by less than 1e-9 are kept.

    Not covered
        More than a handful of outcomes: all choices of constraints are tried.

    >>> corners([[1, 0], [0, 1]], [0.2, 0.3], [0.6, 0.9]).round(6).tolist()
    [[0.6, 0.4], [0.2, 0.8]]
    """
    sets = np.asarray(sets, dtype=float)
    count = sets.shape[1]
    # A law is its coordinates but the first, which is 1 minus their sum.
    slopes = sets[:, 1:] - sets[:, :1]
    above, below = slopes, -slopes
    limits = np.concatenate([np.asarray(highs) - sets[:, 0], sets[:, 0] - np.asarray(lows)])
    rows = np.concatenate([above, below])
    chosen = np.array(list(combinations(range(len(rows)), count - 1)))
    systems, right = rows[chosen], limits[chosen]
    regular = np.abs(np.linalg.det(systems)) > 1e-12
    points = np.linalg.solve(systems[regular], right[regular][..., None])[..., 0]
    kept = points[(points @ rows.T <= limits + OUTWARD).all(axis=1)]
    laws: Laws = np.concatenate([1 - kept.sum(axis=1, keepdims=True), kept], axis=1)
    return laws


def extremes(laws: Laws, weights: Any, within: Interval) -> Interval:
    """Return the least and the largest weighted sum over the laws with these corners, rounded outwards."""
    low, high = within
    if not len(laws):
        return within
    values = laws @ np.asarray(weights, dtype=float)
    slack = OUTWARD * (high - low)
    return max(low, float(values.min()) - slack), min(high, float(values.max()) + slack)


@theorem("here (spread), by Theorem K", proof=PROOF)
def exchange_spread(J: float, second: float, most: float, reach: float, *, identical: bool = True) -> float:
    """Return how far the mean of a function can be from its posterior mean, from its second moment; inf: no promise.

    Statement
        phi has range `reach`, its square (about any number) is at most `most` for every row, and `second` on average
        under the posterior. Then step^2 (1-J) = J (second + most hi(second/most)), plus J^2 reach^2/2 in the bracket's
        place for rows that are not identical.

    Not covered
        J >= 1.

    >>> exchange_spread(0.001, 0.0, 1.0, 1.0) == sqrt(0.001 * exchange.hi(0.0, 0.001) / 0.999) * SAFE
    True
    """
    if not J < 1:
        return inf
    second = max(0.0, second)  # of cells that no row can have: it is rare that counts say so
    other = most * exchange.hi(min(1.0, second / most), J, identical=identical) if most > 0 else 0.0
    apart = 0.0 if identical else J * reach * reach / 2
    return sqrt(J * (second + other + apart) / (1 - J)) * SAFE
