"""Tools for agents, over the Model Context Protocol: ask, price, sql, budget, schema, plan; submit and standings.

The arguments of ask and price are the options of all registered kinds of questions, in one flat object, which is what
agents' frameworks accept. The tools work on anything with the verbs of a `Session`: the data itself, a server reached
with a token, or, at the server's own /mcp, a dataset asked under the request's token. Every result is structured: the
answer, its cost and what is left; errors have the one shape of all errors.
"""

import hmac
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import anyio
import mcp_types as types
import polars as pl
from anyio.to_thread import run_sync
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast import __version__
from holdfast.cancel import Work, about_to_commit
from holdfast.errors import InvalidArgument, NotSignedIn, UnknownName
from holdfast.guarantees.plan import Plan
from holdfast.guarantees.request import DEFAULT_CONFIDENCE
from holdfast.questions import kind_named
from holdfast.questions.answer import AnyAnswer
from holdfast.questions.batch import Prices
from holdfast.questions.budget import Budget
from holdfast.questions.estimate import Estimate
from holdfast.questions.flips import FLIPS
from holdfast.questions.history import standings_frame
from holdfast.questions.kind import Kind
from holdfast.questions.options import plain
from holdfast.questions.price import Price
from holdfast.questions.question import Question
from holdfast.questions.submit import SUBMIT
from holdfast.schema import Schema
from holdfast.service.calls import read_answer, read_table
from holdfast.service.client import RemoteSession
from holdfast.service.errors import error_payload
from holdfast.service.monitoring import log_error
from holdfast.service.schemas import DEFAULT_KIND, AskIn, QuestionModels, RequestModel, validate
from holdfast.session.planning import plan as make_plan
from holdfast.session.session import Session

if TYPE_CHECKING:  # the server's own packages are not needed for `holdfast mcp`
    from holdfast.service.access import ServerState
    from holdfast.service.ask import Gone
    from holdfast.service.datasets import ServedDataset
    from holdfast.service.tokens import Token

INSTRUCTIONS = (
    "Ask questions about a dataset without seeing its rows, or submit predictions to a board without seeing its labels."
    " Every answer is an interval for the population (a board says what for), and all of them hold at once however you"
    " choose your questions. All answers share one budget: call budget before you plan questions, and price before an"
    " expensive one. Repeating a question is free. Queries are SQL expressions about one row, such as: dep_delay > 15"
    " AND carrier = 'UA'. Numbers need a range: the bounds that schema lists, or within=[low, high]."
)
SQL = (
    "SELECT aggregates FROM the dataset, with WHERE and GROUP BY over columns with declared categories. Aggregates: AVG"
    " (also of a condition), COUNT, SUM, MEDIAN, QUANTILE(x, q), STDDEV, VARIANCE, CORR, COVAR_POP."
)
DESCRIBED = "The tool's input schema says what it takes."
PATH = "/mcp"
SPENDING = ("ask", "sql", SUBMIT.name)  # tools that take from the budget
TICK = 0.01  # seconds
T = TypeVar("T")
Arguments = dict[str, Any]
Context = ServerRequestContext[Any]
Askable: TypeAlias = "Session | RemoteSession | TokenSession"
Sessions = Mapping[str, Askable]
# What every tool returns: a sentence and its structure, or the one shape of all errors.
OUTPUT: dict[str, Any] = {
    "type": "object",
    "required": ["ok"],
    "properties": {"ok": {"type": "boolean"}, "text": {"type": "string"}, "error": {"type": "string"}},
    "if": {"properties": {"ok": {"const": True}}},
    "then": {"required": ["text"]},
    "else": {"required": ["error", "kind", "status", "details"]},
}


class DatasetArguments(RequestModel):
    """The dataset, which may be left out if there is only one."""

    dataset: str | None = None


class PlanArguments(DatasetArguments):
    """The dataset, or two of rows, queries and margin."""

    rows: int | None = None
    queries: int | None = None
    margin: float | None = None
    confidence: float = DEFAULT_CONFIDENCE


