"""One `.npy` file, one-dimensional: written piece by piece, or mapped into memory and read at random.

Advice to the operating system about mapped files: rows are drawn from all over a file, so read-ahead is switched off. A
file that fits into memory comfortably is mapped page by page in the background when it is first drawn from; after that
a draw causes no page fault. For a file larger than memory, all pages of a question are requested at once before they
are read one by one: three to four times faster from disk, but it wastes a microsecond per row on a page that was in
memory already.
"""

import os
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from holdfast.errors import RowSourceError
from holdfast.rows.blocks import HEADER, BlockHashes, FileEntry
from holdfast.rows.posix import mmap

_POPULATE_READ = 22  # MADV_POPULATE_READ, Linux 5.14; Python has no name for it
_STEP = 4 << 20  # bytes per call, a few milliseconds: the call holds the interpreter lock
_AT_ONCE = 1 << 18  # values per block when written values are read again
_FITS = 0.5  # share of the available memory that may be used: other programs need some too


class Incomplete(Exception):
    """Files of interrupted work are missing or have changed."""


class ArrayFile:
    """A one-dimensional `.npy` file under construction.

    Parameters
    ----------
    path, dtype
        Where the file is, and the type of its values.
    hashed
        The hashes of its blocks, if the caller computes them anyway.
    over
        Whether to overwrite an existing file in place.
    """

    def __init__(self, path: Path, dtype: DTypeLike, hashed: BlockHashes | None = None, *, over: bool = False) -> None:
        self.path, self.dtype, self.count = path, np.dtype(dtype), 0
        self._hashes, self._hashing = hashed or BlockHashes(), hashed is None
        self._file = path.open("r+b" if over else "w+b", buffering=1 << 20)
        self._file.write(bytes(HEADER))  # a placeholder: the header is written at the end, when the length is known

    def append(self, values: NDArray[Any]) -> None:
        """Add values at the end."""
        data = np.ascontiguousarray(values, self.dtype).data
        self._file.write(data)
        if self._hashing:
            self._hashes.update(data)
        self.count += values.size

    def so_far(self) -> tuple[int, str]:
        """Flush to the operating system; return how many values there are, and their hash."""
        self._file.flush()
        return self.count, self._hashes.hexdigest()

    def go_on(self, count: int, digest: str) -> None:
        """Continue after existing values, for which `so_far` returned this count and hash."""
        while self.count < count:
            piece = self.read(self.count, min(_AT_ONCE, count - self.count))
            if not piece.size:
                break
            self._hashes.update(piece.data)
            self.count += piece.size
        if (self.count, self._hashes.hexdigest()) != (count, digest):
            raise Incomplete
        self._file.seek(HEADER + count * self.dtype.itemsize)

    def read(self, start: int, count: int) -> NDArray[Any]:
        """Return up to `count` flushed values from number `start` on; fewer if the file ends before."""
        size = self.dtype.itemsize
        found = os.pread(self._file.fileno(), count * size, HEADER + start * size)
        return np.frombuffer(found, self.dtype, len(found) // size)

    def entry(self) -> FileEntry:
        """Return what the manifest says about the file."""
        return FileEntry(HEADER + self.count * self.dtype.itemsize, self._hashes.digests)

    def flush(self) -> None:
        """Let readers see what was appended."""
        self._file.flush()

    def close(self) -> None:
        """Write the header and make the file durable."""
        about = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.count,)}
        room = HEADER - 10
        self._file.seek(0)
        self._file.write(np.lib.format.magic(1, 0) + struct.pack("<H", room))
        self._file.write(f"{about!r}".ljust(room - 1).encode() + b"\n")
        self._file.truncate(HEADER + self.count * self.dtype.itemsize)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def abandon(self) -> None:
        """Close the file, finished or not."""
        with suppress(OSError):  # a full disk was already reported
            self._file.close()


class MappedArray:
    """One `.npy` file, one-dimensional, read-only."""

    def __init__(self, path: Path, dtype: np.dtype[np.generic], length: int, advice: int = mmap.MADV_RANDOM) -> None:
        self.name = path.name
        with _opened(path) as file:
            try:
                version = np.lib.format.read_magic(file)
                read = {(1, 0): np.lib.format.read_array_header_1_0}.get(version, np.lib.format.read_array_header_2_0)
                shape, _, found = read(file)
            except ValueError:
                raise RowSourceError(f"{path} is not an array file; remove the folder and open again.") from None
            start = self._start = file.tell()
            if found != dtype or shape != (length,) or path.stat().st_size != start + length * dtype.itemsize:
                raise RowSourceError(f"{path} does not match its manifest; remove the folder and open again.")
            self._map: mmap.mmap | None = None
            self._mapped = start + length * dtype.itemsize  # bytes
            self.array: NDArray[Any] = np.empty(0, dtype)
            if length:  # an empty mapping is not allowed
                self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
                self.array = np.frombuffer(self._map, dtype, length, start)
        if self._map is not None:
            self._map.madvise(advice)

    @property
    def size(self) -> int:
        """Bytes mapped."""
        return 0 if self._map is None else len(self._map)

    def populate(self) -> None:
        """Map every page now."""
        for start in range(0, self.size, _STEP):
            assert self._map is not None
            self._map.madvise(_POPULATE_READ, start, min(_STEP, self.size - start))

    @property
    def cut_off(self) -> bool:
        """Whether the file is now shorter than when it was mapped: reading past its end would kill the process."""
        return self._map is not None and self._map.size() < self._mapped

    @property
    def larger_than_memory(self) -> bool:
        """Whether the file cannot be in memory as a whole."""
        return self.size > _memory("MemTotal")

    def expect(self, start: int, stop: int) -> None:
        """Request the pages of these consecutive elements, which are about to be read."""
        if self._map is None or start >= stop:
            return
        first = (self._start + start * self.array.itemsize) // mmap.PAGESIZE * mmap.PAGESIZE
        last = min(self.size, self._start + stop * self.array.itemsize)
        if first < last:
            self._map.madvise(mmap.MADV_WILLNEED, first, last - first)

    def request(self, indices: NDArray[np.int64]) -> None:
        """Request the pages of these elements, without waiting for them."""
        if self._map is None:
            return
        pages = (self._start + indices * self.array.itemsize) // mmap.PAGESIZE * mmap.PAGESIZE
        for page in pages.tolist():
            self._map.madvise(mmap.MADV_WILLNEED, page, mmap.PAGESIZE)


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as problem:
        raise RowSourceError(f"Cannot read {path}: {problem.strerror}.") from None


def spare_memory() -> float:
    """Return how many bytes may be kept in memory."""
    return _FITS * _memory("MemAvailable")


def populate_in_background(arrays: Sequence[MappedArray], spare: float) -> float:
    """Map every page of the arrays that fit into `spare` bytes; return how many bytes are left."""
    chosen = []
    for mapped in arrays:
        if mapped.size <= spare:
            spare -= mapped.size
            chosen.append(mapped)
    threading.Thread(target=_populate, args=(chosen,), daemon=True).start()
    return spare


def _populate(arrays: Sequence[MappedArray]) -> None:
    with suppress(OSError):  # an older kernel: pages are then mapped when they are drawn from
        for mapped in arrays:
            mapped.populate()


def _memory(which: str) -> float:
    """Return bytes of memory, or infinity if the system does not tell."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith(f"{which}:"):
                return float(line.split()[1]) * 1024
    except OSError:
        return inf
    return inf
