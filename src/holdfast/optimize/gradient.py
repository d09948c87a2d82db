"""Noisy gradients: every coordinate a statistical query, all of them in one pass over freshly drawn rows.

    coins     ell draws for each coordinate, whose range is cut into ell slices; draw i tosses one coin, its bias how
              much of slice i the row's coordinate fills; each coin is randomized: turned over with probability a; the
              share of ones is debiased, not clipped: unbiased, as the slices add up to the range.
    laplace   ell rows for each coordinate without replacement, their mean plus Laplace noise (A1).

No row answers for two coordinates: one draw that answered d coins would have 2^d outcomes. Slices vary less than coins
that all ask about the whole range: a fit leaves most gradients near zero, and then most slices full or empty.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.mathematics import cost, descent
from holdfast.mechanisms import noisy_means
from holdfast.mechanisms.noisy_means import Laplace
from holdfast.optimize.objective import Objective, ObjectiveQuery, Ranges, Rows, Vector
from holdfast.queries.query import Values
from holdfast.rows.draws import WithoutReplacement
from holdfast.rows.source import RowSource

ROWS_A_STEP = 3_000  # measured: faster than 1,000 at the same loss; 12,000 takes too few steps (benchmarks, fits)
LEAST_ITERATIONS = 100
MOST_LOOKED_UP = 64  # blocks of draws in a step; beyond that their scales are looked up anew
LAPLACE_ITERATIONS = 100


class NoisyGradient(Protocol):
    """Where gradients come from: one of the mechanisms."""

    selector: ClassVar[str]  # how runs are compared where the caller leaves it open
    by_rows: ClassVar[bool]  # whether it is charged by the rows it reads

    @classmethod
    def under(cls, guarantee: Guarantee, objective: Objective, ell: int | None) -> Self:
        """Return the gradient with the numbers of these terms; `ell` None: the usual number of rows a coordinate."""
        ...

    def usual_iterations(self, guarantee: Guarantee) -> int:
        """Return how many steps are taken where the caller leaves it open."""
        ...

    def shortened(self, most: int) -> Self:
        """Return the same with at most so many rows a coordinate, for a dry run."""
        ...

    @property
    def ell(self) -> int:
        """Rows a coordinate."""
        ...

    @property
    def charge(self) -> int:
        """What one gradient takes of the budget's charge."""
        ...

    @property
    def rows_read(self) -> int:
        """Rows one gradient reads."""
        ...

    @property
    def moment(self) -> float:
        """Gh, with E|gradient|^2 <= Gh^2, l2 left out."""
        ...

    @property
    def largest(self) -> float | None:
        """M >= |gradient|, surely, l2 left out; None if there is no such number."""
        ...

    @property
    def spread(self) -> float:
        """The sub-Gaussian spread of one coordinate."""
        ...

    def __call__(self, point: Vector, source: RowSource, rng: Generator) -> Vector:
        """Return an unbiased estimate of the mean gradient on the rows, l2 left out."""
        ...


class Scales:
    """What turns coordinates of gradients into shares of slices; looked up once for all steps of a fit.

    Coordinate j lies at (value - low_j) * slices/width_j, and draw i asks how much of [i, i+1] that fills; with one
    slice every draw asks about all of it.
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
            self._found[key] = part, draw, self._factors[part], start  # whoever is kept here keeps its id
        return self._found[key][2:]


@dataclass(frozen=True, eq=False)
class GradientAt(ObjectiveQuery):
    """Every coordinate of the gradient at a point, each a part that is asked of rows of its own.

    Its range is cut into the slices of `scales`, and draw i says how much of slice i the row's coordinate fills.
    """

    numbered: ClassVar[bool] = True
    objective: Objective
    point: Vector
    scales: "Scales"

    @property
    def parts(self) -> int:  # type: ignore[override]
        """One for each coordinate."""
        return len(self.objective.ranges.lows)

    def row_values(self, rows: Rows, part: NDArray[np.int64], draw: NDArray[np.int64]) -> Values:
        """Return how much of its slice each row's coordinate fills, from 0 to 1."""
        factor, start = self.scales.at(part, draw)
        values = self.objective.coordinates(rows, self.point, part)
        values *= factor
        values -= start
        return np.clip(values, 0.0, 1.0, out=values)


