"""Section 5: counting queries by averaged coins, and coins by noisy counting queries, sizes and costs side by side.

By the paper's theorems, averaging sampling counting queries costs an extra factor 1/alpha in rows; by the information
guarantee it does not. Both are computed; then both simulations are run on tables that can be built.
"""

from functools import partial

import numpy as np

from holdfast.guarantees import paper
from holdfast.lab.analysts import CoinTable
from holdfast.lab.analysts.questions import Agreement
from holdfast.lab.attacking import in_parallel
from holdfast.lab.baselines import CoinFromMean
from holdfast.lab.experiments.base import Experiment, Results, Size, short, slope, table
from holdfast.lab.plots import Panel, Series
from holdfast.mechanisms.base import Mechanism
from holdfast.mechanisms.coins import Coins
from holdfast.mechanisms.laplace import Laplace
from holdfast.planning import plan
from holdfast.rows.memory import memory_rows

BETA, QUERIES = 0.05, 1_000
COUNTS = ("A1 (paper)", "averaged coins (paper)", "averaged coins (information)", "averaged coins (posterior)")
FLIPS = ("A3 (paper)", "noisy count, then a coin (paper)", "flips (information)")
AVERAGES, BITS = ("averaged coins", "A1"), ("single coin", "noisy count, then a coin")
LOOK = {"A1 (paper)": "a1", "averaged coins (paper)": "naive", "averaged coins (information)": "coins",
        "averaged coins (posterior)": "gaussian", "A3 (paper)": "a1", "noisy count, then a coin (paper)": "naive",
        "flips (information)": "coins"}  # fmt: skip


def sizes(alpha: float) -> Results:
    """Return rows needed and rows read per answer, for every way."""
    a1, averaged = paper.a1(alpha, BETA, QUERIES), paper.cq_by_scq(alpha, BETA, QUERIES)
    a3, noisy = paper.a3(alpha, BETA, QUERIES), paper.scq_by_cq(alpha, BETA, QUERIES)
    by = {name: plan(accuracy=alpha, queries=QUERIES, guarantee=name, mechanism="coins", confidence=1 - BETA)
          for name in ("information", "posterior")}  # fmt: skip
    flips = plan(accuracy=alpha, queries={"flip": QUERIES}, guarantee="information", confidence=1 - BETA)
    pairs = {
        "A1 (paper)": (a1.n, a1.ell),
        "averaged coins (paper)": (averaged.n, averaged.ell),
        "averaged coins (information)": (by["information"].rows, by["information"].rows_per_query),
        "averaged coins (posterior)": (by["posterior"].rows, by["posterior"].rows_per_query),
        "A3 (paper)": (a3.n, a3.ell),
        "noisy count, then a coin (paper)": (noisy.n, noisy.ell),
        "flips (information)": (flips.rows, 1),
    }
    return {"alpha": alpha} | {name: {"rows": rows, "read": read} for name, (rows, read) in pairs.items()}


def simulated(seed: int, k: int, alpha: float, repetition: int) -> Results:
    """Run both simulations of Section 5 on a table as large as the information guarantee asks."""
    rng = np.random.default_rng([seed, repetition])
    made = plan(accuracy=alpha, queries=k, guarantee="information", mechanism="coins", confidence=1 - BETA)
    noisy = plan(rows=made.rows, queries=k, guarantee="information", mechanism="laplace", confidence=1 - BETA)
    source = memory_rows(CoinTable(1, 1, 0.2).draw(made.rows, rng))
    epsilon, flip = noisy.constants["epsilon"], made.flip_probability
    ways: dict[str, Mechanism] = {
        "averaged coins": Coins(draws=made.rows_per_query, flip_probability=flip),
        "A1": Laplace(draws=noisy.rows_per_query, epsilon=epsilon),
        "single coin": Coins(draws=1, flip_probability=flip),
        "noisy count, then a coin": CoinFromMean(epsilon=epsilon),
    }
    found: Results = {"rows": made.rows, "queries": k, "alpha": alpha}
    for name, way in ways.items():
        answers = np.array([way.release(Agreement(0), source, rng).answer for _ in range(k)])
        read = way.price(Agreement(0), made.rows).rows_read
        found[name] = {
            "rows_read": read,
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
        "sizes": [sizes(alpha) for alpha in alphas],
        "simulated": in_parallel(repeat, list(range(2 if small else 8)), processes),
    }


def slopes(results: Results) -> dict[str, float]:
    """Return the slope of rows over alpha, of every way."""
    alphas = [row["alpha"] for row in results["sizes"]]
    return {name: slope(alphas, [row[name]["rows"] for row in results["sizes"]]) for name in COUNTS + FLIPS}


def section(results: Results) -> str:
    """Write the section."""
    shown = [row for row in results["sizes"] if row["alpha"] in (0.1, 0.01)] or results["sizes"]
    found = slopes(results)
    head = ("way", *(f"rows, read an answer (α = {row['alpha']:g})" for row in shown), "slope of rows in α")
    lines = [
        (name, *(f"{short(row[name]['rows'])}, {short(row[name]['read'])}" for row in shown), f"{found[name]:.2f}")
        for name in COUNTS + FLIPS
    ]
    first = results["simulated"][0]
    tried = [
        (
            way,
            short(first[way]["rows_read"]),
            f"{max(row[way]['largest_error'] for row in results['simulated']):.3f}" if way in AVERAGES else "a bit",
            f"{np.mean([row[way]['mean'] for row in results['simulated']]):.4f}",
        )
        for way in (*AVERAGES, *BITS)
    ]
    return (
        f"{table(head, lines)}\n\n"
        f"k = {QUERIES:,}, β = {BETA:g}. The paper's averaged coins need α^-3 rows, one factor 1/α more than A1; under"
        " the information and the posterior guarantee the same coins need α^-2: the extra factor is gone. A coin from a"
        " noisy count reads every row for one bit.\n\n"
        f"Run on {first['rows']:,} rows, k = {first['queries']:,}, a question whose population mean is 0.7:\n\n"
        f"{table(('way', 'rows read an answer', 'largest error', 'mean of all answers'), tried)}"
    )


def panels(results: Results) -> list[Panel]:
    """Draw rows over alpha for both kinds, and the cost."""
    alphas = [row["alpha"] for row in results["sizes"]]

    def lines(names: tuple[str, ...], what: str) -> list[Series]:
        return [Series(name, alphas, [row[name][what] for row in results["sizes"]], look=LOOK[name]) for name in names]

    coins = [row["averaged coins (information)"]["read"] for row in results["sizes"]]
    cost = [*lines(COUNTS[:1], "read"), Series("averaged coins (all three)", alphas, coins, look="thresholdout")]
    return [
        Panel("Counting queries: rows", "accuracy α", "rows n", lines(COUNTS, "rows"), logs="xy"),
        Panel("Counting queries: cost", "accuracy α", "rows read an answer", cost, logs="xy"),
        Panel("Sampling counting queries: rows", "accuracy α", "rows n", lines(FLIPS, "rows"), logs="xy"),
    ]


COUNTING = Experiment("counting", "Counting and sampling counting queries (Section 5)", run, section, panels)
