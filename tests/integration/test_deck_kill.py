"""Dealers and sessions on a deck, killed: no deck that opens is not whole, and no card is read for two questions."""

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from holdfast.errors import BudgetExhausted, RowSourceError
from holdfast.ledger import ledger as ledger_
from holdfast.ledger.opening import forget_all
from holdfast.rows.deal import deal
from holdfast.rows.deck import Cards, Deck
from holdfast.session import Session
from ledger_writer import environment

ROWS = 100_000

# Kills itself, with the signal nobody can catch, just before the given event.
DEALER = """
import os, signal, sys
from pathlib import Path
from holdfast.rows import array_files, cards, folder, sorting
from holdfast.rows.deal import deal

cards.CHUNK = 10_000
sorting._MOST = sorting._LEAST = 1_000
left = int(sys.argv[3])

def counted(owner, name):
    act = getattr(owner, name)
    def event(*args, **options):
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return act(*args, **options)
    setattr(owner, name, event)

for owner, name in [
    (array_files.ArrayFile, "append"), (array_files.ArrayFile, "close"), (folder.Manifest, "write"),
    (sorting.Runs, "_write"), (os, "fsync"), (Path, "rename"), (Path, "mkdir"),
]:
    counted(owner, name)
deal(sys.argv[1], sys.argv[2], cards=5_000, next=len(sys.argv) > 4)
print("events", 10**9 - left)
"""


def run_dealer(table: Path, deck: Path, kill_before: int = 10**9, *more: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", DEALER, str(table), str(deck), str(kill_before), *more]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.parquet"
    pl.DataFrame({"x": np.arange(ROWS), "text": [f"text {i % 50}" for i in range(ROWS)]}).write_parquet(path)
    return path


def must_be_whole(deck: Path, deals: int) -> None:
    opened = Deck(deck)
    opened.verify()
    assert len(opened._deals) == deals
    assert opened.cards == range(5_000 * deals)
    assert [each.name for each in deck.iterdir() if each.name != "used"] == [f"{i + 1:04d}" for i in range(deals)]
    opened.close()


@pytest.mark.slow
@pytest.mark.parametrize("next", [False, True])
def test_a_killed_dealer_leaves_no_deck_that_is_not_whole(table: Path, tmp_path: Path, next: bool) -> None:
    deck = tmp_path / "t.deck"
    before = int(next)
    more = ("next",) if next else ()
    if next:
        deal(table, deck, cards=5_000)
        shutil.copytree(deck, tmp_path / "count.deck")
    counted = run_dealer(table, tmp_path / "count.deck", 10**9, *more)
    assert counted.returncode == 0, counted.stderr
    events = int(counted.stdout.split()[1])
    # those at the end are the delicate ones: manifest, durability, renaming
    for number in sorted({*range(0, events, max(1, events // 3)), *range(events - 3, events)}):
        died = run_dealer(table, deck, number, *more)
        assert died.returncode == -signal.SIGKILL
        try:
            opened = Deck(deck)
        except RowSourceError:
            assert not next
            continue
        opened.close()
        if len(opened._deals) > before:  # it was killed after renaming
            must_be_whole_inside(opened)
            return
    assert run_dealer(table, deck, 10**9, *more).returncode == 0
    must_be_whole(deck, before + 1)


def must_be_whole_inside(deck: Deck) -> None:
    deck.verify()
    assert deck.cards.stop % 5_000 == 0


# -- sessions -------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for a kill inside this process: nobody catches it, nothing is closed."""


def test_no_card_is_read_twice_whatever_kills_the_session(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance, read = random.Random(seed), np.zeros(60_000, int)
    deck = deal(table, tmp_path / "t.deck", cards=60_000)
    assert isinstance(deck, Deck)
    tossed = Cards.tossed

    def noted(self: Cards, query: object, rows: slice, *args: object) -> object:
        if chance.random() < 0.2:
            raise Killed
        read[rows] += 1
        if chance.random() < 0.2:
            raise Killed
        return tossed(self, query, rows, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Cards, "tossed", noted)
    kills = number = 0
    session = Session(deck, queries=500, rows_per_query=200)
    while kills < 200:
        number += 1
        try:
            session.mean(f"x > {number}")
        except Killed:
            kills += 1
            # As in a new process: nothing is remembered of what was taken ahead.
            forget_all()
            ledger_._shared.clear()
            session = Session(Deck(deck.location))
        except BudgetExhausted:
            break
    assert kills >= 200 or number > 100
    assert read.max() == 1
    assert read.sum() > 5_000
    session.close()


ASKER = """
import sys
from holdfast.rows.deck import Cards
from holdfast.session import Session

tossed = Cards.tossed
def noted(self, query, rows, *args):
    print("read", rows.start, rows.stop, flush=True)
    return tossed(self, query, rows, *args)
Cards.tossed = noted
session = Session(sys.argv[1])
number = int(sys.argv[2])
while True:
    number += 1
    session.mean(f"x > {number}")
"""


@pytest.mark.slow
def test_no_card_is_read_twice_when_processes_are_killed(table: Path, tmp_path: Path, seed: int) -> None:
    chance, shown = random.Random(seed), tmp_path / "shown"
    deck = deal(table, tmp_path / "t.deck", cards=2_000_000)
    assert isinstance(deck, Deck)
    with Session(deck, queries=500, rows_per_query=200) as session:
        session.mean("x > 5")
    for i in range(4):
        askers = []
        for j in range(2):  # two at once, on one deck
            with shown.open("ab") as output:
                command = [sys.executable, "-W", "error", "-c", ASKER, str(deck.location), str((2 * i + j) * 10_000)]
                askers.append(subprocess.Popen(command, stdout=output, env=environment()))
        size = shown.stat().st_size
        deadline = time.monotonic() + 60
        while shown.stat().st_size < size + 500 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.1))
        for asker in askers:
            asker.kill()
            assert asker.wait() == -signal.SIGKILL
    read = np.zeros(2_000_000, int)
    read[:200] += 1
    lines = [line.split() for line in shown.read_text().splitlines() if line.count(" ") == 2]
    for _, start, stop in lines:
        read[int(start) : int(stop)] += 1
    assert read.sum() > 5_000
    assert read.max() == 1
