"""How a session begins: the plan that is wanted, the one that stands, and where its ledger lies."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast import check
from holdfast.errors import InvalidArgument, PlanConflict
from holdfast.planning import GUARANTEES, MECHANISMS, Plan
from holdfast.planning import plan as make_plan
from holdfast.planning.present import sentence
from holdfast.randomness import Randomness

DEFAULT_QUERIES = 1_000


class DefaultPlan(UserWarning):
    """Said when a session begins without `queries` or `accuracy`, and so chose its own plan."""


class Wanted:
    """What the caller said about the plan; None and "best" mean: whatever stands."""

    def __init__(
        self,
        queries: int | Mapping[str, int] | None,
        accuracy: float | None,
        confidence: float | None,
        guarantee: str,
        mechanism: str,
    ) -> None:
        if queries is not None and accuracy is not None:
            raise InvalidArgument("Give queries or accuracy, not both: the other follows from the rows.")
        if queries is not None and not isinstance(queries, Mapping):
            check.whole(queries=queries)
        if accuracy is not None:
            check.probability(accuracy=accuracy)
        if confidence is not None:
            check.probability(confidence=confidence)
        check.one_of("guarantee", guarantee, GUARANTEES)
        check.one_of("mechanism", mechanism, MECHANISMS)
        self.queries, self.accuracy, self.confidence = queries, accuracy, confidence
        self.guarantee, self.mechanism = guarantee, mechanism

    def begin(self, rows: int, randomness: Randomness) -> Plan:
        """Make the plan of a new ledger."""
        queries, mechanism = self.queries, self.mechanism
        if self.guarantee == "paper" and mechanism == "best" and not isinstance(queries, Mapping):
            mechanism = "laplace"  # the paper's mechanism for statistical queries
        if queries is None and self.accuracy is None:
            queries = DEFAULT_QUERIES
        plan = make_plan(
            rows=rows,
            queries=queries,
            accuracy=self.accuracy,
            confidence=0.95 if self.confidence is None else self.confidence,
            guarantee=self.guarantee,
            mechanism=mechanism,
        )
        if plan.guarantee == "split":  # a secret-free but random order in which fresh rows are used up
            order = {"order": float(randomness.generator().integers(2**48))}
            plan = Plan.from_dict(plan.to_dict() | {"constants": dict(plan.constants) | order})
        if self.queries is None and self.accuracy is None:
            warnings.warn(
                f"No plan given, so this one stands: {sentence(plan)} Pass queries= or accuracy= to choose.",
                DefaultPlan,
                stacklevel=3,
            )
        return plan

    def must_match(self, standing: Plan, location: str) -> None:
        """Refuse a plan that contradicts the ledger's, naming the one that stands."""
        queries: Any = self.queries
        asked_flips: Any = None
        if isinstance(queries, Mapping):
            queries, asked_flips = queries.get("mean", 0), queries.get("flip", 0)
        asked = {
            "queries": (queries, standing.queries),
            "flips": (asked_flips, standing.sampling_queries),
            "confidence": (self.confidence, standing.confidence),
            "guarantee": (None if self.guarantee == "best" else self.guarantee, standing.guarantee),
            "mechanism": (None if self.mechanism == "best" else self.mechanism, standing.mechanism),
        }
        apart = [name for name, (wish, stands) in asked.items() if wish is not None and wish != stands]
        if self.accuracy is not None and self.accuracy < standing.accuracy:
            apart.append("accuracy")
        if apart:
            raise PlanConflict(
                f"The ledger {location} stands by another plan ({', '.join(apart)} differ): {sentence(standing)}"
                " Leave the plan out to continue under it.",
                standing=standing.to_dict(),
                differs=apart,
            )


def ledger_beside(rows: Any) -> Path | None:
    """Return where the ledger of data on disk lies; None for data in memory."""
    folder: Path | None = getattr(rows, "location", None)
    if folder is None:
        return None
    name = folder.name.removesuffix(".holdfast")
    return folder.with_name(f"{name}.ledger")
