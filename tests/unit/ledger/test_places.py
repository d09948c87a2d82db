"""How far all questions begun so far can have come: what a place says when several take places ahead.

Two processes on one ledger are played by two `Ledger` objects that do not share what was taken ahead.
"""

import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import LedgerUnavailable
from holdfast.guarantees.drawers import COINS, STATEMENTS
from holdfast.guarantees.terms import NO_CAP
from holdfast.ledger import Asking, Cost, Ledger, open_ledger
from holdfast.ledger import ledger as ledgers
from holdfast.ledger import places as places_module
from holdfast.ledger.chain import Drawn
from holdfast.ledger.database import Database
from holdfast.ledger.places import ProcessStock, Stock, give_back
from holdfast.ledger.store import APART, Place, Reach, Transaction
from holdfast.ledger.underway import InFlight
from holdfast.process import this_process
from holdfast.session.session import Session

ONE = Cost(10, 1)
FAR = Reach(10**9, 10**9)
TERMS = {"caps": {"charge": NO_CAP, "intervals": NO_CAP}}


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Ledger, Ledger]]:
    opened = []
    for _ in range(2):
        monkeypatch.setattr(ledgers, "_shared", {})  # as another process would have it
        opened.append(open_ledger(tmp_path / "a.ledger", dataset="data", fingerprint="f"))
        opened[0].begin(TERMS)
        assert opened[-1].begun
    yield opened[0], opened[1]
    for ledger in opened:
        ledger.close()


def ask(ledger: Ledger, cost: Cost = ONE) -> Place:
    place = ledger.reserve(cost)
    drawn = Drawn(place, key=None, question={"kind": "mean"}, answer={}, cost=cost, rows_read=1)
    ledger.commit(drawn)
    return place


def test_alone_it_is_the_end_of_the_place(two: tuple[Ledger, Ledger]) -> None:
    places = [ask(two[0]) for _ in range(100)]
    assert [place.reached for place in places] == [10 * number for number in range(1, 101)]
    assert next(two[1].entries(100)).place.reached == 1_000
    two[1].verify()


def test_who_uses_a_place_that_was_taken_before_others_answered_counts_theirs(two: tuple[Ledger, Ledger]) -> None:
    first, second = two
    for _ in range(60):
        ask(first)
    later = ask(second)
    assert later.charge > 600  # the first has places ahead
    early = ask(first)
    assert early.charge < later.charge
    assert early.reached >= later.reached == later.charge + 10
    assert ask(second).reached > early.charge


@pytest.mark.parametrize("seed", range(4))
def test_every_question_begun_before_is_counted(two: tuple[Ledger, Ledger], seed: int) -> None:
    """Two who take turns at random: what a place says is never less than all that was drawn until then."""
    turns, begun = random.Random(seed), 0
    for _ in range(150):
        cost = Cost(turns.choice([1, 10, 35]), 1)
        place = ask(turns.choice(two), cost)
        begun += cost.charge
        assert place.reached >= max(begun, place.charge + cost.charge)
    assert two[0].spent.charge >= begun


