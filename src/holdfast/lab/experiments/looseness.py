"""Guarantees compared: the rows each requires for a goal, beside the rows that an attack makes necessary.

And the margin of the default plan beside the error that an attack reaches at that very plan: nine tenths of the
questions are about fair coins, the rest about the vote of all of them, weighted by their answers, again and again.
Rows are streamed, eight coins at a time; the answers follow the law of coins exactly.
"""

from collections.abc import Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc

from holdfast.guarantees.plan import plan, write_margin
from holdfast.lab.attack import in_parallel
from holdfast.lab.experiments.experiment import Experiment, Results, Size, short, table
from holdfast.lab.experiments.sample_size import SizeGoal, least_rows
from holdfast.lab.plots import Panel, Series

ORDER = ("exchange", "posterior", "information", "dp", "paper", "split")
STYLE = {"exchange": "coins", "posterior": "a1", "information": "gaussian", "dp": "laplace", "paper": "naive",
         "split": "split"}  # fmt: skip
LEARNING = 0.9  # of the questions; with the rest the analyst waits for an answer that is off in the same direction
MEASURED_BETA = 0.1  # a smaller failure probability cannot be measured in few worlds


def certified(alpha: float, k: int, beta: float) -> Results:
    """Return the fewest rows that each guarantee requires, with any of its mechanisms."""
    found = plan(margin=alpha, queries=k, confidence=1 - beta)
    rows: Results = {}
    for each in found.alternatives:
        if each.guarantee in ORDER and each.rows is not None:
            rows[each.guarantee] = min(rows.get(each.guarantee, each.rows), each.rows)
    return {"alpha": alpha, "queries": k, "beta": beta, "rows": rows}


def attacked(rows: int, queries: int, seed: int, confidence: float = 0.95) -> float:
    """Return the largest error among all answers of the default plan, under the weighted attack."""
    terms = plan(rows=rows, queries=queries, confidence=confidence, mechanism="coins").standing
    ell, mass = terms.terms.rows_per_query, terms.coin_mass
    rng = np.random.default_rng(seed)

    def answers(shares: float | NDArray[np.float64], count: int) -> NDArray[np.float64]:
        tossed = rng.binomial(ell, mass + (1 - 2 * mass) * np.asarray(shares), count)
        off: NDArray[np.float64] = (tossed / ell - mass) / (1 - 2 * mass) - 0.5
        return off

    bits = (np.arange(256)[:, None] >> np.arange(8)) & 1
    votes, blocks, worst = np.zeros(rows), int(LEARNING * queries) // 8, 0.0
    for _ in range(blocks):
        coins = rng.integers(0, 256, rows, dtype=np.uint8)
        learned = answers(np.bincount(coins, minlength=256) @ bits / rows, 8)
        votes += ((bits - 0.5) @ learned)[coins]
        worst = max(worst, float(np.abs(learned).max()))
    repeated = answers(float((votes > 0).mean()), queries - 8 * blocks)
    return max(worst, float(np.abs(repeated).max()))


def _world(setting: tuple[int, int, int]) -> float:
    return attacked(*setting)


def run(size: Size, seed: int, processes: int) -> Results:
    """Plan on a grid; measure where it can be measured."""
    small = size == "small"
    alphas, ks, betas = ((0.2,), (32, 1_000), (0.1,)) if small else (
        (0.2, 0.1, 0.05), (32, 128, 512, 10_000, 1_000_000), (0.1, 0.05, 0.001))  # fmt: skip
    goals = [(0.2, 32)] if small else [(0.2, 512), (0.2, 128), (0.2, 32), (0.1, 128), (0.1, 32)]
    tried = [
        SizeGoal("coins", alpha, MEASURED_BETA, k, *((10, 20) if small else (20, 100)), seed) for alpha, k in goals
    ]
    needed = in_parallel(least_rows, tried, processes)
    rows, k, worlds = (20_000, 200, 3) if small else (1_000_000, 10_000, 8)
    margin = plan(rows=rows, queries=k, mechanism="coins").margin
    errors = in_parallel(_world, [(rows, k, seed + world) for world in range(worlds)], processes)
    return {
        "margin": {"rows": rows, "queries": k, "certified": margin, "attacked": errors},
        "certified": [certified(alpha, k, beta) for alpha in alphas for k in ks for beta in betas],
        "needed": [{"alpha": goal.alpha} | row for goal, row in zip(tried, needed, strict=True)],
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
        " coins needed under the weighted attack, where that was measured (to about 30 %, as above). A stronger attack"
        " may exist, so the guarantees are loose by at most that factor.\n\n"
        f"{_margin_sentence(results['margin'])}"
    )


def surely_reached(errors: Sequence[float], beta: float) -> float:
    """Return an error that so many worlds reached that no margin below it holds with 1 - beta; wrong once in 100."""
    many = next(many for many in range(1, len(errors) + 1) if bdtrc(many - 1, len(errors), beta) <= 0.01)
    return sorted(errors, reverse=True)[many - 1]


def _margin_sentence(found: Results) -> str:
    reached = surely_reached(found["attacked"], 0.05)
    worlds = sum(error >= reached for error in found["attacked"])
    return (
        f"For {found['rows']:,} rows and {found['queries']:,} questions the default plan promises"
        f" {write_margin(found['certified'])}: at most 5 % of worlds may see a larger error. At that very plan the"
        f" attack is off by {reached:.4f} or more in {worlds} of {len(found['attacked'])} worlds, so the margin is at"
        f" most {found['certified'] / reached:.2f} times what is necessary."
    )


def panels(results: Results) -> list[Panel]:
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
        drawn.append(Panel(title, "questions k", "rows n", series, log="xy"))
    return drawn


LOOSENESS = Experiment("looseness", "Guarantees compared", run, section, panels)
