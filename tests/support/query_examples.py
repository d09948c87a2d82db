"""Expressions that together use every operation a query may use, and the schema they are written for."""

from holdfast.schema import Column, Schema, Type

SCHEMA = Schema(
    (
        Column("i", Type.INT, False),
        Column("j", Type.INT, True),
        Column("x", Type.FLOAT, False),
        Column("y", Type.FLOAT, True),
        Column("s", Type.STRING, False),
        Column("t", Type.STRING, True),
        Column("b", Type.BOOL, False),
        Column("c", Type.BOOL, True),
        Column("d", Type.DATE, False),
        Column("e", Type.DATE, True),
        Column("w", Type.DATETIME, False),
        Column("v", Type.DATETIME, True),
    ),
    "things",
)

NUMBERS = [
    "i", "j", "x", "y", "-x", "-j", "x + y", "i + j", "x - y", "i - j", "i * j", "x * y", "i / j", "x / y", "i % j",
    "x % y", "j % 3", "mod(i, -7)", "y % 2.5", "abs(i)", "abs(y)", "sign(i)", "sign(y)", "round(x)", "round(y, 2)",
    "round(i, 3)", "round(x, 15)", "floor(y)", "floor(i)", "ceil(y)", "ceiling(j)", "sqrt(x)", "cbrt(y)", "exp(y)",
    "exp(i)", "ln(x)", "ln(j)", "log(y)", "log2(x)", "log10(i)", "log(x, y)", "log(i, j)", "power(x, y)", "pow(i, j)",
    "x ** 3", "2 ** i", "sin(x)", "cos(y)", "tan(x)", "asin(y)", "acos(x)", "atan(y)", "atan2(x, y)", "tanh(x)",
    "degrees(x)", "radians(y)", "greatest(i, j)", "least(x, y, 3)", "greatest(x, j)", "coalesce(j, i)",
    "nullif(i, x)", "power(nullif(i, x), j)", "case when true then 1 else x end", "coalesce(i, x)", "greatest(i, 1.5)",
    "coalesce(y, 0)", "nullif(i, 0)", "nullif(x, y)", "ifnull(j, 5)", "case when b then i when c then j else 7 end",
    "case j when 0 then 1 when 1 then 2 end", "if(c, x, y)", "iif(b, 1, 2)", "length(s)", "len(t)",
    "position('a' in s)", "strpos(t, 'b')", "instr(s, 'é')", "year(d)", "month(e)", "day(d)", "quarter(v)", "week(d)",
    "hour(w)", "minute(v)", "second(w)", "dayofweek(e)", "isodow(d)", "dayofyear(v)", "dayofmonth(w)",
    "extract(year from w)", "extract(dow from v)", "extract(doy from d)", "date_diff('day', d, e)",
    "date_diff('hour', w, v)", "datediff('minute', v, w)", "date_diff('second', d, v)", "date_diff('month', d, e)",
    "date_diff('year', v, d)", "e - d", "d - '2020-01-01'", "cast(s as int)", "cast(t as double)",
    "try_cast(x as bigint)", "x / 3", "x % 1e-310", "i % 5e-324", "y % 0.1",
    "x / (1 + 2)", "(i + j) / 10",
    "cast(b as int)", "cast(c as double)", "cast(i as double)", "y::int", "cast(s || '1' as int)",
    "x + y - i * j / 3 % 5", "(x - x) * 1e308 * 1e308", "exp(x) - exp(x)", "ln(x - y)", "abs(x - y) / abs(x + y)",
]  # fmt: skip
BOOLEANS = [
    "b", "c", "not b", "not c", "b and c", "b or c", "not (b and not c)", "x > 0.5", "y >= 1", "i < j", "i <= 3",
    "j = 0", "j <> i", "i != 5", "x == y", "s = t", "s < t", "t >= 'a'", "d > e", "d <= '2020-02-29'", "w > v",
    "w = '1970-01-01 00:00:00'", "d < w", "e <> date '1970-01-01'", "v >= timestamp '2000-01-01 12:00:00'", "b = c",
    "b <> true", "x between 0 and 1", "j not between i and 10", "s between 'a' and 'b'", "e between '1970-01-01' and d",
    "i in (0, 1, 2)", "j not in (0, 1)", "y in (0.5, 1)", "j in (1, 1.5)", "t in ('a', 'b', '')", "d in ('1970-01-01')",
    "c in (true)", "v in ('1970-01-01', '2024-02-29 12:30:15')", "s like 'a%'", "t like '%b'", "s like '%a%'",
    "t like 'a_%b'", "s like 'ab'", "t like '%'", "s like ''", "s like '_'", "t not like '%\\%'", "t ilike 'A%'",
    "s ilike '%É%'", "s not ilike '_b'", "j is null", "y is not null", "c is true", "c is not false", "t is null",
    "starts_with(s, 'a')", "starts_with(s, t)", "ends_with(t, 'b')", "contains(s, t)", "contains(t, 'a')",
    "x - y > 0", "x + y <> x", "i + j = 3", "not (x / y > 1)", "sqrt(x) is null", "coalesce(c, b)",
    "case when x > 0 then b else c end", "cast(s as boolean)", "cast(i as boolean)", "cast(x as boolean)",
    "coalesce(x > y, false)", "nullif(b, c)", "(x > 1) = (y > 1)",
    "i > 9223372036854775807", "i = -9223372036854775808",
    "greatest(d, e) > '2000-01-01'", "least(s, t) = 'a'", "if(c, 'a', t) = 'a'",
]  # fmt: skip
TEXTS = [
    "s", "t", "lower(s)", "upper(t)", "trim(s)", "ltrim(t)", "rtrim(s)", "trim(both 'x' from s)", "ltrim(t, 'ab')",
    "rtrim(t, 'é')", "substring(s, 2)", "substring(t, 1, 3)", "substring(s from 3 for 1000000)", "substr(s, 1000000)",
    "left(s, 2)", "left(t, 0)", "right(t, 3)", "s || t", "s || '-' || t", "concat(s, t)", "concat(t, '!', s)",
    "replace(s, 'a', 'bb')", "replace(t, 'x', '')", "replace(s, '🙂', '$0')", "coalesce(t, s)", "nullif(s, '')",
    "greatest(s, t)", "cast(i as text)", "cast(x as varchar)", "cast(c as text)", "cast(d as text)", "cast(v as text)",
    "case when b then s else t end", "cast(x / y as text)",
]  # fmt: skip
TIMES = [
    "d", "e", "w", "v", "date_trunc('month', d)", "date_trunc('week', e)", "date_trunc('year', w)",
    "date_trunc('quarter', v)", "date_trunc('day', w)", "date_trunc('hour', v)", "date_trunc('minute', w)",
    "date_trunc('second', w)", "d + 1", "e + i", "d - j", "e - 1000000000", "cast(s as date)", "cast(t as timestamp)",
    "cast(w as date)", "cast(e as timestamp)", "coalesce(e, d)", "greatest(d, w)", "least(e, '2020-01-01')",
    "nullif(d, e)", "case when c then d end", "cast('2020-01-01' || s as date)", "coalesce(v, w)",
]  # fmt: skip
EVERYTHING = [*NUMBERS, *BOOLEANS, *TEXTS, *TIMES]
