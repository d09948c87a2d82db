"""What is left and what a question would cost, in answers: the price is exactly what the number of answers falls by."""

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import holdfast as hf
from holdfast.errors import BudgetExhausted
from holdfast.ledger import Answered, Spent
from holdfast.questions.budget import Budget
from holdfast.questions.price import Price
from holdfast.session.planning import plan
from holdfast.session.session import Session
from planned import planned


def data(rows: int = 5_000) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {"b": rng.random(rows) < 0.5, "x": rng.random(rows), "g": rng.integers(0, 3, rows)}


FIT = hf.losses.Logistic({"x": (0, 1)}, "b")
QUESTIONS: list[tuple[Any, str, dict[str, Any]]] = [
    ("b", "mean", {}),
    ("x", "mean", {"within": (0, 1), "where": "g = 1"}),
    ("g", "histogram", {"categories": [0, 1, 2]}),
    ("x", "quantile", {"q": 0.5, "within": (0, 1), "steps": 4}),
]
FLEXIBLE: list[tuple[Any, str, dict[str, Any]]] = [
    ("b", "mean", {"rows_per_query": 1}),
    ("b", "mean", {"rows_per_query": 1_234}),
    ("not b", "mean", {"margin": 0.4}),
    ("x > 0.1", "mean", {"margin": 0.15}),
    ("x", "histogram", {"bins": [0, 0.5, 1], "rows_per_query": 77}),
    (FIT, "minimize", {"radius": 1, "iterations": 3}),
    (FIT, "minimize", {"radius": 1, "iterations": 2, "rows_per_coordinate": 200, "runs": 2}),
]
PLANS: list[dict[str, Any]] = [
    {"guarantee": "exchange", "queries": 60, "end": True},
    {"guarantee": "posterior", "queries": 60},
    {"guarantee": "information", "queries": 60},
    {"guarantee": "information", "mechanism": "laplace", "queries": 60},
    {"guarantee": "dp", "queries": 60},
    {"guarantee": "split", "queries": 60},
    {"queries": {"mean": 60, "flip": 500}},
    {"queries": {"flip": 50_000}},
]


def asked(plan: dict[str, Any]) -> list[tuple[Any, str, dict[str, Any]]]:
    """Return all that may be asked under this plan."""
    questions = list(QUESTIONS)
    if plan.get("guarantee") in ("exchange", "posterior", "information") and "mechanism" not in plan:
        questions += FLEXIBLE
    elif plan.get("guarantee") != "split":
        questions += FLEXIBLE[-2:]
    if isinstance(plan["queries"], dict):
        questions += [("b", "flips", {"count": 1}), ("b", "flips", {"count": 40})]
    return questions


@pytest.mark.parametrize("terms", PLANS, ids=lambda terms: " ".join(map(str, terms.values())))
@pytest.mark.filterwarnings("ignore::holdfast.guarantees.plan.VacuousPlan")
def test_the_price_is_what_the_number_of_answers_falls_by(terms: dict[str, Any]) -> None:
    with Session(data(), seed=1, **terms) as session:
        for query, kind, options in asked(terms):
            before, price = session.budget, session.price(query, kind, **options)
            assert not price.cached
            assert price.affordable
            answer = session.ask(query, kind, **options)
            after = session.budget
            assert before.answers_left - after.answers_left == price.answers == answer.cost
            assert (after.answers_given, after.answers_total) == (before.answers_given + 1, before.answers_total)
            assert answer.rows_read == price.rows_read
            if kind != "flips":
                again = session.price(query, kind, **options)
                assert (again.cached, again.answers, again.rows_read) == (True, 0, 0)
                assert session.ask(query, kind, **options).cost == price.answers  # what it cost when it was new
                assert session.budget == after
        costs = session.history().unique("seq")["cost"]
        assert costs.sum() == after.answers_total - after.answers_left


@pytest.mark.parametrize("terms", [terms for terms in PLANS if "guarantee" in terms], ids=str)
@pytest.mark.filterwarnings("ignore::holdfast.guarantees.plan.VacuousPlan")
def test_what_is_said_to_be_left_can_be_asked(terms: dict[str, Any]) -> None:
    with Session(data(), seed=1, **(terms | {"queries": 12})) as session:
        session.mean("b", where="g = 1")
        left = session.budget.answers_left
        assert left in (10, 11)
        for number in range(left):
            assert session.price(f"x > 0.{number + 1:02}").affordable
            session.mean(f"x > 0.{number + 1:02}")
            assert session.budget.answers_left == left - number - 1
        assert not session.price("x < 0.5").affordable
        assert "more than is left" in str(session.price("x < 0.5"))
        assert "free" in str(session.price("x > 0.01"))
        assert str(session.budget).startswith("0 of 12 answers left at ±")
        with pytest.raises(BudgetExhausted, match="it costs 1 answer, and 0 of 12 are left") as refusal:
            session.mean("x < 0.5")
        assert refusal.value.fields == {"cost": 1, "left": 0, "total": 12, "unit": "answers"}


