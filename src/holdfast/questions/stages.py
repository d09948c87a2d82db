"""Questions whose steps depend on what the steps before them showed, as any question may: stages.

Stages are means of quadratic functions of a row, asked one after the other; moments and pairs are computed from them. A
*rough* stage has few draws and no interval: it says where to look. A *certain* one has an interval for the population.
If the guarantee covers slices, the range of its function is cut near 0, where most values are expected, and each slice
has draws of its own; otherwise a stage is an ordinary mean, and a rough one is certain too.

The mean of a number is asked in slices, too: a coin for a number between wide bounds says little, as if the number were
always at one end or the other, and slices that values hardly ever reach are known nearly exactly
(docs/proofs/moments.md). The cuts are the caller's or, by default, found out first with a sixteenth of the draws: the
center of the values, and how far from there they are on average. An answer that would not gain by it, since values are
mostly at the ends of the range, is not cut, and only those draws are lost. All of it costs what one answer does.

If some rows may not count, as in a group, those are put at the center, where a slice ends, so that they add no
uncertainty. Of a small group that is still wider than its zeros and ones among draws with three outcomes. So the size
of the group is found out first, too, and then whichever is likely to be narrower. Groups are asked one after the other,
each with draws of its own: that costs what one pass over all of them does.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, inf, sqrt
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import InvalidArgument
from holdfast.guarantees.guarantee import EVERYTHING
from holdfast.guarantees.mathematics.moments import QuadraticForm, central
from holdfast.ledger import Answered, Cost
from holdfast.queries.build import AUTO
from holdfast.queries.groups import Between, InGroups
from holdfast.queries.measures import Mean, Quadratic, Share, Sliced
from holdfast.queries.query import Composed
from holdfast.questions.estimate import Estimate, Interval, times, width
from holdfast.questions.imagined import IMAGINED, Imagined
from holdfast.questions.question import (
    RELEASE_WORK,
    ROWS_READ,
    SHOWN_PRESENT,
    SHOWN_SHARES,
    Context,
    Drawing,
    Forecast,
    Question,
    Result,
    encode,
    if_complete,
)

Found = tuple[float, Interval]  # an estimate, and its interval

ROUGH, OFFSET = 1 / 8, 1 / 2  # draws, in ordinary answers: of a rough stage; of a mean that is only a step
PILOT = 1 / 32  # draws, in ordinary answers, that show where values lie; as many again show how far they spread
PILOT_OF_GROUP = 2 * PILOT  # the same of a group, which takes two answers, and as many to see how large it is
PILOT_LEAST = 8  # coins of the former that must have come up either way; fewer say too little
APART = 2.5  # values are cut at their center, and this many mean deviations on either side of it
SPREAD_OUT = 0.6  # of the largest mean deviation with this center, that of zeros and ones: beyond, cuts do not help
LEAST_SHARE = 1e-4  # of the rows, for what is divided by it
LEAST_DEVIATION = 1 / 500  # of the range
CUTS = (0.01, 0.1)  # where the range of a function is cut, on both sides of 0
CUTS_OF_SQUARES = (0.04, 0.2)  # the same if the range is on one side of 0 only
POWER = 0.75  # draws of a slice grow with its width, less than in proportion: wide ones are nearly always empty
LEAST = 64  # draws below which nothing is cut: slices would have too few each to be narrower together
SLACK = 2.0**-48  # more than the rounding errors of a form, of its range, and of what is computed from its mean
FIRST, SECOND = QuadraticForm(x=1.0), QuadraticForm(y=1.0)


@dataclass(frozen=True)
class Overview:
    """Where the values lie, as few draws show it: about their center, this far from there on average."""

    center: float
    deviation: float
    clear: bool  # whether enough coins came up to tell
    draws: int  # which it took

    @property
    def cuts(self) -> list[float]:
        """Where to cut the distance from the center, if anywhere."""
        if not self.clear or self.deviation > SPREAD_OUT * 2 * self.center * (1 - self.center):
            return []
        return [-APART * self.deviation, 0.0, APART * self.deviation]

    def values(self) -> NDArray[np.float64]:
        """Return values that lie like this.

        They fall off exponentially on both sides of the center; or, if that is too far for them, which would be clipped
        to the range and so lie closer, they have one value on either side.
        """
        if self.cuts:
            far = -self.deviation * np.log((np.arange(IMAGINED) + 0.5) / IMAGINED)
            each = np.concatenate([self.center - far, self.center + far])
        else:
            most = 2 * self.center * (1 - self.center)
            count, half = 2 * IMAGINED, min(self.deviation, most) / 2  # what either side adds to the mean deviation
            below = min(count - 1, ceil(count * half / self.center))  # so many values that none is below the range
            each = np.full(count, self.center + half * count / (count - below))
            each[:below] = self.center - half * count / below
        values: NDArray[np.float64] = np.clip(each, 0.0, 1.0)
        return values


@dataclass
class Stages(ABC):
    """One question's stages: the values it is about, and how many draws an ordinary answer has."""

    measures: tuple[Composed, ...]
    draws: int
    sliced: bool  # whether the guarantee covers slices
    counting: float = 1 / 2  # draws, in ordinary answers, for the share of rows that count, if some may not
    centers: Interval = (0.0, 0.0)  # what the values are measured from
    offsets: list[Interval] = field(default_factory=list)  # intervals of their means, measured from the centers

    @property
    def some_left_out(self) -> bool:
        """Whether there may be rows that do not count."""
        return Quadratic(self.measures, FIRST).some_left_out

    @property
    def counts_first(self) -> bool:
        """Whether the first stage is to find out which share of the rows counts."""
        return self.counting > 0 and self.some_left_out

    def count(self, part: float) -> int:
        """Return the number of draws of `part` ordinary answers."""
        return max(1, int(part * self.draws))

    @abstractmethod
    def rough(self, form: QuadraticForm, part: float = ROUGH) -> float:
        """Return an estimate of the mean of a form, from few draws: `part` of an ordinary answer."""

    @abstractmethod
    def deviation(self, center: float, part: float) -> float:
        """Return an estimate of how far the first value is from `center` on average, from few draws."""

    @abstractmethod
    def certain(self, form: QuadraticForm, draws: int, cuts: Sequence[float] | None = None) -> Found:
        """Return an estimate of the mean of a form, and its interval, from this many draws."""

    @property
    def seen_share(self) -> float:
        """The share of rows that count, as far as it was seen."""
        return 1.0

    def blur(self, value: float, draws: int) -> float:
        """How far a value that so few draws show may be off: no distance that they show is finer."""
        return LEAST_DEVIATION

    def overview(self, part: float) -> Overview:
        """Find out where the first value lies, from twice this `part` of an ordinary answer."""
        center, draws = min(1.0, max(0.0, self.rough(FIRST, part))), self.count(part)
        if not 0.0 < center < 1.0:
            return Overview(center, LEAST_DEVIATION, False, draws)
        deviation = max(self.blur(center, draws), self.deviation(center, part / 2))
        coins = draws * self.seen_share * min(center, 1 - center)
        return Overview(center, deviation, coins >= PILOT_LEAST, draws + 2 * self.count(part / 2))

    def center(self) -> None:
        """Measure every value from its estimated mean, and find out how far from there its true mean can be."""
        centers, linear = [0.0, 0.0], (FIRST, SECOND)[: len(self.measures)]
        self.offsets = [(0.0, 0.0), (0.0, 0.0)]
        for place, form in enumerate(linear):
            if self.sliced:
                centers[place] = min(1.0, max(0.0, self.rough(form)))
                _, self.offsets[place] = self.certain(form.moved((centers[0], centers[1])), self.count(OFFSET))
            else:
                centers[place], (low, high) = self.certain(form, self.draws)
                self.offsets[place] = low - centers[place], high - centers[place]
        self.centers = centers[0], centers[1]

    def central(self, form: QuadraticForm, draws: int) -> Found:
        """Return the mean of a form without linear terms, as a function of the distances from the true means."""
        seen, interval = self.certain(form.moved(self.centers), draws)
        return seen, central(form, interval, self.offsets[0], self.offsets[1])


