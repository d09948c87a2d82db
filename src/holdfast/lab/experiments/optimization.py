"""Section 6 of the paper: how often gradients are evaluated to answer k optimization queries.

The paper's claim: O(kd/alpha^2) answers to gradient coordinates for convex losses, O(kd/alpha) for strongly convex
ones, where previous work makes O(k d n^2) evaluations. Three measurements:

computed    what the theorems require, their constants repaired: answers, rows evaluated, against k, d and alpha
measured    descent on losses that are as hard as possible at each alpha; the fewest steps whose excess over the
            population, averaged over worlds, is at most alpha
boosting    how often one run is worse than twice alpha, and how often the best of several runs is

The losses. Convex: -<x, s>/d for signs s of mean 2 alpha over the box [-1, 1]^d. It is linear, so without knowing the
sign of the mean the excess is above alpha; learning the sign takes 1/alpha^2 looks. Strongly convex: |x - s|^2/(2d) for
signs of mean 0.6, which must be known to within sqrt(alpha).
"""

from dataclasses import dataclass
from functools import partial
from math import ceil, sqrt
from typing import Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.guarantees.mathematics import sizes
from holdfast.lab.attack import in_parallel
from holdfast.lab.baselines import FullGradient
from holdfast.lab.experiments import Experiment, Results, Size, short, slope, table
from holdfast.lab.plots import Chart, Series, guide
from holdfast.optimize.descent import CoinChoice, Contest, Descent
from holdfast.optimize.gradient import CoinGradient
from holdfast.optimize.losses import Loss
from holdfast.optimize.objective import Box, OwnObjective
from holdfast.rows.memory import memory_rows

KINDS = ("convex", "strongly convex")
BETA, K, D, ALPHA = 0.05, 1_000, 10, 0.1
ROWS, MASS, RUNS = 20_000, 1e-3, 6
STEP = 1.25  # the search ends when the sufficient and the insufficient number of steps are within this factor
EXPECTED = {"convex": -2, "strongly convex": -1}
TRIED = {"convex": (0.2, 0.1, 0.07, 0.05), "strongly convex": (0.1, 0.05, 0.025, 0.0125)}  # near 1, every loss is easy
FAR = 0.6  # the mean of the signs of the strongly convex loss
STYLE = {"convex": "naive", "strongly convex": "coins", "previous work": "laplace"}


