"""The outermost layer: how large and how slow a request may be, the headers of every response, one line in the log.

A body is taken in whole before anything looks at it, within a size and a time; so nothing further in ever waits for a
client, and no slow one can hold a thread or the ledger.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import ServiceUnavailable
from holdfast.service.failures import Failure, shape
from holdfast.service.logs import say
from holdfast.service.metrics import Metrics
from holdfast.service.settings import Settings

Refuse = Callable[[Request, Exception], Awaitable[Response]]
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # stricter ones make browsers hide the Origin of our own forms
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Limits:
    """Wraps the whole application."""

    def __init__(self, app: ASGIApp, *, settings: Settings, metrics: Metrics, refuse: Refuse) -> None:
        self._app, self._settings, self._metrics, self._refusal = app, settings, metrics, refuse
        self._process, self._numbers = secrets.token_hex(6), count(1)  # a request's name: unique, cheap, no secret
        extra = dict(HEADERS)
        if (settings.public_url or "").startswith("https:"):
            extra["Strict-Transport-Security"] = "max-age=31536000"
        self._kept = _raw(extra)
        self._fleeting = _raw(extra | {"Cache-Control": "no-store"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, request_id = time.perf_counter(), f"{self._process}{next(self._numbers):06x}"
        scope.setdefault("state", {})["request_id"] = request_id
        extra = self._kept if scope["path"].startswith("/static/") else self._fleeting
        answer = _Answer(send, [*extra, (b"x-request-id", request_id.encode())])
        await self._run(scope, receive, answer)
        seconds = time.perf_counter() - begin
        route = getattr(scope.get("route"), "path", "other")
        self._metrics.request(scope["method"], route, answer.status, seconds)
        person = scope["state"].get("person")
        say(
            "request",
            id=request_id,
            method=scope["method"],
            route=route,
            status=answer.status,
            ms=round(seconds * 1e3, 2),
            person=None if person is None else person.id,
        )

    async def _run(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        """Take the body in, then answer; both within the time."""
        arrived = False
        try:
            async with asyncio.timeout(self._settings.slowest):
                body = await self._body(scope, receive)
                arrived = True
                await self._app(scope, _replay(body, receive), answer)
        except TimeoutError:
            await self._refuse(self._too_late(arrived), scope, receive, answer)
        except Failure as refused:
            await self._refuse(refused, scope, receive, answer)
        except Exception as error:  # noqa: BLE001  the last boundary: further out it would be printed with its words
            response = await self._refusal(Request(scope), error)
            if not answer.started:
                await response(scope, receive, answer)

    def _too_late(self, arrived: bool) -> Exception:
        seconds = self._settings.slowest
        if not arrived:
            return Failure(408, seconds=seconds)
        return ServiceUnavailable(
            f"No answer within {seconds:g} s. Send it again with the same Idempotency-Key: what was answered meanwhile"
            " is not charged twice."
        )

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        largest = self._settings.largest_body
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not declared.isdigit() or len(declared) > 18 or int(declared) > largest:
            raise Failure(413, largest=largest)
        pieces, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Failure(400)
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > largest:
                raise Failure(413, largest=largest)
            if not message.get("more_body", False):
                return b"".join(pieces)

    async def _refuse(self, error: Exception, scope: Scope, receive: Receive, send: "_Answer") -> None:
        """Refuse for the whole connection: what else is on the line belongs to a request we did not read."""
        if send.started:
            return
        said = shape(error)
        response = JSONResponse(said, status_code=said["status"], headers={"Connection": "close"})
        await response(scope, receive, send)


class _Answer:
    """Sends on, with our headers, and remembers the status."""

    def __init__(self, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        self._send, self._headers = send, headers
        self.status, self.started = 500, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.started = message["status"], True
            # None of ours is set further in, so nothing has to be looked for and replaced.
            message["headers"] = [*message.get("headers", ()), *self._headers]
        await self._send(message)


def _raw(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


def _replay(body: bytes, receive: Receive) -> Receive:
    """Hand over the body that was read, once; then whatever else happens on the line."""
    waiting = [body]

    async def again() -> Any:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return again
