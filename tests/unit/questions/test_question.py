"""Every refusal is decided before a row is read and before anything is spent, and is a whole sentence."""

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest

from counting_rows import CountingRows
from holdfast.errors import BudgetExhausted, HoldfastError, InvalidArgument, InvalidQuery, NotCovered, PlanInfeasible
from holdfast.ledger import Spent
from holdfast.questions.question import LONGEST_QUESTION
from holdfast.rows.memory import memory_rows
from holdfast.session.session import Session

ROWS = 20_000
NAN, INF = float("nan"), float("inf")
LONE = "\ud800"  # half of a surrogate pair: no ledger can write it


class Odd:
    """Something no question is made of."""


def named(name: str) -> Any:
    """A good function with a name of one's own."""

    def function(rows: pl.DataFrame) -> pl.Series:
        return rows["b"]

    function.__name__ = name
    return function


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        "b": rng.random(ROWS) < 0.3,
        "x": rng.random(ROWS),
        "g": rng.integers(0, 4, ROWS),
        "s": np.array(list("abcd"))[rng.integers(0, 4, ROWS)],
    }


PLANS: dict[str, dict[str, Any]] = {
    "exchange": {"queries": 50, "guarantee": "exchange"},
    "posterior": {"queries": 50, "guarantee": "posterior"},
    "information": {"queries": {"mean": 50, "flip": 100}},
    "split": {"queries": 50, "guarantee": "split"},
    "laplace": {"queries": 50, "guarantee": "information", "mechanism": "laplace"},
    "dp": {"queries": 50, "guarantee": "dp"},
}

QUERIES = [
    "", " ", "nope > 1", "x >", "sum(x) > 1", "count(*)", "x > (select 1)", "random() < x", "lag(x) > 1", "x; x",
    "x -- hi", "1", "1 > 0", "NULL", "x[1]", "x.y", "x = ?", ":p", "x::json", "x > 'a'", "s > 1", "b + 1",
    "x" * 5_000, "(" * 50 + "x" + ")" * 50, f"s = '{LONE}'", LONE, f'"{LONE}" = 1', f"s = 'a{LONE}b'",
    None, 3, 3.5, True, b"x", [], {}, ("x",), Odd(), object, np.array([1]),
    pl.col("nope") > 1, pl.col("x").sum() > 1, pl.col("x").shift() > 0, pl.lit(1), pl.col("*"),
    lambda: 1, lambda rows: None, lambda rows: 1 / 0, lambda rows: rows["x"].mean() > 0, lambda rows: rows["nope"],
    lambda rows: rows["x"].sum(), lambda rows: [1], lambda rows: "a", named(LONE), named("f" * (LONGEST_QUESTION + 1)),
]  # fmt: skip
COUNTS = [0, -1, 1.5, NAN, INF, -INF, "3", True, 10**30, 10**400, [], Odd(), np.int64(0), np.float64(2.0), 1j, b"1"]
BOUNDS = [
    (1, 0), (0, 0), (NAN, 1), (0, NAN), (-INF, 1), (0, INF), (0,), (0, 1, 2), "ab", 5, ("0", "1"), (True, False),
    (0, 10**400), (-1.7e308, 1.7e308), (None, 1), {}, [], (1j, 2), NAN, True,
]  # fmt: skip
CATEGORIES: list[Any] = [
    None, [], ["a", "a"], [LONE], ["a", LONE], ["a", None], [1], range(20_000), "abc", {"a": 1}, [["a"]], [Odd()],
    [NAN], ["x" * (LONGEST_QUESTION + 1)], 5, True,
]  # fmt: skip
BINS: list[Any] = [
    None, [], [1], [1, 1], [2, 1], [0, NAN], [0, INF], ["a", "b"], "ab", range(20_000), [0, 10**400], [True, 2], 5,
    [0, None],
]  # fmt: skip

Case = tuple[Any, Any, dict[str, Any]]


