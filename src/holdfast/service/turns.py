"""Whose turn it is in a lane: one person's requests wait in order of arrival, and persons take turns."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.errors import TooManyRequests

RETRY_SECONDS = 1.0


class Waiting(NamedTuple):
    """A piece of work that waits or is in progress: who asked for it, and where its result goes."""

    person: str
    work: Callable[..., object]
    result: "asyncio.Future[Any]"
    loop: asyncio.AbstractEventLoop


class Turns:
    """Whose turn it is: the work that waits, by person, and how much of each person's is in progress."""

    def __init__(self, *, each: int, waiting: int) -> None:
        self._each, self._most_waiting = each, waiting
        self.waiting: OrderedDict[str, deque[Waiting]] = OrderedDict()  # persons in turn
        self.running: Counter[str] = Counter()

    def add(self, asked: Waiting) -> None:
        """Have work wait for its person's turn, unless too much of that person's waits."""
        person = asked.person
        queue = self.waiting.get(person) or deque()
        room = self._most_waiting + self._each - self.running.get(person, 0)  # as if all work that may run did
        if len(queue) >= room:
            queue = deque(one for one in queue if not one.result.done())
            if len(queue) >= room:
                raise _too_many(self._most_waiting)
        queue.append(asked)
        self.waiting[person] = queue

    def add_again(self, asked: Waiting) -> None:
        """Put work that had begun back at the front of its queue."""
        self.waiting.setdefault(asked.person, deque()).appendleft(asked)

    def take(self) -> Waiting | None:
        """Return the work whose turn it is, which is in progress from now on; None if nobody's may begin."""
        while True:
            for person in self.waiting:
                if (begun := self.running.get(person, 0)) < self._each:
                    break
            else:
                return None
            queue = self.waiting[person]
            asked = queue.popleft()
            if not queue:
                del self.waiting[person]
            if not asked.result.done():  # otherwise it was cancelled
                if queue:
                    self.waiting.move_to_end(person)
                self.running[person] = begun + 1
                return asked

    def end(self, asked: Waiting) -> None:
        """Count work as no longer in progress."""
        if self.running[asked.person] > 1:
            self.running[asked.person] -= 1
        else:
            self.running.pop(asked.person)  # not `del`, which a Counter does in Python


def _too_many(most: int) -> TooManyRequests:
    return TooManyRequests(
        f"At most {most:,} requests of one person may wait; the earlier ones come first."
        f" Wait {RETRY_SECONDS:g} s, then try again.",
        retry_after=RETRY_SECONDS,
    )
