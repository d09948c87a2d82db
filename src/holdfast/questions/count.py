"""How many rows meet a condition: a share, times the size of the population."""

from typing import Any

from holdfast.answer import Answer
from holdfast.errors import InvalidArgument
from holdfast.queries.build import build_mean
from holdfast.queries.measures import Share
from holdfast.questions import KINDS
from holdfast.questions.kind import kind_of
from holdfast.questions.options import Margin, Population, Query, RowsPerQuery
from holdfast.questions.question import Context, Drawing, Question, Result


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
    size = float(context.size(population))
    bounds = (0.0, size)
    draws = context.draws(built, rows_per_query, None if margin is None else margin / size)

    def run(drawing: Drawing) -> Result:
        (found,) = drawing.estimates(built, draws, bounds)
        return found.to_json() | {"bounds": list(bounds)}

    text = f"how many of {context.size(population):,} have {built.value.text}"
    requested: dict[str, Any] = {"requested": margin, "text": text}
    return context.question(COUNT.name, built, draws, run, context.margin(built, draws, size), **requested)


COUNT = kind_of(count, Answer)
KINDS.register(COUNT.name, COUNT)
