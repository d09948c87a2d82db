"""`holdfast board`: make, submit, standings, verify."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from holdfast.cli import main
from holdfast.cli.output import spell
from holdfast.ledger.opening import forget_all

IDS = [f"q{number}" for number in range(300)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    truth = np.random.default_rng(2).integers(0, 3, 300)
    pl.DataFrame({"id": IDS, "label": truth}).write_csv("labels.csv")
    for right in (150, 120, 260):
        said = np.where(np.arange(300) < right, truth, truth + 1)
        pl.DataFrame({"id": IDS, "prediction": said}).write_csv(f"p{right}.csv")
    forget_all()
    yield tmp_path
    forget_all()


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["board", *words])
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out, told.err


def test_the_whole_story(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "make", "labels.csv", "--step", "0.1")
    assert code == 0
    assert "labels.board.holdfast" in out
    assert "keep labels.csv away" in err
    said: list[Any] = []
    for right in (150, 120, 260):
        words = ("submit", "labels.board.holdfast", f"p{right}.csv", "--by", "team 7", "--name", f"m{right}")
        said.append(run(capsys, *words, "--receipt", "r.json"))
    assert ["no improvement" in out for _, out, _ in said] == [False, True, False]
    assert all("labels were drawn anew" in out for _, out, _ in said)
    assert json.loads(Path("r.json").read_text())["seq"] == 3
    _, out, _ = run(capsys, "submit", "labels.board.holdfast", "p150.csv", "--json")
    assert json.loads(out)["answer"]["cached"]
    _, out, _ = run(capsys, "standings", "labels.board.holdfast")
    lines = out.splitlines()
    assert ["m260" in lines[1], "m150" in lines[2], "m120" in lines[3]] == [True] * 3
    code, out, _ = run(capsys, "verify", "labels.board.holdfast")
    assert code == 0
    assert "consistent" in out
    code, out, _ = run(capsys, "submit", "labels.board.holdfast", "p120.csv", "--dry-run")
    assert "Nothing was scored" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("submit", "nowhere", "p150.csv"), "BOARD must be a folder"),
        (("submit", "labels.csv", "p150.csv"), "Did you mean 'labels.board.holdfast'"),
        (("submit", "labels.board.holdfast", "nothing.csv"), "there is no file nothing.csv"),
        (("submit", "labels.board.holdfast", "labels.csv", "--metric", "acc"), "must be a file|cannot be read"),
        (("submit", "https://example.org/x", "p150.csv"), "HOLDFAST_TOKEN"),
        (("submit", "https://example.org", "p150.csv"), "must end in the board.s name: https://example.org/NAME"),
        (("make", "labels.csv", "--metric", "f1"), "--metric must be one of"),
        (("make", "labels.csv", "--step", "0.2"), "a board with other settings"),
        (("make", "nothing.csv"), "labels must be a file"),
    ],
)
def test_refusals_are_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    run(capsys, "make", "labels.csv", "--step", "0.1")
    code, out, err = run(capsys, *words)
    assert code != 0
    assert not out
    assert re.search(message, err), err
    assert len(err.strip().splitlines()) == 1


def test_commands_of_a_command_are_described(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = run(capsys)
    assert all(name in out + err for name in ("make", "submit", "standings", "verify"))
    _, out, _ = run(capsys, "make", "--help")
    assert "absolute_error" in out


def test_a_board_of_a_server_is_not_verified_from_afar(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "verify", "https://boards.example.org/labels")
    assert code == 2
    assert "verified where they are kept" in err


def test_ids_of_several_rows_are_named_with_the_way_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "make", "labels.csv", "--id", "label", "--target", "id")
    assert code == 2
    assert "3 in 'label' are there twice or more, such as" in err
    assert "name a column that differs in every row with --id, and 'label' with --unit." in err


def test_help_says_all_of_the_first_line_and_names_arguments_plainly(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--help")
    assert "..." not in out.partition("Commands:")[2]
    for name in ("serve", "mcp"):
        with pytest.raises(SystemExit):
            main([name, "--help"])
        assert "\n  DATA  " in capsys.readouterr().out


def test_what_is_no_board_is_refused_in_the_words_of_the_command_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["open", "labels.csv"])
    capsys.readouterr()
    for words in (("submit", "labels.csv.holdfast", "p150.csv"), ("standings", "labels.csv.holdfast")):
        code, _, err = run(capsys, *words)
        assert code != 0
        assert err.rstrip().endswith(
            "is not a board: it is a session that answers questions. Ask it with holdfast ask."
        )
        assert "queries=" not in err
    refusal = "This session is no board, so nothing can be submitted to it. Make one with holdfast.Board(labels)."
    assert spell(refusal, {}).endswith("Make one with holdfast board make LABELS.")
