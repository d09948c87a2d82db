"""Gradient descent whose gradient coordinates are statistical queries (A4), and the best of several runs (A4+).

The algorithm box:

    x_1 = center of the domain
    for t = 1..T
        g    each coordinate of the mean gradient at x_t, answered by coins (or A1)
        x_{t+1} = project(x_t - eta_t v_t (g + l2 x_t))
    return the average of x_1..x_T (all, the last half, or weighted by t)

    eta_t    D/sqrt(2 sum of v_s^2 |g_s|^2, s <= t), v_t = 1, or t if x_t has weight t; strongly convex 2/(H t), v = 1

Step sizes depend on the gradients actually released, not on the largest possible gradient: the promise is the same, and
descent converges faster.

A4+ runs descent several times and picks the best run without looking too closely. Each run is within twice its expected
excess with probability 1/2 or more, so with log2(2k/beta) runs the chance that even the best run is bad is at most
beta/(2k); choosing among them may fail with the same probability. The choice is by

    coins         a coin estimate of every run's loss, the smallest wins
    exponential   the exponential mechanism on the mean loss of sampled rows

The loss at the center of the domain is subtracted where that narrows the range.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, log, log2, sqrt
from typing import ClassVar, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.mathematics import descent as theorems
from holdfast.guarantees.mathematics import privacy
from holdfast.mechanisms import exponential
from holdfast.optimize.gradient import NoisyGradient
from holdfast.optimize.objective import Domain, Objective, ObjectiveQuery, Rows, Vector
from holdfast.queries.query import Values
from holdfast.rows.draws import WithoutReplacement
from holdfast.rows.source import RowSource

Advance = Callable[[], None]


@dataclass(frozen=True)
class Descent:
    """One run, decided before any row is read."""

    objective: Objective
    domain: Domain
    gradient: NoisyGradient
    iterations: int
    average: str = "uniform"

    @property
    def moment(self) -> float:
        """Gh of the whole gradient, including the exact l2 term."""
        return self.gradient.moment + self.objective.l2 * self.domain.norm

    @property
    def largest(self) -> float | None:
        """M, with |gradient| <= M always, l2 included; None for Laplace noise."""
        most = self.gradient.largest
        return None if most is None else most + self.objective.l2 * self.domain.norm

    @property
    def curvature(self) -> float:
        """H if the strongly convex steps have the better bound, else 0."""
        known = self.objective.ranges.curvature
        if known > 0 and self._strong(self.moment, known) < self._convex(self.moment):
            return known
        return 0.0

    def expected_excess(self) -> float:
        """Return a bound on the expected excess on the rows."""
        return self._strong(self.moment, self.curvature) if self.curvature else self._convex(self.moment)

    def likely_excess(self, beta: float, regret: float = inf) -> float:
        """Return a bound on the excess on the rows that fails with probability at most beta; inf if there is none.

        `regret` is that of the finished run, if there is one: the released gradients may give a better bound than the
        theorem did.
        """
        if self.largest is None:
            return inf
        spread, steps, average = self.gradient.spread, self.iterations, self.average
        if self.curvature:
            if average != "uniform":  # then the theorem's bound and the regret's bound can fail on different events
                beta /= 2
            tail = theorems.strongly_convex_tail(spread, self.curvature, steps, beta, average=average)
            return min(self._strong(self.largest, self.curvature), regret) + tail
        tail = theorems.convex_tail(self.domain.diameter, spread, steps, beta, average=average)
        return min(self._convex(self.largest), regret) + tail

    def _convex(self, norm: float) -> float:
        return theorems.convex_excess(self.domain.diameter, norm, self.iterations, average=self.average)

    def _strong(self, norm: float, curvature: float) -> float:
        return theorems.strongly_convex_excess(norm, curvature, self.iterations, average=self.average)

    def run(self, source: RowSource, rng: Generator, advance: Advance | None = None) -> "Run":
        """Descend; only released coins (or noisy answers) move the point."""
        curvature, l2 = self.curvature, self.objective.l2
        weights = theorems.weights(self.average, self.iterations)
        point = center = self.domain.center  # sums are relative to the center: far from zero they would lose precision
        points, gradients = 0.0 * point, 0.0 * point
        inner = squares = seen = 0.0
        for t, weight in enumerate(weights.tolist(), start=1):
            gradient = self.gradient(point, source, rng) + l2 * point
            moved = point - center
            points += weight * moved
            gradients += weight * gradient
            inner += weight * float(gradient @ moved)
            squares += weight * float(moved @ moved)
            pull = float(t) if self.average == "weighted" and not curvature else 1.0
            seen += pull * pull * float(gradient @ gradient)
            eta = theorems.step(self.domain.diameter, curvature, t, seen)
            point = self.domain.project(point - eta * pull * gradient)
            if advance is not None:
                advance()
        total = float(weights.sum())
        mean = points / total
        least = self.domain.least(gradients) - float(gradients @ center)
        regret = theorems.released_regret(inner, least, total)
        if curvature:
            scatter = max(0.0, squares - total * float(mean @ mean))
            strong = theorems.released_regret_strong(
                inner, gradients.tolist(), mean.tolist(), scatter, total, curvature
            )
            regret = min(regret, strong)
        return Run(self.domain.project(center + mean), max(0.0, regret))


@dataclass(frozen=True)
class Run:
    """The point that descent returned, and its regret on the gradients it received."""

    point: Vector
    regret: float


def runs_for(statements: int, beta: float) -> int:
    """Return how many runs leave half of each statement's share of beta for the choice among them.

    `statements` counts all statements that hold at once in the session (`session.plan.statements`), not only the fits,
    and `beta` is their part of its failure probability (`session.plan.terms.beta2`): a bad best run has probability
    2^-runs <= beta/(2 statements).

    >>> runs_for(100, 0.05)
    12
    """
    check.whole(statements=statements)
    check.probability(beta=beta)
    return ceil(log2(2 * statements / beta) - 1e-12)


@dataclass(frozen=True)
class Contest:
    """The loss by which runs are compared: one score in [0, 1] per row, plus the exact l2 term."""

    objective: Objective
    domain: Domain

    @property
    def centered(self) -> bool:
        """Whether subtracting the loss at the center narrows the range."""
        low, high = self.objective.ranges.values
        return 2 * self.objective.ranges.lipschitz * self._farthest < high - low

    @property
    def _farthest(self) -> float:
        return self.domain.diameter / 2  # balls and boxes are symmetric about their center

    @property
    def width(self) -> float:
        """How much one row's score can vary."""
        low, high = self.objective.ranges.values
        return 2 * self.objective.ranges.lipschitz * self._farthest if self.centered else high - low

    def scores(self, rows: Rows, point: Vector) -> Vector:
        """Return each row's loss at the point as a number in [0, 1]. Secret."""
        values = self.objective.values(rows, point)
        low = self.objective.ranges.values[0]
        if self.centered:
            values = values - self.objective.values(rows, self.domain.center)
            low = -self.width / 2
        scores: Vector = np.clip((values - low) / self.width, 0.0, 1.0)
        return scores

    def exact(self, point: Vector) -> float:
        """Return the l2 term in units of the width."""
        return self.objective.l2 / 2 * float(point @ point) / self.width


