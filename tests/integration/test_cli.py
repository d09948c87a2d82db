"""Every command as its user runs it: a process with arguments, output, an exit code and no traceback."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from holdfast.lab import populations

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
ASKED = "dep_delay > 15"


def run(folder: Path, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [HOLDFAST, *map(str, words)],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in done.stderr
    return done


def succeed(folder: Path, *words: object) -> str:
    done = run(folder, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def document(folder: Path, *words: object) -> dict[str, object]:
    read = json.loads(succeed(folder, *words, "--json"))
    assert read["ok"] is True
    return read


def refuse(folder: Path, *words: object) -> tuple[int, dict[str, object]]:
    """Run with --json; standard output is one document, standard error one sentence."""
    done = run(folder, *words, "--json")
    read = json.loads(done.stdout)
    assert set(read) == {"ok", "error", "kind", "status", "details"}
    assert read["ok"] is False
    assert done.stderr.strip() == read["error"]
    return done.returncode, read


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a ledger that has one answer. Tests that spend make their own."""
    folder = tmp_path_factory.mktemp("asked")
    populations.write(folder / "flights.parquet", 50_000, np.random.default_rng(1), signals=2)
    succeed(folder, "ask", "flights.parquet", ASKED, "--queries", 300, "--end", "--analyst", "ada")
    return folder


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    populations.write(tmp_path / "flights.parquet", 50_000, np.random.default_rng(2), signals=2)
    return tmp_path


def test_the_first_question_just_works(fresh):
    done = run(fresh, "ask", "flights.parquet", ASKED)
    assert done.returncode == 0
    assert "share of dep_delay > 15" in done.stdout
    assert "━" in done.stdout  # the interval as a bar
    assert "no limit on questions: ±" in done.stderr
    assert "after 1,000 more" in done.stderr


def test_the_same_question_again_is_free(asked):
    before = document(asked, "budget", "flights.parquet")["budget"]
    again = document(asked, "ask", "flights.parquet", "dep_delay>15")
    assert again["answer"]["cached"] is True
    assert again["budget"] == before
    assert again["notes"] == []


@pytest.mark.parametrize(
    ("words", "shape"),
    [
        (["distance", "--within", 0, 5000], {"value", "low", "high"}),
        (["distance", "--within", 0, 5000, "--where", "carrier = 'UA'"], {"value", "low", "high"}),
        (["carrier", "--kind", "histogram", "--categories", "UA,AA"], {"categories"}),
        (["hour", "--kind", "histogram", "--categories", "7,8"], {"categories"}),
        (["dep_delay", "--kind", "histogram", "--bins", "0,15,60"], {"categories"}),
        (["dep_delay", "--kind", "quantile", "--q", 0.9, "--within", -60, 600], {"value", "low", "high"}),
        (["logistic: outcome ~ hour [0, 24]", "--kind", "minimize", "--radius", 1], {"point", "names", "loss"}),
        ([ASKED, "--rows-per-query", 500], {"value", "low", "high"}),
        ([ASKED, "--margin", 0.3], {"value", "low", "high"}),
    ],
    ids=["mean", "group", "texts", "numbers", "bins", "quantile", "minimize", "rows", "margin"],
)
def test_every_kind_of_question(asked, words, shape):
    read = document(asked, "ask", "flights.parquet", *words)
    assert shape <= set(read["answer"])
    assert {"budget", "ledger", "notes"} <= set(read)


def test_a_histogram_is_shown_as_a_table(asked):
    shown = succeed(asked, "ask", "flights.parquet", "carrier", "--kind", "histogram", "--categories", "UA,AA")
    assert [line.split()[0] for line in shown.splitlines()[1:5]] == ["category", "UA", "AA", "other"]


def test_flips_in_a_session_planned_for_them(fresh):
    words = ("ask", "flights.parquet", ASKED, "--kind", "flips", "--count", 20, "--flips", 100)
    read = document(fresh, *words)
    assert len(read["answer"]["bits"]) == 20
    assert set(read["answer"]["bits"]) <= set("01")
    shown = succeed(fresh, *words).splitlines()
    assert len(shown[1]) == 20  # all of them, not shortened


def test_price_and_dry_run_spend_nothing(asked):
    before = document(asked, "budget", "flights.parquet")["budget"]
    price = document(asked, "ask", "flights.parquet", "dep_delay > 99", "--price")
    dry = document(asked, "ask", "flights.parquet", "dep_delay > 99", "--dry-run")
    assert price["price"]["answers"] == 1
    assert dry["answer"]["made_up"] is True
    assert dry["budget"] == before


