"""The third act: a vote of coin tosses climbs a usual leaderboard by many error bars, but no board.

The vote is right for Phi(sqrt(2 k/(pi n))) of the labels: with 400 tosses and 2,000 labels .639, give or take .011.
"""

from math import pi, sqrt

import numpy as np
import pytest
from scipy.stats import norm

from holdfast.lab.leaderboard import HINT, ThirdAct, climb

LABELS, SUBMISSIONS = 2_000, 400


@pytest.fixture(scope="module")
def act() -> ThirdAct:
    return climb(np.random.default_rng(3), LABELS, SUBMISSIONS)


def test_a_usual_leaderboard_is_climbed(act: ThirdAct) -> None:
    expected = float(norm.cdf(sqrt(2 * SUBMISSIONS / (pi * LABELS))))
    assert act.leaderboard == pytest.approx(expected, abs=6 * 0.5 / sqrt(LABELS))
    assert act.error_bars > 3


def test_a_board_is_not(act: ThirdAct) -> None:
    assert act.missed == 0
    assert act.vote_high < act.leaderboard
    assert 1 <= act.improvements <= 10  # records on a coarse grid


def test_whoever_knows_something_is_found(act: ThirdAct) -> None:
    assert 0.5 < act.hint_low <= HINT <= act.hint_high
    assert act.to_json()["hint"] == HINT
