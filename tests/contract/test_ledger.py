"""What every ledger promises, wherever it is: in memory, in SQLite (own file or shared), in PostgreSQL."""

import json
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import (
    BudgetExhausted,
    InvalidArgument,
    LedgerDamaged,
    PlanConflict,
    RowSourceError,
    UnknownName,
)
from holdfast.ledger import (
    BudgetMoved,
    Cost,
    Head,
    Ledger,
    Receipt,
    Spent,
    check_receipt,
    exists,
    open_ledger,
)
from ledger_writer import ANSWER, FINGERPRINT, QUESTION, commit, terms

Open = Callable[..., Ledger]
LASTING = ["file", "sqlite", "postgres"]


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
        values = {"dataset": dataset, "fingerprint": FINGERPRINT, "terms": plan} | more
        return open_ledger(location, **values)

    return location, dataset, open_it


@pytest.fixture(params=["memory", *LASTING])
def opened(request, tmp_path) -> Open:
    return opener(request.param, request, tmp_path)[2]


@pytest.fixture(params=LASTING)
def lasting(request, tmp_path):
    return opener(request.param, request, tmp_path)


def test_a_new_ledger_is_empty(opened):
    with opened(terms(flips=10, intervals=4)) as ledger:
        assert ledger.spent == Spent(0, 0, 0)
        assert ledger.left == ledger.caps == Cost(10, 4)
        assert ledger.head.seq == 0
        assert ledger.fingerprint == FINGERPRINT
        assert not ledger.reproducible
        assert list(ledger.entries()) == []


def test_an_answer_is_kept_and_charged(opened):
    with opened(terms()) as ledger:
        entry = commit(ledger, "k1", flips=7, analyst="ann")
        assert (entry.seq, entry.key, entry.analyst, entry.cost) == (1, "k1", "ann", Cost(7, 1))
        assert (entry.question, entry.answer, entry.rows_read) == (QUESTION, ANSWER, 1_000)
        assert entry.time.endswith("+00:00")
        assert ledger.find("k1") == entry
        assert list(ledger.entries()) == [entry]
        assert ledger.spent == Spent(7, 1, 1)
        assert ledger.head == Head(1, entry.hash)


def test_the_same_question_is_answered_once(opened):
    with opened(terms()) as ledger:
        first = commit(ledger, "k1", flips=7)
        again = commit(ledger, "k1", flips=7, answer={"value": 0.9})
        assert again == first
        assert ledger.spent == Spent(7, 1, 1)


def test_questions_without_a_key_are_never_the_same(opened):
    with opened(terms()) as ledger:
        assert [commit(ledger).seq, commit(ledger).seq] == [1, 2]


def test_an_unknown_key_is_not_found(opened):
    with opened(terms()) as ledger:
        commit(ledger, "k1")
        assert ledger.find("k2") is None


@pytest.mark.parametrize(
    ("caps", "cost", "unit", "fields"),
    [
        ((10, 100), Cost(4, 1), "flips", {"cost": 4, "left": 3, "total": 10}),
        ((100, 1), Cost(1, 1), "answers", {"cost": 1, "left": 0, "total": 1}),
    ],
)
def test_what_does_not_fit_is_refused_and_writes_nothing(opened, caps, cost, unit, fields):
    with opened(terms(*caps)) as ledger:
        commit(ledger, "k1", flips=7)
        head = ledger.head
        for attempt in (lambda: ledger.require(cost), lambda: commit(ledger, "k2", cost=cost)):
            with pytest.raises(BudgetExhausted) as refused:
                attempt()
            assert refused.value.fields == fields | {"unit": unit}
        assert ledger.head == head
        assert ledger.find("k2") is None
        assert commit(ledger, "k1", cost=cost).seq == 1  # what was asked stays free


def test_a_budget_can_be_spent_to_the_last_flip(opened):
    with opened(terms(flips=10)) as ledger:
        commit(ledger, "k1", flips=7)
        ledger.require(Cost(3, 1))
        commit(ledger, "k2", flips=3)
        assert ledger.left.flips == 0
        commit(ledger, "k3", flips=0)


