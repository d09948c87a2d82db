"""One content of data has one budget. Every test is a way around that: a second session, name, ledger or past."""

import os
import shutil
import sqlite3
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import holdfast as hf
from holdfast.errors import (
    BudgetExhausted,
    InvalidArgument,
    LedgerDamaged,
    LedgerUnavailable,
    PlanConflict,
    RowSourceError,
)
from holdfast.ledger import Cost, Drawn, FileWitness, Ledger, Seen, content_of, sqlite_file
from holdfast.ledger.memory import MemoryStore
from holdfast.ledger.opening import forget_all
from holdfast.ledger.sqlite import SqliteStore
from holdfast.ledger.sqlite_file import SqliteFile
from holdfast.ledger.store import Tip
from holdfast.ledger.witness import _SLOT, ProcessWitness, Watch
from holdfast.session.beside import NeighborWitness, witnesses_of_a_restore


def table(rows: int = 2_000, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"b": rng.random(rows) < 0.3, "x": rng.normal(size=rows), "g": rng.choice(["u", "v"], rows)}


def questions(session: hf.Session, count: int, start: int = 0) -> None:
    for i in range(start, start + count):
        session.mean(f"x < {i}.5 / 100")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "flights.parquet"
    pl.DataFrame(table()).write_parquet(file)
    return file


def another_process() -> None:
    """What a process remembers, a new one does not."""
    forget_all()


# -- frames in memory -----------------------------------------------------------------------------------------------


def test_the_same_cell_run_twice_shares_one_budget() -> None:
    with hf.Session(table(), queries=20, guarantee="posterior") as first:
        questions(first, 12)
    with pytest.warns(hf.SharedBudget, match="8 of 20 answers left") as told:
        second = hf.Session(table(), queries=20, guarantee="posterior")
    assert told[0].filename == __file__
    assert second.budget.answers_left == 8
    assert "share one budget: 8 of 20 answers left" in repr(second)
    questions(second, 8, start=12)
    with pytest.raises(BudgetExhausted):
        questions(second, 1, start=20)


def test_two_sessions_that_are_open_at_once_share_one_budget() -> None:
    sessions = [hf.Session(table(), queries=20, guarantee="posterior") for _ in range(2)]
    questions(sessions[0], 15)
    with pytest.warns(hf.SharedBudget, match="5 of 20 answers left") as told:
        questions(sessions[1], 1, start=15)
    assert len(told) == 1
    with pytest.raises(BudgetExhausted):
        questions(sessions[1], 5, start=16)


@pytest.mark.filterwarnings("ignore::holdfast.ledger.opening.SharedBudget")
def test_the_same_rows_in_another_dress_are_the_same_rows() -> None:
    data = table() | {"missing": np.where(np.arange(2_000) % 7 == 0, np.nan, 1.5)}
    polars = pl.DataFrame(data, nan_to_null=True)
    same = [
        polars,
        polars.clone(),
        polars.to_pandas(),
        polars.to_arrow(),
        dict(reversed(data.items())),
        pd.DataFrame(data),
    ]
    with hf.Session(data, queries=20, guarantee="posterior") as session:
        questions(session, 5)
    for each in same:
        with hf.Session(each) as again:
            assert again.budget.answers_left == 15
    with hf.Session(table(seed=2), queries=20, guarantee="posterior") as other:
        assert other.budget.answers_left == 20


def test_a_plan_of_its_own_is_refused_and_says_why() -> None:
    with hf.Session(table(), queries=20, guarantee="posterior") as first:
        questions(first, 1)
    with pytest.raises(PlanConflict, match="one for all sessions of this process on these rows") as refused:
        hf.Session(table(), queries=30)
    assert "Leave the plan out" in str(refused.value)


def test_sessions_for_tests_have_budgets_of_their_own() -> None:
    for _ in range(2):
        with hf.Session(table(), queries=20, seed=1) as session, warnings.catch_warnings():
            warnings.simplefilter("error")
            assert session.budget.answers_given == 0
            questions(session, 1)
    with hf.Session(table(), queries=20) as real:
        assert real.budget.answers_given == 0