def bad_questions() -> list[Case]:
    """Every bad value in every place where it is bad."""
    half = {"q": 0.5, "within": (0, 1)}
    cases: list[Case] = []
    for query in QUERIES:
        cases += [("histogram", query, {"categories": ["a"]}), ("histogram", query, {"bins": [0, 1]})]
        cases += [("quantile", query, half), ("flips", query, {"count": 2})]
        if query is not None:
            cases += [("mean", "b", {"where": query}), ("quantile", "x", half | {"where": query})]
        cases += [("mean", query, {}), ("mean", query, {"within": (0, 1)})]
    for count in COUNTS:
        cases += [("mean", "b", {"rows_per_query": count}), ("flips", "b", {"count": count})]
        cases += [("histogram", "s", {"categories": ["a"], "rows_per_query": count})]
        cases += [("quantile", "x", half | {"steps": count})]
    for margin in (0, -1, NAN, INF, "3", True, 10**400, [], Odd(), 1j, 1e-9):
        cases += [("mean", "b", {"margin": margin})]
    for q in (-0.1, 1.1, NAN, INF, "0.5", None, True, 10**400, [0.5], 1j):
        cases += [("quantile", "x", {"q": q, "within": (0, 1)})]
    for within in BOUNDS:
        cases += [("mean", "x", {"within": within}), ("mean", "b", {"within": within})]
        cases += [("quantile", "x", {"q": 0.5, "within": within})]
    cases += [("histogram", "s", {"categories": categories}) for categories in CATEGORIES]
    cases += [("histogram", "x", {"bins": bins}) for bins in BINS]
    cases += [(kind, "b", {}) for kind in ("median", "", None, 5, ["mean"], Odd())]
    cases += [
        ("mean", "x", {}), ("mean", "s", {}), ("mean", "b", {"nonsense": 1}), ("mean", "b", {"kind_of": 1}),
        ("mean", "b", {"rows_per_query": 5, "margin": 0.1}), ("mean", "b", {"margin": 0.2, "where": "g = 1"}),
        ("quantile", "x", {}), ("quantile", "x", {"q": 0.5}), ("quantile", "s", half), ("flips", "x", {"count": 1}),
        ("flips", "x > 0.5 + s", {"count": 1}), ("histogram", "s", {"categories": ["a"], "bins": [0, 1]}),
        ("histogram", "s", {"categories": ["a"], "where": "x"}),
    ]  # fmt: skip
    return cases


def refused(verb: Callable[..., Any], *args: Any, **options: Any) -> str | None:
    """Return the sentence that refuses, or None. Any other error is a failure of the test."""
    try:
        verb(*args, **options)
    except HoldfastError as refusal:
        return str(refusal)
    return None


@pytest.mark.parametrize("plan", PLANS)
def test_refusals_read_nothing_and_spend_nothing(data: dict[str, Any], plan: str) -> None:
    rows = CountingRows(memory_rows(data))
    cases, verbs = bad_questions(), ["ask", "price", "dry_run"]
    if plan != "exchange":  # trying functions takes long, and no plan has a part in it
        cases, verbs = [case for case in cases if not any(map(callable, (case[1], *case[2].values())))], ["ask"]
    assert len(cases) > 400
    with Session(rows, seed=1, **PLANS[plan]) as session:
        for (kind, query, options), verb in product(cases, verbs):
            shown = f"{verb} {kind!r} {query!r:.80} {options!r:.80}"
            refusal = refused(getattr(session, verb), query, kind, **options)
            if refusal is not None:
                assert refusal.endswith((".", "?")), shown
            else:  # what no budget could pay has a price all the same
                assert verb == "price", shown
                assert not session.price(query, kind, **options).affordable, shown
            assert rows.rows_read == 0, shown
        assert session.ledger.spent == Spent(0, 0, 0)
        assert not session.ledger.begun


def test_the_verbs_refuse_as_ask_does(data: dict[str, Any]) -> None:
    rows = CountingRows(memory_rows(data))
    with Session(rows, seed=1, queries={"mean": 50, "flip": 100}) as session:
        for kind, query, options in bad_questions():
            verb = getattr(session, kind) if kind in ("mean", "histogram", "quantile", "flips") else None
            if verb is None:
                continue
            with pytest.raises(HoldfastError):
                verb(query, **options)
        assert rows.rows_read == 0
        assert session.ledger.spent.answers == 0


