"""Questions whose steps depend on what the steps before them showed, as any question may: stages, and looks.

Stages are means of quadratic functions of a row, asked one after the other; moments and pairs are computed from them. A
*rough* stage has few draws and no interval: it says where to look. A *certain* one has an interval for the population.
If the guarantee covers slices, the range of its function is cut near 0, where most values are expected, and each slice
has draws of its own; otherwise a stage is an ordinary mean, and a rough one is certain too.

The mean of a number is asked in slices, too: a coin for a number between wide bounds says little, as if the number were
always at one end or the other, and slices that values hardly ever reach are known nearly exactly
(docs/proofs/moments.md). The cuts are the caller's or, by default, found out first with a sixteenth of the draws: the
center of the values, and how far from there they are on average. An answer that would not gain by it, since values are
mostly at the ends of the range, is not cut, and only those draws are lost. All of it costs what one answer does. If
some rows may not count, they are put at the center, where a slice ends, so that they add no uncertainty. Groups are
asked one after the other, each with draws of its own: that costs what one pass over all of them does.

Looks at one question go on until its margin is small enough: each draws as many rows as all before it. A look has its
own place in the ledger and its own price, and its interval also uses the draws of the looks before it. All looks at one
question share the level of one statement, that of the first look: whether there is a next one depends on what was seen,
so looks that were not taken count as well (docs/proofs/endless.md). The total number of draws up to each look is fixed,
so a later question with a smaller margin continues where others stopped, and the looks they took are free.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, inf, log2
from typing import TypeGuard

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.guarantees.guarantee import AnswerGuarantee
from holdfast.guarantees.mathematics.moments import QuadraticForm, central
from holdfast.guarantees.mathematics.shares import look_share
from holdfast.guarantees.statistic import GroupMean, Tally
from holdfast.ledger import Answered, Cost
from holdfast.queries.build import AUTO
from holdfast.queries.groups import Between, InGroups
from holdfast.queries.measures import Mean, Quadratic, Share, Sliced
from holdfast.queries.query import Composed, Query
from holdfast.questions.estimate import Estimate, Interval, times
from holdfast.questions.imagined import Imagined
from holdfast.questions.question import (
    RELEASE_WORK,
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
PILOT_LEAST = 8  # coins of the former that must have come up either way; fewer say too little
APART = 2.5  # values are cut at their center, and this many mean deviations on either side of it
SPREAD_OUT = 0.6  # of the largest mean deviation with this center, that of zeros and ones: beyond, cuts do not help
LEAST_DEVIATION = 1 / 500  # of the range: what few draws show is no finer
CUTS = (0.01, 0.1)  # where the range of a function is cut, on both sides of 0
CUTS_OF_SQUARES = (0.04, 0.2)  # the same if the range is on one side of 0 only
POWER = 0.75  # draws of a slice grow with its width, less than in proportion: wide ones are nearly always empty
LEAST = 64  # draws below which nothing is cut: slices would have too few each to be narrower together
SLACK = 2.0**-48  # more than the rounding errors of a form, of its range, and of what is computed from its mean
FIRST, SECOND = QuadraticForm(x=1.0), QuadraticForm(y=1.0)


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

    def look(self) -> tuple[float, list[float]]:
        """Find out where the first value lies: its center, and where to cut its distance from there, if anywhere."""
        center = min(1.0, max(0.0, self.rough(FIRST, PILOT)))
        deviation = max(LEAST_DEVIATION, self.deviation(center, PILOT / 2))
        seen = self.count(PILOT) * min(center, 1 - center)
        if seen < PILOT_LEAST or deviation > SPREAD_OUT * 2 * center * (1 - center):
            return center, []
        return center, [-APART * deviation, 0.0, APART * deviation]

    @property
    def draws_of_look(self) -> int:
        """How many draws `look` takes."""
        return self.count(PILOT) + 2 * self.count(PILOT / 2)

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

    def price(self, context: Context) -> tuple[Cost, int, int]:
        """Return what all stages cost, the rows they read, and the work they take."""
        if not self.sliced:
            plain = Quadratic(self.measures, FIRST)
            return context.price_all([(plain, self.draws)] * len(self.releases))
        counting = self.count(self.counting) if self.some_left_out else 0
        one = Sliced(Quadratic(self.measures, FIRST), (0.0, 1.0))
        cost, rows = context.price(one, counting + sum(draws for _, draws in self.releases))
        statements = sum(certain for certain, _ in self.releases) + self.some_left_out
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
        if self.sliced and self.some_left_out:
            counting = Sliced(Quadratic(self.measures, FIRST), (0.0, 1.0), -1)
            (found,) = self.drawing.estimates(counting, self.count(self.counting))
            self._share = max(found.guess, 1e-9), (found.low, found.high)

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


# -- looks ------------------------------------------------------------------------------------------------------------


FIRST_LOOK = 1_000  # draws
OF_GROUPS = 16  # at most this many ordinary answers' worth of draws: how many a group takes depends on its size


def look_until(kind: str, context: Context, query: Query, until: float) -> Question:
    """Return the first look at the query; each answer says what the next one is, until the margin is reached."""
    check.positive(until=until)
    if query.identity is None:
        raise InvalidArgument(
            "until must be left out for a function, which nobody can recognize: a look is found again by its text. Ask"
            " with SQL or a Polars expression, or use margin.",
            name="until",
        )
    if context.mechanism is not None:
        raise InvalidArgument("until must be left out with a mechanism: looks are made of coins.", name="until")
    context.guarantee.require_flexible()
    if isinstance(query.statistic, GroupMean):
        most = OF_GROUPS * context.rows_per_query
    else:
        most = 2 * context.draws(query, None, until)  # for a share of one half; refuses what no number of draws reaches
    return _look(kind, context, query, float(until), most)


def _look(
    kind: str,
    context: Context,
    query: Query,
    until: float,
    most: int,
    number: int = 1,
    before: tuple[int, ...] = (),
    level: float | None = None,
) -> Question:
    """Return look `number`; `before` are the counts of all looks before it, `level` is the level that they share."""
    total = FIRST_LOOK * 2 ** (number - 1)
    draws = total if number == 1 else total // 2
    cost, rows_read = context.price(query, draws)
    if number > 1:
        cost = Cost(cost.charge, 0)  # the first look paid for the statement

    def run(drawing: Drawing) -> Result:
        release = drawing.release(query, draws)
        pooled = _pooled(query, release, before, drawing.answering)
        shared = drawing.answering.level if level is None else level
        (estimate,) = drawing.at_level(shared * look_share(number)).certify(query, pooled)
        return estimate.to_result(query.bounds) | {"counts": list(pooled.counts), "level": shared}

    def after(result: Result, later: Context) -> Question | None:
        value = result["value"]  # None: too few rows of a group to tell
        reached = value is not None and max(result["high"] - value, value - result["low"]) <= until
        if reached or total >= most:
            return None
        return _look(kind, later, query, until, most, number + 1, tuple(result["counts"]), result["level"])

    looks = 1 + max(0, ceil(log2(most / FIRST_LOOK)))
    return Question(
        kind,
        f"{query.text}, look {number} at {total:,} draws",
        encode({"look": number, "query": query.identity}),
        cost,
        rows_read,
        run,
        work=RELEASE_WORK + rows_read * query.work,
        forecast=lambda _: Forecast(remarks=(f"look {number} of at most {looks}, each with twice the draws",)),
        whole=query.speaks_of_units,
        after=after,
    )


def _pooled(query: Query, release: object, before: tuple[int, ...], guarantee: AnswerGuarantee) -> Tally:
    """Return the tally of all looks so far."""
    if not isinstance(release, Tally):
        raise guarantee.cannot_certify("several looks at one question")
    counts = tuple(map(sum, zip(release.counts, before, strict=True))) if before else release.counts
    draws = release.draws + sum(before)
    values = query.statistic.from_counts(counts, draws, mass=guarantee.coin_mass)
    return Tally(values, draws, counts, release.reported)


# -- the mean of a number, in slices ----------------------------------------------------------------------------------


NONE = "none"  # instead of cuts: nothing is cut
COUNTING = 1 / 4  # draws, in ordinary answers, for the share of rows that count, if some may not
ENOUGH = 4_000  # draws from which on a mean is cut unasked: with fewer, cuts hardly make it narrower

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
    bounds = times(size, measure.bounds)

    def estimate(part: Composed, drawing: Drawing) -> tuple[Estimate, Interval]:
        stages = DrawnStages((part,), draws, sliced=True, counting=COUNTING, drawing=drawing)
        value, (first, last) = _found(stages, sliced.edges)
        found = Estimate.within(bounds, min(1.0, max(0.0, value)), (max(0.0, first), min(1.0, last)))
        return found, stages.share

    def run(drawing: Drawing) -> Result:
        found, shares = zip(*(estimate(part, drawing) for part in parts), strict=True)
        return report(found, shares)

    def foreseen(_: Answered) -> Forecast:
        if sliced.edges:
            return Forecast(remarks=("how wide it will be depends on which slices the values are in",))

        def margin(share: float) -> float:
            part = measure
            if isinstance(measure, InGroups):  # which condition a group has does not matter
                part = Mean(measure.inner.value, measure.bounds, measure.inner.value)
            imagined = Imagined.zeros_and_ones(part, context.certifying(cost), share)
            found, _ = estimate(part, imagined)
            return (found.high - found.low) / (1 if isinstance(measure, Between) else 2)  # a difference has two errors

        remarks = (if_complete(measure),)
        if not planned.some_left_out:
            return Forecast(margin(1.0), remarks=remarks)
        shares = SHOWN_SHARES if measure.incomplete is None else SHOWN_PRESENT
        return Forecast(widths=tuple((share, margin(share)) for share in shares), remarks=remarks)

    planned = PlannedStages(parts[:1], draws, sliced=True, counting=COUNTING)
    _found(planned, sliced.edges)
    one, rows_read, work = planned.price(context)
    cost = Cost(len(parts) * one.charge, len(parts) * one.intervals)
    price = cost, len(parts) * rows_read, len(parts) * work
    return context.question(kind, sliced, draws, run, price=price, forecast=foreseen, text=text)


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
