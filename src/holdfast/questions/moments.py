"""Variance, standard deviation, covariance, correlation, slope: by two coins tossed for the same drawn row.

What is asked of one number, and what of two, is a signature each (`of_one`, `of_two`); a moment says which coins it
needs, and how it is worked out of what they say.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from math import inf, sqrt
from typing import Concatenate, ParamSpec

from holdfast.answer import Answer, Estimate, Interval, write_end
from holdfast.ledger import Cost
from holdfast.queries.build import build_mean
from holdfast.queries.moments import Measured, OneOfTwo, TwoCoins, TwoOfOne, about
from holdfast.questions import KINDS
from holdfast.questions.cells import Read
from holdfast.questions.options import Other, Query, RowsPerQuery, Where, Within, options_of
from holdfast.questions.question import RELEASE_WORK, Context, Drawing, Kind, Question, Result, encode, identity_of

STEEPEST = 1e200  # stands for any slope, of two numbers in [0, 1]: a variance that allows it is 0 in double precision
ROUNDING = 1e-15  # of a root or a quotient

P = ParamSpec("P")
Found = tuple[float, Interval]  # as it was seen, and its interval
Ranged = tuple[Found, Interval]  # and the range it has to be in


# -- what two coins say of values in [0, 1] -----------------------------------------------------------------------


def variance_of(read: Read) -> Found:
    """Return the variance of a value in [0, 1] from two coins for each row: as it was seen, and its interval.

    About any number c, Var = E(v-c)^2 - (Ev - c)^2. The first is linear in the law of the cells; c is the mean as seen.
    """
    c = read.seen((0.0, 0.5, 1.0))
    around = (c * c, c * c - c, (1 - c) ** 2)
    low, high = read.mean_near(c, (0.0, 0.5, 1.0), around)
    most = max(c, 1 - c) ** 2
    least, largest = read.mean(around, (0.0, most), [one * one for one in around])
    off = max(c - low, high - c, 0.0) ** 2
    value = read.seen((0.0, 0.0, 1.0)) - c * c
    top = min(0.25, largest, max(x * (1 - x) for x in (low, high, min(max(0.5, low), high))))
    return value, (max(0.0, least - off), max(0.0, top))


def covariance_of(read: Read) -> Found:
    """Return the covariance of two values in [0, 1] from a coin of each: as it was seen, and its interval.

    About any a and b, Cov = E(x-a)(y-b) - (Ex - a)(Ey - b); the first is linear in the law of the cells.
    """
    xs, ys = (0.0, 0.0, 1.0, 1.0), (0.0, 1.0, 0.0, 1.0)
    a, b = read.seen(xs), read.seen(ys)
    x, y = read.mean_near(a, xs), read.mean_near(b, ys)
    around = [(first - a) * (second - b) for first, second in zip(xs, ys, strict=True)]
    low, high = read.mean(around, (min(around), max(around)), [one * one for one in around])
    off = [(first - a) * (second - b) for first in x for second in y]
    value = read.seen((0.0, 0.0, 0.0, 1.0)) - a * b
    return value, (max(-0.25, low - max(off)), min(0.25, high - min(off)))


def deviation_of(variance: Found) -> Found:
    """Return the root of a variance."""
    value, (low, high) = variance
    return sqrt(max(0.0, value)), (sqrt(low) * (1 - ROUNDING), min(0.5, sqrt(high) * (1 + ROUNDING)))


def correlation_of(covariance: Found, first: Found, second: Found) -> Found:
    """Return a covariance over the root of two variances, in [-1, 1]."""
    (value, ends), ((one, (least, most)), (other, (lowest, highest))) = covariance, (first, second)
    seen = sqrt(max(0.0, one) * max(0.0, other))
    ends = _quotient(ends, (sqrt(least * lowest) * (1 - ROUNDING), sqrt(most * highest) * (1 + ROUNDING)))
    return value / seen if seen > 0 else 0.0, ends


def slope_of(covariance: Found, variance: Found) -> Ranged:
    """Return a covariance over the variance of the first number, and the range of slopes that this variance allows.

    A slope is at most the quotient of both deviations, so at most 1/2 over the least that the first one can be. If that
    is 0, as where a range is declared far too wide, the slope can be any.
    """
    (value, ends), (spread, interval) = covariance, variance
    low, high = _quotient(ends, interval)
    steepest = 0.5 / sqrt(interval[0]) * (1 + ROUNDING) if interval[0] > 0 else STEEPEST
    return (value / spread if spread > 0 else 0.0, (low, high)), (-steepest, steepest)


def _quotient(top: Interval, bottom: Interval) -> Interval:
    """Return the range of a quotient; where `bottom`, which is not negative, may be 0, it is everything."""
    (low, high), (least, most) = top, bottom
    if least <= 0:
        return -inf, inf
    return (
        (low / most if low > 0 else low / least) - ROUNDING,
        (high / least if high > 0 else high / most) + ROUNDING,
    )


# -- the two signatures -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """What a moment is of, and from how many draws each."""

    context: Context
    of: tuple[Measured, ...]
    draws: int

    @property
    def spans(self) -> list[float]:
        """How wide the declared range of each number is."""
        return [high - low for low, high in (one.bounds for one in self.of)]


def of_one(
    context: Context,
    query: Query,
    *,
    within: Within = None,
    where: Where = None,
    rows_per_query: RowsPerQuery = None,
) -> Asked:
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
        Rows this one answer reads.

    Returns
    -------
    Answer
        Its value and its interval for the population.
    """
    measure = build_mean(query, context.schema, within=within, where=where)
    return Asked(context, (measure,), context.draws(TwoOfOne(measure), rows_per_query))


