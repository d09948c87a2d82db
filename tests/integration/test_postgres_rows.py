"""Rows in PostgreSQL: a table or a query, in one snapshot, whatever is written meanwhile."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from holdfast.errors import InvalidArgument, RowSourceError
from holdfast.rows.decks.deal import deal
from holdfast.rows.decks.deck import Deck
from holdfast.rows.open import open_rows
from holdfast.rows.scans.remote import PostgresScan, scan_postgres
from plain_query import rows_of

pytest.importorskip("adbc_driver_postgresql")


@pytest.fixture
def url(postgres_url: str) -> Iterator[str]:
    psycopg = pytest.importorskip("psycopg")
    plain = postgres_url.replace("postgresql+psycopg://", "postgresql://")
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS events")
        connection.execute("CREATE TABLE events (id bigint, x double precision, kind text, at timestamptz)")
        connection.execute(
            "INSERT INTO events SELECT i, i / 7.0, 'kind ' || i % 5, timestamptz 'epoch' + i * interval '1 s'"
            " FROM generate_series(1, 2000) AS i"
        )
        yield plain
        connection.execute("DROP TABLE events")


def at(url: str, **options: str) -> str:
    from urllib.parse import urlencode

    return f"{url}{'&' if '?' in url else '?'}{urlencode(options)}"


def test_a_table_and_a_query(url: str, tmp_path: Path) -> None:
    rows = open_rows(at(url, table="public.events"), folder=tmp_path / "events.holdfast")
    assert (len(rows), rows.name) == (2_000, "events")
    assert [str(column.type) for column in rows.schema] == ["integer", "number", "text", "timestamp"]
    assert rows_of(rows).sort("id")["x"].to_list() == [i / 7 for i in range(1, 2_001)]
    some = open_rows(at(url, query="SELECT id FROM events WHERE id > 1500;"), folder=tmp_path / "some.holdfast")
    assert len(some) == 500
    with pytest.raises(RowSourceError, match="is there already"):
        open_rows(at(url, table="events"), folder=tmp_path / "events.holdfast")


def test_writes_meanwhile_are_not_seen(url: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    scan = scan_postgres(at(url, table="events"))
    scan.open()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DELETE FROM events WHERE id <= 1000")
        connection.execute("INSERT INTO events (id) SELECT generate_series(5000, 5999)")
    assert scan.rows() == 2_000
    assert sorted(pl.concat(scan.batches())["id"]) == list(range(1, 2_001))
    scan.close()


@pytest.mark.parametrize("checks", [None, 0.1])
def test_a_deck_from_postgres(url: str, tmp_path: Path, checks: float | None) -> None:
    made = deal(at(url, table="events"), tmp_path / "events.deck", cards=500, checks=checks)
    assert isinstance(made, Deck)
    assert (len(made), made.cards.stop, made.kept_count) == (2_000, 500, 200 if checks else 0)


def test_what_cannot_be_read(url: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="must name a table or a query"):
        open_rows(url)
    with pytest.raises(RowSourceError, match=r"Cannot read .* from PostgreSQL"):
        open_rows(at(url, table="nothing"), folder=tmp_path / "n.holdfast")
    scan = scan_postgres("postgresql://somebody:secret@host/db?table=t")
    assert isinstance(scan, PostgresScan)
    assert "secret" not in scan.where + scan.origin().name
