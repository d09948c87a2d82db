"""A point of small population loss, by descent through answers only, and the interval of its loss."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Annotated, Any

from holdfast import check
from holdfast.answer import Answer, AnyAnswer, Estimate, Interval, Record, write_end
from holdfast.errors import InvalidArgument
from holdfast.guarantees.mathematics.descent import AVERAGES
from holdfast.ledger import Cost
from holdfast.optimize.boosting import SELECTORS
from holdfast.optimize.domain import Domain, domain_of
from holdfast.optimize.fit import Fit
from holdfast.optimize.gradient import GRADIENTS
from holdfast.optimize.losses import LinearLoss, Loss
from holdfast.optimize.objective import LossAt, Objective
from holdfast.optimize.own import OwnObjective
from holdfast.questions import KINDS
from holdfast.questions.options import About, BoxForm, Choice, LossLike, Real, Whole
from holdfast.questions.question import RELEASE_WORK, Context, Drawing, Question, Result, encode, kind_of
from holdfast.schema import Schema

SHOWN = 20  # coordinates in a printout


@dataclass(frozen=True, repr=False)
class MinimumAnswer(AnyAnswer):
    """A point of small population loss, the interval of its loss, and how far it can be from the best.

    Parameters
    ----------
    point, names
        The point, in the scaled units of the loss, and what its coordinates are called.
    coefficients
        The same model in the features' own units, intercept included; None for losses of your own.
    loss
        The loss at the point, with its interval.
    excess_bound
        How far the loss can be above the smallest one, together with all intervals of the session; None where the
        session's guarantee has no such promise.
    expected_excess_bound
        The same in expectation over the session, for a loss whose range was fixed before it.
    iterations, gradient_evaluations
        Steps of descent, and values of a gradient's coordinate that were evaluated on a row.
    record
        Where the answer comes from.
    """

    point: tuple[float, ...]
    names: tuple[str, ...]
    coefficients: Mapping[str, float] | None
    loss: Answer
    excess_bound: float | None
    expected_excess_bound: float | None
    iterations: int
    gradient_evaluations: int
    record: Record

    def result(self) -> dict[str, Any]:
        """The point and its names (in order, which an object would lose), the loss, and what is promised."""
        return {
            "names": list(self.names),
            "point": list(self.point),
            "coefficients": None if self.coefficients is None else dict(self.coefficients),
            "loss": self.loss.result(),
            "excess_bound": self.excess_bound,
            "expected_excess_bound": self.expected_excess_bound,
            "iterations": self.iterations,
            "gradient_evaluations": self.gradient_evaluations,
        }

    @classmethod
    def read(cls, result: Mapping[str, Any], record: Record) -> "MinimumAnswer":
        """Rebuild the answer from what `result` returned, and its `record`."""
        return cls(
            tuple(map(float, result["point"])),
            tuple(result["names"]),
            result["coefficients"],
            Answer.read(result["loss"], record),
            result["excess_bound"],
            result["expected_excess_bound"],
            result["iterations"],
            result["gradient_evaluations"],
            record,
        )

    def rows(self) -> list[tuple[str | None, Estimate]]:
        """The interval of the loss."""
        return self.loss.rows()

    @property
    def bounds(self) -> Interval:
        """The range of the loss."""
        return self.loss.bounds

    def details(self) -> list[tuple[str, str]]:
        """The coordinates of the point, and what is promised."""
        point = [(name, f"{x:.4g}") for name, x in zip(self.names, self.point, strict=True)]
        return [*point, ("loss", self._promise), ("iterations", f"{self.iterations:,}")]

    @property
    def _promise(self) -> str:
        if self.excess_bound is not None:
            return f"at most {write_end(self.excess_bound, 3, up=True)} above the smallest loss"
        if self.expected_excess_bound is not None:
            above = write_end(self.expected_excess_bound, 3, up=True)
            return f"at most {above} above the smallest loss, in expectation"
        return "no bound on how far above the smallest loss"

    def __repr__(self) -> str:
        width = max(len(name) for name in self.names)
        shown = [f"{n.ljust(width)}  {x: .4f}" for n, x in zip(self.names[:SHOWN], self.point, strict=False)]
        if len(self.names) > SHOWN:
            shown.append(f"and {len(self.names) - SHOWN} more")
        return "\n".join([*shown, f"loss {self.loss!r}", f"{self._promise}; {self.iterations:,} iterations"])

    def _repr_html_(self) -> str:
        pairs = zip(self.names, self.point, strict=True)
        rows = "".join(f"<tr><td>{escape(name)}</td><td>{x:.4f}</td></tr>" for name, x in pairs)
        return f"<table>{rows}</table>{self.loss._repr_html_()}<small>{escape(self._promise)}</small>"


def minimize(
    context: Context,
    loss: LossLike,
    *,
    radius: Annotated[float | None, About(Real(0.0, None, "3"), "Look in a ball of this radius around zero.")] = None,
    box: Annotated[
        tuple[float, float] | list[tuple[float, float]] | None,
        About(BoxForm(), "Look in a box: one pair for every coordinate, or a list with one for each."),
    ] = None,
    excess: Annotated[
        float | None,
        About(Real(0.0, None, "0.1"), "How far the loss may be above the smallest; the iterations follow."),
    ] = None,
    iterations: Annotated[int | None, About(Whole(1, "500"), "Steps of descent.")] = None,
    rows_per_coordinate: Annotated[
        int | None, About(Whole(1, "100"), "Rows read for each coordinate of a gradient.")
    ] = None,
    average: Annotated[str, About(Choice(AVERAGES), "Which points of the run are averaged.")] = AVERAGES[0],
    mechanism: Annotated[str | None, About(Choice(tuple(GRADIENTS)), "How gradients are answered.")] = None,
    runs: Annotated[int, About(Whole(1, "1"), "Run so often, keep the best run.")] = 1,
    select: Annotated[str | None, About(Choice(tuple(SELECTORS)), "How the best run is chosen.")] = None,
) -> Question:
    """Return a point of small population loss in a ball or box, and the interval of its loss.

    Parameters
    ----------
    loss
        One of `holdfast.losses`, or your own.
    radius, box
        Where to look: a ball around zero, or a box.
    excess
        How far the loss may be above the smallest one; the number of iterations follows.
    iterations, rows_per_coordinate
        What to spend: steps, and rows for each coordinate of a gradient.
    average, mechanism, runs, select
        Which points are averaged, how gradients are answered, how often to run and how the best run is chosen; see the
        guide to optimization.

    Returns
    -------
    MinimumAnswer
        The point, its loss, and what is promised.
    """
    objective, domain = _bound(loss, context.schema, radius, box)
    fit = Fit.decide(
        context.guarantee,
        objective,
        domain,
        spent=(context.spent.charge, context.spent.intervals),
        excess=excess,
        iterations=iterations,
        rows_per_coordinate=rows_per_coordinate,
        average=average,
        mechanism=mechanism,
        runs=runs,
        select=select,
    )
    promise = fit.promise()
    loss_draws: int = context.guarantee.terms.rows_per_query
    final, final_rows = context.price(LossAt(objective, domain.center), loss_draws)

    def run(drawing: Drawing) -> Result:
        shown = fit if drawing.most_draws is None else fit.shortened(drawing.most_draws)
        found = shown.run(drawing.source, drawing.rng)
        query = LossAt(objective, found.point)
        (estimate,) = drawing.estimates(query, loss_draws)
        return {
            "names": list(objective.names),
            "point": found.point.tolist(),
            "coefficients": objective.coefficients(found.point),
            "loss": estimate.to_json() | {"bounds": list(query.bounds)},
            "excess_bound": shown.promise(found.regret, drawing.guarantee).likely,
            "expected_excess_bound": fit.promise(at=drawing.guarantee).expected,
            "iterations": fit.descent.iterations,
            "gradient_evaluations": fit.gradient_evaluations,
        }

    identity = None
    if objective.identity is not None:
        identity = encode({"minimize": objective.identity} | fit.settings)
    return Question(
        kind=MINIMIZE.name,
        text=f"minimum of {objective.text}, {domain.text}",
        identity=identity,
        cost=Cost(fit.charge + final.charge, final.intervals + (promise.likely is not None)),
        rows_read=fit.rows_read + final_rows,
        work=(fit.steps + 1) * RELEASE_WORK + (fit.rows_read + final_rows) * objective.work,
        run=run,
        excess_bound=promise.likely if promise.likely is not None else promise.expected,
    )


def _bound(loss: LossLike, schema: Schema, radius: float | None, box: Any) -> tuple[Objective, Domain]:
    if isinstance(loss, LinearLoss):
        domain = domain_of(loss.dimension, radius, box)
        return loss.bind(schema, domain), domain
    if not isinstance(loss, Loss):
        raise InvalidArgument(
            f"loss must be one of holdfast.losses, or have the attributes of holdfast.losses.Loss;"
            f" got {type(loss).__name__}.",
            name="loss",
        )
    check.whole(dimension=loss.dimension)
    domain = domain_of(loss.dimension, radius, box)
    return OwnObjective.of(loss, schema, domain), domain


MINIMIZE = kind_of(minimize, MinimumAnswer)
KINDS.register(MINIMIZE.name, MINIMIZE)
