"""Spelling does not make a new question; meaning does."""

import pytest

from holdfast.queries.build import build_at_most, build_histogram, build_mean
from holdfast.queries.parse import from_text, tree
from query_examples import SCHEMA

SAME = [
    ("x > 0.5", "  x  >  .5 ", "X>5e-1", '"x" > 0.50', "(x) > (0.5)", "((x > 0.5))", "x > 0.5\n"),
    ("x > 15", "x > 15.0", "x > 1.5e1", "x > 15."),
    ("x > 5", "x > -(-5)", "x > - -(5)"), ("x > 0", "x > -0", "x > -(-(0))", "x > -0.0"),
    ("i <> 5", "i != 5", "I<>5"),
    ("i = 5", "i == 5", "i=5.0", "5 = i", "i in (5)", "i in (5, 5.0)"),
    ("b", "b = true", "true = b", "b <> false", "(b = true) = true"), ("NOT b", "b = false", "b <> true"),
    ("x > 15", "15 < x"), ("x >= 15", "15 <= x"), ("x < 15", "15 > x"), ("x <= 15", "15 >= x"),
    ("s <> 'a'", "'a' != s"), ("5 BETWEEN i AND j", "5.0 between i and j"),
    ("NOT (s = 'a')", "s not in ('a')", "not 'a' = s"),
    ("b AND c OR b", "b and c or b", "(b AND c) OR b", "((b) and (c)) or b"),
    ("b AND c AND b", "b and (c and b)", "(b and c) and b"),
    ("ABS(x)", "abs( x )", "Abs(x)", "abs((x))"),
    ("x BETWEEN 1 AND 2", "x between 1.0 and 2"),
    ("s IN ('a', 'b')", "s in ('b','a')", "s in ('a', 'b', 'a')"),
    ("NOT (j IS NULL)", "j is not null", "not j is null", "j notnull"),
    ("NOT (s LIKE 'a%')", "s not like 'a%'", "not s like 'a%'"),
    ("d > DATE '2020-01-01'", "d > '2020-01-01'", "d > cast('2020-01-01' as date)", "d > date '2020-01-01'"),
    ("CAST(s AS BIGINT)", "cast(s as int)", "s::integer", "try_cast(s as bigint)"),
    ("CASE WHEN c THEN 1 ELSE 2 END", "if(c, 1, 2)", "iif(c, 1, 2)", "case when c then 1 else 2 end"),
    ("LOG(10, x)", "log(x)", "log10(x)"),
    ("POWER(x, 2)", "x ** 2", "pow(x, 2)", "x ^ 2"),
    ("i % 3", "mod(i, 3)"),
    ("x - y - 1", "(x - y) - 1"),
    ("x - (y - 1)", "x - ((y - 1))"),
    ("COALESCE(j, 0)", "ifnull(j, 0)"),
    ("COALESCE(i, NULL)", "coalesce(i, cast(null as bigint))", "coalesce(i, cast(null as double))"),
    ("STRPOS(s, 'a')", "position('a' in s)", "instr(s, 'a')"),
    ("EXTRACT(YEAR FROM d)", "year(d)", "extract(year from d)"),
    ("s = 'it''s'", "s='it''s'"),
]  # fmt: skip
DIFFERENT = [
    ("x > 1", "x >= 1"), ("x - (y - 1)", "x - y - 1"), ("s = 'A'", "s = 'a'"), ("b and (c or b)", "b and c or b"),
    ("s like 'a'", "s ilike 'a'"), ("not b and c", "not (b and c)"), ("-x ** 2 > 1", "(-x) ** 2 > 2"),
    ("s = ' a'", "s = 'a'"), ("x / y * 2", "x / (y * 2)"), ("w > '2020-01-01'", "d > '2020-01-01'"),
]  # fmt: skip


@pytest.mark.parametrize("spellings", SAME, ids=lambda spellings: spellings[0])
def test_one_question_has_one_text(spellings):
    assert {from_text(spelling, SCHEMA).text for spelling in spellings} == {spellings[0]}


@pytest.mark.parametrize(
    "text",
    [
        "cast(coalesce(i, cast(null as double)) as text) = '1'",
        "cast(case when b then cast(null as double) else i end as text) = '1'",
        "coalesce(i, cast(null as double)) % 2 = 1",
        "-cast(null as double) < i",
        "greatest(i, cast(null as double)) % 2 = 1",
    ],
)
def test_a_text_that_is_read_again_means_the_same(text):
    """What a type is not written for must not change it: two questions with one text would share one answer."""
    asked = tree(text, SCHEMA)
    assert tree(str(asked), SCHEMA) == asked


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_two_questions_have_two_texts(one, other):
    assert from_text(one, SCHEMA).text != from_text(other, SCHEMA).text


def test_identity_holds_everything_that_was_asked():
    asked = [
        build_mean("x > 1", SCHEMA),
        build_mean("x > 1", SCHEMA, where="b"),
        build_mean("x > 1", SCHEMA, where="c"),
        build_mean("x", SCHEMA, within=(0, 1)),
        build_mean("x", SCHEMA, within=(0, 2)),
        build_mean("x", SCHEMA, within=(0, 2), where="b"),
        build_at_most("x", 1, SCHEMA),
        build_at_most("x", 2, SCHEMA),
        build_histogram("s", SCHEMA, categories=["a"]),
        build_histogram("s", SCHEMA, categories=["a", "b"]),
        build_histogram("s", SCHEMA, categories=["b", "a"]),
        build_histogram("x", SCHEMA, categories=[0, 1]),
        build_histogram("x", SCHEMA, bins=[0, 1]),
    ]
    assert len({query.identity for query in asked}) == len(asked)
    assert build_mean("X", SCHEMA, within=(0, 2.0), where='"b"').identity == asked[5].identity


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (build_mean("X>.5", SCHEMA), "share of x > 0.5"),
        (build_mean("x", SCHEMA, within=(0, 5000), where="s='UA'"), "mean of x within [0, 5000] where s = 'UA'"),
        (build_mean("b", SCHEMA, where="x > 1"), "share of b where x > 1"),
        (build_at_most("y", 2.5, SCHEMA), "share of y <= 2.5"),
        (build_histogram("s", SCHEMA, categories=["UA", "AA"]), "histogram of s over 'UA', 'AA'"),
        (build_histogram("i", SCHEMA, categories=range(10)), "histogram of i over 0, 1, 2, 3, 4, 5, 6, 7 and 2 more"),
        (build_histogram("x", SCHEMA, bins=[0, 1, 5]), "histogram of x in 2 bins over [0, 5)"),
    ],
)
def test_it_reads_well(query, text):
    assert query.text == text


def test_a_text_seen_before_is_not_built_again():
    assert build_mean("x > 0.123", SCHEMA) is build_mean("x > 0.123", SCHEMA)
