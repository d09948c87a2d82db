"""Asking over HTTP: once for each key, within the quota, in batches, in pages."""

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest

import holdfast as hf
from holdfast.ledger import Ledger
from holdfast.questions.budget import Budget
from holdfast.service import api
from holdfast.service import ask as asking
from serving import Running, settings, table

API = "/api/v1/datasets/flights"


PLAN = {"queries": {"mean": 100, "flip": 5_000}, "bounds": {"dep_delay": (-60, 600)}}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Running(settings(table(tmp_path), dataset=PLAN, data_folder=str(tmp_path))) as running:
        yield running


@pytest.fixture(scope="module")
def same_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """For tests that do not mind what was asked before."""
    with Running(settings(table(tmp_path_factory.mktemp("served")), dataset=PLAN)) as running:
        yield running


def ask(client: httpx.Client, key: str | None = None, verb: str = "ask", **question: Any) -> httpx.Response:
    return client.post(f"{API}/{verb}", json=question, headers={} if key is None else {"Idempotency-Key": key})


def spent(server: Running) -> tuple[int, int, int]:
    spent = server.state.datasets.get("flights", server.state.admin).session.ledger.spent
    return spent.charge, spent.intervals, spent.answers


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
    assert again["cached"]
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
def test_every_route_of_a_question_reads_it_the_same_way(same_server: Running, body: bytes) -> None:
    """The route that asks skips FastAPI's handling of parameters; the one that prices does not."""
    responses = []
    with same_server.client(same_server.token()) as client:
        for verb, kind in (("ask", "application/json"), ("price", "application/json; charset=utf-8")):
            response = client.post(f"{API}/{verb}", content=body, headers={"Content-Type": kind})
            payload = response.json()
            responses.append((response.status_code, payload["ok"] or payload))
    assert responses[0] == responses[1]


def test_flips_without_a_key_are_new(server: Running) -> None:
    with server.client(server.token()) as client:
        seqs = {ask(client, None, kind="flips", query="weekend").json()["answer"]["seq"] for _ in range(3)}
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
    assert len({answer["bits"] for answer in answers}) == 1
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
        assert client.get("/api/v1/datasets/flights/budget").json()["text"].endswith("; your quota leaves 1 answer")
        assert ask(client, query="dep_delay > 999").status_code == 200
    for quota, text in ((7, "; your quota leaves 7 answers"), (None, "")):
        with hf.connect(server.url, server.token(f"quota {quota}", quota=quota)) as remote:
            assert remote.budget.quota == quota
            assert str(remote.budget) == f"{replace(remote.budget, quota=None)}{text}"


def test_a_refused_question_gives_its_reservation_back(server: Running) -> None:
    with server.client(server.token("ana", quota=1)) as client:
        assert ask(client, kind="quantile", query="dep_delay", q=0.5, within=[0, 1]).status_code == 409
        assert ask(client, query="dep_delay > 5").status_code == 200


def test_a_batch_is_answered_together_or_not_at_all(server: Running) -> None:
    asks = [{"query": "dep_delay > 1"}, {"query": "weekend"}, {"query": "dep_delay > 1"}]
    with server.client(server.token()) as client:
        before = spent(server)
        refused = client.post(f"{API}/batch", json={"asks": [*asks, {"query": "no_such > 1"}]})
        assert refused.status_code == 404
        assert refused.json()["error"].startswith("Question 4: ")
        assert spent(server) == before
        response = client.post(f"{API}/batch", json={"asks": asks}, headers={"Idempotency-Key": "b"}).json()
        assert [one["ok"] for one in response["results"]] == [True] * 3
        first, second, third = (one["answer"] for one in response["results"])
        assert (second["seq"], third["seq"]) == (first["seq"] + 1, first["seq"])
        charged = spent(server)
        again = client.post(f"{API}/batch", json={"asks": asks}, headers={"Idempotency-Key": "b"}).json()
        assert again["results"] == response["results"]
        assert spent(server) == charged
        assert client.post(f"{API}/batch", json={"asks": asks * 34}).status_code == 422


