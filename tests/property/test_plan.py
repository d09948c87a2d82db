"""Plans: a solved value is on the safe side, more rows never hurt, every plan prints and travels."""

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from holdfast import plan
from holdfast.errors import PlanInfeasible
from holdfast.planning import Plan

# Accuracies come from a search that stops a little above the optimum: so much may two neighboring plans differ.
SEARCH = 1.005

row_counts = st.integers(2, 10**10)
query_counts = st.integers(1, 10**7)
confidences = st.floats(0.01, 0.9999)
accuracies = st.floats(0.005, 0.9)
guarantees = st.sampled_from(["best", "posterior", "information", "dp", "split", "paper"])
FEW = settings(max_examples=25, deadline=None)


@FEW
@given(query_counts, accuracies, confidences, guarantees)
def test_solved_rows_reach_the_accuracy(queries, accuracy, confidence, guarantee):
    try:
        found = plan(queries=queries, accuracy=accuracy, confidence=confidence, guarantee=guarantee)
    except PlanInfeasible:
        return  # says so; below the test asks for plans that exist
    assert found.accuracy <= accuracy
    again = plan(rows=found.rows, queries=queries, confidence=confidence, guarantee=guarantee)
    assert again.accuracy <= accuracy


@FEW
@given(row_counts, accuracies, confidences, guarantees)
def test_solved_queries_reach_the_accuracy(rows, accuracy, confidence, guarantee):
    one = {"rows": rows, "confidence": confidence, "guarantee": guarantee}
    try:
        found = plan(accuracy=accuracy, **one)
    except PlanInfeasible:
        with pytest.raises(PlanInfeasible, match=f"{rows:,} rows allow accuracy"):
            plan(accuracy=accuracy, **one)
        return
    assert found.accuracy <= accuracy
    again = plan(rows=rows, queries=found.queries, confidence=confidence, guarantee=guarantee)
    assert again.accuracy <= accuracy


@FEW
@given(query_counts, st.floats(0.05, 0.9), confidences)
def test_a_large_error_can_always_be_reached_and_not_with_far_fewer_rows(queries, accuracy, confidence):
    found = plan(queries=queries, accuracy=accuracy, confidence=confidence)
    if found.rows > 100:
        fewer = plan(rows=int(found.rows * 0.95), queries=queries, confidence=confidence)
        assert fewer.accuracy > accuracy


@FEW
@given(row_counts, query_counts, confidences)
def test_more_rows_fewer_queries_and_less_confidence_never_hurt(rows, queries, confidence):
    base = plan(rows=rows, queries=queries, confidence=confidence).accuracy
    assert plan(rows=2 * rows, queries=queries, confidence=confidence).accuracy <= base * SEARCH
    assert plan(rows=rows, queries=2 * queries, confidence=confidence).accuracy >= base / SEARCH
    assert plan(rows=rows, queries=queries, confidence=confidence / 2).accuracy <= base * SEARCH


@FEW
@given(row_counts, query_counts, confidences)
def test_every_alternative_is_a_valid_line(rows, queries, confidence):
    found = plan(rows=rows, queries=queries, confidence=confidence)
    assert found.rows == rows
    assert found.queries == queries
    for line in found.alternatives:
        if line.accuracy is not None:
            assert 0 < line.accuracy <= 1
            assert line.rows_per_query is not None
            assert 1 <= line.rows_per_query <= rows
    assert found.accuracy == min(
        line.accuracy for line in found.alternatives if line.guarantee != "naive" and line.accuracy is not None
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
    if found.constants.get("chi") != float("inf"):
        assert Plan.from_dict(sent) == found


@FEW
@given(row_counts, st.integers(1, 10**6), confidences)
def test_coins_stay_within_their_flips(rows, queries, confidence):
    for guarantee in ("posterior", "information"):
        try:
            found = plan(rows=rows, queries=queries, confidence=confidence, guarantee=guarantee, mechanism="coins")
        except PlanInfeasible:
            assert rows < 20
            continue
        assert found.flips == queries * found.rows_per_query
        assert 0 < found.flip_probability < 0.5
        spent = found.constants["beta1"] + found.constants["beta2"]
        assert abs(spent - (1 - confidence)) < 1e-12
