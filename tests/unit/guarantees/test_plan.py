"""`plan`: what it takes, what it says, what it refuses; every plan prints and travels as JSON."""

import json
from fractions import Fraction

import numpy as np
import pytest

from holdfast import plan
from holdfast.errors import InvalidArgument, PlanInfeasible
from holdfast.planning import Plan
from holdfast.planning.present import error
from holdfast.planning.strategies import MOST_ROWS, STRATEGIES

PAIRS = [pair for pair in STRATEGIES if pair[0] != "naive"]


def round_trip(one: Plan) -> Plan:
    return Plan.from_dict(json.loads(json.dumps(one.to_dict(), allow_nan=False)))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"rows": 100},
        {"queries": 10},
        {"accuracy": 0.1},
        {"rows": 100, "queries": 10, "accuracy": 0.1},
    ],
)
def test_exactly_one_is_left_out(given):
    with pytest.raises(InvalidArgument, match=r"^Give exactly two of rows, queries and accuracy; got "):
        plan(**given)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"rows": 1}, "rows must be a whole number of at least 2"),
        ({"rows": 1e6}, "rows must be a whole number"),
        ({"rows": MOST_ROWS + 1}, "rows must be at most"),
        ({"queries": 0}, "queries must be a whole number of at least 1"),
        ({"queries": 10**13}, "queries must be at most"),
        ({"queries": {}}, "queries must name kinds 'mean' and 'flip'; got nothing"),
        ({"queries": {"median": 3}}, "queries must name kinds"),
        ({"queries": {"mean": 0, "flip": 0}}, "queries must be a whole number"),
        ({"queries": {"mean": -1}}, "must be a whole number of at least 0"),
        ({"confidence": 1.0}, "confidence must be strictly between 0 and 1"),
        ({"confidence": 95}, "confidence must be strictly between 0 and 1"),
        ({"guarantee": "hope"}, "guarantee must be one of 'best', 'posterior'"),
        ({"mechanism": "dice"}, "mechanism must be one of 'best', 'coins', 'laplace'"),
        ({"rows_per_query": 0}, "rows_per_query must be a whole number"),
        ({"rows_per_query": 2000}, r"rows_per_query must be at most rows \(1000\)"),
    ],
)
def test_a_wrong_argument_is_named(wrong, says):
    with pytest.raises(InvalidArgument, match=says):
        plan(**({"rows": 1000, "queries": 10} | wrong))


@pytest.mark.parametrize("accuracy", [0, 1, -0.1, 5])
def test_accuracy_is_a_share_of_the_range(accuracy):
    with pytest.raises(InvalidArgument, match="accuracy must be strictly between 0 and 1"):
        plan(rows=1000, accuracy=accuracy)


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_every_guarantee_can_be_asked_for(pair):
    guarantee, mechanism = pair
    wanted = {"guarantee": guarantee, "mechanism": mechanism if mechanism != "fresh rows" else "best"}
    found = plan(rows=10**12, queries=50, **wanted)
    assert (found.guarantee, found.mechanism) == pair
    assert 0 < found.accuracy < 0.2
    assert 1 <= found.rows_per_query <= found.rows
    assert found.flips >= 0
    assert round_trip(found) == found


def test_the_best_is_the_best_of_the_table():
    found = plan(rows=10**5, queries=1000)
    honest = [a.accuracy for a in found.alternatives if a.guarantee != "naive" and a.accuracy is not None]
    assert found.accuracy == min(honest)
    assert [a.note for a in found.alternatives].count("this plan") == 1


def test_naive_is_shown_but_never_chosen():
    found = plan(rows=100, queries=50)
    naive = next(a for a in found.alternatives if a.guarantee == "naive")
    assert naive.note.startswith("no guarantee")
    assert naive.accuracy is not None
    assert naive.accuracy < found.accuracy


def test_rows_per_query_is_kept():
    for pair in PAIRS:
        wanted = {"guarantee": pair[0], "mechanism": pair[1] if pair[1] != "fresh rows" else "best"}
        if pair != ("paper", "coins"):  # its averages have a length of their own, at most this
            assert plan(rows=10**9, queries=5, rows_per_query=10**6, **wanted).rows_per_query == 10**6
    assert plan(queries=5, accuracy=0.2, rows_per_query=2000).rows_per_query == 2000


