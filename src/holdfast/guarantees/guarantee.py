"""What a guarantee is: terms fixed in advance, and the intervals they allow.

A guarantee is an object made from typed terms. The terms are planned from a goal, recorded in a ledger's first entry
under the guarantee's name and version, and read back from there; terms that are not understood are refused.

    plan(goal, mechanism)      the best terms for a number of rows and questions, or None
    readings(goal, most)       other ways to ask the same questions, which a plan compares
    at(charge, before, ...)    the same guarantee at a question's place, on which intervals may depend
    answering()                the same guarantee, if it answers questions with values; then it also has:

    supports(statistic)        refuses, in words, what it cannot certify
    charge(statistic, draws)   what one release takes of the terms' capacity, in the guarantee's own units
    share(release, part)       the interval for a share or mean, in [0, 1]
    group(release, part)       the interval for the mean of a group, in [0, 1]
    difference(release)        the intervals for two groups and for their difference
    margin(draws)              the most by which such a share differs from the population's
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import ClassVar, Self

from holdfast import check
from holdfast.errors import InvalidArgument, NotCovered
from holdfast.guarantees.mathematics import descent, privacy
from holdfast.guarantees.mathematics.concentration import hoeffding_radius
from holdfast.guarantees.mathematics.search import fewest
from holdfast.guarantees.mathematics.shares import clip, ratio_range
from holdfast.guarantees.statistic import Interval, NoisyMeans, OfGroup, Release, SingleFlips, Statistic, Tally
from holdfast.guarantees.terms import JSON, NO_CAP, NOTHING, Amounts, AnsweredAmounts, Fits, Goal, Reading, Terms

MOST_DRAWS = 10**15  # of one answer: more would not make it better
MOST_AT_ONCE = 1_000  # outcomes of one draw
EVERYTHING: Interval = (0.0, 1.0)  # the interval that promises nothing


@dataclass(frozen=True)
class Planning:
    """What a planner knows about a guarantee before there are terms.

    Parameters
    ----------
    mechanisms
        Those that it can be planned with.
    by_name_only
        Those of them that a plan shows and chooses only if the guarantee is asked for by name.
    preferred
        The one to take if the guarantee is asked for by name and the mechanism is left open, unless flips are planned;
        None: whichever has the smaller margin.
    adaptive
        Whether questions may depend on answers; "best" chooses only such guarantees.
    reads_all_rows
        Whether every answer does; "best" chooses such a guarantee only if its mechanism is asked for.
    goes_on
        Whether it answers questions beyond a plan, or without one, with wider margins.
    takes_unlike_rows
        Whether it also holds for rows that are independent but not identically distributed.
    """

    mechanisms: tuple[str, ...]
    by_name_only: tuple[str, ...] = ()
    preferred: str | None = None
    adaptive: bool = True
    reads_all_rows: bool = False
    goes_on: bool = False
    takes_unlike_rows: bool = False


class Guarantee(ABC):
    """A promise about the population, whose `terms` are fixed before the first question.

    What every guarantee has; those that answer questions with values are subclasses of `AnswerGuarantee`.

    Parameters
    ----------
    terms
        What a ledger records of it.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    planning: ClassVar[Planning]
    terms_class: ClassVar[type[Terms]]
    only_kind: ClassVar[str | None] = None  # the only kind of question that it takes; None: all that ask for values
    in_order: ClassVar[bool] = False  # whether releases must come in the order of their charges (fresh rows)
    terms: Terms

    def __init__(self, terms: Terms) -> None:
        self.terms = terms

    # -- planning -----------------------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def plan(cls, goal: Goal, mechanism: str) -> Terms | None:
        """Return the best terms for a goal; None where the guarantee does not apply.

        Parameters
        ----------
        goal
            How many rows and questions there are, and with what confidence.
        mechanism
            The name of the mechanism that answers.
        """

    @classmethod
    def readings(cls, goal: Goal, most: int | None) -> Iterable[Reading]:
        """Yield other ways to ask the same questions; usually none.

        Parameters
        ----------
        goal
            As for `plan`.
        most
            The most rows that an answer may read; None: no limit.
        """
        return ()

    # -- a question's place --------------------------------------------------------------------------------------

    def at(self, charge: int, before: int, statements: int = 1) -> Self:
        """Return this guarantee as it certifies one question; the same everywhere unless the session goes on.

        Parameters
        ----------
        charge
            The total charge of all questions begun so far, answered or not, this one included.
        before, statements
            How many statements were made before the question, and how many it makes itself; one that makes none belongs
            to the next.
        """
        return self

    def rows_at(self, intervals: int) -> int:
        """Return how many rows an ordinary answer reads.

        Parameters
        ----------
        intervals
            How many intervals were stated before.
        """
        return self.terms.rows_per_query

    # -- what may be asked --------------------------------------------------------------------------------------

    @abstractmethod
    def answering(self) -> "AnswerGuarantee":
        """Return this guarantee if it answers questions with values; refuse, in words, if it does not."""

    def require_room(self, taken: Callable[[], tuple[int, int]], charge: int, intervals: int) -> None:
        """Refuse a question that the ledger's amounts have no room to count; most guarantees have no such limit.

        Parameters
        ----------
        taken
            Returns the charge and the intervals that all processes have taken so far, including places taken ahead.
        charge, intervals
            What the question takes.
        """
        return

    @property
    def flexible(self) -> bool:
        """Whether one answer may read more or fewer rows than planned."""
        return False

    def require_flexible(self) -> None:
        """Refuse to make one answer wider or narrower if all must read the same number of rows."""
        if not self.flexible:
            raise InvalidArgument(
                f"Under the {self.name} guarantee with {self.terms.mechanism} every answer reads the same number of"
                " rows. Leave rows_per_query and margin out, or plan with coins."
            )

    # -- what is promised -----------------------------------------------------------------------------------------

    def margin_after(self, more: int, spent: Amounts = NOTHING) -> float:
        """Return the margin of an ordinary answer after some others.

        Parameters
        ----------
        more
            How many other answers come before it.
        spent
            What all questions before those took.
        """
        return self.terms.margin

    def outlook(self, spent: Amounts, answered: AnsweredAmounts) -> tuple[tuple[int, float], ...]:
        """Return pairs of a number of further answers (checks: wrong guesses) and the margin then; () if answers end.

        Parameters
        ----------
        spent
            What all questions begun have taken.
        answered
            What those took that were answered.
        """
        return ()

    @property
    def sentence(self) -> str | None:
        """The promise in one sentence, if it is not the usual sentence of a plan."""
        return None

    def by(self, mechanism: str) -> "Guarantee":
        """Return the same promise for one answer by another mechanism.

        Parameters
        ----------
        mechanism
            The name of another mechanism; one that is not covered is refused.
        """
        if mechanism == self.terms.mechanism:
            return self
        raise NotCovered(
            f"This session runs under the {self.name} guarantee with {self.terms.mechanism}, which does not cover"
            f" single answers by {mechanism!r}; leave mechanism out. Sessions under the exchange guarantee take both"
            " coins and gaussian.",
            guarantee=self.name,
        )

    @property
    def checks(self) -> "Guarantee | None":
        """The guarantee that checks guesses, on rows that answer nothing else; None if there are no such rows."""
        return None

    @property
    def fits(self) -> Fits:
        """What is promised about fits of models; nothing, unless a guarantee has a theorem about them."""
        return Fits()

    # -- what mechanisms read -------------------------------------------------------------------------------------

    @property
    def coin_mass(self) -> float:
        """The extra mass of every outcome of a draw (coins)."""
        raise self.cannot_certify("coins")

    def epsilon_for(self, draws: int) -> float:
        """Return the epsilon, on all rows, of one noisy answer (Laplace).

        Parameters
        ----------
        draws
            How many rows the answer draws.
        """
        raise self.cannot_certify("noisy answers")

    # -- how terms are stored -----------------------------------------------------------------------------------

    def to_json(self) -> dict[str, JSON]:
        """Return what a ledger's first entry records."""
        charge, intervals = (self.terms.charge, self.terms.statements) if self.terms.ends else (NO_CAP, NO_CAP)
        caps: dict[str, JSON] = {"charge": charge, "intervals": intervals}
        return {"guarantee": self.name, "version": self.version, **self.terms.to_json(), "caps": caps}

    def cannot_certify(self, what: str) -> NotCovered:
        """Return the error for something that this guarantee says nothing about.

        Parameters
        ----------
        what
            What was asked, in words.
        """
        return NotCovered(
            f"This session runs under the {self.name} guarantee with {self.terms.mechanism}, which says nothing about"
            f" {what}.",
            guarantee=self.name,
        )


