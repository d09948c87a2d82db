"""A SELECT becomes questions of ordinary kinds that ask for what SQL means, NULL included."""

import re
from typing import Any

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.queries.build import build_mean
from holdfast.queries.select import _ELSEWHERE as ELSEWHERE
from holdfast.questions.sql import select, written_table
from holdfast.rows.memory import memory_rows
from holdfast.service.calls import read_table
from holdfast.session.beside import Declarations

duckdb = pytest.importorskip("duckdb")

CARRIERS = ["UA", "AA", "DL"]


def table(rows: int = 30_000) -> pl.DataFrame:
    rng = np.random.default_rng(7)
    delay = np.where(rng.random(rows) < 0.1, np.nan, rng.gamma(1.5, 12.0, rows) - 10)
    return pl.DataFrame(
        {
            "delay": pl.Series(delay).fill_nan(None),
            "distance": rng.integers(80, 5_000, rows),
            "carrier": pl.Series(rng.choice(["UA", "AA", "DL", "??"], rows)).replace("??", None),
            "month": rng.integers(1, 13, rows),
            "late": rng.random(rows) < 0.3,
        }
    )


ROWS = table()
DECLARED = Declarations({"delay": (-60, 600), "distance": (0, 5_000)}, {"carrier": CARRIERS})
SCHEMA = DECLARED.on(memory_rows(ROWS, name="flights", complete=["distance", "late", "month"]).schema)

MONTHS = Declarations(categories={"month": [1, 2]}).on(SCHEMA)


@pytest.fixture
def session() -> Any:
    rows = hf.open(ROWS, name="flights", complete=["distance", "late", "month"])
    declared = {"bounds": DECLARED.bounds, "categories": DECLARED.categories}
    with hf.Session(rows, queries=300, seed=4, **declared) as opened:  # type: ignore[arg-type]
        yield opened


def in_the_sample(question: dict[str, Any]) -> float:
    """Return what a mean asks for, computed exactly on all rows by the query that is drawn."""
    measure = build_mean(question["query"], SCHEMA, where=question.get("where"))
    low, high = measure.bounds
    return float(low + (high - low) * np.nanmean(measure.evaluate(ROWS).astype(float)))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT AVG(delay) FROM flights",
        "SELECT AVG(delay > 15) FROM flights",  # of NULL nothing is known: left out, and not false
        "SELECT AVG(delay > 15) FROM flights WHERE month <= 3 OR delay IS NULL",
        "SELECT AVG(late) FROM flights WHERE delay > 15",
        "SELECT AVG(delay / 60 + 1) FROM flights WHERE NOT carrier = 'UA'",
        "SELECT AVG(CASE WHEN late THEN 1 ELSE 0 END) FROM flights WHERE carrier IN ('UA', 'AA')",
        "SELECT AVG(ABS(delay)), AVG(distance) FROM flights WHERE month = 1 AND late OR month = 2",
    ],
)
def test_an_average_is_that_of_sql(text: str) -> None:
    flights = ROWS  # noqa: F841  DuckDB finds it by its name
    (exact,) = duckdb.sql(re.sub(r"AVG\((late|delay > 15)\)", r"AVG((\1)::INT)", text)).fetchall()
    found = [in_the_sample(question) for question in select(text, SCHEMA, ROWS.height).questions]
    assert found == pytest.approx(exact, rel=1e-12)


def test_the_same_groups_as_in_sql(session: hf.Session) -> None:
    flights = ROWS  # noqa: F841
    text = "SELECT carrier, AVG(distance) AS far FROM flights WHERE carrier IS NOT NULL GROUP BY carrier"
    frame = session.sql(text)
    assert frame.columns == ["carrier", "far", "far_low", "far_high"]
    assert frame["carrier"].to_list() == CARRIERS
    exact = dict(duckdb.sql(text).fetchall())
    for carrier, _, low, high in frame.rows():
        assert low <= exact[carrier] <= high


