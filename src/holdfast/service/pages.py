"""The pages. Each is data first: returned as JSON (by Accept, or ?format=json), or rendered by a template."""

import re
import secrets
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

import polars as pl
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from holdfast.errors import InvalidArgument, NotSignedIn
from holdfast.guarantees.plan import write_margin
from holdfast.ledger import Entry
from holdfast.queries.node import identifier
from holdfast.queries.select import LONGEST_SELECT
from holdfast.questions.answer import AnyAnswer
from holdfast.questions.budget import later
from holdfast.questions.history import answer_from
from holdfast.questions.mean import MEAN
from holdfast.questions.plot import aggregates_of
from holdfast.questions.submit import SUBMIT, metric_of
from holdfast.schema import Schema
from holdfast.service import charts, forms
from holdfast.service.access import COOKIE, Routes, ServerState, address_of, in_thread, on_dataset, state_of, token_of
from holdfast.service.api import (
    Act,
    NameInPath,
    TokenId,
    compare_plans,
    create_for,
    list_tokens,
    overviews,
    register_file,
    revoke_for,
    verify_ledger,
)
from holdfast.service.calls import read_answer, read_table
from holdfast.service.datasets import NOT_BEGUN, ServedDataset
from holdfast.service.errors import ALLOWED, IN_API
from holdfast.service.forms import examples, snippets, snippets_of_select, suggestions
from holdfast.service.schemas import AskIn, DatasetIn, TokenIn, validate

PAGE_SIZE = 50  # entries
RECENT = 8
OWN_FIELDS = {"name", "file", "queries"}  # of the form that registers a file; other settings share one
SHOWN_ABOVE = ("outcome", "guess", "the interval is about")  # details in an answer's headings and small print
routes = Routes()


def lines(answer: AnyAnswer) -> list[dict[str, Any]]:
    """Return the intervals of an answer as tables and charts show them.

    A guess or a submission shows its verdict instead of a value: the number in its estimate is not an answer.
    """
    verdict, known = getattr(answer, "outcome", None), answer.known_range and list(answer.known_range)
    shared = {"bounds": list(answer.bounds), "known": known, "verdict": verdict}
    if verdict is not None and known is None:
        shared["value"] = None
    return [{"category": label, **estimate.to_json(), **shared} for label, estimate in answer.rows()]


def parts(answer: AnyAnswer) -> list[dict[str, Any]]:
    """Return what is shown beside the answer in the same form, on a separate axis."""
    return [charts.line(label, one.value, one.low, one.high) for label, one in answer.parts]


def details_of(answer: AnyAnswer) -> dict[str, Any]:
    """Return what is shown beside the intervals: the verdict in words, and details that stand nowhere else."""
    details = answer.details()
    shown = {*SHOWN_ABOVE, *(label for label, _ in answer.parts)}
    return {"outcome": dict(details).get("outcome"), "rows": [one for one in details if one[0] not in shown]}


@cache
def _environment() -> Environment:
    pages = Environment(
        loader=PackageLoader("holdfast.service", "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    functions = (
        *(charts.panel, charts.gauge, charts.margin_bar, charts.margin, charts.number),
        *(write_margin, later, read_answer, lines, parts, details_of, by_kind),
    )
    pages.globals |= {one.__name__: one for one in functions}
    pages.globals["new_key"] = lambda: secrets.token_urlsafe(16)
    pages.filters["write_margin"] = write_margin
    pages.filters["day"] = lambda seconds: datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
    pages.filters["code"] = lambda text: Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))
    return pages


def wants_page(request: Request) -> bool:
    """Whether the caller is a browser showing a page, rather than a program reading JSON."""
    if request.url.path.startswith(("/api/", "/mcp")) or request.query_params.get("format") == "json":
        return False
    return "hx-request" in request.headers or "text/html" in request.headers.get("accept", "")


def show(request: Request, template: str, data: dict[str, Any], status: int = 200) -> Response:
    """Return the data as JSON, or rendered by its template."""
    if not wants_page(request):
        return JSONResponse({"ok": True} | data, status_code=status)
    page = _render(request, template, data | {"fragment": "hx-request" in request.headers})
    return HTMLResponse(page, status_code=status)


