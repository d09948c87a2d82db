"""holdfast: ask one table thousands of questions, each chosen after the last answer, and stay true to the population.

>>> import holdfast as hf
>>> hf.plan(rows=1_000_000, queries=10_000).accuracy < 0.04
True
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.answer import Answer, FlipsAnswer, HistogramAnswer, MinimumAnswer
    from holdfast.beginning import DefaultPlan
    from holdfast.budget import Budget, Quote
    from holdfast.errors import (
        BudgetExhausted,
        HoldfastError,
        InvalidArgument,
        InvalidQuery,
        LedgerDamaged,
        LedgerUnavailable,
        MissingExtra,
        NotAllowed,
        NotSignedIn,
        PlanConflict,
        PlanInfeasible,
        QuotaExhausted,
        RowSourceError,
        ServiceUnavailable,
        TooManyRequests,
        UnknownName,
    )
    from holdfast.lab import attack
    from holdfast.ledger import Receipt, check_receipt, open_ledger
    from holdfast.optimize import losses
    from holdfast.planning import Plan, plan
    from holdfast.rows.open import open_rows as open
    from holdfast.service.client import connect, connect_async
    from holdfast.session import Session

__version__ = version("holdfast")

# Names are loaded when first used: `import holdfast` stays light.
_HOMES = {
    "Answer": "answer",
    "FlipsAnswer": "answer",
    "HistogramAnswer": "answer",
    "MinimumAnswer": "answer",
    "Budget": "budget",
    "Quote": "budget",
    "connect": "service.client",
    "connect_async": "service.client",
    "BudgetExhausted": "errors",
    "HoldfastError": "errors",
    "InvalidArgument": "errors",
    "InvalidQuery": "errors",
    "LedgerDamaged": "errors",
    "LedgerUnavailable": "errors",
    "MissingExtra": "errors",
    "NotAllowed": "errors",
    "NotSignedIn": "errors",
    "PlanConflict": "errors",
    "PlanInfeasible": "errors",
    "QuotaExhausted": "errors",
    "RowSourceError": "errors",
    "ServiceUnavailable": "errors",
    "TooManyRequests": "errors",
    "UnknownName": "errors",
    "attack": "lab",
    "Receipt": "ledger",
    "check_receipt": "ledger",
    "open_ledger": "ledger",
    "losses": "optimize",
    "Plan": "planning",
    "plan": "planning",
    "open": "rows.open:open_rows",
    "DefaultPlan": "beginning",
    "Session": "session",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    module, _, alias = home.partition(":")
    value = getattr(import_module(f"holdfast.{module}"), alias or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "Answer",
    "Budget",
    "BudgetExhausted",
    "DefaultPlan",
    "FlipsAnswer",
    "HistogramAnswer",
    "HoldfastError",
    "InvalidArgument",
    "InvalidQuery",
    "LedgerDamaged",
    "LedgerUnavailable",
    "MinimumAnswer",
    "MissingExtra",
    "NotAllowed",
    "NotSignedIn",
    "Plan",
    "PlanConflict",
    "PlanInfeasible",
    "QuotaExhausted",
    "Quote",
    "Receipt",
    "RowSourceError",
    "ServiceUnavailable",
    "Session",
    "TooManyRequests",
    "UnknownName",
    "__version__",
    "attack",
    "check_receipt",
    "connect",
    "connect_async",
    "losses",
    "open",
    "open_ledger",
    "plan",
]
