"""Access control. Deny by default: a route that does not declare a role cannot be added.

A program sends its token in `Authorization: Bearer ...`. A browser sends a cookie; a request that changes something
must then come from the server's own pages: a missing or different Origin is refused.
"""

import re
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Literal, TypeVar

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import InvalidArgument, NotAllowed, NotSignedIn
from holdfast.service.datasets import ServedDataset
from holdfast.service.limits import header
from holdfast.service.state import Result, ServerState, in_thread, state_of
from holdfast.service.tokens import Token

Role = Literal["anyone", "analyst", "admin", "metrics"]
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

COOKIE = "holdfast"
_SAFE = ("GET", "HEAD", "OPTIONS")
_ROLE = "__role__"


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
    """Find the token of a request and check its role, or refuse."""
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
        state.failed_sign_ins.take(_address(request))
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
        cached = state.tokens.cached(secret.strip())
        return cached or await _in_turn(request, partial(state.tokens.authenticate, secret.strip()))
    cookie = request.cookies.get(COOKIE)
    if cookie is None:
        raise NotSignedIn("A token is required: send 'Authorization: Bearer ...', or sign in at /sign-in.")
    if request.method not in _SAFE:
        _check_origin(request)
    return await _in_turn(request, partial(state.tokens.by_cookie, cookie[:500]))


def _address(request: Request) -> str:
    return request.client.host if request.client else "unknown"


async def _in_turn(request: Request, look_up: Callable[[], Token]) -> Token:
    """Look up a token in the turn of the caller's address: many guesses delay only whoever makes them."""
    return await state_of(request).lanes.reads.run(f"at {_address(request)}", look_up)


def _check_origin(request: Request) -> None:
    """Refuse a request that another site made the browser send."""
    declared = state_of(request).settings.origin
    ours = declared or f"{request.url.scheme}://{request.url.netloc}".lower()
    if (request.headers.get("origin") or "").lower() != ours:
        raise NotAllowed("This request must come from the server's own pages; its Origin header does not match.")
