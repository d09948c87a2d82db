"""Twenty losses in a row, each depending on the earlier answers: do all intervals and excess bounds hold at once?

In every world the rows are fresh: p independent fair signs and a target that is another one, so the population's best
weights are 0 and the loss at w is (1 + |w|^2)/2, the excess |w|^2/2. Nineteen losses look at one column each; the last
one adds the columns up with the signs that were found, the best of sign attacks. A world fails if any of its forty
statements is wrong. The promise is at most 5% of worlds: the number of failures among W is compared with the binomial
law, one-sided, with FALSE_ALARM. Intervals and bounds that forget how far a population may be from its rows fail.
"""

import numpy as np
import pytest
from scipy.stats import binom

import holdfast as hf
from holdfast.guarantees.exchange import Exchange
from holdfast.questions import minimize as questions

FALSE_ALARM, WORLDS, N, LOSSES = 1e-6, 200, 2_000, 20


@pytest.fixture(autouse=True)
def every_bound_is_stated(monkeypatch):
    """Also those that say no more than the loss itself, which are usually left out."""
    located = questions.located
    monkeypatch.setattr(questions, "located", lambda fit, found, _, guarantee: located(fit, found, np.inf, guarantee))


def world(seed: int) -> bool:
    """Ask all losses of one world; return whether every statement was right."""
    rng = np.random.default_rng(seed)
    data = {f"x{j}": rng.choice([-1.0, 1.0], N) for j in range(LOSSES - 1)} | {"y": rng.choice([-1.0, 1.0], N)}
    options = {"radius": 0.5, "iterations": 12, "rows_per_coordinate": 20}
    right = True
    with hf.Session(data, queries=60, guarantee="exchange", seed=seed) as session:
        signs = []
        for j in range(LOSSES - 1):
            answer = session.minimize(loss(f"x{j}", (-1, 1)), **options)
            signs.append(1 if answer.point[0] > 0 else -1)
            right &= holds(answer, answer.point[0] ** 2)
        text = " + ".join(f"{sign} * x{j}" for j, sign in enumerate(signs))
        answer = session.minimize(loss(text, (-(LOSSES - 1), LOSSES - 1)), **options)
        right &= holds(answer, answer.point[0] ** 2 / (LOSSES - 1))
    return bool(right)


def loss(feature: str, bounds: tuple[int, int]) -> hf.losses.Squared:
    return hf.losses.Squared({feature: bounds}, "y", target_within=(-1, 1), intercept=False)


def holds(answer: hf.MinimumAnswer, explained: float) -> bool:
    """Compare with the population: `explained` is the variance of the prediction, which is pure error here."""
    inside = answer.loss.low <= (1 + explained) / 2 <= answer.loss.high
    return inside and explained / 2 <= answer.excess_bound


def failures(worlds: int, seed: int) -> int:
    return sum(not world(seed + i) for i in range(worlds))


@pytest.mark.slow
def test_everything_holds_at_once(seed):
    assert binom.sf(failures(WORLDS, seed) - 1, WORLDS, 0.05) >= FALSE_ALARM


def test_intervals_that_forget_the_population_are_caught(seed, monkeypatch):
    by_the_terms = Exchange.__init__

    def forgetful(self, terms, *place):
        by_the_terms(self, terms, *place)
        self._j, self.level = 0.0, 0.36

    monkeypatch.setattr(Exchange, "__init__", forgetful)
    assert binom.sf(failures(8, seed) - 1, 8, 0.05) < FALSE_ALARM
