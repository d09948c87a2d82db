"""The routes under /api/v1: for every token, then for the admin.

Every route is a few lines: the token, the dataset, one verb of the session, plain JSON. The work runs in a thread, so a
slow disk delays no other request.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Any

from fastapi import Header, Path, Query
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from holdfast.errors import HoldfastError, NotAllowed, UnknownName
from holdfast.ledger import Entry, Head
from holdfast.questions.history import history_frame
from holdfast.service.access import (
    Endpoint,
    GuardedRoute,
    Routes,
    ServerState,
    in_thread,
    on_dataset,
    state_of,
    token_of,
)
from holdfast.service.database import Body, encode
from holdfast.service.datasets import NOT_BEGUN, ServedDataset, promise_of
from holdfast.service.errors import ProtocolError
from holdfast.service.limits import ErrorHandler, LimitedSend, body_of, header
from holdfast.service.schemas import (
    LONGEST_NAME,
    MAX_INTEGER,
    REFERENCE,
    AskIn,
    AskOut,
    BatchOut,
    DatasetIn,
    ErrorOut,
    Name,
    OkOut,
    PriceOut,
    PricesOut,
    SqlIn,
    SqlOut,
    TokenIn,
    TokenUpdateIn,
    validate,
)
from holdfast.service.tokens import Token
from holdfast.session.planning import plan as make_plan

V1 = "/api/v1"
MAX_PAGE = 1_000  # entries
LONG_PAGE = 20_000  # intervals, after which a page ends: an entry of groups has hundreds
routes = Routes()  # tried in this order, so the route of every answer comes first
Act = Callable[[ServerState], dict[str, Any]]
TokenId = Annotated[str, Path(min_length=1, max_length=32, description="The id of a token, not its secret.")]
NameInPath = Annotated[Name, Path(description="A dataset that your token allows.")]
KeyHeader = Annotated[
    str | None,
    Header(alias="Idempotency-Key", max_length=200, description="A new key for each request; a retry repeats it."),
]
_ERRORS = {
    400: "The request could not be read",
    401: "No token, or an unknown one",
    403: "Not allowed for this token",
    404: "No such dataset, column or entry",
    409: "The budget or a quota cannot pay, or the request contradicts the plan",
    413: "Too large",
    415: "Not JSON",
    422: "Not a valid question, or none that the guarantee covers",
    429: "Too many requests",
    503: "The ledger or the data is unavailable",
}


def responses(model: Any, *statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the responses of a route: its success, and the errors that can happen there."""
    usual = (400, 401, 404, 413, 422, 429, 503)
    errors: dict[int | str, dict[str, Any]] = {
        status: {"model": ErrorOut, "description": _ERRORS[status]} for status in sorted({*usual, *statuses})
    }
    return {200: {"model": model}, **errors}


