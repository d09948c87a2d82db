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
        if self._queue is None:
            self._queue = Queue(open_private(self._path))
        turn = Turn()
        self._queue.turns.put(turn)
        while not turn.granted.acquire(timeout=_POLL):
            if gave_up() and turn.decide():
                return None
        return self._queue.descriptor

    def release(self) -> None:
        """Let the next one have it."""
        descriptor, self._held = self._held, None
        if sys.platform != "win32" and descriptor is not None:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file."""
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
    """A thread that waits for a lock, for one turn after another. Closing its file frees the lock, too."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor: int | None = descriptor
        self.turns: SimpleQueue[Turn | None] = SimpleQueue()
        _thread.start_new_thread(self._serve, (descriptor,))

    def _serve(self, descriptor: int) -> None:
        while (turn := self.turns.get()) is not None and sys.platform != "win32":
            with suppress(OSError):  # closed
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if turn.decide():
                    turn.granted.release()
                elif self.descriptor is not None:
                    fcntl.flock(descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file, and end the thread as soon as it no longer waits."""
        descriptor, self.descriptor = self.descriptor, None
        self.turns.put(None)
        if descriptor is not None:
            os.close(descriptor)


def open_private(path: Path) -> int:
    """Open a file to write, and return its descriptor; a new one is for its owner alone, whatever the umask says."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if sys.platform != "win32":
        os.fchmod(descriptor, 0o600)
    return descriptor