def test_a_batch_takes_one_reservation_and_one_transaction(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[str, int]] = []
    for name in ("reserve_all", "commit_all"):
        act = getattr(Ledger, name)

        def counted(self: Ledger, several: list[Any], *more: Any, act: Any = act, name: str = name) -> Any:
            taken.append((name, len(several)))
            return act(self, several, *more)

        monkeypatch.setattr(Ledger, name, counted)
    asks = [{"query": f"dep_delay > {minutes}"} for minutes in range(200, 210)]
    with server.client(server.token()) as client:
        assert client.post(f"{API}/batch", json={"asks": asks}).status_code == 200
    assert taken == [("reserve_all", 10), ("commit_all", 10)]


def test_a_batch_beyond_the_quota_is_refused_as_a_whole(server: Running) -> None:
    asks = [{"query": f"dep_delay > {minutes}"} for minutes in range(300, 304)]
    with server.client(server.token("bea", quota=3)) as client:
        assert client.post(f"{API}/batch", json={"asks": asks}).status_code == 409
        assert client.post(f"{API}/batch", json={"asks": asks[:3]}).status_code == 200
        assert client.post(f"{API}/batch", json={"asks": asks[:3]}).status_code == 200  # free
        assert ask(client, query="dep_delay > 303").status_code == 409


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


