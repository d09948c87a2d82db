"""A plan: the numbers that a session fixes before its first question, and what other ways to ask would reach.

The same questions can be asked in other ways, each fast, balanced or best: every guarantee says which it offers
(`Guarantee.readings`). `holdfast.plan` shows them as a table, so that users can compare them on their own rows without
knowing these words.
"""

from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from math import ceil

from holdfast import check, notebook
from holdfast.cached import cached_property
from holdfast.errors import InvalidArgument
from holdfast.guarantees import GUARANTEES, read
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.terms import JSON, Goal, Reading, Terms

BEST, BALANCED, FAST = "best", "balanced", "fast"
PACES = {FAST: 12_000, BALANCED: 100_000, BEST: None}  # rows that one answer reads at most
RowsPerQuery = int | str  # a number, or a pace
WITHOUT_PLAN = 1_000  # number of questions for which ways are compared if none is planned
SAYS_NOTHING = 0.5  # a margin of half the range or more


def check_pace(rows_per_query: RowsPerQuery | None) -> tuple[int | None, int | None]:
    """Return how many rows an answer reads, if given, and the most it may read, if limited."""
    if rows_per_query is None or isinstance(rows_per_query, str):
        pace = BALANCED if rows_per_query is None else rows_per_query
        if pace not in PACES:
            raise InvalidArgument(
                f"rows_per_query must be a whole number or one of {', '.join(map(repr, PACES))}; got {pace!r}.",
                name="rows_per_query",
            )
        return None, PACES[pace]
    check.whole(rows_per_query=rows_per_query)
    return int(rows_per_query), None


def paced(planner: type[Guarantee], goal: Goal, mechanism: str, most: int | None) -> Terms | None:
    """Return the best terms whose answers read at most `most` rows, if the guarantee lets that number vary."""
    terms = planner.plan(goal, mechanism)
    if terms is None or most is None or terms.rows_per_query <= most or not planner(terms).flexible:
        return terms
    return planner.plan(replace(goal, rows_per_query=most), mechanism)


def readings(standing: Guarantee) -> tuple[Reading, ...]:
    """Return every way and pace for the questions of this plan; none if it is about flips, or says nothing."""
    terms = standing.terms
    if terms.flips or terms.margin >= SAYS_NOTHING or standing.only_kind is not None:
        return ()
    goal = Goal(terms.rows, terms.queries or WITHOUT_PLAN, terms.confidence, ends=False, identical=terms.identical)
    ways: dict[str, dict[tuple[int, float], Reading]] = {}
    for planner in GUARANTEES.all():
        for pace, most in PACES.items():
            for one in planner.readings(goal, most):
                if one.margin < SAYS_NOTHING:
                    found = ways.setdefault(one.way, {})
                    same = found.get((one.rows_per_query, one.margin))
                    named = pace if same is None else f"{same.pace}, {pace}"
                    found[one.rows_per_query, one.margin] = replace(one, pace=named)
    return tuple(one for found in ways.values() for one in found.values())


SHOWN = (1, 100, 10_000)  # the sentence of a session without an end gives the margins of these questions


@dataclass(frozen=True)
class Alternative:
    """One guarantee and mechanism: what it would need or reach. `margin` None: it does not apply here."""

    guarantee: str
    mechanism: str
    rows: int | None
    queries: int | None
    margin: float | None
    rows_per_query: int | None
    note: str = ""