class JsonResponse(Response):
    """JSON that is sent in one write if the connection allows it."""

    def __init__(self, body: bytes) -> None:
        self.body: bytes = body
        self.status_code, self.background = 200, None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, with the only two headers that it has."""
        if not (isinstance(send, LimitedSend) and send.whole(self.status_code, self.body)):
            self.raw_headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(self.body))]
            await super().__call__(scope, receive, send)


def json_response(payload: dict[str, Any]) -> Response:
    """Return compact JSON."""
    return JsonResponse(payload.encoded() if isinstance(payload, Body) else encode(payload))


def _json_body(request: Request) -> Any:
    """Return the JSON of a request."""
    if (header(request, b"content-type") or "").partition(";")[0].strip().lower() != "application/json":
        raise ProtocolError(415)
    try:
        return from_json(body_of(request), allow_inf_nan=False)
    except ValueError:
        raise ProtocolError(400) from None


def _get(path: str, *statuses: int) -> Callable[[Endpoint], Endpoint]:
    return routes.declare("analyst", "GET", V1 + path, responses=responses(OkOut, *statuses))


def _post(path: str, model: Any, *, body: str = "AskIn", **options: Any) -> Callable[[Endpoint], Endpoint]:
    """Declare a route that reads its body itself."""
    content = {"application/json": {"schema": {"$ref": REFERENCE.format(model=body)}}}
    options |= {"openapi_extra": {"requestBody": {"required": True, "content": content}}}
    return routes.declare(
        "analyst", "POST", f"{V1}/datasets/{{name}}/{path}", responses=responses(model, 409, 415), **options
    )


async def _look(request: Request, name: str, look: Callable[[ServedDataset], dict[str, Any]]) -> Response:
    """Respond with what `look` returns for the dataset: written in its thread, too, as a history may be long."""
    return await on_dataset(request, name, lambda served: json_response({"ok": True, "dataset": name} | look(served)))


async def _act(request: Request, name: str, act: Callable[[ServedDataset, Token, AskIn], dict[str, Any]]) -> Response:
    """Respond with what `act` returns for the question in the body."""
    questions, token, body = state_of(request).questions, token_of(request), _json_body(request)
    return await on_dataset(request, name, lambda served: json_response(act(served, token, questions.read(body))))


class AskDirectly:
    """An application that serves only `ask`, without the layers that find routes, parameters and errors."""

    def __init__(self, routes: Iterable[BaseRoute], handle_error: ErrorHandler) -> None:
        self._route = next(one for one in routes if isinstance(one, GuardedRoute) and one.endpoint is ask)
        self._handle_error = handle_error

    def takes(self, scope: Scope) -> bool:
        """Whether this request is for the route, and its name not too long; if so, note the route in its scope."""
        if scope["type"] != "http" or scope["method"] != "POST" or scope.get("root_path"):
            return False
        found = self._route.path_regex.match(scope["path"])
        if found is None or len(found["name"]) > LONGEST_NAME:
            return False
        scope["route"], scope["path_params"] = self._route, found.groupdict()
        return True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request for which `takes` returned True."""
        request = Request(scope, receive)
        try:
            await self._route.check(request)
            response = await ask(request, scope["path_params"]["name"], header(request, b"idempotency-key"))
        except (HoldfastError, ProtocolError) as error:
            response = await self._handle_error(request, error)
        await response(scope, receive, send)


@_post("ask", AskOut)
async def ask(request: Request, name: NameInPath, key: KeyHeader = None) -> Response:
    """Ask one question. The answer is committed to the ledger before it is sent; a repeated question is free."""
    state, token, body = state_of(request), token_of(request), _json_body(request)
    asked = partial(state.questions.read, body)
    return json_response(await state.service.ask(name, token, asked, key, gone=request.is_disconnected))


async def overviews(request: Request) -> list[dict[str, Any]]:
    """Return everything public about the datasets that the caller's token allows."""
    state, token = state_of(request), token_of(request)
    return await in_thread(request, lambda: state.overviews(token))


@_get("/datasets")
async def datasets(request: Request) -> Response:
    """List the datasets your token allows."""
    return json_response({"ok": True, "datasets": await overviews(request)})


@_get("/me")
async def me(request: Request) -> Response:
    """Return your token without its secret, and what is left for it in each dataset."""
    state, token = state_of(request), token_of(request)
    found = await in_thread(request, lambda: state.look_at_each(token, lambda one: state.service.left(one, token)))
    left = {name: one for name, one in found.items() if not isinstance(one, HoldfastError)}
    return json_response({"ok": True, "token": token.to_dict(), "left": left})


@_get("/datasets/{name}")
async def dataset(request: Request, name: NameInPath) -> Response:
    """Return one dataset: its guarantee as a sentence, plan, budget and ledger head."""
    return await _look(request, name, lambda served: served.overview())


@_get("/datasets/{name}/schema")
async def schema(request: Request, name: NameInPath) -> Response:
    """List the columns: names, types, and what else is declared. Never what the rows hold."""
    return await _look(request, name, lambda served: {"columns": served.schema()})


@_get("/datasets/{name}/budget")
async def budget(request: Request, name: NameInPath) -> Response:
    """Return what is left of the budget."""

    def look(served: ServedDataset) -> dict[str, Any]:
        found, left = served.session.budget, state_of(request).service.left(served, token_of(request))
        return {"budget": found.to_dict(), "text": str(replace(found, quota=left["quota"])), "left": left}

    return await _look(request, name, look)


@_get("/datasets/{name}/plan")
async def dataset_plan(request: Request, name: NameInPath) -> Response:
    """Return the plan of the dataset."""
    return await _look(request, name, lambda served: {"plan": served.plan.to_dict(), "text": promise_of(served.plan)})


@_get("/datasets/{name}/head")
async def head(request: Request, name: NameInPath) -> Response:
    """Return the number and hash of the newest entry: once published, no earlier entry can be rewritten."""

    def look(served: ServedDataset) -> dict[str, Any]:
        newest = served.head
        text = NOT_BEGUN if newest is None else f"Entry {newest.seq:,} is the newest."
        return {"head": newest and asdict(newest), "text": text}

    return await _look(request, name, look)


