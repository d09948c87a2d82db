"""The routes under /api/v1 for whoever holds a token.

Every route is a few lines: who asks, which dataset, one verb of the session, plain JSON. The work runs in a thread, so
a slow disk holds up nobody else.
"""

import json
from typing import Annotated, Any

from fastapi import FastAPI, Header, Path, Query
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from holdfast.history import history_frame
from holdfast.planning import plan as make_plan
from holdfast.planning.present import sentence
from holdfast.service.access import GuardedRoute, Handler, open_to, person_of
from holdfast.service.datasets import Served
from holdfast.service.desk import Desk, desk_of, in_thread
from holdfast.service.settings import LONGEST_NAME
from holdfast.service.shapes import WHOLE, Ask, Asked, Batch, BatchOut, Failed, Name, Priced, Said

V1 = "/api/v1"
LONGEST_PAGE = 1_000
NameInPath = Annotated[Name, Path(description="A dataset that your token reaches.")]
KeyHeader = Annotated[
    str | None,
    Header(alias="Idempotency-Key", max_length=200, description="A new text for each request; a retry repeats it."),
]
_PROBLEMS = {
    400: "The request cannot be read",
    401: "No token, or one that is not known",
    403: "Not for this token",
    404: "No such dataset, column or entry",
    409: "The budget or a quota cannot pay, or the plan forbids it",
    413: "Too large",
    422: "Not a question that may be asked",
    429: "Too fast",
    503: "The ledger or the data cannot be reached just now",
}


