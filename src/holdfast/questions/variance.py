"""The variance of a number, by two coins for every drawn row."""

from holdfast.answer import Answer, Estimate
from holdfast.queries.build import build_mean
from holdfast.queries.moments import TwoOfOne, about
from holdfast.questions import KINDS
from holdfast.questions.moments import Read, variance_of
from holdfast.questions.options import Query, RowsPerQuery, Where, Within
from holdfast.questions.question import Context, Drawing, Question, Result, kind_of


def variance(
    context: Context,
    query: Query,
    *,
    within: Within = None,
    where: Where = None,
    rows_per_query: RowsPerQuery = None,
) -> Question:
    """Return the variance of a number declared `within` bounds.

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
        The variance and its interval for the population.
    """
    coins = TwoOfOne(build_mean(query, context.schema, within=within, where=where))
    draws = context.draws(coins, rows_per_query)
    low, high = coins.measure.bounds
    bounds = (0.0, (high - low) ** 2 / 4)

    def run(drawing: Drawing) -> Result:
        value, (least, most) = variance_of(Read.draw(drawing, coins, draws))
        return Estimate.within(bounds, 4 * value, (4 * least, 4 * most)).to_json() | {"bounds": list(bounds)}

    return context.question(VARIANCE.name, coins, draws, run, text=f"variance of {about(coins.measure)}")


VARIANCE = kind_of(variance, Answer)
KINDS.register(VARIANCE.name, VARIANCE)
