"""What a server says and keeps of a check: the cell, never the number behind it."""

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.service.client import connect
from serving import Running, settings

ROWS, YES = 40_000, 0.2  # of all rows; half of them are held
API = "/api/v1/datasets/flights"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    late = np.random.default_rng(8).random(ROWS) < YES
    pl.DataFrame({"late": late, "n": np.arange(ROWS) % 10}).write_parquet(tmp_path / "flights.parquet")
    hf.hold_back(tmp_path / "flights.parquet")[1].close()
    return tmp_path / "flights.held.holdfast"


@pytest.fixture
def server(folder: Path) -> Iterator[Running]:
    chosen = settings(folder, dataset={"queries": None})
    (held,) = chosen.datasets.values()
    with Running(replace(chosen, datasets={"flights": held})) as running:
        yield running


def test_the_estimate_is_in_no_response_log_or_file(
    server: Running, folder: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    rows = hf.open(folder)
    held = rows.frame(np.arange(len(rows)))  # type: ignore[attr-defined]
    count = int(held["late"].sum())
    texts = []
    question = {"kind": "check", "query": "late", "guess": 0.21, "margin": 0.03}
    with server.client(server.token()) as client:
        for change in ({}, {"guess": 0.5}, {"guess": 0.05}, {"rows_per_query": 5_000}, {"margin": 0.001}):
            said = client.post(f"{API}/ask", json=question | change)
            assert said.json()["ok"], said.text
            texts += [said.text, str(said.headers)]
        refused = client.post(f"{API}/ask", json={"kind": "mean", "query": "late"})
        assert (refused.status_code, refused.json()["kind"]) == (422, "not_covered")
        for path in (f"{API}/budget", f"{API}/history", API, f"{API}/receipts/1", "/datasets/flights"):
            texts.append(client.get(path, headers={"Accept": "text/html"} if path.startswith("/d") else {}).text)
        page = client.post("/datasets/flights/ask", data=question | {"margin": "0.02"}, headers={"Accept": "text/html"})
        assert "the guess holds" in page.text
        texts += [page.text, refused.text]
    texts += [caplog.text, *capfd.readouterr()]
    texts += [path.read_bytes().decode("latin-1") for path in folder.parent.glob("flights.held.*") if path.is_file()]
    share = count / len(rows)
    written = "|".join(re.escape(text) for text in (f"{share:.5f}", f"{share * 100:.3f}"))
    secret = re.compile(rf"(?<![0-9a-f.]){count}(?![0-9a-f])|{written}")
    assert not [text[max(0, found.start() - 80) :][:160] for text in texts if (found := secret.search(text))]


def test_a_client_sees_that_checks_have_no_end(server: Running) -> None:
    with connect(server.url, server.token()) as client:
        before = client.budget
        answer = client.check("late", 0.9, 0.01)
        assert (answer.outcome, answer.cost) == ("too high", 0)
        after = client.budget
        assert [more for more, _ in after.outlook] == [0, 1, 10, 100]
        assert after.margin > before.margin
        assert after.answers_left == before.answers_left
        assert client.check("late").holds  # the guess comes from the exploration part, beside the data
        assert client.plan.standing.terms.rows == ROWS // 2


def test_the_verdict_stands_where_the_value_of_others_does(server: Running) -> None:
    with server.client(server.token(), Accept="text/html") as client:
        for guess in ("0.5", "0.21"):
            asked = {"kind": "check", "query": "late", "guess": guess, "margin": "0.03"}
            page = client.post("/datasets/flights/ask", data=asked)
            assert f"Guess: share of late is {guess} ± 0.03" in page.text
            assert "in the population it lies between" in page.text
        history = client.get("/datasets/flights/history").text
    assert {*re.findall(r'class="num value">(.*?)<', history)} == {"too high", "holds"}  # a guess is nobody's value


def test_a_quota_counts_the_checks_of_a_list(server: Running) -> None:
    """A check takes nothing of a budget, which has no end; wrong guesses widen the intervals of all."""

    def checks(first: float) -> dict[str, object]:
        guesses = (first, first + 0.01, first + 0.02)
        return {"asks": [{"kind": "check", "query": "late", "guess": one, "margin": 0.001} for one in guesses]}

    with server.client(server.token("eve", quota=4)) as client:
        assert client.post(f"{API}/batch", json=checks(0.5)).status_code == 200
        assert client.get("/api/v1/me").json()["left"]["flights"]["quota"] == 1
        refused = client.post(f"{API}/batch", json=checks(0.6))
        assert (refused.status_code, refused.json()["kind"]) == (409, "quota_exhausted")
        assert client.post(f"{API}/batch", json=checks(0.5)).status_code == 200  # asked before, and free
        assert client.post(f"{API}/ask", json=checks(0.6)["asks"][0]).status_code == 200  # type: ignore[index]
        assert client.post(f"{API}/batch", json={"asks": checks(0.6)["asks"][1:2]}).status_code == 409  # type: ignore[index]
