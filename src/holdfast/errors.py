"""Everything holdfast refuses, and how.

    HoldfastError
    ├── InvalidArgument (ValueError)      an argument breaks its rule
    │   └── InvalidQuery                  a query that may not be asked, decided from the schema alone
    ├── UnknownName (KeyError)            no such column, dataset, ...
    ├── PlanInfeasible                    no plan reaches the goal; says what is possible
    ├── PlanConflict                      the request conflicts with the ledger's plan
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
    """Base of every error this package raises on purpose: a `message` for people, `fields` for programs."""

    kind: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

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


class InvalidArgument(HoldfastError, ValueError):
    """An argument breaks its rule."""

    kind = "invalid_argument"
    status = 422
    exit_code = 2


class InvalidQuery(InvalidArgument):
    """A query that may not be asked; decided from the schema alone, before any row is read."""

    kind = "invalid_query"


class UnknownName(HoldfastError, KeyError):
    """A column, category or dataset that does not exist."""

    kind = "unknown_name"
    status = 404
    exit_code = 3


class PlanInfeasible(HoldfastError):
    """No plan reaches the goal."""

    kind = "plan_infeasible"
    status = 422
    exit_code = 4


class PlanConflict(HoldfastError):
    """The request conflicts with the ledger's plan."""

    kind = "plan_conflict"
    status = 409
    exit_code = 5


class BudgetExhausted(HoldfastError):
    """The answer costs more than is left. Fields: `cost`, `left`, `total`, `unit`."""

    kind = "budget_exhausted"
    status = 409
    exit_code = 6


class EvaluationFailed(HoldfastError):
    """Something nobody expected happened after rows were read. The message is always the same: it may not tell more."""

    kind = "evaluation_failed"
    status = 500
    exit_code = 16


class RowSourceError(HoldfastError, OSError):
    """The data cannot be read, holds an unsupported type, or has changed."""

    kind = "row_source"
    status = 503
    exit_code = 7


class LedgerDamaged(HoldfastError):
    """The ledger contradicts itself."""

    kind = "ledger_damaged"
    status = 503
    exit_code = 8


class LedgerUnavailable(HoldfastError, OSError):
    """The ledger cannot be reached, or stayed busy for too long."""

    kind = "ledger_unavailable"
    status = 503
    exit_code = 9


class MissingExtra(HoldfastError, ImportError):
    """An optional package is not installed."""

    kind = "missing_extra"
    status = 501
    exit_code = 10


class QuotaExhausted(BudgetExhausted):
    """The budget could pay, but this analyst's quota cannot. Fields: `cost`, `left`, `total`, `unit`."""

    kind = "quota_exhausted"
    exit_code = 11


class NotSignedIn(HoldfastError, PermissionError):
    """No token was given, or one that is unknown, revoked or expired."""

    kind = "not_signed_in"
    status = 401
    exit_code = 12


class NotAllowed(HoldfastError, PermissionError):
    """The token is valid, but does not permit this."""

    kind = "not_allowed"
    status = 403
    exit_code = 13


class TooManyRequests(HoldfastError):
    """Requests come faster than the server allows. Field: `retry_after`, in seconds."""

    kind = "too_many_requests"
    status = 429
    exit_code = 14


class ServiceUnavailable(HoldfastError, ConnectionError):
    """The server cannot be reached, is closing, or gave up waiting."""

    kind = "service_unavailable"
    status = 503
    exit_code = 15
