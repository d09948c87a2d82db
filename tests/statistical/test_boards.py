"""Known attacks on leaderboards, against boards: 200 worlds each.  Seeded.

1,000 rows with fair labels that nothing predicts: every submission is right in half of all cases. *Boosting* submits
random guesses; those that were told to be better vote. *Hill climbing* changes the best so far on some rows, again and
again, and keeps what is told to be better. Both climb on the sealed rows, and in the population not at all: intervals
must contain 1/2, and comparisons with the best 0. A promise
with probability 95% is refuted by 200 worlds if 34 or more miss (false alarm: 1e-6); an interval that pays for the
number of submissions alone, and not for what the improvements told, misses in nearly every world of hill climbing.
"""

from collections.abc import Callable
from math import log

import numpy as np
import pytest
from numpy.random import Generator

import holdfast as hf
from examples import QUICK
from holdfast.guarantees.ladder import Apart, Ladder, SubmissionsSoFar
from holdfast.guarantees.mathematics.checks import time_share
from holdfast.guarantees.mathematics.concentration import kl_range
from worlds import breaks_promise

WORLDS, ROWS, SUBMISSIONS, BETA, STEP, TRUTH = (60 if QUICK else 200), 1_000, 1_500, 0.05, 0.01, 0.5
Interval = tuple[float, float]
Guesses = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
NAMED = {"metric": "accuracy", "id": "id", "target": "label", "low": 0.0, "high": 1.0, "clip": 0.001, "classes": "[]"}
LADDER = Ladder.grid(ROWS, confidence=1 - BETA, step=STEP, scale=1.0, about="labels", **NAMED)


class Sealed:
    """A board without a ledger: the same cells and intervals."""

    def __init__(self, labels: Guesses) -> None:
        self.labels, self.answered, self.best, self.guesses = labels, SubmissionsSoFar(0, 0, 0), 0.0, labels
        self.missed = self.fooled = False

    def submit(self, guesses: Guesses) -> bool:
        right = int(np.count_nonzero(guesses == self.labels))
        cell, told = min(LADDER.terms.cells, right * LADDER.terms.cells // ROWS + 1), self.answered
        improved = cell > told.best
        if improved:  # the others have one end, which is never below the truth once the best is not
            self._look(cell)
            if told.best:  # nobody is better than anybody else: the difference is 0
                apart = float(np.count_nonzero(guesses != self.guesses))
                (worse, better), (low, high) = LADDER.cell(told.best), LADDER.cell(cell)
                low, high = LADDER.ahead((low - better, high - worse), told, Apart(apart, apart))
                self.missed |= not low <= 0 <= high
            self.best, self.guesses = right / ROWS, guesses
        self.answered = told.after(cell)
        return improved

    def _look(self, cell: int) -> None:
        low, high = LADDER.certify(cell, self.answered)
        level = BETA * time_share(self.answered.submissions + 1)
        naive = kl_range(LADDER.cell(cell), n=ROWS, r=log(2 / level))
        self.missed |= not low <= TRUTH <= high
        self.fooled |= not naive[0] <= TRUTH <= naive[1]


def boosting(sealed: Sealed, rng: Generator) -> None:
    votes = np.zeros(ROWS)
    for _ in range(SUBMISSIONS - 1):
        guesses = rng.random(ROWS) < 0.5
        if sealed.submit(guesses):
            votes += 2 * guesses - 1.0
    sealed.submit(votes + rng.random(ROWS) - 0.5 > 0)


def hill_climbing(sealed: Sealed, rng: Generator) -> None:
    best = rng.random(ROWS) < 0.5
    sealed.submit(best)
    for _ in range(SUBMISSIONS - 1):
        tried = best ^ (rng.random(ROWS) < 0.15)
        if sealed.submit(tried):
            best = tried


def play(attack: Callable[[Sealed, Generator], None], seed: int) -> list[Sealed]:
    worlds = []
    for world in range(WORLDS):
        rng = np.random.default_rng([seed, world])
        sealed = Sealed(rng.random(ROWS) < 0.5)
        attack(sealed, rng)
        worlds.append(sealed)
    return worlds


def test_boards_hold_against_boosting(seed: int) -> None:
    worlds = play(boosting, seed)
    assert not breaks_promise(sum(one.missed for one in worlds), WORLDS)


def test_boards_hold_against_hill_climbing_and_a_plain_union_does_not(seed: int) -> None:
    worlds = play(hill_climbing, seed)
    assert not breaks_promise(sum(one.missed for one in worlds), WORLDS)
    fooled = sum(one.fooled for one in worlds)
    assert breaks_promise(fooled, WORLDS)
    assert fooled > 0.8 * WORLDS
    reached = np.mean([one.best for one in worlds]) - TRUTH
    assert reached > 0.08  # the attack is real
    assert np.mean([LADDER.width(one.answered) for one in worlds]) < 3 * reached  # and the price not much more


def test_a_board_gives_the_intervals_of_the_attack(seed: int) -> None:
    """The same through a ledger, with few submissions."""
    rng = np.random.default_rng(seed)
    labels, ids = rng.random(ROWS) < 0.5, np.arange(ROWS)
    sealed, best = Sealed(labels), rng.random(ROWS) < 0.5
    with hf.Board({"id": ids, "label": labels}, step=STEP) as board:
        for _ in range(40):
            tried = best ^ (rng.random(ROWS) < 0.15)
            told = sealed.answered
            answer, improved = board.submit({"id": ids, "prediction": tried}), sealed.submit(tried)
            assert answer.improved == improved
            cell = sealed.answered.best if improved else 1
            assert answer.interval == pytest.approx(LADDER.certify(cell, told), abs=1e-12)
            best = tried if improved else best
