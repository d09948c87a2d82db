"""Units: rows that belong together are stored together, and one draw is one unit.

    Units       where the rows of each unit are, and which row represents a unit
    grouped     columns in memory, with their rows grouped by unit
    Grouping    turns a stream of batches into a stream grouped by unit, in bounded memory

How a stream is grouped: batches, small enough for the processor's cache, are sorted by partition, a hash of the unit;
several batches form a chunk, which is written to disk partition after partition; then each partition is read from all
chunks, sorted by unit, and passed on. A partition that is too large is partitioned again by another hash; one that is a
single unit is passed on unsorted.
"""

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from hashlib import file_digest
from itertools import chain
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.cached import cached_property
from holdfast.errors import InvalidArgument, RowSourceError
from holdfast.rows.buffers import BufferPool
from holdfast.rows.columns import Storage
from holdfast.rows.disk.array_files import Incomplete
from holdfast.rows.draws import Indices
from holdfast.rows.fingerprint import ColumnDigest, Digested
from holdfast.rows.scans.scan import all_bytes, cut, mean_bytes
from holdfast.schema import Column, Schema, Type

FEW_UNITS = 1_000  # units whose rows are brought into the cache together
PARTITION_BYTES = 8 << 20  # sorted at once: small enough to stay in cache
MOST_BYTES = 128 << 20  # of a partition; a larger one is partitioned again
CHUNK_BYTES = 128 << 20  # written at once
BATCH = 1 << 18  # rows partitioned or passed on at once
PARTITIONS = 64  # of a stream of unknown length
MOST_PARTITIONS = 256  # in one pass, so that a partition's part of a chunk does not get tiny
_NAMES_UNITS = re.compile(r"\w[ _-](id|ID|uuid)$|[a-z](ID|Id)$")  # patient_id, userId; not id alone, which names rows


@dataclass(frozen=True)
class Units:
    """The rows of unit i are rows starts[i] to starts[i+1] - 1.

    For rows in memory, `moved` maps the original order of the table to the order now: content is hashed in the original
    order, so that the same rows have the same fingerprint, and so the same budget, with units or without.
    """

    starts: Indices
    moved: Indices | None = None

    def __len__(self) -> int:
        return self.starts.size - 1

    def one_row(self, units: Indices, rng: Generator, places: int | None) -> tuple[Indices, NDArray[np.bool_] | None]:
        """Return a random row of each unit; and with `places`, which draws found none.

        With `places`, a unit has at least that many equally likely places; its rows fill the first ones, and a draw of
        an empty place finds no row.
        """
        first, sizes = self._lie(units)
        if places is None:
            return first + _uniform(sizes, rng), None
        place = _uniform(np.maximum(sizes, places), rng)
        empty = place >= sizes
        place *= ~empty
        first += place
        return first, empty

    def all_rows(self, units: Indices, size: int) -> Iterator["RowsOfUnits"]:
        """Yield all rows of these units, at most `size` at once; the next block reuses the memory."""
        first, sizes = self._lie(units)
        ends = np.cumsum(sizes)
        total = int(ends[-1]) if ends.size else 0
        if 0 < total <= size:
            yield RowsOfUnits(_consecutive(first, sizes, ends), 0, first, sizes, ends)
            return
        shift = first - (ends - sizes)  # from a row's number among these rows to its number in the table
        for start in range(0, total, size):
            stop = min(start + size, total)
            begin, last = np.searchsorted(ends, [start, stop - 1], side="right").tolist()
            upto = np.minimum(ends[begin : last + 1], stop) - start
            counts = np.diff(upto, prepend=0)
            lie = shift[begin : last + 1] + start + upto - counts
            yield RowsOfUnits(_consecutive(lie, counts, upto), begin, lie, counts, upto)

    def _lie(self, units: Indices) -> tuple[Indices, Indices]:
        """Return where the rows of these units begin, and how many there are."""
        first, sizes = self.starts.take(units), self.starts[1:].take(units)
        sizes -= first
        return first, sizes


