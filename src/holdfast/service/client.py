"""`holdfast.connect`: the verbs and answers of a `Session`, from a server.

    data = hf.connect("https://data.example.org", token="hf_...")
    data.mean("dep_delay > 15")

Every question carries an idempotency key, so one whose answer got lost is sent again and charged once.
`connect_async` offers the same verbs to be awaited. Errors are those of the library, rebuilt from the response.
"""

import asyncio
import random
import time
import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import quote

from holdfast.answer import Answer, AnyAnswer, FlipsAnswer, HistogramAnswer, MinimumAnswer
from holdfast.budget import Budget, Quote
from holdfast.errors import HoldfastError, InvalidArgument, MissingExtra, UnknownName
from holdfast.history import SCHEMA
from holdfast.ledger import Head, Receipt
from holdfast.planning import Plan
from holdfast.schema import Column, Schema, Type
from holdfast.service.errors import not_holdfast, unreachable

if TYPE_CHECKING:
    import httpx
    import polars as pl

PAGE_SIZE = 1_000
MAX_ATTEMPTS, FIRST_WAIT, MAX_WAIT = 6, 0.1, 5.0  # seconds
RETRIED = (429, 502, 503, 504)  # statuses worth another attempt


def connect(url: str, token: str, *, dataset: str | None = None, timeout: float = 60.0) -> "RemoteSession":
    """Return a session on a server. `dataset` may be omitted if the token allows only one."""
    http = _httpx().Client(**_http_options(url, token, timeout))
    try:
        return RemoteSession(http, dataset)
    except BaseException:
        http.close()
        raise


async def connect_async(
    url: str, token: str, *, dataset: str | None = None, timeout: float = 60.0
) -> "AsyncRemoteSession":
    """Return a session on a server whose verbs are awaited."""
    session = AsyncRemoteSession(_httpx().AsyncClient(**_http_options(url, token, timeout)), dataset)
    try:
        await session.choose_dataset()
    except BaseException:
        await session.close()
        raise
    return session


def list_datasets(url: str, token: str, *, timeout: float = 60.0) -> list[str]:
    """Return the names of the datasets that a token allows."""
    with _httpx().Client(**_http_options(url, token, timeout)) as http:
        payload = _require_ok(_read(http.get("datasets")))
    return [str(one["name"]) for one in payload["datasets"]]


