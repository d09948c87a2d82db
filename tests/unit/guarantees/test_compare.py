"""Planned, without an end, by checks, by splitting: what a plan says of the other ways, and the numbers it promises."""

import pytest

from holdfast.errors import InvalidArgument
from holdfast.guarantees.exchange import Exchange
from holdfast.guarantees.plan import PACES, paced, readings
from holdfast.guarantees.terms import Goal, Reading
from holdfast.session.planning import plan

ENDLESS = [  # rows, question, margin: within one per cent, or narrower
    *((10**6, number, margin) for number, margin in ((1, 0.009), (100, 0.012), (1_000, 0.017), (10_000, 0.031))),
    (10**6, 10**6, 0.112),
    *((10**5, number, margin) for number, margin in ((100, 0.035), (1_000, 0.060), (10_000, 0.108))),
]
PLANNED = [(10**8, 10**4, "best", 0.0025), (10**8, 10**4, "balanced", 0.0091), (10**8, 10**4, "fast", 0.0226)]


@pytest.mark.parametrize(("rows", "number", "margin"), ENDLESS)
def test_margins_without_an_end(rows: int, number: int, margin: float) -> None:
    made = plan(rows=rows)
    assert made.rows_per_query == min(rows, 100_000)
    assert made.standing.margin_after(number - 1) <= 1.01 * margin


@pytest.mark.parametrize(("rows", "queries", "pace", "margin"), PLANNED)
def test_margins_at_every_pace(rows: int, queries: int, pace: str, margin: float) -> None:
    made = plan(rows=rows, queries=queries, rows_per_query=pace)
    assert made.margin <= margin
    assert made.rows_per_query <= (PACES[pace] or rows)


def test_the_default_is_balanced_and_says_what_it_reads() -> None:
    assert plan(rows=10**8, queries=10**4) == plan(rows=10**8, queries=10**4, rows_per_query="balanced")
    assert "reads 100,000 random rows" in plan(rows=10**8, queries=10**4).sentence
    assert "reads 100,000 random rows" in plan(rows=10**8).sentence
    with pytest.raises(InvalidArgument, match="'fast', 'balanced', 'best'; got 'quick'"):
        plan(rows=10**6, rows_per_query="quick")


def by_way(made: tuple[Reading, ...]) -> dict[str, list[Reading]]:
    return {way: [each for each in made if each.way == way] for way in ("planned", "endless", "checks", "splitting")}


def test_every_way_is_compared_at_every_pace() -> None:
    made = plan(rows=10**6, queries=10**4)
    ways = by_way(made.readings)
    assert all(ways.values())
    for each in ways.values():
        assert sorted(name for one in each for name in one.pace.split(", ")) == sorted(PACES)
    fast, slow = ways["planned"]
    assert (fast.rows_per_query, slow.rows_per_query) == (12_000, made.rows_per_query)
    assert slow.margin == made.margin < fast.margin == plan(rows=10**6, queries=10**4, rows_per_query="fast").margin
    assert ways["endless"][1].margin == plan(rows=10**6).standing.margin_after(9_999)
    assert ways["splitting"][0].margin == plan(rows=10**6, queries=10**4, guarantee="split").margin
    assert min(each.margin for each in ways["checks"]) < made.margin / 5
    for each in made.readings:
        assert 0 < each.milliseconds < 1_000
    shown = str(made)
    assert "10,000 questions in other ways" in shown
    for each in made.readings:
        assert f"{each.rows_per_query:,}" in shown


def test_a_session_without_an_end_is_compared_after_a_thousand_questions() -> None:
    ways = by_way(plan(rows=10**6).readings)
    assert ways["endless"][1].margin == plan(rows=10**6).standing.margin_after(999)
    assert ways["planned"][0].margin == plan(rows=10**6, queries=1_000, rows_per_query="fast").margin


def test_nothing_is_compared_where_nothing_is_said() -> None:
    assert plan(rows=100, queries={"flip": 50}).readings == ()
    assert plan(rows=50, queries=10_000).readings == ()
    assert readings(plan(rows=10**5, guarantee="checks").standing) == ()


def test_a_pace_binds_only_where_the_number_of_rows_is_free() -> None:
    goal = Goal(10**8, 10, 0.95, ends=False)
    assert paced(Exchange, goal, "coins", 12_000) == Exchange.plan(Goal(10**8, 10, 0.95, 12_000, ends=False), "coins")
    assert plan(rows=10**8, queries=10, guarantee="split", rows_per_query="fast").rows_per_query == 10**7


# -- beyond a plan ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "queries"), [(10**6, 10**4), (10**5, 10**3), (10**4, 100)])
def test_a_plan_costs_one_per_cent_more_than_one_that_ends_and_widens_after_it(rows: int, queries: int) -> None:
    made, ended = plan(rows=rows, queries=queries), plan(rows=rows, queries=queries, end=True)
    assert ended.margin < made.margin < 1.01 * ended.margin
    later = [made.standing.margin_after(more) for more in (0, queries - 1, queries, 2 * queries, 10 * queries)]
    assert later[0] == later[1] == made.margin
    assert later[2:] == sorted(later[2:])
    assert later[2] < 1.05 * made.margin < 1.3 * later[3]  # no step
    exact = plan(rows=rows, queries=10 * queries, end=True).margin
    assert later[4] < 1.45 * exact


def test_what_goes_on_is_preferred_unless_it_says_nothing() -> None:
    assert plan(rows=10**5, queries=2).guarantee == "exchange"
    assert plan(rows=10**5, queries=2, end=True).guarantee == "posterior"
    assert plan(rows=10**5, queries=2, end=True, identical=True).margin < plan(rows=10**5, queries=2, end=True).margin
    few = plan(rows=60, queries=2)
    assert few.terms.ends
    assert not few.vacuous
    assert "More questions are refused" in few.sentence
