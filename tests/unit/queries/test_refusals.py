"""What may not be asked is refused in a sentence, from the schema alone."""

import math
from contextlib import suppress

import polars as pl
import pytest

from holdfast.errors import HoldfastError, InvalidArgument, InvalidQuery, UnknownName
from holdfast.queries.build import build_at_most, build_histogram, build_mean
from holdfast.queries.parse import from_text
from holdfast.queries.tokens import LONGEST_TEXT, MOST_NESTING
from holdfast.schema import Column, Schema, Type
from query_examples import SCHEMA

AGGREGATES = ["sum(x)", "avg(x) > 1", "count(*)", "count(x)", "min(x)", "max(s)", "median(x)", "stddev(x)", "mode(i)",
              "x > avg(x)", "x - sum(x) / count(*)", "array_agg(x)", "string_agg(s, ',')", "first(x)", "any_value(i)",
              "quantile(x, 0.5)", "approx_count_distinct(i)", "bool_and(b)", "list(x)", "corr(x, y)"]  # fmt: skip
WINDOWS = ["row_number() over ()", "sum(x) over (order by i)", "x over (partition by s)", "lag(x)", "lead(x, 1)",
           "rank() over (order by x)", "ntile(4) over ()", "first_value(x) over ()", "x > lag(x) over (order by i)",
           "over", "percent_rank()", "sum(x) filter (where b)"]  # fmt: skip
STATEMENTS = ["select 1", "select x from things", "(select x)", "x > (select max(x) from things)", "x in (select 1)",
              "exists (select 1)", "with a as (select 1) select * from a", "drop table things", "delete from things",
              "insert into things values (1)", "update things set x = 1", "create table a (b int)", "x union select 1",
              "copy things to 'f'", "attach 'f'", "pragma version", "set x = 1", "x from things", "x where b",
              "x order by i", "x limit 1", "x group by s", "values (1)", "show tables", "describe things", "explain x",
              "x intersect select 1", "x > any (select 1)", "x = all (select 1)", "not exists (select x)",
              "truncate things", "call f()", "begin", "commit"]  # fmt: skip
SEVERAL = ["x; y", "x;", ";x", ";", "x > 1; drop table things", "x, y", "(x, y)", "(x, y) = (1, 2)", "x y", "x as z",
           "*", "things.*", "x.*", "(*)"]  # fmt: skip
COMMENTS = ["x -- c", "x /* c */ > 1", "-- c", "/* */", "x > 1 --", "/* a */ x", "x > /* 1 */ 2"]
PARAMETERS = ["?", "x > ?", "$1", "x > $1", ":a", "x = :a", "@x", "x > @a", "{{ x }}", "%s", "x > %(a)s", "${x}"]
CHANGING = ["random()", "x > random()", "rand()", "now()", "now() > w", "current_date", "current_date > d", "today()",
            "current_timestamp > w", "uuid()", "gen_random_uuid()", "nextval('a')", "current_user = s", "version()",
            "localtimestamp", "clock_timestamp()"]  # fmt: skip
UNKNOWN_FUNCTIONS = ["foo(x)", "read_csv('f')", "read_text('/etc/passwd')", "pg_sleep(5)", "repeat(s, 1000000)",
                     "lpad(s, 1000000000, 'x')", "rpad(s, 9, 'x')", "md5(s)", "hash(x)", "regexp_matches(s, '(a+)+b')",
                     "regexp_replace(s, 'a', 'b')", "s ~ 'a'", "s similar to 'a'", "s glob 'a*'", "range(10)",
                     "generate_series(1, 10)", "unnest([1, 2])", "list_value(1)", "struct(x)", "row(x)", "map(x)",
                     "timestamp(w)", "date(d)", "interval(1)", "columns(x)", "getenv('HOME')", "error('x')", "load(s)",
                     "strftime(d, '%Y')", "reverse(s)", "chr(i)", "ascii(s)", "format('{}', s)", "factorial(i)",
                     "gamma(x)", "setseed(0.5)", "typeof(x)", "current_setting('a')", "decode(s)", "json(s)",
                     '"abs"(x)', "things.abs(x)", "isnan(x)", "age(d)", "date_part('year', d)", "make_date(1,1,1)",
                     "array_length(s)", "list_transform([1], x -> x)",
                     "bar('a')(x)", "concat_ws(',', s, t)"]  # fmt: skip
