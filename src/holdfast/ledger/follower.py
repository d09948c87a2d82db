"""Reading a ledger as it grows."""

import threading
from collections.abc import Callable
from typing import TypeVar

from holdfast.ledger.concurrency import OfOneProcess
from holdfast.ledger.ledger import Ledger
from holdfast.ledger.store import Entry

R = TypeVar("R")


class Follower(OfOneProcess):
    """Reads a ledger as it grows, and calls a function for every answer, once and in order."""

    def __init__(self, ledger: Ledger, read: Callable[[Entry], object]) -> None:
        self._ledger, self._read, self._next = ledger, read, 1
        super().__init__()

    def _forget(self) -> None:
        self._lock = threading.Lock()  # the parent's may be held by a thread that a forked child does not have

    def caught_up(self, then: Callable[[], R], to: int | None = None) -> R:
        """Read all new entries (none, if number `to` was read before), and return what `then` finds, undisturbed."""
        self.check_process()
        with self._lock:  # no generator may hold it, since an interrupt could leave it locked
            if to is None or to >= self._next:
                for entry in self._ledger.entries(self._next):
                    self._read(entry)
                    self._next = entry.seq + 1
            found = then()
        return found