def show_error(request: Request, error: dict[str, Any], headers: dict[str, str]) -> Response:
    """Show an error; without a sign-in, redirect to the sign-in page."""
    fragment = "hx-request" in request.headers
    if error["status"] == 401 and not request.url.path.startswith("/sign-in"):
        if fragment:
            return Response(status_code=204, headers={"HX-Redirect": "/sign-in"})
        return RedirectResponse("/sign-in", status_code=303)
    error = error | {"error": error["error"].removesuffix(f" {IN_API}").removesuffix(f" {ALLOWED}")}  # a link is there
    page = _render(request, "error_part.html" if fragment else "error.html", {"error": error})
    return HTMLResponse(page, status_code=error["status"], headers=headers)


def _render(request: Request, template: str, data: dict[str, Any]) -> str:
    context = {"request": request, "user": getattr(request.state, "token", None)}
    return _environment().get_template(template).render(data | context)


@routes.page("anyone", "GET", "/sign-in")
async def sign_in_page(request: Request) -> Response:
    """Show the field for a token, or the button of a one-time link."""
    return show(request, "sign_in.html", {"code": request.query_params.get("code", "")[:200], "problem": None})


@routes.page("anyone", "POST", "/sign-in")
async def sign_in(request: Request) -> Response:
    """Exchange a token or a one-time link for a cookie."""
    state, form = state_of(request), await forms.fields(request)
    state.failed_sign_ins.take(address_of(request))

    def exchange() -> str:
        tokens = state.tokens
        token = tokens.redeem(form["code"]) if "code" in form else tokens.authenticate(form.get("token", ""))
        return tokens.sign_in(token)

    try:
        cookie = await in_thread(request, exchange)
    except NotSignedIn as error:
        if not wants_page(request):
            raise
        return show(request, "sign_in.html", {"code": "", "problem": error.message}, status=401)
    response = RedirectResponse("/", status_code=303)
    secure = (state.settings.public_url or "").startswith("https:")
    age = int(state.settings.sign_in_hours * 3_600)
    response.set_cookie(COOKIE, cookie, max_age=age, httponly=True, samesite="strict", secure=secure)
    return response


@routes.page("analyst", "POST", "/sign-out")
async def sign_out(request: Request) -> Response:
    """Delete the cookie."""
    state = state_of(request)
    await in_thread(request, lambda: state.tokens.sign_out(request.cookies.get(COOKIE, "")))
    response = RedirectResponse("/sign-in", status_code=303)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response


@routes.page("analyst", "GET", "/")
async def home(request: Request) -> Response:
    """List the datasets."""
    return show(request, "home.html", {"datasets": await overviews(request)})


@routes.page("analyst", "GET", "/datasets/{name}")
async def dataset(request: Request, name: NameInPath) -> Response:
    """Show one dataset: guarantee, budget, the form to ask, the newest answers; or the fields of another kind."""
    state, token, form = state_of(request), token_of(request), forms.query_fields(request)

    def look(served: ServedDataset) -> dict[str, Any]:
        schema, asks, kinds = served.session.schema, served.plan.standing.only_kind, state.questions.kinds
        kind = forms.kind_of(form if asks is None else {"kind": asks} | form)
        if request.headers.get("hx-target") == "fields":
            return {"form": forms.describe(kind, form, schema)}
        newest = served.session.ledger.spent.answers
        common = {"dataset": served.overview(), "left": state.service.left(served, token), "answers": newest}
        if served.is_board:
            return common | {"standings": _shown(served), "form": forms.describe(SUBMIT, form, schema)}
        recent = list(served.session.ledger.entries(max(1, newest - RECENT + 1), RECENT))
        return common | {
            "columns": [one.to_json() | {"declared": one.declared} for one in schema],
            "recent": [_row(served, entry) for entry in reversed(recent)],
            "kinds": [{"name": one.name, "label": forms.label(one.name)} for one in served.supported(kinds)],
            "form": forms.describe(kind, form, schema),
            "suggestions": suggestions(schema, asks),
        }

    found = await on_dataset(request, name, look)
    template = "board.html" if "standings" in found else "dataset.html" if "dataset" in found else "fields.html"
    return show(request, template, found)