@pytest.mark.parametrize("seed", range(3))
def test_two_accounts_in_one_ledger_do_not_count_each_others_shares(
    two: tuple[Ledger, Ledger], seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coins beside checks: numbers of statements stay different and draws are all counted, whoever is killed when.

    A place for coins that was cut from one that a check had taken ahead had the number, and counted the draws, of a
    place that another process was given after that check.
    """
    turns, numbers, cards, drawn = random.Random(seed), set[int](), set[int](), 0
    guess, checked, shown = Cost(COINS, STATEMENTS), Cost(0, STATEMENTS), list(two)
    assert guess.intervals >= APART
    for turn in range(300):
        who = turns.randrange(2)
        if turn % 100 == 99:  # killed: what it had ahead is lost, and another process goes on
            monkeypatch.setattr(ledgers, "_shared", {})
            shown[who] = open_ledger(tmp_path / "a.ledger", dataset="data", fingerprint="f")
        if turns.random() < 0.6:
            place = shown[who].reserve(guess)
            shown[who].commit(Drawn(place, key=None, question={"kind": "check"}, answer={}, cost=checked, rows_read=1))
            continue
        cost = Cost(turns.choice([1, 10, 35]), turns.choice([1, 1, 3]))
        place = ask(shown[who], cost)
        own = {(place.intervals + each) % STATEMENTS for each in range(cost.intervals)}
        drawn += cost.charge
        mine = {place.charge % COINS + each for each in range(cost.charge)}  # the cards that it would have of a deck
        assert not own & numbers
        assert not mine & cards
        assert place.reached % COINS >= drawn
        numbers |= own
        cards |= mine


def test_a_check_moves_nothing_out_of_reach() -> None:
    """What it takes lies above the account of coins, whenever it began."""
    reach = Reach(500, NO_CAP, COINS)
    for checks in range(3):
        assert Place(1, checks * COINS + 400, checks * STATEMENTS).within(reach, Cost(100, 1))
        assert not Place(1, checks * COINS + 400, checks * STATEMENTS).within(reach, Cost(101, 1))
        assert Place(1, checks * COINS + 500, checks * STATEMENTS).within(reach, Cost(COINS, STATEMENTS))
    assert not Place(1, COINS + 400, 0).within(Reach(500, NO_CAP), Cost(100, 1))  # where there is one account


def test_what_is_given_back_is_not_counted_twice_nor_forgotten(tmp_path: Path) -> None:
    reached = []
    for _ in range(3):
        with open_ledger(tmp_path / "a.ledger", dataset="data", fingerprint="f") as ledger:
            ledger.begin(TERMS)
            reached += [ask(ledger).reached for _ in range(40)]
    assert reached == [10 * number for number in range(1, 121)]


@pytest.mark.parametrize("checks", [0, 1])
def test_a_process_takes_no_more_ahead_than_a_tenth_of_what_was_taken(two: tuple[Ledger, Ledger], checks: int) -> None:
    for _ in range(checks):
        ask(two[0], Cost(COINS, STATEMENTS))  # of the other account: no draw
    for number in range(1, 200):
        ask(two[0])
        taken = two[0]._tip().taken_charge - checks * COINS
        assert taken <= 10 * number * 1.1 + 10


def test_an_answer_is_as_wide_as_what_everybody_has_drawn_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as its own place alone would: the step of the first answer kept is the mistake to be made here."""
    with Session({"x": [0, 1] * 1_000}, seed=1) as session:
        session.mean("x > 5")
        reserve = session.ledger.reserve
        monkeypatch.setattr(session.ledger, "reserve", lambda cost, asking: replace(reserve(cost), reached=400_000))
        late = session.mean("x = 1")
        standing = session.plan.standing
        alone, together = (standing.at(charge, 1).step for charge in (4_000, 400_000))
        assert together > 2 * alone
        assert late.high - late.value > together
        assert next(session.ledger.entries(2)).place.reached == 400_000


@pytest.mark.parametrize(("charge", "looks"), [(10**9, 0), (NO_CAP, 20)], ids=["with an end", "endless"])
def test_only_an_endless_ledger_looks_how_far_others_have_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, charge: int, looks: int
) -> None:
    with open_ledger(tmp_path / "a.ledger", dataset="data", fingerprint="f") as ledger:
        ledger.begin({"caps": {"charge": charge, "intervals": NO_CAP}})
        for _ in range(600):
            ask(ledger)
        store, looked = ledger._store, []
        tip = store.tip
        monkeypatch.setattr(store, "tip", lambda: (looked.append(1), tip())[1])
        places = [ledger.reserve(ONE) for _ in range(20)]  # from what was taken ahead
        assert len(looked) == looks
        assert [place.reached for place in places] == [place.charge + 10 for place in places]


# -- a forked child, played by another process id ----------------------------------------------------------------------

STOCK = Stock((range(100),), (range(10),), (range(10),))


