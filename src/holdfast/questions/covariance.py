"""The covariance of two numbers, by a coin of each for every drawn row."""

from holdfast.answer import Answer, Estimate
from holdfast.queries.build import build_mean
from holdfast.queries.moments import OneOfTwo, about
from holdfast.questions import KINDS
from holdfast.questions.moments import Read, covariance_of
from holdfast.questions.options import Other, Query, RowsPerQuery, Where, Within
from holdfast.questions.question import Context, Drawing, Question, Result, kind_of


def covariance(
    context: Context,
    query: Query,
    other: Other,
    *,
    within: Within = None,
    other_within: Within = None,
    where: Where = None,
    rows_per_query: RowsPerQuery = None,
) -> Question:
    """Return the covariance of two numbers, each declared within bounds.

    Parameters
    ----------
    query, other
        Two numbers or conditions: SQL text, Polars expressions or functions of one row.
    within, other_within
        Their declared ranges, where none were declared with the data; values outside are clipped.
    where
        Only rows for which this is true count.
    rows_per_query
        Rows this one answer reads.

    Returns
    -------
    Answer
        The covariance and its interval for the population.
    """
    first = build_mean(query, context.schema, within=within, where=where)
    second = build_mean(other, context.schema, within=other_within, where=where)
    coins = OneOfTwo(first, second)
    draws = context.draws(coins, rows_per_query)
    (low, high), (other_low, other_high) = first.bounds, second.bounds
    most = (high - low) * (other_high - other_low) / 4
    bounds = (-most, most)

    def run(drawing: Drawing) -> Result:
        value, (least, largest) = covariance_of(Read.draw(drawing, coins, draws))
        ends = (4 * least + 1) / 2, (4 * largest + 1) / 2
        return Estimate.within(bounds, (4 * value + 1) / 2, ends).to_json() | {"bounds": list(bounds)}

    return context.question(
        COVARIANCE.name, coins, draws, run, text=f"covariance of {about(first)} and {about(second)}"
    )


COVARIANCE = kind_of(covariance, Answer)
KINDS.register(COVARIANCE.name, COVARIANCE)
