"""What every ledger promises, wherever it is: in memory, in SQLite (own file or shared), in PostgreSQL."""

import gc
import hmac
import json
import random
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import (
    BudgetExhausted,
    InvalidArgument,
    LedgerDamaged,
    LedgerUnavailable,
    PlanConflict,
    RowSourceError,
    UnknownName,
)
from holdfast.ledger import (
    Cost,
    Drawn,
    Follower,
    Head,
    Ledger,
    Place,
    Receipt,
    Spent,
    check_receipt,
    exists,
    open_ledger,
)
from holdfast.ledger.opening import forget_all
from holdfast.ledger.places import ProcessStock
from holdfast.ledger.witness import contains
from ledger_writer import ANSWER, FINGERPRINT, QUESTION, begun, commit, fingerprint_of, terms

Open = Callable[..., Ledger]
POSTGRES = pytest.param("postgres", marks=pytest.mark.slow)  # a server is started for it
LASTING = ["file", "sqlite", POSTGRES]


def opener(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str | Path | None, str, Open]:
    location: str | Path | None = None
    if kind == "file":
        location = tmp_path / "trial.ledger"
    elif kind == "sqlite":
        location = f"sqlite:///{tmp_path}/many.db"
    elif kind == "postgres":
        location = request.getfixturevalue("postgres_url")
    dataset = f"trial-{uuid.uuid4().hex}"

    def open_it(plan: dict[str, Any] | None = None, **more: Any) -> Ledger:
        values = {"dataset": dataset, "fingerprint": fingerprint_of(dataset)} | more
        return open_ledger(location, **values) if plan is None else begun(location, plan, **values)

    return location, dataset, open_it


@pytest.fixture(params=["memory", *LASTING])
def opened(request, tmp_path) -> Open:
    return opener(request.param, request, tmp_path)[2]


@pytest.fixture(params=LASTING)
def lasting(request, tmp_path):
    return opener(request.param, request, tmp_path)


def test_a_ledger_is_ready_before_and_after_it_begins(opened):
    with opened() as ledger:
        ledger.probe()  # perhaps there are not even tables yet
        assert ledger.begin(terms(charge=10, intervals=4))
        ledger.probe()


def test_a_new_ledger_is_empty(opened):
    with opened(terms(charge=10, intervals=4)) as ledger:
        assert ledger.spent == Spent(0, 0, 0)
        assert ledger.left == ledger.caps == Cost(10, 4)
        assert ledger.head.seq == 0
        assert ledger.fingerprint.startswith(FINGERPRINT)
        assert not ledger.reproducible
        assert list(ledger.entries()) == []


def test_an_answer_is_kept_and_charged(opened):
    with opened(terms()) as ledger:
        entry = commit(ledger, "k1", charge=7, analyst="ann")
        assert (entry.seq, entry.key, entry.analyst, entry.cost) == (1, "k1", "ann", Cost(7, 1))
        assert (entry.question, entry.answer, entry.rows_read) == (QUESTION, ANSWER, 1_000)
        assert entry.time.endswith("+00:00")
        assert ledger.find("k1") == entry
        assert list(ledger.entries()) == [entry]
        assert ledger.spent == Spent(7, 1, 1)
        assert ledger.head == Head(1, entry.hash)


def test_the_same_question_is_answered_once(opened):
    with opened(terms()) as ledger:
        first = commit(ledger, "k1", charge=7)
        again = commit(ledger, "k1", charge=7, answer={"value": 0.9})
        assert again == first
        assert ledger.spent == Spent(7, 1, 1)


def test_questions_without_a_key_are_never_the_same(opened):
    with opened(terms()) as ledger:
        assert [commit(ledger).seq, commit(ledger).seq] == [1, 2]


