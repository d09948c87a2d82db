"""Counts and sums: a share or a mean, times the size of the population."""

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.queries.build import AUTO, build_mean, build_slices, build_total
from holdfast.queries.measures import Share
from holdfast.questions import KINDS
from holdfast.questions.answer import Answer
from holdfast.questions.kind import kind_of
from holdfast.questions.options import Margin, Population, Query, RowsPerQuery, Where, Within
from holdfast.questions.question import Context, Question
from holdfast.questions.slices import in_slices, worthwhile


def count(
    context: Context,
    query: Query,
    *,
    population: Population = None,
    rows_per_query: RowsPerQuery = None,
    margin: Margin = None,
) -> Question:
    """Return how many of the population `query` is true for.

    Parameters
    ----------
    query
        A condition: SQL text, a Polars expression or a function of one row.
    population
        The size of the population. If left out, the answer is for one as large as the data: what is expected of that
        many rows, not what these rows happen to be.
    rows_per_query, margin
        Spend more or less on this one answer: the rows it reads, or the margin it should have, in its own units.

    Returns
    -------
    Answer
        The number and its interval.
    """
    built = build_mean(query, context.schema)
    if not isinstance(built, Share):
        raise InvalidArgument("A count is of rows that meet a condition; add numbers up with `total`.", name="query")
    size = context.size(population)
    draws = context.draws(built, rows_per_query, None if margin is None else margin / size)
    text = f"how many of {size:,} have {built.value.text}"
    return context.one_number(COUNT.name, built, draws, scale=float(size), requested=margin, text=text)


COUNT = kind_of(count, Answer)
KINDS.register(COUNT.name, COUNT)


def total(
    context: Context,
    query: Query,
    *,
    within: Within = None,
    where: Where = None,
    population: Population = None,
    rows_per_query: RowsPerQuery = None,
) -> Question:
    """Return the sum of a number declared `within` bounds, over the population.

    Parameters
    ----------
    query
        A number: SQL text, a Polars expression or a function of one row. Rows without a value add nothing.
    within
        The declared range of the number, where none was declared with the data; values outside are clipped.
    where
        Only rows for which this is true add to the sum.
    population
        The size of the population. If left out, the answer is for one as large as the data.
    rows_per_query
        Rows this one answer reads.

    Returns
    -------
    Answer
        The sum and its interval.
    """
    built = build_total(query, context.schema, within=within, where=where)
    size, (low, high) = context.size(population), built.bounds
    draws = context.draws(built, rows_per_query)
    check.number(total=float(size) * high - float(size) * low)
    text, scale = f"total of {built.text.removeprefix('mean of ')} over {size:,}", float(size)
    if worthwhile(context, draws):
        sliced, bounds = build_slices(built, AUTO), (scale * low, scale * high)
        return in_slices(
            TOTAL.name,
            context,
            sliced,
            draws,
            lambda found: found[0][0].to_result(bounds),
            scale=scale,
            text=text,
            forecast=True,
        )
    return context.one_number(TOTAL.name, built, draws, scale=scale, text=text)


TOTAL = kind_of(total, Answer)
KINDS.register(TOTAL.name, TOTAL)
