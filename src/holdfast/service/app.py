"""The pieces put together: `build(settings)` is the application."""

import gc
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.staticfiles import StaticFiles

from holdfast import __version__
from holdfast.errors import HoldfastError
from holdfast.service import api, failures, keeping, logs, pages
from holdfast.service.access import GuardedRoute, open_to
from holdfast.service.desk import Desk, desk_of, in_thread
from holdfast.service.limits import Limits
from holdfast.service.settings import Settings

if TYPE_CHECKING:
    from holdfast.service.agents import Agents

SETTINGS = "HOLDFAST_SETTINGS_JSON"  # how worker processes learn what the first one was told
STATIC = Path(__file__).parent / "static"


def build(settings: Settings) -> FastAPI:
    """Return the application; datasets are open when this returns."""
    desk = Desk(settings)
    agents = _agents(desk)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        logs.say("start", version=__version__, datasets=desk.datasets.names())
        async with agents.open() if agents is not None else nullcontext():
            yield
        desk.close()
        logs.say("stop")
        logs.flush()

    app = FastAPI(
        title="holdfast",
        version=__version__,
        description="Ask one dataset many questions; every answer holds for the population.",
        lifespan=life,
        docs_url=None,  # FastAPI's own pages load scripts from elsewhere
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    app.state.desk = desk
    app.router.route_class = GuardedRoute
    api.add(app)
    keeping.add(app)
    pages.add(app)
    for path, endpoint in (
        ("/health", health),
        ("/ready", ready),
        ("/metrics", metrics),
        (f"{api.V1}/openapi.json", description),
    ):
        app.get(path, include_in_schema=False)(endpoint)
    if agents is not None:
        app.router.routes.append(agents.route())
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    for kind in (HoldfastError, RequestValidationError, HTTPException, failures.Failure):
        app.add_exception_handler(kind, refuse)
    app.add_middleware(Limits, settings=settings, metrics=desk.metrics, refuse=refuse)
    _describe_tokens(app)
    return app


def _agents(desk: Desk) -> "Agents | None":
    """Return the door for agents, if the package it is made of is installed."""
    if find_spec("mcp") is None:
        return None
    from holdfast.service.agents import Agents

    return Agents(desk)


def from_environment() -> FastAPI:
    """Return the application of a worker process."""
    logs.begin()
    app = build(Settings.from_json(os.environ[SETTINGS]))
    settle()
    return app


def settle() -> None:
    """What is here by now stays: looking through it for garbage would hold up everyone for a tenth of a second."""
    gc.collect()
    gc.freeze()


@open_to("anyone")
async def health() -> Response:
    """Say that the process lives."""
    return JSONResponse({"ok": True})


@open_to("anyone")
async def ready(request: Request) -> Response:
    """Say that every ledger and the database of tokens can be reached."""
    desk = desk_of(request)
    await in_thread(desk, desk.ready)
    return JSONResponse({"ok": True})


@open_to("watcher")
async def metrics(request: Request) -> Response:
    """Counts for Prometheus; with the keeper's token, unless the settings open them to anyone."""
    desk = desk_of(request)
    text = await in_thread(desk, lambda: desk.metrics.text(desk.budgets()))
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


@open_to("anyone")
async def description(request: Request) -> Response:
    """Describe the API in OpenAPI."""
    return JSONResponse(request.app.openapi())


async def refuse(request: Request, error: Exception) -> Response:
    """Answer every failure in the one shape; for people as a page."""
    said = failures.shape(error)
    if said["status"] >= 500:
        logs.complain("failure", error, id=getattr(request.state, "request_id", None), kind=said["kind"])
    if pages.wants_page(request):
        return pages.refusal(request, said, failures.headers(error))
    return JSONResponse(said, status_code=said["status"], headers=failures.headers(error))


def _describe_tokens(app: FastAPI) -> None:
    """Say in the description that every route wants a token."""
    plain = app.openapi

    def with_tokens() -> dict[str, Any]:
        if app.openapi_schema is None:
            described = plain()
            described["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            described["security"] = [{"token": []}]
            described["components"]["schemas"].pop("HTTPValidationError", None)
            described["components"]["schemas"].pop("ValidationError", None)
            app.openapi_schema = described
        return app.openapi_schema

    app.openapi = with_tokens  # type: ignore[method-assign]
