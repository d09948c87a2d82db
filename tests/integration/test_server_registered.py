"""Datasets that the admin registers: over the API and on the page, with every setting that the server's file takes."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import date
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest

from holdfast.errors import InvalidArgument
from holdfast.service.schemas import NOT_SENT, DatasetIn
from holdfast.service.settings import DatasetSettings, Settings, load
from serving import Running, settings, table

DATASETS = "/api/v1/datasets"
CHOSEN: dict[str, Any] = {
    "margin": 0.2,
    "confidence": 0.9,
    "guarantee": "posterior",
    "bounds": {"dep_delay": [-60, 600]},
    "categories": {"carrier": ["UA", "AA"]},
    "labels": {"distance": "miles"},
    "complete": ["distance"],
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Running(settings(table(tmp_path), data_folder=str(tmp_path))) as running:
        table(tmp_path, 3_000, "trains")
        yield running


@pytest.fixture
def admin(server: Running) -> Iterator[httpx.Client]:
    with server.client(server.token("admin", admin=True)) as client:
        yield client


def fill_in(server: Running, **form: str) -> httpx.Response:
    """Register a file on the admin's page."""
    with server.client(Origin=server.url, Accept="text/html") as browser:
        browser.post("/sign-in", data={"token": server.token("page", admin=True)})
        return browser.post("/admin/datasets", data=form)


def columns(client: httpx.Client, name: str) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in client.get(f"{DATASETS}/{name}/schema").json()["columns"]}


def test_every_setting_of_a_dataset_can_be_sent_but_those_of_places_and_of_chance() -> None:
    assert NOT_SENT == ("path", "ledger", "seed")
    expected = {one.name for one in fields(DatasetSettings)} - set(NOT_SENT) | {"name", "file"}
    assert DatasetIn.model_fields.keys() == expected


def is_as_chosen(client: httpx.Client, name: str) -> None:
    plan = client.get(f"{DATASETS}/{name}/plan").json()["plan"]
    assert (plan["guarantee"], plan["confidence"]) == ("posterior", 0.9)
    found = columns(client, name)
    assert found["dep_delay"]["bounds"] == [-60, 600]
    assert found["carrier"]["categories"] == ["UA", "AA"]
    assert found["distance"]["label"] == "miles"
    assert [one for one in found if not found[one]["nullable"]] == ["distance"]


def test_what_was_chosen_stands_also_after_a_restart(tmp_path: Path) -> None:
    chosen = settings(table(tmp_path), data_folder=str(tmp_path))
    table(tmp_path, 3_000, "trains")
    with Running(chosen) as server, server.client(server.token("admin", admin=True)) as client:
        sent = client.post(DATASETS, json={"name": "rail", "file": "trains.parquet"} | CHOSEN)
        assert sent.status_code == 200, sent.text
        is_as_chosen(client, "rail")
    with Running(chosen) as server, server.client(server.token("admin 2", admin=True)) as client:
        is_as_chosen(client, "rail")


def test_the_page_takes_the_same_settings_as_lines_of_the_servers_file(server: Running, admin: httpx.Client) -> None:
    page = admin.get("/admin", headers={"Accept": "text/html"}).text
    for name in DatasetIn.model_fields:
        assert name in page
    lines = (
        'margin = 0.2\r\nconfidence = 0.9\r\nguarantee = "posterior"\r\nbounds = { dep_delay = [-60, 600] }\r\n'
        'categories = { carrier = ["UA", "AA"] }\r\nlabels = { distance = "miles" }\r\ncomplete = ["distance"]'
    )
    shown = fill_in(server, name="rail", file="trains.parquet", settings=lines)
    assert "Serving rail." in shown.text
    is_as_chosen(admin, "rail")


def test_a_text_file_is_served_as_it_is_written(server: Running, admin: httpx.Client, tmp_path: Path) -> None:
    rows = [f"0{n};{n % 7},5" if n % 50 else f"0{n};NA" for n in range(300)]
    for name, more in (("sent", "1;2"), ("lines", "2;3")):  # the same rows twice would be refused
        (tmp_path / f"{name}.csv").write_text("\n".join(["zip code;share", *rows, more]))
    sent = {"name": "sent", "file": "sent.csv", "separator": ";", "decimal": ",", "null_values": ["NA"]}
    refused = admin.post(DATASETS, json={"name": "sent", "file": "sent.csv", "separator": ";", "decimal": ","})
    assert refused.status_code == 422
    assert refused.json()["error"].endswith('say so in its settings: null_values = ["NA"].')
    answered = admin.post(DATASETS, json=sent | {"types": {"zip code": "text"}})
    assert answered.status_code == 200, answered.text
    shown = fill_in(server, name="lines", file="lines.csv")
    said = unescape(shown.text).partition("All together: ")[2].partition(".</")[0]
    assert said == 'separator = ";" and decimal = "," and null_values = ["NA"]'
    lines = "\n".join([*said.split(" and "), 'types = { "zip code" = "text" }', 'encoding = "latin-1"'])
    assert "Serving lines." in fill_in(server, name="lines", file="lines.csv", settings=lines).text
    for name in ("sent", "lines"):
        assert {one: found["type"] for one, found in columns(admin, name).items()} == {
            "zip code": "text",
            "share": "number",
        }