SYNTAX = ["x >", "> 1", "x > > 1", "(x", "x)", "((x)", "x + ", "* x", "x =", "= 1", "and", "b and", "or b", "not",
          "x between 1", "x between 1 and", "x in", "x in (", "x in ()", "case", "case when b then 1", "case end",
          "x is", "x is 5", "x is y", "x like", "'abc", '"abc', "x > 'abc", "cast(x)", "cast(x as)", "cast(x as x)",
          "cast(as int)", "x::", "::int", "x ! y", "x # 1", "x & 1", "i | 1", "~i", "i << 1", "i >> 1", "x[1]", "[1]",
          "{'a': 1}", "x -> y", "x => 1", "lambda x: x", "x ? 1 : 2", "\\", "`x`", "x..y", "..", ".", ",", "()",
          "abs()", "abs(x, y)", "abs(x y)", "round(x, 1, 2)", "substring(s)", "replace(s, 'a')", "left(s)",
          "extract(year d)", "extract(from d)", "date_trunc(d)", "date_diff(d, e)", "date_diff('day', d)",
          "if(b)", "nullif(x)", "coalesce()", "greatest()", "power(x)", "position(s)", "trim()", "concat()",
          "e'a' = s", "$$a$$ = s", "x'00' = s", "n'a' = s", "s collate nocase = 'a'", "x between symmetric 1 and 2",
          "s like 'a' escape '\\'", "a is distinct from b", "i // 2", "1 2", "x 1", "'a' 'b'", "is null", "x not",
          "\x00", "x > \x00", "🙂", "x > 1 🙂", "def f(): pass", "import os", "__import__('os')"]  # fmt: skip
NOTHING = ["", " ", "\n\t", "1", "1 = 1", "true", "'a' = 'a'", "null", "date '2020-01-01'", "1 + 1 > 1", "null = null",
           "coalesce(null, null)", "case when true then null end", "cast(null as int)"]  # fmt: skip
TYPES = ["s > 15", "s = 1", "i = 'a'", "b > 1", "b = 1", "x = true", "x and b", "b or i", "not x", "not s", "s + 1",
         "s - s", "-s", "-b", "b + b", "x * s", "d * 2", "d / 2", "s % 2", "abs(s)", "abs(b)", "sqrt(s)", "ln(d)",
         "round(s)", "round(x, y)", "round(x, -1)", "round(x, 16)", "round(x, 1.5)", "length(x)", "length(i)",
         "lower(x)", "upper(d)", "trim(x)", "trim(s, t)", "trim(s, '')", "x || s", "s || 1", "concat(s, x)",
         "replace(s, t, 'a')", "replace(s, 'a', t)", "replace(s, '', 'a')", "replace(x, 'a', 'b')",
         "substring(s, 0)", "substring(s, -1)", "substring(s, i)", "substring(s, 1, -1)", "substring(s, 1.5)",
         "substring(x, 1)", "left(s, i)", "left(s, -1)", "left(x, 1)", "right(s, 1e9)", "starts_with(x, 'a')",
         "contains(s, 1)", "position(t in s)", "strpos(s, '')", "strpos(x, 'a')", "x like 'a'", "s like t", "s like 1",
         "s ilike t", "year(x)", "year(s)", "month(i)", "hour(d)", "extract(hour from d)", "extract(foo from d)",
         "extract(epoch from s)", "date_trunc('hour', d)", "date_trunc('century', d)", "date_trunc(s, d)",
         "date_trunc('day', x)", "date_diff('day', x, y)", "date_diff('foo', d, e)", "date_diff('day', s, d)",
         "d > 5", "d = 'x'", "d = '2020-13-01'", "d > '2020-02-30'", "w > 'yesterday'", "d = s", "w = t", "d + d",
         "d + 1.5", "d + x", "w + 1", "w - 1", "w - w", "d + 'a'", "1 - d", "date 'x' = d", "timestamp 'x' = w",
         "date '' = d", "b < c", "b between false and true", "x in ('a')", "x in (1, 'a')", "s in (1)", "x in (y)",
         "x in (1, null)", "x in (1 + 1)", "i in (i)", "b in (1)", "d in ('x')", "d in (1)", "x = null", "x <> null",
         "null > x", "x between null and 1", "x is true", "s is false", "case when x then 1 end",
         "case when b then 1 else 'a' end", "case when b then d else 1 end", "case i when 'a' then 1 end",
         "coalesce(x, 'a')", "coalesce(b, 0)", "nullif(x, s)", "greatest(x, s)", "greatest(b, c)", "least(b, b)",
         "if(x, 1, 2)", "if(b, 1, 'a')", "cast(d as int)", "cast(x as date)", "cast(b as timestamp)",
         "cast(w as double)", "cast(x as blob)", "cast(x as decimal(3, 1))", "cast(x as int[])", "cast(s as json)",
         "cast(x as tinyint)",
         "cast(w as time)", "x > 1e400", "x > -1e999", "x > 1" + "0" * 400, "greatest(d, 'x')", "interval 1 day",
         "d + interval 1 day", "d - interval '1' month", "power(s, 2)", "mod(s, 2)", "atan2(x, s)"]  # fmt: skip