def test_flips_are_the_answers_of_a_plan_for_flips() -> None:
    with Session(data(), seed=1, queries={"flip": 10}) as session:
        assert session.budget.answers_total == session.budget.answers_left == 10
        session.flips("b", 4)
        assert session.budget.answers_left == 6


def test_a_budget_is_never_below_nothing() -> None:
    standing = planned("posterior", "coins").standing
    terms = standing.terms
    for spent in (Spent(terms.charge, 10, 10), Spent(terms.charge + 5, 3, 3), Spent(0, 99, 99)):
        assert Budget.of(standing, spent, Answered(0, 0)).answers_left == 0
    assert Budget.of(standing, Spent(0, 0, 0), Answered(0, 0)).answers_left == 10


def test_a_question_that_needs_too_much_never_seems_to_need_less_than_is_left() -> None:
    """The refusal speaks of answers, the budget is kept in two amounts: what is said must not look payable."""
    with Session(data(), seed=1, queries=10, guarantee="posterior") as session:
        ell = session.plan.rows_per_query
        session.mean("b", rows_per_query=ell + 1)
        for rows in (8 * ell + ell, 9 * ell, 10 * ell):
            with pytest.raises(BudgetExhausted) as refusal:
                session.mean("x > 0.5", rows_per_query=rows)
            assert refusal.value.fields["left"] < refusal.value.fields["cost"]


def test_budgets_and_prices_are_plain_json() -> None:
    budget = Budget.of(plan(rows=5_000, queries=10).standing, Spent(1, 1, 1), Answered(1, 1))
    price = Price("share of b", 1, 10, 0.25, None, cached=False, affordable=True)
    for one in (budget, price, replace(price, margin=None, answers=2)):
        assert json.loads(json.dumps(one.to_dict(), allow_nan=False)) == one.to_dict()
    assert str(price) == "1 answer of the budget, 10 rows read, margin ±0.25: share of b"
    missing = replace(price, margin=None, widths=((1.0, 1_736.2), (0.5, 2_500.0)))
    assert "read, margin ±1740 if no value is missing, ±2500 if 50% are: share" in str(missing)
    fit = replace(price, answers=1_200, margin=None, excess_bound=0.12345)
    assert str(fit).startswith("1,200 answers of the budget, 10 rows read, loss at most 0.124 above the smallest")
    assert repr(budget) == str(budget)
    assert "margin ±4,660,000:" in str(replace(price, margin=4_655_301.0))
    large = replace(price, margin=None, widths=((0.01, 2_000_000.0), (0.2, 12_345.6)))
    assert "(±2,000,000 for 1%, ±12,400 for 20% of the rows)" in str(large)


def test_a_price_says_that_slices_are_narrower_in_large_groups_and_they_are() -> None:
    number = 80 * np.random.default_rng(3).beta(2, 20, 50_000)
    with Session(hf.open({"x": number}, complete=["x"]), seed=1, queries=20, bounds={"x": (0, 80)}) as session:
        assert "with slices auto, large groups would be narrower at the same price" in str(
            session.price("x", "difference", group="x > 5", slices="none").cheaper
        )
        sliced, plain = (session.mean("x", where="x > 5", slices=slices) for slices in ("auto", "none"))
        assert sliced.cost == plain.cost == 2
        assert sliced.margin < 0.7 * plain.margin
        for asked in ({}, {"slices": [10, 20]}, {"margin": 8}, {"where": "x > 5", "slices": "none"}):
            assert "with slices" not in str(session.price("x", **asked).cheaper)
        assert session.price("x > 8").cheaper is None


@pytest.mark.parametrize("rows", [20_000, 200_000])
@pytest.mark.parametrize("queries", [100, 1_000])
def test_an_outlook_is_never_narrower_later(rows: int, queries: int) -> None:
    """The first answers after a plan may be, but nobody is told that answers get wider, and then a smaller number."""
    budget = Budget.of(hf.plan(rows=rows, queries=queries).standing, Spent(0, 0, 0), Answered(0, 0))
    widths = [width for _, width in budget.outlook]
    assert widths == sorted(widths)
    assert widths[0] == budget.margin


def test_a_budget_says_what_a_quota_leaves() -> None:
    whole = Budget(893, 1_000, 107, 0.02)
    assert "quota" not in whole.to_dict()
    assert str(replace(whole, quota=1)) == "893 of 1,000 answers left at ±0.0200; your quota leaves 1 answer"
    some = replace(whole, quota=20)
    assert Budget.from_dict(some.to_dict()) == some
    assert "your quota leaves 20 answers" in some._repr_html_()
    assert "quota" not in whole._repr_html_()


