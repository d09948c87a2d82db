"""One `.npy` file, one-dimensional: written piece by piece in hashed blocks, or mapped and read at random.

Advice to the operating system about mapped files: rows are drawn from all over a file, so read-ahead is switched off. A
file that fits into memory comfortably is mapped page by page in the background when it is first drawn from; after that
a draw causes no page fault. For a file larger than memory, all pages of a question are requested at once before they
are read one by one: three to four times faster from disk, but it wastes a microsecond per row on a page that was in
memory already.

Blocks are hashed when they are written, and compared when they are read again. A disk, a copy or another program can
change the files of a dataset. Sizes are compared before every draw; contents are compared block by block: a small
folder completely before its first answer, the rest in the background, at the start and once a day. Any difference is a
fault, and from then on nothing is answered.

The comparison reads files, never their mappings: if a file is truncated, a read ends early, but access to a mapping
kills the process.
"""

import ctypes
import errno
import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from holdfast.errors import RowSourceError
from holdfast.process import this_process

BLOCK = 4 << 20  # bytes
HEADER = 128  # bytes of a .npy file before its values; all of it is checked whenever the file is opened
AT_ONCE = 64 << 20  # folders and files up to this many bytes are compared with their hashes before they are used
_RESTS = 3  # pause three times as long as reading took: at most a quarter of one core
_NO_FAULT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # errors that say nothing about a file
_LATER = 60.0  # seconds until a comparison that met one of them is made again
_AGAIN = 24 * 3600.0  # seconds from one full comparison to the next


class BlockHashes:
    """SHA-256 of each block of a stream, in whatever pieces it arrives."""

    def __init__(self) -> None:
        self._full: list[bytes] = []
        self._last, self._room = sha256(), BLOCK

    def update(self, data: Any) -> None:
        """Add bytes: anything with a contiguous buffer."""
        view = memoryview(data)
        if not view.nbytes:
            return
        view = view.cast("B")
        while view.nbytes >= self._room:
            self._last.update(view[: self._room])
            view = view[self._room :]
            self._full.append(self._last.digest())
            self._last, self._room = sha256(), BLOCK
        self._last.update(view)
        self._room -= view.nbytes

    @property
    def digests(self) -> tuple[str, ...]:
        """One for each block; the last block may be short."""
        last = [self._last.digest()] if self._room < BLOCK else []
        return tuple(digest.hex() for digest in (*self._full, *last))

    def hexdigest(self) -> str:
        """Return one hash for all blocks."""
        return sha256("".join(self.digests).encode()).hexdigest()


@dataclass(frozen=True)
class FileEntry:
    """What the manifest says about one column file."""

    size: int
    blocks: tuple[str, ...]  # hashes of the blocks after the header


