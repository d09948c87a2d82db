"""The service stands: locks held elsewhere, signals, private files, errors without places, secrets, agents' retries."""

import fcntl
import json
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx
import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

import holdfast as hf
from holdfast.cli.options import has_password
from holdfast.service import access
from holdfast.service.settings import Settings, load
from serving import Running, process, settings, table, wait_until

API = "/api/v1/datasets/flights"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr("holdfast.ledger.sqlite.LOCK_TIMEOUT", 0.5)
    monkeypatch.setattr(access, "READY_SECONDS", 0.0)
    plan = {"queries": {"mean": 100, "flip": 5_000}}
    with Running(settings(table(tmp_path), dataset=plan, data_folder=str(tmp_path))) as running:
        yield running


@contextmanager
def held(ledger: Path) -> Iterator[None]:
    """Hold the queue of the ledger's writers, as another process would."""
    with open(f"{ledger}-lock", "a") as queue:
        fcntl.flock(queue, fcntl.LOCK_EX)
        yield


def ask(client: httpx.Client, query: str, **more: Any) -> httpx.Response:
    return client.post(f"{API}/ask", json={"query": query, **more})


# -- locks and signals ------------------------------------------------------------------------------------------------


def test_a_lock_held_elsewhere_times_out_and_blocks_neither_reads_nor_stored_answers(
    server: Running, tmp_path: Path
) -> None:
    (first,) = tmp_path.glob("*.parquet")
    with server.client(server.token("ana")) as client, server.client(server.token("bob")) as other:
        assert ask(client, "weekend").status_code == 200
        assert other.get("/ready").status_code == 200
        with held(Path(f"{first.with_suffix('.parquet')}.ledger")):
            refused: list[httpx.Response] = []

            def one(number: int) -> None:
                with server.client(server.token(f"analyst {number}")) as mine:
                    refused.append(ask(mine, f"dep_delay > {number}"))

            waiting = [threading.Thread(target=one, args=(number,)) for number in range(16)]  # twice the threads
            for thread in waiting:
                thread.start()
            assert ask(other, "weekend").json()["answer"]["cached"]
            assert other.get(f"{API}/history").json()["entries"] == 1
            assert other.post(f"{API}/price", json={"query": "dep_delay > 99"}).status_code == 200
            not_ready = other.get("/ready")
            assert (not_ready.status_code, not_ready.json()["kind"]) == (503, "service_unavailable")
            for thread in waiting:
                thread.join()
            assert {(one.status_code, one.json()["kind"]) for one in refused} == {(503, "ledger_unavailable")}
            assert {one.json()["details"]["dataset"] for one in refused} == {"flights"}
        wait_until(lambda: other.get("/ready").status_code == 200)
        assert ask(client, "dep_delay > 1000").status_code == 200


def ask_late(server: Running, token: str) -> None:
    with server.client(token) as client:
        ask(client, "weekend")


def test_a_ledger_that_is_locked_elsewhere_holds_up_no_other_dataset(tmp_path: Path) -> None:
    """Its answers are drawn already and wait to be written; those of the other dataset are written past them."""
    first, second = table(tmp_path, name="flights"), table(tmp_path, name="trips")
    chosen = settings(first)
    chosen = replace(chosen, datasets=chosen.datasets | settings(second).datasets)
    with Running(chosen) as server, server.client(server.token("ana")) as client:
        for number in range(8):  # so that places are taken ahead
            assert ask(client, f"dep_delay > {number}").status_code == 200
        with held(Path(f"{first}.ledger")):
            waiting = threading.Thread(target=ask_late, args=(server, server.token("eve")))
            waiting.start()
            wait_until(lambda: bool(server.state.lanes.asks._writing))
            answered = client.post("/api/v1/datasets/trips/ask", json={"query": "weekend"})
            assert answered.status_code == 200
            assert server.state.lanes.asks._writing, "the first ledger was free again"
        waiting.join()


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_signal_ends_the_server_whatever_is_held(tmp_path: Path, workers: int) -> None:
    """A question waits for a lock that nobody releases; the server ends all the same, and nothing is half written."""
    data, config = table(tmp_path), tmp_path / "server.toml"
    config.write_text(f"grace = 2\nworkers = {workers}\n")
    arguments = [str(data), "--port", "0", "--token-file", str(tmp_path / "token"), "--config", str(config)]
    with process(*arguments, folder=tmp_path) as server:
        headers = {"Authorization": f"Bearer {(tmp_path / 'token').read_text().strip()}"}
        with httpx.Client(base_url=server.url, headers=headers, timeout=60) as client:
            assert ask(client, "weekend").status_code == 200
            with held(tmp_path / "flights.parquet.ledger"):

                def hang() -> None:
                    with suppress(httpx.TransportError), httpx.Client(base_url=server.url, headers=headers) as mine:
                        ask(mine, "dep_delay > 1", rows_per_query=7)

                hanging = [threading.Thread(target=hang) for _ in range(3)]
                for thread in hanging:
                    thread.start()
                wait_until(lambda: client.get("/ready").status_code == 503)
                assert server.terminate() in (0, -15)  # waits for half a minute at most
                for thread in hanging:
                    thread.join()
    with hf.Session(data) as session:
        assert session.ledger.verify().seq == 1
    assert {json.loads(line)["level"] for line in server.log.read_text().splitlines()} <= {"info", "error"}


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_what_a_server_writes_is_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    data = table(tmp_path)
    data.chmod(0o600)  # the columns get the permissions of the file
    before = os.umask(umask)
    try:
        with Running(settings(data, token_file=str(tmp_path / "token"))) as server:
            with server.client(server.token()) as client:
                assert ask(client, "weekend").status_code == 200
                assert ask(client, "dep_delay > 1").status_code == 200
            files = [path for path in tmp_path.rglob("*") if path.is_file() and path != data]
            open_to_others = {path.name for path in files if stat.S_IMODE(path.stat().st_mode) & 0o077}
    finally:
        os.umask(before)
    assert {"token", "holdfast-tokens.db"} <= {path.name for path in files}
    assert any(path.name.endswith(".ledger-lock") for path in files)
    assert open_to_others - {path.name for path in (tmp_path / "flights.parquet.holdfast").rglob("*")} == set()


