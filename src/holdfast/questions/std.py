"""The standard deviation of a number: the root of its variance."""

from math import sqrt

from holdfast.answer import Answer, Estimate
from holdfast.queries.build import build_mean
from holdfast.queries.moments import TwoOfOne, about
from holdfast.questions import KINDS
from holdfast.questions.moments import Read, variance_of
from holdfast.questions.options import Query, RowsPerQuery, Where, Within
from holdfast.questions.question import Context, Drawing, Question, Result, kind_of


def std(
    context: Context,
    query: Query,
    *,
    within: Within = None,
    where: Where = None,
    rows_per_query: RowsPerQuery = None,
) -> Question:
    """Return the standard deviation of a number declared `within` bounds.

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
        The standard deviation and its interval for the population.
    """
    coins = TwoOfOne(build_mean(query, context.schema, within=within, where=where))
    draws = context.draws(coins, rows_per_query)
    low, high = coins.measure.bounds
    bounds = (0.0, (high - low) / 2)

    def run(drawing: Drawing) -> Result:
        value, (least, most) = variance_of(Read.draw(drawing, coins, draws))
        ends = sqrt(max(0.0, 4 * least)) * (1 - 1e-15), min(1.0, sqrt(4 * most) * (1 + 1e-15))
        return Estimate.within(bounds, sqrt(max(0.0, 4 * value)), ends).to_json() | {"bounds": list(bounds)}

    return context.question(STD.name, coins, draws, run, text=f"standard deviation of {about(coins.measure)}")


STD = kind_of(std, Answer)
KINDS.register(STD.name, STD)
