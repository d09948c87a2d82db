"""Do expressions mean what SQL means? DuckDB is the judge, on rows with NULLs.

Deliberate differences, left out of the rows or listed below:

* What has no value is NULL: division by zero, roots and logarithms of negative numbers, overflow. DuckDB raises or
  gives infinity.
* `+ - *` on integers is done in double precision.
* CAST never fails; text such as '1.5' is no integer, and numbers as text are spelled as Polars does.
* DATE_TRUNC keeps a date a date. SIGN and LENGTH are integers of one size.
* ILIKE folds letters singly; LOWER and UPPER follow Unicode (ß becomes SS).
"""

import math
from datetime import date, datetime, timedelta

import duckdb
import numpy as np
import polars as pl
import pytest

from holdfast.queries.parse import from_text
from holdfast.schema import Type
from query_examples import EVERYTHING, SCHEMA

ROWS = 400

# DuckDB raises on these where the rows hold zero, negative numbers or odd text.
RAISES = {
    "sqrt(x)", "ln(x)", "ln(j)", "log(y)", "log2(x)", "log10(i)", "ln(x - y)", "asin(y)",
    "acos(x)", "power(x, y)", "pow(i, j)", "2 ** i", "i % j", "power(nullif(i, x), j)",
}  # fmt: skip
DIFFERENT = {
    "cast(s as int)": "text such as '1.5' is no integer",
    "cast(s || '1' as int)": "text such as '1.5' is no integer",
    "cast(x as varchar)": "numbers are spelled differently",
    "cast(x / y as text)": "numbers are spelled differently",
    "x % 1e-310": "NULL where the quotient overflows",
    "i % 5e-324": "NULL where the quotient overflows",
    "y % 0.1": "a quotient within rounding of a whole number is taken as whole",
    "cast(v as text)": "six digits of a second, always",
    "not (x / y > 1)": "division by zero is NULL, not infinity",
    "sqrt(x) is null": "the root of a negative number is NULL",
    "log(x, y)": "a base below zero or of one gives NULL",
    "log(i, j)": "a base below zero or of one gives NULL",
    "e - 1000000000": "dates stop at the year 1",
    "iif(b, 1, 2)": "another spelling of CASE",
    "d - '2020-01-01'": "the constant is read as a date",
    "(x - x) * 1e308 * 1e308": "fine for both, but the constant overflows there",
    "exp(i)": "overflow raises there",
    "exp(y)": "overflow raises there",
    "exp(x) - exp(x)": "overflow raises there",
}
SPELLED_THERE = {"e + i": "e + i::INTEGER", "d - j": "d - j::INTEGER"}  # days are 32 bits wide there
CASTS_OF_TEXT = ("cast(s", "cast(t", "cast('2020", "s ||")


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    rng = np.random.default_rng(11)
    texts = ["", "a", "ab", "Ab", "b", " a ", "xax", "é", "aéb", "B", "7", "12", "2024-02-29", "a%b", "a_b", "🙂a"]

    def some(values, *, nullable: bool):
        return [None if nullable and rng.random() < 0.25 else values() for _ in range(ROWS)]

    def day() -> date:
        return date(1960, 1, 1) + timedelta(days=int(rng.integers(0, 30_000)))

    def moment() -> datetime:
        return datetime(1960, 1, 1) + timedelta(microseconds=int(rng.integers(0, 2_000_000_000_000_000)))

    def number() -> float:
        return float(rng.integers(-40, 40)) / 8

    makers = {
        Type.INT: lambda: int(rng.integers(-6, 7)),
        Type.FLOAT: number,
        Type.STRING: lambda: str(rng.choice(texts)),
        Type.BOOL: lambda: bool(rng.random() < 0.5),
        Type.DATE: day,
        Type.DATETIME: moment,
    }
    return pl.DataFrame({column.name: some(makers[column.type], nullable=column.nullable) for column in SCHEMA})


@pytest.fixture(scope="module")
def judge(rows):
    connection = duckdb.connect()
    columns = "i BIGINT, j BIGINT, x DOUBLE, y DOUBLE, s TEXT, t TEXT, b BOOLEAN, c BOOLEAN"
    connection.execute(f"CREATE TABLE things ({columns}, d DATE, e DATE, w TIMESTAMP, v TIMESTAMP)")
    connection.executemany(f"INSERT INTO things VALUES ({', '.join('?' * rows.width)})", rows.rows())
    yield lambda text: [value for (value,) in connection.execute(f"SELECT {text} FROM things").fetchall()]
    connection.close()


