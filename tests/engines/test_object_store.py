"""Files in an object store, read by Polars itself: against a local S3 server (moto)."""

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from holdfast.errors import RowSourceError
from holdfast.rows.decks.deal import deal
from holdfast.rows.decks.deck import Deck
from holdfast.rows.open import open_rows
from holdfast.rows.scans.files import FileScan

moto = pytest.importorskip("moto.server")
boto3 = pytest.importorskip("boto3")
FRAME = pl.DataFrame({"id": np.arange(3_000), "x": np.arange(3_000) / 7})


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)  # what is kept of an address lies in the current folder
    server = moto.ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=endpoint)
    client.create_bucket(Bucket="lake")
    for i, part in enumerate(FRAME.iter_slices(1_000)):
        part.write_parquet(tmp_path / "part.parquet")
        client.upload_file(str(tmp_path / "part.parquet"), "lake", f"events/part-{i}.parquet")
    yield "s3://lake/events"
    server.stop()


def test_an_address_is_a_table(bucket: str, tmp_path: Path) -> None:
    single = tmp_path / "one.parquet"
    FRAME.write_parquet(single)
    for address in (f"{bucket}/", f"{bucket}/*.parquet"):
        rows = open_rows(address, folder=tmp_path / "kept.holdfast")
        assert (len(rows), rows.fingerprint) == (3_000, open_rows(single).fingerprint)
    assert open_rows(f"{bucket}/part-0.parquet").location == tmp_path / "part-0.holdfast"


def test_a_deck_from_an_address(bucket: str, tmp_path: Path) -> None:
    made = deal(f"{bucket}/*.parquet", tmp_path / "events.deck", cards=500)
    assert isinstance(made, Deck)
    assert len(made) == 3_000


def replace_part(tmp_path: Path, by: int) -> None:
    """Put another object of the same name, size and rows there: one value differs."""
    frame = FRAME[1_000:2_000].with_columns(pl.col("id") + by * (pl.col("id") == 1_500).cast(pl.Int64))
    frame.write_parquet(tmp_path / "part.parquet")
    boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"]).upload_file(
        str(tmp_path / "part.parquet"), "lake", "events/part-1.parquet"
    )


def test_an_object_that_was_replaced_is_noticed(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "kept.holdfast"
    first = open_rows(f"{bucket}/", folder=folder).fingerprint
    time = (folder / "manifest.json").stat().st_mtime_ns
    assert open_rows(f"{bucket}/", folder=folder).fingerprint == first
    assert (folder / "manifest.json").stat().st_mtime_ns == time  # not read again
    replace_part(tmp_path, 1)
    assert open_rows(f"{bucket}/", folder=folder).fingerprint != first

    made = deal(f"{bucket}/", tmp_path / "events.deck", cards=50)
    assert isinstance(made, Deck)
    batches, numbers = FileScan.batches, count(2)

    def slow(self: FileScan, after: int = 0) -> Iterator[pl.DataFrame]:
        yield from batches(self, after)
        replace_part(tmp_path, next(numbers))

    monkeypatch.setattr(FileScan, "batches", slow)
    with pytest.raises(RowSourceError, match="changed while it was dealt"):
        deal(f"{bucket}/", tmp_path / "other.deck", cards=50)
    with pytest.raises(RowSourceError, match="changed while it was read"):
        open_rows(f"{bucket}/", folder=tmp_path / "other.holdfast")


def test_folders_named_by_values_are_columns(bucket: str, tmp_path: Path) -> None:
    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    for year in (2024, 2025):
        FRAME.head(year - 2_000).write_parquet(tmp_path / "part.parquet")
        client.upload_file(str(tmp_path / "part.parquet"), "lake", f"years/year={year}/part.parquet")
    rows = open_rows("s3://lake/years/", folder=tmp_path / "years.holdfast")
    assert (len(rows), rows.schema.names) == (24 + 25, ("id", "x", "year"))


def test_an_address_with_nothing_is_refused(bucket: str, tmp_path: Path) -> None:
    with pytest.raises(RowSourceError, match="Cannot read s3://lake/none"):
        open_rows("s3://lake/none/*.parquet", folder=tmp_path / "none.holdfast")
