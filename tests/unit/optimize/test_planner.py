"""The planner of descent: growth in every argument, constants that hold, and what previous work would read."""

import functools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import holdfast as hf
from counting_rows import CountingRows
from holdfast.errors import InvalidArgument
from holdfast.guarantees.mathematics import descent
from holdfast.optimize.descent import runs_for
from holdfast.optimize.planner import Problem
from holdfast.optimize.planner import plan_descent as plan_anew

plan_descent = functools.cache(plan_anew)  # planning takes a second or so, and many tests look at the same plans


def problem(d: int = 10, **changes) -> Problem:
    numbers = {"dimension": d, "diameter": 1.0, "difference": 1.0, "gradient": 1.0}
    return Problem(**numbers | {"lows": (-1.0,) * d, "highs": (1.0,) * d} | changes)


def growth(route: str, attribute: str, one: tuple, other: tuple, **changes) -> float:
    """The exponent by which a number grows from one (d, k, alpha) to another that differs in one argument."""
    values = []
    for d, k, alpha in (one, other):
        found = plan_descent(problem(d, **changes), queries=k, excess=alpha)[route]
        values.append(getattr(found, attribute))
    (ratio,) = (b / a for a, b in zip(one, other, strict=True) if a != b)
    return math.log(values[1] / values[0]) / math.log(ratio)


BASE = (10, 100, 0.1)


@pytest.mark.parametrize(("route", "curved"), [("coins, convex", 0.0), ("coins, strongly convex", 1.0)])
def test_evaluations_grow_with_k_and_d(route, curved):
    """A coordinate is one query of ell = d coins here: d k queries for each power of 1/alpha."""
    assert growth(route, "gradient_evaluations", BASE, (10, 10_000, 0.1), curvature=curved) == pytest.approx(1)
    queries = growth(route, "gradient_evaluations", BASE, (100, 100, 0.1), curvature=curved) - 1  # ell grows with d
    assert queries == pytest.approx(1, abs=0.01)


def test_evaluations_grow_as_the_excess_falls():
    """1/alpha^2, and T/(1 + log T) as 1/alpha, but for rounding T (some 300 and more) up to a whole number."""
    finer = (10, 100, 0.001)
    assert growth("coins, convex", "gradient_evaluations", BASE, finer) == pytest.approx(-2, abs=0.01)
    steps = [
        plan_descent(problem(curvature=1.0), queries=100, excess=alpha)["coins, strongly convex"].iterations
        for alpha in (0.1, 0.001)
    ]
    coarse, fine = (count / (1 + math.log(count)) for count in steps)
    assert math.log(fine / coarse) / math.log(100) == pytest.approx(1, abs=0.01)


def test_published_routes_have_constants_and_orders_have_no_numbers():
    plan = plan_descent(problem(), queries=100, excess=0.1)
    before, paper = plan["previous work, convex"], plan["paper, convex"]
    assert before.gradient_evaluations == 100 * before.iterations * 10 * before.rows
    assert before.iterations == paper.iterations
    assert plan["coins, convex"].gradient_evaluations <= paper.gradient_evaluations < before.gradient_evaluations
    assert plan["coins, convex"].rows < before.rows < paper.rows
    boosted = next(route for route in plan.routes if route.name.startswith("paper, convex, best of"))
    assert boosted.rows > 100 * paper.rows
    assert boosted.promise == "all at once"
    *_, orders, first, second = str(plan).splitlines()
    assert "no numbers of rows" in orders
    assert "k d/a^2" in first
    assert "k d n^2" in second


def test_what_is_printed_beside_certified_rows_are_rows():
    """The manual's example: repaired sizes of the paper's proofs, where orders of growth would have said 48 rows."""
    loss = hf.losses.Logistic({"distance": (0, 5000), "hour": (0, 23)}, target="dep_delay > 15")
    printed = str(plan_descent(Problem.of(loss, radius=3), queries=20, excess=0.4))
    table, orders = printed.split("Orders of growth")
    rows = {line[:26].strip(): float(line[42:55].split()[0]) for line in table.splitlines()[2:]}
    assert rows["paper, convex"] == 4.53e6
    assert rows["paper, convex, best of 11"] == 1.67e11
    assert min(rows, key=rows.__getitem__) == "coins, convex"
    assert "best of" not in orders
    assert not any(number in orders for number in ("e+", "48"))


def test_rows_agree_with_the_theorem():
    found = plan_descent(problem(), queries=100, excess=0.1)["coins, convex"]
    known = descent.sample_size(1.0, 1.0, 1.0, 10, k=100, alpha=0.1)
    # sqrt(2) in place of 3/2 saves a ninth of the steps, and rows by its root; answers for the losses take little
    assert found.iterations == pytest.approx(known.iterations * 8 / 9, rel=0.01)
    assert found.gradient_evaluations == pytest.approx(known.charge * 8 / 9, rel=0.01)
    assert found.gradient_evaluations < found.charge <= 1.01 * found.gradient_evaluations
    assert found.rows == pytest.approx(known.n * (8 / 9) ** 0.5, rel=0.015)  # searched in steps of half a per cent