def alike(ours, theirs) -> bool:
    if ours != ours:  # NaN is NULL
        ours = None
    if ours is None or theirs is None:
        missing = (None, math.inf, -math.inf)  # where DuckDB divides by zero
        return ours is None and (theirs in missing or theirs != theirs)
    if isinstance(ours, str | bool):
        return bool(ours == theirs)
    if isinstance(ours, date) and isinstance(theirs, date):
        return as_moment(ours) == as_moment(theirs)
    return math.isclose(float(ours), float(theirs), rel_tol=1e-9, abs_tol=1e-9)


def as_moment(value: date) -> datetime:
    return value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)


JUDGED = [text for text in EVERYTHING if text not in RAISES | set(DIFFERENT) and not text.startswith(CASTS_OF_TEXT)]


@pytest.mark.parametrize("text", JUDGED)
def test_an_expression_means_what_sql_means(text, rows, judge):
    ours = from_text(text, SCHEMA).series(rows).to_list()
    theirs = judge(SPELLED_THERE.get(text, text))
    wrong = [(mine, other) for mine, other in zip(ours, theirs, strict=True) if not alike(mine, other)]
    assert not wrong, wrong[:3]


@pytest.mark.parametrize("text", sorted(text for text in RAISES if "pow" not in text and "**" not in text))
def test_where_sql_raises_the_value_is_null(text, rows, judge):
    """Compared row by row through TRY, which is NULL where DuckDB raises."""
    ours = from_text(text, SCHEMA).series(rows).to_list()
    theirs = judge(f"TRY({text})")
    wrong = [(mine, other) for mine, other in zip(ours, theirs, strict=True) if not alike(mine, other)]
    assert not wrong, wrong[:3]


@pytest.mark.parametrize("text", sorted(set(EVERYTHING) - RAISES - set(DIFFERENT) - set(SPELLED_THERE)))
def test_the_canonical_text_is_sql_too(text, rows, judge):
    """What the ledger shows can be pasted into a database."""
    canonical = from_text(text, SCHEMA).text
    if text.startswith(CASTS_OF_TEXT):
        canonical = canonical.replace("CAST(", "TRY_CAST(")
    assert len(judge(canonical)) == ROWS


def test_the_judge_notices_a_wrong_operation(rows, judge):
    ours = from_text("x - y", SCHEMA).series(rows).to_list()
    theirs = judge("x + y")
    assert not all(alike(mine, other) for mine, other in zip(ours, theirs, strict=True))


NESTED = 600
NUMBER_LEAVES = (
    "i",
    "j",
    "x",
    "y",
    "x + 2",
    "i - 1.5",
    "length(t)",
    "year(e)",
    "date_diff('day', d, e)",
    "strpos(s, 'a')",
)
TRUTH_LEAVES = ("b", "c", "t is null", "s like '%a%'", "t in ('a', 'b')", "d < e", "w >= v", "starts_with(s, t)")
NUMBER_SHAPES = (
    "({0}) + ({1})", "({0}) - ({1})", "({0}) * ({1})", "-({0})", "abs({0})", "floor({0})", "coalesce({0}, {1})",
    "nullif({0}, {1})", "greatest({0}, {1})", "least({0}, {1})", "case when {2} then {0} else {1} end",
    "case when {2} then {0} end", "sign({0})",
)  # fmt: skip
TRUTH_SHAPES = (
    "({0}) < ({1})", "({0}) >= ({1})", "({0}) = ({1})", "({0}) <> ({1})", "({0}) between {1} and {0}",
    "({2}) and ({3})", "({2}) or ({3})", "not ({2})", "({2}) is not true", "({2}) is false", "({0}) is null",
    "({2}) = ({3})", "({0}) in (0, 1, 2.5)", "case when {2} then {3} else c end", "coalesce({2}, {3})",
)  # fmt: skip


def nested(rng: np.random.Generator, depth: int, *, truth: bool) -> str:
    """Return a random expression, a number or true or false."""
    if depth == 0 or rng.random() < 0.15:
        return str(rng.choice(TRUTH_LEAVES if truth else NUMBER_LEAVES))
    shape = str(rng.choice(TRUTH_SHAPES if truth else NUMBER_SHAPES))
    return shape.format(*(nested(rng, depth - 1, truth=place > 1) for place in range(4)))


def test_nested_expressions_mean_what_sql_means_also_as_they_are_shown(rows, judge):
    rng = np.random.default_rng(17)
    for number in range(NESTED):
        text = nested(rng, 1 + number % 4, truth=number % 2 == 0)
        expression = from_text(text, SCHEMA)
        ours = expression.series(rows).to_list()
        for written in (text, expression.text):
            wrong = [pair for pair in zip(ours, judge(written), strict=True) if not alike(*pair)]
            assert not wrong, (written, wrong[:3])
