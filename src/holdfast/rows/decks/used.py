"""How far a deck is used: the file `used`, one slot that is written at once.

It is a witness, as for ledgers. It is written before cards are read, without waiting for the disk.
"""

import fcntl
import os
import threading
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from weakref import finalize

from holdfast.process import this_process

USED = "used"  # the name of the file
_SLOT = 256  # bytes; written at once


class Mark(NamedTuple):
    """How far a deck is used: all cards before number `cards`, by the ledger with this first entry.

    `taken` is what that ledger had given out by then: charge, statements, and questions. A restore needs it if nothing
    else remembers: checks take no card, and cards do not say how many statements were made.
    """

    cards: int
    ledger: str
    taken: tuple[int, int, int] = (0, 0, 0)


UNUSED = Mark(0, "")


class UsedFile:
    """The file `used` of a deck, as one process has it open.

    A forked child needs a separate one: the thread that held `lock` may not exist in the child, and parent and child
    share the lock on a file that was open before the fork.
    """

    def __init__(self, path: Path) -> None:
        self.process, self.lock = this_process.number, threading.Lock()
        self._path = path
        self._file: int | None = None
        self._closing: finalize[[int], UsedFile] | None = None
        self._last = (b"", UNUSED)  # what this process wrote last
        self.last_seen = self.read()

    def read(self) -> Mark:
        """Return the mark in the file."""
        try:
            self.last_seen = _read(self._path.read_bytes())
        except OSError:
            self.last_seen = UNUSED
        return self.last_seen

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
                if found.ledger == mark.ledger:
                    # Each amount by itself: a place may have later cards and earlier statements than another, since
                    # each is cut from the first range taken ahead that it fits into.
                    charge, statements, questions = map(max, found.taken, mark.taken)
                    mark = Mark(max(found.cards, mark.cards), mark.ledger, (charge, statements, questions))
                if found.ledger in ("", mark.ledger) and mark != found:
                    self._last = (_written(mark), mark)
                    os.pwrite(file, self._last[0], 0)
                    self.last_seen = mark
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
    charge, statements, questions = mark.taken
    body = f"{mark.cards} {mark.ledger} {charge} {statements} {questions}".encode()
    return (sha256(body).hexdigest()[:16].encode() + b" " + body + b"\n").ljust(_SLOT)


def _read(slot: bytes) -> Mark:
    """Read a slot; return `UNUSED` if it is empty or was corrupted by a power failure."""
    checksum, _, body = slot.rstrip().partition(b" ")
    if not body or checksum != sha256(body).hexdigest()[:16].encode():
        return UNUSED
    cards, ledger, *taken = body.decode().split(" ")
    if not taken:  # written by a version that did not record it
        return Mark(int(cards), ledger)
    charge, statements, questions = map(int, taken)
    return Mark(int(cards), ledger, (charge, statements, questions))