# -- errors -----------------------------------------------------------------------------------------------------------


def test_errors_name_the_dataset_and_no_place(server: Running, tmp_path: Path, capfd: Any) -> None:
    answers: list[httpx.Response] = []
    ledger = tmp_path / "flights.parquet.ledger"
    admin = server.token("root", admin=True)
    with server.client(admin) as client:
        assert ask(client, "weekend").status_code == 200
        answers.append(client.get(f"{API}/receipts/77"))
        assert answers[-1].status_code == 404
        assert "flights" in answers[-1].json()["error"]
        (tmp_path / "notes.parquet").write_text("not a table")
        for file in ("notes.parquet", "no.parquet", "../x", "."):
            answers.append(client.post("/api/v1/datasets", json={"name": "x", "file": file}))
        ledger.rename(tmp_path / "elsewhere")
        answers.append(ask(client, "dep_delay > 1"))
        answers.append(client.get("/ready"))
        ask_page = {"Accept": "text/html", "Origin": server.url}
        answers.append(client.post("/datasets/flights/ask", data={"query": "dep_delay > 2"}, headers=ask_page))
        (tmp_path / "elsewhere").rename(ledger)
    for answer in answers:
        assert 400 <= answer.status_code < 600
        for place in (str(tmp_path), tmp_path.name, "elsewhere", "pytest"):
            assert place not in answer.text, answer.text
    gone = answers[5].json()
    assert (gone["kind"], gone["details"]) == ("ledger_unavailable", {"dataset": "flights"})
    assert "ledger of flights" in gone["error"]


def test_a_database_that_is_away_is_not_described(tmp_path: Path) -> None:
    from holdfast.service.errors import error_payload, naming

    words = 'connection to server at "10.1.2.3", port 5432 failed: password authentication failed for user "keeper"'
    for error in (hf.LedgerUnavailable, hf.LedgerDamaged, hf.RowSourceError):
        with pytest.raises(error) as raised, naming("flights"):
            raise error(f"Ledger postgresql://keeper@10.1.2.3/db cannot be used: {words}.", location="10.1.2.3")
        said = str(error_payload(raised.value))
        assert "flights" in said
        for place in ("10.1.2.3", "keeper", "5432"):
            assert place not in said
    with (
        pytest.raises(hf.PlanConflict, match="ledger flights was begun") as conflict,
        naming("flights", "/srv/x.ledger"),
    ):
        raise hf.PlanConflict("The ledger /srv/x.ledger was begun under another plan.", standing={})
    assert "standing" in conflict.value.fields


# -- secrets ----------------------------------------------------------------------------------------------------------


