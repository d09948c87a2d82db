"""Dealers and sessions on a deck, killed: no deck that opens is not whole, and no card is read for two questions."""

import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from holdfast.errors import BudgetExhausted, InvalidArgument, RowSourceError
from holdfast.ledger import ledger as ledger_
from holdfast.ledger.opening import forget_all
from holdfast.rows import fingerprint
from holdfast.rows.decks import cards as cards_
from holdfast.rows.decks import dealing, placing, sorting, supply
from holdfast.rows.decks.deal import deal
from holdfast.rows.decks.deck import Cards, Deck
from holdfast.rows.disk.folder import DIVISION
from holdfast.session.session import Session
from killed import NEVER, Ended, Forks
from ledger_writer import environment

ROWS = 100_000

DEALER = """
import os, secrets
from pathlib import Path
from killed import count_events
from holdfast.rows import fingerprint
from holdfast.rows.decks import cards, sorting
from holdfast.rows.disk import array_files, folder
from holdfast.rows.decks.deal import deal

cards.CHUNK = 10_000
fingerprint._MOST_DISTINCT = 70  # of the texts of one column more come up, halfway
sorting.MOST = sorting.LEAST = 1_000
sorting._RUN = 1  # so that there are several runs
count_events(
    (array_files.ArrayFile, "append"), (array_files.ArrayFile, "close"), (folder.Manifest, "write"),
    (sorting.Runs, "write"), (sorting.Runs, "collect"), (os, "fsync"), (Path, "rename"), (Path, "mkdir"),
)

def act(table, deck, secret, next, slices, unit, checks):
    secrets.token_bytes = lambda count: secret.encode().ljust(count)
    deal(table, deck, cards=5_000 if unit is None else 50, next=next, slices=slices, unit=unit, checks=checks)
"""


class Dealers(Forks):
    """Deal in processes of their own."""

    def deal(
        self,
        table: Path,
        deck: Path,
        *,
        secret: str = "other",
        next: bool = False,
        slices: int = 1,
        unit: str | None = None,
        checks: float | None = None,
        kill_before: int = NEVER,
    ) -> Ended:
        return self.run(str(table), str(deck), secret, next, slices, unit, checks, kill_before=kill_before)

    def whole(self, table: Path, deck: Path, **how: Any) -> int:
        """Deal it all; return how many events that took."""
        done = self.deal(table, deck, **how)
        assert done.code == 0, done.error
        return done.events

    def killed(self, table: Path, deck: Path, kill_before: int, **how: Any) -> Path:
        """Be killed; return what is left."""
        assert self.deal(table, deck, kill_before=kill_before, **how).killed
        return deck / ".deal.partial"


@pytest.fixture(scope="module")
def dealers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dealers]:
    with Dealers(DEALER, tmp_path_factory.mktemp("said")) as forks:
        yield forks


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.parquet"
    pl.DataFrame({"x": np.arange(ROWS), "text": [f"text {i * 100 // ROWS}" for i in range(ROWS)]}).write_parquet(path)
    return path


def must_be_whole(deck: Path, deals: int) -> None:
    opened = Deck(deck)
    opened.verify()
    assert len(opened._deals) == deals
    assert opened.cards == range(5_000 * deals)
    assert {each.name for each in deck.iterdir()} - {"used"} == {f"{i + 1:04d}" for i in range(deals)}
    opened.close()


