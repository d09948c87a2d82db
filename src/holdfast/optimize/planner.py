"""What k optimization queries need for a target excess: iterations, coins and rows, by every route.

Every route is computed with valid constants. This library's routes also carry settings that achieve them:
`Session(data, **route.session)` can pay for every `minimize(loss, ..., **route.fit)`, including the answers for the
losses. The routes of the paper and of previous work use the constants of their proofs, repaired. Orders of growth,
which leave out all constants, are printed separately as formulas: they cannot be compared with numbers of rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil, inf, log, log1p, sqrt
from typing import Any

import numpy as np

from holdfast import check
from holdfast.errors import InvalidArgument, PlanInfeasible
from holdfast.guarantees import GUARANTEES
from holdfast.guarantees.mathematics import descent, exchange, sizes
from holdfast.guarantees.mathematics.search import smallest
from holdfast.guarantees.plan import Plan
from holdfast.guarantees.terms import Goal
from holdfast.notebook import aligned
from holdfast.optimize.losses import LinearLoss
from holdfast.optimize.objective import Ranges, domain_of

SPLITS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)  # share of the excess for descent; the rest is for generalization
MASSES = np.geomspace(1e-3, 0.1, 9)
LEAST_ROWS = 1_000
MOST_ROWS = 10**15
MOST_QUESTIONS = 10**12
GUESS = 1.01  # first guess of all coins over the gradients' coins: adds the answers for the losses, and rounding


@dataclass(frozen=True)
class Problem:
    """An optimization query in numbers."""

    dimension: int
    diameter: float  # of the domain
    difference: float  # R: the most that a row's loss differs between two points
    gradient: float  # G
    lows: tuple[float, ...]  # lower bounds of the gradient coordinates
    highs: tuple[float, ...]
    curvature: float = 0.0  # H, l2 included
    exact: float = 0.0  # largest norm of the l2 term's gradient
    answers: int = 1  # ordinary answers after each fit: its loss, and its accuracy if it classifies

    @classmethod
    def of(cls, loss: Any, *, radius: float | None = None, box: Any = None) -> "Problem":
        """Read the numbers off a loss; needs neither schema nor data."""
        if not isinstance(loss, LinearLoss):
            raise InvalidArgument("loss must be one of holdfast.losses; for others, fill in a Problem.", name="loss")
        domain = domain_of(loss.dimension, radius, box)
        ranges: Ranges = loss.ranges(domain)
        low, high = ranges.values
        return cls(
            dimension=loss.dimension,
            diameter=domain.diameter,
            difference=min(high - low, ranges.lipschitz * domain.diameter),
            gradient=ranges.gradient,
            lows=tuple(ranges.lows.tolist()),
            highs=tuple(ranges.highs.tolist()),
            curvature=ranges.curvature,
            exact=loss.l2 * domain.norm,
            answers=1 + loss.classifies,
        )

    @property
    def widths(self) -> tuple[float, ...]:
        """The widths of the gradient coordinates' ranges."""
        return tuple(high - low for low, high in zip(self.lows, self.highs, strict=True))

    def largest(self, mass: float) -> float:
        """M for coins, including the l2 term: a gradient made of coins is always bounded."""
        return descent.largest_gradient(self.lows, self.highs, mass=mass) + self.exact

    def moment(self, ell: int, mass: float) -> float:
        """Gh for coins, including the l2 term."""
        by_variance = descent.coin_moment(self.gradient, self.widths, ell=ell, mass=mass) + self.exact
        return min(by_variance, self.largest(mass))


@dataclass(frozen=True)
class Route:
    """One way to answer all queries. `promise` says what kind of bound it is."""

    name: str
    promise: str
    rows: float
    iterations: float
    rows_per_coordinate: float
    charge: float | None  # coins of the whole session, including the answers for the losses
    gradient_evaluations: float
    session: Mapping[str, Any] = field(default_factory=dict, repr=False)  # how to open a session that can pay
    fit: Mapping[str, Any] = field(default_factory=dict, repr=False)  # how to ask each optimization query in it

    @property
    def cells(self) -> tuple[str, ...]:
        """This route's row in the printed table."""
        numbers = (self.rows, self.iterations, self.rows_per_coordinate, self.charge, self.gradient_evaluations)
        return (self.name, self.promise, *("-" if x is None else f"{x:.3g}" for x in numbers))


ORDERS = {
    "convex": (
        "paper: n ~ d^1.5 sqrt(k)/a^5, k d/a^2 answers of d/a^4 rows",
        "previous work: n ~ sqrt(d k)/a^2, k d n^2 evaluations",
    ),
    "strongly convex": (
        "paper: n ~ d^1.5 sqrt(k)/a^2.5, k d/a answers of d/a^2 rows",
        "previous work: n ~ sqrt(d k)/a^1.5, k d n^2 evaluations",
    ),
}


