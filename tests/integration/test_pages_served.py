"""What pages offer works: the same question elsewhere is the same, and suggestions can be asked as they are."""

import contextlib
import html
import io
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from holdfast.questions import KINDS
from serving import Running, settings, table

FORMS = [
    {"kind": "mean", "query": "dep_delay > 15"},
    {"kind": "mean", "query": "weekend", "where": "carrier = 'UA'"},
    {"kind": "mean", "query": "dep_delay", "by": "carrier"},
    {"kind": "mean", "query": "dep_delay > 30", "by": "carrier", "groups": "UA, AA, DL", "where": "weekend"},
    {"kind": "mean", "query": "dep_delay", "within": "-60, 600", "by": "carrier, weekend"},
    {"kind": "difference", "query": "weekend", "group": "carrier = 'UA'", "other": "carrier = 'AA'"},
    {"kind": "histogram", "query": "carrier"},
    {"kind": "quantile", "query": "dep_delay", "q": "0.9", "steps": "2"},
    {"kind": "minimize", "loss": "logistic: weekend ~ dep_delay [-60, 600]", "radius": "1", "iterations": "2"},
]
HAS_SQL = {"mean", "quantile", "histogram"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    declared = {"bounds": {"dep_delay": (-60, 600)}, "categories": {"carrier": ["UA", "AA", "DL"]}}
    plan = {"queries": None, "complete": ["dep_delay", "weekend"]}
    with Running(settings(table(tmp_path_factory.mktemp("pages"), rows=200_000), dataset=declared | plan)) as running:
        yield running


def offered(page: str) -> dict[str, str]:
    """Return the texts of a page that ask its question elsewhere, by language."""
    found = re.findall(r"<h4>(\w+)</h4>.*?<code>(.*?)</code>", page, re.DOTALL)
    return {language: html.unescape(text) for language, text in found}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form["kind"])
