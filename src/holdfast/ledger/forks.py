"""Forks: what is open is closed just before, so that a child inherits nothing.

SQLite counts its file locks in memory: a child inherits the count without the locks, and what it commits over another
connection can be lost. A connection to a server would be used by two processes at once. So connections are closed
before a fork, and nobody opens one until it is over; parent and child connect again when they need to. The hook takes
one lock, and what releases it is written in C, where no interrupt comes between.

Whatever a child must not have of its parent's (threads, locks, places taken ahead) knows whose it is by the process
number, and begins anew in another process. Should an interrupt have ended the hook early, the child finds a connection
open and refuses to use the file.
"""

import os
import threading
from typing import Protocol
from weakref import WeakSet

opening = threading.RLock()  # held for a moment by whoever begins to open a connection, and during a fork


class OfOneProcess:
    """What a process remembers and a forked child must not have: there it begins anew."""

    def __init__(self) -> None:
        self._process: int | None = None
        self._forgetting: dict[int, threading.RLock] = {}  # by process: a thread that is not here may hold another's
        self._check_process()

    def _forget(self) -> None:
        """Begin with nothing."""
        raise NotImplementedError  # what that is, only who remembers knows

    def _check_process(self) -> bool:
        """Forget everything in a forked child: it is the parent's. False if that was so."""
        process = os.getpid()
        if process == self._process:
            return True
        # Other threads of the child wait: one that forgot later would forget what the first has remembered since.
        with self._forgetting.setdefault(process, threading.RLock()):
            if process != self._process:
                self._forget()
                # Last: who is interrupted before, or comes meanwhile, takes nothing for its own.
                self._process = process
        return False


class HasConnections(Protocol):
    """Something that has to be closed before a fork."""

    def close_for_fork(self) -> None:
        """Close what is open, as soon as no thread uses it. May be repeated."""
        ...


_known: WeakSet[HasConnections] = WeakSet()


def close_before_forks(one: HasConnections) -> None:
    """Close this before every fork, for as long as anybody refers to it."""
    with opening:  # nobody becomes known during a fork
        _known.add(one)


def _before() -> None:
    opening.acquire()
    while True:
        try:
            for one in list(_known):
                one.close_for_fork()
        except KeyboardInterrupt:  # what a hook raises is printed, and the fork happens all the same
            continue
        return


if hasattr(os, "register_at_fork"):  # not where there is no fork
    os.register_at_fork(before=_before, after_in_parent=opening.release, after_in_child=opening.release)
