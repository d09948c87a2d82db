"""What is left to ask, as a sentence."""

from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

from holdfast.ledger import Spent
from holdfast.planning import Plan
from holdfast.planning.present import error


@dataclass(frozen=True)
class Budget:
    """The one budget of a dataset, at this moment."""

    queries_total: int
    queries_left: int
    flips_total: int
    flips_spent: int
    answers: int
    accuracy: float
    unit: str = "flips"

    @classmethod
    def of(cls, plan: Plan, spent: Spent) -> "Budget":
        """Work out what is left of the plan: an answer needs an interval and its flips."""
        total = plan.queries or plan.sampling_queries
        left = min(total, plan.statements - spent.intervals)
        if plan.mechanism != "laplace":  # there flips and intervals are spent in step
            left = min(left, (plan.flips - spent.flips) // plan.rows_per_query)
        return cls(
            queries_total=total,
            queries_left=max(0, left),
            flips_total=plan.flips,
            flips_spent=spent.flips,
            answers=spent.answers,
            accuracy=plan.accuracy,
            unit="fresh rows" if plan.guarantee == "split" else "flips",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def __str__(self) -> str:
        return f"{self.queries_left:,} of {self.queries_total:,} answers left at {error(self.accuracy)}"

    __repr__ = __str__


@dataclass(frozen=True)
class Quote:
    """What a question would cost, and whether it was already paid for."""

    question: str
    flips: int
    queries: int
    rows_read: int
    accuracy: float | None
    cached: bool
    affordable: bool

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def __str__(self) -> str:
        if self.cached:
            return f"free: {self.question} was asked before"
        within = f", within ±{_rounded_up(self.accuracy)}" if self.accuracy is not None else ""
        plural = "answer" if self.queries == 1 else "answers"
        short = "" if self.affordable else "; more than is left"
        return f"{self.queries} {plural} of the budget, {self.rows_read:,} rows read{within}{short}: {self.question}"

    __repr__ = __str__


def _rounded_up(x: float) -> str:
    """Write three digits, never fewer than it is: a promise is not rounded in its own favour."""
    step = 10.0 ** (floor(log10(x)) - 2) if x > 0 else 1.0
    return f"{ceil(x / step - 1e-9) * step:.3g}"
