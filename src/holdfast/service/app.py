"""The application, `build(settings)`, and the process that runs it, `serve`."""

import asyncio
import gc
import mmap
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from functools import partial
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Any

import polars as pl
import uvicorn
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from holdfast import __version__
from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.guarantees.mathematics import special
from holdfast.service import api, pages
from holdfast.service.access import GuardedRoute, Routes, ServerState, in_thread, state_of
from holdfast.service.connections import Connections, GuardedProtocol
from holdfast.service.errors import ProtocolError, error_headers, error_payload, invalid_request
from holdfast.service.limits import RequestLimits
from holdfast.service.monitoring import flush_logs, log_error, log_event, start_logging
from holdfast.service.settings import Settings

if sys.platform != "win32":
    import fcntl

WORKER_SETTINGS = "HOLDFAST_SETTINGS_JSON"  # passes the settings on to worker processes
SHARES = "HOLDFAST_SHARES_FILE"  # the file in which they share their numbers of connections
STATIC = Path(__file__).parent / "static"
OFTEN = (10_000, 10, 1_000)  # thresholds of the garbage collector, for young, middle and old objects
FINISHING = 0.7  # the part of the grace period for requests in progress when the server is stopped
WRITING = 0.85  # the part of the grace period after which all paid answers must be written
routes = Routes()