@dataclass
class PlannedStages(Stages):
    """Counts what stages cost, with made-up results: the draws do not depend on what is seen."""

    releases: list[tuple[bool, int]] = field(default_factory=list)  # whether certain, and how many draws

    def rough(self, form: QuadraticForm, part: float = ROUGH) -> float:
        """Count a rough stage."""
        self.releases.append((not self.sliced, self.count(part)))
        return 0.5

    def deviation(self, center: float, part: float) -> float:
        """Count its two releases."""
        self.releases += [(False, self.count(part))] * 2
        return 0.0

    def certain(self, form: QuadraticForm, draws: int, cuts: Sequence[float] | None = None) -> Found:
        """Count a certain stage."""
        self.releases.append((True, draws))
        return 0.5, (0.25, 0.75)

    def in_group(self) -> Found:
        """Count what it may take: two answers, for a share and a mean, however many draws its parts have."""
        counting, seen = self.count(COUNTING), self.overview(PILOT_OF_GROUP)
        self.releases += [(True, counting), (True, 2 * self.draws - seen.draws - counting)]
        return 0.5, (0.25, 0.75)

    def price(self, context: Context) -> tuple[Cost, int, int]:
        """Return what all stages cost, the rows they read, and the work they take."""
        if not self.sliced:
            plain = Quadratic(self.measures, FIRST)
            return context.price_all([(plain, self.draws)] * len(self.releases))
        counting = self.count(self.counting) if self.counts_first else 0
        one = Sliced(Quadratic(self.measures, FIRST), (0.0, 1.0))
        cost, rows = context.price(one, counting + sum(draws for _, draws in self.releases))
        statements = sum(certain for certain, _ in self.releases) + self.counts_first
        return Cost(cost.charge, statements), rows, len(self.releases) * 4 * RELEASE_WORK + rows * one.work

    def question(
        self,
        context: Context,
        kind: str,
        text: str,
        run: Callable[[Drawing], Result],
        hint: Callable[[Cost], str | None] = lambda _: None,
    ) -> Question:
        """Return the question that these stages answer; `hint` gives a remark for its price, from its cost."""
        cost, rows_read, work = self.price(context)
        own = context.identity(Quadratic(self.measures, FIRST), self.draws)
        identity = None if own is None else encode({"kind": kind, "of": own, "text": text})
        return Question(
            kind, text, identity, cost, rows_read, run, work=work, forecast=lambda _: Forecast(remarks=(hint(cost),))
        )


