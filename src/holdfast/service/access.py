"""What a request can reach: settings, tokens, datasets, the service that asks them; and who may call which route.

Deny by default: a route that does not declare a role cannot be added. A program sends its token in
`Authorization: Bearer ...`. A browser sends a cookie; a request that changes something must then come from the server's
own pages: a missing or different Origin is refused.
"""

import asyncio
import re
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Literal, TypeVar

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import HoldfastError, InvalidArgument, NotAllowed, NotSignedIn, ServiceUnavailable
from holdfast.questions.budget import Budget
from holdfast.service.ask import AskService, write_together
from holdfast.service.database import TokenDatabase
from holdfast.service.datasets import Datasets, ServedDataset
from holdfast.service.errors import error_payload
from holdfast.service.lanes import Lanes
from holdfast.service.limits import header
from holdfast.service.monitoring import Metrics, log_error
from holdfast.service.rates import RateLimiter
from holdfast.service.schemas import QuestionModels
from holdfast.service.settings import Settings
from holdfast.service.tokens import Token, TokenStore

FAILED_SIGN_IN_RATE, FAILED_SIGN_IN_BURST = 10.0, 100  # per second, and at once, from one address
READY_SECONDS = 1.0  # how long the result of a readiness check is reused
MOST_READY_SECONDS = 3.0  # how long a check may take
PLAN_REQUESTS = 25  # requests that a plan counts as: making one takes at least as long as this many answers

Result = TypeVar("Result")
Role = Literal["anyone", "analyst", "admin", "metrics"]
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

COOKIE = "holdfast"
_SAFE = ("GET", "HEAD", "OPTIONS")
_ROLE = "__role__"


class ServerState:
    """Everything a server process holds."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = TokenDatabase(settings.token_database)
        self.tokens = TokenStore(self.database, sign_in_seconds=settings.sign_in_hours * 3_600)
        self.admin: Token = self.tokens.admin(settings.token_file, settings.admin_token)
        self.datasets = Datasets(settings, self.database)
        self.questions = QuestionModels()
        self.metrics = Metrics()
        self.lanes = Lanes(each=settings.asks_at_once, waiting=settings.asks_waiting, write=write_together)
        self.rate_limits = RateLimiter(settings.rate, settings.burst)
        self.service = AskService(
            settings, self.database, self.datasets, self.questions, self.metrics, self.lanes, self.rate_limits
        )
        self.readiness = Readiness(self.probe)
        self.failed_sign_ins = RateLimiter(FAILED_SIGN_IN_RATE, FAILED_SIGN_IN_BURST)
        self.datasets.open_all()
        self._warm_up()

    def _warm_up(self) -> None:
        """Compile statements and open connections, so that the first requests do not all wait for that."""
        with suppress(HoldfastError):  # reported again when somebody asks
            self.service.idempotency.find("", "", "")
            self.tokens.authenticate("")

    def count_plan(self, token: Token) -> None:
        """Count a plan as several requests, for its work; the request itself has been counted as one."""
        self.rate_limits.take(token.id, PLAN_REQUESTS - 1)

    def budgets(self) -> list[tuple[str, Budget]]:
        """Return the budget of every dataset that is within reach."""
        found = self.look_at_each(self.admin, lambda served: served.session.budget)
        return [(name, one) for name, one in found.items() if not isinstance(one, HoldfastError)]

    def overviews(
        self, token: Token, look: Callable[[ServedDataset], dict[str, Any]] = ServedDataset.overview
    ) -> list[dict[str, Any]]:
        """Return what is public about each dataset; about one that is out of reach, what the problem is."""
        return [
            {"name": name, "problem": error_payload(one)["error"]} if isinstance(one, HoldfastError) else one
            for name, one in self.look_at_each(token, look).items()
        ]

    def look_at_each(self, token: Token, look: Callable[[ServedDataset], Result]) -> dict[str, Result | HoldfastError]:
        """Return what `look` returns for each dataset, or its error: one that is out of reach hides no other."""
        found: dict[str, Result | HoldfastError] = {}
        for served in self.datasets.visible(token):
            try:
                with served.naming:
                    found[served.name] = look(served)
            except HoldfastError as error:
                log_error("failure", error, dataset=served.name, kind=error.kind)
                found[served.name] = error
        return found

    def probe(self) -> None:
        """Raise if no answer could be committed now; writes nothing."""
        self.database.probe()
        for served in self.datasets.visible(self.admin):
            served.session.ledger.probe()

    def close(self, seconds: float = 0.0) -> None:
        """Close everything, whatever fails; before that, wait this long for answers in progress to be written."""
        with ExitStack() as last_first:
            last_first.callback(self.database.close)
            last_first.callback(self.datasets.close)
            last_first.callback(self.service.idempotency.close)
            last_first.callback(self.readiness.close)
            last_first.callback(self.lanes.close, seconds)


class Readiness:
    """Whether an answer could be committed, as of a moment ago; one check at a time, in a separate thread."""

    def __init__(self, probe: Callable[[], None]) -> None:
        self._probe = probe
        self._thread = ThreadPoolExecutor(1, "holdfast ready")
        self._look: asyncio.Future[None] | None = None
        self._at = 0.0

    async def check(self) -> None:
        """Raise if no answer could be committed."""
        now = time.monotonic()
        if self._look is None or (self._look.done() and now - self._at > READY_SECONDS):
            self._look, self._at = asyncio.get_running_loop().run_in_executor(self._thread, self._probe), now
        done, _ = await asyncio.wait({self._look}, timeout=MOST_READY_SECONDS)
        error = self._look.exception() if done else None
        if error is not None and not isinstance(error, HoldfastError):
            raise error
        if error is not None or not done:  # name nothing: anyone may call this
            raise ServiceUnavailable("Not ready: no answer could be written at the moment.") from error

    def close(self) -> None:
        """Make no more checks."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def state_of(request: Request) -> ServerState:
    """Return the state of the application."""
    state: ServerState = request.scope["app"].state.server
    return state


