"""The lock file: who gave up waiting and closed it leaves no lock behind, neither on it nor on another file."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.ledger import lock_file
from holdfast.ledger.lock_file import LockFile, Queue, Turn, open_private

if sys.platform == "win32":
    pytest.skip("no lock file there", allow_module_level=True)
import fcntl


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a-lock"


@pytest.fixture
def holder(path: Path) -> Iterator[int]:
    """Somebody else who has the lock."""
    descriptor = open_private(path)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield descriptor
    os.close(descriptor)


def is_free(path: Path) -> bool:
    descriptor = open_private(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def number_is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_turns_that_were_given_up_lock_no_other_file(path: Path, holder: int, tmp_path: Path) -> None:
    number = open_private(path)
    queue, turns = Queue(number), [Turn() for _ in range(3)]
    for turn in turns:
        queue.turns.put(turn)
    wait_until(lambda: queue.turns.qsize() == 2)
    time.sleep(0.05)  # the first waits for the lock
    assert all(turn.decide() for turn in turns)
    queue.close()
    others = [tmp_path / f"other {i}" for i in range(20)]
    opened = [open_private(other) for other in others]  # one of them may have the number by now
    fcntl.flock(holder, fcntl.LOCK_UN)
    time.sleep(0.05)
    assert all(map(is_free, others))
    wait_until(lambda: is_free(path))
    for descriptor in opened:
        os.close(descriptor)
    wait_until(lambda: not number_is_open(number))


def test_who_gives_up_and_closes_leaves_no_lock(path: Path, holder: int) -> None:
    waiting = LockFile(path)
    assert not waiting.acquire(lambda: True)
    waiting.close()
    fcntl.flock(holder, fcntl.LOCK_UN)
    wait_until(lambda: not lock_file._waiting)
    wait_until(lambda: is_free(path))


def test_closing_frees_a_lock_that_was_waited_for(path: Path, holder: int) -> None:
    waited = []

    def give_up() -> bool:
        waited.append(1)
        if len(waited) == 2:
            fcntl.flock(holder, fcntl.LOCK_UN)
        return False

    lock = LockFile(path)
    assert lock.acquire(give_up)
    assert not is_free(path)
    lock.close()
    assert is_free(path)
    other = open_private(path)  # has the number of one that was closed
    fcntl.flock(other, fcntl.LOCK_EX)
    lock.release()
    assert not is_free(path)
    os.close(other)


def test_a_child_has_no_file_that_a_thread_of_its_parent_waits_with(path: Path, holder: int) -> None:
    number = open_private(path)
    queue, turn = Queue(number), Turn()
    queue.turns.put(turn)
    wait_until(lambda: number in lock_file._waiting)
    child = os.fork()
    if child == 0:
        os._exit(int(number_is_open(number)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert turn.decide()
    queue.close()
    fcntl.flock(holder, fcntl.LOCK_UN)
    wait_until(lambda: is_free(path))
