"""Before anybody has said who they are: large heads, slow heads, idle connections, other host names."""

import asyncio
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.service import app
from holdfast.service.settings import Settings, load
from serving import Running, settings, table, wait_until

HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table(tmp_path_factory.mktemp("connections"))


@pytest.fixture
def server(data: Path) -> Iterator[Running]:
    limits = {"max_connections": 12, "connections_per_address": 8, "header_timeout": 0.5, "idle_timeout": 0.5}
    with Running(settings(data, **limits)) as running:
        yield running


@pytest.fixture(scope="module")
def patient(data: Path) -> Iterator[Running]:
    """A server that waits longer than any of these tests take."""
    limits = {"max_connections": 12, "connections_per_address": 8, "header_timeout": 300, "idle_timeout": 300}
    with Running(settings(data, **limits)) as running:
        yield running


def connected(server: Running, address: str = "127.0.0.1") -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30, source_address=(address, 0))


def received(line: socket.socket) -> bytes:
    """Everything until the other side closes."""
    found = b""
    while True:
        try:
            piece = line.recv(65_536)
        except ConnectionResetError:
            return found
        if not piece:
            return found
        found += piece


def sent_until_closed(line: socket.socket, pieces: list[bytes], wait: float = 0.0) -> int:
    """Send one after the other; return how many were taken before the other side closed."""
    for number, piece in enumerate(pieces):
        try:
            line.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            return number
        time.sleep(wait)
    return len(pieces)


def is_refused(answer: bytes, status: int, kind: str) -> dict[str, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert f" {status} ".encode() in head.split(b"\r\n", 1)[0], answer[:200]
    assert b"connection: close" in head.lower()
    payload: dict[str, Any] = json.loads(body)
    assert (payload["ok"], payload["status"], payload["kind"]) == (False, status, kind)
    return payload


def is_served(server: Running, address: str = "127.0.0.1") -> None:
    with closing(connected(server, address)) as line:
        line.sendall(HEAD + b"Connection: close\r\n\r\n")
        assert received(line).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "head",
    [
        HEAD + b"X: " + b"a" * 40_000 + b"\r\n\r\n",
        HEAD + b"X: " + b"a" * 40_000,  # never ends
        HEAD + b"".join(b"X%d: b\r\n" % i for i in range(200)) + b"\r\n",
        HEAD + b"X: b\r\n" * 200,
        b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /" + b"a" * 40_000,
    ],
)
def test_large_heads_are_refused_by_what_arrived_of_them(patient: Running, head: bytes) -> None:
    for size in (len(head), 1_000):
        with closing(connected(patient)) as line:
            for start in range(0, len(head), size):
                try:
                    line.sendall(head[start : start + size])
                except (BrokenPipeError, ConnectionResetError):
                    break
            if not head.endswith(b"\r\n\r\n"):  # what does not end is refused once more of it arrives
                assert sent_until_closed(line, [b"a: b\r\n" * 1_000] * 1_000) < 1_000
            answer = received(line)
        if answer:  # a client that still sends may lose it
            is_refused(answer, 431, "headers_too_large")
        is_served(patient)


def test_the_refusal_of_a_large_head_says_how_much_is_allowed(patient: Running) -> None:
    with closing(connected(patient)) as line:
        line.sendall(HEAD + b"X: " + b"a" * 40_000 + b"\r\n\r\n")
        assert is_refused(received(line), 431, "headers_too_large")["details"] == {"max_header_bytes": 32_768}


def test_forty_megabytes_of_header_are_not_read(patient: Running) -> None:
    """What one connection can make the server parse is bounded by the limit and two reads, not by what it sends."""
    with closing(connected(patient)) as line:
        line.sendall(HEAD + b"X: ")
        assert sent_until_closed(line, [b"a" * 65_536] * 640) < 640
    is_served(patient)


def test_ordinary_heads_pass(patient: Running) -> None:
    with closing(connected(patient)) as line:
        line.sendall(
            HEAD + b"".join(b"X%d: %s\r\n" % (i, b"b" * 100) for i in range(90)) + b"Connection: close\r\n\r\n"
        )
        assert received(line).startswith(b"HTTP/1.1 200 ")


