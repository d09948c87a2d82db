"""Asking over HTTP: once for each key, within the quota, in batches, in pages."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from serving import Running, settings, table

API = "/api/v1/datasets/flights"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    plan = {"queries": 100, "flips": 5_000, "bounds": {"dep_delay": (-60, 600)}}
    with Running(settings(table(tmp_path), dataset=plan, data_folder=str(tmp_path))) as running:
        yield running


def ask(client: httpx.Client, key: str | None = None, verb: str = "ask", **question: Any) -> httpx.Response:
    return client.post(f"{API}/{verb}", json=question, headers={} if key is None else {"Idempotency-Key": key})


def spent(server: Running) -> tuple[int, int, int]:
    spent = server.state.datasets.get("flights", server.state.admin).session.ledger.spent
    return spent.flips, spent.intervals, spent.answers


def test_a_retry_gets_the_same_answer_and_is_charged_once(server: Running) -> None:
    with server.client(server.token()) as client:
        for question in ({"query": "dep_delay > 15"}, {"kind": "flips", "query": "weekend", "count": 50}):
            first = ask(client, question["query"], **question)
            charged = spent(server)
            again = ask(client, question["query"], **question)
            assert first.status_code == 200
            assert again.json() == first.json()
            assert spent(server) == charged


def test_a_retry_finds_its_flips_even_if_the_response_was_never_stored(server: Running) -> None:
    """A server that dies between committing and storing the response: the key is in the ledger."""
    with server.client(server.token()) as client:
        question = {"kind": "flips", "query": "weekend", "count": 50}
        store = server.state.service.idempotency.store
        object.__setattr__(server.state.service.idempotency, "store", lambda *_: None)
        first = ask(client, "k", **question).json()["answer"]
        charged = spent(server)
        object.__setattr__(server.state.service.idempotency, "store", store)
        again = ask(client, "k", **question).json()["answer"]
    assert again["bits"] == first["bits"]
    assert again["average"]["cached"]
    assert spent(server) == charged


@pytest.mark.parametrize(
    "body",
    [
        b'{"query": "dep_delay > 15"}',
        b'{"query": "dep_delay > 15", "rows_per_query": 900.0}',
        b'{"query": "dep_delay > 15", "rows_per_query": 900.5}',
        b'{"query": "dep_delay > 15", "rows_per_query": "900"}',
        b'{"query": "distance", "within": [0, NaN]}',
        b'{"query": "distance", "within": [0, 1e999]}',
        b'{"query": "dep_delay > 15", "extra": 1}',
        b'{"query": "dep_delay > 1", "query": "dep_delay > 15"}',
        b'{"query": 15}',
        b'{"query": "caf\xc3\xa9 > 1"}',
        b'{"query": "caf\xe9 > 1"}',
        b'{"query": "\\ud800"}',
        b'{"query": "dep_delay > 15"',
        b'["dep_delay > 15"]',
        b"null",
        b"",
    ],
)
def test_the_fast_path_of_a_question_responds_like_fastapi(server: Running, body: bytes) -> None:
    """A content type with a charset is left to FastAPI."""
    responses = []
    with server.client(server.token()) as client:
        client.post(f"{API}/ask", json={"query": "dep_delay > 15"})
        client.post(f"{API}/ask", json={"query": "dep_delay > 15", "rows_per_query": 900})
        for kind in ("application/json", "application/json; charset=utf-8"):
            response = client.post(f"{API}/ask", content=body, headers={"Content-Type": kind})
            responses.append((response.status_code, response.json()))
    assert responses[0] == responses[1]


def test_flips_without_a_key_are_new(server: Running) -> None:
    with server.client(server.token()) as client:
        seqs = {ask(client, None, kind="flip", query="weekend").json()["answer"]["average"]["seq"] for _ in range(3)}
    assert len(seqs) == 3


def test_a_key_stands_for_one_request_of_one_token(server: Running) -> None:
    ana, bob = server.token("ana"), server.token("bob")
    with server.client(ana) as client:
        assert ask(client, "k", query="dep_delay > 1").status_code == 200
        refused = ask(client, "k", query="dep_delay > 2")
        assert refused.status_code == 422
        assert refused.json()["details"]["name"] == "Idempotency-Key"
        assert ask(client, "x" * 201, query="dep_delay > 2").status_code == 422
    with server.client(bob) as client:
        assert ask(client, "k", query="dep_delay > 2").status_code == 200


def test_the_same_key_at_the_same_moment_is_charged_once(server: Running) -> None:
    token, answers = server.token(), []

    def one() -> None:
        with server.client(token) as client:
            answers.append(ask(client, "k", kind="flips", query="weekend", count=40).json()["answer"])

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({tuple(answer["bits"]) for answer in answers}) == 1
    assert spent(server)[2] == 1


def test_a_quota_is_spent_to_the_last_answer_and_no_further(server: Running) -> None:
    token = server.token("ana", quota=3)
    codes: list[int] = []

    def many(start: int) -> None:
        with server.client(token) as client:
            codes.extend(ask(client, query=f"dep_delay > {start + i}").status_code for i in range(4))

    threads = [threading.Thread(target=many, args=(10 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with server.client(token) as client:
        while ask(client, query=f"dep_delay > {100 + len(codes)}").status_code == 200:
            codes.append(200)
        assert codes.count(200) == 3
        refused = ask(client, query="dep_delay > 999")
        assert (refused.status_code, refused.json()["kind"]) == (409, "quota_exhausted")
        assert refused.json()["details"] | {"cost": 1, "left": 0, "total": 3} == refused.json()["details"]
        mine = server.state.datasets.get("flights", server.state.admin).session.history()["question"][0]
        free = ask(client, query=mine.removeprefix("share of "))
        assert free.json()["answer"]["cached"]
        assert client.get("/api/v1/me").json()["left"]["flights"]["quota"] == 0
    with server.client(server.token("bob", quota=1)) as client:
        assert ask(client, query="dep_delay > 999").status_code == 200


def test_a_refused_question_gives_its_reservation_back(server: Running) -> None:
    with server.client(server.token("ana", quota=1)) as client:
        assert ask(client, kind="quantile", query="dep_delay", q=0.5, within=[0, 1]).status_code == 409
        assert ask(client, query="dep_delay > 5").status_code == 200


def test_a_batch_answers_in_order_and_refuses_one_by_one(server: Running) -> None:
    asks = [{"query": "dep_delay > 1"}, {"query": "no_such > 1"}, {"query": "weekend"}, {"query": "dep_delay > 1"}]
    with server.client(server.token()) as client:
        response = client.post(f"{API}/batch", json={"asks": asks}, headers={"Idempotency-Key": "b"}).json()
        assert [one["ok"] for one in response["results"]] == [True, False, True, True]
        assert response["results"][1]["kind"] == "unknown_name"
        assert response["results"][3]["answer"]["cached"]
        charged = spent(server)
        again = client.post(f"{API}/batch", json={"asks": asks}, headers={"Idempotency-Key": "b"}).json()
        assert again["results"] == response["results"]
        assert spent(server) == charged
        assert client.post(f"{API}/batch", json={"asks": asks * 26}).status_code == 422


def test_history_comes_in_pages(server: Running) -> None:
    with server.client(server.token()) as client:
        for i in range(5):
            ask(client, query=f"dep_delay > {i}")
        seen, start = [], 1
        while start is not None:
            page = client.get(f"{API}/history", params={"start": start, "limit": 2}).json()
            seen += [row["seq"] for row in page["rows"]]
            start = page["next"]
        assert seen == [1, 2, 3, 4, 5]


def test_the_schema_has_declared_bounds_and_no_values(server: Running) -> None:
    with server.client(server.token()) as client:
        columns = client.get(f"{API}/schema").json()["columns"]
    assert [set(column) for column in columns] == [{"name", "type", "nullable", "bounds"}] * 4
    assert columns[0]["bounds"] == [-60, 600]
    assert columns[1]["bounds"] is None


def test_prices_and_dry_runs_change_nothing(server: Running) -> None:
    with server.client(server.token()) as client:
        for verb in ("price", "dry-run"):
            assert ask(client, None, verb, query="dep_delay > 15").status_code == 200
    assert spent(server) == (0, 0, 0)


def test_the_admin_registers_a_file_of_the_data_folder_only(server: Running, tmp_path: Path) -> None:
    table(tmp_path, 3_000, "trains")
    table(tmp_path.parent, 3_000, "secret")
    with server.client(server.token("admin", admin=True)) as client:
        made = client.post("/api/v1/datasets", json={"name": "rail", "file": "trains.parquet", "queries": 5})
        assert made.status_code == 200, made.text
        assert client.get("/api/v1/datasets/rail/plan").json()["plan"]["queries"] == 5
        for file in ("../secret.parquet", str(tmp_path.parent / "secret.parquet"), "..", "/etc/passwd"):
            refused = client.post("/api/v1/datasets", json={"name": "x", "file": file})
            assert refused.status_code == 403, file
        assert client.post("/api/v1/datasets", json={"name": "x", "file": "no.parquet"}).status_code == 404
        (tmp_path / "notes.txt").write_text("not a table")
        for file in ("notes.txt", "."):
            assert client.post("/api/v1/datasets", json={"name": "x", "file": file}).status_code == 422
        twice = client.post("/api/v1/datasets", json={"name": "rail", "file": "trains.parquet"})
        assert twice.status_code == 422
        assert client.post("/api/v1/datasets", json={"name": "a/b", "file": "trains.parquet"}).status_code == 422


def test_tokens_are_made_changed_and_revoked_over_the_api(server: Running) -> None:
    with server.client(server.token("admin", admin=True)) as client:
        made = client.post("/api/v1/tokens", json={"name": "eve", "datasets": ["flights"], "quota": 2}).json()
        id = made["token"]["id"]
        with server.client(made["secret"]) as eve:
            assert ask(eve, query="dep_delay > 1").status_code == 200
            assert ask(eve, query="dep_delay > 2").status_code == 200
            assert ask(eve, query="dep_delay > 3").status_code == 409
            assert client.patch(f"/api/v1/tokens/{id}", json={"quota": 3}).json()["token"]["quota"] == 3
            assert ask(eve, query="dep_delay > 3").status_code == 200
            listed = {one["id"]: one for one in client.get("/api/v1/tokens").json()["tokens"]}
            assert listed[id]["used"] == {"flights": 3}
            assert client.delete(f"/api/v1/tokens/{id}").status_code == 200
            assert ask(eve, query="dep_delay > 3").status_code == 401
        assert client.delete(f"/api/v1/tokens/{id}").status_code == 404
        assert client.post("/api/v1/tokens", json={"name": "x", "datasets": ["nothing"]}).status_code == 404
        assert client.post(f"{API}/verify").json()["verified"]["seq"] == 3


def test_every_page_is_also_json(server: Running) -> None:
    with server.client(server.token("admin", admin=True)) as client:
        ask(client, query="dep_delay > 15")
        for page in ("/", "/datasets/flights", "/datasets/flights/history", "/plan", "/admin"):
            html = client.get(page, headers={"Accept": "text/html"})
            assert html.headers["content-type"].startswith("text/html"), page
            assert "<h1>" in html.text
            assert "style=" not in html.text
            assert "<script>" not in html.text
            for data in (
                client.get(page, headers={"Accept": "application/json"}),
                client.get(page, params={"format": "json"}, headers={"Accept": "text/html"}),
            ):
                assert data.json()["ok"] is True


def test_forms_ask_like_the_api(server: Running) -> None:
    with server.client(server.token("ana")) as client:
        forms: list[dict[str, str]] = [
            {"kind": "mean", "query": "distance", "low": "0", "high": "5000", "where": "carrier = 'UA'"},
            {"kind": "histogram", "query": "carrier", "categories": "UA, AA", "where": "left over from another kind"},
            {"kind": "histogram", "query": "dep_delay", "bins": "-60, 0, 60"},
            {"kind": "quantile", "query": "dep_delay", "low": "-60", "high": "600", "q": "0.9"},
            {"kind": "flips", "query": "weekend", "count": "3"},
            {"kind": "minimize", "loss": "logistic", "target": "weekend", "features": "dep_delay", "radius": "1"},
            {
                "kind": "minimize",
                "loss": "quantile",
                "loss_q": "0.8",
                "target": "dep_delay",  # its bounds, and those of the feature, are declared
                "features": "weekend\n\n distance / 100 : 0 to 50 \n",
                "box_low": "-1",
                "box_high": "1",
                "iterations": "2",
                "l2": "0.1",
                "query": "left over from another kind",
            },
        ]
        for form in forms:
            page = client.post("/datasets/flights/ask", data=form, headers={"Accept": "text/html"})
            assert page.status_code == 200, page.text
            assert "<svg" in page.text
        wrong = client.post(
            "/datasets/flights/ask", data={"query": "weekend", "low": "x"}, headers={"Accept": "text/html"}
        )
        assert wrong.status_code == 422
        assert "low must be a number" in wrong.text
        model = {"kind": "minimize", "loss": "squared", "target": "distance", "features": "weekend", "radius": "1"}
        for change, words in (
            ({"features": "distance"}, "must have bounds"),
            ({"features": "distance: 0 to x"}, "features must be a number"),
            ({"features": "no_such: 0 to 1"}, "no_such"),
            ({}, "must be declared as (low, high)"),
            ({"target_low": "0", "target_high": "5000", "box_low": "0", "box_high": "1"}, "either radius or box"),
            ({"loss": "guess"}, "loss.name"),
            ({"kind": "mean"}, "Enter a query"),
        ):
            refused = client.post("/datasets/flights/ask", data=model | change, headers={"Accept": "text/html"})
            assert refused.status_code == (404 if words == "no_such" else 422), (change, refused.text)
            assert words in refused.text, change


def test_the_domain_of_a_minimum_can_be_given_in_every_way(server: Running) -> None:
    loss = {"name": "logistic", "features": {"distance": [0, 5000], "weekend": None}, "target": "carrier = 'UA'"}
    with server.client(server.token("ana")) as client:

        def priced(**options: Any) -> httpx.Response:
            return ask(client, None, "price", kind="minimize", loss=loss, iterations=2, **options)

        questions = [
            priced(**domain).json()["price"]["question"]
            for domain in ({"radius": 1}, {"box": [-1, 1]}, {"box": [[-1, 1], [0, 1], [-2, 2]]})
        ]
        assert [text.rpartition(", ")[2] for text in questions][::2] == [
            "norm at most 1",
            "coordinates in a box of 3 sides",
        ]
        assert questions[1].endswith("coordinates in [-1, 1]")
        assert priced(box=[[-1, 1]]).status_code == 422
        assert priced(radius=1, mechanism="guess").status_code == 422
        refused = priced(radius=1, rows_per_coordinate=9_000_000)
        assert refused.status_code == 422
        assert "must read at most 10,000,000 rows" in refused.json()["error"]