class Application(FastAPI):
    """FastAPI, except that requests for answers go straight to their route, within the same limits."""

    ask: api.AskDirectly
    limited_ask: RequestLimits
    description_sent: bytes | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if self.ask.takes(scope):
            scope["app"] = self
            await self.limited_ask(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def build(settings: Settings) -> FastAPI:
    """Return the application; its datasets are open when this returns."""
    state = ServerState(settings)
    mcp = None
    if find_spec("mcp") is not None:  # agents are served if the package for it is installed
        from holdfast.service.mcp import McpEndpoint

        mcp = McpEndpoint(state)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        left = _end_within(settings.grace)
        log_event("start", version=__version__, datasets=state.datasets.names())
        shares = _shares()
        if settings.pin and shares is not None:
            shares.pin()
        async with mcp.open() if mcp is not None else nullcontext():
            yield {"connections": connections(settings, shares)}
        state.close(left())
        log_event("stop")
        flush_logs()

    app = Application(
        title="holdfast",
        version=__version__,
        description="Ask one dataset many questions; every answer holds for the population.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own pages load scripts from other sites
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    app.state.server = state
    app.router.route_class = GuardedRoute
    for group in (api.routes, pages.routes, routes):
        group.add_to(app)
    if mcp is not None:
        app.router.routes.append(mcp.route())
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    for error in (HoldfastError, RequestValidationError, HTTPException, ProtocolError):
        app.add_exception_handler(error, handle_error)
    limits = partial(RequestLimits, settings=settings, metrics=state.metrics, handle_error=handle_error)
    app.add_middleware(limits)
    app.ask = api.AskDirectly(app.router.routes, handle_error)
    app.limited_ask = limits(app.ask)
    _describe(app, state)
    return app


@routes.page("anyone", "GET", "/health")
async def health() -> Response:
    """Report that the process is alive."""
    return JSONResponse({"ok": True})


@routes.page("anyone", "GET", "/ready")
async def ready(request: Request) -> Response:
    """Report that an answer could be committed to every ledger."""
    await state_of(request).readiness.check()
    return JSONResponse({"ok": True})


@routes.page("metrics", "GET", "/metrics")
async def metrics(request: Request) -> Response:
    """Return metrics for Prometheus; requires an admin token, unless the settings open them to anyone."""
    state = state_of(request)
    text = await in_thread(request, lambda: state.metrics.text(state.budgets()))
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


@routes.page("anyone", "GET", f"{api.V1}/openapi.json")
async def description(request: Request) -> Response:
    """Describe the API in OpenAPI; anyone may request it, so it is generated once."""
    app = request.app
    if app.description_sent is None:
        app.description_sent = bytes(JSONResponse(app.openapi()).body)
    return Response(app.description_sent, media_type="application/json")


async def handle_error(request: Request, error: Exception) -> Response:
    """Return any error in the one shape of all errors; for a browser, as a page."""
    if isinstance(error, RequestValidationError):
        error = invalid_request(error.errors())
    elif isinstance(error, HTTPException):
        error = ProtocolError(error.status_code, message=str(error.detail), headers=error.headers)
    payload, headers = error_payload(error), error_headers(error)
    if payload["status"] >= 500:
        log_error("failure", error, id=getattr(request.state, "request_id", None), kind=payload["kind"])
    if pages.wants_page(request):
        return pages.show_error(request, payload, headers)
    return JSONResponse(payload, status_code=payload["status"], headers=headers)


def _describe(app: FastAPI, state: ServerState) -> None:
    """Add to the OpenAPI description the models of questions, and that every route requires a token."""
    generate = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = generate()
            schemas = found["components"]["schemas"]
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            schemas.update(state.questions.openapi())
            found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            found["security"] = [{"token": []}]
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]


# -- the process ----------------------------------------------------------------------------------------------------


def serve(settings: Settings, announce: Callable[[str, str], None]) -> None:
    """Serve until SIGINT or SIGTERM. `announce` receives the address and the admin's one-time sign-in link."""
    listening = _bind(settings)
    start_logging()
    port = listening.getsockname()[1]
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = settings.public_url or f"http://{host}:{port}"
    app = build(settings)
    state: ServerState = app.state.server
    announce(address, f"{address}/sign-in?code={state.tokens.sign_in_link(state.admin)}")
    options = uvicorn_options(settings)
    _allow_connections(settings.max_connections)
    if settings.workers == 1:
        _make_ready()
        uvicorn.Server(uvicorn.Config(app, **options)).run(sockets=[listening])
        return
    state.close()
    os.environ[WORKER_SETTINGS] = settings.to_json()
    config = uvicorn.Config("holdfast.service.app:worker", factory=True, workers=settings.workers, **options)
    from holdfast.service import workers

    with _sharing(settings.workers):
        workers.run(config, listening)


def uvicorn_options(settings: Settings) -> dict[str, Any]:
    """Return how uvicorn runs the application."""
    return {
        "http": GuardedProtocol,
        "ws": "none",
        "access_log": False,
        "log_level": "critical",  # only holdfast writes to the log
        "timeout_graceful_shutdown": max(1, int(FINISHING * settings.grace)),
        "timeout_keep_alive": settings.idle_timeout,
        "server_header": False,
        "date_header": True,
        "proxy_headers": settings.public_url is not None,
    }


def connections(settings: Settings, shares: "Shares | None" = None) -> Connections:
    """Return the limits of connections; behind a proxy, all share its address, so there is no limit per address."""
    return Connections(
        most=settings.max_connections,
        each=settings.connections_per_address if settings.public_url is None else None,
        shares=shares,
        header_bytes=settings.max_header_bytes,
        header_seconds=settings.header_timeout,
    )


class Shares:
    """How many connections each process of a server has: numbers in a small file that all of them map.

    Several processes accept connections from one socket, and the system gives each connection to whichever process is
    awake: of fifty that arrive at once, one of two processes may get forty, and its callers wait twice as long. So each
    process publishes its number of connections, and one that has at least two more than another pauses briefly after
    each new connection, until the other has caught up.

    A process owns the first number whose byte it can lock. The lock ends with the process, and the process that is
    started in its place takes over the number.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # kept open: closing it would release the lock
        self._counts = memoryview(mmap.mmap(self._file, 0)).cast("q")
        self._mine = next((place for place in range(len(self._counts)) if self._has(place)), -1)

    @staticmethod
    def of_processes(count: int, path: str) -> None:
        """Write the file for this many processes."""
        with open(path, "wb") as file:
            file.write(bytes(8 * count))  # no sparse file: filling a hole on a full disk would kill the process

    def _has(self, place: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except OSError:
            return False
        return True

    def pin(self) -> None:
        """Keep this thread, and those that it starts, on a processor that no other process of the server uses.

        The event loop and the threads that answer hand each other the interpreter lock, a few times for each answer.
        Between two processors, that wakes the other one, and moves what both have in their caches.
        """
        if sys.platform == "linux" and self._mine >= 0:
            pl.thread_pool_size()  # starts Polars' threads, which may run anywhere
            allowed = sorted(os.sched_getaffinity(0))
            if len(self._counts) <= len(allowed):
                os.sched_setaffinity(0, {allowed[self._mine]})

    def lead(self, count: int) -> int:
        """Publish how many connections this process has; return by how many it exceeds the process with the fewest."""
        if self._mine < 0:
            return 0
        self._counts[self._mine] = count
        return count - min(self._counts)


@contextmanager
def _sharing(workers: int) -> Iterator[None]:
    """Create the file in which worker processes share their numbers of connections; if that fails, do without it."""
    with ExitStack() as held:
        if sys.platform != "win32":
            with suppress(OSError):
                folder = held.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-"))
                Shares.of_processes(workers, f"{folder}/connections")
                os.environ[SHARES] = f"{folder}/connections"
        yield


def _shares() -> Shares | None:
    """Return the connections of all worker processes; None if there is one process, or if the file was deleted."""
    with suppress(KeyError, OSError):
        return Shares(os.environ[SHARES])
    return None


def worker() -> FastAPI:
    """Return the application of a worker process."""
    start_logging()
    _end_with_parent()
    app = build(Settings.from_json(os.environ[WORKER_SETTINGS]))
    _make_ready()
    return app


def _end_with_parent() -> None:
    """End this process in order when the one that started it has ended, even by SIGKILL: nobody else would end it.

    Python gives each process that it starts one end of a pipe whose other end is nobody's but the parent's. When that
    has ended, the event loop, which runs already, can read the end of the file.
    """
    parent, loop = multiprocessing.parent_process(), asyncio.get_running_loop()
    if parent is None:
        return
    gone = parent.sentinel

    def end() -> None:
        loop.remove_reader(gone)
        signal.raise_signal(signal.SIGTERM)

    loop.add_reader(gone, end)


def _end_within(seconds: float) -> Callable[[], float]:
    """End the process this many seconds after SIGTERM or SIGINT, whatever its threads wait for: commits are atomic.

    Return a function that says how many seconds are left to write what is paid for.
    """
    stopped_at = inf  # the time of the first signal

    def left() -> float:
        return WRITING * seconds - max(0.0, time.monotonic() - stopped_at)

    if threading.current_thread() is not threading.main_thread():  # only the main thread receives signals
        return left

    def end(then: Any, number: int, frame: Any) -> None:
        nonlocal stopped_at
        stopped_at = min(stopped_at, time.monotonic())
        for wait, act in ((0.9 * seconds, flush_logs), (seconds, lambda: os._exit(0))):
            timer = threading.Timer(wait, act)
            timer.daemon = True
            with suppress(RuntimeError):  # the system can start no thread now: the process must end all the same
                timer.start()
        then(number, frame)

    for number in (signal.SIGTERM, signal.SIGINT):
        standing = signal.getsignal(number)
        if callable(standing):
            signal.signal(number, partial(end, standing))
    return left


def _allow_connections(count: int) -> None:
    """Raise the process's limit of open files to what the connections need, as far as the system allows."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        needed = 2 * count + 200
        if soft != resource.RLIM_INFINITY and soft < needed:
            most = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _make_ready() -> None:
    """Do now what would otherwise cost time while answering."""
    special.load()
    _freeze_garbage()


def _freeze_garbage() -> None:
    """Exempt existing objects from garbage collection, which pauses all requests, and collect new ones often.

    The command line makes collections rare, to speed up its imports; here that would mean pauses of a tenth of a second
    every few thousand answers. Objects that have lived long mostly live on, and take as long to scan, so they are
    collected rarely.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*OFTEN)


def _bind(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        taken = f"{settings.host}:{settings.port} is not ({error.strerror})"
        raise InvalidArgument(f"port must be free; {taken}. Choose one with --port.", name="port") from None
    listening.set_inheritable(True)
    return listening
