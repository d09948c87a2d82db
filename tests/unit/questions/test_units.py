"""Questions about units and weights: what they say, what they refuse, and that n is the number of units."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.errors import InvalidArgument, InvalidQuery, PlanConflict
from holdfast.session.session import Session

PATIENTS = 3_000


def visits(seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(PATIENTS), rng.integers(1, 9, PATIENTS))
    rng.shuffle(ids)
    late, weight = rng.random(ids.size) < 0.3, rng.choice([1.0, 2.0, 4.0], ids.size)
    return pl.DataFrame({"patient": ids, "late": late, "cost": rng.exponential(10.0, ids.size), "weight": weight})


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(visits(), unit="patient", queries=100, complete=["cost"], seed=1) as session:
        yield session


WORDS = [
    ("mean", "late", {}, "share of late, every unit (patient) alike"),
    ("mean", "late", {"where": "cost > 3"}, "share of late where cost > 3, every unit (patient) alike"),
    ("mean", "late", {"rows_per_unit": 8}, "share of late, every row alike, at most 8 a unit (patient)"),
    (
        "mean",
        "cost",
        {"within": (0, 50), "weight": "weight", "largest_weight": 4},
        "mean of cost within [0, 50], weighted by weight up to 4, every unit (patient) alike",
    ),
    ("histogram", "late", {"categories": [True]}, "histogram of late over TRUE, every unit (patient) alike"),
    (
        "quantile",
        "cost",
        {"q": 0.5, "within": (0, 9)},
        "0.5 quantile of cost within [0, 9], every unit (patient) alike",
    ),
    ("units", "late", {}, "share of units (patient) with late in at least 1 row"),
    ("units", "late", {"having": "any"}, "share of units (patient) with late in at least 1 row"),
    ("units", "late", {"at_least": 1}, "share of units (patient) with late in at least 1 row"),
    ("units", "late", {"having": "all"}, "share of units (patient) with late in all rows"),
    ("units", "late", {"at_least": 3}, "share of units (patient) with late in at least 3 rows"),
    ("units", "cost", {"cap": 60}, "mean over units (patient) of the sum of cost, each up to 60"),
    (
        "units",
        "late",
        {"where": "cost > 3"},
        "share of units (patient) with late in at least 1 row, among rows where cost > 3",
    ),
]


@pytest.mark.parametrize(("kind", "query", "options", "text"), WORDS)
def test_the_answer_says_what_counts_how_much(
    session: Session, kind: str, query: str, options: dict[str, Any], text: str
) -> None:
    assert session.prepare(query, kind, **options).text == text


def test_different_questions_have_different_identities(session: Session) -> None:
    asked = [session.prepare(query, kind, **options) for kind, query, options, _ in WORDS]
    assert len({one.identity for one in asked}) == len(WORDS) - 2  # any, and at least one: the same question
    assert len({one.text for one in asked}) == len(WORDS) - 2


def test_n_is_the_number_of_units(session: Session) -> None:
    assert session.plan.rows == PATIENTS
    assert "3,000 units (patient)" in repr(session)
    assert session.dry_run("late", "units", cap=3).bounds == (0.0, 3.0)


def test_answers_are_about_the_population(session: Session) -> None:
    frame = visits()
    each = frame.group_by("patient").agg(pl.len().alias("n"), pl.col("late").sum(), pl.col("cost").sum())
    truths = {
        session.mean("late"): (each["late"] / each["n"]).mean(),
        session.mean("late", rows_per_unit=8): frame["late"].mean(),
        session.mean("late", weight="weight", largest_weight=4): 0.3,
        session.units("late"): (each["late"] > 0).mean(),
        session.units("cost", cap=60): each["cost"].clip(0, 60).mean(),
    }
    for answer, truth in truths.items():
        assert answer.low <= truth <= answer.high  # type: ignore[operator]
        assert answer.high - answer.low < 0.8 * (answer.bounds[1] - answer.bounds[0])


REFUSED = [
    ("count", "late", {}, "Counts and totals of rows are not available where rows belong to units"),
    ("count", "late", {"population": 10_000}, "Ask units with a cap for the mean per unit"),
    ("total", "cost", {"within": (0, 50)}, "Counts and totals of rows are not available where rows belong to units"),
    ("units", "late", {"having": "some"}, "having must be one of any, all; got 'some'"),
    ("units", "late", {"having": "all", "cap": 3}, "Give at most one of having, at_least, cap; got having and cap"),
    ("units", "late", {"at_least": 0}, "at_least must be a whole number"),
    ("units", "late", {"cap": 0}, "cap must be positive"),
    ("units", "cost", {}, "A share of units needs a condition; 'cost' is a number; give cap= for the mean"),
    ("units", "cost", {"having": "all", "where": "cost"}, "needs a condition"),
    ("mean", "late", {"rows_per_unit": 0}, "rows_per_unit must be a whole number"),
    ("mean", "late", {"weight": "weight"}, "largest_weight must be given with weight"),
    ("mean", "late", {"largest_weight": 2}, "largest_weight must be left out unless weight is given"),
    ("mean", "late", {"weight": "late", "largest_weight": 2}, "A weight must be a number"),
    (
        "mean",
        "late",
        {"weight": "weight", "largest_weight": 2, "margin": 0.1},
        "margin is for questions about all rows",
    ),
]


@pytest.mark.parametrize(("kind", "query", "options", "says"), REFUSED)
def test_refusals(session: Session, kind: str, query: str, options: dict[str, Any], says: str) -> None:
    before = session.budget
    with pytest.raises((InvalidArgument, InvalidQuery), match=says):
        session.ask(query, kind, **options)
    assert session.budget == before


@pytest.mark.parametrize(("kind", "options"), [("units", {}), ("mean", {"rows_per_unit": 8})])
def test_data_without_units_are_refused(kind: str, options: dict[str, Any]) -> None:
    session = Session(visits(), queries=100, seed=1)
    with pytest.raises(InvalidArgument, match="is for data with units, and data has none"):
        session.ask("late", kind, **options)


def test_the_same_rows_have_one_budget_as_rows_and_as_units() -> None:
    frame = visits(7)
    with Session(frame, unit="patient", queries=100) as session:
        session.mean("late")
        with pytest.raises(PlanConflict, match=r"begun for 3,000 units \(patient\); opened like this.* rows\. Open"):
            Session(frame, queries=100)


def test_a_column_that_seems_to_name_units_is_asked_about_by_its_name() -> None:
    frame = visits(9).rename({"patient": "patient_id"})
    with pytest.warns(hf.UnitColumn, match="Does every row have its own 'patient_id'"):
        Session(frame, queries=100, seed=1)
    with Session(frame, unit="patient_id", queries=100, seed=1) as session:  # warnings are errors here
        assert session.plan.rows == PATIENTS


@pytest.mark.parametrize("on_disk", [False, True])
def test_whole_units_are_held_back(tmp_path: Path, on_disk: bool) -> None:
    frame = visits(8)
    data: Any = frame
    if on_disk:
        data = tmp_path / "visits.parquet"
        frame.write_parquet(data)
    explored, session = hf.hold_back(data, 0.5, unit="patient")
    with session:
        assert explored["patient"].n_unique() == session.plan.rows == PATIENTS / 2
        sizes = frame.group_by("patient").len()
        shown = explored.group_by("patient").len()
        assert shown.join(sizes, on=["patient", "len"]).height == shown.height  # all rows of each
        assert session.check("late", guess=0.3, margin=0.05).outcome == "holds"
        assert session.check("late").interval[0] < 0.3 < session.check("late").interval[1]
    if on_disk:
        with Session(tmp_path / "visits.held.holdfast") as again:
            assert again.schema.unit == "patient"


def test_the_same_margin_of_units_again_is_free_though_it_would_take_more_draws_now() -> None:
    with Session(visits(), unit="patient", complete=["cost"], seed=1) as session:
        first = session.units("late", margin=0.3)
        for threshold in range(20):
            session.mean(f"cost > {threshold}")
        again = session.units("late", margin=0.3)
        assert again.cached
        assert again.seq == first.seq