def _shown(served: ServedDataset) -> list[dict[str, Any]]:
    """Return the standings as the page draws them: the best, and as many others as fit on one page."""
    metric = metric_of(served.plan.standing)
    shown = []
    for line in served.submissions.lines(PAGE_SIZE):
        low, high = line["cell_low"], line["cell_high"]
        value = (low + high) / 2 if line["rank"] else high if metric.rule.higher else low
        shown.append(line | {"bounds": list(metric.bounds), "value": value, "known": [low, high]})
    return shown


def _asked(request: Request, form: forms.Entered) -> AskIn:
    """Return the question of a form."""
    kind, values = forms.question(form)
    return state_of(request).questions.read(kind.to_json(values))


@routes.page("analyst", "POST", "/datasets/{name}/ask")
async def ask(request: Request, name: NameInPath) -> Response:
    """Ask, from the form."""
    state, form = state_of(request), await forms.fields(request)
    response = await state.service.ask(
        name, token_of(request), partial(_asked, request, form), form.get("key"), gone=request.is_disconnected
    )
    more = await on_dataset(request, name, lambda served: _beside(request, served, form))
    return show(request, "answer.html", response | more)


def _address(request: Request) -> str:
    return (state_of(request).settings.public_url or str(request.base_url)).rstrip("/")


def _beside(request: Request, served: ServedDataset, form: forms.Entered) -> dict[str, Any]:
    """Return what a page shows beside an answer: the budget, and the same question in other languages."""
    kind, values = forms.question(form)
    url = _address(request)
    schema, rows = served.session.schema, served.plan.rows
    elsewhere = snippets(kind.to_json(values), url=url, dataset=served.name, schema=schema, rows=rows)
    return {"budget": served.session.budget.to_dict(), "elsewhere": elsewhere}


@routes.page("analyst", "POST", "/datasets/{name}/dry-run")
async def dry_run(request: Request, name: NameInPath) -> Response:
    """Try the question on made-up rows."""
    service, token, form = state_of(request).service, token_of(request), await forms.fields(request)

    def work(served: ServedDataset) -> dict[str, Any]:
        response = service.dry_run(served, token, _asked(request, form))
        return response | _beside(request, served, form)

    return show(request, "answer.html", await on_dataset(request, name, work))


@routes.page("analyst", "POST", "/datasets/{name}/price")
async def price(request: Request, name: NameInPath) -> Response:
    """Show the price while the form is being filled in."""
    service, token, form = state_of(request).service, token_of(request), await forms.fields(request)

    def work(served: ServedDataset) -> dict[str, Any]:
        if not forms.is_filled(*forms.question(form)):
            return {"price": None, "left": None}
        return service.price(served, token, _asked(request, form))

    return show(request, "price.html", await on_dataset(request, name, work))


def _statement(name: str, schema: Schema | None = None, **known: Any) -> dict[str, Any]:
    """Return what the page for a SELECT shows; an empty field shows an example about this dataset's columns."""
    about = None if schema is None else examples(schema, MEAN.name).get("query")
    example = f"SELECT {'COUNT(*)' if about is None else f'AVG({about})'} FROM {identifier(name)}"
    return {"name": name, "sql": "", "columns": None, "longest": LONGEST_SELECT, "example": example} | known


@routes.page("analyst", "GET", "/datasets/{name}/sql")
async def sql_page(request: Request, name: NameInPath) -> Response:
    """Show the field for a SELECT."""

    def look(served: ServedDataset) -> dict[str, Any]:
        return _statement(served.name, served.session.schema)

    return show(request, "sql.html", await on_dataset(request, name, look))


@routes.page("analyst", "POST", "/datasets/{name}/sql")
async def sql(request: Request, name: NameInPath) -> Response:
    """Answer a SELECT, from the form."""
    state, form = state_of(request), await forms.fields(request)
    text = form.get("sql", "")
    response = await state.service.sql(name, token_of(request), text, form.get("key"), gone=request.is_disconnected)
    count = sum(not one["answer"]["cached"] for one in response["results"])
    asked = f"{count:,} new, {len(response['results']) - count:,} asked before."
    elsewhere = snippets_of_select(text, url=_address(request), dataset=name)
    shown = {"panels": _panels(read_table(response)), "asked": asked, "elsewhere": elsewhere}
    return show(request, "sql_result.html", response | _statement(name, sql=text, columns=response["columns"]) | shown)


