"""Noisy gradients: every coordinate a statistical query, all of them in one pass over freshly drawn rows.

    coins     ell draws for each coordinate, whose range is cut into ell slices; draw i tosses one coin, whose bias is
              how much of slice i the row's coordinate fills; each coin is randomized: turned over with probability a;
              the share of ones is debiased but not clipped, so it is unbiased, as the slices add up to the range.
    laplace   ell rows for each coordinate without replacement, their mean plus Laplace noise (A1).

No draw answers for two coordinates: one that answered for d coins would have 2^d outcomes. Slices have less variance
than coins that each ask about the whole range: during a fit most gradients are near zero, so most slices are either
full or empty.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.cached import cached_property
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.mathematics import descent, privacy
from holdfast.mechanisms import noisy_means
from holdfast.mechanisms.noisy_means import Laplace
from holdfast.optimize.objective import Objective, ObjectiveQuery, Ranges, Rows, Vector
from holdfast.queries.query import Values
from holdfast.rows.draws import WithoutReplacement
from holdfast.rows.source import RowSource

ROWS_A_STEP = 3_000  # measured: faster than 1,000 at the same loss; 12,000 takes too few steps (benchmarks, fits)
LEAST_ITERATIONS = 100
MOST_LOOKED_UP = 64  # blocks of draws whose scales are cached; one more empties the cache
LAPLACE_ITERATIONS = 100


@dataclass(frozen=True)
class NoisyGradient(ABC):
    """Where gradients come from: one of the mechanisms, which reads `ell` rows for each coordinate."""

    selector: ClassVar[str]  # how runs are compared by default
    by_rows: ClassVar[bool]  # whether it is charged by the rows it reads
    objective: Objective
    ell: int

    @classmethod
    @abstractmethod
    def under(cls, guarantee: Guarantee, objective: Objective, ell: int | None) -> Self:
        """Return the gradient under this guarantee; `ell` None means the default number of rows per coordinate."""

    @abstractmethod
    def usual_iterations(self, guarantee: Guarantee) -> int:
        """Return the default number of steps."""

    @property
    @abstractmethod
    def charge(self) -> int:
        """The part of the budget's charge that one gradient uses."""

    @property
    @abstractmethod
    def moment(self) -> float:
        """Gh, with E|gradient|^2 <= Gh^2, without l2."""

    @property
    @abstractmethod
    def largest(self) -> float | None:
        """M, with |gradient| <= M always, without l2; None if there is no such number."""

    @property
    @abstractmethod
    def spread(self) -> float:
        """The sub-Gaussian spread of one coordinate."""

    @abstractmethod
    def __call__(self, point: Vector, source: RowSource, rng: Generator) -> Vector:
        """Return an unbiased estimate of the mean gradient on the rows, without l2."""

    def shortened(self, most: int) -> Self:
        """Return the same gradient with at most `most` rows per coordinate, for a dry run."""
        return replace(self, ell=min(self.ell, most))

    @property
    def rows_read(self) -> int:
        """The rows of every coordinate."""
        return self.ell * len(self.objective.ranges.lows)

    def _stretched(self, shares: Vector) -> Vector:
        """Turn shares of the coordinates' ranges back into coordinates."""
        ranges = self.objective.ranges
        gradient: Vector = ranges.lows + ranges.widths * shares
        return gradient


class Scales:
    """The factors that turn gradient coordinates into shares of slices; cached for all steps of a fit.

    Coordinate j lies at (value - low_j) * slices/width_j, and draw i asks how much of [i, i+1] that fills; with one
    slice every draw asks about the whole range.
    """

    def __init__(self, ranges: Ranges, slices: int = 1) -> None:
        self._factors: Vector = slices / ranges.widths
        self._lows, self._slices = ranges.lows * self._factors, slices
        self._found: dict[tuple[int, int], tuple[NDArray[np.int64], NDArray[np.int64], Vector, Vector]] = {}

    def at(self, part: NDArray[np.int64], draw: NDArray[np.int64]) -> tuple[Vector, Vector]:
        """Return factor and start for draw `draw[i]` of coordinate `part[i]`."""
        key = (id(part), id(draw))
        if key not in self._found:
            if len(self._found) >= MOST_LOOKED_UP:
                self._found.clear()
            start = self._lows[part] + (draw if self._slices > 1 else 0)
            # Keep `part` and `draw` themselves: a live object's id cannot be reused.
            self._found[key] = part, draw, self._factors[part], start
        return self._found[key][2:]


@dataclass(frozen=True, eq=False)
class GradientAt(ObjectiveQuery):
    """Every coordinate of the gradient at a point, each a part with its own drawn rows.

    The range of a coordinate is cut into the slices of `scales`; the value of draw i is how much of slice i the row's
    coordinate fills.
    """

    numbered: ClassVar[bool] = True
    objective: Objective
    point: Vector
    scales: "Scales"

    @property
    def parts(self) -> int:  # type: ignore[override]
        """One part per coordinate."""
        return len(self.objective.ranges.lows)

    def row_values(self, rows: Rows, part: NDArray[np.int64], draw: NDArray[np.int64]) -> Values:
        """Return how much of its slice each row's coordinate fills, from 0 to 1."""
        factor, start = self.scales.at(part, draw)
        values = self.objective.coordinates(rows, self.point, part)
        values *= factor
        values -= start
        return np.clip(values, 0.0, 1.0, out=values)