class RemoteSession:
    """A dataset on a server. The verbs, answers and errors are those of `Session`."""

    def __init__(self, http: "httpx.Client", dataset: str | None) -> None:
        self._http = http
        self.dataset = _choose(self._send("GET", "datasets"), dataset)

    def mean(
        self,
        query: str,
        *,
        within: tuple[float, float] | None = None,
        where: str | None = None,
        rows_per_query: int | None = None,
        margin: float | None = None,
    ) -> Answer:
        """Return a share, or the mean of a number declared `within` bounds; see `Session.mean`."""
        options: dict[str, Any] = {"within": within, "where": where}
        options |= {"rows_per_query": rows_per_query, "margin": margin}
        return cast(Answer, self.ask(query, "mean", **options))

    def histogram(
        self, query: str, *, categories: Any = None, bins: Any = None, rows_per_query: int | None = None
    ) -> HistogramAnswer:
        """Return the share of each declared category or bin; see `Session.histogram`."""
        options = {"categories": categories, "bins": bins, "rows_per_query": rows_per_query}
        return cast(HistogramAnswer, self.ask(query, "histogram", **options))

    def quantile(
        self, query: str, q: float, *, within: tuple[float, float], where: str | None = None, steps: int | None = None
    ) -> Answer:
        """Return an interval for a quantile; see `Session.quantile`."""
        return cast(Answer, self.ask(query, "quantile", q=q, within=within, where=where, steps=steps))

    def flip(self, query: str) -> int:
        """Return 0 or 1; see `Session.flip`."""
        return self.flips(query, 1).bits[0]

    def flips(self, query: str, count: int) -> FlipsAnswer:
        """Return `count` new flips; see `Session.flips`."""
        return cast(FlipsAnswer, self.ask(query, "flips", count=count))

    def minimize(self, loss: Any, *, radius: float | None = None, **options: Any) -> MinimumAnswer:
        """Return a point of small population loss, for one of the built-in losses; see `Session.minimize`."""
        return cast(MinimumAnswer, self.ask(loss, "minimize", radius=radius, **options))

    def ask(self, query: Any, kind: str = "mean", *, retry_key: str | None = None, **options: Any) -> AnyAnswer:
        """Ask by kind; see `Session.ask`."""
        body, key = question_json(kind, query, options), retry_key or _new_key()
        return answer_from_json(self._send("POST", self._path("ask"), body, key)["answer"])

    def price(self, query: Any, kind: str = "mean", **options: Any) -> Quote:
        """Return what a question would cost; reads nothing, spends nothing."""
        return Quote(**self._send("POST", self._path("price"), question_json(kind, query, options))["price"])

    def dry_run(self, query: Any, kind: str = "mean", **options: Any) -> AnyAnswer:
        """Answer from made-up rows; reads nothing, spends nothing."""
        body = question_json(kind, query, options)
        return answer_from_json(self._send("POST", self._path("dry-run"), body)["answer"])

    @property
    def budget(self) -> Budget:
        """What is left to ask, for all analysts together."""
        return Budget(**self._send("GET", self._path("budget"))["budget"])

    @property
    def plan(self) -> Plan:
        """The plan of the dataset."""
        return Plan.from_dict(self._send("GET", self._path("plan"))["plan"])

    @property
    def schema(self) -> Schema:
        """Column names and types. Never values."""
        return _schema(self._send("GET", self._path("schema")))

    @property
    def head(self) -> Head:
        """The ledger's newest entry."""
        return Head(**self._send("GET", self._path("head"))["head"])

    def receipt(self, answer: Answer | HistogramAnswer | int) -> Receipt:
        """Return the proof that an answer is in the ledger."""
        return Receipt.from_dict(self._send("GET", self._path(f"receipts/{_seq(answer)}"))["receipt"])

    def history(self) -> "pl.DataFrame":
        """Return all answers so far, of all analysts, as a frame."""
        rows: list[dict[str, Any]] = []
        start: int | None = 1
        while start is not None:
            page = self._send("GET", self._path(f"history?start={start}&limit={PAGE_SIZE}"))
            rows += page["rows"]
            start = page["next"]
        return _history(rows)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session on {self.dataset} at {self._http.base_url}: {self.budget}."

    def _path(self, what: str) -> str:
        return f"datasets/{quote(self.dataset, safe='')}/{what}"

    def _send(self, method: str, path: str, body: Any = None, key: str | None = None) -> dict[str, Any]:
        httpx, attempt = _httpx(), 0
        while True:
            attempt += 1
            try:
                payload = _read(self._http.request(method, path, json=body, headers=_headers(key)))
            except httpx.TransportError as error:
                payload = unreachable(error)
            wait = _retry_delay(payload, attempt)
            if wait is None:
                return _require_ok(payload)
            time.sleep(wait)


