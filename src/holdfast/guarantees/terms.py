"""The goal of a plan, and the terms that it becomes: typed numbers, fixed before the first question.

Terms are recorded in a ledger's first entry under the guarantee's name and version, and read back from there. `Fits` is
what a guarantee promises about fits of models under its terms.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from math import ceil, isfinite
from types import UnionType
from typing import Any, NamedTuple, Protocol, Self, TypeVar, get_args, get_origin, get_type_hints

from holdfast.cached import cached_property
from holdfast.errors import PlanConflict

# About how long an answer takes, in milliseconds: columns in memory, a question about one of them, two cores of 2024.
_ANY, DRAWN_ROW, SCANNED_ROW = 0.3, 4e-5, 1e-6
RARE = (0, 1, 10, 100)  # numbers of further wrong guesses, or better submissions, that a budget looks ahead
ONE_IN = 100  # one in so many, a budget supposes, is one of these: which one it was reveals something, too
NO_CAP = 2**62  # the most a ledger can count: the only limit of a session that goes on
JSON = str | int | float | bool | None | list["JSON"] | dict[str, "JSON"]
OfTerms = TypeVar("OfTerms", bound="Terms")


class Amounts(Protocol):
    """What questions have taken so far, as a ledger counts it."""

    @property
    def charge(self) -> int:
        """In the guarantee's own units."""

    @property
    def intervals(self) -> int:
        """Statements about the population."""


class AnsweredAmounts(Amounts, Protocol):
    """What the questions that were answered took, and how many intervals the others did."""

    @property
    def failed(self) -> int:
        """Of questions that gave no answer."""

    @property
    def under_way(self) -> int:
        """Of questions that may still give one."""


class PlainAmounts(NamedTuple):
    """Such amounts, where no ledger has counted them."""

    charge: int = 0
    intervals: int = 0
    failed: int = 0
    under_way: int = 0


NOTHING = PlainAmounts()


def counts_in(amount: int, *sizes: int) -> tuple[int, ...]:
    """Return the counts that one amount of a ledger holds, one more than there are `sizes`; the last has no limit.

    A ledger adds up two amounts, charge and intervals, and nothing else. A guarantee whose intervals depend on more
    (how many guesses were wrong, how far a board has climbed, what two drawers have spent) writes several counts into
    one amount, like digits: the first counts single units, the second units of the first size, and so on. Amounts add
    up, so the counts do, too, as long as each stays below its size; every guarantee says why its counts do. Which sizes
    it uses is part of a ledger's format: `Checks`, `Drawers` and `Ladder` never change theirs.

    >>> counts_in(3 + 10 * 2 + 10 * 7 * 5, 10, 7)
    (3, 2, 5)
    """
    counts = []
    for size in sizes:
        amount, count = divmod(amount, size)
        counts.append(count)
    return *counts, amount


