"""Numbers without a detour: a card is written where its range will lie in the column, and put in order there.

How many cards of a chunk fall into a range is drawn before the table is read, since every chunk has a key of its own.
So it is known where each of them goes: into the file of its column, range after range, and in a range chunk after
chunk. When all are there, a range is read, put in order and written anew. No card is written to a second file, and
half of the pages are written over instead of being made: that is most of what writing costs.

Until then everything lies further back in the file, by as many cards as the largest range has. So what is in order
never covers what is not, and whoever is killed in the middle of a range has lost nothing.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import RowSourceError
from holdfast.rows.ahead import Memory
from holdfast.rows.blocks import HEADER
from holdfast.rows.columns import Storage
from holdfast.rows.content import Part
from holdfast.rows.folder import file_name

_AT_ONCE = 1_000  # pieces that one call writes; the system allows 1,024


class Placing:
    """The columns of numbers of one deal, in as many folders as it has slices.

    Parameters
    ----------
    folders
        Where the columns of each slice are made.
    columns
        All columns of the table; those of texts are none of ours.
    sizes
        How many cards every range has, in all slices.
    filled
        How many of them are there already.
    memory
        To read into.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        columns: Mapping[str, Storage],
        sizes: NDArray[np.int64],
        filled: NDArray[np.int64],
        memory: Memory,
    ) -> None:
        self._folders, self._sizes, self._filled, self._memory = folders, sizes, filled, memory
        self._per = sizes.size // len(folders)
        self._types = {i: each.numpy for i, each in enumerate(columns.values()) if each.numpy is not None}
        by_slice = sizes.reshape(len(folders), self._per)
        self._starts = (np.cumsum(by_slice, axis=1) - by_slice).ravel()
        self._cards = by_slice.sum(axis=1)
        self._room = int(sizes.max())

    def __contains__(self, column: int) -> bool:
        """Whether a column is one of numbers."""
        return column in self._types

    def write(self, columns: Mapping[int, Sequence[Part]], cuts: Sequence[NDArray[np.int64]]) -> None:
        """Write what several chunks have of every range, behind what is there; `cuts` say where ranges begin."""
        ends = [cut.tolist() for cut in cuts]
        places = (self._room + self._starts + self._filled).tolist()
        for i, parts in columns.items():
            self._write(i, "values", [part.values for part in parts], ends, places)
            if any(part.valid is not None for part in parts):
                marks = [
                    np.zeros(cut[-1], np.bool_) if p.valid is None else ~p.valid
                    for p, cut in zip(parts, ends, strict=True)
                ]
                self._write(i, "valid", marks, ends, places)
        self._filled += np.sum([np.diff(cut) for cut in cuts], axis=0)

    def read(self, column: int, number: int, in_order: bool) -> Part:
        """Return what a range has of a column: as it came, or as it lies in the end if that is done."""
        values = self._read(column, "values", number, in_order)
        if not self._path(column, "valid", number // self._per).exists():
            return Part(values, None)
        marks = self._read(column, "valid", number, in_order)
        return Part(values, marks if in_order else ~marks)

    def _write(
        self, column: int, what: str, arrays: Sequence[Any], ends: Sequence[list[int]], places: Sequence[int]
    ) -> None:
        pairs, size = list(zip(arrays, ends, strict=True)), arrays[0].dtype.itemsize
        for which in range(len(self._folders)):
            with self._opened(column, what, which, size) as file:
                for k in range(which * self._per, (which + 1) * self._per):
                    pieces = [array[end[k] : end[k + 1]].data for array, end in pairs]
                    write_at(file, pieces, HEADER + size * places[k])

    @contextmanager
    def _opened(self, column: int, what: str, which: int, size: int) -> Iterator[int]:
        path = self._path(column, what, which)
        length = HEADER + size * (self._room + int(self._cards[which]))
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(file).st_size < length:
                os.ftruncate(file, length)
            yield file
        finally:
            os.close(file)

    def _read(self, column: int, what: str, number: int, in_order: bool) -> NDArray[Any]:
        dtype = np.dtype(np.bool_) if what == "valid" else self._types[column]
        values = self._memory(dtype, int(self._sizes[number]))
        at = HEADER + dtype.itemsize * (int(self._starts[number]) + (0 if in_order else self._room))
        file = os.open(self._path(column, what, number // self._per), os.O_RDONLY | os.O_CLOEXEC)
        try:
            # of the last range, what is not part of the deck may be gone already
            read_into(file, values, at, cut_off=in_order)
        finally:
            os.close(file)
        return values

    def _path(self, column: int, what: str, which: int) -> Path:
        return self._folders[which] / file_name(column, what)


def read_into(file: int, values: NDArray[Any], at: int, *, cut_off: bool = False) -> None:
    """Fill an array from a file, where its bytes begin at `at`; the file must hold them all, unless it is `cut_off`."""
    view = values.data.cast("B") if values.size else memoryview(b"")
    while view.nbytes:
        done = os.preadv(file, [view], at)
        if not done and cut_off:
            return
        if not done:
            raise RowSourceError("What was dealt so far is cut off; remove .deal.partial from the deck and deal again.")
        view, at = view[done:], at + done


def write_at(file: int, pieces: Sequence[memoryview], at: int) -> None:
    """Write pieces one behind the other."""
    for start in range(0, len(pieces), _AT_ONCE):
        these = pieces[start : start + _AT_ONCE]
        size = sum(piece.nbytes for piece in these)
        left = size - (os.pwritev(file, these, at) if size else 0)
        at += size
        if left:  # a full disk, which says so when it is written to again
            rest = b"".join(these)
            while left:
                left -= os.pwrite(file, rest[-left:], at - left)
