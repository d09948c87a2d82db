"""Sample complexity: the fewest rows on which a mechanism keeps its promise under attack, against k.

Noise of variance v in every answer hides the rows from an attack and makes answers worse at the same time. For k
questions on n rows a mechanism is given the v that makes the predicted largest error smallest:

    the larger of   z sqrt(v + 1/(4n))                        the luckiest of k honest answers
    and             Phi(s) - 1/2 + z' sqrt(v)                 the weighted attack, s = sqrt(k)/(2n)/sqrt(1/(4n) + v)

and is then tried in simulated worlds, with n found by bisection, until at most a share beta of the worlds has an error
above alpha. A search tends to end at a lucky size, so that size is tried again in many fresh worlds, and raised until
it holds there.

The search uses the strongest attack known against each mechanism. Whether another is stronger is measured too: at the
size found for exact answers and for coins, every other analyst attacks the same mechanism.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from math import exp, log, sqrt

import numpy as np
from scipy.special import ndtr, ndtri

from holdfast.guarantees.mathematics import privacy
from holdfast.lab.analysts import ANALYSTS, Analyst, HillClimber, PersistentAttack, WeightedAttack, vote_strength
from holdfast.lab.attack import attack, in_parallel, run_world
from holdfast.lab.baselines import FullGaussian, FullLaplace, Naive, Releaser
from holdfast.lab.contenders import MechanismContender
from holdfast.lab.experiments import Experiment, Results, Size, slope, table
from holdfast.lab.plots import Chart, Series, guide
from holdfast.mechanisms.coins import Coins
from holdfast.mechanisms.fresh_rows import FreshRows
from holdfast.mechanisms.noisy_means import Laplace

ALPHA, BETA, MIDDLE = 0.2, 0.1, 64
EXPECTED = {"naive": "1", "split": "1", "laplace": "1/2", "gaussian": "1/2", "a1": "1/2", "coins": "1/2"}
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
    fresh: int  # fresh worlds in which the size found is tried again
    seed: int


def tuned(mechanism: str, rows: int, queries: int, beta: float) -> tuple[Releaser, float]:
    """Return the mechanism with its best noise for this many rows and questions, and the error predicted for it."""
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
    return Laplace(draws=draws, epsilon=privacy.without_replacement(on_drawn, ell=draws, n=rows)), error


TUNINGS: Mapping[str, Callable[[int, int, float], tuple[Releaser, float]]] = {
    "naive": _naive,
    "split": _split,
    "laplace": _laplace,
    "gaussian": _gaussian,
    "a1": _a1,
    "coins": _coins,
}
# On fresh rows all analysts are equally strong, and the climber's table is the smallest; exact answers do not change
# when asked again, so the weighted attack suffices; all other mechanisms face the persistent attack.
ATTACKERS: Mapping[str, Callable[[int], Analyst]] = {"split": HillClimber, "naive": WeightedAttack}


def least_rows(goal: SizeGoal) -> Results:
    """Search for the fewest rows; try them again in fresh worlds, and raise them until they hold there."""
    tries: list[Results] = []

    @cache
    def holds(rows: int) -> bool:
        errors = _errors(goal, rows, goal.worlds, 0)
        failed = sum(error > goal.alpha for error in errors)
        tries.append({"rows": rows, "holds": failed <= goal.beta * goal.worlds, "errors": errors})
        return failed <= goal.beta * goal.worlds

    start = predicted_rows(goal)
    low, high = start / 1.5, start * 1.3
    while not holds(round(high)):
        low, high = high, high * 1.7
    while low > 2 and holds(round(low)):
        low, high = low / 1.7, low
    while high / low > NEAR:
        middle = exp((log(low) + log(high)) / 2)
        low, high = (low, middle) if holds(round(middle)) else (middle, high)
    again: list[Results] = []
    while not again or again[-1]["failed"] > goal.beta * goal.fresh:
        rows = round(high * NEAR ** len(again))
        failed = sum(error > goal.alpha for error in _errors(goal, rows, goal.fresh, 1))
        again.append({"rows": rows, "failed": failed, "worlds": goal.fresh})
    failing = [one["rows"] for one in again[:-1]] or [one["rows"] for one in tries if not one["holds"]]
    return {
        "mechanism": goal.mechanism,
        "alpha": goal.alpha,
        "queries": goal.queries,
        "rows": again[-1]["rows"],
        "too_few": max((rows for rows in failing if rows < again[-1]["rows"]), default=2),
        "tries": tries,
        "again": again,
    }


def _errors(goal: SizeGoal, rows: int, worlds: int, stage: int) -> list[float]:
    """Return the largest error of each world; in the search (stage 0), stop at the world that decides."""
    mechanism, _ = tuned(goal.mechanism, rows, goal.queries, goal.beta)
    analyst = ATTACKERS.get(goal.mechanism, PersistentAttack)(goal.queries)
    contender = MechanismContender(goal.mechanism, mechanism, goal.alpha, None)
    errors: list[float] = []
    for world in range(worlds):
        seed = int(np.random.SeedSequence([goal.seed, rows, world, stage]).generate_state(1)[0])
        error = float(run_world(contender, analyst, analyst.population(rows), rows, seed).errors.max())
        errors.append(round(error, 4))
        if stage == 0 and sum(each > goal.alpha for each in errors) > goal.beta * worlds:
            break
    return errors


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
    """Search for every mechanism, k and margin, with the same ks for all, so that slopes can be compared."""
    if size == "small":
        names, worlds, fresh = ["naive", "coins"], 10, 20
        cells = [(ALPHA, 128), (ALPHA, 16), (0.3, 16)]
    else:
        names, worlds, fresh = list(TUNINGS), 20, 100
        cells = [(ALPHA, k) for k in (256, 128, 64, 32)] + [(alpha, MIDDLE) for alpha in (0.1, 0.15, 0.3)]
    # Longest first, so that the last process to finish is not stuck with a long one.
    goals = [SizeGoal(name, alpha, BETA, k, worlds, fresh, seed) for alpha, k in cells for name in names]
    found = in_parallel(least_rows, goals, processes)
    return {
        "alpha": ALPHA,
        "beta": BETA,
        "worlds": worlds,
        "fresh": fresh,
        "found": found,
        "analysts": analysts_compared(found, size, seed, processes),
    }


def analysts_compared(found: list[Results], size: Size, seed: int, processes: int) -> list[Results]:
    """Let every analyst attack exact answers and coins, at the numbers of rows that the search found."""
    queries, worlds = (128, 6) if size == "small" else (256, 30)
    rows = {row["mechanism"]: row["rows"] for row in found if (row["queries"], row["alpha"]) == (queries, ALPHA)}
    names = ["weighted", "persistent", "harmless"] if size == "small" else list(ANALYSTS)
    cells = [(mechanism, rows[mechanism], queries, name) for mechanism in ("naive", "coins") for name in names]
    return in_parallel(partial(_largest_errors, worlds, seed), cells, processes)


def _largest_errors(worlds: int, seed: int, cell: tuple[str, int, int, str]) -> Results:
    mechanism, rows, queries, analyst = cell
    attacked, _ = tuned(mechanism, rows, queries, BETA)
    own_seed = int(np.random.SeedSequence([seed, list(ANALYSTS).index(analyst)]).generate_state(1)[0])
    report = attack(attacked, analyst, rows=rows, queries=queries, worlds=worlds, seed=own_seed)
    errors = [round(float(error), 4) for error in report.largest]
    return {"mechanism": mechanism, "rows": rows, "queries": queries, "analyst": analyst, "errors": errors}


def slopes(results: Results) -> dict[str, tuple[float, float]]:
    """Return each mechanism's slope of rows over questions, at the default margin, and its slope over the margin."""
    found = {}
    for name in dict.fromkeys(row["mechanism"] for row in results["found"]):
        rows = [row for row in results["found"] if row["mechanism"] == name]
        in_k = [row for row in rows if row["alpha"] == results["alpha"]]
        in_alpha = [row for row in rows if row["queries"] == _middle(results)]
        found[name] = (
            slope([row["queries"] for row in in_k], [row["rows"] for row in in_k]),
            slope([row["alpha"] for row in in_alpha], [row["rows"] for row in in_alpha]),
        )
    return found


