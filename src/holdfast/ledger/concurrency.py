"""Threads, processes and connections of one ledger: one committing thread, and forks.

**One committing thread.** Writes that wait at the same time are committed together, safe from interrupts. Ctrl-C raises
KeyboardInterrupt in the main thread between any two of its bytecodes: for example after a BEGIN, before the ROLLBACK
that should follow. So a thread that has something to write hands it over and waits. Interrupting the wait does not
break the transaction: a write that had not begun is dropped; one that had begun is finished, but not shown.

Threads share only objects that a single C call reads or changes (SimpleQueue, deque, a bare lock). `concurrent.futures`
waits on conditions written in Python: an interrupt there can leave a lock held that the worker needs.

**Forks.** SQLite counts its file locks in memory: a child inherits the count without the locks, and what it commits
over another connection can be lost. A connection to a server would be used by two processes at once. So connections are
closed before a fork, and none is opened until the fork is over; parent and child connect again when they need to. The
hook takes one lock, which is released by a C function, so that no interrupt can come in between.

State that a child must not share with its parent (threads, locks, places taken ahead) records the id of its process and
is reset in any other process. If an interrupt has ended the hook early, the child finds a connection open and refuses
to use the file.

"""

import _thread
import ctypes
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from holdfast.errors import HoldfastError, LedgerUnavailable
from holdfast.process import this_process

E = TypeVar("E", bound=BaseException)
_LOOK = 0.05  # seconds between two checks whether to give up waiting


class PendingWrite:
    """What one thread wants written, and the outcome."""

    __slots__ = ("_done", "abandoned", "error", "run", "transaction")

    def __init__(self, run: Callable[[Any], None]) -> None:
        self.run = run
        self.transaction: Any = None  # in which it was last run
        self.abandoned = False  # whether the thread that waited for it was interrupted
        self.error: BaseException | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def finish(self) -> None:
        """Let the waiting thread continue; set `error` first if something went wrong."""
        self._done.release()

    def wait(self, look: Callable[[], None]) -> None:
        """Wait for the outcome, and raise the error, if any; `look` raises once waiting has become pointless."""
        while not self._done.acquire(timeout=_LOOK):
            look()
        error, self.error = self.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame: avoid a reference cycle


class GroupCommitter:
    """A thread, started when needed, that does one piece of work after another, and the writes that wait for it."""

    def __init__(self, location: str) -> None:
        self._location = location
        self.reset()

    def reset(self) -> None:
        """Start with no thread and nothing pending, at first and in a forked child."""
        self._pending: deque[PendingWrite] = deque()
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._starting = threading.Lock()
        self._started = False

    def __len__(self) -> int:
        return len(self._pending)

    def submit(
        self, pending: PendingWrite, work: Callable[[], None], look: Callable[[], None], alone: bool = False
    ) -> None:
        """Have the thread do the work, and return when this write is finished.

        Unless `alone`, the write becomes pending, and the work is expected to `take` all pending writes.
        """
        if sys.is_finalizing():  # called by a destructor: threads no longer run
            raise self._unavailable("while the interpreter shuts down")
        try:
            if not alone:
                self._pending.append(pending)
            self._work.put(work)
            self._start()
            pending.wait(look)
        except BaseException:
            pending.abandoned = True
            raise

    def take(self) -> list[PendingWrite]:
        """Take all pending writes, and drop those for which nobody waits any more."""
        taken = []
        with suppress(IndexError):
            while True:
                taken.append(self._pending.popleft())
        return [pending for pending in taken if not pending.abandoned]

    def stop(self) -> None:
        """End the thread; call this only when nobody can submit any more."""
        self._work.put(None)

    def _start(self) -> None:
        with self._starting:
            if not self._started:
                try:  # not threading.Thread: an interrupt can leave its start half done
                    _thread.start_new_thread(_serve, (self._work,))
                except RuntimeError as error:
                    raise self._unavailable("while no thread can be started") from error
                self._started = True  # after an interrupt just before this, a second thread may start: they take turns

    def _unavailable(self, when: str) -> LedgerUnavailable:
        return LedgerUnavailable(f"Ledger {self._location} cannot be written {when}.", location=self._location)


def _serve(work: SimpleQueue[Callable[[], None] | None]) -> None:
    # Hold no reference to the store while waiting, so that stores that nobody closed can be garbage-collected.
    while (do := work.get()) is not None:
        do()
        del do
    work.put(None)  # for a second thread


def duplicate(error: E) -> E:
    """Return a copy of one of holdfast's errors for another thread to raise, with its own traceback."""
    if not isinstance(error, HoldfastError):
        return error
    another = copy(error)
    another.__cause__ = error.__cause__
    return another


opening = threading.RLock()  # held during a fork, and briefly by a thread that starts to open a connection


class OfOneProcess:
    """State of one process, which is reset in a forked child."""

    def __init__(self) -> None:
        self._process: int | None = None
        self._forgetting: dict[int, threading.RLock] = {}  # by process: the parent's may be held by a thread not here
        self.check_process()

    def _forget(self) -> None:
        """Reset the state."""
        raise NotImplementedError  # each class that is reset after a fork says how

    def check_process(self) -> int:
        """Return the number of this process; in a forked child, first reset the state, since it is the parent's."""
        process = this_process.number
        if process != self._process:
            # Other threads of the child wait: a second reset would erase what the first thread has stored since.
            with self._forgetting.setdefault(process, threading.RLock()):
                if process != self._process:
                    self._forget()
                    # Last: if interrupted before, or seen by another thread, the state still counts as the parent's.
                    self._process = process
        return process


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


class Connection(Protocol):
    """The part of a driver's connection used here, in autocommit mode: transactions are begun explicitly."""

    def execute(self, sql: Any, parameters: Any = ..., /) -> Any: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class Closeable(Protocol):
    """Something that holds a file or a connection."""

    def close(self) -> None: ...  # noqa: D102


class ConnectionSlot:
    """One connection, opened when needed, used by one thread at a time."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.connection: Connection | None = None
        self.connecting = False  # whether the thread that holds the lock is opening the connection
        self.closing = False  # set before the connection is closed, for those who look without the lock
        self.kept: Connection | None = None  # a connection that must never be closed
        self.away: tuple[float, HoldfastError] | None = None  # when the database was last unreachable, and the error

    def close(self) -> None:
        """Close the connection; the caller must hold the lock."""
        if self.connection is not None:
            self.closing = True
            if self.connection is not self.kept:
                self.connection.close()
            self.connection = None  # after closing: a child forked in between must not take it for closed
            self.closing = False

    def keep(self) -> None:
        """Never close the present connection, not even when the process ends."""
        connection = self.connection
        if connection is not None and connection is not self.kept:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))  # so it is never garbage-collected, either
            self.kept = connection


def open_private(path: Path) -> int:
    """Open a file for writing and return its descriptor; only the owner may access a new file, whatever the umask."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if sys.platform != "win32":
        os.fchmod(descriptor, 0o600)
    return descriptor
