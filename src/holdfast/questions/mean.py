"""A share, a bounded mean, or either of them in a group or in several."""

from collections.abc import Sequence
from typing import Annotated, Any, Protocol, TypeVar, overload

from holdfast.answer import Answer
from holdfast.errors import InvalidArgument
from holdfast.queries.build import Groups, QueryLike, build_groups, build_mean
from holdfast.queries.units import build_accepted
from holdfast.questions import KINDS
from holdfast.questions.groups import GroupsAnswer, in_groups
from holdfast.questions.options import (
    About,
    By,
    ByMechanism,
    GroupsForm,
    LargestWeight,
    Margin,
    Query,
    RowsPerQuery,
    RowsPerUnit,
    Weight,
    Where,
    Within,
)
from holdfast.questions.question import Context, Drawing, Question, Result, kind_of


def mean(
    context: Context,
    query: Query,
    *,
    within: Within = None,
    where: Where = None,
    rows_per_unit: RowsPerUnit = None,
    weight: Weight = None,
    largest_weight: LargestWeight = None,
    by: By = None,
    groups: Annotated[
        Groups | None, About(GroupsForm(), "The groups to answer for: values of `by`; left out, declared ones.")
    ] = None,
    rows_per_query: RowsPerQuery = None,
    margin: Margin = None,
    mechanism: ByMechanism = None,
) -> Question:
    """Return the share of rows for which `query` is true, or the mean of a number declared `within` bounds.

    Of data of units, it is that of a random row of a random unit: every unit counts alike.

    Parameters
    ----------
    query
        A condition (a share) or a number (a mean): SQL text, a Polars expression or a function of one row.
    within
        The declared range of a number, where none was declared with the data; values outside are clipped.
    where
        Only rows for which this is true count. Missing values are left out of a mean and count as false in a share.
    rows_per_unit
        Of data of units: every row counts alike, and this is the most that a unit has; the rows of a larger one count
        as so many together.
    weight, largest_weight
        Rows count in proportion to this number, such as a survey weight; larger ones count as the largest.
    by, groups
        Answer for each of several groups at once: `by` is a column or an expression, or a list of them; `groups` are
        their values. With several expressions, tuples of values, or for each a list of values, all combined. Left out:
        the categories declared with the data.
    rows_per_query, margin
        Spend more or less on this one answer: the rows it reads, or the margin it should have, in its own units.
    mechanism
        How this one answer is made, left out: as planned. In a session of coins "gaussian" reads all rows once and adds
        noise, for the same price; worth it where an answer so narrow is wanted that coins would read more rows.

    Returns
    -------
    Answer
        The value and its interval for the population; with `by`, one for each group, and their frame.
    """
    context = context.by(mechanism)
    if by is not None:
        if margin is not None:
            raise InvalidArgument(
                "margin must be left out with by: how narrow a group is depends on its size. Use rows_per_query.",
                name="margin",
            )
        if (rows_per_unit, weight, largest_weight) != (None, None, None):
            raise InvalidArgument(
                "by must be left out with weights or rows_per_unit: ask about one group at a time, with where.",
                name="by",
            )
        grouped = build_groups(query, context.schema, by=by, groups=groups, within=within, where=where)
        return in_groups(MEAN.name, context, grouped, rows_per_query)
    if groups is not None:
        raise InvalidArgument("groups are values of by; say by what the rows are grouped.", name="groups")
    plain = build_mean(query, context.schema, within=within, where=where)
    built = build_accepted(
        plain, context.schema, rows_per_unit=rows_per_unit, weight=weight, largest_weight=largest_weight
    )
    draws = context.draws(built, rows_per_query, margin)

    def run(drawing: Drawing) -> Result:
        (estimate,) = drawing.under(context.guarantee).estimates(built, draws)
        return estimate.to_json() | {"bounds": list(built.bounds)}

    return context.question(MEAN.name, built, draws, run, context.margin(built, draws), wanted=margin)


MEAN = kind_of(mean, Answer, GroupsAnswer)
KINDS.register(MEAN.name, MEAN)

One = TypeVar("One", covariant=True)
Several = TypeVar("Several", covariant=True)


class AskMean(Protocol[One, Several]):
    """The verb as a type checker should see it: with `by` there are several answers."""

    @overload
    def __call__(
        self,
        query: QueryLike,
        *,
        within: tuple[float, float] | None = None,
        where: QueryLike | None = None,
        by: None = None,
        groups: None = None,
        rows_per_query: int | None = None,
        margin: float | None = None,
    ) -> One: ...

    @overload
    def __call__(
        self,
        query: QueryLike,
        *,
        within: tuple[float, float] | None = None,
        where: QueryLike | None = None,
        by: QueryLike | Sequence[QueryLike],
        groups: Groups | None = None,
        rows_per_query: int | None = None,
        margin: float | None = None,
    ) -> Several: ...

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Ask."""