def test_a_page_of_history_ends_before_it_is_long(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    # A thousand answers for a thousand groups each were gigabytes in memory for whoever read the history.
    monkeypatch.setattr(api, "LONG_PAGE", 5)
    with server.client(server.token()) as client:
        for i in range(4):
            ask(client, query=f"dep_delay > {i}", by="distance", groups=[100, 200, 300])
        seen, start = [], 1
        while start is not None:
            page = client.get(f"{API}/history", params={"start": start, "limit": 1_000}).json()
            assert 0 < len(page["rows"]) <= 6
            seen += [row["seq"] for row in page["rows"]]
            start = page["next"]
        assert seen == [seq for seq in (1, 2, 3, 4) for _ in range(3)]


def test_the_schema_has_declared_bounds_and_no_values(server: Running) -> None:
    with server.client(server.token()) as client:
        columns = client.get(f"{API}/schema").json()["columns"]
    declared = {"name", "type", "nullable", "bounds", "categories", "label", "published"}
    assert [set(column) for column in columns] == [declared] * 4
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


def test_the_admin_declares_columns_complete(server: Running, tmp_path: Path) -> None:
    table(tmp_path, 3_000, "trains")
    with server.client(server.token("admin", admin=True)) as client:
        body = {"name": "rail", "file": "trains.parquet", "queries": 5}
        refused = client.post("/api/v1/datasets", json=body | {"complete": ["no_such"]})
        assert refused.status_code == 404, refused.text
        made = client.post("/api/v1/datasets", json=body | {"complete": ["dep_delay"]})
        assert made.status_code == 200, made.text
        columns = client.get("/api/v1/datasets/rail/schema").json()["columns"]
        assert [one["name"] for one in columns if not one["nullable"]] == ["dep_delay"]
        for query, answers in (("dep_delay", 1), ("distance", 2)):
            price = client.post("/api/v1/datasets/rail/price", json={"query": query, "within": [-60, 600]}).json()
            assert price["price"]["answers"] == answers


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

        def send(verb: str = "ask", **form: str) -> httpx.Response:
            return client.post(f"/datasets/flights/{verb}", data=form, headers={"Accept": "text/html"})

        formula = "logistic: weekend ~ dep_delay [-60, 600] + weekend; l2 = 0.1"
        forms: list[dict[str, str]] = [
            {"kind": "mean", "query": "distance", "within": "0, 5000", "where": "carrier = 'UA'"},
            {"kind": "mean", "query": "dep_delay"},  # its bounds are declared
            {"kind": "histogram", "query": "carrier", "categories": "UA, AA", "q": "left over from another kind"},
            {"kind": "histogram", "query": "dep_delay", "bins": "-60, 0, 60"},
            {"kind": "quantile", "query": "dep_delay", "q": "0.9", "steps": "3"},
            {"kind": "flips", "query": "weekend", "count": "3"},
            {"kind": "minimize", "loss": formula, "radius": "1", "query": "left over from another kind"},
            {"kind": "minimize", "loss": formula, "box": "-1, 1", "iterations": "2", "average": "suffix"},
        ]
        for form in forms:
            page = send(**form)
            assert page.status_code == 200, page.text
            assert "<svg" in page.text
        for form, words in (
            ({"query": "weekend", "within": "x"}, "within must be 2 numbers, such as 0, 100"),
            ({"query": "weekend", "rows_per_query": "many"}, "rows_per_query must be a whole number"),
            ({"kind": "minimize", "loss": "guess: weekend ~ distance"}, "The name of a loss must be one of"),
            ({"kind": "minimize", "loss": "logistic: weekend ~ distance", "radius": "1"}, "must be declared"),
            ({"kind": "minimize", "loss": "logistic: weekend ~ no_such [0, 1]", "radius": "1"}, "no_such"),
            ({"kind": "minimize", "loss": formula, "radius": "1", "box": "0, 1"}, "either radius or box"),
            ({"kind": "mean"}, "mean needs 'query', such as"),
            ({"kind": "median", "query": "weekend"}, "kind must be one of"),
        ):
            refused = send(**form)
            assert refused.status_code == (404 if words == "no_such" else 422), (form, refused.text)
            assert words in unescape(refused.text), form
        assert "The price appears here" in send("price", kind="quantile", query="distance").text
        # The file does not say that no delay is missing, so each of the three steps is about a group.
        price = send("price", kind="quantile", query="dep_delay", q="0.5", steps="3").text
        assert "6 answers of the budget." in price
        assert "Less, if dep_delay is declared complete" in price


def test_the_form_of_a_kind_keeps_what_was_entered(server: Running) -> None:
    with server.client(server.token("ana"), Accept="text/html") as client:
        page = client.get("/datasets/flights", params={"kind": "quantile", "query": "dep_delay > 1"}).text
        assert 'name="q"' in page
        assert "dep_delay &gt; 1</textarea>" in page
        part = client.get(
            "/datasets/flights?kind=histogram", headers={"HX-Request": "true", "HX-Target": "fields"}
        ).text
        assert 'name="categories"' in part
        assert "<h1>" not in part
        assert client.get("/datasets/flights?kind=median").status_code == 422


def test_a_quota_counts_answers_not_intervals(tmp_path: Path) -> None:
    """One interval that reads many rows costs as many answers as it takes of the budget."""
    with Running(settings(table(tmp_path))) as server, server.client(server.token("ana", quota=8)) as client:
        planned = client.get(f"{API}/plan").json()["plan"]["rows_per_query"]
        refused = ask(client, query="weekend", rows_per_query=100 * planned)
        assert (refused.status_code, refused.json()["kind"]) == (409, "quota_exhausted")
        assert refused.json()["details"]["cost"] == 100
        question = {"query": "weekend", "rows_per_query": 5 * planned}
        assert ask(client, None, "price", **question).json()["price"]["answers"] == 5
        assert ask(client, **question).json()["answer"]["cost"] == 5
        assert client.get("/api/v1/me").json()["left"]["flights"]["quota"] == 3
        assert ask(client, query="weekend", rows_per_query=4 * planned).status_code == 409
        assert ask(client, query="weekend", rows_per_query=1).status_code == 200  # takes an answer all the same
        assert client.get("/api/v1/me").json()["left"]["flights"]["quota"] == 2


def test_nothing_is_decided_before_the_first_answer(server: Running) -> None:
    with server.client(server.token("admin", admin=True)) as client:
        words = "the ledger begins with the first answer"
        assert client.get(f"{API}/head").json()["head"] is None
        assert words in client.get(f"{API}/head").json()["text"]
        assert client.get(f"{API}/history").json()["rows"] == []
        refused = client.get(f"{API}/receipts/1")
        assert (refused.status_code, words in refused.json()["error"]) == (404, True)
        assert client.post(f"{API}/verify").json()["verified"] is None
        assert client.get(API).json()["head"] is None
        ask(client, query="weekend", rows_per_query=0)  # refused
        assert client.get(f"{API}/head").json()["head"] is None
        assert ask(client, query="weekend").status_code == 200
        assert client.get(f"{API}/head").json()["head"]["seq"] == 1
        assert client.get(f"{API}/receipts/1").status_code == 200


def test_the_domain_of_a_minimum_can_be_given_in_every_way(server: Running) -> None:
    loss = {"name": "logistic", "features": {"distance": [0, 5000], "weekend": None}, "target": "carrier = 'UA'"}
    with server.client(server.token("ana")) as client:

        def priced(**options: Any) -> httpx.Response:
            return ask(client, None, "price", **({"kind": "minimize", "loss": loss, "iterations": 2} | options))

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
        for option in ("iterations", "rows_per_coordinate", "runs"):
            refused = priced(**{"radius": 1, option: 2**60})
            assert f"{option} must be at most 10,000,000 over HTTP" in refused.json()["error"]


@pytest.mark.parametrize("quota", [None, 10])
@pytest.mark.parametrize("way", ["small", "large", "batch"])
def test_a_question_is_built_anew_for_the_plan_that_somebody_else_has_just_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, quota: int | None
) -> None:
    """And the quota pays for the question that is answered."""
    if way == "large":
        monkeypatch.setattr(asking, "SMALL_WORK", 0)
    path = table(tmp_path)
    with Running(settings(path, dataset={"queries": None})) as server, hf.Session(path, queries=20) as other:
        served = server.state.datasets.get("flights", server.state.admin)
        begin, planned = served.session.ledger.begin, served.session.plan

        def beaten(*terms: Any) -> bool:
            if not other.ledger.begun:
                somebody = threading.Thread(target=other.mean, args=("dep_delay > 30",))
                somebody.start()
                somebody.join()
            return bool(begin(*terms))

        monkeypatch.setattr(served.session.ledger, "begin", beaten)
        with server.client(server.token(quota=quota)) as client:
            question = {"query": "weekend"}
            if way == "batch":
                response = client.post(f"{API}/batch", json={"asks": [question]}).json()["results"][0]
            else:
                response = client.post(f"{API}/ask", json=question).json()
        assert served.session.plan.rows_per_query != planned.rows_per_query
        assert response["answer"]["rows_read"] == served.session.plan.rows_per_query
        assert response["left"]["quota"] == (None if quota is None else quota - 1)


