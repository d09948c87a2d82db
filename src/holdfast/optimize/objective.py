"""An objective: a loss bound to a schema and a domain, with every range that the guarantee needs.

A domain is where the minimizer is searched for: a ball around zero, or a box with declared sides.

Given rows and a point, an objective returns one coordinate of each row's gradient, and each row's loss; both are
clipped to the ranges it states. A row that cannot be evaluated has gradient zero; its loss is zero if a declared
feature is missing, and the largest possible if a caller's own loss returns NaN. The interval of the loss is always
about these numbers. Bounds on the excess need more: the gradients must be those of the loss, so the ranges must clip
none of them. The ranges of linear losses are derived and never clip; those of a caller's own losses are only declared.
The `l2` term is exact and reads no rows.

A caller's loss is tried on made-up rows first: the same row among others, in another order, and alone. That finds
honest mistakes, not malice: like any function of the caller's, such a loss runs only in the caller's own process and is
never accepted over a network.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from holdfast import check
from holdfast.cached import cached_property
from holdfast.errors import InvalidArgument, InvalidQuery
from holdfast.guarantees.statistic import OneMean, Statistic
from holdfast.queries.evaluate import FAILURES, in_own_context, in_pieces, silence
from holdfast.queries.query import Packed, Packing, Query, Values
from holdfast.queries.synthetic import TRIED_ROWS, fault_of, synthetic_rows
from holdfast.randomness import Randomness
from holdfast.schema import Schema

if TYPE_CHECKING:
    from holdfast.optimize.losses import Loss

Vector = NDArray[np.float64]
Interval = tuple[float, float]
FARTHEST = 1e100  # how far from zero a minimizer is looked for: squares of distances must not overflow
Rows = pl.DataFrame | Sequence[Packed]  # drawn rows, or their numbers as packed by the objective's packings


class Domain(Protocol):
    """A closed convex set."""

    @property
    def diameter(self) -> float:
        """The largest distance between two of its points."""

    @property
    def center(self) -> Vector:
        """Where descent begins."""

    @property
    def norm(self) -> float:
        """The largest norm of its points."""

    @property
    def text(self) -> str:
        """A readable description."""

    def project(self, point: Vector) -> Vector:
        """Return the nearest point of the set."""

    def reach(self, largest: Vector) -> float:
        """Return the largest |<point, x>| over points of the set and |x_j| <= largest_j."""

    def least(self, direction: Vector) -> float:
        """Return the smallest <direction, point> over points of the set."""


@dataclass(frozen=True)
class Ball:
    """All points whose norm is at most `radius`."""

    radius: float
    dimension: int

    @property
    def diameter(self) -> float:
        """Twice the radius."""
        return 2 * self.radius

    @property
    def center(self) -> Vector:
        """Zero."""
        return np.zeros(self.dimension)

    @property
    def norm(self) -> float:
        """The radius."""
        return self.radius

    @property
    def text(self) -> str:
        """A readable description."""
        return f"norm at most {self.radius:.15g}"

    def project(self, point: Vector) -> Vector:
        """Shrink a point that lies outside."""
        length = float(np.linalg.norm(point))
        return point if length <= self.radius else point * (self.radius / length)

    def reach(self, largest: Vector) -> float:
        """By the Cauchy-Schwarz inequality."""
        return self.radius * float(np.linalg.norm(largest))

    def least(self, direction: Vector) -> float:
        """Attained at the boundary point opposite to the direction."""
        return -self.radius * float(np.linalg.norm(direction))


@dataclass(frozen=True)
class Box:
    """All points with every coordinate within its own bounds."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def diameter(self) -> float:
        """The diagonal."""
        return float(np.linalg.norm(np.subtract(self.high, self.low)))

    @property
    def center(self) -> Vector:
        """The middle."""
        return np.add(self.high, self.low) / 2

    @property
    def norm(self) -> float:
        """The norm of the corner farthest from zero."""
        return float(np.linalg.norm(np.maximum(np.abs(self.low), np.abs(self.high))))

    @property
    def text(self) -> str:
        """A readable description."""
        if len(set(self.low)) == len(set(self.high)) == 1:
            return f"coordinates in [{self.low[0]:.15g}, {self.high[0]:.15g}]"
        return f"coordinates in a box of {len(self.low)} sides"

    def project(self, point: Vector) -> Vector:
        """Clip every coordinate."""
        return np.clip(point, self.low, self.high)

    def reach(self, largest: Vector) -> float:
        """Coordinate by coordinate."""
        return float(np.maximum(np.abs(self.low), np.abs(self.high)) @ largest)

    def least(self, direction: Vector) -> float:
        """Coordinate by coordinate."""
        return float(np.minimum(direction * self.low, direction * self.high).sum())


