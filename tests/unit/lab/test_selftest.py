"""The self-test says "kept" of plans that hold and "broke" of mechanisms that do not."""

from dataclasses import dataclass

import pytest

from holdfast.errors import InvalidArgument
from holdfast.guarantees.exchange import Exchange
from holdfast.guarantees.plan import Plan
from holdfast.lab import selftest
from holdfast.lab.baselines import Naive
from holdfast.lab.contenders import MechanismOracle, PlanContender
from holdfast.lab.selftest import strongest_analyst
from holdfast.session.planning import plan

PLAN = plan(rows=2_000, queries=100)


@dataclass(frozen=True)
class Overconfident:
    """A mutant: exact answers with a textbook error bar."""

    half_width: float
    name: str = "overconfident"
    promised: float | None = None
    noise: float | None = 0.0

    def start(self, source, rng):
        return MechanismOracle(Naive(), source, rng, half_width=self.half_width)


class Bold(Exchange):
    """A mutant: the population is where the posterior means are, and intervals miss them one time in three."""

    def __init__(self, terms):
        super().__init__(terms)
        self._j, self.level = 0.0, 0.3

    def at(self, charge, first, last):
        """And it is everywhere the same."""
        return self


@pytest.mark.parametrize("guarantee", ["exchange", "posterior", "information"])
def test_a_plan_that_holds_is_found_to_hold(guarantee):
    found = selftest(plan(rows=2_000, queries=100, guarantee=guarantee), worlds=12, seed=3)
    assert found.kept
    assert found.largest_error <= found.plan.margin
    assert "kept its promise" in repr(found)


def test_a_mechanism_that_breaks_its_promise_is_found_out():
    found = selftest(PLAN, worlds=12, seed=3, contender=Overconfident(0.02))
    assert not found.kept
    assert found.failed == 12
    assert "BROKE" in found.sentence
    assert found.to_dict()["kept"] is False


def test_a_plan_that_claims_too_much_is_found_out():
    assert not selftest(PLAN, worlds=12, seed=3, contender=PlanContender(Plan(Bold(PLAN.terms)))).kept


def test_what_zero_failures_prove_is_reported():
    found = selftest(PLAN, worlds=3, seed=1)
    assert found.failed == 0
    assert found.failure_at_most == pytest.approx(1 - 0.05 ** (1 / 3), abs=1e-3)
    assert found.p_value == 1.0


def test_large_tables_get_the_analyst_that_needs_few_columns():
    assert strongest_analyst(PLAN, 100).name == "weighted"
    assert strongest_analyst(plan(rows=1_000_000, queries=1_000), 1_000).name == "climber"


def test_fewer_questions_than_planned_may_be_simulated():
    assert selftest(PLAN, worlds=2, questions=10).questions == 10
    with pytest.raises(InvalidArgument, match="questions must be at most the plan's queries"):
        selftest(plan(rows=2_000, queries=100, end=True), worlds=2, questions=101)
    with pytest.raises(InvalidArgument, match="at least 3 questions"):
        selftest(plan(rows=2_000, queries=2), worlds=2)


@pytest.mark.slow
@pytest.mark.parametrize("queries", [None, 50])
def test_sessions_go_on(queries):
    """Beyond a plan, and without one, every answer is as wide as its place makes it."""
    made = plan(rows=2_000, queries=queries)
    found = selftest(made, worlds=4, questions=120, seed=3)
    assert found.kept
    assert found.to_dict()["promised"] == made.standing.margin_after(119) > made.margin
    bold = PlanContender(Plan(Bold(made.terms)))
    assert not selftest(made, worlds=12, questions=120, seed=3, contender=bold).kept
