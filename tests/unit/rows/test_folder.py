"""Column folders: reuse, renewal, damage, and what is told to the operating system."""

import gc
import json
import os
import weakref
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from holdfast.errors import RowSourceError
from holdfast.rows.decks.deal import deal
from holdfast.rows.disk import array_files, column_writer, ingest, partial
from holdfast.rows.disk.array_files import MappedArray, populate_in_background
from holdfast.rows.disk.folder import FolderRows
from holdfast.rows.disk.partial import write_whole
from holdfast.rows.open import open_rows
from plain_query import PlainQuery, rows_of

FRAME = pl.DataFrame(
    {"x": [1.0, None, 3.0], "s": ["a", "b", None], "u": ["one", "two", "three"], "n": [None, None, "x"]}
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    FRAME.write_parquet(tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


def folder_of(path: Path) -> Path:
    return path.with_name(path.name + ".holdfast")


def everything(rows: object) -> pl.DataFrame:
    assert isinstance(rows, FolderRows)
    return rows_of(rows)


def test_a_folder_is_written_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_rows(path)
    assert isinstance(first, FolderRows)
    assert first.location == folder_of(path)
    monkeypatch.setattr(ingest, "_write", None)  # would fail if called
    again = open_rows(path)
    assert again.fingerprint == first.fingerprint
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["t.parquet", "t.parquet.holdfast"]


def test_columns_are_plain_array_files(path: Path) -> None:
    open_rows(path)
    assert np.load(folder_of(path) / "00000.values.npy").tolist() == [1.0, 0.0, 3.0]
    assert np.load(folder_of(path) / "00000.valid.npy").tolist() == [True, False, True]


def test_a_changed_file_is_read_again(path: Path) -> None:
    before = open_rows(path)
    FRAME.reverse().write_parquet(path)
    after = open_rows(path)
    assert after.fingerprint != before.fingerprint
    assert_frame_equal(everything(after), FRAME.reverse())
    assert_frame_equal(everything(before), FRAME)  # who had it open keeps what it opened


def test_a_touched_file_is_read_again_and_is_the_same_data(path: Path) -> None:
    before = open_rows(path)
    state = json.loads((folder_of(path) / "manifest.json").read_text())["source"]["state"]
    os.utime(path, ns=(1, 1))
    after = open_rows(path)
    assert after.fingerprint == before.fingerprint
    assert json.loads((folder_of(path) / "manifest.json").read_text())["source"]["state"] != state


def test_a_folder_of_ones_own_choice(path: Path, tmp_path: Path) -> None:
    rows = open_rows(path, folder=tmp_path / "deep" / "er")
    assert isinstance(rows, FolderRows)
    assert rows.location == tmp_path / "deep" / "er"
    assert not folder_of(path).exists()


def test_a_folder_outlives_its_file(path: Path) -> None:
    fingerprint = open_rows(path).fingerprint
    path.unlink()
    assert open_rows(folder_of(path)).fingerprint == fingerprint


def test_somebody_elses_folder_is_never_replaced(path: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "thesis.txt").write_text("years of work")
    with pytest.raises(RowSourceError, match="not a holdfast folder"):
        open_rows(path, folder=theirs)
    assert (theirs / "thesis.txt").read_text() == "years of work"
    open_rows(path)
    (folder_of(path) / "notes.txt").write_text("mine")
    os.utime(path, ns=(1, 1))
    with pytest.raises(RowSourceError, match="not a holdfast folder"):
        open_rows(path)
    assert (folder_of(path) / "notes.txt").exists()


def test_a_place_that_cannot_be_written_is_refused(path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RowSourceError, match="Cannot write"):
        open_rows(path, folder=tmp_path / "file" / "folder")


def damage_truncate(folder: Path) -> None:
    os.truncate(folder / "00000.values.npy", 130)


def damage_remove(folder: Path) -> None:
    (folder / "00001.codes.npy").unlink()


def damage_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"format": "holdfast column folder", "version": 2}')


def damage_json(folder: Path) -> None:
    (folder / "manifest.json").write_text("{")


def damage_header(folder: Path) -> None:
    size = (folder / "00000.values.npy").stat().st_size
    (folder / "00000.values.npy").write_bytes(bytes(size))


def damage_version(folder: Path) -> None:
    content = json.loads((folder / "manifest.json").read_text()) | {"version": 99}
    (folder / "manifest.json").write_text(json.dumps(content))


def damage_type(folder: Path) -> None:
    content = json.loads((folder / "manifest.json").read_text())
    content["columns"][0]["type"] = "int8"
    (folder / "manifest.json").write_text(json.dumps(content))


def damage_length(folder: Path) -> None:
    content = json.loads((folder / "manifest.json").read_text()) | {"rows": 2}
    (folder / "manifest.json").write_text(json.dumps(content))


DAMAGES = [
    damage_truncate,
    damage_remove,
    damage_manifest,
    damage_json,
    damage_header,
    damage_version,
    damage_type,
    damage_length,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_folder_does_not_open_and_heals_from_its_file(path: Path, damage: object) -> None:
    fingerprint = open_rows(path).fingerprint
    damage(folder_of(path))  # type: ignore[operator]
    with pytest.raises(RowSourceError):
        open_rows(folder_of(path))
    assert open_rows(path).fingerprint == fingerprint


def test_a_folder_of_another_version_is_refused_and_written_anew_from_its_file(path: Path) -> None:
    open_rows(path)
    for version in (1, 99, None):
        manifest = folder_of(path) / "manifest.json"
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": version}))
        with pytest.raises(RowSourceError, match="another version of holdfast; delete it and open the original file"):
            open_rows(folder_of(path))
        assert_frame_equal(everything(open_rows(path)), FRAME)
        assert json.loads(manifest.read_text())["version"] == 7


def test_changed_bytes_are_found_by_verifying(path: Path) -> None:
    rows = open_rows(path)
    assert isinstance(rows, FolderRows)
    rows.verify()
    with (folder_of(path) / "00000.values.npy").open("r+b") as file:
        file.seek(128)
        file.write(b"\x01")
    with pytest.raises(RowSourceError, match=r"is damaged: 00000\.values\.npy does not hold"):
        rows.verify()


def test_a_file_that_changes_while_it_is_read_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill = ingest._fill

    def slow(*args: object, **options: object) -> object:
        done = fill(*args, **options)  # type: ignore[arg-type]
        os.utime(path, ns=(5, 5))
        return done

    monkeypatch.setattr(ingest, "_fill", slow)
    with pytest.raises(RowSourceError, match="changed while it was read"):
        open_rows(path)
    assert [entry.name for entry in path.parent.iterdir()] == ["t.parquet"]


def test_a_full_disk_is_told_and_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: object, values: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(column_writer.ArrayFile, "append", full)
    with pytest.raises(RowSourceError, match="No space left"):
        open_rows(path)
    assert [entry.name for entry in path.parent.iterdir()] == ["t.parquet"]


@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_an_overflowing_dictionary_becomes_packed_texts(path: Path, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = open_rows({name: FRAME[name] for name in FRAME.columns})
    monkeypatch.setattr(ingest, "_MOST_DISTINCT", most)
    rows = open_rows(path)
    assert_frame_equal(everything(rows), FRAME)
    assert rows.fingerprint == plain.fingerprint
    layouts = [entry["layout"] for entry in json.loads((folder_of(path) / "manifest.json").read_text())["columns"]]
    needed = {"s": 2, "u": 3, "n": 1}
    assert layouts == ["numbers", *("coded" if needed[name] <= most else "packed" for name in "sun")]


def test_a_dictionary_of_long_texts_becomes_packed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "DICTIONARY_BYTES", 5)
    assert_frame_equal(everything(open_rows(path)), FRAME)
    assert (folder_of(path) / "00002.texts.npy").exists()
    assert (folder_of(path) / "00001.codes.npy").exists()


def test_files_larger_than_memory_are_read_alike(path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    requested = []
    request = MappedArray.request

    def watched(self: MappedArray, indices: np.ndarray) -> None:
        requested.append(indices.size)
        request(self, indices)

    monkeypatch.setattr(MappedArray, "request", watched)
    monkeypatch.setattr(array_files, "_memory", lambda which: 0.0)
    rows = open_rows(path)
    assert_frame_equal(everything(rows), FRAME)
    assert not requested  # all rows are read in order
    assert_frame_equal(rows_of(rows, [2, 0, 2]), FRAME[[2, 0, 2]])
    assert set(requested) == {3}
    query = PlainQuery(("x", "s"), lambda frame: np.ones(frame.height, dtype=np.bool_))
    assert rows.tally(query, draws=10, mass=0.0, rng=np.random.default_rng(seed)).tolist() == [0, 10]


def test_progress_is_shown_when_asked_for(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    open_rows(path, progress=False)
    assert capfd.readouterr() == ("", "")
    os.utime(path, ns=(1, 1))
    open_rows(path)  # not a terminal
    assert capfd.readouterr() == ("", "")
    os.utime(path, ns=(2, 2))
    open_rows(path, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "Preparing t " in err


@pytest.mark.parametrize(("file", "folder"), [(0o600, 0o700), (0o640, 0o750), (0o644, 0o755), (0o400, 0o700)])
def test_who_may_not_read_the_file_may_not_enter_the_folder(path: Path, file: int, folder: int) -> None:
    path.chmod(file)
    open_rows(path)
    assert folder_of(path).stat().st_mode & 0o777 == folder


def test_only_what_fits_is_populated(path: Path) -> None:
    folder = open_rows(path).location  # type: ignore[attr-defined]
    arrays = [
        MappedArray(folder / "00000.values.npy", np.dtype(np.float64), 3),
        MappedArray(folder / "00000.valid.npy", np.dtype(np.bool_), 3),
    ]
    sizes = [array.size for array in arrays]
    assert sizes == [128 + 24, 128 + 3]
    assert populate_in_background(arrays, 1_000) == 1_000 - sum(sizes)
    assert populate_in_background(arrays, 140) == 140 - sizes[1]
    assert populate_in_background(arrays, 0) == 0


def test_two_who_write_a_small_file_at_once_both_write_it_whole(tmp_path: Path, monkeypatch) -> None:
    path, sync = tmp_path / "manifest.json", os.fsync

    def interrupted(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", sync)
        write_whole(path, "another's")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", interrupted)
    write_whole(path, "ours")
    assert path.read_text() == "ours"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_small_file_that_cannot_be_written_leaves_the_old_one_and_nothing_else(tmp_path: Path, monkeypatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "manifest.json"
    write_whole(path, "old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_whoever_is_interrupted_while_waiting_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(handle: int, how: int) -> None:
        held.append(handle)
        raise KeyboardInterrupt

    held: list[int] = []
    monkeypatch.setattr(partial.fcntl, "flock", interrupt)
    with pytest.raises(KeyboardInterrupt), partial.locked_partial(tmp_path / "t.holdfast"):
        pass
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held[0])


@pytest.mark.parametrize("ending", ["", ".deck"])
def test_rows_that_nobody_holds_leave_no_file_open(path: Path, ending: str) -> None:
    """Without the garbage collector, which comes by after so many objects, not after so many open files."""
    kept: Path = deal(path, path.with_suffix(".deck"), cards=10).location if ending else path  # type: ignore[union-attr]
    gc.collect()
    gc.disable()
    try:
        rows = open_rows(kept)
        freed = weakref.ref(rows._deals[0] if ending else rows)  # type: ignore[attr-defined]
        rows.close()  # type: ignore[attr-defined]
        del rows
        assert freed() is None
    finally:
        gc.enable()
