"""Limits before anybody has signed in, on the size and time of requests.

A body is read completely, within limits of size and time, before anything else runs. So no other code ever waits for a
client, and a slow client cannot hold a thread or the ledger. This outermost middleware also adds the security headers,
and writes one log line for each request.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import ServiceUnavailable
from holdfast.service.alarms import Alarms
from holdfast.service.connections import AT_ONCE, header_lines
from holdfast.service.errors import ProtocolError, error_payload
from holdfast.service.monitoring import Metrics, log_event, trace_request
from holdfast.service.settings import Settings

if TYPE_CHECKING:
    pass

ErrorHandler = Callable[[Request, Exception], Awaitable[Response]]
AtOnce = Callable[[int, bytes, bytes], bool]
JSON_LINES = b"content-type: application/json\r\ncontent-length: %d\r\n"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # stricter values make browsers omit the Origin header of the server's own forms
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class RequestLimits:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, *, settings: Settings, metrics: Metrics, handle_error: ErrorHandler) -> None:
        self._app, self._settings, self._metrics, self._handle_error = app, settings, metrics, handle_error
        self._process, self._numbers = secrets.token_hex(6), count(1)  # request ids: unique, cheap, not secret
        self._hosts, self._timeouts = settings.known_hosts, Alarms(settings.timeout)
        extra = dict(HEADERS)
        if (settings.public_url or "").startswith("https:"):
            extra["Strict-Transport-Security"] = "max-age=31536000"
        self._cacheable, self._uncacheable = (
            _OwnHeaders.of(extra),
            _OwnHeaders.of(extra | {"Cache-Control": "no-store"}),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, request_id = time.perf_counter(), f"{self._process}{next(self._numbers):06x}"
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        state["headers"] = dict(reversed(scope["headers"]))  # of several with one name, the first counts
        extra = self._cacheable if scope["path"].startswith("/static/") else self._uncacheable
        # Removed from the scope: it holds the request, which holds the scope, so that together they would stay in
        # memory until the garbage collector finds them.
        response = LimitedSend(send, extra, request_id.encode(), state.pop(AT_ONCE, None))
        await self._run(scope, receive, response)
        seconds = time.perf_counter() - start
        method, route, status = scope["method"], getattr(scope.get("route"), "path", "other"), response.status
        self._metrics.count_request(method, route, status, seconds)
        token_id, ms = getattr(scope["state"].get("token"), "id", None), round(seconds * 1e3, 2)
        log_event("request", id=request_id, method=method, route=route, status=status, ms=ms, token_id=token_id)
        trace_request(method, route, status, ms)

    async def _run(self, scope: Scope, receive: Receive, response: "LimitedSend") -> None:
        """Read the body, then respond; both within the timeout."""
        arrived, task = False, asyncio.current_task()
        assert task is not None  # a server runs every request as a task
        alarm = self._timeouts.set(task.cancel)
        try:
            try:
                self._check_host(scope["state"]["headers"])
                body = await self._body(scope["state"]["headers"], receive)
                arrived, scope["state"]["body"] = True, body
                await self._app(scope, _replay(body, receive), response)
            finally:
                alarm.cancel()
        except ProtocolError as error:
            await self._refuse(error, scope, receive, response)
        except asyncio.CancelledError:
            if alarm.rang and not task.uncancel():
                await self._refuse(self._timeout_error(arrived), scope, receive, response)
                return
            # The server is being stopped, and has waited as long as it may.
            closing = "The server is closing. Send the request again with the same Idempotency-Key when it is back."
            await self._refuse(ServiceUnavailable(closing), scope, receive, response)
        except Exception as error:  # noqa: BLE001  the last boundary: beyond it, the message would be printed
            page = await self._handle_error(Request(scope), error)
            if not response.started:
                await page(scope, receive, response)

    def _timeout_error(self, arrived: bool) -> Exception:
        seconds = self._settings.timeout
        if not arrived:
            return ProtocolError(408, seconds=seconds)
        again = "Send the request again with the same Idempotency-Key; it is not charged twice. Without one, flips are."
        return ServiceUnavailable(f"No answer within {seconds:g} s. {again}")

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        """Refuse a request for another host name: another site may have pointed that name here (DNS rebinding)."""
        if self._hosts is None:
            return
        sent = headers.get(b"host", b"").decode("latin-1").lower()
        name = sent.rpartition("]")[0].lstrip("[") if sent.startswith("[") else sent.partition(":")[0]
        if name not in self._hosts:
            raise ProtocolError(421)

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        limit, declared = self._settings.max_body_bytes, headers.get(b"content-length", b"0")
        if not declared.isdigit() or len(declared) > 18 or int(declared) > limit:
            raise ProtocolError(413, max_body_bytes=limit)
        pieces, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ProtocolError(400)
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > limit:
                raise ProtocolError(413, max_body_bytes=limit)
            if not message.get("more_body", False):
                return b"".join(pieces)

    async def _refuse(self, error: Exception, scope: Scope, receive: Receive, send: "LimitedSend") -> None:
        """Refuse and close the connection: its remaining bytes belong to a request that was not read."""
        if send.started:
            return
        payload = error_payload(error)
        response = JSONResponse(payload, status_code=payload["status"], headers={"Connection": "close"})
        await response(scope, receive, send)


class _OwnHeaders(NamedTuple):
    """Headers of every response, and how they are sent."""

    headers: list[tuple[bytes, bytes]]
    lines: bytes

    @classmethod
    def of(cls, headers: dict[str, str]) -> "_OwnHeaders":
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        return cls(raw, header_lines(raw))


class LimitedSend:
    """Forwards messages with the server's own headers added, and records the status."""

    def __init__(self, send: Send, own: _OwnHeaders, request_id: bytes, at_once: AtOnce | None) -> None:
        self._send, self._own, self._request_id, self._at_once = send, own, request_id, at_once
        self.status, self.started = 500, False

    async def __call__(self, message: Message) -> None:
        """Send one message."""
        if message["type"] == "http.response.start":
            self.status, self.started = message["status"], True
            # No inner code sets any of these headers, so there is nothing to replace.
            request_id = (b"x-request-id", self._request_id)
            message["headers"] = [*message.get("headers", ()), *self._own.headers, request_id]
        await self._send(message)

    def whole(self, status: int, body: bytes) -> bool:
        """Send JSON in one write; return False, with nothing sent, if the connection cannot do that."""
        if self._at_once is None:
            return False
        lines = b"%b%bx-request-id: %b\r\n" % (JSON_LINES % len(body), self._own.lines, self._request_id)
        sent = self._at_once(status, lines, body)
        if sent:
            self.status, self.started = status, True
        return sent


def header(request: Request, name: bytes) -> str | None:
    """Return a header of a request that has passed the middleware; `name` is in lower case."""
    found: bytes | None = request.scope["state"]["headers"].get(name)
    return None if found is None else found.decode("latin-1")


def body_of(request: Request) -> bytes:
    """Return the body of a request, which the middleware has read."""
    body: bytes = request.scope["state"]["body"]
    return body


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return the body that was read, once; then whatever else the connection receives."""
    waiting = [body]

    async def again() -> Any:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return again
