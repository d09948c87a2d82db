"""Attacks on one budget that go round the ledger's own rules.

A fork in mid-answer, a backup into itself, an error, a table beside its deck, more checks than a ledger can count, a
full disk.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from counting_rows import CountingRows
from holdfast.board import sealing
from holdfast.errors import BudgetExhausted, InvalidArgument, LedgerUnavailable, RowSourceError
from holdfast.guarantees.drawers import COINS, MOST_CHECKS, STATEMENTS
from holdfast.ledger import Asking, Cost
from holdfast.ledger.opening import forget_all
from holdfast.rows.disk.folder import FolderRows
from holdfast.rows.memory import memory_rows
from holdfast.session import parts
from holdfast.session.session import Session
from serving import Running, settings, table

ROWS = 2_000
TOO_LONG = 20  # seconds after which the child is ended, should a lock that it inherited hold it up


class Forking(CountingRows):
    """Forks once, when rows were drawn and nothing is written."""

    def __init__(self) -> None:
        super().__init__(memory_rows({"x": np.arange(ROWS) % 2 == 0}))
        self.fork, self.child = False, -1

    def tally(self, *args: Any, **options: Any) -> Any:
        counts = super().tally(*args, **options)
        if self.fork:
            self.fork, self.child = False, os.fork()
            if self.child == 0:
                signal.alarm(TOO_LONG)
        return counts


def test_a_fork_in_mid_answer_gives_one_answer_for_one_place(tmp_path: Path) -> None:
    """The attack: pay once, fork, and let both processes write what they make of the same draw."""
    rows = Forking()
    with Session(rows, queries=100, guarantee="posterior", ledger=tmp_path / "a.ledger") as session:
        session.mean("x")
        rows.fork = True
        try:
            answer = session.mean(lambda row: row["x"])  # new each time: neither finds the other's
        except BaseException:
            if rows.child == 0:
                os._exit(7)
            raise
        if rows.child == 0:
            os._exit(0)
        _, status = os.waitpid(rows.child, 0)
        assert answer.seq is not None
        assert os.waitstatus_to_exitcode(status) == 7
        session.ledger.verify()
        assert session.ledger.spent.answers == 2


def test_a_backup_into_the_ledger_itself_is_refused(tmp_path: Path) -> None:
    """The mistake: it would replace the live file, under everybody's hands and with the old log beside it."""
    path = table(tmp_path)
    with Session(path, queries=100) as session:
        session.mean("weekend")
        ledger = tmp_path / "flights.parquet.ledger"
        (tmp_path / "link").symlink_to(ledger)
        for to in (ledger, tmp_path / "link"):
            with pytest.raises(InvalidArgument, match="different file"):
                hf.backup(ledger, to)
        assert session.mean("not weekend").seq == 2


def test_a_ledger_that_is_elsewhere_is_not_named_to_analysts(tmp_path: Path) -> None:
    """The leak: somebody began these rows' ledger at another place, and the refusal says where."""
    path = table(tmp_path)
    chosen = settings(path, database=f"sqlite:///{tmp_path}/ledgers.db")
    with Running(chosen) as server:
        private = tmp_path / "private"
        private.mkdir()
        forget_all()  # what follows is another process
        with Session(path, queries=100, ledger=private / "secret.ledger") as session:
            session.mean("weekend")
        forget_all()
        with server.client(server.token()) as client:
            sent = client.post("/api/v1/datasets/flights/ask", json={"kind": "mean", "query": "weekend"})
        assert str(tmp_path) not in sent.text
        assert "secret" not in sent.text
        assert sent.status_code == 503


def dealt(path: Path, name: str) -> Path:
    deck = path.with_name(name)
    hf.deal(path, deck, cards=20_000)
    return deck


@pytest.mark.filterwarnings("ignore::holdfast.guarantees.plan.VacuousPlan")
def test_a_table_that_was_dealt_has_no_second_budget(tmp_path: Path) -> None:
    """The attack: deal a file, ask the deck, and then ask the file, split it, seal it, or deal it once more."""
    path = tmp_path / "t.csv"
    pl.DataFrame({"id": np.arange(ROWS), "label": np.arange(ROWS) % 2}).write_csv(path)
    deck, other = dealt(path, "a.deck"), dealt(path, "b.deck")
    with hf.Session(deck) as session:
        asked = session.mean("label = 1")
        ledger, first = session.ledger.location, session.ledger.first
    forget_all()  # as in another process
    for again in (
        lambda: hf.Session(path),
        lambda: hf.Session(path, ledger=tmp_path / "other.ledger"),
        lambda: hf.hold_back(path),
        lambda: hf.Session(other),
        lambda: hf.Session(other, ledger=tmp_path / "other.ledger"),
    ):
        with pytest.raises(InvalidArgument, match=r"dealt as a\.deck"):
            again()
    with pytest.raises(RowSourceError, match=r"dealt as a\.deck, so its labels are not sealed"):
        hf.Board(path)
    with hf.Session(other, ledger=ledger) as session:  # one ledger for both is no second budget
        assert session.ledger.first == first
        assert session.mean("label = 1").value == asked.value
    with hf.Session(deck) as session:
        assert session.mean("label = 1").cached


