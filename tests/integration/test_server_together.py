"""Many ask at once: their answers share transactions, and each is written before anybody sees it."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import holdfast as hf
from holdfast.errors import LedgerUnavailable
from holdfast.ledger import places
from holdfast.session.answering import Answering
from serving import Running, settings, table, wait_until

API = "/api/v1/datasets/flights"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Running(settings(table(tmp_path), dataset={"queries": 10_000})) as running:
        yield running


class Writes:
    """The transactions of the ledger: counted, held up, or refused."""

    def __init__(self, server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ledger = server.state.datasets.get("flights", server.state.admin).session.ledger
        self.count, self.go, self.fails = 0, threading.Event(), False
        self.sizes: list[int] = []  # entries that each wrote
        self.go.set()
        plain = self.ledger._store.write

        def write(decide: Callable[[Any], None]) -> Any:
            self.count += 1
            assert self.go.wait(30)
            if self.fails:
                raise hf.LedgerUnavailable("Ledger cannot be used: the disk is full.", location="here")

            def counted(transaction: Any) -> None:
                before = transaction.tip.seq
                decide(transaction)
                self.sizes.append(transaction.tip.seq - before)

            return plain(counted if self.ledger.begun else decide)

        monkeypatch.setattr(self.ledger._store, "write", write)


def ask_at_once(server: Running, asked: list[tuple[str, dict[str, Any]]]) -> tuple[list[threading.Thread], list[Any]]:
    """Ask each question with its token, in a thread of its own."""
    responses: list[Any] = [None] * len(asked)

    def one(place: int, token: str, question: dict[str, Any]) -> None:
        with server.client(token) as client:
            responses[place] = client.post(f"{API}/ask", json=question)

    threads = [threading.Thread(target=one, args=(i, *each)) for i, each in enumerate(asked)]
    for thread in threads:
        thread.start()
    return threads, responses


def test_answers_share_transactions_and_are_sent_when_they_are_durable(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "FAST", 60.0)  # places are taken ahead also where a question takes long
    tokens = [server.token(f"analyst {i}") for i in range(10)]
    with server.client(tokens[0]) as client:
        for i in range(80):
            assert client.post(f"{API}/ask", json={"query": f"dep_delay > {100 + i}"}).status_code == 200
    writes = Writes(server, monkeypatch)
    writes.go.clear()
    asked = [(token, {"query": f"dep_delay > {10 * i + j}"}) for i, token in enumerate(tokens) for j in range(2)]
    threads, responses = ask_at_once(server, asked)
    lane = server.state.lanes.asks
    wait_until(lambda: writes.count >= 1 and sum(lane.turns.running.values()) >= 4)
    assert responses == [None] * 20  # drawn, and not seen before they are written
    assert writes.ledger.spent.answers == 80
    writes.go.set()
    for thread in threads:
        thread.join(60)
    answers = [response.json()["answer"] for response in responses]
    entries = {entry.seq: entry for entry in writes.ledger.entries()}
    assert len(entries) == 100
    assert len({answer["seq"] for answer in answers}) == 20
    assert all(entries[answer["seq"]].answer["value"] == answer["value"] for answer in answers)
    assert {entries[answer["seq"]].analyst for answer in answers} == {f"analyst {i}" for i in range(10)}
    assert max(writes.sizes) > 1
    writes.ledger.verify()


def test_the_same_question_from_everybody_is_drawn_once(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = Writes(server, monkeypatch)
    asked = [(server.token(f"analyst {i}"), {"query": "weekend"}) for i in range(30)]
    threads, responses = ask_at_once(server, asked)
    for thread in threads:
        thread.join(60)
    answers = [response.json()["answer"] for response in responses]
    assert {(answer["seq"], answer["value"]) for answer in answers} == {(1, answers[0]["value"])}
    assert sorted(answer["cached"] for answer in answers) == [False] + [True] * 29
    (entry,) = writes.ledger.entries()
    assert writes.ledger.spent.charge == entry.cost.charge  # nobody paid for a draw that was dropped
    writes.ledger.verify()


def test_a_ledger_that_cannot_be_written_shows_nothing_and_recovers(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = server.token()
    with server.client(token) as client:
        for i in range(6):
            assert client.post(f"{API}/ask", json={"query": f"dep_delay > {100 + i}"}).status_code == 200
        writes = Writes(server, monkeypatch)
        writes.fails = True
        threads, responses = ask_at_once(server, [(token, {"query": f"dep_delay > {i}"}) for i in range(8)])
        for thread in threads:
            thread.join(60)
        assert [response.status_code for response in responses] == [503] * 8
        assert all("answer" not in response.json() for response in responses)
        assert client.post(f"{API}/ask", json={"query": "dep_delay > 100"}).json()["answer"]["cached"]
        assert writes.ledger.spent.answers == 6
        writes.fails = False
        again = client.post(f"{API}/ask", json={"query": "dep_delay > 1"})
        assert (again.status_code, again.json()["answer"]["cached"]) == (200, False)
        assert writes.ledger.spent.answers == 7
    writes.ledger.verify()


@pytest.mark.parametrize("written", [False, True])
def test_a_quota_pays_for_draws_that_a_ledger_did_not_take(
    server: Running, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    """The budget has paid for them. If the answer is there all the same, it is counted once."""
    ledger = server.state.datasets.get("flights", server.state.admin).session.ledger
    token, commit_all = server.token("eve", quota=10), ledger.commit_all

    def fails(drawn: Any) -> Any:
        if written:
            commit_all(drawn)
        raise LedgerUnavailable("The disk is full.", location="here")

    with server.client(token) as client:
        assert client.post(f"{API}/ask", json={"query": "weekend"}).status_code == 200
        monkeypatch.setattr(ledger, "commit_all", fails)
        for number in range(3):
            assert client.post(f"{API}/ask", json={"query": f"dep_delay > {number}"}).status_code == 503
        assert client.get("/api/v1/me").json()["left"]["flights"]["quota"] == 6


def test_a_quota_pays_for_draws_that_another_server_was_faster_to_answer(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The budget has paid for them: else servers that are asked the same at once would take one unit for many."""
    ledger = server.state.datasets.get("flights", server.state.admin).session.ledger
    commit_all = ledger.commit_all

    def left(client: httpx.Client) -> int:
        return int(client.get("/api/v1/me").json()["left"]["flights"]["quota"])

    with server.client(server.token("eve", quota=20)) as client:
        assert client.post(f"{API}/ask", json={"query": "weekend"}).status_code == 200
        assert left(client) == 19
        with monkeypatch.context() as patched:  # the first commit is the other server's, also for her
            patched.setattr(ledger, "commit_all", lambda drawn: (commit_all(drawn), commit_all(drawn))[1])
            lost = client.post(f"{API}/ask", json={"query": "dep_delay > 1"}).json()
            assert lost["answer"]["cached"]
            assert left(client) == lost["left"]["quota"] == 17
            asks = [{"query": f"dep_delay > {minutes}"} for minutes in (1, 2, 3, 2)]
            assert client.post(f"{API}/batch", json={"asks": asks}).status_code == 200
            assert left(client) == 13
        assert client.post(f"{API}/ask", json={"query": "dep_delay > 2"}).json()["answer"]["cached"]
        assert left(client) == 13