def test_a_follower_reads_every_answer_once(opened):
    with opened() as ledger:
        read: list[int] = []
        follower = Follower(ledger, lambda entry: read.append(entry.seq))
        assert follower.caught_up(read.copy) == []  # the ledger has not begun
        ledger.begin(terms())
        for most in (2, 5):
            while ledger.spent.answers < most:
                commit(ledger)
            assert follower.caught_up(read.copy, to=2) == [1, 2]
        for _ in range(2):
            assert follower.caught_up(read.copy) == [1, 2, 3, 4, 5]


def test_an_unknown_key_is_not_found(opened):
    with opened(terms()) as ledger:
        commit(ledger, "k1")
        assert ledger.find("k2") is None


@pytest.mark.parametrize(
    ("caps", "cost", "unit", "fields"),
    [
        ((10, 100), Cost(4, 1), "charge", {"cost": 4, "left": 3, "total": 10}),
        ((100, 1), Cost(1, 1), "answers", {"cost": 1, "left": 0, "total": 1}),
    ],
)
def test_what_does_not_fit_is_refused_and_writes_nothing(opened, caps, cost, unit, fields):
    with opened(terms(*caps)) as ledger:
        commit(ledger, "k1", charge=7)
        head = ledger.head
        with pytest.raises(BudgetExhausted) as refused:
            ledger.reserve(cost)
        assert refused.value.fields == fields | {"unit": unit}
        assert ledger.head == head
        assert ledger.find("k2") is None
        assert commit(ledger, "k1", cost=cost).seq == 1  # what was asked stays free


def test_a_budget_can_be_spent_to_the_last_unit(opened):
    with opened(terms(charge=10)) as ledger:
        commit(ledger, "k1", charge=7)
        with pytest.raises(BudgetExhausted):
            ledger.reserve(Cost(4, 1))
        commit(ledger, "k2", charge=3)
        assert ledger.left.charge == 0
        commit(ledger, "k3", charge=0)


def answered(ledger: Ledger, place: Place, cost: Cost, key: str | None = None) -> Any:
    return ledger.commit(Drawn(place, key=key, question=QUESTION, answer=ANSWER, cost=cost, rows_read=1))


def test_a_place_is_taken_before_the_answer_and_stays_taken(opened):
    with opened(terms(charge=20)) as ledger:
        first, second = ledger.reserve(Cost(7, 1)), ledger.reserve(Cost(5, 2))
        assert (first, second) == (Place(1, 0, 0), Place(2, 7, 1))
        assert ledger.spent == Spent(12, 3, 0)
        entry, fresh = answered(ledger, second, Cost(5, 2))  # in any order
        assert fresh
        assert (entry.seq, entry.place) == (1, second)
        with pytest.raises(BudgetExhausted):
            ledger.reserve(Cost(9, 1))
        assert ledger.reserve(Cost(8, 1)).charge == 12
        assert ledger.spent == Spent(20, 4, 1)
        ledger.verify()
    with opened(terms()) as again:  # a ledger in memory begins anew; all others remember
        assert again.spent.charge in (0, 20)


def test_several_places_are_taken_at_once_or_none(opened, monkeypatch):
    with opened(terms(charge=10, intervals=4)) as ledger:
        transactions, write = [], ledger._store.write
        monkeypatch.setattr(ledger._store, "write", lambda decide: transactions.append(decide) or write(decide))
        places = ledger.reserve_all([Cost(3, 1), Cost(0, 0), Cost(4, 2)])
        assert places == [Place(1, 0, 0), Place(2, 3, 1), Place(3, 3, 1)]
        assert len(transactions) == 1
        with pytest.raises(BudgetExhausted):
            ledger.reserve_all([Cost(1, 1), Cost(1, 1)])  # each would fit alone
        assert (ledger.spent.charge, ledger.spent.intervals) == (7, 3)
        assert ledger.reserve_all([]) == []
        assert ledger.reserve(Cost(3, 1)) == Place(4, 7, 3)


