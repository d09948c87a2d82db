"""Answer a bounded mean from all rows plus Gaussian noise.

The algorithm box:

    scan    v = (1/n) * sum of q(x_i) over all n rows       q(row) in [0, 1], rounded to a grid
    answer  a = v + N(0, sigma^2), discrete on the grid that holds v

A group takes two such answers, a histogram one for each outcome, all from one scan, each with noise of its own.
"""

from dataclasses import dataclass
from typing import Self

from numpy.random import Generator

from holdfast import check
from holdfast.guarantees.gaussian import Scans
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.release import NoisyMeans
from holdfast.guarantees.statistic import Statistic
from holdfast.mechanisms import MECHANISMS, noise
from holdfast.queries.query import Query
from holdfast.rows.draws import AllRows, Order
from holdfast.rows.source import RowSource


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """All rows, and noise of deviation `sigma` on every mean."""

    sigma: float

    def __post_init__(self) -> None:
        check.positive(sigma=self.sigma)

    @classmethod
    def under(cls, guarantee: Guarantee, draws: int, order: Order | None) -> Self:
        """Return answers with the guarantee's noise."""
        if not isinstance(guarantee, Scans):
            raise guarantee.cannot_certify("Gaussian answers")
        return cls(sigma=guarantee.sigma(draws))

    @staticmethod
    def rows_read(statistic: Statistic, draws: int, rows: int) -> int:
        """One pass over all rows."""
        noise.require("gaussian")
        return rows

    def release(self, query: Query, source: RowSource, rng: Generator) -> NoisyMeans:
        """Scan, average, add noise."""
        n = len(source)
        columns = query.statistic.columns(source.sample(query, AllRows(), rng))
        means = tuple(noise.gaussian_mean(column, self.sigma) for column in columns)
        return NoisyMeans(query.statistic.from_means(means), n, means, self.sigma, 2.0 ** -noise.grid_bits(n))


MECHANISMS.register("gaussian", Gaussian)
