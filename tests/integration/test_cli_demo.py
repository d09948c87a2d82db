"""`holdfast demo` as a newcomer runs it, on fewer rows."""

import json
import subprocess
import sys
from pathlib import Path

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
SMALL = ("demo", "--rows", "10000", "--questions", "60")


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HOLDFAST, *words], cwd=folder, capture_output=True, text=True, timeout=120)


def test_the_demo_tells_its_story(tmp_path):
    done = run(tmp_path, *SMALL)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for part in ("1. Data: 10,000 made-up flights", "2. Ask", "3. A discovery", "● what plain means claim"):
        assert part in done.stdout
    assert "Of its 60 intervals" in done.stdout
    assert "4. Check: half of the rows are open" in done.stdout
    assert "checks, 0 missed the truth" in done.stdout
    assert "5. Seal: a leaderboard" in done.stdout
    assert "Of the intervals of 1,002 submissions" in done.stdout
    assert (tmp_path / "demo-output" / "demo.png").exists()
    assert (tmp_path / "demo-output" / "checks.png").exists()
    follow = run(tmp_path, "ask", "demo-output/flights.parquet", "dep_delay > 60")  # what its last line proposes
    assert follow.returncode == 0


def test_without_matplotlib_the_demo_tells_its_story_without_a_picture(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not installed')\n", encoding="utf-8")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from holdfast.cli import main; main({list(SMALL)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "(Install matplotlib to get a picture as well.)" in done.stdout
    assert not (tmp_path / "demo-output" / "demo.png").exists()
    assert (tmp_path / "demo-output" / "demo.json").exists()


def test_the_demo_as_json(tmp_path):
    done = run(tmp_path, *SMALL, "--seed", "3", "--json", "--output", "here")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told.pop("ok") is True
    assert told == json.loads((tmp_path / "here" / "demo.json").read_text(encoding="utf-8"))
    assert {"rows", "seed", "plan", "tour", "flips", "discovery", "checks", "board"} == set(told)


def test_a_bad_option_is_refused(tmp_path):
    done = run(tmp_path, "demo", "--rows", "10", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["kind"] == "usage"
    assert not (tmp_path / "demo-output").exists()
