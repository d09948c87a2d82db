"""Interactive fingerprinting (Steinke & Ullman 2015): find out who is in the sample, then ask about them.

Every identity of a universe of N gets a code word of fair bits; a question asks for one bit. The answer's deviation
from the universe's own mean leans towards the bits of those who are in the sample. An identity's score adds up the
deviations, with the sign of its own bit: after k answers it has

    mean  (k/2) (mu/n - 1/N)   mu times in the sample           variance  k (1/(4n) + v).

Between rounds those whose score is beyond doubt are accused and from then on say a bit that is no news; what the others
say stands out more clearly. The last question asks for all accused and all with a positive score. Among n rows it is
answered yes more often than in the universe by at least the formula of one round,

    E Phi(z(1 + M)) - E Phi(z(M')),   z(mu) = mean/deviation, M ~ Bin(n-1, 1/N), M' ~ Bin(n, 1/N).
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy.special import ndtr

from holdfast import check
from holdfast.lab.analysts.base import Dialogue, Randomness
from holdfast.lab.analysts.populations import Universe, coins
from holdfast.lab.analysts.questions import Marked


@dataclass(frozen=True)
class Fingerprinting:
    """Ask `queries` - 1 bits in `rounds`, of a universe `times` as large as the sample; then ask for the accused."""

    queries: int = 501
    rounds: int = 5
    times: int = 4
    doubt: float = 4.0  # standard deviations from which an identity is accused
    name: str = "fingerprint"

    def __post_init__(self) -> None:
        check.whole(2, queries=self.queries)
        check.whole(rounds=self.rounds, times=self.times)
        check.positive(doubt=self.doubt)
        check.at_most("queries - 1", self.queries - 1, rounds=self.rounds)

    def population(self, rows: int) -> Universe:
        """Identities, all equally likely."""
        return Universe(self.times * rows)

    def ask(self, rows: int, rng: Randomness) -> Dialogue:
        """Ask round after round; accuse in between."""
        size = self.times * rows
        no_news = np.arange(size) % 2 == 0
        score, spread = np.zeros(size), 0.0
        accused = np.zeros(size, dtype=np.bool_)
        for part in np.array_split(np.arange(self.queries - 1), self.rounds):
            words, deviations = [], []
            for _ in part:
                word = np.where(accused, no_news, coins(rng, size))
                answer = yield Marked(word)
                words.append(word)
                deviations.append(answer - float(word.mean()))
            centred = np.array(deviations) - np.mean(deviations)  # the accused add the same to every answer
            score += (2.0 * np.array(words) - 1).T @ centred
            spread += float(np.square(centred).sum())
            accused |= score > self.doubt * sqrt(spread)
        yield Marked(accused | (score > 0))

    def reaches(self, rows: int, noise: float = 0.0) -> float:
        """The formula of one round; later rounds only add to it."""
        from scipy.stats import binom  # heavy, and only predictions need it

        size, bits = self.times * rows, self.queries - 1
        often = np.arange(0, 40)
        z = bits / 2 * (often / rows - 1 / size) / sqrt(bits * (1 / (4 * rows) + noise))
        inside = (binom.pmf(often[:-1], rows - 1, 1 / size) * ndtr(z[1:])).sum()
        return float(inside - (binom.pmf(often, rows, 1 / size) * ndtr(z)).sum())