def test_a_body_counts_for_itself(patient: Running) -> None:
    with closing(connected(patient)) as line:
        body = b"a" * 200_000
        line.sendall(b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n" + body)
        line.sendall(HEAD + b"Connection: close\r\n\r\n")
        assert received(line).count(b"HTTP/1.1 ") == 2


@pytest.mark.parametrize("said", [b"", b"\r\n", b"GET /health HT", HEAD])
def test_who_says_nothing_or_does_not_come_to_an_end_is_cut_off(server: Running, said: bytes) -> None:
    with closing(connected(server)) as line:
        line.sendall(said)
        answer = received(line)  # ends because the server closes
    if said.strip():
        is_refused(answer, 408, "request_timeout")
    else:
        assert answer == b""


@pytest.mark.parametrize("said", [b"", b"\r\n", b"GET /health HT"])
def test_the_same_between_requests(server: Running, said: bytes) -> None:
    with closing(connected(server)) as line:
        line.sendall(HEAD + b"\r\n")
        first = line.recv(65_536)
        assert first.startswith(b"HTTP/1.1 200 ")
        line.sendall(said)
        rest = received(line)
    if said.strip():
        is_refused(rest[rest.index(b"HTTP/1.1 408") :], 408, "request_timeout")


def test_slowly_is_not_for_ever(server: Running) -> None:
    """A byte now and then does not keep a connection."""
    with closing(connected(server)) as line:
        assert sent_until_closed(line, [bytes([byte]) for byte in HEAD * 50], wait=0.01) < 50 * len(HEAD)


def test_idle_connections_of_one_address_lock_nobody_out(patient: Running) -> None:
    with ExitStack() as stack:
        idle = [stack.enter_context(closing(connected(patient))) for _ in range(40)]
        is_served(patient)
        is_served(patient, "127.0.0.2")
        wait_until(lambda: len(patient._server.server_state.connections) <= 8)
        assert received(idle[0]) == b""  # the oldest made room


def test_idle_connections_of_many_addresses_lock_nobody_out(patient: Running) -> None:
    with ExitStack() as stack:
        for number in range(40):
            stack.enter_context(closing(connected(patient, f"127.0.1.{number + 1}")))
        is_served(patient)
        wait_until(lambda: len(patient._server.server_state.connections) <= 12)


def test_busy_connections_are_never_closed_and_more_are_refused(
    patient: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, plain = threading.Event(), patient.state.lanes.reads.run

    async def held(*args: Any) -> Any:
        while not go.is_set():
            await asyncio.sleep(0.01)
        return await plain(*args)

    monkeypatch.setattr(patient.state.lanes.reads, "run", held)
    token = patient.token("ana")
    busy = f"GET /api/v1/datasets HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    with ExitStack() as stack:
        mine = [stack.enter_context(closing(connected(patient))) for _ in range(8)]
        for line in mine:
            line.sendall(busy)
        connections = patient._server.server_state.connections
        wait_until(lambda: sum(not one.idle for one in connections) == 8)
        with closing(connected(patient)) as one_more:
            is_refused(received(one_more), 429, "too_many_requests")
        others = [stack.enter_context(closing(connected(patient, f"127.0.0.{number}"))) for number in range(2, 6)]
        for line in others:
            line.sendall(busy)
        wait_until(lambda: sum(not one.idle for one in connections) == 12)
        with closing(connected(patient, "127.0.0.9")) as one_more:
            is_refused(received(one_more), 503, "service_unavailable")
        go.set()
        for line in (*mine, *others):
            assert line.recv(65_536).startswith(b"HTTP/1.1 200 ")
    wait_until(lambda: not patient._server.server_state.connections)
    is_served(patient)


def test_half_sent_requests_lock_nobody_out(patient: Running) -> None:
    half = b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"
    with ExitStack() as stack:
        lines = [stack.enter_context(closing(connected(patient, f"127.0.0.{2 + number % 2}"))) for number in range(12)]
        for line in lines:
            line.sendall(half)
        connections = patient._server.server_state.connections
        wait_until(lambda: sum(one.half_sent for one in connections) == 12)
        is_served(patient)


LARGE = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"


def unread(server: Running, address: str = "127.0.0.1", requests: int = 60) -> socket.socket:
    """A connection that asks for more than its buffers hold, and reads nothing."""
    host, port = server.url.removeprefix("http://").split(":")
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    line.bind((address, 0))
    line.connect((host, int(port)))
    line.sendall(requests * LARGE)
    return line


def test_responses_that_nobody_reads_lock_nobody_out(patient: Running) -> None:
    # The attack: ask for what anyone may read, and read nothing. Each such connection was busy for good.
    connections = patient._server.server_state.connections
    with ExitStack() as opened:
        for number in range(12):
            opened.enter_context(closing(unread(patient, f"127.0.0.{2 + number}")))
        wait_until(lambda: sum(one.flow.write_paused for one in connections) == 12)
        for number in range(3):
            is_served(patient, f"127.0.0.{50 + number}")


def test_a_response_that_nobody_reads_is_given_up(server: Running) -> None:
    with closing(unread(server)):
        connections = server._server.server_state.connections
        wait_until(lambda: any(one.flow.write_paused for one in connections))
        wait_until(lambda: not connections, 20)
    is_served(server)


def test_who_reads_slowly_is_served(server: Running) -> None:
    with closing(unread(server, requests=6)) as line:  # takes several times as long as nothing may be read
        found = b""
        while found.count(b"HTTP/1.1 200") < 6 or not found.endswith(b"}"):
            time.sleep(0.02)
            piece = line.recv(16_384)
            assert piece
            found += piece


def test_requests_that_wait_for_earlier_responses_are_few(patient: Running) -> None:
    # A quarter of a megabyte of requests, sent at once, took ten of memory.
    with closing(connected(patient)) as line:
        line.sendall(2_000 * LARGE)
        assert received(line).count(b"HTTP/1.1 200") < 200
    with closing(connected(patient)) as line:
        line.sendall(50 * (HEAD + b"\r\n") + HEAD + b"Connection: close\r\n\r\n")
        assert received(line).count(b"HTTP/1.1 200") == 51


def test_what_cannot_be_parsed_is_refused_in_the_one_shape(patient: Running) -> None:
    for head in (
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\na b: c\r\n\r\n",
    ):
        with closing(connected(patient)) as line:
            line.sendall(head)
            is_refused(received(line), 400, "bad_request")


def test_an_upgrade_is_answered_as_a_plain_request(patient: Running) -> None:
    with closing(connected(patient)) as line:
        line.sendall(HEAD + b"Upgrade: websocket\r\nConnection: Upgrade, close\r\n\r\n")
        assert received(line).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "evil.example:8765", "[::2]:80", "", "127.0.0.1.nip.io"]
)
def test_other_host_names_are_refused(patient: Running, host: str) -> None:
    with patient.client(Host=host) as client:
        for path in ("/health", "/sign-in", "/api/v1/datasets", "/static/page.css", "/mcp"):
            refused = client.get(path)
            assert (refused.status_code, refused.json()["kind"]) == (421, "misdirected")
        assert "hosts" in refused.json()["error"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9000", "[::1]:80"])
def test_names_of_this_machine_pass(patient: Running, host: str) -> None:
    with patient.client(Host=host) as client:
        assert client.get("/health").status_code == 200


def test_which_host_names_are_known() -> None:
    this = {"localhost", "127.0.0.1", "::1"}
    assert Settings().known_hosts == this
    assert Settings(host="0.0.0.0").known_hosts is None
    assert Settings(public_url="https://Data.example.org:444").known_hosts == this | {"data.example.org"}
    assert Settings(host="0.0.0.0", hosts=("a.example",)).known_hosts == this | {"a.example"}
    assert Settings(hosts=("*",)).known_hosts is None
    chosen = load({}, environment={"HOLDFAST_HOSTS": "a.example, b.example"})
    assert chosen.hosts == ("a.example", "b.example")
    assert Settings.from_json(chosen.to_json()) == chosen


def test_trailers_after_a_body_come_to_an_end(patient: Running) -> None:
    """Forty megabytes of one trailer would be kept in memory until the request is too late."""
    chunked = b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with closing(connected(patient)) as line:
        line.sendall(chunked + b"3\r\nabc\r\n0\r\nX: ")
        assert sent_until_closed(line, [b"a" * 65_536] * 640) < 640
    with closing(connected(patient)) as line:  # short ones are ignored
        line.sendall(chunked + b"3\r\nabc\r\n0\r\nOrigin: " + patient.url.encode() + b"\r\n\r\n")
        line.sendall(HEAD + b"Connection: close\r\n\r\n")
        first, _, second = received(line).partition(b"HTTP/1.1 200 ")
        assert first.startswith(b"HTTP/1.1 403 ")
        assert second


@pytest.mark.parametrize("behind", [0, 1, 20])
def test_who_leaves_while_an_earlier_request_is_answered_is_noticed(
    patient: Running, monkeypatch: pytest.MonkeyPatch, behind: int
) -> None:
    """Its response was written to a closed connection, which is an error; and its work was never called off."""
    go, plain, failures = threading.Event(), patient.state.lanes.reads.run, list[object]()
    gone, begun = list[bool](), list[object]()

    async def held(*args: Any) -> Any:
        begun.append(args)
        while not go.is_set():
            await asyncio.sleep(0.01)
        return await plain(*args)

    monkeypatch.setattr(patient.state.lanes.reads, "run", held)
    monkeypatch.setattr(app, "log_error", lambda *args, **more: failures.append(args))
    token = patient.token(f"ana {behind}")
    busy = f"GET /api/v1/datasets HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    connections = patient._server.server_state.connections
    with closing(connected(patient)) as line:
        line.sendall(busy * (1 + behind))
        wait_until(lambda: any(len(one.pipeline) == behind and not one.idle for one in connections) and begun)
        (one,) = connections
        answered = one._answering
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # nothing more is read
    wait_until(lambda: not connections)
    gone.append(answered.disconnected)
    go.set()
    wait_until(lambda: not patient._server.server_state.tasks)
    assert gone == [True]
    assert failures == []
    assert len(begun) == 2  # to know the token, and to answer one request
    is_served(patient)
