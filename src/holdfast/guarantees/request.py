"""How a plan is made from a request: whatever is left out is solved for, under every guarantee that applies.

`PlanRequest` holds what callers of `holdfast.plan` and of a session ask for. One of rows, queries and margin is left
out; rows alone ask for a session without an end. If the ledger already has a plan, the request is compared with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, log

from holdfast import check
from holdfast.cached import cached_property
from holdfast.errors import InvalidArgument, PlanConflict, PlanInfeasible
from holdfast.guarantees import GUARANTEES
from holdfast.guarantees.drawers import beside_checks, coins_confidence
from holdfast.guarantees.guarantee import full_scan_margin
from holdfast.guarantees.mathematics.search import largest, smallest
from holdfast.guarantees.plan import BEST, SAYS_NOTHING, Alternative, Plan, RowsPerQuery, check_pace, paced
from holdfast.guarantees.terms import Goal, Terms

FULL_SCAN = ("none", "full scan")  # what people do without a promise, for comparison
MOST_ROWS = 10**15
MOST_QUERIES = 10**12
DEFAULT_CONFIDENCE = 0.95

Queries = int | Mapping[str, int]
Pair = tuple[str, str]  # a guarantee and a mechanism


@dataclass(frozen=True)
class PlanRequest:
    """What a caller asks of a plan; None and "best" mean whatever is best, or whatever the ledger's plan says."""

    queries: Queries | None = None
    margin: float | None = None
    confidence: float | None = None
    guarantee: str = BEST
    mechanism: str = BEST
    rows_per_query: RowsPerQuery | None = None
    end: bool = False
    identical: bool | None = None  # whether rows follow one distribution; False: they need only be independent
    checks: float | None = None  # the share of rows that check guesses

    def __post_init__(self) -> None:
        if self.identical not in (None, True, False):
            raise InvalidArgument(f"identical must be True or False; got {self.identical!r}.", name="identical")
        if self.checks is not None:
            check.probability(checks=self.checks)
        if self.margin is not None:
            check.probability(margin=self.margin)
        if self.confidence is not None:
            check.probability(confidence=self.confidence)
        if (self.guarantee, self.mechanism) != (BEST, BEST):  # else skip the lookup, which would import every guarantee
            check.one_of("guarantee", self.guarantee, (BEST, *GUARANTEES.names()))
            mechanisms = dict.fromkeys(how for each in GUARANTEES.all() for how in each.planning.mechanisms)
            check.one_of("mechanism", self.mechanism, (BEST, *mechanisms))
        _ = self.pace, self.asked  # validated now, then cached

    @cached_property
    def pace(self) -> tuple[int | None, int | None]:
        """How many rows an answer reads, if given, and the most it may read, if limited."""
        return check_pace(self.rows_per_query)

    @cached_property
    def asked(self) -> tuple[int | None, int]:
        """How many answers are asked for, if given, and how many flips."""
        flips, queries = 0, self.queries
        if isinstance(queries, Mapping):
            unknown = sorted(set(queries) - {"mean", "flip"})
            if unknown or not queries:
                raise InvalidArgument(
                    f"queries must name 'mean' and 'flip'; got {unknown or 'nothing'}.", name="queries"
                )
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

    def kept(self, rows: int) -> int:
        """Return how many of this many rows check guesses."""
        if self.checks is None:
            return 0
        return check.part_of(rows, (2, 2), "two rows to check on and two to ask", checks=self.checks)

    def make(self, rows: int | None) -> Plan:
        """Return the best plan for this many rows; for None, with as few rows as reach the margin."""
        if self.checks is None or rows is None:
            return self._solved(rows)
        kept, confidence = self.kept(rows), DEFAULT_CONFIDENCE if self.confidence is None else self.confidence
        coins = replace(self, checks=None, confidence=coins_confidence(confidence))._solved(rows - kept)
        return Plan(beside_checks(coins.standing, kept, confidence))

    def _solved(self, rows: int | None) -> Plan:
        given = {"rows": rows, "queries": self.queries, "margin": self.margin}
        missing = [name for name, value in given.items() if value is None]
        if len(missing) != 1 and missing != ["queries", "margin"]:
            got = ", ".join(name for name in given if name not in missing) or "none of them"
            raise InvalidArgument(
                f"Give two of rows, queries and margin, and the one left out is solved for; or rows alone, for a"
                f" session without an end. Got {got}."
            )
        if len(missing) == 2:
            self._check_endless()
        if rows is not None:
            check.whole(2, rows=rows)
            check.at_most("the most this planner handles", MOST_ROWS, rows=rows)
            rows = int(rows)
            if self.pace[0] is not None:
                check.at_most("rows", rows, rows_per_query=self.pace[0])
        pairs = [
            (one.name, how)
            for one in GUARANTEES.all()
            for how in one.planning.mechanisms
            if how not in one.planning.by_name_only or one.name == self.guarantee
        ]
        queries = 0 if len(missing) == 2 else self.asked[0]
        solved = {pair: terms for pair in pairs if (terms := self._solve(pair, rows, queries)) is not None}
        chosen = self._choose(solved, rows, queries)
        standing = GUARANTEES[chosen[0]](solved[chosen])
        if standing.only_kind is not None:
            return Plan(standing)  # the width of a check does not compare with margins of answers
        if not standing.terms.queries + self.asked[1]:
            return Plan(standing, (_alternative(chosen, standing.terms, chosen),))  # others need a number of questions
        alternatives = [_alternative(pair, solved.get(pair), chosen) for pair in pairs]
        return Plan(standing, (*alternatives, _full_scan(standing.terms)))

    def _check_endless(self) -> None:
        """Refuse what needs a number of questions."""
        if self.end:
            raise InvalidArgument("end=True refuses questions beyond the plan: give queries= or margin=.", name="end")
        fit = [one for one in GUARANTEES.all() if self.guarantee in (BEST, one.name)]
        fit = [one for one in fit if self.mechanism in (BEST, *one.planning.mechanisms)]
        if not any(one.planning.goes_on for one in fit):
            named = ("guarantee", self.guarantee) if self.guarantee != BEST else ("mechanism", self.mechanism)
            raise InvalidArgument(
                f"A session with {named[0]}={named[1]!r} ends after a number of questions: give queries= or margin=."
                " Only the exchange guarantee answers questions without end.",
                name="queries",
            )

    def _terms(self, pair: Pair, rows: int, queries: int) -> Terms | None:
        """Return the terms of this guarantee and mechanism for this many rows and questions."""
        planner, mechanism = GUARANTEES[pair[0]], pair[1]
        known = planner.planning
        if self.identical is False and not known.takes_unlike_rows:
            return None
        ends, identical = self.end or not known.goes_on, self.identical is True or not known.takes_unlike_rows
        (_, flips), (each, most) = self.asked, self.pace
        if queries + flips == 0 and ends:
            return None
        confidence = float(DEFAULT_CONFIDENCE if self.confidence is None else self.confidence)
        return paced(planner, Goal(rows, queries, confidence, each, flips, ends, identical), mechanism, most)

    def _solve(self, pair: Pair, rows: int | None, queries: int | None) -> Terms | None:
        """Solve for what was left out; None where this guarantee cannot reach the goal or does not apply."""

        def excess(rows: int, queries: int) -> float:
            """log(margin/goal): zero or below when the goal is met."""
            terms = self._terms(pair, rows, queries)
            return log((1.0 if terms is None else terms.margin) / (self.margin or 1.0))

        if queries is not None and rows is None:
            given_queries, least = queries, max(2, self.pace[0] or 2)
            rows = smallest(lambda n: excess(n, given_queries), low=least, high=MOST_ROWS)
        elif rows is not None and queries is None:
            given_rows = rows
            queries = largest(lambda k: excess(given_rows, k), low=1, high=MOST_QUERIES)
        return None if rows is None or queries is None else self._terms(pair, rows, queries)

    def _allows(self, pair: Pair) -> bool:
        """Whether the caller asked for this guarantee and mechanism, or left them open."""
        guarantee, mechanism = pair
        known, named = GUARANTEES[guarantee].planning, self.guarantee == guarantee
        if not named and (self.guarantee != BEST or not known.adaptive):
            return False
        if self.mechanism != BEST:
            return self.mechanism == mechanism
        if not named:
            return not known.reads_all_rows
        return bool(self.asked[1]) or known.preferred in (None, mechanism)

    def _choose(self, solved: Mapping[Pair, Terms], rows: int | None, queries: int | None) -> Pair:
        allowed = {pair: terms for pair, terms in solved.items() if self._allows(pair)}
        # Plans that assume less, or that go on, come first even if others are narrower, unless they say nothing. If a
        # margin was asked for, every plan that reaches it says enough.
        least = SAYS_NOTHING if self.margin is None else 1.0
        says = {pair: terms for pair, terms in allowed.items() if terms.margin < least}
        if self.identical is None:
            says = {pair: terms for pair, terms in says.items() if not terms.identical} or says
        if not self.end:
            says = {pair: terms for pair, terms in says.items() if not terms.ends} or says
        allowed = says or allowed
        if not allowed:
            raise self._infeasible(rows)
        if rows is None:
            return min(allowed, key=lambda pair: allowed[pair].rows)
        if queries is None:
            return max(allowed, key=lambda pair: allowed[pair].queries)
        return min(allowed, key=lambda pair: allowed[pair].margin)

    def _infeasible(self, rows: int | None) -> PlanInfeasible:
        """Word the refusal, and say what the same rows do allow."""
        named = self.guarantee != BEST
        if self.identical is False and named and not GUARANTEES[self.guarantee].planning.takes_unlike_rows:
            return PlanInfeasible(
                f"The {self.guarantee} guarantee is only for identically distributed rows; the exchange guarantee is"
                " for any that are independent.",
                guarantee=self.guarantee,
            )
        which = f"No plan under the {self.guarantee} guarantee" if named else "No plan"
        if self.mechanism != BEST:
            which += f" with {self.mechanism}"
        if self.margin is None:
            kind = " and single flips" if self.asked[1] else ""
            return PlanInfeasible(
                f"{which} exists for {rows or 0:,} rows{kind}; leave guarantee and mechanism at 'best', or bring more"
                " rows.",
                rows=rows or 0,
            )
        if rows is None:
            return PlanInfeasible(
                f"{which} reaches a margin of {self.margin:g} for {self.asked[0]:,} queries with fewer than"
                f" {MOST_ROWS:.0e} rows; allow a larger margin.",
                margin=self.margin,
                queries=self.asked[0],
            )
        each = self.pace[0] or BEST
        relaxed = PlanRequest(queries=1, confidence=self.confidence, rows_per_query=each, end=self.end).make(rows)
        return PlanInfeasible(
            f"{which} reaches a margin of {self.margin:g} on {rows:,} rows, not even for one query;"
            f" {rows:,} rows allow a margin of {ceil(relaxed.margin * 1e4) / 1e4} for one query.",
            rows=rows,
            margin=self.margin,
            best_margin=relaxed.margin,
        )

    def must_match(self, standing: Plan, location: str) -> None:
        """Refuse a request that contradicts the ledger's plan, and quote that plan."""
        (queries, flips), (each, most) = self.asked, self.pace
        asked = {
            "queries": (queries, "none" if standing.endless else standing.queries),
            "flips": (flips if isinstance(self.queries, Mapping) else None, standing.flips),
            "confidence": (self.confidence, standing.confidence),
            "rows_per_query": (each, standing.rows_per_query),
            "guarantee": (None if self.guarantee == BEST else self.guarantee, standing.guarantee),
            "mechanism": (None if self.mechanism == BEST else self.mechanism, standing.mechanism),
            "end": (self.end or None, standing.terms.ends),
            "identical": (self.identical, standing.terms.identical),
        }
        apart = {name: pair for name, pair in asked.items() if pair[0] is not None and pair[0] != pair[1]}
        if self.margin is not None and (standing.endless or self.margin < standing.margin):
            apart["margin"] = (self.margin, "none" if standing.endless else standing.margin)
        total = standing.terms.all_rows
        if self.checks is not None and self.kept(total) != total - standing.rows:
            apart["checks"] = (self.checks, f"{(total - standing.rows) / total:.3g}")
        if most is not None and self.rows_per_query is not None and standing.rows_per_query > most:
            apart["rows_per_query"] = (f"at most {most:,}", f"{standing.rows_per_query:,}")
        if apart:
            named = ", ".join(f"{name} {given}, not {stands}" for name, (given, stands) in apart.items())
            raise PlanConflict(
                f"The ledger {location} has a different plan than was asked for ({named}): {standing.sentence}"
                " Leave the plan out to continue under it.",
                standing=standing.to_dict(),
                asked={name: given for name, (given, _) in apart.items()},
                differs=list(apart),
            )


def _alternative(pair: Pair, terms: Terms | None, chosen: Pair) -> Alternative:
    if terms is None:
        return Alternative(*pair, None, None, None, None, "cannot reach this goal or does not apply")
    note = ""
    if terms.margin >= SAYS_NOTHING:
        note = "says nothing: wider than half the range"
    elif pair == chosen:
        note = "this plan"
    elif GUARANTEES[pair[0]].planning.reads_all_rows:
        note = "reads all rows; used only if chosen by name"
    asked = terms.queries or terms.flips or None
    return Alternative(*pair, terms.rows, asked, terms.margin, terms.rows_per_query, note)


def _full_scan(terms: Terms) -> Alternative:
    if terms.flips:
        return Alternative(*FULL_SCAN, None, None, None, None, "does not apply")
    margin = full_scan_margin(terms.rows, terms.queries, 1 - terms.confidence)
    note = "no promise: right only if no question depends on an answer"
    return Alternative(*FULL_SCAN, terms.rows, terms.queries, margin, terms.rows, note)
