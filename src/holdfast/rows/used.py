"""How far a deck is used: one slot in a small file, updated in one write before cards are read."""

import os
import threading
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from weakref import finalize

from holdfast.rows.posix import fcntl

_SLOT = 256  # bytes; written at once


class Mark(NamedTuple):
    """How far a deck is used: all cards before number `cards`, by the ledger with this first entry."""

    cards: int
    ledger: str


UNUSED = Mark(0, "")


class UsedFile:
    """The file `used` of a deck, as one process has it open.

    A forked child needs a separate one: the thread that held `lock` may not exist in the child, and parent and child
    share the lock on a file that was open before the fork.
    """

    def __init__(self, path: Path) -> None:
        self.process, self.lock = os.getpid(), threading.Lock()
        self._path = path
        self._file: int | None = None
        self._closing: finalize[[int], UsedFile] | None = None
        self._last = (b"", UNUSED)  # what this process wrote last

    def read(self) -> Mark:
        """Return the mark in the file."""
        try:
            return _read(self._path.read_bytes())
        except OSError:
            return UNUSED

    def note(self, mark: Mark) -> Mark:
        """Write this mark, unless the deck was used further or by another ledger; return the mark before.

        A mark with 0 cards records the ledger before any card is used.
        """
        with self.lock:  # threads of one process share the lock on the file
            file = self._open()
            if file is None:  # in a read-only folder, only the ledger records what is used
                return UNUSED
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                slot = os.pread(file, _SLOT, 0)
                # Parse the slot only if another process has written since this one last did.
                found = self._last[1] if slot == self._last[0] else _read(slot)
                if found == UNUSED or (found.ledger == mark.ledger and found.cards < mark.cards):
                    self._last = (_written(mark), mark)
                    os.pwrite(file, self._last[0], 0)
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)
            return found

    def close(self) -> None:
        """Close the file."""
        if self._closing is not None:
            self._closing()

    def _open(self) -> int | None:
        if self._file is None:
            try:
                file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError:
                return None
            self._closing = finalize(self, os.close, file)
            self._file = file
        return self._file


def _written(mark: Mark) -> bytes:
    body = f"{mark.cards} {mark.ledger}".encode()
    return (sha256(body).hexdigest()[:16].encode() + b" " + body + b"\n").ljust(_SLOT)


def _read(slot: bytes) -> Mark:
    """Read a slot; return `UNUSED` if it is empty or was corrupted by a power failure."""
    checksum, _, body = slot.rstrip().partition(b" ")
    if not body or checksum != sha256(body).hexdigest()[:16].encode():
        return UNUSED
    cards, _, ledger = body.decode().partition(" ")
    return Mark(int(cards), ledger)