@dataclass(frozen=True)
class Signs:
    """One of the two losses, in d dimensions."""

    dimension: int
    strong: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """The signs."""
        return tuple(f"s{j}" for j in range(self.dimension))

    @property
    def curvature(self) -> float:
        """1/d, if strongly convex."""
        return 1 / self.dimension if self.strong else 0.0

    @property
    def gradient_range(self) -> tuple[float, float]:
        """The range of one gradient coordinate."""
        most = (2 if self.strong else 1) / self.dimension
        return -most, most

    @property
    def value_range(self) -> tuple[float, float]:
        """The range of a row's loss on the box."""
        return (0.0, 2.0) if self.strong else (-1.0, 1.0)

    def values(self, rows: pl.DataFrame, point: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return one loss per row."""
        signs = rows.to_numpy()
        if self.strong:
            squared: NDArray[np.float64] = ((point - signs) ** 2).sum(axis=1) / (2 * self.dimension)
            return squared
        linear: NDArray[np.float64] = -(signs @ point) / self.dimension
        return linear

    def gradients(self, rows: pl.DataFrame, point: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return one gradient per row."""
        signs = rows.to_numpy()
        lines: NDArray[np.float64] = ((point - signs) if self.strong else -signs) / self.dimension
        return lines

    def excess(self, point: NDArray[np.float64], mean: float) -> float:
        """Return how far the population's loss is above its minimum, for signs of this mean."""
        if self.strong:
            return float(((point - mean) ** 2).sum()) / (2 * self.dimension)
        return float((abs(mean) - mean * point).sum()) / self.dimension


def descents(kind: str, d: int, alpha: float, seed: int) -> tuple[Signs, float, OwnObjective, Any, Any]:
    """Return a world: loss, mean of its signs, objective, rows, and a generator."""
    loss = Signs(d, kind != "convex")
    mean = FAR if loss.strong else 2 * alpha
    rng = np.random.default_rng([seed, d, round(1e6 * alpha), loss.strong])
    signs = np.where(rng.random((ROWS, d)) < (1 + mean) / 2, 1.0, -1.0)
    source = memory_rows({name: signs[:, j].copy() for j, name in enumerate(loss.columns)})
    return loss, mean, OwnObjective.of(cast(Loss, loss), source.schema, _box(d)), source, rng


def _box(d: int) -> Box:
    return Box((-1.0,) * d, (1.0,) * d)


def excess_of(kind: str, d: int, alpha: float, steps: int, world: int, *, full: bool = False, runs: int = 1) -> float:
    """Run descent in one world; return the excess on the population of the run, or of the best run chosen by coins."""
    loss, mean, objective, source, rng = descents(kind, d, alpha, world)
    oracle: Any = FullGradient(objective, ROWS, sigma=0.5 / sqrt(ROWS)) if full else CoinGradient(objective, 1, MASS)
    descent = Descent(objective, _box(d), oracle, steps)
    points = [descent.run(source, rng).point for _ in range(runs)]
    best = 0
    if runs > 1:
        draws = ceil(4 / alpha**2)
        best = CoinChoice(Contest(objective, _box(d)), runs, draws, MASS).choose(points, source, rng)
    return loss.excess(points[best], mean)


def fewest_steps(worlds: int, seed: int, cell: tuple[str, int, float, bool]) -> Results:
    """Search for the fewest steps with an average excess of at most alpha."""
    kind, d, alpha, full = cell

    def average(steps: int) -> float:
        tried = [excess_of(kind, d, alpha, steps, seed * 10_000 + world, full=full) for world in range(worlds)]
        return float(np.mean(tried))

    low, high = 0, 1
    while average(high) > alpha:
        low, high = high, 2 * high
    while high / max(low, 1) > STEP and high - low > 1:
        middle = round(sqrt(max(low, 1) * high))
        middle = min(max(middle, low + 1), high - 1)
        low, high = (low, middle) if average(middle) <= alpha else (middle, high)
    rows = ROWS if full else 1
    return {"kind": kind, "d": d, "alpha": alpha, "full": full, "steps": high, "too_few": low,
            "evaluations": high * d * rows}  # fmt: skip


def boosted(worlds: int, seed: int, kind: str) -> Results:
    """Count how often one run, and the best of RUNS runs, has an excess above twice alpha."""
    alpha = TRIED[kind][1]
    steps = fewest_steps(max(4, worlds // 4), seed, (kind, 2, alpha, False))["steps"]
    shares = {
        str(runs): sum(
            excess_of(kind, 2, alpha, steps, seed * 20_000 + world, runs=runs) > 2 * alpha for world in range(worlds)
        )
        for runs in (1, RUNS)
    }
    return {"kind": kind, "alpha": alpha, "steps": steps, "worlds": worlds, "bad": shares}


def required(kind: str, k: int, d: int, alpha: float) -> Results:
    """Return what the theorems require for these losses, with repaired constants."""
    loss = Signs(d, kind != "convex")
    low, high = loss.gradient_range
    norm = sqrt(d) * high
    numbers = {
        "d": d,
        "diameter": 2 * sqrt(d),
        "gradient": norm,
        "width": high - low,
        "spread": 2.0,
        "strong": loss.curvature,
    }
    once = sizes.descent(alpha, k, **numbers)  # type: ignore[arg-type]
    best = sizes.boosted_descent(alpha, BETA, k, **numbers)  # type: ignore[arg-type]
    before = sizes.full_gradient_descent(alpha, k, **numbers)  # type: ignore[arg-type]
    return {
        "kind": kind,
        "queries": k,
        "d": d,
        "alpha": alpha,
        "answers": k * once.steps * d,
        "rows": once.n,
        "evaluated": k * once.steps * d * once.ell,
        "boosted answers": k * (best.runs * best.steps * d + 1),
        "boosted rows": best.n,
        "previous rows": before.n,
        "previous evaluated": k * d * float(before.n) ** 2,
    }


def run(size: Size, seed: int, processes: int) -> Results:
    """Compute, measure, boost."""
    small = size == "small"
    worlds, many, ds = (4, 2, (2, 4)) if small else (30, 4, (2, 4, 8, 16))
    cells = [(kind, 2, alpha, False) for kind in KINDS for alpha in TRIED[kind][:many]]
    cells += [(kind, d, TRIED[kind][1], False) for kind in KINDS for d in ds if d != 2]
    cells += [(kind, 2, alpha, True) for kind in KINDS for alpha in TRIED[kind][:2]]
    cells.sort(key=lambda cell: (cell[0], cell[2] / cell[1]))  # the longest first
    by_k = [required(kind, k, D, ALPHA) for kind in KINDS for k in (100, 1_000, 10_000, 100_000)]
    by_d = [required(kind, K, d, ALPHA) for kind in KINDS for d in (5, 10, 20, 50, 100)]
    by_alpha = [required(kind, K, D, alpha) for kind in KINDS for alpha in (0.2, 0.1, 0.05, 0.02, 0.01)]
    return {
        "worlds": worlds,
        "rows": ROWS,
        "by_queries": by_k,
        "by_dimension": by_d,
        "by_alpha": by_alpha,
        "measured": in_parallel(partial(fewest_steps, worlds, seed), cells, processes),
        "boosting": in_parallel(partial(boosted, 20 if small else 200, seed), KINDS, processes),
    }


def slopes(results: Results) -> dict[str, dict[str, float]]:
    """Return, for each kind, the slopes of the answers required and of the evaluations measured."""
    found: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        over: dict[str, float] = {}
        for name, where in (("queries", "by_queries"), ("d", "by_dimension"), ("alpha", "by_alpha")):
            rows = [row for row in results[where] if row["kind"] == kind]
            over[f"{name}: required"] = slope([row[name] for row in rows], [row["answers"] for row in rows])
            over[f"{name}: previous"] = slope([row[name] for row in rows], [row["previous evaluated"] for row in rows])
        for name in ("alpha", "d"):
            rows = _measured(results, kind, name)
            over[f"{name}: measured"] = slope([row[name] for row in rows], [row["evaluations"] for row in rows])
        found[kind] = over
    return found


def _measured(results: Results, kind: str, over: str) -> list[Results]:
    """Return what was measured over alpha, in two dimensions, or over d, at the alpha tried in most of them."""
    ours = [row for row in results["measured"] if row["kind"] == kind and not row["full"]]
    most = max({row["alpha"] for row in ours}, key=lambda a: sum(row["alpha"] == a for row in ours))
    rows = [row for row in ours if (row["d"] == 2 if over == "alpha" else row["alpha"] == most)]
    return sorted(rows, key=lambda row: float(row[over]))


def section(results: Results) -> str:
    """Write the section."""
    found = slopes(results)
    head = ("calls to the gradient", "k: paper", "required", "d: paper", "required", "measured", "α: paper", "required",
            "measured")  # fmt: skip
    lines: list[tuple[object, ...]] = [
        (kind, 1, f"{found[kind]['queries: required']:.2f}", 1, f"{found[kind]['d: required']:.2f}",
         f"{found[kind]['d: measured']:.2f}", EXPECTED[kind], f"{found[kind]['alpha: required']:.2f}",
         f"{found[kind]['alpha: measured']:.2f}")
        for kind in KINDS
    ]  # fmt: skip
    lines.append(
        ("previous work, convex (k d n²)", "2", f"{found['convex']['queries: previous']:.2f}", "-",
         f"{found['convex']['d: previous']:.2f}", "-", "-", f"{found['convex']['alpha: previous']:.2f}", "-")
    )  # fmt: skip
    at = [row for row in results["by_alpha"] if row["alpha"] == ALPHA]
    needs = [
        (row["kind"], short(row["answers"]), short(row["rows"]), short(row["boosted answers"]),
         short(row["boosted rows"]), short(row["previous rows"]), short(row["previous evaluated"]))
        for row in at
    ]  # fmt: skip
    heads = (f"k = {K:,}, d = {D}, α = {ALPHA:g}", "answers", "rows", "boosted: answers", "rows",
             "previous work: rows", "evaluations k d n²")  # fmt: skip
    tried = sorted(results["measured"], key=lambda row: (row["kind"], row["full"], row["d"], -row["alpha"]))
    measured = [
        (row["kind"] + (", all rows" if row["full"] else ""), row["d"], f"{row['alpha']:g}", f"{row['steps']:,}",
         short(row["evaluations"]))
        for row in tried
    ]  # fmt: skip
    boosting = [
        (row["kind"], f"{row['alpha']:g}", row["steps"],
         *(f"{row['bad'][str(runs)]} of {row['worlds']}" for runs in (1, RUNS)))
        for row in results["boosting"]
    ]  # fmt: skip
    return (
        f"{table(head, lines)}\n\n"
        "Slopes on log axes. A call is one answer to one coordinate of a gradient; the paper counts these. What the"
        " theorems require, constants repaired (in expectation; boosted: all at once, β ="
        f" {BETA:g}):\n\n{table(heads, needs)}\n\n"
        f"Measured: the fewest steps whose excess over the population is at most α, averaged over {results['worlds']}"
        f" worlds of {results['rows']:,} rows, with one coin for each coordinate and step, on losses that are as hard"
        ' as they can be at that α. "All rows" is previous work\'s full gradient with noise, every row at every'
        f" step:\n\n{table(('', 'd', 'α', 'steps', 'rows evaluated'), measured)}\n\n"
        f"Boosting: worlds in which the excess is above 2α, for one run and for the best of {RUNS} by a coin"
        f" estimate:\n\n{table(('', 'α', 'steps', 'one run', f'best of {RUNS}'), boosting)}\n\n"
        "Previous work asks that the loss of a row be bounded; the paper, and this code, only that its gradient is."
        " On a domain of diameter D a gradient of norm at most G bounds what matters, the difference of a row's losses"
        " at two points, by G D, however large the losses themselves are: that difference is the R of every theorem"
        " here. Only the last question, the interval of the loss itself, needs its range."
    )


def panels(results: Results) -> list[Chart]:
    """Draw what was measured over alpha and over d, and what is required over alpha."""
    drawn = []
    for over, label in (("alpha", "excess α"), ("d", "dimension d")):
        series = []
        for kind in KINDS:
            rows = _measured(results, kind, over)
            y = [row["evaluations"] for row in rows]
            low = [max(1, row["too_few"]) * row["d"] for row in rows]
            one = Series(kind, [row[over] for row in rows], y, low, y, style=STYLE[kind], bars=True)
            expected = EXPECTED[kind] if over == "alpha" else 1
            series += [one, guide(f"slope {expected}", one, expected)]
        drawn.append(Chart("Measured", label, "rows evaluated for one query", series, log="xy"))
    required_series = []
    for kind in KINDS:
        rows = [row for row in results["by_alpha"] if row["kind"] == kind]
        x = [row["alpha"] for row in rows]
        one = Series(kind, x, [row["answers"] for row in rows], style=STYLE[kind])
        required_series += [one, guide(f"slope {EXPECTED[kind]}", one, EXPECTED[kind])]
    rows = [row for row in results["by_alpha"] if row["kind"] == "convex"]
    required_series.append(
        Series("previous work (k d n²)", [row["alpha"] for row in rows], [row["previous evaluated"] for row in rows],
               style="laplace")
    )  # fmt: skip
    drawn.append(Chart(f"Required by the theorems, k = {K:,}, d = {D}", "excess α", "calls", required_series, log="xy"))
    return drawn


EXPERIMENT = Experiment("optimization", "Convex optimization (Section 6)", run, section, panels)
