"""Limits before anybody has signed in, on connections, and on the heads of requests.

A connection without a request in progress is idle. When there is no room for a new connection, the one that has been
idle longest is closed, among those of the same address first; if none is idle, the one that has waited longest for the
rest of its request, or to be read. So neither idle connections nor half-sent requests nor unread responses lock anybody
out. Only if all are busy is the new one refused. The first line and the headers of a request are limited in bytes, in
number and in time; so is the time for which nothing is read, and how many requests may wait for earlier responses.
"""

import asyncio
import json
import time
from collections import OrderedDict
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NoReturn

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from holdfast.errors import ServiceUnavailable, TooManyRequests
from holdfast.service.alarms import Alarm, Alarms
from holdfast.service.errors import ProtocolError, error_headers, error_payload

if TYPE_CHECKING:
    from holdfast.service.app import Shares

RETRY_SECONDS = 1.0
PAUSE, LONGEST_PAUSE = 1e-4, 5e-3  # seconds between two checks of the others, and in total after one connection
PAUSES, PAUSED = 0.05, 0.05  # most seconds of pause saved up, and part of the time: a flood cannot stop the process
AT_ONCE = "holdfast.at_once"  # the name, in a request's state, of the function that sends a response in one write
MOST_AHEAD = 100  # requests of one connection that wait for earlier responses: each takes memory
_CLOSE = b"connection: close\r\n"


