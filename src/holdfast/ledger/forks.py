"""Forks: what is open is closed just before, so that a child inherits nothing.

SQLite counts its file locks in memory: a child inherits the count without the locks, and what it commits over another
connection can be lost. A connection to a server would be used by two processes at once. So every database closes its
connections before a fork; parent and child connect again when they need to. Its locks are held meanwhile: a thread that
was inside SQLite during a fork would leave the child with SQLite's own locks held for good.

What is only remembered is forgotten in the child when it is first needed there.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol
from weakref import ReferenceType, ref

HOOKS = 4  # an interrupt that waits when a hook is called ends that hook: the next one makes up for it


class Forked(Protocol):
    """Something that has to be closed before a fork."""

    def before_fork(self) -> None:
        """Keep other threads away, and close what is open. May be repeated."""
        ...

    def after_fork_in_parent(self) -> None:
        """Let other threads go on. May be repeated."""
        ...

    def after_fork_in_child(self) -> None:
        """Begin anew. May be repeated."""
        ...


_known: list[ReferenceType[Forked]] = []
_lock = threading.RLock()  # nobody becomes known during a fork


def at_fork(one: Forked) -> None:
    """Close this before every fork, for as long as anybody refers to it."""
    with _lock:
        _known.append(ref(one, _known.remove))


def release_fully(lock: threading.RLock) -> None:
    """Release a lock however often this thread holds it."""
    with suppress(RuntimeError):  # it is not held any more
        while True:
            lock.release()


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


def _living() -> list[Forked]:
    return [one for one in (reference() for reference in list(_known)) if one is not None]


def _before() -> None:
    _lock.acquire()
    for one in _living():
        one.before_fork()


def _after_in_parent() -> None:
    for one in _living():
        one.after_fork_in_parent()
    release_fully(_lock)


def _after_in_child() -> None:
    global _lock
    _lock = threading.RLock()
    for one in _living():
        one.after_fork_in_child()


def _until_done(step: Callable[[], None]) -> Callable[[], None]:
    """Repeat a step that was interrupted: what a hook raises is printed, and the fork happens all the same."""

    def hook() -> None:
        while True:
            try:  # a second interrupt, on the way back to the start of the inner loop
                while True:
                    try:
                        return step()
                    except KeyboardInterrupt:
                        pass
            except KeyboardInterrupt:
                pass

    return hook


if hasattr(os, "register_at_fork"):  # not where there is no fork
    before, in_parent, in_child = map(_until_done, (_before, _after_in_parent, _after_in_child))
    for _ in range(HOOKS):
        os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)
