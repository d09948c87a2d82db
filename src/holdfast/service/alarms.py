"""Alarms for requests that take long. Nearly all are canceled, so setting and canceling one must cost next to nothing.

An event loop keeps its timers in order of time, whatever their delays: with several for each request they took a
twentieth of the processor. Alarms that all go off after the same time are in order as they are set, and need one timer.
"""

import asyncio
from collections import deque
from collections.abc import Callable

FEW = 64  # canceled alarms among the others are removed when there are more than this, and twice as many as were left


class Alarm:
    """Calls a function when its time is up, unless it is canceled before."""

    __slots__ = ("call", "due", "rang")

    def __init__(self, due: float, call: Callable[[], object]) -> None:
        self.due, self.rang = due, False
        self.call: Callable[[], object] | None = call  # None once it has rung or was canceled

    @property
    def pending(self) -> bool:
        """Whether it has neither rung nor been canceled."""
        return self.call is not None

    def cancel(self) -> None:
        """Never ring; without effect if it has rung."""
        self.call = None

    def ring(self) -> None:
        """Call the function, unless this was canceled."""
        call, self.call = self.call, None
        if call is not None:
            self.rang = True
            call()


class Alarms:
    """Alarms that ring `seconds` after they were set, in one event loop at a time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._set: deque[Alarm] = deque()  # in the order in which they are due
        self._timed = False  # whether the loop has a timer for the first of them
        self._most = FEW

    def set(self, call: Callable[[], object]) -> Alarm:
        """Call this function after the time; in the event loop, from which this must be called."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # the one before has ended, and its timers with it
            self._loop, self._set, self._timed = loop, deque(), False
        alarm, alarms = Alarm(loop.time() + self.seconds, call), self._set
        while alarms and alarms[0].call is None:
            alarms.popleft()
        if len(alarms) > self._most:
            pending = [one for one in alarms if one.pending]
            alarms.clear()
            alarms.extend(pending)
            self._most = max(FEW, 2 * len(pending))
        alarms.append(alarm)
        if not self._timed:
            self._wait(loop, alarms, self.seconds)
        return alarm

    def _wait(self, loop: asyncio.AbstractEventLoop, alarms: deque[Alarm], seconds: float) -> None:
        self._timed = True
        loop.call_later(seconds, self._ring, loop, alarms)

    def _ring(self, loop: asyncio.AbstractEventLoop, alarms: deque[Alarm]) -> None:
        """Ring all that are due, and wait for the next one, or until another one is set."""
        if alarms is not self._set:
            return
        self._timed, now = False, loop.time()
        while alarms and (alarms[0].due <= now or not alarms[0].pending):
            loop.call_soon(alarms.popleft().ring)  # apart, so that an error in one does not silence the others
        if alarms:
            self._wait(loop, alarms, alarms[0].due - now)