NAMES = ["foo", "foo > 1", "xx = 1", "dep_delay > 15", '"X y" > 1', "things.x > 1", "a.b.c", '"things"."x" > 1', "x.y",
         "nan > x", "inf", "infinity", "undefined", "none", "self.x"]  # fmt: skip
DEEP = ["(" * 500 + "x" + ")" * 500, "not " * 900 + "b", "-" * 50 + "x", "- " * 500 + "x",
        "abs(" * 100 + "x" + ")" * 100,
        "case when b then " * 60 + "1" + " end" * 60, "timestamp(" * 30 + "w" + ")" * 30, "row(" * 40 + "x" + ")" * 40,
        "struct(" * 40 + "x" + ")" * 40, "[" * 900 + "]" * 900, "{'a':" * 200, "x+" * 600 + "x", "b and " * 600 + "b",
        "x > 1 or " * 300 + "b", "(" * 1900, "case " * 700, "x" * 5000, "'" + "a" * 4000 + "' = s",
        "x in (" + ", ".join(map(str, range(600))) + ")", "replace(" * 20 + "s" + ", 'a', 'aaaaaaaa')" * 20,
        "coalesce(" + ", ".join(["log(x, x)"] * 130) + ")", "s like '" + "%a" * 150 + "'",
        "concat(s, " * 20 + "s" + ")" * 20 + " || s" * 60]  # fmt: skip

# Some of DEEP would take a parser minutes; pytest's own timeout watches over them.
BAD = [*AGGREGATES, *WINDOWS, *STATEMENTS, *SEVERAL, *COMMENTS, *PARAMETERS, *CHANGING, *UNKNOWN_FUNCTIONS, *SYNTAX,
       *NOTHING, *TYPES, *NAMES, *DEEP]  # fmt: skip


def test_a_bad_text_is_refused_in_a_sentence():
    for text in BAD:
        with suppress(HoldfastError):
            raise AssertionError(f"{text!r} is taken for {from_text(text, SCHEMA).text!r}")
        with pytest.raises(HoldfastError) as refusal:
            from_text(text, SCHEMA)
        assert str(refusal.value).endswith("."), text
        assert len(str(refusal.value)) < 600, text


