"""What a scan is: columns that are known before any row is read, and batches in order.

Lazy frames and Arrow streams are scans as they are: read once, in order, never as a whole.

Batches fit into bounded memory: so many rows at most, and so many bytes of values. Rows alone would bound nothing: a
batch of 2^18 texts with 2,000 characters each has half a gigabyte, and what processes a batch makes copies of it. The
bytes of a text count as often as the text occurs: views of one text in many rows take little memory in Polars, until
texts are hashed or written one after another.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast import check
from holdfast.errors import InvalidArgument, RowSourceError
from holdfast.rows.columns import Storage, can_store, storage_of, warn_of_zones
from holdfast.schema import Type

BATCH = 1 << 18  # rows per batch, at most
BATCH_BYTES = 16 << 20  # and bytes of their values
_VIEW = 16  # bytes of a text in Polars, besides its characters
_FEW = 1 << 13  # rows that Polars hands over at once if there are texts, which may be long
# Errors of the reader. Their text may quote values, so it is never passed on.
UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, UnicodeDecodeError)


@dataclass(frozen=True)
class Origin:
    """Where a table came from, and its state: sizes and times of files, or a version; "" if unknown.

    `how` records the options it was read with, and `types` the declared types of columns, as JSON.
    """

    name: str
    state: str
    how: str = ""
    types: str = ""


def state_of(files: Mapping[str, Path], *what: str) -> str:
    """Return a hash of these fields of `os.stat_result`, for each file."""
    lines = []
    for label, path in sorted(files.items()):
        try:
            found = path.stat()
        except OSError as problem:
            raise RowSourceError(f"Cannot read {path}: {problem.strerror}.") from None
        lines.append(" ".join([label, *(str(getattr(found, each)) for each in what)]))
    return sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


class Scan(ABC):
    """One table, to be read once.

    `where` is its name in messages, `name` the name of the dataset, `path` its file or folder, if it is on this
    machine. `unit` is the column that says which rows belong together, if that was declared before opening. `note` is
    printed after it was read.
    """

    name: str
    where: str
    path: Path | None = None
    unit: str | None = None
    note: str = ""
    columns: dict[str, Storage]
    never_missing: Collection[str] = ()

    def origin(self) -> Origin:
        """Return the table's current state; by default, it is unknown, as of a stream."""
        return Origin(self.where or self.name, "")

    def agrees(self, origin: Origin, types: Mapping[str, Type]) -> bool:
        """Whether a folder with this origin and columns of these types holds the table in its current state."""
        return bool(origin.state) and origin == self.origin()

    def recall(self, origin: Origin) -> None:  # noqa: B027  # most scans have no options
        """Take the options that were left out from an earlier reading of the same table."""

    @abstractmethod
    def open(self) -> None:
        """Read the schema; before that, only `origin`, `agrees` and `recall` may be called."""

    def rows(self) -> int | None:
        """Count the rows without reading them; None, as by default, if that is not possible."""
        return None

    def moment(self) -> str:
        """Return a more precise state than `origin`: unchanged while nobody touches the table on this machine."""
        return self.origin().state

    @abstractmethod
    def batches(self, after: int = 0) -> Iterator[pl.DataFrame]:
        """Yield the rows in order, in batches of bounded size; raise an error if not all can be read.

        If the table's state is known, the first `after` rows, which were read before, are skipped.
        """

    def close(self) -> None:  # noqa: B027  # most scans have nothing to close
        """Close connections."""

    def take_schema(self, found: Mapping[str, pl.DataType], required: Collection[str] = ()) -> None:
        """Decide how columns are stored, and for which the source itself rules out missing values."""
        if not found:
            raise RowSourceError(f"{self.where} has no columns; holdfast needs at least one.")
        self.columns = {name: storage_of(name, dtype) for name, dtype in found.items()}
        warn_of_zones(self.columns)
        # A float may be NaN even where NULL is ruled out.
        self.never_missing = {
            name for name, storage in self.columns.items() if name in required and storage.type is not Type.FLOAT
        }


def skipping(batches: Iterable[pl.DataFrame], rows: int) -> Iterator[pl.DataFrame]:
    """Yield batches without their first rows."""
    for batch in batches:
        yield batch.slice(rows)
        rows -= min(rows, batch.height)


class ColumnsLeftOut(UserWarning):
    """Some columns of a table are lists, records or durations, or empty: no question can be about them."""


def _called(dtype: pl.DataType) -> str:
    return "integers of more than 64 bits" if dtype in (pl.Int128, pl.UInt128) else str(dtype)


