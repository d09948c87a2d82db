"""Every operation, on hostile rows: it never raises, and each row's value is its own."""

import re

import numpy as np
import polars as pl
import pytest

from examples import few
from holdfast.errors import InvalidQuery
from holdfast.queries.evaluate import Expression, compiled, normalized, work
from holdfast.queries.functions import OPERATIONS
from holdfast.queries.node import PHYSICAL
from holdfast.queries.parse import from_text, tree
from holdfast.queries.synthetic import HOSTILE, synthetic_rows
from holdfast.schema import Type
from query_examples import EVERYTHING, NUMBERS, SCHEMA

ROWS = 60


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    return synthetic_rows(SCHEMA, ROWS, np.random.default_rng(7), hostile=0.7)


def plainly(expression: Expression, rows: pl.DataFrame) -> pl.Series:
    """Evaluate without the safety net that would turn a failing row into NULL."""
    return expression.on_normalized(normalized(rows, expression.reads))


def same(left: pl.Series, right: pl.Series) -> bool:
    return left.dtype == right.dtype and left.equals(right, null_equal=True)


def test_the_examples_use_every_operation():
    def ops(node) -> set[str]:
        return {node.op}.union(*(ops(arg) for arg in node.args))

    used = set().union(*(ops(tree(text, SCHEMA)) for text in EVERYTHING))
    assert used - {"column", "literal"} == set(OPERATIONS)


def test_an_operation_is_total_and_has_the_announced_type(rows):
    for text in EVERYTHING:
        expression = from_text(text, SCHEMA)
        values = plainly(expression, rows)
        assert values.dtype == PHYSICAL[expression.type], text
        assert values.len() == rows.height, text


def test_the_value_of_a_row_depends_on_that_row_alone(rows):
    order = np.random.default_rng(3).permutation(ROWS).tolist()
    for text in EVERYTHING:
        expression = from_text(text, SCHEMA)
        together = plainly(expression, rows)
        places = few(range(ROWS), 15)
        alone = pl.concat([plainly(expression, rows[place : place + 1]) for place in places])
        assert same(alone.alias("value"), together[places].alias("value")), text
        assert same(plainly(expression, rows[order]).alias("value"), together[order].alias("value")), text
        assert plainly(expression, rows.clear()).len() == 0, text


def test_what_cannot_be_null_is_not_null_on_finite_rows():
    rows = synthetic_rows(SCHEMA, 200, np.random.default_rng(5), hostile=0.0)
    for text in EVERYTHING:
        expression = from_text(text, SCHEMA)
        if not expression.nullable:
            values = plainly(expression, rows)
            assert values.null_count() == 0, text
        else:
            assert any(expression.reads[name].nullable for name in expression.columns) or can_fail(text), text


def can_fail(text: str) -> bool:
    """Operations that may be NULL although their columns are not."""
    words = ("/", "%", "mod", "sqrt", "ln", "log", "power", "pow", "**", "asin", "acos", "nullif", "cast", "case")
    return any(word in text for word in words)


def test_the_canonical_text_is_a_fixed_point_and_means_the_same(rows):
    for text in EVERYTHING:
        once = from_text(text, SCHEMA).text
        assert from_text(once, SCHEMA).text == once, text
        assert same(plainly(from_text(once, SCHEMA), rows), plainly(from_text(text, SCHEMA), rows)), text


NESTING = [text for text in NUMBERS if re.search(r"\b[xy]\b", text) and "try_cast" not in text]


@pytest.mark.parametrize("text", NESTING)
def test_the_steps_that_polars_takes_are_counted_when_operations_nest(text):
    """Put an operation into its own holes, twice: had it mentioned an argument unseen, the steps would outgrow."""
    for _ in range(3):
        try:
            from_text(text, SCHEMA)
        except InvalidQuery as refusal:
            assert "steps" in str(refusal) or "deep" in str(refusal) or "parts" in str(refusal)  # noqa: PT017
            return
        steps = compiled(tree(text, SCHEMA), SCHEMA.names)
        parts = [steps.value, *(part for step in steps.before for part in step.parts)]
        serialized = "".join(part.meta.serialize(format="json") for part in parts)
        leaves = serialized.count('"Column"') + serialized.count('"Literal"')
        assert leaves <= 5 * work(tree(text, SCHEMA))  # a few constants of its own for every step
        text = re.sub(r"\b[xy]\b", f"({text})", text)


@pytest.mark.parametrize("type_", list(Type))
def test_every_hostile_value_meets_every_operation_on_its_type(type_):
    """Made-up rows pair values at random; here each column holds each hostile value beside each other one."""
    values = HOSTILE[type_]
    names = [column.name for column in SCHEMA if column.type is type_]
    left = [value for value in values for _ in values]
    right = values * len(values)
    filler = synthetic_rows(SCHEMA, len(left), np.random.default_rng(1), hostile=1.0)
    dtype = PHYSICAL[type_]
    rows = filler.with_columns(pl.Series(names[0], left, dtype=dtype), pl.Series(names[1], right, dtype=dtype))
    asked = [text for text in EVERYTHING if set(from_text(text, SCHEMA).columns) & set(names)]
    assert asked
    for text in asked:
        assert plainly(from_text(text, SCHEMA), rows).len() == rows.height, text


def test_no_nan_survives_where_it_could_be_mistaken_for_a_number():
    rows = synthetic_rows(SCHEMA, 300, np.random.default_rng(9), hostile=1.0)
    infinite = rows.with_columns(x=pl.lit(float("inf")), y=pl.lit(float("inf")))
    for text in ["x - y > 0", "x - y < 0", "x / y > 0", "x - y = x - y", "(x - y) in (1)", "x * 0 >= 0", "sin(x) < 2"]:
        assert plainly(from_text(text, SCHEMA), infinite).null_count() == 300, text


@pytest.mark.parametrize(
    "text",
    [
        "x + 0",
        "0 + x",
        "0 - x",
        "x - 0",
        "x - (0 * -1)",
        "0 - x - 0",
        "x + 0 + 0",
        "(0 * -1) - x",
        "power(0 * -1, x)",
        "power(x, i)",
        "power(i, x)",
        "x / i",
        "x % i",
        "log(x, i)",
        "round(x, 1)",
        "x * i * i",
    ],
)
def test_a_row_alone_has_the_digits_that_it_has_among_others(text):
    digits = [0.0, -0.0, 0.5, 3.0, -1.0, -15.047, 7.1, 1e16, 0.1]
    rows = pl.DataFrame({"x": digits * 4, "i": [each for each in (0, 2, 3, -7) for _ in digits]})
    for shown in (f"cast({text} as text)", f"atan2({text}, -1)"):
        expression = from_text(shown, SCHEMA)
        alone = [expression.series(row).item() for row in rows.iter_slices(1)]
        assert repr(expression.series(rows).to_list()) == repr(alone), shown  # NaN is not equal to itself


@pytest.mark.parametrize("part", ["year", "hour", "minute", "second"])
def test_no_part_of_a_missing_date_raises(part, rows):
    for text in (f"{part}(NULL) + x", f"extract({part} from cast(NULL as timestamp)) + x"):
        assert plainly(from_text(text, SCHEMA), rows).null_count() == rows.height
