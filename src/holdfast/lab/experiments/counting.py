"""Section 5: counting queries by averaged coins, and coins by noisy counting queries; rows and costs side by side.

By the paper's theorems, averaging sampling counting queries costs an extra factor 1/alpha in rows; by the information
guarantee it does not. Both are computed; then both are simulated on tables that can be built.
"""

from functools import partial
from typing import Any

import numpy as np

from holdfast.guarantees.mathematics import sizes
from holdfast.lab.attack import in_parallel
from holdfast.lab.baselines import CoinFromMean, Releaser
from holdfast.lab.experiments import Experiment, Results, Size, short, slope, table
from holdfast.lab.plots import Chart, Series, guide
from holdfast.lab.populations import Agreement, CoinTable
from holdfast.mechanisms.coins import Coins
from holdfast.mechanisms.noisy_means import Laplace
from holdfast.rows.memory import memory_rows
from holdfast.session.planning import plan

BETA, QUERIES = 0.05, 1_000
COUNTS = ("A1 (paper)", "averaged coins (paper)", "averaged coins (information)", "averaged coins (exchange)")
FLIPS = ("A3 (paper)", "noisy count, then a coin (paper)", "flips (information)")
AVERAGES, BITS = ("averaged coins", "A1"), ("single coin", "noisy count, then a coin")
STYLE = {"A1 (paper)": "a1", "averaged coins (paper)": "naive", "averaged coins (information)": "coins",
        "averaged coins (exchange)": "gaussian", "A3 (paper)": "a1", "noisy count, then a coin (paper)": "naive",
        "flips (information)": "coins"}  # fmt: skip


def required(alpha: float) -> Results:
    """Return rows needed and rows read per answer, for every method."""
    a1, averaged = sizes.a1(alpha, BETA, QUERIES), sizes.cq_by_scq(alpha, BETA, QUERIES)
    a3, noisy = sizes.a3(alpha, BETA, QUERIES), sizes.scq_by_cq(alpha, BETA, QUERIES)
    goal: dict[str, Any] = {"margin": alpha, "confidence": 1 - BETA, "rows_per_query": "best"}
    by = {
        name: plan(queries=QUERIES, guarantee=name, mechanism="coins", **goal) for name in ("information", "exchange")
    }
    flips = plan(margin=alpha, queries={"flip": QUERIES}, guarantee="information", confidence=1 - BETA)
    pairs = {
        "A1 (paper)": (a1.n, a1.ell),
        "averaged coins (paper)": (averaged.n, averaged.ell),
        "averaged coins (information)": (by["information"].rows, by["information"].rows_per_query),
        "averaged coins (exchange)": (by["exchange"].rows, by["exchange"].rows_per_query),
        "A3 (paper)": (a3.n, a3.ell),
        "noisy count, then a coin (paper)": (noisy.n, noisy.ell),
        "flips (information)": (flips.rows, 1),
    }
    return {"alpha": alpha} | {name: {"rows": rows, "read": read} for name, (rows, read) in pairs.items()}


def simulated(seed: int, k: int, alpha: float, repetition: int) -> Results:
    """Run both simulations of Section 5 on a table as large as the information guarantee requires."""
    rng = np.random.default_rng([seed, repetition])
    coins = plan(margin=alpha, queries=k, guarantee="information", mechanism="coins", confidence=1 - BETA)
    noisy = plan(rows=coins.rows, queries=k, guarantee="information", mechanism="laplace", confidence=1 - BETA)
    source = memory_rows(CoinTable(1, 1, 0.2).draw(coins.rows, rng))
    a1 = Laplace.under(noisy.standing, noisy.rows_per_query, None)
    methods: dict[str, Releaser] = {
        "averaged coins": Coins.under(coins.standing, coins.rows_per_query, None),
        "A1": a1,
        "single coin": Coins.under(coins.standing, 1, None),
        "noisy count, then a coin": CoinFromMean(epsilon=a1.epsilon),
    }
    found: Results = {"rows": coins.rows, "queries": k, "alpha": alpha}
    for name, method in methods.items():
        releases = [method.release(Agreement(0), source, rng) for _ in range(k)]
        answers = np.array([release.values[0] for release in releases])
        found[name] = {
            "rows_read": releases[0].draws,
            "largest_error": round(float(np.abs(answers - 0.7).max()), 5),
            "mean": round(float(answers.mean()), 5),
        }
    return found