def _middle(results: Results) -> int:
    """Return the number of questions at which several margins were tried."""
    (k,) = {row["queries"] for row in results["found"] if row["alpha"] != results["alpha"]}
    return int(k)


def section(results: Results) -> str:
    """Write the section."""
    ks = sorted({row["queries"] for row in results["found"] if row["alpha"] == results["alpha"]})
    alphas = sorted({row["alpha"] for row in results["found"]}, reverse=True)
    cells = {(row["mechanism"], row["alpha"], row["queries"]): f"{row['rows']:,}" for row in results["found"]}
    found, middle = slopes(results), _middle(results)
    by_k = [
        (name, *(cells[name, results["alpha"], k] for k in ks), f"{found[name][0]:.2f}", EXPECTED[name])
        for name in found
    ]
    by_alpha = [
        (name, *(cells[name, alpha, middle] for alpha in alphas), f"{found[name][1]:.2f}", "-2") for name in found
    ]
    broken = max(row["again"][-1]["failed"] for row in results["found"])
    raised = sum(len(row["again"]) > 1 for row in results["found"])
    return (
        f"{table((f'rows needed, α = {ALPHA:g}', *(f'k = {k:,}' for k in ks), 'slope in k', 'theory'), by_k)}\n\n"
        f"{table((f'k = {middle:,}', *(f'α = {a:g}' for a in alphas), 'slope in α', 'theory'), by_alpha)}\n\n"
        f"The promise: every answer is within α, in a share {1 - results['beta']:g} of the worlds. Sizes were searched"
        f" in {results['worlds']} worlds each; since a search ends at the first lucky size, each was then tried in"
        f" {results['fresh']} fresh worlds and raised by {100 * (NEAR - 1):.0f}% until at most"
        f" {results['beta'] * results['fresh']:.0f} of them were broken (at most {broken} are; {raised} of"
        f" {len(results['found'])} sizes had to be raised). Noisy answers met the persistent attack, exact ones the"
        " weighted one. Mechanisms with noise were given, for each n and k, the amount that makes the predicted error"
        " smallest; the largest of k honest errors adds a factor sqrt(log k), or log k with Laplace noise, which bends"
        " the slopes upwards. Bars reach down to the largest size that was found to be too small.\n\n"
        "Is there a stronger analyst? At the sizes found, every analyst against the same mechanism:\n\n"
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


def panels(results: Results) -> list[Chart]:
    """Draw rows over questions and over margins, with bars and slopes to compare with."""
    drawn = []
    for over, x_label, fixed in (
        ("queries", "questions k", ("alpha", results["alpha"])),
        ("alpha", "margin α", ("queries", _middle(results))),
    ):
        series = []
        for name in dict.fromkeys(row["mechanism"] for row in results["found"]):
            rows = [row for row in results["found"] if (row["mechanism"], row[fixed[0]]) == (name, fixed[1])]
            rows.sort(key=lambda row: float(row[over]))
            x, y = [row[over] for row in rows], [row["rows"] for row in rows]
            series.append(Series(name, x, y, [row["too_few"] for row in rows], y, bars=True))
        naive, coins = (next(one for one in series if one.label == name) for name in ("naive", "coins"))
        if over == "queries":
            series += [guide("slope 1", naive, 1.0), guide("slope 1/2", coins, 0.5)]
            title = f"Rows needed for a margin of {results['alpha']:g}"
        else:
            series += [guide("slope -2", coins, -2.0)]
            title = f"Rows needed for {fixed[1]:,} questions"
        drawn.append(Chart(title, x_label, "rows n", series, log="xy"))
    return drawn


EXPERIMENT = Experiment("sample_size", "Rows needed under attack", run, section, panels)
