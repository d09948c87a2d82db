"""Nobody holds up the others: evaluations that do not end, locks that are not released, callers that have left."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from holdfast.cancel import Work
from holdfast.questions.question import RELEASE_WORK
from holdfast.service import ask as asking
from holdfast.service.access import PLAN_REQUESTS
from serving import Running, settings, table, wait_until

API = "/api/v1/datasets/flights"
HUNG = "distance >"  # questions about the distance do not end before the event


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    plan = {"queries": {"mean": 200, "flip": 5_000}}
    with Running(settings(table(tmp_path), dataset=plan, asks_waiting=20, max_work=50_000_000)) as running:
        yield running


class Hanging:
    """Evaluations about the distance wait for an event; others are let through."""

    def __init__(self, server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.begun = threading.Event(), 0
        self._session = server.state.datasets.get("flights", server.state.admin).session
        plain, count = type(self._session._rows).tally, threading.Lock()

        def tally(rows: Any, query: Any, **options: Any) -> Any:
            if "distance" in query.columns:
                with count:
                    self.begun += 1
                self.go.wait(60)
            return plain(rows, query, **options)

        monkeypatch.setattr(type(self._session._rows), "tally", tally)


@pytest.fixture
def hanging(server: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    hanging = Hanging(server, monkeypatch)
    yield hanging
    hanging.go.set()


def in_threads(server: Running, token: str, questions: list[dict[str, Any]]) -> list[threading.Thread]:
    def one(question: dict[str, Any]) -> None:
        with server.client(token) as client:
            client.post(f"{API}/ask", json=question)

    threads = [threading.Thread(target=one, args=(question,)) for question in questions]
    for thread in threads:
        thread.start()
    return threads


def others_are_served(server: Running, asked_before: str) -> None:
    """Everything that is not one of the questions that hang."""
    with server.client(server.token("bob")) as bob:
        assert bob.get("/ready").status_code == 200
        assert bob.get("/api/v1/datasets").status_code == 200
        assert bob.post(f"{API}/price", json={"query": "weekend"}).status_code == 200
        assert bob.post(f"{API}/ask", json={"query": asked_before}).json()["answer"]["cached"]
        fresh = bob.post(f"{API}/ask", json={"query": f"dep_delay > {id(bob) % 1000}"})
        assert fresh.status_code == 200, fresh.text
    with server.client(Origin=server.url) as browser:
        signed_in = browser.post("/sign-in", data={"token": server.token("carol")})
        assert signed_in.status_code == 303


def test_one_persons_questions_that_do_not_end_hold_up_nobody_else(server: Running, hanging: Hanging) -> None:
    eve = server.token("eve")
    with server.client(eve) as client:
        assert client.post(f"{API}/ask", json={"query": "weekend"}).status_code == 200
        hung = in_threads(server, eve, [{"query": f"{HUNG} {number}"} for number in range(12)])
        wait_until(lambda: hanging.begun >= 4)
        others_are_served(server, "weekend")
        again = client.post(f"{API}/ask", json={"query": "weekend"})  # her own cached answers neither
        assert again.json()["answer"]["cached"]
        assert hanging.begun == 4
        hanging.go.set()
        for thread in hung:
            thread.join()


def test_more_than_may_wait_are_refused_with_the_time_to_wait(server: Running, hanging: Hanging) -> None:
    eve = server.token("eve")
    hung = in_threads(server, eve, [{"query": f"{HUNG} {number}"} for number in range(24)])
    lane = server.state.lanes.asks
    wait_until(lambda: hanging.begun == 4 and sum(map(len, lane.turns.waiting.values())) == 20)
    with server.client(eve) as client:
        refused = client.post(f"{API}/ask", json={"query": f"{HUNG} 99"})
    assert (refused.status_code, refused.json()["kind"]) == (429, "too_many_requests")
    assert int(refused.headers["retry-after"]) >= 1
    with server.client(server.token("bob")) as bob:
        assert bob.post(f"{API}/ask", json={"query": "weekend"}).status_code == 200
    hanging.go.set()
    for thread in hung:
        thread.join()


def test_large_work_of_several_people_leaves_small_work_alone(
    server: Running, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many ask for much at once, little is answered: it has threads of its own."""
    rows = 8 * server.state.datasets.get("flights", server.state.admin).plan.rows_per_query
    monkeypatch.setattr(asking, "SMALL_WORK", RELEASE_WORK + rows)
    with server.client(server.token("ana")) as client:
        assert client.post(f"{API}/ask", json={"query": "weekend"}).status_code == 200
    hung = []
    for first, name in enumerate(("eve", "mallory", "trudy", "oscar")):
        question = [{"query": f"{HUNG} {10 * first + i}", "rows_per_query": rows} for i in range(3)]
        hung += in_threads(server, server.token(name), question)
    wait_until(lambda: hanging.begun == 2)
    others_are_served(server, "weekend")
    assert hanging.begun == 2
    for thread in hung:
        assert thread.is_alive()
    hanging.go.set()
    for thread in hung:
        thread.join()


