"""The correlation of two numbers: their covariance over their standard deviations, each from draws of its own."""

from math import sqrt

from holdfast.answer import Answer, Estimate
from holdfast.ledger import Cost
from holdfast.queries.build import build_mean
from holdfast.queries.moments import Coins, OneOfTwo, TwoOfOne, about
from holdfast.questions import KINDS
from holdfast.questions.moments import Read, covariance_of, variance_of
from holdfast.questions.options import Other, Query, RowsPerQuery, Where, Within
from holdfast.questions.question import RELEASE_WORK, Context, Drawing, Question, Result, identity_of, kind_of


def correlation(
    context: Context,
    query: Query,
    other: Other,
    *,
    within: Within = None,
    other_within: Within = None,
    where: Where = None,
    rows_per_query: RowsPerQuery = None,
) -> Question:
    """Return the correlation of two numbers, each declared within bounds.

    Parameters
    ----------
    query, other
        Two numbers or conditions: SQL text, Polars expressions or functions of one row.
    within, other_within
        Their declared ranges, where none were declared with the data; values outside are clipped.
    where
        Only rows for which this is true count.
    rows_per_query
        Rows this one answer reads for each of three numbers: the covariance and both variances.

    Returns
    -------
    Answer
        The correlation and its interval for the population.
    """
    first = build_mean(query, context.schema, within=within, where=where)
    second = build_mean(other, context.schema, within=other_within, where=where)
    both, one, two = OneOfTwo(first, second), TwoOfOne(first), TwoOfOne(second)
    draws = context.draws(both, rows_per_query)
    asked: list[Coins] = [both, one, two]
    prices = [context.price(coins, draws) for coins in asked]
    cost = Cost(sum(each.charge for each, _ in prices), sum(each.intervals for each, _ in prices))

    def run(drawing: Drawing) -> Result:
        value, (low, high) = covariance_of(Read.draw(drawing, both, draws))
        spreads = [variance_of(Read.draw(drawing, coins, draws)) for coins in (one, two)]
        least = sqrt(spreads[0][1][0] * spreads[1][1][0])
        most = sqrt(spreads[0][1][1] * spreads[1][1][1])
        seen = sqrt(max(0.0, spreads[0][0]) * max(0.0, spreads[1][0]))
        ends = _over(low, least, most), -_over(-high, least, most)
        guess = min(1.0, max(-1.0, value / seen)) if seen > 0 else 0.0
        found = Estimate.within((-1.0, 1.0), (guess + 1) / 2, ((ends[0] + 1) / 2, (ends[1] + 1) / 2))
        return found.to_json() | {"bounds": [-1.0, 1.0]}

    identity = identity_of(both, None if draws == context.rows_per_query else draws, "correlation")
    rows_read = sum(rows for _, rows in prices)
    return Question(
        kind=CORRELATION.name,
        text=f"correlation of {about(first)} and {about(second)}",
        identity=identity,
        cost=cost,
        rows_read=rows_read,
        run=run,
        work=len(asked) * RELEASE_WORK + sum(draws * coins.work for coins in asked),
    )


def _over(low: float, least: float, most: float) -> float:
    """Return the smallest quotient of a number not below `low` and one from `least` to `most`, at least -1."""
    if low >= 0:
        return low / most if most > 0 else 0.0
    return max(-1.0, low / least) if least > 0 else -1.0


CORRELATION = kind_of(correlation, Answer)
KINDS.register(CORRELATION.name, CORRELATION)
