"""What people use instead: plain means, full scans with noise, Thresholdout.

They are here to be compared with and to be attacked; no session runs on them. Each reads every row for every answer,
so `draws` of what they release is the number of rows.
"""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.errors import BudgetExhausted
from holdfast.guarantees.release import ExactMeans, NoisyMeans, Release
from holdfast.guarantees.statistic import Columns
from holdfast.mechanisms import noise
from holdfast.queries.query import Query
from holdfast.rows.draws import AllRows, Fresh, Selection
from holdfast.rows.source import RowSource


class Releaser(Protocol):
    """Whatever answers a query from rows: a mechanism of a session, a baseline, or one of your own."""

    def release(self, query: Query, source: RowSource, rng: Generator) -> Release:
        """Read rows, and return what may be known of them."""
        ...


def _scan(query: Query, source: RowSource, selection: Selection, rng: Generator) -> Columns:
    """Return every statistical query of the question on every row. Secret."""
    return query.statistic.columns(source.sample(query, selection, rng))


@dataclass(frozen=True)
class Naive:
    """The exact mean of all rows. Nothing is protected."""

    def release(self, query: Query, source: RowSource, rng: Generator) -> ExactMeans:
        """Return the mean of the data."""
        columns = _scan(query, source, AllRows(), rng)
        means = tuple(float(column.mean()) for column in columns)
        return ExactMeans(query.statistic.from_means(means), len(source), means, query.statistic.counted(columns))


@dataclass(frozen=True, kw_only=True)
class FullLaplace:
    """Previous work: the mean of all rows plus Laplace noise, epsilon-DP."""

    epsilon: float

    def __post_init__(self) -> None:
        check.positive(epsilon=self.epsilon)

    def release(self, query: Query, source: RowSource, rng: Generator) -> NoisyMeans:
        """Scan, average, add noise of scale 1/(n epsilon)."""
        n = len(source)
        scale, grid = 1 / (n * self.epsilon), 2.0 ** -noise.grid_bits(n)
        means = tuple(noise.laplace_mean(column, scale) for column in _scan(query, source, AllRows(), rng))
        return NoisyMeans(query.statistic.from_means(means), n, means, scale, grid)


@dataclass(frozen=True, kw_only=True)
class FullGaussian:
    """Previous work: the mean of all rows plus Gaussian noise of standard deviation sigma."""

    sigma: float

    def __post_init__(self) -> None:
        check.positive(sigma=self.sigma)

    def release(self, query: Query, source: RowSource, rng: Generator) -> NoisyMeans:
        """Scan, average, add noise."""
        columns = _scan(query, source, AllRows(), rng)
        means = tuple(float(column.mean()) + self.sigma * float(rng.normal()) for column in columns)
        return NoisyMeans(query.statistic.from_means(means), len(source), means, self.sigma, 0.0)


@dataclass(kw_only=True)
class Thresholdout:
    """The reusable holdout of Dwork et al. 2015: answer from the first half unless the second half disagrees.

    The rows are split once into a training and a holdout half. If their means differ by more than a noisy threshold,
    the holdout's mean plus noise is released; otherwise the training half's mean. `budget` is how many disagreements it
    can still report; a question that may need more is refused. Noise is Laplace's, of scale 2, 4 and 1 sigma for the
    threshold, the comparison and the answer, as in the paper and in the code of Rogers et al.
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

    def release(self, query: Query, source: RowSource, rng: Generator) -> NoisyMeans:
        """Compare the halves and release."""
        most = query.statistic.intervals  # every statistical query of the question may disagree
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
        in_secret_order = Fresh(self.key.to_bytes(32), 0, len(source))
        means = tuple(self._compare(column, rng) for column in _scan(query, source, in_secret_order, rng))
        return NoisyMeans(query.statistic.from_means(means), len(source), means, self.sigma, 0.0)

    def _compare(self, column: NDArray[np.float64], rng: Generator) -> float:
        half = len(column) // 2
        training, holdout = float(column[:half].mean()), float(column[half:].mean())
        limit = self.threshold + (self._offset or 0.0) + float(rng.laplace(scale=4 * self.sigma))
        if abs(holdout - training) <= limit:
            return training
        self.budget -= 1
        self._offset = float(rng.laplace(scale=2 * self.sigma))
        return holdout + float(rng.laplace(scale=self.sigma))


@dataclass(frozen=True, kw_only=True)
class CoinFromMean:
    """SCQ-by-CQ: scan everything, add Laplace noise, toss one coin with the noisy bias. For yes-or-no questions."""

    epsilon: float

    def __post_init__(self) -> None:
        check.positive(epsilon=self.epsilon)

    def release(self, query: Query, source: RowSource, rng: Generator) -> Release:
        """Release 0 or 1."""
        noisy = FullLaplace(epsilon=self.epsilon).release(query, source, rng)
        bit = int(rng.random() < noisy.values[0])
        return Release((float(bit),), noisy.draws)