@pytest.mark.parametrize("value", [None, 1, 1.5, True, b"x > 1", ["x"], {"x": 1}, object(), pl.Series([1])])
def test_what_is_not_text_is_refused(value):
    with pytest.raises(InvalidQuery, match="must be text"):
        build_mean(value, SCHEMA)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "s > 15",
            "'s' is text; > 15 compares numbers. Numbers written as text are read by CAST(s AS DOUBLE).",
        ),
        (
            "foo > 1",
            "No column 'foo' in things. If it is a value, write it in single quotes: 'foo'. It has: i, j, x, y, s,"
            " t, b, c, d, e, w, v.",
        ),
        (
            "sum(x)",
            "sum is an aggregate over many rows; a query must be an expression over one row. Leave it out: the kind of"
            " question says what is computed; sql takes a SELECT.",
        ),
        ("x between 3 and 1", "BETWEEN 3 AND 1 is never true; write x BETWEEN 1 AND 3, or x >= 3 OR x <= 1."),
        (
            "d between '2021-01-01' and '2020-01-01'",
            "BETWEEN DATE '2021-01-01' AND DATE '2020-01-01' is never true; write d BETWEEN DATE '2020-01-01' AND DATE"
            " '2021-01-01', or d >= DATE '2021-01-01' OR d <= DATE '2020-01-01'.",
        ),
        ("random() > x", "random changes from call to call; a query must depend on its row alone."),
        ("lenght(s)", "lenght is not a function that a query can use; LENGTH is."),
        ("x = null", "= NULL is never true; write IS NULL or IS NOT NULL."),
        ("x; y", "A query must be one expression; leave out the semicolon."),
        ("d > '2020-13-01'", "'2020-13-01' must be a date such as '2024-12-31'."),
        ("1 = 1", "A query must mention at least one column; got 1 = 1."),
        ("abs(s)", "ABS takes a number; 's' is text."),
        (
            "x = NaN",
            "No column 'NaN' in things. A value that is missing, or NaN, is NULL: write IS NULL or IS NOT NULL. It has:"
            " i, j, x, y, s, t, b, c, d, e, w, v.",
        ),
        ("isnan(x)", "isnan is not a function that a query can use; write x IS NULL, which is true of NaN, too."),
        ("`x` > 1", "A query must not use '`'; write a name in double quotes."),
        ("[x] > 1", "A query must not use '['; write a name in double quotes."),
        ("s in ['a']", "A query must not use '['; write a list in parentheses: carrier IN ('UA', 'AA')."),
        ("!(x > 1)", "A query must not use '!'; write NOT."),
        ("s = ‘a’", "A query must not use '‘'; write texts in straight quotation marks: 'UA'."),
        ("s = “a”", "A query must not use '“'; write texts in straight quotation marks: 'UA'."),
        ("s = $$$$", "A query must not use '$'; write texts in straight quotation marks: 'UA'."),
        (
            "1 < x < 3",
            "'x > 1' is a boolean; < 3 compares numbers. Write two comparisons: x > 1 AND x < 3.",
        ),
        ("b = 1", "'b' is a boolean; = 1 compares numbers. It is true or false by itself: write b, or NOT b."),
        ("b = 'True'", "'b' is a boolean; = 'True' compares text. It is true or false by itself: write b, or NOT b."),
        ("x > '15'", "'x' is a number; > '15' compares text. Write the number without quotation marks: 15."),
        ("x > 'a'", "'x' is a number; > 'a' compares text."),
        ("hour(w at time zone 'UTC') = 1", "AT TIME ZONE is not allowed; timestamps are in UTC throughout."),
        (
            "month(s) = 1",
            "EXTRACT takes a date or timestamp; 's' is text. Text such as 2024-12-31 is read by CAST(s AS TIMESTAMP).",
        ),
        (
            "select avg(x) from things",
            "A query must be one expression over one row, not a statement; a SELECT of aggregates is asked with sql.",
        ),
    ],
)
def test_the_sentence_says_the_fact(text, sentence):
    with pytest.raises(HoldfastError) as refusal:
        from_text(text, SCHEMA)
    assert str(refusal.value) == sentence