class RowsOfUnits(NamedTuple):
    """Rows of some units, one unit after another."""

    rows: Indices
    begin: int  # the number of the first unit, among the requested ones
    first: Indices  # for each unit: its first row in this block
    counts: Indices  # for each unit: how many rows it has in this block
    ends: Indices  # for each unit: where its rows end in this block

    def values(self, column: NDArray[Any], pool: BufferPool) -> NDArray[Any]:
        """Return the values of a column in these rows.

        For some units at a time, the first and the last row of each are read before all rows: so the processor fetches
        many distant cache lines at once, and finds them in the cache later. Row by row takes three times as long.
        """
        found, touched = pool(column.dtype, self.rows.size), pool(column.dtype, FEW_UNITS)
        last, low = self.first + self.counts - 1, 0
        for start in range(0, last.size, FEW_UNITS):
            stop = min(start + FEW_UNITS, last.size)
            for ends in (self.first, last):
                column.take(ends[start:stop], out=touched[: stop - start], mode="clip")
            high = int(self.ends[stop - 1])
            column.take(self.rows[low:high], out=found[low:high], mode="clip")
            low = high
        return found


_memory = BufferPool()  # page faults of a new megabyte would cost as much as writing it


def _consecutive(first: Indices, counts: Indices, ends: Indices) -> Indices:
    """Return counts[0] consecutive numbers from first[0] on, then counts[1] from first[1] on, and so on."""
    _memory.reset()
    rows = _memory(np.dtype(np.int64), int(ends[-1]))
    rows.fill(1)
    rows[0] = first[0]
    rows[ends[:-1]] = first[1:] - (first[:-1] + counts[:-1] - 1)  # every unit has a row
    return np.cumsum(rows, out=rows)


_running = BufferPool()


def sums(values: NDArray[Any], ends: Indices) -> NDArray[Any]:
    """Return the sum of each unit's values, which are stored one unit after another and end before `ends`."""
    if values.dtype.kind != "b":
        return np.add.reduceat(values, np.concatenate([[0], ends[:-1]]))
    _running.reset()  # for booleans, differences of running sums are exact, and half the work
    short = np.int32 if values.size < 1 << 31 else np.int64
    upto = np.cumsum(values, out=_running(np.dtype(short), values.size)).take(ends - 1)
    upto[1:] -= upto[:-1].copy()
    return upto


def _uniform(counts: Indices, rng: Generator) -> Indices:
    """Return a random number below each count, uniform up to 2^-53: four times as fast as an exactly uniform one."""
    places = rng.random(counts.size)
    places *= counts
    return places.astype(np.int64)


def check_unit(unit: str, schema: Schema) -> None:
    """Refuse a column that cannot name units."""
    if not isinstance(unit, str) or unit not in schema:
        shown = ", ".join(schema.names[:20])
        raise InvalidArgument(f"unit must be a column of {schema.dataset}; got {unit!r}. It has: {shown}.", name="unit")
    if schema[unit].type is Type.FLOAT:
        raise InvalidArgument(
            f"unit must be a column of texts, whole numbers or dates; {unit!r} has floating-point numbers, where equal"
            " values may differ by rounding. Convert it first.",
            name="unit",
        )
    if len(schema) == 1:
        raise InvalidArgument("unit must leave a column to ask about; it is the only one.", name="unit")


class UnitColumn(UserWarning):
    """A column seems to name units, some of which may have several rows."""


def likely_unit(schema: Schema) -> str | None:
    """Return a column that seems to name units, judging by its name alone: nothing is read.

    >>> names = ["id", "width", "patient_id", "ward"]
    >>> likely_unit(Schema(tuple(Column(name, Type.INT, True) for name in names)))
    'patient_id'
    """
    found = (name for name in schema.names if _NAMES_UNITS.search(name) and schema[name].type is not Type.FLOAT)
    return next(found, None)


