"""`holdfast hold-back`, and checks on the command line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from holdfast.cli import main
from holdfast.ledger.opening import forget_all

ROWS = 4_000


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    """Run with --json, as a process of its own would; return the exit code and the document."""
    forget_all()
    with pytest.raises(SystemExit) as ended:
        main([*words, "--json"])
    return int(ended.value.code or 0), json.loads(capsys.readouterr().out)


def test_a_file_is_split_and_its_parts_are_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pl.DataFrame({"n": np.arange(ROWS), "even": np.arange(ROWS) % 2 == 0}).write_parquet("t.parquet")
    code, split = run(capsys, "hold-back", "t.parquet", "--explore", "0.25", "--id", "n")
    assert code == 0
    assert split["rows"] == {"explore": 1_000, "held": 3_000}
    assert (split["explore"], split["held"]) == ("t.explore.parquet", "t.held.holdfast")
    assert pl.read_parquet(split["explore"]).columns == ["n", "even"]
    code, checked = run(capsys, "ask", split["held"], "even", "--kind", "check", "--margin", "0.1")
    assert (code, checked["answer"]["outcome"]) == (0, "holds")
    guess = ("--guess", "0.9", "--margin", "0.05")
    code, wrong = run(capsys, "ask", split["held"], "even", "--kind", "check", *guess)
    assert (code, wrong["answer"]["outcome"]) == (0, "too high")
    code, budget = run(capsys, "budget", split["held"])
    assert [more for more, _ in budget["budget"]["outlook"]] == [0, 1, 10, 100]
    code, again = run(capsys, "hold-back", "t.parquet", "--explore", "0.25", "--id", "n")
    assert (code, {**again, "plan": None}) == (0, {**split, "plan": None})
    code, history = run(capsys, "history", again["held"])
    assert (code, len(history["answers"])) == (0, 2)
    for words in (["hold-back", "t.parquet"], ["ask", "t.parquet", "even", "--queries", "10"]):
        code, refused = run(capsys, *words)
        assert code != 0
        assert "were split into t.explore.parquet and t.held.holdfast" in refused["error"]


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    forget_all()
    with pytest.raises(SystemExit):
        main(list(words))
    said = capsys.readouterr()
    return said.out + said.err


def test_what_is_shown_says_each_thing_once_and_what_to_do_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pl.DataFrame({"n": np.arange(ROWS), "even": np.arange(ROWS) % 2 == 0}).write_parquet("t.parquet")
    split = shown(capsys, "hold-back", "t.parquet", "--id", "n")
    assert 'Check what you find: holdfast ask t.held.holdfast "a condition" --kind check' in split
    assert "t.parquet and t.parquet.holdfast contain both parts: keep them away" in split
    again = shown(capsys, "hold-back", "t.parquet", "--id", "n")
    assert "These rows were split before: the two parts are the same" in again
    assert again.count("\n") == split.count("\n") + 1
    held = shown(capsys, "ask", "t.held.holdfast", "even", "--kind", "check", "--guess", "0.9", "--margin", "0.05")
    assert "the guess is too high  [0.0" in held
    assert held.count("share of even") == held.count("2,000 rows read") == held.count("no. 1") == 1
    assert "Ask with --kind check" in shown(capsys, "ask", "t.held.holdfast", "even")
    lost = shown(capsys, "check", "t.held.holdfast", "even")
    assert 'To check one guess on rows that are kept aside: holdfast ask t.held.holdfast "even" --kind check' in lost
    pl.DataFrame({"even": np.arange(ROWS) % 2 == 1}).write_parquet("u.parquet")
    here = ("ask", "u.parquet", "even", "--kind", "check", "--guess", "0.9")
    assert "Begin a session with --checks 0.2" in shown(capsys, *here)
    assert "keep rows aside with holdfast hold-back DATA" in shown(capsys, *here)
    with_value = shown(capsys, *here, "--checks", "0.2")
    assert with_value.index("the guess is too high") < with_value.index("no. 1 in") < with_value.index("no. 2 in")


def test_help_names_the_command_as_it_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["hold-back", "--help"])
    told = capsys.readouterr().out
    assert "Usage: holdfast hold-back" in told
    assert "--explore" in told


def test_an_index_without_a_name_is_pointed_out_and_can_be_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, values in (("a.csv", 7), ("b.csv", 8)):
        Path(name).write_text(",x\n" + "".join(f"{i},{i % values}\n" for i in range(200)))
    warned = shown(capsys, "hold-back", "a.csv")
    assert "Column '' differs in every row." in warned
    assert "next time, --id '' leaves it out." in warned
    assert "differs in every row" not in shown(capsys, "hold-back", "b.csv", "--id", "")
    assert "No column ''" in shown(capsys, "ask", "b.held.holdfast", '"" > 5', "--kind", "check", "--guess", "0.5")
