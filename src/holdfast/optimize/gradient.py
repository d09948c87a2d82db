"""Noisy gradients: every coordinate a statistical query, all of them in one pass over freshly drawn rows.

    coins     ell draws for each coordinate, whose range is cut into ell slices; draw i tosses one coin, its bias how
              much of slice i the row's coordinate fills; each coin is flipped with probability a; the share of ones is
              debiased, not clipped: unbiased, as the slices add up to the range.
    laplace   ell rows for each coordinate without replacement, their mean plus Laplace noise (A1).

No row answers for two coordinates: one draw that answered d coins would have 2^d outcomes. Slices vary less than coins
that all ask about the whole range: a fit leaves most gradients near zero, and then most slices full or empty.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast.guarantees import information
from holdfast.guarantees.mathematics import descent
from holdfast.mechanisms import noise
from holdfast.mechanisms.laplace import Laplace
from holdfast.optimize.objective import Objective, Vector
from holdfast.rows import draws
from holdfast.rows.base import RowSource

CELLS = 1 << 22  # numbers gathered at once


class Oracle(Protocol):
    """Where gradients come from."""

    @property
    def ell(self) -> int:
        """Rows a coordinate."""
        ...

    @property
    def flips(self) -> int:
        """What one gradient costs."""
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


@dataclass(frozen=True)
class CoinGradient:
    """`ell` coins a coordinate, flipped with probability `mass`."""

    objective: Objective
    ell: int
    mass: float

    @property
    def flips(self) -> int:
        """One flip a coin."""
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
        """Draw, evaluate, toss, flip, debias."""
        ranges = self.objective.ranges
        d = len(ranges.lows)
        ones = np.zeros(d, dtype=np.int64)
        for which, piece in _passes(d, self.ell, len(self.objective.columns)):
            rows = source.gather(draws.with_replacement(rng, len(source), which.size), self.objective.columns)
            bias = self.objective.coordinates(rows, point, which)  # secret, like everything up to the coins
            bias -= ranges.lows[which]
            bias *= (self.ell / ranges.widths)[which]
            bias -= piece
            ones += np.bincount(which[rng.random(which.size) < bias], minlength=d)
        released = rng.binomial(ones, 1 - self.mass) + rng.binomial(self.ell - ones, self.mass)
        shares = (released / self.ell - self.mass) / (1 - 2 * self.mass)
        gradient: Vector = ranges.lows + ranges.widths * shares
        return gradient


@dataclass(frozen=True)
class LaplaceGradient:
    """`ell` rows a coordinate and Laplace noise, each coordinate `epsilon`-DP on all n rows."""

    objective: Objective
    ell: int
    epsilon: float
    n: int

    @property
    def flips(self) -> int:
        """n^2 epsilon^2 flips a coordinate."""
        return len(self.objective.ranges.lows) * ceil(information.private_cost(self.epsilon, n=self.n))

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
        """Draw, evaluate, average, add noise."""
        ranges = self.objective.ranges
        d = len(ranges.lows)
        ell = min(self.ell, len(source))  # made-up rows are few
        scale = Laplace(draws=ell, epsilon=self.epsilon).scale(len(source))
        together = max(1, min(d, CELLS // max(1, ell * len(self.objective.columns))))
        means = np.empty(d)
        for start in range(0, d, together):
            block = np.arange(start, min(d, start + together))
            indices = np.concatenate([draws.without_replacement(rng, len(source), ell) for _ in block])
            which = np.repeat(block, ell)
            rows = source.gather(indices, self.objective.columns)
            said = (self.objective.coordinates(rows, point, which) - ranges.lows[which]) / ranges.widths[which]
            for j, values in zip(block, np.clip(said, 0.0, 1.0).reshape(len(block), ell), strict=True):
                means[j] = noise.laplace_mean(values, scale)
        gradient: Vector = ranges.lows + ranges.widths * means
        return gradient


def _passes(d: int, ell: int, columns: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield which coordinate and which slice of it each draw answers, in parts that fit in memory: usually one."""
    size = max(1, CELLS // max(1, columns))
    for start in range(0, d * ell, size):
        yield np.divmod(np.arange(start, min(d * ell, start + size)), ell)