def test_the_draw_that_lost_a_race_stays_paid(opened):
    with opened(terms()) as ledger:
        first, second = ledger.reserve(Cost(7, 1)), ledger.reserve(Cost(7, 1))
        entry, _ = answered(ledger, second, Cost(7, 1), "k1")
        assert answered(ledger, first, Cost(7, 1), "k1") == (entry, False)
        assert ledger.spent == Spent(14, 2, 1)


@pytest.mark.parametrize("seed", range(5))
def test_whatever_questions_cost_their_places_follow_one_another(opened, seed):
    chance, charge, intervals = random.Random(seed), 0, 0
    with opened(terms(charge=20_000, intervals=3_000)) as ledger:
        for number in range(1, 201):
            cost = Cost(chance.choice([0, 0, 1, 3, 3, 50]), chance.choice([0, 1, 1, 2]))
            assert ledger.reserve(cost) == Place(number, charge, intervals)
            charge, intervals = charge + cost.charge, intervals + cost.intervals
            assert ledger.spent == Spent(charge, intervals, 0)
            assert ledger.left == Cost(20_000 - charge, 3_000 - intervals)


@pytest.mark.parametrize("wrong", [Place(1, 7, 1), Place(2, 6, 1), Place(2, 7, 0), Place(99, 7, 1), Place(2, 7, 99)])
def test_a_place_that_is_another_entrys_or_nobodys_is_noticed(opened, wrong):
    with opened(terms()) as ledger:
        first, cost = ledger.reserve(Cost(7, 1)), Cost(7, 1)
        second = ledger.reserve(cost)
        answered(ledger, first, cost)
        answered(ledger, wrong, cost)
        with pytest.raises(LedgerDamaged, match="place"):
            ledger.verify()
    with begun(None, terms()) as ledger:  # the same in order
        answered(ledger, ledger.reserve(cost), cost)
        answered(ledger, ledger.reserve(cost), cost)
        assert next(ledger.entries(2)).place == second == Place(2, 7, 1)
        ledger.verify()


def test_what_was_taken_ahead_is_given_back_unless_somebody_took_more(lasting):
    open_it = lasting[2]
    with open_it(terms()) as ledger, as_another_process(open_it()) as other:
        for _ in range(100):
            commit(ledger)
        assert other.spent.charge > 100 == ledger.spent.charge  # some are taken ahead
        ledger.close()
        assert other.spent == Spent(100, 100, 100)
        tip = other._tip()  # a witness that was not told has seen more taken at the same entry
        assert contains(other._store, tip, tip.taking(*(taken + 10 for taken in tip.taken)))
    with open_it() as ledger, as_another_process(open_it()) as other:
        for _ in range(100):
            commit(ledger)
        after = other.reserve(Cost(1, 1))
        assert after.charge > 200
        ledger.close()
        assert other.spent.charge == after.charge + 1
        other.verify()


def as_another_process(ledger: Ledger) -> Ledger:
    """Take away what it shares with the other ledgers of this process."""
    ledger._stock = ProcessStock()
    return ledger


def test_who_opens_a_ledger_goes_on_with_what_others_of_the_process_have_taken_ahead(lasting):
    open_it = lasting[2]
    left = open_it(terms())  # nobody closes it
    for _ in range(100):
        commit(left)
    del left
    gc.collect()
    with open_it() as one, open_it() as two:
        for number in range(101, 151):
            assert commit((one, two)[number % 2]).place.number == number
            assert one.spent == two.spent == Spent(number, number, number)


def test_near_the_end_nothing_is_held_back(lasting):
    open_it = lasting[2]
    with open_it(terms(charge=500)) as one, as_another_process(open_it()) as two:
        for i in range(500):
            assert commit((one, two)[i % 2]).seq == i + 1
        for ledger in (one, two):
            with pytest.raises(BudgetExhausted):
                ledger.reserve(Cost(1, 1))
            assert ledger.spent == Spent(500, 500, 500)