@pytest.mark.filterwarnings("ignore::holdfast.guarantees.plan.VacuousPlan")
@pytest.mark.parametrize("how", ["asked", "split"])
def test_a_deck_has_no_second_budget_if_its_table_was_asked_while_it_was_dealt(tmp_path: Path, how: str) -> None:
    """The attack: deal a file, which takes long, and ask it or split it meanwhile; then ask the deck."""
    path = tmp_path / "t.csv"
    pl.DataFrame({"x": np.arange(ROWS) % 2}).write_csv(path)
    deck = dealt(path, "t.deck")
    deck.rename(tmp_path / "unfinished")  # as it is not there before the deal has ended
    session = hf.Session(path) if how == "asked" else hf.hold_back(path)[1]
    if how == "asked":
        session.mean("x = 1")
    session.close()
    (tmp_path / "unfinished").rename(deck)
    forget_all()  # as in another process
    words = "These rows have a ledger already" if how == "asked" else "These rows were split into"
    with pytest.raises(InvalidArgument, match=words):
        hf.Session(deck)


@pytest.mark.filterwarnings("ignore::holdfast.guarantees.plan.VacuousPlan")
@pytest.mark.parametrize("shown", ["by answers", "in half"])
def test_labels_that_were_shown_make_no_board_wherever_their_ledger_is(tmp_path: Path, shown: str) -> None:
    """The attack: ask the labels, with a ledger that is not beside them, or look at half of them; then seal all."""
    path = tmp_path / "t.parquet"
    pl.DataFrame({"id": np.arange(ROWS), "label": np.arange(ROWS) % 2 == 0}).write_parquet(path)
    if shown == "by answers":
        with hf.Session(path, ledger=f"sqlite:///{tmp_path / 'elsewhere.db'}") as session:
            session.mean("label")
        fact = "has answered questions already"
    else:
        frame, session = hf.hold_back(path, id="id")
        assert frame.height == ROWS / 2
        session.close()
        fact = r"was split into t\.explore\.parquet and t\.held\.holdfast"
    forget_all()  # as in another process
    with pytest.raises(RowSourceError, match=f"{fact}, so its labels are not sealed"):
        hf.Board(path)
    assert not path.with_name("t.board.holdfast").exists()


@pytest.mark.filterwarnings("ignore::holdfast.guarantees.plan.VacuousPlan")
@pytest.mark.parametrize("what", ["removed", "changed", "moved"])
def test_a_table_may_be_asked_if_its_deck_is_gone_or_of_other_rows(tmp_path: Path, what: str) -> None:
    path = tmp_path / "here" / "t.csv"
    path.parent.mkdir()
    pl.DataFrame({"x": np.arange(ROWS) % 2}).write_csv(path)
    deck = dealt(path, "t.deck")
    if what == "removed":
        shutil.rmtree(deck)
    elif what == "changed":
        pl.DataFrame({"x": np.arange(ROWS + 1) % 2}).write_csv(path)
    else:  # together, and so it is still known
        moved = path.parent.rename(tmp_path / "there")
        with pytest.raises(InvalidArgument, match=r"dealt as t\.deck"):
            hf.Session(moved / path.name)
        return
    with hf.Session(path) as session:
        assert session.mean("x = 1").seq == 1


def test_checks_that_fill_a_ledger_are_refused_in_words_and_leave_room_for_answers(tmp_path: Path) -> None:
    """The attack: begin a million checks, for nothing, so that nobody can ask anything any more."""
    rows = {"x": np.arange(ROWS) % 2 == 0}
    with hf.Session(rows, checks=0.3, ledger=tmp_path / "a.ledger") as session:
        session.check("x", 0.5, 0.2)
        left, ended = MOST_CHECKS - 2, Asking()
        ended.ended = True
        while left > 0:
            session.ledger.reserve_all([Cost(COINS, STATEMENTS)] * min(left, 100_000), ended)
            left -= 100_000
        assert session.check("x", 0.5, 0.3).holds
        with pytest.raises(BudgetExhausted, match="has counted all the checks that it can count, 1,047,552"):
            session.check("x", 0.5, 0.4)
        assert session.mean("x").seq == 3
        session.ledger.verify()


