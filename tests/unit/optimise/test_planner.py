"""The planner of descent: growth in every argument, constants that hold, and what previous work would read."""

import math

import pytest

import holdfast as hf
from holdfast.errors import InvalidArgument
from holdfast.guarantees import descent
from holdfast.optimise import Problem, plan_descent
from holdfast.optimise.boosting import runs_for


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


def test_evaluations_grow_with_accuracy():
    """1/alpha^2, and T/(1 + log T) as 1/alpha, but for rounding T (some 300 and more) up to a whole number."""
    finer = (10, 100, 0.001)
    assert growth("coins, convex", "gradient_evaluations", BASE, finer) == pytest.approx(-2, abs=0.01)
    steps = [
        plan_descent(problem(curvature=1.0), queries=100, excess=alpha)["coins, strongly convex"].iterations
        for alpha in (0.1, 0.001)
    ]
    coarse, fine = (count / (1 + math.log(count)) for count in steps)
    assert math.log(fine / coarse) / math.log(100) == pytest.approx(1, abs=0.01)


def test_previous_work_reads_d_k_n_squared():
    plan = plan_descent(problem(), queries=100, excess=0.1)
    before = plan["previous work, convex"]
    assert before.gradient_evaluations == pytest.approx(10 * 100 * before.rows**2)
    assert plan["coins, convex"].gradient_evaluations < before.gradient_evaluations
    assert plan["coins, convex"].rows < plan["paper, convex"].rows


def test_rows_agree_with_the_theorem():
    found = plan_descent(problem(), queries=100, excess=0.1)["coins, convex"]
    known = descent.sample_size(1.0, 1.0, 1.0, 10, k=100, alpha=0.1)
    assert found.rows == pytest.approx(known.n, rel=0.01)
    assert found.iterations == pytest.approx(known.iterations, rel=0.01)
    assert found.flips == pytest.approx(known.flips, rel=0.01)


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
        step = descent.information_step(p.difference, nats=route.flips / (2 * route.rows), n=int(route.rows))
        assert on_rows + step <= 0.1
        assert plan[f"laplace, {kind}"].rows > route.rows  # the same flips buy more noise
        assert plan[f"coins, {kind}, posterior"].rows > route.rows  # all at once is more than on average


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
        plan_descent(p, queries=10, excess=0.5)["tea leaves"]


def test_runs_double_their_luck():
    assert 2.0 ** -runs_for(1_000, 0.05) <= 0.05 / 1_000 < 2.0 ** -(runs_for(1_000, 0.05) - 1)
