"""When something behind the server is slow, gone or broken: a clear error, nothing charged twice, nothing leaked."""

import logging
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import delete
from sqlalchemy.exc import IntegrityError

import holdfast as hf
from holdfast.cancel import Work, checkpoint
from holdfast.service import api, datasets
from holdfast.service import database as databases
from holdfast.service.access import ServerState
from holdfast.service.database import Body, encode
from holdfast.service.datasets import ServedDataset
from holdfast.service.settings import DatasetSettings, Settings
from serving import Running, settings, table, wait_until

API = "/api/v1/datasets/flights"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Running(settings(table(tmp_path), timeout=1.0)) as running:
        yield running


def session_of(server: Running) -> Any:
    return server.state.datasets.get("flights", server.state.admin).session


def is_error(response: httpx.Response, status: int, kind: str) -> None:
    payload = response.json()
    assert (response.status_code, payload["status"], payload["kind"], payload["ok"]) == (status, status, kind, False)


def test_an_answer_that_takes_too_long_can_be_fetched_later(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = session_of(server)._rows
    plain, go = type(rows).tally, threading.Event()

    def slow(self: Any, *arguments: Any, **options: Any) -> Any:
        go.wait(30)
        return plain(self, *arguments, **options)

    monkeypatch.setattr(type(rows), "tally", slow)
    question, key = {"query": "dep_delay > 15"}, {"Idempotency-Key": "late"}
    with server.client(server.token()) as client:
        is_error(client.post(f"{API}/ask", json=question, headers=key), 503, "service_unavailable")
        assert client.get("/health").status_code == 200
        go.set()
        wait_until(lambda: session_of(server).ledger.spent.answers == 1)
        found = client.post(f"{API}/ask", json=question, headers=key).json()
    assert found["answer"]["seq"] == 1
    assert session_of(server).ledger.spent.answers == 1


def test_slow_drawing_does_not_hold_the_ledger(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one answer is being drawn, others are committed."""
    rows = session_of(server)._rows
    plain, go = type(rows).tally, threading.Event()
    first = threading.Lock()

    def slow(self: Any, *arguments: Any, **options: Any) -> Any:
        if first.acquire(blocking=False):
            go.wait(30)
        return plain(self, *arguments, **options)

    monkeypatch.setattr(type(rows), "tally", slow)
    token = server.token()

    def ask_slowly() -> None:
        with server.client(token) as client:
            client.post(f"{API}/ask", json={"query": "dep_delay > 1"})

    waiting = threading.Thread(target=ask_slowly)
    waiting.start()
    wait_until(first.locked)
    with server.client(token) as client:
        assert client.post(f"{API}/ask", json={"query": "dep_delay > 2"}).status_code == 200
    go.set()
    waiting.join()


def test_a_client_that_hangs_up_leaves_nothing_held(server: Running) -> None:
    token = server.token()
    for number in range(10):
        try:
            with httpx.Client(timeout=0.001, verify=False) as client:
                client.post(
                    f"{server.url}{API}/ask",
                    json={"query": f"dep_delay > {number}"},
                    headers={"Authorization": f"Bearer {token}"},
                )
        except httpx.TransportError:
            continue
    with server.client(token) as client:
        assert client.post(f"{API}/ask", json={"query": "weekend"}).status_code == 200


def test_a_missing_ledger_is_reported(server: Running, tmp_path: Path) -> None:
    with server.client(server.token()) as client:
        assert client.get("/ready").status_code == 200
        assert client.post(f"{API}/ask", json={"query": "dep_delay > 1"}).status_code == 200  # it begins here
        (ledger,) = tmp_path.glob("*.ledger")
        ledger.rename(tmp_path / "elsewhere")
        refused = client.post(f"{API}/ask", json={"query": "weekend"})
        is_error(refused, 503, "ledger_unavailable")
        (tmp_path / "elsewhere").rename(ledger)
        assert client.post(f"{API}/ask", json={"query": "weekend"}).status_code == 200


def test_the_text_of_an_unexpected_error_is_withheld(
    server: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: Any
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("the value was 42.4242")

    monkeypatch.setattr(type(session_of(server)._rows), "tally", broken)
    with server.client(server.token()) as client, caplog.at_level(logging.INFO, logger="holdfast.service"):
        for accept in ("application/json", "text/html"):
            response = client.post(
                "/datasets/flights/ask", data={"query": "weekend"}, headers={"Accept": accept, "Origin": server.url}
            )
            assert response.status_code == 500
            assert "42.4242" not in response.text
            assert response.headers["x-content-type-options"] == "nosniff"
    failure = next(record for record in caplog.records if record.levelname == "ERROR")
    assert failure.facts["error"] == "ZeroDivisionError"  # type: ignore[attr-defined]
    assert any("broken" in line for line in failure.facts["where"])  # type: ignore[attr-defined]
    assert "42.4242" not in str([record.__dict__ for record in caplog.records])
    printed = capfd.readouterr()
    assert "42.4242" not in printed.out + printed.err


def test_reservations_of_a_process_that_died_expire(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    served, token = server.state.datasets.get("flights", server.state.admin), server.token("ana", quota=1)
    ana, question = server.state.tokens.authenticate(token), served.session.prepare("weekend")
    monkeypatch.setattr(datasets, "RESERVATION_SECONDS", 0.2)
    server.state.service.quotas.reserve(served, ana, [question], Work())  # and never closed
    with server.client(token) as client:
        monkeypatch.setattr(datasets, "RESERVATION_SECONDS", 120.0)
        refused = client.post(f"{API}/ask", json={"query": "weekend"})
        if refused.status_code != 200:  # a slow machine may need longer than the reservation lasts
            is_error(refused, 409, "quota_exhausted")
        time.sleep(0.25)
        assert client.post(f"{API}/ask", json={"query": "weekend"}).status_code == 200


@pytest.mark.parametrize("heavy", [False, True])
def test_a_server_that_stops_settles_what_it_cannot_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heavy: bool
) -> None:
    """The budget has paid for the draw, so the quota has, too: not for two minutes, as after a kill, but for good."""
    from holdfast.service import ask

    chosen, drawing = settings(table(tmp_path), grace=1.0), threading.Event()
    if heavy:
        monkeypatch.setattr(ask, "SMALL_WORK", 0)

    def long(*_: Any, **__: Any) -> None:
        drawing.set()
        for _ in range(1_000):
            checkpoint()
            time.sleep(0.01)

    with Running(chosen) as server:
        token = server.token("ana", quota=5)
        monkeypatch.setattr(type(session_of(server)._rows), "tally", long)

        def hang() -> None:
            with server.client(token) as client:
                is_error(
                    client.post(f"{API}/ask", json={"query": "weekend"}, headers={"Idempotency-Key": "k"}),
                    503,
                    "service_unavailable",
                )

        hanging = threading.Thread(target=hang)
        hanging.start()
        assert drawing.wait(10)
    hanging.join()
    with Running(chosen) as server:
        assert server.state.service.quotas.lost("ana", "flights") == 1


def test_one_ledger_that_cannot_be_closed_keeps_nothing_else_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    files = {folder.name: DatasetSettings(path=str(table(folder, rows=300))) for folder in folders}
    state = ServerState(Settings(datasets=files, port=0))
    closed: list[str] = []

    def closing(served: ServedDataset) -> None:
        closed.append(served.name)
        if len(closed) == 1:
            raise hf.LedgerUnavailable("no space is left")

    for served in state.datasets.visible(state.admin):
        monkeypatch.setattr(served.session, "close", partial(closing, served))
    state.service.idempotency.store("ana", "k", "request", Body(ok=True))
    with pytest.raises(hf.LedgerUnavailable):
        state.close()
    assert sorted(closed) == ["a", "b"]
    assert not state.service.idempotency._unwritten
    assert state.database.durable.pool.checkedin() == 0


@pytest.mark.parametrize(
    ("problem", "refused"),
    [
        (IntegrityError("", None, Exception()), hf.InvalidArgument),  # another process was faster, with other rows
        (hf.ServiceUnavailable("The token database is unavailable."), hf.ServiceUnavailable),
    ],
)
def test_a_dataset_that_could_not_be_registered_is_not_served(
    problem: Exception, refused: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table(tmp_path, rows=300, name="trips")
    with Running(settings(table(tmp_path, rows=300), data_folder=str(tmp_path))) as server:
        given = server.state.datasets

        def failing(*_: object) -> None:
            raise problem

        with monkeypatch.context() as patched:
            patched.setattr(datasets, "write", failing)
            with pytest.raises(refused):
                given.register("trips", "trips.parquet")
        assert [served.name for served in given.visible(server.state.admin)] == ["flights"]
        with pytest.raises(hf.UnknownName):
            given.get("trips", server.state.admin)
        assert given.register("trips", "trips.parquet").name == "trips"
        with pytest.raises(hf.InvalidArgument, match="already in use"):
            given.register("trips", "flights.parquet")
        assert given.get("trips", server.state.admin).session.dataset == "trips"


def test_what_may_be_long_is_encoded_outside_the_event_loop(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def noted(payload: dict[str, Any]) -> bytes:
        threads.append(threading.current_thread().name)
        return encode(payload)

    monkeypatch.setattr(api, "encode", noted)
    monkeypatch.setattr(databases, "encode", noted)
    with server.client(server.token()) as client:
        for path in ("history", "schema", "budget"):
            assert client.get(f"{API}/{path}").status_code == 200
        assert client.post(f"{API}/batch", json={"asks": [{"query": "weekend"}]}).status_code == 200
        assert client.post(f"{API}/sql", json={"sql": "SELECT AVG(weekend) FROM flights"}).status_code == 200
    assert len(threads) == 5
    assert all(name.startswith("holdfast reads") for name in threads)


def test_a_ledger_that_is_out_of_reach_hides_no_other_dataset(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("near", "far")]
    for folder in folders:
        folder.mkdir()
    files = {folder.name: DatasetSettings(path=str(table(folder, rows=300))) for folder in folders}
    with Running(Settings(datasets=files, port=0)) as server:
        token = server.token("boss", admin=True)
        with server.client(token) as client:
            for name in files:
                assert client.post(f"/api/v1/datasets/{name}/ask", json={"query": "weekend"}).status_code == 200
            (ledger,) = (tmp_path / "far").glob("*.ledger")
            ledger.rename(tmp_path / "elsewhere")
            near, far = sorted(client.get("/api/v1/datasets").json()["datasets"], key=lambda one: one["name"] == "far")
            assert near["budget"]["answers_given"] == 1
            assert far == {
                "name": "far",
                "problem": "The ledger of far is out of reach or locked at the moment. Try again. The reason is in the"
                " server's log, for the admin.",
            }
            assert list(client.get("/api/v1/me").json()["left"]) == ["near"]
            assert 'dataset="near"' in client.get("/metrics").text
            for path in ("/", "/admin", "/plan"):
                for accept in ("text/html", "application/json"):
                    shown = client.get(path, headers={"Accept": accept})
                    assert shown.status_code == 200
                    assert str(tmp_path) not in shown.text
            assert "The ledger of far is out of reach" in client.get("/", headers={"Accept": "text/html"}).text
            with hf.connect(server.url, token, dataset="near") as session:
                assert session.mean("weekend").cached
            is_error(client.get("/api/v1/datasets/far"), 503, "ledger_unavailable")
        (tmp_path / "elsewhere").rename(ledger)


def test_a_draw_that_took_longer_than_its_reservation_is_still_counted(server: Running) -> None:
    served, token = server.state.datasets.get("flights", server.state.admin), server.token("ana", quota=5)
    ana, quotas, work = server.state.tokens.authenticate(token), server.state.service.quotas, Work()
    held = quotas.reserve(served, ana, [served.session.prepare("weekend")], work)
    work.begun = True
    databases.write(server.state.database.durable, delete(databases.reservations))  # as if two minutes had passed
    held.close(hf.EvaluationFailed("after rows were drawn"))
    assert quotas.lost("ana", "flights") == 1
