"""Every kind of question, over units: true of a random row of a random unit, or refused in a sentence."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.errors import HoldfastError, InvalidArgument, PlanConflict
from holdfast.questions import KINDS
from holdfast.session.session import Session

UNITS = 30_000


def visits() -> pl.DataFrame:
    """Units of 1 to 30 rows; who comes often is late more often, so that counting rows alike would be seen."""
    rng = np.random.default_rng(0)
    often = rng.random(UNITS) < 0.3
    patient = np.repeat(np.arange(UNITS), np.where(often, 30, 1))
    rng.shuffle(patient)
    late = rng.random(patient.size) < np.where(often[patient], 0.9, 0.1)
    cost = np.where(late, 40.0, 5.0)
    ward = np.where(patient % 3 == 0, "north", "south")
    return pl.DataFrame({"patient": patient, "late": late, "cost": cost, "ward": ward, "half": patient // 2})


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(visits(), unit="patient", queries=60, complete=["cost"], seed=1, guarantee="information") as opened:
        yield opened


LATE = 0.7 * 0.1 + 0.3 * 0.9  # of a random row of a random unit; of a random row it is 0.84
MEAN = 5.0 + 35.0 * LATE
VARIANCE = 35.0**2 * LATE * (1 - LATE)
BOUNDS = {"within": (0, 50)}
PAIR = {"other": "cost", "within": (0, 50), "other_within": (0, 50)}
TRUE: dict[str, tuple[str, dict[str, Any], float]] = {
    "mean": ("cost", BOUNDS, MEAN),
    "difference": ("late", {"group": "ward = 'north'", "other": "ward = 'south'"}, 0.0),
    "variance": ("cost", BOUNDS, VARIANCE),
    "std": ("cost", BOUNDS, VARIANCE**0.5),
    "covariance": ("cost", PAIR, VARIANCE),
    "correlation": ("cost", PAIR, 1.0),
    "slope": ("cost", PAIR, 1.0),
    "quantile": ("cost", {"q": 0.5, **BOUNDS}, 5.0),
    "auc": ("cost", {"positive": "late", "cuts": [20.0], **BOUNDS}, 1.0),
    "units": ("late", {}, 0.7 * 0.1 + 0.3),
}
SHARES: dict[str, tuple[str, dict[str, Any], dict[Any, float]]] = {
    "histogram": ("late", {"categories": [True, False]}, {True: LATE, False: 1 - LATE}),
    "top": ("ward", {"longest": 5, "most": 2, "alphabet": "hnorstu"}, {"south": 2 / 3, "north": 1 / 3}),
}
REFUSED = {
    "count": ("late", {}, "Counts and totals of rows are not available where rows belong to units"),
    "total": ("cost", BOUNDS, "Counts and totals of rows are not available where rows belong to units"),
    "check": ("late", {"guess": 0.3, "margin": 0.1}, "A check needs rows that answer nothing else"),
    "submit": ("late", {}, "This session is not a board"),
    "confusion": ("late", {}, "These are not the rows of a board that answer"),
}
ELSEWHERE = {"flips", "minimize", "register"}  # below


def test_every_kind_is_here() -> None:
    assert {*TRUE, *SHARES, *REFUSED, *ELSEWHERE} == set(KINDS.names())


@pytest.mark.parametrize("kind", TRUE)
def test_one_number(session: Session, kind: str) -> None:
    query, options, truth = TRUE[kind]
    answer = session.ask(query, kind, **options)
    assert answer.low <= truth <= answer.high
    assert answer.high - answer.low < 0.9 * (answer.bounds[1] - answer.bounds[0])
    assert "unit" in str(answer)


@pytest.mark.parametrize("kind", SHARES)
def test_several_numbers(kind: str) -> None:
    query, options, truths = SHARES[kind]
    with Session(visits(), unit="patient", seed=4) as endless:
        answer = endless.ask(query, kind, **options)
    for name, truth in truths.items():
        assert answer[name].low <= truth <= answer[name].high


@pytest.mark.parametrize("kind", REFUSED)
def test_refusals(session: Session, kind: str) -> None:
    query, options, says = REFUSED[kind]
    before = session.budget
    with pytest.raises(HoldfastError, match=says):
        session.ask(query, kind, **options)
    assert session.budget == before


def test_groups_are_of_rows_and_those_of_units_stay_whole(session: Session) -> None:
    by = session.mean("late", by="ward", groups=["north", "south"])
    assert all(each.low <= LATE <= each.high for each in by.values())
    (late,) = session.mean("late", by="late", groups=[True]).values()
    assert late.high == 1.0
    assert late.low > 0.5


def test_flips() -> None:
    with Session(visits(), unit="patient", queries={"flip": 2_000}, guarantee="information", seed=2) as opened:
        assert abs(np.mean(opened.flips("late", 1_000).bits) - LATE) < 0.1


def test_questions_that_are_registered(session: Session) -> None:
    session.register(["late", "cost > 3"])
    assert session.mean("cost > 3").low > 0.5


def test_a_fit_speaks_of_a_random_row_of_a_random_unit() -> None:
    loss = hf.losses.Squared({"ward = 'north'": (0, 1)}, "late", target_within=(0, 1))
    with Session(visits(), unit="patient", queries=60, guarantee="exchange", seed=3) as opened:
        fit = opened.minimize(loss, radius=2, iterations=300, rows_per_coordinate=100)
        predicted = fit.coefficients["intercept"] + fit.coefficients["ward = 'north'"] / 3
        assert abs(predicted - LATE) < 0.15  # rows would say 0.84
        assert opened._rows._packs._kept  # type: ignore[attr-defined]  # lines are kept for rows of units, too


def test_checks_and_boards() -> None:
    explored, held = hf.hold_back(visits(), 0.5, unit="patient")
    with held:
        assert held.check("late", guess=LATE, margin=0.05).outcome == "holds"
        assert held.check("late", guess=0.84, margin=0.05).outcome == "too high"
    assert explored["patient"].n_unique() == UNITS // 2
    labels = pl.DataFrame({"id": range(100), "label": [0, 1] * 50, "patient": range(100)})
    with pytest.raises(InvalidArgument, match="labels must be a file, a frame or a mapping"):
        hf.Board(hf.open(labels, unit="patient"))


def test_decks_are_dealt_from_rows_that_are_by_themselves(tmp_path: Path) -> None:
    visits().write_parquet(tmp_path / "visits.parquet")
    with pytest.raises(InvalidArgument, match="source must be files"):
        hf.deal(hf.open(tmp_path / "visits.parquet", unit="patient"), tmp_path / "visits.deck", cards=1_000)
    hf.deal(tmp_path / "visits.parquet", tmp_path / "visits.deck", cards=1_000)
    with pytest.raises(InvalidArgument, match="unit"):
        Session(tmp_path / "visits.deck", unit="patient")


def begun_by(unit: str | None) -> Callable[[pl.DataFrame], Session]:
    return lambda frame: Session(frame, unit=unit, queries=5)


@pytest.mark.parametrize(
    ("first", "then", "says"),
    [
        (
            "patient",
            "mirror",
            r"begun for 2,000 units \(patient\).* are 2,000 units \(mirror\)\. .* with unit='patient'",
        ),
        ("patient", None, r"begun for 2,000 units \(patient\).* are 4,000 rows\. .* with unit='patient'"),
        (None, "patient", r"begun for 4,000 rows; .* are 2,000 units \(patient\)\. .* without unit="),
    ],
)
def test_a_ledger_knows_its_units_by_name(first: str | None, then: str | None, says: str) -> None:
    """Two columns with equally many units put different rows together: n alone does not tell them apart."""
    rng = np.random.default_rng(len(str(first)) + 10 * len(str(then)))
    patient = np.repeat(np.arange(2_000), 2)
    frame = pl.DataFrame({"patient": patient, "mirror": rng.permutation(patient), "late": rng.random(4_000) < 0.5})
    with begun_by(first)(frame) as session:
        session.mean("late")
        assert session.plan.unit == first
        with pytest.raises(PlanConflict, match=says):
            begun_by(then)(frame)
