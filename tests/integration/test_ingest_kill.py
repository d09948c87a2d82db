"""Reading a file in is all or nothing: under kill -9 at every kind of moment, and with many at it at once."""

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from holdfast.errors import RowSourceError
from holdfast.rows.disk.folder import FolderRows
from holdfast.rows.open import open_rows
from killed import NEVER, Forks

ROWS = 40_000

READER = """
import os
from pathlib import Path
from killed import count_events
from holdfast.rows.disk import column_writer, folder, ingest
from holdfast.rows.scans import scan
from holdfast.rows.open import open_rows

scan.BATCH = 10_000
ingest._MOST_DISTINCT = 25_000  # of the texts of one column more come up, halfway
batches = scan.LazyScan.batches

def noted(self, after=0):
    with open(f"{self.files[0]}.read", "a") as file:
        for batch in batches(self, after):
            file.write(f"{batch.height}\\n")
            file.flush()
            yield batch

scan.LazyScan.batches = noted
count_events(
    (column_writer.ArrayFile, "append"), (column_writer.ArrayFile, "close"), (column_writer.ArrayFile, "abandon"),
    (folder.Manifest, "write"), (os, "fsync"), (Path, "rename"), (Path, "replace"),
)

def act(path):
    open_rows(path)
"""

UNITS_READER = (
    READER.replace("def act(path):\n    open_rows(path)", "")
    + """
from holdfast.rows import units

units.PARTITION_BYTES, units.CHUNK_BYTES, units.MOST_BYTES = 100_000, 700_000, 400_000
count_events((units._Spill, "write"), (Path, "write_text"))

def act(path):
    open_rows(path, unit="u")
"""
)


@pytest.fixture(scope="module")
def unit_readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with Forks(UNITS_READER, tmp_path_factory.mktemp("said by unit")) as forks:
        yield forks


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with Forks(READER, tmp_path_factory.mktemp("said")) as forks:
        yield forks


def write_table(path: Path) -> str:
    texts = [f"text number {i}" for i in range(ROWS)]
    frame = pl.DataFrame(
        {
            "x": np.arange(ROWS) / 7,
            "s": texts,
            "c": [None if i % 1_000 == 15 else texts[i][-1] for i in range(ROWS)],
            "i": [None if 15_000 <= i < 16_000 else i for i in range(ROWS)],
            "u": [i % 3_001 if i % 2 else 7 for i in range(ROWS)],  # one of them is large
        }
    )
    frame.write_parquet(path, compression="uncompressed", statistics=False)  # so that others have the same size
    return open_rows(frame).fingerprint


def folder_of(path: Path) -> Path:
    return path.with_name(path.name + ".holdfast")


def partial_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.holdfast.partial")


def whole_or_nothing(path: Path, allowed: set[str]) -> None:
    """Whatever lies beside the file either does not open or is one of the allowed tables, complete."""
    for found in [folder_of(path), *path.parent.glob(".*")]:
        try:
            rows = open_rows(found)
        except RowSourceError:
            continue
        assert isinstance(rows, FolderRows)
        rows.verify()
        assert rows.fingerprint in allowed


def prepare(folder: Path, renewal: bool) -> tuple[Path, str, set[str]]:
    """Write a table, perhaps over an older one that was read in before."""
    folder.mkdir()
    path = folder / "t.parquet"
    allowed = set()
    if renewal:
        pl.DataFrame({"x": [1]}).write_parquet(path)
        allowed.add(open_rows(path).fingerprint)
    fingerprint = write_table(path)
    return path, fingerprint, allowed | {fingerprint}


def assert_recovers(path: Path, fingerprint: str) -> None:
    assert open_rows(path).fingerprint == fingerprint
    assert sorted(found.name for found in path.parent.iterdir()) == [path.name, path.name + ".holdfast"]


@pytest.mark.parametrize("renewal", [False, True], ids=["first time", "over an outdated folder"])
def test_killed_just_before_an_event(readers: Forks, tmp_path: Path, renewal: bool) -> None:
    path, fingerprint, allowed = prepare(tmp_path / "rehearsal", renewal)
    whole = readers.run(str(path))
    assert whole.code == 0, whole.error
    last = whole.events
    # the last ones are the delicate ones: headers, manifest, durability, renaming
    for moment in (0, last // 4, last // 2, *range(last - 6, last)):
        path, fingerprint, allowed = prepare(tmp_path / str(moment), renewal)
        assert readers.run(str(path), kill_before=moment).killed
        assert partial_of(path).exists() or moment == last - 1
        whole_or_nothing(path, allowed)
        read_by(path).unlink(missing_ok=True)
        assert_recovers(path, fingerprint)


def read_by(path: Path) -> Path:
    return path.with_name(f"{path.name}.read")


def rows_read(path: Path) -> int:
    """How many rows the readers took from the file since this was last asked."""
    noted = read_by(path)
    found = sum(map(int, noted.read_text().split())) if noted.exists() else 0
    noted.unlink(missing_ok=True)
    return found


def files_in(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.glob("*.npy"))}


