"""Certified and attacked: the margin of every guarantee, compared with the error under the worst attack known.

The attack is the persistent one: most questions are about fair coins, and the answers' deviations weight a vote; the
rest ask about the vote again and again, and the worst answer counts. Every guarantee is attacked under its own plan,
with its own mechanism and the split of the questions that hurts it most. Rows are streamed, eight coins at a time, and
all guarantees are attacked on the same rows; answers have exactly the distribution that their mechanism gives them.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast.errors import PlanInfeasible
from holdfast.guarantees.plan import Plan
from holdfast.lab.attack import in_parallel
from holdfast.lab.experiments import Experiment, Results, Size, table
from holdfast.lab.plots import Chart, Series
from holdfast.mechanisms import MECHANISMS
from holdfast.mechanisms.coins import Coins
from holdfast.mechanisms.noisy_means import Gaussian, Laplace
from holdfast.rows.draws import Order
from holdfast.session.planning import plan

CONFIDENCE = 0.95
ORDER = ("exchange", "posterior", "information", "gaussian", "dp", "paper", "split")
LEARNING = (0.5, 0.7, 0.8, 0.9, 0.95)  # shares of the questions spent on coins

Floats = NDArray[np.float64]
Answers = Callable[[float | Floats, int, Generator], Floats]  # from shares on the rows to errors of answers


def law_of(stands: Plan) -> Answers | None:
    """Return how a plan's mechanism turns shares of rows into answers minus one half; None if it uses fresh rows."""
    guarantee, rows = stands.standing, stands.rows
    mechanism = MECHANISMS[stands.mechanism].under(guarantee, stands.rows_per_query, Order(bytes(32)))
    if isinstance(mechanism, Coins):
        draws, mass = mechanism.draws, mechanism.mass
        return lambda share, count, rng: (
            ((rng.binomial(draws, mass + (1 - 2 * mass) * np.asarray(share), count) / draws - mass) / (1 - 2 * mass))
            - 0.5
        )
    if isinstance(mechanism, Laplace):
        ell, scale = mechanism.draws, mechanism.scale(rows)

        def noisy(share: float | Floats, count: int, rng: Generator) -> Floats:
            shares = np.broadcast_to(np.asarray(share, dtype=float), count)
            if ell < rows:
                shares = rng.hypergeometric(*_counts(shares, rows), ell) / ell
            errors: Floats = shares + rng.laplace(0, scale, count) - 0.5
            return errors

        return noisy
    if isinstance(mechanism, Gaussian):
        sigma = mechanism.sigma
        return lambda share, count, rng: np.asarray(share) + rng.normal(0, sigma, count) - 0.5
    return None


