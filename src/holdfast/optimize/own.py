"""Losses that the caller wrote: tried on made-up rows, then clipped to the ranges they declare.

The trial evaluates the same row among others, in another order, and alone. It finds honest mistakes, not malice: like
any function of the caller's, such a loss runs only in the caller's own process and is never accepted over a network.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from holdfast import check
from holdfast.errors import InvalidArgument, InvalidQuery
from holdfast.optimize.domain import Domain
from holdfast.optimize.losses import Loss
from holdfast.optimize.objective import Interval, Ranges, Rows, Vector
from holdfast.queries.evaluate import FAILURES, in_own_context, in_pieces, silence
from holdfast.queries.synthetic import TRIED_ROWS, fault_of, synthetic_rows
from holdfast.randomness import Randomness
from holdfast.schema import Schema

Function = Callable[[pl.DataFrame, Vector], ArrayLike]  # a loss's `values` or `gradients`


@dataclass(frozen=True)
class OwnObjective:
    """A caller's loss. A row on which it fails or returns NaN gets the largest possible loss and a zero gradient."""

    loss: Loss
    ranges: Ranges
    value_limits: Interval

    @classmethod
    def of(cls, loss: Loss, schema: Schema, domain: Domain) -> "OwnObjective":
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
        limits = (min(0.0, values[0]), max(0.0, values[1]))
        ranges = Ranges(lows, highs, limits, gradient, gradient, extra["l2"] + extra["curvature"])
        objective = cls(loss, ranges, limits)
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
        return _evaluate(self.loss.values, rows, point, (), self.value_limits[1])

    def values_at(self, point: Vector) -> Interval:
        """The declared range, at every point."""
        return self.value_limits

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
