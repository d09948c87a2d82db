"""A column at rest: how values of each type are stored, in which layout, and how some of its rows are taken.

    Numbers       one array; also booleans, dates (days) and timestamps
    CodedText     codes into a dictionary of the distinct texts, in the narrowest type that fits
    PackedText    all texts end to end and where each one starts: for columns with too many distinct texts
    SeriesText    a Polars series, for text that is in memory anyway

Missing values are marked in a separate array of booleans, which exists only if there are any.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast import check
from holdfast.cached import cached_property
from holdfast.errors import InvalidArgument, RowSourceError
from holdfast.queries.evaluate import booleans, floats
from holdfast.queries.query import Function
from holdfast.rows.buffers import BufferPool
from holdfast.rows.draws import Indices
from holdfast.schema import Type


@dataclass(frozen=True)
class Storage:
    """How values of a logical type are stored. `numpy` is None for text, which has its own layouts."""

    label: str  # goes into manifests and fingerprints
    type: Type
    numpy: np.dtype[np.generic] | None
    polars: pl.DataType

    @property
    def recast(self) -> bool:
        """Whether stored numbers stand for something else (dates, timestamps)."""
        return self.type in (Type.DATE, Type.DATETIME)


_INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
_UNITS = ("ms", "us", "ns")
_UTC = (None, "UTC", "Etc/UTC", "GMT", "Z", "+00:00")
TEXT = Storage("text", Type.STRING, None, pl.String())
_STORAGES = {
    storage.label: storage
    for storage in [
        Storage("bool", Type.BOOL, np.dtype(np.bool_), pl.Boolean()),
        *(Storage(t.__name__.lower(), Type.INT, np.dtype(t.__name__.lower()), t()) for t in _INTEGERS),
        Storage("float32", Type.FLOAT, np.dtype(np.float32), pl.Float32()),
        Storage("float64", Type.FLOAT, np.dtype(np.float64), pl.Float64()),
        TEXT,
        Storage("date", Type.DATE, np.dtype(np.int32), pl.Date()),
    ]
}
_BY_POLARS = {storage.polars: storage for storage in _STORAGES.values()}


class LocalTimes(UserWarning):
    """Timestamps are of a time zone, and questions read them in UTC."""


def warn_of_zones(storages: Mapping[str, Storage]) -> None:
    """Say whose hours and days are others in UTC: questions about them would be answered without a sign of it."""
    zones = {name: getattr(storage.polars, "time_zone", None) for name, storage in storages.items()}
    local = {name: zone for name, zone in zones.items() if zone not in _UTC}
    if local:
        listed = ", ".join(f"{name!r} ({zone})" for name, zone in local.items())
        check.warn(
            f"Questions read timestamps in UTC, also those of {listed}. To ask about local hours and days, take the"
            " zone off first: dt.tz_localize(None) in pandas, dt.replace_time_zone(None) in Polars.",
            LocalTimes,
        )


def storage_of(name: str, dtype: pl.DataType) -> Storage:
    """Return how a column of this Polars type is stored, or refuse it by name."""
    if isinstance(dtype, pl.Datetime):
        return _timestamp(dtype.time_unit, dtype.time_zone)
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return TEXT
    if dtype.__class__.__name__ == "Float16":  # half precision has no arithmetic, so it is widened
        return _STORAGES["float32"]
    storage = _BY_POLARS.get(dtype)
    if storage is None:
        raise unsupported(name, str(dtype), _way_out(dtype))
    return storage


def can_store(dtype: pl.DataType) -> bool:
    """Whether columns of this Polars type can be stored, if need be converted."""
    try:
        storage_of("", dtype)
    except RowSourceError:
        return False
    return True


def keeps(dtype: pl.DataType) -> bool:
    """Whether columns of this Polars type are stored without conversion."""
    return isinstance(dtype, pl.Datetime) or dtype in _BY_POLARS


def storage_named(label: str) -> Storage:
    """Invert `Storage.label`."""
    if label.startswith("timestamp[") and label.endswith("]"):
        unit, _, zone = label[len("timestamp[") : -1].partition(", ")
        if unit in _UNITS:
            return _timestamp(unit, zone or None)
    if label not in _STORAGES:
        raise RowSourceError(f"No column type {label!r} is known; the folder was written by another version.")
    return _STORAGES[label]


def unsupported(name: str, type_name: str, way_out: str) -> RowSourceError:
    """Word the refusal of a column's type."""
    return RowSourceError(
        f"Column {name!r} has type {type_name}, which holdfast does not support; {way_out}.",
        column=name,
        type=type_name,
    )


