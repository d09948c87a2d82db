"""Every experiment at its small size, and what the paper says of it.

Computed sizes are exact, so slopes are asserted outright: logarithms bend them by at most 0.15. The lower bound: below
the bound no mechanism is accurate with probability 4/5, so c of m questions are accurate with c at most the binomial
quantile at 4/5 and FALSE_ALARM; far above it (four times 1/alpha^2 looks, where Hoeffding's bound for the coins' chance
alone is 2 exp(-8)) at least the quantile at 1/2. Coins against Gaussian noise: differences of W paired worlds, within
Student's t at FALSE_ALARM. A mutant is kept for each claim that has chance in it.
"""

import json
from importlib.metadata import version
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, t

from holdfast.errors import InvalidArgument, RowSourceError
from holdfast.guarantees.mathematics import sizes
from holdfast.lab.baselines import FullGaussian
from holdfast.lab.experiments import (
    FOLDER,
    NAMES,
    PAGE,
    attacked,
    cost,
    counting,
    experiments,
    looseness,
    lower_bound,
    optimization,
    page_text,
    reproduce,
    sample_size,
    sampling,
    slope,
    write_page,
)
from holdfast.lab.experiments.sample_size import SizeGoal, least_rows, predicted_rows, tuned

FALSE_ALARM = 1e-6
DOCS = Path(__file__).parents[2] / "docs"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """All experiments, small, written and read back."""
    folder = tmp_path_factory.mktemp("reproduced")
    titles: list[str] = []
    written = reproduce(folder, size="small", seed=3, progress=titles.append)
    assert titles == [experiment.title for experiment in experiments()]
    assert {path.name for path in written} == {f"{n}.json" for n in NAMES} | {f"{n}.png" for n in NAMES} | {PAGE}
    return {name: json.loads((folder / FOLDER / f"{name}.json").read_text()) for name in NAMES}


def test_the_slopes_of_table_1(results):
    found = cost.slopes(results["cost"])
    for name, (in_k, in_alpha) in cost.EXPECTED.items():
        assert found[name] == pytest.approx((in_k, in_alpha), abs=0.15)
    for each in results["cost"]["by_queries"]:
        assert each["lower bound"] <= each["this work"] <= each["previous work"]


def test_rows_are_counted_where_they_are_evaluated(results):
    for row in results["cost"]["measured"]:
        assert row["previous work"]["evaluated"] == row["queries"] * row["previous work"]["rows"]
        assert row["this work"]["evaluated"] < row["previous work"]["evaluated"]
        assert row["sampling counting"]["evaluated"] == row["queries"]


