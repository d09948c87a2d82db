"""An optimisation query with everything decided: what it costs, what it promises, and how it runs."""

from collections.abc import Callable
from dataclasses import dataclass

from numpy.random import Generator

from holdfast.certify import Estimate
from holdfast.errors import PlanInfeasible
from holdfast.mechanisms.base import Price
from holdfast.optimize import bounds
from holdfast.optimize.boosting import Choice
from holdfast.optimize.bounds import Excess
from holdfast.optimize.descent import Descent
from holdfast.optimize.objective import LossAt, Vector
from holdfast.optimize.progress import watched
from holdfast.questions import Desk
from holdfast.rows.source import RowSource

MOST_ITERATIONS = 1_000_000


@dataclass(frozen=True)
class Settled:
    """Everything about one optimisation query that is decided beforehand."""

    descent: Descent
    runs: int
    choice: Choice | None
    promise: Excess
    loss_draws: int

    def price(self, desk: Desk) -> Price:
        """Return what the whole query costs: all gradients, the choice among runs, and the loss's own interval."""
        oracle, steps = self.descent.oracle, self.runs * self.descent.iterations
        final = desk.price(LossAt(self.descent.objective, self.descent.domain.centre), self.loss_draws)
        chosen = (0, 0) if self.choice is None else (self.choice.flips, self.choice.rows_read)
        return Price(
            flips=steps * oracle.flips + chosen[0] + final.flips,
            intervals=final.intervals + (self.promise.likely is not None),
            rows_read=steps * oracle.rows_read + chosen[1] + final.rows_read,
        )

    def run(self, desk: Desk, source: RowSource, rng: Generator, start: int) -> "Found":
        """Descend, choose, and certify the loss at the point with coins of its own."""
        steps = self.runs * self.descent.iterations
        with watched(steps, steps * self.descent.oracle.rows_read) as watch:
            tried = [self.descent.run(source, rng, watch) for _ in range(self.runs)]
        best = tried[0]
        if self.choice is not None:
            best = tried[self.choice.choose([each.point for each in tried], source, rng)]
        query = LossAt(self.descent.objective, best.point)
        (estimate,) = desk.release(query, self.loss_draws, source, rng, start)
        promise = bounds.excess(desk.plan, self.descent, runs=self.runs, choice=self.choice, regret=best.regret)
        return Found(best.point, estimate, query.bounds, promise)


@dataclass(frozen=True)
class Found:
    """What may be released: the point, its loss, and what is promised now that the run is known."""

    point: Vector
    loss: Estimate
    bounds: tuple[float, float]
    promise: Excess


def fewest_iterations(settled: Callable[[int], Settled], goal: float) -> Settled:
    """Return the fewest iterations whose promise is at most `goal`."""

    def promised(count: int) -> float:
        promise = settled(count).promise
        bound = promise.likely if promise.likely is not None else promise.expected
        return float("inf") if bound is None else bound

    low, high = 1, 1
    while promised(high) > goal:
        if high >= MOST_ITERATIONS:
            raise PlanInfeasible(
                f"No number of iterations promises an excess loss of {goal:g} under this plan; its limit is"
                f" {promised(MOST_ITERATIONS):.3g}. Look in a smaller domain,"
                " plan fewer questions, or bring more rows.",
                excess=goal,
                best_excess=promised(MOST_ITERATIONS),
            )
        low, high = high, min(10 * high, MOST_ITERATIONS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if promised(middle) <= goal else (middle, high)
    return settled(high)
