"""Whatever the data and whoever asks: finite answers inside their bounds, exact prices, a ledger that adds up."""

import json
from math import isnan
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast as hf
from examples import examples
from holdfast.errors import BudgetExhausted, InvalidArgument, PlanConflict, PlanInfeasible
from holdfast.ledger import check_receipt
from holdfast.questions import KINDS
from holdfast.questions.answer import Answer, AnyAnswer, record_of
from holdfast.questions.flips import FlipsAnswer
from holdfast.questions.histogram import HistogramAnswer
from holdfast.questions.minimize import MinimumAnswer
from holdfast.session.session import Session

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.guarantees.plan.VacuousPlan")

NUMBERS = st.one_of(st.none(), st.floats(), st.sampled_from([0.0, 1.0, -1.0, 1e308, 5e-324]))
TEXTS = st.one_of(st.none(), st.sampled_from(["a", "b", ""]), st.text(max_size=5))
ENDS = st.floats(-1e150, 1e150)
BOUNDS = st.tuples(ENDS, ENDS).map(sorted).filter(lambda pair: pair[0] < pair[1])


@st.composite
def tables(draw: st.DrawFn) -> pl.DataFrame:
    """Up to sixty rows of anything; few, but drawn many times over."""
    rows = draw(st.integers(2, 60))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        some = draw(st.lists(values, min_size=1, max_size=8))
        return (some * rows)[:rows]

    return pl.DataFrame(
        {
            "b": pl.Series(column(st.one_of(st.none(), st.booleans())), dtype=pl.Boolean),
            "x": pl.Series(column(NUMBERS), dtype=pl.Float64),
            "i": pl.Series(column(st.integers(-(2**63), 2**63 - 1)), dtype=pl.Int64),
            "s": pl.Series(column(TEXTS), dtype=pl.String),
        }
    )


VALUES = st.sampled_from(["x", "i", "x + i", "x * x", "length(s)", "i / x"])
CONDITIONS = st.sampled_from(["b", "x > 0", "s = 'a'", "i % 2 = 0", "x is null", "not b"])
SPENDING = {"rows_per_query": st.integers(1, 5_000), "margin": st.floats(0.01, 1)}
MEANS = st.fixed_dictionaries({"within": BOUNDS}, optional={"where": CONDITIONS} | SPENDING)
QUANTILES = st.fixed_dictionaries(
    {"q": st.floats(0, 1), "within": BOUNDS, "steps": st.integers(1, 12)}, optional={"where": CONDITIONS}
)
CATEGORIES = st.fixed_dictionaries(
    {"categories": st.lists(st.text(max_size=3), min_size=1, max_size=4, unique=True)},
    optional={"rows_per_query": SPENDING["rows_per_query"]},
)
FITS = st.fixed_dictionaries(
    {"radius": st.just(1.0), "iterations": st.integers(1, 4)},
    optional={"rows_per_coordinate": st.integers(1, 30), "runs": st.integers(1, 3)},
)
LOSS = hf.losses.Logistic({"x": (-1, 1)}, "b")
QUESTIONS = st.one_of(
    st.tuples(st.just("mean"), CONDITIONS, st.fixed_dictionaries({}, optional={"where": CONDITIONS} | SPENDING)),
    st.tuples(st.just("mean"), VALUES, MEANS),
    st.tuples(st.just("quantile"), VALUES, QUANTILES),
    st.tuples(st.just("histogram"), st.just("s"), CATEGORIES),
    st.tuples(st.just("flips"), CONDITIONS, st.fixed_dictionaries({"count": st.integers(1, 30)})),
    st.tuples(st.just("minimize"), st.just(LOSS), FITS),
)
PLANS = st.fixed_dictionaries(
    {
        "queries": st.one_of(st.integers(1, 2_000), st.just({"mean": 30, "flip": 40})),
        "guarantee": st.sampled_from(["best", "exchange", "posterior", "information", "split"]),
        "confidence": st.sampled_from([0.5, 0.95, 0.9999]),
        "end": st.booleans(),
    }
)


def ends(answer: AnyAnswer) -> list[Answer]:
    if isinstance(answer, HistogramAnswer):
        return list(answer.values())
    if isinstance(answer, FlipsAnswer):
        return [answer.average]
    if isinstance(answer, MinimumAnswer):
        return [answer.loss]
    assert isinstance(answer, Answer)
    return [answer]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(table=tables(), plan=PLANS, asked=st.lists(QUESTIONS, min_size=1, max_size=6))
def test_answers_are_sane_prices_exact_and_the_ledger_adds_up(
    table: pl.DataFrame, plan: dict[str, Any], asked: list[tuple[str, Any, dict[str, Any]]]
) -> None:
    try:
        session = Session(table, seed=1, **plan)
    except PlanInfeasible:
        return
    charge = intervals = answers = 0
    with session:
        for kind, query, options in asked:
            before = session.budget
            try:
                price, question = session.price(query, kind, **options), session.prepare(query, kind, **options)
                answer = session.ask(query, kind, **options)
            except (PlanConflict, InvalidArgument, PlanInfeasible):
                continue
            except BudgetExhausted:
                assert not price.affordable
                assert session.budget == before
                continue
            parts = ends(answer)
            assert price.affordable
            assert answer.cached == price.cached
            terms, spent = session.plan.terms, session.ledger.spent
            within_plan = spent.charge <= terms.charge and spent.intervals <= terms.statements
            assert within_plan or not terms.ends
            if within_plan:
                assert before.answers_left - session.budget.answers_left == price.answers
            if not price.cached:
                charge, intervals, answers = (
                    charge + question.cost.charge,
                    intervals + question.cost.intervals,
                    answers + 1,
                )
                assert (answer.cost, answer.rows_read) == (price.answers, price.rows_read)
            for one in parts:
                assert one.bounds[0] <= one.low <= one.high <= one.bounds[1]
                assert isnan(one.value) or one.low <= one.value <= one.high  # none where the interval says nothing
            sent = json.loads(json.dumps(answer.to_dict(), allow_nan=False))
            assert KINDS[kind].read(sent, record_of(sent)) == answer
            check_receipt(session.receipt(answer), session.ledger.head.hash)
        spent = session.ledger.spent
        assert (spent.charge, spent.intervals, spent.answers) == (charge, intervals, answers)
        assert session.ledger.begun == (answers > 0)
        history = session.history()
        assert history["seq"].n_unique() == spent.answers
        if spent.charge <= session.plan.terms.charge and spent.intervals <= session.plan.statements:
            assert history.unique("seq")["cost"].sum() == session.budget.answers_total - session.budget.answers_left
        if answers:
            assert session.ledger.verify().seq == spent.answers
