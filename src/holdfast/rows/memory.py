"""Frames and arrays that are already in memory. Imports no library that the caller has not imported."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.errors import InvalidArgument, RowSourceError
from holdfast.rows.columns import (
    CodedText,
    Numbers,
    SeriesText,
    Storage,
    StoredColumn,
    code_type,
    refuse_contradiction,
    refuse_missing,
    storage_of,
    unsupported,
)
from holdfast.rows.fingerprint import physical
from holdfast.rows.local import LocalRows
from holdfast.rows.source import ColumnLike, FrameLike
from holdfast.rows.units import check_unit, grouped
from holdfast.schema import Column, Schema, Type

MOST_TEXTS = 1 << 16  # distinct ones, so that a code has at most two bytes
_CONVERSION = (TypeError, ValueError, OverflowError, NotImplementedError, pl.exceptions.PolarsError)


def memory_rows(
    data: FrameLike | Mapping[str, ColumnLike],
    *,
    name: str = "data",
    complete: Collection[str] = (),
    unit: str | None = None,
) -> LocalRows:
    """Keep a frame or a mapping of arrays.

    Numbers and dates are copied, so that the caller cannot change data that a ledger is about. Data too large to be
    copied belongs in a file. Columns may have missing values unless their type rules it out or they are declared
    `complete`. With `unit`, the rows are grouped by that column.
    """
    columns, never = _from_arrays(data) if isinstance(data, Mapping) else _from_frame(data, name)
    return _rows(columns, name, complete, never, unit)


def _from_frame(frame: Any, name: str) -> tuple[Sequence[pl.Series], Collection[str]]:
    if isinstance(frame, pl.DataFrame):
        return frame.get_columns(), []
    import narwhals as nw

    frame = _with_index(frame)
    _names(frame.column_names if hasattr(frame, "column_names") else frame.columns)
    try:
        wrapped = nw.from_native(frame, eager_only=True)
    except TypeError:
        raise InvalidArgument(
            f"data must be a Polars, pandas or PyArrow table; got {type(frame).__name__}.", name="data"
        ) from None
    series = []
    for column in wrapped.columns:
        try:
            converted = wrapped[column].to_polars().alias(column)
        except ImportError:  # PyArrow is missing, which pandas and Polars need for texts
            converted = _without_arrow(column, wrapped[column].to_native())
        except _CONVERSION:
            raise unsupported(column, str(wrapped[column].dtype), "drop it or convert it first") from None
        series.append(converted)
    never = {column for column in wrapped.columns if _never_missing(wrapped[column].to_native())}
    if hasattr(frame, "column_names"):  # PyArrow, whose schema declares it; but a float may still be NaN
        floating = {each.name for each in series if each.dtype.is_float()}
        never |= {field.name for field in frame.schema if not field.nullable} - floating
    return series, never


def _with_index(frame: Any) -> Any:
    """Make columns of what an index of pandas is called by; one without a name counts rows, and is left out."""
    names = getattr(getattr(frame, "index", None), "names", ())
    named = [name for name in names if name is not None and name not in frame.columns]
    return frame.reset_index(level=named) if named else frame


def _without_arrow(column: str, series: Any) -> pl.Series:
    """Convert a pandas column value by value."""
    values = series.to_numpy(dtype=object, copy=True)
    values[series.isna().to_numpy()] = None
    try:
        return pl.Series(column, values.tolist())
    except _CONVERSION:
        raise unsupported(column, str(series.dtype), "install pyarrow, drop it or convert it first") from None


def _from_arrays(arrays: Mapping[str, ColumnLike]) -> tuple[Sequence[pl.Series], Collection[str]]:
    _names(arrays)
    columns = [_series(column, values) for column, values in arrays.items()]
    return columns, [column for column, values in arrays.items() if _never_missing(values)]


def _never_missing(values: Any) -> bool:
    """Whether the type of an array cannot represent a missing value."""
    dtype = getattr(values, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind in "biuU" and not isinstance(values, np.ma.MaskedArray)


def _rows(
    columns: Sequence[pl.Series], name: str, complete: Collection[str], never: Collection[str], unit: str | None
) -> LocalRows:
    if not columns:
        raise RowSourceError(f"{name} has no columns; holdfast needs at least one.")
    _names([series.name for series in columns])
    rows = columns[0].len()
    for series in columns:
        if series.len() != rows:
            raise InvalidArgument(
                f"Columns must have equal lengths; {columns[0].name!r} has {rows}, {series.name!r} has {series.len()}."
            )
    if rows == 0:
        raise RowSourceError(f"{name} has no rows; holdfast needs at least one.")
    storages = [storage_of(series.name, series.dtype) for series in columns]  # refuse before converting anything
    public = Schema(
        tuple(
            Column(series.name, storage.type, series.name not in never)
            for series, storage in zip(columns, storages, strict=True)
        ),
        name,
    ).declared(complete)
    units = None
    if unit is not None:
        check_unit(unit, public)
        columns, units = grouped(columns, unit)
    stored = [_stored(series, storage) for series, storage in zip(columns, storages, strict=True)]
    missing = [series.name for series, (_, some) in zip(columns, stored, strict=True) if some]
    refuse_contradiction(name, never, missing)
    refuse_missing(complete, missing)
    layouts = (layout for layout, _ in stored)
    return LocalRows(name, list(zip(public, storages, layouts, strict=True)), rows, unit=unit, units=units)


def _stored(series: pl.Series, storage: Storage) -> tuple[StoredColumn, bool]:
    """Return a column at rest, and whether a value is missing."""
    missing = series.null_count() > 0
    if storage.numpy is None:
        return _stored_texts(series.cast(pl.String).rechunk()), missing
    values, valid = physical(series, storage)
    values = values.copy()  # even a frame may share memory with an array that the caller still writes to
    values.setflags(write=False)  # a scan evaluates queries directly on these arrays
    missing = missing or (storage.type is Type.FLOAT and bool(np.isnan(values).any()))
    return Numbers(storage, values, valid, missing), missing


def _stored_texts(texts: pl.Series) -> StoredColumn:
    """Return texts as codes into a dictionary, so that each is evaluated once, unless too many are distinct."""
    if texts.head(2 * MOST_TEXTS).drop_nulls().n_unique() > MOST_TEXTS:  # usually seen soon
        return SeriesText(texts)
    dictionary = texts.drop_nulls().unique(maintain_order=True)
    if dictionary.len() > MOST_TEXTS:
        return SeriesText(texts)
    codes = texts.cast(pl.Enum(dictionary)).to_physical().fill_null(0).to_numpy().astype(code_type(dictionary.len()))
    valid = texts.is_not_null().to_numpy() if texts.null_count() else None
    return CodedText(codes, dictionary if dictionary.len() else pl.Series([""]), valid)


def _series(name: str, values: ColumnLike) -> pl.Series:
    if isinstance(values, pl.Series):
        return values.alias(name)
    if isinstance(values, list | tuple):
        try:
            return pl.Series(name, values)
        except _CONVERSION:
            raise unsupported(name, "object", "give it values of one type") from None
    array = np.asanyarray(values)
    if array.ndim != 1:
        raise InvalidArgument(f"Column {name!r} must be one-dimensional; got {array.ndim} dimensions.")
    try:
        return _convert(name, array)
    except _CONVERSION:
        raise unsupported(name, str(array.dtype), "drop it or convert it first") from None


def _convert(name: str, array: NDArray[Any]) -> pl.Series:
    if array.dtype.kind in "biu" or array.dtype in (np.float16, np.float32, np.float64):
        return pl.Series(name, array, nan_to_null=array.dtype.kind == "f")  # like pandas, so that fingerprints agree
    if array.dtype.kind == "M":
        unit, _ = np.datetime_data(array.dtype)
        if unit not in ("D", "ms", "us", "ns"):
            array = array.astype("datetime64[D]" if unit in ("Y", "M", "W") else "datetime64[ms]")
        return pl.Series(name, array)
    if array.dtype.kind in "UT":
        return pl.Series(name, array.tolist(), dtype=pl.String)
    if array.dtype.kind == "O":
        texts = [None if _is_missing(value) else value for value in array.tolist()]
        if all(text is None or isinstance(text, str) for text in texts):
            return pl.Series(name, texts, dtype=pl.String)
    raise TypeError


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and value != value)


def _names(names: Iterable[object]) -> None:
    seen = set()
    for column in names:
        if not isinstance(column, str):
            raise RowSourceError(f"Column names must be text; got {column!r}. Rename it first.")
        if column in seen:
            raise RowSourceError(f"Two columns are named {column!r}; rename one of them.")
        seen.add(column)
