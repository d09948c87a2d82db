"""Connections do not survive a fork: around one, every store lets go of its own.

Just before a fork, a thread of its own takes every store's locks, when nobody uses the connections, and closes them;
it lets go of the locks when the parent says that the fork is over. Parent and child reconnect when they next need to.
No interrupt reaches that thread. One may reach a hook, where Python prints it and forks all the same: so the hooks may
be repeated, and are.
"""

import os
import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import Protocol
from weakref import WeakSet


class Store(Protocol):
    """What has connections."""

    def pause(self) -> None:
        """Wait for the threads that use the connections, keep others away, and close them."""
        ...

    def resume(self) -> None:
        """Let threads use connections again."""
        ...

    def begin_anew(self) -> None:
        """In a forked child: forget locks and threads, which are the parent's."""
        ...


_living: WeakSet[Store] = WeakSet()
_births = threading.Lock()
_pauses: dict[int, "_Pause"] = {}  # by the thread that forks


def watch(store: Store) -> None:
    """Pause this store around forks from now on."""
    with _births:
        _living.add(store)


class _Pause:
    """Holds every lock around one fork."""

    def __init__(self) -> None:
        self._begun = threading.Lock()
        self.paused = threading.Event()
        self.over: SimpleQueue[None] = SimpleQueue()

    def run(self) -> None:
        if not self._begun.acquire(blocking=False):  # called again, after an interrupt
            return
        with _births:
            stores = list(_living)
            for store in stores:
                store.pause()
            self.paused.set()
            self.over.get()
            for store in stores:
                store.resume()


def _before() -> None:
    if not _living:
        return
    pause = _pauses.setdefault(threading.get_ident(), _Pause())
    while not pause.paused.is_set():
        with suppress(KeyboardInterrupt):
            threading.Thread(target=pause.run, name="holdfast fork", daemon=True).start()
            pause.paused.wait()


def _in_parent() -> None:
    pause = _pauses.get(threading.get_ident())
    if pause is not None:
        pause.over.put(None)
        _pauses.pop(threading.get_ident(), None)


def _in_child() -> None:
    global _births
    _births = threading.Lock()
    _pauses.clear()
    for store in list(_living):
        store.begin_anew()


if hasattr(os, "register_at_fork"):  # not where there is no fork
    for _ in range(3):  # an interrupt spoils one of them
        os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
