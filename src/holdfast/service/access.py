"""Who may come in. Deny by default: a route that does not say whom it is open to cannot be added.

A program shows its token in `Authorization: Bearer ...`. A browser shows a cookie, and then a request that changes
something must come from our own page: its Origin must be ours, and one without Origin is refused.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, TypeVar

from anyio.to_thread import run_sync
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import InvalidArgument, NotAllowed, NotSignedIn
from holdfast.service.desk import Desk, desk_of
from holdfast.service.people import Person

Who = Literal["anyone", "analyst", "keeper", "watcher"]
Handler = Callable[[Request], Awaitable[Response]]
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

COOKIE = "holdfast"
_SAFE = ("GET", "HEAD", "OPTIONS")
_MARK = "__open_to__"


def open_to(who: Who) -> Callable[[Endpoint], Endpoint]:
    """Say whom a route is open to: anyone, analyst (any token), keeper, or watcher (of metrics)."""

    def mark(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, _MARK, who)
        return endpoint

    return mark


class GuardedRoute(APIRoute):
    """A route that lets nobody in before looking who it is, and reads no body before that."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if not hasattr(endpoint, _MARK):
            raise TypeError(f"{path} does not say whom it is open to")
        self.open_to: Who = getattr(endpoint, _MARK)
        super().__init__(path, endpoint, **options)
        self._parameters = sorted(field.alias for field in self.dependant.query_params)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap FastAPI's handler."""
        inner = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            await admit(request, self.open_to)
            self._only_known_parameters(request)
            return await self.serve(request, inner)

        return guarded

    async def serve(self, request: Request, inner: Handler) -> Response:
        """Answer whoever was let in."""
        return await inner(request)

    def _only_known_parameters(self, request: Request) -> None:
        """Refuse parameters the API does not have: a misspelt one would go unnoticed. Pages are left alone."""
        if not self.include_in_schema or not request.scope["query_string"]:
            return
        unknown = sorted(set(request.query_params) - set(self._parameters))
        if unknown:
            listed = ", ".join(self._parameters) or "none"
            raise InvalidArgument(f"No parameter {unknown[0]!r} here. There are: {listed}.", name=unknown[0])


def person_of(request: Request) -> Person:
    """Return who was let in."""
    person: Person = request.state.person
    return person


async def admit(request: Request, who: Who) -> None:
    """Look who it is and note it, or refuse."""
    desk = desk_of(request)
    if who == "watcher" and desk.settings.open_metrics:
        who = "anyone"
    if who == "anyone":
        if request.method not in _SAFE:
            _from_our_page(request)
        request.state.person = None
        return
    address = request.client.host if request.client else "unknown"
    try:
        person = await _who(request, desk)
    except NotSignedIn:
        desk.strangers.take(address)
        raise
    request.state.person = person
    desk.rates.take(person.id)
    if who in ("keeper", "watcher") and not person.keeper:
        raise NotAllowed("This is for the keeper. Your token is an analyst's.")


async def _who(request: Request, desk: Desk) -> Person:
    header = request.headers.get("authorization")
    if header is not None:
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip() or len(token) > 500:
            raise NotSignedIn("The Authorization header must be 'Bearer' and a token.")
        remembered = desk.people.remembered(token.strip())
        return remembered if remembered is not None else await run_sync(desk.people.who, token.strip())
    cookie = request.cookies.get(COOKIE)
    if cookie is None:
        raise NotSignedIn("A token is needed: send 'Authorization: Bearer ...', or sign in at /sign-in.")
    if request.method not in _SAFE:
        _from_our_page(request)
    return await run_sync(desk.people.by_cookie, cookie[:500])


def _from_our_page(request: Request) -> None:
    """Refuse what another site makes a browser send."""
    desk = desk_of(request)
    origin = (request.headers.get("origin") or "").lower()
    ours = {desk.settings.origin} if desk.settings.origin else {f"{request.url.scheme}://{request.url.netloc}".lower()}
    if origin not in ours:
        raise NotAllowed("This request must come from the server's own page: its Origin header names another, or none.")