def domain_of(dimension: int, radius: Any = None, box: Any = None) -> Domain:
    """Return the domain the caller declared: `radius`, or `box` as one pair or one pair for each coordinate."""
    if (radius is None) == (box is None):
        raise InvalidArgument("Give either radius or box: where to look for the minimizer must be declared.")
    if radius is not None:
        check.positive(radius=radius)
        check.at_most("the farthest that is looked", FARTHEST, radius=float(radius))
        return Ball(float(radius), dimension)
    pairs = list(box) if isinstance(box, list) else [box] * dimension
    if len(pairs) != dimension:
        raise InvalidArgument(f"box must have one pair for each of {dimension} coordinates; got {len(pairs)}.")
    sides = [check.interval(f"box[{j}]" if isinstance(box, list) else "box", pair) for j, pair in enumerate(pairs)]
    check.at_most("the farthest that is looked", FARTHEST, box=max(max(-low, high) for low, high in sides))
    return Box(tuple(low for low, _ in sides), tuple(high for _, high in sides))


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


# -- losses that the caller wrote ------------------------------------------------------------------------------------


Function = Callable[[pl.DataFrame, Vector], ArrayLike]  # a loss's `values` or `gradients`


@dataclass(frozen=True)
class OwnObjective:
    """A caller's loss. A row on which it fails or returns NaN gets the largest possible loss and a zero gradient."""

    loss: "Loss"
    ranges: Ranges

    @classmethod
    def of(cls, loss: "Loss", schema: Schema, domain: Domain) -> "OwnObjective":
        """Check what the loss declares, then try it on made-up rows; reads no data."""
        check.whole(dimension=loss.dimension)
        for column in loss.columns:
            schema[column]
        low, high = check.interval("gradient_range", loss.gradient_range)
        values = check.interval("value_range", loss.value_range)
        d = loss.dimension
        lows, highs = np.full(d, min(0.0, low)), np.full(d, max(0.0, high))
        steepest = float(np.linalg.norm(np.maximum(np.abs(lows), np.abs(highs))))
        lipschitz = getattr(loss, "lipschitz", steepest)
        extra = {"l2": getattr(loss, "l2", 0.0), "curvature": getattr(loss, "curvature", 0.0)}
        check.positive(lipschitz=lipschitz)
        check.number(**extra)
        if min(extra.values()) < 0:
            raise InvalidArgument("l2 and curvature must be at least 0.")
        gradient = min(steepest, lipschitz)
        ranges = Ranges(lows, highs, with_zero(values), gradient, gradient, extra["l2"] + extra["curvature"])
        objective = cls(loss, ranges)
        objective._try(schema, domain)
        return objective

    @property
    def l2(self) -> float:
        """The factor of half the squared norm."""
        return float(getattr(self.loss, "l2", 0.0))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns the loss gets."""
        return tuple(self.loss.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the coordinates."""
        named = getattr(self.loss, "names", None)
        return tuple(map(str, named)) if named else tuple(f"x{j}" for j in range(self.loss.dimension))

    @property
    def text(self) -> str:
        """A readable description."""
        return str(getattr(self.loss, "text", None) or f"{type(self.loss).__name__} loss")

    @property
    def identity(self) -> str | None:
        """The identity that the caller gave."""
        given = getattr(self.loss, "identity", None)
        return None if given is None else f"own: {given}"

    @property
    def work(self) -> int:
        """Steps of work per row; the cost of the caller's own code is unknown."""
        return len(self.columns)

    packings: ClassVar[tuple[()]] = ()  # the loss needs the rows themselves
    classifies: ClassVar[bool] = False

    def coordinates(self, rows: Rows, point: Vector, which: NDArray[np.int64]) -> Vector:
        """One coordinate of each gradient."""
        values: Vector = self.gradients(rows, point)[np.arange(len(which)), which]
        return values

    def gradients(self, rows: Rows, point: Vector) -> Vector:
        """One gradient per row."""
        assert isinstance(rows, pl.DataFrame)
        return _evaluate(self.loss.gradients, rows, point, (self.loss.dimension,))

    def values(self, rows: Rows, point: Vector) -> Vector:
        """One loss per row."""
        assert isinstance(rows, pl.DataFrame)
        return _evaluate(self.loss.values, rows, point, (), self.ranges.values[1])

    def values_at(self, point: Vector) -> Interval:
        """The declared range, at every point."""
        return self.ranges.values

    def coefficients(self, point: Vector) -> dict[str, float] | None:
        """None: only the author of the loss knows what the coordinates mean."""
        return None

    def slack(self, distance: float) -> dict[str, float] | None:
        """None, for the same reason."""
        return None

    def right(self, rows: Rows, point: Vector) -> NDArray[np.bool_]:
        """Not available: a caller's loss does not classify."""
        raise NotImplementedError  # never called, since `classifies` is false

    @silence
    def _try(self, schema: Schema, domain: Domain) -> None:
        rng = Randomness(0).generator()
        shown = Schema(tuple(schema[name] for name in self.columns), schema.dataset)
        rows = synthetic_rows(shown, TRIED_ROWS, rng, hostile=0.1)
        for spot in (domain.center, domain.project(domain.center + rng.normal(size=self.loss.dimension))):
            for function, shape in ((self.loss.gradients, (self.loss.dimension,)), (self.loss.values, ())):
                _must_work(function, rows, spot, shape)
                if fault_of(partial(_evaluate, function, point=spot, shape=shape), shown) is not None:
                    raise InvalidQuery("A loss must treat each row by itself; this one depends on other rows.")


