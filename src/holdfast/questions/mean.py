"""A share, a bounded mean, or either of them in a group or in several."""

from collections.abc import Sequence
from typing import Annotated, Any, Protocol, TypeVar, overload

from holdfast.answer import Answer
from holdfast.errors import InvalidArgument
from holdfast.queries.build import Groups, QueryLike, build_groups, build_mean
from holdfast.questions import KINDS
from holdfast.questions.groups import GroupsAnswer, in_groups
from holdfast.questions.options import About, By, GroupsForm, Margin, Query, RowsPerQuery, Where, Within
from holdfast.questions.question import Context, Drawing, Question, Result, kind_of


def mean(
    context: Context,
    query: Query,
    *,
    within: Within = None,
    where: Where = None,
    by: By = None,
    groups: Annotated[
        Groups | None, About(GroupsForm(), "The groups to answer for: values of `by`; left out, declared ones.")
    ] = None,
    rows_per_query: RowsPerQuery = None,
    margin: Margin = None,
) -> Question:
    """Return the share of rows for which `query` is true, or the mean of a number declared `within` bounds.

    Parameters
    ----------
    query
        A condition (a share) or a number (a mean): SQL text, a Polars expression or a function of one row.
    within
        The declared range of a number, where none was declared with the data; values outside are clipped.
    where
        Only rows for which this is true count. Missing values are left out of a mean and count as false in a share.
    by, groups
        Answer for each of several groups at once: `by` is a column or an expression, or a list of them; `groups` are
        their values. With several expressions, tuples of values, or for each a list of values, all combined. Left out:
        the categories declared with the data.
    rows_per_query, margin
        Spend more or less on this one answer: the rows it reads, or the margin it should have, in its own units.

    Returns
    -------
    Answer
        The value and its interval for the population; with `by`, one for each group, and their frame.
    """
    if by is not None:
        if margin is not None:
            raise InvalidArgument(
                "margin must be left out with by: how narrow a group is depends on its size. Use rows_per_query.",
                name="margin",
            )
        grouped = build_groups(query, context.schema, by=by, groups=groups, within=within, where=where)
        return in_groups(MEAN.name, context, grouped, rows_per_query)
    if groups is not None:
        raise InvalidArgument("groups are values of by; say by what the rows are grouped.", name="groups")
    built = build_mean(query, context.schema, within=within, where=where)
    draws = context.draws(built, rows_per_query, margin)

    def run(drawing: Drawing) -> Result:
        (estimate,) = drawing.estimates(built, draws)
        return estimate.to_json() | {"bounds": list(built.bounds)}

    return context.question(MEAN.name, built, draws, run, context.margin(built, draws))


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
