"""How a session begins: the plan that stands, what opening decides (nothing), and what is refused at the door."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from counting_rows import CountingRows
from holdfast.errors import (
    BudgetExhausted,
    InvalidArgument,
    LedgerUnavailable,
    PlanConflict,
    PlanInfeasible,
    RowSourceError,
    UnknownName,
)
from holdfast.guarantees.plan import VacuousPlan
from holdfast.ledger import open_ledger
from holdfast.questions.kind import Kind
from holdfast.rows.memory import memory_rows
from holdfast.session.session import Session

NAN = float("nan")
PLANS: dict[str, dict[str, Any]] = {
    "exchange": {"guarantee": "exchange"},
    "posterior": {"guarantee": "posterior"},
    "information": {"guarantee": "information"},
    "split": {"guarantee": "split"},
}


def table(rows: int, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"b": rng.random(rows) < 0.3, "x": rng.random(rows), "g": rng.integers(0, 4, rows)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "flights.parquet"
    pl.DataFrame(table(5_000)).write_parquet(file)
    return file


def ledgers(folder: Path) -> list[str]:
    """What there is of ledgers on disk."""
    return sorted(one.name for one in folder.rglob("*") if ".ledger" in one.name)


# -- what is announced ------------------------------------------------------------------------------------------------


def test_no_plan_needs_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Session(table(200_000)) as session:
            assert session.plan.endless
            assert "without end" in repr(session)
        Session(table(5_000), queries=10).close()
        Session(table(5_000), margin=0.2).close()


def test_a_plan_whose_answers_say_nothing_is_announced_whenever_it_is_opened(tmp_path: Path) -> None:
    data, place = table(200), tmp_path / "a.ledger"
    with pytest.warns(VacuousPlan, match="which says nothing") as given:
        session = Session(data, queries=10_000, ledger=place)
    assert given[0].filename == __file__
    with session:
        assert session.plan.margin >= 0.5
        session.mean("b")
    with pytest.warns(VacuousPlan):
        Session(data, ledger=place).close()


# -- opening decides nothing ------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::holdfast.guarantees.plan.VacuousPlan")
def test_opening_decides_nothing(path: Path) -> None:
    Session(path).close()
    Session(path, queries=10_000).close()
    with Session(path, margin=0.2) as chosen:
        assert not chosen.ledger.begun
        assert ledgers(path.parent) == []
        chosen.mean("b")
        assert chosen.ledger.begun
        assert "flights.parquet.ledger" in ledgers(path.parent)
    with pytest.raises(PlanConflict):
        Session(path, queries=10_000)


def test_looking_begins_nothing(path: Path) -> None:
    with Session(path, queries=20, guarantee="posterior") as session:
        assert session.price("b").answers == 1
        assert session.budget.answers_left == session.budget.answers_total == 20
        assert session.dry_run("b").made_up
        assert session.history().is_empty()
        assert list(session.ledger.entries()) == []
        assert "5,000 rows" in repr(session)
        session.verify_data()
        session.prepare("b")
        session.for_analyst("ada")
        with pytest.raises(UnknownName):
            session.receipt(1)
        assert not session.ledger.begun
        assert ledgers(path.parent) == []


def test_a_question_that_is_refused_begins_nothing(path: Path) -> None:
    with Session(path, queries=20, guarantee="posterior") as session:
        charge = session.plan.terms.charge
        for refused, options, error in (
            ("nope", {}, UnknownName),
            ("x", {}, InvalidArgument),
            ("b", {"rows_per_query": charge + 1}, BudgetExhausted),
            ("b", {"margin": 1e-9}, PlanInfeasible),
        ):
            with pytest.raises(error):
                session.mean(refused, **options)
        with pytest.raises(BudgetExhausted):
            session.quantile("x", 0.5, within=(0, 1), steps=21)
        with pytest.raises(BudgetExhausted):
            session.dry_run("x", "quantile", q=0.5, within=(0, 1), steps=21)
        with pytest.raises(PlanConflict):
            session.flip("b")
        assert not session.ledger.begun
        assert ledgers(path.parent) == []
        session.mean("b", rows_per_query=charge)  # to the last coin
        assert session.budget.answers_left == 0


def test_a_session_that_was_closed_answers_nothing(path: Path) -> None:
    for asked in (False, True):
        with Session(path, queries=20) as session:
            if asked:
                session.mean("b")
        for ask in (lambda: session.mean("b"), lambda: session.mean("not b"), lambda: session.budget):
            with pytest.raises(LedgerUnavailable, match="closed"):
                ask()
        assert "20 questions" in repr(session)


def test_printing_a_session_reads_neither_rows_nor_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = CountingRows(memory_rows(table(5_000)))

    class Nothing:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"{name} was looked at")

    with Session(rows, queries=20) as session:
        session.mean("b")
        read, ledger = rows.rows_read, session.ledger
        monkeypatch.setattr(session, "_ledger", Nothing())
        assert "20 questions" in repr(session)
        assert rows.rows_read == read
        monkeypatch.setattr(session, "_ledger", ledger)


# -- two who open at once ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("look", [False, True], ids=["asks", "looks, then asks"])
def test_who_did_not_ask_for_a_plan_joins_the_one_that_was_begun_meanwhile(path: Path, look: bool) -> None:
    with Session(path, queries=10, guarantee="posterior") as first, Session(path) as second:
        assert second.plan != first.plan
        first.mean("b")
        if look:
            assert second.budget == first.budget
            assert second.price("x > 0.5").rows_read == first.plan.rows_per_query
            assert second.price("b").cached
        answer = second.mean("x > 0.5")
        assert second.plan == first.plan
        assert (answer.rows_read, answer.cost, answer.seq) == (first.plan.rows_per_query, 1, 2)
        assert second.mean("b").cached
        assert first.budget.answers_left == second.budget.answers_left == 8


@pytest.mark.parametrize("look", [False, True], ids=["asks", "looks, then asks"])
def test_who_asked_for_another_plan_is_refused_by_the_one_that_was_begun_meanwhile(path: Path, look: bool) -> None:
    with Session(path, queries=20) as first, Session(path, queries=30) as second:
        first.mean("b")
        for ask in (lambda: second.budget, lambda: second.price("b"))[: 2 * look]:
            with pytest.raises(PlanConflict):
                ask()
        with pytest.raises(PlanConflict, match="queries 30, not 20") as refusal:
            second.mean("not b")
        assert refusal.value.fields["differs"] == ["queries"]
        assert refusal.value.fields["asked"] == {"queries": 30}
        assert refusal.value.fields["standing"]["queries"] == 20
        assert first.ledger.spent.answers == 1


def test_who_begins_second_with_the_same_plan_joins(tmp_path: Path) -> None:
    """Fresh rows are used in a random order: that of whoever begins."""
    place, data = tmp_path / "a.ledger", table(5_000)
    terms = {"queries": 100, "guarantee": "split", "ledger": place}
    with Session(data, **terms) as first, Session(data, **terms) as second:
        colleague = first.for_analyst("ada")  # before there is an order
        first.mean("b")
        second.mean("not b")
        colleague.mean("x > 0.5")
        assert first.plan == second.plan == colleague.plan
        assert second.ledger.spent.charge == 3 * first.plan.rows_per_query
    with pytest.raises(PlanConflict, match="100 questions"):
        Session(data, queries=99, guarantee="split", ledger=place)


def begin_just_before(session: Session, other: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `other` begin the ledger when `session` is about to."""
    begin = session.ledger.begin

    def beaten(*terms: Any) -> bool:
        if not other.ledger.begun:
            other.mean("g = 1")
        return begin(*terms)

    monkeypatch.setattr(session.ledger, "begin", beaten)


