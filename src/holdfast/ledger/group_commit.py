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


class PendingWrite:
    """What one thread wants written, and what came of it. `alone`: not in one transaction with others."""

    __slots__ = ("_done", "abandoned", "alone", "error", "run")

    def __init__(self, run: Callable[[Any], None], *, alone: bool = False) -> None:
        self.run = run
        self.alone = alone
        self.abandoned = False
        self.error: BaseException | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def finish(self) -> None:
        """Let the waiting thread go on, once `error` says what went wrong, if anything."""
        self._done.release()

    def wait(self) -> None:
        """Wait for the outcome; raise what went wrong."""
        self._done.acquire()
        error, self.error = self.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame: no reference cycle


class GroupCommitter:
    """Has pending writes done in a thread of its own, all that wait at once."""

    def __init__(self, location: str) -> None:
        self._location = location
        self.reset()

    def reset(self) -> None:
        """Start with no thread and nothing pending; a forked child does, whose parent has both."""
        self._pending: deque[PendingWrite] = deque()
        self._wakeups: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._starting = threading.Lock()
        self._started = False

    def __len__(self) -> int:
        return len(self._pending)

    def submit(self, pending: PendingWrite, write_batch: Callable[[], None]) -> None:
        """Have this written, and return when it is. `write_batch` takes everything pending and finishes it."""
        if sys.is_finalizing():  # asked by a destructor: threads no longer run
            raise self._unavailable("while the interpreter shuts down")
        try:
            self._pending.append(pending)
            self._wakeups.put(write_batch)
            self._start()
            pending.wait()
        except BaseException:
            pending.abandoned = True  # interrupted: nobody waits for it any more
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
        self._wakeups.put(None)

    def _start(self) -> None:
        with self._starting:
            if not self._started:
                try:  # not threading.Thread, whose start an interrupt can cut in two
                    _thread.start_new_thread(self._serve, (self._wakeups,))
                except RuntimeError as error:
                    raise self._unavailable("while no thread can be started") from error
                self._started = True  # an interrupt just before this may start a second thread: they take turns

    def _serve(self, wakeups: SimpleQueue[Callable[[], None] | None]) -> None:
        # The thread holds no reference to the store while it waits: stores that nobody closed can be collected.
        while (write_batch := wakeups.get()) is not None:
            if self._pending:  # else an earlier batch took it
                try:
                    write_batch()
                except BaseException as error:  # noqa: BLE001 - raised in the threads that wait
                    for pending in self.take():
                        pending.error = duplicate(error)
                        pending.finish()
                        del pending
            del write_batch
        wakeups.put(None)

    def _unavailable(self, when: str) -> LedgerUnavailable:
        return LedgerUnavailable(f"Ledger {self._location} cannot be written {when}.", location=self._location)


def duplicate(error: E) -> E:
    """Return an error of ours for one more thread to raise; its traceback is that thread's own."""
    if not isinstance(error, HoldfastError):
        return error
    another = copy(error)
    another.__cause__ = error.__cause__
    return another
