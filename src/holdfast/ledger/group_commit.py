"""One thread that writes for all: what waits at the same time is committed together, and no interrupt reaches it.

Ctrl-C raises KeyboardInterrupt in the main thread between any two of its bytecodes: after a BEGIN, before the ROLLBACK
that was to follow. So a thread that has something to write hands it over and waits. Interrupting the wait leaves the
transaction whole: what had not been begun is dropped, what had been begun is finished and nobody sees it.

Threads share only what a single C call reads or changes (SimpleQueue, deque, a bare lock). `concurrent.futures` waits
on conditions written in Python: an interrupt there can leave a lock held that the worker needs.
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
_LOOK = 0.05  # seconds between two looks whether it is time to give up waiting


class PendingWrite:
    """What one thread wants written, and what came of it."""

    __slots__ = ("_done", "abandoned", "error", "run")

    def __init__(self, run: Callable[[Any], None]) -> None:
        self.run = run
        self.abandoned = False  # interrupted: nobody waits for it any more
        self.error: BaseException | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def finish(self) -> None:
        """Let the waiting thread go on, once `error` says what went wrong, if anything."""
        self._done.release()

    def wait(self, look: Callable[[], None]) -> None:
        """Wait for the outcome, and raise what went wrong; `look` raises once it is no use to wait any longer."""
        while not self._done.acquire(timeout=_LOOK):
            look()
        error, self.error = self.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame: no reference cycle


class GroupCommitter:
    """A thread, started when needed, that does one piece of work after another; and the writes that wait for it."""

    def __init__(self, location: str) -> None:
        self._location = location
        self.reset()

    def reset(self) -> None:
        """Start with no thread and nothing pending; a forked child does, whose parent has both."""
        self._pending: deque[PendingWrite] = deque()
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._starting = threading.Lock()
        self._started = False

    def __len__(self) -> int:
        return len(self._pending)

    def submit(
        self, pending: PendingWrite, work: Callable[[], None], look: Callable[[], None], alone: bool = False
    ) -> None:
        """Have the work done, and return when it has finished this write; unless `alone`, it `take`s all that wait."""
        if sys.is_finalizing():  # asked by a destructor: threads no longer run
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
        """Take everything pending, but for what nobody waits for any more."""
        taken = []
        with suppress(IndexError):
            while True:
                taken.append(self._pending.popleft())
        return [pending for pending in taken if not pending.abandoned]

    def stop(self) -> None:
        """End the thread; only when nobody can submit any more."""
        self._work.put(None)

    def _start(self) -> None:
        with self._starting:
            if not self._started:
                try:  # not threading.Thread, whose start an interrupt can cut in two
                    _thread.start_new_thread(_serve, (self._work,))
                except RuntimeError as error:
                    raise self._unavailable("while no thread can be started") from error
                self._started = True  # an interrupt just before this may start a second thread: they take turns

    def _unavailable(self, when: str) -> LedgerUnavailable:
        return LedgerUnavailable(f"Ledger {self._location} cannot be written {when}.", location=self._location)


def _serve(work: SimpleQueue[Callable[[], None] | None]) -> None:
    # No reference to the store while this waits: stores that nobody closed can be collected.
    while (do := work.get()) is not None:
        do()
        del do
    work.put(None)  # for a second thread


def duplicate(error: E) -> E:
    """Return an error of ours for one more thread to raise; its traceback is that thread's own."""
    if not isinstance(error, HoldfastError):
        return error
    another = copy(error)
    another.__cause__ = error.__cause__
    return another
