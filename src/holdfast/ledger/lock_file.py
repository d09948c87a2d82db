"""Where writing processes wait for each other, in turn and not for longer than they want to."""

import _thread
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

if sys.platform != "win32":
    import fcntl

_POLL = 0.05  # seconds between two looks whether it is time to give up waiting


class LockFile:
    """Where writing processes wait for each other: a lock file, opened when needed.

    The system lets those who wait have it in turn, but has no way to wait for a while only. So a thread waits for it,
    with a descriptor of its own; whoever has waited long enough withdraws, and the thread lets the lock go when it
    comes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.descriptor: int | None = None
        self._queue: Queue | None = None
        self._held: int | None = None

    def acquire(self, gave_up: Callable[[], bool]) -> bool:
        """Take the lock, or wait for it until the caller gives up."""
        if sys.platform == "win32":
            return True
        if self.descriptor is None:
            self.descriptor = open_private(self._path)
        self._held = self.descriptor
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._held = self._wait(gave_up)
        return self._held is not None

    def _wait(self, gave_up: Callable[[], bool]) -> int | None:
        queue = self._queue = self._queue or Queue(open_private(self._path))
        turn = Turn()
        queue.turns.put(turn)
        while not turn.granted.acquire(timeout=_POLL):
            if gave_up() and turn.decide():
                return None
        return queue.descriptor

    def release(self) -> None:
        """Let the next one have it."""
        descriptor, self._held = self._held, None
        if sys.platform != "win32" and descriptor is not None:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file, which frees the lock."""
        self._held = None  # its number may be another file's by the time of a release
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is not None:
            os.close(descriptor)
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.close()


class Turn:
    """A turn that is granted or withdrawn, whichever comes first."""

    def __init__(self) -> None:
        self.granted = threading.Lock()
        self.granted.acquire()
        self._open = deque([True])

    def decide(self) -> bool:
        """Whether it was open until now, and the caller has decided it."""
        with suppress(IndexError):
            return self._open.pop()
        return False


class Queue:
    """A thread that waits for a lock, for one turn after another. Closing its file frees the lock, too.

    The file is the thread's own while it waits: were it closed meanwhile, its number could soon be another file's, and
    the next turn would lock that one.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor: int | None = descriptor
        self.turns: SimpleQueue[Turn | None] = SimpleQueue()
        self._files = deque([descriptor])  # whoever takes it out may use or close it, and nobody else
        _thread.start_new_thread(self._serve, ())

    def _serve(self) -> None:
        while (turn := self.turns.get()) is not None and self._files:
            granted = False
            with suppress(IndexError):  # closed just now
                descriptor = self._files.pop()
                _waiting.add(descriptor)
                granted = _wait_for(descriptor, turn)
                _waiting.discard(descriptor)
                self._files.append(descriptor)
            if self.descriptor is None:
                self._close_file()
            if granted:
                turn.granted.release()

    def close(self) -> None:
        """Close the file, or let the thread do so when it no longer waits; then it ends."""
        self.descriptor = None
        self.turns.put(None)
        self._close_file()

    def _close_file(self) -> None:
        with suppress(IndexError):  # the thread has it, or it is closed
            os.close(self._files.pop())


def _wait_for(descriptor: int, turn: Turn) -> bool:
    """Wait for the lock; return whether the turn was still open then. If not, let the lock go."""
    if sys.platform != "win32":
        with suppress(OSError):  # the system has no more locks: whoever waits gives up in the end
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if turn.decide():
                return True
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


_waiting: set[int] = set()  # the files that threads of this process wait with


def _close_in_child() -> None:
    """Close what threads of the parent wait with: they are not here, and it would keep a lock that they get."""
    while _waiting:
        os.close(_waiting.pop())


if hasattr(os, "register_at_fork"):  # not where there is no fork
    os.register_at_fork(after_in_child=_close_in_child)


def open_private(path: Path) -> int:
    """Open a file to write, and return its descriptor; a new one is for its owner alone, whatever the umask says."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if sys.platform != "win32":
        os.fchmod(descriptor, 0o600)
    return descriptor