def test_whoever_comes_next_goes_on_and_writes_the_same_files(readers: Forks, tmp_path: Path) -> None:
    """Codes that become packed texts halfway, marks that begin halfway; killed everywhere, and more than once."""
    path, fingerprint, _ = prepare(tmp_path / "whole", renewal=False)
    last = readers.run(str(path)).events
    whole, read = files_in(folder_of(path)), []
    assert rows_read(path) == ROWS
    for moment in range(2, last, 5):
        path, fingerprint, _ = prepare(tmp_path / str(moment), renewal=False)
        assert readers.run(str(path), kill_before=moment).killed
        readers.run(str(path), kill_before=moment // 2)
        rows_read(path)
        again = readers.run(str(path))
        assert again.code == 0, again.error
        read.append(rows_read(path))
        assert files_in(folder_of(path)) == whole, moment
        assert_recovers(path, fingerprint)
    # from the beginning only while nothing is noted, and in the one batch after which codes are packed
    assert read[0] == ROWS
    assert read.count(ROWS) <= len(read) / 2
    assert min(read) == 0


def test_rows_by_unit_go_on_once_all_are_read(unit_readers: Forks, tmp_path: Path) -> None:
    """Killed everywhere, and more than once; the files are the same, and what was read is not read again."""
    path, fingerprint, _ = prepare(tmp_path / "whole", renewal=False)
    last = unit_readers.run(str(path)).events
    whole, read = files_in(folder_of(path)), []
    assert rows_read(path) == ROWS
    for moment in range(2, last, max(1, last // 24)):
        path, fingerprint, allowed = prepare(tmp_path / str(moment), renewal=False)
        assert unit_readers.run(str(path), kill_before=moment).killed
        whole_or_nothing(path, allowed)
        unit_readers.run(str(path), kill_before=moment // 2)
        rows_read(path)
        again = unit_readers.run(str(path))
        assert again.code == 0, again.error
        read.append(rows_read(path))
        assert files_in(folder_of(path)) == whole, moment
        assert_recovers(path, fingerprint)
    assert set(read) == {0, ROWS}
    assert read[0] == ROWS
    assert read.count(0) >= len(read) / 3


@pytest.mark.parametrize("change", ["other rows", "cut", "turned", "removed", "note", "another unit", "no unit"])
def test_rows_by_unit_that_changed_meanwhile_are_read_from_the_beginning(
    unit_readers: Forks, readers: Forks, tmp_path: Path, change: str
) -> None:
    path, fingerprint, _ = prepare(tmp_path / "rows", renewal=False)
    last = unit_readers.run(str(path), kill_before=NEVER).events
    whole = files_in(folder_of(path))
    path, fingerprint, _ = prepare(tmp_path / "again", renewal=False)
    assert unit_readers.run(str(path), kill_before=last * 2 // 3).killed
    rows_read(path)
    chunk = partial_of(path) / "chunk.1"
    assert chunk.exists()
    if change == "other rows":
        frame = pl.read_parquet(path).with_columns(pl.col("x").reverse())
        frame.write_parquet(path, compression="uncompressed", statistics=False)
        fingerprint = open_rows(frame).fingerprint
    elif change == "cut":
        os.truncate(chunk, 1_000)
    elif change == "turned":
        with chunk.open("r+b") as opened:
            opened.seek(5_000)
            opened.write(b"!")
    elif change == "removed":
        chunk.unlink()
    elif change == "note":
        (partial_of(path) / "begun.json").write_text("{")
    if change == "another unit":
        assert len(open_rows(path, unit="s")) == ROWS
    elif change == "no unit":
        again = readers.run(str(path))
        assert again.code == 0, again.error
        assert rows_read(path) == ROWS
    else:
        again = unit_readers.run(str(path))
        assert again.code == 0, again.error
        assert rows_read(path) == ROWS
        assert (files_in(folder_of(path)) == whole) == (change != "other rows")
    assert_recovers(path, fingerprint)


@pytest.mark.parametrize("change", ["other rows", "other rows, same size and time", "cut", "turned", "removed", "note"])
def test_what_changed_meanwhile_is_read_from_the_beginning(readers: Forks, tmp_path: Path, change: str) -> None:
    path, fingerprint, _ = prepare(tmp_path / "rows", renewal=False)
    last = readers.run(str(path), kill_before=NEVER).events
    path, fingerprint, _ = prepare(tmp_path / "again", renewal=False)
    assert readers.run(str(path), kill_before=last // 2).killed
    rows_read(path)
    file = partial_of(path) / "00000.values.npy"
    if change.startswith("other rows"):
        before = path.stat()
        frame = pl.read_parquet(path).with_columns(pl.col("x").reverse())
        frame.write_parquet(path, compression="uncompressed", statistics=False)
        fingerprint = open_rows(frame).fingerprint
        if "same" in change:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            assert path.stat().st_size == before.st_size
    elif change == "cut":
        os.truncate(file, 1_000)
    elif change == "turned":
        with file.open("r+b") as opened:
            opened.seek(5_000)
            opened.write(b"!")
    elif change == "removed":
        file.unlink()
    else:
        (partial_of(path) / "begun.json").write_text("{")
    again = readers.run(str(path))
    assert again.code == 0, again.error
    assert rows_read(path) == ROWS
    assert_recovers(path, fingerprint)


def test_killed_at_random_moments(readers: Forks, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    path, fingerprint, allowed = prepare(tmp_path / "rows", renewal=True)
    for _ in range(8):
        readers.run(str(path), kill_after=chance.random() * 0.15)
        whole_or_nothing(path, allowed)
        os.utime(path)  # whoever finished is out of date again
    read_by(path).unlink(missing_ok=True)
    assert_recovers(path, fingerprint)


def test_many_at_once_agree(tmp_path: Path) -> None:
    path, fingerprint, _ = prepare(tmp_path / "rows", renewal=True)
    found: list[str] = []
    command = [sys.executable, "-c", "import sys, holdfast; holdfast.open(sys.argv[1])", str(path)]
    children = [subprocess.Popen(command) for _ in range(2)]
    threads = [threading.Thread(target=lambda: found.append(open_rows(path).fingerprint)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for child in children:
        child.communicate()
        assert child.returncode == 0
    assert found == [fingerprint] * 4
    assert_recovers(path, fingerprint)