class AnswerGuarantee(Guarantee):
    """A guarantee that answers questions with values, each with its interval.

    To add one, write a subclass: how it is planned, what it supports, what it charges, and the intervals it allows.
    """

    gives_intervals: ClassVar[bool] = True  # if not, values stand alone
    covers_slices: ClassVar[bool] = False  # whether it certifies means that are asked in slices
    level: float  # of every exact binomial interval, where there are coins

    def answering(self) -> Self:
        """Itself."""
        return self

    def at_level(self, level: float) -> Self:
        """Return this guarantee at the same place, for coins whose exact intervals have another `level` (looks)."""
        other = copy(self)
        other.level = level
        return other

    def supports(self, statistic: Statistic) -> None:
        """Refuse, in words, a statistic that these terms cannot certify; by default single flips."""
        self.refuse_flips(statistic)

    @abstractmethod
    def charge(self, statistic: Statistic, draws: int) -> int:
        """Return what one release of the `statistic` from this many `draws` takes of `terms.charge`."""

    # -- what may be believed -----------------------------------------------------------------------------------

    @abstractmethod
    def share(self, release: Release, part: int) -> Interval:
        """Return the interval for share (or mean) number `part` of the `release`, in [0, 1]."""

    def shares(self, release: Release, count: int) -> list[Interval]:
        """Return the intervals of the first `count` shares of the `release`."""
        return [self.share(release, part) for part in range(count)]

    def shares_within(self, release: Release, count: int) -> list[Interval]:
        """Return the intervals of `count` shares within a group; share number 0 of the `release` is that outside it."""
        low, high = self.share(release, 0)
        inside = (1 - high, 1 - low)
        return [ratio(self.share(release, part), inside) for part in range(1, count + 1)]

    def ordered(self, release: Release, cells: int) -> tuple[list[Interval], list[Interval]]:
        """Return, for two groups with `cells` ordered cells each, the share of each group from cell 2, 3, ... upward.

        Shares number 0 to cells-1 of the `release` belong to the first group, the next `cells` to the second.
        """
        ends = [self.share(release, part) for part in range(2 * cells)]
        found = []
        for group in (ends[:cells], ends[cells:]):
            found.append([ratio_range(_sum(group[cut:]), _sum(group[:cut])) for cut in range(1, cells)])
        return found[0], found[1]

    def group(self, release: Release, part: int = 0) -> Interval:
        """Return the interval for the mean of group number `part` of the `release`, in [0, 1]."""
        raise self.cannot_certify("groups")

    def member(self, release: Release, part: int) -> Interval:
        """Return the interval for the share of rows in group number `part` of the `release`; `group` states it, too."""
        return self.share(release, 2 * part)

    def groups(self, release: Release, count: int) -> list[tuple[Interval, Interval]]:
        """Return the intervals for the mean and the share of each of the first `count` groups of the `release`."""
        return [(self.group(release, part), self.member(release, part)) for part in range(count)]

    def groups_of_all(self, releases: Sequence[tuple[Release, int]]) -> list[tuple[Interval, Interval]]:
        """Return the same for several `releases` of equally many draws, each given with its number of groups."""
        return [found for release, count in releases for found in self.groups(release, count)]

    difference_passes = 1  # in how many passes the difference of two groups is narrowest

    def difference(self, *releases: Release) -> tuple[Interval, Interval, Interval]:
        """Return the intervals of two groups, of one release or of one each, and of the first mean less the second.

        The last is in [-1, 1]. The intervals of all groups hold at once, so their ends may be subtracted. Some
        guarantees do better.
        """
        last = releases[-1]
        first, second = self.group(releases[0], 0), self.group(last, 1 if last is releases[0] else 0)
        return first, second, (first[0] - second[1], first[1] - second[0])

    def sliced(self, releases: Sequence[Release], edges: Sequence[float]) -> Interval:
        """Return the interval for the mean over all rows of a number in [0, 1] that was asked in slices.

        Parameters
        ----------
        releases
            One for each slice.
        edges
            Where the range is cut, both ends included.
        """
        raise self.cannot_certify("means in slices")

    def supports_slices(self) -> None:
        """Refuse, in words, means in slices, unless `sliced` certifies them."""
        if not self.covers_slices:
            raise self.cannot_certify("means in slices; ask without slices, or plan with guarantee='exchange'")

    @property
    def most_at_once(self) -> int:
        """How many outcomes one draw may have with little more noise than with two."""
        return MOST_AT_ONCE

    def margin(self, draws: int) -> float:
        """Return the margin of a share answered from this many `draws`."""
        if draws == self.terms.rows_per_query:
            return self.terms.margin
        self.require_flexible()
        return self._margin(draws)

    def group_margin(self, statistic: OfGroup, draws: int, share: float, mean: float) -> float | None:
        """Return the margin of a group with this `share` of the rows and this `mean`; None if not known in advance.

        Parameters
        ----------
        statistic
            What is asked in one pass, of this group and others.
        draws
            The number of draws of the pass.
        share, mean
            The group's share of the rows; its mean, or the share of an outcome in it.
        """
        return None

    def expected_group_margin(self, statistic: OfGroup, draws: int, share: float, mean: float, *, mass: float) -> float:
        """Return half the width of a group's interval, if its counts are as expected (coins).

        Parameters
        ----------
        statistic, draws, share, mean
            As for `group_margin`.
        mass
            The extra mass of every outcome.
        """
        low, high = statistic.first(statistic.expected(draws, share, mean, mass=mass), self)
        return (high - low) / 2

    def _margin(self, draws: int) -> float:
        raise NotImplementedError  # flexible guarantees implement it

    def draws_for(self, margin: float, spent: Amounts = NOTHING) -> int | None:
        """Return the fewest draws of a share with at most this `margin`, or None if no number of draws is enough.

        `spent` is what all questions before it took.
        """
        self.require_flexible()
        best = self._best_draws(spent)
        if self._margin_from(best, spent) > margin:
            return None
        return fewest(lambda draws: self._margin_from(draws, spent) <= margin, low=1, high=best)

    def best_margin(self, spent: Amounts = NOTHING) -> float:
        """Return the smallest margin of one answer, from any number of draws, after this was `spent`."""
        return self._margin_from(self._best_draws(spent), spent)

    def _best_draws(self, spent: Amounts) -> int:
        """Return the best number of draws: in a session that goes on, more of them widen the step to the population."""
        if self.terms.ends:
            return MOST_DRAWS
        tried = {round(10 ** (power / 8)) for power in range(8 * len(str(self.terms.rows)) + 16)}
        return min(tried, key=lambda draws: self._margin_from(draws, spent))

    def _margin_from(self, draws: int, spent: Amounts) -> float:
        certifying = self if self.terms.ends else self.at(spent.charge + draws, spent.intervals)
        return certifying._margin(draws)

    # -- what subclasses share ------------------------------------------------------------------------------------

    def information_step(self, R: float) -> float:
        """Return the `expected_step` of fits by the information in all releases, for charges that count coins.

        `R` is as there.
        """
        return descent.information_step(R, nats=privacy.session_nats(self._drawn, n=self.terms.rows), n=self.terms.rows)

    @property
    def _drawn(self) -> int:
        """The most that the session has charged by the end of the current question."""
        return self.terms.charge

    def tally(self, release: Release) -> Tally:
        """Return the `release` if it is a tally; refuse to certify others."""
        if not isinstance(release, Tally):
            raise self.cannot_certify(type(release).__name__)
        return release

    def noisy(self, release: Release) -> NoisyMeans:
        """Return the `release` if it is noisy means; refuse to certify others."""
        if not isinstance(release, NoisyMeans):
            raise self.cannot_certify(type(release).__name__)
        return release

    def refuse_flips(self, statistic: Statistic) -> None:
        """Refuse a `statistic` of single flips."""
        if isinstance(statistic, SingleFlips):
            raise NotCovered(
                f"This session runs under the {self.name} guarantee with {self.terms.mechanism}, which promises nothing"
                " about single flips. Plan a session for them: queries={'flip': ...}, or {'mean': ..., 'flip': ...} for"
                " both, which runs under the information guarantee.",
                guarantee=self.name,
            )


def around(value: float, radius: float) -> Interval:
    """Return value ± radius, inside [0, 1]."""
    return clip(value - radius), clip(value + radius)


def _sum(ends: Sequence[Interval]) -> Interval:
    return sum(low for low, _ in ends), min(1.0, sum(high for _, high in ends))


def ratio(total: Interval, share: Interval) -> Interval:
    """Return the range of total/share; [0, 1] when the share may be zero."""
    if share[0] <= 0:
        return EVERYTHING
    return clip(total[0] / share[1]), clip(total[1] / share[0])


def full_scan_margin(rows: int, queries: int, beta: float) -> float:
    """Return the margin of plain means of all rows, if no question depends on an answer: for comparison only."""
    check.whole(rows=rows, queries=queries)
    return min(1.0, hoeffding_radius(rows, beta / queries))
