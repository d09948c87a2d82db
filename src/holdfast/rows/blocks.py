"""Column files in blocks: hashed when they are written, compared when they are read again.

A disk, a copy or another program can change the files of a dataset. Sizes are compared before every draw; contents are
compared block by block: a small folder completely before its first answer, the rest in the background, at the start and
once a day. Any difference is a fault, and from then on nothing is answered.

The comparison reads files, never their mappings: if a file is truncated, a read ends early, but access to a mapping
kills the process.
"""

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from holdfast.errors import RowSourceError

BLOCK = 4 << 20  # bytes
HEADER = 128  # bytes of a .npy file before its values; all of it is checked whenever the file is opened
AT_ONCE = 64 << 20  # folders and files up to this many bytes are compared with their hashes before they are used
_RESTS = 3  # pause three times as long as reading took: at most a quarter of one core
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
        if self._process and self._process != os.getpid():  # a fork inherits no thread
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
        self._process, self._stop = os.getpid(), threading.Event()
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
        while self._fault is None and not stop.wait(_AGAIN if self._passed else 0):
            for seconds in self._all_compared():
                if stop.wait(_RESTS * seconds):
                    return
            self._passed = True

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
        except OSError:  # the disk cannot read it
            self.report(name)


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