def _counts(shares: Floats, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    ones = np.rint(shares * rows).astype(np.int64)
    return ones, rows - ones


def attacked(rows: int, queries: int, laws: dict[str, Answers], seed: int) -> dict[str, float]:
    """Return the largest error among all answers, for each law, by the best split of the questions."""
    rng = np.random.default_rng(seed)
    bits = (np.arange(256)[:, None] >> np.arange(8)) & 1
    votes = {name: np.zeros(rows) for name in laws}
    worst, found = dict.fromkeys(laws, 0.0), dict.fromkeys(laws, 0.0)
    ends = {int(share * queries) // 8 for share in LEARNING}
    for block in range(1, max(ends) + 1):
        coins = rng.integers(0, 256, rows, dtype=np.uint8)
        shares = np.bincount(coins, minlength=256) @ bits / rows
        for name, law in laws.items():
            learned = law(shares, 8, rng)
            votes[name] += ((bits - 0.5) @ learned)[coins]
            worst[name] = max(worst[name], float(np.abs(learned).max()))
            if block in ends:  # what error would the remaining questions reach if learning ended here?
                share = float((votes[name] > 0).mean())
                repeated = law(share, queries - 8 * block, rng)
                found[name] = max(found[name], worst[name], float(np.abs(repeated).max()))
    return found


def plans(rows: int, queries: int) -> dict[str, Plan]:
    """Return the plan of every guarantee that has one here, with its default mechanism."""
    found = {}
    for name in ORDER:
        try:
            found[name] = plan(rows=rows, queries=queries, confidence=CONFIDENCE, guarantee=name)
        except PlanInfeasible:
            continue
    return found


def compare(worlds: int, seed: int, processes: int, setting: tuple[int, int]) -> Results:
    """Plan and attack at one size."""
    rows, queries = setting
    stand = plans(rows, queries)
    world = partial(_world, rows, queries)
    errors = in_parallel(world, [seed + number for number in range(worlds)], processes)
    return {
        "rows": rows,
        "queries": queries,
        "worlds": worlds,
        "certified": {name: one.margin for name, one in stand.items()},
        "mechanism": {name: one.mechanism for name, one in stand.items()},
        "attacked": {name: [round(each[name], 5) for each in errors] for name in errors[0]},
    }


def _world(rows: int, queries: int, seed: int) -> dict[str, float]:
    laws = {name: law_of(stands) for name, stands in plans(rows, queries).items() if not stands.vacuous}
    return attacked(rows, queries, {name: law for name, law in laws.items() if law is not None}, seed)


def run(size: Size, seed: int, processes: int) -> Results:
    """Attack every guarantee at some sizes."""
    settings = [(10_000, 100, 10)] if size == "small" else [(10_000, 100, 100), (100_000, 1_000, 40), (10**6, 10**4, 3)]
    return {
        "confidence": CONFIDENCE,
        "compared": [compare(worlds, seed, processes, (rows, k)) for rows, k, worlds in settings],
    }


def section(results: Results) -> str:
    """Write the section."""
    lines = []
    for row in results["compared"]:
        for name, margin in row["certified"].items():
            errors = row["attacked"].get(name)
            cells = ("-", "-", "-")
            if errors:
                middle = float(np.median(errors))
                cells = (f"{middle:.4f}", f"{max(errors):.4f}", f"{margin / middle:.2f}")
            lines.append(
                (f"{row['rows']:,}", f"{row['queries']:,}", name, row["mechanism"][name], f"{margin:.4f}", *cells)
            )
    head = ("n", "k", "guarantee", "mechanism", "certified ±", "attacked: median", "worst world",
            "certified / attacked")  # fmt: skip
    absent = [name for name in ORDER if not any(name in row["certified"] for row in results["compared"])]
    counts = ", ".join(f"{row['worlds']} at n = {row['rows']:,}" for row in results["compared"])
    return (
        f"{table(head, lines)}\n\n"
        f"The largest error of all k answers, in worlds of fair coins ({counts}). A guarantee can be tightened by at"
        " most the last column before this attack breaks it in half of the worlds; it promises to be broken in at most"
        f" {100 * (1 - results['confidence']):.0f}% of them. Answers from fresh rows cannot be attacked;"
        " guarantees whose margin is half the range or more were not."
        f"{' No plan for these sizes at all: ' + ', '.join(absent) + '.' if absent else ''}"
    )


def panels(results: Results) -> list[Chart]:
    """Draw certified margins beside attacked errors."""
    drawn = []
    for row in results["compared"]:
        names = [name for name in row["certified"] if row["attacked"].get(name)]
        x = list(range(len(names)))
        errors = [row["attacked"][name] for name in names]
        middle = [float(np.median(each)) for each in errors]
        series = [
            Series("certified margin", x, [row["certified"][name] for name in names], style="coins", line=""),
            Series(
                "attacked: median, least and worst world", x, middle, [min(each) for each in errors],
                [max(each) for each in errors], style="naive", line="",
            ),
        ]  # fmt: skip
        title = f"n = {row['rows']:,}, k = {row['queries']:,}"
        drawn.append(Chart(title, "", "error", series, log="y", categories=names))
    return drawn


EXPERIMENT = Experiment("attacked", "Certified and attacked", run, section, panels)
