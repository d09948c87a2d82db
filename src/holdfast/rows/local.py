"""Rows on this machine, in memory or in mapped files: the verbs of a row source, written once for both."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check, notebook
from holdfast.cancel import checkpoint
from holdfast.errors import InvalidArgument, RowSourceError
from holdfast.queries.evaluate import silence
from holdfast.queries.query import Composed, Folded, OnePass, Packed, Packing, Query, Values
from holdfast.queries.submission import Submission
from holdfast.queries.units import Accepted, WholeUnit
from holdfast.rows import draws as drawing
from holdfast.rows.columns import CodedText, PackedText, Storage, StoredColumn
from holdfast.rows.disk.packs import PackFiles, Packs
from holdfast.rows.draws import (
    AllRows,
    Consecutive,
    Indices,
    Selection,
    WithReplacement,
    accepted,
    randomized_all,
    tallied,
    tallied_parts,
    tossed,
)
from holdfast.rows.evaluation import POOL, StoredColumns, height
from holdfast.rows.fingerprint import ColumnDigest, fingerprint_of
from holdfast.rows.units import Units, sums
from holdfast.schema import Column, Schema

_BLOCK = 1 << 17  # rows evaluated at once: enough to make the overhead negligible, few enough to stay in cache
_SCAN = 8  # blocks of consecutive rows folded at once, since nothing has to be gathered
_BLOCK_BYTES = 256 << 20  # a block has fewer rows if values are long
_LINES_BYTES = 2 << 20  # packed lines at once: more exceeds the cache; with less, numpy's overhead dominates
_PIECE = 1 << 18  # rows hashed at once
_SHOWN = 30  # columns in a printout


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
        packs: PackFiles | None = None,
        unit: str | None = None,
        units: Units | None = None,
    ) -> None:
        self._name = name
        self._rows = rows
        self._units = units
        self._count = rows if units is None else len(units)  # how many rows, or units, there are to draw from
        self._storages = {column.name: storage for column, storage, _ in columns}
        self._columns = StoredColumns({column.name: stored for column, _, stored in columns})
        self._schema = Schema(tuple(column for column, _, _ in columns if column.name != unit), name, unit)
        self._fingerprint = fingerprint
        self._hashing = threading.Lock()
        self._location = location
        self._packs = Packs(rows, packs)
        self._ids: dict[str, pl.Series] = {}
        self._blocks: dict[tuple[str, ...], int] = {}  # rows evaluated at once, by the columns read

    @property
    def storages(self) -> Mapping[str, Storage]:
        """How each column is kept, by its name."""
        return self._storages

    @property
    def name(self) -> str:
        """The name of the dataset."""
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
        return self._count

    @silence
    def tally(self, query: Query, *, draws: int, mass: float, rng: Generator) -> NDArray[np.int64]:
        """Draw, evaluate, toss, randomize; return how often each outcome came up, in each part if there are several."""
        if type(draws) is not int or draws < 1:
            check.whole(draws=draws)
        size, total = self.block(query), query.parts * draws
        if total <= size:  # nearly always
            return self._tallied(query, drawing.with_replacement(rng, self._count, total), 0, draws, mass, rng)
        outcomes, parts = query.statistic.outcomes, query.parts
        counts = np.zeros(outcomes if parts == 1 else (parts, outcomes), np.int64)
        for first in range(0, total, size):
            chosen = drawing.with_replacement(rng, self._count, min(size, total - first))
            counts += self._tallied(query, chosen, first, draws, mass, rng)
        return counts

    @silence
    def tally_passes(
        self, whole: Composed, passes: Sequence[OnePass], *, draws: int, mass: float, rng: Generator
    ) -> list[NDArray[np.int64]]:
        """Return what `tally` does for each pass, but read and evaluate the rows of all passes together."""
        total = draws * len(passes)
        if self._units is not None or total > self.block(whole):
            return [self.tally(one, draws=draws, mass=mass, rng=rng) for one in passes]
        chosen = drawing.with_replacement(rng, self._count, total)
        checkpoint()
        POOL.reset()
        self._about_to_read(chosen, whole.columns)
        row_values, times = self._columns.counted(whole.functions, chosen, len(passes))
        values, outcomes, found = whole.combined(row_values), whole.statistic.outcomes, []
        for number, one in enumerate(passes):
            if times is None:
                counts = tossed(values[number * draws : (number + 1) * draws], outcomes, rng)
            else:
                counts = tossed(values, outcomes, rng, times[number])
            found.append(one.of_whole(counts))
        return randomized_all(found, mass, rng)

    def _tallied(
        self, query: Query, chosen: Indices | slice, first: int, draws: int, mass: float, rng: Generator
    ) -> NDArray[np.int64]:
        """Count the randomized outcomes of the chosen rows or units, which are draws `first`, `first` + 1, ..."""
        checkpoint()
        POOL.reset()
        outcomes, parts = query.statistic.outcomes, query.parts
        # Evaluate within this call, so that no reference remains: the next block reuses the memory.
        if parts == 1:
            if isinstance(query, Composed) and self._units is None and not query.weighs:  # nearly always
                self._about_to_read(chosen, query.columns)
                row_values, times = self._columns.counted(query.functions, chosen)
                return tallied(query.combined(row_values), outcomes, mass, rng, times)
            return tallied(self._ask(query, chosen, first, rng), outcomes, mass, rng)
        part, draw = _numbers(first, height(chosen), draws)
        values = self._evaluate_parts(query, self._speaking(chosen, rng), part, draw)
        return tallied_parts(values, outcomes, mass, rng, part, parts)

    @silence
    def sample(self, query: Query, selection: Selection, rng: Generator) -> Values:
        """Return the values of selected rows, in order; with several parts, each has its own selection. Secret."""
        blocks = []
        for chosen, first, count in self._selected(query, selection, rng):
            blocks.append(self._values(query, chosen, first, count, rng))
        # A copy even of a single block, whose memory may belong to the pool or to the column itself.
        joined: NDArray[Any] = np.concatenate(blocks)
        return joined if query.parts == 1 else joined.reshape(query.parts, -1, *joined.shape[1:])

    @silence
    def fold(self, query: Folded, rng: Generator) -> NDArray[np.float64]:
        """Return the totals of all rows: like `sample` of all rows, but without a list of their values. Secret."""
        if self._units is not None:
            return query.totals(self.sample(query, AllRows(), rng))
        self._about_to_read(slice(0, self._rows), query.columns)
        total = np.zeros(())
        # On one thread: several would compete for memory bandwidth and for the interpreter lock.
        for rows in _slices(self._rows, _SCAN * self.block(query)):
            checkpoint()
            self._about_to_read(rows, query.columns)
            total = total + query.fold(self._columns.values(query.functions, rows, scan=True))
        return total

    def _values(self, query: Query, chosen: Indices | slice, first: int, count: int, rng: Generator) -> Values:
        """Return the values of the chosen rows or units: draws `first`, `first` + 1, ..., with `count` in each part."""
        checkpoint()
        POOL.reset()
        if query.parts == 1:
            return self._ask(query, chosen, first, rng)
        part, draw = _numbers(first, height(chosen), count)
        return self._evaluate_parts(query, self._speaking(chosen, rng), part, draw)

    def frame(self, chosen: Indices) -> pl.DataFrame:
        """Return these rows, or all rows of these units, and all columns.

        Secret: only for splitting a table before its first question.
        """
        POOL.reset()
        rows = chosen
        if self._units is not None:
            (together,) = self._units.all_rows(chosen, self._rows)
            rows = together.rows
        return self._frame(rows, tuple(self._columns.stored)).clone()

    def ids(self, column: str) -> pl.Series:
        """Return the column that names the rows of a board, in order. Public: submitters have these ids."""
        if column not in self._ids:
            self._ids[column] = self._column(column).part(column, 0, self._rows).clone()
        return self._ids[column]

    @property
    def unit_starts(self) -> Indices | None:
        """Where the rows of each unit begin, then where the last unit's end; None if there are no units."""
        return None if self._units is None else self._units.starts

    def verify(self) -> None:
        """Read and hash everything again; raise if it is not the data that was opened."""
        if self._hash_content() != self.fingerprint:
            raise RowSourceError(f"{self._name} has changed: its content does not match its fingerprint.")

    def require_sound(self) -> None:
        """Refuse, before anything is charged, if the data are known to be damaged."""

    def close(self) -> None:
        """Stop any background work."""

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_hashing"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._hashing = threading.Lock()

    @property
    def _title(self) -> str:
        what = _counted(self._rows, "row") if self._units is None else self._schema.units_of(self._count)
        return f"{self._name}: {what}, {_counted(len(self._schema), 'column')}"

    def _repr_html_(self) -> str:
        return notebook.paragraphs(self._title) + self._schema._repr_html_()

    def __repr__(self) -> str:
        count = len(self._schema)
        lines = [self._title]
        shown = self._schema.columns[:_SHOWN]
        width = max(len(repr(column.name)) for column in shown)
        for column in shown:
            missing = ", may be missing" if column.nullable else ""
            lines.append(f"  {column.name!r:<{width}}  {column.type}{missing}")
        if count > _SHOWN:
            lines.append(f"  and {count - _SHOWN} more")
        return "\n".join(lines)

    def texts(self, name: str) -> list[str] | None:
        """Return all texts of a column, sorted, for an admin who publishes them; None if there are too many."""
        stored = self._column(name)
        if isinstance(stored, PackedText):
            return None
        all_of_it = stored.texts if isinstance(stored, CodedText) else stored.part(name, 0, self._rows)
        return all_of_it.drop_nulls().unique().sort().to_list()

    def _column(self, name: str) -> StoredColumn:
        if name not in self._columns.stored:
            self._schema[name]  # raises, with a suggestion
        return self._columns.stored[name]

    def _ask(self, query: Query, chosen: Indices | slice, first: int, rng: Generator) -> Values:
        """Return the values of chosen rows or units for a query of one part."""
        if self._units is None:
            values = self._evaluate(query, chosen, first)
        else:
            values = self._ask_units(query, self._units, chosen, first, rng)
        return accepted(values, rng) if query.weighs else values

    def _ask_units(self, query: Query, units: Units, chosen: Indices | slice, first: int, rng: Generator) -> Values:
        if isinstance(query, WholeUnit):
            return self._fold(query, units, _indices(chosen))
        if isinstance(query, Submission):
            return self._scored(query, units, chosen)
        rows, empty = units.one_row(_indices(chosen), rng, query.rows_per_unit)
        if empty is None:
            return self._evaluate(query, rows, first)
        alike = query.measure if isinstance(query, Accepted) and not query.weighs else query
        values = self._evaluate(alike, rows, first)
        if values.dtype.kind == "b":  # as outcomes, which need no coins
            outcomes: NDArray[Any] = (values + np.uint8(1)) * ~empty
            return outcomes
        values[empty] = 0.0 if query.weighs else np.nan
        return values

    def _scored(self, query: Submission, units: Units, chosen: Indices | slice) -> Values:
        """Return the scores of consecutive units for a submission, which has a prediction for every row."""
        assert isinstance(chosen, slice)  # all units are scored, in order
        starts = units.starts[chosen.start : chosen.stop + 1]
        first, last = int(starts[0]), int(starts[-1])
        return query.of_units(self._evaluate(query, slice(first, last), first), starts)

    def _speaking(self, chosen: Indices | slice, rng: Generator) -> Indices | slice:
        """Return the chosen rows; if there are units, a random row of each chosen unit."""
        return chosen if self._units is None else self._units.one_row(_indices(chosen), rng, None)[0]

    def _fold(self, query: WholeUnit, units: Units, chosen: Indices) -> Values:
        """Read all rows of these units, in blocks that fit in memory; if there are repeats for sure, each unit once."""
        places = None
        if chosen.size > len(units):
            chosen, places = np.unique(chosen, return_inverse=True)
        counted, total = np.zeros(chosen.size), np.zeros(chosen.size)
        direct, plain = query.contributions_directly, self._columns.plain
        if not all(name in plain for name in query.columns):
            direct = None
        for together in units.all_rows(chosen, self.block(query)):
            checkpoint()
            POOL.reset()
            if direct is None:
                counting, adds = query.contributions(self._frame(together.rows, query.columns))
            else:
                self._about_to_read(together.rows, query.columns)
                counting, adds = direct({name: together.values(plain[name], POOL) for name in query.columns})
            these = slice(together.begin, together.begin + together.counts.size)
            counted[these] += together.counts if counting is None else sums(counting, together.ends)
            total[these] += sums(adds, together.ends)
        values = query.folded(counted, total)
        return values if places is None else values[places]

    def _evaluate(self, query: Query, rows: Indices | slice, first: int) -> Values:
        """Evaluate a query of one part on these rows, which are its draws `first`, `first` + 1, ..."""
        if isinstance(query, Composed):
            self._about_to_read(rows, query.columns)
            return query.combined(self._columns.values(query.functions, rows))
        if not query.numbered and not query.packings:
            return query.evaluate(self._frame(rows, query.columns))
        draw = np.arange(first, first + height(rows))
        return self._evaluate_parts(query, rows, np.zeros_like(draw), draw)

    def _evaluate_parts(
        self, query: Query, rows: Indices | slice, part: NDArray[np.int64], draw: NDArray[np.int64]
    ) -> Values:
        if not query.packings:
            return query.evaluate_parts(self._frame(rows, query.columns), part, draw)
        self._about_to_read_lines()
        lines = [self._packs.lines(packing, rows, self._compute_lines, _floats) for packing in query.packings]
        return query.evaluate_packed(lines, part, draw)

    def _compute_lines(self, packing: Packing, rows: Indices | slice) -> Packed:
        return packing.of(self._frame(rows, packing.columns))

    def _selected(
        self, query: Query, selection: Selection, rng: Generator
    ) -> Iterator[tuple[Indices | slice, int, int]]:
        """Yield rows, the number of the first of them, and how many a part has, in blocks that fit in memory.

        Numbering continues from one part to the next; small parts share a block.
        """
        size, parts, n = self.block(query), query.parts, self._count
        if isinstance(selection, AllRows):  # as slices: an array of all indices can be larger than the columns
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
            indices, count = chosen[0] if len(chosen) == 1 else np.concatenate(chosen), chosen[0].size
            own = isinstance(selection, WithReplacement)  # its indices are in range by construction
            if not own and indices.size and not (indices.min() >= 0 and indices.max() < n):
                raise InvalidArgument(f"selection must be of rows 0 to {n - 1}; got others.", name="selection")
            for start in range(0, max(1, indices.size), size):
                yield indices[start : start + size], part * count + start, count
            part, together = part + len(chosen), max(1, size // max(1, count))

    def _frame(self, rows: Indices | slice, columns: Sequence[str]) -> pl.DataFrame:
        self._about_to_read(rows, columns)
        return self._columns.frame(rows, columns)

    def _about_to_read(self, rows: Indices | slice, columns: Sequence[str]) -> None:
        """Hook before these rows are read: may refuse, or make reading them faster."""

    def _about_to_read_lines(self) -> None:
        """Hook before packed lines are read: may refuse."""

    def block(self, query: Query) -> int:
        """Return how many rows are evaluated at once."""
        if query.packings:
            width = sum(packing.width for packing in query.packings)
            return max(1, _LINES_BYTES // (width * np.dtype(np.float32).itemsize))
        size = self._blocks.get(query.columns)
        if size is None:
            row_bytes = sum(self._column(name).row_bytes for name in query.columns)
            size = self._blocks[query.columns] = int(max(1, min(_BLOCK, _BLOCK_BYTES // max(1.0, row_bytes))))
        return size

    def _hash_content(self) -> str:
        digests = []
        moved = None if self._units is None else self._units.moved
        for name, stored in self._columns.stored.items():
            digest = ColumnDigest(name, self._storages[name])
            for start in range(0, self._rows, _PIECE):
                stop = min(start + _PIECE, self._rows)
                POOL.reset()
                part = stored.part(name, start, stop) if moved is None else stored.take(name, moved[start:stop], POOL)
                digest.add(part)
            digests.append(digest)
        return fingerprint_of(digests)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _slices(rows: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def _indices(rows: Indices | slice) -> Indices:
    return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows


def _floats(count: int) -> Packed:
    return POOL(np.dtype(np.float32), count)


@lru_cache(64)
def _numbers(first: int, count: int, draws: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return part and draw of `count` rows from number `first` on; the same for every step of a fit."""
    part, draw = np.divmod(np.arange(first, first + count), draws)
    part.flags.writeable = draw.flags.writeable = False  # shared
    return part, draw