@pytest.mark.parametrize(
    "wrong",
    [
        {"answer": {"value": float("nan")}},
        {"answer": {"value": object()}},
        {"answer": [1]},
        {"question": {"text": "\ud800"}},
        {"question": {1: 2, "a": 3}},
        {"rows_read": -1},
        {"key": 3},
        {"analyst": "x" * 201},
        {"analyst": "\ud800"},
    ],
)
def test_what_is_not_plain_json_is_refused_and_writes_nothing(opened, wrong):
    with opened(terms()) as ledger:
        with pytest.raises(InvalidArgument):
            commit(ledger, **({"key": "k1"} | wrong))
        assert ledger.head.seq == 0
        commit(ledger, "k1")


def test_any_text_is_kept(opened):
    odd = "\0 \n ü 😀 '; DROP TABLE holdfast_entries; -- %s :name"
    with opened(terms()) as ledger:
        commit(ledger, odd, question={"text": odd}, answer={odd: [odd, None, 1e-300, 2**70]}, analyst=odd)
        entry = ledger.find(odd)
        assert (entry.key, entry.question, entry.analyst) == (odd, {"text": odd}, odd)
        assert entry.answer == {odd: [odd, None, 1e-300, 2**70]}
        ledger.verify()


def test_a_key_may_be_long(opened):
    with opened(terms()) as ledger:
        commit(ledger, "x" * 100_000)
        assert ledger.find("x" * 100_000).seq == 1


def test_entries_come_in_order_and_in_part(opened, monkeypatch):
    monkeypatch.setattr("holdfast.ledger.verify.READ_CHUNK", 3)
    with opened(terms()) as ledger:
        written = [commit(ledger, f"k{i}") for i in range(10)]
        assert list(ledger.entries()) == written
        assert list(ledger.entries(start=4, limit=5)) == written[3:8]
        assert list(ledger.entries(start=9, limit=5)) == written[8:]
        assert list(ledger.entries(limit=0)) == []
        assert ledger.verify() == ledger.head
        with pytest.raises(InvalidArgument):
            ledger.entries(start=0)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_who_writes_while_a_ledger_is_verified_does_no_damage(opened, monkeypatch, count):
    monkeypatch.setattr("holdfast.ledger.verify.READ_CHUNK", 3)
    with opened(terms()) as ledger:
        for i in range(count):
            commit(ledger, f"k{i}")
        read, written = ledger._store.read, []

        def read_before_others_write(start, limit):
            rows = read(start, limit)
            if len(rows) < limit and len(written) < 8:
                written.append(commit(ledger, f"meanwhile {len(written)}"))
            return rows

        monkeypatch.setattr(ledger._store, "read", read_before_others_write)
        assert ledger.verify() == ledger.head
        assert ledger.head.seq == count + 8 == written[-1].seq


def test_a_receipt_convinces_a_third_party(opened):
    with opened(terms()) as ledger:
        entries = [commit(ledger, f"k{i}") for i in range(5)]
        head = ledger.head
        for seq in range(6):
            kept = json.dumps(ledger.receipt(seq).to_dict())
            check_receipt(Receipt.from_dict(json.loads(kept)), head.hash)
        receipt = ledger.receipt(2)
        assert json.loads(receipt.body)["answer"] == entries[1].answer
        with pytest.raises(UnknownName):
            ledger.receipt(6)
        forged = [
            replace(receipt, body=receipt.body.replace("0.25", "0.26")),
            replace(receipt, previous="0" * 64),
            replace(receipt, path=receipt.path[:-1]),
            replace(receipt, path=receipt.path[::-1]),
            replace(receipt, seq=3),
            replace(receipt, head=Head(6, head.hash)),
            replace(receipt, head=Head(5, "0" * 64)),
        ]
        for wrong in forged:
            assert wrong != receipt
            with pytest.raises(LedgerDamaged):
                check_receipt(wrong, head.hash)
        with pytest.raises(LedgerDamaged):
            check_receipt(receipt, entries[1].hash)


