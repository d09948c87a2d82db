"""Answers that are drawn one by one and written together: paid for first, seen last, each question drawn once."""

import threading
from typing import Any

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.errors import EvaluationFailed
from holdfast.ledger import Ledger
from holdfast.questions.answer import AnyAnswer
from holdfast.session.answering import Answering, Unwritten
from holdfast.session.session import Session


@pytest.fixture
def session(tmp_path) -> Any:
    rows = pl.DataFrame({"x": np.random.default_rng(3).random(5_000)})
    with Session(rows, queries=50, ledger=tmp_path / "together.ledger") as session:
        session.mean("x > 0.01")
        yield session


def nobody() -> None:
    raise AssertionError("nobody else asks this")


def drawn(session: Session, query: str) -> Unwritten:
    found = session.answering.draw(session.prepare(query), nobody)
    assert isinstance(found, Unwritten)
    return found


def entries(ledger: Ledger) -> list[int]:
    return [entry.seq for entry in ledger.entries()]


def test_nothing_is_in_the_ledger_before_it_is_written_and_one_transaction_writes_all(session, monkeypatch):
    ledger, before = session.ledger, session.ledger.spent
    waiting = [drawn(session.for_analyst(f"analyst {i}"), f"x > 0.{i}") for i in range(1, 8)]
    assert entries(ledger) == [1]
    assert ledger.spent.charge > before.charge  # it is paid for by now
    writes, write = [], ledger._store.write
    monkeypatch.setattr(ledger._store, "write", lambda decide: writes.append(decide) or write(decide))
    answers = Answering.write_all(waiting)
    assert len(writes) == 1
    assert entries(ledger) == list(range(1, 9))
    assert [answer.seq for answer in answers] == list(range(2, 9))
    assert [entry.analyst for entry in ledger.entries(2)] == [f"analyst {i}" for i in range(1, 8)]
    assert len({entry.place.number for entry in ledger.entries()}) == 8
    for i, answer in enumerate(answers, start=1):
        again = session.mean(f"x > 0.{i}")
        assert (again.value, again.low, again.high, again.seq) == (answer.value, answer.low, answer.high, answer.seq)
        assert again.cached
        assert not answer.cached
    ledger.verify()


def test_a_write_that_fails_shows_nothing_and_the_question_can_be_asked_again(session, monkeypatch):
    ledger = session.ledger
    waiting = [drawn(session, f"x > 0.{i}") for i in (1, 2)]
    paid = ledger.spent

    def full(decide: object) -> None:
        raise hf.LedgerUnavailable("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(ledger._store, "write", full)
        with pytest.raises(hf.LedgerUnavailable):
            Answering.write_all(waiting)
    assert entries(ledger) == [1]
    answer = session.mean("x > 0.1")
    assert not answer.cached
    assert ledger.spent.charge > paid.charge  # the draw that nobody saw stays paid
    ledger.verify()


def test_the_same_question_waits_for_the_answer_without_a_thread(session):
    told: list[str] = []
    mine = drawn(session, "x > 0.5")
    question = session.prepare("x > 0.5")
    assert session.answering.draw(question, lambda: told.append("one")) is None
    assert session.answering.draw(question, lambda: told.append("two")) is None
    assert told == []
    (answer,) = Answering.write_all([mine])
    assert told == ["one", "two"]
    found = session.answering.draw(question, nobody)
    assert isinstance(found, AnyAnswer)
    assert found.cached
    assert (found.value, found.seq) == (answer.value, answer.seq)
    assert entries(session.ledger) == [1, 2]


def test_a_thread_that_asks_the_same_waits_for_the_write_and_draws_nothing(session, monkeypatch):
    mine = drawn(session, "x > 0.5")
    found: list[hf.Answer] = []
    reserved: list[object] = []
    reserve = session.ledger.reserve
    monkeypatch.setattr(session.ledger, "reserve", lambda cost, asking: reserved.append(cost) or reserve(cost))
    asker = threading.Thread(target=lambda: found.append(session.mean("x > 0.5")))
    asker.start()
    asker.join(0.3)
    assert asker.is_alive()
    assert not found
    (answer,) = Answering.write_all([mine])
    asker.join(30)
    assert found[0].cached
    assert found[0].seq == answer.seq
    assert reserved == []


def test_the_other_way_round_word_is_left_with_a_thread_that_answers(session, monkeypatch):
    go, began, told = threading.Event(), threading.Event(), threading.Event()
    reserve = session.ledger.reserve

    def slow(cost: object, asking: object) -> object:
        began.set()
        assert go.wait(30)
        return reserve(cost)

    monkeypatch.setattr(session.ledger, "reserve", slow)
    asker = threading.Thread(target=session.mean, args=("x > 0.5",))
    asker.start()
    assert began.wait(30)
    assert session.answering.draw(session.prepare("x > 0.5"), told.set) is None
    assert not told.is_set()
    go.set()
    assert told.wait(30)
    asker.join(30)
    assert session.answering.draw(session.prepare("x > 0.5"), nobody).cached


def test_a_draw_that_fails_lets_others_ask(session, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(session._rows, "tally", lambda *args, **more: 1 / 0)
        with pytest.raises(EvaluationFailed):
            session.answering.draw(session.prepare("x > 0.5"), nobody)
    assert not session.mean("x > 0.5").cached


def test_questions_without_a_key_are_all_drawn(tmp_path):
    rows = pl.DataFrame({"x": np.random.default_rng(3).random(50_000)})
    with Session(rows, queries={"flip": 50}, ledger=tmp_path / "flips.ledger") as session:
        waiting = [session.answering.draw(session.prepare("x > 0.5", "flips", count=1), nobody) for _ in range(3)]
        answers = Answering.write_all(waiting)
        assert [answer.seq for answer in answers] == [1, 2, 3]


def test_threads_draw_and_write_the_same_few_questions(session):
    """Eight threads, twelve questions: each is answered once, and everybody sees that answer."""
    seen: list[tuple[str, int, float]] = []
    failures: list[BaseException] = []

    def ask(number: int) -> None:
        try:
            for step in range(12):
                query = f"x > 0.{(number + step) % 12 + 10}"
                while True:
                    free = threading.Event()
                    found = session.answering.draw(session.prepare(query), free.set)
                    if isinstance(found, Unwritten):
                        (found,) = Answering.write_all([found])
                    if found is not None:
                        break
                    assert free.wait(30)
                seen.append((query, found.seq, found.value))
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert len(seen) == 96
    assert len(set(seen)) == 12
    assert session.ledger.spent.answers == 13
    session.ledger.verify()
