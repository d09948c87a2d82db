"""Who works when: lanes of threads, in which everybody has a turn.

    reads    pages, prices, sign-ins: nothing here waits for an evaluation or for the ledger's lock
    asks     answers whose work is small
    heavy    answers whose work is large, in few threads: however many are asked, the others go on

In each lane one person may fill a part of the threads only. Who asks for more waits, in the order of asking; who has
too many waiting is refused. Free threads go to the persons in turn.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import NamedTuple, TypeVar

from holdfast.errors import TooManyRequests

T = TypeVar("T")
RETRY_SECONDS = 1.0


class _Waiting(NamedTuple):
    work: Callable[[], object]
    result: "asyncio.Future[object]"


class Lane:
    """Some threads, used by one event loop. A thread is free again when its work ends, not when its caller leaves."""

    def __init__(self, name: str, threads: int, *, each: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(threads, f"holdfast {name}")
        self._free, self._each, self._most_waiting = threads, each, waiting
        self._running: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[_Waiting]] = OrderedDict()  # persons in turn

    async def run(self, person: str, work: Callable[[], T]) -> T:
        """Return what `work` returns, in a thread, when it is this person's turn."""
        return await self.submit(person, work)

    def submit(self, person: str, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Have the work done when it is this person's turn. Cancelled before, it is never begun."""
        asked = _Waiting(partial(copy_context().run, work), asyncio.get_running_loop().create_future())
        if self._may_run(person):
            self._start(person, asked)
        else:
            self._wait(person, asked)
        return asked.result  # type: ignore[return-value]

    def close(self) -> None:
        """Start nothing more; what runs is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _may_run(self, person: str) -> bool:
        return self._free > 0 and self._running[person] < self._each

    def _wait(self, person: str, asked: _Waiting) -> None:
        queue = deque(one for one in self._waiting.get(person, ()) if not one.result.done())
        if len(queue) >= self._most_waiting:
            raise TooManyRequests(
                f"At most {self._most_waiting:,} requests of one person may wait; the earlier ones come first."
                f" Wait {RETRY_SECONDS:g} s, then try again.",
                retry_after=RETRY_SECONDS,
            )
        queue.append(asked)
        self._waiting[person] = queue

    def _start(self, person: str, asked: _Waiting) -> None:
        running = asyncio.get_running_loop().run_in_executor(self._pool, asked.work)
        self._free -= 1
        self._running[person] += 1
        running.add_done_callback(partial(self._finish, person, asked))

    def _finish(self, person: str, asked: _Waiting, done: "asyncio.Future[object]") -> None:
        """Hand over the result, if somebody waits for it, and give the thread to the next person in turn."""
        self._free += 1
        self._running[person] -= 1
        if not self._running[person]:
            del self._running[person]
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or asked.result.done():
            asked.result.cancel()
        elif error is not None:
            asked.result.set_exception(error)
        else:
            asked.result.set_result(done.result())
        self._start_next()

    def _start_next(self) -> None:
        for person in list(self._waiting):
            queue = self._waiting[person]
            while queue and self._may_run(person):
                asked = queue.popleft()
                if not asked.result.done():
                    self._waiting.move_to_end(person)
                    self._start(person, asked)
                    break
            if not queue:
                del self._waiting[person]
            if not self._free:
                return


class Lanes:
    """The three lanes of a process."""

    def __init__(self, *, each: int, waiting: int) -> None:
        # As many answers as wait for one disk sync together; with more threads requests would only queue elsewhere.
        self.reads = Lane("reads", 8, each=each, waiting=waiting)
        self.asks = Lane("asks", 8, each=each, waiting=waiting)
        self.heavy = Lane("heavy", 2, each=1, waiting=waiting)

    def close(self) -> None:
        """Start nothing more."""
        for lane in (self.reads, self.asks, self.heavy):
            lane.close()