def test_a_question_built_for_one_plan_is_built_again_for_the_one_that_stands(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Session(path, queries=20, guarantee="information") as first, Session(path) as second:
        begin_just_before(second, first, monkeypatch)
        answer = second.mean("b")
        assert second.plan == first.plan
        assert (answer.rows_read, answer.guarantee) == (first.plan.rows_per_query, "information")


def test_a_prepared_question_is_never_answered_by_another_plan(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(path, queries=20, guarantee="information") as first, Session(path) as second:
        begin_just_before(second, first, monkeypatch)
        question = second.prepare("b")
        with pytest.raises(PlanConflict, match=r"begun under another plan since .*: .*20 questions"):
            second.answering.answer(question)
        assert first.ledger.spent.answers == 1
        assert second.answering.answer(second.prepare("b")).rows_read == first.plan.rows_per_query


@pytest.mark.parametrize("look", [True, False])
def test_a_question_prepared_before_joining_another_plan_is_refused(path: Path, look: bool) -> None:
    late = Session(path)
    question = late.prepare("b")
    with Session(path, queries=30, guarantee="posterior") as first:
        first.mean("x > 0.5")
    if look:
        assert late.budget.answers_total == 30
    with pytest.raises(PlanConflict, match=r"ask again|Ask again"):
        late.answering.answer(question)
    assert late.answering.answer(late.prepare("b")).seq == 2


@pytest.mark.parametrize("first", ["early", "late"])
def test_a_list_with_a_question_prepared_before_joining_another_plan_is_refused(path: Path, first: str) -> None:
    joined = Session(path)
    early = joined.prepare("b")
    with Session(path, queries=30, guarantee="posterior") as other:
        other.mean("x > 0.5")
    late = joined.prepare("g = 1")
    with pytest.raises(PlanConflict, match=r"ask again|Ask again"):
        joined.answering.answer_all([early, late] if first == "early" else [late, early])
    assert joined.ledger.spent.answers == 1


@pytest.mark.parametrize("guarantee", sorted(PLANS))
def test_a_question_prepared_before_the_first_answer_is_answered(guarantee: str) -> None:
    session = Session(table(5_000), queries=5, **PLANS[guarantee])
    first, second = session.prepare("b"), session.prepare("x > 0.5")
    assert [session.answering.answer(first).seq, session.answering.answer(second).seq] == [1, 2]


def test_who_is_beaten_to_it_with_another_plan_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(path, queries=20) as first, Session(path, queries=30) as second:
        begin_just_before(second, first, monkeypatch)
        with pytest.raises(PlanConflict, match="queries 30, not 20"):
            second.mean("b")
        assert first.ledger.spent.answers == 1


# -- the plan that stands ---------------------------------------------------------------------------------------------


def test_a_ledger_is_resumed_without_a_plan(tmp_path: Path) -> None:
    place, data = tmp_path / "a.ledger", table(5_000)
    with Session(data, queries=100, confidence=0.9, ledger=place) as begun:
        begun.mean("b")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resumed = Session(data, ledger=place)
    with resumed:
        assert resumed.plan == begun.plan
        assert resumed.mean("b").cached
        assert resumed.budget.answers_given == 1
    for given in ({"queries": 100}, {"confidence": 0.9}, {"queries": 100, "guarantee": begun.plan.guarantee}):
        Session(data, ledger=place, **given).close()


@pytest.mark.parametrize(
    ("given", "differs"),
    [
        ({"queries": 101}, ["queries"]),
        ({"confidence": 0.95}, ["confidence"]),
        ({"guarantee": "split"}, ["guarantee"]),
        ({"mechanism": "laplace"}, ["mechanism"]),
        ({"queries": {"mean": 100, "flip": 1}}, ["flips"]),
        ({"margin": 0.001}, ["margin"]),
        ({"queries": 5, "confidence": 0.5}, ["queries", "confidence"]),
    ],
)
def test_another_plan_is_refused_by_the_one_that_stands(
    tmp_path: Path, given: dict[str, Any], differs: list[str]
) -> None:
    place, data = tmp_path / "a.ledger", table(5_000)
    with Session(data, queries=100, confidence=0.9, ledger=place) as begun:
        begun.mean("b")
    with pytest.raises(PlanConflict, match="100 questions") as refusal:
        Session(data, ledger=place, **given)
    assert refusal.value.fields["differs"] == differs
    assert refusal.value.fields["standing"]["queries"] == 100
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).endswith(".")


def test_the_papers_plan_resumes_whatever_its_mechanism(tmp_path: Path) -> None:
    place, data = tmp_path / "a.ledger", table(500_000)
    with Session(data, ledger=place, confidence=0.5, queries={"flip": 5}, guarantee="paper") as begun:
        assert begun.plan.mechanism == "coins"
        begun.flip("b")
    with Session(data, ledger=place, guarantee="paper") as resumed:
        assert resumed.plan == begun.plan


def test_other_data_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "a.ledger"
    with Session(table(5_000), queries=100, ledger=place) as begun:
        begun.mean("b")
    with pytest.raises(RowSourceError, match="other data"):
        Session(table(5_000, seed=2), ledger=place)
    with pytest.raises(RowSourceError, match="other data"):
        Session(table(4_999), ledger=place)


# -- a first entry that nobody here understands -----------------------------------------------------------------------

STRANGE: dict[str, tuple[dict[str, Any], str]] = {
    "guarantee": ({"guarantee": "ghosts"}, "the guarantee 'ghosts', which this installation does not know"),
    "no guarantee": ({"guarantee": None}, "the guarantee None, which this installation does not know"),
    "version": ({"version": 2}, "version 2 of the guarantee 'posterior'"),
    "unknown term": ({"kappa": 1.0}, "The terms hold 'kappa', which this version does not know"),
    "missing term": ({"beta2": ...}, "The terms lack 'beta2'"),
    "missing rows": ({"rows": ...}, "The terms lack 'rows'"),
    "wrong type": ({"mass": "0.01"}, "The terms say mass is '0.01', which is of the wrong type"),
    "truth for a number": ({"queries": True}, "The terms say queries is True, which is of the wrong type"),
    "fraction of a row": ({"rows_per_query": 1.5}, "The terms say rows_per_query is 1.5, which is of the wrong type"),
}


@pytest.mark.parametrize("case", STRANGE)
def test_a_ledger_that_nobody_here_understands_is_not_continued(tmp_path: Path, case: str) -> None:
    rows, place = CountingRows(memory_rows(table(5_000))), tmp_path / "a.ledger"
    changed, expected = STRANGE[case]
    with Session(rows, queries=100, guarantee="posterior") as session:
        terms = session.plan.to_dict() | changed
    whose = {"dataset": rows.name, "fingerprint": rows.fingerprint}
    with open_ledger(place, **whose) as ledger:
        assert ledger.begin({name: value for name, value in terms.items() if value is not ...})
        head = ledger.head
    for given in ({}, {"queries": 100}, {"guarantee": "posterior"}):
        with pytest.raises(PlanConflict) as refusal:
            Session(rows, ledger=place, **given)
        text = str(refusal.value)
        assert expected in text
        assert str(place) in text
        assert "Install the version" in text
        assert text.endswith(".")
    assert rows.rows_read == 0
    with open_ledger(place, **whose) as ledger:
        assert ledger.head == head


def test_a_ledger_that_ends_with_the_process_is_said_to(tmp_path: Path) -> None:
    data = table(5_000)
    sentence = "Its ledger is in memory and ends with this process; that of a file would go on."
    with Session(data, queries=100) as in_memory:
        assert repr(in_memory).endswith(f"\n{sentence}")
        assert f"<div>{sentence}</div>" in in_memory._repr_html_()
    with Session(data, queries=100, ledger=tmp_path / "kept") as kept:
        assert sentence not in repr(kept)
    with Session(data, queries=100, seed=7) as seeded:
        assert sentence not in repr(seeded)
    pl.DataFrame(table(5_000, 2)).write_parquet(tmp_path / "data.parquet")
    with Session(tmp_path / "data.parquet", queries=100) as beside:
        assert sentence not in repr(beside)


# -- seeds and bad plans ----------------------------------------------------------------------------------------------


def test_a_seed_marks_the_ledger(tmp_path: Path) -> None:
    data = table(5_000)
    with Session(data, queries=100, seed=7, ledger=tmp_path / "seeded") as seeded:
        assert seeded.ledger.reproducible
        assert "not for shared use" in repr(seeded)
        first = seeded.mean("b").value
    with Session(data, queries=100, seed=7) as again:
        assert again.mean("b").value == first
    with Session(data, queries=100, ledger=tmp_path / "shared") as shared:
        shared.mean("b")
    with pytest.raises(PlanConflict, match="seed"):
        Session(data, seed=7, ledger=tmp_path / "shared")
    with Session(data, ledger=tmp_path / "shared") as unseeded:
        assert "shared use" not in repr(unseeded)


@pytest.mark.parametrize("plan", ["exchange", "posterior", "information", "split"])  # Laplace noise knows no seed
def test_a_seed_repeats_coins_and_fresh_rows(plan: str) -> None:
    def values(seed: int) -> list[float]:
        with Session(table(5_000), seed=seed, queries=100, **PLANS[plan]) as session:
            return [session.mean("b").value, session.mean("x", within=(0, 1)).value]

    assert values(1) == values(1)
    assert values(1) != values(2)


BAD_PLANS: list[dict[str, Any]] = [
    {"queries": 0}, {"queries": -1}, {"queries": 1.5}, {"queries": "many"}, {"queries": True}, {"queries": 10**400},
    {"queries": {}}, {"queries": {"mean": 0}}, {"queries": {"median": 3}}, {"queries": {"mean": -1, "flip": 5}},
    {"queries": 5, "margin": 0.1}, {"margin": 0}, {"margin": 1}, {"margin": NAN}, {"margin": "0.1"},
    {"queries": 5, "confidence": 0}, {"queries": 5, "confidence": 1}, {"queries": 5, "confidence": NAN},
    {"queries": 5, "confidence": 95}, {"queries": 5, "guarantee": "hope"}, {"queries": 5, "guarantee": None},
    {"queries": 5, "mechanism": "dice"}, {"queries": 5, "guarantee": ["posterior"]}, {"queries": 5, "seed": -1},
    {"queries": 5, "seed": 1.5}, {"queries": 5, "seed": "x"}, {"queries": 5, "analyst": 5},
    {"queries": 5, "analyst": "x" * 1_000}, {"queries": 5, "analyst": "\ud800"}, {"queries": 5, "ledger": ""},
    {"queries": 5, "ledger": 5}, {"queries": 5, "ledger": "mysql://somewhere/x"},
]  # fmt: skip


@pytest.mark.parametrize("given", BAD_PLANS, ids=lambda given: f"{given!r:.60}")
def test_bad_plans_are_refused(given: dict[str, Any]) -> None:
    rows = CountingRows(memory_rows(table(100)))
    with pytest.raises(InvalidArgument) as refusal:
        Session(rows, **given)
    assert str(refusal.value).endswith(".")
    assert rows.rows_read == 0


def test_a_plan_out_of_reach_is_refused() -> None:
    with pytest.raises(PlanInfeasible, match="100 rows allow"):
        Session(table(100), margin=0.001)


def test_a_question_is_built_again_if_another_analyst_adopts_the_plan_meanwhile(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions of several analysts share what stands: it may change while one of them has a question in hand."""
    with Session(path, queries=20, guarantee="information") as first, Session(path) as second:
        ada, bob, question = second.for_analyst("ada"), second.for_analyst("bob"), Kind.question

        def adopt(kind: Any, *args: Any, **options: Any) -> Any:
            built = question(kind, *args, **options)
            monkeypatch.setattr(Kind, "question", question)
            first.mean("x > 0.5")
            assert bob.plan == first.plan
            return built

        monkeypatch.setattr(Kind, "question", adopt)
        answer = ada.mean("b")
        assert (answer.rows_read, answer.guarantee) == (first.plan.rows_per_query, "information")
        assert ada.plan is bob.plan is second.plan


def test_a_dry_run_is_not_about_empty_groups() -> None:
    rng = np.random.default_rng(1)
    data = {"c": rng.choice(["UA", "AA"], 50_000), "m": rng.integers(1, 13, 50_000), "x": rng.random(50_000)}
    with Session(data, queries=20) as session:
        assert not session.dry_run("x > 0.5", where="c = 'UA'").too_few
        assert not session.dry_run("x > 0.5", where="m = 3").too_few
        groups = session.dry_run("x > 0.5", by="c", groups=["UA", "AA"])
        assert not any(each.too_few for each in groups.answers)
