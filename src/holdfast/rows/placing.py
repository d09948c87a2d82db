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
    kept
        How many cards a slice has in the end; the last ones are cut off.
    memory
        To read into.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        columns: Mapping[str, Storage],
        sizes: NDArray[np.int64],
        filled: NDArray[np.int64],
        kept: int,
        memory: Memory,
    ) -> None:
        self._folders, self._sizes, self._filled, self._kept, self._memory = folders, sizes, filled, kept, memory
        self._per = sizes.size // len(folders)
        self._types = {i: each.numpy for i, each in enumerate(columns.values()) if each.numpy is not None}
        by_slice = sizes.reshape(len(folders), self._per)
        self._starts = (np.cumsum(by_slice, axis=1) - by_slice).ravel()
        self._cards = by_slice.sum(axis=1)
        self._room = int(sizes.max())

    def __contains__(self, column: int) -> bool:
        """Whether a column is one of numbers."""
        return column in self._types

    def begin(self) -> None:
        """Make the files, as long as they will be, and empty."""
        for which, folder in enumerate(self._folders):
            folder.mkdir(mode=0o700, exist_ok=True)
            for i, dtype in self._types.items():
                self._make(i, "values", which, dtype.itemsize)

    def go_on(self) -> None:
        """Look whether the files are as long as they were made: a gap would be filled with zeros."""
        for which in range(len(self._folders)):
            for i, dtype in self._types.items():
                with self._opened(i, "values", which, os.O_RDONLY) as file:
                    if os.fstat(file).st_size < self._length(which, dtype.itemsize):
                        raise incomplete()

    def write(self, columns: Mapping[int, Sequence[Part]], cuts: Sequence[NDArray[np.int64]]) -> set[int]:
        """Write what several chunks have of every range, behind what is there; `cuts` say where ranges begin.

        Returns the columns of which values are missing there, which are marked in files of their own.
        """
        ends, marked = [cut.tolist() for cut in cuts], set()
        places = (self._room + self._starts + self._filled).tolist()
        for i, parts in columns.items():
            self._write(i, "values", [part.values for part in parts], ends, places)
            if any(part.valid is not None for part in parts):
                marked.add(i)
                marks = [
                    np.zeros(end[-1], np.bool_) if part.valid is None else ~part.valid
                    for part, end in zip(parts, ends, strict=True)
                ]
                self._write(i, "valid", marks, ends, places)
        self._filled += np.sum([np.diff(cut) for cut in cuts], axis=0)
        return marked

    def read(self, column: int, number: int, *, marked: bool, in_order: bool) -> Part:
        """Return what a range has of a column: as it came, or as it lies in the end if that is done."""
        values = self._read(column, "values", number, in_order)
        if not marked:
            return Part(values, None)
        marks = self._read(column, "valid", number, in_order)
        return Part(values, marks if in_order else ~marks)

    def _write(
        self, column: int, what: str, arrays: Sequence[Any], ends: Sequence[list[int]], places: Sequence[int]
    ) -> None:
        size = arrays[0].dtype.itemsize
        pairs = [(array.data, end) for array, end in zip(arrays, ends, strict=True)]  # sliced faster than arrays are
        for which in range(len(self._folders)):
            if what == "valid" and not self._path(column, what, which).exists():
                self._make(column, what, which, size)
            with self._opened(column, what, which, os.O_RDWR) as file:
                for k in range(which * self._per, (which + 1) * self._per):
                    pieces = [data[end[k] : end[k + 1]] for data, end in pairs]
                    write_at(file, pieces, HEADER + size * places[k])

    def _read(self, column: int, what: str, number: int, in_order: bool) -> NDArray[Any]:
        dtype = np.dtype(np.bool_) if what == "valid" else self._types[column]
        start, count = int(self._starts[number]), int(self._sizes[number])
        if in_order:  # what is not part of the deck may be gone already
            count = max(0, min(count, self._kept - start))
        values = self._memory(dtype, count)
        at = HEADER + dtype.itemsize * (start if in_order else self._room + start)
        with self._opened(column, what, number // self._per, os.O_RDONLY) as file:
            read_into(file, values, at)
        return values

    def _make(self, column: int, what: str, which: int, size: int) -> None:
        path = self._path(column, what, which)
        made = path.with_suffix(".new")  # a file of marks that is there is taken to be as long as it will be
        file = os.open(made, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(file, self._length(which, size))
        finally:
            os.close(file)
        made.replace(path)

    def _length(self, which: int, size: int) -> int:
        return HEADER + size * (self._room + int(self._cards[which]))

    @contextmanager
    def _opened(self, column: int, what: str, which: int, mode: int) -> Iterator[int]:
        try:
            file = os.open(self._path(column, what, which), mode | os.O_CLOEXEC)
        except FileNotFoundError:
            raise incomplete() from None
        try:
            yield file
        finally:
            os.close(file)

    def _path(self, column: int, what: str, which: int) -> Path:
        return self._folders[which] / file_name(column, what)


def incomplete() -> RowSourceError:
    """Say that somebody else has been at the files."""
    return RowSourceError(
        "What was dealt so far is not all there: somebody has changed it. Remove .deal.partial from the deck, and deal"
        " again."
    )


def read_into(file: int, values: NDArray[Any], at: int) -> None:
    """Fill an array from a file, where its bytes begin at `at`; the file must hold them all."""
    view = values.data.cast("B") if values.size else memoryview(b"")
    while view.nbytes:
        done = os.preadv(file, [view], at)
        if not done:
            raise incomplete()
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
