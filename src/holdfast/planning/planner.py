"""`plan`: leave out rows, queries or accuracy, and it is solved for, by every guarantee that applies."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import ceil, log
from typing import Any

from holdfast import check
from holdfast.errors import InvalidArgument, PlanInfeasible
from holdfast.guarantees.mathematics.search import largest, smallest
from holdfast.planning.present import plan_html, plan_text
from holdfast.planning.strategies import MOST_ROWS, STRATEGIES, Goal, Numbers

GUARANTEES = ("best", "posterior", "information", "dp", "paper", "split")
MECHANISMS = ("best", "coins", "laplace")
MOST_QUERIES = 10**12


@dataclass(frozen=True)
class Alternative:
    """One guarantee and mechanism: what it would need or reach. `None` accuracy: it does not apply here."""

    guarantee: str
    mechanism: str
    rows: int | None
    queries: int | None
    accuracy: float | None
    rows_per_query: int | None
    note: str = ""


@dataclass(frozen=True)
class Plan:
    """Numbers fixed before the first question. Prints as a table; `alternatives` has every guarantee."""

    rows: int
    queries: int
    accuracy: float
    confidence: float
    rows_per_query: int
    flips: int
    flip_probability: float
    guarantee: str
    mechanism: str
    sampling_queries: int = 0
    constants: Mapping[str, float] = field(default_factory=dict, repr=False)
    alternatives: tuple[Alternative, ...] = field(default=(), repr=False, compare=False)

    @property
    def statements(self) -> int:
        """How many statements hold at once: intervals and sampling counting queries."""
        return self.queries + self.sampling_queries

    @property
    def vacuous(self) -> bool:
        """Whether the promise is too wide to say anything."""
        return self.accuracy >= 0.5

    def to_dict(self) -> dict[str, Any]:
        """Return the plan, without alternatives, as JSON-ready values."""
        terms = asdict(self)
        del terms["alternatives"]
        terms["constants"] = {name: value for name, value in self.constants.items() if value < float("inf")}
        return terms

    @classmethod
    def from_dict(cls, terms: Mapping[str, Any]) -> "Plan":
        """Rebuild a plan from `to_dict`."""
        known = {name: terms[name] for name in cls.__dataclass_fields__ if name in terms}
        return cls(**known)

    def __str__(self) -> str:
        return plan_text(self)

    def _repr_html_(self) -> str:
        return plan_html(self)


def plan(
    *,
    rows: int | None = None,
    queries: int | Mapping[str, int] | None = None,
    accuracy: float | None = None,
    confidence: float = 0.95,
    rows_per_query: int | None = None,
    guarantee: str = "best",
    mechanism: str = "best",
) -> Plan:
    """Say what is possible: leave out one of `rows`, `queries`, `accuracy`, and it is solved for.

    `accuracy` is the largest distance between an answer and the population's value, for answers in [0, 1] (others
    scale with their bounds), all answers at once with probability `confidence`. `queries` may also name kinds:
    `{"mean": 500, "flip": 10_000}`; flips are sampling counting queries, which the information guarantee covers.

    >>> p = plan(rows=1_000_000, queries=10_000)
    >>> p.guarantee, p.accuracy < 0.04
    ('posterior', True)
    """
    ask = _checked(rows, queries, accuracy, confidence, rows_per_query, guarantee, mechanism)
    solved: dict[tuple[str, str], tuple[Goal, Numbers]] = {}
    for pair in STRATEGIES:
        found = _solve(pair, ask)
        if found is not None:
            solved[pair] = found
    chosen = _choose(solved, ask)
    goal, numbers = solved[chosen]
    return Plan(
        rows=goal.rows,
        queries=goal.queries,
        accuracy=numbers.accuracy,
        confidence=float(confidence),
        rows_per_query=numbers.rows_per_query,
        flips=numbers.flips,
        flip_probability=numbers.flip_probability,
        guarantee=chosen[0],
        mechanism=chosen[1],
        sampling_queries=goal.sampling,
        constants=dict(numbers.constants),
        alternatives=tuple(_alternative(pair, solved.get(pair), chosen) for pair in STRATEGIES),
    )


@dataclass(frozen=True)
class _Ask:
    rows: int | None
    queries: int | None
    accuracy: float | None
    beta: float
    rows_per_query: int | None
    sampling: int
    guarantee: str
    mechanism: str

    def goal(self, *, rows: int, queries: int) -> Goal:
        return Goal(rows, queries, self.beta, self.rows_per_query, self.sampling)


def _checked(
    rows: int | None,
    queries: int | Mapping[str, int] | None,
    accuracy: float | None,
    confidence: float,
    rows_per_query: int | None,
    guarantee: str,
    mechanism: str,
) -> _Ask:
    check.probability(confidence=confidence)
    check.one_of("guarantee", guarantee, GUARANTEES)
    check.one_of("mechanism", mechanism, MECHANISMS)
    given = {"rows": rows, "queries": queries, "accuracy": accuracy}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) != 1:
        said = ", ".join(name for name in given if name not in missing) or "none of them"
        raise InvalidArgument(
            f"Give exactly two of rows, queries and accuracy; got {said}. The one left out is solved for."
        )
    sampling = 0
    if isinstance(queries, Mapping):
        unknown = sorted(set(queries) - {"mean", "flip"})
        if unknown or not queries:
            raise InvalidArgument(f"queries must name kinds 'mean' and 'flip'; got {unknown or 'nothing'}.")
        for kind, count in queries.items():
            check.whole(0, **{f"queries[{kind!r}]": count})
        sampling = int(queries.get("flip", 0))
        queries = int(queries.get("mean", 0))
        check.whole(1, queries=queries + sampling)
    elif queries is not None:
        check.whole(queries=queries)
        queries = int(queries)
    if queries is not None:
        check.at_most("the most this planner handles", MOST_QUERIES, queries=queries + sampling)
    if rows is not None:
        check.whole(2, rows=rows)
        check.at_most("the most this planner handles", MOST_ROWS, rows=rows)
    if accuracy is not None:
        check.probability(accuracy=accuracy)
    if rows_per_query is not None:
        check.whole(rows_per_query=rows_per_query)
        if rows is not None:
            check.at_most("rows", rows, rows_per_query=rows_per_query)
    return _Ask(
        rows=None if rows is None else int(rows),
        queries=queries,
        accuracy=accuracy,
        beta=1 - float(confidence),
        rows_per_query=None if rows_per_query is None else int(rows_per_query),
        sampling=sampling,
        guarantee=guarantee,
        mechanism=mechanism,
    )


def _solve(pair: tuple[str, str], ask: _Ask) -> tuple[Goal, Numbers] | None:
    """Solve for what was left out; None where this guarantee cannot reach the goal or does not apply."""
    strategy = STRATEGIES[pair]

    def excess(rows: int, queries: int) -> float:
        """log(accuracy/goal): zero or below when the goal is met."""
        numbers = strategy(ask.goal(rows=rows, queries=queries))
        return log((1.0 if numbers is None else numbers.accuracy) / (ask.accuracy or 1.0))

    rows, queries = ask.rows, ask.queries
    if queries is not None and rows is None:
        given_queries, least = queries, max(2, ask.rows_per_query or 2)
        rows = smallest(lambda n: excess(n, given_queries), low=least, high=MOST_ROWS)
    elif rows is not None and queries is None:
        given_rows = rows
        queries = largest(lambda k: excess(given_rows, k), low=1, high=MOST_QUERIES)
    if rows is None or queries is None:
        return None
    goal = ask.goal(rows=rows, queries=queries)
    numbers = strategy(goal)
    return None if numbers is None else (goal, numbers)


def _choose(solved: Mapping[tuple[str, str], tuple[Goal, Numbers]], ask: _Ask) -> tuple[str, str]:
    allowed = {
        pair: found
        for pair, found in solved.items()
        if pair[0] != "naive" and ask.guarantee in ("best", pair[0]) and (ask.mechanism in ("best", pair[1]))
    }
    if not allowed:
        raise _infeasible(ask)
    if ask.rows is None:
        return min(allowed, key=lambda pair: allowed[pair][0].rows)
    if ask.queries is None:
        return max(allowed, key=lambda pair: allowed[pair][0].queries)
    return min(allowed, key=lambda pair: allowed[pair][1].accuracy)


def _infeasible(ask: _Ask) -> PlanInfeasible:
    """Word the refusal, and say what the same rows do allow."""
    which = "No plan" if ask.guarantee == "best" else f"No plan under the {ask.guarantee} guarantee"
    if ask.mechanism != "best":
        which += f" with {ask.mechanism}"
    if ask.accuracy is None:
        kind = " and sampling counting queries" if ask.sampling else ""
        rows = ask.rows or 0
        return PlanInfeasible(
            f"{which} exists for {rows:,} rows{kind}; leave guarantee and mechanism at 'best', or bring more rows.",
            rows=rows,
        )
    if ask.rows is None:
        return PlanInfeasible(
            f"{which} reaches accuracy {ask.accuracy:g} for {ask.queries:,} queries with fewer than"
            f" {MOST_ROWS:.0e} rows; allow a larger error.",
            accuracy=ask.accuracy,
            queries=ask.queries,
        )
    relaxed = plan(
        rows=ask.rows,
        queries=1,
        confidence=1 - ask.beta,
        rows_per_query=ask.rows_per_query,
    )
    return PlanInfeasible(
        f"{which} reaches accuracy {ask.accuracy:g} on {ask.rows:,} rows, not even for one query;"
        f" {ask.rows:,} rows allow accuracy {_round_up(relaxed.accuracy)} for one query.",
        rows=ask.rows,
        accuracy=ask.accuracy,
        best_accuracy=relaxed.accuracy,
    )


def _round_up(x: float, digits: int = 4) -> float:
    return ceil(x * 10.0**digits) / 10.0**digits


def _alternative(pair: tuple[str, str], found: tuple[Goal, Numbers] | None, chosen: tuple[str, str]) -> Alternative:
    if found is None:
        return Alternative(*pair, None, None, None, None, "cannot reach this goal or does not apply")
    goal, numbers = found
    note = ""
    if pair[0] == "naive":
        note = "no guarantee: right only if no question depends on an answer"
    elif numbers.accuracy >= 0.5:
        note = "says nothing: wider than half the range"
    elif pair == chosen:
        note = "this plan"
    return Alternative(*pair, goal.rows, goal.queries or goal.sampling, numbers.accuracy, numbers.rows_per_query, note)
