"""Any Python function of a batch of rows, tried on made-up rows before it touches data.

The trial (`synthetic.must_be_rowwise`) cannot prove that a function looks at one row at a time, so functions are
accepted only from code that uses the library directly, never over a network.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from holdfast.errors import InvalidQuery
from holdfast.queries.evaluate import FAILURES, booleans, floats, in_own_context, in_pieces, normalized, silence
from holdfast.queries.synthetic import must_be_rowwise, trial_rows
from holdfast.schema import Column, Schema, Type

BatchFunction = Callable[[pl.DataFrame], pl.Series | ArrayLike]  # one boolean or number for each row
BatchValues = NDArray[np.bool_] | NDArray[np.float64]


@dataclass(frozen=True)
class PythonFunction:
    """A function the caller wrote. A row on which it raises is NULL (false, if it gives booleans)."""

    function: BatchFunction
    type: Type
    reads: dict[str, Column]

    identity = None
    direct = None
    range = None
    work = 1

    @property
    def nullable(self) -> bool:
        """Numbers may be NaN; a boolean that fails is false."""
        return self.type is not Type.BOOL

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are passed to it."""
        return tuple(self.reads)

    @property
    def text(self) -> str:
        """Its name."""
        name = str(getattr(self.function, "__name__", "") or type(self.function).__name__)
        return "a function" if name == "<lambda>" else f"{name}(rows)"

    def series(self, rows: pl.DataFrame) -> pl.Series:
        """Return one value per row; a row on which the function fails has no effect on others."""
        rows = normalized(rows.select(self.columns), self.reads)
        return pl.Series(_values(self.function, rows, boolean=self.type is Type.BOOL))


@silence
def from_function(function: BatchFunction, schema: Schema) -> PythonFunction:
    """Return the function as a checked function of one row, tried on made-up rows, or refuse it."""
    if not len(schema):
        raise InvalidQuery("A function must be given at least one column; got none.")
    boolean = _gives_booleans(function, trial_rows(schema))
    must_be_rowwise(lambda rows: _values(function, rows, boolean=boolean), schema, what="function")
    return PythonFunction(function, Type.BOOL if boolean else Type.FLOAT, dict(schema.by_name))


def _gives_booleans(function: BatchFunction, rows: pl.DataFrame) -> bool:
    """Find out the type of the values from the first batch on which the function does not fail."""
    fault: BaseException | None = None
    for batch in (rows, *rows.iter_slices(1)):
        try:
            return _series(in_own_context(function, batch), batch.height).dtype == pl.Boolean
        except InvalidQuery:
            raise
        except FAILURES as error:
            fault = error
    raise InvalidQuery(
        f"The function fails on every made-up row, with {type(fault).__name__}. It is given a Polars frame, and returns"
        f" a value for each row: lambda rows: rows[{rows.columns[0]!r}] == 0, for example."
    )


def _series(result: pl.Series | ArrayLike, count: int) -> pl.Series:
    """Return what a function returned as a series of booleans or numbers, or refuse it."""
    if isinstance(result, pl.DataFrame | pl.Expr | str | bytes | dict) or np.isscalar(result) or result is None:
        raise InvalidQuery(f"A function must return one value per row; got {type(result).__name__}.")
    if isinstance(result, pl.Series):
        series = result
    elif isinstance(result, list | tuple):
        series = _from_values(result)
    else:
        array = np.asarray(result)
        if array.dtype != object and array.dtype.kind not in "biuf":
            raise InvalidQuery(f"A function must return booleans or numbers; got {array.dtype}.")
        if array.ndim != 1:
            raise InvalidQuery(f"A function must return one value per row; got an array of shape {array.shape}.")
        series = _from_values(array.tolist()) if array.dtype == object else pl.Series(array)
    if series.len() != count:
        raise InvalidQuery(f"A function must return one value per row ({count}); got {series.len()}.")
    if series.dtype == pl.Boolean or series.dtype.is_numeric() or series.dtype == pl.Null:
        return series
    raise InvalidQuery(f"A function must return booleans or numbers; got {series.dtype}.")


def _from_values(values: Iterable[object]) -> pl.Series:
    """Convert value by value: Polars would convert all values of a list to a type that depends on the others."""
    plain = [_plain(each) for each in values]
    if {type(each) for each in plain} - {type(None)} == {bool}:
        return pl.Series(plain, dtype=pl.Boolean)
    return pl.Series([None if each is None else float(each) for each in plain], dtype=pl.Float64)


def _plain(value: object) -> bool | float | None:
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, Real | Decimal):
        return float(value)
    raise InvalidQuery(f"A function must return booleans or numbers; got {type(value).__name__}.")


def _values(function: BatchFunction, rows: pl.DataFrame, *, boolean: bool) -> BatchValues:
    """Call the function on the batch; if it fails, on parts of it, so that no row affects another."""

    def value(batch: pl.DataFrame) -> NDArray[Any]:
        values = _series(function(batch), batch.height)
        if boolean and values.dtype != pl.Boolean:
            raise InvalidQuery("A function must return booleans for all rows or for none.")
        return booleans(values) if boolean else floats(values)

    def missing(count: int) -> NDArray[Any]:
        return np.zeros(count, np.bool_) if boolean else np.full(count, np.nan)

    pieces = in_pieces(value, rows, FAILURES, missing)
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
