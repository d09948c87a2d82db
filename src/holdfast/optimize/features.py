"""Linear models: which numbers of a row they see, scaled from the declaration, never from the data; their objective.

A feature is a column or a row-wise expression with declared bounds; values outside are clipped to them, then stretched
to [-1, 1] (or [0, 1]). Yes-or-no features need no bounds. A row with any missing value has loss and gradient zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import hypot
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast import check
from holdfast.cached import cached_property
from holdfast.errors import InvalidArgument
from holdfast.optimize.objective import Interval, Ranges, Rows, Vector, with_zero
from holdfast.queries.build import build_mean, declare_once
from holdfast.queries.query import Packed, Packing, Query
from holdfast.rows.buffers import BufferPool
from holdfast.schema import Schema, Type

if TYPE_CHECKING:
    from holdfast.optimize.losses import LinearLoss

Bounds = tuple[float, float] | None
Features = Mapping[str, Bounds] | Sequence[str]  # columns (or expressions) with bounds, or columns that share theirs
_pool = BufferPool()  # a step's matrix takes megabytes: page faults of a new one would cost as much as filling it
INTERCEPT = "intercept"  # the name of a model's constant term
SCALES = {"symmetric": (-1.0, 1.0), "unit": (0.0, 1.0)}


def declared(features: Features, within: Bounds) -> tuple[tuple[str, Bounds], ...]:
    """Return names with bounds from `{"distance": (0, 5000)}`, or from a list of names and bounds for all of them."""
    if isinstance(features, Mapping):
        if within is not None:
            raise InvalidArgument("within must be left out when every feature has bounds of its own.", name="within")
        pairs = list(features.items())
    elif isinstance(features, Sequence) and not isinstance(features, str):
        pairs = [(name, within) for name in features]
    else:
        raise InvalidArgument(
            f"features must be a list of columns or a mapping of columns to bounds; got {features!r}.", name="features"
        )
    if not pairs:
        raise InvalidArgument("features must name at least one column; got none.", name="features")
    for name, _ in pairs:
        if not isinstance(name, str):
            raise InvalidArgument(f"features must be named by text; got {name!r}.", name="features")
        if name == INTERCEPT:
            raise InvalidArgument(
                f"features must not contain {INTERCEPT!r}, the name of the constant term; write '{INTERCEPT} + 0'.",
                name="features",
            )
    if len({name for name, _ in pairs}) < len(pairs):
        raise InvalidArgument("features must differ from each other; one is named twice.", name="features")
    return tuple((name, None if b is None else check.interval(f"bounds of {name!r}", b)) for name, b in pairs)


@dataclass(frozen=True)
class Number:
    """One number of a row in [low, high]: a plain column where possible, else a checked expression."""

    name: str
    low: float
    high: float
    query: Query | None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return (self.name,) if self.query is None else self.query.columns

    @property
    def identity(self) -> str | None:
        """Canonical text."""
        if self.query is None:
            return f"{self.name!r} in [{self.low!r}, {self.high!r}]"
        return self.query.identity

    @property
    def work(self) -> int:
        """Steps of work per row."""
        return 1 if self.query is None else self.query.work

    def raw(self, rows: pl.DataFrame) -> tuple[Vector, float, float]:
        """Return one value per row (NaN if missing) and the range to clip them to."""
        if self.query is not None:
            return self.query.evaluate(rows).astype(np.float64, copy=False), 0.0, 1.0
        values = rows.get_column(self.name)
        if values.dtype == pl.Boolean or values.null_count():
            values = values.cast(pl.Float64)
        return values.to_numpy(), self.low, self.high

    def stretch(self, rows: pl.DataFrame, low: float, high: float, out: NDArray[np.float32]) -> None:
        """Write values clipped to the declared bounds and stretched to [low, high]; NaN if missing."""
        values, first, last = self.raw(rows)
        if values.dtype.itemsize == 1:  # only 256 possible values: stretch each once, then look it up
            out[...] = _table(values.dtype, first, last, low, high).take(values.view(np.uint8))
        else:
            _stretch(values, first, last, low, high, out)


@lru_cache(64)
def _table(dtype: np.dtype[Any], first: float, last: float, low: float, high: float) -> NDArray[np.float32]:
    table = np.empty(256, np.float32)
    _stretch(np.arange(256, dtype=np.uint8).view(dtype), first, last, low, high, table)
    table.flags.writeable = False  # shared
    return table


def _stretch(
    values: NDArray[Any], first: float, last: float, low: float, high: float, out: NDArray[np.float32]
) -> None:
    share = (np.clip(values.astype(np.float64), first, last) - first) / (last - first)
    np.clip(low + (high - low) * share, low, high, out=out, casting="same_kind")


def number(name: str, bounds: Bounds, schema: Schema) -> Number:
    """Return a declared number, checked against the schema."""
    if name in schema:
        kind = schema[name].type
        bounds = schema[name].bounds if bounds is None else bounds
        if kind is Type.BOOL and bounds in (None, (0.0, 1.0)):
            return Number(name, 0.0, 1.0, None)
        if kind.is_number and bounds is not None:
            return Number(name, *bounds, None)
        if kind.is_number:
            raise InvalidArgument(
                f"The bounds of {name!r} must be declared as (low, high); values outside them are clipped."
                f" {declare_once([name])}",
                name=name,
            )
        raise InvalidArgument(
            f"{name!r} is {kind}; a model needs numbers or yes-or-no values. Use an expression such as"
            f" \"{name} = '...'\".",
            name=name,
        )
    query = build_mean(name, schema, within=bounds)
    return Number(name, *query.bounds, query)


def feature_ranges(dimension: int, scale: str, intercept: bool) -> tuple[Vector, Vector]:
    """Return the smallest and largest value of every coordinate's feature; an intercept's is always 1."""
    low, high = SCALES[scale]
    lows, highs = np.full(dimension, low), np.full(dimension, high)
    if intercept:
        lows[-1] = highs[-1] = 1.0
    return lows, highs


@dataclass(frozen=True)
class FeatureLines:
    """The features of a row, scaled, in single precision; shared by all losses with these features."""

    numbers: tuple[Number, ...]
    scale: str

    @cached_property
    def identity(self) -> str | None:
        """Canonical text."""
        parts = [each.identity for each in self.numbers]
        return None if None in parts else f"features, {self.scale}: {'; '.join(map(str, parts))}"

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(dict.fromkeys(column for each in self.numbers for column in each.columns))

    @cached_property
    def width(self) -> int:
        """One number for each feature."""
        return len(self.numbers)

    def of(self, rows: pl.DataFrame) -> Packed:
        """Return one line per row: its features; NaN where a value is missing."""
        lines = np.empty((rows.height, self.width), dtype=np.float32)
        for j, each in enumerate(self.numbers):
            each.stretch(rows, *SCALES[self.scale], out=lines[:, j])
        return lines


@dataclass(frozen=True)
class TargetLines:
    """The target of a row, scaled, in single precision."""

    number: Number
    within: tuple[float, float]

    width: ClassVar[int] = 1

    @cached_property
    def identity(self) -> str | None:
        """Canonical text."""
        named = self.number.identity
        return None if named is None else f"target, {self.within}: {named}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return self.number.columns

    def of(self, rows: pl.DataFrame) -> Packed:
        """Return one number per row; NaN where it is missing."""
        lines = np.empty((rows.height, 1), dtype=np.float32)
        self.number.stretch(rows, *self.within, out=lines[:, 0])
        return lines


@dataclass(frozen=True)
class Matrix:
    """All that a linear model needs of a row: its features and its target, scaled, in single precision.

    Rounding is part of the declaration: gradients, losses and certificates are all about the rounded numbers, so it
    does not matter whether those were computed from the drawn rows or once for all rows.
    """

    features: FeatureLines
    target: TargetLines
    intercept: bool

    @property
    def numbers(self) -> tuple[Number, ...]:
        """The features."""
        return self.features.numbers

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(dict.fromkeys((*self.features.columns, *self.target.columns)))

    @cached_property
    def packings(self) -> tuple[FeatureLines, TargetLines]:
        """Features and target separately: fits of several targets share the features."""
        return self.features, self.target

    @property
    def width(self) -> int:
        """One for each coordinate of a point: the features, then the intercept."""
        return self.features.width + self.intercept

    @property
    def ranges(self) -> tuple[Vector, Vector]:
        """The smallest and largest value of every coordinate's feature."""
        return feature_ranges(self.width, self.features.scale, self.intercept)

    def of(self, rows: pl.DataFrame) -> tuple[Packed, Packed]:
        """Return the features and the target of every row."""
        return self.features.of(rows), self.target.of(rows)

    def widened(self, lines: Sequence[Packed]) -> tuple[Vector, Vector]:
        """Return features (without the intercept's 1) and target in double precision, in which a fit computes."""
        features, target = lines
        _pool.reset()
        wide: Vector = _pool(np.dtype(np.float64), features.size).reshape(features.shape)
        np.copyto(wide, features)
        return wide, np.clip(target[:, 0].astype(np.float64), *self.target.within)  # rounding may have left the range

    def predicted(self, features: Vector, point: Vector) -> Vector:
        """Return what the linear model at this point predicts for every row."""
        z: Vector = features @ point[: self.features.width]
        return z + point[-1] if self.intercept else z

    def coordinates(self, features: Vector, which: NDArray[np.int64]) -> Vector:
        """Return coordinate which[i] of row i's features, the intercept's being 1."""
        picked = features.ravel().take(_line_starts(*features.shape) + which, mode="clip")
        if self.intercept:
            picked[which == self.features.width] = 1.0
        return picked

    def gradients(self, features: Vector, slopes: Vector) -> Vector:
        """Return slope times features, including the intercept's."""
        lines = slopes[:, np.newaxis] * features
        return np.column_stack([lines, slopes]) if self.intercept else lines


@lru_cache(64)
def _line_starts(lines: int, width: int) -> NDArray[np.int64]:
    """Return where each line begins; the same for every step of a fit."""
    starts = np.arange(0, lines * width, width)
    starts.flags.writeable = False  # shared
    return starts


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
