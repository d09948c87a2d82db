"""One question at a time: who asks what is being answered waits for that answer instead of drawing once more."""

import os
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class InFlight:
    """The questions that threads of this process are answering, by key.

    Locks are held by `with` alone, never across a generator: an interrupt cannot leave one held. They are reentrant, so
    that a destructor or signal handler that asks the same question does not wait for itself.
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._process = os.getpid()
        self._locks: dict[str, threading.RLock] = {}

    def run(self, key: str | None, work: Callable[[], T]) -> T:
        """Do the work while no other thread does any with the same key; what has no key need not wait."""
        if key is None:
            return work()
        if os.getpid() != self._process:  # a forked child: who holds these locks is not here
            self._forget()
        while True:
            lock = self._locks.setdefault(key, threading.RLock())
            with lock:
                if self._locks.get(key) is lock:  # else it was given up while this thread waited for it
                    try:
                        return work()
                    finally:
                        self._locks.pop(key, None)