def warn_of_units(schema: Schema) -> None:
    """Warn of a column that seems to name units, if no unit is declared."""
    unit = None if schema.unit is not None else likely_unit(schema)
    if unit is not None:
        check.warn(
            f"Does every row have its own {unit!r}? If several rows share one, they are not independent, and intervals"
            f" for rows are wrong: open the data with unit={unit!r}. If every row has its own, it names the rows: leave"
            " it out of the data.",
            UnitColumn,
        )


def refuse_missing_unit(unit: str, missing: bool) -> None:
    """Refuse rows without a unit."""
    if missing:
        raise RowSourceError(
            f"Column {unit!r} has missing values, so it is not known which rows belong together. Fill them in, or leave"
            " these rows out.",
            column=unit,
        )


def grouped(columns: Sequence[pl.Series], unit: str) -> tuple[list[pl.Series], Units]:
    """Return columns in memory with their rows grouped by unit, and where the units are."""
    (names,) = (_text(series) for series in columns if series.name == unit)
    refuse_missing_unit(unit, names.null_count() > 0)
    order = names.alias("unit").to_frame().select(pl.arg_sort_by("unit", maintain_order=True)).to_series()
    moved = np.empty(order.len(), np.int64)
    moved[order.to_numpy()] = np.arange(order.len())
    return [series.gather(order) for series in columns], Units(_starts(lengths_of(names.gather(order))), moved)


