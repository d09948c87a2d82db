"""The server as a process: started, stopped, killed under load, and two of them on one PostgreSQL."""

import asyncio
import gc
import json
import os
import re
import socket
import stat
import sys
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

import holdfast as hf
from holdfast import cli
from holdfast.ledger.places import SHARE_AHEAD
from holdfast.service import app
from holdfast.service.client import connect_async
from holdfast.service.settings import Settings, load
from serving import Running, process, settings, table, wait_until

ANALYSTS = 50


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def ask_until_exhausted(url: str, token: str, number: int, answers: list[hf.Answer]) -> None:
    """One analyst: asks new questions, each under its key until it is answered, until the budget is spent."""
    async with await connect_async(url, token) as data:
        for step in range(10_000):
            key = f"{number}-{step}"
            while True:
                try:
                    answer = await data.ask(f"dep_delay > {number} + {step} / 1000.0", "mean", idempotency_key=key)
                except hf.ServiceUnavailable:  # the server is being started again
                    await asyncio.sleep(0.2)
                except hf.BudgetExhausted:
                    return
                else:
                    answers.append(answer)  # type: ignore[arg-type]
                    break


def all_there_once(answers: list[hf.Answer], ledger: Any) -> None:
    """Everything that was answered is in the ledger, as answered; nobody got another's; nothing is overspent."""
    entries = {entry.seq: entry for entry in ledger.entries()}
    seqs = [answer.seq for answer in answers]
    assert len(set(seqs)) == len(seqs)
    for answer in answers:
        assert entries[answer.seq].answer == answer.result()
    assert len({entry.key for entry in entries.values()}) == len(entries)
    assert ledger.spent.charge <= ledger.caps.charge
    assert ledger.spent.intervals <= ledger.caps.intervals
    ledger.verify()


def test_fifty_analysts_spend_one_budget_to_its_last_answer(tmp_path: Path) -> None:
    answers: list[hf.Answer] = []
    with Running(settings(table(tmp_path), dataset={"queries": 400})) as server:
        tokens = [server.token(f"analyst {number}") for number in range(ANALYSTS)]

        async def everyone() -> None:
            await asyncio.gather(*(ask_until_exhausted(server.url, t, i, answers) for i, t in enumerate(tokens)))

        asyncio.run(everyone())
        ledger = server.state.datasets.get("flights", server.state.admin).session.ledger
        all_there_once(answers, ledger)
        assert len(answers) == ledger.spent.answers == 400
        assert (ledger.left.charge, ledger.left.intervals) == (0, 0)
        assert {entry.analyst for entry in ledger.entries()} <= {f"analyst {number}" for number in range(ANALYSTS)}


