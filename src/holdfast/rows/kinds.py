"""How values of each type are kept: one row of a table per supported type, and a sentence for all others."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from holdfast.errors import RowSourceError
from holdfast.schema import Type


@dataclass(frozen=True)
class Kind:
    """A logical type and its storage. `numpy` is None for text, which has layouts of its own."""

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
TEXT = Kind("text", Type.STRING, None, pl.String())
_KINDS = {
    kind.label: kind
    for kind in [
        Kind("bool", Type.BOOL, np.dtype(np.bool_), pl.Boolean()),
        *(Kind(t.__name__.lower(), Type.INT, np.dtype(t.__name__.lower()), t()) for t in _INTEGERS),
        Kind("float32", Type.FLOAT, np.dtype(np.float32), pl.Float32()),
        Kind("float64", Type.FLOAT, np.dtype(np.float64), pl.Float64()),
        TEXT,
        Kind("date", Type.DATE, np.dtype(np.int32), pl.Date()),
    ]
}
_BY_POLARS = {kind.polars: kind for kind in _KINDS.values()}


def kind_of(name: str, dtype: pl.DataType) -> Kind:
    """Return how a column of this Polars type is kept, or refuse it by name."""
    if isinstance(dtype, pl.Datetime):
        return _timestamp(dtype.time_unit, dtype.time_zone)
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return TEXT
    if dtype.__class__.__name__ == "Float16":  # half precision has no arithmetic of its own: widened
        return _KINDS["float32"]
    kind = _BY_POLARS.get(dtype)
    if kind is None:
        raise unsupported(name, str(dtype), _way_out(dtype))
    return kind


def kind_named(label: str) -> Kind:
    """Invert `Kind.label`."""
    if label.startswith("timestamp[") and label.endswith("]"):
        unit, _, zone = label[len("timestamp[") : -1].partition(", ")
        if unit in _UNITS:
            return _timestamp(unit, zone or None)
    if label not in _KINDS:
        raise RowSourceError(f"No column type {label!r} is known; the folder was written by another version.")
    return _KINDS[label]


def unsupported(name: str, type_name: str, way_out: str) -> RowSourceError:
    """Word the refusal of a column's type."""
    return RowSourceError(
        f"Column {name!r} has type {type_name}, which holdfast does not support; {way_out}.",
        column=name,
        type=type_name,
    )


def _timestamp(unit: str, zone: str | None) -> Kind:
    label = f"timestamp[{unit}, {zone}]" if zone else f"timestamp[{unit}]"
    dtype = pl.Datetime(unit, zone)  # type: ignore[arg-type]  # one of _UNITS
    return Kind(label, Type.DATETIME, np.dtype(np.int64), dtype)


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
