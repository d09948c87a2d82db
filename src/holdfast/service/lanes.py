"""Lanes: pools of threads that serve callers in turn.

    reads    pages, prices, sign-ins: nothing here waits for an evaluation or for the ledger's lock
    asks     answers with little work; those that are drawn one after another are written to the ledger together
    heavy    answers with much work, in few threads: however many are requested, the other lanes keep working

In each lane, one person may use only part of the threads. Further requests of the same person wait, in order of
arrival; beyond a limit they are refused. Free threads go to the waiting persons in turn.
"""

import asyncio
import os
import sys
import threading
import time
from bisect import bisect_right, insort
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar
from weakref import WeakSet

from holdfast.cancel import Work, before_waiting
from holdfast.service.alarms import Alarms
from holdfast.service.turns import Turns, Waiting

T = TypeVar("T")
STALL = 0.02  # seconds on one piece of work after which another thread takes over the rest
PATIENCE = 0.5  # seconds to wait before checking whether the answer is stored and whether the caller is still there
SETTLING = 0.2  # seconds to wait, at most, for work that was called off when the lanes are closed
ENDING = 1.0  # seconds to wait, at most, for unwritten answers after they are due, when the lane is closed
MOST_TOGETHER, LONGEST_TOGETHER = 48, 0.03  # answers in one write, and seconds that it may wait after the first is due


