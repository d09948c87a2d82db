"""A real client of the Model Context Protocol, over standard input and output and over streamable HTTP."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import httpx
import httpx2
import polars as pl
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

import holdfast
from holdfast.service.client import connect
from holdfast.service.mcp import Tools, build_server
from serving import Running, settings, table, wait_until

COMMAND = ["-c", "from holdfast.cli import main; main()", "mcp"]
TOKEN = "agents-token-of-thirty-two-chars"


def environment(**more: str) -> dict[str, str]:
    return {"PYTHONPATH": str(Path(holdfast.__file__).parents[1]), "PATH": os.environ["PATH"], **more}


async def talk(client: Any) -> None:
    names = {tool.name for tool in (await client.list_tools()).tools}
    assert names == {"ask", "price", "sql", "budget", "schema", "plan", "submit", "standings"}

    async def call(tool: str, **arguments: Any) -> dict[str, Any]:
        result = await client.call_tool(tool, arguments)
        payload: dict[str, Any] = result.structured_content
        assert result.is_error is not payload["ok"]
        assert result.content[0].text
        return payload

    columns = (await call("schema"))["columns"]
    assert [column["name"] for column in columns] == ["dep_delay", "distance", "carrier", "weekend"]
    before = await call("budget")
    priced = await call("price", query="dep_delay > 15")
    assert priced["price"]["answers"] == 1
    assert priced["budget"] == before["budget"]
    asked = await call("ask", query="dep_delay > 15")
    answer = asked["answer"]
    assert answer["low"] <= answer["value"] <= answer["high"]
    assert answer["cost"] > 0
    assert asked["budget"]["answers_left"] == before["budget"]["answers_left"] - 1
    assert (await call("ask", query="dep_delay > 15"))["answer"]["cached"]
    shares = await call("ask", kind="histogram", query="carrier", categories=["UA", "AA"])
    assert [one["category"] for one in shares["answer"]["categories"]] == ["UA", "AA", "other"]
    fitted = await call("ask", kind="minimize", loss="logistic: weekend ~ distance [0, 5000]", radius=1, iterations=2)
    assert fitted["answer"]["names"] == ["distance", "intercept"]
    first = await call("ask", kind="histogram", query="carrier", categories=["DL"], idempotency_key="once")
    assert (await call("ask", kind="histogram", query="carrier", categories=["DL"], idempotency_key="once"))["answer"][
        "seq"
    ] == first["answer"]["seq"]
    assert "questions" in (await call("plan"))["text"]
    assert (await call("plan", rows=1_000_000, queries=100))["plan"]["rows"] == 1_000_000
    statement = "SELECT COUNT(*) AS n FROM flights"
    assert (await call("sql", sql=statement, price_only=True))["answers"] == 0
    assert (await call("sql", sql=statement))["rows"] == [[20_000] * 3]
    refused = await call("sql", sql="SELECT * FROM flights")
    assert refused["error"].startswith("SELECT * is not available: rows are never shown.")
    refused = await call("ask", query="sum(dep_delay) > 1")
    assert (refused["kind"], refused["status"]) == ("invalid_query", 422)
    assert (await call("ask", query="weekend", dataset="nothing"))["kind"] == "unknown_name"
    wrong = await call("ask", query="weekend", color=1)
    assert wrong["error"].startswith("mean has no option 'color'.")
    assert (await call("budget", color=1))["kind"] == "invalid_argument"
    assert (await call("guess"))["kind"] == "unknown_name"


def test_an_agent_asks_the_data_over_standard_streams(tmp_path: Path) -> None:
    data = table(tmp_path)
    server = StdioServerParameters(
        command=sys.executable, args=[*COMMAND, str(data), "--queries", "20"], env=environment()
    )

    async def run() -> None:
        async with Client(stdio_client(server)) as client:
            await talk(client)

    anyio.run(run)
    with holdfast.Session(data) as session:
        assert set(session.history()["analyst"]) == {"agent"}


def test_an_agent_asks_a_server_under_its_own_token(tmp_path: Path) -> None:
    with Running(settings(table(tmp_path))) as running:
        bridge = StdioServerParameters(
            command=sys.executable,
            args=[*COMMAND, "--url", running.url],
            env=environment(HOLDFAST_TOKEN=running.token("robot")),
        )

        async def run() -> None:
            async with Client(stdio_client(bridge)) as client:
                await talk(client)

        anyio.run(run)
        session = running.state.datasets.get("flights", running.state.admin).session
        assert set(session.history()["analyst"]) == {"robot"}


async def talk_at(url: str, token: str, talking: Any) -> None:
    line = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"})
    async with line, Client(streamable_http_client(url, http_client=line)) as client:
        await talking(client)


def test_an_agent_asks_at_the_servers_own_endpoint(tmp_path: Path) -> None:
    """The server's own /mcp: its tokens, its quotas, its budget."""
    with Running(settings(table(tmp_path))) as running:
        url = f"{running.url}/mcp"
        anyio.run(talk_at, url, running.token("robot"), talk)
        session = running.state.datasets.get("flights", running.state.admin).session
        assert set(session.history()["analyst"]) == {"robot"}

        async def no_quota(client: Any) -> None:
            free = (await client.call_tool("ask", {"query": "dep_delay > 15"})).structured_content
            assert free["answer"]["cached"]
            refused = (await client.call_tool("ask", {"query": "dep_delay > 16"})).structured_content
            assert refused["kind"] == "quota_exhausted"
            budget = (await client.call_tool("budget", {})).structured_content
            assert budget["budget"]["quota"] == 0
            assert budget["text"].endswith("; your quota leaves 0 answers")

        async def no_datasets(client: Any) -> None:
            assert (await client.call_tool("budget", {})).structured_content["kind"] == "unknown_name"
            asked = (await client.call_tool("ask", {"query": "weekend", "dataset": "flights"})).structured_content
            assert asked["kind"] == "unknown_name"

        anyio.run(talk_at, url, running.token("no quota", quota=0), no_quota)
        anyio.run(talk_at, url, running.token("no datasets", datasets=[]), no_datasets)
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "holdfast=x"}):
            refused = httpx.post(url, json={}, headers=headers)
            assert (refused.status_code, refused.json()["kind"]) == (401, "not_signed_in")
        counted = httpx.get(
            f"{running.url}/metrics", headers={"Authorization": f"Bearer {running.token('k', admin=True)}"}
        )
        assert 'holdfast_answers_total{dataset="flights",cached="false"} 4' in counted.text