@dataclass(frozen=True)
class Goal:
    """The goal of a plan: n rows, k answers with an interval, all of them true with probability `confidence`.

    `queries` 0, without flips, asks for a session that never ends; `ends` False for one that goes on after its plan.
    """

    rows: int
    queries: int
    confidence: float
    rows_per_query: int | None = None
    flips: int = 0  # single flips (sampling counting queries) beside the answers
    ends: bool = True
    identical: bool = False  # whether rows are identically distributed, not only independent

    @property
    def beta(self) -> float:
        """The failure probability."""
        return 1 - self.confidence

    @property
    def statements(self) -> int:
        """How many statements about the population must hold at once: the k of the theorems."""
        return self.queries + self.flips

    def met_by(
        self, terms: type[OfTerms], mechanism: str, *, margin: float, **own: float | int | tuple[float, ...] | None
    ) -> OfTerms:
        """Return `terms` for this goal; `own` has rows_per_query, charge and the fields that the class adds."""
        names = ("rows", "queries", "flips", "confidence", "ends", "identical")
        shared: dict[str, Any] = {name: getattr(self, name) for name in names}
        return terms(**(shared | own), mechanism=mechanism, margin=min(1.0, margin))


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Numbers fixed before the first question; every guarantee adds its own.

    Parameters
    ----------
    rows, queries, flips
        Rows of the dataset; answers with an interval, and single flips, that are planned for (none: a session without
        an end).
    confidence
        The probability that all intervals hold at once.
    margin
        The most by which the answer to a share differs from the population's: every planned answer, or the first one.
    rows_per_query
        The most rows that one answer reads.
    charge
        What the planned answers may take together, in the guarantee's own units.
    mechanism
        The mechanism that answers.
    ends
        Whether questions beyond the plan are refused.
    identical
        Whether rows are taken to be identically distributed, not only independent.
    """

    rows: int
    queries: int
    flips: int
    confidence: float
    margin: float
    rows_per_query: int
    charge: int
    mechanism: str
    ends: bool
    identical: bool

    @cached_property
    def population(self) -> str:
        """What answers are about."""
        return "the distribution of every row" if self.identical else "the average of the rows' distributions"

    @property
    def all_rows(self) -> int:
        """Rows of the dataset, including those that only check guesses."""
        return self.rows

    @property
    def account(self) -> int:
        """A charge modulo this counts draws from `rows`; the rest of the charge belongs to another account."""
        return 2 * NO_CAP

    @cached_property
    def statements(self) -> int:
        """How many statements hold at once: intervals and single flips."""
        return self.queries + self.flips

    @cached_property
    def answers(self) -> int:
        """How many ordinary answers the plan pays for in all: those planned, and those paid for by unused flips."""
        return self.answers_left(0, 0)

    def answers_left(self, charge: int, intervals: int) -> int:
        """Return how many ordinary answers the plan can still pay for when this much is spent."""
        return max(0, min(self.statements - intervals, (self.charge - charge) // self.charge_per_answer))

    def cost_in_answers(self, spent: Amounts, cost: Amounts) -> int:
        """Return by how much a question of this cost lowers the number of answers left; beyond the plan, its worth."""
        charge, intervals = spent.charge + cost.charge, spent.intervals + cost.intervals
        if charge > self.charge or intervals > self.statements:
            return self.worth(cost.charge, cost.intervals)
        return self.answers_left(spent.charge, spent.intervals) - self.answers_left(charge, intervals)

    def worth(self, charge: int, intervals: int) -> int:
        """Return how many ordinary answers cost as much."""
        return max(intervals, ceil(charge / self.charge_per_answer))

    @cached_property
    def charge_per_answer(self) -> int:
        """What one ordinary answer, a share at the planned margin, takes of `charge`."""
        return max(1, self.rows_per_query)

    def to_json(self) -> dict[str, JSON]:
        """Return the terms as JSON values; an infinite number becomes null."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: list(x) if isinstance(x, tuple) else None if isinstance(x, float) and not isfinite(x) else x
            for name, x in values.items()
        }

    @classmethod
    def from_json(cls, values: Mapping[str, JSON]) -> Self:
        """Read what `to_json` wrote; anything missing, unknown or of another type is refused by name."""
        hints = get_type_hints(cls)
        read: dict[str, Any] = {}
        names = {field.name: field.default is MISSING for field in fields(cls)}
        for name in sorted(names.keys() | values.keys()):
            if name not in names:
                raise PlanConflict(f"The terms hold {name!r}, which this version does not know.", name=name)
            if name not in values:
                if names[name]:
                    raise PlanConflict(f"The terms lack {name!r}.", name=name)
                continue
            allowed = get_args(hints[name]) if isinstance(hints[name], UnionType) else (hints[name],)
            value: Any = values[name]
            if get_origin(hints[name]) is tuple and isinstance(value, list):
                allowed, value = (tuple,), tuple(map(_number, value))
            if type(value) is int and int not in allowed and float in allowed:
                value = float(value)  # JSON writes 1.0 as 1 in other languages
            if type(value) not in allowed:
                raise PlanConflict(f"The terms say {name} is {value!r}, which is of the wrong type.", name=name)
            read[name] = value
        return cls(**read)


ENDLESS = 2**31  # checks, or submissions: more than anybody will send


class EndlessTerms(Terms):
    """Terms that pay for any number of questions of their kind, which are not paid for in answers."""

    def answers_left(self, charge: int, intervals: int) -> int:
        """They never run out."""
        return ENDLESS

    def worth(self, charge: int, intervals: int) -> int:
        """No answers."""
        return 0


@dataclass(frozen=True)
class Reading:
    """One way to answer the same questions, at one pace.

    Parameters
    ----------
    way
        Its name, which the guarantee gives that offers it.
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

    @classmethod
    def of(cls, way: str, rows_per_query: int, margin: float, note: str, *, row: float = DRAWN_ROW) -> "Reading":
        """Return a way at a pace that is not named yet; a `row` takes this long, in milliseconds."""
        return cls(way, "", rows_per_query, _ANY + rows_per_query * row, margin, note)


class ExcessBound(Protocol):
    """A bound on the population's excess loss that holds with all intervals; None: no such promise."""

    def __call__(self, on_rows: float, *, R: float, lipschitz: float, curvature: float) -> float | None:
        """Return the bound, from one on the rows.

        R is the most by which a row's loss can differ between two points; `lipschitz` bounds the gradient of a row's
        loss, `curvature` is its strong convexity.
        """


@dataclass(frozen=True)
class Fits:
    """What a guarantee promises about fits of models; by default nothing.

    Parameters
    ----------
    mechanisms
        Those that a fit may use.
    level
        The failure probability that a statement other than an interval may use; None: no such statements.
    excess
        Returns a bound on the excess loss.
    expected_step
        Returns how much more excess loss the population may show, in expectation, if a row's loss can differ by at most
        R between two points; None: no such promise.
    """

    mechanisms: tuple[str, ...] = ()
    level: float | None = None
    excess: ExcessBound = lambda on_rows, *, R, lipschitz, curvature: None
    expected_step: Callable[[float], float | None] = lambda R: None


def _number(value: JSON) -> float:
    if type(value) not in (int, float):
        raise PlanConflict(f"The terms hold {value!r} where a number belongs.")
    return float(value)  # type: ignore[arg-type]
