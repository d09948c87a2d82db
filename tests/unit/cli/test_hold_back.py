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
    for words in (["hold-back", "t.parquet"], ["ask", "t.parquet", "even", "--queries", "10"]):
        code, refused = run(capsys, *words)
        assert code != 0
        assert "were split into t.explore.parquet and t.held.holdfast" in refused["error"]


def test_help_names_the_command_as_it_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["hold-back", "--help"])
    shown = capsys.readouterr().out
    assert "Usage: holdfast hold-back" in shown
    assert "--explore" in shown