@dataclass(frozen=True, eq=False)
class _Scored(ObjectiveQuery):
    contest: Contest

    @property
    def objective(self) -> Objective:  # type: ignore[override]
        """What the runs minimize."""
        return self.contest.objective


@dataclass(frozen=True, eq=False)
class ScoreAt(_Scored):
    """The mean score of one run."""

    point: Vector

    def row_values(self, rows: Rows, part: NDArray[np.int64], draw: NDArray[np.int64]) -> Values:
        """Return one score per row."""
        return self.contest.scores(rows, self.point)


@dataclass(frozen=True, eq=False)
class ScoresAt(_Scored):
    """The mean scores of all runs on the same rows."""

    points: tuple[Vector, ...]

    def row_values(self, rows: Rows, part: NDArray[np.int64], draw: NDArray[np.int64]) -> Values:
        """Return one line per row, one score per run."""
        return np.column_stack([self.contest.scores(rows, point) for point in self.points])


@dataclass(frozen=True)
class CoinChoice:
    """Compare runs by `draws` coins each."""

    mechanism: ClassVar[str] = "coins"
    contest: Contest
    runs: int
    draws: int
    mass: float

    @classmethod
    def under(cls, guarantee: Guarantee, contest: Contest, runs: int) -> Self:
        """Toss as many coins per run as an ordinary answer reads rows."""
        return cls(contest, runs, guarantee.terms.rows_per_query, guarantee.answering().coin_mass)

    @property
    def charge(self) -> int:
        """One per coin."""
        return self.runs * self.draws

    @property
    def rows_read(self) -> int:
        """One per coin."""
        return self.runs * self.draws

    def loss(self, beta: float | None = None) -> float:
        """Bound how far the chosen run is behind the best: in expectation, or except with probability beta."""
        nats = log(2 * self.runs) + (0.0 if beta is None else log(1 / beta))
        return 2 * self.contest.width * sqrt(nats / (2 * self.draws)) / (1 - 2 * self.mass)

    def choose(self, points: Sequence[Vector], source: RowSource, rng: Generator) -> int:
        """Tally fresh coins for every run; the smallest debiased mean wins."""
        estimates = []
        for point in points:
            query = ScoreAt(self.contest, point)
            ones = int(source.tally(query, draws=self.draws, mass=self.mass, rng=rng)[1])
            share = (ones / self.draws - self.mass) / (1 - 2 * self.mass)
            estimates.append(share + self.contest.exact(point))
        return int(np.argmin(estimates))


