"""Sample complexity: the fewest rows on which a mechanism keeps its promise under attack, against k.

Noise of variance v in every answer hides the rows from an attack and makes answers worse at the same time. For k
questions on n rows a mechanism is given the v that makes the predicted largest error smallest:

    the larger of   z sqrt(v + 1/(4n))                        the luckiest of k honest answers
    and             Phi(s) - 1/2 + z' sqrt(v)                 the weighted attack, s = sqrt(k)/(2n)/sqrt(1/(4n) + v)

and then tried in real worlds, n by bisection, until at most a share beta of the worlds has an error above alpha.

The search uses the weighted attack. Whether that is the strongest is measured too: at the size found for exact answers
and for coins, every other analyst attacks the same mechanism.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from math import exp, log, sqrt

import numpy as np
from scipy.special import ndtr, ndtri

from holdfast.guarantees.mathematics import amplification
from holdfast.lab.analysts import ANALYSTS, Analyst, HillClimber, WeightedAttack, vote_strength
from holdfast.lab.attack import attack, in_parallel, run_world
from holdfast.lab.baselines import FullGaussian, FullLaplace, Naive, Releaser
from holdfast.lab.contenders import MechanismContender
from holdfast.lab.experiments.experiment import Experiment, Results, Size, slope, table
from holdfast.lab.plots import Panel, Series
from holdfast.mechanisms.coins import Coins
from holdfast.mechanisms.fresh_rows import FreshRows
from holdfast.mechanisms.laplace import Laplace

ALPHA, BETA = 0.2, 0.1
EXPECTED = {"naive": "1", "split": "1", "laplace": "1/2", "gaussian": "1/2", "a1": "1/2", "coins": "1/2"}
FAST = ("naive", "gaussian", "coins")  # the others take longer to simulate and stop at smaller k
NEAR = 1.08  # the bisection ends when the ratio of its ends is below this


# -- the search ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SizeGoal:
    """Error at most alpha in all k answers, in a share 1 - beta of the worlds."""

    mechanism: str
    alpha: float
    beta: float
    queries: int
    worlds: int
    seed: int


def tuned(mechanism: str, rows: int, queries: int, beta: float) -> tuple[Releaser, float]:
    """Return the mechanism with its best noise for this many rows and questions, and the error that predicts."""
    return TUNINGS[mechanism](rows, queries, beta)


def _naive(rows: int, queries: int, beta: float) -> tuple[Releaser, float]:
    return Naive(), float(ndtr(vote_strength(queries, rows))) - 0.5


def _split(rows: int, queries: int, beta: float) -> tuple[Releaser, float]:
    share = max(1, rows // queries)
    return FreshRows(draws=share, key=bytes(32)), float(ndtri(1 - beta / (2 * queries))) / sqrt(4 * share)


def _best_noise(rows: int, queries: int, beta: float, *, laplace_tail: bool = False) -> tuple[float, float]:
    """Return the variance of noise with the smallest predicted error, and that error."""
    many, one = float(ndtri(1 - beta / (2 * queries))), float(ndtri(1 - beta))
    noise = np.geomspace(1 / (400 * rows), 0.25, 200)
    answers = many * np.sqrt(noise + 1 / (4 * rows))
    if laplace_tail:
        answers = np.maximum(answers, np.sqrt(noise / 2) * log(queries / beta))
    attacked = ndtr(sqrt(queries) / (2 * rows) / np.sqrt(1 / (4 * rows) + noise)) - 0.5 + one * np.sqrt(noise)
    predicted = np.maximum(answers, attacked)
    best = int(np.argmin(predicted))
    return float(noise[best]), float(predicted[best])


def _coins(rows: int, queries: int, beta: float) -> tuple[Releaser, float]:
    noise, error = _best_noise(rows, queries, beta)
    return Coins(draws=max(1, round(1 / (4 * noise))), mass=1 / rows), error


def _gaussian(rows: int, queries: int, beta: float) -> tuple[Releaser, float]:
    noise, error = _best_noise(rows, queries, beta)
    return FullGaussian(sigma=sqrt(noise)), error


def _laplace(rows: int, queries: int, beta: float) -> tuple[Releaser, float]:
    noise, error = _best_noise(rows, queries, beta, laplace_tail=True)
    return FullLaplace(epsilon=1 / (rows * sqrt(noise / 2))), error


def _a1(rows: int, queries: int, beta: float) -> tuple[Releaser, float]:
    noise, error = _best_noise(rows, queries, beta, laplace_tail=True)
    # Half of the variance from drawing rows, half from the noise on them.
    draws = max(1, min(rows, round(1 / (2 * noise + 1 / rows))))
    on_drawn = 1 / (draws * sqrt(noise) / 2)
    return Laplace(draws=draws, epsilon=amplification.without_replacement(on_drawn, ell=draws, n=rows)), error


TUNINGS: Mapping[str, Callable[[int, int, float], tuple[Releaser, float]]] = {
    "naive": _naive,
    "split": _split,
    "laplace": _laplace,
    "gaussian": _gaussian,
    "a1": _a1,
    "coins": _coins,
}
# On fresh rows all analysts are alike, and the climber has the smallest table; the others meet the weighted attack.
ATTACKERS: Mapping[str, Callable[[int], Analyst]] = {"split": HillClimber}


def least_rows(goal: SizeGoal) -> Results:
    """Search for the fewest rows; keep every try."""
    tries: list[Results] = []

    @cache
    def holds(rows: int) -> bool:
        mechanism, _ = tuned(goal.mechanism, rows, goal.queries, goal.beta)
        analyst = ATTACKERS.get(goal.mechanism, WeightedAttack)(goal.queries)
        contender = MechanismContender(goal.mechanism, mechanism, goal.alpha, None)
        allowed, failed, errors = int(goal.beta * goal.worlds), 0, []
        for world in range(goal.worlds):
            seed = int(np.random.SeedSequence([goal.seed, rows, world]).generate_state(1)[0])
            error = float(run_world(contender, analyst, analyst.population(rows), rows, seed).errors.max())
            errors.append(round(error, 4))
            failed += error > goal.alpha
            if failed > allowed:
                break
        tries.append({"rows": rows, "holds": failed <= allowed, "errors": errors})
        return failed <= allowed

    start = predicted_rows(goal)
    low, high = start / 1.5, start * 1.3
    while not holds(round(high)):
        low, high = high, high * 1.7
    while low > 2 and holds(round(low)):
        low, high = low / 1.7, low
    while high / low > NEAR:
        middle = exp((log(low) + log(high)) / 2)
        low, high = (low, middle) if holds(round(middle)) else (middle, high)
    return {"mechanism": goal.mechanism, "queries": goal.queries, "rows": round(high), "tries": tries}


def predicted_rows(goal: SizeGoal) -> float:
    """Return the fewest rows with a predicted error of at most alpha."""
    low, high = 2.0, 1e8
    while high / low > 1.02:
        middle = exp((log(low) + log(high)) / 2)
        enough = tuned(goal.mechanism, round(middle), goal.queries, goal.beta)[1] <= goal.alpha
        low, high = (low, middle) if enough else (middle, high)
    return high


# -- the experiment -----------------------------------------------------------------------------------------------


def run(size: Size, seed: int, processes: int) -> Results:
    """Search for every mechanism and k."""
    if size == "small":
        goals = [SizeGoal(name, ALPHA, BETA, k, 10, seed) for k in (16, 128) for name in ("naive", "coins")]
    else:
        ks = (512, 256, 128, 64, 32)  # the longest first, so that no process is left with it at the end
        goals = [SizeGoal(name, ALPHA, BETA, k, 20, seed) for k in ks for name in TUNINGS if k < 512 or name in FAST]
    found = in_parallel(least_rows, goals, processes)
    return {
        "alpha": ALPHA,
        "beta": BETA,
        "worlds": goals[0].worlds,
        "found": found,
        "analysts": analysts_compared(found, size, seed, processes),
    }


def analysts_compared(found: list[Results], size: Size, seed: int, processes: int) -> list[Results]:
    """Let every analyst attack exact answers and coins, at the rows the weighted attack made necessary."""
    queries, worlds = (128, 6) if size == "small" else (256, 30)
    rows = {row["mechanism"]: row["rows"] for row in found if row["queries"] == queries}
    names = ["weighted", "harmless"] if size == "small" else list(ANALYSTS)
    cells = [(mechanism, rows[mechanism], queries, name) for mechanism in ("naive", "coins") for name in names]
    return in_parallel(partial(_largest_errors, worlds, seed), cells, processes)


def _largest_errors(worlds: int, seed: int, cell: tuple[str, int, int, str]) -> Results:
    mechanism, rows, queries, analyst = cell
    attacked, _ = tuned(mechanism, rows, queries, BETA)
    own_seed = int(np.random.SeedSequence([seed, list(ANALYSTS).index(analyst)]).generate_state(1)[0])
    report = attack(attacked, analyst, rows=rows, queries=queries, worlds=worlds, seed=own_seed)
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
        f"The promise: every answer is within {results['alpha']:g}, in a share {1 - results['beta']:g} of the worlds."
        f" Each size was tried in {results['worlds']} worlds, so a single number is good to about 30 %, and rather too"
        " small, since the search ends at the first lucky size. The analyst is the weighted attack. Mechanisms with"
        " noise were given, for each n and k, the amount that makes the predicted error smallest; the largest of k"
        " honest errors adds a factor sqrt(log k), or log k with Laplace noise, which bends the slopes upwards.\n\n"
        "Is that analyst the strongest? At the sizes found, every analyst against the same mechanism:\n\n"
        f"{_analysts_table(results)}"
    )


def _analysts_table(results: Results) -> str:
    """Write the largest error of a world for each analyst: its median, and how often the promise was broken."""
    columns = list(dict.fromkeys((row["mechanism"], row["rows"], row["queries"]) for row in results["analysts"]))
    cells: dict[str, list[str]] = {}
    for row in results["analysts"]:
        failed = sum(error > results["alpha"] for error in row["errors"])
        median = float(np.median(row["errors"]))
        cells.setdefault(row["analyst"], []).append(f"{median:.3f} (broken in {failed} of {len(row['errors'])})")
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
    return [Panel(f"Rows needed for a margin of {results['alpha']:g}", "questions k", "rows n", series, log="xy")]


SAMPLE_SIZE = Experiment("sample_size", "Rows needed under attack", run, section, panels)