def test_what_the_budget_cannot_pay_is_refused_before_reading(data: dict[str, Any]) -> None:
    rows = CountingRows(memory_rows(data))
    with Session(rows, seed=1, queries=20, guarantee="posterior") as session:
        charge = session.plan.terms.charge
        session.mean("b", rows_per_query=charge - 5)
        spent, read = session.ledger.spent, rows.rows_read
        for query, kind, options in (
            ("g = 1", "mean", {}),
            ("x", "quantile", {"q": 0.5, "within": (0, 1), "steps": 19}),
            ("s", "histogram", {"categories": ["a"]}),
            ("g = 1", "mean", {"rows_per_query": 6}),
            ("g", "histogram", {"categories": [0, 1, 2, 3, 4], "rows_per_query": 3}),
        ):
            assert not session.price(query, kind, **options).affordable
            with pytest.raises(BudgetExhausted) as refusal:
                session.ask(query, kind, **options)
            assert refusal.value.fields["left"] < refusal.value.fields["cost"]
        assert (session.ledger.spent, rows.rows_read) == (spent, read)
        assert session.mean("b", rows_per_query=charge - 5).cached
        assert session.budget.answers_left == 0
        assert session.mean("g = 1", rows_per_query=5).rows_read == 5  # to the last coin
        assert session.ledger.spent.charge == charge


def test_a_dry_run_of_what_could_never_be_asked_is_refused(data: dict[str, Any]) -> None:
    with Session(data, seed=1, queries=20, guarantee="information") as session:
        with pytest.raises(BudgetExhausted):
            session.dry_run("x", "quantile", q=0.5, within=(0, 1), steps=1_000)
        with pytest.raises(BudgetExhausted):
            session.dry_run("g", "histogram", categories=range(30), rows_per_query=1)


def test_plans_that_do_not_cover_a_kind_say_so(data: dict[str, Any]) -> None:
    with Session(data, seed=1, queries=20, guarantee="posterior") as session, pytest.raises(NotCovered):
        session.flip("b")
    with Session(data, seed=1, queries=20, guarantee="split") as session:
        with pytest.raises(InvalidArgument, match="the same number of rows"):
            session.mean("b", margin=0.1)
        with pytest.raises(NotCovered):
            session.flips("b", 3)


def test_margin_buys_as_many_rows_as_it_needs(data: dict[str, Any]) -> None:
    with Session(data, seed=1, queries=20, guarantee="posterior") as session:
        wide, narrow = session.price("b", margin=0.3), session.price("b", margin=0.2)
        assert wide.rows_read < session.plan.rows_per_query < 10**6
        assert wide.rows_read < narrow.rows_read
        assert narrow.margin is not None
        assert narrow.margin <= 0.2
        answer = session.mean("b", margin=0.2)
        assert answer.rows_read == narrow.rows_read
        assert max(answer.value - answer.low, answer.high - answer.value) <= 0.2
        with pytest.raises(PlanInfeasible) as refusal:
            session.mean("b", margin=1e-5)
        assert refusal.value.fields["best_margin"] > 1e-5
        with pytest.raises(InvalidArgument, match=r"margin must be below the range of 1; got 5\. For 5% write 0\.05\."):
            session.mean("b", margin=5)  # which would be charged, and say nothing
        assert session.budget.answers_given == 1


@pytest.mark.parametrize("number", [np.int64(7), np.uint8(7), np.int32(7)])
def test_numpy_counts_are_counts(data: dict[str, Any], number: Any) -> None:
    with Session(data, seed=1, queries={"mean": 50, "flip": 100}) as session:
        assert session.mean("b", rows_per_query=number).rows_read == 7
        assert len(session.flips("b", number)) == 7
        assert session.quantile("x", np.float32(0.5), within=(np.float32(0), np.int8(1)), steps=number).cost > 0
        assert session.mean("b", rows_per_query=7).cached
        assert session.quantile("x", 0.5, within=(0, 1), steps=7).cached


