"""Rows on this machine, in memory or in mapped files: the two verbs, written once for both."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.errors import InvalidArgument, RowSourceError
from holdfast.queries.query import Direct, Query
from holdfast.rows import draws as draw
from holdfast.rows.columns import Buffer, CodedText, Indices, Loans, StoredColumn, fresh, taken
from holdfast.rows.fingerprint import ColumnDigest, fingerprint_of
from holdfast.rows.kinds import Kind
from holdfast.rows.toss import flipped, tossed
from holdfast.schema import Column, Schema

_BLOCK = 1 << 17  # draws evaluated at once: enough to forget the overhead, little enough to stay in cache
_BLOCK_BYTES = 256 << 20  # fewer if values are long
_PART = 1 << 18  # rows looked at at once when everything is read
_SHOWN = 30  # columns in a printout

_lend = Loans()


class LocalRows:
    """A dataset on this machine. Build one with `holdfast.open`."""

    def __init__(
        self,
        name: str,
        columns: Sequence[tuple[Column, Kind, StoredColumn]],
        rows: int,
        *,
        fingerprint: str | None = None,
        location: Path | None = None,
    ) -> None:
        self._name = name
        self._rows = rows
        self._kinds = {column.name: kind for column, kind, _ in columns}
        self._stored = {column.name: stored for column, _, stored in columns}
        # Arrays that queries may see as they are; NaN would have to be NULL first.
        self._plain = {
            column.name: stored.plain
            for column, _, stored in columns
            if stored.plain is not None and not column.nullable
        }
        self._coded = {
            column.name: stored
            for column, _, stored in columns
            if isinstance(stored, CodedText) and stored.valid is None
        }
        self._schema = Schema(tuple(column for column, _, _ in columns), dataset=name)
        self._fingerprint = fingerprint
        self._hashing = threading.Lock()
        self._location = location

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

    def tally(self, query: Query, *, draws: int, mass: float, rng: Generator) -> NDArray[np.int64]:
        """Draw, evaluate, toss, flip; return how often each outcome came up."""
        check.whole(draws=draws)
        columns = query.columns
        blocks = _blocks(draws, self._block(columns))
        counts = self._tossed(query, columns, next(blocks), rng)
        for count in blocks:
            counts += self._tossed(query, columns, count, rng)
        return flipped(counts, mass, rng)

    def _tossed(self, query: Query, columns: Sequence[str], count: int, rng: Generator) -> NDArray[np.int64]:
        _lend.begin()
        indices = draw.with_replacement(rng, self._rows, count)
        direct: Direct | None = getattr(query, "direct", None)
        if direct is not None and all(name in self._plain for name in columns):
            self._touch(indices, columns)
            said = direct({name: taken(self._plain[name], indices, _lend) for name in columns})
            return tossed(said, query.outcomes, rng)
        coded = self._coded.get(columns[0]) if len(columns) == 1 and query.identity is not None else None
        if coded is not None and coded.dictionary.len() <= count:
            # What a row says is what its text says, so every text is asked once. Not of functions from outside, which
            # must not see texts that were not drawn.
            self._touch(indices, columns)
            texts = coded.dictionary.alias(columns[0]).to_frame()
            return tossed(query.evaluate(texts).take(taken(coded.codes, indices, _lend)), query.outcomes, rng)
        # The frame gets no name: its memory must be free again when the next block is drawn.
        return tossed(query.evaluate(self._frame(indices, columns, _lend)), query.outcomes, rng)

    def gather(self, indices: NDArray[np.int64], columns: Sequence[str]) -> pl.DataFrame:
        """Return these rows, in this order, of these columns."""
        indices = np.asarray(indices)
        if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
            raise InvalidArgument(f"indices must be a list of whole numbers; got {indices.dtype} values.")
        indices = indices.astype(np.int64, copy=False)
        if indices.size and not (indices.min() >= 0 and indices.max() < self._rows):
            raise InvalidArgument(f"indices must be at least 0 and below the number of rows ({self._rows}).")
        return self._frame(indices, columns, fresh)

    def verify_content(self) -> None:
        """Read and hash everything again; raise if it is not the data that was opened."""
        if self._hash_content() != self.fingerprint:
            raise RowSourceError(f"{self._name} has changed: its content does not match its fingerprint.")

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

    def _frame(self, indices: Indices, columns: Sequence[str], buffer: Buffer) -> pl.DataFrame:
        self._touch(indices, columns)
        if not columns:
            return pl.DataFrame(height=indices.size)  # a constant still has one value per row
        first, *others = (self._column(name).take(name, indices, buffer) for name in columns)
        # Stacked rather than built from a list, where Polars would rename a column whose name is empty, or from a
        # dict, which it takes its time to look through.
        frame = first.to_frame()
        return frame.hstack(others) if others else frame

    def _touch(self, indices: Indices, columns: Sequence[str]) -> None:
        """Say which rows are about to be taken, to whom it may help."""

    def _block(self, columns: Sequence[str]) -> int:
        row_bytes = sum(self._column(name).row_bytes for name in columns)
        return int(max(1, min(_BLOCK, _BLOCK_BYTES // max(1.0, row_bytes))))

    def _hash_content(self) -> str:
        digests = []
        for name, stored in self._stored.items():
            digest = ColumnDigest(name, self._kinds[name])
            for start in range(0, self._rows, _PART):
                digest.add(stored.part(name, start, min(start + _PART, self._rows)))
            digests.append(digest)
        return fingerprint_of(digests)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _blocks(total: int, size: int) -> Iterator[int]:
    while total > 0:
        yield min(size, total)
        total -= size