class Lane:
    """Some threads, used by one event loop. A thread is free again when its work ends, not when its caller leaves."""

    def __init__(
        self, name: str, threads: int, *, each: int, waiting: int, first: Callable[[], None] | None = None
    ) -> None:
        self._pool = ThreadPoolExecutor(threads, f"holdfast {name}", first)
        self._free, self.turns = threads, Turns(each=each, waiting=waiting)
        self._begun: set[Future[object]] = set()  # work in progress, whether or not anybody waits for it
        self._closed = False

    async def run(self, person: str, work: Callable[[], T]) -> T:
        """Return what `work` returns, in a thread, when it is this person's turn."""
        return await self.submit(person, work)

    def submit(self, person: str, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Do the work when it is this person's turn. If the future is cancelled before that, it never begins."""
        loop = asyncio.get_running_loop()
        asked = Waiting(person, partial(copy_context().run, work), loop.create_future(), loop)
        self.turns.add(asked)
        self._start()
        return asked.result

    def close(self, seconds: float = 0.0) -> None:
        """Start nothing more, and wait at most this long for work in progress."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        for running in list(self._begun):
            running.cancel()  # without effect if a thread has it
        wait(list(self._begun), seconds)

    @property
    def busy(self) -> bool:
        """Whether work is in progress."""
        return bool(self._begun)

    def _start(self) -> None:
        """Start what may begin."""
        while not self._closed and self._free > 0 and (asked := self.turns.take()) is not None:
            running = Future[object]()
            self._begun.add(running)
            running.add_done_callback(self._begun.discard)
            self._free -= 1
            asyncio.wrap_future(running).add_done_callback(partial(self._finish, asked))
            self._have_done(partial(_do, running, asked.work), asked.loop)

    def _have_done(self, act: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        """Have a thread do something. If the system can start none now, those there are come to it, or a later one."""
        try:
            self._pool.submit(act)
        except RuntimeError:
            if not self._closed:  # the pool has taken it all the same
                loop.call_later(STALL, self._have_done, _nothing, loop)

    def _finish(self, asked: Waiting, done: "asyncio.Future[object]") -> None:
        """Hand over the result, if somebody waits for it, and give the thread to the next person in turn."""
        self._free += 1
        self.turns.end(asked)
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or asked.result.done():
            asked.result.cancel()
        elif error is not None:
            asked.result.set_exception(error)
        else:
            asked.result.set_result(done.result())
        self._start()


def _do(running: "Future[object]", work: Callable[[], object]) -> None:
    if running.set_running_or_notify_cancel():
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001  raised where the result is awaited
            running.set_exception(_raisable(error))
        else:
            running.set_result(result)


def _nothing() -> None:
    pass


def _raisable(error: BaseException) -> BaseException:
    """Return what a future can raise: nothing may be awaited that raises StopIteration, and whoever did would hang."""
    return RuntimeError("a thread raised StopIteration") if isinstance(error, StopIteration) else error


class Unfinished:
    """What a piece of work returns if its result must still be written, together with others for the same `beside`.

    It is written at the time `due` of the monotonic clock, or later.
    """

    beside: object = None
    due: float = -inf


class WritingLane:
    """Threads whose work ends in a write, which several pieces of work share.

    One thread works at a time: under the interpreter lock, a second one would only be in its way. It goes from one
    piece of work to the next, writes the answers that have accumulated, and hands all results to the event loop at
    once. If it has spent long on one piece (cold data, a slow disk), or announces that it waits (for the disk, for a
    locked ledger), the next thread takes over; when the first one finishes its piece, it leaves the rest to that one.
    The next thread is the idle one that worked last, since its data are still in the processor's cache. It is also the
    one among the idle threads that writes answers when they become due.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        *,
        each: int,
        waiting: int,
        write: Callable[[list[Any]], list[object]],
    ) -> None:
        self._name, self._threads, self._write = name, threads, write
        self._lock = threading.Lock()  # for everything below
        self.turns = Turns(each=each, waiting=waiting)
        self._unwritten: dict[object, _Unwritten] = {}  # by ledger
        self._writing: set[object] = set()  # ledgers being written: one that is locked elsewhere does not delay others
        self._closed = self._watched = False
        self._since: dict[int, float] = {}  # by working thread: when it began its current piece
        self._woken = -inf  # when a thread was woken that has not begun yet
        self._started = 0
        self._idle: list[SimpleQueue[None]] = []  # for each idle thread, the queue that wakes it

    def submit(self, person: str, work: Callable[[Callable[[], None]], object]) -> "asyncio.Future[Any]":
        """Do the work when it is this person's turn. If the future is cancelled before that, it never begins.

        `work` returns a result, or something `Unfinished` that `write` turns into one, or None if it must be done again
        after the function that it is given has been called.
        """
        loop = asyncio.get_running_loop()
        asked = Waiting(person, work, loop.create_future(), loop)
        with self._lock:
            self.turns.add(asked)
            self._look(loop)
        return asked.result

    def close(self) -> None:
        """Start nothing more. Work that has begun is paid for: it is written when due, unless that takes too long."""
        with self._lock:
            self._closed = True
            self._wake_all()
        last = time.monotonic()
        while self.busy and time.monotonic() < last + ENDING:
            with self._lock:
                last = max([last, *(_due(one.answers[-1]) for one in self._unwritten.values())])
                # The event loop does not check this any more.
                if self._unwritten and self._nobody_works(time.monotonic()):
                    self._wake()
            time.sleep(0.1 * STALL)

    @property
    def busy(self) -> bool:
        """Whether work is in progress."""
        return bool(self.turns.running)

    def _again(self, asked: Waiting) -> None:
        """Put work that had to wait for somebody else's answer back at the front of its queue."""
        with self._lock:
            self.turns.add_again(asked)
            self._look(asked.loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Make sure that a thread is working, now and as long as there is something to do; called with the lock."""
        if self._closed or not (self.turns.waiting or self._unwritten):
            return
        if self._nobody_works(time.monotonic()):
            self._wake()
        if not self._watched:
            self._watched = True  # until `_watch` has run, even if there is nothing to do by then
            loop.call_later(STALL, self._watch, loop)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._watched = False
            self._look(loop)

    def _nobody_works(self, now: float) -> bool:
        lately = now - STALL
        return self._woken < lately and (not self._since or max(self._since.values()) < lately)

    def _wake(self) -> None:
        self._woken = time.monotonic()
        if self._idle:
            self._idle.pop().put(None)
        elif self._started < self._threads:
            with suppress(RuntimeError):  # the system cannot start a thread now: the next `_watch` tries again
                threading.Thread(target=self._serve, name=f"holdfast {self._name}", daemon=True).start()
                self._started += 1

    def _wake_all(self) -> None:
        while self._idle:
            self._idle.pop().put(None)

    # -- in the threads -------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        me, woken = threading.get_ident(), SimpleQueue[None]()
        before_waiting.set(self._let_others_go_on)
        drawn: tuple[Waiting, Unfinished] | None = None
        while True:
            with self._lock:
                if drawn is not None:
                    self._keep(*drawn)
                    drawn = None
                self._woken, now = -inf, time.monotonic()
                self._since.pop(me, None)
                alone = self._nobody_works(now)
                step = self._next(now) if alone else None
                if step is not None:
                    self._since[me] = now
                elif self._closed and not self._unwritten:
                    self._wake_all()
                    return
                else:
                    self._idle.append(woken)
                    due = min((one.due for one in self._to_write()), default=inf)
                    due = due if alone else max(due, now + STALL)  # give the working thread time to write it first
            if step is None:
                self._wait(woken, due - now)
            elif isinstance(step, Waiting):
                drawn = self._do(step)
            else:
                self._write_together(step)

    def _wait(self, woken: SimpleQueue[None], seconds: float) -> None:
        """Wait until this thread is woken, or until the time is up and it is the one that would be woken next."""
        while True:
            with suppress(Empty):
                return woken.get(timeout=min(seconds, threading.TIMEOUT_MAX))
            with self._lock:
                if self._idle and self._idle[-1] is woken:
                    self._idle.pop()
                    return
                # The thread that would be woken next may get stuck, as on a ledger that is locked elsewhere.
                seconds = STALL if self._unwritten else inf

    def _to_write(self) -> "list[_Unwritten]":
        """Return the unwritten answers of ledgers that no thread is writing to."""
        return [one for one in self._unwritten.values() if one.ledger not in self._writing]

    def _next(self, now: float) -> "Waiting | _Together | None":
        """Return the next piece of work, or answers to write to one ledger together."""
        ready, urgent = [], False
        for one in self._unwritten.values():
            if one.due <= now and one.ledger not in self._writing:
                ready.append(one)
                urgent = urgent or one.due < now - LONGEST_TOGETHER or one.fills_a_write(now)
        asked = None if urgent or self._closed else self.turns.take()
        if asked is not None or not ready:
            return asked
        chosen = max(ready, key=lambda one: (one.fills_a_write(now), -one.due))
        together = chosen.take(now)
        if not chosen.answers:
            del self._unwritten[chosen.ledger]
        self._writing.add(chosen.ledger)
        return together

    def _do(self, asked: Waiting) -> tuple[Waiting, Unfinished] | None:
        """Do a piece of work; return it with what must still be written, if that is what it has come to."""

        def again() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                asked.loop.call_soon_threadsafe(self._again, asked)

        try:
            result = asked.work(again)
        except BaseException as error:  # noqa: BLE001  raised where the result is awaited
            result = error
        if isinstance(result, Unfinished):
            return asked, result
        self._end([asked])
        if result is not None:
            _hand_over([(asked, result)])
        return None

    def _keep(self, asked: Waiting, drawn: Unfinished) -> None:
        """Keep an answer until it is due; called with the lock."""
        unwritten = self._unwritten.get(drawn.beside)
        if unwritten is None:
            unwritten = self._unwritten[drawn.beside] = _Unwritten(drawn.beside)
        unwritten.add(asked, drawn)

    def _let_others_go_on(self) -> None:
        """Let another thread take over, as if this one had spent long on its piece."""
        with self._lock:
            self._since[threading.get_ident()] = -inf
            if self.turns.waiting and self._nobody_works(time.monotonic()):
                self._wake()

    def _write_together(self, together: "_Together") -> None:
        asked = [one for one, _ in together.answers]
        try:
            results = self._write([unfinished for _, unfinished in together.answers])
        except BaseException as error:  # noqa: BLE001  raised where the result is awaited
            results = [error] * len(asked)
        with self._lock:
            self._writing.discard(together.ledger)
        self._end(asked)
        _hand_over(list(zip(asked, results, strict=True)))

    def _end(self, ended: list[Waiting]) -> None:
        with self._lock:
            for one in ended:
                self.turns.end(one)


class _Together(NamedTuple):
    ledger: object
    answers: list[tuple[Waiting, Unfinished]]


class _Unwritten:
    """Answers to be written to one ledger, in the order in which they are due. Removed as soon as it is empty."""

    def __init__(self, ledger: object) -> None:
        self.ledger = ledger
        self.answers: list[tuple[Waiting, Unfinished]] = []
        self.due = inf  # when the first is due

    def add(self, asked: Waiting, unfinished: Unfinished) -> None:
        if not self.answers or self.answers[-1][1].due <= unfinished.due:  # as a rule
            self.answers.append((asked, unfinished))
        else:
            insort(self.answers, (asked, unfinished), key=_due)
        self.due = min(self.due, unfinished.due)

    def fills_a_write(self, now: float) -> bool:
        return len(self.answers) >= MOST_TOGETHER and _due(self.answers[MOST_TOGETHER - 1]) <= now

    def take(self, now: float) -> _Together:
        """Remove and return the answers that are due, as many as one write holds."""
        taken = self.answers[: bisect_right(self.answers, now, hi=min(MOST_TOGETHER, len(self.answers)), key=_due)]
        del self.answers[: len(taken)]
        self.due = _due(self.answers[0]) if self.answers else inf
        return _Together(self.ledger, taken)


def _due(answer: tuple[Waiting, Unfinished]) -> float:
    return answer[1].due


def _hand_over(results: list[tuple[Waiting, object]]) -> None:
    """Wake the event loop once for all of these."""
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        results[0][0].loop.call_soon_threadsafe(_resolve, results)


def _resolve(results: list[tuple[Waiting, object]]) -> None:
    for asked, result in results:
        if asked.result.done():  # the caller has left
            continue
        if isinstance(result, BaseException):
            asked.result.set_exception(_raisable(result))
        else:
            asked.result.set_result(result)


def _run_anywhere() -> Callable[[], None] | None:
    """Return what lets a thread run on all processors that this one may use now: a process may be pinned to one later.

    Heavy work mostly runs without the interpreter lock.
    """
    if sys.platform != "linux":
        return None
    processors = os.sched_getaffinity(0)

    def run_anywhere() -> None:
        with suppress(OSError):  # they have been taken from the process: it runs where it may
            os.sched_setaffinity(0, processors)

    return run_anywhere


class Lanes:
    """The three lanes of a process."""

    def __init__(self, *, each: int, waiting: int, write: Callable[[list[Any]], list[object]]) -> None:
        self.reads = Lane("reads", 8, each=each, waiting=waiting)
        self.asks = WritingLane("asks", 8, each=each, waiting=waiting, write=write)
        self.heavy = Lane("heavy", 2, each=1, waiting=waiting, first=_run_anywhere())
        self.slow = Alarms(PATIENCE)
        self.unattended: WeakSet[Work] = WeakSet()  # in progress, for callers who left but may come back for the answer

    def close(self, seconds: float = 0.0) -> None:
        """Start nothing more; within this time, write answers that are paid for, even if their callers have left.

        What takes longer is called off, so that it is settled before the process ends: the quota keeps what the budget
        has paid for.
        """
        begin = time.monotonic()
        self.reads.close()
        self.asks.close()
        self.heavy.close(max(0.0, seconds - (time.monotonic() - begin)))
        for work in list(self.unattended):
            work.cancel()
        until = time.monotonic() + SETTLING
        while (self.heavy.busy or self.asks.busy) and time.monotonic() < until:
            time.sleep(0.1 * STALL)
