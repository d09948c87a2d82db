"""Guarantees compared: the rows each requires for a goal, and the rows that an attack makes necessary."""

from math import sqrt

from holdfast.lab.attack import in_parallel
from holdfast.lab.experiments import Experiment, Results, Size, short, table
from holdfast.lab.experiments.sample_size import SizeGoal, least_rows
from holdfast.lab.plots import Chart, Series
from holdfast.session.planning import plan

ORDER = ("exchange", "posterior", "information", "dp", "paper", "split")
STYLE = {"exchange": "coins", "posterior": "a1", "information": "gaussian", "dp": "laplace", "paper": "naive",
         "split": "split"}  # fmt: skip
MEASURED_BETA = 0.1  # a smaller failure probability cannot be measured in few worlds


def certified(alpha: float, k: int, beta: float) -> Results:
    """Return the fewest rows that each guarantee requires, with any of its mechanisms."""
    found = plan(margin=alpha, queries=k, confidence=1 - beta)
    rows: Results = {}
    for each in found.alternatives:
        if each.guarantee in ORDER and each.rows is not None:
            rows[each.guarantee] = min(rows.get(each.guarantee, each.rows), each.rows)
    return {"alpha": alpha, "queries": k, "beta": beta, "rows": rows}


def run(size: Size, seed: int, processes: int) -> Results:
    """Plan on a grid; measure the goals that are small enough."""
    small = size == "small"
    alphas, ks, betas = ((0.2,), (32, 1_000), (0.1,)) if small else (
        (0.2, 0.1, 0.05), (32, 128, 512, 10_000, 1_000_000), (0.1, 0.05, 0.001))  # fmt: skip
    goals = [(0.2, 32)] if small else [(0.2, 512), (0.1, 128), (0.2, 128), (0.2, 32)]
    tried = [
        SizeGoal("coins", alpha, MEASURED_BETA, k, *((10, 20) if small else (20, 100)), seed) for alpha, k in goals
    ]
    needed = in_parallel(least_rows, tried, processes)
    return {
        "certified": [certified(alpha, k, beta) for alpha in alphas for k in ks for beta in betas],
        "needed": needed,
    }


def _needed(results: Results, alpha: float, k: int) -> int | None:
    for row in results["needed"]:
        if (row["alpha"], row["queries"]) == (alpha, k):
            return int(row["rows"])
    return None


def section(results: Results) -> str:
    """Write the section."""
    lines = []
    for row in results["certified"]:
        needed = _needed(results, row["alpha"], row["queries"]) if row["beta"] == MEASURED_BETA else None
        cells = []
        for name in ORDER:
            rows = row["rows"].get(name)
            loose = f" ({rows / needed:,.0f}×)" if rows is not None and needed else ""
            cells.append(short(rows) + loose)
        lines.append((f"{row['alpha']:g}", f"{row['queries']:,}", f"{row['beta']:g}", *cells, short(needed)))
    head = ("α", "k", "β", *ORDER, "needed by coins")
    return (
        f"{table(head, lines)}\n\n"
        "Rows that each guarantee requires, with the best of its mechanisms. In brackets: how many times the rows that"
        " coins needed under the persistent attack, where that was measured (as above). A stronger attack may exist, so"
        " the guarantees are loose by at most that factor."
    )


def panels(results: Results) -> list[Chart]:
    """Draw required rows over k, and the rows needed under attack where they were measured."""
    drawn = []
    for alpha in sorted({row["alpha"] for row in results["certified"]}, reverse=True)[:2]:
        rows = [row for row in results["certified"] if row["alpha"] == alpha and row["beta"] == MEASURED_BETA]
        series = [
            Series(
                name,
                [row["queries"] for row in rows if name in row["rows"]],
                [row["rows"][name] for row in rows if name in row["rows"]],
                style=STYLE[name],
            )
            for name in ORDER
        ]
        tried = sorted((row["queries"], row["rows"]) for row in results["needed"] if row["alpha"] == alpha)
        if tried:
            ks, needed = [k for k, _ in tried], [n for _, n in tried]
            series.append(Series("needed under attack (coins)", ks, needed, style="thresholdout", line=""))
            far = [ks[-1], max(row["queries"] for row in rows)]
            reach = [needed[-1] * sqrt(k / ks[-1]) for k in far]
            series.append(Series("extended with slope 1/2", far, reach, style="thresholdout", line=":", marked=False))
        title = f"Rows for a margin of {alpha:g}, β = {MEASURED_BETA:g}"
        drawn.append(Chart(title, "questions k", "rows n", series, log="xy"))
    return drawn


EXPERIMENT = Experiment("looseness", "Guarantees compared", run, section, panels)
