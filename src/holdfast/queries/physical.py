"""Gathered columns as an expression expects them: one storage type per `Type`, NaN as NULL, years 1 to 9999.

Row sources may hand over narrower integers, Float32, categories, or timestamps of any unit and zone. All of them
are brought to one form here, without ever raising: unsigned integers above 2^63 - 1 become that number, timestamps
become UTC in microseconds.
"""

from collections.abc import Mapping

import numpy as np
import polars as pl

from holdfast.queries.functions.logic import PHYSICAL
from holdfast.queries.functions.times import FIRST_DAY, FIRST_MOMENT, LAST_DAY, LAST_MOMENT
from holdfast.schema import Column, Schema, Type

_LARGEST = 2**63 - 1
_PER_DAY = 86_400_000_000


def expected(schema: Schema, columns: tuple[str, ...]) -> dict[str, Column]:
    """Return the columns that need looking at when rows arrive."""
    return {name: schema[name] for name in columns}


def settled(rows: pl.DataFrame, columns: Mapping[str, Column]) -> pl.DataFrame:
    """Return the rows with every column in its one form."""
    changed = []
    for name, column in columns.items():
        series = rows.get_column(name)
        fixed = _settled(series, column)
        if fixed is not series:
            changed.append(fixed)
    return rows.with_columns(changed) if changed else rows


def _settled(series: pl.Series, column: Column) -> pl.Series:
    wanted = PHYSICAL[column.type]
    if series.dtype != wanted:
        series = _converted(series, wanted)
    if column.type is Type.FLOAT and column.nullable:
        return _without_nan(series)
    if column.type in (Type.DATE, Type.DATETIME):
        return _within_years(series, column.type)
    return series


def _converted(series: pl.Series, wanted: pl.DataType) -> pl.Series:
    dtype = series.dtype
    if wanted == pl.Int64() and dtype == pl.UInt64:
        series = series.clip(0, _LARGEST)
    if wanted == pl.String() and isinstance(dtype, pl.Categorical | pl.Enum):
        return series.cast(pl.String)
    if isinstance(dtype, pl.Datetime) and wanted == pl.Datetime("us"):
        return _microseconds(series, dtype.time_unit)
    return series.cast(wanted, strict=False)


def _microseconds(series: pl.Series, unit: str) -> pl.Series:
    ticks = series.to_physical()
    if unit == "ms":  # beyond the calendar, milliseconds overflow as microseconds: stop at its ends
        ends = [int((when - FIRST_MOMENT.replace(year=1970)).total_seconds() * 1e3) for when in _ENDS]
        ticks = ticks.clip(*ends) * 1_000
    elif unit == "ns":
        ticks = ticks // 1_000
    return ticks.cast(pl.Datetime("us"))


_ENDS = (FIRST_MOMENT, LAST_MOMENT)


def _without_nan(series: pl.Series) -> pl.Series:
    if series.null_count():
        return series.fill_nan(None)
    values = series.to_numpy()
    if not np.isnan(values).any():
        return series
    return pl.Series(series.name, values, nan_to_null=True)


def _within_years(series: pl.Series, type_: Type) -> pl.Series:
    first, last = (FIRST_DAY, LAST_DAY) if type_ is Type.DATE else (FIRST_MOMENT, LAST_MOMENT)
    ticks = series.to_physical()
    low, high = ticks.min(), ticks.max()
    ends = _DAYS if type_ is Type.DATE else _TICKS
    if low is None or high is None or (int(low) >= ends[0] and int(high) <= ends[1]):  # type: ignore[arg-type]
        return series
    return series.clip(first, last)


_DAYS = ((FIRST_DAY - FIRST_DAY.replace(year=1970)).days, (LAST_DAY - FIRST_DAY.replace(year=1970)).days)
_TICKS = (_DAYS[0] * _PER_DAY, (_DAYS[1] + 1) * _PER_DAY - 1)
