"""Feature selection, then a classifier: the reusable-holdout experiment of Dwork et al. 2015.

The analyst has a training sample of its own and asks the holdout about every feature. Features that lean the same way
on both, by at least one standard deviation each, vote. On d pure-noise features and n rows m of them pass, about
2 d Phi(-1)^2, and with h = phi(1)/Phi(-1) = 1.525 the classifier seems right on the holdout in Phi(h sqrt(m/n)): at
n = d, 63.3 % where 50 % is true. The published figure is 63 +- 0.4 %.

Noise of variance v in each answer makes a threshold of u = t/sqrt(1/(4n) + v), t = 1/(2 sqrt n), standard deviations:
fewer agree by chance of the rows, and with h(u) = phi(u)/Phi(-u) the argument becomes
h(u) sqrt(m/n)/sqrt(1 + 4nv).
"""

from dataclasses import dataclass
from math import exp, pi, sqrt

import numpy as np
from scipy.special import ndtr

from holdfast import check
from holdfast.lab.analysts.base import Dialogue, Randomness
from holdfast.lab.analysts.populations import CoinTable
from holdfast.lab.analysts.questions import Agreement, Vote


@dataclass(frozen=True)
class FeatureSelection:
    """Ask about `queries` - 1 features; those that hold up in training and holdout form the classifier.

    With `signal`, that many features really agree with the label, by 3/sqrt(n) more than half.
    """

    queries: int = 1_001
    signal: int = 0
    name: str = "selection"

    def __post_init__(self) -> None:
        check.whole(2, queries=self.queries)
        check.whole(0, signal=self.signal)
        check.at_most("queries - 1", self.queries - 1, signal=self.signal)

    def population(self, rows: int) -> CoinTable:
        """Coins, of which `signal` are loaded."""
        return CoinTable(self.queries - 1, self.signal, min(0.5, 3 / sqrt(rows)) if self.signal else 0.0)

    def ask(self, rows: int, rng: Randomness) -> Dialogue:
        """Ask the holdout about every feature, then about the classifier."""
        training = self.population(rows).training(rows, rng) - 0.5
        holdout = np.zeros(self.queries - 1)
        for index in range(self.queries - 1):
            holdout[index] = (yield Agreement(index)) - 0.5
        threshold = 1 / (2 * sqrt(rows))
        passed = (np.minimum(abs(training), abs(holdout)) >= threshold) & (training * holdout > 0)
        yield Vote.of(np.arange(self.queries - 1), np.where(passed, np.sign(training), 0.0))

    def reaches(self, rows: int, noise: float = 0.0) -> float | None:
        """Phi(h sqrt(m/n)) - 1/2 on pure noise."""
        if self.signal:
            return None
        spread = sqrt(1 + 4 * rows * noise)
        u = 1 / spread
        passing = 2 * (self.queries - 1) * float(ndtr(-1.0)) * float(ndtr(-u))
        hazard = exp(-u * u / 2) / sqrt(2 * pi) / float(ndtr(-u))
        return float(ndtr(hazard / spread * sqrt(passing / rows))) - 0.5
