"""`holdfast.connect`: the verbs and answers of a `Session`, from a server.

    data = hf.connect("https://data.example.org", token="hf_...")
    data.mean("dep_delay > 15")

Every question carries an idempotency key, so one whose answer got lost is sent again and charged once.
`connect_async` offers the same verbs to be awaited. Errors are those of the library, rebuilt from the response.

A `Call` is one request and how its response is read. What there is to ask is said once, as methods that return calls;
those of the two sessions are made from them, and differ by waiting.
"""

import asyncio
import random
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, get_args
from urllib.parse import quote

import polars as pl

from holdfast import check
from holdfast.answer import AnyAnswer, record_of
from holdfast.errors import HoldfastError, InvalidArgument, MissingExtra, UnknownName
from holdfast.guarantees.plan import Plan
from holdfast.ledger import Head, Receipt
from holdfast.optimize.losses import LinearLoss
from holdfast.questions import KINDS, kind_named
from holdfast.questions.batch import Answers, Asked, Prices, Questions
from holdfast.questions.budget import Budget
from holdfast.questions.history import SCHEMA
from holdfast.questions.mean import MEAN
from holdfast.questions.price import Price
from holdfast.questions.question import Kind
from holdfast.questions.register import REGISTER
from holdfast.questions.standings import standings_frame
from holdfast.questions.verbs import AsyncVerbs, Verbs
from holdfast.schema import Column, Schema
from holdfast.service.errors import not_holdfast, unreachable

if TYPE_CHECKING:
    import httpx

PAGE_SIZE = 1_000
MAX_ATTEMPTS, FIRST_WAIT, MAX_WAIT = 6, 0.1, 5.0  # seconds
RETRIED = (429, 502, 503, 504)  # statuses worth another attempt

A = TypeVar("A", bound=AnyAnswer)
T = TypeVar("T")
M = TypeVar("M", bound=Callable[..., Any])
P = ParamSpec("P")
Payload = dict[str, Any]
Sendable = str | LinearLoss


def connect(url: str, token: str, *, dataset: str | None = None, timeout: float = 60.0) -> "RemoteSession":
    """Return a session on a server.

    Parameters
    ----------
    url, token
        Where the server is, and the token that its admin gave you.
    dataset
        The dataset to ask; may be left out if the token allows only one.
    timeout
        Seconds that one request may take.

    Returns
    -------
    RemoteSession
        The verbs of a `Session`.
    """
    http = _httpx().Client(**_http_options(url, token, timeout))
    session = RemoteSession(http, "")
    try:
        session.dataset = session._send(_choose(dataset))
    except BaseException:
        session.close()
        raise
    return session


async def connect_async(
    url: str, token: str, *, dataset: str | None = None, timeout: float = 60.0
) -> "AsyncRemoteSession":
    """Return a session on a server whose verbs are awaited.

    Parameters
    ----------
    url, token, dataset, timeout
        As for `connect`.
    """
    session = AsyncRemoteSession(_httpx().AsyncClient(**_http_options(url, token, timeout)), "")
    try:
        session.dataset = await session._send(_choose(dataset))
    except BaseException:
        await session.close()
        raise
    return session


def list_datasets(url: str, token: str, *, timeout: float = 60.0) -> list[str]:
    """Return the names of the datasets that a token allows."""
    with RemoteSession(_httpx().Client(**_http_options(url, token, timeout)), "") as session:
        return session._send(Call("GET", "datasets", _names))


# -- what there is to ask ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request, and how its response is read: as a result, or as the call that must follow."""

    method: str
    path: str
    read: "Callable[[Payload], T | Call[T]]"
    body: Payload | None = None
    key: str | None = None

    def arguments(self) -> Payload:
        """Return the arguments of httpx's `request`."""
        headers = {} if self.key is None else {"Idempotency-Key": self.key}
        return {"method": self.method, "url": self.path, "json": self.body, "headers": headers}