def replies(model: Any, *statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe what a route says: its success, and the failures that can happen there."""
    usual = (400, 401, 404, 413, 422, 429, 503)
    failures: dict[int | str, dict[str, Any]] = {
        s: {"model": Failed, "description": _PROBLEMS[s]} for s in sorted({*usual, *statuses})
    }
    return {200: {"model": model}, **failures}


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def answered(said: dict[str, Any]) -> Response:
    """Say it."""
    return Response(_encode(said), media_type="application/json")


@open_to("analyst")
async def datasets(request: Request) -> Response:
    """List the datasets your token reaches."""
    desk, person = desk_of(request), person_of(request)

    def look() -> dict[str, Any]:
        return {"ok": True, "datasets": [served.overview() for served in desk.datasets.visible(person)]}

    return answered(await in_thread(desk, look))


@open_to("analyst")
async def me(request: Request) -> Response:
    """Say who you are, what you may ask and what is left of your quota."""
    desk, person = desk_of(request), person_of(request)

    def look() -> dict[str, Any]:
        left = {served.name: desk.asking.left(served, person) for served in desk.datasets.visible(person)}
        return {"ok": True, "person": person.to_dict(), "left": left}

    return answered(await in_thread(desk, look))


@open_to("analyst")
async def dataset(request: Request, name: NameInPath) -> Response:
    """Show one dataset: its guarantee in a sentence, plan, budget and ledger head."""
    return await _look(request, name, lambda served: served.overview())


@open_to("analyst")
async def schema(request: Request, name: NameInPath) -> Response:
    """List the columns: names, types and declared bounds. Never values."""
    return await _look(request, name, lambda served: {"columns": served.schema()})


@open_to("analyst")
async def budget(request: Request, name: NameInPath) -> Response:
    """Say what is left to ask."""

    def look(desk: Desk, served: Served) -> dict[str, Any]:
        left = served.session.budget
        return {"budget": left.to_dict(), "said": str(left), "left": desk.asking.left(served, person_of(request))}

    return await _look(request, name, lambda served: look(desk_of(request), served))


@open_to("analyst")
async def standing_plan(request: Request, name: NameInPath) -> Response:
    """Show the plan that stands."""
    return await _look(request, name, lambda served: {"plan": served.session.plan.to_dict(), "said": served.sentence()})


@open_to("analyst")
async def head(request: Request, name: NameInPath) -> Response:
    """Return the newest entry's number and hash: publish it, and nobody can rewrite what lies before."""

    def look(served: Served) -> dict[str, Any]:
        newest = served.session.ledger.head
        return {"head": {"seq": newest.seq, "hash": newest.hash}}

    return await _look(request, name, look)


@open_to("analyst")
async def receipt(
    request: Request, name: NameInPath, seq: Annotated[int, Path(ge=0, le=WHOLE, description="An entry's number.")]
) -> Response:
    """Return the proof that an answer is in the ledger."""
    return await _look(request, name, lambda served: {"receipt": served.session.receipt(seq).to_dict()})


@open_to("analyst")
async def history(
    request: Request,
    name: NameInPath,
    start: Annotated[int, Query(ge=1, le=WHOLE, description="The first entry's number.")] = 1,
    limit: Annotated[int, Query(ge=1, le=LONGEST_PAGE, description="How many entries.")] = 100,
) -> Response:
    """Page through every answer so far, whoever asked; one row for each interval."""
    return await _look(request, name, lambda served: history_page(served, start, limit))


def history_page(served: Served, start: int, limit: int) -> dict[str, Any]:
    """Return some entries, and where the next page starts."""
    entries = list(served.session.ledger.entries(start, limit))
    newest = served.session.ledger.head.seq
    following = entries[-1].seq + 1 if entries and entries[-1].seq < newest else None
    return {"rows": history_frame(entries).to_dicts(), "next": following, "entries": newest}


@open_to("analyst")
async def ask(request: Request, name: NameInPath, ask: Ask, key: KeyHeader = None) -> Response:
    """Ask one question. The answer is in the ledger before it is sent; asked before, it is free."""
    desk, person = desk_of(request), person_of(request)

    def act() -> dict[str, Any]:
        said = desk.asking.ask(desk.datasets.get(name, person), person, ask, key)
        desk.count(said)
        return said

    return answered(await in_thread(desk, act))


class AskRoute(GuardedRoute):
    """The route every answer passes: a question that is as declared is read in one step.

    Anything else goes the long way, where FastAPI finds and words what is wrong with it.
    """

    async def serve(self, request: Request, inner: Handler) -> Response:
        """Answer whoever was let in."""
        name, headers = request.path_params["name"], request.headers
        if headers.get("content-type") != "application/json" or len(name) > LONGEST_NAME:
            return await inner(request)
        try:
            question = Ask.model_validate_json(await request.body())
        except ValidationError:
            return await inner(request)
        return await ask(request, name, question, headers.get("idempotency-key"))


@open_to("analyst")
async def price(request: Request, name: NameInPath, ask: Ask) -> Response:
    """Say what a question would cost. Reads nothing, spends nothing."""
    desk, person = desk_of(request), person_of(request)
    return answered(await in_thread(desk, lambda: desk.asking.price(desk.datasets.get(name, person), person, ask)))


@open_to("analyst")
async def dry_run(request: Request, name: NameInPath, ask: Ask) -> Response:
    """Answer from made-up rows: the same checks and shape. Reads nothing, spends nothing."""
    desk, person = desk_of(request), person_of(request)
    return answered(await in_thread(desk, lambda: desk.asking.dry_run(desk.datasets.get(name, person), person, ask)))


@open_to("analyst")
async def batch(request: Request, name: NameInPath, batch: Batch, key: KeyHeader = None) -> Response:
    """Ask several questions in order; each is answered or refused by itself."""
    desk, person = desk_of(request), person_of(request)
    desk.rates.take(person.id, len(batch.asks) - 1)

    def act() -> dict[str, Any]:
        said = desk.asking.batch(desk.datasets.get(name, person), person, batch, key)
        for one in said["results"]:
            desk.count(one)
        return said

    return answered(await in_thread(desk, act))


@open_to("analyst")
async def explore(
    request: Request,
    rows: Annotated[int | None, Query(ge=2, le=10**12)] = None,
    queries: Annotated[int | None, Query(ge=1, le=10**9)] = None,
    accuracy: Annotated[float | None, Query(gt=0, lt=1, allow_inf_nan=False)] = None,
    confidence: Annotated[float, Query(gt=0, lt=1, allow_inf_nan=False)] = 0.95,
) -> Response:
    """Say what is possible: give two of rows, queries and accuracy, and every guarantee is compared on the third."""
    said = await in_thread(desk_of(request), lambda: explored(rows, queries, accuracy, confidence))
    return answered({"ok": True, **said})


def explored(rows: int | None, queries: int | None, accuracy: float | None, confidence: float) -> dict[str, Any]:
    """Return the plan, its sentence and every alternative."""
    found = make_plan(rows=rows, queries=queries, accuracy=accuracy, confidence=confidence)
    others = [{name: getattr(one, name) for name in one.__dataclass_fields__} for one in found.alternatives]
    return {"plan": found.to_dict(), "said": sentence(found), "alternatives": others}


async def _look(request: Request, name: str, look: Any) -> Response:
    desk, person = desk_of(request), person_of(request)
    said = await in_thread(desk, lambda: look(desk.datasets.get(name, person)))
    return answered({"ok": True, "dataset": name} | said)


def add(app: FastAPI) -> None:
    """Add every route."""
    one = f"{V1}/datasets/{{name}}"
    app.router.add_api_route(  # first: routes are tried in this order
        f"{one}/ask", ask, methods=["POST"], responses=replies(Asked, 409), route_class_override=AskRoute
    )
    app.get(f"{V1}/datasets", responses=replies(Said))(datasets)
    app.get(f"{V1}/me", responses=replies(Said))(me)
    app.get(f"{V1}/plan", responses=replies(Said))(explore)
    app.get(one, responses=replies(Said))(dataset)
    app.get(f"{one}/schema", responses=replies(Said))(schema)
    app.get(f"{one}/budget", responses=replies(Said))(budget)
    app.get(f"{one}/plan", responses=replies(Said))(standing_plan)
    app.get(f"{one}/head", responses=replies(Said))(head)
    app.get(f"{one}/history", responses=replies(Said))(history)
    app.get(f"{one}/receipts/{{seq}}", responses=replies(Said))(receipt)
    app.post(f"{one}/price", responses=replies(Priced, 409))(price)
    app.post(f"{one}/dry-run", responses=replies(Asked, 409))(dry_run)
    app.post(f"{one}/batch", responses=replies(BatchOut, 409))(batch)