def test_agents_wait_in_the_same_turns(server: Running, hanging: Hanging) -> None:
    with server.client(server.token("ana")) as client:
        assert client.post(f"{API}/ask", json={"query": "weekend"}).status_code == 200
    robot = server.token("robot")

    async def ask_at_once() -> None:
        line = httpx2.AsyncClient(headers={"Authorization": f"Bearer {robot}"}, timeout=60)
        async with (
            line,
            Client(streamable_http_client(f"{server.url}/mcp", http_client=line)) as client,
            anyio.create_task_group() as group,
        ):
            for number in range(15):
                group.start_soon(client.call_tool, "ask", {"query": f"{HUNG} {number}"})

    agent = threading.Thread(target=anyio.run, args=(ask_at_once,))
    agent.start()
    wait_until(lambda: hanging.begun >= 4)
    others_are_served(server, "weekend")
    assert hanging.begun == 4
    hanging.go.set()
    agent.join()


def test_too_much_work_is_refused_before_anything_is_spent(server: Running) -> None:
    ledger = server.state.datasets.get("flights", server.state.admin).session.ledger
    longer = "LENGTH(REPLACE(carrier, 'A', 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA')) > 3"
    fit = {"kind": "minimize", "loss": "logistic: weekend ~ distance [0, 5000]", "radius": 1}
    with server.client(server.token()) as client:
        for question in (
            {"query": longer, "rows_per_query": 200_000},
            {"kind": "flips", "query": longer, "count": 200_000},
            fit | {"iterations": 100_000, "rows_per_coordinate": 1},
        ):
            for verb in ("ask", "price", "dry-run"):
                refused = client.post(f"{API}/{verb}", json=question)
                assert (refused.status_code, refused.json()["kind"]) == (422, "invalid_argument"), refused.text
                assert "Read fewer rows" in refused.json()["error"]
                assert refused.json()["details"]["work"] > 50_000_000
        assert ledger.spent.answers == 0
        assert client.post(f"{API}/ask", json={"query": longer}).status_code == 200


def leave(server: Running, token: str, question: dict[str, Any], hanging: Hanging, key: str = "") -> None:
    """Ask, and hang up when the evaluation has begun."""
    host, port = server.url.removeprefix("http://").split(":")
    body, keyed = json.dumps(question), f"Idempotency-Key: {key}\r\n" if key else ""
    head = f"POST {API}/ask HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n{keyed}"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=30) as line:
        line.sendall((head + body).encode())
        wait_until(lambda: hanging.begun == 1)


@pytest.fixture
def works(monkeypatch: pytest.MonkeyPatch) -> list[Work]:
    """The work of every question, in order."""
    found: list[Work] = []

    class Recorded(Work):
        def __init__(self, tick: float) -> None:
            super().__init__(tick)
            found.append(self)

    monkeypatch.setattr(asking, "Work", Recorded)
    return found


