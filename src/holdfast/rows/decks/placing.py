"""Numbers without temporary files: a card is written where its range will be in the column, and put in order there.

How many cards of a chunk fall into a range can be drawn before the table is read, since every chunk has its own key. So
it is known where each card goes: into the file of its column, range after range, and within a range chunk after chunk.
When all cards are there, each range is read, put in order and written back. No card is written to a second file, and
half of the pages are overwritten instead of newly allocated, which is most of the cost of writing.

Until a range is in order, it is stored further back in the file, by the size of the largest range. So writing a range
in order never overwrites one that is not yet in order, and a process killed in the middle of a range loses nothing.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.rows.buffers import SharedPool
from holdfast.rows.columns import Storage
from holdfast.rows.decks.threads import at_once
from holdfast.rows.disk.array_files import HEADER, Incomplete
from holdfast.rows.disk.folder import file_name
from holdfast.rows.disk.offsets import make_room, read_into, write_at
from holdfast.rows.fingerprint import Part


class Placing:
    """The numeric columns of one deal, in one folder per slice.

    Parameters
    ----------
    folders
        Where the columns of each slice are made.
    columns
        All columns of the table; those of texts are ignored.
    sizes
        How many cards every range has, in all slices.
    filled
        How many of them are written already.
    kept
        How many cards a slice has in the end; the rest is cut off.
    memory
        The memory to read into.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        columns: Mapping[str, Storage],
        sizes: NDArray[np.int64],
        filled: NDArray[np.int64],
        kept: int,
        memory: SharedPool,
    ) -> None:
        self._folders, self._sizes, self._filled, self._kept, self._memory = folders, sizes, filled, kept, memory
        self._per = sizes.size // len(folders)
        self._types = {i: each.numpy for i, each in enumerate(columns.values()) if each.numpy is not None}
        by_slice = sizes.reshape(len(folders), self._per)
        self._starts = (np.cumsum(by_slice, axis=1) - by_slice).ravel()
        self._cards = by_slice.sum(axis=1)
        self._room = int(sizes.max())

    def __contains__(self, column: int) -> bool:
        """Whether a column is numeric."""
        return column in self._types

    def begin(self) -> None:
        """Create the files, empty but with their final length."""
        for which, folder in enumerate(self._folders):
            folder.mkdir(mode=0o700, exist_ok=True)
            for i, dtype in self._types.items():
                self._make(i, "values", which, dtype.itemsize)

    def go_on(self) -> None:
        """Check that the files still have their full length: a gap would be filled with zeros."""
        for which in range(len(self._folders)):
            for i, dtype in self._types.items():
                with self._opened(i, "values", which, os.O_RDONLY) as file:
                    if os.fstat(file).st_size < self._length(which, dtype.itemsize):
                        raise Incomplete

    def write(self, columns: Mapping[int, Sequence[Part]], cuts: Sequence[NDArray[np.int64]]) -> set[int]:
        """Write the cards of several chunks into every range, after those already there; `cuts` say where ranges begin.

        Returns the columns that have missing values there; these are marked in separate files.
        """
        ends = [cut.tolist() for cut in cuts]
        places = (self._room + self._starts + self._filled).tolist()

        def written(item: tuple[int, Sequence[Part]]) -> int | None:
            i, parts = item
            self._write(i, "values", [part.values for part in parts], ends, places)
            if all(part.valid is None for part in parts):
                return None
            marks = [
                np.zeros(end[-1], np.bool_) if part.valid is None else ~part.valid
                for part, end in zip(parts, ends, strict=True)
            ]
            self._write(i, "valid", marks, ends, places)
            return i

        # New pages are slow: one thread would keep all others waiting.
        marked = {i for i in at_once(written, columns.items()) if i is not None}
        self._filled += np.sum([np.diff(cut) for cut in cuts], axis=0)
        return marked

    def read(self, column: int, number: int, *, marked: bool, in_order: bool) -> Part:
        """Return a range of a column: in the order written, or in its final order if `in_order`."""
        values = self._read(column, "values", number, in_order)
        if not marked:
            return Part(values, None)
        marks = self._read(column, "valid", number, in_order)
        return Part(values, marks if in_order else ~marks)

    def _write(
        self, column: int, what: str, arrays: Sequence[Any], ends: Sequence[list[int]], places: Sequence[int]
    ) -> None:
        size = arrays[0].dtype.itemsize
        pairs = [(array.data, end) for array, end in zip(arrays, ends, strict=True)]  # buffers slice faster than arrays
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
        if in_order:  # cards beyond the deck's end may be cut off already
            count = max(0, min(count, self._kept - start))
        values = self._memory(dtype, count)
        at = HEADER + dtype.itemsize * (start if in_order else self._room + start)
        with self._opened(column, what, number // self._per, os.O_RDONLY) as file:
            read_into(file, values, at)
        return values

    def _make(self, column: int, what: str, which: int, size: int) -> None:
        path = self._path(column, what, which)
        made = path.with_suffix(".new")  # renamed at the end: an existing file of marks must have its final length
        # Like all files of the deck: its folder decides who may read it.
        file = os.open(made, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            make_room(file, self._length(which, size))
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
            raise Incomplete from None
        try:
            yield file
        finally:
            os.close(file)

    def _path(self, column: int, what: str, which: int) -> Path:
        return self._folders[which] / file_name(column, what)