@dataclass
class DrawnStages(Stages):
    """Stages that draw rows."""

    drawing: Drawing = field(kw_only=True)

    def __post_init__(self) -> None:
        self._share: Found = 1.0, (1.0, 1.0)  # the share of rows that count
        if self.sliced and self.counts_first:
            self.count_rows(self.counting, certain=True)

    def count_rows(self, part: float, *, certain: bool) -> None:
        """Find out which share of the rows counts; only if `certain`, with an interval."""
        query = Sliced(Quadratic(self.measures, FIRST), (0.0, 1.0), -1)
        release = self.drawing.release(query, self.count(part))
        (ends,) = query.statistic.certify(release, self.drawing.answering) if certain else (EVERYTHING,)
        self._share = max(release.values[0], LEAST_SHARE), ends

    def in_group(self, seen: Overview | None = None) -> Found:
        """Return the mean of the first value among the rows that count: cut, or uncut if that is likely narrower."""
        seen = seen or self.survey()
        cut, uncut = self.expected(seen)
        return self._cut(seen) if cut < uncut else self._uncut(seen)

    def survey(self) -> Overview:
        """Find out how many rows count, and where their values lie."""
        self.count_rows(PILOT_OF_GROUP, certain=False)
        return self.overview(PILOT_OF_GROUP)

    def left(self, seen: Overview) -> int:
        """Return how many units of two answers are left after a survey."""
        return 2 * self.draws - self.count(PILOT_OF_GROUP) - seen.draws

    def expected(self, seen: Overview) -> tuple[float, float]:
        """Return how wide the interval is, cut and uncut, if values lie as was seen and every count is as expected."""
        if not seen.clear:
            return inf, inf
        (low, high), measure = self.measures[0].bounds, any_group(self.measures[0])
        values = low + (high - low) * seen.values()
        rows = Imagined.of((measure,), self.drawing.answering, values, share=self.seen_share)
        imagined = DrawnStages((measure,), self.draws, sliced=True, counting=0.0, drawing=rows)
        _, uncut = imagined._uncut(seen)
        _, cut = imagined._cut(seen)
        return width(cut), width(uncut)

    def _cut(self, seen: Overview) -> Found:
        self.count_rows(COUNTING, certain=True)
        return _about(seen.center, self, self.left(seen) - self.count(COUNTING), [*seen.cuts, 0.0])

    def _uncut(self, seen: Overview) -> Found:
        release = self.drawing.release(Quadratic(self.measures, FIRST), self.left(seen) // 2)  # two units a draw
        ((found, share),) = self.drawing.answering.groups(release, 1)
        self._share = self._share[0], share
        return release.values[0], found

    @property
    def seen_share(self) -> float:
        """The share as seen last."""
        return self._share[0]

    def blur(self, value: float, draws: int) -> float:
        """One standard deviation of its coins, some of which are turned over."""
        mass = self.drawing.answering.coin_mass
        bias = mass + (1 - 2 * mass) * self.seen_share * value
        off = sqrt(bias * (1 - bias) / draws) / ((1 - 2 * mass) * self.seen_share)
        return max(LEAST_DEVIATION, off)

    @property
    def share(self) -> Interval:
        """The interval for the share of rows that count."""
        return self._share[1]

    def rough(self, form: QuadraticForm, part: float = ROUGH) -> float:
        """Make one release, over the whole range."""
        query = Quadratic(self.measures, form.moved(self.centers), everywhere=self.sliced)
        if not self.sliced:
            return self.certain(query.form, self.draws)[0]
        (value,) = self.drawing.release(Sliced(query, (0.0, 1.0)), self.count(part)).values
        low, high = query.bounds
        return (low + (high - low) * value) / self._share[0]

    def deviation(self, center: float, part: float) -> float:
        """Make a release for either side: how far values are below the center, and how far above it."""
        query = Quadratic(self.measures, FIRST.moved((center, 0.0)), everywhere=True)
        (low, high), draws = query.bounds, self.count(part)
        middle = -low / (high - low)
        if not 0.0 < middle < 1.0:
            return 0.0
        sides = Sliced(query, (0.0, middle, 1.0))
        below, above = (self.drawing.release(replace(sides, place=place), draws).values[0] for place in (0, 1))
        return (-low * (1 - min(1.0, below)) + high * max(0.0, above)) / self._share[0]

    def certain(self, form: QuadraticForm, draws: int, cuts: Sequence[float] | None = None) -> Found:
        """Make a release for every slice, add them up, and divide by the share of rows that count."""
        query = Quadratic(self.measures, form, everywhere=self.sliced)
        if not self.sliced:
            (estimate,) = self.drawing.estimates(query, self.draws)
            return estimate.guess, (estimate.low, estimate.high)
        low, high = query.bounds
        edges = (0.0, 1.0) if draws < LEAST else edges_of(low, high, cuts)
        widths = [last - first for first, last in pairwise(edges)]
        whole, sliced = sum(width**POWER for width in widths), Sliced(query, edges)
        releases = [
            self.drawing.release(replace(sliced, place=place), 1 + int((draws - len(widths)) * width**POWER / whole))
            for place, width in enumerate(widths)
        ]
        ends = self.drawing.answering.sliced(releases, edges)
        seen = sum(width * release.values[0] for width, release in zip(widths, releases, strict=True))
        value, first, last = (low + (high - low) * end for end in (seen, *ends))
        share, (least, most) = self._share
        first, last = (_among(end, (least, most), sign) for end, sign in ((first, -1), (last, 1)))
        slack = SLACK * max(abs(low), abs(high))
        # Clipped to the range: the coins for the share may contradict the others.
        first, last = (min(high, max(low, end)) for end in (first - slack, last + slack))
        return value / share, (first, last)


def _among(end: float, share: Interval, sign: int) -> float:
    """Turn an end for all rows into one for the rows that count: divided by the end of the share that widens it."""
    divisor = share[0] if end * sign > 0 else share[1]
    return end / divisor if divisor > 0 else sign * inf


def edges_of(low: float, high: float, cuts: Sequence[float] | None = None) -> tuple[float, ...]:
    """Return where the range of a function is cut, rescaled to [0, 1]: near 0, where most values are expected."""
    if cuts is None:
        near = CUTS if low < 0 < high else CUTS_OF_SQUARES
        cuts = [end * cut for end in (low, high) for cut in near]
    inside = sorted({(cut - low) / (high - low) for cut in cuts})
    return (0.0, *(edge for edge in inside if 1e-9 < edge < 1 - 1e-9), 1.0)


# -- the mean of a number, in slices ----------------------------------------------------------------------------------


NONE = "none"  # instead of cuts: nothing is cut
COUNTING = 1 / 4  # draws, in ordinary answers, for the share of rows that count, if some may not
ENOUGH = 4_000  # draws from which on a mean is cut unasked: with fewer, cuts hardly make it narrower


def clipped(bounds: Interval, found: Found) -> Estimate:
    """Return what was found of a value in [0, 1], as that of one within these bounds."""
    value, (first, last) = found
    return Estimate.within(bounds, min(1.0, max(0.0, value)), (max(0.0, first), min(1.0, last)))


def any_group(measure: Composed) -> Composed:
    """Return the mean in any one of the groups: for rows that are imagined, which condition it has does not matter."""
    if isinstance(measure, InGroups):
        return Mean(measure.inner.value, measure.bounds, measure.inner.value)
    return measure


Report = Callable[[Sequence[Estimate], Sequence[Interval]], Result]  # of each part its estimate, its share of the rows


def cut(slices: Sequence[float] | str | None) -> TypeGuard[Sequence[float] | str]:
    """Whether the caller wants the range to be cut."""
    return slices is not None and not (isinstance(slices, str) and slices == NONE)


def worthwhile(context: Context, draws: int) -> bool:
    """Whether a mean of all rows from this many `draws` is cut unasked.

    It is if the first answer of the session was: else the same mean would be another question, charged again, once
    ordinary answers read fewer rows.
    """
    most = max(draws, context.guarantee.rows_at(0))
    return context.mechanism is None and context.answering.covers_slices and draws >= LEAST and most >= ENOUGH


def narrower_cut(context: Context, measure: Share | Mean, draws: int) -> str | None:
    """Return the remark that large groups would be narrower in slices, where they may be."""
    if isinstance(measure, Mean) and worthwhile(context, draws):
        return f"with slices {AUTO}, large groups would be narrower at the same price"
    return None


def in_slices(
    kind: str, context: Context, sliced: Sliced, draws: int, report: Report, *, size: int = 1, text: str | None = None
) -> Question:
    """Return the question about every slice of a number, with as many `draws` in all as it has without slices.

    `sliced` is the mean, that of each group, or the difference of two, and its cuts; without any, they are found out
    first. `report` returns the result, from what was found of all rows or of each group. One unit of the number is
    `size` units of the answer; `text` is the question in words, if not that of `sliced`.
    """
    context.answering.supports_slices()
    if draws < LEAST:
        raise InvalidArgument(
            f"slices need at least {LEAST} rows for one answer, to share among them; this one reads {draws}. Leave"
            " slices out, or give more rows_per_query.",
            name="slices",
        )
    measure = sliced.measure
    parts: tuple[Composed, ...] = measure.each if isinstance(measure, InGroups) else (measure,)
    bounds, counting = times(size, measure.bounds), COUNTING if sliced.edges else 0.0

    def estimate(part: Composed, drawing: Drawing) -> tuple[Estimate, Interval]:
        stages = DrawnStages((part,), draws, sliced=True, counting=counting, drawing=drawing)
        return clipped(bounds, _found(stages, sliced.edges)), stages.share

    def run(drawing: Drawing) -> Result:
        found, shares = zip(*(estimate(part, drawing) for part in parts), strict=True)
        chosen = planned.some_left_out and not sliced.edges  # what was asked depends on the overview
        return report(found, shares) | ({ROWS_READ: drawing.drawn} if chosen else {})

    def foreseen(_: Answered) -> Forecast:
        if sliced.edges:
            return Forecast(remarks=("how wide it will be depends on which slices the values are in",))

        def margin(share: float) -> float:
            part = any_group(measure)
            imagined = Imagined.zeros_and_ones(part, context.certifying(cost), share)
            found, _ = estimate(part, imagined)
            return (found.high - found.low) / (1 if isinstance(measure, Between) else 2)  # a difference has two errors

        remarks = (if_complete(measure),)
        if not planned.some_left_out:
            return Forecast(margin(1.0), remarks=remarks)
        shares = SHOWN_SHARES if measure.incomplete is None else SHOWN_PRESENT
        return Forecast(widths=tuple((share, margin(share)) for share in shares), remarks=remarks)

    planned = PlannedStages(parts[:1], draws, sliced=True, counting=counting)
    _found(planned, sliced.edges)
    one, rows_read, work = planned.price(context)
    cost = Cost(len(parts) * one.charge, len(parts) * one.intervals)
    price = cost, len(parts) * rows_read, len(parts) * work
    return context.question(kind, sliced, draws, run, price=price, forecast=foreseen, text=text)


def _found(stages: PlannedStages | DrawnStages, edges: Sequence[float]) -> Found:
    """Return the mean of the first value, and its interval: rescaled, as the `edges` of its slices are."""
    if not edges:
        return stages.in_group() if stages.some_left_out else _found_in_all(stages)
    center, cuts, left = 0.0, list(edges[1:-1]), stages.draws
    if stages.some_left_out:  # a group takes two answers
        center = min(1.0, max(0.0, stages.rough(FIRST)))
        cuts = [*(cut - center for cut in cuts), 0.0]
        left = 2 * stages.draws - stages.count(COUNTING) - stages.count(ROUGH)
    return _about(center, stages, left, cuts)


def _found_in_all(stages: Stages) -> Found:
    """The same of all rows, where cuts are found out first."""
    seen = stages.overview(PILOT)
    return _about(seen.center, stages, stages.draws - seen.draws, seen.cuts)


def _about(center: float, stages: Stages, draws: int, cuts: Sequence[float]) -> Found:
    """Return the mean from its distance to this center, which is cut."""
    value, (low, high) = stages.certain(FIRST.moved((center, 0.0)), draws, cuts)
    return center + value, (center + low, center + high)
