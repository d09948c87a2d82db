"""Errors over HTTP, in the one shape that `HoldfastError.to_dict` has.

API, pages, agent tools, middleware and the client use this module, so it needs no web framework.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.errors import (
    HoldfastError,
    InvalidArgument,
    LedgerDamaged,
    LedgerUnavailable,
    RowSourceError,
    ServiceUnavailable,
    error_json,
)

IN_API = "The API is described at /api/v1/openapi.json."
ALLOWED = "GET /api/v1/datasets lists those it allows."

# Errors of HTTP itself, raised before any route is reached.
_HTTP = {
    400: ("bad_request", "The request could not be read. Send JSON encoded as UTF-8."),
    404: ("not_found", f"There is nothing at this address. {IN_API}"),
    405: ("method_not_allowed", "This address does not support this method."),
    406: ("not_acceptable", "This address serves JSON and HTML only."),
    408: ("request_timeout", "The request took too long to arrive. Send it again."),
    413: ("too_large", "The request is too large. Send less at a time."),
    415: ("unsupported_media_type", "The request must be JSON: Content-Type: application/json."),
    421: ("misdirected", "This server does not answer to that host name. The admin can add it to `hosts`."),
    431: (
        "headers_too_large",
        "The first line and the headers of the request are too large. Send fewer and shorter ones.",
    ),
    499: ("caller_gone", "The caller has left."),
    500: ("internal", "Internal server error. Answers already given are safe in the ledger. Try again."),
}


# Problems behind the server. Their own messages name paths, users and hosts, so those go only to the log.
_BEHIND: dict[type[HoldfastError], str] = {
    RowSourceError: "The data of {dataset} cannot be read, or is not what it was, so nothing is answered from it.",
    LedgerDamaged: "The ledger of {dataset} is damaged, so nothing is answered from it.",
    LedgerUnavailable: "The ledger of {dataset} is out of reach or locked at the moment. Try again.",
}
_DECLARE = re.compile(r"To declare it once, open the session with (bounds|categories)=\{(.*?): .*\}\.")
# Ways out that only whoever serves the data has, in the words of the library, and as the admin is told.
_SERVED = {
    "Plan a session for them: queries={'flip': ...}, or {'mean': ..., 'flip': ...} for both, which runs under": (
        "The admin can plan for them: queries = { flip = 1000 }, or { mean = 100, flip = 1000 } for both, in the"
        " dataset's settings, which runs under"
    ),
    "Begin a session with checks=0.2, which keeps a fifth of the rows for checks; or keep rows aside with"
    " holdfast.hold_back(data), or open rows that were kept aside with guarantee='checks'.": (
        "The admin can keep a fifth of the rows for checks, before the first answer: checks = 0.2 in the dataset's"
        " settings; or serve the held part that holdfast hold-back makes."
    ),
    "Say which column names them where the data are opened: unit='patient'.": (
        'The admin can say which column names them: unit = "patient" in the dataset\'s settings.'
    ),
    "This session is not a board, so nothing can be submitted to it. Make one with holdfast.Board(labels).": (
        "This dataset is not a board, so nothing can be submitted to it. The admin can make one: holdfast board make"
        " LABELS."
    ),
    "Make a board with confusion=0.2, which keeps a fifth of its rows for that, and ask those.": (
        "The admin can make a board with holdfast board make LABELS --confusion 0.2, which keeps a fifth of its rows"
        " for that, and serve those."
    ),
    "such as within=(0, 100)": "such as 0, 100",
    "such as other_within=(0, 100)": "such as 0, 100",
    "This session runs under": "This dataset is served under",
    "This session checks guesses": "This dataset checks guesses",
}
_WHY = " The reason is in the server's log, for the admin."


class ProtocolError(Exception):
    """An error of HTTP itself, by status."""

    def __init__(
        self, status: int, *, message: str | None = None, headers: Mapping[str, str] | None = None, **details: Any
    ) -> None:
        super().__init__(status)
        self.kind, known = _HTTP.get(status, ("http", f"The request failed with HTTP status {status}."))
        self.message = known if message is None or status in _HTTP else message
        self.status, self.headers, self.details = status, dict(headers or {}), details


def error_payload(error: BaseException) -> dict[str, Any]:
    """Return the JSON of an error; the message of an unexpected error is withheld, because it might quote data."""
    sentence = _BEHIND.get(type(error))  # type: ignore[arg-type]
    if isinstance(error, HoldfastError) and sentence is not None:
        details = {name: value for name, value in error.fields.items() if name == "dataset"}
        message = sentence.format(dataset=details.get("dataset", "a dataset")) + _WHY
        return error_json(message, kind=error.kind, status=error.status, details=details)
    if isinstance(error, HoldfastError):
        way_out = r"The admin can declare it once, as \1 of \2, in a TOML file beside the data."
        message = _DECLARE.sub(way_out, error.message)
        for library, served in _SERVED.items():
            message = message.replace(library, served)
        return error_json(message, kind=error.kind, status=error.status, details=error.fields)
    known = error if isinstance(error, ProtocolError) else ProtocolError(500)
    return error_json(known.message, kind=known.kind, status=known.status, details=known.details)


class naming:  # noqa: N801  used like a function; every answer passes here, and a generator would be slower
    """Make errors name the dataset, and none of the places where it and its ledger are."""

    def __init__(self, dataset: str, *places: str) -> None:
        self._dataset, self._places = dataset, places

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, HoldfastError):
            return
        dataset, message = self._dataset, error.message
        if type(error) in _BEHIND:
            error.fields["dataset"] = dataset
        elif (
            isinstance(error, InvalidArgument)
            and error.fields.get("name") in ("ledger", "dataset")
            and "options" not in error.fields  # else the caller wrote the name: as an option that no question has
        ):
            # These rows have another ledger. The caller chose neither; their locations go only to the log.
            raise LedgerUnavailable(message, dataset=dataset) from error
        elif any(place in message for place in self._places):
            for place in sorted(self._places, key=len, reverse=True):
                message = message.replace(place, dataset)
            raise type(error)(message, **error.fields) from error


def error_headers(error: BaseException) -> dict[str, str]:
    """Return the HTTP headers an error carries."""
    payload = error_payload(error)
    if payload["status"] == 401:
        return {"WWW-Authenticate": 'Bearer realm="holdfast"'}
    if payload["status"] == 429:
        return {"Retry-After": str(max(1, round(payload["details"].get("retry_after", 1))))}
    return error.headers if isinstance(error, ProtocolError) else {}


def invalid_request(problems: Sequence[Any], described: str = IN_API) -> InvalidArgument:
    """Return the error for pydantic's `errors()`: where and what is wrong, without quoting the caller's values.

    `described` says where the caller finds what is expected.
    """
    worded = [
        {"where": ".".join(map(str, one["loc"])), "problem": str(one["msg"]).replace("Input should be", "must be")}
        for one in problems[:10]
    ]
    first = worded[0] if worded else {"where": "request", "problem": "is not as described"}
    message = f"{first['where']}: {first['problem']}. {described}"
    return InvalidArgument(message, problems=worded)


def unreachable(error: Exception) -> dict[str, Any]:
    """Return the error for a server that did not answer."""
    message = f"The server cannot be reached ({type(error).__name__}). Check that it is running, then try again."
    return error_payload(ServiceUnavailable(message))


def not_holdfast(status: int) -> dict[str, Any]:
    """Return the error for a response that no holdfast server wrote."""
    message = f"The server answered {status}, which is not a holdfast response. Check the address."
    return error_payload(ServiceUnavailable(message)) | {"status": status}
