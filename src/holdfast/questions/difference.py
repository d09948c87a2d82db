"""The difference between two groups (A/B) or two values of each row, with an interval for the difference itself.

Two groups are asked in one pass or, where draws with five outcomes would be too noisy, in a pass each, for the same
price. Means of numbers are asked in slices, each group by itself, if an overview says that this is narrower.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import partial
from math import ceil
from typing import Annotated, Any

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.guarantees.mathematics.moments import QuadraticForm
from holdfast.ledger import Cost
from holdfast.queries.build import AUTO, QueryLike, build_difference, build_mean, build_slices
from holdfast.queries.groups import Between
from holdfast.queries.measures import Mean, Quadratic, Share, about
from holdfast.questions import KINDS
from holdfast.questions.answer import Answer, Record
from holdfast.questions.estimate import LONG, Estimate, Interval, outward, width, write_far
from holdfast.questions.imagined import Imagined, about_margin
from holdfast.questions.kind import kind_of
from holdfast.questions.options import About, Query, RowsPerQuery, Slices, Text, Where, Within
from holdfast.questions.question import (
    NOT_KNOWN,
    ROWS_READ,
    SHOWN_SHARES,
    Context,
    Drawing,
    Question,
    Result,
    written_shares,
)
from holdfast.questions.stages import (
    PILOT_OF_GROUP,
    DrawnStages,
    PlannedStages,
    Report,
    clipped,
    cut,
    in_slices,
    narrower_cut,
    worthwhile,
)

GAP = QuadraticForm(x=1.0, y=-1.0)
APART = (0.01, 0.1)  # how much two values differ, for which a price says what to expect
OF_PAIRS = 2.0  # draws of a pair, in ordinary answers
OF_SURVEYS = 1.5 * PILOT_OF_GROUP  # part of the draws that shows how large both groups are, and where their values lie
TOGETHER = 0.8  # about how wide a difference is, asked for both groups together, beside the sum of two intervals


@dataclass(frozen=True, repr=False, eq=False)
class DifferenceAnswer(Answer):
    """The mean of the first group minus that of the second, with its interval; also both means.

    Parameters
    ----------
    value, low, high, record, bounds
        As for every answer; the bounds are those of a difference.
    first, second
        The means of both groups, with their intervals; None for a pair. All intervals hold at once.
    """

    first: Estimate | None = None
    second: Estimate | None = None

    @property
    def lift(self) -> Interval | None:
        """The ends of the relative difference, first/second - 1; None if the second mean may be zero or negative."""
        if self.first is None or self.second is None or self.second.low <= 0:
            return None
        ends = [(first - second) / second for first, second in _corners(self.first, self.second, self.low, self.high)]
        return outward((min(ends), max(ends)))

    def result(self) -> dict[str, Any]:
        """Value, low, high and bounds of the difference; the means of both groups."""
        both = {"first": self.first, "second": self.second}
        return super().result() | {name: None if one is None else one.to_json() for name, one in both.items()}

    @classmethod
    def read(cls, result: Mapping[str, Any], record: Record) -> "DifferenceAnswer":
        """Rebuild the answer from what `result` returned, and its `record`."""
        found, (low, high) = Estimate.from_json(result), result["bounds"]
        both = (result[name] for name in ("first", "second"))
        means = (None if one is None else Estimate.from_json(one) for one in both)
        return cls(found.value, found.low, found.high, record, (low, high), *means)

    @property
    def parts(self) -> list[tuple[str, Estimate]]:
        """Both means."""
        named = (("first group", self.first), ("second group", self.second))
        return [(name, one) for name, one in named if one is not None]

    def details(self) -> list[tuple[str, str]]:
        """Both means, and the relative difference where it is known."""
        texts = [(name, *one.rounded()) for name, one in self.parts]
        lines = [(name, f"{value}, between {low} and {high}") for name, value, low, high in texts]
        if self.lift is not None:
            low, high = self.lift
            lines.append(("relative", f"between {_percent(low, up=False)} and {_percent(high, up=True)}"))
        return lines


def _percent(x: float, *, up: bool) -> str:
    """Write an end of an interval in percent, rounded outward: up or down.

    >>> _percent(0.1234, up=True), _percent(0.1234, up=False), _percent(-0.0001, up=True), _percent(1e200, up=True)
    ('+12.4%', '+12.3%', '+0.0%', '∞%')
    """
    if abs(x) >= LONG / 100:
        return f"{write_far(100 * x, 3, up=up)}%"
    return f"{Decimal(x).quantize(Decimal('0.001'), ROUND_CEILING if up else ROUND_FLOOR) + 0:+.1%}"


def _corners(first: Estimate, second: Estimate, low: float, high: float) -> list[Interval]:
    """Return the corners of the pairs of means that all three intervals allow: the ratio is extreme in one of them."""
    corners = [(a, b) for a in (first.low, first.high) for b in (second.low, second.high) if low <= a - b <= high]
    for gap in (low, high):
        corners += [(a, a - gap) for a in (first.low, first.high) if second.low <= a - gap <= second.high]
        corners += [(b + gap, b) for b in (second.low, second.high) if first.low <= b + gap <= first.high]
    return corners or [(first.low, second.high), (first.high, second.low)]


_GROUP = About(Text("carrier = 'UA'"), "A condition: the first group.")
_OTHER = About(Text("carrier = 'AA'"), "A condition: the second group; left out, all other rows.")
_MINUS = About(Text("arr_delay > 15"), "What is subtracted from the query in every row, instead of groups.")


def difference(
    context: Context,
    query: Query,
    group: Annotated[QueryLike | None, _GROUP] = None,
    other: Annotated[QueryLike | None, _OTHER] = None,
    *,
    minus: Annotated[QueryLike | None, _MINUS] = None,
    within: Within = None,
    where: Where = None,
    slices: Slices = None,
    rows_per_query: RowsPerQuery = None,
) -> Question:
    """Return how much more often `query` is true in one group than in another, or by how much its mean is larger.

    Parameters
    ----------
    query
        A condition (a share) or a number (a mean): SQL text, a Polars expression or a function of one row.
    group, other
        Conditions that say which rows are in which group. A row that is in both counts in neither. Left out, the second
        group is all rows that are not in the first.
    minus
        Instead of groups, what is compared with `query` in every row: the answer is how much more often `query` is
        true, or by how much its mean is larger. It is narrow if both are nearly always the same.
    within
        The declared range of a number, where none was declared with the data; values outside are clipped.
    where
        Only rows for which this is true count.
    slices
        Where to cut the range of a number, as for a mean: "auto" finds out where, if anywhere, and is the default
        unless the rows are a deck; "none" cuts nothing. Each group has draws of its own, for the same price; the
        interval is narrower for large groups if most values lie in a small part of the range.
    rows_per_query
        Rows this one answer reads.

    Returns
    -------
    DifferenceAnswer
        The difference and its interval for the population; for groups, also both means.
    """
    if (group is None) == (minus is None) or (minus is not None and other is not None):
        raise InvalidArgument(
            "Give group and other to compare two sets of rows, or minus to compare two values of each row.",
            name="group",
        )
    if group is None:
        if cut(slices):
            raise InvalidArgument("slices must be left out with minus: both values are of one row.", name="slices")
        return _paired(context, query, minus or "", within, where, rows_per_query)
    built = build_difference(query, context.schema, group=group, other=other, within=within, where=where)
    check.scale("within", 2 * (built.bounds[1] - built.bounds[0]))
    draws, span = context.draws(built, rows_per_query), width(built.bounds)
    passes = (built,) if context.answering.difference_passes == 1 else built.each

    def uncut(drawing: Drawing, draws: int) -> Result:
        releases = [drawing.release(one, draws) for one in passes]
        *intervals, gap = drawing.answering.difference(*releases)
        values = [value for release in releases for value in release.values][:2]
        first, second = (
            Estimate.within(built.bounds, value, interval).to_json()
            for value, interval in zip(values, intervals, strict=True)
        )
        return _result(values[0] - values[1], gap, span) | {"first": first, "second": second}

    unasked = slices is None and isinstance(built.inner, Mean) and not context.dealt and worthwhile(context, draws)

    def whole(draws: int) -> Question:
        run, remark = partial(uncut, draws=draws), partial(narrower_cut, context, built.inner, draws)
        remarks = (lambda: ()) if unasked else (lambda: (remark(),))
        return context.question(DIFFERENCE.name, built, draws, run, passes=passes, remarks=remarks)

    if not (cut(slices) or unasked):
        return whole(draws)
    sliced = build_slices(built, slices if cut(slices) else AUTO)
    question = in_slices(DIFFERENCE.name, context, sliced, draws, _of_two(span))
    if sliced.edges:
        return question
    at_most = whole(max(1, draws - ceil(draws * OF_SURVEYS)))
    return replace(question, run=partial(_either, built, draws, uncut), forecast=at_most.forecast)


def _either(built: Between, draws: int, uncut: Callable[[Drawing, int], Result], drawing: Drawing) -> Result:
    """Return the difference of two means in slices, or that of their zeros and ones if that is likely narrower.

    `uncut` returns the latter, from this many draws of four units each. Its interval is for the difference itself.
    """
    both = [DrawnStages((part,), draws, sliced=True, counting=0.0, drawing=drawing) for part in built.each]
    seen = [stages.survey() for stages in both]
    widths = [stages.expected(one) for stages, one in zip(both, seen, strict=True)]
    if sum(map(min, widths)) < TOGETHER * sum(alone for _, alone in widths):
        found = [clipped(built.bounds, stages.in_group(one)) for stages, one in zip(both, seen, strict=True)]
        result = _of_two(width(built.bounds))(found, [stages.share for stages in both])
    else:
        result = uncut(drawing, sum(stages.left(one) for stages, one in zip(both, seen, strict=True)) // 4)
    return result | {ROWS_READ: drawing.drawn}


def _paired(
    context: Context,
    query: QueryLike,
    minus: QueryLike,
    within: Interval | None,
    where: QueryLike | None,
    rows_per_query: int | None,
) -> Question:
    first, second = (build_mean(one, context.schema, within=within, where=where) for one in (query, minus))
    if within is None and first.bounds != second.bounds:  # both are declared: their range is what contains both
        low, high = zip(first.bounds, second.bounds, strict=True)
        both = min(low), max(high)
        asked = ((first, query), (second, minus))
        first, second = (
            one if isinstance(one, Share) else build_mean(text, context.schema, within=both, where=where)
            for one, text in asked
        )
    if first.bounds != second.bounds:
        raise InvalidArgument(
            f"Both values of a pair must have the same range; got {first.bounds} and {second.bounds}. Give within.",
            name="within",
        )
    pair = Quadratic((first, second), GAP)
    draws = context.draws(pair, rows_per_query)
    check.scale("within", 2 * (first.bounds[1] - first.bounds[0]))
    span, covered = width(first.bounds), context.answering.covers_slices
    cuts = [0.0] if isinstance(first, Share) and isinstance(second, Share) else None  # all differences are -1, 0 or 1

    def run(drawing: Drawing) -> Result:
        stages = DrawnStages(pair.measures, draws, covered, drawing=drawing)
        value, gap = stages.certain(GAP, stages.count(OF_PAIRS), cuts)
        return _result(value, gap, span) | {"first": None, "second": None}

    def hint(cost: Cost) -> str:
        """Say how wide it will be, by how much both differ; with `where`, by how many rows count."""
        certifying, both = context.certifying(cost), cuts is not None
        if not covered or (not both and Share in (type(first), type(second))):
            return NOT_KNOWN

        def margin(apart: float, share: float = 1.0) -> str:
            drawing = Imagined.apart((first, second), certifying, apart, share)
            stages = DrawnStages(pair.measures, draws, covered, drawing=drawing)
            value, gap = stages.certain(GAP, stages.count(OF_PAIRS), cuts)
            found = _result(value, gap, span)
            return about_margin(Estimate.from_json(found))

        apart = "differ in {:.0%} of them" if both else "differ by {:.0%} of the range on average"
        if where is not None:
            parts = [margin(APART[-1], share) for share in SHOWN_SHARES]
            counted = written_shares(SHOWN_SHARES, f"of the rows count and both {apart.format(APART[-1])}")
            return ", ".join(map(" ".join, zip(parts, counted, strict=True)))
        return ", ".join(f"{margin(each)} if both {apart.format(each).replace('them', 'the rows')}" for each in APART)

    planned = PlannedStages(pair.measures, draws, covered)
    planned.certain(GAP, planned.count(OF_PAIRS))
    return planned.question(context, DIFFERENCE.name, f"difference of {first.text} less {about(second)}", run, hint)


def _of_two(span: float) -> Report:
    """Return the difference of two means whose intervals hold at once: from end to end."""

    def report(found: Sequence[Estimate], shares: Sequence[Interval]) -> Result:
        first, second = found
        gap = outward(((first.low - second.high) / span, (first.high - second.low) / span))
        difference = _result((first.guess - second.guess) / span, gap, span)
        return difference | {"first": first.to_json(), "second": second.to_json()}

    return report


def _result(value: float, gap: Interval, span: float) -> Result:
    """Return a difference in [-1, 1] and its interval in the units of the question."""
    bounds = (-span, span)
    return Estimate.within(bounds, (value + 1) / 2, ((gap[0] + 1) / 2, (gap[1] + 1) / 2)).to_result(bounds)


DIFFERENCE = kind_of(difference, DifferenceAnswer)
KINDS.register(DIFFERENCE.name, DIFFERENCE)