def test_an_answer_does_not_work_out_how_wide_later_ones_will_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left is in every response; the outlook of a budget takes ten times as long."""
    for queries, left in ((50, 49), (None, None)):
        folder = tmp_path / str(queries)
        folder.mkdir()
        with Running(settings(table(folder), dataset={"queries": queries})) as server, monkeypatch.context() as patched:
            patched.setattr(Budget, "of", None)
            with server.client(server.token()) as client:
                assert client.post(f"{API}/ask", json={"query": "weekend"}).json()["left"]["answers"] == left


ASKED: list[dict[str, Any]] = [
    {"kind": "flips", "query": "weekend", "count": 3},
    {"kind": "check", "query": "weekend", "guess": 0.2},
    {"kind": "units", "query": "weekend"},
    {"kind": "mean", "query": "distance", "rows_per_unit": 3},
    {"kind": "submit", "predictions": "id,prediction\n1,1"},
    {"kind": "confusion", "predictions": "id,prediction\n1,1"},
    {"kind": "mean", "query": "distance"},
    {"kind": "mean", "query": "weekend", "by": "carrier"},
    {"kind": "histogram", "query": "distance"},
    {"kind": "mean", "query": "DATE(carrier) IS NULL"},
]


@pytest.mark.parametrize("question", ASKED, ids=lambda question: question["kind"])
def test_what_only_the_admin_can_do_is_not_said_in_python(question: dict[str, Any], tmp_path: Path) -> None:
    with (
        Running(settings(table(tmp_path), dataset={"queries": None})) as server,
        server.client(server.token()) as client,
    ):
        refused = ask(client, "k", **question)
        page = client.post("/datasets/flights/ask", data={**question, "key": "k"}, headers={"Accept": "text/html"})
    assert refused.status_code == 422
    message = refused.json()["error"]
    assert not re.search(r"\w=(?!=)|\bhf\.|\bholdfast\.|\bNone\b|\bTrue\b|[Tt]his session", message), message
    assert message in unescape(page.text)
