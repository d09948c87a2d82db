"""Everything holdfast refuses, and how.

    HoldfastError
    ├── InvalidArgument (ValueError)      an argument breaks its rule
    │   └── InvalidQuery                  a query that may not be asked, decided from the schema alone
    ├── UnknownName (KeyError)            no such column, dataset, ...
    ├── PlanInfeasible                    no plan reaches the goal; says what is possible
    ├── PlanConflict                      the request conflicts with the ledger's plan
    │   └── NotCovered                    the plan's guarantee does not cover what is asked
    ├── BudgetExhausted                   the answer costs more than is left
    │   └── QuotaExhausted                one analyst's quota is used up
    ├── EvaluationFailed                  something unexpected happened after rows were read
    ├── RowSourceError (OSError)          the data cannot be read, or has changed
    ├── LedgerDamaged                     the ledger contradicts itself
    ├── LedgerUnavailable (OSError)       the ledger cannot be reached or is busy
    ├── MissingExtra (ImportError)        an optional package is not installed
    ├── NotSignedIn (PermissionError)     no token, or an unknown one
    ├── NotAllowed (PermissionError)      the token does not permit this
    ├── TooManyRequests                   faster than the server allows
    └── ServiceUnavailable (ConnectionError)  the server cannot be reached, or gave up waiting

An error says the fact, then the way out. It may quote what the caller said, never what the data said. Every
class has a `kind` (a word for programs), an HTTP `status` and an `exit_code`; facts travel as `fields`, so that
nobody has to parse the sentence. As JSON, every error has one shape, which `error_json` builds.
"""

import json
from collections.abc import Mapping
from typing import Any, ClassVar


def error_json(message: str, *, kind: str, status: int, details: Mapping[str, object]) -> dict[str, Any]:
    """Return the one JSON shape of an error: ok (false), error, kind, status, details.

    The result is valid JSON and UTF-8, whatever the caller sent.
    """
    plain = json.loads(json.dumps(dict(details), default=str))
    readable = message.encode("utf-8", "backslashreplace").decode("utf-8")
    return {"ok": False, "error": readable, "kind": kind, "status": status, "details": plain}


class HoldfastError(Exception):
    """Base of every error this package raises on purpose.

    Parameters
    ----------
    message
        What happened and what to do, for people.
    **fields
        The same facts for programs, such as `name` or `cost`.
    """

    kind: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init_subclass__(cls, *, kind: str = "", status: int = 0, exit_code: int = 0) -> None:
        super().__init_subclass__()
        cls.kind, cls.status, cls.exit_code = kind or cls.kind, status or cls.status, exit_code or cls.exit_code

    def __init__(self, message: str, **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.fields: dict[str, Any] = fields

    def __str__(self) -> str:  # KeyError would print a repr
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:  # keep the fields across processes
        return _rebuild, (type(self), self.message, self.fields)

    def to_dict(self) -> dict[str, Any]:
        """Return the error as JSON values: ok (false), error, kind, status, details."""
        return error_json(self.message, kind=self.kind, status=self.status, details=self.fields)


def _rebuild(cls: type[HoldfastError], message: str, fields: dict[str, Any]) -> HoldfastError:
    return cls(message, **fields)


class InvalidArgument(HoldfastError, ValueError, kind="invalid_argument", status=422, exit_code=2):
    """An argument breaks its rule."""


class InvalidQuery(InvalidArgument, kind="invalid_query"):
    """A query that may not be asked; decided from the schema alone, before any row is read."""


class UnknownName(HoldfastError, KeyError, kind="unknown_name", status=404, exit_code=3):
    """A column, category or dataset that does not exist."""


class PlanInfeasible(HoldfastError, kind="plan_infeasible", status=422, exit_code=4):
    """No plan reaches the goal."""


class PlanConflict(HoldfastError, kind="plan_conflict", status=409, exit_code=5):
    """The request conflicts with the ledger's plan."""


class NotCovered(PlanConflict, kind="not_covered", status=422, exit_code=17):
    """The guarantee of this session does not cover what is asked. Field: `guarantee`."""


class BudgetExhausted(HoldfastError, kind="budget_exhausted", status=409, exit_code=6):
    """The answer costs more than is left. Fields: `cost`, `left`, `total`, `unit`."""


class EvaluationFailed(HoldfastError, kind="evaluation_failed", status=500, exit_code=16):
    """Something nobody expected happened after rows were read. The message is always the same: it may not tell more."""


class RowSourceError(HoldfastError, OSError, kind="row_source", status=503, exit_code=7):
    """The data cannot be read, holds an unsupported type, or has changed."""


class LedgerDamaged(HoldfastError, kind="ledger_damaged", status=503, exit_code=8):
    """The ledger contradicts itself."""


class LedgerUnavailable(HoldfastError, OSError, kind="ledger_unavailable", status=503, exit_code=9):
    """The ledger cannot be reached, or stayed busy for too long."""


class MissingExtra(HoldfastError, ImportError, kind="missing_extra", status=501, exit_code=10):
    """An optional package is not installed."""


class QuotaExhausted(BudgetExhausted, kind="quota_exhausted", exit_code=11):
    """The budget could pay, but this analyst's quota cannot. Fields: `cost`, `left`, `total`, `unit`."""


class NotSignedIn(HoldfastError, PermissionError, kind="not_signed_in", status=401, exit_code=12):
    """No token was given, or one that is unknown, revoked or expired."""


class NotAllowed(HoldfastError, PermissionError, kind="not_allowed", status=403, exit_code=13):
    """The token is valid, but does not permit this."""


class TooManyRequests(HoldfastError, kind="too_many_requests", status=429, exit_code=14):
    """Requests come faster than the server allows. Field: `retry_after`, in seconds."""


class ServiceUnavailable(HoldfastError, ConnectionError, kind="service_unavailable", status=503, exit_code=15):
    """The server cannot be reached, is closing, or gave up waiting."""