def test_a_statement_asks_what_its_verbs_ask_and_what_was_asked_is_free(session: hf.Session) -> None:
    mean = session.mean("distance", where="month <= 6")
    frame = session.sql("SELECT AVG(distance) AS far FROM flights WHERE month <= 6")
    assert frame.row(0) == (mean.value, mean.low, mean.high)
    assert session.ledger.spent.answers == 1
    both = session.sql("SELECT AVG(distance) FROM flights GROUP BY late")
    assert both.height == 2
    assert session.mean("distance", by="late").cached
    medians = session.sql("SELECT late, MEDIAN(delay) AS typical FROM flights GROUP BY late")
    quantile = session.quantile("delay", 0.5, where="late = TRUE")
    assert quantile.cached
    assert medians.row(0) == (True, quantile.value, quantile.low, quantile.high)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM flights WHERE late",
        "SELECT COUNT(delay) FROM flights",
        "SELECT COUNT(delay), COUNT(*) FROM flights WHERE month > 6 AND carrier = 'UA'",
        "SELECT SUM(delay) FROM flights",  # a missing value adds nothing
        "SELECT SUM(delay) AS d, SUM(distance) FROM flights WHERE late OR delay IS NULL",
        "SELECT COUNT_IF(late) FROM flights WHERE delay > 0",
    ],
)
def test_a_count_and_a_sum_are_those_of_sql(text: str) -> None:
    flights = ROWS  # noqa: F841
    (exact,) = duckdb.sql(text).fetchall()
    selected = select(text, SCHEMA, ROWS.height)
    found = [ROWS.height * in_the_sample(question) for question in selected.questions]
    assert found == pytest.approx(exact, rel=1e-9)
    assert [column.scale for column in selected._columns] == [ROWS.height] * len(exact)


def test_groups_are_counted_by_one_histogram(session: hf.Session) -> None:
    flights = ROWS  # noqa: F841
    for text in (
        "SELECT carrier, COUNT(*) AS n FROM flights GROUP BY carrier",
        "SELECT carrier, COUNT(*) AS n FROM flights WHERE late GROUP BY carrier",
        "SELECT late, COUNT(*) AS n FROM flights WHERE month > 6 GROUP BY late",
    ):
        exact = dict(duckdb.sql(text).fetchall())
        before = session.ledger.spent.answers
        frame = session.sql(text)
        assert session.ledger.spent.answers == before + 1
        for group, value, low, high in frame.rows():
            assert 0 < low <= exact[group] <= high
            assert low <= value <= high
    assert session.histogram("carrier").cached
    two = session.sql("SELECT carrier, late, COUNT(*) AS n FROM flights GROUP BY carrier, late")
    exact = {
        row[:2]: row[2]
        for row in duckdb.sql("SELECT carrier, late, COUNT(*) AS n FROM flights GROUP BY carrier, late").fetchall()
    }
    assert all(low <= exact[carrier, late] <= high for carrier, late, _, low, high in two.rows())


def test_spreads_and_correlations_are_asked(session: hf.Session) -> None:
    flights = ROWS  # noqa: F841
    several = "STDDEV_POP(distance), VAR_POP(distance), CORR(distance, delay), REGR_SLOPE(delay, distance)"
    text = f"SELECT {several} FROM flights"
    (exact,) = duckdb.sql(text).fetchall()
    (line,) = session.sql(text).rows()
    for value, low, high in zip(exact, line[1::3], line[2::3], strict=True):
        assert low <= value <= high
    assert session.slope("distance", "delay").cached  # SQL has the dependent one first


def test_counts_for_populations_of_other_sizes_are_other_questions(session: hf.Session) -> None:
    here, there = session.count("late"), session.count("late", population=3_000_000)
    assert not there.cached
    assert there.high > 50 * here.high


