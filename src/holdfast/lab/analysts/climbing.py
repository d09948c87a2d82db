"""A greedy hill-climber: an automated agent that changes its rule a little and keeps what seems to improve.

The rule names a label for each of m cells. A step turns one cell's label over and asks how often the new rule is right;
if the answer beats the best one so far, the change stays. Labels are fair coins, so every rule is right half the time;
but once every cell has been tried against exact answers, the rule says what the rows say: it seems right by

    (m/n) E|B - N/2|,     N ~ Binomial(n, 1/m) rows in a cell, B ~ Binomial(N, 1/2) of them labelled yes,

more than half, about 1/sqrt(2 pi lambda) for lambda = n/m rows in a cell.
"""

from dataclasses import dataclass

import numpy as np

from holdfast import check
from holdfast.lab.analysts.base import Dialogue, Randomness
from holdfast.lab.analysts.populations import Cells, coins
from holdfast.lab.analysts.questions import TableRule


@dataclass(frozen=True)
class HillClimber:
    """Try every one of `queries` - 2 cells (or of `cells`, round and round), then ask about the rule that is left."""

    queries: int = 502
    cells: int | None = None
    name: str = "climber"

    def __post_init__(self) -> None:
        check.whole(3, queries=self.queries)
        if self.cells is not None:
            check.whole(cells=self.cells)

    @property
    def width(self) -> int:
        """How many cells there are."""
        return self.cells or self.queries - 2

    def population(self, rows: int) -> Cells:
        """Cells with labels nobody can tell."""
        return Cells(self.width)

    def ask(self, rows: int, rng: Randomness) -> Dialogue:
        """Climb."""
        rule = coins(rng, self.width)
        best = yield TableRule(rule.copy())
        for step in range(self.queries - 2):
            changed = rule.copy()
            changed[step % self.width] ^= True
            answer = yield TableRule(changed)
            if answer > best:
                rule, best = changed, answer
        yield TableRule(rule)

    def reaches(self, rows: int, noise: float = 0.0) -> float | None:
        """(m/n) E|B - N/2| for exact answers, once every cell was tried."""
        if noise or self.queries - 2 < self.width:
            return None
        from scipy.stats import binom  # heavy, and only predictions need it

        most = int(binom.isf(1e-15, rows, 1 / self.width)) + 1
        # E|B - N/2| = (N/2) C(N-1, floor((N-1)/2)) / 2^(N-1): the mean deviation of a fair binomial.
        counts = np.arange(1, most + 1)
        deviation = counts / 2 * binom.pmf((counts - 1) // 2, counts - 1, 0.5)
        return float(self.width / rows * (binom.pmf(counts, rows, 1 / self.width) * deviation).sum())