class SqlArguments(DatasetArguments):
    """A SELECT, and whether to say only what it costs."""

    sql: str
    price_only: bool = False


class Tools:
    """The tools on these datasets: each has a description, a schema of its arguments, and what it does."""

    def __init__(self, sessions: Sessions, threads: "Threads | None" = None) -> None:
        self._sessions, self._threads = sessions, threads or Threads()
        self._questions = QuestionModels()
        question = self._questions.tool_schema()
        question["properties"] |= {"dataset": {"type": "string", "description": "Needed if there are several."}}
        key = {"type": "string", "description": "Send the same one again to get the same answer, charged once."}
        once = question | {"properties": question["properties"] | {"idempotency_key": key}}
        kinds = "\n".join(
            f"{kind.name}({', '.join(option.name for option in kind.options)}): {kind.summary}"
            for kind in self._questions.kinds
        )
        dataset = DatasetArguments.model_json_schema()
        self._tools: dict[str, tuple[Callable[[Arguments], Any], dict[str, Any]]] = {
            "ask": (self.ask, once),
            "price": (self.price, question),
            "sql": (self.sql, SqlArguments.model_json_schema()),
            "budget": (self.budget, dataset),
            "schema": (self.schema, dataset),
            "plan": (self.plan, PlanArguments.model_json_schema()),
            "submit": (self.submit, self._of_kind(SUBMIT, once)),
            "standings": (self.standings, dataset),
        }
        self._more = {"sql": f"\n\n{SQL}", "ask": f"\n\nKinds of questions:\n{kinds}"}

    def described(self) -> list[types.Tool]:
        """Return every tool as the protocol describes it."""
        return [
            types.Tool(
                name=name,
                description=f"{act.__doc__}{self._more.get(name, '')}",
                input_schema=schema,
                output_schema=OUTPUT,
                annotations=types.ToolAnnotations(read_only_hint=name not in SPENDING, idempotent_hint=True),
            )
            for name, (act, schema) in self._tools.items()
        ]

    async def call(self, name: str, arguments: Arguments) -> types.CallToolResult:
        """Run a tool in a thread and return its result, as text and as structure."""
        try:
            if name not in self._tools:
                raise UnknownName(f"No tool {name!r}. There are: {', '.join(self._tools)}.", name=name)
            payload = {"ok": True} | await self._run(name, arguments)
        except Exception as error:  # noqa: BLE001  the last boundary: an unexpected error's message might quote data
            payload = error_payload(error)
            if payload["status"] >= 500:
                log_error("failure", error, kind=payload["kind"])
        text = str(payload["text"] if payload["ok"] else payload["error"])
        plain = json.loads(json.dumps(payload, default=str))
        content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
        return types.CallToolResult(content=content, structured_content=plain, is_error=not payload["ok"])

    async def _run(self, name: str, arguments: Arguments) -> dict[str, Any]:
        if name in SPENDING:
            spent: dict[str, Any] = await self._tools[name][0](arguments)
            return spent
        return await self._threads.run(partial(self._tools[name][0], arguments))

    async def ask(self, arguments: Arguments) -> dict[str, Any]:
        """Ask one question and spend its price; repeating it is free. Returns the answer and what is left."""
        key = _text(arguments, "idempotency_key")

        def look() -> tuple[Askable, AskIn]:
            session, ask = self._session(_text(arguments, "dataset")), self._questions.read(arguments)
            if ask.problem is not None:
                ask.call(session.price)  # raises the refusal, without asking
            if key is None:
                _check_repeatable(session, ask)
            return session, ask

        session, ask = await self._threads.run(look)
        answer = await self._threads.ask(session, ask, key)
        return await self._threads.run(lambda: {"answer": answer.to_dict(), "text": repr(answer), **_budget(session)})

    async def sql(self, arguments: Arguments) -> dict[str, Any]:
        """Answer a SELECT of aggregates and spend its price: a table with low and high beside every value."""
        asked = validate(SqlArguments, arguments, DESCRIBED)
        session = await self._threads.run(lambda: self._session(asked.dataset))
        if asked.price_only:
            prices = await self._threads.run(lambda: session.price_sql(asked.sql))
            return prices.to_dict() | {"text": str(prices)}
        frame = await self._threads.sql(session, asked.sql)
        with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True):
            text = str(frame)
        rows = [plain(list(row)) for row in frame.rows()]
        budget = await self._threads.run(lambda: _budget(session))
        return {"columns": frame.columns, "rows": rows, "text": text, **budget}

    async def submit(self, arguments: Arguments) -> dict[str, Any]:
        """Submit predictions to a board: are they better than the best so far? The same predictions again are free."""
        return await self.ask(arguments | {"kind": SUBMIT.name})

    def standings(self, arguments: Arguments) -> dict[str, Any]:
        """Return the submissions to a board: improvements, the best first, then those that were no better."""
        session = self._session(validate(DatasetArguments, arguments, DESCRIBED).dataset)
        lines = session.standings().to_dicts()
        best = "No submissions yet."
        if lines:
            _, low, high = Estimate(lines[0]["low"], lines[0]["low"], lines[0]["high"]).rounded()
            best = f"The best is number {lines[0]['seq']}, between {low} and {high}."
        return {"standings": lines, "text": best, **_budget(session)}

    @staticmethod
    def _of_kind(kind: Kind[..., Any], question: dict[str, Any]) -> dict[str, Any]:
        """Return the schema of the arguments of one kind alone."""
        names = ("dataset", "idempotency_key", *(option.name for option in kind.options))
        properties = {name: question["properties"][name] for name in names}
        required = [option.name for option in kind.options if option.required]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def price(self, arguments: Arguments) -> dict[str, Any]:
        """Return what a question would cost, with the arguments of ask. Reads nothing, spends nothing."""
        session = self._session(_text(arguments, "dataset"))
        price = self._questions.read(arguments).call(session.price)
        return {"price": price.to_dict(), "text": str(price), **_budget(session)}

    def budget(self, arguments: Arguments) -> dict[str, Any]:
        """Return how wide answers are now and later on, and how many are left where there is an end."""
        session = self._session(validate(DatasetArguments, arguments, DESCRIBED).dataset)
        return _budget(session) | {"text": str(session.budget)}

    def schema(self, arguments: Arguments) -> dict[str, Any]:
        """List the columns: names, types, declared bounds and categories. Never what the rows hold."""
        session = self._session(validate(DatasetArguments, arguments, DESCRIBED).dataset)
        schema = session.schema
        text = ", ".join(f"{one.name} ({one.type}{one.declared and f': {one.declared}'})" for one in schema)
        return {"columns": [column.to_json() for column in schema], "text": text, **_budget(session)}

    def plan(self, arguments: Arguments) -> dict[str, Any]:
        """Return the dataset's plan; or plan from two of rows, queries and margin, or from rows alone."""
        goal = validate(PlanArguments, arguments, DESCRIBED)
        if goal.rows is goal.queries is goal.margin is None:
            session = self._session(goal.dataset)
            return {"plan": session.plan.to_dict(), "text": session.plan.sentence, **_budget(session)}
        self._threads.count_plan()
        found = make_plan(rows=goal.rows, queries=goal.queries, margin=goal.margin, confidence=goal.confidence)
        return {"plan": found.to_dict(), "text": found.sentence}

    def _session(self, dataset: str | None) -> Askable:
        if dataset is None and len(self._sessions) == 1:
            return next(iter(self._sessions.values()))
        names = ", ".join(self._sessions) or "none"
        if dataset is None and len(self._sessions) > 1:
            raise InvalidArgument(f"dataset must be given: there are several, {names}.", name="dataset")
        if dataset is None or dataset not in self._sessions:
            asked = "No dataset." if dataset is None else f"No dataset {dataset!r}."
            raise UnknownName(f"{asked} There are: {names}.", name=dataset)
        return self._sessions[dataset]


