"""The keeper's routes under /api/v1: tokens, quotas, datasets, verifying the ledger."""

from typing import Annotated, Any

from fastapi import FastAPI, Path
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import NotAllowed, UnknownName
from holdfast.service.access import open_to, person_of
from holdfast.service.api import V1, NameInPath, answered, replies
from holdfast.service.desk import Desk, desk_of, in_thread
from holdfast.service.people import Person
from holdfast.service.shapes import ChangeToken, MakeToken, Register, Said

TokenId = Annotated[str, Path(min_length=1, max_length=32, description="The id of a token, not its text.")]


@open_to("keeper")
async def tokens(request: Request) -> Response:
    """List every token ever made, and what its person has used of each dataset. No secrets."""
    desk = desk_of(request)
    return answered({"ok": True, "tokens": await in_thread(desk, lambda: listed(desk))})


def listed(desk: Desk) -> list[dict[str, Any]]:
    """Return every token with what its person has used."""
    keeper = desk.keeper
    used = {served.name: served.usage.by_analyst() for served in desk.datasets.visible(keeper)}
    return [
        person.to_dict()
        | {"stands": person.stands, "used": {name: counts[person.name] for name, counts in used.items()}}
        for person in desk.people.everyone()
    ]


@open_to("keeper")
async def make_token(request: Request, wanted: MakeToken) -> Response:
    """Make a token. Its text is in this response and nowhere else."""
    desk = desk_of(request)
    return answered({"ok": True} | await in_thread(desk, lambda: made(desk, wanted)))


def made(desk: Desk, wanted: MakeToken) -> dict[str, Any]:
    """Make a token for datasets that exist."""
    known = desk.datasets.names()
    for name in wanted.datasets or ():
        if name not in known:
            raise UnknownName(f"No dataset {name!r}. There are: {', '.join(known) or 'none'}.", name=name)
    text, person = desk.people.make(
        wanted.name, keeper=wanted.keeper, datasets=wanted.datasets, quota=wanted.quota, days=wanted.days
    )
    return {"token": text, "person": person.to_dict()}


@open_to("keeper")
async def change_token(request: Request, id: TokenId, wanted: ChangeToken) -> Response:
    """Set a quota."""
    desk = desk_of(request)
    person = await in_thread(desk, lambda: desk.people.set_quota(id, wanted.quota))
    return answered({"ok": True, "person": person.to_dict()})


@open_to("keeper")
async def revoke_token(request: Request, id: TokenId) -> Response:
    """Refuse a token from now on: here at once, in other processes within a second."""
    desk = desk_of(request)
    person = await in_thread(desk, lambda: revoked(desk, id, person_of(request)))
    return answered({"ok": True, "person": person.to_dict()})


def revoked(desk: Desk, id: str, by: Person) -> Person:
    """Revoke a token, but not the one that says so: nobody locks the last keeper out by mistake."""
    if id == by.id:
        raise NotAllowed(
            "This is the token you came in with. Make another keeper's token, and revoke this one with it."
        )
    return desk.people.revoke(id)


@open_to("keeper")
async def register(request: Request, wanted: Register) -> Response:
    """Serve a file from the data folder."""
    desk = desk_of(request)
    plan = wanted.model_dump(exclude={"name", "file"}, exclude_none=True)
    served = await in_thread(desk, lambda: desk.datasets.register(wanted.name, wanted.file, **plan))
    return answered({"ok": True, "dataset": wanted.name} | await in_thread(desk, served.overview))


@open_to("keeper")
async def verify(request: Request, name: NameInPath) -> Response:
    """Re-check every entry of the ledger."""
    desk, person = desk_of(request), person_of(request)
    head = await in_thread(desk, lambda: desk.datasets.get(name, person).session.ledger.verify())
    return answered({"ok": True, "dataset": name, "verified": {"seq": head.seq, "hash": head.hash}})


def add(app: FastAPI) -> None:
    """Add every route."""
    app.get(f"{V1}/tokens", responses=replies(Said, 403))(tokens)
    app.post(f"{V1}/tokens", responses=replies(Said, 403))(make_token)
    app.patch(f"{V1}/tokens/{{id}}", responses=replies(Said, 403))(change_token)
    app.delete(f"{V1}/tokens/{{id}}", responses=replies(Said, 403))(revoke_token)
    app.post(f"{V1}/datasets", responses=replies(Said, 403, 409))(register)
    app.post(f"{V1}/datasets/{{name}}/verify", responses=replies(Said, 403))(verify)