@pytest.mark.parametrize("kind", ["mean", "check", "list"])
def test_a_full_disk_takes_no_payment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The attack: fill the disk, so that each retry is paid for by a few bytes that fit, and its answer does not."""
    rows = {"x": np.arange(ROWS) % 2 == 0}
    asks: dict[str, Callable[[hf.Session, int], object]] = {
        "mean": lambda session, number: session.mean(f"x OR {number} = 1"),
        "check": lambda session, number: session.check(f"x OR {number} = 1", 0.5, 0.2),
        "list": lambda session, number: session.ask_many([f"x OR {number} = 1", f"x AND {number} = 1"]),
    }
    with hf.Session(rows, checks=0.3, ledger=tmp_path / "a.ledger") as session:
        for number in range(10, 15):  # so many that some places are taken ahead
            asks[kind](session, number)
        spent, left = session.ledger.spent, os.statvfs(tmp_path)
        full = os.statvfs_result((*left[:4], 1, *left[5:]))  # one block
        monkeypatch.setattr(os, "statvfs", lambda _: full)
        time.sleep(0.2)  # longer than what was known of the disk counts
        for number in range(20, 25):
            with pytest.raises(LedgerUnavailable, match="bytes left, and an answer that was paid for might not fit"):
                asks[kind](session, number)
        assert (session.ledger.spent, session.ledger.answered.failed) == (spent, 0)
        with pytest.raises(LedgerUnavailable, match="bytes left"):
            session.ledger.probe()
        asks[kind](session, 10)  # asked before, and free
        monkeypatch.undo()
        asks[kind](session, 30)


SPLIT_AGAIN = "import sys, holdfast as hf; hf.hold_back(sys.argv[1], id='id')"


@pytest.mark.filterwarnings("ignore::holdfast.ledger.SharedBudget")
@pytest.mark.parametrize("who", ["a process", "a thread", "a thread in memory"])
def test_of_two_who_split_at_one_instant_nobody_shows_what_the_other_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """The attack: split a table while somebody else is at it; the rows of one are to look at, those of the other held.

    The other one begins when the first has chosen its rows, and has the time that it takes.
    """
    frame = pl.DataFrame({"id": np.arange(ROWS), "x": np.arange(ROWS) // 2})
    path, choose = tmp_path / "t.parquet", parts.without_replacement
    frame.write_parquet(path)
    found: list[pl.DataFrame] = []
    ids: list[list[int]] = []
    started = threading.Event()
    data = frame if who == "a thread in memory" else path

    def split() -> None:
        shown, session = hf.hold_back(data, id="id")
        found.append(shown)
        session.close()

    def chosen(*args: Any) -> Any:
        if not started.is_set():
            started.set()
            if who == "a process":
                others.append(subprocess.Popen([sys.executable, "-c", SPLIT_AGAIN, str(path)]))
                with suppress(subprocess.TimeoutExpired):
                    others[0].wait(6.0)
            else:
                others.append(threading.Thread(target=split))
                others[0].start()
                others[0].join(1.0)
        rows = choose(*args)
        ids.append(sorted(np.asarray(rows).tolist()))
        return rows

    others: list[Any] = []
    monkeypatch.setattr(parts, "without_replacement", chosen)
    with suppress(RowSourceError):
        split()
    assert (others[0].wait(60) if who == "a process" else others[0].join(60)) in (0, None)
    shown = [sorted(one["id"].to_list()) for one in found]
    if who != "a thread in memory":
        seen, held = pl.read_parquet(tmp_path / "t.explore.parquet"), FolderRows(tmp_path / "t.held.holdfast")
        shown.append(sorted(seen["id"].to_list()))
        every = pl.concat([seen["x"], held.frame(np.arange(len(held)))["x"]])
        assert every.sort().to_list() == frame["x"].to_list()
    assert len(shown) > 1
    assert all(each == ids[0] for each in shown)


ASK = "import sys, holdfast as hf; hf.Session(sys.argv[1]).mean('label')"


def test_labels_are_not_asked_while_they_are_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack: ask the labels between the look at whether anybody has, and the note that they are sealed."""
    path, write = tmp_path / "t.parquet", sealing.write_private_rows
    pl.DataFrame({"id": np.arange(ROWS), "label": np.arange(ROWS) % 2 == 0}).write_parquet(path)
    asking: list[subprocess.Popen[bytes]] = []

    def written(*args: Any, **options: Any) -> Any:
        asking.append(subprocess.Popen([sys.executable, "-c", ASK, str(path)], stderr=subprocess.PIPE))
        with suppress(subprocess.TimeoutExpired):
            asking[0].wait(4.0)
        return write(*args, **options)

    monkeypatch.setattr(sealing, "write_private_rows", written)
    hf.Board(path).close()
    _, said = asking[0].communicate(timeout=60)
    assert asking[0].returncode == 1
    assert b"sealed as t.board.holdfast" in said
