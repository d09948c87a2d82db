"""A thread that asks a question which is being answered waits for that answer instead of drawing again."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from holdfast.ledger.forks import OfOneProcess

T = TypeVar("T")


class _Turn:
    """The turn to answer one question; whoever answers it holds the lock."""

    __slots__ = ("lock", "owner", "waiting")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owner: int | None = None  # the thread that answers, if the whole answer is made in one thread
        self.waiting: deque[Callable[[], None]] = deque()

    def call_waiting(self) -> None:
        """Call all waiting callbacks; each is called once, even if several threads call this."""
        while self.waiting:
            try:
                answered = self.waiting.popleft()
            except IndexError:  # another thread was faster
                return
            answered()


class InFlight(OfOneProcess):
    """The questions that threads of this process are answering, by key.

    `run` holds locks only by `with`, never across a generator, so that an interrupt cannot leave one held. A destructor
    or signal handler that asks the question that its own thread is answering does not wait for itself.
    """

    def _forget(self) -> None:
        """Drop all turns: the threads that hold the parent's locks do not exist in a forked child."""
        self._turns: dict[str, _Turn] = {}

    def run(self, key: str | None, work: Callable[[], T]) -> T:
        """Do the work while no other thread does any with the same key; work without a key does not wait."""
        if key is None:
            return work()
        self._check_process()
        while True:
            turn = self._turns.setdefault(key, _Turn())
            if turn.owner == threading.get_ident():
                return work()
            with turn.lock:
                if self._turns.get(key) is turn:  # otherwise this turn ended while the thread waited for it
                    turn.owner = threading.get_ident()
                    try:
                        return work()
                    finally:
                        self._turns.pop(key, None)
                        if turn.waiting:
                            turn.call_waiting()

    def run_all(self, keys: Sequence[str], work: Callable[[], T]) -> T:
        """Do the work while no other thread does any with one of these keys.

        The keys are locked in sorted order, so that two threads that want the same keys cannot deadlock.
        """
        if not keys:
            return work()
        first, *others = sorted(set(keys))
        return self.run(first, partial(self.run_all, others, work))

    def begin(self, key: str | None, when_free: Callable[[], None]) -> Callable[[], None] | None:
        """Begin work with this key; return the function that ends it, callable in any thread.

        Return None if somebody else is working with the key; `when_free` is then called when they have ended. Only for
        threads that no interrupt reaches.
        """
        if key is None:
            return _nothing
        self._check_process()
        while True:
            turn = self._turns.setdefault(key, _Turn())
            if turn.lock.acquire(blocking=False):
                if self._turns.get(key) is turn:
                    return partial(self._end, key, turn)
                turn.lock.release()
                continue
            turn.waiting.append(when_free)
            if self._turns.get(key) is not turn:  # they ended just now, perhaps before `when_free` was in the list
                turn.call_waiting()
            return None

    def _end(self, key: str, turn: _Turn) -> None:
        self._turns.pop(key, None)
        turn.lock.release()
        turn.call_waiting()


def _nothing() -> None:
    pass
