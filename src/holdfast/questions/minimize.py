"""A point of small population loss, by descent through answers only, and the interval of its loss."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from math import isfinite
from typing import Annotated, Any

from holdfast import check, notebook
from holdfast.errors import InvalidArgument
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.mathematics.descent import AVERAGES, distance_from_minimizer
from holdfast.guarantees.terms import Terms
from holdfast.ledger import Cost
from holdfast.optimize.descent import SELECTORS, Run
from holdfast.optimize.fit import AUTO, FIRST, LOOKS, Fit, Search
from holdfast.optimize.formulas import read_loss
from holdfast.optimize.gradient import GRADIENTS
from holdfast.optimize.losses import LinearLoss, Loss
from holdfast.optimize.objective import AccuracyAt, Domain, LossAt, Objective, OwnObjective, Vector, domain_of
from holdfast.questions import KINDS
from holdfast.questions.answer import Answer, AnyAnswer, Record
from holdfast.questions.estimate import Estimate, Interval, write_end
from holdfast.questions.kind import kind_of
from holdfast.questions.options import About, BoxForm, Choice, LossLike, Real, RealOrWord, Whole
from holdfast.questions.question import RELEASE_WORK, Context, Drawing, Forecast, Question, Result, encode, total_of
from holdfast.schema import Schema

SHOWN = 20  # coordinates in a printout
NO_INTERVALS = "(coefficients have no intervals: one near 0 may have either sign)"


@dataclass(frozen=True, repr=False, eq=False)
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
    accuracy
        The share of rows that the model gets right, with its interval; None if it does not say yes or no.
    excess_bound
        How far the loss can be above the smallest one; it holds together with all intervals of the session. None if
        nothing is guaranteed, or nothing better than the loss itself.
    expected_excess_bound
        The same in expectation over the session, for a loss whose range was fixed before it.
    distance_bound
        How far the point can be from the best one; only with l2, by strong convexity. None if the size of the domain
        implies as much.
    coefficient_intervals
        Where the best model's coefficients lie, by `distance_bound`; None where that is None.
    domain
        Where the point was looked for.
    iterations, gradient_evaluations
        Steps of descent, and how often a coordinate of a gradient was evaluated on a row.
    record
        Where the answer comes from.
    """

    point: tuple[float, ...]
    names: tuple[str, ...]
    coefficients: Mapping[str, float] | None
    loss: Answer
    accuracy: Answer | None
    excess_bound: float | None
    expected_excess_bound: float | None
    distance_bound: float | None
    coefficient_intervals: Mapping[str, Interval] | None
    domain: str
    iterations: int
    gradient_evaluations: int
    record: Record

    def result(self) -> dict[str, Any]:
        """The point and its names (in order, which an object would lose), the loss, and what is promised."""
        intervals = self.coefficient_intervals
        return {
            "names": list(self.names),
            "point": list(self.point),
            "coefficients": None if self.coefficients is None else dict(self.coefficients),
            "loss": self.loss.result(),
            "accuracy": None if self.accuracy is None else self.accuracy.result(),
            "excess_bound": self.excess_bound,
            "expected_excess_bound": self.expected_excess_bound,
            "distance_bound": self.distance_bound,
            "coefficient_intervals": None if intervals is None else {name: list(x) for name, x in intervals.items()},
            "domain": self.domain,
            "iterations": self.iterations,
            "gradient_evaluations": self.gradient_evaluations,
        }

    @classmethod
    def read(cls, result: Mapping[str, Any], record: Record) -> "MinimumAnswer":
        """Rebuild the answer from what `result` returned, and its `record`."""
        accuracy, intervals = result["accuracy"], result["coefficient_intervals"]
        return cls(
            tuple(map(float, result["point"])),
            tuple(result["names"]),
            result["coefficients"],
            Answer.read(result["loss"], record),
            None if accuracy is None else Answer.read(accuracy, record),
            result["excess_bound"],
            result["expected_excess_bound"],
            result["distance_bound"],
            None if intervals is None else {name: (float(low), float(high)) for name, (low, high) in intervals.items()},
            result["domain"],
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
        """The model, and what is promised."""
        point = [(name, own if not scaled else f"{own}, scaled {scaled}") for name, own, scaled in self._model]
        accuracy = [] if self.accuracy is None else [("accuracy", self._accuracy)]
        return [*point, *accuracy, ("loss", self._promise), ("looked at", self.domain),
                ("iterations", f"{self.iterations:,}")]  # fmt: skip

    @property
    def _model(self) -> list[tuple[str, str, str]]:
        """Names, coefficients in the features' own units, and coordinates of the point where these differ."""
        scaled = {name: f"{x:.3g}" for name, x in zip(self.names, self.point, strict=True)}
        if self.coefficients is None:
            return [(name, x, "") for name, x in scaled.items()]
        names = dict.fromkeys((*self.names, *self.coefficients))  # an intercept may come from the scales alone
        return [(name, f"{self.coefficients[name]:.3g}", scaled.get(name, "")) for name in names]

    @property
    def _headings(self) -> tuple[str, str, str]:
        return ("", "value", "") if self.coefficients is None else ("", "coefficient", "scaled")

    @property
    def _promise(self) -> str:
        if self.excess_bound is not None:
            above = f"at most {write_end(self.excess_bound, 3, up=True)} above the smallest loss"
            if self.distance_bound is None:
                return above
            return f"{above}, and the point at most {write_end(self.distance_bound, 3, up=True)} from the best one"
        if self.expected_excess_bound is not None:
            above = write_end(self.expected_excess_bound, 3, up=True)
            return f"at most {above} above the smallest loss, in expectation"
        return "no bound on the distance to the smallest loss that says more than the loss itself"

    def __repr__(self) -> str:
        model = self._model
        lines = [self._headings, *model[:SHOWN]]
        name, own, scaled = (max(map(len, column)) for column in zip(*lines, strict=True))
        shown = [f"{a.ljust(name)}  {b.rjust(own)}  {c.rjust(scaled)}".rstrip() for a, b, c in lines]
        if len(model) > SHOWN:
            shown.append(f"and {len(model) - SHOWN} more")
        if self.coefficient_intervals is None:
            shown.append(NO_INTERVALS)
        certified = [f"loss {self.loss!r}"] if self.accuracy is None else [
            f"accuracy {self._accuracy}", f"loss {self.loss!r}"]  # fmt: skip
        return "\n".join([*shown, *certified, f"{self._promise}; {self.iterations:,} iterations, {self.domain}"])

    @property
    def _accuracy(self) -> str:
        """The accuracy as text, without the small print, which the loss has."""
        assert self.accuracy is not None
        value, low, high = self.accuracy.rounded()
        return f"{value}  [{low}, {high}]"

    def _repr_html_(self) -> str:
        accuracy = "" if self.accuracy is None else f"<div>accuracy {escape(self._accuracy)}</div>"
        point = notebook.table(self._headings, self._model)
        if self.coefficient_intervals is None:
            point += notebook.small(NO_INTERVALS)
        return f"{point}{accuracy}{self.loss._repr_html_()}{notebook.small(self._promise)}"


def minimize(
    context: Context,
    loss: LossLike,
    *,
    radius: Annotated[
        float | str | None,
        About(
            RealOrWord(0.0, None, "3", AUTO),
            "Look in a ball of this radius around zero; auto: one that is found on the way.",
        ),
    ] = None,
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
    runs: Annotated[int, About(Whole(1, "1"), "How many runs to make; the best one is kept.")] = 1,
    select: Annotated[str | None, About(Choice(tuple(SELECTORS)), "How the best run is chosen.")] = None,
) -> Question:
    """Return a point of small population loss in a ball or box, and the interval of its loss.

    Parameters
    ----------
    loss
        One of `holdfast.losses`, a formula such as "logistic: late ~ distance [0, 5000]", or your own.
    radius, box
        Where to look: a ball around zero, or a box. With radius="auto" some of the steps find out how large the ball
        must be.
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
    if isinstance(radius, str):
        _check_auto(radius, box, excess, runs)
    spent = context.so_far()

    def at(size: float | None) -> Fit:
        objective, domain = _bound(loss, context.schema, size, box)
        return Fit.decide(
            context.guarantee,
            objective,
            domain,
            spent=(spent.charge, spent.intervals),
            answers=1 + objective.classifies + (LOOKS if isinstance(radius, str) else 0),
            excess=excess,
            iterations=iterations,
            rows_per_coordinate=rows_per_coordinate,
            average=average,
            mechanism=mechanism,
            runs=runs,
            select=select,
            searched=radius if isinstance(radius, str) else None,
        )

    search = Search(at) if isinstance(radius, str) else None
    fit = at(FIRST if isinstance(radius, str) else radius)
    if context.dealt:
        _require_dealt(fit, context.guarantee.terms)
    objective = fit.descent.objective
    promise = fit.promise()
    draws: int = context.guarantee.terms.rows_per_query
    asked = final_queries(fit, fit.descent.domain.center)
    prices = [context.price(query, draws) for query in asked + (LOOKS * asked[:1] if search else [])]
    certifying = total_of([cost for cost, _ in prices])
    rows_read = fit.rows_read + sum(rows for _, rows in prices)

    def run(drawing: Drawing) -> Result:
        most = drawing.most_draws
        if search is None:
            ended = fit if most is None else fit.shortened(most)
            found = ended.run(drawing.source, drawing.rng)
        else:
            looking = search if most is None else search.shortened(most)
            ended, found = looking.run(drawing.source, drawing.rng, lambda look: drawing.estimates(look, draws)[0].high)
        queries = final_queries(ended, found.point)
        certified = [drawing.estimates(query, draws)[0].to_result(query.bounds) for query in queries]
        lowest = ended.descent.objective.ranges.values[0]  # no loss is below this, so the loss itself is a bound
        return (
            {"loss": certified[0], "accuracy": certified[1] if len(certified) > 1 else None}
            | located(ended, found, certified[0]["high"] - lowest, drawing.guarantee)
            | {"iterations": fit.descent.iterations, "gradient_evaluations": fit.gradient_evaluations}
        )

    identity = None
    if objective.identity is not None:
        identity = encode({"minimize": objective.identity} | fit.settings)
    bound = None if search else (promise.likely if promise.likely is not None else promise.expected)
    where = fit.descent.domain.text if search is None else "in a ball found on the way"
    return Question(
        kind=MINIMIZE.name,
        text=f"fit to {objective.text}, {where}",
        identity=identity,
        cost=Cost(fit.charge + certifying.charge, certifying.intervals + (promise.likely is not None)),
        rows_read=rows_read,
        work=(fit.steps + len(prices)) * RELEASE_WORK + rows_read * objective.work,
        run=run,
        forecast=lambda _: Forecast(excess_bound=bound),
    )


def _require_dealt(fit: Fit, terms: Terms) -> None:
    """Refuse a fit that a deck has no cards for: they were dealt for the plan's own mechanism and number of rows."""
    by = [fit.mechanism, *(() if fit.choice is None else (fit.choice.mechanism,))]
    if any(mechanism != terms.mechanism for mechanism in by):
        raise InvalidArgument(
            f"mechanism and select must be left out for a deck, which holds draws for {terms.mechanism!r}; fit on the"
            " table itself.",
            name="mechanism",
        )
    if not fit.descent.gradient.by_rows:
        most = "the rows that this deck has cards for"
        check.at_most(most, terms.rows_per_query, rows_per_coordinate=fit.descent.gradient.ell)


def final_queries(fit: Fit, point: Vector) -> list[LossAt | AccuracyAt]:
    """Return the queries that certify the point: its loss, and its accuracy if the model says yes or no."""
    objective = fit.descent.objective
    queries: list[LossAt | AccuracyAt] = [LossAt(objective, point)]
    if objective.classifies:
        queries.append(AccuracyAt(objective, point))
    return queries


def located(fit: Fit, found: Run, trivial: float, guarantee: Guarantee) -> Result:
    """Return the point and its bounds, except those that say no more than `trivial`, the loss itself."""
    objective, domain = fit.descent.objective, fit.descent.domain
    likely, expected = fit.promise(found.regret, guarantee).likely, fit.promise(at=guarantee).expected
    if likely is not None and likely >= trivial:
        likely = None
    if expected is not None and expected >= trivial:
        expected = None
    coefficients, distance, intervals = objective.coefficients(found.point), None, None
    if likely is not None and objective.ranges.curvature > 0:
        distance = distance_from_minimizer(likely, objective.ranges.curvature)
        if distance >= domain.diameter:
            distance = None
    if distance is not None and coefficients is not None:
        slack = objective.slack(distance) or {}
        intervals = {name: [x - slack[name], x + slack[name]] for name, x in coefficients.items()}
    return {
        "names": list(objective.names),
        "point": found.point.tolist(),
        "coefficients": coefficients,
        "excess_bound": likely,
        "expected_excess_bound": expected,
        "distance_bound": distance,
        "coefficient_intervals": intervals,
        "domain": domain.text,
    }


def _check_auto(radius: str, box: object, excess: float | None, runs: int) -> None:
    check.one_of("radius", radius, (AUTO,))
    for name, given in (("box", box is not None), ("excess", excess is not None), ("runs", runs != 1)):
        if given:
            raise InvalidArgument(f"{name} must be left out when radius is {AUTO!r}.", name=name)


def _bound(loss: LossLike, schema: Schema, radius: float | None, box: Any) -> tuple[Objective, Domain]:
    if isinstance(loss, str):
        loss = read_loss(loss)
    if isinstance(loss, LinearLoss):
        domain = domain_of(loss.dimension, radius, box)
        objective = loss.bind(schema, domain)
        _check_units(objective, domain)
        return objective, domain
    if not isinstance(loss, Loss):
        raise InvalidArgument(
            f"loss must be one of holdfast.losses, or have the attributes of holdfast.losses.Loss;"
            f" got {type(loss).__name__}.",
            name="loss",
        )
    check.whole(dimension=loss.dimension)
    domain = domain_of(loss.dimension, radius, box)
    return OwnObjective.of(loss, schema, domain), domain


def _check_units(objective: Objective, domain: Domain) -> None:
    """Refuse a model whose coefficients could overflow in the features' own units."""
    at_center, slack = objective.coefficients(domain.center) or {}, objective.slack(domain.diameter) or {}
    if not all(isfinite(at_center[name] + slack[name]) and isfinite(at_center[name] - slack[name]) for name in slack):
        raise InvalidArgument(
            "within must be of comparable size for all features and for the target: in their own units, coefficients"
            " could overflow. Declare closer ranges, or look nearer to zero.",
            name="within",
        )


MINIMIZE = kind_of(minimize, MinimumAnswer)
KINDS.register(MINIMIZE.name, MINIMIZE)
