"""What is left, and what a question would cost, in words and numbers that agree with what is then charged."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from holdfast.budget import Budget, Quote
from holdfast.ledger import Spent
from holdfast.planning import plan
from holdfast.session import Session


def data(rows: int = 5_000) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {"b": rng.random(rows) < 0.5, "x": rng.random(rows), "g": rng.integers(0, 3, rows)}


QUESTIONS: list[tuple[str, str, dict[str, Any]]] = [
    ("b", "mean", {}),
    ("x", "mean", {"within": (0, 1), "where": "g = 1"}),
    ("g", "histogram", {"categories": [0, 1, 2]}),
    ("x", "quantile", {"q": 0.5, "within": (0, 1), "steps": 4}),
]
PLANS: list[dict[str, Any]] = [
    {"guarantee": "posterior"},
    {"guarantee": "information"},
    {"guarantee": "information", "mechanism": "laplace"},
    {"guarantee": "split"},
]


@pytest.mark.parametrize("terms", PLANS, ids=lambda terms: " ".join(terms.values()))
def test_the_price_is_what_is_charged(terms: dict[str, Any]) -> None:
    with Session(data(), seed=1, queries=40, **terms) as session:
        for query, kind, options in QUESTIONS:
            before, quote = session.ledger.spent, session.price(query, kind, **options)
            assert not quote.cached
            assert quote.affordable
            answer = session.ask(query, kind, **options)
            after = session.ledger.spent
            assert after.flips - before.flips == quote.flips == answer.cost  # type: ignore[union-attr]
            assert after.intervals - before.intervals == quote.queries
            assert answer.rows_read == quote.rows_read  # type: ignore[union-attr]
            assert session.price(query, kind, **options).cached
            assert session.budget.flips_spent == after.flips


@pytest.mark.parametrize("terms", PLANS, ids=lambda terms: " ".join(terms.values()))
def test_what_is_said_to_be_left_can_be_asked(terms: dict[str, Any]) -> None:
    with Session(data(), seed=1, queries=12, **terms) as session:
        session.mean("b", where="g = 1")
        left = session.budget.queries_left
        assert left in (10, 11)
        for number in range(left):
            assert session.price(f"x > 0.{number + 1:02}").affordable
            session.mean(f"x > 0.{number + 1:02}")
            assert session.budget.queries_left == left - number - 1
        assert not session.price("x < 0.5").affordable
        assert "more than is left" in str(session.price("x < 0.5"))
        assert "free" in str(session.price("x > 0.01"))
        assert str(session.budget).startswith("0 of 12 answers left at ±")


def test_flips_have_a_budget_of_their_own_kind() -> None:
    with Session(data(), seed=1, queries={"flip": 10}) as session:
        assert session.budget.queries_total == session.budget.queries_left == 10
        session.flips("b", 4)
        assert session.budget.queries_left == 6
        assert session.budget.unit == "flips"


def test_a_budget_is_never_below_nothing() -> None:
    standing = plan(rows=5_000, queries=10)
    for spent in (Spent(standing.flips, 10, 10), Spent(standing.flips + 5, 3, 3), Spent(0, 99, 99)):
        assert Budget.of(standing, spent).queries_left == 0
    assert Budget.of(standing, Spent(0, 0, 0)).queries_left == 10
    assert Budget.of(plan(rows=50, queries=10, guarantee="split"), Spent(0, 0, 0)).unit == "fresh rows"


def test_budgets_and_quotes_are_plain_json() -> None:
    budget = Budget.of(plan(rows=5_000, queries=10), Spent(1, 1, 1))
    quote = Quote("share of b", 10, 1, 10, 0.25, cached=False, affordable=True)
    for said in (budget, quote, replace(quote, accuracy=None, queries=2)):
        assert json.loads(json.dumps(said.to_dict(), allow_nan=False)) == said.to_dict()
    assert str(quote) == "1 answer of the budget, 10 rows read, within ±0.25: share of b"
    assert repr(budget) == str(budget)