def test_a_text_file_in_the_servers_file_is_read_as_said(tmp_path: Path) -> None:
    rows = "".join(f"0{n}\t{n % 7}\n" for n in range(300))
    (tmp_path / "trips.csv").write_text(f"zip\tshare\n{rows}")
    file = tmp_path / "server.toml"
    file.write_text('[datasets.trips]\npath = "trips.csv"\nseparator = "\\t"\ntypes = { zip = "text" }\n')
    read = Settings.from_json(load({}, config=file, environment={}).to_json())  # as worker processes receive them
    with Running(replace(read, data_folder=None)) as server, server.client(server.token()) as client:
        assert {one: found["type"] for one, found in columns(client, "trips").items()} == {
            "zip": "text",
            "share": "integer",
        }
    for wrong in ('types = { zip = "str" }', 'separator = ";;"', "null_values = 3", 'encoding = "none"', "decimal = 1"):
        file.write_text(f'[datasets.trips]\npath = "trips.csv"\n{wrong}\n')
        with pytest.raises(InvalidArgument, match=wrong.partition(" ")[0]):
            load({}, config=file, environment={})


def test_what_a_file_needs_is_said_in_the_words_of_where_it_is_named(tmp_path: Path) -> None:
    path, file = tmp_path / "trips.csv", tmp_path / "server.toml"
    path.write_text("share\n" + "1\n" * 300 + "NA\n")
    file.write_text('[datasets.trips]\npath = "trips.csv"\n')
    for words, way_out in (
        (["--config", str(file)], 'say so in its settings: null_values = ["NA"].'),
        ([str(path)], f"say so: holdfast open {path} --null-values NA."),
    ):
        command = [sys.executable, "-m", "holdfast", "serve", *words, "--port", "0"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
        assert (ended.returncode, ended.stderr.rstrip().endswith(way_out)) == (7, True), ended.stderr


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("margin 0.2", "Settings must be lines such as margin = 0.02, in TOML"),
        ("margin = 2", "margin: must be less than 1"),
        ("no_such = 2", "no_such"),
        ("seed = 1", "seed"),
        ('ledger = "x"', "ledger"),
        ("queries = 5", "queries has"),
        ("a = " + 20_000 * "[", "Settings must be lines"),
    ],
)
def test_settings_that_do_not_fit_are_refused_on_the_page(server: Running, lines: str, says: str) -> None:
    shown = fill_in(server, name="rail", file="trains.parquet", settings=lines)
    assert shown.status_code == 422
    assert says in unescape(shown.text)
    assert server.state.datasets.names() == ["flights"]


def test_dates_may_be_categories_on_the_page_and_with_several_processes(server: Running, tmp_path: Path) -> None:
    days = [date(2024, 1, 1), date(2024, 1, 2)]
    pl.DataFrame({"day": days * 2_000, "x": range(4_000)}).write_parquet(tmp_path / "days.parquet")
    lines = "categories = { day = [2024-01-01, 2024-01-02] }"
    assert "Serving days." in fill_in(server, name="days", file="days.parquet", settings=lines).text
    with server.client(server.token()) as client:
        assert columns(client, "days")["day"]["categories"] == ["2024-01-01", "2024-01-02"]
    chosen = Settings(datasets={"days": DatasetSettings(path="days.parquet", categories={"day": days})})
    sent = Settings.from_json(chosen.to_json())  # as worker processes receive them
    assert sent.datasets["days"].categories == {"day": ["2024-01-01", "2024-01-02"]}


def test_an_earlier_version_of_a_delta_table_is_registered(
    server: Running, admin: httpx.Client, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake")
    first = pl.DataFrame({"x": range(3_000)})
    deltalake.write_deltalake(str(tmp_path / "lake"), first.to_arrow())
    deltalake.write_deltalake(str(tmp_path / "lake"), first.to_arrow(), mode="append")
    sent = admin.post(DATASETS, json={"name": "early", "file": "lake", "version": 0})
    assert sent.status_code == 200, sent.text
    assert admin.get(f"{DATASETS}/early").json()["rows"] == 3_000
    shown = fill_in(server, name="late", file="lake", settings="version = 1")
    assert "Serving late." in shown.text
    assert admin.get(f"{DATASETS}/late").json()["rows"] == 6_000
    for version, says in ((7, "lake"), (-1, "version")):
        refused = admin.post(DATASETS, json={"name": "none", "file": "lake", "version": version})
        assert refused.status_code == 422
        assert says in refused.json()["error"]
        assert str(tmp_path) not in refused.text
    refused = admin.post(DATASETS, json={"name": "none", "file": "trains.parquet", "version": 1})
    assert refused.status_code == 422
    assert "version must be left out unless" in refused.json()["error"]
