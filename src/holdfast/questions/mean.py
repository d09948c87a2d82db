"""A share, a bounded mean, or either of them in a group or in several.

Several declared groups are asked in the fewest passes over drawn rows that keep the noise small. One pass serves
several groups: a draw lands in one of them, or outside. A pass is charged as if each group had been asked in a pass of
its own, since it reveals as much, but it reads the rows of one. More groups in a pass also mean more random outcomes
among its draws, so there are enough passes that three quarters of the draws stay unchanged.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Protocol, TypeVar, overload

import polars as pl

from holdfast import notebook
from holdfast.errors import InvalidArgument
from holdfast.guarantees.plan import SAYS_NOTHING
from holdfast.guarantees.terms import PlainAmounts
from holdfast.ledger import Answered, Cost
from holdfast.queries.build import Groups, QueryLike, build_groups, build_mean, build_slices
from holdfast.queries.groups import Grouped
from holdfast.queries.measures import Mean, Share, Sliced
from holdfast.queries.query import Composed
from holdfast.queries.units import build_accepted
from holdfast.questions import KINDS
from holdfast.questions.answer import (
    Answer,
    AnyAnswer,
    Estimate,
    Interval,
    Record,
    estimate_of,
    interval_bar,
    labeled_lines,
    write_bound,
    write_estimate,
)
from holdfast.questions.kind import kind_of
from holdfast.questions.options import (
    About,
    By,
    ByMechanism,
    GroupsForm,
    LargestWeight,
    Margin,
    Query,
    Reals,
    RowsPerQuery,
    RowsPerUnit,
    Until,
    Weight,
    Where,
    Within,
)
from holdfast.questions.question import Context, Drawing, Forecast, Question, Result
from holdfast.questions.stages import FIRST, LEAST, ROUGH, DrawnStages, Found, PlannedStages, Stages, look_until


@dataclass(frozen=True, repr=False)
class GroupsAnswer(AnyAnswer, Mapping[Any, Answer]):
    """One answer for each group: a mapping from a group, or its label, to its answer. All intervals hold at once.

    Parameters
    ----------
    by
        The expressions that define the groups.
    groups
        The values of each group.
    answers, shares
        For each group its answer, and the interval for its share of the rows.
    record
        Where the answers come from.
    bounds
        The declared range, in which values and intervals lie.
    """

    by: tuple[str, ...]
    groups: tuple[tuple[Any, ...], ...]
    answers: tuple[Answer, ...]
    shares: tuple[Interval, ...]
    record: Record
    bounds: Interval = (0.0, 1.0)

    @property
    def labels(self) -> tuple[str, ...]:
        """What each group is called."""
        return tuple(", ".join(map(str, group)) for group in self.groups)

    def __getitem__(self, group: object) -> Answer:
        requested = group if isinstance(group, tuple) else (group,)
        for values, label, answer in zip(self.groups, self.labels, self.answers, strict=True):
            if values == requested or label == str(group):
                return answer
        raise KeyError(group)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.labels)

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def frame(self) -> pl.DataFrame:
        """One row for each group: its values, value, low and high of the answer, and the ends of its share."""
        columns = {name: [group[place] for group in self.groups] for place, name in enumerate(self.by)}
        numbers = {name: [each.get(name) for each in self.result()["groups"]] for name in NUMBERS}
        return pl.DataFrame(columns | numbers, strict=False)

    def result(self) -> dict[str, Any]:
        """A list of groups, each with value, low, high and the ends of its share; what they are by; the bounds."""
        found = zip(map(estimate_of, self.answers), self.shares, strict=True)
        return result_of(self.by, self.groups, list(found), self.bounds)

    @classmethod
    def read(cls, result: Mapping[str, Any], record: Record) -> "GroupsAnswer":
        """Rebuild the answer from what `result` returned, and its `record`."""
        lines, (low, high) = result["groups"], result["bounds"]
        return cls(
            tuple(result["by"]),
            tuple(tuple(one["group"]) for one in lines),
            tuple(Estimate.from_json(one).to_answer(record, (low, high)) for one in lines),
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
        scale = "from {} to {}".format(*map(write_bound, self.bounds))
        headings = (", ".join(self.by), "value", "interval", scale, "share of rows")
        rows = []
        for line, answer, share in zip(labeled_lines(self._estimates()), self.answers, self.shares, strict=True):
            _, least, most = write_estimate(Estimate(share[0], *share), 4)
            rows.append((*line, interval_bar(answer, self.bounds), f"[{least}, {most}]"))
        return notebook.table(headings, rows) + notebook.small(self.record.small_print)


def result_of(
    by: Sequence[str], groups: Sequence[Sequence[Any]], found: Sequence[tuple[Estimate, Interval]], bounds: Interval
) -> Result:
    """Return the result of a question by groups: what was `found` of each, and the interval for its share."""
    lines = [
        {"group": list(group), **one.to_json(), "share_low": low, "share_high": high}
        for group, (one, (low, high)) in zip(groups, found, strict=True)
    ]
    return {"by": list(by), "groups": lines, "bounds": list(bounds)}


NUMBERS = ("value", "low", "high", "share_low", "share_high")  # what is said of a group, besides its values


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
        releases = [(drawing.release(part, draws), len(part.groups)) for part in parts]
        known = drawing.answering.groups_of_all(releases)
        values = [value for release, _ in releases for value in release.values]
        found = [
            (Estimate.within(grouped.bounds, value, interval), share)
            for value, (interval, share) in zip(values, known, strict=True)
        ]
        return _result(grouped, found)

    def forecast(_: Answered) -> Forecast:
        saved = f"{count} groups {how}, where {count} questions would read {count * draws:,} rows"
        narrower = _slices_hint(context, grouped.inner, draws, "in large groups, ")
        return Forecast(
            widths=context.group_widths(parts[0], draws, cost), remarks=(saved if count > 1 else None, narrower)
        )

    how = "in one pass" if passes == 1 else f"in {passes} passes"
    question = replace(context.question_in_passes(kind, grouped, parts, draws, run), forecast=forecast)
    cost = question.cost
    _leave_something(context, cost, count)
    return context.said_published(question, [name for key in grouped.keys for name in key.columns])


def _leave_something(context: Context, cost: Cost, groups: int) -> None:
    """Refuse so many groups that no later answer would say anything, even if they were the first question.

    What was asked before does not matter: otherwise groups that have an answer could be refused later on.
    """

    def too_many(count: int) -> bool:
        taken = PlainAmounts(count * cost.charge // groups, count * cost.intervals // groups)
        return context.guarantee.margin_after(0, taken) >= SAYS_NOTHING

    if too_many(groups) and not too_many(1):  # else no answer of this session says anything, whatever is asked
        most = bisect_left(range(groups), True, key=too_many) - 1
        raise InvalidArgument(
            f"{groups:,} groups at once would take so much of this session that no later answer said anything; ask"
            f" about at most {most:,}, or bring more rows.",
            name="groups",
            groups=groups,
            most=most,
        )


def _result(grouped: Grouped, found: Sequence[tuple[Estimate, Interval]]) -> Result:
    return result_of([key.text for key in grouped.keys], grouped.groups, found, grouped.bounds)


COUNTING = 1 / 4  # draws, in ordinary answers, for the share of rows that count, if some may not
EXAMPLE_CUTS = (1 / 8, 1 / 4, 1 / 2)  # of the range: half as wide for delays, distances and wages, 8% wider for coins
_CUTS = "Where to cut the range of a number with few large values: narrower, at the same price."


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
    slices: Annotated[Sequence[float] | None, About(Reals(None, "0, 60, 240"), _CUTS)] = None,
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
        For numbers with few large values: where to cut their range, increasing. Each slice gets draws of its own, for
        the same price; the interval is narrower if most values lie in a small part of the range. With `by`, each group
        is asked with draws of its own.
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
    if by is not None:
        kept = {"weight": weight, "largest_weight": largest_weight, "rows_per_unit": rows_per_unit}
        _leave_out("by", margin=margin, **kept)
        grouped = build_groups(query, context.schema, by=by, groups=groups, within=within, where=where)
        if slices is not None:
            return _in_slices(context, build_slices(grouped, slices), rows_per_query)
        return in_groups(MEAN.name, context, grouped, rows_per_query)
    if groups is not None:
        raise InvalidArgument("groups are values of by; say by what the rows are grouped.", name="groups")
    plain = build_mean(query, context.schema, within=within, where=where)
    if slices is not None:
        kept = {"weight": weight, "largest_weight": largest_weight, "rows_per_unit": rows_per_unit, "until": until}
        _leave_out("slices", margin=margin, **kept)
        return _in_slices(context, build_slices(plain, slices), rows_per_query)
    built = build_accepted(
        plain, context.schema, rows_per_unit=rows_per_unit, weight=weight, largest_weight=largest_weight
    )
    if until is not None:
        return look_until(MEAN.name, context, built, until)
    draws = context.draws(built, rows_per_query, margin)
    if built is not plain or margin is not None or isinstance(plain, Share):
        return context.question(MEAN.name, built, draws, requested=margin)
    return context.question(MEAN.name, plain, draws, hint=partial(_slices_hint, context, plain, draws))


def _slices_hint(context: Context, measure: Share | Mean, draws: int, only: str = "") -> str | None:
    """Return the remark that slices would be narrower, with an example, where they may be; `only`: for what."""
    sliceable = isinstance(measure, Mean) and context.mechanism is None and context.answering.covers_slices
    if not sliceable or draws < LEAST:
        return None
    low, high = measure.bounds
    cuts = ", ".join(f"{low + (high - low) * part:.3g}" for part in EXAMPLE_CUTS)
    return f"narrower for as much, {only}where most values lie in a part of the range: give slices, such as {cuts}"


def _leave_out(beside: str, **options: object) -> None:
    """Refuse options that cannot be given together with another one."""
    for name, value in options.items():
        if value is not None:
            raise InvalidArgument(f"{name} must be left out beside {beside}.", name=name)


def _in_slices(context: Context, sliced: Sliced, rows_per_query: int | None) -> Question:
    """Return the question about every slice of a number, with as many draws in all as it has without slices.

    If some rows may not count, they are put at an estimate of the mean, from a few draws, where a slice ends; so they
    add no uncertainty. Groups are asked one after the other, each with draws of its own: that costs what one pass over
    all of them does.
    """
    context.answering.supports_slices()
    draws, measure = context.draws(sliced, rows_per_query), sliced.measure
    assert isinstance(measure, Mean | Grouped)
    if draws < LEAST:
        raise InvalidArgument(
            f"slices need at least {LEAST} rows for one answer, to share among them; this one reads {draws}. Leave"
            " slices out, or give more rows_per_query.",
            name="slices",
        )
    parts = measure.in_passes(len(measure.groups)) if isinstance(measure, Grouped) else (measure,)

    def work_out(stages: Stages) -> Found:
        center, cuts, part = 0.0, list(sliced.edges[1:-1]), 1.0
        if stages.some_left_out:
            part = 2 - COUNTING - ROUGH  # a group takes two answers
            center = min(1.0, max(0.0, stages.rough(FIRST)))
            cuts = [0.0, *(cut - center for cut in cuts)]
        value, (low, high) = stages.certain(FIRST.moved((center, 0.0)), stages.count(part), cuts)
        return center + value, (center + low, center + high)

    def estimate(part: Composed, drawing: Drawing) -> tuple[Estimate, Interval]:
        stages = DrawnStages((part,), draws, sliced=True, counting=COUNTING, drawing=drawing)
        value, (low, high) = work_out(stages)
        found = Estimate.within(part.bounds, min(1.0, max(0.0, value)), (max(0.0, low), min(1.0, high)))
        return found, stages.share

    def run(drawing: Drawing) -> Result:
        found = [estimate(part, drawing) for part in parts]
        if isinstance(measure, Grouped):
            return _result(measure, found)
        return found[0][0].to_result(measure.bounds)

    planned = PlannedStages(parts[:1], draws, sliced=True, counting=COUNTING)
    work_out(planned)
    one, rows_read, work = planned.price(context)
    count = len(parts)
    cost = Cost(count * one.charge, count * one.intervals)
    _leave_something(context, cost, count)
    question = Question(
        MEAN.name,
        sliced.text,
        context.identity(sliced, draws),
        cost,
        count * rows_read,
        run,
        work=count * work,
    )
    return context.said_published(question, [name for part in parts[:1] for name in _key_columns(part)])


def _key_columns(measure: Composed) -> list[str]:
    return [name for key in measure.keys for name in key.columns] if isinstance(measure, Grouped) else []


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
        slices: Sequence[float] | None = None,
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
        rows_per_unit: int | None = None,
        weight: QueryLike | None = None,
        largest_weight: float | None = None,
        by: QueryLike | Sequence[QueryLike],
        groups: Groups | None = None,
        slices: None = None,
        rows_per_query: int | None = None,
        margin: float | None = None,
        until: None = None,
        mechanism: str | None = None,
    ) -> Several: ...

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Ask."""
