"""The keeper's desk: tokens and quotas, ledger heads and verifying, registering files."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from holdfast.service import forms, pages
from holdfast.service.access import open_to, person_of
from holdfast.service.api import NameInPath
from holdfast.service.desk import Desk, desk_of, in_thread
from holdfast.service.keeping import TokenId, listed, made, revoked
from holdfast.service.shapes import MakeToken, Register


def _desk(desk: Desk, **news: Any) -> dict[str, Any]:
    """Return everything on the desk, and what just happened."""
    return {
        "tokens": listed(desk),
        "datasets": [pages.see(served) for served in desk.datasets.visible(desk.keeper)],
        "data_folder": desk.settings.data_folder is not None,
        "token": None,
        "done": None,
        **news,
    }


@open_to("keeper")
async def keeper(request: Request) -> Response:
    """Show the desk."""
    desk = desk_of(request)
    return pages.show(request, "keeper.html", await in_thread(desk, lambda: _desk(desk)))


@open_to("keeper")
async def make_token(request: Request) -> Response:
    """Make a token; this page shows its text, the only time."""
    desk, form = desk_of(request), await forms.fields(request)
    values: dict[str, Any] = {"name": form.get("name", ""), "keeper": form.get("role") == "keeper"}
    if "datasets" in form:
        values["datasets"] = [name.strip() for name in form["datasets"].split(",") if name.strip()]
    values |= {"quota": forms.whole(form, "quota"), "days": forms.real(form, "days")}

    def act() -> dict[str, Any]:
        result = made(desk, forms.checked(MakeToken, values))
        return _desk(desk, token=result["token"], done=f"Made a token for {result['person']['name']}.")

    return pages.show(request, "keeper.html", await in_thread(desk, act))


@open_to("keeper")
async def revoke_token(request: Request, id: TokenId) -> Response:
    """Revoke a token."""
    desk, person = desk_of(request), person_of(request)

    def act() -> dict[str, Any]:
        return _desk(desk, done=f"Revoked the token of {revoked(desk, id, person).name}.")

    return pages.show(request, "keeper.html", await in_thread(desk, act))


@open_to("keeper")
async def set_quota(request: Request, id: TokenId) -> Response:
    """Set a quota; an empty field takes the limit away."""
    desk, form = desk_of(request), await forms.fields(request)

    def act() -> dict[str, Any]:
        person = desk.people.set_quota(id, forms.whole(form, "quota"))
        limit = "the whole budget" if person.quota is None else f"{person.quota:,} answers of each dataset"
        return _desk(desk, done=f"{person.name} may use {limit}.")

    return pages.show(request, "keeper.html", await in_thread(desk, act))


@open_to("keeper")
async def verify(request: Request, name: NameInPath) -> Response:
    """Re-check a ledger."""
    desk, person = desk_of(request), person_of(request)

    def act() -> dict[str, Any]:
        head = desk.datasets.get(name, person).session.ledger.verify()
        return _desk(desk, done=f"Verified {name}: every entry up to no. {head.seq} holds.")

    return pages.show(request, "keeper.html", await in_thread(desk, act))


@open_to("keeper")
async def register(request: Request) -> Response:
    """Serve a file from the data folder."""
    desk, form = desk_of(request), await forms.fields(request)
    values = {"name": form.get("name", ""), "file": form.get("file", ""), "queries": forms.whole(form, "queries")}

    def act() -> dict[str, Any]:
        wanted: Register = forms.checked(Register, values)
        plan = wanted.model_dump(exclude={"name", "file"}, exclude_none=True)
        served = desk.datasets.register(wanted.name, wanted.file, **plan)
        return _desk(desk, done=f"Serving {served.name}.")

    return pages.show(request, "keeper.html", await in_thread(desk, act))


ROUTES = (
    ("GET", "/keeper", keeper),
    ("POST", "/keeper/tokens", make_token),
    ("POST", "/keeper/tokens/{id}/revoke", revoke_token),
    ("POST", "/keeper/tokens/{id}/quota", set_quota),
    ("POST", "/keeper/datasets", register),
    ("POST", "/keeper/datasets/{name}/verify", verify),
)