class DataCheck:
    """Compares the files of a folder with their hashes, now or in the background.

    Parameters
    ----------
    dataset
        The name of the data in messages.
    folder, files
        Where the files are, and their sizes and hashes when they were written.
    """

    def __init__(self, dataset: str, folder: Path, files: Mapping[str, FileEntry]) -> None:
        self._dataset, self._folder, self._files = dataset, folder, dict(files)
        self._opened = {name: _inode((folder / name).stat()) for name in files}
        self._first: list[str] = []  # files to compare first: rows are already drawn from them
        self._stop = threading.Event()
        self._process = 0
        self._passed = False  # whether everything was compared once
        self._fault: str | None = None

    def require_sound(self) -> None:
        """Refuse if a fault was found."""
        if self._fault is not None:
            # Drop the error that led here: it is a consequence of the damage, and may quote rows.
            raise RowSourceError(self._fault, dataset=self._dataset) from None
        if self._process and self._process != this_process.number:  # a fork inherits no thread
            self.start()

    def report(self, file: str) -> None:
        """Mark the data as faulty: from now on `require_sound` refuses."""
        self._fault = (
            f"{self._dataset} is damaged: {file} does not hold what was written. Nothing is answered from it any more,"
            " and recent answers may be wrong. Restore its folder from a copy, or remove it and open the original."
        )

    def now(self, names: Iterable[str] | None = None) -> None:
        """Compare these files, or all of them; raise if one differs."""
        for name in list(self._files) if names is None else names:
            for _ in self._compared(name):
                pass
            self.require_sound()
        self._passed = self._passed or names is None

    def start(self) -> None:
        """Compare everything in the background, at low priority, until `stop` or the end of the process."""
        self._process, self._stop = this_process.number, threading.Event()
        threading.Thread(target=self._run, name=f"holdfast check {self._dataset}", daemon=True).start()

    def stop(self) -> None:
        """Stop the comparison in the background; it may finish the block it is reading."""
        self._process = 0
        self._stop.set()

    def add(self, name: str, entry: FileEntry) -> bool:
        """Compare one more file from now on, a small one at once; return whether no difference was found so far."""
        path = self._folder / name
        if path.stat().st_size != entry.size:
            return False
        if entry.size <= AT_ONCE and file_hashes(path) != entry.blocks:
            return False
        self._opened[name], self._files[name] = _inode(path.stat()), entry
        if entry.size > AT_ONCE:
            threading.Thread(target=self._compare_one, args=(name,), daemon=True).start()
        return True

    def _compare_one(self, name: str) -> None:
        with suppress(RowSourceError):  # the next full comparison includes it
            for seconds in self._compared(name):
                if self._stop.wait(_RESTS * seconds):
                    return

    def hurry(self, names: Sequence[str]) -> None:
        """Let the background comparison check these files next."""
        self._first.extend(names)

    def _run(self) -> None:
        stop = self._stop
        if sys.platform == "linux":  # where threads have their own priority
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        pause = _AGAIN if self._passed else 0.0
        while self._fault is None and not stop.wait(pause):
            try:
                for seconds in self._all_compared():
                    if stop.wait(_RESTS * seconds):
                        return
                self._passed, pause = True, _AGAIN
            except RowSourceError:
                pause = _LATER

    def _all_compared(self) -> Iterator[float]:
        waiting = dict.fromkeys(self._files)
        while waiting and self._fault is None:
            name = next((drawn for drawn in self._first if drawn in waiting), next(iter(waiting)))
            del waiting[name]
            yield from self._compared(name)

    def _compared(self, name: str) -> Iterator[float]:
        """Compare one file; yield the seconds that each block took. Report the first difference and stop there."""
        entry = self._files[name]
        try:
            with (self._folder / name).open("rb", buffering=0) as file:
                found = os.fstat(file.fileno())
                if _inode(found) != self._opened[name]:
                    return  # the folder was replaced: the files mapped here cannot be reached by name any more
                if found.st_size != entry.size:
                    self.report(name)
                    return
                memory = bytearray(BLOCK)
                file.seek(HEADER)
                for digest in entry.blocks:
                    began = time.monotonic()
                    view = memoryview(memory)[: _fill(file, memory)]
                    if sha256(view).hexdigest() != digest:
                        self.report(name)
                        return
                    yield time.monotonic() - began
        except FileNotFoundError:
            return  # the folder was replaced
        except OSError as problem:
            if problem.errno in _NO_FAULT:
                raise RowSourceError(f"Cannot read {self._folder / name}: {reason(problem)}.") from None
            self.report(name)  # the disk cannot read it


def file_hashes(path: Path) -> tuple[str, ...]:
    """Return the hashes of a file's blocks after its header."""
    hashes, memory = BlockHashes(), bytearray(BLOCK)
    with path.open("rb", buffering=0) as file:
        file.seek(HEADER)
        while done := _fill(file, memory):
            hashes.update(memoryview(memory)[:done])
    return hashes.digests


def _fill(file: Any, memory: bytearray) -> int:
    """Read until the memory is full or the file ends; return how many bytes were read."""
    view, done = memoryview(memory), 0
    while done < len(memory) and (got := file.readinto(view[done:])):
        done += got
    return done


def _inode(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


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
        # A small buffer: what does not fit into it is written from where it is, without a copy.
        self._file = path.open("r+b" if over else "w+b", buffering=1 << 16)
        self._saving = 0  # bytes that the disk was told to write
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

    def start_saving(self) -> None:
        """Flush, and let the disk begin with what is new, so that `close` has less to wait for."""
        self._file.flush()
        end = HEADER + self.count * self.dtype.itemsize
        _start_writing(self._file.fileno(), self._saving, end - self._saving)
        self._saving = end

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


_WRITE = 2  # SYNC_FILE_RANGE_WRITE; Python has no name for it
_sync_file_range = getattr(ctypes.CDLL(None), "sync_file_range", None)


def _start_writing(file: int, at: int, size: int) -> None:
    """Let the disk begin to write this part of a file, without waiting for it; does nothing where only Linux could."""
    if _sync_file_range is not None:
        _sync_file_range(file, ctypes.c_int64(at), ctypes.c_int64(size), _WRITE)


class MappedArray:
    """One `.npy` file, one-dimensional, read-only."""

    def __init__(self, path: Path, dtype: np.dtype[np.generic], length: int, advice: int = mmap.MADV_RANDOM) -> None:
        self.name = path.name
        with _readable(path), path.open("rb") as file:
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


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except RowSourceError:
        raise
    except OSError as problem:
        raise RowSourceError(f"Cannot read {path}: {reason(problem)}.") from None


def reason(problem: OSError) -> str:
    """Return the system's words for an error; for a limit on open files, with what to do."""
    if problem.errno == errno.EMFILE:
        return "too many open files; a column takes one to three, so allow more: ulimit -n 65536"
    return problem.strerror or type(problem).__name__


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
