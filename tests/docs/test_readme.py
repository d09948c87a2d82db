"""What the README says is what was measured and planned; its links lead somewhere."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks import published

import holdfast as hf
from holdfast.guarantees.checks import Checks, ChecksSoFar
from holdfast.guarantees.request import FULL_SCAN
from holdfast.guarantees.terms import Goal

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def generate():
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import generate

        yield generate
    finally:
        sys.path.remove(str(ROOT / "docs"))


def test_the_demo_block_is_the_committed_run(generate):
    numbers = json.loads((ROOT / "docs" / "demo.json").read_text(encoding="utf-8"))
    block = re.search(r"<!-- demo:.*?-->\n(.*?)\n<!-- /demo -->", README, re.DOTALL)
    assert block is not None
    assert block[1] == generate.readme_demo(numbers)
    assert (ROOT / "docs" / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_the_committed_run_is_the_whole_demo():
    numbers = json.loads((ROOT / "docs" / "demo.json").read_text(encoding="utf-8"))
    assert numbers["rows"] == 1_000_000
    assert numbers["discovery"]["questions"] == 10_000
    assert numbers["plan"]["guarantee"] == "exchange"


def test_the_comparison_is_what_the_planner_says():
    table = README.split("<!-- plan: checked against hf.plan -->")[1]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")
    ]
    cells = {row[0]: row for row in rows}
    plan = hf.plan(rows=1_000_000, queries=10_000)
    planned = {(each.guarantee, each.mechanism): each for each in plan.alternatives}
    contenders = {
        "plain means (SQL, pandas)": FULL_SCAN,
        "fresh rows for every question": ("split", "fresh_rows"),
        "**holdfast**": (plan.guarantee, plan.mechanism),
    }
    for name, which in contenders.items():
        margin = float(re.match(r"±(0\.\d{4})", cells[name][2])[1])
        assert 0 <= margin - planned[which].margin <= 1e-4, name  # rounded up, never in its own favor
        assert cells[name][3] == f"{planned[which].rows_per_query:,}", name
    n, k, beta = 1_000_000, 10_000, 0.05
    checks = Checks(Checks.plan(Goal(n // 2, 0, 1 - beta), "cells"))
    published_widths = {
        "Thresholdout": published.thresholdout(n, k, k // 100, beta),
        "Guess-and-Check": published.guess_and_check(n, k, k // 100, 0.5, beta),
        "Gaussian noise and a transfer theorem": published.gaussian_by_jung(n, k, beta),
        "**holdfast**, checks": checks.width(ChecksSoFar(k - 1, k // 100, 0)),
    }
    for name, width in published_widths.items():
        margin = float(re.match(r"±(0\.\d{4})", cells[name][2])[1])
        assert 0 <= margin - width <= 1e-4, name
    none_fails = float(re.search(r"±(0\.\d{4}) while none fails", table)[1])
    assert 0 <= none_fails - checks.width(ChecksSoFar(k - 1, 0, 0)) <= 1e-4


def test_the_gaussian_line_of_the_plan_is_as_narrow_as_said():
    said = float(re.search(r"Its `gaussian` line is narrower than the one above, ±(0\.\d{4})", README)[1])
    planned = {each.guarantee: each.margin for each in hf.plan(rows=1_000_000, queries=10_000).alternatives}
    assert 0 <= said - planned["gaussian"] <= 1e-4


def test_margins_without_a_plan_are_planned():
    last, first = map(
        float, re.search(r"without a plan ±(0\.\d{4}) at the 10,000th question, ±(0\.\d{4})", README).groups()
    )
    standing = hf.plan(rows=1_000_000).standing
    assert 0 <= last - standing.margin_after(9_999) <= 1e-4
    assert 0 <= first - standing.margin_after(0) <= 1e-4


def test_the_first_table_is_planned():
    said = re.search(
        r"±(0\.\d{4}) for the first answer, ±(0\.\d{4}) for the 100th, ±(0\.\d{4}) for the 10,000th", README
    )
    standing = hf.plan(rows=1_000_000).standing
    for margin, question in zip(map(float, said.groups()), (1, 100, 10_000), strict=True):
        assert 0 <= margin - standing.margin_after(question - 1) <= 1e-4
    checks = Checks(Checks.plan(Goal(500_000, 0, 0.95), "cells"))
    held = float(re.search(r"±(0\.\d{4}) beyond the margin of a guess, at the 10,000th", README)[1])
    assert 0 <= held - checks.width(ChecksSoFar(9_999, 0, 0)) <= 1e-4


def test_a_thousand_questions_to_a_thousand_rows_say_nothing():
    assert "a thousand questions to a thousand rows" in README
    assert hf.plan(rows=1_000, queries=1_000).vacuous


def test_the_margin_of_answers_that_read_less_is_planned():
    margin = float(re.search(r"fewer rows: ±(0\.\d{4}) with 12,000", README)[1])
    assert 0 <= margin - hf.plan(rows=1_000_000, queries=10_000, rows_per_query=12_000).margin <= 1e-4


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text(encoding="utf-8"))
    assert links
    for link in links:
        assert (ROOT / link).exists(), link


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_table_of_sizes_is_planned(generate, page):
    text = (ROOT / page).read_text(encoding="utf-8")
    block = re.search(r"<!-- sizes:.*?-->\n(.*?)\n<!-- /sizes -->", text, re.DOTALL)
    assert block is not None
    assert block[1] == generate.sizes()


def test_the_excess_bound_says_something_where_the_guide_says_so() -> None:
    guide = " ".join((ROOT / "docs" / "how-to" / "optimize.md").read_text(encoding="utf-8").split())
    assert "one feature within radius 1 (at most .04, with 1 million rows and 20 questions)" in guide
    rng = np.random.default_rng(3)
    x = rng.random(1_000_000)
    y = rng.random(x.size) < 1 / (1 + np.exp(1 - 2 * x))
    with hf.Session({"x": x, "y": y}, queries=20, seed=1) as session:
        fit = session.minimize(hf.losses.Logistic({"x": (0, 1)}, target="y"), radius=1)
    assert fit.excess_bound is not None
    assert fit.excess_bound <= 0.04
