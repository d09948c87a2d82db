"""What somebody meets who starts with the wrong option, file or machine: one sentence, at their own line."""

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from datetime import date
from pathlib import Path
from traceback import extract_tb, format_exception
from typing import Any

import narwhals as nw
import pandas as pd
import polars as pl
import pytest

import holdfast as hf
from holdfast.check import FULL_TRACEBACKS
from holdfast.cli import main
from holdfast.cli.output import spell
from holdfast.guarantees import coins
from holdfast.rows.columns import LocalTimes
from holdfast.rows.scans.inference import NumbersAsText, UnclearDates
from holdfast.service.client import RemoteSession
from plain_query import rows_of

ROWS = pl.DataFrame({"x": range(1_000)})


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> hf.Session:
    monkeypatch.delenv(FULL_TRACEBACKS)
    return hf.Session(ROWS)


MISTAKES: list[Callable[[hf.Session], object]] = [
    lambda session: session.mean("y > 3"),
    lambda session: session.mean("x"),
    lambda session: session.quantile("x", 0.5, withn=(0, 1)),
    lambda session: session.sql("SELECT AVG(y) FROM data"),
    lambda session: session.ask("x > 3", "median"),
    lambda session: session.price("x >"),
    lambda session: hf.Session(ROWS, querys=3),  # type: ignore[call-arg]
    lambda session: hf.open("nowhere.csv"),
    lambda session: hf.plan(rows=10, querries=3),  # type: ignore[call-arg]
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_refusal_ends_at_the_callers_line(session: hf.Session, mistake: Callable[[hf.Session], object]) -> None:
    with pytest.raises(hf.HoldfastError) as refused:
        mistake(session)
    frames = extract_tb(refused.value.__traceback__)
    inside = [frame for frame in frames if Path(hf.__file__).parent in Path(frame.filename).parents]
    assert [Path(frame.filename).name for frame in inside] in ([], ["check.py"])  # which words some refusals itself
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_a_bug_shows_its_whole_way(session: hf.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("holdfast.session.session.kind_named", broken)
    with pytest.raises(ZeroDivisionError) as bug:
        session.ask("x > 3")
    assert [frame.name for frame in extract_tb(bug.value.__traceback__)][-2:] == ["ask", "broken"]


@pytest.mark.parametrize("full", [False, True])
def test_a_bug_before_a_refusal_is_not_hidden_by_it(
    session: hf.Session, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    """As when letting go of something fails after a bug; what a refusal leaves out on purpose stays out."""

    def broken(*args: object) -> None:
        try:
            raise ZeroDivisionError
        finally:
            raise hf.LedgerUnavailable("The disk is full.", location="here")

    if full:
        monkeypatch.setenv(FULL_TRACEBACKS, "1")
    monkeypatch.setattr("holdfast.session.session.kind_named", broken)
    with pytest.raises(hf.LedgerUnavailable) as refused:
        session.ask("x > 3")
    shown = "".join(format_exception(refused.value))
    assert "ZeroDivisionError" in shown
    assert ("in ask" in shown.partition("During handling")[2]) == full
    with pytest.raises(hf.InvalidArgument) as refused:
        hf.Session(ROWS, querys=3)  # type: ignore[call-arg]
    assert "TypeError" not in "".join(format_exception(refused.value))


def test_the_whole_way_of_a_refusal_is_there_for_those_who_want_it(
    session: hf.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FULL_TRACEBACKS, "1")
    with pytest.raises(hf.UnknownName) as refused:
        session.mean("y > 3")
    assert len(extract_tb(refused.value.__traceback__)) > 4


# -- NA ---------------------------------------------------------------------------------------------------------------


def test_numbers_that_are_texts_because_of_a_word_for_missing_are_pointed_out(tmp_path: Path) -> None:
    path = tmp_path / "delays.csv"
    path.write_text("delay,gate,code\n" + "3.5,NA,x1\nNA,4,NA\n7,NA,x2\n" * 100)
    with pytest.warns(NumbersAsText) as caught:
        hf.open(path)
    (warning,) = caught
    assert warning.filename == __file__
    assert str(warning.message) == (
        f"{path}: because of 'NA', numbers are read as text in 'delay', 'gate'. If values are missing there, say so"
        " when opening: null_values=['NA']."
    )
    assert spell(str(warning.message), {}).endswith("say so: holdfast open DATA --null-values NA.")
    opened = hf.open(path, null_values=["NA"])
    assert [str(column.type) for column in opened.schema] == ["number", "integer", "text"]


def test_a_few_words_for_missing_do_not_make_numbers_texts(tmp_path: Path) -> None:
    path = tmp_path / "delays.csv"
    path.write_text("delay,code\n" + "3.5,x1\n" * 300 + "NA,x2\n7,NA\n")
    with pytest.raises(hf.RowSourceError) as refused:
        hf.open(path)
    assert str(refused.value) == (
        f"{path}: because of 'NA', some numbers are not read as such in 'delay'. If values are missing there, say so"
        " when opening: null_values=['NA']."
    )
    opened = hf.open(path, null_values=["NA"])
    assert [str(column.type) for column in opened.schema] == ["number", "text"]


def test_decimal_commas_are_pointed_out(tmp_path: Path) -> None:
    path = tmp_path / "sales.csv"
    path.write_text("sales;size;code\n3,5;NA;1,2,3\n7;4,25;1\n")
    with pytest.warns(NumbersAsText) as caught:
        hf.open(path, separator=";")
    assert [spell(str(each.message), {}) for each in caught] == [
        f"{path}: because of their commas, numbers are read as text in 'sales', 'size'. After that, because of 'NA',"
        " numbers are read as text in 'size'. If you know this to be so, say it when opening. All together: holdfast"
        " open DATA --decimal ',' --null-values NA."
    ]
    opened = hf.open(path, separator=";", decimal=",", null_values=["NA"])
    assert [str(column.type) for column in opened.schema] == ["number", "number", "text"]
    with pytest.raises(hf.InvalidArgument, match="decimal must not be what separates the values"):
        hf.open(path, decimal=",")


def test_thousands_in_numbers_are_pointed_out(tmp_path: Path) -> None:
    path = tmp_path / "sales.csv"
    path.write_text('sales,code\n"1,234","1,2"\n"1,234,567.5",x\n90,"1,234"\n')
    with pytest.warns(NumbersAsText) as caught:
        hf.open(path)
    assert [str(each.message) for each in caught] == [
        f"{path}: because of their commas, numbers are read as text in 'sales'. If these separate thousands, remove"
        " them from the file; if they are decimal commas, write points in their place."
    ]
    path.write_text("sales;code\n1,234;x\n1,234,567.5;x\n")
    with pytest.warns(NumbersAsText, match="if they are decimal commas, say so when opening: decimal=','"):
        hf.open(path, separator=";")


def test_spaces_after_numbers_are_pointed_out(tmp_path: Path) -> None:
    path = tmp_path / "sales.csv"
    path.write_text("sales, size,rate\n5 , 5,1\n6 , 6,1\n")
    with pytest.warns(NumbersAsText) as caught:
        rows = hf.open(path)
    assert [str(each.message) for each in caught] == [
        f"{path}: because of the spaces after them, numbers are read as text in 'sales'. Remove the spaces from the"
        " file."
    ]
    assert [str(column.type) for column in rows.schema] == ["text", "integer", "integer"]


def test_a_word_for_missing_far_down_is_named(tmp_path: Path) -> None:
    path = tmp_path / "delays.csv"
    path.write_text("delay,gate\n" + "3,1\n" * 10_000 + "NA,1\n")
    with pytest.raises(hf.RowSourceError) as refused:
        hf.open(path)
    assert str(refused.value) == (
        f"{path}, row 10,001: the value of 'delay' is 'NA', not of type integer. If values are missing there, say so"
        " when opening: null_values=['NA']."
    )
    assert spell(str(refused.value), {}).endswith("say so: holdfast open DATA --null-values NA.")
    assert hf.open(path, null_values=["NA"]).schema["delay"].nullable


def test_a_file_in_utf_16_is_recognized(tmp_path: Path) -> None:
    path = tmp_path / "sheet.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-16")
    with pytest.raises(hf.RowSourceError, match=r"line 1: .* It begins as UTF-16 does: say encoding='utf-16'\."):
        hf.open(path)
    assert len(hf.open(path, encoding="utf-16")) == 1


# -- Dates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["2/1/2024", "2-1-2024", "02.01.2024", "2/1/24", "24-01-02"])
def test_dates_that_could_be_others_are_no_dates(tmp_path: Path, text: str) -> None:
    path = tmp_path / "days.csv"
    path.write_text(f"day,x\n{text},1\n,2\n")
    with pytest.warns(UnclearDates) as caught:
        rows = hf.open(path)
    assert str(rows.schema["day"].type) == "text"
    (warning,) = caught
    enough = "" if "2024" not in text else "; if the day comes first, this is enough: types={'day': 'date'}"
    assert str(warning.message) == (
        f"{path}: dates are read as text in 'day', as it is not clear which number is the day, which the month and"
        f" which the year. Write them as 2024-12-31{enough}."
    )
    if enough:
        assert spell(str(warning.message), {}).endswith("this is enough: holdfast open DATA --types day=date.")
    else:  # declaring it would not say the century
        with pytest.raises(hf.RowSourceError, match="years of 'day' have two digits"):
            hf.open(path, types={"day": "date"})


def test_timestamps_that_could_be_others_are_none(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    path.write_text("time,day\n2/1/2024 10:00:00,1/13/2024\n")
    with pytest.warns(UnclearDates, match=r"in 'time', 'day', .* types=\{'time': 'timestamp'\}"):
        rows = hf.open(path)
    assert [str(column.type) for column in rows.schema] == ["text", "text"]


@pytest.mark.parametrize("texts", ["2024-01-02 2024-12-31", "2.1.2024 13.1.2024", "2024/1/2", "13/1/2024"])
def test_dates_that_can_be_no_others_are_dates(tmp_path: Path, texts: str) -> None:
    path = tmp_path / "days.csv"
    path.write_text("day,x\n" + "".join(f"{text},1\n" for text in texts.split()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert str(hf.open(path).schema["day"].type) == "date"


def test_a_declaration_takes_the_day_first_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "days.csv"
    path.write_text("day,x\n2/1/2024,1\n")
    with pytest.warns(UnclearDates, match="in 'day', the day is taken to come first. If the month does, write"):
        rows = hf.open(path, types={"day": "date"})
    assert rows_of(rows, [0])["day"][0] == date(2024, 1, 2)


def test_years_of_two_digits_cannot_be_declared_dates(tmp_path: Path) -> None:
    path = tmp_path / "days.csv"
    path.write_text("day,x\n2/1/24,1\n")
    with pytest.raises(hf.RowSourceError, match=r"years of 'day' have two digits.* types=\{'day': 'text'\}\."):
        hf.open(path, types={"day": "date"})
    with pytest.warns(UnclearDates):
        assert len(hf.open(path)) == 1


@pytest.mark.parametrize("kind", ["pandas", "polars", "file"])
def test_local_times_are_pointed_out(tmp_path: Path, kind: str) -> None:
    times = pd.date_range("2024-01-01", periods=50, freq="h", tz="America/New_York")
    frame = pd.DataFrame({"local": times, "utc": times.tz_convert("UTC"), "bare": times.tz_localize(None)})
    pl.from_pandas(frame).write_parquet(tmp_path / "t.parquet")
    data = {"pandas": frame, "polars": pl.from_pandas(frame), "file": tmp_path / "t.parquet"}[kind]
    with pytest.warns(LocalTimes) as caught:
        hf.open(data)
    (warning,) = caught
    assert warning.filename == __file__
    assert str(warning.message) == (
        "Questions read timestamps in UTC, also those of 'local' (America/New_York). To ask about local hours and days,"
        " take the zone off first: dt.tz_localize(None) in pandas, dt.replace_time_zone(None) in Polars."
    )


# -- What is said when -------------------------------------------------------------------------------------------------


def test_what_is_noted_when_opening_is_said_before_a_refusal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "delays.csv"
    path.write_text("delay\n3.5\nNA\nNA\n")
    with pytest.raises(SystemExit):
        main(["ask", str(path), "delay > 3"])
    noted, *_, refused = capsys.readouterr().err.splitlines()
    assert noted.endswith(f"All together: holdfast open {path} --null-values NA --types delay=number.")
    assert refused.startswith("'delay' is text; > 3 compares numbers.")


@pytest.mark.parametrize("texts", ["a\nb\nNA\n", "NA\nNA\n", "1\n2\n", "1\n2\nNA?\nNA?\n"])
def test_other_texts_are_texts(tmp_path: Path, texts: str) -> None:
    path = tmp_path / "texts.csv"
    path.write_text("x,y\n" + "".join(f"{text},1\n" for text in texts.split()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hf.open(path)


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (lambda session: session.mean(pd.Series([True])), "Write the condition itself, as text"),
        (lambda session: session.mean("x > 3", filter="x > 1"), "Did you mean 'where'?"),
        (lambda session: session.histogram("x", bins=10), "within must say the range of 'x'"),
        (lambda session: session.mean("x > 3", by="x", groups="3"), "groups must be a list, such as ['3']"),
        (lambda session: session.mean("x > 3") > 0.2, "such as answer.low > 0.2"),
        (lambda session: session.quantile("x", 90, within=(0, 1_000)), "For 90% write 0.9."),
        (lambda session: hf.open("sheet.xlsx"), "Read it with pandas or Polars"),
        (lambda session: session.head(), "rows are never shown"),
        (lambda session: session.columns, "Did you mean: 'schema'?"),
    ],
)
def test_what_people_try_first_is_told_the_way(
    session: hf.Session, mistake: Callable[[hf.Session], object], sentence: str
) -> None:
    with pytest.raises((hf.HoldfastError, AttributeError)) as refused:
        mistake(session)
    assert sentence in str(refused.value)


def test_a_loss_is_a_formula_here_as_on_the_command_line() -> None:
    data = {"late": [True, False] * 10_000, "distance": [100.0, 900.0] * 10_000}
    written = hf.Session(data, queries=30, seed=1).minimize("logistic: late ~ distance [0, 1000]", radius=3)
    loss = hf.losses.Logistic(target="late", features={"distance": (0, 1_000)})
    assert written.question == hf.Session(data, queries=30, seed=1).minimize(loss, radius=3).question


# -- a plan for data --------------------------------------------------------------------------------------------------


def test_a_plan_counts_the_rows_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    ROWS.write_csv(path)
    assert hf.plan(path, queries=5) == hf.plan(ROWS, queries=5) == hf.plan(rows=1_000, queries=5)
    assert not path.with_name("rows.csv.ledger").exists()


def test_the_command_line_counts_as_python_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "visits.parquet"
    pl.DataFrame({"who": [i // 4 for i in range(4_000)], "x": range(4_000)}).write_parquet(path)
    for words, options in (([], {}), (["--unit", "who"], {"unit": "who"})):
        with pytest.raises(SystemExit):
            main(["plan", str(path), "--queries", "5", "--json", *words])
        assert json.loads(capsys.readouterr().out)["plan"] == hf.plan(path, queries=5, **options).to_dict()
    with pytest.raises(SystemExit):
        main(["plan", "1000"])
    assert capsys.readouterr().err.startswith("Write --rows 1000: ")
    for million in ("1e6", "1,000,000", "1_000_000"):
        with pytest.raises(SystemExit):
            main(["plan", "--rows", million, "--json"])
        assert json.loads(capsys.readouterr().out)["plan"]["rows"] == 1_000_000
    for no_number in ("1.5", "1e99", "nan", "many"):
        with pytest.raises(SystemExit):
            main(["plan", "--rows", no_number])
        assert f"'{no_number}' is not a valid integer" in capsys.readouterr().err


def test_arguments_are_named_in_help_without_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    assert "\n  DATA  Tables, each a file" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["open", "ask", "sql", "serve", "mcp", "hold-back"])
def test_help_names_all_that_data_may_be(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    words = " ".join(capsys.readouterr().out.split())
    for each in ("Parquet, CSV, Arrow, JSON lines", "a glob", "a deck", "s3://", "Delta or Iceberg", "PostgreSQL URL"):
        assert each in words


def test_a_backup_into_a_folder_that_is_not_there_is_refused_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["backup", str(tmp_path / "t.ledger"), str(tmp_path / "none" / "t.ledger")])
    assert capsys.readouterr().err == f"FILE must be in a folder that is there; {tmp_path / 'none'} is not.\n"


def test_a_plan_counts_units(tmp_path: Path) -> None:
    planned = hf.plan(pl.DataFrame({"who": [i // 4 for i in range(4_000)], "x": range(4_000)}), unit="who", queries=5)
    assert (planned.rows, planned.unit) == (1_000, "who")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: hf.plan(1_000), "Write rows=1000: a bare number would be taken for data."),
        (lambda: hf.plan(ROWS, rows=5), "rows must be left out where data are given: their rows are counted."),
        (lambda: hf.plan(rows=5, queries=2, unit="who"), "unit must be left out where no data are given"),
        (lambda: hf.open(""), "data must say which file or folder; got an empty text."),
    ],
)
def test_plans_that_contradict_themselves(wrong: Callable[[], object], sentence: str) -> None:
    with pytest.raises(hf.InvalidArgument, match=sentence):
        wrong()


# -- Windows ----------------------------------------------------------------------------------------------------------

# Imports as on Windows, as far as they can tell: other packages are imported before.
ON_WINDOWS = """
import asyncio, email, multiprocessing, secrets, sqlite3, sys, sysconfig
import httpx, numpy.random, polars, randomgen, rich.console
sys.platform, sys.modules["fcntl"] = "win32", None
import holdfast as hf
for name in ("plan", "connect", "Session", "Board", "open", "deal"):
    try:
        getattr(hf, name)
        print(name, "works")
    except hf.RowSourceError as refused:
        print(name, refused)
"""


@pytest.mark.slow
def test_windows_is_told_what_works_and_what_does_not() -> None:
    done = subprocess.run([sys.executable, "-c", ON_WINDOWS], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[:2] == ["plan works", "connect works"]
    sentence = (
        "holdfast cannot store rows on Windows: run it in the Windows Subsystem for Linux (wsl --install), or ask a"
        " server with holdfast.connect."
    )
    assert lines[2:] == [f"{name} {sentence}" for name in ("Session", "Board", "open", "deal")]


# -- pandas without PyArrow -------------------------------------------------------------------------------------------


def test_pandas_frames_open_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    def needs_arrow(series: object) -> None:
        raise ImportError("pyarrow is required")  # as Polars does for texts of pandas

    frame = pd.DataFrame(
        {
            "text": ["a", None, "b"],
            "object": pd.Series(["x", float("nan"), "y"], dtype=object),
            "number": [1.5, None, 2],
            "whole": pd.Series([1, None, 3], dtype="Int64"),
            "kind": pd.Categorical(["u", "v", "u"]),
            "day": pd.to_datetime(["2013-01-01", None, "2013-01-03"]),
        }
    )
    usual = hf.open(frame)
    monkeypatch.setattr(nw.Series, "to_polars", needs_arrow)
    rows = hf.open(frame)
    assert [(column.name, str(column.type)) for column in rows.schema] == [
        ("text", "text"), ("object", "text"), ("number", "number"),
        ("whole", "integer"), ("kind", "text"), ("day", "timestamp"),
    ]  # fmt: skip
    assert rows.fingerprint == usual.fingerprint


def test_a_method_of_another_name_is_pointed_out(session: hf.Session) -> None:
    for name, meant in {"median": "quantile", "max": "quantile", "value_counts": "histogram"}.items():
        with pytest.raises(AttributeError, match=rf"no attribute '{name}'\. Did you mean: '{meant}'"):
            getattr(session, name)
    with pytest.raises(AttributeError, match=r"'Session' object has no attribute 'meen'\. Did you mean: 'mean'"):
        session.meen  # noqa: B018
    remote = RemoteSession(None, "flights")  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match=r"'RemoteSession' object has .* 'median'\. Did you mean: 'quantile'"):
        remote.median  # noqa: B018


def test_two_ranges_in_one_option_say_where_the_second_goes(session: hf.Session) -> None:
    with pytest.raises(hf.InvalidArgument, match=r"that of x; got .* Say that of x \* 2 as other_within\.$"):
        session.correlation("x", "x * 2", within=((0, 1_000), (0, 2_000)))  # type: ignore[arg-type]


def test_a_ratio_is_part_of_a_difference(session: hf.Session) -> None:
    with pytest.raises(AttributeError, match="Did you mean: 'difference'"):
        _ = session.ratio


def test_a_table_of_one_row_is_refused_as_such(tmp_path: Path) -> None:
    with pytest.raises(hf.InvalidArgument, match=r"^data must have at least 2 rows; data has 1\.$"):
        hf.Session({"x": [1.0]})


def test_a_question_too_noisy_without_a_plan_says_what_does_work() -> None:
    """On 20,000 rows without a plan, the area under a curve has too many outcomes; with a plan it has not."""
    rows = {"x": [number % 100 / 100 for number in range(20_000)], "y": [number % 3 == 0 for number in range(20_000)]}
    asked = {"positive": "y", "within": (0, 1), "cuts": [0.2, 0.4, 0.6, 0.8]}
    with pytest.raises(hf.InvalidArgument) as refused, hf.Session(rows, seed=1) as session:
        session.auc("x", **asked)
    assert "or about one group at a time; or begin a session with a plan" in str(refused.value)
    assert "a plan (--queries 100), with less." in spell(str(refused.value), {})
    with hf.Session(rows, seed=1, queries=20) as planned:
        assert planned.auc("x", **asked).high <= 1


def test_what_a_newcomer_asks_of_a_small_table_is_answered() -> None:
    """Without a plan, draws with four or more outcomes would be mostly noise: there are more passes instead."""
    rows = {"group": [number % 3 for number in range(5_000)], "y": [number % 3 == 0 for number in range(5_000)]}
    with hf.Session(rows, seed=1) as session:
        histogram = session.histogram("group", categories=[0, 1, 2])
        within = session.histogram("group", categories=[0, 1, 2], where="group < 2")
        for answer, truth in ((histogram, (1 / 3, 1 / 3, 1 / 3, 0)), (within, (1 / 2, 1 / 2, 0, 0))):
            assert list(answer) == ["0", "1", "2", "other"]
            for each, share in zip(answer.values(), truth, strict=True):
                assert each.low <= share <= each.high
                assert each.high - each.low < 0.9
        assert histogram.rows_read > session.mean("y").rows_read
        assert session.price("group", "histogram", categories=[0, 2]).answers == 3
        assert session.price("group", "histogram", categories=[0, 2], where="y").answers == 6  # a mean of three groups
        assert session.histogram("group", categories=[0, 1, 2]).cached
        assert session.difference("y", "group = 0", "group = 1").low > 0
        spent = session.ledger.spent
        with pytest.raises(hf.InvalidArgument, match="Ask about fewer categories at once"):
            session.histogram("group", categories=range(2_000))  # no later answer would say anything
        assert session.ledger.spent == spent


@pytest.mark.parametrize("plan", [{}, {"queries": 100}, {"checks": 0.2}])
@pytest.mark.parametrize("how", [{}, {"slices": [0.25, 0.5]}, {"mechanism": "gaussian"}])
def test_groups_that_would_take_the_whole_session_are_refused(plan: dict[str, Any], how: dict[str, Any]) -> None:
    """The most that is allowed leaves something to say; one group more does not, and is refused, free of charge."""
    asked: dict[str, Any] = {"by": "group", "within": (0, 1), **how}
    with hf.Session({"group": [number % 10 for number in range(2_000)], "y": [0.5] * 2_000}, **plan) as session:
        for ask in (session.mean, session.price, session.dry_run):
            with pytest.raises(
                hf.InvalidArgument, match="no later answer would say anything; ask about at most"
            ) as refused:
                ask("y", groups=range(3_000), **asked)
        most = refused.value.fields["most"]
        assert 10 < most < 3_000
        with pytest.raises(hf.InvalidArgument, match=f"{most + 1} groups at once"):
            session.price("y", groups=range(most + 1), **asked)
        price = session.price("y", groups=range(most), **asked)
        assert not session.ledger.begun  # nothing was asked, so nothing was read
        assert price.later is not None
        assert price.later[1] > price.later[0]


@pytest.mark.parametrize("how", [{"categories": range(3_000)}, {"bins": range(3_001)}])
def test_a_histogram_that_would_take_the_whole_session_is_refused(how: dict[str, Any]) -> None:
    """As for groups; by coins, so many are refused as noise."""
    ((name, listed),) = how.items()
    with hf.Session({"group": [number % 10 for number in range(2_000)], "y": [0.5] * 2_000}) as session:
        for ask in (session.histogram, lambda *args, **more: session.price(*args, "histogram", **more)):
            with pytest.raises(hf.InvalidArgument, match=f"3,000 {name} at once would take so much") as refused:
                ask("group", mechanism="gaussian", **how)
        most = refused.value.fields["most"]
        assert 10 < most < 3_000
        fewer = {name: listed[: most + (name == "bins")]}
        price = session.price("group", "histogram", mechanism="gaussian", **fewer)
        assert not session.ledger.begun
        assert price.later is not None
        assert price.later[1] > price.later[0]


def test_a_noisy_histogram_says_how_many_categories_are_answered() -> None:
    with hf.Session({"group": [number % 10 for number in range(3_000)]}, seed=1) as session:
        with pytest.raises(hf.InvalidArgument, match=r"41 outcomes would be mostly noise .* in 16 passes") as refused:
            session.histogram("group", categories=range(40))
        most = refused.value.fields["most"]
        assert len(session.histogram("group", categories=range(most - 1))) == most > 10
        with pytest.raises(hf.InvalidArgument, match="mostly noise"):
            session.price("group", "histogram", categories=range(most))
        with pytest.raises(hf.InvalidArgument, match="mostly noise") as refused:
            session.histogram("group", categories=range(40), where="group > 1")
        most = refused.value.fields["most"]
        assert len(session.histogram("group", categories=range(most - 1), where="group > 1")) == most


def test_groups_that_were_answered_stay_free_however_much_was_asked_since() -> None:
    rows = {"group": [number % 10 for number in range(2_000)], "y": [number % 3 == 0 for number in range(2_000)]}
    with hf.Session(rows, seed=1) as session:
        first = session.mean("y", by="group", groups=range(100))
        session.mean("y", by="group", groups=range(50, 150))
        session.mean("y", rows_per_query=200_000)
        assert session.mean("y", by="group", groups=range(100)).seq == first.seq
        assert session.mean("y", by="group", groups=range(100)).cached


def test_how_many_passes_there_are_is_no_part_of_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was answered in one pass stays free when it would be asked in several: no choice among draws, no charge."""
    rows = {"group": [number % 3 for number in range(100_000)], "y": [number % 3 == 0 for number in range(100_000)]}
    with hf.Session(rows, seed=1) as session:

        def ask() -> list[hf.Answer]:
            return [
                session.histogram("group", categories=[0, 1, 2]),
                session.histogram("group", categories=[0, 1, 2], where="group < 2"),
                session.difference("y", "group = 0", "group = 1"),
            ]

        with monkeypatch.context() as patched:
            patched.setattr(coins, "MOST_RANDOM", 1.0)
            patched.setattr(coins, "MOST_RANDOM_OF_BOTH", 1.0)
            once = ask()
        again = ask()
        assert [one.rows_read for one in once] == [once[0].rows_read] * 3
        assert [one.cached for one in again] == [True] * 3
        assert [one.seq for one in again] == [one.seq for one in once]