def _panels(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the aggregates of a SELECT as they are drawn: each on a separate axis, with a line for every group."""
    found = aggregates_of(frame)
    ends = {end for pair in found.values() for end in pair}
    groups = frame.select(name for name in frame.columns if name not in found and name not in ends).rows()
    labels: list[str | None] = [", ".join(map(str, group)) for group in groups]
    labels = labels or [None] * frame.height

    def drawn(name: str) -> dict[str, Any]:
        values = zip(labels, frame.select(name, *found[name]).rows(), strict=True)
        return charts.panel([charts.line(label, *triple) for label, triple in values])

    return [{"title": name} | drawn(name) for name in found]


@routes.page("analyst", "POST", "/datasets/{name}/sql/price")
async def sql_price(request: Request, name: NameInPath) -> Response:
    """Show the price of a SELECT while it is being written."""
    state, token, form = state_of(request), token_of(request), await forms.fields(request)

    def work(served: ServedDataset) -> dict[str, Any]:
        return state.service.sql_prices(served, token, form["sql"]) if "sql" in form else {"prices": None}

    return show(request, "prices.html", await on_dataset(request, name, work))


@routes.page("analyst", "GET", "/datasets/{name}/history")
async def history(request: Request, name: NameInPath) -> Response:
    """Show answers over time, newest page first."""
    form = forms.query_fields(request)

    def look(served: ServedDataset) -> dict[str, Any]:
        newest = served.session.ledger.spent.answers
        start = max(1, min(forms.integer(form, "start") or newest - PAGE_SIZE + 1, max(1, newest)))
        rows = [_row(served, entry) for entry in served.session.ledger.entries(start, PAGE_SIZE)]
        return {
            "name": served.name,
            "rows": rows,
            "entries": newest,
            "asks": served.plan.standing.only_kind,
            "earlier": max(1, start - PAGE_SIZE) if start > 1 else None,
            "later": start + PAGE_SIZE if start + PAGE_SIZE <= newest else None,
        }

    # Rendered in the lane for reads, too: 50 long histograms are megabytes and would block the event loop.
    return await on_dataset(request, name, lambda served: show(request, "history.html", look(served)))


@routes.page("analyst", "GET", "/plan")
async def plan(request: Request) -> Response:
    """Compare all guarantees for the chosen rows, questions and margin."""
    form = forms.query_fields(request)
    solve = form.get("solve", "margin")
    served = [one for one in await overviews(request) if "problem" not in one and one["budget"]["asks"] is None]
    asked = {
        "rows": forms.integer(form, "rows") or max((one["rows"] for one in served), default=1_000_000),
        "queries": forms.integer(form, "queries") or 1_000,
        "margin": forms.decimal(form, "margin") or 0.05,
        "confidence": forms.decimal(form, "confidence") or 0.95,
    }

    def look() -> dict[str, Any]:
        goal: dict[str, Any] = {key: None if key == solve else value for key, value in asked.items()}
        sizes = [{"name": one["name"], "rows": one["rows"]} for one in served]
        return {"asked": asked, "solve": solve, "sizes": sizes} | compare_plans(request, **goal)

    found = await in_thread(request, look)
    return show(request, "plan_part.html" if "hx-request" in request.headers else "plan.html", found)


def by_kind(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Group entries by kind and declared range, so that their intervals can share an axis. The newest comes first.

    Each group has a title and its entries, and every entry its lines as they are drawn.
    """
    found: dict[tuple[str, float, float], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["kind"], *row["bounds"]), []).append(row)
    panels = []
    for (kind, low, high), entries in found.items():
        range_ = "" if (low, high) == (0.0, 1.0) else f", between {charts.number(low)} and {charts.number(high)}"
        drawn = charts.panel([line for row in entries for line in row["lines"]])
        taken = iter(drawn["lines"])
        shown = [row | {"lines": [next(taken) for _ in row["lines"]]} for row in entries]
        axis = drawn["axis"] if drawn["lines"] else None  # a list of questions has no interval
        panels.append({"title": forms.label(kind) + range_, "rows": shown, "axis": axis})
    return panels


