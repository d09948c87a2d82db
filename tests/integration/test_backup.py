"""Copies of a ledger and putting one back: nothing spent is ever handed out a second time."""

import json
import shutil
import stat
import subprocess
import sys
import threading
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.errors import (
    InvalidArgument,
    LedgerDamaged,
    LedgerUnavailable,
    RowSourceError,
    ServiceUnavailable,
    UnknownName,
)
from holdfast.ledger import content_of, open_ledger
from holdfast.ledger.opening import audit, forget_all
from holdfast.service.database import DatabaseWitness, TokenDatabase
from holdfast.session.beside import witnesses_beside
from ledger_writer import WriterPool, begun, commit, environment, fingerprint_of, terms

PLAN: dict[str, Any] = {"queries": 200, "guarantee": "posterior"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "flights.parquet"
    rng = np.random.default_rng(list(str(tmp_path).encode()))
    pl.DataFrame({"b": rng.random(2_000) < 0.3, "x": rng.normal(size=2_000)}).write_parquet(file)
    return file


@pytest.fixture(params=["file", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, path: Path) -> str | None:
    """Where the ledger is: beside the data, or in a database."""
    if request.param == "file":
        return None
    url: str = (
        f"sqlite:///{path.parent}/many.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    )
    return url


@pytest.fixture
def rows(path: Path) -> hf.RowSource:
    return hf.open(path, name=f"flights-{uuid.uuid4().hex}")


def ask(rows: hf.RowSource, place: str | None, count: int, start: int = 0, **plan: Any) -> int:
    """Ask new questions; return how many answers are left."""
    with hf.Session(rows, ledger=place, **plan) as session:
        for i in range(start, start + count):
            session.mean(f"x < {i}.5 / 100")
        return session.budget.answers_left


def where(rows: hf.RowSource, place: str | None) -> str:
    return place or f"{rows.location}".replace(".holdfast", ".ledger")


def restored(rows: hf.RowSource, place: str | None, copy: Path) -> hf.Restored:
    forget_all()  # another process does it
    return hf.restore(copy, where(rows, place), fingerprint=rows.fingerprint, witnesses=witnesses_beside(rows))


def vanish(rows: hf.RowSource, place: str | None) -> None:
    """Lose the ledger, as a disk or a database that is set up anew would."""
    if place is None:
        for part in Path(where(rows, place)).parent.glob("*.parquet.ledger*"):
            part.unlink()
    elif place.startswith("sqlite"):
        Path(place.removeprefix("sqlite:///")).unlink()
    else:
        import psycopg

        with psycopg.connect(place.replace("+psycopg", ""), autocommit=True) as connection:
            for table in ("holdfast_entries", "holdfast_ledgers"):
                connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
                connection.execute(f"DELETE FROM {table} WHERE dataset = %s", [rows.name])  # type: ignore[arg-type]
                connection.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
    forget_all()


# -- what a copy is -------------------------------------------------------------------------------------------------


def test_a_backup_holds_the_ledger_wherever_it_was(rows: hf.RowSource, place: str | None, tmp_path: Path) -> None:
    ask(rows, place, 12, **PLAN)
    copy = tmp_path / "copy.ledger"
    head = hf.backup(where(rows, place), copy, dataset=rows.name)
    assert head.seq == 12
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert sorted(each.name for each in tmp_path.glob("copy*")) == ["copy.ledger"]
    assert audit(copy).head == head
    vanish(rows, place)
    with pytest.raises(LedgerDamaged, match="it is gone"):
        hf.Session(rows, ledger=place)
    done = restored(rows, place, copy)
    assert done.lost == 0
    assert done.head == head
    with hf.Session(rows, ledger=place) as session:
        assert session.ledger.verify() == head
        assert (session.budget.answers_given, session.budget.answers_left) == (12, 188)
        session.mean("b")
        assert session.mean("x < 0.5 / 100").cached


def test_a_backup_is_made_while_others_write_and_holds_a_whole_ledger(tmp_path: Path) -> None:
    location, copy = tmp_path / "live.ledger", tmp_path / "copy.ledger"
    begun(location).close()
    with WriterPool(str(location), tmp_path / "notes") as pool:
        for _ in range(2):
            pool.start()
        for goal in (50, 150, 300):
            pool.wait_for(goal)
            head = hf.backup(location, copy)
            assert head.seq >= goal
            assert audit(copy).head == head


LOOK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT * FROM holdfast_ledgers").fetchall()
connection.close()  # and the log is removed, unless anybody else has the ledger open
"""


def test_a_backup_leaves_a_session_of_the_same_process_its_locks(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with begun(path) as ledger:
        commit(ledger)
        hf.backup(path, tmp_path / "copy")
        subprocess.run([sys.executable, "-c", LOOK, str(path)], check=True)
        assert path.with_name("ledger.db-wal").exists()
        commit(ledger)
        assert audit(path).head.seq == 2


def test_a_copy_replaces_only_an_older_one_of_the_same_ledger(path: Path, tmp_path: Path) -> None:
    rows, copy = hf.open(path), tmp_path / "copy"
    ask(rows, None, 3, **PLAN)
    hf.backup(where(rows, None), copy)
    ask(rows, None, 3, start=3)
    assert hf.backup(where(rows, None), copy).seq == 6
    begun(tmp_path / "other.ledger").close()
    for foreign in (path, tmp_path / "other.ledger"):
        before = foreign.read_bytes()
        with pytest.raises(InvalidArgument, match="older copy of this ledger"):
            hf.backup(where(rows, None), foreign)
        assert foreign.read_bytes() == before
    with pytest.raises(UnknownName, match="No ledger"):
        hf.backup(tmp_path / "nothing.ledger", tmp_path / "c")


# -- putting one back -----------------------------------------------------------------------------------------------


def test_an_old_backup_hands_nothing_out_twice(rows: hf.RowSource, place: str | None, tmp_path: Path) -> None:
    ask(rows, place, 10, **PLAN)
    copy = tmp_path / "copy.ledger"
    hf.backup(where(rows, place), copy, dataset=rows.name)
    left = ask(rows, place, 50, start=10)
    assert left == 140
    vanish(rows, place)
    done = restored(rows, place, copy)
    assert done.lost == 50
    assert "50 newer answers" in " ".join(done.sentences())
    assert "they are lost, but their cost" in " ".join(done.sentences())
    assert "it is lost, but its cost" in " ".join(replace(done, lost=1).sentences())
    with hf.Session(rows, ledger=place) as session:
        assert session.budget.answers_left == 140  # not 190
        session.ledger.verify()
        assert session.history().height == 10
        assert [entry.seq for entry in session.ledger.entries()] == list(range(1, 11))
        again = session.mean("x < 30.5 / 100")  # was lost: drawn anew, and paid anew
        assert not again.cached
        assert session.budget.answers_left == 139
    forget_all()
    assert ask(rows, place, 1, start=500) == 138


def test_fresh_rows_that_were_used_stay_used(path: Path, tmp_path: Path) -> None:
    rows = hf.open(path)
    place = where(rows, None)
    ask(rows, None, 2, queries=8, guarantee="split")
    hf.backup(place, tmp_path / "copy")
    with hf.Session(rows) as session:
        used = [session.mean("x < 2").seq, session.mean("x < 3").seq]
        assert used == [3, 4]
        last = max(entry.place.charge + entry.cost.charge for entry in session.ledger.entries())
    vanish(rows, None)
    restored(rows, None, tmp_path / "copy")
    with hf.Session(rows) as session:
        session.mean("x < 4")
        assert next(session.ledger.entries(start=4)).place.charge >= last


def test_a_head_published_before_a_restore_finds_the_break_explained(path: Path, tmp_path: Path) -> None:
    rows, copy = hf.open(path), tmp_path / "copy"
    ask(rows, None, 5, **PLAN)
    hf.backup(where(rows, None), copy)
    ask(rows, None, 3, start=5)
    with hf.Session(rows) as session:
        published = session.ledger.head.hash
    vanish(rows, None)
    assert restored(rows, None, copy).lost == 3
    with hf.Session(rows) as session, pytest.raises(LedgerDamaged, match="backup that lacked entries 6 to 8, as it"):
        session.ledger.verify(published)


def test_an_old_copy_in_the_live_file_is_brought_up_to_date(path: Path, tmp_path: Path) -> None:
    rows, copies = hf.open(path), [tmp_path / "old", tmp_path / "newer"]
    ledger = Path(where(rows, None))
    for copy, start in zip(copies, (0, 10), strict=True):
        ask(rows, None, 10, start=start, **(PLAN if start == 0 else {}))
        hf.backup(ledger, copy)
    shutil.copy(copies[0], ledger)
    done = restored(rows, None, copies[1])
    assert (done.lost, done.head.seq) == (0, 20)
    assert ask(rows, None, 0) == 180


def test_a_ledger_that_is_newer_than_the_backup_is_left_alone(path: Path, tmp_path: Path) -> None:
    rows = hf.open(path)
    ledger = Path(where(rows, None))
    ask(rows, None, 10, **PLAN)
    hf.backup(ledger, tmp_path / "old")
    ask(rows, None, 5, start=10)
    before = audit(ledger)
    with pytest.raises(InvalidArgument, match="nothing to restore"):
        restored(rows, None, tmp_path / "old")
    assert audit(ledger) == before


def test_two_ledgers_that_parted_are_not_mixed(tmp_path: Path) -> None:
    one, other = tmp_path / "one.ledger", tmp_path / "other.ledger"
    with begun(one) as ledger:
        commit(ledger, "a")
    shutil.copy(one, other)
    for place, key in ((one, "b"), (other, "c")):
        forget_all()
        with begun(place) as ledger:
            commit(ledger, key)
    forget_all()
    with pytest.raises(InvalidArgument, match="not the same ledger"):
        hf.restore(other, one)


def test_a_damaged_file_is_moved_aside(path: Path, tmp_path: Path) -> None:
    rows = hf.open(path)
    ledger = Path(where(rows, None))
    ask(rows, None, 10, **PLAN)
    hf.backup(ledger, tmp_path / "copy")
    ask(rows, None, 3, start=10)
    ledger.write_bytes(ledger.read_bytes()[:4_000])
    assert restored(rows, None, tmp_path / "copy").lost == 3
    assert ask(rows, None, 0) == 187
    assert len(list(tmp_path.glob("flights.parquet.ledger-damaged-*"))) == 1


def test_data_in_place_of_their_ledger_are_refused_and_stay(path: Path, tmp_path: Path) -> None:
    ask(hf.open(path), None, 1, **PLAN)
    ledger, content = path.with_name("flights.parquet.ledger"), path.read_bytes()
    hf.backup(ledger, tmp_path / "copy")
    for wrong in (lambda: hf.backup(path, tmp_path / "other"), lambda: hf.restore(tmp_path / "copy", path)):
        with pytest.raises(
            InvalidArgument, match=r"flights\.parquet is not a ledger\. If it is data, .*parquet\.ledger;"
        ):
            wrong()
    assert path.read_bytes() == content


def test_a_backup_of_other_data_is_refused(path: Path, tmp_path: Path) -> None:
    begun(tmp_path / "other.ledger").close()
    with pytest.raises(RowSourceError, match="belongs to other data"):
        restored(hf.open(path), None, tmp_path / "other.ledger")
    assert not Path(where(hf.open(path), None)).exists()


def test_without_a_witness_a_restore_says_what_it_cannot_know(tmp_path: Path) -> None:
    place = tmp_path / "a.ledger"
    with begun(place) as ledger:
        commit(ledger, "a")
    hf.backup(place, tmp_path / "copy")
    place.unlink()
    forget_all()
    done = hf.restore(tmp_path / "copy", place)
    assert done.witnesses == ()
    assert "No witness remembers" in done.sentences()[1]


def test_a_restore_under_somebodys_hands_is_refused(tmp_path: Path, monkeypatch) -> None:
    place, copy = tmp_path / "a.ledger", tmp_path / "copy"
    with begun(place) as ledger:
        commit(ledger, "a")
        hf.backup(place, copy)
    shutil.copy(copy, tmp_path / "kept")
    with begun(place) as ledger:
        commit(ledger, "b")
    hf.backup(place, copy)
    place.unlink()
    shutil.move(tmp_path / "kept", place)
    forget_all()
    from holdfast.ledger import backup as module

    original = module._append

    def late(*arguments: Any) -> bool:
        raced = list(arguments)
        raced[3] = raced[3]._replace(seq=0)  # what was found before somebody wrote
        return original(*raced)

    monkeypatch.setattr(module, "_append", late)
    with pytest.raises(LedgerUnavailable, match="is in use"):
        hf.restore(copy, place)


# -- who else remembers ---------------------------------------------------------------------------------------------


def test_a_server_database_remembers_what_the_folder_forgot(path: Path, tmp_path: Path) -> None:
    rows = hf.open(path)
    ledger, url = Path(where(rows, None)), f"sqlite:///{tmp_path}/tokens.db"

    def witness() -> DatabaseWitness:
        return DatabaseWitness(TokenDatabase(url), content_of(rows.fingerprint))

    ask(rows, None, 10, **PLAN)
    hf.backup(ledger, tmp_path / "copy")
    with hf.Session(rows) as session:
        session.ledger.watch(witness())
        for i in range(7):
            session.mean(f"x < 2.{i}")
    newest = witness().newest()
    assert newest is not None
    assert newest.tip.seq == 17
    shutil.copy(tmp_path / "copy", ledger)
    path.with_name("flights.parquet.witness").unlink()
    forget_all()
    with hf.Session(rows) as session, pytest.raises(LedgerDamaged, match="the server's database saw 17 answers"):
        session.ledger.watch(witness())
    forget_all()
    everyone = [*witnesses_beside(rows), witness()]
    done = hf.restore(tmp_path / "copy", ledger, fingerprint=rows.fingerprint, witnesses=everyone)
    assert done.lost == 7
    with hf.Session(rows) as session:
        session.ledger.watch(witness())
        assert session.budget.answers_left == 183


def test_a_witness_that_was_not_asked_accepts_a_restore_that_counted_what_it_saw(path: Path, tmp_path: Path) -> None:
    rows = hf.open(path)
    ledger, url = Path(where(rows, None)), f"sqlite:///{tmp_path}/tokens.db"
    witness = DatabaseWitness(TokenDatabase(url), content_of(rows.fingerprint))
    ask(rows, None, 10, **PLAN)
    hf.backup(ledger, tmp_path / "copy")
    with hf.Session(rows) as session:
        session.ledger.watch(witness)
        for i in range(7):
            session.mean(f"x < 2.{i}")
    vanish(rows, None)
    restored(rows, None, tmp_path / "copy")  # only the file beside the data is asked
    with hf.Session(rows) as session:
        session.ledger.watch(DatabaseWitness(TokenDatabase(url), content_of(rows.fingerprint)))
        session.mean("b")


def test_an_answer_is_shown_though_no_thread_can_tell_the_server_database(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, url = hf.open(path), f"sqlite:///{tmp_path}/tokens.db"
    witness = DatabaseWitness(TokenDatabase(url), content_of(rows.fingerprint))
    start = threading.Thread.start

    def starts(thread: threading.Thread) -> None:
        if thread.name == "holdfast witness":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starts)
    with hf.Session(rows, **PLAN) as session:
        session.ledger.watch(witness)
        assert session.mean("x > 0").seq == 1
    assert witness.newest().tip.seq == 1  # when the ledger is closed


def test_a_server_database_that_was_busy_is_told_at_the_end(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = hf.open(path)
    witness = DatabaseWitness(TokenDatabase(f"sqlite:///{tmp_path}/tokens.db"), content_of(rows.fingerprint))
    tried, put = threading.Event(), witness._put

    def busy(*_: object, **__: object) -> None:
        monkeypatch.setattr(witness, "_put", put)
        tried.set()
        raise ServiceUnavailable("busy")

    with hf.Session(rows, **PLAN) as session:
        session.mean("b")
        monkeypatch.setattr(witness, "_put", busy)
        session.ledger.watch(witness)
        assert tried.wait(30)
    newest = witness.newest()
    assert newest is not None
    assert newest.tip.seq == 1


# -- the command line -----------------------------------------------------------------------------------------------


def holdfast(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from holdfast.cli import main; main()", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment())


def test_backup_and_restore_on_the_command_line(path: Path, tmp_path: Path) -> None:
    rows = hf.open(path)
    ask(rows, None, 10, **PLAN)
    made = holdfast(tmp_path, "backup", "flights.parquet", "copy", "--json")
    assert json.loads(made.stdout)["head"]["seq"] == 10
    ask(rows, None, 5, start=10)
    shutil.copy(tmp_path / "copy", where(rows, None))
    for refused in (("budget", "flights.parquet"), ("verify", "flights.parquet"), ("verify", "flights.parquet.ledger")):
        found = holdfast(tmp_path, *refused)
        assert found.returncode == LedgerDamaged.exit_code
        assert "went back in time: it ends with answer 10" in found.stderr
        assert "holdfast restore" in found.stderr
    done = holdfast(tmp_path, "restore", "copy", "flights.parquet")
    assert done.returncode == 0
    assert "lacked 5 newer answers" in done.stdout
    assert "185 of 200 answers left" in holdfast(tmp_path, "budget", "flights.parquet").stdout
    again = holdfast(tmp_path, "restore", "copy", "flights.parquet")
    assert again.returncode == InvalidArgument.exit_code
    assert "nothing to restore" in again.stderr


def test_verify_says_what_it_knows(path: Path, tmp_path: Path) -> None:
    rows = hf.open(path)
    ask(rows, None, 4, **PLAN)
    hf.backup(where(rows, None), tmp_path / "copy")
    beside = json.loads(holdfast(tmp_path, "verify", "flights.parquet.ledger", "--json").stdout)
    alone = json.loads(holdfast(tmp_path, "verify", "copy", "--json").stdout)
    assert beside["complete"]
    assert not alone["complete"]
    assert "is not known" in " ".join(alone["checks"])
    assert not any("intact" in line for line in (*beside["checks"], *alone["checks"]))
    published = json.loads(holdfast(tmp_path, "verify", "copy", "--json", "--head", alone["head"]["hash"]).stdout)
    assert published["complete"]


def test_what_the_writer_pool_writes_is_restored(tmp_path: Path) -> None:
    place = tmp_path / "a.ledger"
    with begun(place, terms(charge=40)) as ledger:
        for i in range(10):
            commit(ledger, f"{i}", charge=2)
        hf.backup(place, tmp_path / "copy")
        for i in range(10, 15):
            commit(ledger, f"{i}", charge=2)
    place.unlink()
    hf.restore(tmp_path / "copy", place)  # this process remembers
    with open_ledger(place, dataset="flights", fingerprint=fingerprint_of("flights")) as again:
        assert again.left.charge == 10
        again.verify()
