"""What cannot be resumed: killed at any moment, it leaves nothing that opens; the same call starts over and says so."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from holdfast.errors import RowSourceError
from holdfast.rows.decks.deck import Deck
from holdfast.rows.disk.folder import FolderRows
from holdfast.rows.open import open_rows
from killed import Forks

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")

ROWS, UNITS = 6_000, 301

READER = """
import os
from pathlib import Path
import polars as pl
import duckdb, pyarrow as pa, pyarrow.parquet as pq
from killed import count_events
from holdfast.rows import units
from holdfast.rows.decks import cards, sorting, supply
from holdfast.rows.disk import array_files, folder
from holdfast.rows.scans import remote, scan
from holdfast.rows.decks.deal import deal
from holdfast.rows.open import open_rows

scan.BATCH = remote.BATCH = cards.CHUNK = 1_000
sorting.MOST = sorting.LEAST = 1_000
sorting._RUN = 1
units.PARTITIONS, units.CHUNK_BYTES, units.MOST_BYTES = 8, 40_000, 40_000
count_events(
    (array_files.ArrayFile, "append"), (array_files.ArrayFile, "close"), (folder.Manifest, "write"),
    (supply.Spool, "write"), (sorting.Runs, "collect"), (units._Spill, "write"), (os, "fsync"), (Path, "rename"),
)

def source_of(kind, table):
    if kind == "lazy frame":
        return pl.scan_parquet(table)
    if kind == "Arrow stream":
        file = pq.ParquetFile(table)
        return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches(1_000))
    if kind == "relation of DuckDB":
        return duckdb.sql(f"SELECT * FROM '{table}'")
    return table  # an address, or a file

def act(kind, table, verb, where, unit):
    if verb == "open":
        open_rows(source_of(kind, table), folder=where, unit=unit, progress=True)
    else:
        deal(source_of(kind, table), where, cards=3_000 if unit is None else 20, unit=unit, progress=True)
"""
STREAMS = ["lazy frame", "Arrow stream", "relation of DuckDB"]


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with Forks(READER, tmp_path_factory.mktemp("said")) as forks:
        yield forks


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.parquet"
    rows = range(ROWS)
    pl.DataFrame(
        {"x": [i / 7 for i in rows], "text": [f"text {i}" for i in rows], "u": [i % UNITS for i in rows]}
    ).write_parquet(path)
    return path


def opens(place: Path) -> bool:
    try:
        open_rows(place)
    except RowSourceError:
        return False
    return True


def bytes_in(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def must_start_over(
    readers: Forks, kind: str, source: str, verb: str, folder: Path, unit: str | None, until: float = 1.0
) -> None:
    """Kill it at several moments, some twice; `until` is the share of its events after which it would be resumed."""
    folder.mkdir()
    done = folder / ("rows.holdfast" if verb == "open" else "rows.deck")
    whole = readers.run(kind, source, verb, str(done), unit)
    assert whole.code == 0, whole.error
    assert "over" not in whole.error
    assert "again" not in whole.error
    beside, size, last = sorted(each.name for each in folder.iterdir()), bytes_in(folder), whole.events
    end, drawn = int(until * last), ROWS if unit is None else UNITS
    for moment in sorted({end // 4, end - 2, end - 1}):
        there = folder.with_name(f"{folder.name} {moment}")
        there.mkdir()
        place = there / done.name
        assert readers.run(kind, source, verb, str(place), unit, kill_before=moment).killed
        left = {each.name for each in there.iterdir()}
        for hidden in there.rglob(".*"):  # it may have been killed just before it got its name
            assert not opens(hidden) or (verb == "open" and len(open_rows(hidden)) == drawn)
        if opens(place):  # killed after that
            continue
        (partial,) = there.rglob(".*.partial")
        (partial / "left").touch()
        assert readers.run(kind, source, verb, str(place), unit, kill_before=moment).killed
        assert {each.name for each in there.iterdir()} == left  # one takes the place of the other
        assert not (partial / "left").exists()
        again = readers.run(kind, source, verb, str(place), unit)
        assert again.code == 0, again.error
        said = "all rows were read again" if verb == "open" else "everything was dealt again"
        assert said in " ".join(again.error.split()), again.error
        assert again.events >= last - 1  # it started over
        assert sorted(each.name for each in there.iterdir()) == beside
        assert bytes_in(there) < size + size // 10
        rows = FolderRows(place) if verb == "open" else Deck(place)
        rows.verify()
        assert len(rows) == drawn


@pytest.mark.slow
@pytest.mark.parametrize("unit", [None, "u"])
@pytest.mark.parametrize("verb", ["open", "deal"])
@pytest.mark.parametrize("kind", STREAMS)
def test_streams(readers: Forks, table: Path, tmp_path: Path, kind: str, verb: str, unit: str | None) -> None:
    must_start_over(readers, kind, str(table), verb, tmp_path / "made", unit)


@pytest.mark.slow
@pytest.mark.parametrize("unit", [None, "u"])
@pytest.mark.parametrize("verb", ["open", "deal"])
def test_a_table_of_postgres(
    readers: Forks, table: Path, tmp_path: Path, postgres_url: str, verb: str, unit: str | None
) -> None:
    pytest.importorskip("adbc_driver_postgresql")
    psycopg = pytest.importorskip("psycopg")
    plain = postgres_url.replace("postgresql+psycopg://", "postgresql://")
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS killed")
        connection.execute(
            f"CREATE TABLE killed AS SELECT i / 7.0::float8 AS x, 'text ' || i AS text, i % {UNITS} AS u"
            f" FROM generate_series(0, {ROWS - 1}) AS i"
        )
        address = f"{plain}{'&' if '?' in plain else '?'}table=killed"
        must_start_over(readers, "address", address, verb, tmp_path / "made", unit)
        connection.execute("DROP TABLE killed")


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["open", "deal"])
def test_rows_of_a_file_by_unit_while_they_are_read(readers: Forks, table: Path, tmp_path: Path, verb: str) -> None:
    must_start_over(readers, "file", str(table), verb, tmp_path / "made", "u", until=0.1)
