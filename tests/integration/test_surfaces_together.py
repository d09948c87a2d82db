"""A SELECT, a list of questions and what is declared are the same on every surface."""

from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import anyio
import polars as pl
import pytest

import holdfast as hf
from holdfast.cli import main
from holdfast.service.client import connect, connect_async
from holdfast.service.mcp import Tools
from serving import Running, settings, table

API = "/api/v1/datasets/flights"
SELECT = "SELECT carrier, AVG(dep_delay > 15) AS late, AVG(dep_delay) FROM flights WHERE distance > 9 GROUP BY carrier"
COLUMNS = ["carrier", "late", "late_low", "late_high", "AVG(dep_delay)", "AVG(dep_delay)_low", "AVG(dep_delay)_high"]
LIST: list[Any] = ["weekend", {"query": "dep_delay"}, {"kind": "histogram", "query": "carrier"}]
DECLARED = {
    "bounds": {"dep_delay": (-60, 600)},
    "categories": {"carrier": ["UA", "AA", "DL"]},
    "labels": {"dep_delay": "departure delay in minutes"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = table(tmp_path_factory.mktemp("together"))
    with Running(settings(path, dataset={"queries": 500, "end": True, **DECLARED})) as running:
        yield running


@pytest.fixture
def session(server: Running) -> hf.Session:
    found: hf.Session = server.state.datasets.get("flights", server.state.admin).session
    return found


def test_a_select_is_answered_alike_everywhere(server: Running, session: hf.Session) -> None:
    token = server.token()
    with server.client(token) as plain, connect(server.url, token) as client:
        priced = plain.post(f"{API}/sql/price", json={"sql": SELECT}).json()
        assert client.price_sql(SELECT).answers == priced["answers"] == 12
        first = client.sql(SELECT)
        assert first.columns == COLUMNS
        told = plain.post(f"{API}/sql", json={"sql": SELECT}).json()
        assert (told["columns"], [tuple(row) for row in told["rows"]]) == (COLUMNS, first.rows())
        assert all(one["answer"]["cached"] for one in told["results"])
        assert client.price_sql(SELECT).answers == session.price_sql(SELECT).answers == 0
        page = plain.post("/datasets/flights/sql", data={"sql": SELECT}, headers={"Accept": "text/html"})
        assert page.status_code == 200
        assert "0 new, 2 asked before" in page.text
        assert "<h3>AVG(dep_delay)</h3>" in page.text
        price = plain.post("/datasets/flights/sql/price", data={"sql": SELECT}, headers={"HX-Request": "true"}).text
        assert "free, asked before" in price
        empty = plain.get("/datasets/flights/sql", headers={"Accept": "text/html"}).text
        assert 'placeholder="SELECT AVG(' in empty
    assert session.sql(SELECT).equals(first)

    async def later() -> pl.DataFrame:
        async with await connect_async(server.url, token) as remote:
            assert (await remote.price_sql(SELECT)).answers == 0
            frame: pl.DataFrame = await remote.sql(SELECT)
            return frame

    assert anyio.run(later).equals(first)
    tools = Tools({"flights": session})
    told = anyio.run(tools.call, "sql", {"sql": SELECT}).structured_content
    assert told is not None
    assert [tuple(row) for row in told["rows"]] == first.rows()
    assert anyio.run(tools.call, "sql", {"sql": SELECT, "price_only": True}).structured_content["answers"] == 0  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("SELECT MAX(distance) FROM flights", 422),
        ("SELECT AVG(distance) FROM flights", 422),
        ("SELECT AVG(x) FROM planes", 404),
        ("SELECT AVG(no_such) FROM flights", 404),
    ],
)
def test_a_select_is_refused_in_the_same_words(server: Running, session: hf.Session, text: str, status: int) -> None:
    with pytest.raises(hf.HoldfastError) as refused:
        session.sql(text)
    words = str(refused.value).partition(" To declare it once")[0]  # which each surface says in its own words
    with server.client(server.token()) as plain, connect(server.url, server.token()) as client:
        for path in ("sql", "sql/price"):
            response = plain.post(f"{API}/{path}", json={"sql": text})
            assert response.status_code == status
            assert response.json()["error"].startswith(words)
        for verb in (client.sql, client.price_sql):
            with pytest.raises(type(refused.value)) as again:
                verb(text)
            assert str(again.value).startswith(words)
        page = plain.post("/datasets/flights/sql", data={"sql": text}, headers={"Accept": "text/html"})
        assert page.status_code == status
        assert words in unescape(page.text)
    told = anyio.run(Tools({"flights": session}).call, "sql", {"sql": text}).structured_content
    assert told is not None
    assert told["error"].startswith(words)


