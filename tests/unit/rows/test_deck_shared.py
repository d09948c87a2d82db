"""One deck for several threads, processes and ledgers: every card once, nobody waits for ever, refusals are free."""

import fcntl
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.errors import BudgetExhausted, InvalidArgument, PlanConflict, RowSourceError
from holdfast.ledger import Cost
from holdfast.ledger import ledger as ledgers
from holdfast.ledger.opening import forget_all
from holdfast.ledger.places import NOTHING, PlacesAhead, grant, take_ahead
from holdfast.ledger.store import START
from holdfast.process import this_process
from holdfast.rows.decks import deck as deck_module
from holdfast.rows.decks.deal import deal
from holdfast.rows.decks.deck import Deck
from holdfast.rows.decks.used import Mark

ROWS = 20_000
pytestmark = pytest.mark.filterwarnings("ignore::holdfast.guarantees.plan.VacuousPlan")  # decks are small here

PATIENCE = 10.0  # seconds; whoever takes longer hangs

forks = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")  # the runner has threads


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.parquet"
    pl.DataFrame({"id": np.arange(ROWS)}).write_parquet(path)
    return path


@pytest.fixture
def deck(table: Path) -> Deck:
    return dealt(table, 2_000)


def dealt(table: Path, cards: int, file: str = "t", **options: Any) -> Deck:
    made = deal(table, table.with_name(f"{file}.deck"), cards=cards, **options)
    assert isinstance(made, Deck)
    return made


def at_once(*works: Callable[[], object]) -> None:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)