def test_where_rows_belong_to_units_there_are_averages_and_no_counts() -> None:
    rows = {"flight": np.arange(4_000) // 2, "late": np.arange(4_000) % 3 == 0}
    with hf.Session(rows, unit="flight", queries=50, seed=1) as session:
        assert session.sql("SELECT AVG(late) FROM data").height == 1
        for text in ("SELECT COUNT(*) FROM data", "SELECT SUM(late) FROM data WHERE late"):
            with pytest.raises(hf.InvalidQuery, match="is not available where rows belong to units"):
                session.sql(text)


def test_all_rows_are_counted_without_asking(session: hf.Session) -> None:
    assert session.sql("SELECT COUNT(*) AS n FROM flights").rows() == [(30_000, 30_000, 30_000)]
    assert session.price_sql("SELECT COUNT(*) AS n FROM flights").answers == 0
    assert not session.ledger.begun


def test_a_condition_stays_inside_its_brackets(session: hf.Session) -> None:
    """WHERE a OR b, put together with a group, does not become a OR (b in the group)."""
    selected = select(
        "SELECT carrier, MEDIAN(delay) FROM flights WHERE late OR month = 1 GROUP BY carrier", session.schema, 1
    )
    assert selected.questions[0]["where"] == "(late OR month = 1) AND ((carrier) = 'UA')"
    with pytest.raises(hf.InvalidQuery, match="close as many brackets"):
        select("SELECT AVG(late) FROM flights WHERE late) OR (month = 1", session.schema, 1)


def test_a_statement_has_a_price(session: hf.Session) -> None:
    text = "SELECT carrier, AVG(delay), QUANTILE(delay, 0.9) FROM flights GROUP BY carrier"
    prices = session.price_sql(text)
    assert len(prices.each) == 4  # the means in one question, a quantile for each carrier
    left = session.budget.answers_left
    session.sql(text)
    assert left - session.budget.answers_left == prices.answers > 0
    assert session.price_sql(text).answers == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT AVG(x) FROM planes", "No table 'planes': this one is called 'flights'. Write FROM flights."),
        ("SELECT AVG(nothing) FROM flights", "No column 'nothing' in flights."),
        ("SELECT AVG(month) FROM flights", "AVG(month) needs the range of month. It is declared, never read"),
        ("SELECT MEDIAN(month) FROM flights", "open the session with bounds={'month': (low, high)}."),
        ("SELECT month, AVG(late) FROM flights GROUP BY month", "open the session with categories={'month': [...]}."),
        ("SELECT carrier, AVG(late) FROM flights", "carrier must be inside an aggregate"),
        ("SELECT carrier FROM flights GROUP BY carrier", "A SELECT needs an aggregate"),
        ("SELECT AVG(late), AVG(late) FROM flights", "Two columns would be called 'AVG(late)'"),
        ("SELECT AVG(late, 2) FROM flights", "AVG takes 1 argument; got 2"),
        ("SELECT QUANTILE(delay) FROM flights", "QUANTILE takes 2 arguments; got 1"),
        ("SELECT QUANTILE(delay, half) FROM flights", "the share in QUANTILE(delay, half) must be a number"),
        ("SELECT QUANTILE(delay, 2) FROM flights", "QUANTILE(delay, 2): q must be between 0 and 1"),
        ("SELECT AVG(RANDOM()) FROM flights", "RANDOM changes from call to call"),
        ("SELECT AVG(SUM(delay)) FROM flights", "SUM is an aggregate over many rows"),
        ("SELECT AVG(late) FROM flights WHERE delay", "where must be a yes-or-no condition"),
        ("SELECT SUM(distance) FROM flights WHERE late THEN 1 WHEN month = 2", "cannot be parsed"),
        ("SELECT AVG(late) FROM flights WHERE late GROUP BY late, (carrier", "close as many brackets"),
        ("SELECT COUNT(late) OR (late) FROM flights", "Nothing may follow an aggregate"),
        ("SELECT AVG(carrier) FROM flights", "A mean needs numbers or yes-or-no values"),
        ("SELECT KURTOSIS(delay) FROM flights", "KURTOSIS is not available: VARIANCE(x) is, and QUANTILE(x, 0.01)"),
        ("SELECT AVG(KURTOSIS(delay)) FROM flights", "KURTOSIS is not available: VARIANCE(x) is"),
        ("SELECT GEOMETRIC_MEAN(distance) FROM flights", "GEOMETRIC_MEAN is not available: AVG(LN(x)) is"),
        ("SELECT HARMONIC_MEAN(distance) FROM flights", "AVG(1 / x) is, whose reciprocal it is"),
        ("SELECT PERCENTILE_DISC(0.5) FROM flights", "QUANTILE(x, 0.9) is"),
        ("SELECT CONFABULATE(delay) FROM flights", "There are the aggregates AVG, COUNT, SUM, MEDIAN"),
        ("SELECT AVG(late) FROM flights WHERE AVG(delay) > 3", "WHERE is about one row at a time. Filter what comes"),
        ("SELECT AVG(late) FROM flights GROUP BY SUM(delay)", "GROUP BY is about one row at a time."),
        ("SELECT NOT (late) FROM flights", "must be inside an aggregate"),
    ],
)
def test_refusals_come_before_anything_is_read(session: hf.Session, text: str, words: str) -> None:
    with pytest.raises(hf.HoldfastError) as refused:
        session.sql(text)
    assert words in str(refused.value)
    assert not session.ledger.begun