@dataclass(frozen=True)
class CoinGradient:
    """`ell` coins a coordinate, turned over with probability `mass`."""

    selector: ClassVar[str] = "coins"
    by_rows: ClassVar[bool] = True
    objective: Objective
    ell: int
    mass: float

    @classmethod
    def under(cls, guarantee: Guarantee, objective: Objective, ell: int | None) -> Self:
        """By default some ROWS_A_STEP rows a step, if LEAST_ITERATIONS remain."""
        if ell is None:
            wide = ceil(ROWS_A_STEP / len(objective.names))
            ell = max(1, min(wide, guarantee.terms.rows_per_query // LEAST_ITERATIONS))
        return cls(objective, ell, guarantee.coin_mass)

    def usual_iterations(self, guarantee: Guarantee) -> int:
        """As many coins a coordinate as one ordinary answer of the plan takes."""
        planned: int = guarantee.terms.rows_per_query
        return max(1, planned // self.ell)

    def shortened(self, most: int) -> Self:
        """With fewer coins."""
        return replace(self, ell=min(self.ell, most))

    @cached_property
    def scales(self) -> Scales:
        """One slice for each coin."""
        return Scales(self.objective.ranges, self.ell)

    @property
    def charge(self) -> int:
        """One a coin."""
        return self.rows_read

    @property
    def rows_read(self) -> int:
        """One row a coin."""
        return self.ell * len(self.objective.ranges.lows)

    @property
    def moment(self) -> float:
        """The smaller of two bounds: by variance, and surely."""
        ranges = self.objective.ranges
        by_variance = descent.coin_moment(ranges.gradient, ranges.widths.tolist(), ell=self.ell, mass=self.mass)
        return min(by_variance, self.largest)

    @property
    def largest(self) -> float:
        """Coins are bounded."""
        ranges = self.objective.ranges
        return descent.largest_gradient(ranges.lows.tolist(), ranges.highs.tolist(), mass=self.mass)

    @property
    def spread(self) -> float:
        """By Hoeffding's lemma."""
        return descent.spread(self.objective.ranges.widths.tolist(), ell=self.ell, mass=self.mass)

    def __call__(self, point: Vector, source: RowSource, rng: Generator) -> Vector:
        """Tally, debias."""
        query = GradientAt(self.objective, point, self.scales)
        counts = source.tally(query, draws=self.ell, mass=self.mass, rng=rng).reshape(-1, 2)
        shares = (counts[:, 1] / self.ell - self.mass) / (1 - 2 * self.mass)
        ranges = self.objective.ranges
        gradient: Vector = ranges.lows + ranges.widths * shares
        return gradient


@dataclass(frozen=True)
class LaplaceGradient:
    """`ell` rows a coordinate and Laplace noise, each coordinate `epsilon`-DP on all n rows."""

    selector: ClassVar[str] = "exponential"
    by_rows: ClassVar[bool] = False
    objective: Objective
    ell: int
    epsilon: float
    n: int

    @classmethod
    def under(cls, guarantee: Guarantee, objective: Objective, ell: int | None) -> Self:
        """By default as many rows a coordinate as an ordinary answer reads."""
        noisy_means.require("laplace")
        rows: int = guarantee.terms.rows
        ell = guarantee.terms.rows_per_query if ell is None else ell
        check.at_most("rows", rows, rows_per_coordinate=ell)
        return cls(objective, ell, guarantee.epsilon_for(ell), rows)

    def usual_iterations(self, guarantee: Guarantee) -> int:
        """A fixed number."""
        return LAPLACE_ITERATIONS

    def shortened(self, most: int) -> Self:
        """With fewer rows."""
        return replace(self, ell=min(self.ell, most))

    @property
    def charge(self) -> int:
        """n^2 epsilon^2 for a coordinate."""
        return len(self.objective.ranges.lows) * ceil(cost.private_cost(self.epsilon, n=self.n))

    @property
    def rows_read(self) -> int:
        """The rows of every coordinate."""
        return self.ell * len(self.objective.ranges.lows)

    @property
    def scale(self) -> float:
        """The noise of a coordinate rescaled to [0, 1]."""
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
        """Not sub-Gaussian: no finite number."""
        return float("inf")

    def __call__(self, point: Vector, source: RowSource, rng: Generator) -> Vector:
        """Sample, average, add noise."""
        ranges = self.objective.ranges
        ell = min(self.ell, len(source))  # made-up rows are few
        scale = Laplace(draws=ell, epsilon=self.epsilon).scale(len(source))
        query = GradientAt(self.objective, point, Scales(ranges))
        values = source.sample(query, WithoutReplacement(ell), rng).astype(np.float64)
        means = [noisy_means.laplace_mean(of_coordinate, scale) for of_coordinate in values.reshape(-1, ell)]
        gradient: Vector = ranges.lows + ranges.widths * np.array(means)
        return gradient


GRADIENTS: Mapping[str, type[NoisyGradient]] = {"coins": CoinGradient, "laplace": LaplaceGradient}
