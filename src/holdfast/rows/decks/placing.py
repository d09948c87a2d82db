"""Numbers without temporary files: a card is written where its range will be in the column, and put in order there.

How many cards of a chunk fall into a range can be drawn before the table is read, since every chunk has its own key. So
it is known where each card goes: into the file of its column, range after range, and within a range chunk after chunk.
When all cards are there, each range is read, put in order and written back. No card is written to a second file, and
half of the pages are overwritten instead of newly allocated, which is most of the cost of writing.

Until a range is in order, it is stored further back in the file, by the size of the largest range. So writing a range
in order never overwrites one that is not yet in order, and a process killed in the middle of a range loses nothing.

Threads do such work before its results are needed (`ahead`) or while the caller continues (`Behind`), in memory that is
reused (`Memory`).
"""

import ctypes
import errno
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import RowSourceError
from holdfast.rows.columns import Storage
from holdfast.rows.disk.array_files import HEADER
from holdfast.rows.disk.folder import file_name
from holdfast.rows.fingerprint import Part

THREADS = 2
Item = TypeVar("Item")
Made = TypeVar("Made")


def ahead(work: Callable[[Item], Made], items: Iterable[Item]) -> Generator[Made, None, None]:
    """Yield the result for each item, in order, while threads work on the next items."""
    with ThreadPoolExecutor(THREADS) as pool:
        waiting: deque[Future[Made]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class Behind:
    """One background thread that does one task at a time, while the caller continues."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def do(self, work: Callable[[], None]) -> None:
        """Wait for the task before, raising its error if it failed; then start this one."""
        self.wait()
        self._last = self._pool.submit(work)

    def wait(self) -> None:
        """Wait until the last task is done; raises its error if it failed."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def close(self) -> None:
        """Wait for the last task, ignoring its errors, so that nothing runs after the caller has left."""
        self._pool.shutdown()


class Memory:
    """Arrays that are reused once nothing refers to them any more: allocating new ones costs more than filling them."""

    def __init__(self) -> None:
        self._kept: dict[np.dtype[Any], list[NDArray[Any]]] = {}
        self._lock = threading.Lock()

    def __call__(self, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        """Return an array whose content is undefined. Thread-safe."""
        with self._lock:
            kept = self._kept.setdefault(dtype, [])
            free = [i for i in range(len(kept)) if sys.getrefcount(kept[i]) <= _UNUSED]
            fits = [i for i in free if kept[i].size >= count]
            if fits:
                return kept[min(fits, key=lambda i: kept[i].size)][:count]
            if free:  # too small: replace it
                del kept[free[-1]]
            kept.append(np.empty(count + count // 16, dtype))
            return kept[-1][:count]

    def take(self, values: NDArray[Any], indices: NDArray[np.int64]) -> NDArray[Any]:
        """Return values by their indices, all of which must be in range."""
        # mode="clip" writes straight into `out`; the default mode would use a temporary copy, to fail cleanly
        return values.take(indices, out=self(values.dtype, indices.size), mode="clip")


def _references_when_unused() -> int:
    """Return how many references this Python counts for an array that only a list refers to."""
    kept = [np.empty(0)]
    return sys.getrefcount(kept[0])


_UNUSED = _references_when_unused()


_AT_ONCE = 1_000  # pieces per write call; the system allows 1,024


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
                        raise incomplete()

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

        with ThreadPoolExecutor(THREADS) as pool:  # new pages are slow: one thread would keep all others waiting
            marked = {i for i in pool.map(written, columns.items()) if i is not None}
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
            raise incomplete() from None
        try:
            yield file
        finally:
            os.close(file)

    def _path(self, column: int, what: str, which: int) -> Path:
        return self._folders[which] / file_name(column, what)


def incomplete() -> RowSourceError:
    """Return the error for files that were changed from outside."""
    return RowSourceError(
        "What was dealt so far is incomplete or was changed. Remove .deal.partial from the deck, and deal again."
    )


# `os.posix_fallocate` may write zeros.
_fallocate = ctypes.CDLL(None, use_errno=True).fallocate if sys.platform == "linux" else None
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def make_room(file: int, size: int) -> None:
    """Give an empty file its length; take all of its room at once where the system can, which fails early if it lacks.

    Pages are then written in less time: the system has decided where they go.
    """
    if _fallocate is None or _fallocate(file, 0, ctypes.c_int64(0), ctypes.c_int64(size)):
        problem = 0 if _fallocate is None else ctypes.get_errno()
        if problem in _FULL:
            raise OSError(problem, os.strerror(problem))
        os.ftruncate(file, size)


def read_into(file: int, values: NDArray[Any], at: int) -> None:
    """Fill an array from a file, from offset `at` on; the file must contain all of it."""
    view = values.data.cast("B") if values.size else memoryview(b"")
    while view.nbytes:
        done = os.preadv(file, [view], at)
        if not done:
            raise incomplete()
        view, at = view[done:], at + done


def write_at(file: int, pieces: Sequence[memoryview], at: int) -> None:
    """Write pieces one after another, from offset `at` on."""
    for start in range(0, len(pieces), _AT_ONCE):
        these = pieces[start : start + _AT_ONCE]
        size = sum(piece.nbytes for piece in these)
        left = size - (os.pwritev(file, these, at) if size else 0)
        at += size
        if left:  # a full disk, which raises an error when it is written to again
            rest = b"".join(these)
            while left:
                left -= os.pwrite(file, rest[-left:], at - left)
