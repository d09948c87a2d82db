"""What newcomers write first, and what they are told: the fact, and how to write it instead."""

from pathlib import Path

import polars as pl
import pytest

import holdfast as hf

ROWS = {"carrier": ["UA", "AA"] * 500, "my col": [0.5] * 1_000, "when": [0.5] * 1_000, "d": list(range(1_000))}


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