def test_a_published_head_must_be_in_the_chain(opened):
    with opened(terms()) as ledger:
        published = commit(ledger, "k1").hash
        commit(ledger, "k2")
        assert ledger.verify(published) == ledger.head
        with pytest.raises(LedgerDamaged, match="published head"):
            ledger.verify("0" * 64)


def test_threads_share_one_ledger(opened):
    cap, failures = 60, []
    with opened(terms(charge=cap)) as ledger:

        def spend(name: int) -> None:
            try:
                for i in range(cap + 1):
                    commit(ledger, f"{name}-{i}")
            except BudgetExhausted:
                return
            failures.append(name)

        threads = [threading.Thread(target=spend, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert ledger.spent == Spent(cap, cap, cap)
        assert ledger.verify().seq == cap


def test_one_question_from_many_threads_is_charged_once(opened):
    with opened(terms()) as ledger:
        seen = []
        threads = [
            threading.Thread(target=lambda i=i: seen.append(commit(ledger, "k1", answer={"value": i})))
            for i in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(seen) == 8
        assert all(entry == seen[0] for entry in seen)
        assert ledger.spent.answers == 1


@pytest.mark.parametrize(
    "refused",
    [
        None,
        {},
        {"caps": None},
        {"caps": {"charge": 3}},
        {"caps": {"flips": 3, "intervals": 3}},
        {"caps": {"charge": 3, "intervals": -1}},
        {"caps": {"charge": 2**63, "intervals": 1}},
        {"caps": {"charge": 3, "intervals": 1}, "plan": float("nan")},
    ],
)
def test_refused_terms_begin_nothing(opened, refused):
    with opened() as ledger:
        with pytest.raises(InvalidArgument):
            ledger.begin(refused)
        assert not ledger.begun
        assert ledger.begin(terms())


def test_opening_decides_nothing(opened):
    with opened() as ledger:
        assert not ledger.begun
        assert ledger.terms is None
        assert ledger.spent == Spent(0, 0, 0)
        assert ledger.find("k1") is None
        assert list(ledger.entries()) == []
        assert ledger.fingerprint.startswith(FINGERPRINT)
        for missing in (
            lambda: ledger.head,
            lambda: ledger.caps,
            lambda: ledger.left,
            lambda: ledger.receipt(0),
            ledger.verify,
        ):
            with pytest.raises(UnknownName, match=r"No ledger of .* yet"):
                missing()
        for mistake in (lambda: ledger.reserve(Cost(1, 1)), lambda: answered(ledger, Place(1, 0, 0), Cost(1, 1))):
            with pytest.raises(InvalidArgument, match="has not begun"):
                mistake()
        assert ledger.begin(terms(charge=10))
        assert (ledger.begun, ledger.terms, ledger.head.seq) == (True, terms(charge=10), 0)
        assert not ledger.begin(terms(charge=99))
        assert ledger.caps.charge == 10
        commit(ledger, "k1")


def test_an_entry_says_what_was_spent_before_it(opened):
    with opened(terms()) as ledger:
        written = [commit(ledger, f"k{i}", cost=Cost(i, 2)) for i in range(5)]
        begins = [(entry.place.charge, entry.place.intervals) for entry in written]
        assert begins == [(0, 0), (0, 2), (1, 4), (3, 6), (6, 8)]
        assert list(ledger.entries()) == written
        assert ledger.find("k4") == written[4]


def test_a_closed_ledger_refuses_and_may_be_closed_again(opened):
    unbegun = opened()
    unbegun.close()
    assert not unbegun.begun
    with pytest.raises(LedgerUnavailable, match="is closed; open a new"):
        unbegun.begin(terms())
    ledger = opened(terms())
    commit(ledger, "k1")
    ledger.close()
    for use in (
        lambda: ledger.find("k1"),
        lambda: ledger.reserve(Cost(1, 1)),
        lambda: commit(ledger, "k2"),
        lambda: ledger.begin(terms()),
        lambda: ledger.spent,
        lambda: ledger.head,
        ledger.entries,
        ledger.verify,
    ):
        with pytest.raises(LedgerUnavailable, match="is closed; open a new"):
            use()
    assert ledger.terms == terms()
    ledger.close()


def test_a_seeded_ledger_says_so(opened):
    assert opened(terms(), reproducible=True).reproducible


def test_a_ledger_lasts(lasting):
    location, dataset, opened = lasting
    assert not exists(location, dataset)
    with opened(terms(charge=10)) as ledger:
        entry = commit(ledger, "k1", charge=7)
    assert exists(location, dataset)
    with opened() as ledger:
        assert ledger.find("k1") == entry
        assert ledger.spent == Spent(7, 1, 1)
        assert ledger.terms == terms(charge=10)
        assert ledger.dataset == dataset
    with opened(terms(charge=10)) as ledger:
        assert ledger.head == Head(1, entry.hash)


def test_opening_creates_nothing(lasting, tmp_path):
    location, dataset, opened = lasting
    with opened() as ledger:
        assert (ledger.begun, ledger.spent.answers, ledger.find("k1")) == (False, 0, None)
        assert not exists(location, dataset)
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_that_somebody_else_begins_is_noticed(lasting):
    opened = lasting[2]
    looks = [
        lambda ledger: ledger.begun,
        lambda ledger: ledger.terms == terms(charge=10),
        lambda ledger: ledger.spent == Spent(7, 1, 1),
        lambda ledger: ledger.find("k1").cost.charge == 7,
        lambda ledger: len(list(ledger.entries())) == 1,
        lambda ledger: ledger.head.seq == 1,
        lambda ledger: ledger.reserve(Cost(3, 1)).charge == 7,
        lambda ledger: commit(ledger, "k1").seq == 1,
    ]
    waiting = [opened() for _ in looks]
    assert not any(ledger.begun for ledger in waiting)
    with opened(terms(charge=10)) as ledger:
        commit(ledger, "k1", charge=7)
    for look, early in zip(looks, waiting, strict=True):
        assert look(early)
        early.close()


def test_a_ledger_begun_between_two_looks_is_noticed(lasting):
    opened = lasting[2]
    with opened() as early:
        read, reads = early._store.read, []

        def late(start: int, limit: int) -> Any:
            rows = read(start, limit)
            if not reads:
                opened(terms(charge=10)).close()
            reads.append(start)
            return rows

        early._store.read = late
        assert early.begun
        assert early.reserve(Cost(1, 1)) == Place(1, 0, 0)


def test_who_begins_second_gets_the_terms_that_stand(lasting):
    opened = lasting[2]
    with opened() as one, opened() as two:
        assert one.begin(terms(charge=10))
        assert not two.begin(terms(charge=11))
        assert two.terms == terms(charge=10)
        assert two.caps.charge == 10
        assert two.head == one.head


def test_what_somebody_else_begins_is_checked_like_a_ledger_that_was_there(lasting):
    opened = lasting[2]
    with opened() as one, opened(fingerprint="other") as two, opened(reproducible=True) as three:
        assert one.begin(terms())
        with pytest.raises(RowSourceError, match="belongs to other data"):
            two.begin(terms())
        with pytest.raises(RowSourceError, match="belongs to other data"):
            two.find("k1")
        with pytest.raises(PlanConflict, match="seed"):
            three.begin(terms())


def test_a_seed_may_not_join_an_unpredictable_ledger(lasting):
    opened = lasting[2]
    opened(terms()).close()
    with pytest.raises(PlanConflict, match="seed"):
        opened(reproducible=True)


def test_other_data_is_refused(lasting):
    opened = lasting[2]
    opened(terms()).close()
    with pytest.raises(RowSourceError, match="belongs to other data") as refused:
        opened(fingerprint="other")
    assert refused.value.fields == {}
    assert "other'" not in str(refused.value)
    assert FINGERPRINT not in str(refused.value)


def test_keys_are_secret_and_last(lasting):
    opened = lasting[2]
    with opened(terms()) as ledger:
        keys = {ledger.key("one"), ledger.key("two")}
        recorded = json.dumps(ledger.receipt(0).to_dict())
    with opened() as again:
        assert keys == {again.key("one"), again.key("two")}
        secret = again._store.secret()
    assert len(keys | {secret}) == 3
    assert {len(key) for key in keys | {secret}} == {32}
    for hidden in keys | {secret}:
        assert not any(hidden.hex()[i : i + 16] in recorded for i in range(48))


def test_every_ledger_has_a_secret_of_its_own_unless_it_is_given_one():
    given = bytes(range(32))
    ledgers = [open_ledger(None, dataset="d", fingerprint=f"{i}") for i in range(4)]
    for ledger, secret in zip(ledgers, (None, None, given, given), strict=True):
        with pytest.raises(UnknownName):
            ledger.key("x")
        ledger.begin(terms(), secret)
    assert len({ledger.key("x") for ledger in ledgers}) == 3


def test_who_has_the_right_table_cannot_confirm_it_from_the_first_receipt(opened):
    # The attack: hash the table one guesses, in every way that needs no secret, and look it up in receipt 0.
    with opened(terms()) as ledger:
        body = ledger.receipt(0).body
        stated = json.loads(body)["fingerprint"]
        content = ledger.fingerprint
        known = [ledger.dataset, body.replace(stated, ""), content, *json.loads(body)]
        guesses = {content, *(hashed(known, content))}
        assert stated not in guesses
        assert content not in body
    forget_all()
    with begun(None, terms(), fingerprint=content) as other:  # the same data elsewhere is not recognized either
        assert json.loads(other.receipt(0).body)["fingerprint"] != stated


def hashed(keys: list[str], text: str) -> set[str]:
    plain = {sha256(text.encode()).hexdigest()} | {sha256((key + text).encode()).hexdigest() for key in keys}
    return plain | {hmac.digest(key.encode(), text.encode(), "sha256").hex() for key in keys}


def test_two_objects_on_one_ledger_see_each_other(lasting):
    opened = lasting[2]
    with opened(terms()) as one, opened() as two:
        first = commit(one, "k1")
        assert two.find("k1") == first
        second = commit(two, "k2")
        assert one.head == Head(2, second.hash)
        assert second.previous == first.hash
        assert commit(one, "k2") == second


def test_many_may_begin_the_same_ledger_at_once(lasting):
    opened, heads, first = lasting[2], [], []
    start = threading.Barrier(6)

    def begin() -> None:
        with opened() as ledger:
            start.wait()
            first.append(ledger.begin(terms()))
            heads.append(ledger.head)

    threads = [threading.Thread(target=begin) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(heads) == 6
    assert len(set(heads)) == 1
    assert first.count(True) == 1


@pytest.mark.parametrize("kind", ["sqlite", POSTGRES])
def test_a_database_keeps_many_datasets_apart(kind, request, tmp_path):
    opened = opener(kind, request, tmp_path)[2]
    names = [uuid.uuid4().hex, uuid.uuid4().hex]
    contents = [{"dataset": name, "fingerprint": name} for name in names]
    with opened(terms(charge=5), **contents[0]) as one, opened(terms(charge=9), **contents[1]) as two:
        commit(one, "k1", charge=5)
        assert two.spent == Spent(0, 0, 0)
        assert two.find("k1") is None
        commit(two, "k1", charge=2)
        assert (one.left.charge, two.left.charge) == (0, 7)
        one.verify()
        two.verify()