@pytest.mark.slow
@pytest.mark.parametrize("next", [False, True])
def test_a_killed_dealer_leaves_no_deck_that_is_not_whole(
    dealers: Dealers, table: Path, tmp_path: Path, next: bool
) -> None:
    deck = tmp_path / "t.deck"
    before = int(next)
    first = tmp_path / "first.deck"
    if next:
        deal(table, first, cards=5_000)
        shutil.copytree(first, tmp_path / "count.deck")
    events = dealers.whole(table, tmp_path / "count.deck", secret="first", next=next)
    # those at the end are the delicate ones: manifest, durability, renaming
    for number in sorted({*range(0, events, events // 5), *range(events - 5, events)}):
        shutil.rmtree(deck, ignore_errors=True)
        if next:
            shutil.copytree(first, deck)
        dealers.killed(table, deck, number, secret="first", next=next)
        try:
            opened = Deck(deck)
        except RowSourceError:
            assert not next
        else:
            opened.close()
            if len(opened._deals) > before:  # it was killed after renaming
                must_be_whole_inside(opened)
                continue
        # whoever goes on deals the same cards, or new ones if nothing was begun
        kept = dealers.whole(table, deck, next=next) < events
        must_be_whole(deck, before + 1)
        same = bytes_of(deck, before + 1) == bytes_of(tmp_path / "count.deck", before + 1)
        assert same == kept, number


def bytes_of(deck: Path, number: int = 1) -> dict[str, bytes]:
    """What the cards of a deal are, and the rows that are kept for checks."""
    files = [*(deck / f"{number:04d}").glob("*.npy"), *(deck / "kept").glob("*.npy")]
    return {f"{file.parent.name} {file.name}": file.read_bytes() for file in sorted(files)}


@pytest.mark.slow
def test_whoever_goes_on_deals_the_same_cards(dealers: Dealers, table: Path, tmp_path: Path) -> None:
    """Killed three times at different stages, with two slices; who goes on does not know the secret."""
    whole, how = [tmp_path / f"whole-{i}-of-2.deck" for i in (1, 2)], {"slices": 2, "checks": 0.1}
    events = dealers.whole(table, tmp_path / "whole.deck", secret="first", **how)
    decks = [tmp_path / f"t-{i}-of-2.deck" for i in (1, 2)]
    for i, at in enumerate((events // 4, events // 4, events // 2)):
        dealers.killed(table, tmp_path / "t.deck", at, secret="first" if i == 0 else "other", **how)
        assert (decks[0] / ".deal.partial" / "begun.json").exists()
    assert dealers.whole(table, tmp_path / "t.deck", **how) < events  # some had been done
    for deck, expected in zip(decks, whole, strict=True):
        assert bytes_of(deck) == bytes_of(expected)
        assert {each.name for each in deck.iterdir()} == {"0001", "kept"}


@pytest.mark.slow
@pytest.mark.parametrize("slices", [1, 2])
def test_no_deck_that_opens_has_its_secret_beside_it(
    dealers: Dealers, table: Path, tmp_path: Path, slices: int
) -> None:
    """Killed at every moment at the end, when the cards get their names."""
    names = ["t.deck"] if slices == 1 else ["t-1-of-2.deck", "t-2-of-2.deck"]
    how: dict[str, Any] = {"slices": slices, "checks": 0.1}
    (tmp_path / "whole").mkdir()
    events = dealers.whole(table, tmp_path / "whole" / "t.deck", secret="first", **how)
    whole = [bytes_of(tmp_path / "whole" / name) for name in names]
    secret, opened = b"first".ljust(32).hex().encode(), 0
    for number in range(events - 12 * slices, events):
        folder = tmp_path / str(number)
        folder.mkdir()
        dealers.killed(table, folder / "t.deck", number, secret="first", **how)
        there = [name for name in names if (folder / name / "0001").exists()]
        kept_secret = [each for each in folder.rglob("*.json") if each.name != DIVISION and secret in each.read_bytes()]
        assert not (there and kept_secret), number
        opened += bool(there)
        dealers.whole(table, folder / "t.deck", **how)  # who goes on does not know the secret, and needs it no more
        assert [bytes_of(folder / name) for name in names] == whole
        assert not list(folder.rglob(".deal.partial"))
        shutil.rmtree(folder)
    assert opened


def interrupted_before_names(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(dealing, "swap_in", interrupted)
        with pytest.raises(KeyboardInterrupt):
            act()


def test_cards_that_only_have_to_be_named_can_still_be_refused(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever goes on after an interrupt may declare more columns, call the data otherwise, find less than was left."""
    deck = tmp_path / "t.deck"

    def begun() -> None:
        shutil.rmtree(deck, ignore_errors=True)
        interrupted_before_names(monkeypatch, lambda: deal(source, deck, cards=5_000))

    source = tmp_path / "missing.parquet"
    pl.read_parquet(table).with_columns(some=pl.when(pl.col("x") > 10).then(1.0)).write_parquet(source)
    begun()
    with pytest.raises(InvalidArgument, match="'some' has some"):
        deal(source, deck, cards=5_000, complete=["some"])
    assert not deck.exists()
    begun()
    made = deal(source, deck, cards=5_000, complete=["x"], name="other")
    assert isinstance(made, Deck)
    made.verify()
    assert (made.name, Deck(deck).name) == ("other", "other")
    assert [column.name for column in Deck(deck).schema if not column.nullable] == ["x"]
    begun()
    (deck / ".deal.partial" / "t.deck" / "manifest.json").unlink()
    with pytest.raises(RowSourceError, match=r"so it is removed\. Deal again"):
        deal(source, deck, cards=5_000)


def test_a_slice_that_was_dealt_into_meanwhile_is_not_given_the_same_numbers(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deck = tmp_path / "t.deck"
    deal(table, deck, cards=100, slices=2)
    interrupted_before_names(monkeypatch, lambda: deal(table, deck, cards=200, slices=2, next=True))
    deal(table, tmp_path / "t-2-of-2.deck", cards=50, next=True)
    decks = deal(table, deck, cards=200, slices=2, next=True)
    assert isinstance(decks, list)
    assert [deck.cards for deck in decks] == [range(300), range(350)]
    for deck in decks:
        deck.verify()


@pytest.mark.slow
def test_interrupts_at_any_moment_change_no_card(table: Path, tmp_path: Path, seed: int) -> None:
    """In one process, which goes on, as a notebook does; some are interrupted again while they end."""
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(table), str(tmp_path), str(seed)],
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 5  # how many interrupts came in time depends on the machine


INTERRUPTED = """
import faulthandler, random, secrets, shutil, signal, sys, threading, time
from pathlib import Path
from holdfast.errors import RowSourceError
from holdfast.rows import fingerprint
from holdfast.rows.decks import cards, sorting
from holdfast.rows.decks.deal import deal

faulthandler.dump_traceback_later(100, exit=True)
cards.CHUNK = 10_000
fingerprint._MOST_DISTINCT = 70
sorting.MOST = sorting.LEAST = 1_000
sorting._RUN = 1
secrets.token_bytes = lambda count: b"first".ljust(count)
table, folder, chance, interrupted = sys.argv[1], Path(sys.argv[2]), random.Random(int(sys.argv[3])), 0

def bytes_of(folder):
    return {file.name: file.read_bytes() for file in (folder / "0001").glob("*.npy")}

whole, deck = folder / "whole.deck", folder / "t.deck"
deal(table, whole, cards=5_000, name="t")
begin = time.perf_counter()
deal(table, deck, cards=5_000)
took = time.perf_counter() - begin
signal.signal(signal.SIGALRM, signal.default_int_handler)
for _ in range(25):
    shutil.rmtree(deck)
    for _ in range(10):
        try:
            signal.setitimer(signal.ITIMER_REAL, 1e-4 + took * chance.random(), chance.choice([0, 0.001, 0.01]))
            try:
                deal(table, deck, cards=5_000)
            finally:
                while signal.getitimer(signal.ITIMER_REAL)[0]:
                    try:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                    except KeyboardInterrupt:
                        pass
            break
        except KeyboardInterrupt:
            interrupted += 1
        except RowSourceError as problem:  # it was done when it was interrupted
            assert "is there already" in str(problem), problem
            break
        while [each for each in threading.enumerate() if each.name == "holdfast deal"]:
            time.sleep(0.001)  # those that were interrupted while they began end by themselves
    else:
        deal(table, deck, cards=5_000)
    assert bytes_of(deck) == bytes_of(whole)
print(interrupted)
"""


def test_an_interrupt_leaves_what_the_same_call_goes_on_with(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deck, left, collect = tmp_path / "t.deck", 5, sorting.Runs.collect
    monkeypatch.setattr(cards_, "CHUNK", 10_000)
    monkeypatch.setattr(sorting, "LEAST", 500)
    monkeypatch.setattr(sorting, "BLOCK_BYTES", 1)

    def interrupted(self: sorting.Runs, piece: sorting.Piece) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        collect(self, piece)

    monkeypatch.setattr(sorting.Runs, "collect", interrupted)
    with pytest.raises(KeyboardInterrupt):
        deal(table, deck, cards=5_000)
    begun = deck / ".deal.partial"
    assert begun.stat().st_mode & 0o777 == 0o700
    with pytest.raises(RowSourceError, match="dealing was not finished"):
        Deck(deck)
    left = 100
    deal(table, deck, cards=5_000)
    assert left == 100 - 6  # of ten chunks, four were done
    must_be_whole(deck, 1)
    # a table that has changed, or another number of cards, is another deal
    shutil.rmtree(deck)
    left = 5
    with pytest.raises(KeyboardInterrupt):
        deal(table, deck, cards=5_000)
    left = 100
    deal(table, deck, cards=6_000)
    assert left == 100 - 10
    assert [each.name for each in deck.iterdir()] == ["0001"]


@pytest.mark.parametrize(
    ("where", "lazy", "how"),
    [
        ((supply.Spool, "write"), True, {}),
        ((sorting.Runs, "collect"), True, {}),
        ((supply.Spool, "write"), False, {"unit": "text"}),
        ((fingerprint.Content, "add"), False, {"checks": 0.1}),
    ],
    ids=["a stream is read", "a stream is dealt", "rows are grouped", "rows are set aside"],
)
def test_an_interrupt_leaves_nothing_of_what_cannot_be_resumed(
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    where: tuple[Any, str],
    lazy: bool,
    how: dict[str, Any],
) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    source, deck = pl.scan_parquet(table) if lazy else table, tmp_path / "t.deck"
    with monkeypatch.context() as patch:
        patch.setattr(*where, interrupted)
        with pytest.raises(KeyboardInterrupt):
            deal(source, deck, cards=50, progress=True, **how)
    assert not deck.exists()
    assert "the same call starts over" in " ".join(capsys.readouterr().err.split())
    deal(source, deck, cards=50, progress=True, **how)
    Deck(deck).verify()
    assert "resumed" not in capsys.readouterr().err


def test_an_interrupt_while_a_file_of_marks_is_made_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the second of ten chunks has missing values: what comes later does not make the file any longer."""
    table, deck, make_room, left = tmp_path / "t.parquet", tmp_path / "t.deck", placing.make_room, 2
    numbers = [None if 10_000 <= i < 20_000 else i for i in range(ROWS)]
    pl.DataFrame({"x": numbers}).write_parquet(table)
    monkeypatch.setattr(cards_, "CHUNK", 10_000)
    monkeypatch.setattr(sorting, "LEAST", 500)
    monkeypatch.setattr(sorting, "_RUN", 1)
    monkeypatch.setattr(dealing, "ranges_for", lambda *args: 1)
    monkeypatch.setattr(sorting, "BLOCK_BYTES", 1)

    def interrupted(file: int, length: int) -> None:
        nonlocal left
        left -= 1
        if left == 0:  # the first one is of the values
            raise KeyboardInterrupt
        make_room(file, length)

    monkeypatch.setattr(placing, "make_room", interrupted)
    with pytest.raises(KeyboardInterrupt):
        deal(table, deck, cards=5_000)
    deal(table, deck, cards=5_000)
    must_be_whole(deck, 1)
    assert left == -1  # the file was made, and the other one not again: nothing was dealt anew
    assert {file.suffix for file in (deck / "0001").iterdir()} == {".npy", ".json"}


def must_be_whole_inside(deck: Deck) -> None:
    deck.verify()
    assert deck.cards.stop % 5_000 == 0


# -- what somebody else did meanwhile -------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_was_left_and_changed_is_noticed(dealers: Dealers, table: Path, tmp_path: Path) -> None:
    """Files cut off, emptied or removed between two attempts: said in words, or the same cards; never other ones."""
    events = dealers.whole(table, tmp_path / "whole.deck", secret="first")
    whole, left = bytes_of(tmp_path / "whole.deck"), {}
    for share in (0.3, 0.8):
        left[share] = dealers.killed(table, tmp_path / str(share) / "t.deck", int(share * events), secret="first")
    said = 0
    for share, name, change in [
        (0.3, "runs/runs", "cut"),
        (0.3, "runs/000000.json", "empty"),
        (0.3, "runs/000001.json", "remove"),
        (0.3, "begun.json", "empty"),
        (0.3, "t.deck/00000.values.npy", "cut"),
        (0.3, "t.deck/00000.values.npy", "remove"),
        (0.8, "t.deck/00000.values.npy", "cut"),
        (0.8, "runs/runs", "cut"),
        (0.8, "t.deck.in-order", "empty"),
        (0.8, "t.deck.in-order", "remove"),
    ]:
        deck = tmp_path / "t.deck"
        shutil.copytree(left[share].parent, deck)
        *_, file = sorted((deck / left[share].name).glob(name))
        if change == "remove":
            file.unlink()
        else:
            with file.open("r+b") as opened:
                opened.truncate(file.stat().st_size // 2 if change == "cut" else 0)
        again = dealers.deal(table, deck)
        if again.code:
            assert "so it is removed. Deal again." in again.error, (name, change, again.error)
            assert not (deck / ".deal.partial").exists()
            dealers.whole(table, deck)
            must_be_whole(deck, 1)
            said += 1
        else:
            must_be_whole(deck, 1)
            assert bytes_of(deck) == whole or name == "begun.json", (name, change)
        shutil.rmtree(deck, ignore_errors=True)
    assert said >= 3


@pytest.mark.slow
@pytest.mark.parametrize("unit", [None, "text"])
def test_a_table_that_changed_between_two_attempts_is_dealt_anew(
    dealers: Dealers, table: Path, tmp_path: Path, unit: str | None
) -> None:
    deck = tmp_path / "t.deck"
    events = dealers.whole(table, tmp_path / "whole.deck", secret="first", unit=unit)
    dealers.killed(table, deck, int(0.4 * events), secret="first", unit=unit)
    pl.read_parquet(table).with_columns(pl.col("x") + ROWS).write_parquet(table)
    dealers.whole(table, deck, unit=unit)
    values = np.load(deck / "0001" / "00000.values.npy")
    assert values.min() >= ROWS  # not one card is of the old table


@pytest.mark.slow
def test_units_are_dealt_alike_whoever_goes_on(dealers: Dealers, table: Path, tmp_path: Path) -> None:
    events = dealers.whole(table, tmp_path / "whole.deck", secret="first", unit="text")
    whole = bytes_of(tmp_path / "whole.deck")
    for share in (0.3, 0.8):
        deck = tmp_path / "t.deck"
        dealers.killed(table, deck, int(share * events), secret="first", unit="text")
        dealers.whole(table, deck, unit="text")
        assert bytes_of(deck) == whole
        shutil.rmtree(deck)


@pytest.mark.slow
def test_two_dealers_at_once_deal_one_deck(table: Path, tmp_path: Path) -> None:
    script = "import sys, holdfast; holdfast.deal(sys.argv[1], sys.argv[2], cards=5_000)"
    command = [sys.executable, "-c", script, str(table), str(tmp_path / "t.deck")]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, env=environment()) for _ in range(2)]
    said = [each.communicate()[1].decode() for each in both]
    assert sorted(each.returncode for each in both) == [0, 1]
    assert "is there already" in "".join(said)
    must_be_whole(tmp_path / "t.deck", 1)


# -- sessions -------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for a kill inside this process: nobody catches it, nothing is closed."""


def test_no_card_is_read_twice_whatever_kills_the_session(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance, read = random.Random(seed), np.zeros(60_000, int)
    deck = deal(table, tmp_path / "t.deck", cards=60_000)
    assert isinstance(deck, Deck)
    tallied = Cards.tallied

    def noted(self: Cards, query: object, rows: slice, *args: object) -> object:
        if chance.random() < 0.2:
            raise Killed
        read[rows] += 1
        if chance.random() < 0.2:
            raise Killed
        return tallied(self, query, rows, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Cards, "tallied", noted)
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
import os
from holdfast.ledger import ledger
from holdfast.rows.decks.deck import Cards
from holdfast.rows.decks.used import UsedFile
from holdfast.session.session import Session
from killed import count_events

tallied = Cards.tallied

def noted(self, query, rows, *args):
    os.write(shown, f"read {rows.start} {rows.stop}\\n".encode())
    return tallied(self, query, rows, *args)

Cards.tallied = noted
count_events(
    (Cards, "tallied"), (UsedFile, "note"), (ledger.Ledger, "reserve"), (ledger.Ledger, "commit"), (os, "fsync")
)

def act(deck, number, path):
    global shown
    shown = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    session = Session(deck)
    while True:
        number += 1
        session.mean(f"x > {number}")
"""


def test_no_card_is_read_twice_when_processes_are_killed(table: Path, tmp_path: Path, seed: int) -> None:
    chance, shown, rounds = random.Random(seed), tmp_path / "shown", 6
    deck = deal(table, tmp_path / "t.deck", cards=500_000)
    assert isinstance(deck, Deck)
    with Session(deck, queries=500, rows_per_query=200) as session:
        session.mean("x > 5")
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    askers = [Forks(ASKER, tmp_path / "first"), Forks(ASKER, tmp_path / "second")]  # two at once, on one deck
    with askers[0], askers[1], ThreadPoolExecutor(2) as pool:

        def killed(which: int) -> list[bool]:
            numbers = [(2 * i + which) * 10_000 for i in range(rounds)]
            kills = [chance.randrange(10, 120) for _ in numbers]
            return [
                askers[which].run(str(deck.location), number, str(shown), kill_before=kill).killed
                for number, kill in zip(numbers, kills, strict=True)
            ]

        assert all(chain.from_iterable(pool.map(killed, [0, 1])))
    read = np.zeros(500_000, int)
    read[:200] += 1
    for line in shown.read_text().splitlines():
        _, start, stop = line.split()
        read[int(start) : int(stop)] += 1
    assert read.sum() > 10_000
    assert read.max() == 1