def _row(served: ServedDataset, entry: Entry) -> dict[str, Any]:
    """Return an entry as a table shows it: one line for each interval."""
    answer = answer_from(served.plan.standing, entry)
    where = {"seq": entry.seq, "time": entry.time, "analyst": entry.analyst, "lines": lines(answer)}
    where["bounds"] = list(answer.bounds)
    where["registered"] = served.session.answering.registered.of(entry)
    return where | {name: getattr(answer, name) for name in ("kind", "question", "rows_read", "cost")}


# -- for the admin --------------------------------------------------------------------------------------------------


@routes.page("admin", "GET", "/admin")
async def admin_page(request: Request) -> Response:
    """Show tokens, datasets and ledgers."""
    return await _show_admin(request, lambda _: {})


@routes.page("admin", "POST", "/admin/tokens")
async def create_token_form(request: Request) -> Response:
    """Create a token; only this page shows its secret."""
    form = await forms.fields(request)
    values: dict[str, Any] = {"name": form.get("name", ""), "admin": form.get("role") == "admin"}
    if "datasets" in form:
        values["datasets"] = [name.strip() for name in form["datasets"].split(",") if name.strip()]
    values |= {"quota": forms.integer(form, "quota"), "days": forms.decimal(form, "days")}

    def act(state: ServerState) -> dict[str, Any]:
        secret, token = create_for(state, validate(TokenIn, values))
        return {"secret": secret, "done": f"Created a token for {token.name}."}

    return await _show_admin(request, act)


@routes.page("admin", "POST", "/admin/tokens/{id}/revoke")
async def revoke_token_form(request: Request, id: TokenId) -> Response:
    """Revoke a token."""
    by = token_of(request)
    return await _show_admin(request, lambda state: {"done": f"Revoked the token of {revoke_for(state, id, by).name}."})


@routes.page("admin", "POST", "/admin/tokens/{id}/quota")
async def quota_form(request: Request, id: TokenId) -> Response:
    """Set a quota; an empty field removes the limit."""
    form = await forms.fields(request)

    def act(state: ServerState) -> dict[str, Any]:
        token = state.tokens.set_quota(id, forms.integer(form, "quota"))
        limit = "the whole budget" if token.quota is None else f"{token.quota:,} answers of each dataset"
        return {"done": f"{token.name} may use {limit}."}

    return await _show_admin(request, act)


@routes.page("admin", "POST", "/admin/datasets")
async def register_form(request: Request) -> Response:
    """Serve a file from the data folder."""
    form = await forms.fields(request)
    values = {"name": form.get("name", ""), "file": form.get("file", ""), "queries": forms.integer(form, "queries")}

    def act(state: ServerState) -> dict[str, Any]:
        more = forms.settings(form, "settings")
        for twice in sorted(more.keys() & OWN_FIELDS):
            raise InvalidArgument(f"Settings must not name what has a field of its own; {twice} has.", name="settings")
        return {"done": f"Serving {register_file(state, validate(DatasetIn, values | more)).name}."}

    return await _show_admin(request, act)


@routes.page("admin", "POST", "/admin/datasets/{name}/verify")
async def verify_form(request: Request, name: NameInPath) -> Response:
    """Re-check every entry of the ledger."""

    def act(state: ServerState) -> dict[str, Any]:
        head = verify_ledger(state, name, token_of(request))
        found = NOT_BEGUN if head is None else f"entries up to #{head.seq} are consistent."
        return {"done": f"Verified {name}: {found}"}

    return await _show_admin(request, act)


def _overview_and_usage(served: ServedDataset) -> dict[str, Any]:
    used = {str(name or "-"): used for name, used in served.usage.by_analyst().items()}
    return served.overview() | {"used": used}


async def _show_admin(request: Request, act: Act) -> Response:
    """Do what was requested, then show the page with its result."""
    state = state_of(request)

    def work() -> dict[str, Any]:
        result = {"secret": None, "done": None} | act(state)
        datasets = state.overviews(state.admin, _overview_and_usage)
        folder, settings = state.settings.data_folder is not None, sorted(DatasetIn.model_fields.keys() - OWN_FIELDS)
        shown = {"tokens": list_tokens(state), "datasets": datasets, "data_folder": folder, "settings": settings}
        return shown | result

    return show(request, "admin.html", await in_thread(request, work))
