"""What every mechanism does: state its price, then release.

The code that draws is the code that accounts: a session charges exactly what `price` says. What the rows said exists
only inside `release`; what leaves is what the theorems cover.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast.queries.query import Query, Values
from holdfast.rows.source import RowSource


@dataclass(frozen=True)
class Price:
    """What one answer takes: flips and intervals from the two caps, rows to be read, epsilon where there is one."""

    flips: int
    intervals: int
    rows_read: int
    epsilon: float | None = None


@dataclass(frozen=True)
class Release:
    """What leaves the mechanism. `answer` is in [0, 1], before bounds are applied; NaN-free by construction.

    Coins release outcome `counts`; noisy mechanisms release one number per statistical query in `values` (a group
    takes two, a histogram one per outcome).
    """

    answer: float
    rows_read: int
    counts: tuple[int, ...] = ()
    values: tuple[float, ...] = ()


class Mechanism(Protocol):
    """An algorithm box: one query in, one release out."""

    def price(self, query: Query, n: int) -> Price:
        """Say what this answer will cost on n rows, before any row is read."""
        ...

    def release(self, query: Query, source: RowSource, rng: Generator) -> Release:
        """Draw, evaluate, add chance, release."""
        ...


def intervals(query: Query) -> int:
    """Return how many of the k intervals an answer takes."""
    return {"group": 2, "histogram": query.outcomes}.get(query.kind, 1)


def statistics(query: Query, said: Values) -> list[NDArray[np.float64]]:
    """Split what rows say into statistical queries with values in [0, 1].

    A share or mean is one; a group is two (who is in it, and what they add to its sum); a histogram is one for each
    outcome.
    """
    if query.kind == "histogram":
        return [(said == outcome).astype(np.float64) for outcome in range(query.outcomes)]
    values = said.astype(np.float64)
    if query.kind == "group":
        included = ~np.isnan(values)
        return [included.astype(np.float64), np.where(included, values, 0.0)]
    return [np.nan_to_num(values, nan=0.0)]


def answer_from(query: Query, values: tuple[float, ...]) -> float:
    """Turn (noisy) statistics into one answer in [0, 1]; 1/2 for a group that seems empty."""
    if query.kind == "group":
        return clip(values[1] / values[0]) if values[0] > 0 else 0.5
    return clip(values[0])


def clip(x: float) -> float:
    """Return x, moved into [0, 1]."""
    return min(1.0, max(0.0, x))