def refuse_missing(complete: Collection[str], missing: Collection[str]) -> None:
    """Refuse columns that were declared complete but are not."""
    for name in missing:
        if name in complete:
            raise InvalidArgument(
                f"complete must name columns without missing values; {name!r} has some (NULL or NaN)."
                " Leave it out, or fill them in the file.",
                name="complete",
            )


def refuse_contradiction(where: str, required: Collection[str], missing: Collection[str]) -> None:
    """Refuse data whose own header rules out the missing values it has."""
    for name in missing:
        if name in required:
            raise RowSourceError(f"{where} rules out missing values of {name!r} but has some; write it again.")


def _timestamp(unit: str, zone: str | None) -> Storage:
    label = f"timestamp[{unit}, {zone}]" if zone else f"timestamp[{unit}]"
    dtype = pl.Datetime(unit, zone)  # type: ignore[arg-type]  # one of _UNITS
    return Storage(label, Type.DATETIME, np.dtype(np.int64), dtype)


def _way_out(dtype: pl.DataType) -> str:
    if dtype.is_nested():
        return "drop it or unnest it first"
    if isinstance(dtype, pl.Decimal | pl.Int128) or dtype.is_numeric():
        return "drop it or convert it to Float64 first"
    if isinstance(dtype, pl.Duration | pl.Time):
        return "drop it or convert it to a number first"
    if isinstance(dtype, pl.Null):
        return "drop it: every value is missing"
    return "drop it or convert it to text first"


_BYTES = 256  # how many values a byte has
_SEARCHED = 1 << 18  # bytes in which texts are looked for one by one: so few that what is not found takes no time
FEW_TEXTS = 1_000  # up to this many texts, comparing them one by one is faster than Polars


class StoredColumn(Protocol):
    """What every layout can do."""

    @property
    def row_bytes(self) -> float:
        """Average memory of one taken value."""
        ...

    @property
    def plain(self) -> NDArray[Any] | None:
        """The stored values, for queries on arrays, if they are numbers or booleans and none is missing."""
        ...

    def take(self, name: str, indices: Indices, pool: BufferPool) -> pl.Series:
        """Return these rows as a series, which may use memory from `pool`."""
        ...

    def part(self, name: str, start: int, stop: int) -> pl.Series:
        """Return consecutive rows."""
        ...


@dataclass(frozen=True)
class Numbers:
    """Fixed-width values. Whether some are missing (marked or NaN) decides how they are read, never the result."""

    storage: Storage
    values: NDArray[Any]
    valid: NDArray[np.bool_] | None = None
    missing: bool = False

    @property
    def row_bytes(self) -> float:
        """Average memory of one taken value."""
        return float(self.values.dtype.itemsize + 1)

    @property
    def plain(self) -> NDArray[Any] | None:
        """The values, unless one is missing, they stand for dates, or they may exceed the integers of queries."""
        return None if self.missing or self._another else self.values

    @property
    def _another(self) -> bool:
        """Whether the stored value is not the number that queries see: dates, and integers that queries cut off."""
        return self.storage.recast or self.values.dtype == np.uint64

    def floats(self, indices: Indices, pool: BufferPool) -> NDArray[np.float64] | None:
        """Return these rows as floats, NaN where one is missing; None if the stored values stand for something else."""
        if self._another:
            return None
        values = take_into(self.values, indices, pool).astype(np.float64)
        return values if self.valid is None else np.where(take_into(self.valid, indices, pool), values, np.nan)

    def take(self, name: str, indices: Indices, pool: BufferPool) -> pl.Series:
        """Return these rows."""
        values = take_into(self.values, indices, pool)
        return self._series(name, values, None if self.valid is None else take_into(self.valid, indices, pool))

    def part(self, name: str, start: int, stop: int) -> pl.Series:
        """Return consecutive rows."""
        valid = None if self.valid is None else self.valid[start:stop]
        return self._series(name, self.values[start:stop], valid)

    def _series(self, name: str, values: NDArray[Any], valid: NDArray[np.bool_] | None) -> pl.Series:
        series = pl.Series(name, values)
        if self.storage.recast:
            series = series.cast(self.storage.polars)
        return series if valid is None else _blank(series, valid)