def test_a_ledger_in_a_file_does_not_give_rows_in_memory_a_second_one(tmp_path: Path) -> None:
    place = tmp_path / "a.ledger"
    with hf.Session(table(), queries=20, ledger=place) as session:
        questions(session, 1)
    for elsewhere in (None, tmp_path / "b.ledger"):
        with pytest.raises(InvalidArgument, match=r"have a ledger already: this process saw 1 answer at .*a\.ledger"):
            hf.Session(table(), queries=20, ledger=elsewhere)
    with hf.Session(table(), ledger=place) as again:
        assert again.budget.answers_given == 1


def test_who_begins_second_elsewhere_is_refused_at_that_moment(tmp_path: Path) -> None:
    sessions = [hf.Session(table(), queries=20, ledger=tmp_path / name) for name in ("a.ledger", "b.ledger")]
    questions(sessions[0], 1)
    with pytest.raises(InvalidArgument, match="have a ledger already"):
        questions(sessions[1], 1)
    assert not (tmp_path / "b.ledger").exists()


def test_fits_to_the_same_rows_share_one_budget() -> None:
    sklearn = pytest.importorskip("holdfast.sklearn")
    rng = np.random.default_rng(3)
    x = rng.uniform(-2, 2, (2_000, 2))
    y = x[:, 0] > 0
    first = sklearn.LogisticRegression(fits=2).fit(x, y)
    with pytest.warns(hf.SharedBudget):
        again = sklearn.LogisticRegression(fits=2).fit(x, y)
    assert (first.coef_ == again.coef_).all()  # the same question: free
    assert again.answers_[0].cached
    with pytest.warns(hf.SharedBudget):
        sklearn.LinearSVC(fits=2).fit(x, y)
    for model in (sklearn.LinearSVC(fits=2, l2=0.1), sklearn.LogisticRegression(fits=2, l2=0.1)):
        with pytest.warns(hf.SharedBudget), pytest.raises(BudgetExhausted, match="share a budget, here for fits=2"):
            model.fit(x, y)


# -- data on disk ---------------------------------------------------------------------------------------------------


def spend(path: Path, count: int, start: int = 0, **more: Any) -> None:
    with hf.Session(path, **more) as session:
        questions(session, count, start)


def begin(path: Path, count: int, **more: Any) -> Path:
    spend(path, count, queries=100, guarantee="posterior", **more)
    return path.with_name("flights.parquet.ledger")


def test_a_deleted_ledger_is_missed(path: Path) -> None:
    begin(path, 5).unlink()
    for new in (lambda: None, another_process):
        new()
        with pytest.raises(LedgerDamaged, match=r"it is gone, and .* saw 5 answers in it.*holdfast restore"):
            hf.Session(path)


def test_a_ledger_elsewhere_is_refused_and_the_one_that_counts_is_named(path: Path, tmp_path: Path) -> None:
    ledger = begin(path, 5)
    another_process()
    with pytest.raises(InvalidArgument, match="have a ledger already") as refused:
        hf.Session(path, ledger=tmp_path / "elsewhere.ledger")
    assert refused.value.fields["ledger"] == str(ledger)
    with pytest.raises(InvalidArgument, match="have a ledger already"):
        hf.Session(path.with_name("flights.parquet.holdfast"), ledger=tmp_path / "elsewhere.ledger")


@pytest.mark.parametrize("new", [lambda: None, another_process], ids=["this process", "another process"])
def test_an_old_copy_put_in_place_of_the_ledger_is_refused(path: Path, tmp_path: Path, new) -> None:
    ledger, old = begin(path, 5), tmp_path / "old"
    shutil.copy(ledger, old)
    spend(path, 7, start=5)
    shutil.copy(old, ledger)
    new()
    with pytest.raises(LedgerDamaged, match=r"went back in time: it ends with answer 5, and .* saw 12 answers"):
        hf.Session(path)


