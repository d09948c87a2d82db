"""What newcomers write first, and what they are told: the fact, and how to write it instead."""

from datetime import date
from pathlib import Path

import polars as pl
import pytest

import holdfast as hf

ROWS = {"carrier": ["UA", "AA"] * 500, "my col": [0.5] * 1_000, "when": [0.5] * 1_000, "d": list(range(1_000)),
        "b": [True, False] * 500}  # fmt: skip


@pytest.mark.parametrize(
    ("query", "hint", "better"),
    [
        ('carrier = "UA"', "write it in single quotes: 'UA'", "carrier = 'UA'"),
        ("my col > 0.2", 'double quotes: "my col"', '"my col" > 0.2'),
        ("when > 0.2", 'double quotes: "when"', '"when" > 0.2'),
        ("d col > 0.2", 'double quotes: "my col"', '"my col" > 0.2'),
        ("d > 5 && d < 9", "write AND", "d > 5 AND d < 9"),
        ("d > 5 & d < 9", "write AND", "d > 5 AND d < 9"),
        ("carrier IN ['UA', 'AA']", "carrier IN ('UA', 'AA')", "carrier IN ('UA', 'AA')"),
        (
            "strftime(t, '%Y') = '2013'",
            "YEAR(x), MONTH(x), DAY(x), HOUR(x)",
            "YEAR(t) + MONTH(t) + DAY(t) + HOUR(t) > 0",
        ),
        ("strftime(t, '%Y') = '2013'", "DATE_TRUNC('month', x)", "DATE_TRUNC('month', t) > DATE '2013-01-31'"),
        ("DATE(t) > 3", "write a date as DATE '2013-01-31'", "t > DATE '2013-01-31'"),
        (" * ".join(["d"] * 120) + " > 4", "a product of many factors is", " + ".join(["d"] * 120) + " > 4"),
        ("d => 3", "write >=", "d >= 3"),
        ("carrier.startswith('U')", "write STARTS_WITH(carrier, ...)", "STARTS_WITH(carrier, 'U')"),
        ("carrier.str.startswith('U')", "write STARTS_WITH(carrier, ...)", "STARTS_WITH(carrier, 'U')"),
        ("t.dt.year = 2013", "write YEAR(t, ...)", "YEAR(t) = 2013"),
        ("np.log(d) > 1", "write LOG(...)", "LOG(d) > 1"),
        ("d.isnull()", "x IS NULL", "d IS NULL"),
        ("data.d > 3", "Write d.", "d > 3"),
        ("d > 5 || d < 3", "between conditions write OR", "d > 5 OR d < 3"),
        ("carrier + 'x' = 'UAx'", "Texts are joined by ||", "carrier || 'x' = 'UAx'"),
        ("carrier = 'UA' OR 'AA'", "carrier IN ('UA', 'AA')", "carrier IN ('UA', 'AA')"),
        ("d > 6 AND < 18", "hour >= 6 AND hour <= 18", "d > 6 AND d < 18"),
        ("d BETWEEN 18 AND 6", "d BETWEEN 6 AND 18", "d BETWEEN 6 AND 18"),
        ("d BETWEEN 18 AND 6", "d >= 18 OR d <= 6", "d >= 18 OR d <= 6"),
        ("d BETWEEN 6, 18", "BETWEEN is written hour BETWEEN 6 AND 18", "d BETWEEN 6 AND 18"),
        ("d IN 1, 2", "hour IN (1, 2)", "d IN (1, 2)"),
        ("d IN 1", "takes a list of constants in parentheses", "d IN (1, 2)"),
        ("d IN {1, 2}", "write a list in parentheses", "d IN (1, 2)"),
        ("d =< 3", "Write <= or >=", "d <= 3"),
        ("(d > 3", "Brackets opened: 1; closed: 0", "(d > 3)"),
        ("d > 15%", "Write a percentage as a number: 0.15", "d > 0.15"),
        ("d > 1,000", "Write numbers without commas", "d > 1000"),
        ("d > 3 AND", "Something is missing after AND", "d > 3 AND d < 9"),
        ("d // 2 = 1", "write FLOOR(x / y)", "FLOOR(d / 2) = 1"),
        ("d mod 2 = 1", "write hour % 2", "d % 2 = 1"),
        ("d > 3 xor d < 9", "write <> between two conditions", "(d > 3) <> (d < 9)"),
        ("~(d > 3)", "write NOT", "NOT (d > 3)"),
        ("carrier contains 'U'", "CONTAINS(carrier, 'U')", "CONTAINS(carrier, 'U')"),
        ("d > 3 ? 1 : 0", "CASE WHEN", "CASE WHEN d > 3 THEN 1 ELSE 0 END = 1"),
        ("1 if d > 3 else 0", "CASE WHEN", "CASE WHEN d > 3 THEN 1 ELSE 0 END = 1"),
        ("CASE WHEN d < 12 THEN 'am' ELSE 'pm' = 'am'", "ends with END", "CASE WHEN d < 1 THEN 1 ELSE 0 END = 1"),
        ("d > 15 AS late", "leave out AS late", "d > 15"),
        ("WHERE d > 15", "leave out WHERE", "d > 15"),
        ("AVG(d)", "the kind of question says what is computed", "d > 15"),
        ("COUNTIF(d > 3)", "the kind of question says what is computed", "d > 3"),
        ("STD(d)", "is an aggregate over many rows", "d > 3"),
        ("MAX(d, 3) > 5", "GREATEST(x, y)", "GREATEST(d, 3) > 5"),
        ("NVL(d, 0) > 3", "COALESCE(x, 0)", "COALESCE(d, 0) > 3"),
        ("int(d) > 3", "CAST(x AS BIGINT)", "CAST(d AS BIGINT) > 3"),
        ("CAST(d AS VARCHAR(10)) = '3'", "VARCHAR, which takes no size here", "CAST(d AS VARCHAR) = '3'"),
        ("CAST(d AS DECIMAL(10, 2)) = 3", "CAST supports BIGINT", "CAST(d AS DOUBLE) = 3"),
        ("trunc(d) > 3", "FLOOR(x), CEIL(x) and ROUND(x, 1)", "FLOOR(d) + CEIL(d) + ROUND(d, 1) > 3"),
        ("weekday(t) = 1", "DAYOFWEEK(x)", "DAYOFWEEK(t) = 1"),
        ("t > now()", "DATE '2024-12-31'", "t > DATE '2024-12-31'"),
        ("t > 2013-01-31", "Write a date in single quotes: '2024-12-31'", "t > '2024-12-31'"),
        ("'d' > 3", "write the column as d", "d > 3"),
        ("'d > 3'", "without single quotes around it", "d > 3"),
        ('"d > 3"', "without quotation marks around all of it", "d > 3"),
        ('d > "3"', "If it is a number, write it without quotation marks: 3", "d > 3"),
        ("carrier = 'O'Hare'", "written twice: 'O''Hare'", "carrier = 'O''Hare'"),
        ("b > 0", "true or false by itself: write b, or NOT b", "NOT b"),
    ],
)
def test_a_hint_is_given_and_works(query: str, hint: str, better: str) -> None:
    times = pl.datetime_range(pl.datetime(2013, 1, 1), pl.datetime(2013, 2, 11, 15), "1h", eager=True)
    with hf.Session(pl.DataFrame(ROWS | {"t": times[:1_000]})) as session:
        with pytest.raises((hf.InvalidQuery, hf.UnknownName)) as refused:
            session.mean(query)
        assert hint in str(refused.value)
        assert session.dry_run(better).made_up