def test_the_same_question_elsewhere_is_free(
    server: Running, form: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    token = server.token("ana")
    monkeypatch.setenv("HOLDFAST_TOKEN", token)
    with server.client(token) as client:
        page = client.post("/datasets/flights/ask", data=form, headers={"Accept": "text/html"})
        assert page.status_code == 200, page.text
        texts = offered(page.text)
        if "Python" in texts:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(texts["Python"], {})
            assert "asked before, free" in printed.getvalue()
        assert ("Python" in texts) == ("query" in form)
        sent = subprocess.run(["bash", "-c", texts["curl"]], capture_output=True, text=True, check=True)
        assert json.loads(sent.stdout)["answer"]["cached"]
        assert ("SQL" in texts) == (form["kind"] in HAS_SQL and "steps" not in form)
        if "SQL" in texts:
            answered = client.post("/api/v1/datasets/flights/sql", json={"sql": texts["SQL"]}).json()
            assert [one["answer"]["cached"] for one in answered["results"]] == [True]


def test_the_same_select_elsewhere_is_free(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    token = server.token("ana")
    monkeypatch.setenv("HOLDFAST_TOKEN", token)
    statement = "SELECT carrier, AVG(dep_delay > 45) AS late\nFROM flights WHERE carrier <> 'AA' GROUP BY carrier"
    with server.client(token, Accept="text/html") as client:
        texts = offered(client.post("/datasets/flights/sql", data={"sql": statement}).text)
        assert texts.keys() == {"Python", "curl"}
        before = client.get("/api/v1/datasets/flights/head", headers={"Accept": "application/json"}).json()
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(texts["Python"], {})
        assert "late_low" in printed.getvalue()
        sent = subprocess.run(["bash", "-c", texts["curl"]], capture_output=True, text=True, check=True)
        assert [one["answer"]["cached"] for one in json.loads(sent.stdout)["results"]] == [True]
        assert client.get("/api/v1/datasets/flights/head", headers={"Accept": "application/json"}).json() == before


def test_every_suggestion_can_be_asked_as_it_is(server: Running) -> None:
    with server.client(server.token("ana")) as client:
        page = client.get("/datasets/flights", headers={"Accept": "text/html"}).text
        listed = re.search(r'<ul class="suggestions".*?</ul>', page, re.DOTALL)
        assert listed is not None
        addresses = [html.unescape(address) for address in re.findall(r'href="([^"]+)"', listed[0])]
        assert len(addresses) == 4
        for address in addresses:
            assert client.get(address, headers={"Accept": "text/html"}).status_code == 200
            form = dict(parse_qsl(address.partition("?")[2]))
            asked = client.post("/datasets/flights/dry-run", data=form, headers={"Accept": "text/html"})
            assert asked.status_code == 200, asked.text


def test_examples_are_about_the_columns_there_are(tmp_path: Path) -> None:
    with Running(settings(table(tmp_path, rows=300), dataset={"queries": None})) as server:
        with server.client(server.token("ana")) as client:
            page = client.get("/datasets/flights", headers={"Accept": "text/html"}).text
        assert 'placeholder="dep_delay &gt; 0"' in page
        assert 'name="rows_per_unit"' not in page  # there are no units
        with server.client(server.token("ana")) as client:
            plan = client.get("/plan?format=json").json()
        assert plan["asked"]["rows"] == 300  # what is served, not a number out of the air


def test_examples_fit_the_kind(server: Running) -> None:
    def shown(kind: str) -> dict[str, str]:
        with server.client(server.token("ana")) as client:
            form = client.get("/datasets/flights", params={"kind": kind, "format": "json"}).json()["form"]
        return {one["name"]: one["example"] for one in form["fields"] + form["more"]}

    assert shown("mean")["query"] == "dep_delay > 0"
    assert shown("quantile")["query"] == "dep_delay"
    assert shown("histogram")["query"] == "carrier"
    assert shown("correlation")["other"] == "distance"
    assert shown("difference")["other"] == "carrier = 'DL'"
    assert shown("auc")["positive"] == "distance > 0"  # of the other column, whose range nobody declared


def test_what_is_used_up_has_no_next_margin_and_a_registration_no_axis(tmp_path: Path) -> None:
    with (
        Running(settings(table(tmp_path, rows=300), dataset={"queries": 1})) as server,
        server.client(server.token("ana"), Accept="text/html") as client,
    ):
        client.post("/datasets/flights/ask", data={"kind": "register", "questions": "weekend"})
        history = client.get("/datasets/flights/history").text
        assert "1 question registered" in history
        assert 'class="axis"' not in history
        assert "margin of the next answer" in client.get("/datasets/flights").text
        client.post("/datasets/flights/ask", data={"query": "weekend"})
        for page in ("/", "/datasets/flights"):
            shown = client.get(page).text
            assert "<dt>answers left</dt><dd>0</dd>" in shown
            assert "margin now" not in shown
            assert "margin of the next answer" not in shown
        assert 'class="axis"' in client.get("/datasets/flights/history").text


REFUSED_BY_MEANS = {"flips", "check", "submit", "confusion", "units"}


@pytest.mark.parametrize(
    ("plan", "refused"),
    [
        ({"queries": None}, REFUSED_BY_MEANS),
        ({"queries": {"mean": 40, "flip": 100}}, REFUSED_BY_MEANS - {"flips"}),
        ({"queries": None, "checks": 0.5}, REFUSED_BY_MEANS - {"check"}),
        ({"queries": None, "unit": "carrier"}, REFUSED_BY_MEANS - {"units"} | {"count", "total"}),
        ({"queries": 40, "guarantee": "expectation"}, REFUSED_BY_MEANS | {"histogram", "top", "auc"}),
        ({"queries": None, "guarantee": "checks"}, {one.name for one in KINDS.all()} - {"check"}),
    ],
    ids=["endless", "flips", "checks beside", "units", "expectation", "checks only"],
)
def test_a_form_offers_the_kinds_that_the_guarantee_answers(
    tmp_path: Path, plan: dict[str, Any], refused: set[str]
) -> None:
    with Running(settings(table(tmp_path), dataset=plan)) as server, server.client(server.token("ana")) as client:
        spent = server.state.datasets.get("flights", server.state.admin).session.ledger.spent
        offered = [one["name"] for one in client.get("/datasets/flights?format=json").json()["kinds"]]
        assert offered == [one.name for one in KINDS.all() if one.name not in refused]
        assert server.state.datasets.get("flights", server.state.admin).session.ledger.spent == spent


def test_a_page_says_percent_without_a_space(server: Running) -> None:
    with server.client(server.token("ana")) as client:
        page = client.get("/datasets/flights", headers={"Accept": "text/html"}).text
        form = {"kind": "mean", "query": "dep_delay > 25"}
        answered = client.post("/datasets/flights/ask", data=form, headers={"Accept": "text/html"}).text
    assert "<dd>95%</dd>" in page
    assert "With probability 95% all answers hold at once" in answered


@pytest.mark.parametrize("form", ["margin=nan", "solve=queries&margin=inf", "confidence=nan", "rows=1e400"])
def test_what_is_no_number_is_refused_in_words(server: Running, form: str) -> None:
    with server.client(server.token()) as client:
        for accept in ("application/json", "text/html"):
            assert client.get(f"/plan?{form}", headers={"Accept": accept}).status_code == 422


@pytest.mark.parametrize(
    ("address", "sentence"),
    [("/datasets/nope", "No dataset 'nope' for your token."), ("/nope", "There is nothing at this address.")],
)
def test_a_page_does_not_speak_of_the_api(server: Running, address: str, sentence: str) -> None:
    with server.client(server.token("ana")) as client:
        page = html.unescape(client.get(address, headers={"Accept": "text/html"}).text)
        for_programs = client.get(address, headers={"Accept": "application/json"}).json()["error"]
    (shown,) = re.findall(r'role="alert"[^>]*>\s*(?:<p>)?\s*(.*?)\s*<', page)
    assert shown == sentence
    assert "/api/v1/" in for_programs


def test_pages_of_few_rows_propose_no_options_of_python(tmp_path: Path) -> None:
    with (
        Running(settings(table(tmp_path, rows=5), dataset={"queries": None})) as server,
        server.client(server.token("ana"), Accept="text/html") as client,
    ):
        pages = [client.get(path).text for path in ("/", "/datasets/flights", "/datasets/flights/history", "/plan")]
        assert sum("Plan a few questions, or bring more rows." in page for page in pages) == 2
        plan = client.get("/api/v1/datasets/flights/plan", headers={"Accept": "application/json"}).json()
    for text in [re.sub(r"<[^>]+>", " ", html.unescape(page)) for page in pages] + [plan["text"]]:
        assert "queries=" not in text
