"""Random expressions from the grammar: never a raise, one canonical text, each row for itself."""

import numpy as np
import polars as pl
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from holdfast.errors import HoldfastError, InvalidQuery
from holdfast.guarantees.statistic import GroupMean
from holdfast.queries.build import build_mean
from holdfast.queries.evaluate import normalized
from holdfast.queries.node import PHYSICAL
from holdfast.queries.parse import from_text
from holdfast.queries.synthetic import synthetic_rows
from query_examples import SCHEMA
from random_queries import QUICK, number, predicate, text

ROWS = synthetic_rows(SCHEMA, 40, np.random.default_rng(21), hostile=0.8)


def plainly(asked: str) -> pl.Series | None:
    """Evaluate without the safety net; None if the text may not be asked."""
    try:
        expression = from_text(asked, SCHEMA)
    except InvalidQuery:
        return None
    values = expression.on_normalized(normalized(ROWS, expression.reads))
    assert values.dtype == PHYSICAL[expression.type]
    return values


@QUICK
@given(st.one_of(number, text, predicate))
def test_a_random_expression_is_total_and_has_one_text(asked):
    values = plainly(asked)
    assume(values is not None)
    once = from_text(asked, SCHEMA).text
    assert from_text(once, SCHEMA).text == once
    again = plainly(once)
    assert again is not None
    assert again.equals(values, null_equal=True)


@QUICK
@given(predicate, predicate)
def test_a_random_question_says_the_same_about_a_row_alone(asked, where):
    try:
        query = build_mean(asked, SCHEMA, where=where)
    except InvalidQuery:
        reject()
    together = query.evaluate(ROWS)
    alone = np.concatenate([query.evaluate(row) for row in ROWS[:6].iter_slices(1)])
    assert np.array_equal(together[:6], alone, equal_nan=True)


@QUICK
@given(number)
def test_a_random_mean_stays_in_its_bounds(asked):
    try:
        query = build_mean(asked, SCHEMA, within=(-3, 1e6))
    except HoldfastError:
        reject()
    values = query.evaluate(ROWS)
    assert np.all(np.isnan(values) | ((values >= 0) & (values <= 1)))
    assert query.statistic == GroupMean() or not np.isnan(values).any()


@QUICK
@given(st.one_of(st.text(max_size=40), st.text("xybs()'\"=<>+-*/%.,;0123 andornotcasewhenthen", max_size=60)))
def test_any_text_is_either_a_question_or_refused_in_a_sentence(asked):
    sentence = "."
    try:
        written = from_text(asked, SCHEMA).text
    except HoldfastError as refusal:
        sentence = str(refusal)
    else:
        assert from_text(written, SCHEMA).text == written
    assert sentence.endswith(".")
