"""`holdfast.connect`: the verbs and answers of a `Session`, from a server.

    data = hf.connect("https://data.example.org", token="hf_...")
    data.mean("dep_delay > 15")

Every question carries an idempotency key, so a question whose answer got lost is sent again but charged once.
`connect_async` offers the same verbs to be awaited. Errors are those of the library, rebuilt from the response.

The methods of the two sessions are made from the calls in `calls.py`, and differ only in how they wait for responses.
"""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, get_args

from holdfast import check
from holdfast.errors import InvalidArgument, MissingExtra
from holdfast.guarantees.plan import Plan
from holdfast.ledger import Head
from holdfast.questions.answer import AnyAnswer
from holdfast.questions.budget import Budget
from holdfast.questions.verbs import AsyncVerbs, Verbs
from holdfast.schema import Schema
from holdfast.service.calls import Call, Calls, Payload, choose, names_of, require_ok
from holdfast.service.errors import not_holdfast, unreachable

if TYPE_CHECKING:
    import ssl

    import httpx

MAX_ATTEMPTS, FIRST_WAIT, MAX_WAIT = 6, 0.1, 5.0  # seconds
RETRIED = (429, 502, 503, 504)  # statuses worth another attempt

A = TypeVar("A", bound=AnyAnswer)
T = TypeVar("T")
M = TypeVar("M", bound=Callable[..., Any])
P = ParamSpec("P")


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
        session.dataset = session._send(choose(dataset))
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
        session.dataset = await session._send(choose(dataset))
    except BaseException:
        await session.close()
        raise
    return session


def list_datasets(url: str, token: str, *, timeout: float = 60.0) -> list[str]:
    """Return the names of the datasets that a token allows."""
    with RemoteSession(_httpx().Client(**_http_options(url, token, timeout)), "") as session:
        return session._send(Call("GET", "datasets", names_of))


# -- the two sessions -------------------------------------------------------------------------------------------------


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
    """Give a method the signature and docstring of its call, with the type of the call's result as its return type."""
    shown = signature(call)
    (result,) = get_args(shown.return_annotation)
    method.__name__, method.__doc__ = call.__name__.lstrip("_"), call.__doc__
    method.__annotations__ = call.__annotations__ | {"return": result}
    method.__signature__ = shown.replace(return_annotation=result)  # type: ignore[attr-defined]
    return method


@check.public
class RemoteSession(Verbs, Calls):
    """A dataset on a server. Verbs, answers and errors are those of `Session`.

    Parameters
    ----------
    http
        A client for the API of the server; `connect` makes one.
    dataset
        The name of the dataset.
    """

    def __init__(self, http: "httpx.Client", dataset: str) -> None:
        super().__init__(dataset)
        self._http = http

    ask = _sent(Calls._ask)
    price = _sent(Calls._price)
    dry_run = _sent(Calls._dry_run)
    ask_many = _sent(Calls._ask_many)
    price_many = _sent(Calls._price_many)
    sql = _sent(Calls._sql)
    price_sql = _sent(Calls._price_sql)
    receipt = _sent(Calls._receipt)
    history = _sent(Calls._history)
    standings = _sent(Calls._standings)
    _ask_kind = _sent(Calls._kind)

    def flip(self, query: str) -> int:
        """Return 0 or 1, with expectation near the share of rows for which a condition is true.

        Parameters
        ----------
        query
            A condition on one row, as text.
        """
        return self.flips(query, 1).bits[0]

    @property
    def budget(self) -> Budget:
        """What is left to ask, for all analysts together, and of your quota, if you have one."""
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
            result = call.read(require_ok(payload))
            if not isinstance(result, Call):
                return result
            call, attempt = result, 1


class AsyncRemoteSession(AsyncVerbs, Calls):
    """A dataset on a server, to be awaited: `await data.mean(...)`, `await data.budget()`.

    Parameters
    ----------
    http
        An async client for the API of the server; `connect_async` makes one.
    dataset
        The name of the dataset.
    """

    def __init__(self, http: "httpx.AsyncClient", dataset: str) -> None:
        super().__init__(dataset)
        self._http = http

    ask = _awaited(Calls._ask)
    price = _awaited(Calls._price)
    dry_run = _awaited(Calls._dry_run)
    ask_many = _awaited(Calls._ask_many)
    price_many = _awaited(Calls._price_many)
    sql = _awaited(Calls._sql)
    price_sql = _awaited(Calls._price_sql)
    budget = _awaited(Calls._budget)
    plan = _awaited(Calls._plan)
    schema = _awaited(Calls._schema)
    head = _awaited(Calls._head)
    receipt = _awaited(Calls._receipt)
    history = _awaited(Calls._history)
    standings = _awaited(Calls._standings)
    _ask_kind = _awaited(Calls._kind)

    async def flip(self, query: str) -> int:
        """Return 0 or 1, with expectation near the share of rows for which a condition is true.

        Parameters
        ----------
        query
            A condition on one row, as text.
        """
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
            result = call.read(require_ok(payload))
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
    base = url.rstrip("/") + "/api/v1/"
    return {"base_url": base, "headers": headers, "timeout": timeout, "verify": _certificates()}


@cache  # reading them takes longer than all else that a new session does before its first request
def _certificates() -> "ssl.SSLContext":
    context: ssl.SSLContext = _httpx().create_ssl_context()
    return context


# -- responses --------------------------------------------------------------------------------------------------------


def _read(response: "httpx.Response") -> Payload:
    """Return the JSON of a response; a response that no holdfast server wrote becomes an error."""
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
