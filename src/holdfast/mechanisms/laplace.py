"""Answer a bounded mean from ell freshly drawn rows plus Laplace noise (A1).

The algorithm box:

    draw    I ~ ell of the n rows, uniformly, without replacement (or with)
    value   v = (1/ell) * sum of q(x_i), i in I          q(row) in [0, 1]
    answer  a = v + Lap(1/(ell eps'))

Replacing one drawn row moves v by at most 1/ell, so the answer is eps'-DP on the drawn rows; eps' is chosen so that it
is `epsilon`-DP on all n rows, by the exact inverse of amplification. A group takes two such answers, a histogram one
for each outcome; each draws rows of its own.
"""

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.guarantees import information
from holdfast.guarantees.mathematics import amplification
from holdfast.mechanisms import noise
from holdfast.mechanisms.base import Price, Release, answer_from, intervals, statistics
from holdfast.queries.query import Query
from holdfast.rows import draws
from holdfast.rows.source import RowSource


@dataclass(frozen=True, kw_only=True)
class Laplace:
    """`draws` rows a statistical query, `epsilon`-DP on all rows."""

    draws: int  # ell
    epsilon: float  # eps0: the price of one statistical query on all n rows
    replacement: bool = False

    def __post_init__(self) -> None:
        check.whole(draws=self.draws)
        check.positive(epsilon=self.epsilon)

    def epsilon_on_drawn(self, n: int) -> float:
        """Return eps', what may be spent on the drawn rows."""
        if self.replacement:
            return amplification.epsilon_with_replacement(self.epsilon, ell=self.draws, n=n)
        return amplification.epsilon_without_replacement(self.epsilon, ell=self.draws, n=n)

    def scale(self, n: int) -> float:
        """Return the scale of the noise, 1/(ell eps')."""
        return 1 / (self.draws * self.epsilon_on_drawn(n))

    def price(self, query: Query, n: int) -> Price:
        """n^2 epsilon^2 flips for each statistical query."""
        queries = intervals(query)
        if not self.replacement:
            check.at_most("rows", n, draws=self.draws)
        flips = ceil(information.private_cost(self.epsilon, n=n))
        return Price(queries * flips, queries, queries * self.draws, queries * self.epsilon)

    def release(self, query: Query, source: RowSource, rng: Generator) -> Release:
        """Draw rows for each statistic, average, add noise."""
        scale = self.scale(len(source))
        values = tuple(
            noise.laplace_mean(self._drawn(query, source, rng, part), scale) for part in range(intervals(query))
        )
        return Release(answer_from(query, values), len(values) * self.draws, values=values)

    def _drawn(self, query: Query, source: RowSource, rng: Generator, part: int) -> NDArray[np.float64]:
        """Return one statistic of freshly drawn rows: secret, never kept or logged."""
        draw = draws.with_replacement if self.replacement else draws.without_replacement
        rows = source.gather(draw(rng, len(source), self.draws), query.columns)
        return statistics(query, query.evaluate(rows))[part]
