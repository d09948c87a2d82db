"""One question at a time: who asks what is being answered waits for that answer instead of drawing once more."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from holdfast.ledger.forks import OfOneProcess

T = TypeVar("T")


class _Turn:
    """Somebody answers a question; the lock is held meanwhile."""

    __slots__ = ("lock", "owner", "waiting")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owner: int | None = None  # the thread, if it is one thread from beginning to end
        self.waiting: deque[Callable[[], None]] = deque()

    def call_waiting(self) -> None:
        """Tell everybody who left word; each is told once, whoever calls this."""
        while self.waiting:
            try:
                answered = self.waiting.popleft()
            except IndexError:  # another thread was faster
                return
            answered()


class InFlight(OfOneProcess):
    """The questions that threads of this process are answering, by key.

    Locks are held by `with` alone, never across a generator: an interrupt cannot leave one held. A destructor or signal
    handler that asks the same question as its own thread does not wait for itself.
    """

    def _forget(self) -> None:
        """Nobody answers anything: who holds the parent's locks is not in a forked child."""
        self._turns: dict[str, _Turn] = {}

    def run(self, key: str | None, work: Callable[[], T]) -> T:
        """Do the work while no other thread does any with the same key; what has no key need not wait."""
        if key is None:
            return work()
        self._check_process()
        while True:
            turn = self._turns.setdefault(key, _Turn())
            if turn.owner == threading.get_ident():
                return work()
            with turn.lock:
                if self._turns.get(key) is turn:  # else it was given up while this thread waited for it
                    turn.owner = threading.get_ident()
                    try:
                        return work()
                    finally:
                        self._turns.pop(key, None)
                        if turn.waiting:
                            turn.call_waiting()

    def run_all(self, keys: Sequence[str], work: Callable[[], T]) -> T:
        """Do the work while no other thread does any with one of these keys.

        They are taken in one order, so that two who want the same ones do not wait for each other forever.
        """
        if not keys:
            return work()
        first, *others = sorted(set(keys))
        return self.run(first, partial(self.run_all, others, work))

    def begin(self, key: str | None, when_free: Callable[[], None]) -> Callable[[], None] | None:
        """Return what ends the work with this key, in whichever thread; None if somebody else is at it.

        Then `when_free` is called when they have ended. For threads that no interrupt reaches.
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
            if self._turns.get(key) is not turn:  # they ended just now, perhaps before they could see this
                turn.call_waiting()
            return None

    def _end(self, key: str, turn: _Turn) -> None:
        self._turns.pop(key, None)
        turn.lock.release()
        turn.call_waiting()


def _nothing() -> None:
    pass