def accurate(tries, bound: float, name: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(accurate, questions) of the tries below the bound, and of those far above."""
    below = [(row[name]["accurate"], row["questions"]) for row in tries if row["looks"] < bound]
    above = [(row[name]["accurate"], row["questions"]) for row in tries if row["c"] >= 4]
    assert below
    assert above
    return below, above


def test_the_lower_bound(results):
    tries = results["lower_bound"]["tries"]
    for text, bound in results["lower_bound"]["bounds"].items():
        here = [row for row in tries if row["alpha"] == float(text)]
        for name in lower_bound.NAMES:
            below, above = accurate(here, bound, name)
            assert all(right < binom.ppf(FALSE_ALARM, questions, 0.8) for right, questions in below)
            assert all(right > binom.isf(FALSE_ALARM, questions, 0.5) for right, questions in above)


def test_a_mechanism_that_looks_at_the_universe_would_be_caught(monkeypatch):
    """The mutant: it says it makes a few looks and evaluates the question everywhere."""
    everything = FullGaussian(sigma=1e-9)
    monkeypatch.setattr(lower_bound, "mechanisms", lambda looks, rows, seed: {"coins": everything})
    row = lower_bound.identify(1, 150, (0.05, 0.005))
    assert row["looks"] < sizes.least_evaluations(0.05, 0.2, 1, universe=10**6)
    assert row["coins"]["accurate"] >= binom.ppf(FALSE_ALARM, 150, 0.8)


def test_rows_needed_grow_faster_for_exact_answers(results):
    found = [row for row in results["sample_size"]["found"] if row["alpha"] == results["sample_size"]["alpha"]]
    rows = {(row["mechanism"], row["queries"]): row["rows"] for row in found}
    # k grows by 8: exact answers need 8 times the rows, coins sqrt(8) = 2.8 times, and more by a logarithm.
    assert rows["naive", 128] / rows["naive", 16] > rows["coins", 128] / rows["coins", 16]
    assert rows["coins", 128] < rows["naive", 128]


def test_predicted_rows_have_the_slopes_of_theory():
    ks = [10**3, 10**4, 10**5]
    for name, expected in {"naive": 1, "split": 1, "coins": 0.5, "gaussian": 0.5, "laplace": 0.5, "a1": 0.5}.items():
        needed = [predicted_rows(SizeGoal(name, 0.1, 0.1, k, 1, 1, 1)) for k in ks]
        assert slope(ks, needed) == pytest.approx(expected, abs=0.15)


def test_the_search_keeps_every_try_and_ends_between_them():
    found = least_rows(SizeGoal("gaussian", 0.25, 0.2, 12, 5, 20, 1))
    held = [each["rows"] for each in found["tries"] if each["holds"]]
    failed = [each["rows"] for each in found["tries"] if not each["holds"]]
    assert found["again"][0]["rows"] == min(held)
    assert max(failed, default=0) < min(held)
    *raised, last = found["again"]
    assert found["rows"] == last["rows"]
    assert last["failed"] <= 0.2 * last["worlds"] == 4
    assert all(each["failed"] > 4 for each in raised)
    assert found["too_few"] < found["rows"]


def test_a_size_that_was_lucky_is_raised(monkeypatch):
    """The search sees no error at all; fresh worlds do until there are 100 rows."""

    def errors(goal, rows, worlds, stage):
        return [1.0 if stage and rows < 100 else 0.0] * worlds

    monkeypatch.setattr(sample_size, "_errors", errors)
    found = least_rows(SizeGoal("gaussian", 0.25, 0.2, 12, 5, 20, 1))
    assert 100 <= found["rows"] < 100 * 1.08 + 1
    assert found["too_few"] < 100


def test_more_rows_never_raise_the_predicted_error():
    for name in ("naive", "coins", "laplace", "a1", "gaussian", "split"):
        errors = [tuned(name, rows, 50, 0.1)[1] for rows in (200, 800, 3_200)]
        assert errors == sorted(errors, reverse=True)


def test_the_extra_factor_of_section_5_disappears(results):
    found = counting.slopes(results["counting"])
    assert found["averaged coins (paper)"] == pytest.approx(-3, abs=0.2)
    assert found["A1 (paper)"] == pytest.approx(-2, abs=0.2)
    assert found["averaged coins (information)"] == pytest.approx(-2, abs=0.1)
    assert found["averaged coins (exchange)"] == pytest.approx(-2, abs=0.2)
    for row in results["counting"]["simulated"]:
        assert row["single coin"]["rows_read"] == 1
        assert row["noisy count, then a coin"]["rows_read"] == row["rows"]
        assert row["averaged coins"]["largest_error"] <= row["alpha"]


def equal(row, what: str) -> bool:
    gap, error = sampling.difference(row, what)
    return abs(gap) <= t.isf(FALSE_ALARM / 2, len(row["coins"][what]) - 1) * error


def test_sampling_does_not_compromise_accuracy(results):
    for row in results["sampling"]["compared"]:
        assert equal(row, "error")
        if row["analyst"] != "harmless":  # whose last question does not depend on the answers
            assert equal(row, "excess")
        assert row["coins"]["rows_read"] * 6 == row["gaussian"]["rows_read"]  # ell/n = 1/6


def test_noise_that_is_not_equal_is_caught(monkeypatch):
    """The mutant: Gaussian noise of half the deviation. The errors differ by a third; 24 worlds see it."""
    monkeypatch.setattr(sampling, "FullGaussian", lambda sigma: FullGaussian(sigma=sigma / 2))
    assert not equal(sampling.compare(600, 100, 61, 24, 3, "harmless"), "error")


def test_certified_rows_are_ordered_and_above_what_is_needed(results):
    for row in results["looseness"]["certified"]:
        assert row["rows"]["paper"] > row["rows"]["information"]
        assert row["rows"]["exchange"] <= row["rows"]["posterior"] <= 1.5 * row["rows"]["information"]
        needed = looseness._needed(results["looseness"], row["alpha"], row["queries"])
        if needed is not None:
            assert min(row["rows"].values()) >= needed


def test_the_default_margin_is_less_than_twice_what_the_attack_reaches():
    """At a million rows and 10,000 questions, in the docs."""
    found = in_the_docs("attacked")["compared"][-1]
    assert (found["rows"], found["queries"]) == (10**6, 10**4)
    assert found["certified"]["exchange"] <= 2 * np.median(found["attacked"]["exchange"])


def test_section_6_has_the_slopes_of_the_paper(results):
    """Required calls exactly, but for the logarithm of the strongly convex case; what is measured is in the docs."""
    for kind, found in optimization.slopes(results["optimization"]).items():
        assert found["queries: required"] == pytest.approx(1, abs=0.01)
        assert found["d: required"] == pytest.approx(1, abs=0.02)
        assert found["alpha: required"] == pytest.approx(optimization.EXPECTED[kind], abs=0.2)
        assert found["queries: previous"] == pytest.approx(2, abs=0.01)
    for row in results["optimization"]["by_alpha"]:
        assert row["evaluated"] < row["previous evaluated"]
        assert row["rows"] < row["boosted rows"]
    recorded = optimization.slopes(in_the_docs("optimization"))
    for kind, expected in optimization.EXPECTED.items():
        assert recorded[kind]["alpha: measured"] == pytest.approx(expected, abs=0.5)
        assert recorded[kind]["d: measured"] == pytest.approx(1, abs=0.4)


def test_no_guarantee_is_broken_by_the_worst_attack_known(results):
    for found in (results["attacked"], in_the_docs("attacked")):
        for row in found["compared"]:
            assert {"exchange", "posterior", "information", "split"} <= row["certified"].keys()
            for name, errors in row["attacked"].items():
                assert sum(error > row["certified"][name] for error in errors) <= 0.05 * len(errors)
    assert "exchange" in results["attacked"]["compared"][0]["attacked"]


def test_answers_without_any_noise_are_broken():
    """The mutant: exact answers that claim the margin of coins."""
    exact = {"exact": lambda share, count, rng: np.broadcast_to(share, count) - 0.5}
    assert attacked.attacked(2_000, 800, exact, 1)["exact"] > 0.15


def in_the_docs(name: str) -> dict:
    return json.loads((DOCS / FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def cheap_cell(name: str, found: dict) -> tuple[object, object]:
    """One cell of a recorded experiment, and the same computed now."""
    seed = found["seed"]
    match name:
        case "cost":
            row = found["by_queries"][0]
            return row, cost.required(row["alpha"], row["queries"])
        case "lower_bound":
            row = found["tries"][0]
            again = lower_bound.identify(seed, row["questions"], (row["alpha"], row["c"]))
            return row["coins"], again["coins"]
        case "sample_size":
            row = min((r for r in found["found"] if r["mechanism"] == "coins"), key=lambda r: r["queries"])
            goal = SizeGoal("coins", row["alpha"], found["beta"], row["queries"], found["worlds"], 1, seed)
            tried = row["tries"][-1]
            return tried["errors"], sample_size._errors(goal, tried["rows"], found["worlds"], 0)
        case "counting":
            row = found["sizes"][0]
            return row, counting.required(row["alpha"])
        case "sampling":
            row = next(r for r in found["compared"] if r["analyst"] == "harmless")
            again = sampling.compare(found["rows"], found["ell"], found["queries"], 2, seed, "harmless")
            return row["coins"]["error"][:2], again["coins"]["error"]
        case "optimization":
            row = next(r for r in found["measured"] if (r["kind"], r["alpha"]) == ("strongly convex", 0.1))
            cell = (row["kind"], row["d"], row["alpha"], row["full"])
            return row, optimization.fewest_steps(found["worlds"], seed, cell)
        case "looseness":
            row = found["certified"][0]
            return row, looseness.certified(row["alpha"], row["queries"], row["beta"])
        case _:
            row = found["compared"][0]
            again = attacked.compare(1, seed, 1, (row["rows"], row["queries"]))
            firsts = {each: errors[0] for each, errors in row["attacked"].items()}
            return [row["certified"], firsts], [again["certified"], {e: x[0] for e, x in again["attacked"].items()}]


@pytest.mark.parametrize("name", NAMES)
def test_recorded_numbers_are_those_of_this_version(name):
    found = in_the_docs(name)
    assert found["version"] == version("holdfast")
    recorded, computed = cheap_cell(name, found)
    assert json.loads(json.dumps(computed)) == recorded


def test_slopes_are_slopes():
    assert slope([1, 4, 16], [3, 6, 12]) == pytest.approx(0.5)
    assert np.isfinite(slope([1, 2], [sqrt(2), 2]))


def test_the_page_in_the_docs_is_made_from_the_numbers_in_the_docs():
    assert page_text(DOCS) == (DOCS / PAGE).read_text(encoding="utf-8")
    for name in NAMES:
        assert json.loads((DOCS / FOLDER / f"{name}.json").read_text(encoding="utf-8"))["size"] == "full"
        assert (DOCS / FOLDER / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert sum(path.stat().st_size for path in (DOCS / FOLDER).iterdir()) < 1_000_000


def test_unknown_experiments_and_damaged_numbers_are_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="name must be one of"):
        reproduce(tmp_path, names=["magic"])
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "cost.json").write_text("{")
    with pytest.raises(RowSourceError, match=r"cost\.json must be JSON"):
        write_page(tmp_path)