@pytest.mark.parametrize("name", sorted(ELSEWHERE))
def test_what_is_named_instead_of_an_aggregate_works(name: str) -> None:
    """Every aggregate in the hint is one, and every SELECT made of it becomes a question."""
    for call in re.findall(r"[A-Z_]+\((?:[^()]|\([^()]*\))*\)", ELSEWHERE[name]):
        text = call.replace("condition", "late").replace("y", "distance").replace("x", "(delay + 61)")
        assert select(f"SELECT {text} AS it FROM flights", SCHEMA, ROWS.height).rows == ROWS.height


def test_a_table_is_written_with_intervals_rounded_outwards() -> None:
    frame = pl.DataFrame({"c": ["a", "b"], "x": [0.12345, None], "x_low": [0.1001, 0.0], "x_high": [0.2, 0.99999]})
    headings, lines, numbers = written_table(frame)
    assert headings == ["c", "x", ""]
    assert lines == [["a", "0.123", "[0.100, 0.200]"], ["b", "too few rows to tell", "[0.000, 1.000]"]]
    assert numbers == [1]
    assert written_table(pl.DataFrame({"n": [3], "n_low": [3], "n_high": [3]}))[1] == [["3", "[3, 3]"]]  # known exactly


def test_the_result_is_sorted_and_cut_as_in_sql(session: hf.Session) -> None:
    """By what was seen. Groups are named by alias or number, and may be what the text itself says."""
    text = "SELECT f.carrier AS who, AVG(distance) far, COUNT(*) AS n FROM flights f GROUP BY who"
    plain = session.sql(text)
    frame = session.sql(f"{text} ORDER BY far DESC LIMIT 2 -- the farthest")
    assert frame.equals(plain.sort("far", descending=True).head(2))
    assert session.sql(f"{text} ORDER BY 3, who").equals(plain.sort("n", "who"))
    assert session.sql(f"{text} ORDER BY COUNT( * ) LIMIT 9 OFFSET 1").equals(plain.sort("n").slice(1))
    halves = session.sql(
        "SELECT CASE WHEN month <= 6 THEN 'first' ELSE 'second' END AS half, COUNT(1) AS n FROM flights GROUP BY 1"
    )
    assert halves["half"].to_list() == ["first", "second"]
    assert halves["n_low"].min() >= 0
    assert halves["n_high"].max() <= ROWS.height


def test_no_end_of_an_interval_is_covered_by_another_column(session: hf.Session) -> None:
    for text in ("AVG(late) AS x, AVG(distance) AS x_low", "AVG(distance) AS x_high, AVG(late) AS x"):
        with pytest.raises(hf.InvalidQuery, match=r"Two columns would be called 'x_(low|high)'"):
            select(f"SELECT {text} FROM flights", session.schema, 1)
    frame = session.sql("SELECT carrier AS x, AVG(distance) AS x_low FROM flights GROUP BY carrier")
    assert frame.columns == ["x", "x_low", "x_low_low", "x_low_high"]
    assert written_table(frame)[0] == ["x", "x_low", ""]


def test_numbers_of_lines_are_read_before_anything_is_asked(session: hf.Session) -> None:
    text = "SELECT carrier, COUNT(*) AS n FROM flights GROUP BY 1"
    plain = session.sql(text)
    assert session.sql(f"{text} LIMIT {'9' * 30}").equals(plain)
    assert session.sql(f"{text} LIMIT {'9' * 5_000} OFFSET {'9' * 30}").height == 0
    assert session.sql(f"{text} ORDER BY n, n DESC, 2 LIMIT 0002").equals(plain.sort("n").head(2))
    for end in ("LIMIT ²", "ORDER BY ²", "ORDER BY 99999999999999999999"):
        with pytest.raises(hf.InvalidQuery, match=r"must be a (whole number|column of the result)"):
            session.sql(f"{text} {end}")
    with pytest.raises(hf.HoldfastError):
        session.sql("SELECT carrier, COUNT(*) AS n FROM flights GROUP BY ²")


