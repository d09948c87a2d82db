"""Analysts: attacks that overfit as fast as they can, and one that does not adapt. They see answers only.

    dialogue = analyst.ask(rows, rng)
    question = next(dialogue)                 the first question
    question = dialogue.send(answer)          the next one, chosen after the answer

An analyst has no access to the rows. Its own randomness comes from `rng`, so a dialogue can be replayed from its
answers, which is what the monitors do.

sign, weighted, boosting   ask about every feature, then about a vote of those that seemed to agree with the label
persistent                 ask the weighted vote again and again, until an answer is far off: the worst attack known
selection                  the reusable-holdout experiment of Dwork et al. 2015: select features, then test a classifier
climber                    change a rule a little, keep what seems to improve it
fingerprint                find out which identities are in the sample, then ask about them
harmless                   ask about every feature and do nothing with the answers
"""

import collections.abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, pi, sqrt
from typing import ClassVar, Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import ndtr

from holdfast import check
from holdfast.lab.populations import (
    Agreement,
    CoinTable,
    LabeledCells,
    Marked,
    Population,
    RowQuestion,
    TableRule,
    Universe,
    Vote,
    fair_bits,
)

Dialogue = collections.abc.Generator[RowQuestion, float, None]


class Analyst(Protocol):
    """Someone who asks. The last question is the discovery; the others prepare it."""

    @property
    def name(self) -> str:
        """The analyst's name."""

    @property
    def queries(self) -> int:
        """How many questions a dialogue has at most."""

    def population(self, rows: int) -> Population:
        """Return the population this analyst is designed for, for samples of this many rows."""

    def ask(self, rows: int, rng: Generator) -> Dialogue:
        """Start a dialogue about a table of this many rows (the number is public)."""

    def predicted_excess(self, rows: int, noise: float = 0.0) -> float | None:
        """Predict by how much the last question's mean on the rows exceeds its mean in the population.

        `noise` is the variance of the randomness added to each answer. Returns None if no formula is known.
        """


# -- votes --------------------------------------------------------------------------------------------------------
#
# On fair independent coins each answer a_j is 1/2 plus the deviation of the rows (variance 1/(4n)) plus noise (variance
# v). With s = (sqrt(k)/(2n)) / sqrt(1/(4n) + v), the share of rows on which the final vote seems right exceeds 1/2 by
#
#     sign attack        every feature votes, in the direction it leans      Phi(s sqrt(2/pi)) - 1/2
#     weighted attack    every feature votes with its own deviation          Phi(s) - 1/2
#     boosting           only features above one half vote (Blum & Hardt)    Phi(s/sqrt(pi)) - 1/2
#
# although the vote is right for exactly half of the population.


def vote_strength(queries: int, rows: int, noise: float = 0.0) -> float:
    """Return s, how far k answers move a vote, in standard deviations.

    >>> vote_strength(100, 100)
    1.0
    """
    return sqrt(queries) / (2 * rows) / sqrt(1 / (4 * rows) + noise)


@dataclass(frozen=True)
class _Voter:
    """Ask about `queries` - 1 features, then about the vote."""

    queries: int = 501
    factor: ClassVar[float]  # of s, in the excess of the vote

    def __post_init__(self) -> None:
        check.whole(2, queries=self.queries)

    def population(self, rows: int) -> Population:
        """Fair coins, independent of the label."""
        return CoinTable(self.queries - 1)

    def ask(self, rows: int, rng: Generator) -> Dialogue:
        """Ask about every feature, then about the vote."""
        deviations = np.zeros(self.queries - 1)
        for index in range(self.queries - 1):
            deviations[index] = (yield Agreement(index)) - 0.5
        yield Vote.of(np.arange(self.queries - 1), self.weigh(deviations))

    def weigh(self, deviations: NDArray[np.float64]) -> NDArray[np.float64]:
        """Turn the answers into weights."""
        raise NotImplementedError  # each voting analyst defines its own weights

    def predicted_excess(self, rows: int, noise: float = 0.0) -> float:
        """Phi(factor s) - 1/2."""
        return float(ndtr(self.factor * vote_strength(self.queries - 1, rows, noise))) - 0.5