@pytest.mark.parametrize(
    "words", [["dep_dely > 1"], [ASKED, "--price"], [ASKED, "--dry-run"], [ASKED, "--rows-per-query", 10**7]]
)
def test_a_slip_or_a_look_does_not_begin_the_ledger(fresh, words):
    run(fresh, "ask", "flights.parquet", *words)
    assert not list(fresh.glob("*.ledger*"))


def test_open_shows_the_schema_and_begins_no_ledger(fresh):
    read = document(fresh, "open", "flights.parquet")
    assert read["rows"] == 50_000
    declared = {"bounds": None, "categories": None, "label": None, "published": False}
    assert read["columns"][0] == {"name": "carrier", "type": "text", "nullable": True, **declared}
    assert read["ledger_begun"] is False
    assert not Path(read["ledger"]).exists()
    assert read["fingerprint"] in succeed(fresh, "open", "flights.parquet")


def test_plan_is_a_sentence_and_a_table(tmp_path):
    shown = succeed(tmp_path, "plan", "--rows", 1_000_000, "--queries", 10_000)
    assert "1,000,000 rows can answer 10,000 questions" in shown
    assert "this plan" in shown
    read = document(tmp_path, "plan", "--rows", 1_000_000, "--margin", 0.05)
    assert read["plan"]["queries"] > 1_000
    assert {each["guarantee"] for each in read["alternatives"]} >= {
        "exchange",
        "posterior",
        "information",
        "paper",
        "split",
    }


def test_history_is_newest_last_and_limited(fresh):
    for minutes in (15, 30, 45):
        succeed(fresh, "ask", "flights.parquet", f"dep_delay > {minutes}", "--queries", 300, "--analyst", "ada")
    read = document(fresh, "history", "flights.parquet", "--limit", 2)
    assert [each["seq"] for each in read["answers"]] == [2, 3]
    assert {each["analyst"] for each in read["answers"]} == {"ada"}
    assert "the newest 2 of 3 entries" in succeed(fresh, "history", "flights.parquet", "--limit", 2)


