"""A board on a server: teams, quotas, receipts, agents; and what no team can read anywhere: labels and scores."""

import json
import logging
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.service.client import connect
from holdfast.service.mcp import Tools
from serving import Running, settings

ROWS = 1_000
IDS = [f"case-{number:04}" for number in range(ROWS)]
API = "/api/v1/datasets/secrets"
rng = np.random.default_rng(12)
# Words that occur nowhere else, so that finding one means that a label got out.
LABELS = [f"zq{number:06x}" for number in rng.permutation(ROWS)]


def predictions(right: int) -> dict[str, list[str]]:
    """So many right ones; of the others not even the form of a label."""
    return {"id": IDS, "prediction": [*LABELS[:right], *(f"no {number}" for number in range(ROWS - right))]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    pl.DataFrame({"id": IDS, "label": LABELS}).write_parquet(folder / "secrets.parquet")
    hf.Board(folder / "secrets.parquet", step=0.02).close()
    (folder / "secrets.parquet").unlink()
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    chosen = settings(folder / "secrets.board.holdfast", dataset={"queries": None})
    (board,) = chosen.datasets.values()
    with Running(replace(chosen, datasets={"secrets": board})) as running:
        yield running


def test_labels_and_scores_are_in_no_response_log_or_file_that_a_team_can_reach(
    server: Running, folder: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    html = {"Accept": "text/html"}
    bad: list[Any] = [
        {"id": IDS[:-1], "prediction": ["x"] * (ROWS - 1)},
        {"id": [*IDS[:-1], IDS[0]], "prediction": ["x"] * ROWS},
        {"id": [*IDS[:-1], "unknown"], "prediction": ["x"] * ROWS},
        {"id": IDS, "prediction": [1.5] * ROWS},
        {"id": IDS, "prediction": [None] * ROWS},
        {"prediction": ["x"] * ROWS},
        "no table at all",
        "x\x01compressed",
        "PAR1\0\0PAR1",
        '{"id": [1, 2]}',
        7,
        None,
    ]
    scores = (617, 403, 611)  # the second and the third are no improvements: not even their cells are told
    with server.client(server.token("team 1", quota=20)) as client:
        for right in scores:
            sent = {"kind": "submit", "predictions": predictions(right), "name": f"model {right % 7}"}
            said.append(client.post(f"{API}/ask", json=sent).text)
        for table in bad:
            refused = client.post(f"{API}/ask", json={"kind": "submit", "predictions": table})
            assert refused.status_code == 422, refused.text
            said.append(refused.text)
        for kind, query in (("mean", "label = 'x'"), ("histogram", "label"), ("check", "label = 'x'")):
            refused = client.post(f"{API}/ask", json={"kind": kind, "query": query, "categories": ["x"]})
            assert refused.status_code == 422
            said.append(refused.text)
        for verb in ("price", "dry-run"):
            said.append(client.post(f"{API}/{verb}", json={"kind": "submit", "predictions": predictions(5)}).text)
        paths = [
            "",
            "/schema",
            "/budget",
            "/plan",
            "/head",
            "/history",
            "/standings",
            *(f"/receipts/{i}" for i in range(4)),
        ]
        said += [client.get(API + path).text for path in paths]
        for page in ("/datasets/secrets", "/datasets/secrets/history", "/", "/datasets/secrets?format=json"):
            said.append(client.get(page, headers=html).text)
        csv = pl.DataFrame(predictions(100)).with_columns(pl.lit("none").alias("prediction")).write_csv()
        for path in ("ask", "dry-run"):
            form = {"kind": "submit", "predictions": csv}
            said.append(client.post(f"/datasets/secrets/{path}", data=form, headers=html).text)
        said += [client.get(path).text for path in ("/secrets.board.holdfast", "/static/../secrets.board.holdfast")]
        said.append(client.get("/metrics").text)
    assert json.loads(said[0])["answer"]["cell"] == [0.6, 0.62]
    said += [caplog.text, *capfd.readouterr()]
    own = set(predictions(max(scores))["prediction"])
    found = {word for text in said for word in re.findall(r"zq[0-9a-f]{6}", text)}
    assert found == set(), found & own
    for text in said:
        for right in scores:
            assert not re.search(rf"0\.{right}\b|\b{right / 10}\b", text)
    # The ledger is the admin's, but it keeps neither.
    ledger = (folder / "secrets.board.ledger").read_bytes().decode("latin-1")
    assert not re.search(r"zq[0-9a-f]{6}", ledger)
    assert not re.search(r"0\.(617|403|611)\b", ledger)
    # Only the owner of the server's files can read those of the board.
    assert all((path.stat().st_mode & 0o077) == 0 for path in folder.glob("secrets.board.*"))


def test_teams_share_one_ladder_and_each_has_its_quota(server: Running) -> None:
    first, second = server.token("red", quota=2), server.token("blue", quota=5)
    with connect(server.url, first) as red, connect(server.url, second) as blue:
        best = red.submit(predictions(700), name="red 1")
        assert best.improved
        assert not blue.submit(predictions(690), name="blue 1").improved
        assert blue.submit(predictions(700)).receipt == best.receipt
        red.submit(predictions(10))
        with pytest.raises(hf.QuotaExhausted):
            red.submit(predictions(11))
        with pytest.raises(hf.InvalidArgument, match="every id"):
            red.submit({"id": IDS[:5], "prediction": ["a"] * 5})
        table = blue.standings()
        assert table["by"][0] == "red"
        assert table["name"][0] == "red 1"
        proof = blue.receipt(best)
        assert blue.head is not None
        hf.check_receipt(proof, blue.head.hash)
        assert "no limit on submissions" in str(blue.budget)


def test_submissions_at_the_same_time_climb_one_ladder(server: Running) -> None:
    token = server.token("crowd")

    def send(right: int) -> hf.SubmitAnswer:
        with connect(server.url, token) as client:
            return client.submit(predictions(right))

    with ThreadPoolExecutor(6) as pool:
        answers = sorted(pool.map(send, range(720, 960, 8)), key=lambda answer: answer.seq or 0)
    cells = [answer.cell for answer in answers if answer.improved]
    assert cells == sorted(set(cells))
    best = 0.0
    for answer in answers:
        assert answer.cell[1] == pytest.approx(answer.cell[1] if answer.improved else max(best, answer.cell[1]))
        best = max(best, answer.cell[1])
    with connect(server.url, token) as client:
        assert client.standings()["cell_high"][0] == pytest.approx(best)


def test_agents_submit_and_read_the_standings(server: Running) -> None:
    session = server.state.datasets.get("secrets", server.state.admin).session
    with connect(server.url, server.token("agent")) as remote:
        for board in (session, remote):
            tools = Tools({"secrets": board})
            told = anyio.run(tools.call, "submit", {"predictions": predictions(42), "name": "by an agent"})
            assert told.structured_content is not None
            assert told.structured_content["answer"]["about"] == "labels"
            shown = anyio.run(tools.call, "standings", {}).structured_content
            assert shown is not None
            assert shown["standings"][0]["rank"] == 1
            low, high = map(float, re.findall(r"0\.\d+|1\.0*", shown["text"]))
            assert low <= shown["standings"][0]["low"] < shown["standings"][0]["high"] <= high  # never narrower
            left = anyio.run(tools.call, "budget", {}).structured_content
            assert left is not None
            assert "no limit on submissions" in left["text"]


def test_a_dataset_that_is_no_board_has_no_standings(tmp_path: Path) -> None:
    pl.DataFrame({"x": np.arange(3_000) % 7}).write_parquet(tmp_path / "plain.parquet")
    with Running(settings(tmp_path / "plain.parquet")) as running, running.client(running.token()) as client:
        refused = client.get("/api/v1/datasets/plain/standings")
    assert refused.status_code == 422
    assert "not a board" in refused.json()["error"]


def test_a_path_is_never_opened_for_a_caller(server: Running, tmp_path: Path) -> None:
    """A text is the content of a file, wherever it comes from over HTTP: the server's own files stay closed."""
    path = tmp_path / "there.csv"
    pl.DataFrame(predictions(3)).write_csv(path)
    with server.client(server.token("curious")) as client:
        for text in (str(path), f"file://{path}"):
            refused = client.post(f"{API}/ask", json={"kind": "submit", "predictions": text})
            assert refused.status_code == 422
            assert "column 'id'" in refused.json()["error"]


def test_a_board_of_units_is_served_like_any_other(tmp_path: Path) -> None:
    """Teams send a prediction for every row; conversations are what is counted, on the page and to programs."""
    turns = {"id": IDS, "label": LABELS, "conversation": [f"talk {number // 4}" for number in range(ROWS)]}
    pl.DataFrame(turns).write_parquet(tmp_path / "turns.parquet")
    hf.Board(tmp_path / "turns.parquet", unit="conversation", step=0.02).close()
    chosen = settings(tmp_path / "turns.board.holdfast", dataset={"queries": None})
    (board,) = chosen.datasets.values()
    with Running(replace(chosen, datasets={"turns": board})) as server:
        token = server.token("team 1")
        with server.client(token) as client:
            plan = client.get("/api/v1/datasets/turns/plan").json()
            assert "250 sealed rows" in str(plan)
            assert "a unit (conversation), with all its rows" in str(plan)
            page = client.get("/datasets/turns", headers={"Accept": "text/html"}).text
            assert "a unit (conversation), with all its rows" in page
        with connect(str(server.url), token, dataset="turns") as remote:
            answer = remote.submit(predictions(617))  # 154 conversations and a quarter
            assert answer.cell == pytest.approx((0.6, 0.62))
            assert answer.question.endswith("every unit (conversation) alike")
            assert remote.standings()["outcome"].to_list() == ["improvement"]