@_get("/datasets/{name}/receipts/{seq}")
async def receipt(
    request: Request,
    name: NameInPath,
    seq: Annotated[int, Path(ge=0, le=MAX_INTEGER, description="The number of an entry.")],
) -> Response:
    """Return the proof that an answer is in the ledger."""
    return await _look(request, name, lambda served: {"receipt": served.receipt(seq).to_dict()})


@_get("/datasets/{name}/history")
async def history(
    request: Request,
    name: NameInPath,
    start: Annotated[int, Query(ge=1, le=MAX_INTEGER, description="The number of the first entry.")] = 1,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="At most how many entries.")] = 100,
) -> Response:
    """Page through all answers so far, of all analysts; one row for each interval. Go on from `next`."""

    def look(served: ServedDataset) -> dict[str, Any]:
        ledger = served.session.ledger
        entries, shown = list[Entry](), 0
        for entry in ledger.entries(start, limit):
            entries.append(entry)
            shown += entry.cost.intervals
            if shown >= LONG_PAGE:
                break
        newest = ledger.spent.answers
        following = entries[-1].seq + 1 if entries and entries[-1].seq < newest else None
        frame = history_frame(entries, served.plan.standing, served.session.answering.registered)
        return {"rows": frame.to_dicts(), "next": following, "entries": newest}

    return await _look(request, name, look)


@_get("/datasets/{name}/standings")
async def standings(request: Request, name: NameInPath) -> Response:
    """Return the submissions to a board: improvements, the best first, then those that were no better."""

    def look(served: ServedDataset) -> dict[str, Any]:
        return {"standings": served.standings(), "about": served.plan.standing.sentence}

    return await _look(request, name, look)


@_post("price", PriceOut)
async def price(request: Request, name: NameInPath) -> Response:
    """Return the price of a question. Reads nothing, spends nothing."""
    return await _act(request, name, state_of(request).service.price)


@_post("dry-run", AskOut)
async def dry_run(request: Request, name: NameInPath) -> Response:
    """Answer from made-up rows, with the same checks and the same shape. Reads nothing, spends nothing."""
    return await _act(request, name, state_of(request).service.dry_run)


@_post("batch", BatchOut, body="BatchIn")
async def batch(request: Request, name: NameInPath, key: KeyHeader = None) -> Response:
    """Ask several questions: all of them are answered, in one transaction, or none."""
    state, token = state_of(request), token_of(request)
    asks = state.questions.read_batch(_json_body(request))
    return json_response(await state.service.batch(name, token, asks, key, gone=request.is_disconnected))


@_post("batch/price", PricesOut, body="BatchIn")
async def batch_price(request: Request, name: NameInPath) -> Response:
    """Return what several questions cost together. Reads nothing, spends nothing."""
    state, token = state_of(request), token_of(request)
    asks = state.questions.read_batch(_json_body(request))
    return await on_dataset(request, name, lambda served: json_response(state.service.prices(served, token, asks)))


@_post("sql", SqlOut, body="SqlIn")
async def sql(request: Request, name: NameInPath, key: KeyHeader = None) -> Response:
    """Answer a SELECT of aggregates: a row for each group, and low and high beside every value."""
    state, token = state_of(request), token_of(request)
    text = validate(SqlIn, _json_body(request)).sql
    return json_response(await state.service.sql(name, token, text, key, gone=request.is_disconnected))


@_post("sql/price", PricesOut, body="SqlIn")
async def sql_price(request: Request, name: NameInPath) -> Response:
    """Return what a SELECT costs. Reads nothing, spends nothing."""
    state, token = state_of(request), token_of(request)
    text = validate(SqlIn, _json_body(request)).sql
    return await on_dataset(request, name, lambda served: json_response(state.service.sql_prices(served, token, text)))


@_get("/plan")
async def explore_plans(
    request: Request,
    rows: Annotated[int | None, Query(ge=2, le=10**12)] = None,
    queries: Annotated[int | None, Query(ge=1, le=10**9)] = None,
    margin: Annotated[float | None, Query(gt=0, lt=1, allow_inf_nan=False)] = None,
    confidence: Annotated[float, Query(gt=0, lt=1, allow_inf_nan=False)] = 0.95,
) -> Response:
    """Plan from two of rows, queries and margin; all guarantees are compared on the third."""
    found = await in_thread(request, lambda: compare_plans(request, rows, queries, margin, confidence))
    return json_response({"ok": True, **found})