def test_what_is_no_part_of_a_query_is_not_taken_for_a_value():
    wide = Schema(tuple(Column(f"c{place}", Type.INT, False) for place in range(300)), "wide")
    with pytest.raises(UnknownName) as refusal:
        wide["UA"]
    assert str(refusal.value) == (
        f"No column 'UA' in wide. It has: {', '.join(f'c{place}' for place in range(20))} and 280 more."
    )


def test_a_mean_of_text_is_told_what_can_be_asked():
    with pytest.raises(InvalidQuery) as refusal:
        build_mean("s", SCHEMA)
    assert str(refusal.value) == (
        "A mean needs numbers or yes-or-no values; 's' is text. Ask for a share, s = '...', or for a histogram."
        " Numbers written as text are read by CAST(s AS DOUBLE)."
    )


def test_the_limits_are_where_they_are_said_to_be():
    assert from_text("(" * MOST_NESTING + "b" + ")" * MOST_NESTING, SCHEMA).text == "b"
    with pytest.raises(InvalidQuery, match="nest"):
        from_text("(" * (MOST_NESTING + 1) + "b" + ")" * (MOST_NESTING + 1), SCHEMA)
    assert from_text("b" + " " * (LONGEST_TEXT - 1), SCHEMA).text == "b"
    with pytest.raises(InvalidQuery, match="characters"):
        from_text("b" + " " * LONGEST_TEXT, SCHEMA)
    assert from_text("b or " * 200 + "c", SCHEMA).columns == ("b", "c")  # long chains are flat, not deep
    terms = " + ".join(f"{place} * x - x" for place in range(62))
    assert from_text(terms, SCHEMA).text == terms  # and so are sums


def test_names_that_differ_in_capitals_alone():
    both = Schema((Column("Age", Type.INT, False), Column("age", Type.INT, False), Column("ID", Type.INT, False)))
    assert from_text("age > 1", both).columns == ("age",)
    assert from_text("Age > 1", both).columns == ("Age",)
    assert from_text("id > 1", both).columns == ("ID",)
    with pytest.raises(InvalidQuery, match="could be 'Age' or 'age'"):
        from_text("AGE > 1", both)


@pytest.mark.parametrize(
    "name",
    [
        "order",
        "date",
        "Select",
        "a b",
        'q"q',
        "1st",
        "row",
        "year",
        "end",
        "é",
        "a.b",
        "timestamp",
        "in",
        "values",
        "current_date",
        "count",
        "left",
        "--",
        ";",
        "'",
    ],
)
def test_any_column_name_can_be_asked_in_quotes(name):
    schema = Schema((Column(name, Type.INT, False),))
    quoted = '"' + name.replace('"', '""') + '"'
    expression = from_text(f"{quoted} + 1 > 2", schema)
    assert expression.columns == (name,)
    assert from_text(expression.text, schema).text == expression.text
    assert expression.series(pl.DataFrame({name: [1, 2]})).to_list() == [False, True]


@pytest.mark.parametrize("name", ["*", "^a.*$"])
def test_names_that_polars_reads_as_patterns_are_refused(name):
    with pytest.raises(InvalidQuery, match="rename it"):
        from_text(f'"{name}" > 1', Schema((Column(name, Type.INT, False), Column("ab", Type.INT, False))))


@pytest.mark.parametrize(
    "within",
    [None, (1, 0), (0, 0), (0,), 5, "ab", (0, float("inf")), (float("nan"), 1), (True, 2), (None, 1), (-1e308, 1e308)],
)
def test_bounds_of_a_mean(within):
    with pytest.raises(InvalidArgument):
        build_mean("x", SCHEMA, within=within)


def test_bounds_of_a_share_are_known():
    assert build_mean("b", SCHEMA, within=(0, 1)).identity == build_mean("b", SCHEMA).identity
    with pytest.raises(InvalidArgument, match="within"):
        build_mean("b", SCHEMA, within=(0, 2))