def of_two(
    context: Context,
    query: Query,
    other: Other,
    *,
    within: Within = None,
    other_within: Within = None,
    where: Where = None,
    rows_per_query: RowsPerQuery = None,
) -> Asked:
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
        Rows that are read for each number that this is worked out of: a covariance, a variance.

    Returns
    -------
    Answer
        Its value and its interval for the population.
    """
    first = build_mean(query, context.schema, within=within, where=where)
    second = build_mean(other, context.schema, within=other_within, where=where)
    return Asked(context, (first, second), context.draws(OneOfTwo(first, second), rows_per_query))


# -- the kinds ----------------------------------------------------------------------------------------------------


def moment(
    signature: Callable[Concatenate[Context, P], Asked],
    name: str,
    *,
    reads: str,
    gives: str,
    coins: Callable[..., Sequence[TwoCoins]],
    work_out: Callable[[Sequence[Read]], Ranged],
    unit: Callable[..., float],
    range_follows: bool = False,
) -> Kind[P, Answer]:
    """Register a kind of question and return it.

    Parameters
    ----------
    signature
        What is asked: of one number, or of two.
    name, reads, gives
        The name of the verb, how its questions read, and the first sentence of its help.
    coins
        From the numbers to what is drawn, one release each.
    work_out
        From these releases to the moment of values in [0, 1], and its range.
    unit
        From the spans of the declared ranges to what a moment of values in [0, 1] is multiplied by.
    range_follows
        Whether the range follows from the answer, and not from what is declared; then it is rounded outwards.
    """

    @wraps(signature)
    def build(context: Context, /, *args: P.args, **options: P.kwargs) -> Question:
        asked = signature(context, *args, **options)
        queries, draws, spans = coins(*asked.of), asked.draws, asked.spans

        def run(drawing: Drawing) -> Result:
            (seen, ends), (low, high) = work_out([Read.draw(drawing, one, draws) for one in queries])
            bounds = unit(*spans) * low, unit(*spans) * high
            if range_follows:
                bounds = float(write_end(bounds[0], 3, up=False)), float(write_end(bounds[1], 3, up=True))
                low, high = (end / unit(*spans) for end in bounds)
            value, first, last = (min(1.0, max(0.0, (x - low) / (high - low))) for x in (seen, *ends))
            return Estimate.within(bounds, value, (first, last)).to_json() | {"bounds": list(bounds)}

        return _question(context, name, reads.format(*map(about, asked.of)), queries, draws, run)

    build.__name__, build.__doc__ = name, (signature.__doc__ or "").format(gives=gives)
    kind = Kind(name, build, Answer, options_of(signature))
    KINDS.register(name, kind)
    return kind


def _question(
    context: Context, kind: str, text: str, queries: Sequence[TwoCoins], draws: int, run: Callable[[Drawing], Result]
) -> Question:
    """Return the question that a few releases answer together."""
    prices = [context.price(one, draws) for one in queries]
    identity = identity_of(queries[0], None if draws == context.rows_per_query else draws)
    return Question(
        kind=kind,
        text=text,
        identity=None if identity is None else encode({"kind": kind, "of": identity, "text": text}),
        cost=Cost(sum(each.charge for each, _ in prices), sum(each.intervals for each, _ in prices)),
        rows_read=sum(rows for _, rows in prices),
        run=run,
        work=sum(RELEASE_WORK + draws * one.work for one in queries),
        whole=any(one.speaks_of_units for one in queries),
    )


VARIANCE = moment(
    of_one,
    "variance",
    reads="variance of {}",
    gives="the variance of a number declared `within` bounds",
    coins=lambda x: (TwoOfOne(x),),
    work_out=lambda reads: (variance_of(reads[0]), (0.0, 0.25)),
    unit=lambda x: x * x,
)
STD = moment(
    of_one,
    "std",
    reads="standard deviation of {}",
    gives="the standard deviation of a number declared `within` bounds",
    coins=lambda x: (TwoOfOne(x),),
    work_out=lambda reads: (deviation_of(variance_of(reads[0])), (0.0, 0.5)),
    unit=lambda x: x,
)
COVARIANCE = moment(
    of_two,
    "covariance",
    reads="covariance of {} and {}",
    gives="the covariance of two numbers, each declared within bounds",
    coins=lambda x, y: (OneOfTwo(x, y),),
    work_out=lambda reads: (covariance_of(reads[0]), (-0.25, 0.25)),
    unit=lambda x, y: x * y,
)
CORRELATION = moment(
    of_two,
    "correlation",
    reads="correlation of {} and {}",
    gives="the correlation of two numbers, each declared within bounds",
    coins=lambda x, y: (OneOfTwo(x, y), TwoOfOne(x, y), TwoOfOne(y, x)),
    work_out=lambda reads: (
        correlation_of(covariance_of(reads[0]), variance_of(reads[1]), variance_of(reads[2])),
        (-1.0, 1.0),
    ),
    unit=lambda x, y: 1.0,
)
SLOPE = moment(
    of_two,
    "slope",
    reads="slope of {1} over {0}",
    gives="by how much `other` grows, on a line of least squares, for every 1 of `query`",
    coins=lambda x, y: (OneOfTwo(x, y), TwoOfOne(x, y)),
    work_out=lambda reads: slope_of(covariance_of(reads[0]), variance_of(reads[1])),
    unit=lambda x, y: y / x,
    range_follows=True,
)
