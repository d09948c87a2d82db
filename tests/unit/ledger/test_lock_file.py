"""The lock file: who gives up waiting, closes or forks meanwhile leaves no lock behind."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.errors import LedgerUnavailable
from holdfast.ledger import Ledger, sqlite, sqlite_file
from holdfast.ledger.concurrency import open_private
from holdfast.ledger.sqlite_file import LockFile
from ledger_writer import begun, commit

if sys.platform == "win32":
    pytest.skip("no lock file there", allow_module_level=True)
import fcntl


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with begun(tmp_path / "a") as ledger:
        commit(ledger)
        yield ledger


@pytest.fixture
def path(ledger: Ledger) -> Path:
    return Path(f"{ledger.location}-lock")


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


def opened(path: Path) -> int:
    """Return how often this process has the file open."""
    links = [Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return sum(os.path.realpath(link) == str(path) for link in links)


class Asking(threading.Thread):
    """Somebody who waits for the ledger, and what came of it."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(daemon=True)
        self.ledger, self.got = ledger, None
        self.start()

    def run(self) -> None:
        try:
            self.got = commit(self.ledger)
        except LedgerUnavailable as error:
            self.got = error


def test_who_waits_when_it_is_closed_is_told_soon_and_leaves_no_lock(ledger: Ledger, path: Path, holder: int) -> None:
    waiting = [Asking(ledger) for _ in range(3)]
    wait_until(lambda: len(ledger._store._committer) == 3)
    ledger.close()
    for each in waiting:
        each.join(10)  # not as long as one waits for another process
        assert "is closed" in str(each.got)
    fcntl.flock(holder, fcntl.LOCK_UN)
    wait_until(lambda: is_free(path))


def test_who_gave_up_is_not_written_later(
    ledger: Ledger, path: Path, holder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.ledger.sqlite.LOCK_TIMEOUT", 0.1)
    with pytest.raises(LedgerUnavailable, match="held its lock for too long"):
        commit(ledger)
    monkeypatch.undo()
    waiting = Asking(ledger)
    wait_until(lambda: len(ledger._store._committer) == 2)
    fcntl.flock(holder, fcntl.LOCK_UN)
    waiting.join(10)
    assert waiting.got.seq == 2
    assert ledger.verify().seq == 2
    wait_until(lambda: is_free(path))


def test_a_lock_that_was_closed_is_free_and_not_another_files(path: Path) -> None:
    lock = LockFile(path)
    lock.acquire()
    assert not is_free(path)
    lock.close()
    assert is_free(path)
    other = open_private(path)  # has the number of the one that was closed
    fcntl.flock(other, fcntl.LOCK_EX)
    lock.release()
    assert not is_free(path)
    os.close(other)


def test_a_write_goes_on_when_the_file_is_closed_by_a_fork_at_that_moment(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def closed_just_before(file: object, what: int) -> None:
        if what == fcntl.LOCK_EX:
            ledger._store._lock_file.close()
        flock(file, what)  # type: ignore[arg-type]

    monkeypatch.setattr("holdfast.ledger.sqlite_file.fcntl.flock", closed_just_before)
    waiting = Asking(ledger)  # by the committer's thread
    waiting.join(10)
    assert waiting.got.seq == 2


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_has_no_file_that_a_thread_of_its_parent_waits_with(ledger: Ledger, path: Path, holder: int) -> None:
    waiting = Asking(ledger)
    wait_until(lambda: len(ledger._store._committer) == 1)
    time.sleep(0.05)  # it waits for the lock
    child = os.fork()
    if child == 0:
        os.close(holder)
        os._exit(opened(path))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    fcntl.flock(holder, fcntl.LOCK_UN)
    waiting.join(10)
    assert waiting.got.seq == 2
    wait_until(lambda: is_free(path))


def fork() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_at_the_moment_of_a_look_is_not_taken_for_a_log_that_somebody_removed(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = sqlite_file._inode

    def forked_just_before(name: str) -> int | None:
        monkeypatch.undo()
        forking = threading.Thread(target=fork)  # closes the last connection, and SQLite removes the log
        forking.start()
        forking.join(10)
        return looked_at(name)

    monkeypatch.setattr(sqlite_file, "_inode", forked_just_before)
    assert ledger.head.seq == 1
    assert commit(ledger).seq == 2


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_handler_that_forks_before_a_direct_write_has_begun_costs_nothing(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(ledger)  # known to be the only writer
    flock = fcntl.flock

    def forked_just_before(file: object, what: int) -> None:
        monkeypatch.undo()
        fork()
        flock(file, what)  # type: ignore[arg-type]

    monkeypatch.setattr(sqlite.fcntl, "flock", forked_just_before)
    assert commit(ledger).seq == 3
