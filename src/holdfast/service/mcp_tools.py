"""Tools for agents, over the Model Context Protocol: ask, price, budget, schema, plan.

Whatever answers has the verbs of a `Session`: the data itself, or a server reached with a token. Every result is
structured: the interval, what it cost and what is left; a refusal has the shape every refusal has.
"""

import hmac
import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

import anyio
from anyio.to_thread import run_sync
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.errors import HoldfastError, NotSignedIn, UnknownName
from holdfast.planning import plan as make_plan
from holdfast.planning.present import sentence

INSTRUCTIONS = (
    "Ask questions about a dataset without seeing its rows. Every answer is an interval for the population, and all of"
    " them hold at once however you choose your questions, because all answers share one budget: call budget before you"
    " plan your questions, price before a dear one. A question asked before is free. Queries are SQL expressions about"
    " one row, such as: dep_delay > 15 AND carrier = 'UA'. Numbers need declared bounds: within=[low, high]."
)
Kind = Literal["mean", "histogram", "quantile", "flips"]


def build(sessions: Mapping[str, Any]) -> MCPServer[Any]:
    """Return the server of these datasets; `sessions` have the verbs of `Session`."""
    server: MCPServer[Any] = MCPServer("holdfast", instructions=INSTRUCTIONS, log_level="WARNING")
    reading = ToolAnnotations(read_only_hint=True)

    def chosen(dataset: str | None) -> Any:
        names = ", ".join(sessions)
        if dataset is None and len(sessions) == 1:
            return next(iter(sessions.values()))
        if dataset is None or dataset not in sessions:
            raise UnknownName(f"No dataset {dataset!r}. There are: {names}.", name=dataset)
        return sessions[dataset]

    @server.tool(annotations=ToolAnnotations(read_only_hint=False, idempotent_hint=True))
    async def ask(
        query: str,
        kind: Kind = "mean",
        dataset: str | None = None,
        within: list[float] | None = None,
        where: str | None = None,
        categories: list[str | float | bool] | None = None,
        bins: list[float] | None = None,
        q: float | None = None,
        count: int | None = None,
    ) -> CallToolResult:
        """Ask one question and spend its price; asked before, it is free. Returns the interval, cost and what is left.

        kind mean: the share of rows where a condition holds, or the mean of a number `within` [low, high]; `where`
        restricts to a group. histogram: shares of `categories` or `bins`. quantile: the `q` quantile `within` bounds.
        flips: `count` single coins.
        """
        options = _given(within=within, where=where, categories=categories, bins=bins, q=q, count=count)

        def act() -> dict[str, Any]:
            session = chosen(dataset)
            answer = session.ask(query, kind, **options)
            return {"kind": kind, "answer": answer.to_dict(), "said": repr(answer), **_left(session)}

        return await _told(act)

    @server.tool(annotations=reading)
    async def price(
        query: str,
        kind: Kind = "mean",
        dataset: str | None = None,
        within: list[float] | None = None,
        where: str | None = None,
        categories: list[str | float | bool] | None = None,
        bins: list[float] | None = None,
        q: float | None = None,
        count: int | None = None,
    ) -> CallToolResult:
        """Say what a question would cost, with the arguments of ask. Reads nothing, spends nothing."""
        options = _given(within=within, where=where, categories=categories, bins=bins, q=q, count=count)

        def act() -> dict[str, Any]:
            session = chosen(dataset)
            quote = session.price(query, kind, **options)
            return {"price": quote.to_dict(), "said": str(quote), **_left(session)}

        return await _told(act)

    @server.tool(annotations=reading)
    async def budget(dataset: str | None = None) -> CallToolResult:
        """Say how many answers are left, and how accurate each is."""
        return await _told(lambda: _left(chosen(dataset)) | {"said": str(chosen(dataset).budget)})

    @server.tool(annotations=reading)
    async def schema(dataset: str | None = None) -> CallToolResult:
        """List the columns: names and types, never values."""

        def act() -> dict[str, Any]:
            columns = [{"name": c.name, "type": str(c.type), "nullable": c.nullable} for c in chosen(dataset).schema]
            said = ", ".join(f"{column['name']} ({column['type']})" for column in columns)
            return {"columns": columns, "said": said, **_left(chosen(dataset))}

        return await _told(act)

    @server.tool(annotations=reading)
    async def plan(
        dataset: str | None = None,
        rows: int | None = None,
        queries: int | None = None,
        accuracy: float | None = None,
        confidence: float = 0.95,
    ) -> CallToolResult:
        """Show the plan that stands; or give two of rows, queries and accuracy, and the third is solved for."""

        def act() -> dict[str, Any]:
            if rows is queries is accuracy is None:
                found = chosen(dataset).plan
                return {"plan": found.to_dict(), "said": sentence(found), **_left(chosen(dataset))}
            found = make_plan(rows=rows, queries=queries, accuracy=accuracy, confidence=confidence)
            return {"plan": found.to_dict(), "said": sentence(found)}

        return await _told(act)

    return server


def serve_stdio(sessions: Mapping[str, Any]) -> None:
    """Speak over standard input and output until the other side hangs up."""
    anyio.run(build(sessions).run_stdio_async)


def http_app(sessions: Mapping[str, Any], token: str) -> ASGIApp:
    """Return the application for streamable HTTP at /mcp; every request must bear the token."""
    return _Guarded(unguarded(sessions), token)


def unguarded(sessions: Mapping[str, Any]) -> ASGIApp:
    """Return the application for streamable HTTP at /mcp, for somebody else to guard.

    Whoever guards it asks for a token, which no page of another site can send: names of hosts need no check.
    """
    anywhere = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    return build(sessions).streamable_http_app(stateless_http=True, json_response=True, transport_security=anywhere)


class _Guarded:
    """Lets in whoever bears the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._wanted = app, f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            shown = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(shown, self._wanted):
                refusal = NotSignedIn("A token is needed: send 'Authorization: Bearer ...'.")
                await JSONResponse(_shape(refusal), status_code=401)(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def _told(act: Callable[[], dict[str, Any]]) -> CallToolResult:
    """Run the work beside the loop and say it, as text and as structure."""
    try:
        said = {"ok": True} | await run_sync(act)
    except HoldfastError as error:
        said = _shape(error)
    except Exception as error:  # noqa: BLE001  the last boundary: the words of an error nobody foresaw might quote data
        said = _shape(HoldfastError(f"Something went wrong here ({type(error).__name__}). Try another question."))
    text = str(said["said"]) if said["ok"] else str(said["error"])
    plain = json.loads(json.dumps(said, default=str))
    return CallToolResult(
        content=[TextContent(type="text", text=text)], structured_content=plain, is_error=not said["ok"]
    )


def _shape(error: HoldfastError) -> dict[str, Any]:
    """Return the one shape of every refusal."""
    details = json.loads(json.dumps(error.fields, default=str))
    return {"ok": False, "error": error.message, "kind": error.kind, "status": error.status, "details": details}


def _left(session: Any) -> dict[str, Any]:
    return {"left": session.budget.to_dict()}


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
