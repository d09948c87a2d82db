"""A loss made ready: bound to a schema and a domain, with every range that the guarantee needs.

An objective says, for some rows and a point, one coordinate of each row's gradient, and each row's loss. What it says
is clipped to the ranges it states. A row it cannot speak about has no slope; its loss is zero where a declared feature
is missing, the largest there is where a loss of one's own gives no number. The interval of the loss is about these
numbers, always. Bounds on the excess need more: gradients that are those of the loss, so ranges that clip none
of them. The ranges of linear losses are worked out and never do; those of one's own losses are only declared. The `l2`
term is exact and reads nothing.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.guarantees.statistic import OneMean, Statistic
from holdfast.optimize.features import INTERCEPT, SCALES, Matrix, Number
from holdfast.queries.query import Query, Values

if TYPE_CHECKING:
    from holdfast.optimize.losses import LinearLoss

Vector = NDArray[np.float64]
Interval = tuple[float, float]


@dataclass(frozen=True)
class Ranges:
    """What is known of a loss before any row is read."""

    lows: Vector  # of each gradient coordinate of a row, l2 left out
    highs: Vector
    values: Interval  # of a row's loss on the domain, l2 left out
    gradient: float  # largest norm of the mean gradient, l2 left out
    lipschitz: float  # largest norm of one row's gradient, l2 left out
    curvature: float  # strong convexity of the mean loss, l2 included

    @property
    def widths(self) -> Vector:
        """How wide each gradient coordinate is."""
        return self.highs - self.lows


class Objective(Protocol):
    """A loss made ready."""

    @property
    def ranges(self) -> Ranges:
        """Everything known beforehand."""
        ...

    @property
    def l2(self) -> float:
        """The factor of half the squared norm."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """What the coordinates are called."""
        ...

    @property
    def text(self) -> str:
        """How it reads."""
        ...

    @property
    def identity(self) -> str | None:
        """Canonical text; None if it cannot be decided."""
        ...

    def coordinates(self, rows: pl.DataFrame, point: Vector, which: NDArray[np.int64]) -> Vector:
        """Return coordinate which[i] of row i's gradient, within its range."""
        ...

    def values(self, rows: pl.DataFrame, point: Vector) -> Vector:
        """Return each row's loss, l2 left out; not yet clipped."""
        ...

    def values_at(self, point: Vector) -> Interval:
        """Return the range of a row's loss at this point, l2 left out."""
        ...

    def coefficients(self, point: Vector) -> dict[str, float] | None:
        """Return the model at this point in the features' own units; None if there is no such thing."""
        ...


@dataclass(frozen=True)
class LinearObjective:
    """A loss of a linear model: a function of <point, features> and the target."""

    loss: "LinearLoss"
    matrix: Matrix
    target: Number
    ranges: Ranges

    @property
    def l2(self) -> float:
        """The factor of half the squared norm."""
        return self.loss.l2

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(dict.fromkeys((*self.matrix.columns, *self.target.columns)))

    @property
    def names(self) -> tuple[str, ...]:
        """The features, then the intercept."""
        return self.loss.names

    @property
    def text(self) -> str:
        """How it reads."""
        return self.loss.text

    @property
    def identity(self) -> str | None:
        """Canonical text, from features, target and settings."""
        parts = [each.identity for each in (*self.matrix.numbers, self.target)]
        return None if None in parts else f"{self.loss.settings}; {'; '.join(map(str, parts))}"

    def coordinates(self, rows: pl.DataFrame, point: Vector, which: NDArray[np.int64]) -> Vector:
        """Slope times feature; a row with a missing value says zero."""
        features = self.matrix.of(rows)
        values = self.loss.slopes(point @ features, self._target(rows))
        values *= features[which, np.arange(rows.height)]
        values[np.isnan(values)] = 0.0
        return np.clip(values, self.ranges.lows[which], self.ranges.highs[which])

    def values(self, rows: pl.DataFrame, point: Vector) -> Vector:
        """Return each row's loss; zero where a value is missing."""
        values = self.loss.losses(point @ self.matrix.of(rows), self._target(rows))
        values[np.isnan(values)] = 0.0
        return values

    def values_at(self, point: Vector) -> Interval:
        """Return the range that this point's own reach allows."""
        first, last = self.matrix.ranges
        reach = float(np.abs(point) @ np.maximum(np.abs(first), np.abs(last)))
        low, high = with_zero(self.loss.value_range(reach))
        return low, max(high, low + 1e-9)  # a range of a single value is no range

    def coefficients(self, point: Vector) -> dict[str, float]:
        """Undo the stretching of features (and of the target, where the model predicts it)."""
        (first, last), weights, offset = SCALES[self.matrix.scale], [], 0.0
        for each, weight in zip(self.matrix.numbers, point.tolist(), strict=False):
            factor = (last - first) / (each.high - each.low)
            weights.append(weight * factor)
            offset += weight * (first - factor * each.low)
        if self.matrix.intercept:
            offset += float(point[-1])
        if self.loss.predicts_target:
            low, high = self.loss.target_range
            factor = (self.target.high - self.target.low) / (high - low)
            weights = [factor * weight for weight in weights]
            offset = self.target.low + factor * (offset - low)
        names = (each.name for each in self.matrix.numbers)
        return dict(zip(names, weights, strict=True)) | {INTERCEPT: offset}

    def _target(self, rows: pl.DataFrame) -> Vector:
        return self.target.stretched(rows, *self.loss.target_range)


class ObjectiveQuery(Query):
    """A query that asks what rows say about an objective, as numbers in [0, 1]."""

    objective: Objective

    @property
    def statistic(self) -> Statistic:
        """A mean, or several."""
        return OneMean()

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return self.objective.columns

    @property
    def text(self) -> str:
        """How it reads."""
        return self.objective.text


@dataclass(frozen=True, eq=False)
class LossAt(ObjectiveQuery):
    """The statistical query that certifies a point: the mean of its loss, l2 included."""

    objective: Objective
    point: Vector

    @property
    def exact(self) -> float:
        """The l2 term."""
        return self.objective.l2 / 2 * float(self.point @ self.point)

    @cached_property
    def bounds(self) -> Interval:
        """The range of the loss at this point."""
        low, high = self.objective.values_at(self.point)
        return low + self.exact, high + self.exact

    def evaluate(self, rows: pl.DataFrame) -> Values:
        """Return each row's loss, clipped and rescaled to [0, 1]."""
        low, high = self.objective.values_at(self.point)
        values: Vector = np.clip((self.objective.values(rows, self.point) - low) / (high - low), 0.0, 1.0)
        return values


def with_zero(values: Interval) -> Interval:
    """Return the range widened to contain 0, which is what a row with missing values says."""
    return min(0.0, values[0]), max(0.0, values[1])