def compare_plans(
    request: Request, rows: int | None, queries: int | None, margin: float | None, confidence: float
) -> dict[str, Any]:
    """Return the plan, its sentence, all alternatives, and margins for other numbers of rows per answer."""
    state_of(request).count_plan(token_of(request))
    found = make_plan(rows=rows, queries=queries, margin=margin, confidence=confidence)
    others, readings = [asdict(one) for one in found.alternatives], [asdict(one) for one in found.readings]
    return {"plan": found.to_dict(), "text": promise_of(found), "alternatives": others, "readings": readings}


# -- for the admin: tokens, quotas, datasets, verifying the ledger --------------------------------------------------


def list_tokens(state: ServerState) -> list[dict[str, Any]]:
    """Return every token with the answers used under its name."""
    found = state.look_at_each(state.admin, lambda served: served.usage.by_analyst())
    used = {name: counts for name, counts in found.items() if not isinstance(counts, HoldfastError)}
    return [
        token.to_dict()
        | {"active": state.tokens.is_active(token), "used": {name: counts[token.name] for name, counts in used.items()}}
        for token in state.tokens.all()
    ]


def create_for(state: ServerState, body: TokenIn) -> tuple[str, Token]:
    """Create a token for datasets that exist."""
    known = state.datasets.names()
    for name in body.datasets or ():
        if name not in known:
            raise UnknownName(f"No dataset {name!r}. There are: {', '.join(known) or 'none'}.", name=name)
    return state.tokens.create(body.name, admin=body.admin, datasets=body.datasets, quota=body.quota, days=body.days)


def revoke_for(state: ServerState, id: str, by: Token) -> Token:
    """Revoke a token, except the caller's own, so that nobody locks out the last admin by mistake."""
    if id == by.id:
        raise NotAllowed("You are using this token. Create another admin token, and revoke this one with it.")
    return state.tokens.revoke(id)


def register_file(state: ServerState, body: DatasetIn) -> ServedDataset:
    """Serve a file from the data folder."""
    return state.datasets.register(**body.model_dump(exclude_none=True))


def verify_ledger(state: ServerState, name: str, token: Token) -> Head | None:
    """Re-check every entry; None if there are none yet."""
    served = state.datasets.get(name, token)
    with served.naming:
        return served.session.ledger.verify() if served.session.ledger.begun else None


def _admin(method: str, path: str, *statuses: int) -> Callable[[Endpoint], Endpoint]:
    return routes.declare("admin", method, V1 + path, responses=responses(OkOut, 403, *statuses))


async def _done(request: Request, act: Act) -> Response:
    """Do what was requested, then respond with its result."""
    state = state_of(request)
    return json_response({"ok": True} | await in_thread(request, lambda: act(state)))


@_admin("GET", "/tokens")
async def tokens(request: Request) -> Response:
    """List every token ever created, and the answers used under its name. No secrets."""
    return await _done(request, lambda state: {"tokens": list_tokens(state)})


@_admin("POST", "/tokens")
async def create_token(request: Request, body: TokenIn) -> Response:
    """Create a token. Its secret is in this response and nowhere else."""

    def act(state: ServerState) -> dict[str, Any]:
        secret, token = create_for(state, body)
        return {"secret": secret, "token": token.to_dict()}

    return await _done(request, act)


@_admin("PATCH", "/tokens/{id}")
async def update_token(request: Request, id: TokenId, body: TokenUpdateIn) -> Response:
    """Set a quota."""
    return await _done(request, lambda state: {"token": state.tokens.set_quota(id, body.quota).to_dict()})


@_admin("DELETE", "/tokens/{id}")
async def revoke_token(request: Request, id: TokenId) -> Response:
    """Revoke a token: at once in this process, within a second in others."""
    return await _done(request, lambda state: {"token": revoke_for(state, id, token_of(request)).to_dict()})


@_admin("POST", "/datasets", 409)
async def register_dataset(request: Request, body: DatasetIn) -> Response:
    """Serve a file from the data folder."""
    return await _done(request, lambda state: {"dataset": body.name} | register_file(state, body).overview())


@_admin("POST", "/datasets/{name}/verify")
async def verify(request: Request, name: NameInPath) -> Response:
    """Re-check every entry of the ledger."""

    def act(state: ServerState) -> dict[str, Any]:
        head = verify_ledger(state, name, token_of(request))
        return {"dataset": name, "verified": head and asdict(head)}

    return await _done(request, act)
