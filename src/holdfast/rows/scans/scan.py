"""What a scan is: columns that are known before a row is read, and batches in order."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import polars as pl

from holdfast import check
from holdfast.errors import RowSourceError
from holdfast.rows.columns import Storage, can_store, storage_of, warn_of_zones
from holdfast.schema import Type

BATCH = 1 << 18  # rows
# Errors of the reader. Their text may quote values, so it is never passed on.
UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, UnicodeDecodeError)


@dataclass(frozen=True)
class Origin:
    """Where a table came from, and the state it was in: sizes and times of files, a version; "" if nobody can say.

    `how` is what was said about reading it.
    """

    name: str
    state: str
    how: str = ""


def state_of(files: Mapping[str, Path], *what: str) -> str:
    """Return a hash of what the system says of files: of these fields of `os.stat_result`."""
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

    `where` is what messages call it, `name` what the dataset is called, `path` the file or folder it is in, if it is on
    this machine. `note` is said after it was read.
    """

    name: str
    where: str
    path: Path | None = None
    note: str = ""
    columns: dict[str, Storage]
    never_missing: Collection[str] = ()

    @abstractmethod
    def origin(self) -> Origin:
        """Look where the table stands now."""

    def agrees(self, origin: Origin, types: Mapping[str, Type]) -> bool:
        """Whether a folder with this origin and columns of these types holds the table as it is now."""
        return bool(origin.state) and origin == self.origin()

    @abstractmethod
    def open(self) -> None:
        """Read the schema; before that nothing but `origin` and `agrees` may be asked."""

    @abstractmethod
    def rows(self) -> int | None:
        """Count the rows without looking at them; None if that is not possible."""

    def moment(self) -> str:
        """Look closer than `origin` does: what stays as it is while nobody touches the table, on this machine."""
        return self.origin().state

    @abstractmethod
    def batches(self, after: int = 0) -> Iterator[pl.DataFrame]:
        """Yield the rows in order, in batches of bounded size; all of them, or it raises.

        Whoever has read so many of them before, of a table whose state can be told, is given those `after` them.
        """

    def close(self) -> None:  # noqa: B027  # most scans hold nothing
        """Let go of connections."""

    def take_schema(self, found: Mapping[str, pl.DataType], required: Collection[str] = ()) -> None:
        """Settle how columns are stored, and which the source itself rules out missing values for."""
        if not found:
            raise RowSourceError(f"{self.where} has no columns; holdfast needs at least one.")
        self.columns = {name: storage_of(name, dtype) for name, dtype in found.items()}
        warn_of_zones(self.columns)
        # A number may be NaN even where NULL is ruled out.
        self.never_missing = {
            name for name, storage in self.columns.items() if name in required and storage.type is not Type.FLOAT
        }


class ColumnsLeftOut(UserWarning):
    """Some columns of a table are lists, records or durations, which no question can be about."""


class LazyScan(Scan):
    """A lazy frame, streamed."""

    format = "a table"
    frame: pl.LazyFrame
    skips_rows = True  # whether Polars, told to begin after so many rows, counts rows

    def open(self) -> None:
        """Read the schema."""
        try:
            self.frame = self._storable(self.lazy())
            found = self.frame.collect_schema()
        except RowSourceError:
            raise
        except pl.exceptions.DuplicateError:
            raise RowSourceError(f"{self.where} has two columns of the same name; rename one of them.") from None
        except pl.exceptions.NoDataError:
            raise RowSourceError(f"{self.where} is empty; holdfast needs at least one row.") from None
        except UNREADABLE:
            raise self.damaged() from None
        self.take_schema(found, self.required())

    @abstractmethod
    def lazy(self) -> pl.LazyFrame:
        """Return the frame."""

    def _storable(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Return the frame with decimals as numbers, and without columns of types that cannot be asked about."""
        found = frame.collect_schema()
        odd = [name for name, dtype in found.items() if not (can_store(dtype) or isinstance(dtype, pl.Decimal))]
        if len(odd) == len(found) or all(map(can_store, found.values())):
            return frame  # of which all is stored, or nothing: that is refused by name
        if odd:
            listed = ", ".join(f"{name!r} ({found[name]})" for name in odd)
            check.warn(f"{self.where}: left out, because of their types: {listed}.", ColumnsLeftOut)
        # Not by name, which may be a pattern to Polars.
        kept = [(pl.nth(place), dtype) for place, (name, dtype) in enumerate(found.items()) if name not in odd]
        return frame.select(one.cast(pl.Float64) if isinstance(dtype, pl.Decimal) else one for one, dtype in kept)

    def required(self) -> Collection[str]:
        """Return the columns that the source itself rules out missing values for."""
        return ()

    def rows(self) -> int | None:
        """Count the rows without looking at them."""
        try:
            return int(self.frame.select(pl.len()).collect(engine="streaming").item())
        except UNREADABLE:
            raise self.damaged() from None

    def batches(self, after: int = 0) -> Iterator[pl.DataFrame]:
        """Yield the rows in order; all of them, or it raises."""
        rows, read = self.rows(), after
        left = 0 if self.skips_rows else after
        frame = self.frame.slice(after) if after > left else self.frame
        reading = iter(frame.collect_batches(maintain_order=True, chunk_size=BATCH))
        while True:
            try:
                batch = next(reading, None)
            except UNREADABLE as problem:
                raise self.unfit(problem) or self.damaged() from None
            if batch is None:
                break
            if left:
                batch, left = batch[left:], max(0, left - batch.height)
            read += batch.height
            yield from batch.iter_slices(BATCH)
        if rows not in (None, read):  # on some damage the reader stops without an error
            raise self.damaged()

    def unfit(self, problem: BaseException) -> RowSourceError | None:
        """Say which value does not fit its column, if that was the problem."""
        return None

    def damaged(self) -> RowSourceError:
        """Word the refusal of what cannot be read."""
        return RowSourceError(
            f"Cannot read {self.where} as {self.format}: it is cut off, damaged, or not {self.format} at all."
        )
