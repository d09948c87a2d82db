"""The admin's routes, under /api/v1 and as pages: tokens, quotas, datasets, verifying the ledger."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import NotAllowed, UnknownName
from holdfast.ledger import Head
from holdfast.service import forms, pages
from holdfast.service.access import Endpoint, Routes, ServerState, in_thread, state_of, token_of
from holdfast.service.api import V1, NameInPath, json_response, responses
from holdfast.service.datasets import NOT_BEGUN, ServedDataset
from holdfast.service.schemas import DatasetIn, OkOut, TokenIn, TokenUpdateIn, validate
from holdfast.service.tokens import Token

routes = Routes()
Act = Callable[[ServerState], dict[str, Any]]
TokenId = Annotated[str, Path(min_length=1, max_length=32, description="The id of a token, not its secret.")]

# -- what API and page share ----------------------------------------------------------------------------------------


def _list(state: ServerState) -> list[dict[str, Any]]:
    """Return every token with the answers used under its name."""
    used = {served.name: served.usage.by_analyst() for served in state.datasets.visible(state.admin)}
    return [
        token.to_dict()
        | {"active": state.tokens.is_active(token), "used": {name: counts[token.name] for name, counts in used.items()}}
        for token in state.tokens.all()
    ]


def _create(state: ServerState, body: TokenIn) -> tuple[str, Token]:
    """Create a token for datasets that exist."""
    known = state.datasets.names()
    for name in body.datasets or ():
        if name not in known:
            raise UnknownName(f"No dataset {name!r}. There are: {', '.join(known) or 'none'}.", name=name)
    return state.tokens.create(body.name, admin=body.admin, datasets=body.datasets, quota=body.quota, days=body.days)


def _revoke(state: ServerState, id: str, by: Token) -> Token:
    """Revoke a token, except the caller's own, so that nobody locks out the last admin by mistake."""
    if id == by.id:
        raise NotAllowed("You are using this token. Create another admin token, and revoke this one with it.")
    return state.tokens.revoke(id)


def _register(state: ServerState, body: DatasetIn) -> ServedDataset:
    plan = body.model_dump(exclude={"name", "file"}, exclude_none=True)
    return state.datasets.register(body.name, body.file, **plan)


def _verify(state: ServerState, name: str, token: Token) -> Head | None:
    """Re-check every entry; None if there are none yet."""
    served = state.datasets.get(name, token)
    with served.naming:
        return served.session.ledger.verify() if served.session.ledger.begun else None


# -- the API --------------------------------------------------------------------------------------------------------


def _api(method: str, path: str, *statuses: int) -> Callable[[Endpoint], Endpoint]:
    return routes.declare("admin", method, V1 + path, responses=responses(OkOut, 403, *statuses))


async def _respond(request: Request, act: Act) -> Response:
    """Do what was requested, then respond with its result."""
    state = state_of(request)
    return json_response({"ok": True} | await in_thread(request, lambda: act(state)))


@_api("GET", "/tokens")
async def tokens(request: Request) -> Response:
    """List every token ever created, and the answers used under its name. No secrets."""
    return await _respond(request, lambda state: {"tokens": _list(state)})


@_api("POST", "/tokens")
async def create_token(request: Request, body: TokenIn) -> Response:
    """Create a token. Its secret is in this response and nowhere else."""

    def act(state: ServerState) -> dict[str, Any]:
        secret, token = _create(state, body)
        return {"secret": secret, "token": token.to_dict()}

    return await _respond(request, act)


@_api("PATCH", "/tokens/{id}")
async def update_token(request: Request, id: TokenId, body: TokenUpdateIn) -> Response:
    """Set a quota."""
    return await _respond(request, lambda state: {"token": state.tokens.set_quota(id, body.quota).to_dict()})


@_api("DELETE", "/tokens/{id}")
async def revoke_token(request: Request, id: TokenId) -> Response:
    """Revoke a token: at once in this process, within a second in others."""
    return await _respond(request, lambda state: {"token": _revoke(state, id, token_of(request)).to_dict()})


