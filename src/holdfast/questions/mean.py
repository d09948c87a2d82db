"""A share, a bounded mean, or either of them in a group or in several.

Several declared groups are asked in the fewest passes over drawn rows that keep the noise small. One pass serves
several groups: a draw lands in one of them, or outside. A pass is charged as if each group had been asked in a pass of
its own, since it reveals as much, but it reads the rows of one. More groups in a pass also mean more random outcomes
among its draws, so there are enough passes that three quarters of the draws stay unchanged.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Annotated, Any, Protocol, TypeVar, overload

import polars as pl

from holdfast import notebook
from holdfast.cached import cached_property
from holdfast.errors import InvalidArgument
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.plan import SAYS_NOTHING
from holdfast.guarantees.terms import PlainAmounts
from holdfast.ledger import Answered, Cost
from holdfast.queries.build import AUTO, Group, Groups, QueryLike, build_groups, build_mean, build_slices
from holdfast.queries.groups import Grouped
from holdfast.queries.measures import Mean, Share
from holdfast.queries.node import literal_text
from holdfast.queries.units import build_accepted
from holdfast.questions import KINDS
from holdfast.questions.answer import Answer, AnyAnswer, Record, answers_of, as_timestamp, estimate_of
from holdfast.questions.estimate import (
    NUMBERS,
    Estimate,
    Interval,
    common_scale,
    interval_bar,
    labeled_lines,
    write_estimate,
    write_scale,
)
from holdfast.questions.kind import kind_of
from holdfast.questions.looks import look_until
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
    Slices,
    Until,
    Weight,
    Where,
    Within,
)
from holdfast.questions.question import MOST_REMEMBERED, Context, Drawing, Forecast, Question, Result
from holdfast.questions.stages import cut, in_slices, narrower_cut, worthwhile
from holdfast.schema import Category

MOST_CUT = 16  # groups whose means are asked in slices by default, each with draws of its own


@dataclass(frozen=True, repr=False, eq=False)
class GroupsAnswer(AnyAnswer, Mapping[Group, Answer]):
    """One answer for each group: a mapping from a group, or its label, to its answer. All intervals hold at once.

    Parameters
    ----------
    by
        The expressions that define the groups.
    groups
        The values of each group; dates and timestamps are texts.
    answers, shares
        For each group its answer, and the interval for its share of the rows.
    record
        Where the answers come from.
    bounds
        The declared range, in which values and intervals lie.
    """

    by: tuple[str, ...]
    groups: tuple[tuple[Category, ...], ...]
    answers: tuple[Answer, ...]
    shares: tuple[Interval, ...]
    record: Record
    bounds: Interval = (0.0, 1.0)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """What each group is called: its values, in quotation marks if two groups were called the same without."""
        labels = tuple(", ".join(map(str, group)) for group in self.groups)
        if len(set(labels)) < len(labels):
            return tuple(", ".join(map(literal_text, group)) for group in self.groups)
        return labels

    def __getitem__(self, group: object) -> Answer:
        requested = group if isinstance(group, tuple) else (group,)
        for written in (_in_json, as_timestamp):
            values, label = tuple(map(written, requested)), str(written(group))
            if values in self.groups:
                return self.answers[self.groups.index(values)]
            if label in self.labels and not isinstance(group, tuple):
                return self.answers[self.labels.index(label)]
        raise KeyError(group)

    def __iter__(self) -> Iterator[str]:
        return iter(self.labels)

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def frame(self) -> pl.DataFrame:
        """One row for each group: its values, value, low and high of the answer, and the ends of its share.

        A column of values that has the name of another, such as `low`, is called `by_low`.
        """
        columns: dict[str, list[Any]] = {}
        for place, name in enumerate(self.by):
            while name in NUMBERS or name in columns:
                name = f"by_{name}"
            columns[name] = [group[place] for group in self.groups]
        numbers = {name: [each.get(name) for each in self.result()["groups"]] for name in NUMBERS}
        return pl.DataFrame(columns | numbers, strict=False)

    def result(self) -> dict[str, Any]:
        """A list of groups, each with value, low, high and the ends of its share; what they are by; the bounds."""
        return result_of(self.by, self.groups, list(map(estimate_of, self.answers)), self.shares, self.bounds)

    @classmethod
    def read(cls, result: Mapping[str, Any], record: Record) -> "GroupsAnswer":
        """Rebuild the answer from what `result` returned, and its `record`."""
        lines, (low, high) = result["groups"], result["bounds"]
        return cls(
            tuple(result["by"]),
            tuple(tuple(one["group"]) for one in lines),
            answers_of(lines, record, (low, high)),
            tuple((one["share_low"], one["share_high"]) for one in lines),
            record,
            (low, high),
        )

    def rows(self) -> list[tuple[str | None, Estimate]]:
        """One interval for each group."""
        return list(self._estimates())

    def _estimates(self) -> list[tuple[str, Estimate]]:
        return list(zip(self.labels, map(estimate_of, self.answers), strict=True))

    def __repr__(self) -> str:
        lines = labeled_lines(self._estimates())
        width, widest = (max(len(line[place]) for line in lines) for place in (0, 1))
        written = [f"{label:<{width}}  {value:>{widest}}  {interval}" for label, value, interval in lines]
        return "\n".join([*written, self.record.small_print])

    def _repr_html_(self) -> str:
        scale = common_scale(self.answers, self.bounds)
        headings = (", ".join(self.by), "value", "interval", write_scale(scale), "share of rows")
        rows = []
        for line, answer, share in zip(labeled_lines(self._estimates()), self.answers, self.shares, strict=True):
            _, least, most = write_estimate(Estimate(share[0], *share), 4)
            rows.append((*line, interval_bar(answer, scale), f"[{least}, {most}]"))
        return notebook.table(headings, rows) + notebook.small(self.record.small_print)


def result_of(
    by: Sequence[str],
    groups: Sequence[Sequence[Any]],
    found: Sequence[Estimate],
    shares: Sequence[Interval],
    bounds: Interval,
) -> Result:
    """Return the result of a question by groups: what was `found` of each, and the interval for its share."""
    lines = [
        {"group": list(map(_in_json, group)), **one.to_json(), "share_low": low, "share_high": high}
        for group, one, (low, high) in zip(groups, found, shares, strict=True)
    ]
    return {"by": list(by), "groups": lines, "bounds": list(bounds)}


def _in_json(value: Any) -> Any:
    """Return a value of a group as the ledger stores it: a date or a timestamp as text."""
    return str(value) if isinstance(value, date) else value


def in_groups(kind: str, context: Context, grouped: Grouped, rows_per_query: int | None) -> Question:
    """Return the question that asks for every group, in as many passes as it takes.

    Parameters
    ----------
    kind
        The kind of the question.
    context, rows_per_query
        As for every question; the rows are those of one pass.
    grouped
        The query about all groups.
    """
    draws = context.draws(grouped, rows_per_query)
    together = max(1, (context.answering.most_at_once - 1) // 2)
    count = len(grouped.groups)
    passes = -(-count // together)
    parts = grouped.in_passes(passes)

    def run(drawing: Drawing) -> Result:
        releases = drawing.release_passes(grouped, parts, draws)
        counts = [len(part.groups) for part in parts]
        known = drawing.answering.groups_of_all(list(zip(releases, counts, strict=True)))
        intervals, shares = zip(*known, strict=True)
        values = [value for release in releases for value in release.values]
        found = [Estimate.within(grouped.bounds, *pair) for pair in zip(values, intervals, strict=True)]
        return _result(grouped, found, shares)

    def forecast(_: Answered) -> Forecast:
        saved = f"{count} groups {how}, where {count} questions would read {count * draws:,} rows"
        narrower = narrower_cut(context, grouped.inner, draws)
        return Forecast(
            widths=context.group_widths(parts[0], draws, cost), remarks=(saved if count > 1 else None, narrower)
        )

    how = "in one pass" if passes == 1 else f"in {passes} passes"
    question = context.question(kind, grouped, draws, run, passes=parts, forecast=forecast)
    cost = question.cost
    leave_something(context, cost, count, "groups")
    return context.naming_published(question, [name for key in grouped.keys for name in key.columns])


def leave_something(context: Context, cost: Cost, asked: int, what: str, besides: int = 0) -> None:
    """Refuse so many groups or categories that no later answer would say anything, even as the first question.

    What was asked before does not matter: otherwise groups that have an answer could be refused later on. `besides`
    says how many more are in the cost: a histogram has a category for everything else.
    """

    def too_many(count: int) -> bool:
        part, whole = count + besides, asked + besides
        return _leaves_nothing(context.guarantee, part * cost.charge // whole, part * cost.intervals // whole)

    if too_many(asked) and not too_many(1):  # else no answer of this session says anything, whatever is asked
        most = bisect_left(range(asked), True, key=too_many) - 1
        raise InvalidArgument(
            f"{asked:,} {what} at once would take so much of this session that no later answer would say anything; ask"
            f" about at most {most:,}, or bring more rows.",
            name=what,
            most=most,
            **{what: asked},
        )


@lru_cache(MOST_REMEMBERED)
def _leaves_nothing(guarantee: Guarantee, charge: int, intervals: int) -> bool:
    """Whether no answer says anything once this much is taken."""
    return guarantee.margin_after(0, PlainAmounts(charge, intervals)) >= SAYS_NOTHING


def _result(grouped: Grouped, found: Sequence[Estimate], shares: Sequence[Interval]) -> Result:
    return result_of([key.text for key in grouped.keys], grouped.groups, found, shares, grouped.bounds)


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
        Groups | None,
        About(
            GroupsForm(),
            "The values of `by` to answer for; by default, the declared ones. For two columns: A, X; B, Y.",
        ),
    ] = None,
    slices: Slices = None,
    rows_per_query: RowsPerQuery = None,
    margin: Margin = None,
    until: Until = None,
    mechanism: ByMechanism = None,
) -> Question:
    """Return the share of rows for which `query` is true, or the mean of a number declared `within` bounds.

    For data with units, it is that of a random row of a random unit: every unit counts equally.

    Parameters
    ----------
    query
        A condition (a share) or a number (a mean): SQL text, a Polars expression or a function of one row.
    within
        The declared range of a number, where none was declared with the data; values outside are clipped.
    where
        Only rows for which this is true count. Missing values are left out of a mean and count as false in a share.
    rows_per_unit
        For data with units: every row counts equally, and this is the most rows that a unit has; the rows of a larger
        unit count as this many together.
    weight, largest_weight
        Rows count in proportion to this number, such as a survey weight; larger weights count as the largest.
    by, groups
        Answer for each of several groups at once: `by` is a column or an expression, or a list of them; `groups` are
        their values. With several expressions: tuples of values, or a list of values for each, to be combined. If left
        out, the categories declared with the data.
    slices
        Where to cut the range of a number, increasing. Each slice gets draws of its own, for the same price; the
        interval is narrower if most values lie in a small part of the range. "auto" finds out with a few of the draws
        where to cut, if anywhere; it is the default for the mean of all rows, of one group and of up to 16, unless
        `margin`, `until`, `weight`, `rows_per_unit` or `mechanism` is given, and for groups unless the rows are a deck.
        "none" cuts nothing. Each group is then asked with draws of its own; without slices, one pass serves them all.
    rows_per_query, margin
        Spend more or less on this one answer: the rows it reads, or the margin it should have, in its own units.
    until
        Look at 1,000 draws first, then at twice as many in all, and so on, until the margin is this small. Each look
        costs what it draws, and all share one answer's confidence. It pays off for rare events and groups, where the
        number of rows needed is not known beforehand.
    mechanism
        How this one answer is made; if left out, as planned. In a session of coins, "gaussian" reads all rows once and
        adds noise, for the same price; it is worth it for an answer so narrow that coins would read more rows.

    Returns
    -------
    Answer
        The value and its interval for the population; with `by`, one for each group, and their frame.
    """
    if mechanism is not None:
        context = context.by(mechanism)
    if until is not None and (by, margin, rows_per_query) != (None, None, None):
        raise InvalidArgument("until must be left out with by, margin and rows_per_query.", name="until")
    cuts = slices if cut(slices) else None
    if by is not None:
        kept = {"weight": weight, "largest_weight": largest_weight, "rows_per_unit": rows_per_unit}
        _leave_out("by", margin=margin, **kept)
        grouped = build_groups(query, context.schema, by=by, groups=groups, within=within, where=where)
        if cuts is None and slices is None and _cut_unasked(context, grouped, rows_per_query):
            cuts = AUTO
        if cuts is not None:
            return _in_slices(context, grouped, cuts, rows_per_query)
        return in_groups(MEAN.name, context, grouped, rows_per_query)
    if groups is not None:
        raise InvalidArgument("groups are values of by; say by what the rows are grouped.", name="groups")
    plain = build_mean(query, context.schema, within=within, where=where)
    if cuts is not None:
        others = {"weight": weight, "largest_weight": largest_weight, "rows_per_unit": rows_per_unit, "until": until}
        _leave_out("slices", margin=margin, **others)
        return _in_slices(context, plain, cuts, rows_per_query)
    built = build_accepted(
        plain, context.schema, rows_per_unit=rows_per_unit, weight=weight, largest_weight=largest_weight
    )
    if until is not None:
        return look_until(MEAN.name, context, built, until)
    usual = slices is None and built is plain and margin is None
    if usual and _cut_unasked(context, plain, rows_per_query):
        return _in_slices(context, plain, AUTO, rows_per_query)
    draws = context.draws(built, rows_per_query, margin)
    if usual:
        return context.question(MEAN.name, plain, draws, remarks=lambda: (narrower_cut(context, plain, draws),))
    return context.question(MEAN.name, built, draws, requested=margin)


def _leave_out(beside: str, **options: object) -> None:
    """Refuse options that cannot be given together with another one."""
    for name, value in options.items():
        if value is not None:
            raise InvalidArgument(f"{name} must be left out beside {beside}.", name=name)


def _in_slices(
    context: Context, plain: Share | Mean | Grouped, slices: Sequence[float] | str, rows_per_query: int | None
) -> Question:
    """Return the question about the slices of a number, of all rows or in each group."""
    sliced = build_slices(plain, slices)

    def report(found: Sequence[Estimate], shares: Sequence[Interval]) -> Result:
        return _result(plain, found, shares) if isinstance(plain, Grouped) else found[0].to_result(plain.bounds)

    draws = context.draws(sliced, rows_per_query)
    question = in_slices(MEAN.name, context, sliced, draws, report)
    if isinstance(plain, Grouped):
        leave_something(context, question.cost, len(plain.groups), "groups")
        return context.naming_published(question, [name for key in plain.keys for name in key.columns])
    return question


def _cut_unasked(context: Context, measure: Share | Mean | Grouped, rows_per_query: int | None) -> bool:
    """Whether slices of a mean are found out by default: not of many groups, nor of any where rows are a deck.

    Every group then takes draws of its own, while one pass serves all, and a deck has only so many cards.
    """
    one, count = (measure.inner, len(measure.groups)) if isinstance(measure, Grouped) else (measure, 1)
    in_group = one is not measure or one.where is not None
    if not isinstance(one, Mean) or (in_group and (context.dealt or count > MOST_CUT)):
        return False
    return worthwhile(context, context.draws(measure, rows_per_query))


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
        rows_per_unit: int | None = None,
        weight: QueryLike | None = None,
        largest_weight: float | None = None,
        by: None = None,
        groups: None = None,
        slices: Sequence[float] | str | None = None,
        rows_per_query: int | None = None,
        margin: float | None = None,
        until: float | None = None,
        mechanism: str | None = None,
    ) -> One: ...

    @overload
    def __call__(
        self,
        query: QueryLike,
        *,
        within: tuple[float, float] | None = None,
        where: QueryLike | None = None,
        rows_per_unit: None = None,
        weight: None = None,
        largest_weight: None = None,
        by: QueryLike | Sequence[QueryLike],
        groups: Groups | None = None,
        slices: Sequence[float] | str | None = None,
        rows_per_query: int | None = None,
        margin: None = None,
        until: None = None,
        mechanism: str | None = None,
    ) -> Several: ...

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Ask."""
