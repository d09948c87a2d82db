"""Every benchmark runs, at its small size: a case that no longer runs measures nothing."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def report() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_report", ROOT / "benchmarks" / "report.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def told(value: float, *, better: str = "lower", small: bool = False) -> dict[str, Any]:
    return {"ratios": {"x": {"value": value, "better": better, "goal": None}}, "run": {"small": small}}


def test_every_file_is_a_case_of_the_report(report: ModuleType) -> None:
    files = {path.stem for path in (ROOT / "benchmarks" / "cases").glob("*.py")}
    assert files == set(report.CASES)


def test_the_small_size_runs_and_writes_a_page(report: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    kept = {path: path.read_bytes() for path in report.RESULTS.glob("*.json")}
    command = [sys.executable, "benchmarks/report.py", "--small", "--page", str(page)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2_000:]
    text = page.read_text()
    for name in report.CASES:
        assert report.hypothesis(name) in text
    assert text.count("\n## ") == len(report.CASES)
    for drawn in ("width", "growth-rows", "growth-questions"):
        assert f"benchmarks/{drawn}.svg" in text
        assert (tmp_path / "benchmarks" / f"{drawn}.svg").stat().st_size > 1_000
    assert kept == {path: path.read_bytes() for path in report.RESULTS.glob("*.json")}, "a small run keeps nothing"


def test_a_number_is_told_from_its_goal(report: ModuleType) -> None:
    written = [report.number(2.004, 2), report.number(2.4321, 2), report.number(2, 2), report.number(2_269.4)]
    assert written == ["2.004", "2.43", "2", "2,269"]


@pytest.mark.parametrize(
    ("then", "now", "better", "warned"),
    [
        (2.0, 2.9, "lower", False),
        (2.0, 3.1, "lower", True),
        (90.0, 70.0, "higher", False),
        (90.0, 50.0, "higher", True),
    ],
)
def test_a_ratio_that_got_much_worse_is_warned_of(
    report: ModuleType, then: float, now: float, better: str, warned: bool
) -> None:
    assert bool(report.regressions("case", told(now, better=better), told(then, better=better))) is warned


def test_sizes_are_not_compared_with_each_other(report: ModuleType) -> None:
    assert report.regressions("case", told(9.0, small=True), told(1.0)) == []
    assert report.regressions("case", told(9.0), None) == []


def test_results_that_are_kept_are_of_full_size(report: ModuleType) -> None:
    for name in report.CASES:
        kept = json.loads((report.RESULTS / f"{name}.json").read_text())
        assert kept["run"]["small"] is False
        assert kept["raw"]


def test_the_committed_figures_are_drawn_from_the_kept_results(report: ModuleType, tmp_path: Path) -> None:
    """Drawn by this version of matplotlib, they are the same to the last byte; another may draw differently."""
    import matplotlib

    drawn_here = f"<dc:title>Matplotlib v{matplotlib.__version__}"
    for name in report.CASES:
        for figure in json.loads((report.RESULTS / f"{name}.json").read_text())["figures"]:
            kept = (report.ROOT / "docs" / "benchmarks" / f"{figure['name']}.svg").read_text()
            report.draw(figure, tmp_path)
            if drawn_here in kept:
                assert (tmp_path / f"{figure['name']}.svg").read_text() == kept, figure["name"]