@pytest.mark.parametrize("query", ["s", "d", "w", "lower(s)"])
def test_a_mean_needs_numbers(query):
    with pytest.raises(InvalidQuery, match="numbers"):
        build_mean(query, SCHEMA, within=(0, 1))
    with pytest.raises(InvalidQuery, match="numbers"):
        build_at_most(query, 1.0, SCHEMA)


@pytest.mark.parametrize("where", ["x", "s", "foo", "", "sum(x) > 1", 5, "1 = 1"])
def test_where_must_be_a_condition(where):
    with pytest.raises(HoldfastError):
        build_mean("x", SCHEMA, within=(0, 1), where=where)


@pytest.mark.parametrize(
    ("query", "kwargs"),
    [
        ("s", {}),
        ("s", {"categories": []}),
        ("s", {"categories": "abc"}),
        ("s", {"categories": 5}),
        ("s", {"categories": ["a", "a"]}),
        ("s", {"categories": ["a", 1]}),
        ("s", {"categories": ["a", None]}),
        ("s", {"categories": [b"a"]}),
        ("s", {"categories": list(map(str, range(10_001)))}),
        ("s", {"categories": ["a"], "bins": [0, 1]}),
        ("s", {"categories": ["a"], "where": "x"}),
        ("s", {"bins": [0, 1]}),
        ("x", {"bins": [0]}),
        ("x", {"bins": [1, 0]}),
        ("x", {"bins": [0, 0, 1]}),
        ("x", {"bins": [0, float("nan")]}),
        ("x", {"bins": [0, "a"]}),
        ("x", {"bins": 3}),
        ("x", {"bins": 0, "within": (0, 1)}),
        ("x", {"bins": True, "within": (0, 1)}),
        ("x", {"bins": 3.0, "within": (0, 1)}),
        ("x", {"bins": 10_001, "within": (0, 1)}),
        ("x", {"bins": 3, "within": (1, 0)}),
        ("x", {"bins": 3, "within": (1.0, math.nextafter(1.0, 2.0))}),
        ("x", {"bins": [0, 1], "within": (0, 1)}),
        ("x", {"within": (0, 1)}),
        ("s", {"bins": 3, "within": (0, 1)}),
        ("s", {"categories": ["a"], "within": (0, 1)}),
        ("x", {"categories": [1, 1.0]}),
        ("x", {"categories": [float("nan")]}),
        ("x", {"categories": [True]}),
        ("i", {"categories": [1.5]}),
        ("i", {"categories": [2**63]}),
        ("b", {"categories": [1]}),
        ("d", {"categories": ["x"]}),
        ("d", {"categories": [5]}),
        ("foo", {"categories": ["a"]}),
    ],
)  # fmt: skip
def test_bad_histograms(query, kwargs):
    with pytest.raises(HoldfastError) as refusal:
        build_histogram(query, SCHEMA, **kwargs)
    assert str(refusal.value).endswith(".")


@pytest.mark.parametrize("threshold", [None, "1", float("nan"), float("inf"), True])
def test_bad_thresholds(threshold):
    with pytest.raises(InvalidArgument):
        build_at_most("x", threshold, SCHEMA)


def test_unknown_columns_are_unknown_names():
    with pytest.raises(UnknownName):
        build_mean("foo > 1", SCHEMA)


def test_a_word_of_a_name_is_nearer_than_another_name():
    names = ("day", "dep_delay", "arr_delay", "air_delay")
    wide = Schema(tuple(Column(name, Type.INT, False) for name in names), "flights")
    with pytest.raises(UnknownName, match=r"^No column 'delay' in flights. Did you mean 'dep_delay' or 'arr_delay'\?"):
        build_mean("delay > 1", wide)


def test_numbers_that_are_text_are_read_by_a_cast():
    way = r"A quantile needs numbers; 's' is text. Numbers written as text are read by CAST\(s AS DOUBLE\)"
    with pytest.raises(InvalidQuery, match=way):
        build_at_most("s", 1, SCHEMA)
    assert build_at_most("CAST(s AS DOUBLE)", 1, SCHEMA).threshold == 1
