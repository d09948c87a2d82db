"""Tools for agents, over the Model Context Protocol: ask, price, budget, schema, plan.

The tools work on anything with the verbs of a `Session`: the data itself, a server reached with a token, or, at the
server's own /mcp, a dataset asked under the request's token. Every result is structured: the interval, its cost and
what is left; errors have the one shape of all errors.
"""

import hmac
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, Protocol

import anyio
from anyio.to_thread import run_sync
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.answer import AnyAnswer
from holdfast.budget import Budget, Quote
from holdfast.errors import NotSignedIn, UnknownName
from holdfast.planning import Plan
from holdfast.planning import plan as make_plan
from holdfast.planning.present import sentence
from holdfast.schema import Schema
from holdfast.service.client import answer_from_json, question_json
from holdfast.service.errors import error_payload
from holdfast.service.monitoring import log_error

if TYPE_CHECKING:  # the server's own packages are not needed for `holdfast mcp`
    from holdfast.service.datasets import ServedDataset
    from holdfast.service.schemas import AskIn
    from holdfast.service.state import ServerState
    from holdfast.service.tokens import Token

INSTRUCTIONS = (
    "Ask questions about a dataset without seeing its rows. Every answer is an interval for the population, and all of"
    " them hold at once however you choose your questions. All answers share one budget: call budget before you plan"
    " questions, and price before an expensive one. Repeating a question is free. Queries are SQL expressions about one"
    " row, such as: dep_delay > 15 AND carrier = 'UA'. Numbers need declared bounds: within=[low, high]."
)
ToolKind = Literal["mean", "histogram", "quantile", "flips"]
PATH = "/mcp"


class Askable(Protocol):
    """The verbs of a `Session` that the tools use."""

    def ask(self, query: str, kind: str = ..., **options: Any) -> AnyAnswer:
        """Ask a question."""
        ...

    def price(self, query: str, kind: str = ..., **options: Any) -> Quote:
        """Return what a question would cost."""
        ...

    @property
    def budget(self) -> Budget:
        """What is left to ask."""
        ...

    @property
    def plan(self) -> Plan:
        """The plan of the dataset."""
        ...

    @property
    def schema(self) -> Schema:
        """Column names and types."""
        ...


Sessions = Mapping[str, Askable]


def build_server(sessions: Sessions) -> MCPServer[Any]:
    """Return the MCP server of these datasets."""
    server: MCPServer[Any] = MCPServer("holdfast", instructions=INSTRUCTIONS, log_level="WARNING")
    read_only = ToolAnnotations(read_only_hint=True)

    def choose(dataset: str | None) -> Askable:
        names = ", ".join(sessions)
        if dataset is None and len(sessions) == 1:
            return next(iter(sessions.values()))
        if dataset is None or dataset not in sessions:
            raise UnknownName(f"No dataset {dataset!r}. There are: {names}.", name=dataset)
        return sessions[dataset]

    @server.tool(annotations=ToolAnnotations(read_only_hint=False, idempotent_hint=True))
    async def ask(
        query: str,
        kind: ToolKind = "mean",
        dataset: str | None = None,
        within: list[float] | None = None,
        where: str | None = None,
        categories: list[str | float | bool] | None = None,
        bins: list[float] | None = None,
        q: float | None = None,
        count: int | None = None,
    ) -> CallToolResult:
        """Ask one question and spend its price; repeating it is free. Returns the interval, its cost and what is left.

        kind mean: the share of rows where a condition holds, or the mean of a number `within` [low, high]; `where`
        restricts to a group. histogram: shares of `categories` or `bins`. quantile: the `q` quantile `within` bounds.
        flips: `count` single 0/1 draws.
        """
        options = _not_none(within=within, where=where, categories=categories, bins=bins, q=q, count=count)

        def act() -> dict[str, Any]:
            session = choose(dataset)
            answer = session.ask(query, kind, **options)
            return {"kind": kind, "answer": answer.to_dict(), "text": repr(answer), **_budget(session)}

        return await _result(act)

    @server.tool(annotations=read_only)
    async def price(
        query: str,
        kind: ToolKind = "mean",
        dataset: str | None = None,
        within: list[float] | None = None,
        where: str | None = None,
        categories: list[str | float | bool] | None = None,
        bins: list[float] | None = None,
        q: float | None = None,
        count: int | None = None,
    ) -> CallToolResult:
        """Return what a question would cost, with the arguments of ask. Reads nothing, spends nothing."""
        options = _not_none(within=within, where=where, categories=categories, bins=bins, q=q, count=count)

        def act() -> dict[str, Any]:
            session = choose(dataset)
            quote = session.price(query, kind, **options)
            return {"price": quote.to_dict(), "text": str(quote), **_budget(session)}

        return await _result(act)

    @server.tool(annotations=read_only)
    async def budget(dataset: str | None = None) -> CallToolResult:
        """Return how many answers are left, and the margin of each."""
        return await _result(lambda: _budget(choose(dataset)) | {"text": str(choose(dataset).budget)})

    @server.tool(annotations=read_only)
    async def schema(dataset: str | None = None) -> CallToolResult:
        """List the columns: names and types, never values."""

        def act() -> dict[str, Any]:
            columns = [{"name": c.name, "type": str(c.type), "nullable": c.nullable} for c in choose(dataset).schema]
            text = ", ".join(f"{column['name']} ({column['type']})" for column in columns)
            return {"columns": columns, "text": text, **_budget(choose(dataset))}

        return await _result(act)

    @server.tool(annotations=read_only)
    async def plan(
        dataset: str | None = None,
        rows: int | None = None,
        queries: int | None = None,
        margin: float | None = None,
        confidence: float = 0.95,
    ) -> CallToolResult:
        """Return the dataset's plan; or plan from two of rows, queries and margin, solving for the third."""

        def act() -> dict[str, Any]:
            if rows is queries is margin is None:
                found = choose(dataset).plan
                return {"plan": found.to_dict(), "text": sentence(found), **_budget(choose(dataset))}
            found = make_plan(rows=rows, queries=queries, margin=margin, confidence=confidence)
            return {"plan": found.to_dict(), "text": sentence(found)}

        return await _result(act)

    return server