def wide(**options: Any) -> Session:
    """Open 200,000 complete rows; `g` is 0 in a fifth of them, in which `b` is true in half."""
    rng = np.random.default_rng(5)
    x = rng.random(200_000)
    y, z = np.clip(x + rng.choice([-0.1, 0.1], 200_000), 0, 1), 0.5 + 0.1 * rng.normal(size=200_000)
    columns = {"b": rng.random(200_000) < 0.5, "x": x, "y": y, "z": z, "g": rng.integers(0, 5, 200_000)}
    bounds: Any = dict.fromkeys("xyz", (0, 1))
    return Session(hf.open(columns, complete=list(columns)), seed=1, bounds=bounds, **options)


def test_a_price_says_how_wide_a_histogram_of_a_group_and_groups_in_slices_will_be() -> None:
    """As wide as they then are: a share near one half, and a number at the ends of its range."""
    with wide(queries=50) as session:
        session.ask("CASE WHEN b THEN 1 ELSE 0 END", "mean", within=(0, 1), where="g = 1", slices="auto")
        asked: list[tuple[str, str, dict[str, Any]]] = [
            ("b", "histogram", {"categories": [True, False]}),
            ("x", "histogram", {"bins": [0, 0.5, *(0.5 + place / 100 for place in range(1, 30))]}),
            ("CASE WHEN b THEN 1.0 ELSE 0.0 END", "mean", {"within": (0, 1), "slices": "auto"}),
        ]
        for query, kind, options in asked:
            price = session.price(query, kind, where="g = 0", **options)
            assert [share for share, _ in price.widths] == [0.01, 0.05, 0.2]
            assert price.widths[0][1] > price.widths[1][1] > price.widths[2][1]
            (_, first), *_ = session.ask(query, kind, where="g = 0", **options).rows()
            assert (first.high - first.low) / 2 == pytest.approx(price.widths[2][1], rel=0.1)
        by = {"within": (0, 1), "by": "g", "groups": [0, 1, 2], "slices": "auto"}
        grouped = session.price("CASE WHEN b THEN 1.0 ELSE 0.0 END", **by)
        answer = session.mean("CASE WHEN b THEN 1.0 ELSE 0.0 END", **by)
        assert answer[0].margin == pytest.approx(grouped.widths[2][1], rel=0.1)


def test_a_price_says_how_wide_other_answers_about_a_group_will_be() -> None:
    with wide(queries=200) as session:
        quantile = session.price("x", "quantile", q=0.5, where="g = 0")
        words = re.search(r"from the ([\d.]+) to the ([\d.]+) quantile if 20%", str(quantile.cheaper))
        assert words is not None
        low, high = map(float, words.groups())
        found = session.quantile("x", 0.5, where="g = 0", steps=14)  # the q quantile of x is q
        assert (found.low, found.high) == pytest.approx((low, high), abs=(high - low) / 5)
        for query, kind, options in (
            ("z", "std", {}),
            ("z", "covariance", {"other": "z"}),
            ("x", "difference", {"minus": "y"}),
            ("x", "auc", {"positive": "b"}),
        ):
            price = session.price(query, kind, where="g = 0", **options)
            said = re.search(r"about ±([\d.]+) if 20%", str(price.cheaper))
            assert said is not None, price.cheaper
            answer = session.ask(query, kind, where="g = 0", **options)
            assert (answer.high - answer.low) / 2 == pytest.approx(float(said[1]), rel=0.4), kind
        assert "about ±" in str(session.price("b", "difference", minus="x > 0.5"))
        assert "of the rows are positive" in str(session.price("x", "auc", positive="b").cheaper)


@pytest.mark.parametrize("guarantee", ["gaussian", "split"])
@pytest.mark.filterwarnings("ignore::holdfast.guarantees.plan.VacuousPlan")
def test_where_the_width_cannot_be_said_a_remark_says_so(guarantee: str) -> None:
    with wide(queries=20, guarantee=guarantee) as session:
        for query, kind, options in [
            ("b", "mean", {}),
            ("b", "histogram", {"categories": [True]}),
            ("x", "quantile", {"q": 0.5}),
            ("x", "auc", {"positive": "b"}),
            ("x", "std", {}),
            ("x", "difference", {"minus": "y"}),
        ]:
            price = session.price(query, kind, where="g = 0", **options)
            assert "how wide it will be depends on the data" in str(price.cheaper), kind
    with wide(queries=20) as session:
        cut = session.price("x", slices=[0.1], where="g = 0")
        assert "depends on which slices the values are in" in str(cut.cheaper)
