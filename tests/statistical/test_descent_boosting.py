"""Is the chosen run as near to the best as stated?  Seeded.

Candidates at distance 0, .25, .5, ... from the best. `loss(beta)` bounds how far the chosen one is behind the best on
the rows, but for chance beta: failures in R choices are compared with the binomial law, one-sided. Choosing the worst
is caught: the bound is a fraction of the candidates' spread here.
"""

import numpy as np
import pytest
from scipy.stats import binom

import holdfast as hf
from holdfast.lab.baselines import FullGradient
from holdfast.optimize.descent import CoinChoice, Contest, ExponentialChoice
from holdfast.optimize.objective import Box, OwnObjective
from own_losses import MeanLoss, uniform_table
from plain_query import rows_of

FALSE_ALARM, R, N, BETA = 1e-6, 60, 5_000, 0.1
DOMAIN = Box((-1.0,), (1.0,))
POINTS = [np.array([x]) for x in np.linspace(-1, 1, 9)]


def setting():
    source = hf.open(uniform_table(N, 1, 2))
    objective = OwnObjective.of(MeanLoss(("x0",)), source.schema, DOMAIN)
    rows = rows_of(source)
    losses = np.array([objective.values(rows, point).mean() for point in POINTS])
    return source, Contest(objective, DOMAIN), losses


CHOICES = {
    "coins": lambda contest: CoinChoice(contest, len(POINTS), 4_000, 0.01),
    "exponential": lambda contest: ExponentialChoice(contest, len(POINTS), 2_000, 0.05, N),
}


def near_enough(kind: str, seed: int, choose=None) -> bool:
    source, contest, losses = setting()
    choice, rng = CHOICES[kind](contest), np.random.default_rng(seed)
    assert choice.loss(BETA) < losses.max() - losses.min()  # or nothing could be caught
    pick = choose or (lambda: choice.choose(POINTS, source, rng))
    behind = np.array([losses[pick()] for _ in range(R)]) - losses.min()
    failures = int((behind > choice.loss(BETA)).sum())
    likely = binom.sf(failures - 1, R, BETA) >= FALSE_ALARM
    return bool(likely and behind.mean() <= choice.loss())


@pytest.mark.parametrize("kind", CHOICES)
def test_the_chosen_run_is_near_the_best(kind, seed):
    assert near_enough(kind, seed)


@pytest.mark.parametrize("kind", CHOICES)
def test_choosing_the_worst_is_caught(kind, seed):
    assert not near_enough(kind, seed, lambda: 0)


def test_previous_work_reads_every_row_at_every_step(seed):
    source, contest, _ = setting()
    exact = FullGradient(contest.objective, N)
    point = np.array([0.25])
    mean = rows_of(source)["x0"].mean()
    assert exact(point, source, np.random.default_rng(seed)) == pytest.approx([0.25 - mean])
    assert exact.rows_read == exact.evaluations == N
    assert exact.charge == 0  # nothing protects it, and nothing is charged
    noisy = FullGradient(contest.objective, N, sigma=0.05)
    assert noisy.charge == 100  # 1/(4 sigma^2)
    assert noisy.largest is None
