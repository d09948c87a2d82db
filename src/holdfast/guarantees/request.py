"""What the caller of a session said about its plan: a plan is made from it, or compared with the one that stands."""

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast import check
from holdfast.errors import InvalidArgument, PlanConflict
from holdfast.guarantees.compare import BEST, RowsPerQuery, check_pace
from holdfast.guarantees.drawers import beside_checks, coins_confidence
from holdfast.guarantees.plan import Plan
from holdfast.guarantees.solve import DEFAULT_CONFIDENCE, Queries, check_options, count_queries, plan

INDEPENDENT, IDENTICAL = ROWS_ARE = ("independent", "identical")


@dataclass(frozen=True)
class PlanRequest:
    """What the caller of a session said about its plan; None and "best" mean: whatever stands."""

    queries: Queries | None = None
    margin: float | None = None
    confidence: float | None = None
    guarantee: str = BEST
    mechanism: str = BEST
    rows_per_query: RowsPerQuery | None = None
    end: bool = False
    rows: str | None = None  # independent, or identical
    checks: float | None = None  # the share of rows that check guesses

    def __post_init__(self) -> None:
        check_pace(self.rows_per_query)
        if self.queries is not None and self.margin is not None:
            raise InvalidArgument("Give queries or margin, not both: the other follows from the rows.")
        if self.rows is not None:
            check.one_of("rows", self.rows, ROWS_ARE)
        if self.checks is not None:
            check.probability(checks=self.checks)
        check_options(self.queries, self.margin, self.confidence, self.guarantee, self.mechanism)

    def kept(self, rows: int) -> int:
        """Return how many of so many rows check guesses."""
        kept = 0 if self.checks is None else round(self.checks * rows)
        if self.checks is not None and not 2 <= kept <= rows - 2:
            raise InvalidArgument(
                f"checks must leave two rows to check on and two to ask; {self.checks:g} of {rows:,} rows does not.",
                name="checks",
            )
        return kept

    def make(self, rows: int) -> Plan:
        """Return the plan of a new ledger."""
        if self.checks is None:
            return self._make(rows, self.confidence)
        kept, confidence = self.kept(rows), DEFAULT_CONFIDENCE if self.confidence is None else self.confidence
        coins = self._make(rows - kept, coins_confidence(confidence))
        return Plan(beside_checks(coins.standing, kept, confidence))

    def _make(self, rows: int, confidence: float | None) -> Plan:
        return plan(
            rows=rows,
            queries=self.queries,
            margin=self.margin,
            confidence=confidence,
            rows_per_query=self.rows_per_query,
            guarantee=self.guarantee,
            mechanism=self.mechanism,
            end=self.end,
            identical=None if self.rows is None else self.rows == IDENTICAL,
        )

    def must_match(self, standing: Plan, location: str) -> None:
        """Refuse a plan that contradicts the ledger's, naming the one that stands."""
        queries, flips = count_queries(self.queries)
        each, most = check_pace(self.rows_per_query)
        asked = {
            "queries": (queries, "none" if standing.endless else standing.queries),
            "flips": (flips if isinstance(self.queries, Mapping) else None, standing.flips),
            "confidence": (self.confidence, standing.confidence),
            "rows_per_query": (each, standing.rows_per_query),
            "guarantee": (None if self.guarantee == BEST else self.guarantee, standing.guarantee),
            "mechanism": (None if self.mechanism == BEST else self.mechanism, standing.mechanism),
            "end": (self.end or None, standing.terms.ends),
            "rows": (self.rows, IDENTICAL if standing.terms.identical else INDEPENDENT),
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
                f"The ledger {location} has another plan than was asked for ({named}): {standing.sentence}"
                " Leave the plan out to continue under it.",
                standing=standing.to_dict(),
                asked={name: given for name, (given, _) in apart.items()},
                differs=list(apart),
            )
