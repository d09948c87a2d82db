"""Hostile input gets a clear 4xx, and no row is read: the ledger stays empty and the source is never asked."""

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from serving import Running, settings, table

API = "/api/v1/datasets/flights"
MAX_BODY = 50_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    chosen = settings(table(tmp_path_factory.mktemp("hostile")), max_body_bytes=MAX_BODY, timeout=2.0)
    with Running(chosen) as running:
        yield running


@pytest.fixture(autouse=True)
def no_row_is_read(server: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    session = server.state.datasets.get("flights", server.state.admin).session
    reads: list[str] = []
    for verb in ("tally", "sample"):
        monkeypatch.setattr(type(session._rows), verb, lambda *_, **__: reads.append("read"))
    yield
    assert reads == []
    assert session.ledger.spent.answers == 0


def is_clear(response: Any, *statuses: int) -> None:
    assert response.status_code in (statuses or range(400, 500)), response.text
    payload = response.json()
    assert payload["ok"] is False
    assert payload["status"] == response.status_code
    assert 0 < len(payload["error"]) < 5_000


@pytest.mark.parametrize(
    "query",
    [
        "1; DROP TABLE holdfast_entries",
        "dep_delay > 15; --",
        "dep_delay > (SELECT max(dep_delay) FROM flights)",
        "dep_delay > 15 UNION SELECT 1",
        "dep_delay > 15) OR (1=1",
        "read_csv('/etc/passwd')",
        "pg_sleep(10)",
        "load_extension('x')",
        "avg(dep_delay) OVER ()",
        "row_number() OVER () = 1",
        "carrier LIKE '" + "%" * 3_000 + "'x",
        "EXISTS (SELECT 1)",
        "'" * 3_999,
        "((((((((((" * 300,
        "NOT " * 900 + "weekend",
        "-" * 3_000 + "dep_delay > 1",
        "\x00",
        "dep_delay > 15\x00",
        "dep_\u202edelay > 1",
        "\ufeff",
        "__import__('os').system('id')",
        "{{ 7*7 }}",
        "lambda rows: rows",
        "*",
        "flights.* IS NULL",
        "$1",
        "?",
        "@@version",
        "dep_delay -> 'x'",
        " ",
    ],
)
def test_tricks_in_a_query_are_refused(server: Running, query: str) -> None:
    with server.client(server.token()) as client:
        for verb in ("ask", "price", "dry-run"):
            is_clear(client.post(f"{API}/{verb}", json={"query": query}))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b'{"query": 1}',
        b'{"query": "weekend", "code": "x"}',
        b'{"query": "weekend", "within": [NaN, 1]}',
        b'{"query": "weekend", "within": [0, 1e999]}',
        b'{"query": "distance", "within": [0, Infinity]}',
        b'{"query": "weekend", "rows_per_query": 1e30}',
        b'{"query": "weekend", "rows_per_query": -5}',
        b'{"query": "weekend", "rows_per_query": true}',
        b'{"query": "weekend", "ledger": "x"}',
        b'{"query": "weekend", "dataset": "x"}',
        b'{"query": "weekend", "kind": "drop"}',
        b'{"query": "weekend", "kind": ["mean"]}',
        b'{"query": "\\ud800"}',
        b'{"query": "\xff\xfe"}',
        b'{"\\ud800": 1}',
        b'{"query": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"query": "weekend", "categories": ' + json.dumps(list(range(5_000))).encode() + b"}",
        b'{"kind": "histogram", "query": "distance", "categories": [1' + b"0" * 400 + b"]}",
        b'{"kind": "variance", "query": "distance", "within": [-8e307, 8e307]}',
        b'{"query": "-CAST(NULL AS BIGINT) > 1"}',
        b'{"kind": "minimize", "loss": {"name": "os.system", "features": ["a"], "target": "b"}}',
    ],
)
def test_broken_bodies_are_refused(server: Running, body: bytes) -> None:
    with server.client(server.token()) as client:
        is_clear(client.post(f"{API}/ask", content=body, headers={"Content-Type": "application/json"}), 400, 422)


def test_other_media_types_are_refused(server: Running) -> None:
    with server.client(server.token()) as client:
        for kind in (
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "application/xml",
        ):
            is_clear(client.post(f"{API}/ask", content=b'{"query": "weekend"}', headers={"Content-Type": kind}), 415)


