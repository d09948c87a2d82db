"""Several questions at once: checked and paid for together, written together; lists that are registered beforehand."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast as hf
from holdfast.ledger import Cost

LIST = ["x > 0.5", {"query": "x", "within": [0, 1]}, {"kind": "quantile", "query": "x", "q": 0.9, "steps": 3}]
BOUNDS = {"x": (0, 1)}


@pytest.fixture
def session(tmp_path: Path) -> Any:
    rows = hf.open({"x": np.random.default_rng(3).random(5_000)}, complete=["x"])
    with hf.Session(rows, queries=50, end=True, ledger=tmp_path / "batch.ledger", bounds=BOUNDS) as opened:
        yield opened


def writes(session: hf.Session, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Record the transactions of a session's ledger from now on."""
    found: list[object] = []
    store = session.ledger._store
    write = store.write
    monkeypatch.setattr(store, "write", lambda decide: found.append(decide) or write(decide))
    return found


def test_one_reservation_and_one_transaction(session: hf.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session.mean("x > 0.1")
    transactions = writes(session, monkeypatch)
    answers = session.ask_many([*LIST, "x > 0.5", "x > 0.1"])
    assert len(transactions) == 2
    assert [answer.seq for answer in answers] == [2, 3, 4, 2, 1]
    assert [answer.cached for answer in answers] == [False, False, False, False, True]
    assert answers[2].kind == "quantile"
    assert answers.frame.columns == ["question", "category", "value", "low", "high"]
    assert session.ask_many(LIST)[0].cached
    assert len(transactions) == 2
    session.ledger.verify()
    places = [entry.place for entry in session.ledger.entries()]
    assert len({place.number for place in places}) == 4  # a generator for each, also under a seed


def test_a_list_costs_what_its_questions_cost(session: hf.Session) -> None:
    prices, left = session.price_many([*LIST, LIST[0]]), session.budget.answers_left
    assert [price.answers for price in prices.each] == [1, 1, 3, 0]
    session.ask_many([*LIST, LIST[0]])
    assert left - session.budget.answers_left == prices.answers == 5
    assert session.price_many(LIST).answers == 0
    assert hf.Prices.from_dict(prices.to_dict()) == prices
    assert str(prices).endswith("for all of them")


def test_a_list_that_is_too_expensive_or_wrong_asks_nothing(session: hf.Session) -> None:
    with pytest.raises(hf.BudgetExhausted):
        session.ask_many([f"x > 0.{i:03}" for i in range(51)])
    with pytest.raises(hf.UnknownName, match=r"^Question 2: No column 'y'"):
        session.ask_many(["x > 0.5", "y > 0.5"])
    assert not session.ledger.begun
    session.ask_many([f"x > 0.{i:03}" for i in range(40)])
    before = session.ledger.spent
    with pytest.raises(hf.BudgetExhausted, match="it costs 11 answers, and 10 of 50 are left"):
        session.ask_many([f"x > 0.{i:03}" for i in range(51)])
    assert session.ledger.spent == before
    assert len(session.ask_many([f"x > 0.{i:03}" for i in range(50)])) == 50


@pytest.mark.parametrize(
    ("questions", "words"),
    [
        ("x > 0.5", "questions must be a list of questions; got str."),
        ({"query": "x > 0.5"}, "questions must be a list of questions; got dict."),
        ([], "at least one question"),
        ([3], "Question 1: a question must be text, or a dict of its kind and options; got 3."),
        ([{"kind": "mode", "query": "x"}], "Question 1: kind must be one of"),
        ([{"kind": "mean"}], "Question 1: mean needs 'query', such as dep_delay > 15."),
        ([{"query": "x", "witin": [0, 1]}], "Question 1: mean has no option 'witin'. Did you mean 'within'?"),
    ],
)
def test_lists_that_are_none_are_refused(session: hf.Session, questions: Any, words: str) -> None:
    for verb in (session.ask_many, session.price_many, session.register):
        with pytest.raises(hf.InvalidArgument) as refused:
            verb(questions)
        assert words in str(refused.value)


def test_a_question_is_drawn_once_though_lists_overlap(session: hf.Session) -> None:
    """Two threads with the same questions in opposite orders wait for each other, and neither forever."""
    session.mean("x > 0.9")
    listed = [f"x > 0.{i}" for i in range(1, 9)]
    found: list[hf.Answers] = []
    threads = [
        threading.Thread(target=lambda own=own: found.append(session.ask_many(own)))
        for own in (listed, listed[::-1]) * 3
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(found) == 6
    assert session.ledger.spent.answers == 9
    assert {tuple(sorted(answer.seq or 0 for answer in answers)) for answers in found} == {tuple(range(2, 10))}


def test_reserving_several_takes_all_or_nothing(session: hf.Session) -> None:
    session.mean("x > 0.9")
    ledger = session.ledger
    left, before = ledger.left, ledger.spent
    with pytest.raises(hf.BudgetExhausted):
        ledger.reserve_all([Cost(0, left.intervals), Cost(0, 1)])
    assert ledger.spent == before
    places = ledger.reserve_all([Cost(2, 1), Cost(3, 1), Cost(0, 0)])
    assert [place.charge for place in places] == [before.charge, before.charge + 2, before.charge + 5]
    assert len({place.number for place in places}) == 3
    assert ledger.spent.charge == before.charge + 5
    assert ledger.reserve_all([]) == []


# -- registered beforehand --------------------------------------------------------------------------------------------


def test_the_history_tells_registered_questions_from_others(session: hf.Session) -> None:
    session.mean("x > 0.5")  # on the list, but asked before it was written down
    answers = session.ask_many(hf.Questions(LIST))
    session.mean("x > 0.7")
    frame = session.history()
    assert frame["seq"].to_list() == [1, 3, 4, 5]
    assert frame["registered"].to_list() == [None, 2, 2, None]
    assert answers[0].seq == 1
    assert session.register(LIST).seq == 2  # the same list, in whatever spelling
    assert session.register(["x>.5", {"query": " x ", "within": (0.0, 1.0)}, dict(LIST[2])]).seq == 2
    assert session.register(["x > 0.7"]).seq == 6
    assert session.history()["registered"].to_list() == [None, 2, 2, None]
    session.ledger.verify()


def test_registering_is_free_and_begins_the_ledger(session: hf.Session) -> None:
    registration = session.register(LIST)
    assert session.ledger.begun
    assert (registration.cost, registration.rows_read, registration.rows()) == (0, 0, [])
    assert registration.questions[1] == "mean of x within [0, 1]"
    assert session.budget.answers_left == 50
    assert "3 questions registered, SHA-256" in repr(registration)
    assert session.history().is_empty()


def test_what_is_new_each_time_cannot_be_registered() -> None:
    with hf.Session({"x": [True, False] * 500}, queries={"mean": 5, "flip": 50}, seed=1) as session:
        with pytest.raises(hf.InvalidArgument, match="Question 2: flips cannot be registered"):
            session.register(["x", {"kind": "flips", "query": "x", "count": 2}])
        with pytest.raises(hf.InvalidArgument, match="Question 1: mean cannot be registered"):
            session.register([{"query": lambda rows: rows["x"]}])
        bits = session.ask_many([{"kind": "flips", "query": "x", "count": 2}] * 2)
        assert bits[0].seq != bits[1].seq


def test_questions_from_a_file(tmp_path: Path, session: hf.Session) -> None:
    pytest.importorskip("yaml")
    path = tmp_path / "questions.yml"
    path.write_text("- x > 0.5\n- {query: x, within: [0, 1]}\n- {kind: quantile, query: x, q: 0.9, steps: 3}\n")
    listed = hf.Questions.read(path)
    assert list(listed) == LIST
    assert repr(listed).startswith("Questions, 3:\n  1  mean: x > 0.5\n  2  mean: x, within [0, 1]")
    same = tmp_path / "questions.json"
    same.write_text('["x > 0.5"]')
    assert list(hf.Questions.read(same)) == ["x > 0.5"]
    for text, words in (("a: [", "must be YAML, line"), ("a: 1", r"must be a list of questions; got \{'a': 1\}\.")):
        path.write_text(text)
        with pytest.raises(hf.InvalidArgument, match=words):
            hf.Questions.read(path)
    with pytest.raises(hf.InvalidArgument, match="cannot be read: No such file"):
        hf.Questions.read(tmp_path / "none.yml")


def test_a_kind_in_the_place_of_an_option_is_told_how_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "questions.yml"
    file.write_text("- mean: b > 0\n- b > 1\n")
    with pytest.raises(hf.InvalidArgument, match=r"mean is a kind of question: write query: b > 0, kind: mean\."):
        hf.Questions.read(file)
    with (
        hf.Session({"b": [1, 2] * 500}, queries=5) as session,
        pytest.raises(hf.InvalidArgument, match=r"quantile is a kind of question: write query: b, kind: quantile\."),
    ):
        session.ask_many([{"quantile": "b", "q": 0.5}])
