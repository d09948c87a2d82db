"""An objective: a loss bound to a schema and a domain, with every range that the guarantee needs.

Given rows and a point, an objective returns one coordinate of each row's gradient, and each row's loss; both are
clipped to the ranges it states. A row that cannot be evaluated has gradient zero; its loss is zero if a declared
feature is missing, and the largest possible if a caller's own loss returns NaN. The interval of the loss is always
about these numbers. Bounds on the excess need more: the gradients must be those of the loss, so the ranges must clip
none of them. The ranges of linear losses are derived and never clip; those of a caller's own losses are only declared.
The `l2` term is exact and reads no rows.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import hypot
from typing import TYPE_CHECKING, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.guarantees.statistic import OneMean, Statistic
from holdfast.optimize.features import INTERCEPT, SCALES, Matrix
from holdfast.queries.query import Packed, Packing, Query, Values

if TYPE_CHECKING:
    from holdfast.optimize.losses import LinearLoss

Vector = NDArray[np.float64]
Interval = tuple[float, float]
Rows = pl.DataFrame | Sequence[Packed]  # drawn rows, or their numbers as packed by the objective's packings


@dataclass(frozen=True)
class Ranges:
    """What is known about a loss before any row is read."""

    lows: Vector  # lower bounds of a row's gradient coordinates, without l2
    highs: Vector
    values: Interval  # range of a row's loss on the domain, without l2
    gradient: float  # largest norm of the mean gradient, without l2
    lipschitz: float  # largest norm of one row's gradient, without l2
    curvature: float  # strong convexity of the mean loss, with l2

    @property
    def widths(self) -> Vector:
        """The width of each gradient coordinate's range."""
        return self.highs - self.lows


class Objective(Protocol):
    """A loss bound to a schema and a domain."""

    @property
    def ranges(self) -> Ranges:
        """What is known before any row is read."""

    @property
    def l2(self) -> float:
        """The factor of half the squared norm."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the coordinates."""

    @property
    def text(self) -> str:
        """A readable description."""

    @property
    def identity(self) -> str | None:
        """Canonical text; None if equal losses cannot be recognized."""

    @property
    def work(self) -> int:
        """Steps of work per row."""

    @property
    def classifies(self) -> bool:
        """Whether its model predicts yes or no; then `right` tells for which rows the prediction is right."""

    @property
    def packings(self) -> tuple[Packing, ...]:
        """The numbers of a row that suffice to evaluate the objective; empty if it needs the rows themselves."""

    def coordinates(self, rows: Rows, point: Vector, which: NDArray[np.int64]) -> Vector:
        """Return coordinate which[i] of row i's gradient, in a new array; not yet clipped."""

    def gradients(self, rows: Rows, point: Vector) -> Vector:
        """Return each row's whole gradient, one line per row, without l2; not yet clipped."""

    def right(self, rows: Rows, point: Vector) -> NDArray[np.bool_]:
        """Return for which rows the model is right."""

    def values(self, rows: Rows, point: Vector) -> Vector:
        """Return each row's loss, without l2; not yet clipped."""

    def values_at(self, point: Vector) -> Interval:
        """Return the range of a row's loss at this point, without l2."""

    def coefficients(self, point: Vector) -> dict[str, float] | None:
        """Return the model at this point in the features' own units; None if the objective has no such model."""

    def slack(self, distance: float) -> dict[str, float] | None:
        """Return how far each coefficient can move if the point moves by `distance`; None as above."""


