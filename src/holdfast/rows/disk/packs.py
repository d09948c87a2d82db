"""Numbers that queries need of every row, stored side by side: one gather instead of one per column.

A pack is made once so many rows have been drawn that making it costs no more than drawing without it has cost so far.
Making one reads all rows once but releases nothing, so it is not charged. Rows in a folder store their packs there, as
a group of columns that the next fit maps instead of making it again:

    pack-<name>.npy     the lines of all rows, end to end, in single precision
    pack-<name>.json    what they are, of which rows, and the hashes of their blocks; written last, so they are complete

They are made from the columns in one pass and can be deleted at any time: the next fit makes them again. One process at
a time writes them, under a lock on the folder; what a killed process left behind is cleared by the next. A pack that
does not match its description when it is found is written again; one that changes while it is mapped is a fault of the
data, as for any other column.
"""

import fcntl
import json
import mmap
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.cancel import checkpoint
from holdfast.errors import RowSourceError
from holdfast.queries.query import Packed, Packing
from holdfast.rows.disk.array_files import (
    ArrayFile,
    DataCheck,
    FileEntry,
    MappedArray,
    populate_in_background,
    spare_memory,
)
from holdfast.rows.draws import Indices

MOST_BYTES = 4 << 30  # of a dataset's packs in memory; beyond, rows are read by column
MOST_STORED = MOST_BYTES  # of its packs in its folder
EARLY = 8  # make a pack once 1/EARLY of all rows have been drawn: drawing a row costs as much as packing EARLY rows
PIECE = 1 << 13  # rows computed at once when a pack is made: the lines that columns are written into must stay in cache

Compute = Callable[[Packing, Indices | slice], Packed]


