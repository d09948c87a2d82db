"""The checks guarantee: rows set aside for checks say whether a guess holds, and nothing else.

A check releases one cell: the guess holds, is too low, is too high, or is about too few rows. An analyst knows the
cells released so far. There are few strings of cells in which nearly all guesses held, so such a string costs little
width. The number of checks is not fixed in advance, and no check is ever refused; but a wrong guess makes later
intervals wider, for everybody.

The costs in the ledger keep the count: every check costs one interval, and a guess that did not hold also costs a
charge. So the ledger's totals say how many checks there were, and how many guesses were wrong. A check that was begun
and gave no response has failed; whether it fails may depend on the rows, so failures are counted like wrong guesses.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf, log, nextafter
from typing import NamedTuple

from holdfast.errors import NotCovered
from holdfast.guarantees import GUARANTEES
from holdfast.guarantees.guarantee import EVERYTHING, AnswerGuarantee, Guarantee, Planning
from holdfast.guarantees.mathematics.checks import (
    failure_nats,
    full_range,
    guess_nats,
    sampled_range,
    time_share,
    two_groups_length,
)
from holdfast.guarantees.plan import write_margin
from holdfast.guarantees.statistic import HOLDS, TOO_HIGH, TOO_LOW, Cell, Interval
from holdfast.guarantees.terms import (
    DRAWN_ROW,
    ENDLESS,
    ONE_IN,
    RARE,
    SCANNED_ROW,
    Amounts,
    AnsweredAmounts,
    EndlessTerms,
    Goal,
    Reading,
    counts_in,
)

_GROUP = 2**31  # wrong guesses stay below; above, those that could have been wrong in three ways (`counts_in`)
CODED = 0.1  # part of beta1 for questions paid for by their code length; it costs all others 0.1 nats
_SAMPLED = 0.2  # part of beta for the sampling error; costs 0.2 nats if a check reads all rows, 1.6 if not
_ROUNDING = 2.0**-52


@dataclass(frozen=True, kw_only=True)
class CheckTerms(EndlessTerms):
    """`beta1` is for the step from rows to population; `beta2` for the sampling error if not all rows are read."""

    beta1: float
    beta2: float


class ChecksSoFar(NamedTuple):
    """What the checks so far have revealed: how many there were, and how many guesses did not hold.

    `groups` counts the wrong guesses that could have been wrong in three ways; the third is "too few rows". `failed`
    counts the checks that were begun and gave no response, `under_way` those that may still give one.
    """

    checks: int
    wrong: int
    groups: int
    failed: int = 0
    under_way: int = 0

    @property
    def nats(self) -> float:
        """The description length of the responses so far, and of what failed."""
        cells = (self.wrong - self.groups) * log(2) + self.groups * log(3)
        begun = self.checks + self.failed + self.under_way + 1
        return guess_nats(self.checks + 1, self.wrong, cells) + failure_nats(begun, self.failed)


class Checks(Guarantee):
    """Any number of checks, each with an interval whatever the response is."""

    terms: CheckTerms
    name = "checks"
    planning = Planning(("cells",), by_name_only=("cells",), reads_all_rows=True, goes_on=True)
    terms_class = CheckTerms
    only_kind = "check"

    @classmethod
    def plan(cls, goal: Goal, mechanism: str) -> CheckTerms | None:
        """Return terms for these rows; there is nothing to choose."""
        if goal.flips:
            return None
        beta1, each = goal.beta * (1 - _SAMPLED), goal.rows_per_query or goal.rows
        caps = {"queries": ENDLESS, "charge": ENDLESS * _GROUP}
        own = caps | {"rows_per_query": each, "beta1": beta1, "beta2": goal.beta - beta1}
        terms = goal.met_by(CheckTerms, mechanism, margin=1.0, **own)
        return replace(terms, margin=min(1.0, cls(terms).width(ChecksSoFar(0, 0, 0))))

    @classmethod
    def readings(cls, goal: Goal, most: int | None) -> Iterator[Reading]:
        """As checks of guesses, all of which held so far, where half of the rows are held back."""
        held = max(1, goal.rows // 2)
        each = min(held, most or held)
        terms = cls.plan(replace(goal, rows=held, rows_per_query=each, identical=True), *cls.planning.mechanisms)
        if terms is not None:
            width = cls(terms).width(ChecksSoFar(goal.queries - 1, 0, 0))
            note = "with half of the rows held back, beyond the margin of a guess that holds"
            yield Reading.of("checks", each, width, note, row=SCANNED_ROW if each == held else DRAWN_ROW)

    # -- what may be asked ------------------------------------------------------------------------------------------

    def answering(self) -> AnswerGuarantee:
        """Only checks."""
        raise NotCovered(
            "This session checks guesses: it says whether one holds, and gives an interval, but no values. Ask with"
            " the kind check, or ask a session on other rows.",
            guarantee=self.name,
        )

    @property
    def checks(self) -> "Checks":
        """Itself."""
        return self

    @staticmethod
    def cost(*, wrong: bool, group: bool) -> tuple[int, int]:
        """Return charge and intervals of a check; a guess at a group may be wrong in one more way: too few rows."""
        return (1 + _GROUP if group else 1) if wrong else 0, 1

    def so_far(self, answered: AnsweredAmounts) -> ChecksSoFar:
        """Return what the checks that were `answered`, and those that were not, have revealed."""
        wrong, groups = counts_in(answered.charge, _GROUP)
        return ChecksSoFar(answered.intervals, wrong, groups, answered.failed, answered.under_way)

    # -- what may be believed ---------------------------------------------------------------------------------------

    def certify(
        self,
        cell: Cell,
        holds: Interval,
        so_far: ChecksSoFar,
        number: int,
        *,
        code: float = inf,
        two_groups: bool = False,
    ) -> Interval:
        """Return where the population's value lies, in [0, 1], from the released cell and that of a guess that `holds`.

        `so_far` is what the checks committed before this one have revealed; `number` is that of the check's place in
        the ledger, which checks that were drawn but never committed have, too. `code` is the length of the question,
        in nats, in a code that was fixed in advance. A difference of `two_groups` strays further if rows are not
        identical.
        """
        cells = {HOLDS: holds, TOO_LOW: (holds[1], 1.0), TOO_HIGH: (0.0, holds[0])}
        if cell.outcome not in cells:
            return EVERYTHING
        slack = _ROUNDING * self.terms.rows  # a mean of values in [0, 1] is no further from the exact one
        first, last = cells[cell.outcome]
        low, high = max(0.0, nextafter(first, -inf) - slack), min(1.0, nextafter(last, inf) + slack)
        level = (1 - CODED) * self.terms.beta1 * time_share(so_far.checks + 1)
        if cell.draws >= cell.rows:
            ways = ((level, so_far.nats), (CODED * self.terms.beta1, code))
            chosen, nats = min(ways, key=lambda way: way[1] - log(way[0]))
            if two_groups and not self.terms.identical:
                length = log(2 / chosen) + nats
                nats += two_groups_length(length) - length
            return full_range((low, high), n=cell.rows, level=chosen, nats=nats)
        sample_level = self.terms.beta2 * time_share(number)
        return sampled_range(
            (low, high), n=cell.rows, draws=cell.draws, level=level, sample_level=sample_level, nats=so_far.nats
        )

    def width(self, so_far: ChecksSoFar) -> float:
        """Return how far beyond the margin of a guess that holds the population can be, for a share of 1/2."""
        rows, draws = self.terms.rows, self.terms.rows_per_query
        cell = Cell((), min(draws, rows), rows, HOLDS)
        return self.certify(cell, (0.5, 0.5), so_far, so_far.checks + 1)[1] - 0.5

    def outlook(self, spent: Amounts, answered: AnsweredAmounts) -> tuple[tuple[int, float], ...]:
        """Return how wide the next check is now, and at most after more wrong guesses, one in `ONE_IN` checks."""
        now = self.so_far(answered)
        later = [(more, now._replace(checks=now.checks + ONE_IN * more, wrong=now.wrong + more)) for more in RARE]
        return tuple((more, self.width(then)) for more, then in later)

    @property
    def sentence(self) -> str:
        """The promise in one sentence."""
        terms, width = self.terms, write_margin(self.terms.margin)
        return (
            f"{terms.rows:,} rows that nobody has seen check any number of guesses, each chosen after the earlier"
            f" responses: a guess that holds is within its own margin and {width} of the population, more"
            f" after wrong guesses; all at once, with probability {100 * terms.confidence:g}%."
        )


GUARANTEES.register(Checks.name, Checks)