def test_numbers_of_every_make_become_plain_json():
    found = plan(rows=np.int64(10**5), queries=np.int32(100), rows_per_query=np.int64(500), confidence=Fraction(9, 10))
    assert round_trip(found) == found
    assert found.confidence == 0.9


def test_flips_are_for_the_information_guarantee():
    found = plan(rows=10**6, queries={"mean": 10, "flip": 10_000})
    assert (found.guarantee, found.sampling_queries, found.queries) == ("information", 10_000, 10)
    assert found.statements == 10_010
    assert found.flips == 10 * found.rows_per_query + 10_000
    only = plan(rows=10**6, queries={"flip": 10_000})
    assert (only.rows_per_query, only.flips, only.flip_probability) == (1, 10_000, 1e-6)
    assert only.accuracy < found.accuracy
    assert "the expectation of every flip" in str(only)
    with pytest.raises(PlanInfeasible, match="sampling counting queries"):
        plan(rows=10**6, queries={"flip": 5}, guarantee="posterior")


def test_a_kind_of_queries_named_alone_is_the_plain_number():
    assert plan(rows=10**5, queries={"mean": 100}) == plan(rows=10**5, queries=100)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"rows": 50, "accuracy": 0.01}, r"not even for one query; 50 rows allow accuracy 0\.\d+ for one query"),
        ({"queries": 10**12, "accuracy": 1e-7}, "allow a larger error"),
        ({"rows": 1000, "queries": 5, "guarantee": "posterior", "mechanism": "laplace"}, "or bring more rows"),
        ({"rows": 1000, "queries": 5, "guarantee": "paper"}, "No plan under the paper guarantee exists"),
        ({"rows": 1000, "accuracy": 0.2, "guarantee": "paper"}, "1,000 rows allow accuracy"),
    ],
)
def test_what_cannot_be_planned_says_what_can(given, says):
    with pytest.raises(PlanInfeasible, match=says) as caught:
        plan(**given)
    assert caught.value.fields


def test_the_accuracy_an_error_allows_is_allowed():
    with pytest.raises(PlanInfeasible) as caught:
        plan(rows=50, accuracy=0.01)
    assert plan(rows=50, accuracy=caught.value.fields["best_accuracy"]).queries >= 1


def test_a_vacuous_plan_says_so_and_leaves_infinity_out_of_its_json():
    found = plan(rows=5, queries=10, guarantee="posterior")
    assert found.vacuous
    assert found.accuracy == 1.0
    assert "which says nothing" in str(found)
    assert "chi" not in found.to_dict()["constants"]
    assert round_trip(found).to_dict() == found.to_dict()


@pytest.mark.parametrize("rows", [2, 3, 19, 20, 21, 1000, 10**15])
@pytest.mark.parametrize("queries", [1, 7, 10**12])
@pytest.mark.parametrize("confidence", [1e-6, 0.5, 0.95, 1 - 1e-9])
def test_every_corner_has_a_plan_that_prints(rows, queries, confidence):
    found = plan(rows=rows, queries=queries, confidence=confidence)
    assert 0 < found.accuracy <= 1
    text, html = str(found), found._repr_html_()
    assert f"{rows:,} rows" in text
    assert html.count("<tr>") == 1 + len(found.alternatives)
    assert round_trip(found).to_dict() == found.to_dict()
    for alternative in found.alternatives:
        assert alternative.guarantee in text
        assert alternative.accuracy is None or 0 < alternative.accuracy <= 1


@pytest.mark.parametrize("x", [0.03785, 0.1, 0.0398, 1e-9, 0.99999, 1.0])
def test_a_promise_is_never_rounded_in_its_own_favor(x):
    shown = float(error(x).removeprefix("±"))
    assert x <= shown <= min(1.0, x + 1e-4 + 1e-12)
    assert error(None) == "-"
