"""`holdfast.plan`: leave out rows, queries or margin, and it is solved for, by every guarantee that applies.

With rows alone, it is the plan of a session that never ends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from math import ceil, log

from holdfast import check
from holdfast.errors import InvalidArgument, PlanInfeasible
from holdfast.guarantees import GUARANTEES, read
from holdfast.guarantees.compare import BEST, SAYS_NOTHING, Reading, RowsPerQuery, check_pace, paced, readings
from holdfast.guarantees.guarantee import Guarantee, full_scan_margin
from holdfast.guarantees.mathematics.search import largest, smallest
from holdfast.guarantees.terms import JSON, Goal, Terms

FULL_SCAN = ("none", "full scan")  # what people do without a promise, for comparison
MOST_ROWS = 10**15
MOST_QUERIES = 10**12
DEFAULT_CONFIDENCE = 0.95

Queries = int | Mapping[str, int]
SHOWN = (1, 100, 10_000)  # questions of a session without an end whose margins its sentence says


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
        What every other guarantee would need or reach. `readings` says what the same questions would get planned,
        without an end, as checks or by splitting, each fast, balanced and best.
    unit
        The column that names the units that are drawn; None: rows are.
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
        """What is drawn."""
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
        """Other ways to the same questions, each at three paces."""
        return readings(self.standing)

    @property
    def _read(self) -> str:
        return f"all {self.drawn}" if self.standing.scans else f"{self.rows_per_query:,} random {self.drawn}"

    @property
    def sentence(self) -> str:
        """The plan in one sentence."""
        if self.standing.sentence is not None:
            return self.standing.sentence
        if self.endless:
            return self._endless_sentence
        what = f"{self.queries:,} questions" if self.queries else f"{self.flips:,} flips"
        if self.vacuous:
            return (
                f"{self.rows:,} {self.drawn} are too few for {what}: answers would be within"
                f" {write_margin(self.margin)}, which says nothing. Ask fewer questions, or bring more {self.drawn}."
            )
        extra = f" and {self.flips:,} flips" if self.queries and self.flips else ""
        held = "every answer" if self.queries else "the expectation of every flip"
        after = "refused" if self.terms.ends else "answered, too, with wider margins"
        alike = " All this holds if every row follows the same law." if self.terms.identical else ""
        return (
            f"{self.rows:,} {self.drawn} can answer {what}{extra}, each chosen after seeing the earlier answers:"
            f" {held} within {write_margin(self.margin)} of the population, all at once, with probability"
            f" {100 * self.confidence:.12g} %. Each answer reads {self._read}. More questions are {after}.{alike}"
        )

    @property
    def _endless_sentence(self) -> str:
        if self.vacuous:
            return (
                f"{self.rows:,} {self.drawn} are too few for questions without end: already the first answer would be"
                f" within {write_margin(self.margin)}, which says nothing. Plan a few questions (queries=3, end=True),"
                f" or bring more {self.drawn}."
            )
        margins = [write_margin(self.standing.margin_after(number - 1)) for number in SHOWN]
        return (
            f"{self.rows:,} {self.drawn} can answer questions without end, each chosen after seeing the earlier"
            f" answers: the first within {margins[0]} of the population, the {SHOWN[1]:,}th within {margins[1]}, the"
            f" {SHOWN[2]:,}th within {margins[2]}, all at once, with probability {100 * self.confidence:.12g} %."
            f" An answer reads {self.rows_per_query:,} random {self.drawn}, later ones fewer."
        )

    def to_dict(self) -> dict[str, JSON]:
        """Return the plan, without alternatives, as JSON values: what a ledger's first entry records."""
        return self.standing.to_json() | ({} if self.unit is None else {"unit": self.unit})

    @classmethod
    def from_dict(cls, recorded: Mapping[str, JSON], *, location: str = "the plan") -> "Plan":
        """Rebuild a plan from what `to_dict` wrote (`recorded`); what is not known here is refused.

        `location` says where it was found, for messages.
        """
        unit = recorded.get("unit")
        return cls(read(recorded, location=location), unit=None if unit is None else str(unit))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.guarantee, self.terms))

    def __str__(self) -> str:
        if not self.alternatives:
            return self.sentence
        parts = [self.sentence, _text(HEADINGS, [*map(alternative_cells, self.alternatives)], left=(0, 1, 6))]
        if self.readings:
            parts += [
                READINGS,
                _text(READING_HEADINGS, [*map(reading_cells, self.readings)], left=(0, 1, 5)),
            ]
        return "\n\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        shown = f"<p>{escape(self.sentence)}</p>"
        if self.alternatives:
            shown += _html(HEADINGS, [*map(alternative_cells, self.alternatives)])
        else:  # it stands, so that there is nothing to choose
            planned = "no end" if self.endless or not self.standing.answers else f"{self.terms.answers:,}"
            counts = (f"{self.rows:,}", planned, f"{self.rows_per_query:,}")
            names = (self.guarantee, self.mechanism.replace("_", " "), write_margin(self.margin))
            shown += _html(HEADINGS, [(*names, *counts, "stands")])
        if self.alternatives and self.readings:
            shown += f"<p>{READINGS}</p>" + _html(READING_HEADINGS, [*map(reading_cells, self.readings)])
        return shown