def test_order_by_tells_apart_what_differs_in_its_texts() -> None:
    one, other = "COUNT_IF(carrier = 'UA')", "COUNT_IF(carrier = 'ua')"
    made = select(f"SELECT month, {one}, {other} FROM flights GROUP BY month ORDER BY {other}", MONTHS, ROWS.height)
    assert [name for name, _ in made._order] == [other]


def test_a_column_comes_before_an_alias_in_group_by() -> None:
    made = select("SELECT month > 6 AS late, COUNT(*) FROM flights GROUP BY month > 6", SCHEMA, ROWS.height)
    assert made.questions[0]["query"] == "month > 6"
    with pytest.raises(hf.InvalidQuery, match="must be inside an aggregate"):  # late is a column of the table
        select("SELECT month > 6 AS late, COUNT(*) FROM flights GROUP BY late", SCHEMA, ROWS.height)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT carrier, COUNT(*) n FROM flights GROUP BY 1 ORDER BY month", "ORDER BY month must be a column of the"),
        (
            "SELECT COUNT(*) FROM flights GROUP BY month % 2",
            "goes over columns with declared categories, over yes-or-no",
        ),
        ("SELECT COUNT(*) FROM flights GROUP BY month", "Instead of a list, 'published' takes the texts that occur"),
    ],
)
def test_what_cannot_be_sorted_or_grouped_by_is_refused(text: str, message: str) -> None:
    with pytest.raises(hf.InvalidQuery) as refused:
        select(text, SCHEMA, ROWS.height)
    assert message in str(refused.value)


def test_counts_are_whole_numbers_and_no_count_is_below_zero(session: hf.Session) -> None:
    """SUM of a condition counts, too; a count's ends are rounded outwards, and 0 is 0, neither -0.0 nor below it."""
    each = "COUNT(*) AS n, COUNT(delay) AS known, SUM(delay > 900) AS s, SUM(distance) AS far"
    frame = session.sql(f"SELECT carrier, {each} FROM flights GROUP BY carrier")
    counts = [name for name in frame.columns if name.partition("_")[0] in ("n", "known", "s")]
    assert {frame.schema[name] for name in counts} == {pl.Int64}
    assert frame["s_low"].to_list() == [0, 0, 0]
    assert all(low <= value <= high <= ROWS.height for value, low, high in frame.select(counts[-3:]).rows())
    assert frame["far_low"].min() >= 0
    nobody = session.sql("SELECT SUM(distance) AS far FROM flights WHERE delay > 900")
    assert str(nobody["far_low"][0]) == "0.0"
    share = session.mean("delay > 900")
    (line,) = session.sql("SELECT COUNT_IF(delay > 900) AS n FROM flights").rows()
    assert line[1] <= ROWS.height * share.low <= ROWS.height * share.high <= line[2]


@pytest.mark.parametrize(("bounds", "added"), [((5, 50), 5.0), ((-50, -5), -5.0), ((-5, 5), 2.0)])
def test_a_sum_adds_numbers_that_are_clipped_to_their_bounds_and_nothing_for_others(
    bounds: tuple[float, float], added: float
) -> None:
    rows = {"x": [2.0, None] * 10_000, "c": [True, True, False, False] * 5_000}
    with hf.Session(rows, queries=20, bounds={"x": bounds}) as session:
        for where, count in (("", 10_000), (" WHERE c", 5_000)):
            ((value, low, high),) = session.sql(f"SELECT SUM(x) AS s FROM data{where}").rows()
            assert low <= count * added <= high, value
            assert high - low < 20_000 * 10
            total = session.total("x", where="c" if where else None)
            assert total.low <= count * added <= total.high


def test_an_aggregate_without_a_value_in_any_group_is_a_column_of_numbers(session: hf.Session) -> None:
    frame = session.sql("SELECT carrier, AVG(delay) AS d FROM flights WHERE delay > 900 GROUP BY carrier")
    assert frame["d"].to_list() == [None] * 3
    assert frame.schema["d"] == pl.Float64
    sent = {"ok": True, "columns": frame.columns, "rows": frame.rows()}
    assert read_table(sent).schema == frame.schema  # as over HTTP


def test_no_end_of_an_interval_is_minus_zero(session: hf.Session) -> None:
    wide = session.std("delay", within=(-60, 1e6))
    for answer in (wide, session.count("delay > 900"), session.total("distance", where="delay > 900")):
        assert "-0.0" not in f"{answer.low} {answer.bounds}"
