"""The ladder guarantee, for boards: a submission is told only whether it is better than the best so far, and its cell.

The range of the score is divided into the cells of a fixed grid. A submission whose score falls into a better cell than
all earlier ones is told the cell; any other is told "no improvement". The cells that are told only get better, so a few
numbers describe the whole history, and it costs little width. The number of submissions is not fixed in advance, and
none is ever refused; but an improvement makes later intervals wider, for everybody.

The costs in the ledger keep the count: every submission costs one interval, and an improvement also costs a charge that
says by how many cells. So the ledger's totals say how many submissions there were, how many of them improved, which
cell is the best, and how long a description of the steps up to it is.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, log, log10, sqrt
from typing import NamedTuple

from holdfast import check
from holdfast.cached import cached_property
from holdfast.errors import InvalidArgument, NotCovered
from holdfast.guarantees import GUARANTEES
from holdfast.guarantees.guarantee import AnswerGuarantee, Guarantee, Planning
from holdfast.guarantees.mathematics.checks import failure_nats, full_range, ladder_nats, paired_range, time_share
from holdfast.guarantees.statistic import GRID, Interval
from holdfast.guarantees.terms import (
    ENDLESS,
    NO_CAP,
    ONE_IN,
    RARE,
    Amounts,
    AnsweredAmounts,
    EndlessTerms,
    Goal,
    counts_in,
)

MOST_CELLS = 10**4
COMPARED = 0.1  # part of beta for comparisons with the best; costs 0.1 nats for the other intervals, 2.3 for these
UNITS = 64  # units per nat: the description length of steps up is kept in whole units, rounded up
POPULATION, LABELS, ROWS = "population", "labels", "rows"
ABOUT = {
    POPULATION: "new cases of the population that these were drawn from; nobody who submits has seen them",
    LABELS: "these cases, if their labels were drawn anew; not other cases",
    ROWS: "the score on these rows alone; neither other cases nor other labels",
}


@dataclass(frozen=True, kw_only=True)
class LadderTerms(EndlessTerms):
    """The grid, and what is scored: all of it is fixed before the first submission.

    The grid has `cells` cells, each `step` wide in the metric's own units; the metric's values span `scale`. `id` and
    `target` are columns; `low`, `high`, `clip` and `classes` (a JSON list) are parameters of the metric; `about`, one
    of `ABOUT`, says what intervals are about.
    """

    cells: int
    step: float
    scale: float
    metric: str
    id: str
    target: str | None
    low: float
    high: float
    clip: float
    classes: str
    about: str

    @property
    def population(self) -> str:
        """What intervals are about, as declared."""
        return ABOUT[self.about]


class Apart(NamedTuple):
    """How far the gains of two submissions can differ, whatever the labels are: sums of r_i and of their squares."""

    most: float
    squares: float


class SubmissionsSoFar(NamedTuple):
    """What the submissions so far have revealed: how many there were, how many improved, and the best cell (0: none).

    `units` is the description length of the steps up after the first cell, in units of 1/UNITS nats. `failed` counts
    the submissions that were begun and gave no response, `under_way` those that may still give one.
    """

    submissions: int
    improvements: int
    best: int
    units: int = 0
    failed: int = 0
    under_way: int = 0

    def after(self, cell: int) -> "SubmissionsSoFar":
        """Return what has been revealed after a submission in this cell."""
        if cell <= self.best:
            return self._replace(submissions=self.submissions + 1)
        up = cell - self.best
        more = ceil(UNITS * log(up * (up + 1))) if self.best else 0
        return SubmissionsSoFar(self.submissions + 1, self.improvements + 1, cell, self.units + more, *self[4:])


class Ladder(Guarantee):
    """Any number of submissions; an improvement gets a two-sided interval, any other submission an upper end."""

    terms: LadderTerms
    name = "ladder"
    planning = Planning(("grid",), by_name_only=("grid",), reads_all_rows=True, goes_on=True, takes_unlike_rows=True)
    terms_class = LadderTerms
    only_kind = "submit"

    @classmethod
    def plan(cls, goal: Goal, mechanism: str) -> LadderTerms | None:
        """A board is not planned from a number of questions."""
        raise InvalidArgument(
            "guarantee must be another one: a board is made by holdfast.Board, which knows what is scored and how.",
            name="guarantee",
        )

    @classmethod
    def grid(
        cls, rows: int, *, confidence: float, step: float | None, scale: float, about: str, **scored: object
    ) -> "Ladder":
        """Return the guarantee of a board with so many labeled rows.

        A submission that is better than the best by a `step` is told so for sure. If left out, it is half the range of
        the metric (`scale`) over the square root of `rows`, rounded up to a round number. `scored` are the other terms:
        what is scored, and how.
        """
        check.probability(confidence=confidence)
        check.one_of("about", about, tuple(ABOUT))
        if step is None:
            step = _round_number(scale * 0.5 / sqrt(rows))
        check.positive(step=step)
        check.at_most("half the range of the metric", scale / 2, step=step)
        cells = ceil(_exact(scale) / _exact(step))
        check.at_most("the most a board handles", MOST_CELLS, **{"the number of steps": cells})
        sizes = {"rows": rows, "queries": ENDLESS, "flips": 0, "rows_per_query": rows, "ends": False}
        sizes |= {"identical": about == POPULATION}
        own = sizes | {"charge": NO_CAP, "cells": cells, "step": step, "scale": scale, "about": about}
        (mechanism,) = cls.planning.mechanisms
        terms = LadderTerms(confidence=confidence, margin=1.0, mechanism=mechanism, **own, **scored)  # type: ignore[arg-type]
        return cls(replace(terms, margin=min(1.0, cls(terms).width(SubmissionsSoFar(0, 0, 0)))))

    # -- what may be asked ------------------------------------------------------------------------------------------

    def answering(self) -> AnswerGuarantee:
        """Only submissions."""
        raise NotCovered(
            "This is a board: it says whether a submission is better than the best so far, with an interval, and"
            " nothing else. Ask with the kind submit, or ask a session on other rows.",
            guarantee=self.name,
        )

    @cached_property
    def _sizes(self) -> tuple[int, int]:
        """Of the best cell and of the units in a charge; above them, improvements (`counts_in`)."""
        cells = self.terms.cells
        return cells + 1, 2 * UNITS * cells + 1  # steps up take at most two nats per cell

    def so_far(self, answered: AnsweredAmounts) -> SubmissionsSoFar:
        """Read what was revealed off what the entries of a ledger cost in all (`answered`)."""
        best, units, improvements = counts_in(answered.charge, *self._sizes)
        return SubmissionsSoFar(answered.intervals, improvements, best, units, answered.failed, answered.under_way)

    def charge_of(self, before: SubmissionsSoFar, after: SubmissionsSoFar) -> int:
        """Return the charge of a submission between these two states: nothing, unless it improved."""
        cells, units = self._sizes
        improved = units * (after.improvements - before.improvements)
        return cells * (improved + after.units - before.units) + after.best - before.best

    @property
    def most_charge(self) -> int:
        """The most that one submission costs: a step from the first cell to the last."""
        return self.charge_of(SubmissionsSoFar(1, 1, 1), SubmissionsSoFar(1, 1, 1).after(self.terms.cells)) + 1

    # -- what may be believed ---------------------------------------------------------------------------------------

    @cached_property
    def eta(self) -> Fraction:
        """The width of a cell, in [0, 1], exactly."""
        return _exact(self.terms.step) / _exact(self.terms.scale)

    def cell(self, cell: int) -> Interval:
        """Return the ends of a cell, in [0, 1]."""
        first, last = (min(Fraction(1), edge * self.eta) for edge in (cell - 1, cell))
        return float(first), float(last)

    def known_range(self, cell: int, so_far: SubmissionsSoFar) -> Interval:
        """Return the range of the score on the rows that is revealed: its cell, or all up to the best cell's end."""
        return self.cell(cell) if cell > so_far.best else (0.0, self.cell(so_far.best)[1])

    def certify(self, cell: int, so_far: SubmissionsSoFar) -> Interval:
        """Return the interval of a submission in this cell, in [0, 1]; the cell is used only as far as it is revealed.

        `so_far` is what the submissions committed before it have revealed.
        """
        first, last = self.known_range(cell, so_far)
        if self.terms.about == ROWS:
            return first, last  # exact, for the score as it is added up in whole units
        # More than all rounding: of the scores of rows, then of units, and of the ends to floating-point numbers.
        slack = 2.0 ** (1 - GRID)
        known_range = max(0.0, first - slack), min(1.0, last + slack)
        level = (1 - COMPARED if self.compares else 1.0) * self._level(so_far)
        return full_range(known_range, n=self.terms.rows, level=level, nats=self._nats(so_far))

    @property
    def compares(self) -> bool:
        """Whether improvements are compared with the best row by row: predictions must not depend on the labels."""
        return self.terms.about != POPULATION and self.terms.target is not None

    def ahead(self, known_range: Interval, so_far: SubmissionsSoFar, apart: Apart) -> Interval:
        """Return how far an improvement is ahead of an earlier best, in [-1, 1].

        The two cells reveal the `known_range` of the mean difference of their gains on the rows; `so_far` as for
        `certify`.
        """
        slack = 2.0 ** (2 - GRID)  # both were rounded
        first, last = known_range[0] - slack, known_range[1] + slack
        if self.terms.about == ROWS:
            return first, last
        level = COMPARED * self._level(so_far)
        nats, (most, squares) = self._nats(so_far), apart
        return paired_range((first, last), n=self.terms.rows, most=most, squares=squares, level=level, nats=nats)

    def _level(self, so_far: SubmissionsSoFar) -> float:
        return (1 - self.terms.confidence) * time_share(so_far.submissions + 1)

    def _nats(self, so_far: SubmissionsSoFar) -> float:
        begun = so_far.submissions + so_far.failed + so_far.under_way + 1
        responses = ladder_nats(so_far.submissions + 1, so_far.improvements, self.terms.cells, so_far.units / UNITS)
        return responses + failure_nats(begun, so_far.failed)

    def width(self, so_far: SubmissionsSoFar) -> float:
        """Return how far an interval reaches beyond a cell in the middle, as a share of the range."""
        middle = max(1, self.terms.cells // 2)
        return max(0.0, self.certify(middle, so_far._replace(best=0))[1] - self.cell(middle)[1])

    def outlook(self, spent: Amounts, answered: AnsweredAmounts) -> tuple[tuple[int, float], ...]:
        """Return how wide the next interval is now, and after more improvements of one cell each, one in `ONE_IN`.

        Improvements end at the last cell, and few gaps between them reveal less: the widest so far is shown.
        """
        now, widest = self.so_far(answered), 0.0
        later = []
        for more in RARE:
            then = now
            for _ in range(more):
                then = then.after(min(self.terms.cells, then.best + 1))
            then = then._replace(submissions=now.submissions + ONE_IN * more)
            widest = max(widest, self.terms.scale * self.width(then))
            later.append((more, widest))
        return tuple(later)

    @property
    def sentence(self) -> str:
        """The promise in one sentence."""
        terms = self.terms
        certain = f"With probability {100 * terms.confidence:g}% all intervals hold at once."
        if terms.about == ROWS:
            certain = "All that responses say is exact."
        return (
            f"{terms.rows:,} sealed rows score any number of submissions, each made after the earlier responses. A"
            f" response says whether the submission is better than the best so far, on a grid of {terms.step:g}."
            f" {certain} Intervals are about {ABOUT[terms.about]}."
        )


def _exact(x: float) -> Fraction:
    """Return exactly the decimal number that was written: a step of 0.005 is 1/200."""
    return Fraction(repr(float(x)))


def _round_number(x: float) -> float:
    """Return the smallest 1, 2 or 5 times a power of ten that is at least x."""
    power = ceil(log10(x))
    return next(
        value for value in (float(f"{digit}e{power + shift}") for shift in (-1, 0) for digit in (1, 2, 5)) if value >= x
    )


GUARANTEES.register(Ladder.name, Ladder)