Cells = tuple[str, ...]
HEADINGS = ("guarantee", "mechanism", "margin", "rows", "questions", "rows read each", "")
READING_HEADINGS = ("way", "rows_per_query", "rows read each", "about ms", "margin", "")
READINGS = "The same questions in other ways:"


def _text(headings: Cells, rows: Sequence[Cells], *, left: Sequence[int]) -> str:
    table = [headings, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(headings))]
    pads = ["<" if i in left else ">" for i in range(len(headings))]
    padded = [[f"{x:{pad}{width}}" for x, pad, width in zip(row, pads, widths, strict=True)] for row in table]
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def _html(headings: Cells, rows: Sequence[Cells]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in headings)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


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


@check.options
def plan(
    *,
    rows: int | None = None,
    queries: Queries | None = None,
    margin: float | None = None,
    confidence: float | None = None,
    rows_per_query: RowsPerQuery | None = None,
    guarantee: str = BEST,
    mechanism: str = BEST,
    end: bool = False,
    identical: bool | None = None,
) -> Plan:
    """Say what is possible: leave out one of `rows`, `queries` and `margin`, and it is solved for.

    With `rows` alone it says what a session without an end can do.

    Parameters
    ----------
    rows
        Rows of the dataset.
    queries
        How many questions will be asked, or how many of each sort: `{"mean": 500, "flip": 10_000}`; flips are single
        0/1 answers (sampling counting queries), which the information guarantee covers. More questions than these get
        wider answers, unless the plan ends.
    margin
        The largest distance between an answer and the population's value, for answers in [0, 1] (others scale with
        their bounds), all answers at once with probability `confidence`.
    confidence
        The probability that all answers hold at once; left out, 0.95.
    rows_per_query
        Rows that one answer reads: a number, "fast" (at most 12,000), "balanced" (at most 100,000; so if left out) or
        "best" (the number with the smallest margin).
    guarantee, mechanism
        A name, or "best".
    end
        Whether questions beyond the plan are refused, instead of answered with wider margins.
    identical
        Whether rows are independent *and* identically distributed: a little narrower for rare events. Left out, they
        need only be independent, where the guarantee allows that.

    Returns
    -------
    Plan
        The best plan, and every guarantee's as `alternatives`.

    Examples
    --------
    >>> p = plan(rows=1_000_000, queries=10_000)
    >>> p.guarantee, p.margin < 0.025
    ('exchange', True)
    """
    confidence = DEFAULT_CONFIDENCE if confidence is None else confidence
    answers, flips = check_options(queries, margin, confidence, guarantee, mechanism)
    given = {"rows": rows, "queries": queries, "margin": margin}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) != 1 and missing != ["queries", "margin"]:
        got = ", ".join(name for name in given if name not in missing) or "none of them"
        raise InvalidArgument(
            f"Give two of rows, queries and margin, and the one left out is solved for; or rows alone, for a session"
            f" without an end. Got {got}."
        )
    if len(missing) == 2:
        _check_without_plan(guarantee, mechanism, end)
        answers = 0
    if rows is not None:
        check.whole(2, rows=rows)
        check.at_most("the most this planner handles", MOST_ROWS, rows=rows)
        rows = int(rows)
    each, most = check_pace(rows_per_query)
    if each is not None and rows is not None:
        check.at_most("rows", rows, rows_per_query=each)
    chosen_by = (guarantee, mechanism, end, identical)
    request = _Request(rows, answers, margin, float(confidence), each, most, flips, *chosen_by)
    compared = [each for each in GUARANTEES.all() if (each.answers and each.compared) or each.name == guarantee]
    pairs = [
        (each.name, how)
        for each in compared
        for how in each.mechanisms
        if how not in each.unusual or each.name == guarantee
    ]
    solved = {pair: terms for pair in pairs if (terms := _solve(pair, request)) is not None}
    chosen = _choose(solved, request)
    standing = GUARANTEES[chosen[0]](solved[chosen])
    if not standing.answers:
        return Plan(standing)  # how wide a check is says nothing about answers
    if not standing.terms.queries + flips:
        return Plan(standing, (_alternative(chosen, standing.terms, chosen),))  # nothing else goes without a number
    alternatives = [_alternative(pair, solved.get(pair), chosen) for pair in pairs]
    return Plan(standing, (*alternatives, _full_scan(standing.terms)))


