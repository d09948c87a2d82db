"""Tables read once, batch by batch: many files, partitions, streams, lakes, CSV as it is written elsewhere."""

import gzip
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import holdfast as hf
from holdfast.cli import main
from holdfast.errors import InvalidArgument, MissingExtra, RowSourceError
from holdfast.rows.decks.deal import deal
from holdfast.rows.decks.deck import Deck
from holdfast.rows.disk import ingest
from holdfast.rows.disk.folder import FolderRows
from holdfast.rows.engines.ray import scan as ray_scan
from holdfast.rows.open import find_scan, open_rows
from holdfast.rows.scans import pieces, scan, texts
from holdfast.rows.scans.files import FileScan
from holdfast.rows.scans.scan import ColumnsLeftOut, LazyScan
from holdfast.rows.scans.texts import Dialect
from holdfast.rows.source import RowSource
from holdfast.schema import Type
from holdfast.service.datasets import _open as open_served
from holdfast.service.settings import DatasetSettings
from plain_query import rows_of

FRAME = pl.DataFrame({"id": np.arange(1_000), "x": np.arange(1_000) / 7, "kind": ["a", "b", None, "d"] * 250})


def same(rows: RowSource, frame: pl.DataFrame = FRAME) -> None:
    assert_frame_equal(rows_of(rows), frame.select(rows.schema.names), check_exact=True)


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    folder = tmp_path / "parts"
    folder.mkdir()
    for i, part in enumerate(FRAME.iter_slices(300)):
        part.write_parquet(folder / f"part-{i}.parquet")
    return folder


# -- files ----------------------------------------------------------------------------------------------------------


def test_a_glob_a_list_and_a_folder_are_one_table(parts: Path, tmp_path: Path) -> None:
    single = tmp_path / "one.parquet"
    FRAME.write_parquet(single)
    fingerprint = open_rows(single).fingerprint
    sources: dict[str, Any] = {
        "glob": str(parts / "part-*.parquet"),
        "list": sorted(parts.iterdir()),
        "folder": parts,
    }
    for name, source in sources.items():
        rows = open_rows(source, folder=tmp_path / f"{name}.holdfast")
        same(rows)
        assert rows.fingerprint == fingerprint


@pytest.mark.parametrize("how", ["the name", "another name", "a link", "a hard link"])
def test_a_file_is_not_read_twice(parts: Path, tmp_path: Path, how: str) -> None:
    """The attack: list it twice, or link to the newest part beside it; twice as many rows seem to be independent."""
    one, *others = sorted(parts.iterdir())
    again = {"the name": one, "another name": parts / ".." / "parts" / one.name}.get(how, parts / "latest.parquet")
    if how == "a link":
        again.symlink_to(one.name)
    elif how == "a hard link":
        again.hardlink_to(one)
    for source in [[one, *others, again]] + ([parts, str(parts / "*.parquet")] if "link" in how else []):
        with pytest.raises(RowSourceError, match="would be read twice"):
            open_rows(source, folder=tmp_path / "f.holdfast")
    assert not (tmp_path / "f.holdfast").exists()


def test_rows_to_look_at_are_not_read_beside_those_that_they_came_from(parts: Path) -> None:
    one = min(parts.iterdir())
    _, session = hf.hold_back(one, id="id")
    session.close()
    for source in (parts, str(parts / "*.parquet"), sorted(parts.glob("*.parquet"))):
        with pytest.raises(RowSourceError, match=r"part-0\.explore\.parquet has rows of a table that was split"):
            open_rows(source)
    assert len(open_rows(parts / "part-0.explore.parquet")) == len(open_rows(one)) // 2


