"""Questions that are being answered: those of this process, and how processes of one machine ask each other for theirs.

A check that was begun and may still be answered has not failed (docs/proofs/checks.md). What was taken and not answered
is therefore counted as failed, except what is under way. Each process knows its own questions. It tells others how many
there are through a socket in a folder beside the ledger, `flights.parquet.ledger-asking`, as long as it has the ledger
open.

Whoever commits a check asks while it holds the ledger for writing, and counts only what it is told after that. So a
question that is named had not failed when it was the check's turn, and nobody can have seen it fail before. A lock, or
anything else that was said earlier, would not do: a process that is killed closes its files one after the other, and
its end can be seen before its lock is gone. A process that does not answer in time, or reads another state of the
ledger, is not counted, which is always safe. One that were counted twice would not be: each process has one name for
its socket, for good. And only processes of the same user are asked: others cannot write into the folder.

**One answer at a time.** A thread that asks a question which is being answered waits for that answer instead of
drawing again.
"""

import os
import secrets
import socket
import sys
import threading
import time
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from stat import S_ISDIR, S_ISSOCK
from typing import TypeVar
from weakref import WeakMethod

from holdfast.errors import HoldfastError
from holdfast.ledger.concurrency import OfOneProcess, close_before_forks, opening
from holdfast.ledger.store import Cost, Place, Tip, Transaction

T = TypeVar("T")
PATIENCE = 0.1  # seconds to wait for the answers of all other processes together
_OLD = 60.0  # seconds; nobody needs as long to begin to listen
_MOST = 4_096  # bytes of an answer


class Asking:
    """A question, or a list of them, from before its reservation until it is answered or fails.

    Set `ended` before anybody can see that there will be no answer: from then on its reservation counts as failed. It
    is a plain attribute, so that no interrupt can come between.
    """

    ended = False


class UnderWay(OfOneProcess):
    """The questions that this process is answering at places of one ledger."""

    def __init__(self) -> None:
        super().__init__()
        close_before_forks(self)

    def _forget(self) -> None:
        # By the number of a place, with its statements and the transaction that reserved it.
        self._questions: dict[int, tuple[Asking, int, Transaction]] = {}
        # Of its socket: a second one, after an interrupt, takes the place of the first.
        self._name = secrets.token_hex(8)
        self._listening: tuple[socket.socket, Path] | None = None
        self._tips: list[WeakMethod[Callable[[], Tip | None]]] = []  # how each session reads the ledger

    def begin(self, places: Sequence[Place], costs: Sequence[Cost], asking: Asking, within: Transaction) -> None:
        """Note, inside the transaction that reserves them, that questions at these places are being answered."""
        for place, cost in zip(places, costs, strict=True):
            self._questions[place.number] = asking, cost.intervals, within

    def end(self, number: int) -> None:
        """Note that the question at this place is answered, inside the transaction, or that it never began."""
        self._questions.pop(number, None)

    def here(self, places: int, within: Transaction | None = None) -> int:
        """Return how many statements the questions make that this process is answering, at the first `places` places.

        Beyond them are places whose reservation was not written. Nor was it if its transaction was not committed: then
        the place may be another process's by now.
        """
        self.check_process()
        total = 0
        for number, (asking, statements, reserving) in list(self._questions.items()):  # a copy: other threads change it
            if asking.ended:
                self.end(number)
            elif number <= places and (reserving.committed or reserving is within):
                total += statements
        return total

    # -- other processes ------------------------------------------------------------------------------------------

    def elsewhere(self, folder: Path | None, start: Tip | None) -> int:
        """Ask all other processes how many statements their questions make; call this only inside a transaction.

        `start` is the tip at its start. Whoever reads another one does not use this ledger, or does so no longer.
        """
        if folder is None or start is None:
            return 0
        total, until, expected = 0, time.monotonic() + PATIENCE, _named(start)
        for name in _names(folder) - {self._name}:
            tip, _, statements = _ask(folder / name, until).rpartition(b" ")
            total += int(statements) if tip == expected and statements.isdigit() else 0
        return total

    def listen(self, folder: Path | None, tip: "Callable[[], Tip | None]") -> None:
        """Begin to tell others who ask, if there is a folder for that; `tip` is a bound method that reads a ledger."""
        self.check_process()
        if folder is None or not hasattr(socket, "AF_UNIX"):
            return
        if all(known() != tip for known in self._tips):
            self._tips.append(WeakMethod(tip))
        if self._listening is None:
            with opening, suppress(OSError, RuntimeError):  # nobody forks meanwhile
                if self._listening is None:  # otherwise another thread was faster
                    self._listen(folder)  # if it cannot, its questions count as failed elsewhere

    def _listen(self, folder: Path) -> None:
        path, listening = folder / self._name, socket.socket(socket.AF_UNIX)
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            _require_private(folder)
            path.unlink(missing_ok=True)
            with _address(path) as address:
                listening.bind(address)
            listening.listen()
            start_new_thread(self._serve, (listening,))
            self._listening = listening, path
        except BaseException:
            _stop(listening, path)
            raise

    def leave(self, tip: "Callable[[], Tip | None]") -> None:
        """Forget a session that is closed, and stop listening with the last: others may be answering questions."""
        for known in list(self._tips):
            if known() in (None, tip):
                with suppress(ValueError):  # another thread was faster
                    self._tips.remove(known)
        if not self._tips:
            self.close()

    def close(self) -> None:
        """Stop listening; the next question begins again."""
        with opening:  # nobody begins to listen meanwhile
            if self._listening is not None:
                _stop(*self._listening)
                self._listening = None  # last: a fork hook that is interrupted closes again

    close_for_fork = close  # a child would keep the socket open, and never answer

    def _serve(self, listening: socket.socket) -> None:
        try:
            with suppress(OSError):  # closed; or no descriptor is left: the next question begins to listen again
                while True:
                    asked, _ = listening.accept()
                    with asked, suppress(OSError):
                        asked.settimeout(PATIENCE)
                        asked.sendall(self._report())
        finally:
            with opening:
                if self._listening is not None and self._listening[0] is listening:
                    self.close()

    def _report(self) -> bytes:
        """Return the tip and the statements under way, both as they are after somebody has asked."""
        for known in list(self._tips):
            read = known()
            with suppress(HoldfastError):  # closed just now
                tip = read and read()
                if tip:
                    return b"%b %d" % (_named(tip), self.here(tip.places))
        return b""


