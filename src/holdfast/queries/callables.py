"""Any Python function of a batch of rows, tried for row-wiseness on made-up rows before it touches data.

The trial compares each row's value in the batch with its value alone, among other neighbours, in another order
and beside copies of itself. It finds honest mistakes (a mean over the batch, a random number); it cannot prove a
function innocent, so functions are for the library's own user and never come over a network.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.errors import InvalidQuery
from holdfast.queries import physical
from holdfast.queries.made_up import made_up
from holdfast.queries.trial import TRIED_ROWS, must_be_rowwise
from holdfast.randomness import Randomness
from holdfast.schema import Column, Schema, Type

Function = Callable[[pl.DataFrame], Any]


@dataclass(frozen=True)
class Callback:
    """A function the caller wrote. A row on which it raises is NULL (false, if it gives booleans)."""

    function: Function
    type: Type
    reads: dict[str, Column]
    identity: str | None = None

    @property
    def nullable(self) -> bool:
        """Numbers may be NaN; a boolean that fails is false."""
        return self.type is not Type.BOOL

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it is shown."""
        return tuple(self.reads)

    @property
    def text(self) -> str:
        """Its name."""
        name = str(getattr(self.function, "__name__", "") or type(self.function).__name__)
        return "a function" if name == "<lambda>" else f"{name}(rows)"

    direct = None

    def series(self, rows: pl.DataFrame) -> pl.Series:
        """Return one value per row; one row's failure is that row's alone."""
        rows = physical.settled(rows.select(self.columns), self.reads)
        return pl.Series(_values(self.function, rows, boolean=self.type is Type.BOOL))


def from_callable(function: Function, schema: Schema, columns: Sequence[str] | None = None) -> Callback:
    """Return the function as a query, tried on rows made up from the schema, or refuse it."""
    names = schema.names if columns is None else tuple(dict.fromkeys(columns))
    reads = physical.expected(schema, names)
    if not reads:
        raise InvalidQuery("A function must be shown at least one column.")
    rng = Randomness(0).generator()  # every trial sees the same invented rows
    shown = Schema(tuple(reads.values()), schema.dataset)
    rows = made_up(shown, TRIED_ROWS, rng)
    boolean = _gives_booleans(function, rows)
    # Hostile rows alone would hide a mean over the batch: infinities swamp it. So ordinary rows are tried too.
    for hostile in (0.5, 0.0):
        rows, others = (made_up(shown, TRIED_ROWS, rng, hostile=hostile) for _ in range(2))
        must_be_rowwise(lambda batch: _values(function, batch, boolean=boolean), rows, others, rng, what="function")
    return Callback(function, Type.BOOL if boolean else Type.FLOAT, reads)


def _gives_booleans(function: Function, rows: pl.DataFrame) -> bool:
    """Learn the type of the values from the first batch it does not fail on."""
    fault: Exception | None = None
    for batch in (rows, *(rows[i : i + 1] for i in range(rows.height))):
        try:
            return _array(function(batch), batch.height).dtype == np.bool_
        except InvalidQuery:
            raise
        except Exception as error:  # noqa: BLE001 - the caller's code may raise anything
            fault = error
    raise InvalidQuery(f"The function fails on every made-up row, with {type(fault).__name__}.")


def _array(result: Any, count: int) -> NDArray[Any]:
    """Return what a function gave as an array of booleans or floats, or say what is wrong with it."""
    if isinstance(result, pl.DataFrame | pl.Expr | str | bytes | dict) or np.isscalar(result) or result is None:
        raise InvalidQuery(f"A function must give one value per row; got {type(result).__name__}.")
    if isinstance(result, pl.Series):
        series = result
    else:
        array = np.asarray(result) if not isinstance(result, list | tuple) else None
        if array is not None and array.dtype != object and array.dtype.kind not in "biuf":
            raise InvalidQuery(f"A function must give booleans or numbers; got {array.dtype}.")
        if array is not None and array.ndim != 1:
            raise InvalidQuery(f"A function must give one value per row; got an array of shape {array.shape}.")
        series = pl.Series(list(result) if array is None or array.dtype == object else array, strict=False)
    if series.len() != count:
        raise InvalidQuery(f"A function must give one value per row ({count}); got {series.len()}.")
    if series.dtype == pl.Boolean:
        return (series & series.is_not_null()).to_numpy()
    if series.dtype.is_numeric() or series.dtype == pl.Null:
        return series.cast(pl.Float64, strict=False).to_numpy()
    raise InvalidQuery(f"A function must give booleans or numbers; got {series.dtype}.")


def _values(function: Function, rows: pl.DataFrame, *, boolean: bool) -> NDArray[Any]:
    """Call the function on the batch; if it fails, on each row alone, so that no row answers for another."""
    try:
        values = _array(function(rows), rows.height)
    except Exception:  # noqa: BLE001 - the caller's code may raise anything
        if rows.height == 1:
            return np.array([False if boolean else np.nan])
    else:
        if boolean == (values.dtype == np.bool_):
            return values
        if not boolean:
            return values.astype(np.float64)
        if rows.height == 1:
            return np.array([False])
    if rows.height == 0:
        return np.zeros(0, dtype=np.bool_ if boolean else np.float64)
    return np.concatenate([_values(function, row, boolean=boolean) for row in rows.iter_slices(1)])
