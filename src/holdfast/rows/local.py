"""Rows on this machine, in memory or in mapped files: the verbs of a row source, written once for both."""

import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.cancel import checkpoint
from holdfast.errors import InvalidArgument, RowSourceError
from holdfast.queries.query import Packed, Packing, Query, Values
from holdfast.queries.silence import silence
from holdfast.rows import draws as drawing
from holdfast.rows.columns import BufferPool, CodedText, Storage, StoredColumn, take_into
from holdfast.rows.draws import AllRows, Consecutive, Indices, Selection
from holdfast.rows.fingerprint import ColumnDigest, fingerprint_of
from holdfast.rows.packs import Packs
from holdfast.rows.randomize import randomized, tossed, tossed_parts
from holdfast.schema import Column, Schema

_BLOCK = 1 << 17  # rows evaluated at once: enough to forget the overhead, little enough to stay in cache
_BLOCK_BYTES = 256 << 20  # fewer if values are long
_PIECE = 1 << 18  # rows hashed at once
_SHOWN = 30  # columns in a printout

_pool = BufferPool()


class LocalRows:
    """A dataset on this machine. Build one with `holdfast.open`."""

    def __init__(
        self,
        name: str,
        columns: Sequence[tuple[Column, Storage, StoredColumn]],
        rows: int,
        *,
        fingerprint: str | None = None,
        location: Path | None = None,
    ) -> None:
        self._name = name
        self._rows = rows
        self._storages = {column.name: storage for column, storage, _ in columns}
        self._stored = {column.name: stored for column, _, stored in columns}
        self._plain = {column.name: stored.plain for column, _, stored in columns if stored.plain is not None}
        self._coded = {
            column.name: stored
            for column, _, stored in columns
            if isinstance(stored, CodedText) and stored.valid is None
        }
        self._schema = Schema(tuple(column for column, _, _ in columns), dataset=name)
        self._fingerprint = fingerprint
        self._hashing = threading.Lock()
        self._location = location
        self._packs = Packs(rows, self._compute_lines)

    @property
    def name(self) -> str:
        """What the dataset is called."""
        return self._name

    @property
    def schema(self) -> Schema:
        """Column names, types, nullability. Public."""
        return self._schema

    @property
    def location(self) -> Path | None:
        """The folder that holds the columns; None if they are in memory."""
        return self._location

    @property
    def fingerprint(self) -> str:
        """A hash of the content; computed on first use for rows in memory."""
        with self._hashing:
            if self._fingerprint is None:
                self._fingerprint = self._hash_content()
            return self._fingerprint

    def __len__(self) -> int:
        return self._rows

    @silence
    def tally(self, query: Query, *, draws: int, mass: float, rng: Generator) -> NDArray[np.int64]:
        """Draw, evaluate, toss, randomize; return how often each outcome came up, in each part if there are several."""
        if type(draws) is not int or draws < 1:
            check.whole(draws=draws)
        outcomes, parts = query.statistic.outcomes, query.parts
        size, total = self._block(query.columns), parts * draws
        counts = np.zeros(outcomes if parts == 1 else (parts, outcomes), np.int64)
        for first in range(0, total, size):
            rows = drawing.with_replacement(rng, self._rows, min(size, total - first))
            counts += self._tossed(query, rows, first, draws, rng)
        return randomized(counts, mass, rng)

    def _tossed(
        self, query: Query, rows: Indices | slice, first: int, draws: int, rng: Generator
    ) -> NDArray[np.int64]:
        """Count the outcomes of these rows, which are draws number `first` and so on; not randomized yet."""
        checkpoint()
        _pool.reset()
        outcomes, parts = query.statistic.outcomes, query.parts
        # What is evaluated gets no name: its memory must be free again when the next block is drawn.
        if parts == 1:
            return tossed(self._evaluate(query, rows, first), outcomes, rng)
        part, draw = _numbers(first, _height(rows), draws)
        return tossed_parts(self._evaluate_parts(query, rows, part, draw), outcomes, rng, part, parts)

    @silence
    def sample(self, query: Query, selection: Selection, rng: Generator) -> Values:
        """Return what selected rows say, in order; selected anew for each part if there are several. Secret."""
        blocks = []
        for rows, first, count in self._selected(query, selection, rng):
            blocks.append(self._values(query, rows, first, count))
        # A copy, even of one block, which may lie in the pool or in the column itself.
        values: NDArray[Any] = np.concatenate(blocks)
        return values if query.parts == 1 else values.reshape(query.parts, -1, *values.shape[1:])

    def _values(self, query: Query, rows: Indices | slice, first: int, count: int) -> Values:
        """Return what these rows say, which are number `first` and so on of `count` in every part."""
        checkpoint()
        _pool.reset()
        if query.parts == 1:
            return self._evaluate(query, rows, first)
        part, draw = _numbers(first, _height(rows), count)
        return self._evaluate_parts(query, rows, part, draw)

    def frame(self, rows: Indices) -> pl.DataFrame:
        """Return these rows, all columns. Secret: only for who splits a table before anything is asked of it."""
        _pool.reset()
        return self._frame(rows, self._schema.names).clone()

    def verify(self) -> None:
        """Read and hash everything again; raise if it is not the data that was opened."""
        if self._hash_content() != self.fingerprint:
            raise RowSourceError(f"{self._name} has changed: its content does not match its fingerprint.")

    def require_sound(self) -> None:
        """Refuse if the data are known to be damaged: before anything is charged."""

    def close(self) -> None:
        """Stop whatever goes on in the background."""

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_hashing"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._hashing = threading.Lock()

    def __repr__(self) -> str:
        count = len(self._schema)
        lines = [f"{self._name}: {_counted(self._rows, 'row')}, {_counted(count, 'column')}"]
        shown = self._schema.columns[:_SHOWN]
        width = max(len(repr(column.name)) for column in shown)
        for column in shown:
            missing = ", may be missing" if column.nullable else ""
            lines.append(f"  {column.name!r:<{width}}  {column.type}{missing}")
        if count > _SHOWN:
            lines.append(f"  and {count - _SHOWN} more")
        return "\n".join(lines)

    def _column(self, name: str) -> StoredColumn:
        if name not in self._stored:
            self._schema[name]  # raises, with a suggestion
        return self._stored[name]

    def _evaluate(self, query: Query, rows: Indices | slice, first: int) -> Values:
        """Evaluate a query of one part on these rows, which are its draws number `first` and so on."""
        columns, direct = query.columns, query.direct
        if direct is not None and all(name in self._plain for name in columns):
            self._about_to_read(rows, columns)
            return direct({name: _values_at(self._plain[name], rows) for name in columns})
        coded = self._coded.get(columns[0]) if len(columns) == 1 and query.identity is not None else None
        if coded is not None and coded.dictionary.len() <= _height(rows):
            # What a row says is what its text says, so every text that was drawn is asked once: no other, whose length
            # would show in the time it takes. Not of functions from outside, which see one row for each draw.
            self._about_to_read(rows, columns)
            places, texts = coded.distinct(columns[0], _values_at(coded.codes, rows))
            values: Values = query.evaluate(texts.to_frame()).take(places, axis=0)
            return values
        if not query.numbered and query.packing is None:
            return query.evaluate(self._frame(rows, columns))
        draw = np.arange(first, first + _height(rows))
        return self._evaluate_parts(query, rows, np.zeros_like(draw), draw)

    def _evaluate_parts(
        self, query: Query, rows: Indices | slice, part: NDArray[np.int64], draw: NDArray[np.int64]
    ) -> Values:
        packing = query.packing
        if packing is None or isinstance(rows, slice):
            return query.evaluate_parts(self._frame(rows, query.columns), part, draw)
        self._about_to_read(slice(0, 0), query.columns)  # lines that are kept are refused, too, where rows are damaged
        return query.evaluate_packed(self._packs.lines(packing, rows, _floats), part, draw)

    def _compute_lines(self, packing: Packing, rows: Indices | slice) -> Packed:
        return packing.of(self._frame(rows, packing.columns))

    def _selected(
        self, query: Query, selection: Selection, rng: Generator
    ) -> Iterator[tuple[Indices | slice, int, int]]:
        """Yield rows, the number of the first of them and how many there are in a part, in blocks that fit in memory.

        Numbers go on from one part to the next; small parts share a block.
        """
        size, parts, n = self._block(query.columns), query.parts, self._rows
        if isinstance(selection, AllRows):  # sliced: a list of all their numbers can be longer than the columns
            for part in range(parts):
                for start in range(0, n, size):
                    yield slice(start, min(start + size, n)), part * n + start, n
            return
        if isinstance(selection, Consecutive) and parts == 1 and 0 <= selection.start < selection.stop <= n:
            for start in range(selection.start, selection.stop, size):
                stop = min(start + size, selection.stop)
                yield slice(start, stop), start - selection.start, selection.stop - selection.start
            return
        part, together = 0, 1
        while part < parts:
            chosen = [selection.indices(n, rng) for _ in range(min(together, parts - part))]
            indices, count = np.concatenate(chosen), chosen[0].size
            if indices.size and not (indices.min() >= 0 and indices.max() < n):
                raise InvalidArgument(f"selection must be of rows 0 to {n - 1}; got others.", name="selection")
            for start in range(0, max(1, indices.size), size):
                yield indices[start : start + size], part * count + start, count
            part, together = part + len(chosen), max(1, size // max(1, count))

    def _frame(self, rows: Indices | slice, columns: Sequence[str]) -> pl.DataFrame:
        self._about_to_read(rows, columns)
        if not columns:
            return pl.DataFrame(height=_height(rows))  # a constant still has one value per row
        first, *others = (self._series(name, rows) for name in columns)
        # Stacked rather than built from a list, where Polars would rename a column whose name is empty, or from a
        # dict, which it takes its time to look through.
        frame = first.to_frame()
        return frame.hstack(others) if others else frame

    def _series(self, name: str, rows: Indices | slice) -> pl.Series:
        stored = self._column(name)
        return stored.part(name, rows.start, rows.stop) if isinstance(rows, slice) else stored.take(name, rows, _pool)

    def _about_to_read(self, rows: Indices | slice, columns: Sequence[str]) -> None:
        """Hear which rows are about to be read: a chance to refuse, or to make reading them faster."""

    def _block(self, columns: Sequence[str]) -> int:
        row_bytes = sum(self._column(name).row_bytes for name in columns)
        return int(max(1, min(_BLOCK, _BLOCK_BYTES // max(1.0, row_bytes))))

    def _hash_content(self) -> str:
        digests = []
        for name, stored in self._stored.items():
            digest = ColumnDigest(name, self._storages[name])
            for start in range(0, self._rows, _PIECE):
                digest.add(stored.part(name, start, min(start + _PIECE, self._rows)))
            digests.append(digest)
        return fingerprint_of(digests)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _height(rows: Indices | slice) -> int:
    return int(rows.stop - rows.start) if isinstance(rows, slice) else rows.size


def _floats(count: int) -> Packed:
    return _pool(np.dtype(np.float32), count)


@lru_cache(8)
def _numbers(first: int, count: int, draws: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return part and draw of so many rows from number `first` on; the same for every step of a fit."""
    part, draw = np.divmod(np.arange(first, first + count), draws)
    part.flags.writeable = draw.flags.writeable = False  # shared
    return part, draw


def _values_at(values: NDArray[Any], rows: Indices | slice) -> NDArray[Any]:
    return values[rows] if isinstance(rows, slice) else take_into(values, rows, _pool)