@dataclass(frozen=True)
class CodedText:
    """Text with few distinct values."""

    codes: NDArray[np.unsignedinteger[Any]]
    dictionary: pl.Series  # never empty, so that code 0 exists for missing values
    valid: NDArray[np.bool_] | None = None

    plain = None

    @property
    def row_bytes(self) -> float:
        """Average memory of one taken value: a view of 16 bytes and its code."""
        return 21.0

    @property
    def texts(self) -> pl.Series:
        """The texts that occur: none if every value is missing, although the dictionary then holds one."""
        missing = self.valid is not None and self.dictionary.len() == 1 and not self.valid.any()
        return self.dictionary.clear() if missing else self.dictionary

    def take(self, name: str, indices: Indices, pool: BufferPool) -> pl.Series:
        """Return these rows."""
        codes = pl.Series(name, take_into(self.codes, indices, pool))
        return self._texts(name, codes, None if self.valid is None else take_into(self.valid, indices, pool))

    def part(self, name: str, start: int, stop: int) -> pl.Series:
        """Return consecutive rows."""
        valid = None if self.valid is None else self.valid[start:stop]
        return self._texts(name, pl.Series(name, self.codes[start:stop]), valid)

    def asked(
        self, function: Function, rows: Indices | slice, pool: BufferPool, *, every: bool = False
    ) -> NDArray[Any]:
        """Return the value of each row of a function of this column, evaluating each text among the rows once.

        Texts that are not among the rows are not evaluated, since their lengths would show in the time it takes; unless
        the rows are part of a scan, which meets `every` text anyway. A missing value is evaluated like a text, if the
        column can have missing values.
        """
        codes = self.coded(function.columns[0], rows, pool)
        in_bytes = codes.tobytes() if codes.dtype == np.uint8 else None  # which Python searches faster than numpy
        if every:
            drawn = np.ones(self.distinct, np.bool_)
        elif in_bytes is not None and codes.size * self.distinct <= _SEARCHED:
            drawn = np.array([code in in_bytes for code in range(self.distinct)])
        else:
            drawn = np.zeros(self.distinct, np.bool_)
            codes = codes.astype(np.intp)  # numpy's index type: it would convert others, slowly
            drawn[codes] = True
        row_values = self._asked(function, drawn)
        table = np.zeros((max(_BYTES, drawn.size), *row_values.shape[1:]), row_values.dtype)
        table[: drawn.size][drawn] = row_values
        if in_bytes is not None and row_values.dtype == np.bool_:
            return np.frombuffer(in_bytes.translate(table.tobytes()), np.bool_)
        values: NDArray[Any] = table.take(codes.astype(np.intp, copy=False), axis=0, mode="clip")
        return values

    def asked_of(self, function: Function, codes: NDArray[np.int64]) -> NDArray[Any]:
        """Return the value for each of a few codes."""
        if function.direct is not None and self._in_array is not None:
            return function.direct({function.columns[0]: self._in_array[codes]})
        drawn = np.zeros(self.distinct, np.bool_)
        drawn[codes] = True
        values: NDArray[Any] = self._asked(function, drawn)[np.cumsum(drawn)[codes] - 1]
        return values

    @cached_property
    def distinct(self) -> int:
        """How many codes there are: one for each text and, if values can be missing, one for those."""
        return self._texts_or_none.len()

    def coded(self, name: str, rows: Indices | slice, pool: BufferPool) -> NDArray[np.unsignedinteger[Any]]:
        """Return the codes of rows; missing values, if the column can have them, get their own code, the last."""
        codes = self.codes[rows] if isinstance(rows, slice) else take_into(self.codes, rows, pool)
        if codes.max() >= self.dictionary.len():
            raise IndexError(name)  # the file is damaged
        if self.valid is None:
            return codes
        valid = self.valid[rows] if isinstance(rows, slice) else take_into(self.valid, rows, pool)
        missing = self.dictionary.len()
        return np.where(valid, codes, np.min_scalar_type(missing).type(missing))  # in as few bytes as the codes

    @cached_property
    def _texts_or_none(self) -> pl.Series:
        """The texts that the codes of rows stand for; None last, if values can be missing."""
        return self.dictionary if self.valid is None else self.dictionary.extend_constant(None, 1)

    @cached_property
    def _in_array(self) -> NDArray[Any] | None:
        """The texts in an array, if there are few and no value can be missing."""
        few = self.valid is None and self.dictionary.len() <= FEW_TEXTS
        return np.array(self.dictionary.to_list(), dtype=object) if few else None

    def _asked(self, function: Function, drawn: NDArray[np.bool_]) -> NDArray[Any]:
        (name,) = function.columns
        if function.direct is not None and self._in_array is not None:
            return function.direct({name: self._in_array[drawn]})
        values = function.series(self._texts_or_none.filter(drawn).alias(name).to_frame())  # `gather` would use threads
        if function.type is Type.BOOL:
            return booleans(values)
        whole = function.type is Type.INT and not function.nullable and not values.null_count()
        return values.to_numpy() if whole else floats(values)

    def _texts(self, name: str, codes: pl.Series, valid: NDArray[np.bool_] | None) -> pl.Series:
        return self.dictionary[codes if valid is None else _blank(codes, valid)].alias(name)


