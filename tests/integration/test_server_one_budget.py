"""A server gives one content one budget, whatever it is called and whatever became of its ledger meanwhile."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import InvalidArgument, LedgerDamaged
from holdfast.ledger.opening import forget_all
from holdfast.rows.decks.deal import deal
from holdfast.service.app import build
from holdfast.service.settings import DatasetSettings, Settings
from serving import Running, table


def serving(files: dict[str, Path], **more: Any) -> Settings:
    datasets = {name: DatasetSettings(path=str(path), queries=200) for name, path in files.items()}
    return Settings(datasets=datasets, port=0, **({"rate": 1e6, "burst": 10**6} | more))


def ask(server: Running, count: int, start: int = 0) -> None:
    with server.client(server.token(f"ana {start}")) as client:
        for i in range(start, start + count):
            sent = client.post("/api/v1/datasets/flights/ask", json={"kind": "mean", "query": f"distance > {i}"})
            assert sent.status_code == 200, sent.text


@pytest.mark.parametrize("database", [None, "sqlite"])
def test_two_names_for_the_same_rows_are_refused_at_the_start(tmp_path: Path, database: str | None) -> None:
    first = table(tmp_path)
    second = first.with_name("trips.parquet")
    shutil.copy(first, second)
    chosen = serving({"flights": first, "trips": second}, database=database and f"sqlite:///{tmp_path}/ledgers.db")
    with pytest.raises(InvalidArgument, match="'flights' and 'trips' are the same"):
        build(chosen)


@pytest.mark.parametrize("checks", [None, 0.1])
def test_two_decks_of_one_table_are_refused_at_the_start(tmp_path: Path, checks: float | None) -> None:
    """Whichever rows they keep for checks."""
    source, decks = table(tmp_path), {name: tmp_path / f"{name}.deck" for name in ("one", "other")}
    deal(source, decks["one"], cards=20_000, checks=0.1)
    deal(source, decks["other"], cards=20_000, checks=checks)
    with pytest.raises(InvalidArgument, match="'one' and 'other' are the same"):
        build(serving(decks))


def test_two_names_for_one_file_are_refused_when_it_is_registered(tmp_path: Path) -> None:
    chosen = serving({"flights": table(tmp_path)}, data_folder=str(tmp_path))
    with Running(chosen) as server, server.client(server.token("admin 2", admin=True)) as client:
        body = {"name": "trips", "file": "flights.parquet", "queries": 200}
        sent = client.post("/api/v1/datasets", json=body)
        assert sent.status_code == 422
        assert "are the same" in sent.json()["error"]
        listed = client.get("/api/v1/datasets").json()
        assert "trips" not in str(listed)


def test_a_dataset_renamed_in_a_shared_database_is_refused(tmp_path: Path) -> None:
    path, database = table(tmp_path), f"sqlite:///{tmp_path}/ledgers.db"
    with Running(serving({"flights": path}, database=database)) as server:
        ask(server, 3)
    forget_all()
    path.with_name("flights.parquet.witness").unlink()  # the database knows its contents by itself
    with pytest.raises(InvalidArgument, match=r"already, as dataset 'flights'.* flights=FILE"):
        build(serving({"trips": path}, database=database))
    with Running(serving({"flights": path}, database=database)) as server:
        ask(server, 1, start=3)


def test_a_server_misses_what_its_own_database_saw(tmp_path: Path) -> None:
    path = table(tmp_path)
    ledger, witness = path.with_name("flights.parquet.ledger"), path.with_name("flights.parquet.witness")
    with Running(serving({"flights": path})) as server:
        ask(server, 5)
    shutil.copy(ledger, tmp_path / "old")
    with Running(serving({"flights": path})) as server:
        ask(server, 5, start=5)
    shutil.copy(tmp_path / "old", ledger)
    witness.unlink()  # a folder that was put back as a whole has none that is newer
    forget_all()
    with pytest.raises(LedgerDamaged, match="ends with answer 5, and the server's database saw 10 answers"):
        build(serving({"flights": path}))
