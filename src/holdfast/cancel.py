"""Work that can be called off from another thread: it ends before the next block of rows.

Whatever was taken from the budget for it stays taken, as for every draw that nobody gets to see.

Work for somebody else also has a coarse clock, by which its answers are written: the time of an entry, and the moment
from which anybody can find it, would else tell how long the evaluation took, which may depend on the rows.
"""

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

from holdfast.errors import ServiceUnavailable

T = TypeVar("T")


class Work:
    """The evaluation of one question, or of a list of them.

    `begun`: whether it has come to the rows; by then the budget has paid. `dropped`: of a list, the keys of questions
    that were drawn for in vain, since another process had answered them before. `tick`: seconds from one moment at
    which an answer may be written to the next, counted from now; 0 for any moment.
    """

    def __init__(self, tick: float = 0.0) -> None:
        self.begun = False
        self.dropped: set[str] = set()
        self._cancelled = False
        self._start, self._tick = time.monotonic(), tick

    @property
    def due(self) -> float:
        """When what is drawn by now may be written: at the next tick, by the monotonic clock."""
        now = time.monotonic()
        return now + (self._start - now) % self._tick if self._tick > 0 else now

    def cancel(self) -> None:
        """Call it off."""
        self._cancelled = True

    def run(self, act: Callable[[], T]) -> T:
        """Return what `act` does; a checkpoint on its way ends it once this is called off."""
        before = _current.set(self)
        try:
            return act()
        finally:
            _current.reset(before)

    def check(self) -> None:
        """Raise if this was called off."""
        self.begun = True
        if self._cancelled:
            raise ServiceUnavailable("Nobody waits for this answer any more, so it was called off.")


_current: ContextVar[Work | None] = ContextVar("work", default=None)
before_waiting: ContextVar[Callable[[], None] | None] = ContextVar("before waiting", default=None)


def about_to_wait() -> None:
    """Let another thread go on: this one is about to wait for the disk, in the middle of its work."""
    act = before_waiting.get()
    if act is not None:
        act()


def about_to_commit() -> None:
    """Wait until what this thread has drawn may be written."""
    work = _current.get()
    if work is not None:
        time.sleep(max(0.0, work.due - time.monotonic()))


def drop(key: str) -> None:
    """Note that what this thread has drawn for the question with this key is dropped."""
    work = _current.get()
    if work is not None:
        work.dropped.add(key)


def checkpoint() -> None:
    """End the work of this thread here if it was called off. Row sources call this before they draw a block."""
    work = _current.get()
    if work is not None:
        work.check()