def test_a_quota_does_not_pay_for_what_was_answered_before_it_was_drawn(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its price and its draw, as by another list that has some of the same questions."""
    answer_all, other = Answering.answer_all, server.token("bob")

    def late(self: Answering, questions: Any) -> Any:
        with server.client(other) as client:
            assert client.post(f"{API}/ask", json={"query": "dep_delay > 1"}).status_code == 200
        return answer_all(self, questions)

    with server.client(server.token("eve", quota=20)) as client:
        assert client.post(f"{API}/ask", json={"query": "weekend"}).status_code == 200
        monkeypatch.setattr(Answering, "answer_all", late)
        asks = [{"query": f"dep_delay > {minutes}"} for minutes in (1, 2)]
        results = client.post(f"{API}/batch", json={"asks": asks}).json()["results"]
        assert [one["answer"]["cached"] for one in results] == [True, False]
        assert client.get("/api/v1/me").json()["left"]["flights"]["quota"] == 18


def test_a_quota_holds_when_answers_are_written_together(server: Running) -> None:
    eve, bob = server.token("eve", quota=3), server.token("bob")
    asked = [(eve, {"query": f"dep_delay > {i}"}) for i in range(12)]
    asked += [(bob, {"query": f"dep_delay > {100 + i}"}) for i in range(12)]
    threads, responses = ask_at_once(server, asked)
    for thread in threads:
        thread.join(60)
    hers, his = responses[:12], responses[12:]
    assert all(response.status_code == 200 for response in his)
    given = [response for response in hers if response.status_code == 200]
    refused = [response.json()["kind"] for response in hers if response.status_code != 200]
    ledger = server.state.datasets.get("flights", server.state.admin).session.ledger
    assert len([entry for entry in ledger.entries() if entry.analyst == "eve"]) == len(given) <= 3
    assert set(refused) <= {"quota_exhausted"}
    with server.client(eve) as client:  # those counted twice for a moment are counted once by now
        for i in range(3 - len(given)):
            assert client.post(f"{API}/ask", json={"query": f"distance > {i}"}).status_code == 200
        assert client.post(f"{API}/ask", json={"query": "distance > 9"}).json()["kind"] == "quota_exhausted"


def test_every_surface_of_the_route_is_as_before(server: Running) -> None:
    """The way straight to the route: the same errors in the one shape, the same headers, metrics and description."""
    token = server.token()
    with server.client(token) as client:
        good = client.post(f"{API}/ask", json={"query": "weekend"}, headers={"Idempotency-Key": "k"})
        again = client.post(f"{API}/ask", json={"query": "weekend"}, headers={"Idempotency-Key": "k"})
        assert good.json() == again.json()
        for response, status in (
            (client.post(f"{API}/ask", content=b"{}"), 415),
            (client.post(f"{API}/ask", content=b"{", headers={"Content-Type": "application/json"}), 400),
            (client.post(f"{API}/ask", json={"query": "nothing"}), 404),
            (client.post(f"{API}/ask", json={"query": 3}), 422),
            (client.post(f"{API}/ask?margin=3", json={"query": "weekend"}), 422),
            (client.post("/api/v1/datasets/other/ask", json={"query": "weekend"}), 404),
            (client.post(f"{API}/ask/", json={"query": "weekend"}), 404),
            (client.get(f"{API}/ask"), 405),
            (client.post(f"{API}/ask", json={"query": "weekend"}, headers={"Authorization": "Bearer no"}), 401),
            (client.post(f"{API}/ask", json={"query": "dep_delay > 1"}, headers={"Idempotency-Key": "k"}), 422),
        ):
            assert response.status_code == status, response.text
            assert response.json()["ok"] is False
            assert set(response.json()) >= {"error", "kind", "status", "details"}
            assert response.headers["x-request-id"]
            assert response.headers["x-content-type-options"] == "nosniff"
        assert client.post(f"{API}/ask", json={"query": "weekend"}, headers={"Authorization": "Bearer no"}).headers[
            "www-authenticate"
        ]
        description = client.get("/api/v1/openapi.json").json()
        assert "all of them are answered, or none" in description["components"]["schemas"]["BatchIn"]["description"]
        described = description["paths"]["/api/v1/datasets/{name}/ask"]["post"]
        assert {"200", "401", "409", "422", "503"} <= set(described["responses"])
    counted = server.state.metrics.text([])
    assert 'holdfast_requests_total{method="POST",route="/api/v1/datasets/{name}/ask",status="200"} 2' in counted
    assert 'route="/api/v1/datasets/{name}/ask",status="415"} 1' in counted