@dataclass(frozen=True)
class LinearObjective:
    """A loss of a linear model: a function of <point, features> and the target."""

    loss: "LinearLoss"
    matrix: Matrix
    ranges: Ranges

    @property
    def l2(self) -> float:
        """The factor of half the squared norm."""
        return self.loss.l2

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return self.matrix.columns

    @property
    def names(self) -> tuple[str, ...]:
        """The features, then the intercept."""
        return self.loss.names

    @property
    def text(self) -> str:
        """A readable description."""
        return self.loss.text

    @property
    def identity(self) -> str | None:
        """Canonical text, from features, target and settings."""
        parts = [each.identity for each in (*self.matrix.numbers, self.matrix.target.number)]
        return None if None in parts else f"{self.loss.settings}; {'; '.join(map(str, parts))}"

    @property
    def work(self) -> int:
        """Steps of work per row."""
        return sum(each.work for each in (*self.matrix.numbers, self.matrix.target.number))

    @property
    def classifies(self) -> bool:
        """Whether the loss is for a classifier."""
        return self.loss.classifies

    @property
    def packings(self) -> tuple[Packing, ...]:
        """Features and target, scaled."""
        return self.matrix.packings

    def coordinates(self, rows: Rows, point: Vector, which: NDArray[np.int64]) -> Vector:
        """Slope times feature; zero for a row with a missing value."""
        features, target = self._numbers(rows)
        values = self.loss.slopes(self.matrix.predicted(features, point), target)  # NaN marks what is missing
        values *= self.matrix.coordinates(features, which)
        values[np.isnan(values)] = 0.0
        return values

    def gradients(self, rows: Rows, point: Vector) -> Vector:
        """Slope times features."""
        features, target = self._numbers(rows)
        lines = self.matrix.gradients(features, self.loss.slopes(self.matrix.predicted(features, point), target))
        lines[np.isnan(lines)] = 0.0
        return lines

    def values(self, rows: Rows, point: Vector) -> Vector:
        """Return each row's loss; zero where a value is missing."""
        features, target = self._numbers(rows)
        values = self.loss.losses(self.matrix.predicted(features, point), target)
        values[np.isnan(values)] = 0.0
        return values

    def right(self, rows: Rows, point: Vector) -> NDArray[np.bool_]:
        """Return whether the model predicts yes for a yes and no for a no; false where a value is missing."""
        features, target = self._numbers(rows)
        z, middle = self.matrix.predicted(features, point), sum(self.matrix.target.within) / 2
        right: NDArray[np.bool_] = ~np.isnan(z + target) & ((z > 0) == (target > middle))
        return right

    def values_at(self, point: Vector) -> Interval:
        """Return the range for the predictions that are possible at this point."""
        first, last = self.matrix.ranges
        reach = float(np.abs(point) @ np.maximum(np.abs(first), np.abs(last)))
        low, high = with_zero(self.loss.value_range(reach))
        return low, max(high, low + 1e-9)  # a range must have positive width

    def coefficients(self, point: Vector) -> dict[str, float]:
        """Undo the stretching of features (and of the target, where the model predicts it)."""
        (first, last), weights, offset = SCALES[self.matrix.features.scale], [], 0.0
        for each, weight in zip(self.matrix.numbers, point.tolist(), strict=False):
            factor = (last - first) / (each.high - each.low)
            weights.append(weight * factor)
            offset += weight * (first - factor * each.low)
        if self.matrix.intercept:
            offset += float(point[-1])
        if self.loss.predicts_target:
            low, high = self.loss.target_range
            target = self.matrix.target.number
            factor = (target.high - target.low) / (high - low)
            weights = [factor * weight for weight in weights]
            offset = target.low + factor * (offset - low)
        names = (each.name for each in self.matrix.numbers)
        return dict(zip(names, weights, strict=True)) | {INTERCEPT: offset}

    def slack(self, distance: float) -> dict[str, float]:
        """Each weight is one coordinate times a factor; the intercept is a sum over all of them (Cauchy-Schwarz)."""
        zero = np.zeros(self.matrix.width)
        at_zero = self.coefficients(zero)
        moved = [self.coefficients(line) for line in np.eye(len(zero))]  # the map is affine
        return {
            name: distance * hypot(*(one[name] - start for one in moved))  # whose squares do not overflow
            for name, start in at_zero.items()
        }

    def _numbers(self, rows: Rows) -> tuple[Vector, Vector]:
        """Return features (one line per row) and target, always rounded to single precision first."""
        return self.matrix.widened(self.matrix.of(rows) if isinstance(rows, pl.DataFrame) else rows)


class ObjectiveQuery(Query):
    """A query that evaluates something about an objective on rows, as numbers in [0, 1]."""

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
        """A readable description."""
        return self.objective.text

    @property
    def packings(self) -> tuple[Packing, ...]:  # type: ignore[override]
        """What the objective needs of a row."""
        return self.objective.packings

    @abstractmethod
    def row_values(self, rows: Rows, part: NDArray[np.int64], draw: NDArray[np.int64]) -> Values:
        """Return the value of row i as draw `draw[i]` of part `part[i]`."""

    def evaluate(self, rows: pl.DataFrame) -> Values:
        """Return the values of these rows as draws 0, 1, ... of the first part."""
        draw = np.arange(rows.height)
        return self.row_values(rows, np.zeros_like(draw), draw)

    def evaluate_parts(self, rows: pl.DataFrame, part: NDArray[np.int64], draw: NDArray[np.int64]) -> Values:
        """Return the values of these rows."""
        return self.row_values(rows, part, draw)

    def evaluate_packed(self, lines: Sequence[Packed], part: NDArray[np.int64], draw: NDArray[np.int64]) -> Values:
        """Return the same values from packed rows."""
        return self.row_values(lines, part, draw)


@dataclass(frozen=True, eq=False)
class AccuracyAt(ObjectiveQuery):
    """The share of rows that a linear classifier gets right; a row with a missing value counts as wrong."""

    objective: Objective
    point: Vector

    def row_values(self, rows: Rows, part: NDArray[np.int64], draw: NDArray[np.int64]) -> Values:
        """Return whether each row is classified correctly."""
        return self.objective.right(rows, self.point)


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

    def row_values(self, rows: Rows, part: NDArray[np.int64], draw: NDArray[np.int64]) -> Values:
        """Return each row's loss, clipped and rescaled to [0, 1]."""
        low, high = self.objective.values_at(self.point)
        values: Vector = np.clip((self.objective.values(rows, self.point) - low) / (high - low), 0.0, 1.0)
        return values


def with_zero(values: Interval) -> Interval:
    """Return the range widened to contain 0, the value of a row with missing values."""
    return min(0.0, values[0]), max(0.0, values[1])
