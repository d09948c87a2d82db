"""Packs in a data folder: a group of columns that is written at the first fit and mapped at the next.

    pack-<name>.npy     the lines of all rows, end to end, in single precision
    pack-<name>.json    what they are, of which rows, and the hashes of their blocks; written last, so they are complete

They are made from the columns in one pass and can be deleted at any time: the next fit makes them again. One process at
a time writes them, under a lock on the folder; what a killed process left behind is cleared by the next. A pack that
does not match its description when it is found is written again; one that changes while it is mapped is a fault of the
data, as for any other column.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.errors import RowSourceError
from holdfast.queries.query import Packed, Packing
from holdfast.rows.array_files import ArrayFile, MappedArray
from holdfast.rows.blocks import DataCheck, FileEntry
from holdfast.rows.packs import MOST_BYTES
from holdfast.rows.posix import fcntl

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
    mapped
        Called with every pack that is mapped.
    """

    def __init__(
        self, folder: Path, rows: int, fingerprint: str, check: DataCheck, mapped: Callable[[MappedArray], None]
    ) -> None:
        self._folder, self._rows, self._fingerprint = folder, rows, fingerprint
        self._check, self._mapped = check, mapped

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
        self._mapped(array)
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
        return held + needed <= MOST_BYTES and shutil.disk_usage(self._folder).free >= _ROOM * needed
