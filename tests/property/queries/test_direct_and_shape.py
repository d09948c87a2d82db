"""Two ways to do less: evaluating without an expression, parsing a text's shape once. Neither may change an answer."""

from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from examples import examples
from holdfast.errors import HoldfastError, InvalidQuery
from holdfast.queries import parse
from holdfast.queries.build import build_mean
from holdfast.queries.evaluate import Expression, compiled, normalized, on_columns
from holdfast.queries.node import Node
from holdfast.queries.parse import from_text, shape_of, tree
from holdfast.queries.query import Values
from holdfast.queries.synthetic import synthetic_rows
from holdfast.rows.memory import memory_rows
from holdfast.schema import Column, Schema, Type
from query_examples import BOOLEANS, EVERYTHING, SCHEMA
from random_queries import QUICK, compare, number_leaf, predicate

ROWS = synthetic_rows(SCHEMA, 200, np.random.default_rng(5), hostile=0.7)
PLAIN = Schema(tuple(column for column in SCHEMA if column.type in (Type.INT, Type.FLOAT, Type.BOOL)), "numbers")
simple = st.builds("{} {} {}".format, number_leaf, compare, number_leaf)
predicates = st.recursive(
    st.one_of(simple, st.builds("{} between {} and {}".format, number_leaf, number_leaf, number_leaf), predicate),
    lambda parts: st.one_of(
        st.builds("({}) and ({})".format, parts, parts),
        st.builds("({}) or ({})".format, parts, parts),
        st.builds("not ({})".format, parts),
    ),
    max_leaves=4,
)


def facts(text: str) -> object:
    """What the expression of a text is and how it values rows, or how the text is refused."""
    return facts_of(lambda: parse._from_text.__wrapped__(text, SCHEMA.key))


def facts_without_shape(text: str) -> object:
    with patch.object(parse, "shape_of", return_value=None):
        return facts(text)


def facts_of(made: Callable[[], Expression]) -> object:
    try:
        found = made()
    except HoldfastError as refusal:
        return str(refusal)
    told = (found.type, found.nullable, found.text, found.identity, found.reads, found.work, found.range, found.values)
    values = found.series(ROWS)
    return told, found.direct is None, values.dtype, repr(values.to_list())  # NaN is not equal to itself


def both(text: str) -> tuple[pl.Series, pl.Series] | None:
    """The values without and with an expression; None if the text is refused or takes an expression."""
    try:
        expression = from_text(text, SCHEMA)
    except InvalidQuery:
        return None
    if expression.direct is None:
        return None
    rows = normalized(ROWS, expression.reads)
    return expression.on_normalized(rows), compiled(tree(text, SCHEMA), SCHEMA.names)(rows)


def agree(pair: tuple[pl.Series, pl.Series]) -> bool:
    return pair[0].dtype == pair[1].dtype and pair[0].equals(pair[1], null_equal=True)


def test_every_direct_example_agrees_with_its_expression():
    pairs = {text: pair for text in EVERYTHING if (pair := both(text)) is not None}
    assert {"x > 0.5", "i < j", "b and c", "x between 0 and 1", "t >= 'a'", "d > e"} <= set(pairs)
    assert [text for text, pair in pairs.items() if not agree(pair)] == []


@settings(QUICK, max_examples=examples(60))  # of those that are direct, which one of seven is
@given(predicates)
def test_a_random_direct_predicate_agrees_with_its_expression(text):
    pair = both(text)
    assume(pair is not None)
    assert agree(pair)


def test_a_wrong_operator_would_be_noticed():
    node = tree("x > y", SCHEMA)
    comparisons = on_columns(Node(">=", node.args, type=node.type, nullable=node.nullable))
    assert comparisons is not None
    wrong = comparisons.at(comparisons.literals)
    equal = ROWS.with_columns(y=pl.col("x"))
    rows = normalized(equal, from_text("x > y", SCHEMA).reads)
    assert not agree((wrong(rows), compiled(node, SCHEMA.names)(rows)))


def test_numbers_beyond_double_precision_are_compared_as_what_they_are():
    rows = pl.DataFrame({"i": [2**53, 2**53 + 1]})
    for text, expected in {f"i > {2**53}": [False, True], f"i between 0.5 and {2**53}": [True, False]}.items():
        assert from_text(text, SCHEMA).series(rows).to_list() == expected


def test_a_narrow_number_is_compared_in_double_precision():
    frame = pl.DataFrame({"x": pl.Series([0.1], dtype=pl.Float32), "i": pl.Series([100], dtype=pl.Int8)})
    source = memory_rows(frame)
    for text, share in {"x > 0.1": 1, "x = 0.1": 0, "i < 1000": 1, "i > -1000.5": 1}.items():
        query = build_mean(text, source.schema)
        assert query.value.direct is not None
        tally = source.tally(query, draws=5, mass=0.0, rng=np.random.default_rng(0))
        assert tally.tolist() == [5 - 5 * share, 5 * share]


def on_arrays(text: str, where: str | None) -> tuple[Values, Values] | None:
    """What 200 rows say, from a frame and from arrays, none of it missing: only such arrays are used."""
    sure = Schema(tuple(type(c)(c.name, c.type, False) for c in PLAIN), "numbers")
    rows = synthetic_rows(sure, 200, np.random.default_rng(9), hostile=0.5)
    within = None if where is None and text in BOOLEANS else (-10.0, 10.0)
    try:
        query = build_mean(text, sure, within=within, where=where)
    except HoldfastError:
        return None
    direct = [function.direct for function in query.functions]
    if None in direct:
        return None
    arrays = {name: rows[name].to_numpy() for name in query.columns}
    return query.evaluate(rows), query.combined([each(arrays) for each in direct if each is not None])


