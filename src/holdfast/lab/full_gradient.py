"""What people did before: descend along the full gradient of all rows, exactly or with Gaussian noise.

Every step reads every row, k queries of n steps each make k d n^2 gradient evaluations. Here to be compared with; the
exact form (`sigma` 0) fits the rows, not the population, once losses depend on earlier answers.
"""

from dataclasses import dataclass
from math import ceil, inf

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast.errors import InvalidArgument
from holdfast.guarantees.mathematics import cost
from holdfast.optimize.objective import Objective, ObjectiveQuery, Rows, Vector
from holdfast.queries.query import Values
from holdfast.rows.draws import Consecutive
from holdfast.rows.source import RowSource

AT_ONCE = 1 << 16  # rows


@dataclass(frozen=True)
class FullGradient:
    """The mean gradient of all n rows, each coordinate with noise of `sigma` times its width."""

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
        """1/(4 sigma^2) for a coordinate; exact gradients are protected by nothing and priced at nothing."""
        if self.sigma == 0:
            return 0
        return len(self.objective.ranges.lows) * ceil(cost.gaussian_cost(self.sigma, n=self.n))

    @property
    def rows_read(self) -> int:
        """A row serves all coordinates here, so n rows; n d gradient evaluations."""
        return self.n

    @property
    def evaluations(self) -> int:
        """Gradient coordinates evaluated for one step."""
        return self.n * len(self.objective.ranges.lows)

    @property
    def moment(self) -> float:
        """Gradient and noise."""
        noise = self.sigma * float(np.linalg.norm(self.objective.ranges.widths))
        return float(np.hypot(self.objective.ranges.gradient, noise))

    @property
    def largest(self) -> float | None:
        """The gradient itself if there is no noise."""
        return None if self.sigma else self.objective.ranges.gradient

    @property
    def spread(self) -> float:
        """Gaussian noise, in units of the widest coordinate."""
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
    """All coordinates of each row's gradient, from 0 to 1. No release could pay for this: one row has 2^d outcomes."""

    objective: Objective
    point: Vector

    def row_values(self, rows: Rows, part: NDArray[np.int64], draw: NDArray[np.int64]) -> Values:
        """Return one line per row."""
        ranges = self.objective.ranges
        lines = (self.objective.gradients(rows, self.point) - ranges.lows) / ranges.widths
        return np.clip(lines, 0.0, 1.0, out=lines)
