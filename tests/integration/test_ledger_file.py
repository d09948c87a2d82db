"""What others may do to a ledger while it is in use: hold its lock, remove its log, begin it, look at its files."""

import fcntl
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from holdfast.errors import LedgerUnavailable
from holdfast.ledger import Cost, Drawn, open_ledger, sqlite_file
from holdfast.ledger.database import DatabaseTransaction
from ledger_writer import DATASET, FINGERPRINT, begun, commit, environment, terms, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.ledger"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock as a process does that was stopped in the middle of a write."""
    with path.with_name(path.name + "-lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_a_lock_that_is_held_for_too_long_refuses_writers_and_nobody_else(path, monkeypatch):
    monkeypatch.setattr("holdfast.ledger.sqlite.LOCK_TIMEOUT", 0.2)
    with begun(path) as ledger:
        for number in range(3):
            commit(ledger, f"k{number}")  # known to be the only writer
        spent = ledger.spent
        with locked(path):
            for attempt in (lambda: ledger.reserve(Cost(10**6, 1)), lambda: commit(ledger, "new", charge=10**6)):
                with pytest.raises(LedgerUnavailable, match="held its lock for too long"):
                    attempt()
            assert ledger.find("k1").seq == 2
            assert (ledger.spent, ledger.verify().seq) == (spent, 3)
            with open_ledger(path, dataset=DATASET, fingerprint=FINGERPRINT) as other:
                assert other.head == ledger.head
        assert commit(ledger, "new").seq == 4


def test_who_waits_for_a_lock_gets_it_when_it_is_free(path):
    with begun(path) as ledger:
        commit(ledger, "k1")
        with locked(path):
            writer = threading.Thread(target=commit, args=(ledger, "k2"))
            writer.start()
            writer.join(0.2)
            assert writer.is_alive()
        writer.join(60)
        assert ledger.find("k2").seq == 2


def test_closing_does_not_wait_for_a_lock_that_somebody_else_holds(path, monkeypatch):
    monkeypatch.setattr("holdfast.ledger.ledger.CLOSING", 0.1)
    ledger = begun(path)
    for _ in range(20):
        commit(ledger)
    assert ledger._stock.total[0] > 0
    failures: list[BaseException] = []

    def wait() -> None:
        try:
            ledger.reserve(Cost(10**6, 1))
        except LedgerUnavailable as error:
            failures.append(error)

    with locked(path):
        waiting = threading.Thread(target=wait)
        waiting.start()
        while not ledger._store._committer and ledger._store._writer is None:
            time.sleep(0.001)
        ledger.close()
        waiting.join(30)
        assert len(failures) == 1
    with begun(path) as again:
        assert again.head.seq == 20 < again.spent.charge  # what was ahead stays taken
        assert again.reserve(Cost(1, 1)).charge == again.spent.charge - 1


def test_closing_does_not_wait_for_a_lock_in_postgresql_either(postgres_url, monkeypatch):
    monkeypatch.setattr("holdfast.ledger.ledger.CLOSING", 0.1)
    dataset = uuid.uuid4().hex
    ledger = begun(postgres_url, dataset=dataset)
    for _ in range(20):
        commit(ledger)
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as other:
        other.execute("SELECT 1 FROM holdfast_ledgers WHERE dataset = %s FOR UPDATE", (dataset,))
        ledger.close()  # a minute is the longest wait: the test would be slow, and the places given back
    with begun(postgres_url, dataset=dataset) as again:
        assert again.head.seq == 20 < again.spent.charge


@pytest.mark.parametrize("together", [False, True])
def test_a_log_removed_under_a_writer_is_noticed(path, together):
    """Else answers go to a file without a name: shown, and gone when the process ends."""
    with begun(path) as ledger:
        for _ in range(3):
            commit(ledger)
        path.with_name("x.ledger-wal").unlink()
        if together:
            ledger._store._last_thread = None  # hand over
        for _ in range(2):  # for good: what was in it is gone
            with pytest.raises(LedgerUnavailable, match=r"x\.ledger-wal was removed while it was in use"):
                commit(ledger, "new", charge=10**6)


def test_an_index_removed_under_a_writer_is_noticed_before_it_writes_over_the_answers_of_others(path):
    """Where the log ends is in its index: of two processes with an index each, one overwrites what the other wrote."""
    with begun(path) as ledger:
        for _ in range(3):
            commit(ledger)
        place = ledger.reserve(Cost(1, 1))
        path.with_name("x.ledger-shm").unlink()
        elsewhere = subprocess.run(
            [sys.executable, "-c", WRITE_ONE, str(path)], check=True, env=environment(), capture_output=True, text=True
        )
        assert elsewhere.stdout == "4\n"
        with pytest.raises(LedgerUnavailable, match=r"or the -shm file beside it"):
            ledger.commit(Drawn(place, key="mine", question={}, answer={}, cost=Cost(1, 1), rows_read=1))
        copy = path.with_name("copy.ledger")
        for suffix in ("", "-wal"):  # as it is found after a crash
            shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    with begun(copy) as found:
        assert [entry.key for entry in found.entries()][3:] == ["theirs"]


def test_who_has_lost_the_index_leaves_the_answers_of_others_alone_when_it_is_closed(path):
    """The last connection that is closed moves its log into the file and removes it: here, that of somebody else."""
    with begun(path) as ledger:
        commit(ledger, "mine")
        path.with_name("x.ledger-shm").unlink()
        subprocess.run([sys.executable, "-c", WRITE_ONE, str(path)], check=True, env=environment())
    found = subprocess.run(
        [sys.executable, "-c", LIST_ALL, str(path)], check=True, env=environment(), capture_output=True, text=True
    )
    assert found.stdout == "['mine', 'theirs']\n"


@pytest.mark.parametrize("closed", [False, True])
def test_a_process_that_has_lost_the_index_does_not_open_the_ledger_again(path, closed):
    """SQLite would share the old index with the new connection."""
    with begun(path) as ledger:
        commit(ledger, "mine")
        path.with_name("x.ledger-shm").unlink()
        subprocess.run([sys.executable, "-c", WRITE_ONE, str(path)], check=True, env=environment())
        if closed:
            ledger.close()
        with pytest.raises(LedgerUnavailable, match="removed while it was in use"):
            begun(path)
        path.rename(path.with_name("damaged"))
        shutil.copy(path.with_name("damaged"), path)  # another file, with the log that is there
        path.with_name("x.ledger-shm").unlink()
        with begun(path) as again:
            assert commit(again, "more").seq == 3


LIST_ALL = """
import sys
from ledger_writer import begun

print([entry.key for entry in begun(sys.argv[1]).entries()])
"""
WRITE_ONE = """
import os, sys
from ledger_writer import begun, commit

print(commit(begun(sys.argv[1]), "theirs").seq, flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("suffixes", [["-wal"], ["-shm"], ["-wal", "-shm"]])
def test_a_log_removed_after_the_first_look_and_before_the_first_write_is_noticed(path, suffixes):
    """The connection that writes would find a new log, and the one that reads would go on with the old one."""
    begun(path).close()
    with open_ledger(path, dataset=DATASET, fingerprint=FINGERPRINT) as ledger:
        assert ledger.head.seq == 0
        for suffix in suffixes:
            path.with_name(path.name + suffix).unlink()
        with pytest.raises(LedgerUnavailable, match="removed while it was in use"):
            commit(ledger)


def test_the_log_of_a_ledger_behind_a_link_is_the_one_that_is_watched(path, tmp_path):
    real = tmp_path / "elsewhere" / "y.ledger"
    real.parent.mkdir()
    begun(real).close()
    path.symlink_to(real)
    with begun(path) as ledger:
        for _ in range(3):
            commit(ledger)
        real.with_name("y.ledger-wal").unlink()
        with pytest.raises(LedgerUnavailable, match=r"y\.ledger-wal was removed while it was in use"):
            commit(ledger, "new", charge=10**6)


def test_a_link_may_be_made_after_the_ledger_was_looked_for(path, tmp_path):
    with open_ledger(path, dataset=DATASET, fingerprint=FINGERPRINT) as ledger:
        assert not ledger.begun
        real = tmp_path / "elsewhere" / "y.ledger"
        real.parent.mkdir()
        subprocess.run([sys.executable, "-c", WRITE_ONE, str(real)], check=True, env=environment())
        path.symlink_to(real)
        assert commit(ledger).seq == 2
        real.with_name("y.ledger-wal").unlink()
        with pytest.raises(LedgerUnavailable, match=r"y\.ledger-wal was removed while it was in use"):
            commit(ledger)


def test_a_link_that_leads_elsewhere_by_now_is_refused(path, tmp_path):
    begun(tmp_path / "one").close()
    shutil.copy(tmp_path / "one", tmp_path / "other")
    path.symlink_to(tmp_path / "one")
    with begun(path) as ledger:
        commit(ledger)
        path.unlink()
        path.symlink_to(tmp_path / "other")
        with pytest.raises(LedgerUnavailable, match="moved or replaced"):
            commit(ledger, "new", charge=10**6)


def test_another_file_system_mounted_over_the_folder_is_noticed(path, monkeypatch):
    """A snapshot of the disk has the same names, inodes and dates."""
    with begun(path) as ledger:
        commit(ledger)
        found = os.stat

        def mounted(name: str) -> SimpleNamespace:
            there = found(name)
            fields = ("st_ino", "st_mtime_ns", "st_ctime_ns", "st_size")
            return SimpleNamespace(st_dev=there.st_dev + 1, **{field: getattr(there, field) for field in fields})

        with monkeypatch.context() as patched:
            patched.setattr(sqlite_file.os, "stat", mounted)
            with pytest.raises(LedgerUnavailable, match="moved or replaced"):
                commit(ledger, "new", charge=10**6)


def test_the_log_is_looked_at_only_after_its_folder_has_changed(path, monkeypatch):
    """Each look would make the next commit slower: Linux then dates the next change of the log more finely."""
    look, looks = sqlite_file._inode, []
    with begun(path) as ledger:
        commit(ledger)
        log_only = lambda name: name.endswith("-wal") and looks.append(name)  # noqa: E731
        monkeypatch.setattr(sqlite_file, "_inode", lambda name: log_only(name) or look(name))
        monkeypatch.setattr(sqlite_file, "_TICK", 10**18)
        for _ in range(3):  # the folder changed just now, and once more in the same tick would not show
            commit(ledger)
        assert set(looks) == {f"{path}-wal"}
        assert len(looks) >= 3
        monkeypatch.setattr(sqlite_file, "_TICK", 0)
        looks.clear()
        for _ in range(3):
            commit(ledger)
        assert ledger.spent.answers == 7
        assert len(looks) == 1
        path.with_name("other").touch()
        commit(ledger)
        assert len(looks) == 2
        log = path.with_name("x.ledger-wal")
        log.rename(path.with_name("elsewhere"))
        log.touch()  # as another process would begin a new one
        with pytest.raises(LedgerUnavailable, match="was removed while it was in use"):
            commit(ledger, "new", charge=10**6)


@pytest.mark.parametrize("together", [False, True])
def test_a_folder_that_is_away_for_a_moment_has_lost_no_log(tmp_path, monkeypatch, together):
    """What is written meanwhile is shown to nobody; when the folder is back, it is there."""
    finish, folder = DatabaseTransaction.finish, tmp_path / "here"
    folder.mkdir()
    with begun(folder / "x.ledger") as ledger:
        for _ in range(3):
            commit(ledger)
        if together:
            ledger._store._last_thread = None  # hand over

        def away(self):
            finish(self)
            folder.rename(tmp_path / "there")

        with monkeypatch.context() as patched:
            patched.setattr(DatabaseTransaction, "finish", away)
            with pytest.raises(LedgerUnavailable, match="moved or replaced"):
                commit(ledger, "new", charge=10**6)
        (tmp_path / "there").rename(folder)
        commit(ledger, "new", charge=10**6)
        commit(ledger, "more")
        assert ledger.find("new") is not None
        assert ledger.verify() == ledger.head


def test_a_log_removed_in_the_middle_of_a_write_shows_nobody_an_answer(path, monkeypatch):
    finish = DatabaseTransaction.finish

    def remove(self: Any) -> None:
        finish(self)
        path.with_name("x.ledger-wal").unlink()

    with begun(path) as ledger:
        commit(ledger)
        place = ledger.reserve(Cost(1, 1))
        monkeypatch.setattr(DatabaseTransaction, "finish", remove)
        with pytest.raises(LedgerUnavailable, match="removed"):
            ledger.commit(Drawn(place, key=None, question={}, answer={}, cost=Cost(1, 1), rows_read=1))


def test_a_log_that_is_emptied_and_begun_anew_is_no_trouble(path):
    import sqlite3

    with begun(path) as ledger:
        for number in range(50):
            commit(ledger)
            if number % 10 == 0:
                other = sqlite3.connect(path)
                other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                other.close()
        assert ledger.verify().seq == 50


@pytest.mark.parametrize("location", ["x.ledger", "sqlite:///{}/x.ledger"])
def test_files_are_their_owners_alone(tmp_path, path, location):
    before = os.umask(0)
    try:
        place = location.format(tmp_path) if "{}" in location else tmp_path / location
        with begun(place) as ledger:
            commit(ledger)
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert {"x.ledger", "x.ledger-wal", "x.ledger-lock"} <= set(modes)
    assert set(modes.values()) == {0o600}


@pytest.mark.parametrize("location", ["x.ledger", "sqlite:///{}/x.ledger"])
def test_only_one_can_begin_a_ledger_even_without_the_lock_file(tmp_path, path, location, monkeypatch):
    """An admin tidies up lock files; two processes then begin at once, each with a lock of its own."""
    place = location.format(tmp_path) if "{}" in location else tmp_path / location
    names = {"dataset": DATASET, "fingerprint": FINGERPRINT}
    link, began = os.link, []

    def late(*args: Any) -> None:
        monkeypatch.setattr(os, "link", link)
        path.with_name("x.ledger-lock").unlink()
        with open_ledger(place, **names) as other:
            began.append(other.begin(terms(charge=77)))
            commit(other, "k1")
        link(*args)

    monkeypatch.setattr(os, "link", late)
    with open_ledger(place, **names) as ledger:
        assert not ledger.begin(terms(charge=99))
        assert began == [True]
        assert ledger.caps.charge == 77
        assert ledger.find("k1") is not None
    assert not list(tmp_path.glob("*-new*"))


def test_what_a_process_left_that_died_while_it_began_a_ledger_is_removed(path):
    dead, busy = path.with_name("x.ledger-0123abcd-new"), path.with_name("x.ledger-89abcdef-new")
    for file in (dead, busy):
        file.write_bytes(b"half a ledger")
    os.utime(dead, (0, 0))
    begun(path).close()
    assert (dead.exists(), busy.exists()) == (False, True)


@pytest.mark.parametrize("length", [300, 800])
def test_a_file_is_not_much_longer_than_what_is_in_it(path, length):
    with begun(path, terms(charge=10**6)) as ledger:
        for number in range(300):
            write(ledger, f"k{number}", question={}, answer={"text": "x" * length}, cost=Cost(1, 1), rows_read=1)
        rows = ledger._store.read(1, 300)
    stored = sum(len(row.body) + len(row.hash + row.previous) + 2 * len(row.key_digest or "") for row in rows)
    assert path.stat().st_size < 1.5 * stored + 20_000
