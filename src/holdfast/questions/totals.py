"""Counts and sums: a share or a mean times the size of the population; and what all rows of a unit are together.

Of a unit one can ask whether any, all, or at least a number of its rows meet a condition, or for their capped sum.
"""

from typing import Annotated

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.queries.build import AUTO, build_mean, build_slices, build_total
from holdfast.queries.measures import Share
from holdfast.queries.units import HAVING, build_whole_unit
from holdfast.questions import KINDS
from holdfast.questions.answer import Answer
from holdfast.questions.estimate import times
from holdfast.questions.kind import kind_of
from holdfast.questions.options import (
    About,
    Choice,
    Margin,
    Population,
    Query,
    Real,
    RowsPerQuery,
    Where,
    Whole,
    Within,
)
from holdfast.questions.question import Context, Question
from holdfast.questions.stages import in_slices, worthwhile

LARGEST = 1e300  # people in a population: with more, no number could say how many


def count(
    context: Context,
    query: Query,
    *,
    population: Population = None,
    rows_per_query: RowsPerQuery = None,
    margin: Margin = None,
) -> Question:
    """Return for how many of the population `query` is true.

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
    size = _size(context, population)
    draws = context.draws(built, rows_per_query, None if margin is None else margin / size)
    text = f"how many of {size:,} have {built.value.text}"
    return context.question(COUNT.name, built, draws, size=size, requested=margin, text=text)


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
    size, (low, high) = _size(context, population), built.bounds
    draws = context.draws(built, rows_per_query)
    check.number(total=size * high - size * low)
    text = f"total of {built.text.removeprefix('mean of ')} over {size:,}"
    if worthwhile(context, draws):
        sliced, bounds = build_slices(built, AUTO), times(size, built.bounds)
        return in_slices(
            TOTAL.name, context, sliced, draws, lambda found, _: found[0].to_result(bounds), size=size, text=text
        )
    return context.question(TOTAL.name, built, draws, size=size, text=text)


TOTAL = kind_of(total, Answer)
KINDS.register(TOTAL.name, TOTAL)


def _size(context: Context, population: int | None) -> int:
    """Return the size of a `population`: the number of rows, if it is None."""
    unit = context.schema.unit
    if unit is not None:
        raise InvalidArgument(
            f"Counts and totals of rows are not available where rows belong to units ({unit}): every unit counts alike,"
            " whatever its number of rows. Ask units with a cap for the mean per unit.",
            name="unit",
        )
    if population is None:
        return int(context.guarantee.terms.all_rows)
    check.whole(population=population)
    check.at_most(f"{LARGEST:g}", LARGEST, population=population)
    return int(population)


def units(
    context: Context,
    query: Query,
    *,
    having: Annotated[
        str | None, About(Choice(HAVING), "Whether any row of a unit must meet the condition, or all.")
    ] = None,
    at_least: Annotated[int | None, About(Whole(1, "3"), "How many rows, at least, must meet the condition.")] = None,
    cap: Annotated[float | None, About(Real(0.0, None, "20"), "Ask for the sum over a unit, up to this cap.")] = None,
    where: Where = None,
    rows_per_query: RowsPerQuery = None,
    margin: Margin = None,
) -> Question:
    """Return the share of units with a row for which `query` is true, or the mean per unit of a sum up to a `cap`.

    For data that were opened with `unit=`. A unit is drawn and all its rows are read. For single rows of units, use
    `mean`.

    Parameters
    ----------
    query
        A condition on one row; with `cap`, also a number.
    having
        Whether "any" row of a unit must meet the condition (the default), or "all" of them.
    at_least
        The least number of rows of a unit that must meet the condition.
    cap
        Ask for the mean over units of the sum of a number, or of how many rows meet the condition: a sum above this
        counts as this, one below 0 as 0.
    where
        Only rows for which this is true count, and only units with such a row.
    rows_per_query, margin
        Spend more or less on this one answer: the units it reads, or the margin it should have, in its own units.

    Returns
    -------
    Answer
        The value and its interval for the population; `rows_read` counts the units whose rows were read.
    """
    built = build_whole_unit(query, context.schema, having=having, at_least=at_least, cap=cap, where=where)
    draws = context.draws(built, rows_per_query, margin)
    return context.question(UNITS.name, built, draws, requested=margin)


UNITS = kind_of(units, Answer)
KINDS.register(UNITS.name, UNITS)
