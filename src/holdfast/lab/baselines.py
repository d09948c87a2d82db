"""What people use instead: naive means, splitting, full scans with noise, Thresholdout.

They are here to be compared with and to be attacked; of them only `FreshRows` carries a guarantee a session offers.
Full scans read every row; that is their point.
"""

from dataclasses import dataclass, field
from math import ceil

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.errors import BudgetExhausted
from holdfast.guarantees import information
from holdfast.mechanisms import noise
from holdfast.mechanisms.base import Price, Release, answer_from, clip, intervals
from holdfast.mechanisms.fresh_rows import _means, scan
from holdfast.queries.query import Query
from holdfast.rows import draws
from holdfast.rows.source import RowSource


@dataclass(frozen=True)
class Naive:
    """The mean of all rows, exactly. No protection at all: `price` says 0 flips, and no guarantee accepts it."""

    def price(self, query: Query, n: int) -> Price:
        """Reads everything, charges nothing, promises nothing."""
        return Price(0, intervals(query), n)

    def release(self, query: Query, source: RowSource, rng: Generator) -> Release:
        """Return the data's own mean."""
        values = _means(scan(query, source))
        return Release(answer_from(query, values), len(source), values=values)


@dataclass(frozen=True, kw_only=True)
class FullLaplace:
    """Previous work: the mean of all rows plus Laplace noise, epsilon-DP."""

    epsilon: float

    def __post_init__(self) -> None:
        check.positive(epsilon=self.epsilon)

    def price(self, query: Query, n: int) -> Price:
        """n^2 epsilon^2 flips for each statistical query."""
        queries = intervals(query)
        flips = ceil(information.private_cost(self.epsilon, n=n))
        return Price(queries * flips, queries, n, queries * self.epsilon)

    def release(self, query: Query, source: RowSource, rng: Generator) -> Release:
        """Scan, average, add noise of scale 1/(n epsilon)."""
        scale = 1 / (len(source) * self.epsilon)
        values = tuple(noise.laplace_mean(part, scale) for part in scan(query, source))
        return Release(answer_from(query, values), len(source), values=values)


@dataclass(frozen=True, kw_only=True)
class FullGaussian:
    """Previous work: the mean of all rows plus Gaussian noise of deviation sigma."""

    sigma: float

    def __post_init__(self) -> None:
        check.positive(sigma=self.sigma)

    def price(self, query: Query, n: int) -> Price:
        """1/(4 sigma^2) flips for each statistical query: as much as that many coins."""
        queries = intervals(query)
        return Price(queries * ceil(information.gaussian_cost(self.sigma, n=n)), queries, n)

    def release(self, query: Query, source: RowSource, rng: Generator) -> Release:
        """Scan, average, add noise."""
        values = tuple(mean + self.sigma * float(rng.normal()) for mean in _means(scan(query, source)))
        return Release(answer_from(query, values), len(source), values=values)


@dataclass(kw_only=True)
class Thresholdout:
    """The reusable holdout of Dwork et al. 2015: answer from the first half unless the second half disagrees.

    The rows are split once into a training and a holdout half. If their means differ by more than a noisy threshold,
    the holdout's mean plus noise is released; otherwise the training half's mean. `budget` counts the disagreements it
    can still report; a question that may need more is refused.
    """

    threshold: float
    sigma: float
    budget: int
    key: int
    _offset: float | None = field(default=None, init=False, repr=False)
    _total: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check.positive(threshold=self.threshold, sigma=self.sigma)
        check.whole(budget=self.budget)
        check.whole(0, key=self.key)
        self._total = self.budget

    def price(self, query: Query, n: int) -> Price:
        """Reads everything; its own budget is the number of disagreements."""
        return Price(0, intervals(query), n)

    def release(self, query: Query, source: RowSource, rng: Generator) -> Release:
        """Compare the halves and release."""
        most = intervals(query)  # every statistic of the query may disagree
        if self.budget < most:
            raise BudgetExhausted(
                f"Thresholdout can report {self.budget} more disagreements; this question may need {most}.",
                cost=most,
                left=self.budget,
                total=self._total,
                unit="disagreements",
            )
        if self._offset is None:
            self._offset = float(rng.laplace(scale=2 * self.sigma))
        n = len(source)
        order = draws.permuted_block(self.key, n, 0, n)
        parts = scan(query, source, order)
        values = tuple(self._compare(part, rng) for part in parts)
        return Release(answer_from(query, values), n, values=values)

    def _compare(self, part: NDArray[np.float64], rng: Generator) -> float:
        half = len(part) // 2
        training, holdout = float(part[:half].mean()), float(part[half:].mean())
        limit = self.threshold + (self._offset or 0.0) + float(rng.laplace(scale=4 * self.sigma))
        if abs(holdout - training) <= limit:
            return training
        self.budget -= 1
        self._offset = float(rng.laplace(scale=2 * self.sigma))
        return holdout + float(rng.laplace(scale=self.sigma))


@dataclass(frozen=True, kw_only=True)
class CoinFromMean:
    """SCQ-by-CQ: scan everything, add Laplace noise, toss one coin with the noisy bias. The comparison that loses."""

    epsilon: float

    def __post_init__(self) -> None:
        check.positive(epsilon=self.epsilon)

    def price(self, query: Query, n: int) -> Price:
        """As dear as a full-scan Laplace answer, for one bit."""
        return FullLaplace(epsilon=self.epsilon).price(query, n)

    def release(self, query: Query, source: RowSource, rng: Generator) -> Release:
        """Release 0 or 1."""
        noisy = FullLaplace(epsilon=self.epsilon).release(query, source, rng)
        bit = int(rng.random() < clip(noisy.answer))
        return Release(float(bit), noisy.rows_read, counts=(1 - bit, bit))
