"""`holdfast.plan`: leave out rows, queries or margin, and it is solved for, by every guarantee that applies.

With rows alone, it is the plan of a session that never ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, log

from holdfast import check
from holdfast.errors import InvalidArgument, PlanInfeasible
from holdfast.guarantees import GUARANTEES
from holdfast.guarantees.compare import BEST, SAYS_NOTHING, RowsPerQuery, check_pace, paced
from holdfast.guarantees.guarantee import full_scan_margin
from holdfast.guarantees.mathematics.search import largest, smallest
from holdfast.guarantees.plan import Alternative, Plan
from holdfast.guarantees.terms import Goal, Terms

FULL_SCAN = ("none", "full scan")  # what people do without a promise, for comparison
MOST_ROWS = 10**15
MOST_QUERIES = 10**12
DEFAULT_CONFIDENCE = 0.95

Queries = int | Mapping[str, int]


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

    With `rows` alone it says what a session without an end can do. `holdfast.plan` is this, and takes data in place of
    their number of rows; its options are explained there.

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
    if (guarantee, mechanism) != (BEST, BEST):  # else there is nothing to look up, and nothing is imported for it
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
    # What assumes less, and what goes on, come first, however narrow others are; unless they say nothing. Where a
    # margin was asked for, whatever reaches it says enough.
    least = SAYS_NOTHING if request.margin is None else 1.0
    says = {pair: terms for pair, terms in allowed.items() if terms.margin < least}
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
        note = "reads all rows; only where it is chosen by name"
    asked = terms.queries or terms.flips or None
    return Alternative(*pair, terms.rows, asked, terms.margin, terms.rows_per_query, note)


def _full_scan(terms: Terms) -> Alternative:
    if terms.flips:
        return Alternative(*FULL_SCAN, None, None, None, None, "does not apply")
    margin = full_scan_margin(terms.rows, terms.queries, 1 - terms.confidence)
    note = "no promise: right only if no question depends on an answer"
    return Alternative(*FULL_SCAN, terms.rows, terms.queries, margin, terms.rows, note)