@dataclass(frozen=True)
class DescentPlan:
    """All routes to one goal; `kinds` selects which orders of growth are printed."""

    queries: int
    excess: float
    routes: tuple[Route, ...]
    kinds: tuple[str, ...] = ("convex",)

    def __getitem__(self, name: str) -> Route:
        for route in self.routes:
            if route.name == name:
                return route
        raise KeyError(name)

    def __str__(self) -> str:
        head = ("route", "promise", "rows", "iterations", "rows a coordinate", "coins", "gradient evaluations")
        table = aligned([head, *(route.cells for route in self.routes)])
        orders = [f"  {kind}, {order}" for kind in self.kinds for order in ORDERS[kind]]
        return "\n".join(
            [
                f"{self.queries:,} optimization queries, excess loss at most {self.excess:g}",
                *table,
                "Orders of growth as published, constants left out (a: the excess); no numbers of rows:",
                *orders,
            ]
        )


def plan_descent(problem: Problem, *, queries: int, excess: float, confidence: float = 0.95) -> DescentPlan:
    """Return what `queries` adaptively chosen losses like this one need, each with excess loss at most `excess`.

    >>> p = Problem(dimension=10, diameter=1.0, difference=1.0, gradient=1.0, lows=(-1.0,) * 10, highs=(1.0,) * 10)
    >>> round(plan_descent(p, queries=100, excess=0.1)["coins, convex"].rows, -3)
    81000
    """
    check.whole(queries=queries)
    check.positive(excess=excess)
    check.probability(confidence=confidence)
    kinds = ["convex"] + (["strongly convex"] if problem.curvature > 0 else [])
    routes = [_expected(problem, queries, excess, confidence, kind, laplace=False) for kind in kinds]
    routes += [_expected(problem, queries, excess, confidence, kind, laplace=True) for kind in kinds]
    routes += [_likely(problem, queries, excess, confidence, kind) for kind in kinds]
    routes += [route for kind in kinds for route in _published(problem, queries, excess, confidence, kind)]
    return DescentPlan(queries, excess, tuple(routes), tuple(kinds))


def iterations_for(problem: Problem, norm: float, goal: float, kind: str) -> int:
    """Return the fewest iterations whose excess on the rows is at most `goal`."""
    if kind == "convex":
        return max(1, ceil(2 * (problem.diameter * norm / goal) ** 2))
    ratio = norm * norm / (problem.curvature * goal)
    count = max(1.0, ratio)
    for _ in range(100):
        count = max(1.0, ratio * (1 + log(count)))  # increases toward the fixed point
    return ceil(count * (1 + 1e-9))


def _ell(problem: Problem) -> int:
    """Return the coins per coordinate at which noise adds no more to the squared norm than the gradient itself."""
    return max(1, ceil(sum(w * w for w in problem.widths) / (4 * problem.gradient**2) - 1e-9))


def _session(k: int, work: int, answers: int, rows: int, confidence: float, guarantee: str) -> Plan | None:
    """Return the plan of a session that can pay k times for `work` coins and the ordinary answers after them; or None.

    Sessions are planned for a number of ordinary answers; more answers mean more coins.
    """
    planner = GUARANTEES[guarantee]

    def short(questions: int) -> float:
        terms = planner.plan(Goal(rows, questions, confidence), "coins")
        return inf if terms is None else log(k * (work + answers * terms.rows_per_query) / terms.charge)

    questions = smallest(short, low=(answers + 1) * k, high=MOST_QUESTIONS)  # + 1: the excess is a statement too
    terms = None if questions is None else planner.plan(Goal(rows, questions, confidence), "coins")
    return None if terms is None else Plan(planner(terms))


def _route(names: tuple[str, str], fit: dict[str, Any], k: int, work: int, stands: Plan) -> Route:
    session = {"queries": stands.queries, "confidence": stands.confidence, "guarantee": stands.guarantee, "end": True}
    numbers = (stands.rows, fit["iterations"], fit["rows_per_coordinate"], stands.terms.charge, k * work)
    return Route(*names, *numbers, session | {"mechanism": stands.mechanism}, fit)


def _expected(problem: Problem, k: int, alpha: float, confidence: float, kind: str, *, laplace: bool) -> Route:
    """In expectation for each query: excess on the rows plus R sqrt(B)/n."""
    d, ell = problem.dimension, _ell(problem)
    if laplace:  # charge each coordinate as much as ell coins: eps0 = sqrt(ell)/n
        scale = 1 / (ell * log1p(1 / sqrt(ell)))
        norm = descent.laplace_moment(problem.gradient, problem.widths, ell=ell, scale=scale) + problem.exact
    else:
        norm = problem.moment(ell, 1 / LEAST_ROWS)

    def at(split: float) -> tuple[int, int]:
        steps = iterations_for(problem, norm, split * alpha, kind)
        flips = GUESS * k * steps * d * ell
        return max(LEAST_ROWS, ceil(problem.difference * sqrt(flips) / ((1 - split) * alpha))), steps

    rows, steps = min(at(split) for split in SPLITS)
    work, on_rows = steps * d * ell, _on_rows(problem, norm, 0.0, steps, 0.5, kind)
    fit: dict[str, Any] = {"iterations": steps, "rows_per_coordinate": ell}
    name = f"coins, {kind}"
    if laplace:
        fit, name = fit | {"mechanism": "laplace"}, f"laplace, {kind}"
    while rows < MOST_ROWS:
        stands = _session(k, work, problem.answers, rows, confidence, "information")
        if stands is not None and on_rows + problem.difference * sqrt(stands.terms.charge) / rows <= alpha:
            return _route((name, "in expectation"), fit, k, work, stands)
        rows = ceil(1.005 * rows)
    raise _infeasible(alpha, k)


