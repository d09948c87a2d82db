"""Packs in a folder: written once, mapped after that, whole or not at all, and checked like every other column."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.errors import RowSourceError
from holdfast.optimize.objective import LossAt, domain_of
from holdfast.rows.disk import array_files, packs
from holdfast.rows.draws import WithReplacement

ROWS = 500
LOSS = hf.losses.Logistic({"a": (-1.0, 2.0), "b * 2": (0.0, 1.0)}, target="c > 0.5")


@pytest.fixture
def file(tmp_path):
    rng = np.random.default_rng(5)
    frame = pl.DataFrame({"a": rng.normal(size=ROWS), "b": rng.random(ROWS), "c": rng.random(ROWS)})
    frame.write_parquet(tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def query_of(source, loss=LOSS):
    return LossAt(loss.bind(source.schema, domain_of(3, 1.0, None)), np.array([0.3, -0.4, 0.2]))


def fitted(file, times=20, loss=LOSS):
    source = hf.open(file)
    query = query_of(source, loss)
    for _ in range(times):
        values = source.sample(query, WithReplacement(30), np.random.default_rng(3))
    return source, values


def kept_files(source):
    return sorted(path.name for path in source.location.glob("pack-*"))


def watch_making(monkeypatch):
    made = []
    original = packs.Packs._pieces
    monkeypatch.setattr(
        packs.Packs,
        "_pieces",
        lambda self, packing, make: made.append(packing.identity) or original(self, packing, make),
    )
    return made


def test_the_first_fit_writes_and_the_next_maps(file, monkeypatch):
    made = watch_making(monkeypatch)
    _, drawn = fitted(file, times=1)
    source, first = fitted(file)
    assert len(made) == 2  # features, target
    assert [Path(name).suffix for name in kept_files(source)].count(".npy") == 2
    again, second = fitted(file, times=1)
    assert len(made) == 2
    assert not any(pack.flags.writeable for pack in again._packs._kept.values())
    assert (first == drawn).all()
    assert (second == drawn).all()
    again.verify()


def test_fits_of_other_targets_share_the_features(file, monkeypatch):
    made = watch_making(monkeypatch)
    fitted(file)
    other = hf.losses.Logistic(LOSS.features, target="c > 0.25")
    source, _ = fitted(file, loss=other)
    assert len(made) == 3
    assert len(kept_files(source)) == 6


def test_a_pack_of_other_rows_or_another_version_is_made_anew(file, monkeypatch):
    source, _ = fitted(file)
    made = watch_making(monkeypatch)
    for name, value in (("version", "0.0.1"), ("fingerprint", "other rows"), ("hash", "")):
        for described in source.location.glob("pack-*.json"):
            described.write_text(json.dumps(json.loads(described.read_text()) | {name: value}))
        made.clear()
        fitted(file)
        assert len(made) == 2, name


def change(path: Path) -> None:
    with path.open("r+b") as opened:
        opened.seek(array_files.HEADER + 40)
        opened.write(b"\x00\x00\x40\x40")


def test_a_small_pack_that_was_changed_is_made_anew(file):
    source, before = fitted(file)
    for path in source.location.glob("pack-*.npy"):
        change(path)
    _, after = fitted(file)
    assert (before == after).all()
    with (source.location / kept_files(source)[1]).open("r+b") as opened:
        opened.truncate(200)
    assert (fitted(file)[1] == before).all()


def test_a_large_pack_that_was_changed_is_found_in_the_background(file, monkeypatch):
    source, _ = fitted(file)
    for path in source.location.glob("pack-*.npy"):
        change(path)
    monkeypatch.setattr(array_files, "AT_ONCE", 0)
    found, _ = fitted(file, times=1)
    for _ in range(200):
        if found._check._fault is not None:
            break
        time.sleep(0.02)
    with pytest.raises(RowSourceError, match="is damaged: pack-"):
        found.sample(query_of(found), WithReplacement(30), np.random.default_rng(3))


def test_a_mapped_pack_that_is_cut_off_is_refused(file):
    source, _ = fitted(file)
    for path in source.location.glob("pack-*.npy"):
        os.truncate(path, 200)
    with pytest.raises(RowSourceError, match="is damaged: pack-"):
        source.sample(query_of(source), WithReplacement(30), np.random.default_rng(3))


def test_where_there_is_no_room_packs_stay_in_memory(file, monkeypatch):
    monkeypatch.setattr(packs, "MOST_STORED", ROWS * 4)  # the target's
    source, _ = fitted(file)
    assert len(kept_files(source)) == 2
    assert len(source._packs._kept) == 2


def test_a_folder_that_cannot_be_written_is_no_obstacle(file, monkeypatch):
    def full(self, values):
        raise OSError(28, "No space left on device")

    _, before = fitted(file, times=1)
    monkeypatch.setattr(packs.ArrayFile, "append", full)
    source, after = fitted(file)
    assert not kept_files(source)
    assert len(source._packs._kept) == 2
    assert (before == after).all()


def test_one_process_writes_at_a_time(file):
    source = hf.open(file)
    with source._packs._elsewhere._locked() as alone:
        assert alone
        held, _ = fitted(file)
        assert not kept_files(held)
        assert len(held._packs._kept) == 2


CHILD = """
import os, signal, sys
import numpy as np
sys.path.insert(0, {tests!r})
import test_pack_files as t
from pathlib import Path
from holdfast.rows.disk import packs
def die(*args, **options):
    os.kill(os.getpid(), signal.SIGKILL)
setattr({where}, {what!r}, die)
t.fitted(Path({file!r}))
"""
STEPS = [
    ("packs.ArrayFile", "append"),
    ("packs.ArrayFile", "close"),
    ("packs.Path", "replace"),
    ("packs.PackFiles", "_describe"),
    ("packs.json", "dump"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("where", "what"), STEPS)
def test_a_writer_that_is_killed_leaves_nothing_that_counts(file, where, what):
    _, before = fitted(file, times=1)
    code = CHILD.format(tests=str(Path(__file__).parent), where=where, what=what, file=str(file))
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    source, after = fitted(file)
    assert (before == after).all()
    names = kept_files(source)
    assert len(names) == 4
    assert not any(name.endswith(".partial") for name in names)