def _named(tip: Tip) -> bytes:
    return " ".join(map(str, (tip.seq, tip.hash, *tip.taken))).encode()


def _require_private(folder: Path) -> None:
    """Raise if anybody else may write into the folder, and could say anything there; or if it is a link to another."""
    found = folder.lstat()
    if not S_ISDIR(found.st_mode) or found.st_mode & 0o077 or found.st_uid != os.geteuid():
        raise PermissionError


def _names(folder: Path) -> set[str]:
    try:
        _require_private(folder)
        return set(os.listdir(folder))
    except OSError:  # nobody listens
        return set()


def _stop(listening: socket.socket, path: Path) -> None:
    """Close this socket and remove what there is of it; may be called again."""
    with suppress(OSError):
        listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for it
    listening.close()
    with suppress(OSError):
        path.unlink()
        path.parent.rmdir()  # unless others listen, too


def _ask(path: Path, until: float) -> bytes:
    """Return what the process that listens here says; nothing if it does not answer in time."""
    answer = b""
    try:
        with socket.socket(socket.AF_UNIX) as asking, _address(path) as address:
            asking.settimeout(max(0.001, until - time.monotonic()))
            asking.connect(address)
            while part := asking.recv(_MOST):
                answer += part
                if len(answer) > _MOST:
                    return b""
                asking.settimeout(max(0.001, until - time.monotonic()))
    except ConnectionRefusedError:  # its process was killed
        with suppress(OSError):
            found = path.lstat()
            if S_ISSOCK(found.st_mode) and time.time() - found.st_mtime > _OLD:
                path.unlink()
    except OSError:
        return b""
    return answer


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """Return the address of a socket. It has room for about 100 bytes, so on Linux the folder is a descriptor's."""
    if sys.platform != "linux":
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


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
        self.check_process()
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
        self.check_process()
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
