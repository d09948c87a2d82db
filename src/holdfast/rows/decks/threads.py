"""Work in threads: at the same time, before its results are needed, or while the caller goes on.

Whatever ends it, errors or interrupts, nothing runs any more once the caller has left: what a thread still wrote would
meet with what the next attempt writes. Interrupts may come at any moment, which Python's own pools do not allow for: a
caller who is interrupted while waiting for one may leave a lock taken, or take threads that still run for ended ones.
So here callers wait for plain locks only.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import sleep
from typing import Any, Generic, TypeVar

THREADS = 2
_PAUSE = 0.001  # seconds
_busy: set[Path] = set()  # where a thread writes behind its caller
Item = TypeVar("Item")
Made = TypeVar("Made")


class Pending(Generic[Made]):
    """Some work, and what came of it."""

    def __init__(self, work: Callable[..., Made], args: tuple[Any, ...]) -> None:
        self._work: Callable[[], Made] | None = lambda: work(*args)
        self._made: list[Made] = []
        self._error: BaseException | None = None
        self._done = Lock()
        self._done.acquire()

    def run(self) -> None:
        """Do the work."""
        work, self._work = self._work, None  # what it refers to is needed no longer
        assert work is not None
        try:
            self._made.append(work())
        except BaseException as problem:  # noqa: BLE001  # raised where the result is asked for
            self._error = problem
        finally:
            self._done.release()

    def result(self) -> Made:
        """Wait for the result, and return it; raise what the work raised."""
        with self._done:
            if self._error is not None:
                raise self._error
            return self._made[0]


class ThreadPool:
    """A few threads, which do one task after another; once they are closed, they do nothing any more."""

    def __init__(self, count: int) -> None:
        self._tasks: SimpleQueue[Pending[Any] | None] = SimpleQueue()
        self._ended: list[Lock] = []  # one for each thread, which releases it at its end
        self._count = count
        for _ in range(count):
            ended = Lock()
            ended.acquire()
            Thread(target=_serve, args=(self._tasks, ended), name="holdfast deal", daemon=True).start()
            self._ended.append(ended)

    def __del__(self) -> None:
        """End threads that wait for tasks, if an interrupt came before anybody could close them."""
        for _ in range(self._count):
            self._tasks.put(None)

    def begin(self, work: Callable[..., Made], *args: Any) -> Pending[Made]:
        """Begin some work."""
        task = Pending(work, args)
        self._tasks.put(task)
        return task

    def each(self, work: Callable[..., Made], *items: Iterable[Any]) -> list[Made]:
        """Return the results for all items, in order; of several iterables, `work` takes one item each."""
        begun = [self.begin(work, *each) for each in zip(*items, strict=False)]
        return [task.result() for task in begun]

    def close(self) -> None:
        """Drop what has not begun, and wait for the rest, even if interrupted meanwhile, however often."""
        try:
            with suppress(Empty):
                while True:
                    self._tasks.get_nowait()
            for _ in range(self._count):
                self._tasks.put(None)
            for ended in self._ended:
                with ended:
                    pass
        except BaseException:
            self.close()
            raise


def _serve(tasks: "SimpleQueue[Pending[Any] | None]", ended: Lock) -> None:
    try:
        while (task := tasks.get()) is not None:
            task.run()
            del task  # before waiting for the next one: its result may be large
    finally:
        ended.release()


def at_once(work: Callable[[Item], Made], items: Iterable[Item]) -> list[Made]:
    """Return the results for all items, in order, while several threads work on them."""
    with closing(ThreadPool(THREADS)) as threads:
        return threads.each(work, items)


def ahead(work: Callable[[Item], Made], items: Iterable[Item]) -> Generator[Made, None, None]:
    """Yield the result for each item, in order, while threads work on the next items."""
    with closing(ThreadPool(THREADS)) as threads:
        waiting: deque[Pending[Made]] = deque()
        for item in items:
            waiting.append(threads.begin(work, item))
            if len(waiting) > THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class Behind:
    """One thread that does one task at a time, while the caller goes on.

    `place` is where the tasks write. If a caller was interrupted so often that a thread of this process outlived it
    after all, the next one at the same place waits for that thread.
    """

    def __init__(self, place: Path) -> None:
        while place in _busy:
            sleep(_PAUSE)
        self._place, self._threads = place, ThreadPool(1)
        self._last: Pending[None] | None = None

    def do(self, work: Callable[[], None]) -> None:
        """Wait for the task before, raising its error if it failed; then start this one."""
        self.wait()
        self._last = self._threads.begin(self._do, work)

    def _do(self, work: Callable[[], None]) -> None:
        _busy.add(self._place)
        try:
            work()
        finally:
            _busy.discard(self._place)

    def wait(self) -> None:
        """Wait until the last task is done; raises its error if it failed."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def close(self) -> None:
        """Wait for the last task, ignoring its errors, so that nothing runs after the caller has left."""
        try:
            with suppress(Exception):
                self.wait()  # also for one that has not begun, which closing the threads would drop
        finally:
            self._threads.close()