@pytest.mark.parametrize("curved", [0.0, 0.5])
def test_every_route_keeps_its_promise(curved):
    p = problem(curvature=curved)
    plan = plan_descent(p, queries=100, excess=0.1)
    for kind in ("convex", "strongly convex") if curved else ("convex",):
        route = plan[f"coins, {kind}"]
        norm = p.moment(int(route.rows_per_coordinate), 1 / route.rows)
        if kind == "convex":
            on_rows = descent.convex_excess(p.diameter, norm, int(route.iterations))
        else:
            on_rows = descent.strongly_convex_excess(norm, curved, int(route.iterations))
        step = descent.information_step(p.difference, nats=route.charge / (2 * route.rows), n=int(route.rows))
        assert on_rows + step <= 0.1
        assert plan[f"laplace, {kind}"].rows > route.rows  # the same charge buys more noise
        assert plan[f"coins, {kind}, exchange"].rows > route.rows  # all at once is more than on average


def test_a_problem_is_read_off_a_loss():
    loss = hf.losses.Logistic({"a": (0, 1), "b": (0, 9)}, "late", l2=0.1)
    p = Problem.of(loss, radius=2)
    assert p.dimension == 3
    assert p.diameter == 4
    assert p.curvature == 0.1
    assert p.exact == pytest.approx(0.2)
    assert p.gradient <= math.sqrt(3)
    assert "coins, strongly convex" in str(plan_descent(p, queries=10, excess=0.5))
    with pytest.raises(InvalidArgument):
        Problem.of("late", radius=2)
    with pytest.raises(KeyError):
        plan_descent(p, queries=10, excess=0.5)["no such route"]


@pytest.mark.parametrize(("statements", "beta"), [(1_000, 0.05), (1, 0.5), (8, 0.25), (7, 0.03)])
def test_runs_leave_half_of_a_share_to_the_choice(statements, beta):
    runs, share = runs_for(statements, beta), beta / statements
    assert 2.0**-runs <= share / 2 < 2.0 ** -(runs - 1)


def test_a_good_best_run_and_a_good_choice_share_the_chance():
    """Exactly: each run is bad with chance 1/2, the most that Markov allows, and choosing fails with beta/(2k)."""
    k, beta = 5, 0.2
    allowed = beta / k
    failing = [0.5**runs + allowed / 2 for runs in (runs_for(k, beta), math.ceil(math.log2(k / beta)))]
    assert failing[0] <= allowed < failing[1]


# -- planned sessions really run -------------------------------------------------------------------------------------

QUERIES, EXCESS = 3, 0.6
RANGES = {"a": (-1, 1)}
SIGN = hf.losses.Squared(RANGES, "y", target_within=(-1, 1), intercept=False)
CURVED = hf.losses.Squared(RANGES, "y", target_within=(-1, 1), intercept=False, l2=1.0)
ROUTES = ["coins, convex", "laplace, convex", "coins, convex, exchange"]
ROUTES_CURVED = [*ROUTES, *(name.replace("convex", "strongly convex") for name in ROUTES)]


def fitted(loss, name: str, session_of) -> tuple[Any, CountingRows, list[hf.MinimumAnswer], hf.Plan]:
    """Open the planned session on as many rows as were planned, and ask all queries, each about the last answer."""
    route = plan_descent(Problem.of(loss, radius=0.5), queries=QUERIES, excess=EXCESS)[name]
    rng = np.random.default_rng(3)
    data = {name: rng.choice([-1.0, 1.0], int(route.rows)) for name in ("a", "y")}
    rows = CountingRows(hf.open(data))
    answers, sign = [], 1
    with hf.Session(rows, seed=1, **session_of(route)) as s:
        for j in range(QUERIES):
            asked = replace(loss, features={f"{sign} * a + {j} * 0": (-1, 1)})
            answers.append(s.minimize(asked, radius=0.5, **route.fit))
            sign = 1 if answers[-1].point[0] > 0 else -1
        assert s.ledger.spent.charge <= route.charge == s.plan.terms.charge
    return route, rows, answers, s.plan


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "name"), [(SIGN, name) for name in ROUTES] + [(CURVED, name) for name in ROUTES_CURVED]
)
def test_a_planned_session_runs_to_its_end_and_keeps_the_promise(loss, name):
    route, rows, answers, stands = fitted(loss, name, lambda route: route.session)
    assert len(answers) == QUERIES
    assert sum(answer.gradient_evaluations for answer in answers) == route.gradient_evaluations
    assert rows.rows_read == route.gradient_evaluations + QUERIES * stands.rows_per_query
    for answer in answers:
        promised = answer.excess_bound if route.promise == "all at once" else answer.expected_excess_bound
        trivial = answer.loss.high - answer.loss.bounds[0]  # beyond which nothing is said
        assert trivial <= EXCESS if promised is None else promised <= EXCESS
        assert answer.loss.high - answer.loss.low < answer.loss.bounds[1] - answer.loss.bounds[0]


@pytest.mark.slow
def test_a_session_that_forgets_the_answers_for_the_losses_cannot_pay():
    def forgetful(route):
        afforded = {"rows": route.rows, "confidence": 0.95, "guarantee": "exchange", "mechanism": "coins", "end": True}
        questions = route.session["queries"]
        while hf.plan(queries=questions - 1, **afforded).terms.charge >= route.gradient_evaluations:
            questions -= 1
        return dict(route.session) | {"queries": questions, "end": True}

    with pytest.raises(hf.BudgetExhausted):
        fitted(SIGN, "coins, convex, exchange", forgetful)
