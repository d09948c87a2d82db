"""The demo's third act: a leaderboard that coin tosses climb.

Labels are fair coins, so a submission that knows nothing is right for half of the population. A usual leaderboard shows
how often each is right on n labels, which is off by about 1/(2 sqrt(n)), by chance. Let k such submissions vote, those
below one half for the opposite: the vote adds up all this chance, and is right for about

    Phi(sqrt(2 k/(pi n)))

of these labels, though for half of any others (Blum and Hardt, The Ladder, 2015, attack leaderboards like that). A
board says only whether a submission is better than the best before it, which next to none is; a vote of those that were
has nothing to add up.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.board import Board
from holdfast.lab.demo import ERROR_BARS, POPULATION_SHARE

LABELS, SUBMISSIONS = 10_000, 1_000
HINT = 0.6  # how often the submission that knows something is right


@dataclass(frozen=True)
class ThirdAct:
    """What a usual leaderboard and a board say to somebody who climbs."""

    labels: int
    submissions: int
    leaderboard: float  # how often the vote is right, as a usual leaderboard says
    improvements: int  # submissions that a board called better than the best before
    missed: int  # intervals of the board that miss the truth
    vote_high: float  # the vote of those is at most this good, says the board
    hint_low: float
    hint_high: float

    @property
    def error_bars(self) -> float:
        """How many of its own error bars the leaderboard's claim is away from the truth."""
        claim = self.leaderboard
        return (claim - POPULATION_SHARE) / (ERROR_BARS * sqrt(claim * (1 - claim) / self.labels))

    def to_json(self) -> dict[str, Any]:
        """Return all numbers as plain JSON values."""
        return asdict(self) | {"truth": POPULATION_SHARE, "hint": HINT, "error_bars": self.error_bars}


def climb(rng: np.random.Generator, labels: int = LABELS, submissions: int = SUBMISSIONS) -> ThirdAct:
    """Submit coin tosses and then their votes; finally, something that is right more often."""
    truth, ids = rng.random(labels) < POPULATION_SHARE, np.arange(labels)

    def table(column: str, values: NDArray[np.bool_]) -> Mapping[str, NDArray[Any]]:
        return {"id": ids, column: values}

    board = Board(table("label", truth), about="population")
    # The votes of those who see the score of every submission, and of those who see what the board shows.
    by_score, by_board = np.zeros(labels), np.zeros(labels)
    improvements = missed = 0
    with board:
        for _ in range(submissions):
            tosses = rng.random(labels) < POPULATION_SHARE
            signs = np.where(tosses, 1.0, -1.0)
            by_score += signs if (tosses == truth).mean() >= POPULATION_SHARE else -signs
            answer = board.submit(table("prediction", tosses), by="climber")
            if answer.improved:
                by_board += signs
            improvements += answer.improved
            missed += not answer.low <= POPULATION_SHARE <= answer.high
        vote = board.submit(table("prediction", by_board >= 0), by="climber")
        missed += not vote.low <= POPULATION_SHARE <= vote.high
        real = board.submit(table("prediction", truth ^ (rng.random(labels) >= HINT)), by="somebody who knows")
        missed += not real.low <= HINT <= real.high
    claim = float(((by_score >= 0) == truth).mean())
    return ThirdAct(labels, submissions, claim, improvements, missed, vote.high, real.low, real.high)