def test_secrets_come_from_files_or_the_environment_and_are_not_shown(tmp_path: Path) -> None:
    url, token = "postgresql://keeper:hunter22@db/ledgers", "hf_a-token-of-the-admin-that-is-long"
    (tmp_path / "url").write_text(f"{url}\n")
    (tmp_path / "token").write_text(f"{token}\n")
    files = {"HOLDFAST_DATABASE_FILE": str(tmp_path / "url"), "HOLDFAST_ADMIN_TOKEN_FILE": str(tmp_path / "token")}
    for environment in (files, {"HOLDFAST_DATABASE": url, "HOLDFAST_ADMIN_TOKEN": token}):
        chosen = load({}, environment=environment)
        assert (chosen.database, chosen.admin_token) == (url, token)
        assert "hunter22" not in repr(chosen)
        assert token not in repr(chosen)
        assert Settings.from_json(chosen.to_json()) == chosen
    with pytest.raises(hf.InvalidArgument, match="HOLDFAST_DATABASE_FILE must be a file"):
        load({}, environment={"HOLDFAST_DATABASE_FILE": str(tmp_path / "no")})


@pytest.mark.parametrize(
    ("url", "holds"),
    [
        ("postgresql://keeper:hunter22@db/ledgers", True),
        ("postgresql://keeper:hun@ter22@db/ledgers", True),
        ("postgresql://db/ledgers?user=x&password=hunter22", True),
        ("postgresql://keeper@db:5432/ledgers", False),
        ("postgresql://postgres:@/postgres?host=/tmp/x", False),
        ("sqlite:////srv/a@b:c/x.db", False),
    ],
)
def test_a_password_on_the_command_line_is_seen(url: str, holds: bool) -> None:
    assert has_password(url) is holds


def test_a_password_on_the_command_line_is_refused(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from holdfast.cli import app

    run = CliRunner().invoke(app, ["serve", str(table(tmp_path)), "--database", "postgresql://k:hunter22@db/x"])
    assert isinstance(run.exception, hf.InvalidArgument | SystemExit)
    assert "hunter22" not in run.output


def test_the_admin_token_of_the_environment_signs_in(tmp_path: Path) -> None:
    token = "hf_a-token-of-the-admin-that-is-long"
    with Running(settings(table(tmp_path), admin_token=token)) as server, server.client(token) as client:
        assert client.get("/api/v1/tokens").status_code == 200
    with pytest.raises(hf.InvalidArgument, match="at least 20 characters"):
        Running(settings(tmp_path / "flights.parquet", admin_token="short"))


# -- agents -----------------------------------------------------------------------------------------------------------


def test_what_an_agent_sends_again_is_not_paid_twice(server: Running) -> None:
    ledger = server.state.datasets.get("flights", server.state.admin).session.ledger

    async def talk() -> None:
        line = httpx2.AsyncClient(headers={"Authorization": f"Bearer {server.token('robot')}"})
        async with line, Client(streamable_http_client(f"{server.url}/mcp", http_client=line)) as client:

            async def call(**arguments: Any) -> dict[str, Any]:
                return (await client.call_tool("ask", arguments)).structured_content

            flips = {"kind": "flips", "query": "weekend", "count": 20}
            refused = await call(**flips)
            assert refused["kind"] == "invalid_argument"
            assert "send an idempotency_key" in refused["error"]
            assert ledger.spent.answers == 0
            bits = [(await call(**flips, idempotency_key="a"))["answer"]["bits"] for _ in range(2)]
            assert bits[0] == bits[1]
            assert ledger.spent.answers == 1
            for _ in range(2):
                assert (await call(query="dep_delay > 1"))["ok"]
            assert ledger.spent.answers == 2

    anyio.run(talk)


# -- the quota --------------------------------------------------------------------------------------------------------


def test_a_quota_cannot_be_stretched_by_asking_for_more_at_once(server: Running) -> None:
    """The budget's own currency, whatever option makes one question take more of it."""
    session = server.state.datasets.get("flights", server.state.admin).session
    planned = session.plan.rows_per_query
    fit = {"kind": "minimize", "loss": "logistic: weekend ~ distance [0, 5000]", "radius": 1}
    greedy: list[dict[str, Any]] = [
        {"query": "weekend", "rows_per_query": 60 * planned},
        {"query": "weekend", "margin": session.plan.terms.margin / 3},
        {"kind": "quantile", "query": "distance", "q": 0.5, "within": [0, 5_000], "steps": 20},
        fit | {"iterations": 2_000, "rows_per_coordinate": planned},
    ]
    with server.client(server.token("eve", quota=8)) as client:
        for question in greedy:
            for send in (
                lambda question=question: client.post(f"{API}/ask", json=question).json(),
                lambda question=question: client.post(f"{API}/batch", json={"asks": [question]}).json(),
            ):
                refused = send()
                assert refused["kind"] in ("quota_exhausted", "budget_exhausted", "plan_infeasible"), refused
        assert session.ledger.spent.answers == 0
        before = session.budget.answers_left
        while (
            client.post(f"{API}/ask", json={"query": f"dep_delay > {session.ledger.spent.answers}"}).status_code == 200
        ):
            assert session.ledger.spent.answers <= 8
        assert before - session.budget.answers_left <= 8