class Threads:
    """Where tools run and how they ask: here in any thread, on a coarse clock; at a server in the caller's turn."""

    async def run(self, act: Callable[[], T]) -> T:
        """Return what `act` returns, in a thread."""
        return await run_sync(act)

    def count_plan(self) -> None:
        """Called before a plan is made; a server may refuse."""

    async def ask(self, session: "Askable", ask: AskIn, key: str | None) -> AnyAnswer:
        """Ask, on a coarse clock: how long an evaluation took may depend on the rows."""
        assert not isinstance(session, TokenSession)
        return await run_sync(_on_the_clock, partial(ask.call, session.ask, idempotency_key=key))

    async def sql(self, session: "Askable", text: str) -> pl.DataFrame:
        """Answer a SELECT, on a coarse clock."""
        assert not isinstance(session, TokenSession)
        return await run_sync(_on_the_clock, partial(session.sql, text))


def _on_the_clock(act: Callable[[], T]) -> T:
    """Return what `act` returns; report a failure after rows were drawn on the coarse clock, too."""
    work = Work(TICK)
    try:
        return work.run(act)
    except Exception:  # also an unexpected one, which the rows may have caused
        if work.begun:
            work.run(about_to_commit)
        raise


def _check_repeatable(session: Askable, ask: AskIn) -> None:
    """Refuse a question that is new each time and has no key: if sent again by mistake, it would be charged twice."""
    if isinstance(session, RemoteSession) or ask.count > 1:  # without a plan to prepare questions for; or it is a list
        new_each_time = ask.kind.name == FLIPS.name
    else:
        new_each_time = ask.call(session.prepare).identity is None
    if new_each_time:
        message = f"{ask.kind.name} is new each time: send an idempotency_key, and with it again to get it again."
        raise InvalidArgument(message, name="idempotency_key")