def test_an_agent_asks_over_streamable_http(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (tmp_path / "token").write_text(TOKEN)
    url = f"http://127.0.0.1:{port}/mcp"
    options = ["--queries", "20", "--http", "--port", str(port), "--token-file", str(tmp_path / "token")]
    server = subprocess.Popen([sys.executable, *COMMAND, str(table(tmp_path)), *options], env=environment())

    def answers() -> bool:
        assert server.poll() is None
        try:
            return httpx.post(url, json={}).status_code == 401
        except httpx.TransportError:
            return False

    try:
        wait_until(answers)
        refused = httpx.post(url, json={}, headers={"Authorization": "Bearer wrong"})
        assert refused.json()["kind"] == "not_signed_in"
        anyio.run(talk_at, url, TOKEN, talk)
    finally:
        server.terminate()
        server.wait(timeout=30)


def test_a_file_or_a_server_but_not_both(tmp_path: Path) -> None:
    for words in ([], [str(table(tmp_path)), "--url", "http://127.0.0.1:1"]):
        run = subprocess.run([sys.executable, *COMMAND, *words], capture_output=True, text=True, env=environment())
        assert run.returncode == 2
        assert "either files to ask or a server" in run.stderr


@pytest.mark.parametrize("token", ["", "short"])
def test_a_server_is_not_asked_without_a_token(token: str) -> None:
    run = subprocess.run(
        [sys.executable, *COMMAND, "--url", "http://127.0.0.1:1"],
        capture_output=True,
        text=True,
        env=environment(HOLDFAST_TOKEN=token),
    )
    assert run.returncode == 2
    assert "token" in run.stderr


def test_a_token_file_that_is_not_there_is_refused_in_words(tmp_path: Path) -> None:
    words = ["--url", "http://127.0.0.1:1", "--token-file", str(tmp_path / "none")]
    run = subprocess.run([sys.executable, *COMMAND, *words], capture_output=True, text=True, env=environment())
    assert run.returncode == 2
    assert run.stderr.startswith("--token-file must be a file that can be read;")


def test_several_datasets_are_told_apart_and_a_refusal_speaks_of_tools() -> None:
    with holdfast.Session({"b": [True, False] * 500}, queries=10, seed=1) as session:
        several = Tools({"one": session, "two": session})
        refused = anyio.run(several.call, "budget", {}).structured_content
        assert refused["error"] == "dataset must be given: there are several, one, two."
        refused = anyio.run(several.call, "sql", {"dataset": "one", "query": "SELECT 1"}).structured_content
        assert refused["error"] == "sql: Field required. The tool's input schema says what it takes."
        assert build_server({"one": session}).version == holdfast.__version__


def test_whoever_starts_it_is_warned_on_standard_error(tmp_path: Path) -> None:
    data = tmp_path / "visits.parquet"
    pl.DataFrame({"patient_id": [n // 2 for n in range(20_000)], "late": [True, False] * 10_000}).write_parquet(data)
    run = subprocess.run(
        [sys.executable, *COMMAND, str(data)],
        capture_output=True,
        text=True,
        env=environment(),
        stdin=subprocess.DEVNULL,
    )
    assert "open the data with --unit patient_id" in run.stderr


@pytest.mark.parametrize("name", ["dataset", "idempotency_key"])
@pytest.mark.parametrize("given", [5, ["a"], {}])
def test_what_is_no_text_is_refused_in_words(name: str, given: object) -> None:
    with holdfast.Session({"b": [True, False] * 500}, queries=10, seed=1) as session:
        for tool in ("ask",) if name == "idempotency_key" else ("ask", "price", "budget", "sql"):
            arguments = (
                {"sql": "SELECT AVG(b) FROM data"} if tool == "sql" else {} if tool == "budget" else {"query": "b"}
            )
            refused = anyio.run(Tools({"data": session}).call, tool, arguments | {name: given}).structured_content
            assert refused["kind"] == "invalid_argument"
            assert refused["error"].startswith(name)
        with pytest.raises(holdfast.InvalidArgument, match="idempotency_key must be text"):
            session.ask("b", idempotency_key=5)
        assert not session.ledger.begun


def test_what_is_new_each_time_needs_a_key_also_through_a_server(tmp_path: Path) -> None:
    chosen = settings(table(tmp_path), dataset={"queries": {"mean": 10, "flip": 10}})
    with Running(chosen) as running, connect(running.url, running.token("robot")) as session:
        tools, flips = Tools({"flights": session}), {"kind": "flips", "query": "weekend", "count": 3}
        refused = anyio.run(tools.call, "ask", dict(flips)).structured_content
        assert "send an idempotency_key" in refused["error"]
        first, second = (anyio.run(tools.call, "ask", flips | {"idempotency_key": "k"}) for _ in range(2))
        assert first.structured_content["answer"]["seq"] == second.structured_content["answer"]["seq"] == 1
        assert session.budget.answers_given == 1


@pytest.mark.parametrize("tool", ["ask", "price"])
def test_an_agent_at_the_server_is_not_told_where_the_data_are(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Running(settings(table(tmp_path))) as running:
        session = running.state.datasets.get("flights", running.state.admin).session

        def conflict(*_: object, **__: object) -> None:
            raise holdfast.PlanConflict(f"The ledger {session.ledger.location} was begun under another plan.")

        monkeypatch.setattr(type(session), "prepare", conflict)

        async def told(client: Any) -> None:
            payload = (await client.call_tool(tool, {"query": "weekend"})).structured_content
            assert payload["error"] == "The ledger flights was begun under another plan."

        anyio.run(talk_at, f"{running.url}/mcp", running.token("robot"), told)


def test_two_files_of_one_name_are_not_taken_for_one(tmp_path: Path) -> None:
    places = [tmp_path / "a", tmp_path / "b"]
    for place in places:
        place.mkdir()
    files = [str(table(place, rows=300)) for place in places]
    for command in ("serve", "mcp"):
        run = subprocess.run(
            [sys.executable, *COMMAND[:-1], command, *files], capture_output=True, text=True, env=environment()
        )
        assert run.returncode == 2
        assert "DATA must have different names; two are 'flights'." in run.stderr