@dataclass(frozen=True)
class PackedText:
    """Text with many distinct values: text i is bytes starts[i] .. starts[i+1]."""

    starts: NDArray[np.int64]
    packed: NDArray[np.uint8]
    valid: NDArray[np.bool_] | None = None

    plain = None

    @property
    def row_bytes(self) -> float:
        """Average memory of one taken value, as bytes objects and again as text."""
        return 100 + 2 * self.packed.size / max(1, self.starts.size - 1)

    def take(self, name: str, indices: Indices, pool: BufferPool) -> pl.Series:
        """Return these rows."""
        begins = self.starts.take(indices).tolist()
        ends = self.starts.take(indices + 1).tolist()
        valid = None if self.valid is None else self.valid.take(indices)
        return self._texts(name, begins, ends, valid)

    def part(self, name: str, start: int, stop: int) -> pl.Series:
        """Return consecutive rows."""
        edges = self.starts[start : stop + 1].tolist()
        return self._texts(name, edges[:-1], edges[1:], None if self.valid is None else self.valid[start:stop])

    def _texts(self, name: str, begins: list[int], ends: list[int], valid: NDArray[np.bool_] | None) -> pl.Series:
        memory = self.packed.data
        texts = [bytes(memory[begin:end]) for begin, end in zip(begins, ends, strict=True)]
        series = pl.Series(name, texts, dtype=pl.Binary).cast(pl.String)
        return series if valid is None else _blank(series, valid)


@dataclass(frozen=True)
class SeriesText:
    """Text that Polars already holds in one piece."""

    series: pl.Series

    plain = None

    @property
    def row_bytes(self) -> float:
        """Average memory of one taken value: only a view, as the text itself is shared."""
        return 17.0

    def take(self, name: str, indices: Indices, pool: BufferPool) -> pl.Series:
        """Return these rows."""
        return self.series.gather(indices).alias(name)

    def part(self, name: str, start: int, stop: int) -> pl.Series:
        """Return consecutive rows."""
        return self.series.slice(start, stop - start).alias(name)


def code_type(texts: int) -> np.dtype[np.unsignedinteger[Any]]:
    """Return the narrowest type of codes for this many texts: a cache holds four times as many of one byte each."""
    return np.min_scalar_type(max(0, texts - 1))


def _blank(series: pl.Series, valid: NDArray[np.bool_]) -> pl.Series:
    return series.zip_with(pl.Series(valid), _missing(series))  # even if all are valid, else timing tells


def _missing(series: pl.Series) -> pl.Series:
    return pl.Series([None], dtype=series.dtype)


def take_into(values: NDArray[Any], indices: Indices, pool: BufferPool) -> NDArray[Any]:
    """Return these values in memory from `pool`."""
    # mode="clip" writes straight into `out`; the default mode would use a temporary copy, to fail cleanly
    return values.take(indices, out=pool(values.dtype, indices.size), mode="clip")