def test_open_declares_types_and_complete_columns_once_for_all_commands(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n3,\n" * 10_000 + "x,2\n")
    code, refused = refuse(tmp_path, "open", "t.csv")
    assert code == 7
    assert refused["error"].startswith("t.csv, row 20,001: the value of 'a' is not of type integer")
    assert refused["error"].endswith("holdfast open t.csv --types a=text.")
    declared = document(tmp_path, "open", "t.csv", "--types", "a=text", "--complete", "a")
    assert [(each["type"], each["nullable"]) for each in declared["columns"]] == [("text", False), ("integer", True)]
    assert document(tmp_path, "open", "t.csv") == declared
    code, refused = refuse(tmp_path, "open", "t.csv", "--complete", "a,b")
    assert (code, refused["details"]["name"]) == (2, "complete")
    assert refused["error"].startswith("--complete must name columns without missing values; 'b' has some")
    code, refused = refuse(tmp_path, "open", "t.csv", "--types", "a")
    assert refused["error"] == "--types must be like A=number,B=text; got 'a'."


def test_open_refuses_a_file_that_is_read_differently_than_its_ledger_knows_it(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n" + "1,NA\n3,4\n" * 1_000)
    succeed(tmp_path, "ask", "t.csv", "a > 2")
    assert not any("refused" in note for note in document(tmp_path, "open", "t.csv")["notes"])
    code, refused = refuse(tmp_path, "open", "t.csv", "--null-values", "NA")
    assert code == 7
    assert f"the ledger {tmp_path / 't.csv.ledger'} was begun with" in refused["error"]
    assert "Leave out the options that say how it is written" in refused["error"]
    assert document(tmp_path, "ask", "t.csv", "a > 2")["answer"]["cached"]


def test_open_says_when_the_ledger_refuses_what_is_in_its_place(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n" + "1,NA\n3,4\n" * 1_000)
    succeed(tmp_path, "ask", "t.csv", "a > 2")
    shutil.rmtree(tmp_path / "t.csv.holdfast")
    differently = document(tmp_path, "open", "t.csv", "--null-values", "NA")
    assert "t.csv.ledger belongs to other data" in differently["notes"][0]
    assert f"remove {tmp_path / 't.csv.holdfast'} and open the file with the options" in differently["notes"][0]
    assert refuse(tmp_path, "ask", "t.csv", "a > 2")[0] == 7
    shutil.rmtree(tmp_path / "t.csv.holdfast")
    assert document(tmp_path, "ask", "t.csv", "a > 2")["answer"]["cached"]


def test_a_refused_unit_leaves_every_command_working(fresh):
    succeed(fresh, "ask", "flights.parquet", ASKED)
    for words in (["ask", "flights.parquet", ASKED], ["open", "flights.parquet"]):
        code, refused = refuse(fresh, *words, "--unit", "carrier")
        assert (code, refused["kind"]) == (5, "plan_conflict")
        assert "Leave --unit out to go on." in refused["error"]
    assert document(fresh, "ask", "flights.parquet", ASKED)["answer"]["cached"]
    assert len(document(fresh, "history", "flights.parquet")["answers"]) == 1
    assert document(fresh, "verify", "flights.parquet")["complete"]


def test_verify_finds_damaged_data(fresh):
    succeed(fresh, "ask", "flights.parquet", ASKED, "--queries", 300)
    file = next((fresh / "flights.parquet.holdfast").glob("*.values.npy"))
    content = bytearray(file.read_bytes())
    content[200] ^= 1
    file.write_bytes(content)
    code, refused = refuse(fresh, "verify", "flights.parquet.holdfast")
    assert (code, refused["kind"]) == (7, "row_source")
    assert f"is damaged: {file.name}" in refused["error"]


def test_verify_ledger_data_and_receipt(asked, tmp_path):
    read = document(asked, "verify", "flights.parquet")
    assert len(read["checks"]) == 4
    assert read["complete"]
    head = read["head"]["hash"]
    document(asked, "verify", "flights.parquet.ledger", "--head", head)
    succeed(asked, "receipt", "flights.parquet", 1, "-o", tmp_path / "r.json")
    (alone := tmp_path / "elsewhere").mkdir()
    checked = document(alone, "verify", "--receipt", tmp_path / "r.json", "--head", head)
    assert checked["entry"]["question"]["text"] == "share of dep_delay > 15"
    forged = json.loads((tmp_path / "r.json").read_text())
    forged["body"] = forged["body"].replace('"value":0.', '"value":0.9')
    (tmp_path / "r.json").write_text(json.dumps(forged))
    assert refuse(alone, "verify", "--receipt", tmp_path / "r.json", "--head", head)[0] == 8


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (["ask", "nowhere.parquet", "x > 1"], 7, "row_source"),
        (["ask", "flights.parquet", "dep_dely > 1"], 3, "unknown_name"),
        (["ask", "flights.parquet", "AVG(dep_delay) > 1"], 2, "invalid_query"),
        (["ask", "flights.parquet", "distance"], 2, "invalid_argument"),
        (["ask", "flights.parquet", ASKED, "--q", "0.5"], 2, "invalid_argument"),
        (["ask", "flights.parquet", "dep_delay", "--kind", "quantile"], 2, "invalid_argument"),
        (["ask", "flights.parquet", "dep_delay", "--kind", "histogram", "--bins", "a"], 2, "invalid_argument"),
        (["ask", "flights.parquet", ASKED, "--queries", 7], 5, "plan_conflict"),
        (["ask", "flights.parquet", ASKED, "--kind", "flips"], 17, "not_covered"),
        (["ask", "flights.parquet", "dep_delay > 2", "--rows-per-query", 10**7], 6, "budget_exhausted"),
        (["ask", "flights.parquet", "dep_delay > 2", "--margin", 0.001], 4, "plan_infeasible"),
        (["ask", "flights.parquet", ASKED, "--kind", "mode"], 2, "invalid_argument"),
        (["ask", "flights.parquet", ASKED, "--accuracy", 0.1], 2, "usage"),
        (["ask", "flights.parquet"], 2, "usage"),
        (["nonsense"], 2, "usage"),
        (["plan", "--rows", 0], 2, "invalid_argument"),
        (["plan", "--rows", 100, "--margin", 0.0001], 4, "plan_infeasible"),
        (["receipt", "flights.parquet", 99], 3, "unknown_name"),
        (["verify"], 2, "invalid_argument"),
        (["verify", "gone.ledger"], 3, "unknown_name"),
        (["verify", "flights.parquet", "--ledger", "gone.ledger"], 2, "invalid_argument"),
        (["verify", "flights.parquet", "--head", "0" * 64], 8, "ledger_damaged"),
        (["verify", "--receipt", "flights.parquet", "--head", "0" * 64], 2, "invalid_argument"),
    ],
    ids=lambda value: " ".join(map(str, value))[:60] if isinstance(value, list) else str(value),
)
def test_failures_have_a_kind_and_an_exit_code(asked, words, code, kind):
    got, read = refuse(asked, *words)
    assert (got, read["kind"]) == (code, kind)


def test_before_the_first_answer_looking_works_and_begins_no_ledger(fresh):
    read = document(fresh, "budget", "flights.parquet")
    assert (read["ledger_begun"], read["budget"]["answers_given"]) == (False, 0)
    assert document(fresh, "history", "flights.parquet")["answers"] == []
    assert document(fresh, "verify", "flights.parquet")["head"] is None
    for words in (["budget", "flights.parquet"], ["history", "flights.parquet"], ["verify", "flights.parquet"]):
        assert "Nothing has been asked of flights yet" in succeed(fresh, *words)
    code, refused = refuse(fresh, "receipt", "flights.parquet", 1)
    assert (code, refused["kind"]) == (3, "unknown_name")
    assert "Nothing has been asked" in refused["error"]
    assert not list(fresh.glob("*.ledger*"))


def test_a_ledger_that_is_gone_does_not_verify_against_its_head(fresh):
    succeed(fresh, "ask", "flights.parquet", ASKED, "--queries", 300)
    head = document(fresh, "verify", "flights.parquet")["head"]["hash"]
    for path in fresh.glob("*.ledger*"):
        path.unlink()
    for words in (["--head", head], []):
        code, refused = refuse(fresh, "verify", "flights.parquet", *words)
        assert (code, refused["kind"]) == (8, "ledger_damaged")
        assert "it is gone" in refused["error"]
    (fresh / "flights.parquet.witness").unlink()  # nobody remembers it but whoever has its head
    code, refused = refuse(fresh, "verify", "flights.parquet", "--head", head)
    assert (code, refused["kind"]) == (3, "unknown_name")


def test_intervals_are_printed_rounded_outwards(asked):
    read = document(asked, "history", "flights.parquet", "--limit", 1000)["answers"]
    shown = succeed(asked, "history", "flights.parquet", "--limit", 1000).splitlines()[1:]
    assert len(shown) == len(read)
    for line, row in zip(shown, read, strict=True):
        low, high = (float(end) for end in re.findall(r"\[([-\d.]+), ([-\d.]+)\]", line)[-1])
        assert low <= row["low"] <= row["high"] <= high


def test_a_terminal_without_these_characters_still_gets_the_answer(asked):
    ascii_only = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}
    done = run(asked, "ask", "flights.parquet", ASKED, **ascii_only)
    assert done.returncode == 0
    assert "==" in done.stdout
    assert "+/-" in done.stderr
    assert done.stdout.isascii()