def start_child(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        signal.alarm(int(PATIENCE))
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def code_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# -- threads and processes ------------------------------------------------------------------------------------------


def test_two_threads_that_use_a_fresh_deck_leave_nothing_locked(deck: Deck, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one opens the file, if it may, between the moments when the first locks and unlocks it."""
    open_, pread = os.open, os.pread
    both, locked, second_open = threading.Barrier(2), threading.Event(), threading.Event()

    def opened(path: Any, *args: Any, **options: Any) -> int:
        if Path(path).name != "used":
            return open_(path, *args, **options)
        try:
            if both.wait(0.5) == 0:
                locked.wait(0.5)
                threading.Timer(0.1, second_open.set).start()
        except threading.BrokenBarrierError:
            second_open.set()  # one thread opens it, and no other will
        return open_(path, *args, **options)

    def read(*args: Any) -> bytes:
        locked.set()
        second_open.wait(0.5)
        return pread(*args)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "pread", read)
    at_once(lambda: deck.hand("ledger", 0, 10), lambda: deck.hand("ledger", 10, 10))
    at_once(lambda: deck.hand("ledger", 20, 10))
    assert deck.used == Mark(30, "ledger")
    with (deck.location / "used").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@forks
def test_a_child_that_is_forked_while_a_thread_uses_the_deck_goes_on(deck: Deck) -> None:
    deck.hand("ledger", 0, 10)
    with deck._used.lock:
        child = start_child(lambda: deck.hand("ledger", 10, 1_990).verify())
        assert code_of(child) == 0
    assert deck.used.cards == 2_000


@forks
def test_parent_and_child_write_one_after_the_other(deck: Deck) -> None:
    deck.hand("ledger", 0, 10)
    file = deck._used._file
    assert file is not None
    fcntl.flock(file, fcntl.LOCK_EX)
    child = start_child(lambda: deck.hand("ledger", 10, 10))
    threading.Event().wait(0.3)
    assert deck.used.cards == 10  # the child waits for its parent
    fcntl.flock(file, fcntl.LOCK_UN)
    assert code_of(child) == 0
    assert deck.used.cards == 20


def test_a_thread_that_knows_of_fewer_cards_does_not_undo_what_another_has_joined(
    table: Path, deck: Deck, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        deal(table, deck.location, cards=100, next=True)
    listed, looked, calls = deck_module.deals_in, threading.Event(), count()

    def slowly(folder: Path) -> list[Path]:
        found = listed(folder)
        if next(calls):
            return found
        looked.set()
        time.sleep(0.3)
        return found[:-1]  # the last ones were not there yet

    def later() -> None:
        looked.wait(5)
        deck.require(2_110, 10)

    monkeypatch.setattr(deck_module, "deals_in", slowly)
    at_once(lambda: deck.require(2_000, 10), later)
    monkeypatch.undo()
    assert [each.location.name for each in deck._deals if each.location] == ["0001", "0002", "0003"]
    assert deck.cards == range(2_200)


def test_new_cards_are_joined_though_old_ones_were_removed(table: Path) -> None:
    dealt(table, 100)
    deck = dealt(table, 100, next=True)
    shutil.rmtree(deck.location / "0001")
    deal(table, deck.location, cards=100, next=True)
    deck.require(250, 50)


def test_cards_that_were_cut_off_are_refused(table: Path) -> None:
    """Reading them would end the process."""
    deck = dealt(table, 2_000, distinct=True)
    (cards,) = deck._deals
    (file,) = (deck.location / "0001").glob("00001.values.npy")
    os.truncate(file, 128)
    with pytest.raises(RowSourceError, match="is damaged"):
        cards.which(range(2_000))


# -- ledgers --------------------------------------------------------------------------------------------------------


def test_a_deck_is_used_by_one_ledger(deck: Deck) -> None:
    deck.hand("one", 0, 10)
    for other in (deck, Deck(deck.location)):
        with pytest.raises(PlanConflict, match="used by another ledger"):
            other.hand("two", 10, 10)
    assert deck.used == Mark(10, "one")


def test_of_two_ledgers_opened_before_either_began_one_is_refused(deck: Deck, tmp_path: Path) -> None:
    with (
        hf.Session(deck.location, ledger=tmp_path / "one.ledger", queries=50, rows_per_query=20) as one,
        hf.Session(deck.location, ledger=tmp_path / "two.ledger", queries=50, rows_per_query=20) as two,
    ):
        one.mean("id > 5")
        for _ in range(2):
            forget_all()  # as if nobody but the deck remembered the other ledger
            (tmp_path / "t.deck.witness").unlink(missing_ok=True)
            with pytest.raises(PlanConflict, match="used by another ledger"):
                two.mean("id > 5")
        assert two.ledger.spent.charge == 0
        one.mean("id > 6")


def test_of_two_ledgers_that_began_in_one_instant_the_second_is_refused_before_it_pays(
    deck: Deck, tmp_path: Path
) -> None:
    with (
        hf.Session(deck.location, ledger=tmp_path / "one.ledger", queries=50, rows_per_query=20) as one,
        hf.Session(deck.location, ledger=tmp_path / "two.ledger", queries=50, rows_per_query=20) as two,
    ):

        def alone(step: Callable[[], object]) -> None:
            forget_all()  # as if nobody but the deck remembered the other ledger
            (tmp_path / "t.deck.witness").unlink(missing_ok=True)
            step()

        alone(one.answering.plan.begin)
        alone(two.answering.plan.begin)
        alone(lambda: one.mean("id > 5"))
        for ask in (lambda: two.mean("id > 5"), lambda: two.ask_many(["id > 5", "id > 6"])):
            with pytest.raises(PlanConflict, match="used by another ledger"):
                alone(ask)
        assert two.ledger.spent.charge == 0
        assert deck.used.ledger == one.ledger.first


def test_a_deck_that_is_too_small_is_not_claimed(deck: Deck) -> None:
    with hf.Session(deck.location, queries=50, rows_per_query=2_001) as session:
        with pytest.raises(BudgetExhausted, match="2,000 of its 2,000 cards are left"):
            session.mean("id > 5")
        assert deck.used == Mark(0, "")
        session.mean("id > 5", rows_per_query=20)
        assert deck.used[:2] == (20, session.ledger.first)


def test_a_deck_is_claimed_once_and_by_one_ledger(deck: Deck) -> None:
    deck.claim("one")
    assert deck.used == Mark(0, "one")
    deck.hand("one", 0, 10)
    for other in (Deck(deck.location), deck):
        other.claim("one")
        with pytest.raises(PlanConflict, match="used by another ledger, up to card 10"):
            other.claim("two")
    assert deck.used == Mark(10, "one")


def test_a_ledger_that_somebody_else_began_is_compared_with_the_deck(table: Path, tmp_path: Path) -> None:
    numbered = dealt(table, 30_000, "a", distinct=True, name="t")
    plain = dealt(table, 30_000, "b", name="t")
    ledger = tmp_path / "both.ledger"
    with (
        hf.Session(plain, ledger=ledger, queries=6) as early,
        hf.Session(numbered, ledger=ledger, queries=6, guarantee="dp", mechanism="laplace") as first,
    ):
        first.mean("id < 9000")
        with pytest.raises(InvalidArgument, match="Deal a deck with distinct=True"):
            early.mean("id < 8000")
        assert first.ledger.spent.intervals == 1


def test_a_session_that_opens_while_another_takes_cards_does_not_take_its_ledger_for_an_old_copy(deck: Deck) -> None:
    deck.hand("ledger", 0, 10, (10, 1, 1))

    def taken() -> Cost:
        deck.hand("ledger", 10, 10, (20, 2, 2))  # somebody else, just now
        return Cost(10, 1)

    deck.join("ledger", taken, lambda taken: taken.charge)


# -- the last cards -------------------------------------------------------------------------------------------------


def test_who_would_get_a_place_behind_the_last_card_is_refused_for_free(
    deck: Deck, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hf.Session(deck.location, queries={"mean": 2_000, "flip": 3_000}, rows_per_query=1) as session:
        for i in range(40):
            session.mean(f"id > {i}")
        ahead = session.ledger._stock.total[0]
        assert ahead > 3
        monkeypatch.setattr(ledgers, "_shared", {})  # as another process would have it
        with hf.Session(deck.location) as other:
            other.ledger.reserve(Cost(2_000 - 5 - other.ledger.taken.charge, 1))
        spent = session.ledger.spent
        with pytest.raises(BudgetExhausted, match="5 of its 2,000 cards are left"):
            session.flips("id > 100", ahead + 3)  # what is ahead and what is left are apart
        with pytest.raises(BudgetExhausted, match="5 of its 2,000 cards are left"):
            session.ask_many([{"kind": "flips", "query": "id > 100", "count": ahead + 3}])
        assert session.ledger.spent == spent
        session.flips("id > 100", ahead)


@pytest.mark.parametrize("queries", [5_000, None])
def test_nothing_is_taken_ahead_behind_the_last_card(table: Path, deck: Deck, queries: int | None) -> None:
    with hf.Session(deck.location, queries=queries, rows_per_query=20) as session:
        for i in range(100):
            session.mean(f"id > {i}")
            assert session.ledger.taken.charge <= 2_000
        with pytest.raises(BudgetExhausted, match="0 of its 2,000 cards are left"):
            session.mean("id > 1000")
        deal(table, deck.location, cards=1_000, next=True)
        session.mean("id > 1000")
        session.ask_many([f"id > {i}" for i in range(2_000, 2_030)])


def test_a_place_that_was_taken_ahead_for_a_longer_deck_is_not_used(table: Path, tmp_path: Path) -> None:
    """Two sessions of one process have one stock."""
    short, long = dealt(table, 500, "short", name="t"), dealt(table, 200_000, "long", name="t")
    ledger = tmp_path / "both.ledger"
    with (
        hf.Session(long, ledger=ledger, queries=50_000, rows_per_query=10) as one,
        hf.Session(short, ledger=ledger) as other,
    ):
        for i in range(60):
            one.mean(f"id > {i}")
        spent = one.ledger.spent
        with pytest.raises(BudgetExhausted, match="0 of its 500 cards are left"):
            other.mean("id > 1000")
        assert one.ledger.spent == spent
        one.mean("id > 1000")


def test_the_mark_keeps_the_most_of_each_amount_that_was_given_out(deck: Deck) -> None:
    """A place that is cut from what was taken ahead can have later cards and earlier statements than another's."""
    caps = Cost(10**6, 10**6)
    ahead, tip = take_ahead(START.taking(0, 0, 0), caps, None, PlacesAhead(Cost(10, 1), 4, 0))
    ends = []
    for stock, cost in ((NOTHING, Cost(10, 3)), (ahead, Cost(100, 1))):  # of another process; then of this one
        place, _, tip = grant(stock, tip, cost, this_process.number)
        ends.append((place.charge + cost.charge, place.intervals + cost.intervals, place.number))
    assert ends[1] > ends[0]
    assert ends[1][1:] < ends[0][1:]
    for start, end in enumerate(ends):
        deck.hand("ledger", 10 * start, 10, end)
    assert deck.used.taken == (ends[1][0], *ends[0][1:])
    with pytest.raises(PlanConflict, match="it is an old copy"):
        deck.join("ledger", lambda: Cost(ends[1][0] + 1, ends[0][1] - 1), lambda _: 1_000)
