"""One thread that writes for all: writes that wait at the same time are committed together, safe from interrupts.

Ctrl-C raises KeyboardInterrupt in the main thread between any two of its bytecodes: for example after a BEGIN, before
the ROLLBACK that should follow. So a thread that has something to write hands it over and waits. Interrupting the wait
does not break the transaction: a write that had not begun is dropped; one that had begun is finished, but not shown.

Threads share only objects that a single C call reads or changes (SimpleQueue, deque, a bare lock). `concurrent.futures`
waits on conditions written in Python: an interrupt there can leave a lock held that the worker needs.
"""

import _thread
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from queue import SimpleQueue
from typing import Any, TypeVar

from holdfast.errors import HoldfastError, LedgerUnavailable

E = TypeVar("E", bound=BaseException)
_LOOK = 0.05  # seconds between two checks whether to give up waiting


class PendingWrite:
    """What one thread wants written, and the outcome."""

    __slots__ = ("_done", "abandoned", "error", "run")

    def __init__(self, run: Callable[[Any], None]) -> None:
        self.run = run
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
