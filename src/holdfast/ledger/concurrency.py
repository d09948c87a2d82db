"""Threads and processes on one ledger: forks, the queue of writers, one committing thread, one answer at a time.

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

**The queue of writers** is a lock file beside the ledger, on which processes wait. It serves only fairness and speed.
SQLite lets one process write at a time, whether or not it holds this lock.

**One answer at a time.** A thread that asks a question which is being answered waits for that answer instead of
drawing again.
"""

import _thread
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from io import FileIO
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from holdfast.errors import HoldfastError, LedgerUnavailable

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
        process = os.getpid()
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


if sys.platform != "win32":
    import fcntl


class LockFile:
    """A lock file, opened when needed. It may be closed, which releases the lock, even while a thread waits for it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.file: FileIO | None = None  # not its descriptor, which may be reused for another file once it is closed

    def acquire(self) -> None:
        """Wait for the lock without a time limit; continue without it if the file is closed meanwhile, as by a fork."""
        if sys.platform != "win32":
            file = self.file
            if file is None:
                file = self.file = FileIO(open_private(self._path), "r+")
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
            except (ValueError, OSError):
                if not file.closed:
                    raise

    def release(self) -> None:
        """Release the lock."""
        file = self.file
        if sys.platform != "win32" and file is not None:
            with suppress(ValueError):  # closed meanwhile
                fcntl.flock(file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file."""
        file, self.file = self.file, None
        if file is not None:
            file.close()


def open_private(path: Path) -> int:
    """Open a file for writing and return its descriptor; only the owner may access a new file, whatever the umask."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if sys.platform != "win32":
        os.fchmod(descriptor, 0o600)
    return descriptor


T = TypeVar("T")


class _Turn:
    """The turn to answer one question; whoever answers it holds the lock."""

    __slots__ = ("lock", "owner", "waiting")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owner: int | None = None  # the thread that answers, if the whole answer is made in one thread
        self.waiting: deque[Callable[[], None]] = deque()

    def call_waiting(self) -> None:
        """Call all waiting callbacks; each is called once, even if several threads call this."""
        while self.waiting:
            try:
                answered = self.waiting.popleft()
            except IndexError:  # another thread was faster
                return
            answered()


class InFlight(OfOneProcess):
    """The questions that threads of this process are answering, by key.

    `run` holds locks only by `with`, never across a generator, so that an interrupt cannot leave one held. A destructor
    or signal handler that asks the question that its own thread is answering does not wait for itself.
    """

    def _forget(self) -> None:
        """Drop all turns: the threads that hold the parent's locks do not exist in a forked child."""
        self._turns: dict[str, _Turn] = {}

    def run(self, key: str | None, work: Callable[[], T]) -> T:
        """Do the work while no other thread does any with the same key; work without a key does not wait."""
        if key is None:
            return work()
        self.check_process()
        while True:
            turn = self._turns.setdefault(key, _Turn())
            if turn.owner == threading.get_ident():
                return work()
            with turn.lock:
                if self._turns.get(key) is turn:  # otherwise this turn ended while the thread waited for it
                    turn.owner = threading.get_ident()
                    try:
                        return work()
                    finally:
                        self._turns.pop(key, None)
                        if turn.waiting:
                            turn.call_waiting()

    def run_all(self, keys: Sequence[str], work: Callable[[], T]) -> T:
        """Do the work while no other thread does any with one of these keys.

        The keys are locked in sorted order, so that two threads that want the same keys cannot deadlock.
        """
        if not keys:
            return work()
        first, *others = sorted(set(keys))
        return self.run(first, partial(self.run_all, others, work))

    def begin(self, key: str | None, when_free: Callable[[], None]) -> Callable[[], None] | None:
        """Begin work with this key; return the function that ends it, callable in any thread.

        Return None if somebody else is working with the key; `when_free` is then called when they have ended. Only for
        threads that no interrupt reaches.
        """
        if key is None:
            return _nothing
        self.check_process()
        while True:
            turn = self._turns.setdefault(key, _Turn())
            if turn.lock.acquire(blocking=False):
                if self._turns.get(key) is turn:
                    return partial(self._end, key, turn)
                turn.lock.release()
                continue
            turn.waiting.append(when_free)
            if self._turns.get(key) is not turn:  # they ended just now, perhaps before `when_free` was in the list
                turn.call_waiting()
            return None

    def _end(self, key: str, turn: _Turn) -> None:
        self._turns.pop(key, None)
        turn.lock.release()
        turn.call_waiting()


def _nothing() -> None:
    pass