def _likely(problem: Problem, k: int, alpha: float, confidence: float, kind: str) -> Route:
    """All queries at once with probability 1 - beta, by the exchange guarantee."""
    d, ell, beta = problem.dimension, _ell(problem), 1 - confidence
    best: tuple[int, int] | None = None
    for mass in MASSES:
        spread = descent.spread(problem.widths, ell=ell, mass=float(mass))
        norm = problem.largest(float(mass))
        for split in SPLITS:
            steps = iterations_for(problem, norm, 0.9 * split * alpha, kind)
            level = beta / (100 * k)  # some of beta, shared by all statements of the session
            while _on_rows(problem, norm, spread, steps, level, kind) > split * alpha:
                steps = ceil(1.1 * steps)
            flips, room = GUESS * k * steps * d * ell, (1 - split) * alpha

            def short(n: int, flips: float = flips, room: float = room, mass: float = float(mass)) -> float:
                free = exchange.constants(n, flips, mass, beta / 2)
                nats = exchange.ibar(n, flips, mass, free.om2, free.kap, free.s, free.L, free.L2)
                return log(2 * problem.difference * sqrt(nats / n) / room)

            if best is not None and short(best[0]) > 0:
                continue
            found = smallest(short, low=LEAST_ROWS, high=MOST_ROWS)
            if found is not None and (best is None or found < best[0]):
                best = (found, steps)
    while best is not None and best[0] < MOST_ROWS:  # what a session really plans differs from the guess
        rows, steps = best
        stands = _session(k, steps * d * ell, problem.answers, rows, confidence, "exchange")
        if stands is not None and _promised(problem, stands, steps, ell, kind) <= alpha:
            fit = {"iterations": steps, "rows_per_coordinate": ell}
            return _route((f"coins, {kind}, exchange", "all at once"), fit, k, steps * d * ell, stands)
        best = ceil(1.02 * rows), ceil(1.01 * steps)
    raise _infeasible(alpha, k)


def _infeasible(alpha: float, k: int) -> PlanInfeasible:
    return PlanInfeasible(
        f"No number of rows below {MOST_ROWS:.0e} promises an excess of {alpha:g} for {k:,} optimization"
        " queries; allow more.",
        excess=alpha,
    )


def _promised(problem: Problem, stands: Plan, steps: int, ell: int, kind: str) -> float:
    """Return the excess that a fit in this session promises before it runs."""
    mass, promised = stands.standing.answering().coin_mass, stands.standing.fits
    beta = promised.level or 0.0
    if problem.curvature > 0:  # a fit uses the step sizes with the better expected bound, whatever the route's name
        norm = problem.moment(ell, mass)
        kind = min(("convex", "strongly convex"), key=lambda each: _on_rows(problem, norm, 0.0, steps, beta, each))
    spread = descent.spread(problem.widths, ell=ell, mass=mass)
    on_rows = _on_rows(problem, problem.largest(mass), spread, steps, beta, kind)
    bound = promised.excess(on_rows, R=problem.difference, lipschitz=problem.gradient, curvature=0.0)
    return inf if bound is None else bound


def _on_rows(problem: Problem, norm: float, spread: float, steps: int, beta: float, kind: str) -> float:
    if kind == "convex":
        tail = descent.convex_tail(problem.diameter, spread, 1, beta) / sqrt(steps)
        return descent.convex_excess(problem.diameter, norm, 1) / sqrt(steps) + tail
    tail = descent.strongly_convex_tail(spread, problem.curvature, steps, beta)
    return descent.strongly_convex_excess(norm, problem.curvature, steps) + tail


def _published(problem: Problem, k: int, alpha: float, confidence: float, kind: str) -> Iterator[Route]:
    """The paper's systems and previous work's, with the constants of their proofs, repaired."""
    numbers: dict[str, Any] = {
        "d": problem.dimension,
        "diameter": problem.diameter,
        "gradient": problem.gradient + problem.exact,
        "width": max(problem.widths),
        "spread": problem.difference,
        "strong": problem.curvature if kind != "convex" else 0.0,
    }
    once, d = sizes.descent(alpha, k, **numbers), problem.dimension
    yield Route(f"paper, {kind}", "in expectation", once.n, once.steps, once.ell, None, k * once.steps * d * once.ell)
    if alpha <= 4 * problem.difference:
        best = sizes.boosted_descent(alpha, 1 - confidence, k, **numbers)
        work = k * best.runs * best.steps * d * best.ell
        yield Route(f"paper, {kind}, best of {best.runs}", "all at once", best.n, best.steps, best.ell, None, work)
    before = sizes.full_gradient_descent(alpha, k, **numbers)
    work = k * before.steps * d * before.n
    yield Route(f"previous work, {kind}", "in expectation", before.n, before.steps, before.n, None, work)
