"""`plan`: what it takes, what it says, what it refuses; every plan prints and travels as JSON."""

import json
import re
from fractions import Fraction

import numpy as np
import pytest

from holdfast.errors import InvalidArgument, PlanInfeasible
from holdfast.guarantees.plan import Plan, write_margin
from holdfast.guarantees.request import MOST_ROWS
from holdfast.session.planning import plan
from pairwise import pairwise
from planned import PAIRS, planned


def round_trip(one: Plan) -> Plan:
    return Plan.from_dict(json.loads(json.dumps(one.to_dict(), allow_nan=False)))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"queries": 10},
        {"margin": 0.1},
        {"rows": 100, "queries": 10, "margin": 0.1},
    ],
)
def test_exactly_one_is_left_out(given):
    with pytest.raises(InvalidArgument, match=r"^Give two of rows, queries and margin, .*\. Got "):
        plan(**given)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"rows": 1}, "rows must be a whole number of at least 2"),
        ({"rows": 1e6}, "rows must be a whole number"),
        ({"rows": MOST_ROWS + 1}, "rows must be at most"),
        ({"queries": 0}, "queries must be a whole number of at least 1"),
        ({"queries": 10**13}, "queries must be at most"),
        ({"queries": {}}, "queries must name 'mean' and 'flip'; got nothing"),
        ({"queries": {"median": 3}}, "queries must name"),
        ({"queries": {"mean": 0, "flip": 0}}, "queries must be a whole number"),
        ({"queries": {"mean": -1}}, "must be a whole number of at least 0"),
        ({"confidence": 1.0}, "confidence must be strictly between 0 and 1"),
        ({"confidence": 95}, "confidence must be strictly between 0 and 1"),
        ({"guarantee": "hope"}, "guarantee must be one of 'best', 'exchange'"),
        ({"mechanism": "dice"}, "mechanism must be one of 'best', 'coins', 'gaussian', 'laplace'"),
        ({"rows_per_query": 0}, "rows_per_query must be a whole number"),
        ({"rows_per_query": 2000}, r"rows_per_query must be at most rows \(1000\)"),
    ],
)
def test_a_wrong_argument_is_named(wrong, says):
    with pytest.raises(InvalidArgument, match=says):
        plan(**({"rows": 1000, "queries": 10} | wrong))


@pytest.mark.parametrize("margin", [0, 1, -0.1, 5])
def test_a_margin_is_a_share_of_the_range(margin):
    with pytest.raises(InvalidArgument, match="margin must be strictly between 0 and 1"):
        plan(rows=1000, margin=margin)


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_every_guarantee_can_be_asked_for(pair):
    found = plan(rows=10**12, queries=50, guarantee=pair[0], mechanism=pair[1])
    assert (found.guarantee, found.mechanism) == pair
    assert 0 < found.margin < 0.2
    assert 1 <= found.rows_per_query <= found.rows
    assert found.terms.charge > 0
    assert round_trip(found) == found


def test_the_best_is_the_best_of_the_table():
    found = plan(rows=10**5, queries=1000)
    unasked = ("none", "gaussian")  # read all rows
    kept = [a.margin for a in found.alternatives if a.guarantee not in unasked and a.margin is not None]
    assert found.margin == min(kept)
    assert [a.note for a in found.alternatives].count("this plan") == 1


def test_a_full_scan_is_shown_but_never_chosen():
    found = plan(rows=100, queries=50)
    scan = next(a for a in found.alternatives if a.guarantee == "none")
    assert scan.note.startswith("no promise")
    assert scan.margin is not None
    assert scan.margin < found.margin


def test_rows_per_query_is_kept():
    for pair in PAIRS:
        by = {"guarantee": pair[0], "mechanism": pair[1]}
        if pair not in (("paper", "coins"), ("gaussian", "gaussian")):  # a length of their own, at most this; all rows
            assert plan(rows=10**9, queries=5, rows_per_query=10**6, **by).rows_per_query == 10**6
    assert plan(queries=5, margin=0.2, rows_per_query=2000).rows_per_query == 2000


def test_numbers_of_every_make_become_plain_json():
    found = plan(rows=np.int64(10**5), queries=np.int32(100), rows_per_query=np.int64(500), confidence=Fraction(9, 10))
    assert round_trip(found) == found
    assert found.confidence == 0.9