class LazyScan(Scan):
    """A lazy frame, streamed."""

    format = "a table"
    frame: pl.LazyFrame
    _choice: list[pl.Expr] | None
    keep = ""  # how to keep columns that are left out
    skips_rows = True  # whether Polars counts rows (not lines) when told to skip some

    def open(self) -> None:
        """Read the schema."""
        try:
            given = self.lazy()
            self._choice = self._storable(given.collect_schema())
            self.frame = self.chosen(given)
            found = self.frame.collect_schema()
        except RowSourceError:
            raise
        except pl.exceptions.DuplicateError:
            raise RowSourceError(f"{self.where} has two columns of the same name; rename one of them.") from None
        except pl.exceptions.NoDataError:
            raise self.empty() from None
        except UNREADABLE:
            raise self.damaged() from None
        self.take_schema(found, self.required())

    @abstractmethod
    def lazy(self) -> pl.LazyFrame:
        """Return the frame."""

    def chosen(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Return a frame like `lazy` with its columns as they are stored."""
        return frame if self._choice is None else frame.select(self._choice)

    def _storable(self, found: Mapping[str, pl.DataType]) -> list[pl.Expr] | None:
        """Return decimals as numbers, and no columns of types that cannot be asked about; None: all, as they are."""
        odd = [name for name, dtype in found.items() if not (can_store(dtype) or isinstance(dtype, pl.Decimal))]
        if len(odd) == len(found) or all(map(can_store, found.values())):
            return None  # all columns can be stored; or none can, and they are refused by name later
        if odd:
            empty = [name for name in odd if found[name] == pl.Null()]
            if empty:
                listed = ", ".join(map(repr, empty))
                check.warn(f"{self.where}: left out, because they have no values: {listed}.{self.keep}", ColumnsLeftOut)
            if len(odd) > len(empty):
                listed = ", ".join(f"{name!r} ({_called(found[name])})" for name in odd if name not in empty)
                message = f"{self.where}: left out, because of their types: {listed}.{self.keep}"
                check.warn(message, ColumnsLeftOut)
        # By position, since Polars may take a name for a pattern.
        kept = [(pl.nth(place), dtype) for place, (name, dtype) in enumerate(found.items()) if name not in odd]
        return [one.cast(pl.Float64) if isinstance(dtype, pl.Decimal) else one for one, dtype in kept]

    def required(self) -> Collection[str]:
        """Return the columns for which the source itself rules out missing values."""
        return ()

    def rows(self) -> int | None:
        """Count the rows without reading them."""
        try:
            return int(self.frame.select(pl.len()).collect(engine="streaming").item())
        except UNREADABLE:
            raise self.damaged() from None

    def batches(self, after: int = 0) -> Iterator[pl.DataFrame]:
        """Yield the rows in order; raise an error if not all can be read."""
        rows, read = self.rows(), after
        for batch in gathered(self.reading(after, rows), BATCH):
            read += batch.height
            yield batch
        if rows not in (None, read):  # with some kinds of damage the reader stops without an error
            raise self.damaged()

    def reading(self, after: int, rows: int | None) -> Iterator[pl.DataFrame]:
        """Read the frame in order, in pieces of any size; `rows` is the length of the table, if it is known."""
        left = 0 if self.skips_rows else after
        frame = self.frame.slice(after) if after > left else self.frame
        size = self.at_once(rows) if has_texts(frame.collect_schema().dtypes()) else BATCH
        reading = iter(frame.collect_batches(maintain_order=True, chunk_size=size))
        yield from skipping(self.sound(reading), left)

    def sound(self, reading: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Yield what a reader yields; word its errors."""
        while True:
            try:
                batch = next(reading, None)
            except (*UNREADABLE, ValueError) as problem:
                raise self.unfit(problem) or self.damaged() from None
            if batch is None:
                return
            yield batch

    def at_once(self, rows: int | None) -> int:
        """Return how many rows with texts Polars may hand over at once."""
        return min(BATCH, _FEW)

    def unfit(self, problem: BaseException) -> RowSourceError | None:
        """Return the error for a value that does not fit its column, if that was the problem."""
        return None

    def empty(self) -> RowSourceError:
        """Return the error for a table without a header."""
        return RowSourceError(f"{self.where} is empty; holdfast needs at least one row.")

    def damaged(self) -> RowSourceError:
        """Return the error for a table that cannot be read."""
        return RowSourceError(
            f"Cannot read {self.where} as {self.format}: it is cut off, damaged, or not {self.format} at all."
        )


def scan_stream(data: object) -> Scan | None:
    """Return the scan of a lazy frame, or of anything that exports an Arrow stream; None for anything else."""
    if isinstance(data, pl.LazyFrame):
        return LazyFrameScan(data)
    if hasattr(data, "__arrow_c_stream__"):
        return StreamScan(data)
    if hasattr(data, "collect_schema") and hasattr(data, "collect"):
        raise InvalidArgument(
            "data must be a table, not a lazy frame of this library; collect() it first.", name="data"
        )
    return None


class LazyFrameScan(LazyScan):
    """A Polars lazy frame, run once; its number of rows is known only afterwards."""

    name, where, format = "data", "", "a lazy frame"

    def __init__(self, frame: pl.LazyFrame) -> None:
        self._given = frame

    def lazy(self) -> pl.LazyFrame:
        """Return the frame as it was given."""
        return self._given

    def rows(self) -> int | None:
        """Unknown: counting would run the frame once more."""
        return None

    def unfit(self, problem: BaseException) -> RowSourceError:
        """Return an error with only the type of the problem, since its text may quote values."""
        return RowSourceError(f"The lazy frame failed while it ran: {type(problem).__name__}.")


class StreamScan(Scan):
    """Anything with `__arrow_c_stream__`: a PyArrow reader, a DuckDB relation, a pandas or ibis table, ..."""

    name, where = "data", ""

    def __init__(self, data: Any) -> None:
        self._data = data

    def open(self) -> None:
        """Begin the stream and read its schema."""
        try:
            import pyarrow as pa
        except ImportError:
            raise RowSourceError(
                "An Arrow stream needs pyarrow to be read batch by batch. Install it with: pip install pyarrow."
            ) from None
        self._reader = pa.RecordBatchReader.from_stream(self._data)
        required = [field.name for field in self._reader.schema if not field.nullable]
        empty = pl.DataFrame(self._reader.schema.empty_table())
        self.take_schema(empty.schema, required)

    def batches(self, after: int = 0) -> Iterator[pl.DataFrame]:
        """Read the stream. Its errors may quote values, so only their type is passed on."""
        while True:
            try:
                batch = next(self._reader, None)
                frame = None if batch is None else pl.DataFrame(batch)
            except (*UNREADABLE, ValueError, RuntimeError) as problem:
                raise RowSourceError(f"The stream failed while it was read: {type(problem).__name__}.") from None
            if frame is None:
                return
            yield from cut(frame, BATCH)


def cut(batch: pl.DataFrame, rows: int, size: int | None = None) -> Iterator[pl.DataFrame]:
    """Yield the rows of a batch, at most `rows` at once, and with at most `size` bytes unless a single row has more.

    >>> frame = pl.DataFrame({"text": ["a" * 10, "b" * 10, "c" * 100, "d"]})
    >>> [part.height for part in cut(frame, rows=1_000, size=60)]
    [2, 1, 1]
    """
    for start, stop in spans(np.cumsum(row_bytes(batch)), rows, size):
        yield batch[start:stop]


def spans(ends: NDArray[np.int64], rows: int, size: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield where to cut rows that end at these bytes: from which row, and up to which; limits as for `cut`.

    >>> list(spans(np.array([10, 20, 120, 121]), rows=1_000, size=25))
    [(0, 2), (2, 3), (3, 4)]
    """
    start, size = 0, BATCH_BYTES if size is None else size
    while start < ends.size:
        before = ends[start - 1] if start else 0
        stop = max(start + 1, min(start + rows, int(np.searchsorted(ends, before + size, side="right"))))
        yield start, stop
        start = stop


def gathered(batches: Iterable[pl.DataFrame], rows: int, size: int | None = None) -> Iterator[pl.DataFrame]:
    """Put batches together while they stay within the same limits as those of `cut`, and cut larger ones.

    Only what was put together is measured: small batches are taken to have rows as long as those before them.
    """
    waiting: list[pl.DataFrame] = []
    height, mean, size = 0, -1.0, BATCH_BYTES if size is None else size
    for batch in batches:
        if not batch.height:  # as where reading is resumed: it says nothing about the rows to come
            continue
        mean = mean_bytes(batch) if mean < 0 else mean
        if waiting and (height + batch.height > rows or (height + batch.height) * mean > size):
            mean = yield from _within(pl.concat(waiting), rows, size)
            waiting, height = [], 0
        waiting.append(batch)
        height += batch.height
    if waiting:
        yield from _within(pl.concat(waiting), rows, size)


def _within(batch: pl.DataFrame, rows: int, size: int) -> Generator[pl.DataFrame, None, float]:
    """Yield a batch, cut if it is beyond the limits; return how many bytes its rows have on average."""
    mean = mean_bytes(batch)
    if batch.height > rows or mean * batch.height > size:
        yield from cut(batch, rows, size)
    else:
        yield batch
    return mean


def row_bytes(batch: pl.DataFrame) -> NDArray[np.int64]:
    """Return how many bytes the values of each row have."""
    found = np.full(batch.height, sum(map(_width, batch.dtypes)), np.int64)
    for series in batch:
        if _is_text(series.dtype):
            found += series.alias("").cast(pl.String).str.len_bytes().fill_null(0).to_numpy()
    return found


def all_bytes(batch: pl.DataFrame) -> int:
    """Return how many bytes the values of all rows have."""
    texts = (series.alias("").cast(pl.String).str.len_bytes().sum() for series in batch if _is_text(series.dtype))
    return sum(map(_width, batch.dtypes)) * batch.height + sum(map(int, texts))


def mean_bytes(batch: pl.DataFrame) -> float:
    """Return how many bytes the values of a row have on average; 0 if there are no rows."""
    return all_bytes(batch) / max(1, batch.height)


def has_texts(types: Iterable[pl.DataType]) -> bool:
    """Whether rows of these types may have any length."""
    return any(map(_is_text, types))


def _is_text(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.String | pl.Categorical | pl.Enum)


def _width(dtype: pl.DataType) -> int:
    return _VIEW if _is_text(dtype) else 8
