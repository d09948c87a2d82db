"""One thread that writes, so that no interrupt ever meets a transaction half done.

Ctrl-C reaches the main thread, between any two of its steps: after a BEGIN, before the ROLLBACK that was to follow. So
whoever has something to write brings it here and waits. Interrupting the wait leaves the writing whole: what had not
been begun is dropped, what had been begun is finished, unseen.

The scribe takes all that wait at once, comes when there is work, and goes when there was none for a while.
"""

import _thread
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from holdfast.errors import HoldfastError, LedgerUnavailable

LINGER = 1.0  # seconds without work after which the thread ends; hiring it again costs less than a sync


class Job:
    """What one thread wants done, and what came of it. `alone`: not in one transaction with others."""

    __slots__ = ("_end", "_ended", "_error", "alone", "do", "dropped")

    def __init__(self, do: Callable[[Any], None], *, alone: bool = False) -> None:
        self.do = do
        self.alone = alone
        self.dropped = self._ended = False
        self._error: BaseException | None = None
        self._end = threading.Lock()
        self._end.acquire()

    def end(self, error: BaseException | None = None) -> None:
        """Say what came of it, once, and let its thread go on."""
        if not self._ended:
            self._ended, self._error = True, error
            self._end.release()

    @contextmanager
    def outcome(self) -> Iterator[None]:
        """End the job with what comes of the block; whatever it raises is raised where the job comes from."""
        try:
            yield
        except BaseException as error:  # noqa: BLE001
            self.end(error)
        else:
            self.end()

    def wait(self) -> None:
        """Wait for the end; raise what went wrong."""
        self._end.acquire()
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback leads back here: no circle


Work = Callable[[Callable[[], list[Job]]], None]


class Scribe:
    """Has jobs done in a thread of its own."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._hiring = threading.Lock()
        self._hired = False
        self._writing: set[int] = set()  # threads; two after an interrupt in a bad moment

    def __len__(self) -> int:
        return self._jobs.qsize()

    def bring(self, job: Job, work: Work) -> None:
        """Have this done, and return when it is. `work` takes all jobs that wait, when it is ready, and ends them."""
        if sys.is_finalizing() or threading.get_ident() in self._writing:  # from a destructor: nobody would come
            raise self._nobody("by a destructor")
        try:
            self._jobs.put(job)
            self._hire(work)
            job.wait()
        except BaseException:
            job.dropped = True  # interrupted: nobody waits for it any more
            raise

    def _hire(self, work: Work) -> None:
        with self._hiring:
            if not self._hired:
                try:  # not by threading.Thread, whose start an interrupt can cut in two
                    _thread.start_new_thread(self._run, (work,))
                except RuntimeError as error:
                    raise self._nobody("while no thread can be started") from error
                self._hired = True  # interrupted just before this, a second thread may be hired: they take turns

    def _run(self, work: Work) -> None:
        self._writing.add(threading.get_ident())
        try:
            while self._work_once(work):
                pass
        except BaseException:  # out of memory, say: somebody else must be hired
            self._hired = False
            raise
        finally:
            self._writing.discard(threading.get_ident())

    def _work_once(self, work: Work) -> bool:
        """Do what waits, or wait for it; return False when there was nothing for a while."""
        try:
            jobs = [self._jobs.get(timeout=LINGER)]
        except Empty:
            with self._hiring:
                self._hired = not self._jobs.empty()  # whoever brings a job from here on finds nobody, and hires
                return self._hired
        try:
            work(partial(self._take, jobs))
        except BaseException as error:  # noqa: BLE001 - raised where the jobs come from
            for job in jobs:
                job.end(_again(error))
        return True

    def _take(self, jobs: list[Job]) -> list[Job]:
        """Add what has been brought meanwhile; return the jobs that somebody waits for."""
        with suppress(Empty):
            while True:
                jobs.append(self._jobs.get_nowait())
        return [job for job in jobs if not job.dropped]

    def _nobody(self, when: str) -> LedgerUnavailable:
        return LedgerUnavailable(f"Ledger {self._location} cannot be written {when}.", location=self._location)


def _again(error: BaseException) -> BaseException:
    """Return an error of ours for one more thread to raise; its traceback is that thread's own."""
    if not isinstance(error, HoldfastError):
        return error
    another = copy(error)
    another.__cause__ = error.__cause__
    return another