def header_lines(headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return headers as they are sent."""
    return b"".join([b"%b: %b\r\n" % line for line in headers])


class Connections:
    """All connections of a server process, the longest inactive first.

    `each`: the most of one address. `shares`: the counts of all processes that accept from the same socket.
    """

    def __init__(
        self,
        *,
        most: int = 1_000,
        each: int | None = 256,
        shares: "Shares | None" = None,
        header_bytes: int = 32_768,
        headers: int = 100,
        header_seconds: float = 10.0,
    ) -> None:
        self._most, self._each, self._shares = most, each, shares
        self._pauses, self._paused_at = PAUSES, time.monotonic()
        self.header_bytes, self.headers, self.header_seconds = header_bytes, headers, header_seconds
        self.late = Alarms(header_seconds)
        self._default: tuple[list[tuple[bytes, bytes]], bytes] = [], b""
        self._open: OrderedDict[GuardedProtocol, None] = OrderedDict()
        self._by_address: dict[str, OrderedDict[GuardedProtocol, None]] = {}

    def admit(self, connection: "GuardedProtocol") -> Exception | None:
        """Make room for a connection and add it; if there is no room, return the reason as an error."""
        mine = self._by_address.get(connection.address, OrderedDict())
        if self._each is not None and len(mine) >= self._each and not _close_idle(mine):
            message = f"At most {self._each:,} connections from one address may be busy. Close some, then try again."
            return TooManyRequests(message, retry_after=RETRY_SECONDS)
        if len(self._open) >= self._most and not _close_idle(self._open):
            return ServiceUnavailable("All connections of the server are busy. Try again in a moment.")
        self._by_address.setdefault(connection.address, mine)[connection] = None
        self._open[connection] = None
        if self._shares is not None:
            self._let_others_come_first(self._shares)
        return None

    def _let_others_come_first(self, shares: "Shares") -> None:
        """Pause, which blocks the event loop: nothing else keeps it from accepting the next connection, too."""
        now = begin = time.monotonic()
        self._pauses = min(PAUSES, self._pauses + PAUSED * (now - self._paused_at))
        until = begin + min(LONGEST_PAUSE, self._pauses)
        while shares.lead(len(self._open)) > 1 and now + PAUSE <= until:
            time.sleep(PAUSE)
            now = time.monotonic()
        self._pauses, self._paused_at = self._pauses - (now - begin), now

    def default_lines(self, headers: list[tuple[bytes, bytes]]) -> bytes:
        """Return uvicorn's headers of every response as they are sent: it makes a new list of them once a second."""
        if headers is not self._default[0]:
            self._default = headers, header_lines(headers)
        return self._default[1]

    def active(self, connection: "GuardedProtocol") -> None:
        """Move a connection that has just been active to the end."""
        if connection in self._open:
            self._open.move_to_end(connection)
            self._by_address[connection.address].move_to_end(connection)

    def remove(self, connection: "GuardedProtocol") -> None:
        """Forget a connection that was closed."""
        if self._open.pop(connection, 0) is None:
            mine = self._by_address[connection.address]
            del mine[connection]
            if not mine:
                del self._by_address[connection.address]
            if self._shares is not None:
                self._shares.lead(len(self._open))


def _close_idle(connections: OrderedDict["GuardedProtocol", None]) -> bool:
    """Close the longest idle connection, or else one that waits for its other end; return False if there is none."""
    waiting = (one for one in connections if one.half_sent or one.flow.write_paused)
    closed = next((one for one in connections if one.idle), None) or next(waiting, None)
    if closed is not None:
        closed.abort()
    return closed is not None


class GuardedProtocol(HttpToolsProtocol):
    """Uvicorn's HTTP protocol within limits; the application's lifespan state may set its own `Connections`."""

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: Any = None) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._all: Connections = app_state.setdefault("connections", Connections())
        self.address = "unknown"
        self._in_head = False
        self._went_on = False  # whether what was received last began a request, ended a head, or was part of a body
        self._with_head = self._in_vain = 0  # bytes received with parts of this head; and since a read last went on
        self._late: Alarm | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._problem: Exception | None = None
        self._answering: Any = None  # the cycle of the request that is answered now: `cycle` is the newest one

    @property
    def idle(self) -> bool:
        """Whether no request is in progress."""
        return (self.cycle is None or self.cycle.response_complete) and not self.pipeline

    @property
    def half_sent(self) -> bool:
        """Whether the rest of a request is still to come: nothing works on it yet."""
        cycle = self.cycle
        return cycle is not None and cycle.more_body and not cycle.response_started and not self.pipeline

    def abort(self) -> None:
        """Close at once."""
        self._all.remove(self)
        self.transport.abort()

    # -- called by the transport ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit the connection, and wait for its first request."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else "unknown"
        refusal = self._all.admit(self)
        if refusal is not None:
            self._refuse(refusal)
        else:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._all.remove(self)
        self._stop_waiting()
        self.resume_writing()
        if self._answering is not None and not self._answering.response_complete:  # others may wait behind it
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data; refuse a head, or trailers, that go on for too many bytes."""
        if self.transport.is_closing():  # the rest of a refused request
            return
        self._all.active(self)
        self._with_head = (self._with_head if self._in_head else 0) + len(data)
        self._went_on = False
        super().data_received(data)
        if self.transport.is_closing():
            return
        self._in_vain = 0 if self._went_on else self._in_vain + len(data)
        if self._in_vain > self._all.header_bytes:
            self._refuse(ProtocolError(431, max_header_bytes=self._all.header_bytes))
        elif self.idle and self._late is None:
            self._wait_for_head()

    def pause_writing(self) -> None:
        """Wait for the other end to read."""
        super().pause_writing()
        self._wait_for_reader(None)

    def resume_writing(self) -> None:
        """Go on: the other end has read."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def _wait_for_reader(self, before: int | None) -> None:
        """Close unless the other end has read since there were `before` bytes left; then wait as for an idle one."""
        if (left := self.transport.get_write_buffer_size()) == before:
            self.abort()
        else:
            self._unread = self.loop.call_later(self.timeout_keep_alive, self._wait_for_reader, left)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, even if its other end does not read."""
        self.abort()

    # -- called by the parser -------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Wait for the end of the head."""
        super().on_message_begin()
        self._in_head = self._went_on = True

    def on_url(self, url: bytes) -> None:
        """Keep a piece of the address."""
        super().on_url(url)
        if len(self.url) > self._all.header_bytes:
            self._stop(max_header_bytes=self._all.header_bytes)

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body."""
        self._went_on = True
        super().on_body(body)

    def on_headers_complete(self) -> None:
        """Let the request begin, if its head is within the limits."""
        limits = self._all
        if len(self.pipeline) >= MOST_AHEAD:
            self._stop(max_requests_ahead=MOST_AHEAD)
        if len(self.headers) > limits.headers:
            self._stop(max_headers=limits.headers)
        if self._with_head > limits.header_bytes:  # seldom
            size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
            if size > limits.header_bytes:
                self._stop(max_header_bytes=limits.header_bytes)
        self._in_head, self._went_on = False, True
        self._stop_waiting()
        super().on_headers_complete()
        if not self.pipeline:
            self._answering = self.cycle
        self.headers = []  # the parser reports trailers after a body as headers: ignore them
        if self.scope["method"] != "HEAD":
            self.scope["state"][AT_ONCE] = partial(self._send_at_once, self.cycle)

    def on_response_complete(self) -> None:
        """Answer the next request, if one waits."""
        self._answering = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()

    def _send_at_once(self, cycle: Any, status: int, lines: bytes, body: bytes) -> bool:
        """Send a whole response in one write; `lines` are the server's own headers, which need no checks.

        Return False, with nothing sent, if a response has begun, the caller has left, or the caller reads too slowly.
        """
        if cycle.response_started or cycle.disconnected or self.flow.write_paused:
            return False
        cycle.response_started = cycle.response_complete = True
        close = b"" if cycle.keep_alive else _CLOSE
        default = self._all.default_lines(cycle.default_headers)
        self.transport.write(b"%b%b%b%b\r\n%b" % (STATUS_LINE[status], default, close, lines, body))
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
        return True

    def _stop(self, **limit: Any) -> NoReturn:
        """Stop the parser, which then calls `send_400_response`: a head does not fit."""
        self._problem = ProtocolError(431, **limit)
        raise self._problem

    # -- time, and refusals ---------------------------------------------------------------------------------------

    def _wait_for_head(self) -> None:
        self._late = self._all.late.set(self._is_late)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _is_late(self) -> None:
        if self._in_head:
            self._refuse(ProtocolError(408, seconds=self._all.header_seconds))
        else:
            self.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that could not be parsed, or whose head is too large."""
        self._refuse(self._problem or ProtocolError(400))

    def _refuse(self, error: Exception) -> None:
        """Send the reason, in the one shape of all errors, and close; in the middle of a response, only close."""
        if not self.idle:
            self.abort()
            return
        self._stop_waiting()
        payload = error_payload(error)
        body, status = json.dumps(payload).encode(), payload["status"]
        headers = error_headers(error) | {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Connection": "close",
        }
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {headers[name]}" for name in headers)]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.transport.close()