def address_of(request: Request) -> str:
    """Return the address that a request comes from."""
    return request.client.host if request.client else "unknown"


async def in_thread(request: Request, work: Callable[[], Result]) -> Result:
    """Run a read outside the event loop: in the lane for reads, in the turn of the caller or of their address."""
    token: Token | None = request.scope["state"].get("token")
    person = token.name if token is not None else f"at {address_of(request)}"
    return await state_of(request).lanes.reads.run(person, work)


# -- who may call a route -------------------------------------------------------------------------------------------


class GuardedRoute(APIRoute):
    """A route that authorizes the request before it reads the body."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if not hasattr(endpoint, _ROLE):
            raise TypeError(f"{path} does not declare a role")
        self.role: Role = getattr(endpoint, _ROLE)
        super().__init__(path, endpoint, **options)
        self.path_regex = re.compile(self.path_regex.pattern.removesuffix("$") + r"\Z")  # "$" lets a newline follow
        self._parameters = sorted(field.alias for field in self.dependant.query_params)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap FastAPI's handler."""
        inner = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            await self.check(request)
            return await inner(request)

        return guarded

    async def check(self, request: Request) -> None:
        """Refuse a caller who may not use this route, and unknown query parameters, which may be misspelled."""
        await authorize(request, self.role)
        if not self.include_in_schema or not request.scope["query_string"]:  # pages may have any parameters
            return
        for unknown in sorted(set(request.query_params) - set(self._parameters)):
            listed = ", ".join(self._parameters) or "none"
            raise InvalidArgument(f"No parameter {unknown!r} here. There are: {listed}.", name=unknown)


class Routes:
    """Routes of the application, each declared with the role that may call it."""

    def __init__(self) -> None:
        self._declared: list[tuple[str, Callable[..., Any], dict[str, Any]]] = []

    def declare(self, role: Role, method: str, path: str, **options: Any) -> Callable[[Endpoint], Endpoint]:
        """Declare the route that is served by the function below, and who may call it.

        That is anyone, analyst (any token), admin, or metrics (admin unless opened).
        """

        def add(endpoint: Endpoint) -> Endpoint:
            setattr(endpoint, _ROLE, role)
            self._declared.append((path, endpoint, options | {"methods": [method]}))
            return endpoint

        return add

    def page(self, role: Role, method: str, path: str) -> Callable[[Endpoint], Endpoint]:
        """Declare a page, which the OpenAPI description leaves out."""
        return self.declare(role, method, path, include_in_schema=False)

    def add_to(self, app: FastAPI) -> None:
        """Add the routes in the order of their declarations."""
        for path, endpoint, options in self._declared:
            app.router.add_api_route(path, endpoint, **options)


def token_of(request: Request) -> Token:
    """Return the token the request was authorized with."""
    token: Token = request.scope["state"]["token"]
    return token


async def on_dataset(request: Request, name: str, act: Callable[[ServedDataset], Result]) -> Result:
    """Return what `act` returns, in a thread, for a dataset that the caller's token allows."""
    state, token = state_of(request), token_of(request)

    def work() -> Result:
        served = state.datasets.get(name, token)
        with served.naming:
            return act(served)

    return await in_thread(request, work)


async def authorize(request: Request, role: Role) -> None:
    """Find the token of a request and check its role, or refuse.

    Until the token is known, its lookup is in the turn of the caller's address: many guesses delay only whoever makes
    them.
    """
    state = state_of(request)
    if role == "metrics" and state.settings.open_metrics:
        role = "anyone"
    if role == "anyone":
        if request.method not in _SAFE:
            _check_origin(request)
        request.scope["state"]["token"] = None
        return
    try:
        token = await _authenticate(request, state)
    except NotSignedIn:
        state.failed_sign_ins.take(address_of(request))
        raise
    request.scope["state"]["token"] = token
    state.rate_limits.take(token.id)
    if role in ("admin", "metrics") and not token.admin:
        raise NotAllowed("This requires an admin token. Yours is an analyst token.")


async def _authenticate(request: Request, state: ServerState) -> Token:
    authorization = header(request, b"authorization")
    if authorization is not None:
        scheme, _, secret = authorization.partition(" ")
        if scheme.lower() != "bearer" or not secret.strip() or len(secret) > 500:
            raise NotSignedIn("The Authorization header must be 'Bearer' followed by a token.")
        token = state.tokens.cached(secret.strip())
        if token is None:
            token = await in_thread(request, partial(state.tokens.authenticate, secret.strip()))
        return token
    cookie = request.cookies.get(COOKIE)
    if cookie is None:
        raise NotSignedIn("A token is required: send 'Authorization: Bearer ...', or sign in at /sign-in.")
    if request.method not in _SAFE:
        _check_origin(request)
    return await in_thread(request, partial(state.tokens.by_cookie, cookie[:500]))


def _check_origin(request: Request) -> None:
    """Refuse a request that another site made the browser send."""
    declared = state_of(request).settings.origin
    ours = declared or f"{request.url.scheme}://{request.url.netloc}".lower()
    if (request.headers.get("origin") or "").lower() != ours:
        raise NotAllowed("This request must come from the server's own pages; its Origin header does not match.")
