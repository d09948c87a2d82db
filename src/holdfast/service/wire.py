"""What client and server say to each other, seen from the client: questions out, answers and refusals in."""

import random
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from holdfast.answer import Answer, AnyAnswer, FlipsAnswer, HistogramAnswer, MinimumAnswer
from holdfast.errors import HoldfastError, InvalidArgument, MissingExtra, ServiceUnavailable, UnknownName
from holdfast.history import SCHEMA
from holdfast.schema import Column, Schema, Type

if TYPE_CHECKING:
    import httpx
    import polars as pl

TRIES, FIRST_WAIT, LONGEST_WAIT = 6, 0.1, 5.0
AGAIN = (429, 502, 503, 504)  # worth another try


def needed_httpx() -> Any:
    """Return httpx, or say how to install it."""
    try:
        import httpx
    except ModuleNotFoundError as error:
        raise MissingExtra(
            "Asking a server needs httpx. Install it with: pip install 'holdfast[client]'.", extra="client"
        ) from error
    return httpx


def line_options(url: str, token: str, timeout: float) -> dict[str, Any]:
    """Check address and token; return what a client of httpx is made with."""
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise InvalidArgument(f"url must start with http:// or https://; got {url!r}.", name="url")
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
        raise InvalidArgument("token must be the text the keeper gave you; got something else.", name="token")
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
    return {"base_url": url.rstrip("/") + "/api/v1/", "headers": headers, "timeout": timeout}


def headers(key: str | None) -> dict[str, str]:
    """Return the headers of one request."""
    return {} if key is None else {"Idempotency-Key": key}


def path_of(dataset: str, what: str) -> str:
    """Return the address of something about a dataset."""
    return f"datasets/{quote(dataset, safe='')}/{what}"


def new_key() -> str:
    """Return an idempotency key."""
    return uuid.uuid4().hex


def question(kind: str, query: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Say a question in JSON. Only text and built-in losses travel: code stays where it was written."""
    said = {name: plain(value) for name, value in options.items() if value is not None}
    if kind == "minimize":
        from holdfast.optimize import named as named_losses

        return {"kind": kind, "loss": plain(named_losses.said(query))} | said
    for name, value in (("query", query), ("where", options.get("where"))):
        if not isinstance(value, str) and (name == "query" or value is not None):
            raise InvalidArgument(
                f"{name} must be text when a server is asked; got {type(value).__name__}. Expressions and functions"
                " work with a Session on the data itself.",
                name=name,
            )
    return {"kind": kind, "query": query} | said


def plain(value: Any) -> Any:
    """Turn tuples and NumPy values into what JSON knows."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def read(response: "httpx.Response") -> dict[str, Any]:
    """Return what the server said; something else at the address is a refusal too."""
    try:
        said = response.json()
    except ValueError:
        said = None
    if isinstance(said, dict) and "ok" in said:
        return said
    return {
        "ok": False,
        "error": f"The server answered {response.status_code}, not in our language. Check the address.",
        "kind": ServiceUnavailable.kind,
        "status": response.status_code,
        "details": {},
    }


def unreachable(error: Exception) -> dict[str, Any]:
    """Return the refusal of a server that did not answer."""
    said = f"The server cannot be reached ({type(error).__name__}). Check that it runs, then try again."
    return {"ok": False, "error": said, "kind": ServiceUnavailable.kind, "status": 503, "details": {}}


def wait_before(said: dict[str, Any], attempt: int) -> float | None:
    """Return how long to wait before sending it again; None if there is nothing to wait for."""
    if said["ok"] or said["status"] not in AGAIN or attempt >= TRIES:
        return None
    asked = float(said["details"].get("retry_after") or 0.0)
    return max(asked, min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** (attempt - 1)) * random.uniform(0.5, 1.0))


def succeeded(said: dict[str, Any]) -> dict[str, Any]:
    """Return what was said, or raise the error it describes."""
    if said["ok"]:
        return said
    raise kinds().get(said["kind"], HoldfastError)(said["error"], **said["details"])


def kinds() -> dict[str, type[HoldfastError]]:
    """Return every error by its kind."""
    found, waiting = {HoldfastError.kind: HoldfastError}, [HoldfastError]
    while waiting:
        for cls in waiting.pop().__subclasses__():
            found[cls.kind] = cls
            waiting.append(cls)
    return found


def chosen(said: dict[str, Any], wanted: str | None) -> str:
    """Return the dataset that is meant."""
    names = [one["name"] for one in said["datasets"]]
    listed = ", ".join(names) or "none"
    if wanted is None and len(names) == 1:
        return str(names[0])
    if wanted is None:
        raise InvalidArgument(f"dataset must be said when the token reaches several or none; it reaches: {listed}.")
    if wanted not in names:
        raise UnknownName(f"No dataset {wanted!r} that your token reaches. It reaches: {listed}.", name=wanted)
    return wanted


def answer_of(said: Mapping[str, Any]) -> AnyAnswer:
    """Rebuild an answer."""
    if "categories" in said:
        return HistogramAnswer(tuple((one["category"], one_answer(one)) for one in said["categories"]))
    if "point" in said:
        rest = ("excess_bound", "expected_excess_bound", "iterations", "gradient_evaluations")
        names, point = tuple(said["point"]), tuple(said["point"].values())
        return MinimumAnswer(point, names, one_answer(said["loss"]), **{name: said[name] for name in rest})
    if "bits" in said:
        return FlipsAnswer(tuple(said["bits"]), one_answer(said["average"]))
    return one_answer(said)


def one_answer(said: Mapping[str, Any]) -> Answer:
    """Rebuild one interval."""
    fields = {name: said[name] for name in Answer.__dataclass_fields__}
    return Answer(**fields | {"bounds": tuple(fields["bounds"])})


def schema_of(said: Mapping[str, Any]) -> Schema:
    """Rebuild a schema."""
    columns = tuple(Column(one["name"], Type(one["type"]), one["nullable"]) for one in said["columns"])
    return Schema(columns, said["dataset"])


def seq_of(answer: Answer | HistogramAnswer | int) -> int:
    """Return an answer's place in the ledger."""
    seq = answer if isinstance(answer, int) else answer.seq
    if seq is None:
        raise InvalidArgument("A dry run is in no ledger, so there is no receipt for it.")
    return seq


def frame_of(rows: list[dict[str, Any]]) -> "pl.DataFrame":
    """Return history rows as a frame."""
    import polars as pl

    return pl.DataFrame(rows, schema=SCHEMA, orient="row")
