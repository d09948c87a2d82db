"""One thread that writes, so that no interrupt ever meets a transaction half done.

Ctrl-C reaches the main thread, between any two of its steps: after a BEGIN, before the ROLLBACK that was to follow. So
whoever has something to write brings it here and waits. Interrupting the wait leaves the writing whole: what had not
been begun is dropped, what had been begun is finished, unseen.

The scribe takes all that wait at once, comes when there is work, and goes when there was none for a while.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from holdfast.errors import HoldfastError

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
        error, self._error = self._error, None  # its traceback leads back here: no circle
        if error is not None:
            raise error


Work = Callable[[Callable[[], list[Job]]], None]


class Scribe:
    """Has jobs done in a thread of its own."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._hiring = threading.Lock()
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return self._jobs.qsize()

    def bring(self, job: Job, work: Work) -> None:
        """Have this done, and return when it is. `work` takes all jobs that wait, when it is ready, and ends them."""
        try:
            self._jobs.put(job)
            self._hire(work)
            job.wait()
        except BaseException:
            job.dropped = True  # interrupted: nobody waits for it any more
            raise

    def _hire(self, work: Work) -> None:
        with self._hiring:
            if self._thread is None:
                # Interrupted between these two, a second thread may be hired: they take turns.
                thread = threading.Thread(target=self._run, args=(work,), name="holdfast ledger", daemon=True)
                thread.start()
                self._thread = thread

    def _run(self, work: Work) -> None:
        while True:
            try:
                jobs = [self._jobs.get(timeout=LINGER)]
            except Empty:
                with self._hiring:
                    if self._jobs.empty():  # whoever brings a job from here on finds nobody, and hires
                        self._thread = None
                        return
                continue
            try:
                work(partial(self._take, jobs))
            except BaseException as error:  # noqa: BLE001 - raised where the jobs come from
                for job in self._take(jobs):
                    job.end(copy(error) if isinstance(error, HoldfastError) else error)

    def _take(self, jobs: list[Job]) -> list[Job]:
        """Add what has been brought meanwhile; return the jobs that somebody waits for."""
        while not self._jobs.empty():
            jobs.append(self._jobs.get())
        return [job for job in jobs if not job.dropped]