@pytest.mark.parametrize(
    ("statement", "hint", "better"),
    [
        ("SELECT COUNT(*) FROM flights", "Write FROM data", "SELECT COUNT(*) FROM data"),
        ("SELECT AVG d FROM data", "AVG(x)", "SELECT AVG(d) FROM data"),
        ("SELECT AVG(*) FROM data", "only COUNT takes *", "SELECT COUNT(*) FROM data"),
        ("SELECT AVG(d) 'mean d' FROM data", "stands in double quotes", 'SELECT AVG(d) "mean d" FROM data'),
        ("SELECT AVG(d) AS mean d FROM data", "stands in double quotes", 'SELECT AVG(d) AS "mean d" FROM data'),
        ("SELECT carrier FROM data", "COUNT(carrier)", "SELECT COUNT(carrier) FROM data"),
        ("SELECT SUM(d > 3) * 100 / COUNT(*) FROM data", "AVG(100 * x)", "SELECT AVG(100 * d) FROM data"),
        ("SELECT 100 * SUM(d > 3) / COUNT(*) FROM data", "AVG(condition)", "SELECT AVG(d > 3) FROM data"),
        ("SELECT AVG(CASE WHEN d > 3 THEN 1 END) FROM data", "AVG(x > 15)", "SELECT AVG(d > 3) FROM data"),
        ("SELECT STDEVP(d) FROM data", "There are AVG, COUNT", "SELECT STD(d), VAR(d) FROM data"),
    ],
)
def test_a_hint_about_a_statement_is_given_and_works(statement: str, hint: str, better: str) -> None:
    with hf.Session(pl.DataFrame(ROWS), bounds={"d": (0, 1_000)}) as session:
        with pytest.raises((hf.InvalidQuery, hf.UnknownName, hf.InvalidArgument)) as refused:
            session.price_sql(statement)
        assert hint in str(refused.value)
        session.price_sql(better)


