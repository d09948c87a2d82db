"""A SELECT is taken apart; everything that it may not have is refused by name, with what works instead."""

import pytest

import holdfast as hf
from holdfast.queries.select import read_select

FRAME = "SELECT {} FROM flights"
REFUSED = {
    "SELECT * FROM flights": "SELECT * is not available: rows are never shown.",
    "SELECT DISTINCT carrier FROM flights": "SELECT DISTINCT is not available: GROUP BY goes over the declared",
    "SELECT COUNT(DISTINCT carrier) FROM flights": "COUNT(DISTINCT ...) is not available",
    "SELECT MIN(x) FROM flights": "QUANTILE(x, 0.01) comes near.",
    "SELECT max(x) FROM flights": "QUANTILE(x, 0.99) comes near.",
    "SELECT REGR_INTERCEPT(y, x) FROM flights": "REGR_SLOPE(y, x), AVG(y) and AVG(x) are",
    "SELECT REGR_R2(y, x) FROM flights": "CORR(y, x) is, whose square it is",
    "SELECT MODE(x) FROM flights": "COUNT(*) with GROUP BY shows how often",
    "SELECT BOOL_AND(x) FROM flights": "AVG(condition) is the share",
    "SELECT ARRAY_AGG(x) FROM flights": "rows are never shown",
    "SELECT STDEV(x) FROM flights": "STDEV is not an aggregate here; STDDEV is.",
    "SELECT AVG(x) - AVG(y) FROM flights": "ask for a difference",
    "SELECT 100 * AVG(x) FROM flights": "Put the arithmetic inside, AVG(100 * x)",
    "SELECT ROUND(AVG(x), 2) FROM flights": "ROUND of an aggregate is not available",
    "SELECT CAST(AVG(x) AS INT) FROM flights": "CAST of an aggregate is not available",
    "SELECT SQRT(AVG(x)) FROM flights": "Arithmetic with aggregates",
    "SELECT AVG(x) OVER () FROM flights": "OVER is not available",
    "SELECT AVG(x) FILTER (WHERE y) FROM flights": "FILTER is not available: use WHERE",
    "SELECT AVG(x) FROM flights JOIN b ON a = b": "JOIN is not available: a SELECT reads one table.",
    "SELECT AVG(x) FROM flights LEFT JOIN b USING (a)": "LEFT is not available",
    "SELECT AVG(x) FROM flights, planes": "FROM takes one table; got flights, planes.",
    "SELECT AVG(x) FROM flights f g": "FROM takes the name of the table, and perhaps an alias; got flights f g.",
    "SELECT AVG(x) FROM main.flights": "FROM takes the name of the table, and perhaps an alias; got main.flights.",
    "SELECT AVG(x) FROM (SELECT 1)": "A SELECT inside another is not available",
    "SELECT AVG(x) FROM flights WHERE y IN (SELECT 1)": "A SELECT inside another is not available",
    "WITH a AS (SELECT 1) SELECT AVG(x) FROM a": "WITH is not available",
    "SELECT AVG(x) FROM flights HAVING AVG(x) > 1": "HAVING is not available: values are intervals",
    "SELECT AVG(x) FROM flights ORDER BY DESC": "ORDER BY needs a column of the result",
    "SELECT AVG(x) FROM flights LIMIT 1.5": "LIMIT must be a whole number; got 1.5.",
    "SELECT AVG(x) FROM flights LIMIT 3 ORDER BY 1": "in this order and each once",
    "SELECT AVG(x) FROM flights FETCH FIRST 3 ROWS ONLY": "FETCH is not available: LIMIT is.",
    "SELECT TOP 3 x FROM flights": "TOP is not available: ORDER BY and LIMIT are",
    "SELECT a, AVG(x) FROM flights GROUP BY 2": "GROUP BY 2 must be the number of a column of the SELECT",
    "SELECT a, AVG(x) FROM flights GROUP BY ROLLUP (a)": "ROLLUP is not available: ask one SELECT for each set",
    "EXPLAIN SELECT AVG(x) FROM flights": "A statement must be a SELECT; got EXPLAIN",
    "SELECT AVG(x) FROM flights UNION SELECT 1": "UNION is not available",
    "SELECT AVG(x) FROM flights GROUP BY a WHERE b": "in this order and each once",
    "SELECT AVG(x) FROM flights WHERE a WHERE b": "in this order and each once",
    "SELECT AVG(x)": "A SELECT needs FROM",
    "SELECT FROM flights": "Nothing follows SELECT",
    "SELECT AVG(x) FROM flights WHERE": "Nothing follows WHERE",
    "SELECT AVG(x), FROM flights": "Something is missing beside a comma",
    "SELECT AVG() FROM flights": "AVG() needs something to work on.",
    "SELECT PERCENTILE_CONT(0.5) FROM flights": "WITHIN GROUP (ORDER BY x)",
    "SELECT AVG(x FROM flights": "close as many brackets",
    "SELECT AVG(x)) FROM flights": "close as many brackets",
    "SELECT AVG(x) /* FROM flights": "a quotation mark or a comment that is not closed",
    "SELECT AVG(x) {# why #} FROM flights": "must not contain comments",
    "SELECT AVG(x) -- FROM flights": "A SELECT needs FROM",
    "SELECT AVG(x) FROM flights; DROP TABLE flights": "must be one statement",
    "SELECT AVG(x) FROM flights WHERE y = 'a": "a quotation mark or a comment that is not closed",
    "DROP TABLE flights": "A statement must be a SELECT; got DROP",
    "AVG(x)": "A statement must be a SELECT",
    "": "A SELECT must be text",
    "SELECT " + "x" * 30_000: "at most 20,000 characters",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_available_is_refused_by_name(text: str) -> None:
    with pytest.raises(hf.InvalidQuery) as refused:
        read_select(text)
    assert REFUSED[text] in str(refused.value)
    assert str(refused.value).endswith(".")


def test_a_statement_is_taken_apart() -> None:
    found = read_select(
        "select Carrier, avg(CASE WHEN a = 'x, y)' THEN 1 ELSE 0 END) share, quantile_cont(b, .5) AS \"the median\","
        " PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY b + 1)\nfrom Flights where EXTRACT(hour FROM t) > 3"
        " group by Carrier, (a = 'group by');"
    )
    assert [item.name for item in found.items[:3]] == ["Carrier", "share", "the median"]
    assert [item.aggregate for item in found.items] == [None, "AVG", "QUANTILE", "PERCENTILE"]
    assert found.items[1].arguments == ("CASE WHEN a = 'x, y)' THEN 1 ELSE 0 END",)
    assert found.items[3].arguments == ("b + 1", "0.9")
    assert found.table == "Flights"
    assert found.where == "EXTRACT(hour FROM t) > 3"
    assert found.groups == ("Carrier", "(a = 'group by')")
    assert read_select('SELECT COUNT(*) n FROM "my table"').table == "my table"


def test_comments_aliases_and_names_of_the_table_are_left_out() -> None:
    found = read_select(
        "-- how late?\nSELECT f.carrier /* who */, AVG(f.late) l FROM flights AS f"
        " WHERE F.note = 'f. -- x' GROUP BY f.carrier"
    )
    assert [item.text for item in found.items] == ["carrier", "AVG(late)"]
    assert found.items[1].arguments == ("late",)
    assert (found.table, found.where, found.groups) == ("flights", "note = 'f. -- x'", ("carrier",))


def test_how_the_result_is_sorted_and_cut() -> None:
    found = read_select("SELECT a, AVG(x) m FROM t GROUP BY ALL ORDER BY m DESC NULLS FIRST, 1 ASC LIMIT 3 OFFSET 2")
    assert found.groups == ("a",)
    assert [(key.text, key.descending, key.nulls_first) for key in found.order] == [
        ("m", True, True),
        ("1", False, False),
    ]
    assert (found.limit, found.offset) == (3, 2)
    assert read_select("SELECT a, AVG(x) FROM t GROUP BY 1").groups == ("a",)