class AsyncRemoteSession:
    """The same verbs to be awaited: `await data.mean(...)`, `await data.budget()`."""

    def __init__(self, http: "httpx.AsyncClient", dataset: str | None) -> None:
        self._http = http
        self._requested = dataset
        self.dataset = dataset or ""

    async def choose_dataset(self) -> None:
        """Find out which datasets the token allows, and choose one."""
        self.dataset = _choose(await self._send("GET", "datasets"), self._requested)

    async def mean(self, query: str, **options: Any) -> Answer:
        """Return a share or a bounded mean; options as `Session.mean`."""
        return cast(Answer, await self.ask(query, "mean", **options))

    async def histogram(self, query: str, **options: Any) -> HistogramAnswer:
        """Return the share of each category; options as `Session.histogram`."""
        return cast(HistogramAnswer, await self.ask(query, "histogram", **options))

    async def quantile(self, query: str, q: float, **options: Any) -> Answer:
        """Return an interval for a quantile; options as `Session.quantile`."""
        return cast(Answer, await self.ask(query, "quantile", q=q, **options))

    async def flip(self, query: str) -> int:
        """Return 0 or 1."""
        return (await self.flips(query, 1)).bits[0]

    async def flips(self, query: str, count: int) -> FlipsAnswer:
        """Return `count` new flips."""
        return cast(FlipsAnswer, await self.ask(query, "flips", count=count))

    async def minimize(self, loss: Any, *, radius: float | None = None, **options: Any) -> MinimumAnswer:
        """Return a point of small population loss, for one of the built-in losses."""
        return cast(MinimumAnswer, await self.ask(loss, "minimize", radius=radius, **options))

    async def ask(self, query: Any, kind: str = "mean", *, retry_key: str | None = None, **options: Any) -> AnyAnswer:
        """Ask by kind."""
        body, key = question_json(kind, query, options), retry_key or _new_key()
        return answer_from_json((await self._send("POST", self._path("ask"), body, key))["answer"])

    async def price(self, query: Any, kind: str = "mean", **options: Any) -> Quote:
        """Return what a question would cost."""
        return Quote(**(await self._send("POST", self._path("price"), question_json(kind, query, options)))["price"])

    async def dry_run(self, query: Any, kind: str = "mean", **options: Any) -> AnyAnswer:
        """Answer from made-up rows."""
        body = question_json(kind, query, options)
        return answer_from_json((await self._send("POST", self._path("dry-run"), body))["answer"])

    async def budget(self) -> Budget:
        """Return what is left to ask."""
        return Budget(**(await self._send("GET", self._path("budget")))["budget"])

    async def plan(self) -> Plan:
        """Return the plan of the dataset."""
        return Plan.from_dict((await self._send("GET", self._path("plan")))["plan"])

    async def schema(self) -> Schema:
        """Return column names and types."""
        return _schema(await self._send("GET", self._path("schema")))

    async def head(self) -> Head:
        """Return the ledger's newest entry."""
        return Head(**(await self._send("GET", self._path("head")))["head"])

    async def receipt(self, answer: Answer | HistogramAnswer | int) -> Receipt:
        """Return the proof that an answer is in the ledger."""
        return Receipt.from_dict((await self._send("GET", self._path(f"receipts/{_seq(answer)}")))["receipt"])

    async def history(self) -> "pl.DataFrame":
        """Return all answers so far as a frame."""
        rows: list[dict[str, Any]] = []
        start: int | None = 1
        while start is not None:
            page = await self._send("GET", self._path(f"history?start={start}&limit={PAGE_SIZE}"))
            rows += page["rows"]
            start = page["next"]
        return _history(rows)

    async def close(self) -> None:
        """Close the connection."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _path(self, what: str) -> str:
        return f"datasets/{quote(self.dataset, safe='')}/{what}"

    async def _send(self, method: str, path: str, body: Any = None, key: str | None = None) -> dict[str, Any]:
        httpx, attempt = _httpx(), 0
        while True:
            attempt += 1
            try:
                payload = _read(await self._http.request(method, path, json=body, headers=_headers(key)))
            except httpx.TransportError as error:
                payload = unreachable(error)
            wait = _retry_delay(payload, attempt)
            if wait is None:
                return _require_ok(payload)
            await asyncio.sleep(wait)


# -- requests ---------------------------------------------------------------------------------------------------------


def question_json(kind: str, query: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a question as JSON. Only text and built-in losses can be sent; code is never sent."""
    values = {name: _plain(value) for name, value in options.items() if value is not None}
    if kind == "minimize":
        from holdfast.optimize import named as named_losses

        return {"kind": kind, "loss": _plain(named_losses.said(query))} | values
    for name, value in (("query", query), ("where", options.get("where"))):
        if not isinstance(value, str) and (name == "query" or value is not None):
            raise InvalidArgument(
                f"{name} must be text when a server is asked; got {type(value).__name__}. Expressions and functions"
                " need a Session on the data itself.",
                name=name,
            )
    return {"kind": kind, "query": query} | values


