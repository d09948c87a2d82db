"""Reading a file in is all or nothing: under kill -9 at every kind of moment, and with many at it at once."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from holdfast.errors import RowSourceError
from holdfast.rows.folder import FolderRows
from holdfast.rows.open import open_rows

ROWS = 40_000

# Kills itself, with the signal nobody can catch, just before the given event.
CHILD = """
import os, signal, sys
from pathlib import Path
from holdfast.rows import column_writer, folder
from holdfast.rows.scans import scan
from holdfast.rows.open import open_rows

scan.BATCH = 10_000
left = int(sys.argv[2])

def counted(owner, name):
    act = getattr(owner, name)
    def event(*args, **options):
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return act(*args, **options)
    setattr(owner, name, event)

for owner, name in [
    (column_writer.ArrayFile, "append"), (column_writer.ArrayFile, "close"), (column_writer.ArrayFile, "abandon"),
    (folder.Manifest, "write"), (os, "fsync"), (Path, "rename"),
]:
    counted(owner, name)
print("ready", flush=True)
open_rows(sys.argv[1])
print("events", 10**9 - left)
"""


def start(path: Path, kill_before: int = 10**9) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), str(kill_before)], stdout=subprocess.PIPE, text=True
    )


def write_table(path: Path) -> str:
    texts = [f"text number {i}" for i in range(ROWS)]
    frame = pl.DataFrame({"x": np.arange(ROWS) / 7, "s": texts, "c": [text[-1] for text in texts]})
    frame.write_parquet(path)
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
def test_killed_just_before_an_event(tmp_path: Path, renewal: bool) -> None:
    path, fingerprint, allowed = prepare(tmp_path / "rehearsal", renewal)
    output, _ = start(path).communicate()
    events = int(output.split()[-1])
    # the last ones are the delicate ones: headers, manifest, durability, renaming
    for moment in (0, events // 2, *range(events - 6, events)):
        path, fingerprint, allowed = prepare(tmp_path / str(moment), renewal)
        child = start(path, moment)
        child.communicate()
        assert child.returncode == -signal.SIGKILL
        assert partial_of(path).exists() or moment == events - 1
        whole_or_nothing(path, allowed)
        assert_recovers(path, fingerprint)


def test_killed_at_random_moments(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    path, fingerprint, allowed = prepare(tmp_path / "rows", renewal=True)
    for _ in range(6):
        child = start(path)
        assert child.stdout is not None
        child.stdout.readline()  # everything is imported
        time.sleep(chance.random() * 0.15)
        child.kill()
        child.communicate()
        whole_or_nothing(path, allowed)
        os.utime(path)  # whoever finished is out of date again
    assert_recovers(path, fingerprint)


def test_many_at_once_agree(tmp_path: Path) -> None:
    path, fingerprint, _ = prepare(tmp_path / "rows", renewal=True)
    found: list[str] = []
    children = [start(path) for _ in range(2)]
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
