"""Three attacks by vote: ask about every feature once, then let what seemed to agree decide.

On fair independent coins each answer a_j is 1/2 plus chance of the rows (variance 1/(4n)) plus noise (variance v).
With s = (sqrt(k)/(2n)) / sqrt(1/(4n) + v), the final vote seems right on the rows more often than half by

    sign attack        every feature votes, turned the way it leans        Phi(s sqrt(2/pi)) - 1/2
    weighted attack    every feature votes with its own deviation          Phi(s) - 1/2
    boosting           only features above one half vote (Blum & Hardt)    Phi(s/sqrt(pi)) - 1/2

and is right about half of all others.
"""

from dataclasses import dataclass
from math import pi, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from holdfast import check
from holdfast.lab.analysts.base import Dialogue, Population, Randomness
from holdfast.lab.analysts.populations import CoinTable
from holdfast.lab.analysts.questions import Agreement, Vote


def strength(queries: int, rows: int, noise: float = 0.0) -> float:
    """Return s, how far k answers move a vote, in its standard deviations.

    >>> strength(100, 100)
    1.0
    """
    return sqrt(queries) / (2 * rows) / sqrt(1 / (4 * rows) + noise)


@dataclass(frozen=True)
class _Voter:
    """Ask about `queries` - 1 features, then about the vote."""

    queries: int = 501

    def __post_init__(self) -> None:
        check.whole(2, queries=self.queries)

    def population(self, rows: int) -> Population:
        """Fair coins that know nothing of the label."""
        return CoinTable(self.queries - 1)

    def ask(self, rows: int, rng: Randomness) -> Dialogue:
        """Ask about every feature, then about the vote."""
        deviations = np.zeros(self.queries - 1)
        for index in range(self.queries - 1):
            deviations[index] = (yield Agreement(index)) - 0.5
        yield Vote.of(np.arange(self.queries - 1), self.weigh(deviations))

    def weigh(self, deviations: NDArray[np.float64]) -> NDArray[np.float64]:
        """Turn what was heard into votes."""
        raise NotImplementedError


@dataclass(frozen=True)
class SignAttack(_Voter):
    """Every feature votes, turned the way it leans."""

    name: str = "sign"

    def weigh(self, deviations: NDArray[np.float64]) -> NDArray[np.float64]:
        """One vote each."""
        return np.where(deviations >= 0, 1.0, -1.0)

    def reaches(self, rows: int, noise: float = 0.0) -> float:
        """Phi(s sqrt(2/pi)) - 1/2."""
        return float(ndtr(strength(self.queries - 1, rows, noise) * sqrt(2 / pi))) - 0.5


@dataclass(frozen=True)
class WeightedAttack(_Voter):
    """Every feature votes with its own deviation."""

    name: str = "weighted"

    def weigh(self, deviations: NDArray[np.float64]) -> NDArray[np.float64]:
        """The deviation itself, scaled to at most one."""
        return deviations / (np.abs(deviations).max() or 1.0)

    def reaches(self, rows: int, noise: float = 0.0) -> float:
        """Phi(s) - 1/2."""
        return float(ndtr(strength(self.queries - 1, rows, noise))) - 0.5


@dataclass(frozen=True)
class Boosting(_Voter):
    """Submissions to a leaderboard: those that scored above one half vote."""

    name: str = "boosting"

    def weigh(self, deviations: NDArray[np.float64]) -> NDArray[np.float64]:
        """One vote for the better half, none for the rest."""
        return np.where(deviations > 0, 1.0, 0.0)

    def reaches(self, rows: int, noise: float = 0.0) -> float:
        """Phi(s/sqrt(pi)) - 1/2."""
        return float(ndtr(strength(self.queries - 1, rows, noise) / sqrt(pi))) - 0.5


@dataclass(frozen=True)
class Harmless:
    """Asks about every feature and makes nothing of it."""

    queries: int = 500
    name: str = "harmless"

    def __post_init__(self) -> None:
        check.whole(queries=self.queries)

    def population(self, rows: int) -> Population:
        """Fair coins."""
        return CoinTable(self.queries)

    def ask(self, rows: int, rng: Randomness) -> Dialogue:
        """Ask about every feature."""
        for index in range(self.queries):
            yield Agreement(index)

    def reaches(self, rows: int, noise: float = 0.0) -> float:
        """Nothing: the last question was chosen without the rows."""
        return 0.0