class _Calls:
    """The calls about one dataset; the methods of both sessions are made from them."""

    def __init__(self, dataset: str) -> None:
        self.dataset = dataset

    def __getattr__(self, name: str) -> Any:
        kind = None if name.startswith("_") else KINDS.find(name)  # kinds that another package registered
        if kind is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return partial(cast(Any, self).ask, kind=kind.name)

    def _ask(
        self, /, query: Sendable, kind: str = MEAN.name, *, idempotency_key: str | None = None, **options: object
    ) -> Call[AnyAnswer]:
        """Ask by kind.

        Parameters
        ----------
        query, kind, idempotency_key, **options
            As for `Session.ask`; only text and built-in losses can be sent.
        """
        return self._kind(kind_named(kind), (query,), options, idempotency_key)

    def _kind(
        self, kind: Kind[..., A], args: tuple[object, ...], options: Mapping[str, object], key: str | None = None
    ) -> Call[A]:
        return Call("POST", self._path("ask"), _answered, _question(kind, args, options), key or uuid.uuid4().hex)

    def _price(self, /, query: Sendable, kind: str = MEAN.name, **options: object) -> Call[Price]:
        """Return what a question would cost. Reads nothing, spends nothing.

        Parameters
        ----------
        query, kind, **options
            As for `ask`.
        """
        body = _question(kind_named(kind), (query,), options)
        return Call("POST", self._path("price"), lambda payload: Price.from_dict(payload["price"]), body)

    def _dry_run(self, /, query: Sendable, kind: str = MEAN.name, **options: object) -> Call[AnyAnswer]:
        """Answer from made-up rows. Reads nothing, spends nothing.

        Parameters
        ----------
        query, kind, **options
            As for `ask`.
        """
        return Call("POST", self._path("dry-run"), _answered, _question(kind_named(kind), (query,), options))

    def _ask_many(self, /, questions: Iterable[Asked]) -> Call[Answers]:
        """Ask several questions: one reservation, one transaction, all of them or none.

        Parameters
        ----------
        questions
            As for `Session.ask_many`: texts, or dicts with the kind and the options of a question. A `Questions` is
            registered first.
        """
        asks = _listed(questions)

        def read(payload: Payload) -> Answers:
            return Answers([read_answer(one["answer"]) for one in payload["results"]])

        batch = Call("POST", self._path("batch"), read, {"asks": asks}, uuid.uuid4().hex)
        if not isinstance(questions, Questions):
            return batch
        body = {"kind": REGISTER.name, "questions": asks}
        return Call("POST", self._path("ask"), lambda _: batch, body, uuid.uuid4().hex)

    def _price_many(self, /, questions: Iterable[Asked]) -> Call[Prices]:
        """Return what several questions would cost together. Reads nothing, spends nothing.

        Parameters
        ----------
        questions
            As for `ask_many`.
        """
        return Call("POST", self._path("batch/price"), Prices.from_dict, {"asks": _listed(questions)})

    def _sql(self, /, text: str) -> Call[pl.DataFrame]:
        """Answer a SELECT of aggregates.

        Parameters
        ----------
        text
            The statement, as for `Session.sql`.
        """

        return Call("POST", self._path("sql"), read_table, {"sql": text}, uuid.uuid4().hex)

    def _price_sql(self, /, text: str) -> Call[Prices]:
        """Return what a SELECT would cost. Reads nothing, spends nothing.

        Parameters
        ----------
        text
            The statement, as for `Session.sql`.
        """
        return Call("POST", self._path("sql/price"), Prices.from_dict, {"sql": text})

    def _budget(self) -> Call[Budget]:
        """Return what is left to ask, for all analysts together."""
        return Call("GET", self._path("budget"), lambda payload: Budget.from_dict(payload["budget"]))

    def _plan(self) -> Call[Plan]:
        """Return the plan of the dataset."""
        return Call("GET", self._path("plan"), lambda payload: Plan.from_dict(payload["plan"]))

    def _schema(self) -> Call[Schema]:
        """Return column names, types, and what else is declared. Never what the rows hold."""

        def read(payload: Payload) -> Schema:
            return Schema(tuple(map(Column.from_json, payload["columns"])), payload["dataset"])

        return Call("GET", self._path("schema"), read)

    def _head(self) -> Call[Head | None]:
        """Return the ledger's newest entry; None before the first answer."""
        return Call("GET", self._path("head"), lambda payload: payload["head"] and Head(**payload["head"]))

    def _receipt(self, answer: AnyAnswer | int) -> Call[Receipt]:
        """Return the proof that an answer is in the ledger."""
        seq = answer.seq if isinstance(answer, AnyAnswer) else answer
        if seq is None:
            raise InvalidArgument("A dry run is in no ledger, so there is no receipt for it.")
        return Call("GET", self._path(f"receipts/{seq}"), lambda payload: Receipt.from_dict(payload["receipt"]))

    def _history(self) -> Call[pl.DataFrame]:
        """Return all answers so far, of all analysts, as a frame."""
        return self._page(1, ())

    def _page(self, start: int, before: tuple[Payload, ...]) -> Call[pl.DataFrame]:
        """Return the call for one page; it has the rows of the pages before it."""

        def read(payload: Payload) -> pl.DataFrame | Call[pl.DataFrame]:
            rows = (*before, *payload["rows"])
            if payload["next"] is not None:
                return self._page(payload["next"], rows)
            return pl.DataFrame(list(rows), schema=SCHEMA, orient="row")

        return Call("GET", self._path(f"history?start={start}&limit={PAGE_SIZE}"), read)

    def _standings(self) -> Call[pl.DataFrame]:
        """Return the submissions to a board: improvements, the best first, then those that were no better."""
        return Call("GET", self._path("standings"), lambda payload: standings_frame(payload["standings"]))

    def _path(self, what: str) -> str:
        return f"datasets/{quote(self.dataset, safe='')}/{what}"


