"""Other ways to ask the same questions: planned, without an end, by checks, by splitting; each fast, balanced or best.

`holdfast.plan` shows them as a table, so that users can compare them on their own rows without knowing these words.
"""

from dataclasses import dataclass, replace

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.guarantees import GUARANTEES
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.terms import Goal, Terms

BEST, BALANCED, FAST = "best", "balanced", "fast"
PACES = {FAST: 12_000, BALANCED: 100_000, BEST: None}  # rows that one answer reads at most
RowsPerQuery = int | str  # a number, or a pace
WITHOUT_PLAN = 1_000  # number of questions for which ways are compared if none is planned
SAYS_NOTHING = 0.5  # a margin of half the range or more

# About how long an answer takes, in milliseconds: columns in memory, a question about one of them, two cores of 2024.
_ANY, _DRAWN_ROW, _SCANNED_ROW = 0.3, 4e-5, 1e-6


@dataclass(frozen=True)
class Reading:
    """One way to answer the same questions, at one pace.

    Parameters
    ----------
    way
        "planned" for their number, "endless", "checks" of guesses, or "splitting" into fresh rows.
    pace
        "fast", "balanced", "best", or several of them if they are the same.
    rows_per_query, milliseconds
        Rows that one answer reads, and about how long that takes where columns fit into memory.
    margin
        The margin of the last question; for checks, what is added to the margin of a guess if all guesses held so far.
    note
        A remark.
    """

    way: str
    pace: str
    rows_per_query: int
    milliseconds: float
    margin: float
    note: str = ""


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
    terms: Terms | None = planner.plan(goal, mechanism)
    if terms is None or most is None or terms.rows_per_query <= most or not planner(terms).flexible:
        return terms
    fewer: Terms | None = planner.plan(replace(goal, rows_per_query=most), mechanism)
    return fewer


def readings(standing: Guarantee) -> tuple[Reading, ...]:
    """Return every way and pace for the questions of this plan; none if it is about flips, or says nothing."""
    terms = standing.terms
    if terms.flips or terms.margin >= SAYS_NOTHING or not standing.answers:
        return ()
    goal = Goal(terms.rows, terms.queries or WITHOUT_PLAN, terms.confidence, ends=False, identical=terms.identical)
    made: list[Reading] = []
    for way in (_planned, _endless, _checks, _splitting):
        found: dict[tuple[int, float], Reading] = {}
        for pace, most in PACES.items():
            one = way(goal, most)
            if one is None or one.margin >= SAYS_NOTHING:
                continue
            same = found.get((one.rows_per_query, one.margin))
            named = pace if same is None else f"{same.pace}, {pace}"
            found[one.rows_per_query, one.margin] = replace(one, pace=named)
        made += found.values()
    return tuple(made)


def _planned(goal: Goal, most: int | None) -> Reading | None:
    terms = paced(GUARANTEES["exchange"], goal, "coins", most)
    if terms is None:
        return None
    return Reading("planned", "", terms.rows_per_query, _drawing(terms.rows_per_query), terms.margin, "then wider")


def _endless(goal: Goal, most: int | None) -> Reading | None:
    planner = GUARANTEES["exchange"]
    terms = paced(planner, replace(goal, queries=0), "coins", most)
    if terms is None:
        return None
    last = planner(terms).margin_after(goal.queries - 1)
    each = terms.rows_per_query
    return Reading("endless", "", each, _drawing(each), last, f"±{terms.margin:.4f} at first, wider as questions go by")


def _checks(goal: Goal, most: int | None) -> Reading | None:
    planner, each = GUARANTEES["checks"], min(goal.rows, most or goal.rows)
    terms = planner.plan(replace(goal, rows_per_query=each, identical=True), "cells")
    if terms is None:
        return None
    answered = (0, goal.queries - 1)
    (_, width), *_ = planner(terms).outlook(answered, answered)
    spent = _ANY + each * (_SCANNED_ROW if each == goal.rows else _DRAWN_ROW)
    return Reading(
        "checks", "", each, spent, width, "on rows that nobody sees, beyond the margin of a guess that holds"
    )


def _splitting(goal: Goal, most: int | None) -> Reading | None:
    terms = GUARANTEES["split"].plan(replace(goal, ends=True, identical=True), "fresh_rows")
    if terms is None:
        return None
    each = terms.rows_per_query
    return Reading(
        "splitting", "", each, _drawing(each), terms.margin, "then refused; identically distributed rows only"
    )


def _drawing(rows: int) -> float:
    return _ANY + rows * _DRAWN_ROW