@pytest.mark.parametrize("where", [None, "i > 0", "x between -1 and 1 or b"])
def test_arrays_say_what_frames_say(where):
    tried = [pair for text in [*BOOLEANS, "x", "i"] if (pair := on_arrays(text, where)) is not None]
    assert len(tried) >= (10 if where is None else 2)
    for from_frame, from_arrays in tried:
        np.testing.assert_array_equal(from_frame, from_arrays)
        assert from_frame.dtype == from_arrays.dtype


def test_a_text_means_the_same_with_and_without_its_shape():
    for text in EVERYTHING:
        assert facts(text) == facts_without_shape(text), text


@QUICK
@given(predicates)
def test_a_random_text_means_the_same_with_and_without_its_shape(text):
    for asked in (text, text.upper(), text.replace(" ", "\n")):
        assert facts(asked) == facts_without_shape(asked)


NUMBERS_IN_ODD_PLACES = [
    "x > 1_000", "x > 0x1F", "x > .5", "x > 5.", "x > 1.5.2", "x > 1e", "x > 1e5", "x > 1E-3", "x > 5abc", "x>5AND i<3",
    "s = '5'", "s = '5' and x > 5", "s = 'a''5' and x > 5", "s = '5\\' and x > 5", 's = "5" and x > 5', "x > 5 -- 6",
    "x > 5 /* 6 */", "s = e'5' and x > 1", "s = x'41' and x > 1", "x > $5", "x > ?1", "x > 5;", "round(x, 2) > 1",
    "round(x, 16) > 1", "log10(x) > 1", "log2(x) > 2", "log(10, x) > 2", "x in (3, 1, 2, 1.0)", "d > '2020-01-01'",
    "d > date'2020-01-01' and x > 1", "x > -5", "x > - 5", "x > -(5)", "x > - -5", "-9223372036854775808 < i",
    "x > 99999999999999999999", "x > 1e999", "left(s, 2) = 'ab'", "cast(x as decimal(10, 2)) > 1", "x[1] > 2",
    "case 1 when 1 then x else 2 end > 1", "x > 8140173920", "i = 8140173920 and j = 8140173921", "x > ٣",
]  # fmt: skip


@pytest.mark.parametrize("text", NUMBERS_IN_ODD_PLACES)
def test_odd_numbers_mean_the_same_with_and_without_a_shape(text):
    for asked in (text, text.replace("5", "6").replace("1", "7")):
        assert facts(asked) == facts_without_shape(asked)


def test_texts_of_one_shape_are_parsed_once():
    parse._known_shape.cache_clear()
    texts = {from_text(f"x > {number} and s <> '1'", SCHEMA).text for number in (1, 22, 333)}
    assert len(texts) == 3
    assert parse._known_shape.cache_info().misses == 1
    assert shape_of("s = 'it''s 5'") is not None
    assert shape_of("x > 5 -- '") is None


NUMBERS = [
    "0", "7", "15.0", "2.50", "0012", "1e3", "1.5e-300", "1e308", "9007199254740993.0", "9223372036854775807",
    "9223372036854775808", "0.1", "123456789.987654321", "1e999",
]  # fmt: skip
COMPARED = [
    "x > {}", "{} < x", "i = -{}", "x <> -(-{})", "NOT i <= {}", "NOT x <= {} AND (i < {} OR -{} <= j)",
    "x BETWEEN {} AND {}", "x NOT BETWEEN -{} AND {} OR x < y AND b", "s = '5' AND x > {}", "t <> '%r' OR i < {}",
    "d >= '2020-01-01' AND {} >= i",
]  # fmt: skip


@pytest.mark.parametrize("shape", COMPARED)
def test_numbers_that_fill_a_known_shape_give_the_expression_of_the_text(shape):
    assert translated_once(shape.format(*"123"))
    for place, number in enumerate(NUMBERS):
        text = shape.format(number, NUMBERS[place - 1], NUMBERS[place - 2])
        found, expected = facts(text), facts_without_shape(text)
        assert found == expected
        assert repr(found) == repr(expected)  # 15 and 15.0 are equal, but not the same question


def test_names_of_columns_are_not_taken_for_places_of_numbers():
    odd = Schema(tuple(Column(name, Type.INT, False) for name in ("100%", "%r", "8140173920", "a8140173920", "{}")))
    for name in odd.names:
        for number in (7, 8):
            assert from_text(f'"{name}" > {number} AND "%r" < {number}', odd).text.replace('"', "") == (
                f"{name} > {number} AND %r < {number}"
            )


OTHER = ["x + 1 > 2", "x IN (1, 2)", "round(x, 1) > 2", "x > .5", "x > 8140173920. and i < 5", "1 BETWEEN x AND 2"]


@pytest.mark.parametrize("text", OTHER)
def test_other_shapes_are_checked_with_their_numbers(text):
    assert not translated_once(text)
    assert facts(text) == facts_without_shape(text)


def translated_once(text: str) -> bool:
    shape, numbers = shape_of(text) or ("", {})
    return parse._known_shape(shape, len(numbers), SCHEMA.key).filled is not None
