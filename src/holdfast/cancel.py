"""Work that another thread can call off: it ends before the next block of rows.

What was taken from the budget for it stays taken, as for every draw that is never shown.

Work for a remote caller also has a coarse clock, which decides when its answers are written. Otherwise the time of an
entry, and the moment when it can first be found, would tell how long the evaluation took, which may depend on the rows.
"""

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

from holdfast.errors import ServiceUnavailable

T = TypeVar("T")


class Work:
    """The evaluation of one question, or of a list of questions.

    `begun`: whether rows are being drawn; by then the budget has paid. `goes_on`: whether it is not called off any
    more. `dropped`: in a list, the keys of questions whose draws were wasted, because another process had answered them
    first. `tick`: seconds between the moments at which an answer may be written, counted from now; 0 allows any moment.
    """

    def __init__(self, tick: float = 0.0) -> None:
        self.begun = self.goes_on = False
        self.dropped: set[str] = set()
        self._cancelled = False
        self._start, self._tick = time.monotonic(), tick

    @property
    def due(self) -> float:
        """When an answer that is drawn by now may be written: at the next tick, by the monotonic clock."""
        now = time.monotonic()
        return now + (self._start - now) % self._tick if self._tick > 0 else now

    def cancel(self) -> None:
        """Call off the work."""
        self._cancelled = True

    def run(self, act: Callable[[], T]) -> T:
        """Return what `act` returns; once the work is called off, the next `checkpoint` ends it."""
        before = _current.set(self)
        try:
            return act()
        finally:
            _current.reset(before)

    def check(self) -> None:
        """Note that rows are about to be drawn; raise if the work was called off."""
        self.begun = True
        if self._cancelled and not self.goes_on:
            raise ServiceUnavailable("Nobody is waiting for this answer any more, so it was called off.")


_current: ContextVar[Work | None] = ContextVar("work", default=None)
before_waiting: ContextVar[Callable[[], None] | None] = ContextVar("before waiting", default=None)


def about_to_wait() -> None:
    """Let another thread take over: this one is about to wait for the disk, in the middle of its work."""
    act = before_waiting.get()
    if act is not None:
        act()


def about_to_commit() -> None:
    """Wait until the answer that this thread has drawn may be written."""
    work = _current.get()
    if work is not None:
        time.sleep(max(0.0, work.due - time.monotonic()))


def go_on() -> None:
    """Do not call off the work of this thread: ended without an answer, it would count as failed, for everybody."""
    work = _current.get()
    if work is not None:
        work.goes_on = True


def drop(key: str) -> None:
    """Note that this thread's draw for the question with this key is dropped."""
    work = _current.get()
    if work is not None:
        work.dropped.add(key)


def checkpoint() -> None:
    """End the work of this thread here if it was called off. Row sources call this before they draw a block."""
    work = _current.get()
    if work is not None:
        work.check()