@dataclass(frozen=True)
class SignAttack(_Voter):
    """Every feature votes, in the direction it leans."""

    name: str = "sign"
    factor = sqrt(2 / pi)

    def weigh(self, deviations: NDArray[np.float64]) -> NDArray[np.float64]:
        """One vote each."""
        return np.where(deviations >= 0, 1.0, -1.0)


@dataclass(frozen=True)
class WeightedAttack(_Voter):
    """Every feature votes with its own deviation."""

    name: str = "weighted"
    factor = 1.0

    def weigh(self, deviations: NDArray[np.float64]) -> NDArray[np.float64]:
        """The deviation itself, scaled to at most one."""
        return deviations / (np.abs(deviations).max() or 1.0)


@dataclass(frozen=True)
class PersistentAttack:
    """Ask about features with nine tenths of the `queries`, then about their weighted vote with all the rest.

    The vote's mean on the rows is away from the population's, and each answer about it adds fresh noise: an analyst who
    asks often enough gets noise in the same direction. Exact answers do not change when asked again, so this attack is
    worse than the weighted one for noisy answers only.
    """

    queries: int = 501
    learning: float = 0.9
    name: str = "persistent"

    def __post_init__(self) -> None:
        check.whole(2, queries=self.queries)
        check.probability(learning=self.learning)

    @property
    def features(self) -> int:
        """How many features it asks about."""
        return min(self.queries - 1, max(1, int(self.learning * self.queries)))

    def population(self, rows: int) -> Population:
        """Fair coins, independent of the label."""
        return CoinTable(self.features)

    def ask(self, rows: int, rng: Generator) -> Dialogue:
        """Ask about every feature, then about the vote."""
        weighted = self._weighted.ask(rows, rng)
        question = next(weighted)
        for _ in range(self.features):
            question = weighted.send((yield question))
        for _ in range(self.queries - self.features):
            yield question

    def predicted_excess(self, rows: int, noise: float = 0.0) -> float:
        """The excess of the weighted vote of its features."""
        return self._weighted.predicted_excess(rows, noise)

    @property
    def _weighted(self) -> WeightedAttack:
        return WeightedAttack(self.features + 1)


@dataclass(frozen=True)
class BoostingAttack(_Voter):
    """Submissions to a leaderboard: those that scored above one half vote."""

    name: str = "boosting"
    factor = 1 / sqrt(pi)

    def weigh(self, deviations: NDArray[np.float64]) -> NDArray[np.float64]:
        """One vote for the better half, none for the rest."""
        return np.where(deviations > 0, 1.0, 0.0)


@dataclass(frozen=True)
class Harmless:
    """Asks about every feature and does nothing with the answers."""

    queries: int = 500
    name: str = "harmless"

    def __post_init__(self) -> None:
        check.whole(queries=self.queries)

    def population(self, rows: int) -> Population:
        """Fair coins."""
        return CoinTable(self.queries)

    def ask(self, rows: int, rng: Generator) -> Dialogue:
        """Ask about every feature."""
        for index in range(self.queries):
            yield Agreement(index)

    def predicted_excess(self, rows: int, noise: float = 0.0) -> float:
        """Zero: the last question does not depend on the rows."""
        return 0.0


