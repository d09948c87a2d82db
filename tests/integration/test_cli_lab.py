"""attack, monitor, selftest and reproduce, run as their users run them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from holdfast.cli import main
from holdfast.lab import populations

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
SMALL = ("--rows", 200, "--queries", 21, "--worlds", 2, "--seed", 1)


def run(folder: Path, *words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [HOLDFAST, *map(str, words)], cwd=folder, env=dict(os.environ), capture_output=True, text=True, timeout=300
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == code, done.stderr
    return done


def test_attack_shows_everybody_side_by_side(tmp_path):
    said = run(tmp_path, "attack", *SMALL, "--picture", "a.png").stdout
    names = [line.split()[0] for line in said.splitlines()[1:8]]
    assert names == ["naive", "split", "thresholdout", "laplace", "gaussian", "a1", "coins"]
    assert "Seed 1." in said
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_attack_on_one_mechanism_shows_the_questions_going_by(tmp_path):
    said = run(tmp_path, "attack", "naive", "--analyst", "climber", *SMALL).stdout
    assert "claimed error" in said
    assert "naive against climber" in said


def test_attack_as_json_repeats_with_its_seed(tmp_path):
    words = ("attack", "naive,coins", "--json", *SMALL)
    first, again = (json.loads(run(tmp_path, *words).stdout) for _ in range(2))
    assert first == again
    assert [each["mechanism"] for each in first["attacks"]] == ["naive", "coins"]
    assert first["attacks"][0]["seeds"] == first["attacks"][1]["seeds"]


def test_attack_refuses_in_one_sentence(tmp_path):
    done = run(tmp_path, "attack", "magic", "--json", code=2)
    assert json.loads(done.stdout)["error"].startswith("mechanism must be one of")


def monitor(capsys, *words: object, code: int = 0) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["monitor", *map(str, words)])
    said = capsys.readouterr()
    assert ended.value.code == code, said.err
    return said.out if code == 0 else said.err


def test_the_monitors_of_the_page_about_the_paper_run(capsys):
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "paper.md").read_text(encoding="utf-8")
    released, resumed = re.findall(r"^holdfast monitor (.*)$", page, re.MULTILINE)
    first = monitor(capsys, *released.split(), "--seed", 2)
    gap, largest = re.findall(r"are (\S+) apart; the largest gap is (\S+)\.", first)[0]
    assert first.startswith("naive against weighted: released ")
    assert 0.2 < float(gap) <= float(largest)
    assert "coins against weighted, resumed 10 times: " in monitor(capsys, *resumed.split(), "--seed", 2)


def test_monitors_as_json_repeat_with_their_seed(capsys):
    words = ("coins", "--rows", 200, "--queries", 31, "--seed", 3)
    first, again = (json.loads(monitor(capsys, *words, "--json")) for _ in range(2))
    assert first == again
    assert 0 <= first["gap"] <= first["largest"]
    assert first["expected"] >= first["largest"] - first["allowed"]
    resumed = json.loads(monitor(capsys, *words, "--after", 20, "--samples", 4, "--json"))
    assert len(resumed["gaps"]) == 4
    assert max(map(abs, resumed["gaps"])) == resumed["largest"]
    late = monitor(capsys, *words, "--after", 31, code=2)
    assert late.strip() == "--after must be at most queries - 1 (30); got 31."


def test_selftest_of_a_plan_in_numbers(tmp_path):
    said = run(tmp_path, "selftest", "--rows", 2_000, "--queries", 50, "--worlds", 3).stdout
    assert "The plan kept its promise: in 0 of 3 worlds" in said
    found = json.loads(run(tmp_path, "selftest", "--rows", 2_000, "--queries", 50, "--worlds", 3, "--json").stdout)
    assert found["kept"] is True
    assert found["plan"]["rows"] == 2_000


def test_selftest_of_the_plan_that_stands(tmp_path):
    populations.write(tmp_path / "flights.parquet", 20_000, np.random.default_rng(1), signals=1)
    run(tmp_path, "ask", "flights.parquet", "dep_delay > 15", "--queries", 60)
    found = json.loads(run(tmp_path, "selftest", "flights.parquet", "--worlds", 2, "--json").stdout)
    assert (found["plan"]["rows"], found["questions"]) == (20_000, 60)
    both = run(tmp_path, "selftest", "flights.parquet", "--queries", 50, code=2)
    assert "not both" in both.stderr
    endless = run(tmp_path, "selftest", "--rows", 2_000, "--worlds", 2)
    assert "without end" in endless.stdout


@pytest.mark.slow
def test_reproduce_writes_numbers_figures_and_page(tmp_path):
    said = run(tmp_path, "reproduce", "lower_bound", "looseness", "--output", "here", "--processes", 2).stdout
    assert "paper.md" in said
    assert sorted(path.name for path in (tmp_path / "here" / "experiments").iterdir()) == [
        "looseness.json",
        "looseness.png",
        "lower_bound.json",
        "lower_bound.png",
    ]
    refused = run(tmp_path, "reproduce", "magic", code=2)
    assert "name must be one of" in refused.stderr
