"""Two small searches: the best settings of a guarantee, and the root on the safe side of a goal."""

from collections.abc import Callable, Sequence
from math import exp, inf, log

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def zoom(
    objective: Callable[..., Vector], box: Sequence[tuple[float, float]], *, points: int = 9, levels: int = 9
) -> tuple[float, ...]:
    """Minimise over a box: evaluate a grid at once, shrink the box around the best point, repeat.

    The objectives here have one valley and are evaluated thousands at a time in numpy, which beats a general optimizer.
    Any point it returns is a valid plan; a better one would only be a little tighter.
    """
    bounds = [(float(low), float(high)) for low, high in box]
    best, value = tuple((low + high) / 2 for low, high in bounds), inf
    for _ in range(levels):
        axes = [np.linspace(low, high, points) for low, high in bounds]
        grid = [axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")]
        values = objective(*grid)
        index = int(np.argmin(values))
        if values[index] < value:
            best, value = tuple(float(axis[index]) for axis in grid), float(values[index])
        shrunk = []
        for (low, high), center, (first, last) in zip(bounds, best, box, strict=True):
            half = (high - low) / 3.2
            shrunk.append((max(first, center - half), min(last, center + half)))
        bounds = shrunk
    return best


def smallest(meets: Callable[[int], float], *, low: int, high: int) -> int | None:
    """Return the smallest whole number whose `meets` value is <= 0, within 0.01 %, on the safe side.

    `meets` falls as its argument grows; None if even `high` does not meet the goal. Regula falsi on log(x), because
    every accuracy here is close to a power of x; halving where that stalls.
    """
    if meets(low) <= 0:
        return low
    x, fx = float(low), meets(low)
    y, fy = float(low), fx
    while fy > 0:  # stride out; tenfold steps
        x, fx = y, fy
        if y >= high:
            return None
        y = min(y * 10, float(high))
        fy = meets(int(y))
    turn = 0
    while y - x > max(1.0, 1e-4 * y):
        share = 0.5 if turn % 3 == 2 or not np.isfinite(fx) else fx / (fx - fy)
        middle = exp(log(x) + min(0.99, max(0.01, share)) * (log(y) - log(x)))
        candidate = float(min(int(y) - 1, max(int(x) + 1, round(middle))))
        value = meets(int(candidate))
        if value <= 0:
            y, fy = candidate, value
        else:
            x, fx = candidate, value
        turn += 1
    return int(y)


def largest(meets: Callable[[int], float], *, low: int, high: int) -> int | None:
    """Return the largest whole number whose `meets` value is <= 0, within 0.01 %, on the safe side.

    `meets` grows with its argument; None if even `low` does not meet the goal.
    """
    if meets(low) > 0:
        return None
    x, y = low, low
    while meets(y) <= 0:
        x = y
        if y >= high:
            return high
        y = min(y * 10, high)
    fx, fy = meets(x), meets(y)
    turn = 0
    while y - x > max(1, int(1e-4 * x)):
        share = 0.5 if turn % 3 == 2 or not np.isfinite(fy) else fx / (fx - fy)
        middle = exp(log(x) + min(0.99, max(0.01, share)) * (log(y) - log(x)))
        candidate = min(y - 1, max(x + 1, round(middle)))
        value = meets(candidate)
        if value <= 0:
            x, fx = candidate, value
        else:
            y, fy = candidate, value
        turn += 1
    return x


FULL_SCAN_SLACK = 1.25  # Laplace answers read so many rows that they are at most a quarter wider than a full scan


def sampled_rows(margin: Callable[[int], float], n: int) -> int:
    """Return the fewest rows an answer whose margin is within FULL_SCAN_SLACK of the full scan's."""
    full = FULL_SCAN_SLACK * margin(n)
    low, high = 1, n
    while low < high:
        middle = (low + high) // 2
        if margin(middle) <= full:
            high = middle
        else:
            low = middle + 1
    return low