class VacuousPlan(UserWarning):
    """The plan's margin is half the range or more: its answers say nothing."""


def _check_without_plan(guarantee: str, mechanism: str, end: bool) -> None:
    """Refuse what needs a number of questions."""
    if end:
        raise InvalidArgument("end=True refuses questions beyond the plan: give queries= or margin=.", name="end")
    fit = [each for each in GUARANTEES.all() if guarantee in (BEST, each.name)]
    fit = [each for each in fit if mechanism in (BEST, *each.mechanisms)]
    if not any(each.goes_on for each in fit):
        name, value = ("guarantee", guarantee) if guarantee != BEST else ("mechanism", mechanism)
        raise InvalidArgument(
            f"A session with {name}={value!r} ends after a number of questions: give queries= or margin=. Only the"
            " exchange guarantee answers questions without end.",
            name="queries",
        )


@dataclass(frozen=True)
class _Request:
    rows: int | None
    queries: int | None
    margin: float | None
    confidence: float
    rows_per_query: int | None
    most_rows_per_query: int | None
    flips: int
    guarantee: str
    mechanism: str
    end: bool
    identical: bool | None

    def terms(self, pair: tuple[str, str], *, rows: int, queries: int) -> Terms | None:
        """Return the terms of this guarantee and mechanism for so many rows and questions."""
        planner, mechanism = GUARANTEES[pair[0]], pair[1]
        if self.identical is False and not planner.independent:
            return None
        ends, identical = self.end or not planner.goes_on, bool(self.identical) or not planner.independent
        if queries + self.flips == 0 and ends:
            return None
        goal = Goal(rows, queries, self.confidence, self.rows_per_query, self.flips, ends, identical)
        return paced(planner, goal, mechanism, self.most_rows_per_query)

    def allows(self, pair: tuple[str, str]) -> bool:
        """Whether the caller asked for this guarantee and mechanism, or left them open."""
        guarantee, mechanism = pair
        planner = GUARANTEES[guarantee]
        if self.guarantee not in (BEST, guarantee) or (self.guarantee == BEST and not planner.adaptive):
            return False
        if planner.scans and (self.guarantee, self.mechanism) == (BEST, BEST):
            return False
        if self.mechanism != BEST:
            return self.mechanism == mechanism
        usual = planner.usual_mechanism(self.flips > 0) if self.guarantee == guarantee else None
        return usual in (None, mechanism)


def check_options(
    queries: Queries | None, margin: float | None, confidence: float | None, guarantee: str, mechanism: str
) -> tuple[int | None, int]:
    """Check the options of a plan; return how many answers and how many flips are asked for."""
    if margin is not None:
        check.probability(margin=margin)
    if confidence is not None:
        check.probability(confidence=confidence)
    check.one_of("guarantee", guarantee, (BEST, *GUARANTEES.names()))
    mechanisms = dict.fromkeys(how for each in GUARANTEES.all() for how in each.mechanisms)
    check.one_of("mechanism", mechanism, (BEST, *mechanisms))
    return count_queries(queries)


def count_queries(queries: Queries | None) -> tuple[int | None, int]:
    """Return how many answers and how many flips `queries` plans for."""
    flips = 0
    if isinstance(queries, Mapping):
        unknown = sorted(set(queries) - {"mean", "flip"})
        if unknown or not queries:
            raise InvalidArgument(f"queries must name 'mean' and 'flip'; got {unknown or 'nothing'}.", name="queries")
        for kind, count in queries.items():
            check.whole(0, **{f"queries[{kind!r}]": count})
        flips, queries = int(queries.get("flip", 0)), int(queries.get("mean", 0))
        check.whole(1, queries=queries + flips)
    elif queries is not None:
        check.whole(queries=queries)
        queries = int(queries)
    if queries is not None:
        check.at_most("the most this planner handles", MOST_QUERIES, queries=queries + flips)
    return queries, flips


