"""Variance, standard deviation, covariance, correlation, slope: means of quadratic functions, asked in stages.

Questions about one number and about two have a signature each (`of_one`, `of_two`); a moment says which stages it has,
and how it is computed from their results.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import wraps
from math import inf, nan, sqrt
from typing import Concatenate, ParamSpec

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.guarantees.mathematics.moments import QuadraticForm, quotient
from holdfast.ledger import Cost
from holdfast.queries.build import build_mean
from holdfast.queries.measures import Mean, Quadratic, Share, about
from holdfast.questions import KINDS
from holdfast.questions.answer import Answer
from holdfast.questions.estimate import SAYS_NOTHING, Estimate, Interval, multiple, write_end
from holdfast.questions.imagined import Imagined, about_margin
from holdfast.questions.kind import Kind
from holdfast.questions.options import Other, Query, RowsPerQuery, Where, Within, options_of
from holdfast.questions.question import NOT_KNOWN, SHOWN_SHARES, Context, Drawing, Question, Result, written_shares
from holdfast.questions.stages import FIRST, DrawnStages, Found, PlannedStages, Stages

STEEPEST = 1e200  # stands for any slope, of two numbers in [0, 1]: a variance that allows it is 0 in double precision
ROUNDING = 1e-12  # bounds the relative rounding errors of roots and quotients
SMALLEST = 1e-8  # replaces a smaller estimate of a variance that is divided by
DEVIATIONS = (0.02, 0.1, 0.25)  # of numbers, in parts of their ranges, for which a price says what to expect
MIDDLING = DEVIATIONS[1]
COUNT = list(zip(SHOWN_SHARES, written_shares(SHOWN_SHARES, "of the rows count"), strict=True))
BEYOND = 0.7  # the ends of a quotient are searched for at this part of its uncertainty from the estimate
SQUARE, OTHER_SQUARE, PRODUCT = QuadraticForm(xx=1.0), QuadraticForm(yy=1.0), QuadraticForm(xy=1.0)

P = ParamSpec("P")
Ranged = tuple[Found, Interval]  # and the range it has to be in


# -- moments of values in [0, 1] ----------------------------------------------------------------------------------


def variance_of(stages: Stages) -> Ranged:
    """Return the variance of one value: E(x-c)^2 about its estimated mean c, less what the error of c can add."""
    stages.center()
    value, (low, high) = stages.central(SQUARE, stages.count(11 / 8))
    least, most = (stages.centers[0] + end for end in stages.offsets[0])
    top = max(x * (1 - x) for x in (least, most, min(max(0.5, least), most)))
    return (value, (max(0.0, low), min(0.25, high, top))), (0.0, 0.25)


def deviation_of(stages: Stages) -> Ranged:
    """Return the standard deviation of one value: the root of its variance."""
    (value, (low, high)), _ = variance_of(stages)
    last = sqrt(high) * (1 + ROUNDING) if high >= 0 else -1.0  # stages contradict each other: so must the ends
    return (sqrt(max(0.0, value)), (sqrt(low) * (1 - ROUNDING), min(0.5, last))), (0.0, 0.5)


def covariance_of(stages: Stages) -> Ranged:
    """Return the covariance of two values: E(x-a)(y-b) about the estimated means, less what their errors can add."""
    stages.center()
    value, (low, high) = stages.central(PRODUCT, stages.count(7 / 4))
    return (value, (max(-0.25, low), min(0.25, high))), (-0.25, 0.25)


def correlation_of(stages: Stages) -> Ranged:
    """Return the correlation of two values.

    Let u and v be their distances from their means, in units of their estimated deviations, and M = E(u^2+v^2)/2. The
    correlation is E uv over M, times M over the geometric mean of Eu^2 and Ev^2. This last quotient is at least 1, and
    hardly more if Eu^2 and Ev^2 are known to be about the same.
    """
    stages.center()
    seen, ends = zip(*(stages.central(form, stages.count(3 / 4)) for form in (SQUARE, OTHER_SQUARE)), strict=True)
    one, other = (sqrt(max(value, SMALLEST)) for value in seen)
    product = replace(PRODUCT, xy=1 / (one * other))
    below = replace(SQUARE, xx=0.5 / one**2, yy=0.5 / other**2)
    scaled = zip(ends, (one**2, other**2), strict=True)
    first, second = ((max(0.0, low) / at, high / at) for (low, high), at in scaled)
    both = (first[0] + second[0]) / 2, (first[1] + second[1]) / 2
    value, (low, high) = _quotient(stages, product, below, both, parts=(3 / 2, 15 / 8), limit=1.0)
    least, most = unequal(first, second)
    if least == inf:  # one of the variances seems to be zero or less, the other not: stages contradict each other
        return (value, (1.0, -1.0)), (-1.0, 1.0)
    low, high = low * (least if low >= 0 else most), high * (most if high > 0 else least)
    return (value, (low - ROUNDING, high + ROUNDING)), (-1.0, 1.0)


def slope_of(stages: Stages) -> Ranged:
    """Return the covariance over the variance of the first value, and the range of slopes that this variance allows.

    A slope is at most the quotient of both deviations, so at most 1/2 over the least that the first one can be. If that
    is 0, for example because a range is declared far too wide, the slope can be anything.
    """
    stages.center()
    spread, (low, high) = stages.central(SQUARE, stages.count(1))
    below = max(0.0, low), min(0.25, high)
    value, ends = _quotient(stages, PRODUCT, SQUARE, below, parts=(5 / 4, 5 / 4), seen=spread)
    steepest = 0.5 / sqrt(low) * (1 + ROUNDING) if low > 0 else STEEPEST
    low, high = (end + sign * ROUNDING * abs(end) for end, sign in zip(ends, (-1, 1), strict=True))
    return (value, (low, high)), (-steepest, steepest)


def _quotient(
    stages: Stages,
    above: QuadraticForm,
    form: QuadraticForm,
    below: Interval,
    *,
    parts: tuple[float, float],
    seen: float = 1.0,
    limit: float = inf,
) -> Found:
    """Return the quotient of two central means, that of `above` over that of `form`, and its range.

    `below` and `seen` are the interval and the estimate of the latter; `limit` is the largest absolute value that the
    quotient can have. `parts` are draws, in ordinary answers: for its first estimate, then for each of its ends.
    """
    at = max(seen, SMALLEST)
    if below[1] <= 0:  # stages contradict each other, so they tell nothing about it
        below = below[0], inf

    def limited(times: float) -> float:
        return min(limit, max(-limit, times))

    def ask(times: float, draws: int) -> tuple[float, Interval]:
        value, ends = stages.central(_less(above, times, form), draws)
        guesses.append((limited(times + value / at), draws))
        return times, ends

    guesses: list[tuple[float, int]] = []
    tried = [ask(0.0, stages.count(parts[0]))]
    value = guesses[0][0]
    ends = [value + BEYOND * (end / at - value) for end in tried[0][1]] if stages.sliced else [value]
    beyond, draws = [end for end in ends if abs(end) < limit] or ends[:1], stages.count(parts[1])
    tried += [ask(end, draws * len(ends) // len(beyond)) for end in beyond]
    return sum(value * draws for value, draws in guesses) / sum(draws for _, draws in guesses), quotient(tried, below)


def _less(above: QuadraticForm, times: float, form: QuadraticForm) -> QuadraticForm:
    """Return the form `above` - `times` * `form`."""
    return replace(above, xx=above.xx - times * form.xx, xy=above.xy - times * form.xy, yy=above.yy - times * form.yy)


def unequal(first: Interval, second: Interval) -> Interval:
    """Return the range of the arithmetic mean of two numbers over their geometric mean, from intervals of both."""
    ends = [(first[0], second[1]), (first[1], second[0])]
    apart = [inf if min(pair) <= 0 else (sqrt(pair[0] / pair[1]) + sqrt(pair[1] / pair[0])) / 2 for pair in ends]
    meet = first[0] <= second[1] and second[0] <= first[1]
    return 1.0 if meet else min(apart), max(apart)


# -- the two signatures -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MomentOf:
    """What a moment is about, and the draws of an ordinary answer."""

    context: Context
    of: tuple[Share | Mean, ...]
    draws: int

    @property
    def spans(self) -> list[float]:
        """How wide the declared range of each number is."""
        return [high - low for low, high in (one.bounds for one in self.of)]

    @property
    def exact_spans(self) -> list[Fraction]:
        """The same, without rounding."""
        return [Fraction(high) - Fraction(low) for low, high in (one.bounds for one in self.of)]


def of_one(
    context: Context, query: Query, *, within: Within = None, where: Where = None, rows_per_query: RowsPerQuery = None
) -> MomentOf:
    """Return {gives}.

    Parameters
    ----------
    query
        A number: SQL text, a Polars expression or a function of one row.
    within
        The declared range of the number, where none was declared with the data; values outside are clipped.
    where
        Only rows for which this is true count.
    rows_per_query
        Rows of one ordinary answer: this one reads about twice as many, in two stages.

    Returns
    -------
    Answer
        Its value and its interval for the population.
    """
    measure = build_mean(query, context.schema, within=within, where=where)
    return MomentOf(context, (measure,), context.draws(Quadratic((measure,), FIRST), rows_per_query))


def of_two(
    context: Context,
    query: Query,
    other: Other,
    *,
    within: Within = None,
    other_within: Within = None,
    where: Where = None,
    rows_per_query: RowsPerQuery = None,
) -> MomentOf:
    """Return {gives}.

    Parameters
    ----------
    query, other
        Two numbers or conditions: SQL text, Polars expressions or functions of one row.
    within, other_within
        Their declared ranges, where none were declared with the data; values outside are clipped.
    where
        Only rows for which this is true count.
    rows_per_query
        Rows of one ordinary answer: a covariance reads about three times as many, a slope six and a correlation eight
        times, in stages.

    Returns
    -------
    Answer
        Its value and its interval for the population.
    """
    if isinstance(within, Sequence) and any(isinstance(one, Sequence) for one in within):  # both ranges at once
        raise InvalidArgument(
            f"within must be one range (low, high), that of {query}; got {within!r}. Say that of {other} as"
            " other_within.",
            name="within",
        )
    first = build_mean(query, context.schema, within=within, where=where)
    second = build_mean(other, context.schema, within=other_within, where=where, option="other_within")
    return MomentOf(context, (first, second), context.draws(Quadratic((first, second), FIRST), rows_per_query))


# -- the kinds ----------------------------------------------------------------------------------------------------


def moment(
    signature: Callable[Concatenate[Context, P], MomentOf],
    name: str,
    *,
    reads: str,
    gives: str,
    work_out: Callable[[Stages], Ranged],
    unit: Callable[..., float | Fraction],
    range_follows: bool = False,
) -> Kind[P, Answer]:
    """Register a kind of question with this signature, `of_one` or `of_two`, and return it.

    `reads` is the text of its questions, `gives` the first sentence of its help. `work_out` asks stages for the moment
    of values in [0, 1], and its range; the number of draws does not depend on the data. `unit` gives the factor for it,
    from the spans of the declared ranges. If `range_follows` from the answer, and not from what is declared, it is
    rounded outwards.
    """

    @wraps(signature)
    def build(context: Context, /, *args: P.args, **options: P.kwargs) -> Question:
        asked = signature(context, *args, **options)
        times, covered = float(unit(*asked.spans)), context.answering.covers_slices
        if range_follows and not times * STEEPEST < inf:
            raise InvalidArgument(
                "other_within must not be so much wider than within: the steepest slope would overflow. Declare ranges"
                " of comparable size.",
                name="other_within",
            )
        check.scale("within", times)

        def run(drawing: Drawing) -> Result:
            found, within = work_out(DrawnStages(asked.of, asked.draws, covered, drawing=drawing))
            exact = Fraction(unit(*asked.exact_spans))
            estimate, bounds = _in_units(found, within, exact, rounded=range_follows)
            return estimate.to_result(bounds)

        def hint(cost: Cost) -> str | None:
            grouped = any(measure.where is not None for measure in asked.of)
            if not covered:
                return NOT_KNOWN
            if not grouped and any(isinstance(one, Share) for one in asked.of):
                return None
            certifying = context.certifying(cost)

            def margin(deviation: float, share: float = 1.0) -> str:
                drawing = Imagined.spread(asked.of, certifying, deviation, share)
                found, within = work_out(DrawnStages(asked.of, asked.draws, covered, drawing=drawing))
                estimate, _ = _in_units(found, within, Fraction(times), rounded=range_follows)
                return about_margin(estimate)

            if grouped:
                known = ", ".join(f"{margin(MIDDLING, share)} {if_}" for share, if_ in COUNT)
                return f"if numbers deviate by a tenth of their ranges, {known}; declare close ranges"
            known = ", ".join(f"{deviation:.0%}: {margin(deviation)}" for deviation in DEVIATIONS)
            return f"by the deviation, in parts of the declared range, {known}; declare close ranges"

        planned = PlannedStages(asked.of, asked.draws, covered)
        work_out(planned)
        return planned.question(context, name, reads.format(*map(about, asked.of)), run, hint)

    build.__name__, build.__doc__ = name, (signature.__doc__ or "").format(gives=gives)
    kind = Kind(name, build, Answer, options_of(signature))
    KINDS.register(name, kind)
    return kind


def _in_units(found: Found, within: Interval, exact: Fraction, *, rounded: bool) -> tuple[Estimate, Interval]:
    """Return a moment and its range in the units of the question: `exact` times as large."""
    (value, ends), (low, high), unit = found, multiple(exact, within), float(exact)
    if rounded:
        low, high = float(write_end(low, 3, up=False)), float(write_end(high, 3, up=True))
    first, last = (min(high, max(low, unit * end)) for end in ends)
    first, last = max(low, first - abs(first) * ROUNDING), min(high, last + abs(last) * ROUNDING)
    if ends[0] > ends[1]:  # stages contradict each other: one of them is wrong, which has a small probability
        first, last = low, high
    nothing = last - first > SAYS_NOTHING * (high - low)
    return Estimate(nan if nothing else min(last, max(first, unit * value)), first, last), (low, high)


VARIANCE = moment(
    of_one,
    "variance",
    reads="variance of {}",
    gives="the variance of a number declared `within` bounds",
    work_out=variance_of,
    unit=lambda x: x * x,
)
STD = moment(
    of_one,
    "std",
    reads="standard deviation of {}",
    gives="the standard deviation of a number declared `within` bounds",
    work_out=deviation_of,
    unit=lambda x: x,
)
COVARIANCE = moment(
    of_two,
    "covariance",
    reads="covariance of {} and {}",
    gives="the covariance of two numbers, each declared within bounds",
    work_out=covariance_of,
    unit=lambda x, y: x * y,
)
CORRELATION = moment(
    of_two,
    "correlation",
    reads="correlation of {} and {}",
    gives="the correlation of two numbers, each declared within bounds",
    work_out=correlation_of,
    unit=lambda x, y: 1.0,
)
SLOPE = moment(
    of_two,
    "slope",
    reads="slope of {1} over {0}",
    gives="by how much `other` grows, on a line of least squares, for every 1 of `query`",
    work_out=slope_of,
    unit=lambda x, y: y / x,
    range_follows=True,
)