@dataclass(frozen=True)
class Plan:
    """Numbers fixed before the first question. Prints as a table.

    Parameters
    ----------
    standing
        The guarantee that was chosen, with its `terms`; the most used of them are attributes of the plan as well.
    alternatives
        What every other guarantee would need or reach. `readings` compares other ways to ask the same questions, each
        fast, balanced and best.
    unit
        The column that names the units, if units are drawn; None if rows are.
    """

    standing: Guarantee = field(repr=False)
    alternatives: tuple[Alternative, ...] = field(default=(), repr=False)
    unit: str | None = field(default=None, repr=False)

    @property
    def terms(self) -> Terms:
        """All the numbers that a ledger records."""
        return self.standing.terms

    @property
    def drawn(self) -> str:
        """What is drawn: rows or units."""
        return "rows" if self.unit is None else "units"

    @property
    def guarantee(self) -> str:
        """The name of the guarantee."""
        return self.standing.name

    @property
    def mechanism(self) -> str:
        """The name of the mechanism."""
        return self.terms.mechanism

    @property
    def rows(self) -> int:
        """Rows of the dataset."""
        return self.terms.rows

    @property
    def queries(self) -> int:
        """Answers with an interval that are planned for; 0 for a session without an end, and for flips alone."""
        return self.terms.queries

    @property
    def endless(self) -> bool:
        """Whether no number of questions is planned."""
        return self.terms.statements == 0

    @property
    def flips(self) -> int:
        """Single flips that are planned for."""
        return self.terms.flips

    @property
    def margin(self) -> float:
        """The largest distance between the answer to a share and the population's value, all answers at once."""
        return self.terms.margin

    @property
    def confidence(self) -> float:
        """The probability that all answers hold at once."""
        return self.terms.confidence

    @property
    def rows_per_query(self) -> int:
        """Rows that one answer reads."""
        return self.terms.rows_per_query

    @property
    def statements(self) -> int:
        """How many statements hold at once: intervals and single flips."""
        return self.terms.statements

    @property
    def vacuous(self) -> bool:
        """Whether the promise is too wide to say anything."""
        return self.margin >= SAYS_NOTHING

    @cached_property
    def readings(self) -> tuple[Reading, ...]:
        """Other ways to ask the same questions, each at three paces."""
        return readings(self.standing)

    @property
    def _read(self) -> str:
        some = f"{self.rows_per_query:,} random"
        return f"{'all' if self.standing.planning.reads_all_rows else some} {self.drawn}"

    @property
    def sentence(self) -> str:
        """The plan in one sentence."""
        if self.standing.sentence is not None:
            units = "" if self.unit is None else f" What counts as a row is a unit ({self.unit}), with all its rows."
            return self.standing.sentence + units
        if self.endless:
            return self._endless_sentence
        what = f"{self.queries:,} questions" if self.queries else f"{self.flips:,} flips"
        if self.vacuous:
            return (
                f"{self.rows:,} {self.drawn} are too few for {what}: answers would be within"
                f" {write_margin(self.margin)}, which says nothing. Ask fewer questions, or bring more {self.drawn}."
            )
        extra = f" and {self.flips:,} flips" if self.queries and self.flips else ""
        promised = "every answer" if self.queries else "the expectation of every flip"
        after = "refused" if self.terms.ends else "answered, too, with wider margins"
        alike = " All this holds if all rows come from the same distribution." if self.terms.identical else ""
        return (
            f"{self.rows:,} {self.drawn} can answer {what}{extra}, each chosen after seeing the earlier answers:"
            f" {promised} within {write_margin(self.margin)} of the population, all at once, with probability"
            f" {100 * self.confidence:.12g}%. Each answer reads {self._read}. More questions are {after}.{alike}"
        )

    @property
    def _endless_sentence(self) -> str:
        if self.vacuous:
            return (
                f"{self.rows:,} {self.drawn} are too few for questions without end: already the first answer would be"
                f" within {write_margin(self.margin)}, which says nothing. Plan a few questions (queries=3, end=True),"
                f" or bring more {self.drawn}."
            )
        first, *later = [(number, self.standing.margin_after(number - 1)) for number in SHOWN]
        informative = [
            f", the {number:,}th within {write_margin(margin)}" for number, margin in later if margin < SAYS_NOTHING
        ]
        silent = ""
        if len(informative) < len(later):
            wide = range(2, SHOWN[-1] + 1)
            start = wide[bisect(wide, False, key=lambda number: self.standing.margin_after(number - 1) >= SAYS_NOTHING)]
            silent = f" From about question {start:,} on, the margin is half the range or more, which says nothing."
        ahead = f"the first within {write_margin(first[1])} of the population{''.join(informative)}, all at once"
        return (
            f"{self.rows:,} {self.drawn} can answer questions without end, each chosen after seeing the earlier"
            f" answers: {ahead}, with probability {100 * self.confidence:.12g}%. An answer reads"
            f" {self.rows_per_query:,} random {self.drawn}, later ones fewer.{silent}"
        )

    def to_dict(self) -> dict[str, JSON]:
        """Return the plan, without alternatives, as JSON values: what a ledger's first entry records."""
        return self.standing.to_json() | ({} if self.unit is None else {"unit": self.unit})

    @classmethod
    def from_dict(cls, recorded: Mapping[str, JSON], *, location: str = "the plan") -> "Plan":
        """Rebuild a plan.

        Parameters
        ----------
        recorded
            What `to_dict` wrote; unknown terms are refused.
        location
            Where it was found, for messages.

        Returns
        -------
        Plan
            The plan, without alternatives.
        """
        unit = recorded.get("unit")
        return cls(read(recorded, location=location), unit=None if unit is None else str(unit))

    @property
    def other_ways(self) -> str:
        """The heading of the table of `readings`."""
        return f"{self.terms.queries or WITHOUT_PLAN:,} questions in other ways:"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.guarantee, self.terms))

    def __str__(self) -> str:
        if not self.alternatives:
            return self.sentence
        parts = [self.sentence, _text(HEADINGS, [*map(alternative_cells, self.alternatives)], left=_TEXTS)]
        if self.readings:
            parts += [self.other_ways, _text(READING_HEADINGS, [*map(reading_cells, self.readings)], left=(0, 1, 5))]
        return "\n\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        shown = f"<p>{escape(self.sentence)}</p>"
        if self.alternatives:
            shown += notebook.table(HEADINGS, [*map(alternative_cells, self.alternatives)], left=_TEXTS)
        else:  # a plan already in force: there is nothing to choose
            planned = "no end" if self.endless or self.standing.only_kind is not None else f"{self.terms.answers:,}"
            counts = (f"{self.rows:,}", planned, f"{self.rows_per_query:,}")
            names = (self.guarantee, self.mechanism.replace("_", " "), write_margin(self.margin))
            shown += notebook.table(HEADINGS, [(*names, *counts, "stands")], left=_TEXTS)
        if self.alternatives and self.readings:
            shown += f"<p>{self.other_ways}</p>" + notebook.table(
                READING_HEADINGS, [*map(reading_cells, self.readings)], left=(0, 1, 5)
            )
        return shown