def _shaped(result: ArrayLike, count: int, shape: tuple[int, ...], missing: float = 0.0) -> Vector:
    array = np.asarray(result, dtype=np.float64)
    if array.shape != (count, *shape):
        raise InvalidQuery(f"A loss must give arrays of shape {(count, *shape)} here; got {array.shape}.")
    array = np.array(array)
    array[np.isnan(array)] = missing
    return array


def _must_work(function: Function, rows: pl.DataFrame, point: Vector, shape: tuple[int, ...]) -> None:
    """Refuse a loss of the wrong shape, or one that fails on every made-up row."""
    fault: BaseException | None = None
    for batch in (rows, *rows.iter_slices(1)):
        try:
            result = in_own_context(function, batch, point)
        except FAILURES as error:
            fault = error
        else:
            _shaped(result, batch.height, shape)
            return
    raise InvalidQuery(f"The loss fails on every made-up row, with {type(fault).__name__}.")


def _evaluate(
    function: Function, rows: pl.DataFrame, point: Vector, shape: tuple[int, ...], missing: float = 0.0
) -> Vector:
    """Evaluate the batch; if that fails, evaluate parts of it, so that a failing row does not affect the others."""
    pieces = in_pieces(
        lambda batch: _shaped(function(batch, point), batch.height, shape, missing),
        rows,
        FAILURES,
        lambda count: np.full((count, *shape), missing),
    )
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