def _plain(value: Any) -> Any:
    """Turn tuples and NumPy values into JSON values."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _httpx() -> Any:
    """Return httpx, or explain how to install it."""
    try:
        import httpx
    except ModuleNotFoundError as error:
        raise MissingExtra(
            "Asking a server needs httpx. Install it with: pip install 'holdfast[client]'.", extra="client"
        ) from error
    return httpx


def _http_options(url: str, token: str, timeout: float) -> dict[str, Any]:
    """Check address and token; return the arguments of httpx's client."""
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise InvalidArgument(f"url must start with http:// or https://; got {url!r}.", name="url")
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
        raise InvalidArgument("token must be printable ASCII text, as the admin gave it to you.", name="token")
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
    return {"base_url": url.rstrip("/") + "/api/v1/", "headers": headers, "timeout": timeout}


def _headers(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Idempotency-Key": key}


def _new_key() -> str:
    return uuid.uuid4().hex


# -- responses --------------------------------------------------------------------------------------------------------


def _read(response: "httpx.Response") -> dict[str, Any]:
    """Return the JSON of a response; what no holdfast server wrote becomes an error."""
    try:
        payload = response.json()
    except ValueError:
        payload = None
    return payload if isinstance(payload, dict) and "ok" in payload else not_holdfast(response.status_code)


def _retry_delay(payload: dict[str, Any], attempt: int) -> float | None:
    """Return how long to wait before the next attempt; None if there should be none."""
    if payload["ok"] or payload["status"] not in RETRIED or attempt >= MAX_ATTEMPTS:
        return None
    requested = float(payload["details"].get("retry_after") or 0.0)
    return max(requested, min(MAX_WAIT, FIRST_WAIT * 2.0 ** (attempt - 1)) * random.uniform(0.5, 1.0))


def _require_ok(payload: dict[str, Any]) -> dict[str, Any]:
    """Return the payload, or raise the error it describes."""
    if payload["ok"]:
        return payload
    raise _error_classes().get(payload["kind"], HoldfastError)(payload["error"], **payload["details"])


def _error_classes() -> dict[str, type[HoldfastError]]:
    """Return all error classes by kind."""
    found, waiting = {HoldfastError.kind: HoldfastError}, [HoldfastError]
    while waiting:
        for cls in waiting.pop().__subclasses__():
            found[cls.kind] = cls
            waiting.append(cls)
    return found


def _choose(payload: dict[str, Any], dataset: str | None) -> str:
    """Return the dataset to ask: the requested one, or the only one."""
    names = [str(one["name"]) for one in payload["datasets"]]
    listed = ", ".join(names) or "none"
    if dataset is None and len(names) == 1:
        return names[0]
    if dataset is None:
        raise InvalidArgument(f"dataset must be given unless the token allows exactly one; it allows: {listed}.")
    if dataset not in names:
        raise UnknownName(f"No dataset {dataset!r} for your token. It allows: {listed}.", name=dataset)
    return dataset


def answer_from_json(payload: Mapping[str, Any]) -> AnyAnswer:
    """Rebuild an answer."""
    if "categories" in payload:
        return HistogramAnswer(tuple((one["category"], _interval(one)) for one in payload["categories"]))
    if "point" in payload:
        rest = ("excess_bound", "expected_excess_bound", "iterations", "gradient_evaluations")
        names, point = tuple(payload["point"]), tuple(payload["point"].values())
        return MinimumAnswer(point, names, _interval(payload["loss"]), **{name: payload[name] for name in rest})
    if "bits" in payload:
        return FlipsAnswer(tuple(payload["bits"]), _interval(payload["average"]))
    return _interval(payload)


def _interval(payload: Mapping[str, Any]) -> Answer:
    fields = {name: payload[name] for name in Answer.__dataclass_fields__}
    return Answer(**fields | {"bounds": tuple(fields["bounds"])})


def _schema(payload: Mapping[str, Any]) -> Schema:
    columns = tuple(Column(one["name"], Type(one["type"]), one["nullable"]) for one in payload["columns"])
    return Schema(columns, payload["dataset"])


def _seq(answer: Answer | HistogramAnswer | int) -> int:
    seq = answer if isinstance(answer, int) else answer.seq
    if seq is None:
        raise InvalidArgument("A dry run is not in the ledger, so there is no receipt for it.")
    return seq


def _history(rows: list[dict[str, Any]]) -> "pl.DataFrame":
    import polars as pl

    return pl.DataFrame(rows, schema=SCHEMA, orient="row")