def test_killed_under_load_and_started_again_nothing_is_lost(tmp_path: Path) -> None:
    data, port, token = table(tmp_path), free_port(), tmp_path / "token"
    arguments = [str(data), "--queries", "300", "--end", "--port", str(port), "--token-file", str(token)]
    arguments += ["--rate", "1e6", "--burst", "1000000"]
    answers: list[hf.Answer] = []
    kills = 0

    async def load_and_kill(stack: ExitStack) -> None:
        nonlocal kills
        running = stack.enter_context(process(*arguments, folder=tmp_path))
        text = token.read_text().strip()
        asking = asyncio.gather(*(ask_until_exhausted(running.url, text, i, answers) for i in range(ANALYSTS)))
        for goal in (60, 150):
            while len(answers) < goal and not asking.done():
                await asyncio.sleep(0.01)
            running.kill()  # -9, in the middle of whatever it was doing
            kills += 1
            running = await asyncio.to_thread(lambda: stack.enter_context(process(*arguments, folder=tmp_path)))
        await asking
        assert await asyncio.to_thread(running.terminate) in (0, -15)

    with ExitStack() as stack:
        asyncio.run(load_and_kill(stack))
    assert kills == 2
    with hf.Session(data) as session:
        all_there_once(answers, session.ledger)
        assert session.ledger.spent.intervals == 300  # each paid for before its rows were drawn
        assert len(answers) == session.ledger.spent.answers  # what was committed unseen was fetched by its key
        lost = 300 - len(answers)  # by a kill: what was being answered, and what had been taken ahead
        assert 0 <= lost <= kills * (ANALYSTS + 300 // SHARE_AHEAD)


@pytest.mark.slow
def test_two_servers_share_one_budget_in_postgresql(tmp_path: Path, postgres_url: str) -> None:
    name = f"flights{uuid.uuid4().hex[:8]}"
    data = table(tmp_path, name=name)
    arguments = [
        f"{name}={data}",
        "--queries",
        "200",
        "--end",
        "--database",
        postgres_url,
        "--port",
        "0",
        "--rate",
        "1e6",
    ]
    arguments += ["--burst", "1000000", "--token-file", str(tmp_path / "token")]
    answers: list[hf.Answer] = []
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    with process(*arguments, folder=folders[0]) as one, process(*arguments, folder=folders[1]) as two:
        token = (tmp_path / "token").read_text().strip()
        with httpx.Client(headers={"Authorization": f"Bearer {token}"}) as admin:
            made = admin.post(f"{one.url}/api/v1/tokens", json={"name": "ana", "datasets": [name], "quota": 5}).json()
        limited = made["secret"]

        async def everyone() -> None:
            with_quota = [
                await connect_async(url, limited, dataset=name) for url in (one.url, two.url) for _ in range(4)
            ]
            outcomes = await asyncio.gather(
                *(s.mean(f"distance > {i} + {j}") for i, s in enumerate(with_quota) for j in (100, 200)),
                return_exceptions=True,
            )
            given = [outcome for outcome in outcomes if isinstance(outcome, hf.Answer)]
            refused = [outcome for outcome in outcomes if not isinstance(outcome, hf.Answer)]
            assert len(given) <= 5
            assert all(isinstance(outcome, hf.QuotaExhausted) for outcome in refused)
            answers.extend(given)
            for session in with_quota:
                await session.close()
            urls = [(one.url, two.url)[number % 2] for number in range(ANALYSTS)]
            await asyncio.gather(*(ask_until_exhausted(url, token, i, answers) for i, url in enumerate(urls)))

        asyncio.run(everyone())
    with hf.Session(hf.open(data, name=name), ledger=postgres_url) as session:
        all_there_once(answers, session.ledger)
        assert session.ledger.spent.answers == len(answers) == 200


@pytest.mark.slow
def test_several_workers_serve_one_ledger(tmp_path: Path) -> None:
    arguments = [str(table(tmp_path)), "--queries", "100", "--end", "--port", "0", "--workers", "2", "--rate", "1e6"]
    arguments += ["--burst", "1000000", "--token-file", str(tmp_path / "token")]
    answers: list[hf.Answer] = []
    with process(*arguments, folder=tmp_path) as server:
        token = (tmp_path / "token").read_text().strip()

        async def everyone() -> None:
            await asyncio.gather(*(ask_until_exhausted(server.url, token, i, answers) for i in range(10)))

        asyncio.run(everyone())
        assert server.terminate() in (0, -15)
    assert len(answers) == 100


@pytest.mark.slow
def test_workers_that_are_slow_to_begin_serve_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that had not imported everything within five seconds were killed, and so were those that came after."""
    (tmp_path / "slow").mkdir()
    slow = "import sys, time\nif any('spawn_main' in word for word in sys.orig_argv): time.sleep(7)\n"
    (tmp_path / "slow" / "sitecustomize.py").write_text(slow)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "slow"))
    arguments = [str(table(tmp_path)), "--port", "0", "--workers", "2", "--token-file", str(tmp_path / "token")]
    with process(*arguments, folder=tmp_path) as server:  # it answers by then
        assert server.terminate() in (0, -15)


def test_worker_processes_end_in_order_when_the_one_that_started_them_is_killed(tmp_path: Path) -> None:
    arguments = [str(table(tmp_path)), "--queries", "100", "--workers", "2", "--token-file", str(tmp_path / "token")]

    def seen(event: str) -> int:
        return (tmp_path / "log").read_text().count(f'"event":"{event}"')

    with process(*arguments, "--port", "0", folder=tmp_path) as server:
        wait_until(lambda: seen("start") == 2)
        headers = {"Authorization": f"Bearer {(tmp_path / 'token').read_text().strip()}"}
        with httpx.Client(base_url=server.url, headers=headers) as client:
            asked = client.post("/api/v1/datasets/flights/ask", json={"query": "dep_delay > 15"})
            server.kill()  # -9: it cannot tell its processes
            wait_until(lambda: seen("stop") == 2, seconds=30)
        port = int(server.url.rpartition(":")[2])
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("127.0.0.1", port))
    with hf.Session(tmp_path / "flights.parquet") as session:
        assert asked.json()["answer"]["seq"] == session.ledger.spent.answers == session.ledger.verify().seq == 1
        assert session.ledger.spent.intervals == 1  # what they had taken ahead was given back


def test_servers_join_the_ledger_that_another_one_began(tmp_path: Path) -> None:
    """Opening decides nothing: both have a plan of their own until the first answer, which decides for both."""
    data = table(tmp_path)
    with Running(settings(data)) as one, Running(settings(data, dataset={"queries": None})) as two:
        token = one.token("ana")
        with one.client(token) as client, two.client(token) as other:
            api, question = "/api/v1/datasets/flights", {"query": "dep_delay > 15"}
            assert client.get(f"{api}/head").json()["head"] is other.get(f"{api}/head").json()["head"] is None
            assert other.get(f"{api}/plan").json()["plan"]["queries"] != 200
            first = client.post(f"{api}/ask", json=question).json()["answer"]
            again = other.post(f"{api}/ask", json=question).json()["answer"]
            assert again == first | {"cached": True}
            assert other.get(f"{api}/plan").json() == client.get(f"{api}/plan").json()
            assert other.post(f"{api}/ask", json={"query": "weekend"}).json()["answer"]["seq"] == 2
            for view in ("head", "budget", "history"):
                assert other.get(f"{api}/{view}").json() == client.get(f"{api}/{view}").json()


def test_one_command_starts_signs_in_and_stops(tmp_path: Path) -> None:
    with process(str(table(tmp_path)), "--port", "0", folder=tmp_path) as server:
        assert server.link is not None
        code = server.link.partition("code=")[2]
        with httpx.Client(base_url=server.url, headers={"Origin": server.url}) as browser:
            assert browser.get("/health").json() == {"ok": True}
            assert browser.get("/ready").json() == {"ok": True}
            assert browser.post("/sign-in", data={"code": code}).status_code == 303
            assert browser.get("/admin").status_code == 200
            asked = browser.post("/datasets/flights/ask", data={"query": "carrier = 'UA'"})
            assert asked.json()["answer"]["seq"] == 1
        assert server.terminate() in (0, -15)
    assert "questions without end" in hf.Session(tmp_path / "flights.parquet").__repr__()
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert {line["event"] for line in lines} == {"start", "request", "stop"}
    log = (tmp_path / "log").read_text()
    for secret in (code, "carrier", "UA"):
        assert secret not in log
    routes = {line["route"] for line in lines if line["event"] == "request"}
    assert "/datasets/{name}/ask" in routes


def test_who_reads_what_a_server_prints_does_not_become_admin_where_there_is_a_token(tmp_path: Path) -> None:
    arguments = [str(table(tmp_path)), "--port", "0", "--token-file", str(tmp_path / "token")]
    with process(*arguments, folder=tmp_path) as server:
        assert stat.S_IMODE(os.stat(tmp_path / "token").st_mode) == 0o600
        token = (tmp_path / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        budget = httpx.get(f"{server.url}/api/v1/datasets/flights/budget", headers=headers)
        assert budget.status_code == 200
        assert server.link is None
        printed = server.out.read_text() + server.log.read_text()
        assert "code=" not in printed
        assert token not in printed


def test_the_page_about_serving_is_true(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/serve.md").read_text()
    code = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    toml = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(code) == len(toml) == 1
    with Running(settings(table(tmp_path))) as server:
        names: dict[str, Any] = {"hf": hf}
        exec(code[0].replace("http://127.0.0.1:8765", server.url).replace("hf_...", server.token()), names)
        with names["data"] as data:
            assert data.history().height == 4
    (tmp_path / "server.toml").write_text(toml[0])
    assert load({}, config=tmp_path / "server.toml", environment={}).datasets["flights"].queries == 10_000


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a thread choose its processors")
def test_each_pinned_process_has_a_processor_of_its_own(tmp_path: Path) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("needs two processors")
    config = tmp_path / "server.toml"
    config.write_text("workers = 2\npin = true\nport = 0\n")
    with process(str(table(tmp_path)), "--config", str(config), folder=tmp_path) as running:
        pid = running.pid

        def pinned() -> list[set[int]]:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            found = [os.sched_getaffinity(int(child)) for child in children]
            return sorted((one for one in found if len(one) == 1), key=min)

        wait_until(lambda: pinned() == [{allowed[0]}, {allowed[1]}])
        assert len(os.sched_getaffinity(pid)) == len(allowed)


def test_settings_come_from_four_places(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text(
        'port = 1\nrate = 1.5\nhost = "toml"\n[datasets.flights]\npath = "flights.parquet"\n'
        "queries = 7\nbounds = { dep_delay = [-60, 600] }\n"
    )
    environment = {"HOLDFAST_PORT": "2", "HOLDFAST_HOST": "environment", "HOLDFAST_OPEN_METRICS": "yes"}
    chosen = load({}, config=tmp_path / "server.toml", environment=environment, port=3, host=None)
    assert (chosen.port, chosen.host, chosen.rate, chosen.workers) == (3, "environment", 1.5, 1)
    assert chosen.open_metrics
    assert chosen.datasets["flights"].path == str(tmp_path / "flights.parquet")
    assert chosen.datasets["flights"].bounds == {"dep_delay": [-60, 600]}
    assert Settings.from_json(chosen.to_json()) == chosen


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("prot = 1", "no setting 'prot'"),
        ("port = ", "must be a TOML file"),
        ("port = 99999", "at most the largest port"),
        ("[datasets.x]\nqueries = 5", "with path"),
        ('[datasets."a/b"]\npath = "x"', "without slashes"),
        ('public_url = "ftp://x"', "public_url must be like"),
        ("rate = -1", "rate must be positive"),
    ],
)
def test_wrong_settings_are_refused_by_name(tmp_path: Path, toml: str, words: str) -> None:
    (tmp_path / "server.toml").write_text(toml)
    with pytest.raises(hf.InvalidArgument, match=words):
        load({}, config=tmp_path / "server.toml", environment={})


def test_a_server_looks_for_garbage_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line does so seldom, for its imports; in a server that is a pause that everybody waits for."""
    seen, before = [], gc.get_threshold()

    def run(server: Any, sockets: list[socket.socket]) -> None:
        seen.append(gc.get_threshold())
        server.config.app.state.server.close()
        sockets[0].close()

    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(uvicorn.Server, "run", run)
    monkeypatch.setattr("holdfast.service.app.start_logging", lambda: None)
    gc.set_threshold(cli.SELDOM)
    try:
        app.serve(settings(table(tmp_path)), lambda address, link: None)
    finally:
        gc.set_threshold(*before)
    assert seen[0][0] * 10 <= cli.SELDOM


def test_a_request_that_has_ended_is_freed_without_the_garbage_collector(tmp_path: Path) -> None:
    with Running(settings(table(tmp_path, rows=300))) as server, server.client(server.token("ana")) as client:
        gc.collect()
        gc.disable()
        try:
            for number in range(5):
                assert client.post("/api/v1/datasets/flights/ask", json={"query": f"dep_delay > {number}"}).is_success
                assert client.get("/api/v1/datasets").is_success
            held = [one for one in gc.get_objects() if isinstance(one, RequestResponseCycle)]
            assert len(held) <= 1, "only a connection's last request stays, until the next one begins"
        finally:
            gc.enable()