class VacuousPlan(UserWarning):
    """The plan's margin is half the range or more: its answers say nothing."""


Cells = tuple[str, ...]
HEADINGS = ("guarantee", "mechanism", "margin", "rows", "questions", "rows read each", "")
READING_HEADINGS = ("way", "rows_per_query", "rows read each", "about ms", "margin", "")
_TEXTS = (0, 1, 6)  # the columns of words


def _text(headings: Cells, rows: Sequence[Cells], *, left: Sequence[int]) -> str:
    table = [headings, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(headings))]
    pads = ["<" if i in left else ">" for i in range(len(headings))]
    padded = [[f"{x:{pad}{width}}" for x, pad, width in zip(row, pads, widths, strict=True)] for row in table]
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def reading_cells(reading: Reading) -> Cells:
    """Write a reading as the cells of a table under `READING_HEADINGS`."""
    each, spent = f"{reading.rows_per_query:,}", f"{reading.milliseconds:,.1f}"
    return reading.way, reading.pace, each, spent, write_margin(reading.margin), reading.note


def write_margin(x: float | None) -> str:
    """Write a margin rounded up: a promise is never rounded in its own favor."""
    if x is None:
        return "-"
    steps = ceil(x * 10_000)
    return f"±{min(1.0, (steps + (steps / 10_000 < x)) / 10_000):.4f}"  # the product may have been rounded down


def alternative_cells(alternative: Alternative) -> Cells:
    """Write an alternative as the cells of a table under `HEADINGS`."""
    counts = (alternative.rows, alternative.queries, alternative.rows_per_query)
    rows, queries, each = ("-" if x is None else f"{x:,}" for x in counts)
    margin = write_margin(alternative.margin)
    mechanism = alternative.mechanism.replace("_", " ")
    return alternative.guarantee, mechanism, margin, rows, queries, each, alternative.note