def test_huge_bodies_are_refused_whether_declared_or_not(server: Running) -> None:
    with server.client(server.token()) as client:
        is_clear(client.post(f"{API}/ask", json={"query": "x" * MAX_BODY}), 413)

        def pieces() -> Iterator[bytes]:
            for _ in range(60):
                yield b"x" * 1_000

        is_clear(client.post(f"{API}/ask", content=pieces()), 413)
        is_clear(client.post(f"{API}/ask", json={"query": "x" * 5_000}), 422)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/datasets/..%2f..%2fetc%2fpasswd",
        "/api/v1/datasets/%00",
        "/api/v1/datasets/" + "x" * 3_000,
        "/static/..%2fapp.py",
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static//etc/passwd",
        f"{API}/receipts/-1",
        f"{API}/receipts/1e9",
        f"{API}/receipts/99999999999999999999999",
        f"{API}/receipts/5",
        f"{API}/history?start=0",
        f"{API}/history?limit=100000",
        f"{API}/history?start=%ff",
        "/api/v1/plan?rows=5&queries=1e400",
        "/api/v1/plan?rows=nan&queries=1",
        "/api/v1/plan?rows=10&queries=10&margin=0.1",
        "/api/v1//datasets",
        "/api/v1/datasets/",
        "/api/v2/datasets",
        "/.env",
        "//evil.example/%2e%2e",
    ],
)
def test_tricks_in_an_address_are_refused(server: Running, path: str) -> None:
    with server.client(server.token()) as client:
        response = client.get(path)
    is_clear(response, 404, 422)
    assert "location" not in response.headers


def raw(server: Running, request: bytes, *, wait: float = 5.0) -> bytes:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=wait) as line:
        line.sendall(request)
        found = b""
        while piece := line.recv(65_536):
            found += piece
            if b"\r\n\r\n" in found and b"keep-alive" not in found.lower() and b"}" in found:
                break
        return found


@pytest.mark.parametrize(
    "headers",
    [
        b"Authorization: Bearer \xff\xfe\r\n",
        b"Authorization: Basic a2VlcGVyOmtlZXBlcg==\r\n",
        b"Authorization: Bearer\r\n",
        b"Authorization: Bearer " + b"x" * 5_000 + b"\r\n",
        b"Cookie: holdfast=" + b"x" * 3_000 + b"\r\n",
        b"Cookie: holdfast=\r\n",
        b"X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-User: admin\r\n",
        b"X-HTTP-Method-Override: DELETE\r\n",
    ],
)
def test_tricks_in_headers_do_not_let_anyone_in(server: Running, headers: bytes) -> None:
    answer = raw(server, b"GET /api/v1/tokens HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + headers + b"\r\n")
    assert b" 401 " in answer.split(b"\r\n", 1)[0]


def test_what_follows_a_body_is_no_header(server: Running) -> None:
    """Whoever stands before the server and looks at headers has not seen it."""
    head = f"POST {API}/price HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    body, token = b'{"query": "weekend"}', server.token("eve").encode()
    chunks = b"%x\r\n%b\r\n0\r\n" % (len(body), body)
    sent = head.encode() + b"Transfer-Encoding: chunked\r\n"
    assert b" 200 " in raw(server, sent + b"Authorization: Bearer " + token + b"\r\n\r\n" + chunks + b"\r\n")[:15]
    after = chunks + b"Authorization: Bearer " + token + b"\r\n\r\n"
    assert b" 401 " in raw(server, sent + b"\r\n" + after)[:15]


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 50_000 + b"\r\n",
    ],
)
def test_broken_requests_are_refused_and_the_server_lives(server: Running, request_: bytes) -> None:
    try:
        answer = raw(server, request_)
    except (ConnectionError, TimeoutError):
        answer = b""
    assert b" 200 " not in answer.split(b"\r\n", 1)[0]
    with server.client() as client:
        assert client.get("/health").status_code == 200


def test_a_slow_body_is_cut_off_and_holds_up_nobody(server: Running) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    token = server.token()
    head = (
        f"POST {API}/ask HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    ).encode()
    slow = [socket.create_connection((host, int(port)), timeout=20) for _ in range(40)]
    for line in slow:
        line.sendall(head)
    with server.client(token) as client:  # forty clients are slow, and the others are served
        begin = time.monotonic()
        assert client.post(f"{API}/price", json={"query": "weekend"}).status_code == 200
        assert time.monotonic() - begin < 15  # a hang, not a speed
    for line in slow:
        assert b" 408 " in line.recv(65_536).split(b"\r\n", 1)[0]
        line.close()


@pytest.mark.parametrize("act", ["ask", "price", "dry-run", "sql", "batch"])
def test_a_path_ends_where_its_route_does(server: Running, act: str) -> None:
    with server.client(server.token("newline")) as client:
        for end in ("%0a", "%0A%0A", "%0d", "/"):
            is_clear(client.post(f"{API}/{act}{end}", json={"query": "dep_delay > 15"}), 404, 405)


@pytest.mark.parametrize("act", ["ask", "price"])
def test_a_name_that_is_too_long_is_refused_and_not_repeated(server: Running, act: str) -> None:
    with server.client(server.token("long")) as client:
        refused = client.post(f"/api/v1/datasets/{'f' * 5_000}/{act}", json={"query": "dep_delay > 15"})
        is_clear(refused, 422)
        assert len(refused.text) < 1_000
        is_clear(client.post(f"/api/v1/datasets/{'f' * 100}/{act}", json={"query": "dep_delay > 15"}), 404)