def test_a_copy_made_without_the_log_is_refused(path: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    session = hf.Session(path, queries=100, guarantee="posterior")
    questions(session, 3)
    with sqlite3.connect(path.with_name("flights.parquet.ledger")) as connection:
        connection.execute("PRAGMA wal_checkpoint")
    questions(session, 4, start=3)
    copied.mkdir()
    for name in ("flights.parquet", "flights.parquet.ledger", "flights.parquet.witness"):
        shutil.copy(path.with_name(name), copied / name)  # not flights.parquet.ledger-wal, which has the last answers
    session.close()
    another_process()
    with pytest.raises((LedgerDamaged, InvalidArgument), match="saw 7 answers"):
        hf.Session(copied / "flights.parquet")


def test_data_moved_with_its_ledger_goes_on(path: Path, tmp_path: Path) -> None:
    begin(path, 5)
    moved = tmp_path / "moved"
    moved.mkdir()
    for file in path.parent.glob("flights.*"):
        file.rename(moved / file.name.replace("flights", "trips"))
    another_process()
    with hf.Session(moved / "trips.parquet") as session:
        assert session.budget.answers_given == 5
        questions(session, 1, start=5)
    another_process()
    (moved / "trips.parquet.ledger").unlink()
    with pytest.raises(LedgerDamaged, match="saw 6 answers"):
        hf.Session(moved / "trips.parquet")


@pytest.mark.parametrize("how", [Path.rename, shutil.copy])
def test_another_name_in_the_same_folder_is_no_second_budget(path: Path, how: Any) -> None:
    ledger = begin(path, 5)
    other = path.with_name("trips.parquet")
    how(path, other)
    another_process()
    with pytest.raises(InvalidArgument, match=r"flights.parquet.witness in this folder saw 5 answers") as refused:
        hf.Session(other)
    assert refused.value.fields["ledger"] == str(ledger)
    spend(other, 1, start=5, ledger=ledger)  # as it proposes


def test_labels_that_were_shown_or_sealed_under_another_name_make_no_board(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    wide = pl.DataFrame({"id": np.arange(4_000), "label": rng.random(4_000) < 0.5, "x": rng.random(4_000)})
    wide.write_parquet(tmp_path / "l.parquet")
    spend(tmp_path / "l.parquet", 2)
    shutil.copy(tmp_path / "l.parquet", tmp_path / "m.parquet")
    another_process()
    with pytest.raises(hf.RowSourceError, match="another file in its folder, which has answered questions already"):
        hf.Board(tmp_path / "m.parquet")
    spend(tmp_path / "l.parquet", 1, start=2)  # whose session goes on
    wide[:3_000].write_parquet(tmp_path / "n.parquet")
    hf.Board(tmp_path / "n.parquet", confusion=0.5).close()
    shutil.copy(tmp_path / "n.parquet", tmp_path / "o.parquet")
    for new in (lambda: None, another_process):
        new()
        hf.Board(tmp_path / "n.parquet", confusion=0.5).close()  # it opens again
        with pytest.raises(hf.RowSourceError, match=r"another file in its folder, which was sealed as n\.board"):
            hf.Board(tmp_path / "o.parquet", confusion=0.5)


def test_of_two_witnesses_of_one_entry_the_one_counts_that_saw_more_taken(tmp_path: Path) -> None:
    content = "c" * 64
    for first, second in (((9, 9, 9), (2, 2, 2)), ((2, 2, 2), (9, 9, 9))):
        for name, taken in (("a", first), ("b", second)):
            (tmp_path / f"{name}.witness").unlink(missing_ok=True)
            FileWitness(tmp_path / f"{name}.witness", content).remember(Seen("l", Tip(3, "h", 1, 1, "", *taken)))
        newest = NeighborWitness(tmp_path / "c.witness", content).newest()
        assert newest is not None
        assert newest.tip.taken == (9, 9, 9)


def test_a_restore_counts_what_was_asked_under_another_name(path: Path) -> None:
    ledger = begin(path, 5)
    kept, other = ledger.with_name("kept"), path.with_name("trips.parquet")
    hf.backup(ledger, kept)
    shutil.copy(path, other)
    spend(other, 2, start=5, ledger=ledger)
    ledger.unlink()
    another_process()
    rows = hf.open(path)
    hf.restore(kept, ledger, fingerprint=rows.fingerprint, witnesses=witnesses_of_a_restore(rows))
    another_process()
    for name, place in ((path, None), (other, ledger)):
        with hf.Session(name, ledger=place) as session:
            assert session.budget.answers_left == 100 - 7


def test_other_data_in_the_same_place_begins_anew(path: Path) -> None:
    ledger = begin(path, 5)
    pl.DataFrame(table(seed=2)).write_parquet(path)
    ledger.rename(ledger.with_name("kept"))
    begin(path, 2)
    for file in path.parent.glob("flights.parquet.ledger*"):
        file.unlink()
    pl.DataFrame(table()).write_parquet(path)  # and the first data again, without its ledger
    another_process()
    with pytest.raises(LedgerDamaged, match="saw 5 answers"):
        hf.Session(path)
    ledger.with_name("kept").rename(ledger)
    with hf.Session(path) as session:
        assert session.budget.answers_given == 5


# -- while the ledger is open ---------------------------------------------------------------------------------------


def overwritten(old: Path, live: Path) -> None:
    """Restore into the live file, as SQLite's own tool does it."""
    source, target = sqlite3.connect(old), sqlite3.connect(live)
    source.backup(target)
    source.close()
    target.close()


def renamed(old: Path, live: Path) -> None:
    old.rename(live)


def copied(old: Path, live: Path) -> None:
    shutil.copy(old, live)


@pytest.mark.parametrize("replace", [overwritten, renamed, copied])
@pytest.mark.parametrize("checkpoint", ["PASSIVE", "TRUNCATE"])
@pytest.mark.parametrize("act", ["look", "ask"])
def test_an_old_copy_is_noticed_while_the_ledger_is_open(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replace, act, checkpoint
) -> None:
    monkeypatch.setattr(sqlite_file, "_STILL", 0.1)
    ledger, old = begin(path, 5), tmp_path / "old"
    shutil.copy(ledger, old)
    with hf.Session(path) as session:
        questions(session, 7, start=5)
        _ = session.budget
        connection = sqlite3.connect(ledger)
        connection.execute(f"PRAGMA wal_checkpoint({checkpoint})")  # as SQLite does after every thousand pages
        connection.close()
        questions(session, 1, start=12)
        replace(old, ledger)
        with pytest.raises((LedgerDamaged, LedgerUnavailable)):
            _ = session.budget if act == "look" else session.mean("x < 3")
        if replace is copied:
            monkeypatch.delattr(SqliteFile, "_stays_before")  # what was made sure of once is not waited for again
            with pytest.raises(LedgerDamaged, match="older copy was written into the file"):
                _ = session.budget


@pytest.mark.parametrize("half", [[0], [10**6], [-1] * 20, [-1, -1, None, 0, -1]])
def test_a_look_while_the_log_is_moved_into_the_file_says_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, half: list[int | None]
) -> None:
    """Half of a page may be new; or, where several ledgers share a table, a page is, and the next one is not yet."""
    look, seen = SqliteStore._seq_in_file, half.copy()
    with hf.Session(path) as session:
        for threshold in (0.1, 0.2, 0.3):
            session.mean(f"x > {threshold}")
            with sqlite3.connect(session.ledger.location) as connection:  # moves the log into the file
                connection.execute("PRAGMA wal_checkpoint")
            connection.close()
            if threshold == 0.2:
                monkeypatch.setattr(SqliteStore, "_seq_in_file", lambda self: seen.pop() if seen else look(self))
            _ = session.budget
        assert not seen
        assert session.ledger.head.seq == 3


def test_a_log_that_is_moved_slowly_is_waited_for_as_long_as_the_file_changes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "_STILL", 0.1)
    with hf.Session(path) as session:
        session.mean("x > 0.1")
        store = session.ledger._store
        look, end = SqliteStore._seq_in_file, time.monotonic() + 0.5

        def moved_slowly(self: SqliteStore) -> int | None:
            os.utime(self._name)
            return -1 if time.monotonic() < end else look(self)

        with monkeypatch.context() as patched:
            patched.setattr(SqliteStore, "_seq_in_file", moved_slowly)
            assert not store._stays_before(0)
        assert time.monotonic() >= end
        assert store._stays_before(10**6)


