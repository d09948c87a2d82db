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
from typing import Self

from numpy.random import Generator

from holdfast import check
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.mathematics import amplification
from holdfast.guarantees.release import NoisyMeans
from holdfast.guarantees.statistic import Statistic
from holdfast.mechanisms import MECHANISMS, noise
from holdfast.queries.query import Query
from holdfast.rows.draws import Order, WithoutReplacement, WithReplacement
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

    @classmethod
    def under(cls, guarantee: Guarantee, draws: int, order: Order | None) -> Self:
        """Return answers with the guarantee's epsilon."""
        return cls(draws=draws, epsilon=guarantee.epsilon_for(draws))

    def epsilon_on_drawn(self, n: int) -> float:
        """Return eps', what may be spent on the drawn rows."""
        if self.replacement:
            return amplification.epsilon_with_replacement(self.epsilon, ell=self.draws, n=n)
        return amplification.epsilon_without_replacement(self.epsilon, ell=self.draws, n=n)

    def scale(self, n: int) -> float:
        """Return the scale of the noise, 1/(ell eps')."""
        return 1 / (self.draws * self.epsilon_on_drawn(n))

    @staticmethod
    def rows_read(statistic: Statistic, draws: int, rows: int) -> int:
        """The rows of every statistical query."""
        noise.require("laplace")
        return statistic.intervals * draws

    def release(self, query: Query, source: RowSource, rng: Generator) -> NoisyMeans:
        """Draw rows for each statistic, average, add noise."""
        statistic, scale = query.statistic, self.scale(len(source))
        selection = WithReplacement(self.draws) if self.replacement else WithoutReplacement(self.draws)
        means = tuple(
            noise.laplace_mean(statistic.columns(source.sample(query, selection, rng))[part], scale)
            for part in range(statistic.intervals)
        )
        grid = 2.0 ** -noise.grid_bits(self.draws)
        return NoisyMeans(statistic.from_means(means), self.draws, means, scale, grid)


@dataclass(frozen=True, kw_only=True)
class LaplaceWithReplacement(Laplace):
    """The same from rows drawn with replacement, as the paper also allows: a row may come up more than once."""

    replacement: bool = True


MECHANISMS.register("laplace", Laplace)
MECHANISMS.register("laplace_with_replacement", LaplaceWithReplacement)