@dataclass(frozen=True)
class CoinGradient(NoisyGradient):
    """`ell` coins per coordinate, each turned over with probability `mass`."""

    selector: ClassVar[str] = "coins"
    by_rows: ClassVar[bool] = True
    mass: float

    @classmethod
    def under(cls, guarantee: Guarantee, objective: Objective, ell: int | None) -> Self:
        """By default about ROWS_A_STEP rows per step, or fewer so that LEAST_ITERATIONS steps are affordable."""
        if ell is None:
            wide = ceil(ROWS_A_STEP / len(objective.names))
            ell = max(1, min(wide, guarantee.terms.rows_per_query // LEAST_ITERATIONS))
        return cls(objective, ell, guarantee.answering().coin_mass)

    def usual_iterations(self, guarantee: Guarantee) -> int:
        """As many steps as make the coins of one coordinate add up to those of one ordinary answer."""
        planned: int = guarantee.terms.rows_per_query
        return max(1, planned // self.ell)

    @cached_property
    def scales(self) -> Scales:
        """One slice for each coin."""
        return Scales(self.objective.ranges, self.ell)

    @property
    def charge(self) -> int:
        """One per coin."""
        return self.rows_read

    @property
    def moment(self) -> float:
        """The smaller of two bounds: one by variance, and one that holds always."""
        ranges = self.objective.ranges
        by_variance = descent.coin_moment(ranges.gradient, ranges.widths.tolist(), ell=self.ell, mass=self.mass)
        return min(by_variance, self.largest)

    @property
    def largest(self) -> float:
        """Finite, since coins are bounded."""
        ranges = self.objective.ranges
        return descent.largest_gradient(ranges.lows.tolist(), ranges.highs.tolist(), mass=self.mass)

    @property
    def spread(self) -> float:
        """By Hoeffding's lemma."""
        return descent.spread(self.objective.ranges.widths.tolist(), ell=self.ell, mass=self.mass)

    def __call__(self, point: Vector, source: RowSource, rng: Generator) -> Vector:
        """Tally the coins and debias the shares."""
        query = GradientAt(self.objective, point, self.scales)
        counts = source.tally(query, draws=self.ell, mass=self.mass, rng=rng).reshape(-1, 2)
        return self._stretched((counts[:, 1] / self.ell - self.mass) / (1 - 2 * self.mass))


@dataclass(frozen=True)
class LaplaceGradient(NoisyGradient):
    """`ell` rows per coordinate and Laplace noise, each coordinate `epsilon`-DP on all n rows."""

    selector: ClassVar[str] = "exponential"
    by_rows: ClassVar[bool] = False
    epsilon: float
    n: int

    @classmethod
    def under(cls, guarantee: Guarantee, objective: Objective, ell: int | None) -> Self:
        """By default as many rows per coordinate as an ordinary answer reads."""
        noisy_means.require("laplace")
        rows: int = guarantee.terms.rows
        ell = guarantee.terms.rows_per_query if ell is None else ell
        check.at_most("rows", rows, rows_per_coordinate=ell)
        return cls(objective, ell, guarantee.answering().epsilon_for(ell), rows)

    def usual_iterations(self, guarantee: Guarantee) -> int:
        """A fixed number."""
        return LAPLACE_ITERATIONS

    @property
    def charge(self) -> int:
        """n^2 epsilon^2 per coordinate."""
        return len(self.objective.ranges.lows) * ceil(privacy.private_cost(self.epsilon, n=self.n))

    @property
    def scale(self) -> float:
        """The noise scale of a coordinate whose range is rescaled to [0, 1]."""
        return Laplace(draws=self.ell, epsilon=self.epsilon).scale(self.n)

    @property
    def moment(self) -> float:
        """By variance: sampling and noise."""
        ranges = self.objective.ranges
        return descent.laplace_moment(ranges.gradient, ranges.widths.tolist(), ell=self.ell, scale=self.scale)

    @property
    def largest(self) -> None:
        """Laplace noise has no largest value."""
        return None

    @property
    def spread(self) -> float:
        """Infinite: Laplace noise is not sub-Gaussian."""
        return float("inf")

    def __call__(self, point: Vector, source: RowSource, rng: Generator) -> Vector:
        """Sample, average, add noise."""
        ell = min(self.ell, len(source))  # a dry run has few made-up rows
        scale = Laplace(draws=ell, epsilon=self.epsilon).scale(len(source))
        query = GradientAt(self.objective, point, Scales(self.objective.ranges))
        values = source.sample(query, WithoutReplacement(ell), rng).astype(np.float64)
        means = [noisy_means.laplace_mean(of_coordinate, scale) for of_coordinate in values.reshape(-1, ell)]
        return self._stretched(np.array(means))


GRADIENTS: Mapping[str, type[NoisyGradient]] = {"coins": CoinGradient, "laplace": LaplaceGradient}