# -- databases ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/many.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


def test_a_thread_that_looks_slowly_does_not_take_what_it_saw_for_an_older_copy(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = SqliteStore._seq_in_file

    def answer_and_checkpoint(threshold: float) -> None:
        session.mean(f"x > {threshold}")
        with sqlite3.connect(session.ledger.location) as connection:  # moves the log into the file
            connection.execute("PRAGMA wal_checkpoint")
        connection.close()

    def look_slowly(self: SqliteStore) -> int | None:
        found = look(self)
        monkeypatch.setattr(SqliteStore, "_seq_in_file", look)
        answer_and_checkpoint(0.3)
        session.ledger.head  # noqa: B018  who comes meanwhile notes more
        return found

    with hf.Session(path) as session:
        answer_and_checkpoint(0.1)
        answer_and_checkpoint(0.2)
        monkeypatch.setattr(SqliteStore, "_seq_in_file", look_slowly)
        assert session.ledger.head.seq == 3
        assert session.ledger.verify().seq == 3


def test_a_renamed_dataset_gets_no_second_ledger_in_a_database(database: str, tmp_path: Path) -> None:
    data = pl.DataFrame(table(seed=hash(str(tmp_path)) % 2**32))
    name = f"flights-{tmp_path.name}-{abs(hash(str(tmp_path)))}"
    with hf.Session(hf.open(data, name=name), queries=20, ledger=database) as session:
        questions(session, 1)
    another_process()
    with pytest.raises(InvalidArgument, match=r"have a ledger in .* already, as dataset") as refused:
        hf.Session(hf.open(data, name="trips"), queries=20, ledger=database)
    assert refused.value.fields["dataset"] == name
    with hf.Session(hf.open(data, name=name), ledger=database) as session:
        assert session.budget.answers_given == 1


# -- the file beside the data ---------------------------------------------------------------------------------------


def test_a_witness_is_private_small_and_spoiled_only_where_it_was_hit(path: Path) -> None:
    begin(path, 5)
    file = path.with_name("flights.parquet.witness")
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.stat().st_size == _SLOT
    assert hf.open(path).fingerprint not in file.read_text()
    content = content_of(hf.open(path).fingerprint)
    seen = FileWitness(file, content).newest()
    assert seen is not None
    assert seen.tip.seq == 5
    text = bytearray(file.read_bytes())
    text[100] ^= 1
    file.write_bytes(text)
    assert FileWitness(file, content).newest() is None  # as after a power failure: it has nothing to say
    spend(path, 1, start=5)
    newest = FileWitness(file, content).newest()
    assert newest is not None
    assert newest.tip.seq == 6
    assert file.stat().st_size == _SLOT


def test_a_slot_that_is_spoiled_moves_nobody_out_of_theirs(tmp_path: Path) -> None:
    file = tmp_path / "w"
    FileWitness(file, "other").remember(Seen("there", Tip(3, "t", 0, 0)))
    standing = FileWitness(file, "c")
    standing.remember(Seen("here", Tip(5, "h5", 0, 0)))
    text = bytearray(file.read_bytes())
    text[100] ^= 1  # in the slot before
    file.write_bytes(text)
    again = FileWitness(file, "c")
    again.remember(Seen("here", Tip(6, "h6", 0, 0)))
    newest = Seen("here", Tip(9, "h9", 0, 0))
    standing.remember(newest)
    assert again.newest() == again.others() == newest


@pytest.mark.parametrize("address", ["here ", "here\n", " \n ", "x" * 5_000, "é" * 5_000, "\udcff" * 5_000])
def test_a_witness_remembers_ledgers_whatever_their_address(tmp_path: Path, address: str) -> None:
    seen = Seen(address, Tip(3, "h", 1, 1, "", 8, 9, 10))
    FileWitness(tmp_path / "w", "c").remember(seen)
    found = FileWitness(tmp_path / "w", "c").newest()
    assert found is not None
    assert found.tip == seen.tip
    assert (tmp_path / "w").stat().st_size == _SLOT
    assert found.address == address or len(address) > _SLOT / 2


def test_a_ledger_whose_name_ends_in_a_space_has_a_witness(path: Path) -> None:
    spent = f"{path}.ledger "
    with hf.Session(path, queries=20, ledger=spent) as session:
        session.mean("x > 0")
    another_process()
    with pytest.raises(InvalidArgument, match="have a ledger already"):
        hf.Session(path, queries=20)


def test_two_contents_that_choose_one_free_slot_both_find_one(tmp_path: Path) -> None:
    file = tmp_path / "w"
    one, other = FileWitness(file, "one"), FileWitness(file, "other")
    assert one.others() is None  # each has looked for its slot, and found the first one free
    assert other.others() is None
    far, near = Seen("there", Tip(9, "n", 0, 0)), Seen("here", Tip(2, "t", 0, 0))
    one.remember(far)
    other.remember(near)
    assert (one.newest(), other.newest()) == (far, near)


def test_a_late_word_does_not_make_a_witness_forget(tmp_path: Path) -> None:
    witness, late = (FileWitness(tmp_path / "w", "c") for _ in range(2))
    newer, older = (Seen("here", Tip(seq, "h", 0, 0)) for seq in (7, 6))
    witness.remember(newer)
    late.remember(older)
    assert witness.newest() == late.newest() == newer
    late.accept(older)
    assert witness.newest() == older
    witness.close()
    late.close()


def test_data_beside_which_nothing_can_be_written_needs_no_witness(path: Path) -> None:
    begin(path, 1)
    file = path.with_name("flights.parquet.witness")
    file.unlink()
    file.mkdir()  # cannot be opened as a file, by root either
    another_process()
    spend(path, 1, start=1)
    with hf.Session(path) as session:
        assert session.budget.answers_given == 2


# -- two processes at one instant, and histories that part ----------------------------------------------------------

BEGINNER = """
import sys, time
import holdfast as hf
from holdfast.ledger.sqlite import SqliteStore

begin = SqliteStore.begin

def slowly(self, *args):
    print("beginning", flush=True)
    time.sleep(1.0)  # between the look at the witnesses and the first entry
    return begin(self, *args)

SqliteStore.begin = slowly
try:
    with hf.Session(sys.argv[1], ledger=sys.argv[2], queries=20) as session:
        session.mean("b")
except hf.InvalidArgument as refusal:
    print("refused", refusal)
else:
    print("began")
"""


@pytest.mark.slow
def test_of_two_processes_that_begin_at_one_instant_in_two_places_one_is_refused(path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", BEGINNER, str(path)]
    places = [str(tmp_path / name) for name in ("one.ledger", "two.ledger")]
    both = [subprocess.Popen([*command, place], stdout=subprocess.PIPE, text=True) for place in places]
    said = [process.communicate(timeout=60)[0].splitlines() for process in both]
    assert sorted(lines[-1].split()[0] for lines in said) == ["began", "refused"]
    refused = next(lines[-1] for lines in said if lines[-1].startswith("refused"))
    assert "These rows have a ledger already" in refused


class OneOfTwoProcesses(ProcessWitness):
    """Remembers what it was told itself, and nothing of the other."""

    def __init__(self, content: str) -> None:
        super().__init__(content)
        self._seen = {}  # type: ignore[misc]


def forked(tmp_path: Path, first: int, second: int) -> None:
    """Go on from one state of a ledger in two copies, by so many entries each; both tell one witness."""
    file, terms = tmp_path / "w", {"caps": {"charge": 100, "intervals": 100}}
    stores = [MemoryStore("d") for _ in range(2)]
    ledgers = []
    for store in stores:
        watch = Watch(store, "here", "c")
        watch.watch(OneOfTwoProcesses("c"), FileWitness(file, "c"))
        if store is stores[0]:
            Ledger(store, fingerprint="f", watch=watch).begin(terms)
            vars(stores[1]).update(_rows=list(store._rows), _tip=store._tip, _secret=store._secret)  # a copy
        ledgers.append(Ledger(store, fingerprint="f", watch=watch))
    for ledger, entries, name in ((ledgers[0], first, "a"), (ledgers[1], second, "b")):
        for number in range(entries):
            question, cost = {"text": f"{name}{number}"}, Cost(1, 1)
            place = ledger.reserve(cost)
            ledger.commit(Drawn(place, key=question["text"], question=question, answer={}, cost=cost, rows_read=1))


@pytest.mark.parametrize(("first", "second"), [(1, 1), (3, 1), (1, 3)])
def test_who_goes_on_from_a_copy_is_refused_however_far_either_has_come(
    tmp_path: Path, first: int, second: int
) -> None:
    with pytest.raises(LedgerDamaged, match=r"is not the one that|went back in time"):
        forked(tmp_path, first, second)


def test_another_entry_of_the_same_number_does_not_replace_what_a_witness_saw(tmp_path: Path) -> None:
    witness, other = (FileWitness(tmp_path / "w", "c") for _ in range(2))
    one, two = (Seen("here", Tip(7, text, 0, 0)) for text in ("h", "i"))
    witness.remember(one)
    other.remember(two)
    assert witness.newest() == one
    assert not two.is_newer_than(one)


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("forgotten", [False, True])
def test_a_table_that_has_answered_is_not_dealt(path: Path, elsewhere: bool, forgotten: bool) -> None:
    """A deck has a ledger of its own. Without the folder of columns, only the ledger beside the file is known."""
    with hf.Session(path, ledger=path.with_name("other.ledger") if elsewhere else None) as session:
        questions(session, 2)
    another_process()
    if forgotten:
        shutil.rmtree(path.with_name("flights.parquet.holdfast"))
    deck = path.with_name("flights.deck")
    if elsewhere and forgotten:
        hf.deal(path, deck, cards=100)
        return
    known = "other.ledger" if elsewhere else "flights.parquet.ledger"
    with pytest.raises(InvalidArgument, match=rf"has answered questions already \(ledger .*{known}\).* Go on as"):
        hf.deal(path, deck, cards=100)
    assert not deck.exists()


@pytest.mark.parametrize("act", [shutil.copy, shutil.move])
@pytest.mark.parametrize("dealt_first", [True, False])
@pytest.mark.parametrize("unit", [None, "u"])
def test_a_file_that_was_copied_or_renamed_has_one_budget_with_the_deck_of_its_rows(
    path: Path, act: Any, dealt_first: bool, unit: str | None
) -> None:
    other, deck = path.with_name("other.parquet"), path.with_name("flights.deck")
    rows = pl.DataFrame(table() | {"u": np.arange(2_000) // 2})
    rows.write_parquet(path)
    if dealt_first:
        hf.deal(path, deck, cards=200, unit=unit).close()
    with hf.Session(deck if dealt_first else path) as session:
        session.mean("b", rows_per_query=10)
    another_process()
    act(path, other)
    if dealt_first:
        for begin in (hf.Session, hf.hold_back):
            with pytest.raises(InvalidArgument, match=r"dealt as flights\.deck"):
                begin(other)
    else:
        hf.deal(other, deck, cards=200, unit=unit).close()
        with pytest.raises(InvalidArgument, match=r"have a ledger already: .* at .*flights\.parquet\.ledger"):
            hf.Session(deck)
    another_process()
    # Others, of as many rows, are asked.
    rows.with_columns(x=-pl.col("x")).write_parquet(path.with_name("others.parquet"))
    hf.Session(path.with_name("others.parquet")).close()
    hf.deal(path.with_name("others.parquet"), path.with_name("others.deck"), cards=200).close()
    hf.Session(path.with_name("others.deck")).close()


def test_a_table_that_was_split_is_not_dealt(path: Path) -> None:
    hf.hold_back(path)[1].close()
    with pytest.raises(InvalidArgument, match=r"was split into flights\.explore\.parquet and flights\.held\.holdfast"):
        hf.deal(path, path.with_name("flights.deck"), cards=100)


@pytest.mark.parametrize("more", [{}, {"note": ["a", "b"] * 500}])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_labels_that_are_sealed_answer_nothing_in_any_process(
    tmp_path: Path, more: dict[str, list[str]], ending: str
) -> None:
    file = tmp_path / f"labels.{ending}"
    frame = pl.DataFrame({"id": range(1_000), "label": [True, False] * 500} | more)
    frame.write_csv(file) if ending == "csv" else frame.write_parquet(file)
    with hf.Board(file) as board:
        board.submit({"id": range(1_000), "prediction": [True] * 1_000})
    another_process()
    for asked in (hf.Session, hf.hold_back):
        with pytest.raises(InvalidArgument, match=r"The labels in these rows were sealed as labels\.board\.holdfast"):
            asked(file)
    with pytest.raises(InvalidArgument, match=r"was sealed as labels\.board\.holdfast"):
        hf.deal(file, tmp_path / "labels.deck", cards=100)
    another_process()
    with hf.Board(file) as board:  # it goes on
        assert board.submit({"id": range(1_000), "prediction": [True] * 1_000}).cached


LABELS = pl.DataFrame({"id": range(1_000, 0, -1), "label": [True, False] * 500, "more": [1, 1, 2, 2] * 250})


@pytest.mark.parametrize("ending", [None, "csv", "parquet"])
def test_labels_that_are_sealed_answer_nothing_wherever_this_process_has_them_from(
    tmp_path: Path, ending: str | None
) -> None:
    # The attack: seal the labels of a frame, or of a file, and ask the frame, or the file in another format.
    places: list[Any] = [tmp_path / "labels.csv", tmp_path / "elsewhere.parquet", LABELS, LABELS.to_pandas()]
    LABELS.write_csv(places[0])
    LABELS.write_parquet(places[1])
    sealed = {None: LABELS, "csv": places[0], "parquet": places[1]}[ending]
    with hf.Board(sealed):
        for asked in (hf.Session, hf.hold_back):
            for place in places:
                with pytest.raises(InvalidArgument, match=r"The labels in these rows were sealed as .*, a board"):
                    asked(place)
    with hf.Board(sealed) as board:  # it goes on
        board.submit({"id": LABELS["id"], "prediction": LABELS["label"]})


@pytest.mark.parametrize("split", [False, True])
def test_labels_that_were_shown_in_this_process_are_not_sealed_wherever_it_has_them_from(
    tmp_path: Path, split: bool
) -> None:
    LABELS.write_csv(tmp_path / "labels.csv")
    if split:
        _, opened = hf.hold_back(LABELS, id="id")
    else:
        opened = hf.Session(LABELS)
        opened.mean("label")
    fact = "was split into" if split else "has answered questions already"
    for labels in (tmp_path / "labels.csv", LABELS, LABELS.to_pandas()):
        with pytest.raises(RowSourceError, match=f"{fact}.*, so its labels are not sealed"):
            hf.Board(labels)
    assert not (tmp_path / "labels.board.holdfast").exists()
    opened.close()


def test_labels_that_have_answered_are_not_sealed(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    pl.DataFrame({"id": range(1_000), "label": [True, False] * 500, "more": range(1_000)}).write_csv(file)
    with hf.Session(file) as session:
        session.mean("label")
    another_process()
    with pytest.raises(hf.HoldfastError, match="has answered questions already, so its labels are not sealed"):
        hf.Board(file)


@pytest.mark.parametrize("act", [shutil.copy, shutil.move])
@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("folder", [".", "decks"])
@pytest.mark.parametrize("unit", [None, "unit"])
def test_labels_are_not_sealed_if_the_file_was_dealt_under_another_name(
    tmp_path: Path, act: Any, asked: bool, folder: str, unit: str | None
) -> None:
    """The attack: the deck, which nobody had asked yet, would answer about labels that are sealed."""
    file, other, deck = tmp_path / "labels.csv", tmp_path / "other.csv", tmp_path / folder / "labels.deck"
    rows = LABELS.with_columns(unit=pl.col("id") // 2)
    rows.write_csv(file)
    deck.parent.mkdir(exist_ok=True)
    hf.deal(file, deck, cards=500, unit=unit).close()
    if asked:
        with hf.Session(deck) as session:
            session.mean("label", rows_per_query=10)
    another_process()
    act(file, other)
    with pytest.raises(RowSourceError, match=r"has the rows of another file .*, so its labels are not sealed"):
        hf.Board(other)
    another_process()
    hf.Session(deck).close()
    rows.with_columns(label=~pl.col("label")).write_csv(tmp_path / "others.csv")
    hf.Board(tmp_path / "others.csv").close()


@pytest.mark.parametrize("first", ["board", "split", "deck", "table"])
def test_a_deck_in_another_folder_knows_what_became_of_copies_of_its_table(tmp_path: Path, first: str) -> None:
    file, other, deck = tmp_path / "labels.csv", tmp_path / "other.csv", tmp_path / "decks" / "other.deck"
    LABELS.write_csv(file)
    shutil.copy(file, other)
    deck.parent.mkdir()
    if first == "board":
        hf.Board(file).close()
    elif first == "split":
        hf.hold_back(file, id="id")[1].close()
    elif first == "deck":
        hf.deal(file, tmp_path / "more" / "labels.deck", cards=500).close()
        with hf.Session(tmp_path / "more" / "labels.deck") as session:
            session.mean("label", rows_per_query=10)
    else:
        with hf.Session(file) as session:
            session.mean("label")
    another_process()
    facts = {"board": "sealed as labels.board", "split": "split into", "deck": "dealt as labels.deck"}
    fact = facts.get(first, r"a copy of the table that was dealt has one at .*labels\.csv\.ledger")
    hf.deal(other, deck, cards=500).close()
    another_process()
    with pytest.raises(hf.HoldfastError, match=fact):
        hf.Session(deck)
