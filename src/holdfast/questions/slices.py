"""The mean of a number whose values lie in a part of its range, asked in slices of the range.

A coin for a number between wide bounds says little: it comes up as if the number were always at one end or the other.
So the range is cut, and every slice has coins of its own (docs/proofs/moments.md); slices that values hardly ever reach
are known nearly exactly. The cuts are the caller's or, by default, found out first with a sixteenth of the draws: the
center of the values, and how far from there they are on average. An answer that would not gain by it, since values are
mostly at the ends of the range, is not cut, and only those draws are lost. All of it costs what one answer does.

If some rows may not count, they are put at the center, where a slice ends, so that they add no uncertainty. Groups are
asked one after the other, each with draws of its own: that costs what one pass over all of them does.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from holdfast.errors import InvalidArgument
from holdfast.guarantees.statistic import Interval
from holdfast.ledger import Answered, Cost
from holdfast.queries.groups import Grouped
from holdfast.queries.measures import Sliced
from holdfast.queries.query import Composed
from holdfast.questions.answer import Estimate
from holdfast.questions.question import SHOWN_PRESENT, Context, Drawing, Forecast, Question, Result, Widths, if_complete
from holdfast.questions.stages import FIRST, LEAST, ROUGH, DrawnStages, Found, Imagined, PlannedStages, Stages

NONE = "none"  # instead of cuts: nothing is cut
COUNTING = 1 / 4  # draws, in ordinary answers, for the share of rows that count, if some may not
ENOUGH = 4_000  # draws from which on a mean is cut unasked: with fewer, cuts hardly make it narrower

Report = Callable[[Sequence[tuple[Estimate, Interval]]], Result]  # of each part its estimate, and its share of the rows


def worthwhile(context: Context, draws: int) -> bool:
    """Whether a mean of all rows from this many `draws` is cut unasked.

    It is if the first answer of the session was: else the same mean would be another question, charged again, once
    ordinary answers read fewer rows.
    """
    most = max(draws, context.guarantee.rows_at(0))
    return context.mechanism is None and context.answering.covers_slices and draws >= LEAST and most >= ENOUGH


def in_slices(
    kind: str,
    context: Context,
    sliced: Sliced,
    draws: int,
    report: Report,
    *,
    scale: float = 1.0,
    text: str | None = None,
    forecast: bool = False,
) -> Question:
    """Return the question about every slice of a number, with as many draws in all as it has without slices.

    Parameters
    ----------
    kind, context, draws
        The kind of the question, and how many draws an ordinary answer has.
    sliced
        The mean, or that of each group, and its cuts; without any, they are found out first.
    report
        Returns the result, from what was found of all rows or of each group.
    scale
        How many units of the answer are one unit of the number.
    text
        The question in words, if not the text of `sliced`.
    forecast
        Whether its price says how wide the answer can be.
    """
    context.answering.supports_slices()
    if draws < LEAST:
        raise InvalidArgument(
            f"slices need at least {LEAST} rows for one answer, to share among them; this one reads {draws}. Leave"
            " slices out, or give more rows_per_query.",
            name="slices",
        )
    measure = sliced.measure
    parts: tuple[Composed, ...] = measure.in_passes(len(measure.groups)) if isinstance(measure, Grouped) else (measure,)
    low, high = measure.bounds
    bounds = scale * low, scale * high

    def estimate(part: Composed, drawing: Drawing) -> tuple[Estimate, Interval]:
        stages = DrawnStages((part,), draws, sliced=True, counting=COUNTING, drawing=drawing)
        value, (first, last) = _found(stages, sliced.edges)
        found = Estimate.within(bounds, min(1.0, max(0.0, value)), (max(0.0, first), min(1.0, last)))
        return found, stages.share

    def run(drawing: Drawing) -> Result:
        return report([estimate(part, drawing) for part in parts])

    def foreseen(_: Answered) -> Forecast:
        def margin(share: float) -> float:
            imagined = Imagined.zeros_and_ones(measure, context.certifying(cost), share)
            found, _ = estimate(measure, imagined)
            return (found.high - found.low) / 2

        remarks = (if_complete(measure),)
        if not planned.some_left_out:
            return Forecast(margin(1.0), remarks=remarks)
        widths: Widths = tuple((share, margin(share)) for share in SHOWN_PRESENT)
        return Forecast(widths=widths, remarks=remarks)

    planned = PlannedStages(parts[:1], draws, sliced=True, counting=COUNTING)
    _found(planned, sliced.edges)
    one, rows_read, work = planned.price(context)
    cost = Cost(len(parts) * one.charge, len(parts) * one.intervals)
    question = context.question(kind, parts[0], draws, run, text=text, of=sliced)
    return replace(
        question,
        cost=cost,
        rows_read=len(parts) * rows_read,
        work=len(parts) * work,
        forecast=foreseen if forecast else lambda _: Forecast(),
    )


def _found(stages: Stages, edges: Sequence[float]) -> Found:
    """Return the mean of the first value, and its interval: rescaled, as the `edges` of its slices are."""
    center, cuts, left = 0.0, list(edges[1:-1]), stages.draws
    if stages.some_left_out:
        left = 2 * stages.draws - stages.count(COUNTING)  # a group takes two answers
    if not edges:
        center, cuts = stages.look()
        left -= stages.draws_of_look
    elif stages.some_left_out:
        center = min(1.0, max(0.0, stages.rough(FIRST)))
        cuts = [cut - center for cut in cuts]
        left -= stages.count(ROUGH)
    if stages.some_left_out:
        cuts.append(0.0)
    value, (low, high) = stages.certain(FIRST.moved((center, 0.0)), left, cuts)
    return center + value, (center + low, center + high)