@_api("POST", "/datasets", 409)
async def register_dataset(request: Request, body: DatasetIn) -> Response:
    """Serve a file from the data folder."""
    return await _respond(request, lambda state: {"dataset": body.name} | _register(state, body).overview())


@_api("POST", "/datasets/{name}/verify")
async def verify(request: Request, name: NameInPath) -> Response:
    """Re-check every entry of the ledger."""

    def act(state: ServerState) -> dict[str, Any]:
        head = _verify(state, name, token_of(request))
        return {"dataset": name, "verified": head and asdict(head)}

    return await _respond(request, act)


# -- the page -------------------------------------------------------------------------------------------------------


@routes.page("admin", "GET", "/admin")
async def admin_page(request: Request) -> Response:
    """Show tokens, datasets and ledgers."""
    return await _show(request, lambda _: {})


@routes.page("admin", "POST", "/admin/tokens")
async def create_token_form(request: Request) -> Response:
    """Create a token; only this page shows its secret."""
    form = await forms.fields(request)
    values: dict[str, Any] = {"name": form.get("name", ""), "admin": form.get("role") == "admin"}
    if "datasets" in form:
        values["datasets"] = [name.strip() for name in form["datasets"].split(",") if name.strip()]
    values |= {"quota": forms.integer(form, "quota"), "days": forms.decimal(form, "days")}

    def act(state: ServerState) -> dict[str, Any]:
        secret, token = _create(state, validate(TokenIn, values))
        return {"secret": secret, "done": f"Created a token for {token.name}."}

    return await _show(request, act)


@routes.page("admin", "POST", "/admin/tokens/{id}/revoke")
async def revoke_token_form(request: Request, id: TokenId) -> Response:
    """Revoke a token."""
    by = token_of(request)
    return await _show(request, lambda state: {"done": f"Revoked the token of {_revoke(state, id, by).name}."})


@routes.page("admin", "POST", "/admin/tokens/{id}/quota")
async def quota_form(request: Request, id: TokenId) -> Response:
    """Set a quota; an empty field removes the limit."""
    form = await forms.fields(request)

    def act(state: ServerState) -> dict[str, Any]:
        token = state.tokens.set_quota(id, forms.integer(form, "quota"))
        limit = "the whole budget" if token.quota is None else f"{token.quota:,} answers of each dataset"
        return {"done": f"{token.name} may use {limit}."}

    return await _show(request, act)


@routes.page("admin", "POST", "/admin/datasets")
async def register_form(request: Request) -> Response:
    """Serve a file from the data folder."""
    form = await forms.fields(request)
    values = {"name": form.get("name", ""), "file": form.get("file", ""), "queries": forms.integer(form, "queries")}
    return await _show(
        request, lambda state: {"done": f"Serving {_register(state, validate(DatasetIn, values)).name}."}
    )


@routes.page("admin", "POST", "/admin/datasets/{name}/verify")
async def verify_form(request: Request, name: NameInPath) -> Response:
    """Re-check every entry of the ledger."""

    def act(state: ServerState) -> dict[str, Any]:
        head = _verify(state, name, token_of(request))
        found = NOT_BEGUN if head is None else f"entries up to #{head.seq} are consistent."
        return {"done": f"Verified {name}: {found}"}

    return await _show(request, act)


async def _show(request: Request, act: Act) -> Response:
    """Do what was requested, then show the page with its result."""
    state = state_of(request)

    def work() -> dict[str, Any]:
        result = {"secret": None, "done": None} | act(state)
        datasets = [
            one.overview() | {"used": {str(name or "-"): used for name, used in one.usage.by_analyst().items()}}
            for one in state.datasets.visible(state.admin)
        ]
        folder = state.settings.data_folder is not None
        return {"tokens": _list(state), "datasets": datasets, "data_folder": folder} | result

    return pages.show(request, "admin.html", await in_thread(request, work))
