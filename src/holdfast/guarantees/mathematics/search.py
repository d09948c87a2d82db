"""Small searches: the best settings of a guarantee, and the root on the safe side of a goal."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from math import exp, inf, isfinite, log

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def zoom(
    objective: Callable[..., Vector], box: Sequence[tuple[float, float]], *, points: int = 9, levels: int = 9
) -> tuple[float, ...]:
    """Minimize over a box: evaluate a grid at once, shrink the box around the best point, repeat.

    The objectives here have one valley and are evaluated thousands at a time in numpy, which beats a general optimizer.
    Any point it returns is a valid plan; a better one would only be a little tighter.
    """
    bounds = [(float(low), float(high)) for low, high in box]
    best, value = tuple((low + high) / 2 for low, high in bounds), inf
    for _ in range(levels):
        axes = [np.linspace(low, high, points if low < high else 1) for low, high in bounds]
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
    """Return the smallest whole number whose `meets` value is <= 0, within 0.01%, on the safe side.

    `meets` falls as its argument grows; None if even `high` does not meet the goal.
    """
    return low if meets(low) <= 0 else _crossing(meets, low, high)[1]


def largest(meets: Callable[[int], float], *, low: int, high: int) -> int | None:
    """Return the largest whole number whose `meets` value is <= 0, within 0.01%, on the safe side.

    `meets` grows with its argument; None if even `low` does not meet the goal.
    """
    return _crossing(meets, low, high)[0] if meets(low) <= 0 else None


def _crossing(meets: Callable[[int], float], low: int, high: int) -> tuple[int, int | None]:
    """Return the last number found on the side of `low` and the first on the other; None if `high` is not on that side.

    Regula falsi on log(x), because every margin here is close to a power of x; bisection where that stalls.
    """
    x = y = low
    fx = fy = meets(low)
    while (fy > 0) == (fx > 0):  # go up in tenfold steps
        x, fx = y, fy
        if y >= high:
            return high, None
        y = min(y * 10, high)
        fy = meets(y)
    turn = 0
    while y - x > max(1, int(1e-4 * x)):
        share = 0.5 if turn % 3 == 2 or not isfinite(fx - fy) else fx / (fx - fy)
        middle = exp(log(x) + min(0.99, max(0.01, share)) * (log(y) - log(x)))
        candidate = min(y - 1, max(x + 1, round(middle)))
        value = meets(candidate)
        if (value > 0) == (fx > 0):
            x, fx = candidate, value
        else:
            y, fy = candidate, value
        turn += 1
    return x, y


def fewest(meets: Callable[[int], bool], *, low: int, high: int) -> int:
    """Return the first whole number from `low` on that meets the goal; all later ones, `high` too, must meet it."""
    return low + bisect_left(range(low, high), True, key=meets)


FULL_SCAN_SLACK = 1.25  # Laplace answers read enough rows to be at most a quarter wider than a full scan


def sampled_rows(margin: Callable[[int], float], n: int) -> int:
    """Return the fewest rows per answer with a margin within a factor FULL_SCAN_SLACK of the full scan's."""
    full = FULL_SCAN_SLACK * margin(n)
    return fewest(lambda ell: margin(ell) <= full, low=1, high=n)