def _text(arguments: Arguments, name: str) -> str | None:
    """Remove a text argument from those of a question and return it; None if it was left out."""
    given = arguments.pop(name, None)
    if given is not None and not isinstance(given, str):
        raise InvalidArgument(f"{name} must be text; got {type(given).__name__}.", name=name)
    return given


def _budget(session: Askable) -> dict[str, Any]:
    return {"budget": session.budget.to_dict()}


def build_server(sessions: Sessions, threads: Threads | None = None) -> Server[Any]:
    """Return the MCP server of these datasets."""
    tools = Tools(sessions, threads)

    async def list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools.described())

    async def call_tool(_: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        return await tools.call(params.name, dict(params.arguments or {}))

    return Server(
        "holdfast",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def serve_stdio(sessions: Sessions) -> None:
    """Serve over standard input and output until the other side closes them."""

    async def run() -> None:
        server = build_server(sessions)
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    anyio.run(run)


def http_app(sessions: Sessions, token: str) -> ASGIApp:
    """Return the application for streamable HTTP at /mcp; every request must carry the token."""
    app, expected = _unprotected_app(sessions), f"Bearer {token}".encode()

    async def protected(scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        refused = scope["type"] == "http" and not hmac.compare_digest(given, expected)
        inner = JSONResponse(error_payload(_no_token()), status_code=401) if refused else app
        await inner(scope, receive, send)

    return protected


def _unprotected_app(sessions: Sessions, threads: Threads | None = None) -> Starlette:
    """Return the application for streamable HTTP, to be protected by a token.

    A page of another site cannot send the token, so host names need no check.
    """
    any_host = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    server = build_server(sessions, threads)
    return server.streamable_http_app(stateless_http=True, json_response=True, transport_security=any_host)


def _no_token() -> NotSignedIn:
    return NotSignedIn("A token is required: send 'Authorization: Bearer ...'.")


# -- at the server's own /mcp -----------------------------------------------------------------------------------------

_current: "ContextVar[Token]" = ContextVar("token")  # of the request being served
_gone: "ContextVar[Gone]" = ContextVar("gone")  # whether the caller has left


class TokenSession:
    """A dataset asked under a token: the same quotas, metrics and errors as every question over HTTP."""

    def __init__(self, state: "ServerState", served: "ServedDataset", token: "Token") -> None:
        self.name, self._service, self._served, self._token = served.name, state.service, served, token

    def _look(self, look: Callable[[Session], T]) -> T:
        """Return what `look` returns for the session; errors name no place where it is."""
        with self._served.naming:
            return look(self._served.session)

    def price_sql(self, text: str) -> Prices:
        """Return what a SELECT would cost."""
        return self._look(lambda _: self._service.price_sql(self._served, self._token, text))

    def prepare(self, query: Any, kind: str = DEFAULT_KIND, **options: object) -> Question:
        """Return the question, checked but not asked."""
        return self._look(lambda session: session.prepare(query, kind, **options))  # type: ignore[arg-type]

    def price(self, query: Any, kind: str = DEFAULT_KIND, **options: object) -> Price:
        """Return what a question would cost."""
        asked = kind_named(kind)
        ask = self._service.questions.read(asked.to_json({asked.subject.name: query, **options}))
        return Price.from_dict(self._look(lambda _: self._service.price(self._served, self._token, ask))["price"])

    @property
    def budget(self) -> Budget:
        """What is left to ask, for all analysts together, and of the token's quota, if it has one."""
        left = self._look(lambda _: self._service.left(self._served, self._token))
        return self._look(lambda session: replace(session.budget, quota=left["quota"]))

    def standings(self) -> pl.DataFrame:
        """Return the submissions to a board, the best first."""
        return self._look(lambda _: standings_frame(self._served.standings()))

    @property
    def plan(self) -> Plan:
        """The plan of the dataset."""
        return self._look(lambda session: session.plan)

    @property
    def schema(self) -> Schema:
        """Column names, types, and what else is declared. Never what the rows hold."""
        return self._served.session.schema


class TokenSessions(Mapping[str, Askable]):
    """The datasets, by name, that the token of the current request allows."""

    def __init__(self, state: "ServerState") -> None:
        self._state = state

    def __getitem__(self, name: str) -> TokenSession:
        token = _current.get()
        return TokenSession(self._state, self._state.datasets.get(name, token), token)

    def __iter__(self) -> Iterator[str]:
        return (served.name for served in self._state.datasets.visible(_current.get()))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _TokenThreads(Threads):
    """The server's lanes, in the turn of the current request's caller."""

    def __init__(self, state: "ServerState") -> None:
        self._state = state

    async def run(self, act: Callable[[], T]) -> T:
        return await self._state.lanes.reads.run(_current.get().name, act)

    def count_plan(self) -> None:
        self._state.count_plan(_current.get())

    async def ask(self, session: Askable, ask: AskIn, key: str | None) -> AnyAnswer:
        assert isinstance(session, TokenSession)
        response = await self._state.service.ask(session.name, _current.get(), lambda: ask, key, gone=_gone.get())
        return read_answer(response["answer"])

    async def sql(self, session: Askable, text: str) -> pl.DataFrame:
        assert isinstance(session, TokenSession)
        return read_table(await self._state.service.sql(session.name, _current.get(), text, None, gone=_gone.get()))


class McpEndpoint:
    """The route /mcp of the server. An agent sends its token with every request; a cookie is not accepted here."""

    def __init__(self, state: "ServerState") -> None:
        self._app = _unprotected_app(TokenSessions(state), _TokenThreads(state))

    def open(self) -> AbstractAsyncContextManager[Any]:
        """Return the context in which requests can be served."""
        return self._app.router.lifespan_context(self._app)

    def route(self) -> Route:
        """Return the route."""
        return Route(PATH, self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        from holdfast.service.access import authorize, token_of

        request = Request(scope, receive)
        if "authorization" not in request.headers:
            raise _no_token()
        await authorize(request, "analyst")
        token, gone = _current.set(token_of(request)), _gone.set(request.is_disconnected)
        try:
            await self._app(scope, receive, send)
        finally:
            _current.reset(token)
            _gone.reset(gone)