@pytest.mark.parametrize("part", ["month", "MONTH", "'month'"])
def test_a_part_of_a_date_may_be_written_without_quotation_marks(part: str) -> None:
    with hf.Session(pl.DataFrame({"month": [1] * 1_000, "t": [date(2013, 1, 31)] * 1_000})) as session:
        asked = session.dry_run(f"DATE_TRUNC({part}, t) = DATE '2013-01-01' AND month = 1")
        assert asked.made_up
        assert session.dry_run(f"DATE_DIFF({part}, t, DATE '2014-01-01') = 12").made_up


def test_only_a_column_that_is_a_word_of_sql_is_said_to_need_quotation_marks() -> None:
    with hf.Session(pl.DataFrame({"hour": [1] * 1_000, "when": [1] * 1_000})) as session:
        with pytest.raises(hf.InvalidQuery, match='Write the column in double quotes: "when"'):
            session.mean("hour(when) > 3")
        with pytest.raises(hf.InvalidQuery) as refused:
            session.mean("hour > 3 hour")
        assert "double quotes" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "hint", "options"),
    [
        (b"x;y\n1;2\n", "separator=';'", {"separator": ";"}),
        (b"x;y\n1,5;2,5\n", "separator=';'", {"separator": ";", "decimal": ","}),
        (b"name,x\nM\xfcller,1\nMaier,2\n", "line 2: its text is not utf-8", {"encoding": "latin-1"}),
    ],
)
def test_a_file_that_needs_an_option_says_which(
    tmp_path: Path, content: bytes, hint: str, options: dict[str, str]
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content + content.splitlines(keepends=True)[-1] * 500)
    with pytest.raises(hf.RowSourceError) as refused:
        hf.Session(path)
    assert hint in str(refused.value)
    with hf.Session(hf.open(path, **options)) as session:
        assert len(session.schema) == 2


def test_a_ragged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "1,2\n" * 700 + "1,2,3\n" + "1,2\n" * 700)
    with pytest.raises(hf.RowSourceError, match="line 702: 3 values, where the header has 2 columns"):
        hf.Session(path)
