"""`holdfast check`: kept, broken, open, and what the exit code says."""

import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from holdfast.cli import main
from holdfast.cli.ask import BROKEN_CODE, OPEN_CODE
from holdfast.ledger.opening import forget_all


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    pl.DataFrame({"x": [number % 10 for number in range(20_000)]}).write_parquet("t.parquet")
    forget_all()
    yield tmp_path
    forget_all()


def run(capsys: pytest.CaptureFixture[str], listed: object, *words: str) -> tuple[int, str, str]:
    Path("e.json").write_text(json.dumps(listed))
    with pytest.raises(SystemExit) as ended:
        main(["check", "t.parquet", "e.json", *words])
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out, told.err


@pytest.mark.parametrize(
    ("expect", "words", "code", "outcome"),
    [
        ({"at_most": 0.5}, (), 0, "kept"),
        ({"at_least": 0.1, "at_most": 0.5}, ("--strict",), 0, "kept"),
        ({"at_most": 0.05}, (), BROKEN_CODE, "broken"),
        ({"at_least": 0.3}, (), 0, "open"),  # about 0.3: nobody can tell
        ({"at_least": 0.3}, ("--strict",), OPEN_CODE, "open"),
    ],
)
def test_the_exit_code_says_whether_expectations_are_kept(folder, capsys, expect, words, code, outcome):
    ended, out, _ = run(capsys, [{"query": "x < 3", "expect": expect}], *words)
    assert ended == code
    assert out.splitlines()[1].startswith(outcome)
    assert f"1 expectation: 1 {outcome}." in out


@pytest.mark.parametrize("command", ["ask", "check", "sql", "batch"])
def test_every_command_that_asks_takes_the_unit(folder: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    frame = pl.DataFrame({"x": [number % 10 for number in range(20_000)], "who": [n // 2 for n in range(20_000)]})
    frame.write_parquet("visits.parquet")
    Path("e.json").write_text(json.dumps([{"query": "x < 3", "expect": {"at_most": 0.9}}]))
    Path("q.json").write_text(json.dumps(["x < 3"]))
    about = {"ask": "x < 3", "check": "e.json", "sql": "SELECT AVG(x < 3) FROM visits", "batch": "q.json"}[command]
    with pytest.raises(SystemExit) as ended:
        main([command, "visits.parquet", about, "--unit", "who", "--json"])
    assert not ended.value.code
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["open", "visits.parquet", "--json"])
    assert json.loads(capsys.readouterr().out)["unit"] == "who"  # the folder remembers it


def test_as_json_and_of_every_group_and_free_the_second_time(folder, capsys):
    listed = [{"query": "x < 3", "by": "x > 4", "groups": [True, False], "expect": {"at_most": 0.9}}]
    code, out, _ = run(capsys, listed, "--json")
    first = json.loads(out)
    assert (code, [one["outcome"] for one in first["expectations"]]) == (0, ["kept", "kept"])
    code, out, _ = run(capsys, listed, "--json")
    assert json.loads(out)["expectations"] == first["expectations"]


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ([{"query": "x < 3"}], "Expectation 1 must be a question with `expect`"),
        ([{"query": "x < 3", "expect": {"below": 1}}], "'at_least', 'at_most'"),
        ([{"query": "x < 3", "expect": {"at_most": "1"}}], "at_most must be a number"),
        ([{"query": "x < 3", "expect": {"at_least": 2, "at_most": 1}}], "no more than at_most"),
        ([{"query": "y < 3", "expect": {"at_most": 1}}], "Expectation 1: No column 'y'"),
        ([{"query": "x < 3", "expect": {"at_most": 30}}], "at_most must be between 0 and 1, the range of the answer"),
        ([{"query": "x < 3", "expect": {"at_most": 30}}], "got 30. For 30% write 0.3."),
        ([{"query": "x", "within": [0, 9], "expect": {"at_most": 10}}], "at_most must be between 0 and 9"),
        ([{"query": "x", "within": [1, 9], "expect": {"at_least": 0}}], "at_least must be between 1 and 9"),
        ([], "has no expectations"),
        ({"query": "x"}, "must be a list"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_asked(folder, capsys, listed, words):
    code, out, err = run(capsys, listed)
    assert 0 < code < BROKEN_CODE
    assert words in err
    assert out == ""