def test_where_columns_of_many_files_are_kept(parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_rows("parts").location == tmp_path / "parts.holdfast"
    rows = open_rows("parts/*.parquet")
    assert (rows.location, rows.name) == (tmp_path / "parts.holdfast", "parts")


def test_files_that_changed_are_read_again(parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_rows(parts)
    assert open_rows(parts).fingerprint == first.fingerprint
    (parts / "part-3.parquet").unlink()
    assert len(open_rows(parts)) == 900
    FRAME.write_csv(parts / "more.csv")
    with pytest.raises(RowSourceError, match="has files of several kinds"):
        open_rows(str(parts / "*"))


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl", "arrow"])
def test_whoever_has_read_some_rows_is_given_the_others(tmp_path: Path, ending: str) -> None:
    write = {"csv": "write_csv", "jsonl": "write_ndjson", "arrow": "write_ipc"}.get(ending, "write_parquet")
    for i, part in enumerate(FRAME.iter_slices(300)):
        getattr(part, write)(tmp_path / f"part-{i}.{ending}")
        if ending == "jsonl":  # in which lines may be empty
            path = tmp_path / f"part-{i}.jsonl"
            path.write_text(path.read_text().replace("\n", "\n\n", 7))
    found = find_scan(str(tmp_path / f"*.{ending}"))
    assert found is not None
    found.open()
    for after in (0, 1, 299, 300, 750, 999, 1_000):
        rest = [batch for batch in found.batches(after) if batch.height]
        assert sum(batch.height for batch in rest) == 1_000 - after
        if rest:
            assert_frame_equal(pl.concat(rest), FRAME[after:], check_exact=True)


@pytest.mark.parametrize("known", [True, False], ids=["files", "a stream"])
def test_an_interrupt_leaves_what_the_same_call_goes_on_with(
    parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], known: bool
) -> None:
    monkeypatch.setattr(scan, "BATCH", 100)
    folder, left, append = tmp_path / "rows.holdfast", 4, ingest._append

    def interrupted(columns: Any, batch: pl.DataFrame) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        append(columns, batch)

    monkeypatch.setattr(ingest, "_append", interrupted)
    source: Any = parts if known else pl.scan_parquet(parts)
    with pytest.raises(KeyboardInterrupt):
        open_rows(source, folder=folder, progress=True)
    assert ("the same call resumes" in " ".join(capsys.readouterr().err.split())) == known
    assert not folder.exists()
    assert (tmp_path / ".rows.holdfast.partial").exists() == known
    left = 100
    same(open_rows(source, folder=folder))
    assert left == (100 - 7 if known else 100 - 10)  # of ten batches, three were there
    assert not (tmp_path / ".rows.holdfast.partial").exists()


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Reads a table in, and is interrupted halfway."""
    monkeypatch.setattr(scan, "BATCH", 100)

    def run(act: Any) -> None:
        batches = scan.LazyScan.batches

        def some(self: scan.LazyScan, after: int = 0) -> Any:
            for number, batch in enumerate(batches(self, after)):
                if number == 5:
                    raise KeyboardInterrupt
                yield batch

        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(scan.LazyScan, "batches", some)
            with pytest.raises(KeyboardInterrupt):
                act()

    return run


def test_files_in_another_order_are_not_gone_on_with(parts: Path, tmp_path: Path, interrupted: Any) -> None:
    one, two, three, four = sorted(parts.iterdir())
    folder = tmp_path / "rows.holdfast"
    interrupted(lambda: open_rows([one, two, three, four], folder=folder))
    rows = open_rows([one, four, three, two], folder=folder)  # else rows of one are there twice, of another never
    assert sorted(rows_of(rows)["id"].to_list()) == list(range(1_000))


def test_partitions_are_columns(tmp_path: Path) -> None:
    for year in (2023, 2024):
        (tmp_path / "events" / f"year={year}").mkdir(parents=True)
        pl.DataFrame({"x": [1.0, year]}).write_parquet(tmp_path / "events" / f"year={year}" / "0.parquet")
    (tmp_path / "events" / "_temporary").mkdir()
    (tmp_path / "events" / "_temporary" / "0.parquet").write_bytes(b"half")
    same(open_rows(tmp_path / "events"), pl.DataFrame({"x": [1.0, 2023, 1, 2024], "year": [2023, 2023, 2024, 2024]}))


def test_json_lines(tmp_path: Path) -> None:
    FRAME.write_ndjson(tmp_path / "t.jsonl")
    same(open_rows(tmp_path / "t.jsonl"))


@pytest.mark.parametrize(
    ("source", "message"),
    [("none/*.parquet", "No file matches"), (["none.parquet"], "No file none.parquet"), ("none.jsonl", "No file")],
)
def test_what_is_not_there(source: Any, message: str) -> None:
    with pytest.raises(RowSourceError, match=message):
        open_rows(source)


# -- CSV ------------------------------------------------------------------------------------------------------------


def test_csv_as_it_is_written_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("Größe;Wert\n1;n/a\n2;5\nä;3\n".encode("latin-1"))
    rows = open_rows(path, separator=";", encoding="latin-1", null_values=["n/a"], types={"Größe": "text"})
    same(rows, pl.DataFrame({"Größe": ["1", "2", "ä"], "Wert": [None, 5, 3]}))
    assert [column.type for column in rows.schema] == [Type.STRING, Type.INT]
    same(open_rows(path), pl.DataFrame({"Größe": ["1", "2", "ä"], "Wert": [None, 5, 3]}))  # it is remembered


def test_one_column_is_probably_another_separator(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1;2\n")
    with pytest.raises(
        RowSourceError, match=r"has only one column, 'a;b'. If .* separated by ';', say so: separator=';'"
    ):
        open_rows(path)
    assert open_rows(path, separator=",").schema.names == ("a;b",)
    assert open_rows(path, separator=";").schema.names == ("a", "b")
    path.write_text("only\n1\n")
    assert open_rows(path).schema.names == ("only",)


def test_tabs_are_known_by_the_ending(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("a\tb\n1\t2\n")
    same(open_rows(tmp_path / "t.tsv"), pl.DataFrame({"a": [1], "b": [2]}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"separator": ";;"}, "separator must be one character"),
        ({"encoding": "klingon"}, "encoding must be one that Python knows"),
        ({"null_values": [1]}, "null_values must be a list of texts"),
    ],
)
def test_a_dialect_that_makes_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        open_rows("t.csv", **options)


def test_other_files_say_it_themselves(parts: Path) -> None:
    with pytest.raises(InvalidArgument, match="separator must be left out"):
        open_rows(parts / "part-0.parquet", separator=";")


def test_a_line_that_is_not_in_the_declared_encoding(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("a,b\n1,é\n".encode())
    with pytest.raises(RowSourceError, match="line 2: its text is not ascii"):
        open_rows(path, encoding="ascii")


# -- text files in pieces -------------------------------------------------------------------------------------------

HARD = '''id,text
1,"two
lines, and a ""quote"""
2,
3,"
"
4,plain
5,"é, \U0001f40d"'''


@pytest.mark.parametrize("piece", [1, 2, 7, 20, 1 << 20])
@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_csv_is_counted_in_pieces_that_respect_quotes(
    piece: int, end: str, line_end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE", piece)
    written = (HARD + end).replace("\n", line_end)
    for number in range(2):
        (tmp_path / f"{number}.csv").write_text(written, newline="")
    rows = open_rows(tmp_path / "*.csv", folder=tmp_path / "rows.holdfast")
    expected = pl.DataFrame(
        {
            "id": [1, 2, 3, 4, 5] * 2,
            "text": [f'two{line_end}lines, and a "quote"', None, line_end, "plain", "é, \U0001f40d"] * 2,
        }
    )
    same(rows, expected)


def test_files_that_are_not_mapped_are_counted_as_polars_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE", 64)
    rng, path = np.random.default_rng(0), tmp_path / "t.csv"
    cells = ["1", "x", "", '"q"', '"a,b"', '"a\nb"', '"a""b"', '""', "é"]
    for _ in range(50):
        lines = [",".join(rng.choice(cells, 3)) for _ in range(rng.integers(1, 40))]
        path.write_text("\n".join(["a,b,c", *lines]), newline="")
        scan_ = FileScan(path, [path], Dialect(types=tuple((name, Type.STRING) for name in "abc")))
        scan_.open()
        assert scan_.rows() == LazyScan.rows(scan_) == sum(batch.height for batch in scan_.batches())


def test_quotes_that_never_end_do_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", 10)
    monkeypatch.setattr(pieces, "_UNBROKEN", 50)
    path = tmp_path / "t.csv"
    path.write_text('a,b\n1,"' + "x\n" * 100 + '"\n2,y\n')
    same(open_rows(path), pl.DataFrame({"a": [1, 2], "b": ["x\n" * 100, "y"]}))


@pytest.mark.parametrize("piece", [1, 30, 1 << 20])
@pytest.mark.parametrize("after", [0, 1, 3])
def test_json_lines_are_read_in_pieces(piece: int, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", piece)
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": 1, "b": "x\\ny", "c": [1]}\n\n{"b": null, "a": 2}\r\n{"a": 3}\n{"a": 4, "b": "é"}')
    scan_ = FileScan(path, [path], Dialect())
    with pytest.warns(ColumnsLeftOut, match="'c'"):
        scan_.open()
    assert scan_.rows() == 4
    expected = pl.DataFrame({"a": [1, 2, 3, 4], "b": ["x\ny", None, None, "é"]})
    assert pl.concat(scan_.batches(after)).equals(expected.slice(after))


def test_json_that_does_not_fit_is_refused_whatever_the_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", 16)
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n{"a": \n{"a": 3}\n')
    with pytest.raises(RowSourceError, match=r"t\.jsonl, line 3: it is no record of JSON"):
        open_rows(path)
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(RowSourceError, match=r"Cannot read .* as JSON lines: it is cut off, damaged, or not"):
        open_rows(path)


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_compressed_texts_are_unpacked_by_polars(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", 16)
    path = tmp_path / name
    frame = pl.DataFrame({"a": range(100)})
    written = frame.write_csv() if name == "t.csv" else frame.write_ndjson()
    path.write_bytes(gzip.compress(written.encode()))
    same(open_rows(path), frame)


# -- streams --------------------------------------------------------------------------------------------------------


def duckdb_relation() -> object:
    return pytest.importorskip("duckdb").sql("SELECT i AS id, i / 7 AS x FROM range(1000) AS rows(i)")


def arrow_reader() -> object:
    import pyarrow as pa

    return pa.RecordBatchReader.from_batches(FRAME.to_arrow().schema, FRAME.to_arrow().to_batches(max_chunksize=100))


@pytest.mark.parametrize("make", [duckdb_relation, arrow_reader, FRAME.lazy], ids=["DuckDB", "PyArrow", "Polars"])
def test_a_stream_is_kept_in_a_folder(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument, match=r"folder must say where .*: hf.open\(source, folder="):
        open_rows(make())
    rows = open_rows(make(), folder=tmp_path / "kept.holdfast", name="kept")
    assert isinstance(rows, FolderRows)
    same(rows)
    with pytest.raises(RowSourceError, match="is there already"):
        open_rows(make(), folder=tmp_path / "kept.holdfast")
    same(open_rows(tmp_path / "kept.holdfast"))


def test_a_lazy_frame_is_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heights: list[int] = []

    def seen(frame: pl.DataFrame) -> pl.DataFrame:
        heights.append(frame.height)
        return frame

    path = tmp_path / "t.parquet"
    pl.DataFrame({"a": np.arange(600_000)}).write_parquet(path, row_group_size=50_000)
    frame = pl.scan_parquet(path).map_batches(seen, streamable=True)
    assert len(open_rows(frame, folder=tmp_path / "t.holdfast")) == 600_000
    assert max(heights) < 600_000


def test_a_stream_that_fails_quotes_nothing(tmp_path: Path) -> None:
    frame = pl.LazyFrame({"a": ["1", "secret"]}).with_columns(pl.col("a").cast(pl.Int64))
    with pytest.raises(RowSourceError, match="failed while it ran") as caught:
        open_rows(frame, folder=tmp_path / "t.holdfast")
    assert "secret" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_stream_by_unit(tmp_path: Path) -> None:
    frame = FRAME.lazy().with_columns(who=pl.col("id") // 10)
    assert len(open_rows(frame, folder=tmp_path / "t.holdfast", unit="who")) == 100


# -- lakes ----------------------------------------------------------------------------------------------------------


def test_a_delta_table_at_one_version(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    table = tmp_path / "events"
    deltalake.write_deltalake(str(table), FRAME.head(400).to_arrow())
    deltalake.write_deltalake(str(table), FRAME.slice(400).to_arrow(), mode="append")
    first = open_rows(table, version=0, folder=tmp_path / "first.holdfast")
    newest = open_rows(table)
    assert (len(first), len(newest)) == (400, 1_000)
    assert newest.location == tmp_path / "events.holdfast"
    assert_frame_equal(rows_of(newest).sort("id"), FRAME)
    assert len(open_rows(deltalake.DeltaTable(str(table), version=0), folder=tmp_path / "object.holdfast")) == 400
    with pytest.raises(RowSourceError, match="at version 7 as a Delta table"):
        open_rows(table, version=7)
    served = open_served("served", DatasetSettings(path=str(table), version=0), f"sqlite:///{tmp_path / 'ledgers.db'}")
    with served.session as session:
        assert session.plan.rows == 400
    made = deal(table, tmp_path / "events.deck", cards=50, version=0)
    assert isinstance(made, Deck)
    assert len(made) == 400


@pytest.mark.parametrize("make", [FRAME.lazy, lambda: FRAME, lambda: {"x": [1.0]}], ids=["stream", "frame", "arrays"])
def test_what_has_no_versions_refuses_one(make: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="version must be left out unless a Delta or Iceberg table is read"):
        open_rows(make(), version=1, folder=tmp_path / "t.holdfast")
    FRAME.write_csv(tmp_path / "t.csv")
    with pytest.raises(InvalidArgument, match="version must be left out"):
        open_rows(tmp_path / "t.csv", version=1)


def test_the_command_line_opens_and_deals_a_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    deltalake = pytest.importorskip("deltalake")
    monkeypatch.chdir(tmp_path)
    deltalake.write_deltalake("events", FRAME.head(400).to_arrow())
    deltalake.write_deltalake("events", FRAME.slice(400).to_arrow(), mode="append")
    for words in (
        ["open", "events", "--version", "0", "--folder", "first.holdfast"],
        ["deal", "events", "events.deck", "--cards", "50", "--version", "0"],
    ):
        with pytest.raises(SystemExit) as ended:
            main([*words, "--json"])
        assert not ended.value.code
        assert json.loads(capsys.readouterr().out)["rows"] == 400


def test_a_delta_table_is_not_gone_on_with_by_another_of_the_same_version(tmp_path: Path, interrupted: Any) -> None:
    deltalake = pytest.importorskip("deltalake")
    other = FRAME.with_columns(pl.col("id") + 10_000)
    deltalake.write_deltalake(str(tmp_path / "a"), FRAME.to_arrow())
    deltalake.write_deltalake(str(tmp_path / "b"), other.to_arrow())
    interrupted(lambda: open_rows(tmp_path / "a", folder=tmp_path / "rows.holdfast"))
    same(open_rows(tmp_path / "b", folder=tmp_path / "rows.holdfast"), other)


def test_a_delta_table_that_was_made_anew_is_read_again(tmp_path: Path, interrupted: Any) -> None:
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(str(tmp_path / "a"), FRAME.to_arrow())
    same(open_rows(tmp_path / "a"))
    interrupted(lambda: open_rows(tmp_path / "a", folder=tmp_path / "rows.holdfast"))
    shutil.rmtree(tmp_path / "a")
    other = FRAME.with_columns(pl.col("id") + 10_000)
    deltalake.write_deltalake(str(tmp_path / "a"), other.to_arrow())
    same(open_rows(tmp_path / "a", folder=tmp_path / "rows.holdfast"), other)
    same(open_rows(tmp_path / "a"), other)


def test_a_delta_table_with_deletion_vectors_is_refused(tmp_path: Path) -> None:
    """Written by hand, as other engines write it: row 3 of the one file is deleted, and the file still holds it."""
    deltalake = pytest.importorskip("deltalake")
    table = tmp_path / "events"
    deltalake.write_deltalake(str(table), FRAME.head(10).to_arrow())
    log = table / "_delta_log"
    (added,) = [
        json.loads(line)["add"] for line in (log / f"{0:020d}.json").read_text().splitlines() if '"add"' in line
    ]
    vector = {"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", "offset": 4}
    vector |= {"sizeInBytes": 40, "cardinality": 1}
    features: dict[str, object] = {"minReaderVersion": 3, "minWriterVersion": 7}
    features |= {key: ["deletionVectors"] for key in ("readerFeatures", "writerFeatures")}
    actions = [
        {"commitInfo": {"operation": "DELETE", "timestamp": 1}},
        {"protocol": features},
        {"remove": {"path": added["path"], "dataChange": True, "deletionTimestamp": 1}},
        {"add": added | {"deletionVector": vector}},
    ]
    (log / f"{1:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(RowSourceError, match="deletion vectors, which mark rows as deleted"):
        open_rows(table)
    with pytest.raises(RowSourceError, match="deletion vectors"):
        deal(table, tmp_path / "events.deck", cards=5)
    assert len(open_rows(table, version=0)) == 10


@pytest.mark.slow
def test_an_iceberg_table_with_delete_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import DataScan

    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    arrow = FRAME.to_arrow(compat_level=pl.CompatLevel.oldest())
    table = catalog.create_table("n.events", schema=arrow.schema)
    table.append(arrow)
    plan = DataScan.plan_files

    def with_deletes(self: DataScan) -> list[Any]:
        tasks = list(plan(self))
        for task in tasks:  # as if another engine had deleted a row by its position
            task.delete_files.add(task.file)
        return tasks

    monkeypatch.setattr(DataScan, "plan_files", with_deletes)
    with pytest.raises(RowSourceError, match="has delete files"):
        open_rows(table, folder=tmp_path / "t.holdfast")

    def by_value(self: DataScan) -> list[Any]:
        raise ValueError("equality deletes")

    monkeypatch.setattr(DataScan, "plan_files", by_value)
    with pytest.raises(RowSourceError, match="has delete files"):
        open_rows(table, folder=tmp_path / "t.holdfast")


# -- object stores: see tests/engines for one that answers -------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "s3://key:hunter2@lake/events/*.parquet",
        "az://lake/events.parquet?sv=2&sig=hunter2",
        "delta:s3://key:hunter2@lake/events",
    ],
)
def test_an_address_with_credentials_is_refused_and_not_quoted(address: str) -> None:
    with pytest.raises(InvalidArgument, match="an address without credentials") as refused:
        open_rows(address)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_an_object_store_needs_its_extra(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(MissingExtra, match=r"pip install 'holdfast\[objects\]'"):
        open_rows(f"{scheme}://lake/events/")


def test_a_store_that_is_not_set_up_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    with pytest.raises(RowSourceError, match=r"Cannot read az://lake/.*credentials, region and account"):
        open_rows("az://lake/events/")


@pytest.mark.slow
def test_an_iceberg_table_at_one_snapshot(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    pytest.importorskip("sqlalchemy")
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    arrow = FRAME.to_arrow(compat_level=pl.CompatLevel.oldest())
    table = catalog.create_table("n.events", schema=arrow.schema)
    table.append(arrow.slice(0, 400))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    table.append(arrow.slice(400))
    newest = open_rows(table, folder=tmp_path / "newest.holdfast")
    assert_frame_equal(rows_of(newest).sort("id"), FRAME)
    first = open_rows(table, version=snapshot.snapshot_id, folder=tmp_path / "first.holdfast")
    assert len(first) == 400
    with pytest.raises(InvalidArgument, match="version must be a snapshot"):
        open_rows(table, version=5, folder=tmp_path / "none.holdfast")


def test_batches_are_small(parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "BATCH", 100)
    same(open_rows(parts))


def test_a_line_with_too_many_values_after_a_very_long_one(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text("a,b\n1," + "x" * 200_000 + "\n1,2,3\n")
    with pytest.raises(RowSourceError, match=r"^Cannot read .*long\.csv as CSV"):
        open_rows(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n1,2,3,4\n".encode("utf-16"), "line 3: 4 values, where the header has 2 columns"),
        ("a,b\n1,2\n".encode("utf-16") + b"\x00", "its text is not utf-16, or is cut off"),
    ],
)
def test_what_is_wrong_with_a_file_in_two_bytes_a_character(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "two.csv"
    path.write_bytes(text)
    with pytest.raises(RowSourceError, match=message):
        open_rows(path, encoding="utf-16")


def test_copies_in_another_encoding_do_not_outlive_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(copies))
    path = tmp_path / "old.csv"
    path.write_bytes("name,x\ncafé,1\n".encode("latin-1"))
    with pytest.raises(InvalidArgument, match="complete must name") as refused:
        open_rows(path, encoding="latin-1", null_values=["1"], complete=["x"])
    assert not list(copies.iterdir()), refused  # which refers to everything that was under way


def test_an_address_that_is_no_pattern_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    store = ModuleType("obstore")
    monkeypatch.setitem(sys.modules, "obstore", store)
    for name, content in (("exceptions", {"BaseError": OSError}), ("store", {"from_url": lambda url: None})):
        module = ModuleType(f"obstore.{name}")
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, f"obstore.{name}", module)
    with pytest.raises(RowSourceError, match=r"s3://lake/\[z-a\]\.parquet is not a pattern"):
        find_scan("s3://lake/[z-a].parquet")


def test_ray_reads_files_that_its_workers_see(monkeypatch: pytest.MonkeyPatch) -> None:
    ray, data = ModuleType("ray"), ModuleType("ray.data")
    ray.data, data.Dataset = data, type("Dataset", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.data", data)
    with pytest.raises(InvalidArgument, match="source must be Parquet files for Ray"):
        ray_scan("s3://lake/events/*.parquet")


@pytest.mark.parametrize("piece", [12, 40, 1_000])
@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a,b,c\n1,2,3\n4,5\n7,8,9\n10,11\n", 3, "2 values, where the header has 3 columns"),
        ('a,b,c\n1,"x\ny, z",3\n"4, ""5"" "\n7,8,9\n', 4, "1 value, where the header has 3 columns"),
        ("a,b\n1,2\n\n3,4\n", 3, "no values, where the header has 2 columns"),
        ("a,b\n1,2\n3", 3, "1 value, where the header has 2 columns"),
    ],
    ids=["short", "quoted", "empty", "cut off"],
)
def test_lines_with_fewer_values_than_columns_are_told(
    piece: int, text: str, line: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, with the number of the first; a line that ends with separators says itself that values are missing."""
    monkeypatch.setattr(pieces, "PIECE", piece)
    (tmp_path / "t.csv").write_text(text)
    with pytest.warns(texts.ShortLines) as told:
        rows = open_rows(tmp_path / "t.csv", types={"a": "text", "b": "text"})
    (warning,) = told
    assert str(warning.message).startswith(f"{tmp_path / 't.csv'}, line {line}: {words}.")
    assert len(rows) == pl.read_csv(tmp_path / "t.csv").height


def test_whole_lines_are_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", 16)
    (tmp_path / "t.csv").write_bytes(b'a,b\r\n1,\r\n"x\ny, ""z"" ",2\r\n5,3\r\n,\r\n')
    assert len(open_rows(tmp_path / "t.csv", types={"a": "text"})) == 4
    (tmp_path / "one.csv").write_text("a\n1\n\n2\n")
    assert len(open_rows(tmp_path / "one.csv")) == 3
