"""How many rows a mechanism really needs: the fewest on which it keeps a promise under the worst analyst here.

Noise of variance v in every answer hides the rows from an attack and makes answers worse at once. For k questions on n
rows a mechanism is given the v that makes the predicted worst error smallest:

    the larger of   z sqrt(v + 1/(4n))                        the luckiest of k honest answers
    and             Phi(s) - 1/2 + z' sqrt(v)                 the weighted attack, s = sqrt(k)/(2n)/sqrt(1/(4n) + v)

and then tried in real worlds, n by bisection, until at most a share beta of the worlds has an error above alpha.
"""

from dataclasses import dataclass
from functools import cache
from math import exp, log, sqrt

import numpy as np
from scipy.special import ndtr, ndtri

from holdfast.guarantees.mathematics import amplification
from holdfast.lab.analysts import Analyst, HillClimber, WeightedAttack
from holdfast.lab.baselines import FullGaussian, FullLaplace, Naive
from holdfast.lab.contenders import Bare
from holdfast.lab.experiments.base import Results
from holdfast.lab.world import run_world
from holdfast.mechanisms.base import Mechanism
from holdfast.mechanisms.coins import Coins
from holdfast.mechanisms.fresh_rows import FreshRows
from holdfast.mechanisms.laplace import Laplace

MECHANISMS = ("naive", "split", "laplace", "gaussian", "a1", "coins")
NEAR = 1.08  # the bisection ends when the ends are this close


@dataclass(frozen=True)
class Goal:
    """Error at most alpha in all k answers, in a share 1 - beta of the worlds."""

    mechanism: str
    alpha: float
    beta: float
    queries: int
    worlds: int
    seed: int


def tuned(mechanism: str, rows: int, queries: int, beta: float) -> tuple[Mechanism, float]:
    """Return the mechanism with its best noise for this many rows and questions, and the error that predicts."""
    many, one = float(ndtri(1 - beta / (2 * queries))), float(ndtri(1 - beta))
    if mechanism == "naive":
        return Naive(), float(ndtr(sqrt(queries / rows))) - 0.5
    if mechanism == "split":
        share = max(1, rows // queries)
        return FreshRows(draws=share, key=0), many / sqrt(4 * share)
    noise = np.geomspace(1 / (400 * rows), 0.25, 200)
    answers = many * np.sqrt(noise + 1 / (4 * rows))
    if mechanism in ("laplace", "a1"):  # the tail of Laplace noise is longer
        answers = np.maximum(answers, np.sqrt(noise / 2) * log(queries / beta))
    found = ndtr(sqrt(queries) / (2 * rows) / np.sqrt(1 / (4 * rows) + noise)) - 0.5 + one * np.sqrt(noise)
    predicted = np.maximum(answers, found)
    best = int(np.argmin(predicted))
    return _with_noise(mechanism, rows, float(noise[best])), float(predicted[best])


def _with_noise(mechanism: str, rows: int, noise: float) -> Mechanism:
    if mechanism == "coins":
        return Coins(draws=max(1, round(1 / (4 * noise))), flip_probability=1 / rows)
    if mechanism == "gaussian":
        return FullGaussian(sigma=sqrt(noise))
    if mechanism == "laplace":
        return FullLaplace(epsilon=1 / (rows * sqrt(noise / 2)))
    # A1: half of the variance from drawing rows, half from the noise on them.
    draws = max(1, min(rows, round(1 / (2 * noise + 1 / rows))))
    on_drawn = 1 / (draws * sqrt(noise) / 2)
    return Laplace(draws=draws, epsilon=amplification.without_replacement(on_drawn, ell=draws, n=rows))


def worst_analyst(mechanism: str, queries: int) -> Analyst:
    """The weighted attack; on fresh rows all analysts are alike, and the climber needs the smallest table."""
    return HillClimber(queries) if mechanism == "split" else WeightedAttack(queries)


def least_rows(goal: Goal) -> Results:
    """Search for the fewest rows; every try is kept."""
    tries: list[Results] = []

    @cache
    def holds(rows: int) -> bool:
        mechanism, _ = tuned(goal.mechanism, rows, goal.queries, goal.beta)
        analyst = worst_analyst(goal.mechanism, goal.queries)
        contender = Bare(goal.mechanism, mechanism, goal.alpha, None)
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

    start = _predicted_rows(goal)
    low, high = start / 1.5, start * 1.3
    while not holds(round(high)):
        low, high = high, high * 1.7
    while low > 2 and holds(round(low)):
        low, high = low / 1.7, low
    while high / low > NEAR:
        middle = exp((log(low) + log(high)) / 2)
        low, high = (low, middle) if holds(round(middle)) else (middle, high)
    return {"mechanism": goal.mechanism, "queries": goal.queries, "rows": round(high), "tries": tries}


def _predicted_rows(goal: Goal) -> float:
    low, high = 2.0, 1e8
    while high / low > 1.02:
        middle = exp((log(low) + log(high)) / 2)
        enough = tuned(goal.mechanism, round(middle), goal.queries, goal.beta)[1] <= goal.alpha
        low, high = (low, middle) if enough else (middle, high)
    return high