@pytest.fixture
def fork(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    child = this_process.number + 1
    return lambda: monkeypatch.setattr(this_process, "number", child)


def test_a_child_that_is_interrupted_while_it_forgets_has_nothing_of_its_parent(
    fork: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, in_flight = ProcessStock(), InFlight()
    own.put(STOCK, this_process.number)
    own.begun(Place(1, 500, 0), ONE, 0)
    parents_turn = in_flight.begin("key", lambda: None)
    fork()
    with monkeypatch.context() as patched:
        patched.setattr(places_module, "deque", interrupt)
        with pytest.raises(KeyboardInterrupt):
            own.take(ONE, FAR)
    assert own.take(ONE, FAR) is None
    assert not any(own.now)
    assert own.begun(Place(1, 0, 0), ONE, 0).reached == 10
    with monkeypatch.context() as patched:
        patched.setattr(InFlight, "_forget", interrupt)
        with pytest.raises(KeyboardInterrupt):
            in_flight.begin("key", lambda: None)
    assert parents_turn is not None
    assert in_flight.begin("key", lambda: None) is not None


def test_a_child_that_goes_on_where_its_parent_was_taking_a_place_has_none(
    fork: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler forks between any two steps, and the child returns from it; it may have used the ledger."""
    parent = this_process.number
    for uses_it in (False, True):
        own = ProcessStock()
        own.put(STOCK, parent)
        cut = Stock.cut

        def forks(stock: Stock, cost: Cost, process: int) -> tuple[Place, Stock] | None:
            monkeypatch.setattr(Stock, "cut", cut)  # noqa: B023
            fork()
            if uses_it:  # noqa: B023
                assert own.take(cost, FAR) is None  # noqa: B023
            return cut(stock, cost, process)  # noqa: B023

        monkeypatch.setattr(Stock, "cut", forks)
        place = own.take(ONE, FAR)
        assert place is not None
        assert Drawn(place, key=None, question={}, answer={}, cost=ONE, rows_read=1).is_forked
        assert own.take(ONE, FAR) is None  # nor what its parent put back
        own.put(STOCK, parent)
        assert own.take(ONE, FAR) is None
        monkeypatch.setattr(this_process, "number", parent)


def interrupt(*args: object, **named: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("kind", [ProcessStock, InFlight])
def test_threads_of_a_child_forget_once(
    fork: Callable[[], None], monkeypatch: pytest.MonkeyPatch, kind: type[ProcessStock] | type[InFlight]
) -> None:
    """A thread that forgot again would hand a question out twice, or forget how far the first one has come."""
    shared, forgotten, ready = kind(), [], threading.Barrier(8)
    forget = kind._forget

    def slowly(self: ProcessStock | InFlight) -> None:
        time.sleep(0.02)
        forget(self)  # type: ignore[arg-type]
        time.sleep(0.02)
        forgotten.append(threading.get_ident())

    def use() -> None:
        ready.wait(30)
        shared.check_process()
        forgotten.append(0)

    monkeypatch.setattr(kind, "_forget", slowly)
    fork()
    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert forgotten[0] != 0
    assert forgotten[1:] == [0] * 8  # nobody goes on before, and nobody forgets again


def test_a_reservation_that_was_undone_does_not_hide_that_another_process_has_failed(
    two: tuple[Ledger, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write of another thread failed, and with it the transaction; before it is tried again, the place is taken."""
    one, other = two
    write, seen = one._watch.write, []

    def undone_once(decide: Callable[[Transaction], None]) -> None:
        def undone(transaction: Transaction) -> None:
            decide(transaction)
            raise RuntimeError

        with pytest.raises(RuntimeError):
            write(undone)
        failing = Asking()
        other.reserve(ONE, failing)
        failing.ended = True
        seen.append(one.answered)
        write(decide)

    monkeypatch.setattr(one._watch, "write", undone_once)
    asking = Asking()
    place = one.reserve(ONE, asking)
    assert [(each.failed, each.under_way) for each in (*seen, one.answered)] == [(1, 0), (1, 1)]
    assert place.number == 2


def test_a_reservation_whose_commit_failed_does_not_hide_it_either(
    two: tuple[Ledger, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread whose commit failed has not come to say so, and meanwhile another process has its place."""
    one, other = two
    asking, failing = Asking(), Asking()
    store = one._store
    assert isinstance(store, Database)

    def full(connection: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(store, "commit", full)
        with pytest.raises(LedgerUnavailable, match="disk is full"):
            one.reserve(ONE, asking)
    other.reserve(ONE, failing)
    failing.ended = True
    assert (one.answered.failed, one.answered.under_way) == (1, 0)


@pytest.mark.parametrize("when", ["take_all", "giving_back"])
def test_a_child_that_goes_on_where_its_parent_was_giving_back_gives_nothing_back(
    two: tuple[Ledger, Ledger], fork: Callable[[], None], monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """By then the parent has given it back, and another process has taken exactly as much and begun to use it."""
    one, other = two
    for _ in range(100):
        ask(one)
    stock = one._stock.now
    ((ahead,), _, _) = stock
    assert ahead.stop == one.taken.charge
    plain = getattr(ProcessStock, when)

    def forks(own: ProcessStock) -> Any:
        monkeypatch.setattr(ProcessStock, when, plain)
        found = plain(own)
        one._watch.write(lambda transaction: setattr(transaction, "tip", give_back(stock, transaction.tip)))  # type: ignore[arg-type]
        places.append(other.reserve(Cost(len(ahead), len(stock.intervals[0]))))
        for ledger in two:  # as the hook does
            ledger._store.close_for_fork()  # type: ignore[attr-defined]
        fork()
        return found

    places: list[Place] = []
    monkeypatch.setattr(ProcessStock, when, forks)
    one.close()
    assert places[0].charge == ahead.start
    assert other.taken.charge == ahead.stop  # not free again


def test_stock_that_two_threads_put_back_is_there_once() -> None:
    """A thread that was interrupted puts it back while the committer undoes the same run, to repeat it."""
    own, stocks = ProcessStock(), [STOCK]

    class Raced(list[Stock]):
        def __len__(self) -> int:
            count = super().__len__()
            if stocks:
                stocks.pop()
                own.put_back(self, this_process.number)
            return count

    used = Raced([STOCK])
    own.put_back(used, this_process.number)
    own.put_back(used, this_process.number)
    assert own.take_all() == STOCK