def test_a_category_of_any_length_that_a_ledger_can_write_is_one(data: dict[str, Any]) -> None:
    with Session(data, seed=1, queries=50) as session:
        histogram = session.histogram("s", categories=["a", "x" * 100_000, "\x00", "é🙂"])
        assert histogram["é🙂"].low == 0
        with pytest.raises(InvalidQuery, match="characters"):
            session.histogram("s", categories=["x" * LONGEST_QUESTION])


def test_a_category_called_other_is_not_everything_else(data: dict[str, Any]) -> None:
    with Session(data, seed=1, queries=50, guarantee="posterior") as session:
        histogram = session.histogram("s", categories=["other", "a"])
        *declared, rest = histogram
        assert declared == ["other", "a"]
        assert rest not in declared
        assert histogram["other"].value < histogram[rest].value


def test_where_nothing_ends_one_answer_cannot_draw_without_end(data: dict[str, Any]) -> None:
    rows = CountingRows(memory_rows(data))
    with Session(rows, seed=1) as session:
        with pytest.raises(InvalidArgument, match="at most 100 times the rows"):
            session.mean("b", rows_per_query=100 * len(rows) + 1)
        assert rows.rows_read == 0
        assert not session.ledger.begun
        assert session.mean("b", rows_per_query=3 * len(rows)).rows_read == 3 * len(rows)


@pytest.mark.parametrize("size", [13, 999_983, 2**53 + 1])
def test_totals_and_counts_of_rows_that_are_all_at_the_end_of_the_range_are_inside_their_intervals(size: int) -> None:
    """The product of a size and a bound may be rounded down."""
    session = Session({"x": [0.1] * 2_000, "b": [True] * 2_000}, queries=20)
    total = session.total("x", within=(0.0, 0.1), population=size)
    assert total.low <= size * Fraction(0.1) <= total.high
    count = session.count("b", population=size)
    assert int(count.low) <= size <= int(count.high)


@pytest.mark.parametrize(("kind", "query"), [("count", "x > 0"), ("total", "x")])
def test_a_population_that_no_number_can_hold_is_refused_in_words(kind: str, query: str) -> None:
    session = Session({"x": [0.5, 0.7] * 1_000}, queries=20, bounds={"x": (0, 1)})
    with pytest.raises(InvalidArgument, match="population must be"):
        session.price(query, kind, population=10**400)


@pytest.mark.parametrize(("kind", "query"), [("mean", "x"), ("count", "x > 0")])
def test_a_margin_is_the_same_however_its_number_is_written(kind: str, query: str) -> None:
    rows = memory_rows(pl.DataFrame({"x": [0.5, 7.5] * 1_000}), name="t", complete=["x"])
    session, margin = Session(rows, queries=20, bounds={"x": (0, 10)}), 4 if kind == "mean" else 1_000
    identities = {
        session.prepare(query, kind, margin=one).identity for one in (margin, float(margin), np.float64(margin))
    }
    assert len(identities) == 1


@pytest.mark.parametrize(("low", "high"), [(-0.37, 0.07), (-0.29, 0.92), (-0.12, 0.11), (-0.74, 0.24)])
def test_what_is_as_large_as_the_declared_ranges_allow_is_inside_its_interval(low: float, high: float) -> None:
    """Half of the rows at either end: what the ranges imply may be rounded down."""
    frame = pl.DataFrame({"x": [low, high] * 1_000, "y": [low, high] * 1_000, "g": [False, True] * 1_000})
    rows = memory_rows(frame, name="t", complete=frame.columns)
    session, span = (
        Session(rows, queries=20, bounds={"x": (low, high), "y": (low, high)}),
        Fraction(high) - Fraction(low),
    )
    for answer, exact in (
        (session.variance("x"), span**2 / 4),
        (session.std("x"), span / 2),
        (session.covariance("x", "y"), span**2 / 4),
        (session.difference("x", "g"), span),
        (session.slope("x", "y"), 1),
        (session.correlation("x", "y"), 1),
    ):
        assert answer.low <= exact <= answer.high