def run(size: Size, seed: int, processes: int) -> Results:
    """Compute and simulate."""
    small = size == "small"
    alphas = [0.2, 0.1, 0.05] if small else [0.2, 0.1, 0.05, 0.02, 0.01, 0.005]
    k, alpha = (50, 0.3) if small else (1_000, 0.2)
    repeat = partial(simulated, seed, k, alpha)
    return {
        "sizes": [required(alpha) for alpha in alphas],
        "simulated": in_parallel(repeat, list(range(2 if small else 8)), processes),
    }


def slopes(results: Results) -> dict[str, float]:
    """Return the slope of rows over alpha, for every method."""
    alphas = [row["alpha"] for row in results["sizes"]]
    return {name: slope(alphas, [row[name]["rows"] for row in results["sizes"]]) for name in COUNTS + FLIPS}


def section(results: Results) -> str:
    """Write the section."""
    shown = [row for row in results["sizes"] if row["alpha"] in (0.1, 0.01)] or results["sizes"]
    found = slopes(results)
    head = ("method", *(f"rows; read per answer (α = {row['alpha']:g})" for row in shown), "slope of rows in α")
    lines = [
        (name, *(f"{short(row[name]['rows'])}; {short(row[name]['read'])}" for row in shown), f"{found[name]:.2f}")
        for name in COUNTS + FLIPS
    ]
    first = results["simulated"][0]
    tried = [
        (
            name,
            short(first[name]["rows_read"]),
            f"{max(row[name]['largest_error'] for row in results['simulated']):.3f}" if name in AVERAGES else "one bit",
            f"{np.mean([row[name]['mean'] for row in results['simulated']]):.4f}",
        )
        for name in (*AVERAGES, *BITS)
    ]
    return (
        f"{table(head, lines)}\n\n"
        f"k = {QUERIES:,}, β = {BETA:g}. The paper's averaged coins need α^-3 rows, one factor 1/α more than A1; under"
        " the information and the exchange guarantee the same coins need α^-2: the extra factor is gone. A coin from a"
        " noisy count reads every row for one bit.\n\n"
        f"Simulated on {first['rows']:,} rows, k = {first['queries']:,}, with a question whose population mean is"
        " 0.7:\n\n"
        f"{table(('method', 'rows read per answer', 'largest error', 'mean of all answers'), tried)}"
    )


def panels(results: Results) -> list[Chart]:
    """Draw rows over alpha for counting and sampling counting queries, and the cost."""
    alphas = [row["alpha"] for row in results["sizes"]]

    def lines(names: tuple[str, ...], what: str) -> list[Series]:
        return [
            Series(name, alphas, [row[name][what] for row in results["sizes"]], style=STYLE[name]) for name in names
        ]

    coins = [row["averaged coins (information)"]["read"] for row in results["sizes"]]
    cost = [*lines(COUNTS[:1], "read"), Series("averaged coins (all three)", alphas, coins, style="thresholdout")]
    rows, flips = lines(COUNTS, "rows"), lines(FLIPS, "rows")
    slopes = {"A1 (paper)": -2, "averaged coins (paper)": -3, "averaged coins (exchange)": -2}
    rows += [guide(f"slope {slopes[one.label]}", one, slopes[one.label]) for one in rows if one.label in slopes]
    cost += [guide("slope -2", one, -2.0) for one in cost]
    flips += [guide("slope -2", one, -2.0) for one in flips]
    return [
        Chart("Counting queries: rows", "margin α", "rows n", rows, log="xy"),
        Chart("Counting queries: cost", "margin α", "rows read per answer", cost, log="xy"),
        Chart("Sampling counting queries: rows", "margin α", "rows n", flips, log="xy"),
    ]


EXPERIMENT = Experiment("counting", "Counting and sampling counting queries (Section 5)", run, section, panels)
