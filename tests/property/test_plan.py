"""Plans: a solved value is on the safe side, more rows never hurt, every plan prints and travels."""

import json
from functools import partial

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, reject, settings

from examples import examples
from holdfast.errors import PlanInfeasible
from holdfast.guarantees.plan import Plan
from holdfast.session.planning import plan as any_plan

pytestmark = pytest.mark.slow  # together they take seconds

# The narrowest there is: it may end, read all rows, and ask for rows of one law.
plan = partial(any_plan, end=True, identical=True, rows_per_query="best")

# Margins come from a search that stops a little above the optimum: so much may two neighboring plans differ.
SEARCH = 1.005

row_counts = st.integers(2, 10**10)
query_counts = st.integers(1, 10**7)
confidences = st.floats(0.01, 0.9999)
margins = st.floats(0.005, 0.9)
guarantees = st.sampled_from(["best", "exchange", "posterior", "information", "dp", "split", "paper"])
FEW = settings(max_examples=examples(25), deadline=None)


@FEW
@given(query_counts, margins, confidences, guarantees)
def test_solved_rows_reach_the_margin(queries, margin, confidence, guarantee):
    try:
        found = plan(queries=queries, margin=margin, confidence=confidence, guarantee=guarantee)
    except PlanInfeasible:
        reject()  # says so; below the test asks for plans that exist
    assert found.margin <= margin
    again = plan(rows=found.rows, queries=queries, confidence=confidence, guarantee=guarantee)
    assert again.margin <= margin


@FEW
@given(row_counts, margins, confidences, guarantees)
def test_solved_queries_reach_the_margin(rows, margin, confidence, guarantee):
    one = {"rows": rows, "confidence": confidence, "guarantee": guarantee}
    try:
        found = plan(margin=margin, **one)
    except PlanInfeasible:
        with pytest.raises(PlanInfeasible, match=f"{rows:,} rows allow a margin of"):
            plan(margin=margin, **one)
        return
    assert found.margin <= margin
    again = plan(rows=rows, queries=found.queries, confidence=confidence, guarantee=guarantee)
    assert again.margin <= margin


@FEW
@example(18, 0.516, 0.5)  # the fewest rows have a margin above one half
@given(query_counts, st.floats(0.05, 0.9), confidences)
def test_a_large_margin_can_always_be_reached_and_not_with_far_fewer_rows(queries, margin, confidence):
    found = plan(queries=queries, margin=margin, confidence=confidence)
    assert found.margin <= margin
    if found.rows > 100:
        fewer = plan(rows=int(found.rows * 0.95), queries=queries, confidence=confidence)
        assert fewer.margin > margin


@FEW
@given(row_counts, query_counts, confidences)
def test_more_rows_fewer_queries_and_less_confidence_never_hurt(rows, queries, confidence):
    base = plan(rows=rows, queries=queries, confidence=confidence).margin
    assert plan(rows=2 * rows, queries=queries, confidence=confidence).margin <= base * SEARCH
    assert plan(rows=rows, queries=2 * queries, confidence=confidence).margin >= base / SEARCH
    assert plan(rows=rows, queries=queries, confidence=confidence / 2).margin <= base * SEARCH


@FEW
@given(row_counts, query_counts, confidences)
def test_every_alternative_is_a_valid_line(rows, queries, confidence):
    found = plan(rows=rows, queries=queries, confidence=confidence)
    assert found.rows == rows
    assert found.queries == queries
    for line in found.alternatives:
        if line.margin is not None:
            assert 0 < line.margin <= 1
            assert line.rows_per_query is not None
            assert 1 <= line.rows_per_query <= rows
    unasked = ("none", "gaussian")  # read all rows
    assert found.margin == min(
        line.margin for line in found.alternatives if line.guarantee not in unasked and line.margin is not None
    )


@FEW
@given(row_counts, query_counts, confidences, st.integers(0, 10**6))
def test_every_plan_prints_and_travels(rows, queries, confidence, flips):
    kinds = {"mean": queries, "flip": flips}
    try:
        found = plan(rows=rows, queries=kinds, confidence=confidence)
    except PlanInfeasible:
        assert rows < 20
        assert flips
        return
    assert f"{rows:,} rows" in str(found)
    assert found._repr_html_().startswith("<p>")
    sent = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert Plan.from_dict(sent).to_dict() == found.to_dict()
    assert Plan.from_dict(sent) == found


@FEW
@given(row_counts, st.integers(1, 10**6), confidences)
def test_the_charge_of_coins_is_their_number(rows, queries, confidence):
    for guarantee in ("exchange", "posterior", "information"):
        try:
            found = plan(rows=rows, queries=queries, confidence=confidence, guarantee=guarantee, mechanism="coins")
        except PlanInfeasible:
            assert rows < 20
            continue
        assert found.terms.charge == queries * found.rows_per_query
        assert 0 < found.standing.coin_mass < 0.5
        spent = found.terms.beta1 + found.terms.beta2
        assert abs(spent - (1 - confidence)) < 1e-12
