"""A column at rest, in one of four layouts, and how some of its rows are taken.

    Numbers       one array; also booleans, dates (days) and timestamps
    CodedText     32-bit codes into a dictionary of the distinct texts
    PackedText    all texts end to end and where each one starts: for columns with too many distinct texts
    SeriesText    a Polars series, for text that is in memory anyway

Missing values are marked in a separate array of booleans, which exists only where there are any.
"""

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.rows.kinds import Kind

Indices = NDArray[np.int64]
Buffer = Callable[[np.dtype[Any], int], NDArray[Any]]


class StoredColumn(Protocol):
    """What every layout can do."""

    @property
    def row_bytes(self) -> float:
        """Average memory of one taken value."""
        ...

    @property
    def plain(self) -> NDArray[Any] | None:
        """The values as they are, if they are numbers or truths and none is missing."""
        ...

    def take(self, name: str, indices: Indices, buffer: Buffer) -> pl.Series:
        """Return these rows as a series, which may lie in memory lent by `buffer`."""
        ...

    def part(self, name: str, start: int, stop: int) -> pl.Series:
        """Return consecutive rows."""
        ...


@dataclass(frozen=True)
class Numbers:
    """Fixed-width values."""

    kind: Kind
    values: NDArray[Any]
    valid: NDArray[np.bool_] | None = None

    @property
    def row_bytes(self) -> float:
        """Average memory of one taken value."""
        return float(self.values.dtype.itemsize + 1)

    @property
    def plain(self) -> NDArray[Any] | None:
        """The values, unless they stand for dates or exceed what queries call an integer."""
        wider = self.values.dtype == np.uint64
        return None if wider or self.kind.recast or self.valid is not None else self.values

    def take(self, name: str, indices: Indices, buffer: Buffer) -> pl.Series:
        """Return these rows."""
        values = taken(self.values, indices, buffer)
        return self._series(name, values, None if self.valid is None else taken(self.valid, indices, buffer))

    def part(self, name: str, start: int, stop: int) -> pl.Series:
        """Return consecutive rows."""
        valid = None if self.valid is None else self.valid[start:stop]
        return self._series(name, self.values[start:stop], valid)

    def _series(self, name: str, values: NDArray[Any], valid: NDArray[np.bool_] | None) -> pl.Series:
        series = pl.Series(name, values)
        if self.kind.recast:
            series = series.cast(self.kind.polars)
        return series if valid is None else _blank(series, valid)


@dataclass(frozen=True)
class CodedText:
    """Text with few distinct values."""

    codes: NDArray[np.uint32]
    dictionary: pl.Series  # never empty, so that code 0 exists for missing values
    valid: NDArray[np.bool_] | None = None

    plain = None

    @property
    def row_bytes(self) -> float:
        """Average memory of one taken value: a view of 16 bytes and its code."""
        return 21.0

    def take(self, name: str, indices: Indices, buffer: Buffer) -> pl.Series:
        """Return these rows."""
        codes = pl.Series(name, taken(self.codes, indices, buffer))
        return self._texts(name, codes, None if self.valid is None else taken(self.valid, indices, buffer))

    def part(self, name: str, start: int, stop: int) -> pl.Series:
        """Return consecutive rows."""
        valid = None if self.valid is None else self.valid[start:stop]
        return self._texts(name, pl.Series(name, self.codes[start:stop]), valid)

    def _texts(self, name: str, codes: pl.Series, valid: NDArray[np.bool_] | None) -> pl.Series:
        return self.dictionary.gather(codes if valid is None else _blank(codes, valid)).alias(name)


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

    def take(self, name: str, indices: Indices, buffer: Buffer) -> pl.Series:
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
        """Average memory of one taken value: a view, the text itself is shared."""
        return 17.0

    def take(self, name: str, indices: Indices, buffer: Buffer) -> pl.Series:
        """Return these rows."""
        return self.series.gather(indices).alias(name)

    def part(self, name: str, start: int, stop: int) -> pl.Series:
        """Return consecutive rows."""
        return self.series.slice(start, stop - start).alias(name)


def _blank(series: pl.Series, valid: NDArray[np.bool_]) -> pl.Series:
    return series if valid.all() else series.zip_with(pl.Series(valid), _missing(series))


def _missing(series: pl.Series) -> pl.Series:
    return pl.Series([None], dtype=series.dtype)


def taken(values: NDArray[Any], indices: Indices, buffer: Buffer) -> NDArray[Any]:
    """Return these values in memory lent by `buffer`."""
    # mode="clip" writes straight into `out`; the default would go through a copy to be able to fail cleanly
    return values.take(indices, out=buffer(values.dtype, indices.size), mode="clip")


def fresh(dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """Return memory of its own, for rows that leave the call."""
    return np.empty(count, dtype)


def _count_unused() -> int:
    """How many references this Python counts for an array that only a table and a local name hold."""
    kept = {0: np.empty(0)}
    memory = kept.get(0)
    return sys.getrefcount(memory)


_UNUSED = _count_unused()


class Loans(threading.local):
    """Memory lent to one evaluation after another on this thread, so that no page is faulted in twice."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str], NDArray[Any]] = {}
        self._lent = 0

    def begin(self) -> None:
        """Start anew: everything lent before may be lent again."""
        self._lent = 0

    def __call__(self, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        """Lend an array; its content is undefined."""
        key = (self._lent, dtype.str)
        self._lent += 1
        memory = self._kept.get(key)
        if memory is None or memory.size < count or sys.getrefcount(memory) > _UNUSED:  # somebody still looks at it
            memory = self._kept[key] = np.empty(count, dtype)
        return memory[:count]
