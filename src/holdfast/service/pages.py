"""The pages. Each is data first: as JSON (by Accept, or ?format=json) it is that data, else a template shows it."""

import secrets
import time
from datetime import UTC, datetime
from typing import Any

from fastapi import FastAPI
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from holdfast.errors import NotSignedIn
from holdfast.ledger import Entry
from holdfast.planning.present import error as plus_minus
from holdfast.service import charts, forms
from holdfast.service.access import COOKIE, open_to, person_of
from holdfast.service.api import NameInPath, explored
from holdfast.service.datasets import Served
from holdfast.service.desk import desk_of, in_thread
from holdfast.service.people import Person

ON_PAGE = 50  # entries
RECENT = 8


def _environment() -> Environment:
    pages = Environment(
        loader=PackageLoader("holdfast.service", "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.globals |= {
        "interval_bar": charts.interval_bar,
        "gauge": charts.gauge,
        "answers_over_time": charts.answers_over_time,
        "accuracies": charts.accuracies,
        "number": charts.number,
        "plus_minus": plus_minus,
        "new_key": lambda: secrets.token_urlsafe(16),
    }
    pages.filters["day"] = lambda seconds: datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
    return pages


_pages = _environment()


def wants_page(request: Request) -> bool:
    """Whether the caller is a browser showing a page, rather than a program reading JSON."""
    if request.url.path.startswith(("/api/", "/mcp")) or request.query_params.get("format") == "json":
        return False
    return "hx-request" in request.headers or "text/html" in request.headers.get("accept", "")


def show(request: Request, template: str, data: dict[str, Any], status: int = 200) -> Response:
    """Answer with the data, as JSON or through its template."""
    if not wants_page(request):
        return JSONResponse({"ok": True} | data, status_code=status)
    person: Person | None = getattr(request.state, "person", None)
    context = {"request": request, "person": person, "fragment": "hx-request" in request.headers, "now": time.time()}
    return HTMLResponse(_pages.get_template(template).render(data | context), status_code=status)


def refusal(request: Request, said: dict[str, Any], headers: dict[str, str]) -> Response:
    """Show a refusal; who is not signed in is led to where that is done."""
    fragment = "hx-request" in request.headers
    if said["status"] == 401 and not request.url.path.startswith("/sign-in"):
        if fragment:
            return Response(status_code=204, headers={"HX-Redirect": "/sign-in"})
        return RedirectResponse("/sign-in", status_code=303)
    person: Person | None = getattr(request.state, "person", None)
    page = _pages.get_template("refusal_part.html" if fragment else "refusal.html")
    text = page.render({"request": request, "person": person, "said": said})
    return HTMLResponse(text, status_code=said["status"], headers=headers)


@open_to("anyone")
async def sign_in_page(request: Request) -> Response:
    """Ask for a token, or show the button of a one-time link."""
    return show(request, "sign_in.html", {"code": request.query_params.get("code", "")[:200], "problem": None})


@open_to("anyone")
async def sign_in(request: Request) -> Response:
    """Exchange a token or a one-time link for a cookie."""
    desk, form = desk_of(request), await forms.fields(request)
    desk.strangers.take(request.client.host if request.client else "unknown")

    def exchange() -> str:
        people = desk.people
        return people.sign_in(people.redeem(form["code"]) if "code" in form else people.who(form.get("token", "")))

    try:
        cookie = await in_thread(desk, exchange)
    except NotSignedIn as refused:
        if not wants_page(request):
            raise
        return show(request, "sign_in.html", {"code": "", "problem": refused.message}, status=401)
    response = RedirectResponse("/", status_code=303)
    secure = (desk.settings.public_url or "").startswith("https:")
    age = int(desk.settings.sign_in_hours * 3_600)
    response.set_cookie(COOKIE, cookie, max_age=age, httponly=True, samesite="strict", secure=secure)
    return response


@open_to("analyst")
async def sign_out(request: Request) -> Response:
    """Forget the cookie."""
    desk = desk_of(request)
    await in_thread(desk, lambda: desk.people.sign_out(request.cookies.get(COOKIE, "")))
    response = RedirectResponse("/sign-in", status_code=303)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response


@open_to("analyst")
async def home(request: Request) -> Response:
    """List the datasets."""
    desk, person = desk_of(request), person_of(request)
    found = await in_thread(desk, lambda: [served.overview() for served in desk.datasets.visible(person)])
    return show(request, "home.html", {"datasets": found})


@open_to("analyst")
async def dataset(request: Request, name: NameInPath) -> Response:
    """Show one dataset: guarantee, budget, the form to ask, the newest answers."""
    desk, person = desk_of(request), person_of(request)

    def look() -> dict[str, Any]:
        served = desk.datasets.get(name, person)
        newest = served.session.ledger.head.seq
        recent = list(served.session.ledger.entries(max(1, newest - RECENT + 1), RECENT))
        return {
            "dataset": served.overview(),
            "columns": served.schema(),
            "left": desk.asking.left(served, person),
            "recent": [_shown(entry) for entry in reversed(recent)],
        }

    return show(request, "dataset.html", await in_thread(desk, look))


@open_to("analyst")
async def ask(request: Request, name: NameInPath) -> Response:
    """Ask, from the form."""
    desk, person, form = desk_of(request), person_of(request), await forms.fields(request)

    def act() -> dict[str, Any]:
        served = desk.datasets.get(name, person)
        said = desk.asking.ask(served, person, forms.ask_of(form, served), form.get("key"))
        desk.count(said)
        return said | {"budget": served.session.budget.to_dict()}

    return show(request, "answer.html", await in_thread(desk, act))


@open_to("analyst")
async def price(request: Request, name: NameInPath) -> Response:
    """Say the price, while the form is being filled in."""
    desk, person, form = desk_of(request), person_of(request), await forms.fields(request)
    if not forms.is_begun(form):
        return show(request, "price.html", {"price": None, "left": None})

    def act() -> dict[str, Any]:
        served = desk.datasets.get(name, person)
        return desk.asking.price(served, person, forms.ask_of(form, served))

    return show(request, "price.html", await in_thread(desk, act))


@open_to("analyst")
async def dry_run(request: Request, name: NameInPath) -> Response:
    """Try the question on made-up rows."""
    desk, person, form = desk_of(request), person_of(request), await forms.fields(request)

    def act() -> dict[str, Any]:
        served = desk.datasets.get(name, person)
        said = desk.asking.dry_run(served, person, forms.ask_of(form, served))
        return said | {"budget": served.session.budget.to_dict()}

    return show(request, "answer.html", await in_thread(desk, act))


@open_to("analyst")
async def history(request: Request, name: NameInPath) -> Response:
    """Show answers over time, newest page first."""
    desk, person = desk_of(request), person_of(request)
    form = {key: value for key, value in request.query_params.items() if value}

    def look() -> dict[str, Any]:
        served = desk.datasets.get(name, person)
        newest = served.session.ledger.head.seq
        start = max(1, min(forms.whole(form, "start") or newest - ON_PAGE + 1, max(1, newest)))
        entries = list(served.session.ledger.entries(start, ON_PAGE))
        return {
            "name": served.name,
            "rows": [_shown(entry) for entry in entries],
            "points": [point for entry in entries for point in _points(entry)],
            "entries": newest,
            "earlier": max(1, start - ON_PAGE) if start > 1 else None,
            "later": start + ON_PAGE if start + ON_PAGE <= newest else None,
        }

    return show(request, "history.html", await in_thread(desk, look))


@open_to("analyst")
async def explorer(request: Request) -> Response:
    """Move rows, questions and accuracy; see what every guarantee makes of them."""
    form = {key: value for key, value in request.query_params.items() if value}
    solve = form.get("solve", "accuracy")
    asked = {
        "rows": forms.whole(form, "rows") or 1_000_000,
        "queries": forms.whole(form, "queries") or 1_000,
        "accuracy": forms.real(form, "accuracy") or 0.05,
        "confidence": forms.real(form, "confidence") or 0.95,
    }

    def look() -> dict[str, Any]:
        wanted: dict[str, Any] = {key: None if key == solve else value for key, value in asked.items()}
        return {"asked": asked, "solve": solve} | explored(**wanted)

    found = await in_thread(desk_of(request), look)
    return show(request, "explorer_part.html" if "hx-request" in request.headers else "explorer.html", found)


def _shown(entry: Entry) -> dict[str, Any]:
    """Return an entry as the tables show it: one line for each interval."""
    bounds = entry.question.get("bounds", [0.0, 1.0])
    labels = entry.answer.get("categories", [None])
    triples = entry.answer.get("estimates") or [entry.answer["estimate"]]
    return {
        "seq": entry.seq,
        "time": entry.time,
        "analyst": entry.analyst,
        "kind": entry.question["kind"],
        "question": entry.question["text"],
        "rows_read": entry.rows_read,
        "cost": entry.cost.flips,
        "lines": [
            {"category": label, "value": value, "low": low, "high": high, "bounds": bounds}
            for label, (value, low, high) in zip(labels, triples, strict=True)
        ],
    }


def _points(entry: Entry) -> list[dict[str, Any]]:
    """Return the marks of an entry on the chart."""
    shown = _shown(entry)
    points = []
    for line in shown["lines"]:
        first, last = line["bounds"]
        shares = [(line[name] - first) / ((last - first) or 1.0) for name in ("value", "low", "high")]
        label = f"{shown['question']}, {line['category']}" if line["category"] is not None else shown["question"]
        points.append({**line, "seq": entry.seq, "question": label, "shares": shares})
    return points


def see(served: Served) -> dict[str, Any]:
    """Return what the keeper's desk shows of a dataset."""
    return served.overview() | {"used": {str(who or "-"): used for who, used in served.usage.by_analyst().items()}}


def add(app: FastAPI) -> None:
    """Add every page."""
    from holdfast.service import keeper_pages

    one = "/datasets/{name}"
    for method, path, endpoint in (
        ("GET", "/sign-in", sign_in_page),
        ("POST", "/sign-in", sign_in),
        ("POST", "/sign-out", sign_out),
        ("GET", "/", home),
        ("GET", one, dataset),
        ("POST", f"{one}/ask", ask),
        ("POST", f"{one}/price", price),
        ("POST", f"{one}/dry-run", dry_run),
        ("GET", f"{one}/history", history),
        ("GET", "/plan", explorer),
        *keeper_pages.ROUTES,
    ):
        app.add_api_route(path, endpoint, methods=[method], include_in_schema=False, response_model=None)