def test_work_stops_when_its_caller_has_gone(server: Running, hanging: Hanging, works: list[Work]) -> None:
    """Its next block of rows is never drawn, nothing is committed, and the quota has paid."""
    eve, session = server.token("eve", quota=10), server.state.datasets.get("flights", server.state.admin).session
    question = {"kind": "quantile", "query": "distance", "q": 0.5, "within": [0, 5000], "steps": 3}
    with server.client(eve) as client:
        price = client.post(f"{API}/price", json=question).json()["price"]["answers"]
        assert 3 <= price < 10
        before = session.budget.answers_left
    leave(server, eve, question, hanging)
    wait_until(lambda: works[0]._cancelled)
    hanging.go.set()
    lane = server.state.lanes.asks
    wait_until(lambda: lane.turns.running["eve"] == 0)
    assert hanging.begun == 1  # of three steps
    assert list(session.ledger.entries()) == []
    assert before - session.budget.answers_left >= price  # what was drawn is paid for
    with server.client(eve) as client:
        assert client.get("/api/v1/me").json()["left"]["flights"]["quota"] == 10 - price
        much = 8 * session.plan.rows_per_query
        refused = client.post(f"{API}/ask", json={"query": "weekend", "rows_per_query": much})
        assert (refused.status_code, refused.json()["details"]["left"]) == (409, 10 - price)


def test_an_agents_work_stops_when_it_has_gone(server: Running, hanging: Hanging, works: list[Work]) -> None:
    call = {"name": "ask", "arguments": {"kind": "quantile", "query": "distance", "q": 0.5, "within": [0, 5000]}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
    robot = server.token("robot")
    head = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {robot}\r\n"
    head += "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
    head += f"MCP-Protocol-Version: 2025-06-18\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as line:
        line.sendall((head + body).encode())
        wait_until(lambda: hanging.begun == 1)
    wait_until(lambda: works[0]._cancelled)
    hanging.go.set()
    wait_until(lambda: server.state.lanes.asks.turns.running["robot"] == 0)
    assert hanging.begun == 1
    assert list(hanging._session.ledger.entries()) == []


def test_with_a_key_the_answer_is_there_when_the_caller_comes_back(server: Running, hanging: Hanging) -> None:
    eve, question = server.token("eve"), {"query": f"{HUNG} 100"}
    leave(server, eve, question, hanging, key="again")
    hanging.go.set()
    session = server.state.datasets.get("flights", server.state.admin).session
    wait_until(lambda: session.ledger.spent.answers == 1)
    with server.client(eve) as client:
        found = client.post(f"{API}/ask", json=question, headers={"Idempotency-Key": "again"})
    assert found.json()["answer"]["seq"] == 1
    assert hanging.begun == 1


@pytest.mark.parametrize("small_work", [0, asking.SMALL_WORK])
def test_what_a_caller_who_left_has_paid_for_is_written_when_the_server_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_work: int
) -> None:
    """In either lane: with a key the caller comes back for it, to the server that is started next."""
    monkeypatch.setattr(asking, "SMALL_WORK", small_work)
    path, question = table(tmp_path), {"query": f"{HUNG} 100"}
    with Running(settings(path)) as server:
        hanging, eve = Hanging(server, monkeypatch), server.token("eve")
        leave(server, eve, question, hanging, key="again")
        wait_until(lambda: not server._server.server_state.tasks)  # nobody waits for it
        threading.Timer(0.3, hanging.go.set).start()
    with Running(settings(path)) as server, server.client(eve) as client:
        found = client.post(f"{API}/ask", json=question, headers={"Idempotency-Key": "again"}).json()
        assert found["answer"]["seq"] == 1
    assert hanging.begun == 1


def test_plans_count_by_their_work(tmp_path: Path) -> None:
    """To make one takes as long as tens of answers: whoever asks for many waits, on whichever surface."""
    with Running(settings(table(tmp_path), rate=1e-3, burst=4 * PLAN_REQUESTS)) as server:
        for name, path in (("eve", "/api/v1/plan"), ("bob", "/plan")):
            with server.client(server.token(name)) as client:
                goals = [f"{path}?queries=1000&rows={10**6 + number}" for number in range(6)]
                assert [client.get(goal).status_code for goal in goals] == [200, 200, 200, 200, 429, 429]
        call = {"name": "plan", "arguments": {"queries": 1_000, "rows": 10**6}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        accept = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
        with server.client(server.token("robot"), **accept) as client:
            assert [client.post("/mcp", json=body).status_code for _ in range(5)] == [200, 200, 200, 200, 429]