def test_a_select_that_is_too_expensive_is_refused_as_a_whole(server: Running, session: hf.Session) -> None:
    before = session.ledger.spent
    with server.client(server.token("poor", quota=3)) as plain:
        response = plain.post(f"{API}/sql", json={"sql": "SELECT AVG(distance > 9) FROM flights GROUP BY carrier"})
        assert response.status_code == 409
        words = "The quota cannot pay for this SELECT: it costs 6 answers, and 3 are left."
        assert response.json()["error"].startswith(words)
    groups = ", ".join(f"QUANTILE(dep_delay, 0.{i:02}) AS q{i}" for i in range(10, 40))
    with server.client(server.token()) as plain:
        response = plain.post(f"{API}/sql", json={"sql": f"SELECT {groups} FROM flights"})
        assert response.status_code == 409
        assert response.json()["error"].startswith("The budget cannot pay for this SELECT: it costs 600 answers")
        many = ", ".join(f"AVG(dep_delay > {i}) AS a{i}" for i in range(101))
        assert "at most 100 questions" in plain.post(f"{API}/sql", json={"sql": f"SELECT {many} FROM flights"}).text
    assert session.ledger.spent == before


def test_a_list_is_answered_and_priced_alike_everywhere(server: Running, session: hf.Session) -> None:
    token = server.token()
    with connect(server.url, token) as client, server.client(token) as plain:
        asks = [{"query": "weekend"}, *LIST[1:]]
        price = plain.post(f"{API}/batch/price", json={"asks": asks}).json()
        assert price["answers"] == client.price_many(LIST).answers == session.price_many(LIST).answers == 7
        first = client.ask_many(hf.Questions(LIST))
        assert first.frame.height == 6
        assert [answer.question for answer in session.ask_many(LIST)] == [answer.question for answer in first]
        assert client.price_many(LIST).answers == 0
        with pytest.raises(hf.UnknownName, match="No column 'no_such'"):
            client.ask_many(["weekend", "no_such > 1"])
        history = client.history()
        assert history.filter(pl.col("question") == "share of weekend")["registered"].null_count() == 0

    async def later() -> hf.Answers:
        async with await connect_async(server.url, token) as remote:
            answers: hf.Answers = await remote.ask_many(LIST)
            return answers

    assert [answer.seq for answer in anyio.run(later)] == [answer.seq for answer in first]


def test_what_is_declared_is_seen_everywhere(server: Running, session: hf.Session) -> None:
    column = session.schema["dep_delay"]
    assert (column.bounds, column.label) == ((-60.0, 600.0), "departure delay in minutes")
    token = server.token()
    with connect(server.url, token) as client, server.client(token) as plain:
        assert client.schema.columns == session.schema.columns
        described = plain.get(f"{API}/schema").json()["columns"]
        assert described == [one.to_json() for one in session.schema]
        page = plain.get("/datasets/flights", headers={"Accept": "text/html"}).text
        assert "-60 to 600" in page
        assert "departure delay in minutes" in page
        answer = plain.post(f"{API}/ask", json={"query": "dep_delay"}).json()["answer"]
        assert answer["bounds"] == [-60.0, 600.0]
    told = anyio.run(Tools({"flights": session}).call, "schema", {}).structured_content
    assert told is not None
    assert told["columns"] == described
    assert "carrier (text: UA, AA, DL)" in told["text"]


def test_the_command_line_has_them_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("yaml")
    path = table(tmp_path)
    declared = '[bounds]\ndep_delay = [-60, 600]\n[categories]\ncarrier = ["UA", "AA", "DL"]\n'
    path.with_suffix(".toml").write_text(declared)
    listed = tmp_path / "questions.yml"
    listed.write_text("- weekend\n- {query: dep_delay}\n- {kind: histogram, query: carrier}\n")

    def run(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main([words[0], str(path), *words[1:]])
        said = capsys.readouterr()
        assert ended.value.code == (0 if "MAX" not in " ".join(words) else 2), said
        return said.out + said.err

    grouped = "SELECT carrier, AVG(weekend) AS free FROM flights GROUP BY carrier"
    assert "6 answers of the budget" in run("sql", grouped, "--price", "--queries", "100")
    assert '"columns": ["carrier", "free", "free_low", "free_high"]' in run(
        "sql", grouped, "--json", "--queries", "100"
    )
    assert "QUANTILE(x, 0.99) comes near" in run("sql", "SELECT MAX(distance) FROM flights")
    assert "7 answers of the budget" in run("batch", str(listed), "--price")
    assert "3 questions registered" in run("batch", str(listed), "--register")
    assert "histogram of carrier over 'UA', 'AA', 'DL': other" in run("batch", str(listed))
    assert "registered" in run("history")
