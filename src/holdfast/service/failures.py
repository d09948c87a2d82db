"""The one shape of every refusal: {"ok": false, "error": ..., "kind": ..., "status": ..., "details": {...}}."""

import json
from collections.abc import Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from holdfast.errors import HoldfastError

# Refusals of the protocol itself, before anything of ours is reached.
_KINDS = {
    400: ("bad_request", "The request cannot be read. Send JSON, encoded as UTF-8."),
    404: ("not_found", "There is nothing at this address. The API is described at /api/v1/openapi.json."),
    405: ("method_not_allowed", "This address does not take this method."),
    406: ("not_acceptable", "This address has JSON and HTML only."),
    408: ("too_slow", "The request took too long to arrive. Send it again, faster."),
    413: ("too_large", "The request is too large. Send less at a time."),
    415: ("unsupported_media_type", "The request must be JSON: Content-Type: application/json."),
    500: ("internal", "Something went wrong on our side; what was answered is in the ledger. Try again."),
}


class Failure(Exception):
    """A refusal of the protocol, by status."""

    def __init__(self, status: int, **details: Any) -> None:
        super().__init__(status)
        self.status, self.details = status, details


def shape(error: BaseException) -> dict[str, Any]:
    """Return what is said about an error; what we did not foresee is said in general words only."""
    if isinstance(error, HoldfastError):
        return _shape(error.message, error.kind, error.status, error.fields)
    if isinstance(error, RequestValidationError):
        return _validation(error)
    if isinstance(error, Failure):
        kind, words = _KINDS[error.status]
        return _shape(words, kind, error.status, error.details)
    if isinstance(error, HTTPException):
        kind, words = _KINDS.get(error.status_code, ("http", str(error.detail)))
        return _shape(words, kind, error.status_code, {})
    kind, words = _KINDS[500]
    return _shape(words, kind, 500, {})


def headers(error: BaseException) -> dict[str, str]:
    """Return the headers a refusal carries."""
    said = shape(error)
    if said["status"] == 401:
        return {"WWW-Authenticate": 'Bearer realm="holdfast"'}
    if said["status"] == 429:
        return {"Retry-After": str(max(1, round(said["details"].get("retry_after", 1))))}
    if isinstance(error, HTTPException) and error.headers:
        return dict(error.headers)
    return {}


def _shape(message: str, kind: str, status: int, details: Mapping[str, Any]) -> dict[str, Any]:
    """Keep to what JSON and UTF-8 can say, whatever the caller sent."""
    plain = json.loads(json.dumps(dict(details), default=str))
    readable = message.encode("utf-8", "backslashreplace").decode("utf-8")
    return {"ok": False, "error": readable, "kind": kind, "status": status, "details": plain}


def _validation(error: RequestValidationError) -> dict[str, Any]:
    """Word what does not fit the declared shapes; the caller's values are not sent back."""
    problems = [
        {"where": ".".join(map(str, one["loc"])), "problem": str(one["msg"]).replace("Input should be", "must be")}
        for one in error.errors()[:10]
    ]
    first = problems[0] if problems else {"where": "request", "problem": "is not as declared"}
    message = f"{first['where']}: {first['problem']}. The API is described at /api/v1/openapi.json."
    return _shape(message, "invalid_argument", 422, {"problems": problems})
