"""All rows of a unit together: whether any, all, or at least a number of them meet a condition; their capped sum."""

from typing import Annotated

from holdfast.queries.units import HAVING, build_whole_unit
from holdfast.questions import KINDS
from holdfast.questions.answer import Answer
from holdfast.questions.kind import kind_of
from holdfast.questions.options import About, Choice, Margin, Query, Real, RowsPerQuery, Where, Whole
from holdfast.questions.question import Context, Question


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
    """Return the share of units with a row such that `query`, or the mean over units of a sum up to a `cap`.

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