def _solve(pair: tuple[str, str], request: _Request) -> Terms | None:
    """Solve for what was left out; None where this guarantee cannot reach the goal or does not apply."""

    def excess(rows: int, queries: int) -> float:
        """log(margin/goal): zero or below when the goal is met."""
        terms = request.terms(pair, rows=rows, queries=queries)
        return log((1.0 if terms is None else terms.margin) / (request.margin or 1.0))

    rows, queries = request.rows, request.queries
    if queries is not None and rows is None:
        given_queries, least = queries, max(2, request.rows_per_query or 2)
        rows = smallest(lambda n: excess(n, given_queries), low=least, high=MOST_ROWS)
    elif rows is not None and queries is None:
        given_rows = rows
        queries = largest(lambda k: excess(given_rows, k), low=1, high=MOST_QUERIES)
    if rows is None or queries is None:
        return None
    return request.terms(pair, rows=rows, queries=queries)


def _choose(solved: Mapping[tuple[str, str], Terms], request: _Request) -> tuple[str, str]:
    allowed = {pair: terms for pair, terms in solved.items() if request.allows(pair)}
    # What assumes less, and what goes on, come first, however narrow others are; unless they say nothing.
    says = {pair: terms for pair, terms in allowed.items() if terms.margin < SAYS_NOTHING}
    if request.identical is None:
        says = {pair: terms for pair, terms in says.items() if not terms.identical} or says
    if not request.end:
        says = {pair: terms for pair, terms in says.items() if not terms.ends} or says
    allowed = says or allowed
    if not allowed:
        raise _infeasible(request)
    if request.rows is None:
        return min(allowed, key=lambda pair: allowed[pair].rows)
    if request.queries is None:
        return max(allowed, key=lambda pair: allowed[pair].queries)
    return min(allowed, key=lambda pair: allowed[pair].margin)


def _infeasible(request: _Request) -> PlanInfeasible:
    """Word the refusal, and say what the same rows do allow."""
    if request.identical is False and request.guarantee != BEST and not GUARANTEES[request.guarantee].independent:
        return PlanInfeasible(
            f"The {request.guarantee} guarantee is only for rows that all follow one law; the exchange guarantee is for"
            " any that are independent.",
            guarantee=request.guarantee,
        )
    which = "No plan" if request.guarantee == BEST else f"No plan under the {request.guarantee} guarantee"
    if request.mechanism != BEST:
        which += f" with {request.mechanism}"
    if request.margin is None:
        kind = " and single flips" if request.flips else ""
        rows = request.rows or 0
        return PlanInfeasible(
            f"{which} exists for {rows:,} rows{kind}; leave guarantee and mechanism at 'best', or bring more rows.",
            rows=rows,
        )
    if request.rows is None:
        return PlanInfeasible(
            f"{which} reaches a margin of {request.margin:g} for {request.queries:,} queries with fewer than"
            f" {MOST_ROWS:.0e} rows; allow a larger margin.",
            margin=request.margin,
            queries=request.queries,
        )
    each = request.rows_per_query or BEST
    relaxed = plan(rows=request.rows, queries=1, confidence=request.confidence, rows_per_query=each, end=request.end)
    return PlanInfeasible(
        f"{which} reaches a margin of {request.margin:g} on {request.rows:,} rows, not even for one query;"
        f" {request.rows:,} rows allow a margin of {ceil(relaxed.margin * 1e4) / 1e4} for one query.",
        rows=request.rows,
        margin=request.margin,
        best_margin=relaxed.margin,
    )


def _alternative(pair: tuple[str, str], terms: Terms | None, chosen: tuple[str, str]) -> Alternative:
    if terms is None:
        return Alternative(*pair, None, None, None, None, "cannot reach this goal or does not apply")
    note = ""
    if terms.margin >= SAYS_NOTHING:
        note = "says nothing: wider than half the range"
    elif pair == chosen:
        note = "this plan"
    elif GUARANTEES[pair[0]].scans:
        note = f"reads all rows; chosen only by mechanism='{pair[1]}'"
    asked = terms.queries or terms.flips or None
    return Alternative(*pair, terms.rows, asked, terms.margin, terms.rows_per_query, note)


def _full_scan(terms: Terms) -> Alternative:
    if terms.flips:
        return Alternative(*FULL_SCAN, None, None, None, None, "does not apply")
    margin = full_scan_margin(terms.rows, terms.queries, 1 - terms.confidence)
    note = "no promise: right only if no question depends on an answer"
    return Alternative(*FULL_SCAN, terms.rows, terms.queries, margin, terms.rows, note)
