"""What people use instead of holdfast, to answer and to fit models.

They are here to be compared with and to be attacked; no session uses them. Each reads every row for every answer, so
the `draws` of their releases is the number of rows.

Every step along the full gradient reads every row, exactly or with Gaussian noise: k queries of n steps each make
k d n^2 gradient evaluations. Without noise (`sigma` 0), descent fits the rows, not the population, once losses depend
on earlier answers.
"""

from dataclasses import dataclass, field
from math import ceil, inf
from typing import Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.errors import BudgetExhausted, InvalidArgument
from holdfast.guarantees.mathematics import privacy
from holdfast.guarantees.statistic import Columns, ExactMeans, NoisyMeans, Release
from holdfast.mechanisms import noisy_means
from holdfast.optimize.objective import Objective, ObjectiveQuery, Rows, Vector
from holdfast.queries.query import Query, Values
from holdfast.rows.draws import AllRows, Consecutive, Fresh, Selection
from holdfast.rows.source import RowSource

AT_ONCE = 1 << 16  # rows per block


class Releaser(Protocol):
    """Anything that answers a query from rows: a session's mechanism, a baseline, or one of your own."""

    def release(self, query: Query, source: RowSource, rng: Generator) -> Release:
        """Read rows and return what may be released about them."""


def _scan(query: Query, source: RowSource, selection: Selection, rng: Generator) -> Columns:
    """Return the values of every statistical query of the question on every row. Secret."""
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
        scale, grid = 1 / (n * self.epsilon), 2.0 ** -noisy_means.grid_bits(n)
        means = tuple(noisy_means.laplace_mean(column, scale) for column in _scan(query, source, AllRows(), rng))
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
    can still report; a question that may need more is refused. The noise is Laplace, of scale 2, 4 and 1 sigma for the
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


@dataclass(frozen=True)
class FullGradient:
    """The mean gradient of all n rows, each coordinate with Gaussian noise of deviation `sigma` times its width."""

    objective: Objective
    n: int
    sigma: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.sigma < inf:
            raise InvalidArgument(f"sigma must be at least 0; got {self.sigma!r}.", name="sigma")

    @property
    def ell(self) -> int:
        """Every row, for every coordinate."""
        return self.n

    @property
    def charge(self) -> int:
        """1/(4 sigma^2) per coordinate; exact gradients, which nothing protects, are charged 0."""
        if self.sigma == 0:
            return 0
        return len(self.objective.ranges.lows) * ceil(privacy.gaussian_cost(self.sigma, n=self.n))

    @property
    def rows_read(self) -> int:
        """n rows, since a row serves all coordinates here: n d gradient evaluations."""
        return self.n

    @property
    def evaluations(self) -> int:
        """Gradient coordinates evaluated for one step."""
        return self.n * len(self.objective.ranges.lows)

    @property
    def moment(self) -> float:
        """The norms of gradient and noise, added in squares."""
        noise = self.sigma * float(np.linalg.norm(self.objective.ranges.widths))
        return float(np.hypot(self.objective.ranges.gradient, noise))

    @property
    def largest(self) -> float | None:
        """The largest gradient if there is no noise, else None."""
        return None if self.sigma else self.objective.ranges.gradient

    @property
    def spread(self) -> float:
        """The standard deviation of the noise on the widest coordinate."""
        return self.sigma * float(self.objective.ranges.widths.max())

    def __call__(self, point: Vector, source: RowSource, rng: Generator) -> Vector:
        """Scan, average, add noise."""
        query, ranges, n = WholeGradientAt(self.objective, point), self.objective.ranges, len(source)
        shares = sum(
            source.sample(query, Consecutive(start, min(start + AT_ONCE, n)), rng).sum(axis=0)
            for start in range(0, n, AT_ONCE)
        )
        mean = ranges.lows + ranges.widths * np.asarray(shares) / n
        noisy: Vector = mean + self.sigma * ranges.widths * rng.normal(size=len(mean))
        return noisy


@dataclass(frozen=True, eq=False)
class WholeGradientAt(ObjectiveQuery):
    """All coordinates of each row's gradient, from 0 to 1. Too costly for any coin release: a row has 2^d outcomes."""

    objective: Objective
    point: Vector

    def row_values(self, rows: Rows, part: NDArray[np.int64], draw: NDArray[np.int64]) -> Values:
        """Return one line per row."""
        ranges = self.objective.ranges
        lines = (self.objective.gradients(rows, self.point) - ranges.lows) / ranges.widths
        return np.clip(lines, 0.0, 1.0, out=lines)