@dataclass
class Grouping:
    """Groups the rows of a stream by unit; `starts` and `digests` are known at its end.

    Parameters
    ----------
    unit
        The column that names units.
    folder
        Where chunks are written meanwhile.
    columns
        How each column is stored.
    dataset
        The name of the table in error messages.
    """

    unit: str
    folder: Path
    columns: InitVar[Mapping[str, Storage]]
    dataset: InitVar[str]
    digests: Sequence[ColumnDigest | Digested] = field(init=False)  # of the rows in their original order
    kept: bool = field(init=False, default=False)  # whether `resume` can go on from here, so that chunks stay
    _sizes: list[NDArray[np.int64]] = field(init=False, default_factory=list)
    _files: int = field(init=False, default=0)
    _categories: dict[str, pl.DataType] = field(init=False, default_factory=dict)

    def __post_init__(self, columns: Mapping[str, Storage], dataset: str) -> None:
        check_unit(self.unit, Schema(tuple(Column(name, each.type, True) for name, each in columns.items()), dataset))
        self.digests = self._hashing = [ColumnDigest(name, storage) for name, storage in columns.items()]

    def batches(
        self, batches: Iterator[pl.DataFrame], rows: int | None, keep: Callable[[Any], None] | None = None
    ) -> Iterator[pl.DataFrame]:
        """Yield all rows of `batches`, grouped by unit; `rows` is their number if it is known.

        `keep` is called when all rows are read, with what `resume` needs; not if they fit into memory, or have
        categories, whose numbers only this process knows.
        """
        taken = (self._taken(batch) for batch in batches if batch.height)
        for together in self._together(taken, rows, 0, keep):
            yield from map(self._named, cut(together, BATCH))

    def resume(self, state: Any) -> Iterator[pl.DataFrame]:
        """Yield the same rows from the chunks of another process; raises `Incomplete` if they have changed."""
        spill = _Spill(self.unit, len(state["rows"]), 0)
        spill.take_up(self.folder, state)
        self.digests = [Digested(*each) for each in state["digests"]]
        self._files, self.kept = len(state["chunks"]), True
        return self._grouped(spill, state["bytes"])

    def _grouped(self, spill: "_Spill", per_row: float) -> Iterator[pl.DataFrame]:
        for together in self._by_partition(spill, per_row, 0):
            yield from cut(together, BATCH)

    def _taken(self, batch: pl.DataFrame) -> pl.DataFrame:
        """Hash a batch; return it with numbers in place of categories, except in the unit column."""
        refuse_missing_unit(self.unit, batch[self.unit].null_count() > 0)
        for digest in self._hashing:
            digest.add(_text(batch[digest.name]))
        columns = []
        for series in batch:
            if series.name == self.unit:
                columns.append(_text(series))
            elif isinstance(series.dtype, pl.Categorical):
                self._categories[series.name] = series.dtype
                columns.append(series.to_physical())
            else:
                columns.append(_text(series))
        first, *others = columns
        return first.to_frame().hstack(others)

    def _named(self, batch: pl.DataFrame) -> pl.DataFrame:
        """Turn numbers back into categories: Polars gives a category the same number in every batch."""
        for name, dtype in self._categories.items():
            batch.replace_column(batch.columns.index(name), batch[name].cat.to(dtype))
        return batch

    @cached_property
    def starts(self) -> Indices:
        """Where each unit begins, then where the last one ends. Known at the end of the stream."""
        return _starts(np.concatenate([np.zeros(0, np.int64), *self._sizes]))

    def _together(
        self,
        batches: Iterator[pl.DataFrame],
        rows: int | None,
        depth: int,
        keep: Callable[[Any], None] | None = None,
    ) -> Iterator[pl.DataFrame]:
        first = next(batches, None)
        if first is None:
            return
        batches = chain([first], batches)
        size = max(1.0, mean_bytes(first)) * (rows or 0)
        partitions = PARTITIONS if rows is None else min(MOST_PARTITIONS, ceil(size / PARTITION_BYTES))
        if partitions <= 1:
            few, held = [], 0
            for batch in batches:
                few.append(batch)
                held += all_bytes(batch)
                if held > MOST_BYTES:  # later rows are longer than the first ones
                    break
            else:
                yield self._sorted(pl.concat(few))
                return
            batches, partitions = chain(few, batches), PARTITIONS
            del few
        spill = _Spill(self.unit, partitions, depth, hashed=keep is not None)
        for batch in batches:
            for part in batch.iter_slices(BATCH):
                if spill.add(part):
                    spill.write(self._next_file())
        spill.write(self._next_file())
        if keep is not None and not self._categories:
            digests = [(digest.rows, digest.line()) for digest in self.digests]
            keep({"bytes": spill.row_bytes, "digests": digests} | spill.state())
            self.kept = True
        yield from self._by_partition(spill, spill.row_bytes, depth)

    def _by_partition(self, spill: "_Spill", per_row: float, depth: int) -> Iterator[pl.DataFrame]:
        try:
            for partition in range(spill.partitions):
                count = int(spill.rows[partition])
                if count * per_row <= MOST_BYTES:
                    if count:
                        yield self._sorted(pl.concat(list(spill.read(partition))))
                elif spill.is_one_unit(partition):
                    yield from spill.read(partition)
                    self._sizes.append(np.array([count]))
                else:
                    yield from self._together(spill.read(partition), count, depth + 1)
        finally:
            if depth or not self.kept:
                spill.remove()

    def _sorted(self, frame: pl.DataFrame) -> pl.DataFrame:
        # By position, since Polars takes some names for patterns. On one thread: several use 50% more processor time.
        together = frame.sort(pl.nth(frame.columns.index(self.unit)), multithreaded=False)
        self._sizes.append(lengths_of(together[self.unit]))
        return together

    def _next_file(self) -> Path:
        self._files += 1
        return self.folder / f"chunk.{self._files}"


