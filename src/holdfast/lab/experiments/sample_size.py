"""Sample complexity: the fewest rows on which a mechanism keeps its promise under the worst analyst here, against k.

The search uses the weighted attack. Whether it is the worst is measured too: at the size found for exact answers and
for coins every other analyst is let loose on the same mechanism.
"""

from functools import partial

import numpy as np

from holdfast.lab.analysts import ANALYSTS
from holdfast.lab.attacking import attack, in_parallel
from holdfast.lab.experiments.base import Experiment, Results, Size, slope, table
from holdfast.lab.experiments.need import MECHANISMS, Goal, least_rows, tuned
from holdfast.lab.plots import Panel, Series

ALPHA, BETA = 0.2, 0.1
EXPECTED = {"naive": "1", "split": "1", "laplace": "1/2", "gaussian": "1/2", "a1": "1/2", "coins": "1/2"}
FAST = ("naive", "gaussian", "coins")  # the others take longer to simulate and stop earlier


def run(size: Size, seed: int, processes: int) -> Results:
    """Search for every mechanism and k."""
    if size == "small":
        goals = [Goal(name, ALPHA, BETA, k, 10, seed) for k in (16, 128) for name in ("naive", "coins")]
    else:
        ks = (512, 256, 128, 64, 32)  # the longest first, so that no process is left with it at the end
        goals = [Goal(name, ALPHA, BETA, k, 20, seed) for k in ks for name in MECHANISMS if k < 512 or name in FAST]
    found = in_parallel(least_rows, goals, processes)
    return {
        "alpha": ALPHA,
        "beta": BETA,
        "worlds": goals[0].worlds,
        "found": found,
        "analysts": analysts_compared(found, size, seed, processes),
    }


def analysts_compared(found: list[Results], size: Size, seed: int, processes: int) -> list[Results]:
    """Let every analyst loose on exact answers and on coins, at the rows the weighted attack made necessary."""
    queries, worlds = (128, 6) if size == "small" else (256, 30)
    rows = {row["mechanism"]: row["rows"] for row in found if row["queries"] == queries}
    names = ["weighted", "harmless"] if size == "small" else list(ANALYSTS)
    cells = [(mechanism, rows[mechanism], queries, name) for mechanism in ("naive", "coins") for name in names]
    return in_parallel(partial(_largest_errors, worlds, seed), cells, processes)


def _largest_errors(worlds: int, seed: int, cell: tuple[str, int, int, str]) -> Results:
    mechanism, rows, queries, analyst = cell
    made, _ = tuned(mechanism, rows, queries, BETA)
    own = int(np.random.SeedSequence([seed, list(ANALYSTS).index(analyst)]).generate_state(1)[0])
    report = attack(made, analyst, rows=rows, queries=queries, worlds=worlds, seed=own)
    errors = [round(float(error), 4) for error in report.largest]
    return {"mechanism": mechanism, "rows": rows, "queries": queries, "analyst": analyst, "errors": errors}


def slopes(results: Results) -> dict[str, float]:
    """Return each mechanism's slope of rows over questions."""
    found = {}
    for name in dict.fromkeys(row["mechanism"] for row in results["found"]):
        rows = [row for row in results["found"] if row["mechanism"] == name]
        found[name] = slope([row["queries"] for row in rows], [row["rows"] for row in rows])
    return found


def section(results: Results) -> str:
    """Write the section."""
    ks = sorted({row["queries"] for row in results["found"]})
    cells = {(row["mechanism"], row["queries"]): f"{row['rows']:,}" for row in results["found"]}
    lines = [
        (name, *(cells.get((name, k), "-") for k in ks), f"{found:.2f}", EXPECTED[name])
        for name, found in slopes(results).items()
    ]
    head = ("rows needed", *(f"k = {k:,}" for k in ks), "slope", "theory")
    return (
        f"{table(head, lines)}\n\n"
        f"Promise: every answer within {results['alpha']:g}, in a share {1 - results['beta']:g} of the worlds. A try is"
        f" {results['worlds']} worlds, so a single number is good to some 30 % and rather too small, since the search"
        " ends at the first lucky size. The analyst is the weighted attack. Mechanisms with noise were given, for each"
        " n and k, the amount that makes the predicted error smallest; the largest of k honest errors adds a factor"
        " sqrt(log k), or log k with Laplace noise, which bends the slopes upwards.\n\n"
        "Is that analyst the worst? At the sizes found, every analyst against the same mechanism:\n\n"
        f"{_analysts_table(results)}"
    )


def _analysts_table(results: Results) -> str:
    """Write the largest error of a world by analyst: its median, and how often it broke the promise."""
    columns = list(dict.fromkeys((row["mechanism"], row["rows"], row["queries"]) for row in results["analysts"]))
    cells: dict[str, list[str]] = {}
    for row in results["analysts"]:
        failed = sum(error > results["alpha"] for error in row["errors"])
        median = float(np.median(row["errors"]))
        cells.setdefault(row["analyst"], []).append(f"{median:.3f} ({failed} of {len(row['errors'])} broken)")
    head = ("analyst", *(f"{name}, n = {rows:,}, k = {k:,}" for name, rows, k in columns))
    return table(head, [(name, *found) for name, found in cells.items()])


def panels(results: Results) -> list[Panel]:
    """Draw rows over questions."""
    series = []
    for name in dict.fromkeys(row["mechanism"] for row in results["found"]):
        rows = sorted(
            (row for row in results["found"] if row["mechanism"] == name), key=lambda row: int(row["queries"])
        )
        series.append(Series(name, [row["queries"] for row in rows], [row["rows"] for row in rows]))
    return [Panel(f"Rows needed for error {results['alpha']:g}", "questions k", "rows n", series, logs="xy")]


SAMPLE_SIZE = Experiment("sample_size", "Rows needed under attack", run, section, panels)
