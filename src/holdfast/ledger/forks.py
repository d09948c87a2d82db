"""Forks: connections are closed just before a fork, so that the child inherits none.

SQLite counts its file locks in memory: a child inherits the count without the locks, and what it commits over another
connection can be lost. A connection to a server would be used by two processes at once. So connections are closed
before a fork, and none is opened until the fork is over; parent and child connect again when they need to. The hook
takes one lock, which is released by a C function, so that no interrupt can come in between.

State that a child must not share with its parent (threads, locks, places taken ahead) records the id of its process and
is reset in any other process. If an interrupt has ended the hook early, the child finds a connection open and refuses
to use the file.
"""

import os
import threading
from typing import Protocol
from weakref import WeakSet

opening = threading.RLock()  # held during a fork, and briefly by a thread that starts to open a connection


class OfOneProcess:
    """State of one process, which is reset in a forked child."""

    def __init__(self) -> None:
        self._process: int | None = None
        self._forgetting: dict[int, threading.RLock] = {}  # by process: the parent's may be held by a thread not here
        self._check_process()

    def _forget(self) -> None:
        """Reset the state."""
        raise NotImplementedError

    def _check_process(self) -> bool:
        """Reset the state in a forked child, since it is the parent's. Return False if it had to be reset."""
        process = os.getpid()
        if process == self._process:
            return True
        # Other threads of the child wait: a second reset would erase what the first thread has stored since.
        with self._forgetting.setdefault(process, threading.RLock()):
            if process != self._process:
                self._forget()
                # Last: if interrupted before this, or seen by another thread, the state still counts as the parent's.
                self._process = process
        return False


class HasConnections(Protocol):
    """Something that has to be closed before a fork."""

    def close_for_fork(self) -> None:
        """Close open connections as soon as no thread uses them. May be called again."""
        ...


_known: WeakSet[HasConnections] = WeakSet()


def close_before_forks(one: HasConnections) -> None:
    """Close the connections of this object before every fork, for as long as anybody refers to it."""
    with opening:  # none is added during a fork
        _known.add(one)


def _before() -> None:
    opening.acquire()
    while True:
        try:
            for one in list(_known):
                one.close_for_fork()
        except KeyboardInterrupt:  # if a hook raises, Python prints the error and forks anyway
            continue
        return


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(before=_before, after_in_parent=opening.release, after_in_child=opening.release)
