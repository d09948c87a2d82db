"""New answers are written on a coarse clock, and whatever shows one shows it after that; stored ones leave at once.

Every assertion is a lower bound: a busy machine makes things later, never earlier.
"""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

import holdfast as hf
from holdfast import cancel
from holdfast.service import ask as asking
from holdfast.service.settings import Settings
from serving import Running, settings, table

API = "/api/v1/datasets/flights"
TICK = 0.5
QUERY = "dep_delay > 15"


@pytest.mark.parametrize("took", [0.0002, 0.0013, 0.0099, 0.0101, 0.0437])
def test_time_is_rounded_up_to_the_next_tick(monkeypatch: pytest.MonkeyPatch, took: float) -> None:
    now = [100.0]
    monkeypatch.setattr(cancel.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(cancel.time, "sleep", lambda seconds: now.append(seconds))
    work, free = cancel.Work(0.01), cancel.Work()
    now[0] += took
    ticks = (work.due - 100.0) / 0.01
    assert ticks == pytest.approx(round(ticks), abs=1e-6)
    assert now[0] <= work.due <= now[0] + 0.01
    assert free.due == now[0]
    work.run(cancel.about_to_commit)
    assert now.pop() == work.due - now[0]


@pytest.mark.parametrize(("limits", "most"), [({}, 5.0), ({"timeout": 2.0}, 1.0), ({"grace": 1.0}, 0.5)])
def test_a_tick_is_over_before_a_request_or_the_server_is(limits: dict[str, float], most: float) -> None:
    """Else what was paid for would never be shown, or never be written."""
    assert Settings(tick=most, **limits).tick == most  # type: ignore[arg-type]
    with pytest.raises(hf.InvalidArgument, match=f"tick must be between 0 and {most:g} seconds"):
        Settings(tick=1.01 * most, **limits)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(settings(table(tmp_path_factory.mktemp("clock")), tick=TICK)) as running, running.client() as client:
        client.headers["Authorization"] = f"Bearer {running.token('first')}"
        assert client.post(f"{API}/ask", json={"query": "weekend"}).status_code == 200
        yield running


def by_agent(server: Running, token: str, question: dict[str, Any]) -> None:
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client

    async def ask() -> None:
        line = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60)
        async with line, Client(streamable_http_client(f"{server.url}/mcp", http_client=line)) as client:
            await client.call_tool("ask", question)

    anyio.run(ask)


def posted(path: str, body: Callable[[dict[str, Any]], Any]) -> Callable[[Running, str, dict[str, Any]], None]:
    def ask(server: Running, token: str, question: dict[str, Any]) -> None:
        with server.client(token) as client:
            response = client.post(f"{API}/{path}", json=body(question))
            assert response.status_code == 200, response.text

    return ask


WAYS = {
    "ask": posted("ask", lambda question: question),
    "batch": posted("batch", lambda question: {"asks": [question, question | {"query": f"NOT ({question['query']})"}]}),
    "sql": posted("sql", lambda question: {"sql": f"SELECT AVG({question['query']}) FROM flights"}),
    "agent": by_agent,
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("work", ["small", "large"])
def test_nobody_sees_an_answer_before_its_tick(
    server: Running, monkeypatch: pytest.MonkeyPatch, way: str, work: str
) -> None:
    """Whoever asks, waits for the same answer, watches the ledger, or reads the time of its entry, learns the tick."""
    if work == "large":
        monkeypatch.setattr(asking, "SMALL_WORK", 0)
    question = {"query": f"dep_delay > {list(WAYS).index(way)}.{1 + (work == 'large')}"}
    seen: dict[str, float] = {}
    begin, clock = time.monotonic(), time.time()

    def first() -> None:
        WAYS[way](server, server.token("first"), question)
        seen["who asks"] = time.monotonic() - begin

    def same() -> None:
        with server.client(server.token("other")) as client:
            client.post(f"{API}/ask", json=question)
            seen["who asks the same"] = time.monotonic() - begin

    with server.client(server.token("watcher")) as client:
        head = client.get(f"{API}/head").json()["head"]["seq"]
        askers = [threading.Thread(target=first), threading.Thread(target=same)]
        for thread in askers:
            thread.start()
        while client.get(f"{API}/head").json()["head"]["seq"] == head and any(one.is_alive() for one in askers):
            time.sleep(0.01)
        seen["who watches"] = time.monotonic() - begin
        for thread in askers:
            thread.join()
        rows = client.get(f"{API}/history", params={"start": head + 1}).json()["rows"]
    seen["who reads the time"] = datetime.fromisoformat(rows[0]["time"]).timestamp() - clock + 0.001  # it is cut off
    assert min(seen.values()) >= TICK, seen


@pytest.mark.slow
def test_what_was_stored_leaves_at_once(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    with server.client(server.token("first")) as client:
        assert client.post(f"{API}/ask", json={"query": QUERY}).status_code == 200
        monkeypatch.setattr(cancel.Work, "due", property(lambda self: pytest.fail("nobody waits")))
        assert client.post(f"{API}/ask", json={"query": QUERY}).json()["answer"]["cached"]
        assert client.post(f"{API}/batch", json={"asks": [{"query": QUERY}]}).json()["results"][0]["answer"]["cached"]
        refused = client.post(f"{API}/ask", json={"query": "no_such_column > 1"})  # before any row was read
        assert refused.status_code == 404


FAULTS = (hf.RowSourceError("These rows are damaged."), MemoryError("a long text"))


def failing(fault: Exception) -> Callable[..., None]:
    def tally(*_: object, **__: object) -> None:
        cancel.checkpoint()
        raise fault

    return tally


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=repr)
def test_a_draw_that_fails_is_reported_on_the_clock(
    server: Running, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    session = server.state.datasets.get("flights", server.state.admin).session
    monkeypatch.setattr(type(session._rows), "tally", failing(fault))
    begin = time.monotonic()
    with server.client(server.token("first")) as client:
        assert client.post(f"{API}/ask", json={"query": "distance > 77"}).status_code >= 500
    assert time.monotonic() - begin >= TICK


@pytest.mark.slow
def test_an_agent_on_the_machine_has_the_same_clock(tmp_path: Path) -> None:
    from holdfast.service import mcp

    with hf.Session(table(tmp_path), queries=100) as session:
        tools = mcp.Tools({"flights": session})
        for tool, arguments in (("ask", {"query": QUERY}), ("sql", {"sql": "SELECT AVG(weekend) FROM flights"})):
            clock = time.time()
            anyio.run(tools.call, tool, arguments)
            entry = list(session.ledger.entries())[-1]
            assert datetime.fromisoformat(entry.time).timestamp() - clock + 0.001 >= mcp.TICK


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=repr)
def test_a_draw_that_fails_is_reported_to_an_agent_on_the_machine_on_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    from holdfast.service import mcp

    monkeypatch.setattr(mcp, "TICK", TICK)
    with hf.Session(table(tmp_path), queries=100) as session:
        session.mean("weekend")
        monkeypatch.setattr(type(session._rows), "tally", failing(fault))
        begin = time.monotonic()
        assert anyio.run(mcp.Tools({"flights": session}).call, "ask", {"query": QUERY}).is_error
        assert time.monotonic() - begin >= TICK