class Packs:
    """The packs of one dataset, which in a folder outlive the process."""

    def __init__(self, rows: int, elsewhere: "PackFiles | None" = None) -> None:
        self._rows, self._elsewhere = rows, elsewhere
        self._kept: dict[str, Packed] = {}
        self._drawn: dict[str, int] = {}
        self._making = threading.Lock()

    def lines(self, packing: Packing, rows: Indices | slice, compute: Compute, out: Callable[[int], Packed]) -> Packed:
        """Return the lines of these rows.

        Parameters
        ----------
        packing
            Which numbers.
        rows
            Which rows.
        compute
            Makes lines from the rows themselves. Not kept: the rows are freed once nobody else refers to them.
        out
            Returns memory for a given number of numbers.
        """
        if isinstance(rows, slice):  # a scan
            kept = self._kept.get(packing.identity or "")
            return compute(packing, rows) if kept is None else kept[rows]
        kept = self._find(packing, rows.size, compute)
        if kept is None:
            return compute(packing, rows)
        lines = out(rows.size * packing.width).reshape(rows.size, packing.width)
        return np.take(kept, rows, axis=0, out=lines, mode="clip")  # "raise" would copy; draws are in range

    def _find(self, packing: Packing, drawn: int, compute: Compute) -> Packed | None:
        """Return the pack if there is one by now. Another thread may drop packs between any two steps."""
        name = packing.identity
        if name is None:
            return None
        kept = self._kept.get(name)
        if kept is not None:
            return kept
        before = self._drawn.get(name)
        first, drawn = before is None, (before or 0) + drawn
        self._drawn[name] = drawn
        ready = drawn * EARLY >= self._rows and self._bytes(packing) <= MOST_BYTES
        if not (ready or (first and self._elsewhere is not None)):
            return None
        if not self._making.acquire(blocking=False):
            return None  # another thread is making one; go on without it
        try:
            if name not in self._kept:
                made = self._elsewhere.find(packing) if self._elsewhere is not None else None
                if made is None and ready:
                    made = self._made(packing, compute)
                if made is not None:
                    self._kept[name] = made
            return self._kept.get(name)
        finally:
            self._making.release()

    def _made(self, packing: Packing, compute: Compute) -> Packed:
        if self._elsewhere is not None:
            kept = self._elsewhere.keep(packing, self._pieces(packing, compute))
            if kept is not None:
                return kept
        self._make_room(self._bytes(packing))
        made = _memory(self._rows, packing.width)
        start = 0
        for piece in self._pieces(packing, compute):
            made[start : start + len(piece)] = piece
            start += len(piece)
        return made

    def _pieces(self, packing: Packing, compute: Compute) -> Iterator[Packed]:
        for start in range(0, self._rows, PIECE):
            checkpoint()
            yield compute(packing, slice(start, min(start + PIECE, self._rows)))

    def _make_room(self, needed: int) -> None:
        """Drop the oldest packs in memory. One in use stays alive by its references; mapped ones take no memory."""
        held = {name: pack.nbytes for name, pack in self._kept.items() if pack.flags.writeable}
        while held and needed + sum(held.values()) > MOST_BYTES:
            oldest = next(iter(held))
            del self._kept[oldest], held[oldest]
            self._drawn.pop(oldest, None)  # another thread may have removed it already

    def _bytes(self, packing: Packing) -> int:
        return self._rows * packing.width * np.dtype(np.float32).itemsize

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the packs: another process makes its own."""
        return {"_rows": self._rows, "_elsewhere": self._elsewhere, "_kept": {}, "_drawn": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._making = threading.Lock()


def _memory(rows: int, width: int) -> Packed:
    """Return memory for a pack, in small pages.

    With large pages, which numpy would request, lines are gathered a quarter faster; but on fragmented memory the
    system must first make room for them, which takes longer than all the steps of a fit gain.
    """
    size = max(1, rows * width) * np.dtype(np.float32).itemsize
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared pages are filled half as fast
    return np.frombuffer(pages, np.float32, rows * width).reshape(rows, width)


PARTIAL = ".partial"
_FORMAT = "holdfast pack"
_FLOAT = np.dtype(np.float32)
_ROOM = 2  # times the size of a pack must be free on the disk


class PackFiles:
    """The packs of one folder.

    Parameters
    ----------
    folder, rows, fingerprint
        Where they are, and of which rows.
    check
        Compares them with their hashes, like all other files of the folder.
    """

    def __init__(self, folder: Path, rows: int, fingerprint: str, check: DataCheck) -> None:
        self._folder, self._rows, self._fingerprint, self._check = folder, rows, fingerprint, check
        self.mapped: list[MappedArray] = []

    def find(self, packing: Packing) -> Packed | None:
        """Return the lines of all rows if they were stored by this version, for these rows."""
        path = self._path(packing)
        try:
            content = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
            entry = FileEntry(int(content["size"]), tuple(content["blocks"]))
            if content != self._about(packing, entry) or not self._check.add(path.name, entry):
                return None
            array = MappedArray(path, _FLOAT, self._rows * packing.width)
        except (OSError, ValueError, KeyError, TypeError, RowSourceError):
            return None  # missing or not as described: it will be made again
        self.mapped.append(array)
        populate_in_background([array], spare_memory())
        return array.array.reshape(self._rows, packing.width)

    def keep(self, packing: Packing, pieces: Iterator[Packed]) -> Packed | None:
        """Write the lines of all rows; None if there is no room, or another process is writing."""
        path = self._path(packing)
        partial = path.with_name(path.name + PARTIAL)
        try:
            with self._locked() as alone:
                if not alone or not self._room(self._rows * packing.width * _FLOAT.itemsize):
                    return None
                file = ArrayFile(partial, _FLOAT)
                try:
                    for piece in pieces:
                        file.append(piece.ravel())
                    file.close()
                finally:
                    file.abandon()
                partial.replace(path)
                self._describe(packing, path, file.entry())
        except OSError:
            return None  # a read-only folder, or a full disk
        return self.find(packing)

    def _about(self, packing: Packing, entry: FileEntry) -> dict[str, Any]:
        """Return the description of a pack, with the version: another one may evaluate an expression differently."""
        content = {
            "format": _FORMAT,
            "version": version("holdfast"),
            "packing": packing.identity,
            "rows": self._rows,
            "width": packing.width,
            "fingerprint": self._fingerprint,
            "size": entry.size,
            "blocks": list(entry.blocks),
        }
        return content | {"hash": sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}

    def _describe(self, packing: Packing, path: Path, entry: FileEntry) -> None:
        described = path.with_suffix(".json")
        written = described.with_name(described.name + PARTIAL)
        with written.open("w", encoding="utf-8") as file:
            json.dump(self._about(packing, entry), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        written.replace(described)

    def _path(self, packing: Packing) -> Path:
        name = sha256(str(packing.identity).encode()).hexdigest()[:24]
        return self._folder / f"pack-{name}.npy"

    @contextmanager
    def _locked(self) -> Iterator[bool]:
        """Yield whether this process holds the write lock; if so, leftovers of other processes have been removed."""
        handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            self._clear()
            try:
                yield True
            finally:
                self._clear()
                os.fsync(handle)
        finally:
            os.close(handle)

    def _clear(self) -> None:
        """Remove unfinished work: partial files, and lines without their description."""
        with suppress(OSError):
            for path in self._folder.glob("pack-*"):
                unfinished = path.suffix == ".npy" and not path.with_suffix(".json").exists()
                if unfinished or path.suffix == PARTIAL:
                    path.unlink()

    def _room(self, needed: int) -> bool:
        held = sum(path.stat().st_size for path in self._folder.glob("pack-*.npy"))
        return held + needed <= MOST_STORED and shutil.disk_usage(self._folder).free >= _ROOM * needed