def test_expected_flips_must_be_the_ones_spent(opened):
    with opened(terms()) as ledger:
        commit(ledger, "k1", flips=7, expected_flips=0)
        with pytest.raises(BudgetMoved) as moved:
            commit(ledger, "k2", flips=7, expected_flips=0)
        assert moved.value.spent == Spent(7, 1, 1)
        assert ledger.find("k2") is None
        assert commit(ledger, "k1", expected_flips=0).seq == 1  # already there: nothing left to retry
        assert commit(ledger, "k2", expected_flips=7).seq == 2


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
    monkeypatch.setattr("holdfast.ledger.ledger.PIECE", 3)
    with opened(terms()) as ledger:
        written = [commit(ledger, f"k{i}") for i in range(10)]
        assert list(ledger.entries()) == written
        assert list(ledger.entries(start=4, limit=5)) == written[3:8]
        assert list(ledger.entries(start=9, limit=5)) == written[8:]
        assert list(ledger.entries(limit=0)) == []
        assert ledger.verify() == ledger.head
        with pytest.raises(InvalidArgument):
            ledger.entries(start=0)


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
            replace(receipt, later=receipt.later[:-1]),
            replace(receipt, later=receipt.later[::-1]),
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
    with opened(terms(flips=cap)) as ledger:

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


def test_refused_terms(opened):
    for caps in (None, {"flips": 3}, {"flips": 3, "intervals": -1}, {"flips": 2**63, "intervals": 1}):
        with pytest.raises(InvalidArgument):
            opened({"caps": caps})
    with pytest.raises(UnknownName, match="No ledger of"):
        opened(None)


def test_a_seeded_ledger_says_so(opened):
    assert opened(terms(), reproducible=True).reproducible


def test_a_ledger_lasts(lasting):
    location, dataset, opened = lasting
    assert not exists(location, dataset)
    with opened(terms(flips=10)) as ledger:
        entry = commit(ledger, "k1", flips=7)
    assert exists(location, dataset)
    with opened() as ledger:
        assert ledger.find("k1") == entry
        assert ledger.spent == Spent(7, 1, 1)
        assert ledger.terms == terms(flips=10)
        assert ledger.dataset == dataset
    with opened(terms(flips=10)) as ledger:
        assert ledger.head == Head(1, entry.hash)


def test_a_closed_ledger_opens_itself_again(lasting):
    ledger = lasting[2](terms())
    ledger.close()
    commit(ledger, "k1")
    ledger.close()
    assert ledger.spent.answers == 1
    ledger.close()


def test_another_plan_is_refused(lasting):
    opened = lasting[2]
    opened(terms(flips=10)).close()
    with pytest.raises(PlanConflict, match="stands by another plan: caps is") as refused:
        opened(terms(flips=11))
    assert refused.value.fields == {"standing": terms(flips=10), "asked": terms(flips=11)}
    opened().close()


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
    assert refused.value.fields == {"ledger": FINGERPRINT, "data": "other"}


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
    opened, heads = lasting[2], []
    start = threading.Barrier(6)

    def begin() -> None:
        start.wait()
        with opened(terms()) as ledger:
            heads.append(ledger.head)

    threads = [threading.Thread(target=begin) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(heads) == 6
    assert len(set(heads)) == 1


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_database_keeps_many_datasets_apart(kind, request, tmp_path):
    opened = opener(kind, request, tmp_path)[2]
    names = [uuid.uuid4().hex, uuid.uuid4().hex]
    with opened(terms(flips=5), dataset=names[0]) as one, opened(terms(flips=9), dataset=names[1]) as two:
        commit(one, "k1", flips=5)
        assert two.spent == Spent(0, 0, 0)
        assert two.find("k1") is None
        commit(two, "k1", flips=2)
        assert (one.left.flips, two.left.flips) == (0, 7)
        one.verify()
        two.verify()
