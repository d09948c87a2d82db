"""Gradient descent whose gradient coordinates are statistical queries (A4).

The algorithm box:

    x_1 = center of the domain
    for t = 1..T
        g    each coordinate of the mean gradient at x_t, answered by coins (or A1)
        x_{t+1} = project(x_t - eta_t v_t (g + l2 x_t))
    return the average of x_1..x_T (all, the last half, or weighted by t)

    eta_t    D/sqrt(2 sum of v_s^2 |g_s|^2, s <= t), v_t = 1, or t if x_t has weight t; strongly convex 2/(H t), v = 1

Step sizes depend on the gradients actually released, not on the largest possible gradient: the promise is the same, and
descent converges faster.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from numpy.random import Generator

from holdfast.guarantees.mathematics import descent as theorems
from holdfast.optimize.domain import Domain
from holdfast.optimize.gradient import NoisyGradient
from holdfast.optimize.objective import Objective, Vector
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
        for t, weight in enumerate(weights, start=1):
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
