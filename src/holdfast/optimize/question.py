"""`minimize` as a question: settled and priced before any row is read, one entry in the ledger."""

import json
from typing import Any

from numpy.random import Generator

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.guarantees.mathematics.descent import AVERAGES
from holdfast.optimize import bounds
from holdfast.optimize.boosting import Contest
from holdfast.optimize.choices import choice_of, default_iterations, default_selector, mechanism_of, oracle_of
from holdfast.optimize.descent import Descent
from holdfast.optimize.domain import Domain, domain_of
from holdfast.optimize.losses import LinearLoss, Loss
from holdfast.optimize.objective import Objective
from holdfast.optimize.own import OwnObjective
from holdfast.optimize.settled import Settled, fewest_iterations
from holdfast.questions import Desk, Question
from holdfast.rows.source import RowSource


def minimize(
    desk: Desk,
    loss: Any,
    *,
    radius: float | None = None,
    box: Any = None,
    excess: float | None = None,
    iterations: int | None = None,
    rows_per_coordinate: int | None = None,
    average: str = "uniform",
    mechanism: str | None = None,
    runs: int = 1,
    select: str | None = None,
) -> Question:
    """A point of small population loss, and the interval of its loss."""
    check.one_of("average", average, AVERAGES)
    check.whole(runs=runs)
    if excess is not None and iterations is not None:
        raise InvalidArgument("Give excess or iterations, not both: the other follows.")
    objective, domain = _bound(loss, desk, radius, box)
    kind = mechanism_of(desk.plan, mechanism)
    oracle = oracle_of(desk.plan, objective, kind, rows_per_coordinate)
    by = select or default_selector(kind)
    choice = None if runs == 1 else choice_of(desk.plan, Contest(objective, domain), runs, by)

    def settled(count: int) -> Settled:
        descent = Descent(objective, domain, oracle, count, average)
        promise = bounds.excess(desk.plan, descent, runs=runs, choice=choice)
        return Settled(descent, runs, choice, promise, desk.plan.rows_per_query)

    if excess is not None:
        check.positive(excess=excess)
        chosen = fewest_iterations(settled, excess)
    else:
        if iterations is not None:
            check.whole(iterations=iterations)
        chosen = settled(iterations or default_iterations(desk.plan, oracle, kind))
    settings = {
        "domain": repr(domain),
        "iterations": chosen.descent.iterations,
        "rows_per_coordinate": oracle.ell,
        "average": average,
        "mechanism": kind,
        "runs": runs,
        "select": None if choice is None else by,
    }
    return _question(desk, chosen, settings)


def _question(desk: Desk, chosen: Settled, settings: dict[str, Any]) -> Question:
    objective = chosen.descent.objective
    price = chosen.price(desk)
    work = chosen.runs * chosen.descent.iterations * chosen.descent.oracle.rows_read

    def run(source: RowSource, rng: Generator, start: int) -> dict[str, Any]:
        rehearsed = chosen if desk.most_draws is None else _rehearsal(chosen, desk.most_draws)
        found = rehearsed.run(desk, source, rng, start)
        return {
            "estimate": [found.loss.value, found.loss.low, found.loss.high],
            "bounds": list(found.bounds),
            "point": [float(x) for x in found.point],
            "names": list(objective.names),
            "excess_bound": found.promise.likely,
            "expected_excess_bound": chosen.promise.expected,
            "iterations": chosen.descent.iterations,
            "gradient_evaluations": work,
        }

    low, high = objective.ranges.values
    identity = None
    if objective.identity is not None:
        identity = json.dumps({"minimize": objective.identity} | settings, sort_keys=True)
    return Question(
        kind="minimize",
        text=f"minimum of {objective.text}, {chosen.descent.domain.text}",
        identity=identity,
        price=price,
        accuracy=chosen.promise.likely if chosen.promise.likely is not None else chosen.promise.expected,
        bounds=(low, high + objective.l2 / 2 * chosen.descent.domain.norm**2),
        run=run,
    )


def _rehearsal(chosen: Settled, most: int) -> Settled:
    """Return a short run for made-up rows: the same code and shape, little work."""
    descent, oracle = chosen.descent, chosen.descent.oracle
    small: dict[str, Any] = dict(vars(oracle)) | {"ell": min(oracle.ell, max(1, most // 100))}
    steps = min(3, descent.iterations)
    short = Descent(descent.objective, descent.domain, type(oracle)(**small), steps, descent.average)
    return Settled(short, chosen.runs, chosen.choice, chosen.promise, chosen.loss_draws)


def _bound(loss: Any, desk: Desk, radius: Any, box: Any) -> tuple[Objective, Domain]:
    if isinstance(loss, LinearLoss):
        domain = domain_of(loss.dimension, radius, box)
        return loss.bind(desk.schema, domain), domain
    if not isinstance(loss, Loss):
        raise InvalidArgument(
            f"loss must be one of holdfast.losses, or have the attributes of holdfast.losses.Loss;"
            f" got {type(loss).__name__}.",
            name="loss",
        )
    check.whole(dimension=loss.dimension)
    domain = domain_of(loss.dimension, radius, box)
    return OwnObjective.of(loss, desk.schema, domain), domain