class _Spill:
    """Chunks on disk, each sorted by partition."""

    def __init__(self, unit: str, partitions: int, seed: int, *, hashed: bool = False) -> None:
        self._unit, self.partitions, self._seed, self._hashed = unit, partitions, seed, hashed
        self.rows = np.zeros(partitions, np.int64)
        self._ends: list[set[Any]] = [set() for _ in range(partitions)]  # smallest and largest unit of each chunk
        self._waiting: list[tuple[pl.DataFrame, list[int]]] = []  # sorted by partition, and where each begins
        self._waiting_bytes = self._bytes = 0
        self._chunks: list[tuple[Path, list[int]]] = []  # a file, and where each partition begins in it
        self._hashes: list[str] = []  # of the files, if `hashed`

    def add(self, batch: pl.DataFrame) -> bool:
        """Add a batch; return whether there is enough for a chunk."""
        number = (batch[self._unit].hash(self._seed) % self.partitions).cast(pl.UInt16).to_numpy()
        counts = np.bincount(number, minlength=self.partitions)
        order = np.argsort(number, kind="stable")  # numpy sorts 16 bits by counting, in linear time
        self._waiting.append((batch[order], [0, *np.cumsum(counts).tolist()]))
        self.rows += counts
        size = all_bytes(batch)
        self._bytes += size
        self._waiting_bytes += size
        return self._waiting_bytes >= CHUNK_BYTES

    def write(self, path: Path) -> None:
        """Write the waiting batches as one chunk."""
        if not self._waiting:
            return
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        places = [0]
        with path.open("wb") as file:
            for partition in range(self.partitions):
                parts = [
                    batch.slice(cuts[partition], cuts[partition + 1] - cuts[partition])
                    for batch, cuts in waiting
                    if cuts[partition + 1] > cuts[partition]
                ]
                if parts:
                    part = pl.concat(parts, rechunk=True)
                    part.write_ipc_stream(file)
                    self._ends[partition] |= {part[self._unit].min(), part[self._unit].max()}
                places.append(file.tell())
        self._chunks.append((path, places))
        if self._hashed:
            self._hashes.append(_hash_of(path))

    @property
    def row_bytes(self) -> float:
        """How many bytes the values of a row have on average."""
        return self._bytes / max(1, int(self.rows.sum()))

    def state(self) -> dict[str, Any]:
        """Return what `take_up` needs."""
        chunks = [
            (path.name, places, digest) for (path, places), digest in zip(self._chunks, self._hashes, strict=True)
        ]
        single = [self.is_one_unit(partition) for partition in range(self.partitions)]
        return {"rows": self.rows.tolist(), "single": single, "chunks": chunks}

    def take_up(self, folder: Path, state: Any) -> None:
        """Continue with the chunks of another process; raises `Incomplete` if they have changed."""
        for name, places, digest in state["chunks"]:
            if not (folder / name).exists() or _hash_of(folder / name) != digest:
                raise Incomplete
            self._chunks.append((folder / name, places))
        self.rows = np.array(state["rows"])
        self._ends = [{0} if single else {0, 1} for single in state["single"]]

    def is_one_unit(self, partition: int) -> bool:
        """Whether all rows of a partition are of one unit."""
        return len(self._ends[partition]) == 1

    def read(self, partition: int) -> Iterator[pl.DataFrame]:
        """Yield the rows of a partition, one chunk after another."""
        for path, places in self._chunks:
            start, end = places[partition], places[partition + 1]
            if end > start:
                with path.open("rb") as file:
                    file.seek(start)
                    yield pl.read_ipc_stream(io.BytesIO(file.read(end - start)))

    def remove(self) -> None:
        """Delete the chunks."""
        for path, _ in self._chunks:
            path.unlink(missing_ok=True)


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _text(series: pl.Series) -> pl.Series:
    """Return categories as texts; other series unchanged."""
    return series.cast(pl.String) if isinstance(series.dtype, pl.Categorical | pl.Enum) else series


def lengths_of(together: pl.Series) -> NDArray[np.int64]:
    """Return how many rows each unit has, from the units of rows that are grouped by unit."""
    return together.rle().struct.field("len").to_numpy().astype(np.int64)


def _starts(sizes: NDArray[np.int64]) -> Indices:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