@dataclass(frozen=True)
class ExponentialChoice:
    """Compare runs on the same `draws` sampled rows, by the exponential mechanism, `epsilon`-DP on all n rows."""

    mechanism: ClassVar[str] = "laplace"  # any guarantee that covers noisy answers covers this choice too
    contest: Contest
    runs: int
    draws: int
    epsilon: float
    n: int

    @classmethod
    def under(cls, guarantee: Guarantee, contest: Contest, runs: int) -> Self:
        """Sample as many rows as an ordinary answer reads."""
        rows: int = guarantee.terms.rows
        draws = min(rows, guarantee.terms.rows_per_query)
        return cls(contest, runs, draws, guarantee.answering().epsilon_for(draws), rows)

    @property
    def charge(self) -> int:
        """n^2 epsilon^2, for one pure-DP release."""
        return ceil(privacy.private_cost(self.epsilon, n=self.n))

    @property
    def rows_read(self) -> int:
        """The sample, once for all runs."""
        return self.draws

    def loss(self, beta: float | None = None) -> float:
        """Bound how far the chosen run is behind the best: the mechanism's error plus the sampling error."""
        on_drawn = privacy.epsilon_without_replacement(self.epsilon, ell=self.draws, n=self.n)
        extra = 0.0 if beta is None else log(2 / beta)
        chosen = 2 / (self.draws * on_drawn) * (log(self.runs) + extra)
        sampled = 2 * sqrt((log(2 * self.runs) + extra) / (2 * self.draws)) if self.draws < self.n else 0.0
        return self.contest.width * (chosen + sampled)

    def choose(self, points: Sequence[Vector], source: RowSource, rng: Generator) -> int:
        """Release one index; better runs are more likely."""
        count = min(self.draws, len(source))
        query = ScoresAt(self.contest, tuple(points))
        means = source.sample(query, WithoutReplacement(count), rng).mean(axis=0)  # secret
        scores = [-float(mean) - self.contest.exact(point) for mean, point in zip(means, points, strict=True)]
        on_drawn = privacy.epsilon_without_replacement(self.epsilon, ell=count, n=len(source))
        return exponential.choose(scores, epsilon=on_drawn, sensitivity=1 / count, rng=rng)


Choice = CoinChoice | ExponentialChoice
SELECTORS: Mapping[str, type[CoinChoice] | type[ExponentialChoice]] = {
    "coins": CoinChoice,
    "exponential": ExponentialChoice,
}
