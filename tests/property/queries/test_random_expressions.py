"""Random expressions from the grammar: never a raise, one canonical text, each row for itself."""

import numpy as np
import polars as pl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import HoldfastError, InvalidQuery
from holdfast.queries import physical
from holdfast.queries.build import build_mean
from holdfast.queries.expression import canonical, from_text
from holdfast.queries.functions.logic import PHYSICAL
from holdfast.queries.made_up import made_up
from query_examples import SCHEMA

ROWS = made_up(SCHEMA, 40, np.random.default_rng(21), hostile=0.8)
QUICK = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))

number_leaf = st.one_of(
    st.sampled_from(["i", "j", "x", "y", "X", '"y"']),
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["0", "1", "-1", "0.5", "1e308", "length(s)", "year(d)", "cast(t as double)"]),
)
text_leaf = st.one_of(
    st.sampled_from(["s", "t", "'a'", "''", "'%'"]),
    st.text(max_size=5).map(lambda text: "'" + text.replace("'", "''") + "'"),
)
time_leaf = st.sampled_from(["d", "e", "date '2020-02-29'", "cast(s as date)", "d + i", "date_trunc('month', e)"])


def numbers(children):
    one = st.sampled_from(
        ["abs({})", "-({})", "sqrt({})", "ln({})", "exp({})", "floor({})", "round({}, 2)", "sign({})"]
    )
    two = st.sampled_from(
        ["({}) + ({})", "{} - ({})", "({}) * {}", "({}) / ({})", "{} % ({})", "power({}, {})", "coalesce({}, {})",
         "nullif({}, {})", "greatest({}, {})", "case when {} > 0 then {} end", "atan2({}, {})", "log({}, {})"]
    )  # fmt: skip
    return st.one_of(
        st.builds(lambda shape, a: shape.format(a), one, children),
        st.builds(lambda shape, a, b: shape.format(a, b), two, children, children),
    )


def texts(children):
    one = st.sampled_from(
        ["lower({})", "upper({})", "trim({})", "left({}, 2)", "substring({}, 2, 3)", "replace({}, 'a', '%')"]
    )
    two = st.sampled_from(["({}) || ({})", "concat({}, {})", "coalesce({}, {})"])
    return st.one_of(
        st.builds(lambda shape, a: shape.format(a), one, children),
        st.builds(lambda shape, a, b: shape.format(a, b), two, children, children),
    )


number = st.recursive(number_leaf, numbers, max_leaves=8)
text = st.recursive(text_leaf, texts, max_leaves=4)
compare = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "!="])
predicate_leaf = st.one_of(
    st.sampled_from(["b", "c", "c is true", "t is null"]),
    st.builds("{} {} {}".format, number, compare, number),
    st.builds("({}) {} ({})".format, text, compare, text),
    st.builds("{} {} {}".format, time_leaf, compare, time_leaf),
    st.builds("{} like {}".format, text, st.text("ab%_\\é", max_size=6).map(lambda pattern: f"'{pattern}'")),
    st.builds("{} between {} and {}".format, number, number, number),
    st.builds("{} in ({})".format, number, st.lists(st.integers(-9, 9).map(str), min_size=1).map(", ".join)),
)
predicate = st.recursive(
    predicate_leaf,
    lambda children: st.one_of(
        st.builds("({}) and ({})".format, children, children),
        st.builds("({}) or {}".format, children, children),
        st.builds("not ({})".format, children),
        st.builds("({}) is not true".format, children),
        st.builds("coalesce({}, {})".format, children, children),
    ),
    max_leaves=5,
)


def plainly(asked: str) -> pl.Series | None:
    """Evaluate without the safety net; None if the text may not be asked."""
    try:
        expression = from_text(asked, SCHEMA)
    except InvalidQuery:
        return None
    values = physical.settled(ROWS, expression.reads).select(expression.compiled).to_series()
    assert values.dtype == PHYSICAL[expression.type]
    return values


@QUICK
@given(st.one_of(number, text, predicate))
def test_a_random_expression_is_total_and_has_one_text(asked):
    values = plainly(asked)
    if values is not None:
        once = canonical(asked, SCHEMA)
        assert canonical(once, SCHEMA) == once
        again = plainly(once)
        assert again is not None
        assert again.equals(values, null_equal=True)


@QUICK
@given(predicate, predicate)
def test_a_random_question_says_the_same_about_a_row_alone(asked, where):
    try:
        query = build_mean(asked, SCHEMA, where=where)
    except InvalidQuery:
        return
    together = query.evaluate(ROWS)
    alone = np.concatenate([query.evaluate(row) for row in ROWS[:6].iter_slices(1)])
    assert np.array_equal(together[:6], alone, equal_nan=True)


@QUICK
@given(number)
def test_a_random_mean_stays_in_its_bounds(asked):
    try:
        query = build_mean(asked, SCHEMA, within=(-3, 1e6))
    except HoldfastError:
        return
    said = query.evaluate(ROWS)
    assert np.all(np.isnan(said) | ((said >= 0) & (said <= 1)))
    assert query.kind == "group" or not np.isnan(said).any()


@QUICK
@given(st.one_of(st.text(max_size=40), st.text("xybs()'\"=<>+-*/%.,;0123 andornotcasewhenthen", max_size=60)))
def test_any_text_is_either_a_question_or_refused_in_a_sentence(asked):
    sentence = "."
    try:
        written = from_text(asked, SCHEMA).text
    except HoldfastError as refusal:
        sentence = str(refusal)
    else:
        assert canonical(written, SCHEMA) == written
    assert sentence.endswith(".")