def test_help_teaches_with_examples(tmp_path):
    shown = succeed(tmp_path, "--help")
    for name in ("demo", "open", "plan", "ask", "budget", "history", "receipt", "verify"):
        assert name in shown
        own = succeed(tmp_path, name, "--help")
        assert f"holdfast {name}" in own.split("Options")[0].replace("Usage: holdfast", "", 1)


def test_help_of_all_commands_imports_no_kind_of_question(tmp_path):
    script = (
        "import sys\nfrom holdfast.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(*[name for name in ('numpy', 'polars', 'holdfast.questions') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "ask" in done.stdout
    assert done.stderr.split() == []


def test_version(tmp_path):
    assert succeed(tmp_path, "--version").startswith("holdfast ")


def test_a_reader_that_goes_away_is_no_error(asked):
    command = f"'{HOLDFAST}' history flights.parquet --limit 1000 | head -n 1"
    done = subprocess.run(["sh", "-c", command], cwd=asked, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith("no.")


def test_ctrl_c_leaves_a_ledger_that_verifies(tmp_path):
    words = ("demo", "--rows", "20000", "--questions", "10000", "--output", str(tmp_path))
    ledger = tmp_path / "flights.parquet.ledger"
    with subprocess.Popen([HOLDFAST, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        _wait_for_answers(process, ledger)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert "Traceback" not in told
    assert "Interrupted" in told
    assert document(tmp_path, "verify", "flights.parquet")["head"]["seq"] >= 1


def test_a_killed_process_leaves_a_ledger_that_verifies(tmp_path):
    words = ("demo", "--rows", "20000", "--questions", "10000", "--output", str(tmp_path))
    with subprocess.Popen([HOLDFAST, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _wait_for_answers(process, tmp_path / "flights.parquet.ledger")
        process.kill()
    assert document(tmp_path, "verify", "flights.parquet")["head"]["seq"] >= 1


def _wait_for_answers(process: subprocess.Popen[str], ledger: Path) -> None:
    """Return once answers are being written: the log beside the ledger has grown."""
    log = ledger.with_name(ledger.name + "-wal")
    for _ in range(600):
        if process.poll() is not None:
            pytest.fail("The demo ended before it could be interrupted.")
        if log.exists() and log.stat().st_size > 200_000:
            return
        time.sleep(0.1)
    pytest.fail("No answer was written within a minute.")