def _sent(call: Callable[Concatenate[Any, P], Call[T]]) -> Callable[Concatenate[Any, P], T]:
    """Return the method that makes a call and waits for its result."""

    def method(self: "RemoteSession", /, *args: P.args, **options: P.kwargs) -> T:
        return self._send(call(self, *args, **options))

    return _described(method, call)


def _awaited(call: Callable[Concatenate[Any, P], Call[T]]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return the method that makes a call, to be awaited."""

    async def method(self: "AsyncRemoteSession", /, *args: P.args, **options: P.kwargs) -> T:
        return await self._send(call(self, *args, **options))

    return _described(method, call)


def _described(method: M, call: Callable[..., Any]) -> M:
    """Give a method the signature and description of its call; it returns what the call's response says."""
    shown = signature(call)
    (result,) = get_args(shown.return_annotation)
    method.__name__, method.__doc__ = call.__name__.lstrip("_"), call.__doc__
    method.__annotations__ = call.__annotations__ | {"return": result}
    method.__signature__ = shown.replace(return_annotation=result)  # type: ignore[attr-defined]
    return method


@check.public
class RemoteSession(Verbs, _Calls):
    """A `dataset` on a server, asked through an `http` client. Verbs, answers and errors are those of `Session`."""

    def __init__(self, http: "httpx.Client", dataset: str) -> None:
        super().__init__(dataset)
        self._http = http

    ask = _sent(_Calls._ask)
    price = _sent(_Calls._price)
    dry_run = _sent(_Calls._dry_run)
    ask_many = _sent(_Calls._ask_many)
    price_many = _sent(_Calls._price_many)
    sql = _sent(_Calls._sql)
    price_sql = _sent(_Calls._price_sql)
    receipt = _sent(_Calls._receipt)
    history = _sent(_Calls._history)
    standings = _sent(_Calls._standings)
    _ask_kind = _sent(_Calls._kind)

    def flip(self, query: str) -> int:
        """Return 0 or 1, with expectation near the share of rows for which `query` is true."""
        return self.flips(query, 1).bits[0]

    @property
    def budget(self) -> Budget:
        """What is left to ask, for all analysts together."""
        return self._send(self._budget())

    @property
    def plan(self) -> Plan:
        """The plan of the dataset."""
        return self._send(self._plan())

    @property
    def schema(self) -> Schema:
        """Column names, types, and what else is declared. Never what the rows hold."""
        return self._send(self._schema())

    @property
    def head(self) -> Head | None:
        """The ledger's newest entry; None before the first answer."""
        return self._send(self._head())

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session on {self.dataset} at {self._http.base_url}"

    def _send(self, call: Call[T]) -> T:
        httpx, attempt = _httpx(), 1
        while True:
            try:
                payload = _read(self._http.request(**call.arguments()))
            except httpx.TransportError as error:
                payload = unreachable(error)
            wait = _retry_delay(payload, attempt)
            if wait is not None:
                attempt += 1
                time.sleep(wait)
                continue
            result = call.read(_require_ok(payload))
            if not isinstance(result, Call):
                return result
            call, attempt = result, 1


class AsyncRemoteSession(AsyncVerbs, _Calls):
    """A `dataset` on a server, asked through an async `http` client: `await data.mean(...)`, `await data.budget()`."""

    def __init__(self, http: "httpx.AsyncClient", dataset: str) -> None:
        super().__init__(dataset)
        self._http = http

    ask = _awaited(_Calls._ask)
    price = _awaited(_Calls._price)
    dry_run = _awaited(_Calls._dry_run)
    ask_many = _awaited(_Calls._ask_many)
    price_many = _awaited(_Calls._price_many)
    sql = _awaited(_Calls._sql)
    price_sql = _awaited(_Calls._price_sql)
    budget = _awaited(_Calls._budget)
    plan = _awaited(_Calls._plan)
    schema = _awaited(_Calls._schema)
    head = _awaited(_Calls._head)
    receipt = _awaited(_Calls._receipt)
    history = _awaited(_Calls._history)
    standings = _awaited(_Calls._standings)
    _ask_kind = _awaited(_Calls._kind)

    async def flip(self, query: str) -> int:
        """Return 0 or 1, with expectation near the share of rows for which `query` is true."""
        return (await self.flips(query, 1)).bits[0]

    async def close(self) -> None:
        """Close the connection."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Session on {self.dataset} at {self._http.base_url}, to be awaited"

    async def _send(self, call: Call[T]) -> T:
        httpx, attempt = _httpx(), 1
        while True:
            try:
                payload = _read(await self._http.request(**call.arguments()))
            except httpx.TransportError as error:
                payload = unreachable(error)
            wait = _retry_delay(payload, attempt)
            if wait is not None:
                attempt += 1
                await asyncio.sleep(wait)
                continue
            result = call.read(_require_ok(payload))
            if not isinstance(result, Call):
                return result
            call, attempt = result, 1


# -- requests ---------------------------------------------------------------------------------------------------------


def _httpx() -> Any:
    """Return httpx, or explain how to install it."""
    try:
        import httpx
    except ModuleNotFoundError as error:
        message = "Asking a server needs httpx. Install it with: pip install 'holdfast[client]'."
        raise MissingExtra(message, extra="client") from error
    return httpx


def _http_options(url: str, token: str, timeout: float) -> Payload:
    """Check address and token; return the arguments of httpx's client."""
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise InvalidArgument(f"url must start with http:// or https://; got {url!r}.", name="url")
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
        raise InvalidArgument("token must be printable ASCII text, as the admin gave it to you.", name="token")
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
    return {"base_url": url.rstrip("/") + "/api/v1/", "headers": headers, "timeout": timeout}


def _question(kind: Kind[..., Any], args: tuple[object, ...], options: Mapping[str, object]) -> Payload:
    """Return a question as JSON. Only text and built-in losses can be sent; code is never sent."""
    kind.check_options(args, options)
    names = [option.name for option in kind.options]
    return kind.to_json({**dict(zip(names, args, strict=False)), **options})


def _listed(questions: Iterable[Asked]) -> list[Payload]:
    """Return several questions as JSON."""
    found = []
    for one in Questions(questions):
        values: dict[str, object] = {"query": one} if isinstance(one, str) else dict(one)
        found.append(kind_named(values.pop("kind", MEAN.name)).to_json(values))
    return found


# -- responses --------------------------------------------------------------------------------------------------------


def _read(response: "httpx.Response") -> Payload:
    """Return the JSON of a response; what no holdfast server wrote becomes an error."""
    try:
        payload = response.json()
    except ValueError:
        payload = None
    return payload if isinstance(payload, dict) and "ok" in payload else not_holdfast(response.status_code)


def _retry_delay(payload: Payload, attempt: int) -> float | None:
    """Return how long to wait before the next attempt; None if there should be none."""
    if payload["ok"] or payload["status"] not in RETRIED or attempt >= MAX_ATTEMPTS:
        return None
    requested = float(payload["details"].get("retry_after") or 0.0)
    return max(requested, min(MAX_WAIT, FIRST_WAIT * 2.0 ** (attempt - 1)) * random.uniform(0.5, 1.0))


def _require_ok(payload: Payload) -> Payload:
    """Return the payload, or raise the error it describes."""
    if payload["ok"]:
        return payload
    raise _error_classes().get(payload["kind"], HoldfastError)(payload["error"], **payload["details"])


def _error_classes(error: type[HoldfastError] = HoldfastError) -> dict[str, type[HoldfastError]]:
    """Return an error class and all below it, by kind."""
    found = {error.kind: error}
    for below in error.__subclasses__():
        found |= _error_classes(below)
    return found


def _names(payload: Payload) -> list[str]:
    return [str(one["name"]) for one in payload["datasets"]]


def _choose(dataset: str | None) -> Call[str]:
    """Return the call that finds the dataset to ask: the requested one, or the only one."""

    def read(payload: Payload) -> str:
        names = _names(payload)
        listed = ", ".join(names) or "none"
        if dataset is None and len(names) == 1:
            return names[0]
        if dataset is None:
            raise InvalidArgument(f"dataset must be given unless the token allows exactly one; it allows: {listed}.")
        if dataset not in names:
            raise UnknownName(f"No dataset {dataset!r} for your token. It allows: {listed}.", name=dataset)
        return dataset

    return Call("GET", "datasets", read)


def read_answer(answer: Mapping[str, Any]) -> AnyAnswer:
    """Rebuild an answer from what `AnyAnswer.to_dict` wrote."""
    found: AnyAnswer = kind_named(answer["kind"]).read(answer, record_of(answer))
    return found


def read_table(payload: Payload) -> pl.DataFrame:
    """Return the table of a SELECT, or raise the refusal of it."""
    found = _require_ok(payload)
    return pl.DataFrame(found["rows"], schema=found["columns"], orient="row", infer_schema_length=None)


def _answered(payload: Payload) -> Any:
    return read_answer(payload["answer"])
