"""`holdfast deal` and `holdfast deck`, and CSV files as others write them."""

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from holdfast.cli import main


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(words)
    out, err = capsys.readouterr()
    code = ended.value.code
    return code if isinstance(code, int) else 0, out, err


def test_deal_ask_and_look(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pl.DataFrame({"x": np.arange(50_000)}).write_parquet("events.parquet")
    code, out, _ = run(capsys, "deal", "events.parquet", "events.deck", "--cards", "1e5", "--complete", "x")
    assert (code, out) == (0, "events.deck: 100,000 cards from 50,000 rows\n")
    assert run(capsys, "deck", "events.deck")[1] == "events: 100,000 of 100,000 cards left, from 50,000 rows\n"
    assert run(capsys, "ask", "events.deck", "x > 500", "--queries", "100")[0] == 0
    found = json.loads(run(capsys, "deck", "events.deck", "--json")[1])
    assert (found["left"], found["answers_left"]) == (99_000, 99)
    code, _, err = run(capsys, "deal", "events.parquet", "events.deck", "--cards", "10")
    assert (code, "deal more cards into it with --next" in err) == (7, True)
    more = run(capsys, "deal", "events.parquet", "events.deck", "--cards", "1e4", "--next", "--json")[1]
    assert json.loads(more)["decks"][0]["cards"] == 110_000
    assert run(capsys, "open", "events.deck")[0] == 0
    code, _, err = run(capsys, "deck", "events.parquet")
    assert (code, "deck must be a deck" in err) == (2, True)


def test_a_deck_with_checks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pl.DataFrame({"x": np.arange(50_000)}).write_parquet("events.parquet")
    _, _, err = run(capsys, "deal", "events.parquet", "events.deck", "--cards", "1e5", "--checks", "0.2")
    assert "10,000 of them are on no card" in err
    _, out, _ = run(capsys, "ask", "events.deck", "x >= 25000", "--kind", "check", "--guess", "0.5", "--margin", "0.1")
    assert "the guess holds" in out
    assert "10,000 of them are on no card" in run(capsys, "deck", "events.deck")[1]
    assert json.loads(run(capsys, "deck", "events.deck", "--json")[1])["left"] == 100_000


def test_what_to_try_next_keeps_what_was_said_about_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my sums.csv").write_bytes("Straße;Betrag\na;1,5\nb;2,5\n".encode("latin-1"))
    words = ["open", "my sums.csv"]
    for said in (["--encoding", "latin-1"], ["--separator", ";"], ["--decimal", ","]):
        code, _, err = run(capsys, *words)
        tried, *_ = re.findall(r"(holdfast open .*?)(?:; if|\.$)", err, re.MULTILINE)
        found = shlex.split(tried)[1:]
        assert sorted(found) == sorted([*words, *said]), (code, err)
        words = found
    code, _, err = run(capsys, *words)
    assert (code, err) == (0, "")
    _, _, err = run(capsys, "ask", "my sums.csv", "Straße")
    assert err.count("If it should be numbers") == 1


def test_a_separator_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1;n/a\n2;3\n")
    code, _, err = run(capsys, "open", str(path))
    assert (code, f"All together: holdfast open {path} --separator ';' --null-values n/a." in err) == (7, True)
    assert run(capsys, "open", str(path), "--separator", ";", "--null-values", "n/a")[0] == 0
    code, out, _ = run(capsys, "open", str(path), "--json")
    assert [column["type"] for column in json.loads(out)["columns"]] == ["integer", "integer"]


def test_a_deck_is_dealt_from_a_file_written_as_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, deck = tmp_path / "t.csv", str(tmp_path / "t.deck")
    path.write_text("zip;share\n" + "".join(f"0{n};{n % 7},5\n" if n % 50 else f"0{n};NA\n" for n in range(300)))
    words = ["deal", str(path), deck, "--cards", "1000"]
    code, _, err = run(capsys, *words)
    found = shlex.split(err.strip().rpartition("All together: ")[2].removesuffix("."))
    assert (code, found) == (7, ["--separator", ";", "--decimal", ",", "--null-values", "NA"])
    assert run(capsys, *words, *found, "--types", "zip=text")[0] == 0
    code, out, _ = run(capsys, "open", deck, "--json")
    assert [column["type"] for column in json.loads(out)["columns"]] == ["text", "number"]


@pytest.mark.parametrize("words", [["plan"], ["deal", "--cards", "100"], ["board", "make"]])
def test_warnings_are_sentences_in_the_words_of_the_command_line(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("id,label\n" + "1,2\n" * 300 + "3\n")
    code, _, err = run(capsys, *words, "t.csv", *(["t.deck"] if "deal" in words else []))
    if words[0] == "board":  # which reads tables in its own way, and refuses
        assert (code, "label" in err) == (2, True)
    else:
        assert (code, err.startswith("t.csv, line 302: 1 value, where the header has 2 columns.")) == (0, True)
    assert "Warning" not in err
    assert "callback" not in err


def test_a_file_that_is_not_read_is_to_be_written_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.xlsx"
    path.write_bytes(b"PK")
    code, _, err = run(capsys, "plan", str(path))
    assert (code, err.rstrip().endswith("or a holdfast folder. Write it as Parquet or CSV.")) == (7, True)


def test_a_password_is_not_for_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "deal", "postgresql://me:hunter2@host/db?table=t", "t.deck", "--cards", "10")
    assert (code, "PGPASSWORD" in err, "hunter2" in out + err) == (2, True, False)


def test_the_first_answer_says_that_a_ledger_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.parquet"
    pl.DataFrame({"x": np.arange(50_000)}).write_parquet(path)
    assert "A new ledger" not in run(capsys, "ask", str(path), "x > 500", "--price")[2]
    _, out, err = run(capsys, "ask", str(path), "x > 500")
    assert f"A new ledger begins: {path}.ledger. It is the only one for these rows" in err
    assert "A new ledger" not in out
    assert "A new ledger" not in run(capsys, "ask", str(path), "x > 600")[2]
    code, _, err = run(capsys, "deal", str(path), str(tmp_path / "t.deck"), "--cards", "1e5")
    assert (code, f"has answered questions already (ledger {path}.ledger)" in err) == (2, True)


def test_a_separator_may_be_a_tab(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("a\tb\n1\t2\n3\t4\n")
    code, _, err = run(capsys, "open", "t.csv")
    assert code == 7
    assert "If its values are separated by tabs, say so: holdfast open t.csv --separator tab;" in err
    assert "separator=" not in err
    for written in ("tab", "\\t", "\t"):
        found = json.loads(run(capsys, "open", "t.csv", "--separator", written, "--json")[1])
        assert [each["name"] for each in found["columns"]] == ["a", "b"]
        shutil.rmtree("t.csv.holdfast")
    code, _, err = run(capsys, "open", "t.csv", "--separator", "tabs")
    assert (code, "--separator must be one character" in err) == (2, True)


def test_what_is_not_there_is_said_to_be_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (
        ("open", "nofolder"),
        ("open", "nofolder", "--version", "3"),
        ("open", "nofolder", "--separator", ";"),
        ("deal", "nofolder", "n.deck", "--cards", "100"),
        ("ask", "nofolder", "x > 1"),
    ):
        code, _, err = run(capsys, *words)
        assert (code, err) == (7, f"No file or folder nofolder in {tmp_path}.\n")
    Path("notes.xyz").write_text("x")
    assert "notes.xyz has no known ending" in run(capsys, "deal", "notes.xyz", "n.deck", "--cards", "100")[2]
    Path("t.csv").write_text("a,b\n1,2\n3,4\n")
    assert run(capsys, "open", "t.csv")[0] == 0
    assert "deal the table that it was made of" in run(capsys, "deal", "t.csv.holdfast", "n.deck", "--cards", "9")[2]
