"""Agents at the desk: the tools of the Model Context Protocol at /mcp, for whoever bears a token.

The tools are those of `holdfast mcp`. What they ask goes the way of every question over HTTP: the same tokens, quotas,
limits and counts. An agent is a program, so it shows its token with every request; a cookie does not open this door.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from typing import Any

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.answer import AnyAnswer
from holdfast.budget import Budget, Quote
from holdfast.errors import NotSignedIn
from holdfast.planning import Plan
from holdfast.schema import Schema
from holdfast.service import wire
from holdfast.service.access import admit, person_of
from holdfast.service.datasets import Served
from holdfast.service.desk import Desk
from holdfast.service.forms import checked
from holdfast.service.people import Person
from holdfast.service.shapes import Ask

PATH = "/mcp"
_here: ContextVar[Person] = ContextVar("person")  # whose request is being served


class Seat:
    """One person's place before one dataset: the verbs of a `Session` that the tools use."""

    def __init__(self, desk: Desk, served: Served, person: Person) -> None:
        self._desk, self._served, self._person = desk, served, person

    def ask(self, query: str, kind: str = "mean", **options: Any) -> AnyAnswer:
        """Ask, within the person's quota."""
        said = self._desk.asking.ask(self._served, self._person, _question(query, kind, options))
        self._desk.count(said)
        return wire.answer_of(said["answer"])

    def price(self, query: str, kind: str = "mean", **options: Any) -> Quote:
        """Say what a question would cost."""
        said = self._desk.asking.price(self._served, self._person, _question(query, kind, options))
        return Quote(**said["price"])

    @property
    def budget(self) -> Budget:
        """What is left to ask, for everyone together."""
        return self._served.session.budget

    @property
    def plan(self) -> Plan:
        """The plan that stands."""
        return self._served.session.plan

    @property
    def schema(self) -> Schema:
        """Column names and types. Never values."""
        schema: Schema = self._served.session.schema
        return schema


class Seats(Mapping[str, Seat]):
    """The datasets by name, as the person whose request it is may see them."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def __getitem__(self, name: str) -> Seat:
        return Seat(self._desk, self._desk.datasets.get(name, _here.get()), _here.get())

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def _names(self) -> list[str]:
        return [served.name for served in self._desk.datasets.visible(_here.get())]


class Agents:
    """The door at /mcp."""

    def __init__(self, desk: Desk) -> None:
        from holdfast.service.mcp_tools import unguarded

        self._app: ASGIApp = unguarded(Seats(desk))

    def open(self) -> AbstractAsyncContextManager[Any]:
        """Answer agents while this is entered."""
        app: Any = self._app
        held: AbstractAsyncContextManager[Any] = app.router.lifespan_context(app)
        return held

    def route(self) -> Route:
        """Return the route."""
        return Route(PATH, self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        request = Request(scope, receive)
        if "authorization" not in request.headers:
            raise NotSignedIn("A token is needed: send 'Authorization: Bearer ...'.")
        await admit(request, "analyst")
        token = _here.set(person_of(request))
        try:
            await self._app(scope, receive, send)
        finally:
            _here.reset(token)


def _question(query: str, kind: str, options: Mapping[str, Any]) -> Ask:
    ask: Ask = checked(Ask, wire.question(kind, query, options))
    return ask