# -- feature selection --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FeatureSelection:
    """Ask about `queries` - 1 features; those that hold up in both training and holdout form the classifier.

    The analyst has its own training sample and asks the holdout about every feature. Features that lean the same
    way on both, by at least one standard deviation each, vote. Of d pure-noise features on n rows, m = about
    2 d Phi(-1)^2 pass, and with h = phi(1)/Phi(-1) = 1.525 the classifier seems right on a share Phi(h sqrt(m/n)) of
    the holdout: at n = d, 63.3% where 50% is true. The published figure is 63 +- 0.4%.

    With noise of variance v in each answer, the threshold of one standard deviation of the rows, t = 1/(2 sqrt n), is
    only u = t/sqrt(1/(4n) + v) standard deviations of an answer: more of the agreement is due to noise rather than to
    the rows, and with h(u) = phi(u)/Phi(-u) the argument becomes h(u) sqrt(m/n)/sqrt(1 + 4nv).

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
        """Coins, of which `signal` are correlated with the label."""
        return CoinTable(self.queries - 1, self.signal, min(0.5, 3 / sqrt(rows)) if self.signal else 0.0)

    def ask(self, rows: int, rng: Generator) -> Dialogue:
        """Ask the holdout about every feature, then about the classifier."""
        training = self.population(rows).training(rows, rng) - 0.5
        holdout = np.zeros(self.queries - 1)
        for index in range(self.queries - 1):
            holdout[index] = (yield Agreement(index)) - 0.5
        threshold = 1 / (2 * sqrt(rows))
        passed = (np.minimum(abs(training), abs(holdout)) >= threshold) & (training * holdout > 0)
        yield Vote.of(np.arange(self.queries - 1), np.where(passed, np.sign(training), 0.0))

    def predicted_excess(self, rows: int, noise: float = 0.0) -> float | None:
        """Phi(h sqrt(m/n)) - 1/2 on pure noise."""
        if self.signal:
            return None
        spread = sqrt(1 + 4 * rows * noise)
        u = 1 / spread
        passing = 2 * (self.queries - 1) * float(ndtr(-1.0)) * float(ndtr(-u))
        hazard = exp(-u * u / 2) / sqrt(2 * pi) / float(ndtr(-u))
        return float(ndtr(hazard / spread * sqrt(passing / rows))) - 0.5


# -- hill climbing ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HillClimber:
    """Try every one of `queries` - 2 cells (or of `cells`, in turn), then ask about the rule that is left.

    The rule predicts a label for each of m cells. A step inverts one cell's label and asks how often the new rule is
    right; if the answer beats the best one so far, the change is kept. Labels are fair coins, so every rule is right
    half the time; but once every cell has been tried against exact answers, the rule fits the rows: it seems right by

        (m/n) E|B - N/2|,     N ~ Binomial(n, 1/m) rows in a cell, B ~ Binomial(N, 1/2) of them labeled yes,

    more than half, about 1/sqrt(2 pi lambda) for lambda = n/m rows in a cell.
    """

    queries: int = 502
    cells: int | None = None
    name: str = "climber"

    def __post_init__(self) -> None:
        check.whole(3, queries=self.queries)
        if self.cells is not None:
            check.whole(cells=self.cells)

    @property
    def width(self) -> int:
        """The number of cells."""
        return self.cells or self.queries - 2

    def population(self, rows: int) -> LabeledCells:
        """Cells whose labels cannot be predicted."""
        return LabeledCells(self.width)

    def ask(self, rows: int, rng: Generator) -> Dialogue:
        """Climb."""
        rule = fair_bits(rng, self.width)
        best = yield TableRule(rule.copy())
        for step in range(self.queries - 2):
            changed = rule.copy()
            changed[step % self.width] ^= True
            answer = yield TableRule(changed)
            if answer > best:
                rule, best = changed, answer
        yield TableRule(rule)

    def predicted_excess(self, rows: int, noise: float = 0.0) -> float | None:
        """(m/n) E|B - N/2| for exact answers, once every cell was tried."""
        if noise or self.queries - 2 < self.width:
            return None
        from scipy.stats import binom  # heavy, and only predictions need it

        most = int(binom.isf(1e-15, rows, 1 / self.width)) + 1
        # E|B - N/2| = (N/2) C(N-1, floor((N-1)/2)) / 2^(N-1): the mean deviation of a fair binomial.
        counts = np.arange(1, most + 1)
        deviation = counts / 2 * binom.pmf((counts - 1) // 2, counts - 1, 0.5)
        return float(self.width / rows * (binom.pmf(counts, rows, 1 / self.width) * deviation).sum())


# -- fingerprinting -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fingerprinting:
    """Ask for `queries` - 1 bits in `rounds`, in a universe `times` as large as the sample; then ask for the accused.

    Interactive fingerprinting (Steinke & Ullman 2015). Every identity of a universe of N gets a code word of fair bits;
    a question asks for one bit. The answer's deviation from the universe's own mean leans towards the bits of the
    identities in the sample. An identity's score sums the deviations, signed by its own bit: after k answers it has

        mean  (k/2) (mu/n - 1/N)   mu times in the sample           variance  k (1/(4n) + v).

    Between rounds, identities whose score exceeds `threshold` standard deviations are accused. From then on their bit
    is fixed, so that the bits of the others stand out more clearly. The last question asks for all accused and all with
    a positive score. Its share among the n rows exceeds that in the universe by at least the formula of one round,

        E Phi(z(1 + M)) - E Phi(z(M')),   z(mu) = mean/deviation, M ~ Bin(n-1, 1/N), M' ~ Bin(n, 1/N).
    """

    queries: int = 501
    rounds: int = 5
    times: int = 4
    threshold: float = 4.0
    name: str = "fingerprint"

    def __post_init__(self) -> None:
        check.whole(2, queries=self.queries)
        check.whole(rounds=self.rounds, times=self.times)
        check.positive(threshold=self.threshold)
        check.at_most("queries - 1", self.queries - 1, rounds=self.rounds)

    def population(self, rows: int) -> Universe:
        """Identities, all equally likely."""
        return Universe(self.times * rows)

    def ask(self, rows: int, rng: Generator) -> Dialogue:
        """Ask round after round; accuse in between."""
        size = self.times * rows
        fixed = np.arange(size) % 2 == 0
        score, spread = np.zeros(size), 0.0
        accused = np.zeros(size, dtype=np.bool_)
        for part in np.array_split(np.arange(self.queries - 1), self.rounds):
            words, deviations = [], []
            for _ in part:
                word = np.where(accused, fixed, fair_bits(rng, size))
                answer = yield Marked(word)
                words.append(word)
                deviations.append(answer - float(word.mean()))
            centered = np.array(deviations) - np.mean(deviations)  # the accused shift every answer by the same amount
            score += (2.0 * np.array(words) - 1).T @ centered
            spread += float(np.square(centered).sum())
            accused |= score > self.threshold * sqrt(spread)
        yield Marked(accused | (score > 0))

    def predicted_excess(self, rows: int, noise: float = 0.0) -> float:
        """The formula of one round; later rounds only add to it."""
        from scipy.stats import binom  # heavy, and only predictions need it

        size, bits = self.times * rows, self.queries - 1
        often = np.arange(0, 40)
        z = bits / 2 * (often / rows - 1 / size) / sqrt(bits * (1 / (4 * rows) + noise))
        inside = (binom.pmf(often[:-1], rows - 1, 1 / size) * ndtr(z[1:])).sum()
        return float(inside - (binom.pmf(often, rows, 1 / size) * ndtr(z)).sum())


ANALYSTS: Mapping[str, Callable[[int], Analyst]] = {
    "sign": SignAttack,
    "weighted": WeightedAttack,
    "selection": FeatureSelection,
    "selection-signal": lambda queries: FeatureSelection(queries, signal=min(20, queries - 1), name="selection-signal"),
    "boosting": BoostingAttack,
    "fingerprint": Fingerprinting,
    "climber": HillClimber,
    "harmless": Harmless,
    "persistent": PersistentAttack,
}


def analyst_named(analyst: str | Analyst, queries: int) -> Analyst:
    """Return the analyst of this name, who asks `queries` questions; or the analyst itself, if one is given."""
    if not isinstance(analyst, str):
        return analyst
    check.one_of("analyst", analyst, tuple(ANALYSTS))
    return ANALYSTS[analyst](queries)