def serve_stdio(sessions: Sessions) -> None:
    """Serve over standard input and output until the other side closes them."""
    anyio.run(build_server(sessions).run_stdio_async)


def http_app(sessions: Sessions, token: str) -> ASGIApp:
    """Return the application for streamable HTTP at /mcp; every request must carry the token."""
    return _RequireToken(_unprotected_app(sessions), token)


def _unprotected_app(sessions: Sessions) -> ASGIApp:
    """Return the application for streamable HTTP, to be protected by a token.

    No page of another site can send a token, so host names need no check.
    """
    any_host = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    server = build_server(sessions)
    return server.streamable_http_app(stateless_http=True, json_response=True, transport_security=any_host)


class _RequireToken:
    """ASGI middleware that refuses requests without the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._expected = app, f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            header = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(header, self._expected):
                await JSONResponse(error_payload(_no_token()), status_code=401)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _no_token() -> NotSignedIn:
    return NotSignedIn("A token is required: send 'Authorization: Bearer ...'.")


async def _result(act: Callable[[], dict[str, Any]]) -> CallToolResult:
    """Run the work in a thread and return its result, as text and as structure."""
    try:
        payload = {"ok": True} | await run_sync(act)
    except Exception as error:  # noqa: BLE001  the last boundary: the message of an unexpected error might quote data
        payload = error_payload(error)
        if payload["status"] >= 500:
            log_error("failure", error, kind=payload["kind"])
    text = str(payload["text"] if payload["ok"] else payload["error"])
    plain = json.loads(json.dumps(payload, default=str))
    return CallToolResult(
        content=[TextContent(type="text", text=text)], structured_content=plain, is_error=not payload["ok"]
    )


def _budget(session: Askable) -> dict[str, Any]:
    return {"budget": session.budget.to_dict()}


def _not_none(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


# -- at the server's own /mcp -----------------------------------------------------------------------------------------

_current: "ContextVar[Token]" = ContextVar("token")  # of the request being served


class TokenSession:
    """A dataset asked under a token: the same quotas and metrics as every question over HTTP."""

    def __init__(self, state: "ServerState", served: "ServedDataset", token: "Token") -> None:
        self._state, self._served, self._token = state, served, token

    def ask(self, query: str, kind: str = "mean", **options: Any) -> AnyAnswer:
        """Ask, within the token's quota."""
        response = self._state.service.ask(self._served, self._token, _ask_in(query, kind, options))
        self._state.count(response)
        return answer_from_json(response["answer"])

    def price(self, query: str, kind: str = "mean", **options: Any) -> Quote:
        """Return what a question would cost."""
        return Quote(**self._state.service.price(self._served, self._token, _ask_in(query, kind, options))["price"])

    @property
    def budget(self) -> Budget:
        """What is left to ask, for all analysts together."""
        return self._served.session.budget

    @property
    def plan(self) -> Plan:
        """The plan of the dataset."""
        return self._served.session.plan

    @property
    def schema(self) -> Schema:
        """Column names and types. Never values."""
        schema: Schema = self._served.session.schema
        return schema


class TokenSessions(Mapping[str, Askable]):
    """The datasets by name, as far as the token of the current request allows them."""

    def __init__(self, state: "ServerState") -> None:
        self._state = state

    def __getitem__(self, name: str) -> TokenSession:
        token = _current.get()
        return TokenSession(self._state, self._state.datasets.get(name, token), token)

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def _names(self) -> list[str]:
        return [served.name for served in self._state.datasets.visible(_current.get())]


class McpEndpoint:
    """The route /mcp of the server. An agent sends its token with every request; a cookie is not accepted here."""

    def __init__(self, state: "ServerState") -> None:
        self._app: ASGIApp = _unprotected_app(TokenSessions(state))

    def open(self) -> AbstractAsyncContextManager[Any]:
        """Return the context in which requests can be served."""
        app: Any = self._app
        lifespan: AbstractAsyncContextManager[Any] = app.router.lifespan_context(app)
        return lifespan

    def route(self) -> Route:
        """Return the route."""
        return Route(PATH, self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        from holdfast.service.auth import authorize, token_of

        request = Request(scope, receive)
        if "authorization" not in request.headers:
            raise _no_token()
        await authorize(request, "analyst")
        reset = _current.set(token_of(request))
        try:
            await self._app(scope, receive, send)
        finally:
            _current.reset(reset)


def _ask_in(query: str, kind: str, options: Mapping[str, Any]) -> "AskIn":
    from holdfast.service.schemas import AskIn, validate

    return validate(AskIn, question_json(kind, query, options))