def test_flips_are_for_the_information_guarantee():
    found = plan(rows=10**6, queries={"mean": 10, "flip": 10_000})
    assert (found.guarantee, found.flips, found.queries) == ("information", 10_000, 10)
    assert found.statements == 10_010
    assert found.terms.charge == 10 * found.rows_per_query + 10_000
    only = plan(rows=10**6, queries={"flip": 10_000})
    assert (only.rows_per_query, only.flips, only.terms.charge) == (1, 10_000, 10_000)
    assert only.standing.coin_mass == 1e-6
    assert only.margin < found.margin
    assert "the expectation of every flip" in str(only)
    with pytest.raises(PlanInfeasible, match="rows and single flips"):
        plan(rows=10**6, queries={"flip": 5}, guarantee="posterior")


def test_a_kind_of_queries_named_alone_is_the_plain_number():
    assert plan(rows=10**5, queries={"mean": 100}) == plan(rows=10**5, queries=100)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"rows": 50, "margin": 0.01}, r"not even for one query; 50 rows allow a margin of 0\.\d+ for one query"),
        ({"queries": 10**12, "margin": 1e-7}, "allow a larger margin"),
        ({"rows": 1000, "queries": 5, "guarantee": "posterior", "mechanism": "laplace"}, "or bring more rows"),
        ({"rows": 1000, "queries": 5, "guarantee": "paper"}, "No plan under the paper guarantee exists"),
        ({"rows": 1000, "margin": 0.2, "guarantee": "paper"}, "1,000 rows allow a margin"),
    ],
)
def test_what_cannot_be_planned_says_what_can(given, says):
    with pytest.raises(PlanInfeasible, match=says) as caught:
        plan(**given)
    assert caught.value.fields


def test_the_margin_an_error_allows_is_allowed():
    with pytest.raises(PlanInfeasible) as caught:
        plan(rows=50, margin=0.01)
    assert plan(rows=50, margin=caught.value.fields["best_margin"]).queries >= 1


def test_a_vacuous_plan_says_so_and_leaves_infinity_out_of_its_json():
    found = plan(rows=5, queries=10, guarantee="posterior")
    assert found.vacuous
    assert found.margin == 1.0
    assert "which says nothing" in str(found)
    assert found.to_dict()["widening"] is None
    assert round_trip(found).to_dict() == found.to_dict()


CORNERS = pairwise([2, 3, 19, 20, 21, 1000, 10**15], [1, 7, 10**12], [1e-6, 0.5, 0.95, 1 - 1e-9])


@pytest.mark.parametrize("rows", [344, 1_000, 4_037])
def test_a_plan_without_an_end_says_from_which_question_on_it_says_nothing(rows: int) -> None:
    endless = plan(rows=rows)
    found = re.search(r"From about question ([\d,]+) on", endless.sentence)
    assert found is not None
    number = int(found[1].replace(",", ""))
    assert endless.standing.margin_after(number - 2) < 0.5 <= endless.standing.margin_after(number - 1)
    assert "±1.0000" not in endless.sentence
    assert "From about" not in plan(rows=20_000).sentence


@pytest.mark.parametrize(("rows", "queries", "confidence"), CORNERS)
def test_every_corner_has_a_plan_that_prints(rows, queries, confidence):
    found = plan(rows=rows, queries=queries, confidence=confidence)
    assert 0 < found.margin <= 1
    text, html = str(found), found._repr_html_()
    assert f"{rows:,} rows" in text
    readings = len(found.readings)
    assert html.count("<tr>") == 1 + len(found.alternatives) + (1 + readings if readings else 0)
    assert round_trip(found).to_dict() == found.to_dict()
    for alternative in found.alternatives:
        assert alternative.guarantee in text
        assert alternative.margin is None or 0 < alternative.margin <= 1


@pytest.mark.parametrize("x", [0.03785, 0.1, 0.0398, 1e-9, 0.99999, 1.0])
def test_a_margin_is_never_rounded_down(x):
    shown = float(write_margin(x).removeprefix("±"))
    assert x <= shown <= min(1.0, x + 1e-4 + 1e-12)
    assert write_margin(None) == "-"


def test_two_plans_are_equal_if_they_record_the_same():
    one, other = planned("posterior", "coins"), planned("information", "coins")
    assert one == round_trip(one)
    assert hash(one) == hash(round_trip(one))
    assert one != other
    assert one != "a plan"
