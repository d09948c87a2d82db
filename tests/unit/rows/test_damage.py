"""Damaged column files: refused in words, never answered from, never a signal."""

import errno
import gc
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.errors import RowSourceError
from holdfast.queries.build import build_groups, build_mean
from holdfast.rows.disk import array_files
from holdfast.rows.disk import folder as folder_module
from holdfast.rows.disk.array_files import BLOCK, BlockHashes
from holdfast.rows.disk.folder import FolderRows
from holdfast.rows.draws import AllRows
from holdfast.rows.open import open_rows

ROWS = 20_000
WAIT = 60.0  # seconds until a test gives up on a thread


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    flag = rng.random(ROWS) < 0.5
    word = np.array(["red", "green", "blue"])[rng.integers(0, 3, ROWS)]
    pl.DataFrame({"flag": flag, "x": rng.random(ROWS), "word": word}).write_parquet(tmp_path / "frail.parquet")
    open_rows(tmp_path / "frail.parquet").close()  # type: ignore[attr-defined]
    finish_check()
    return tmp_path / "frail.parquet"


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every folder count as too large to be checked before its first answer, and the check take no rests."""
    monkeypatch.setattr(folder_module, "AT_ONCE", 0)
    monkeypatch.setattr(array_files, "_RESTS", 0)


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    yield
    if checks():
        gc.collect()
    for thread in checks():
        thread.join(WAIT)
    assert not checks()


def checks() -> list[threading.Thread]:
    """The checks of this file's data: those of other tests may go on."""
    return [thread for thread in threading.enumerate() if thread.name == "holdfast check frail"]


def folder_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.holdfast")


def zero(path: Path, file: str) -> None:
    """Set all values of a file to zero, behind its header: 0.0012 for 0.5."""
    target = folder_of(path) / file
    with target.open("r+b") as written:
        written.seek(128)
        written.write(bytes(target.stat().st_size - 128))


def finish_check() -> None:
    """Wait until the check in the background has found something and ended."""
    for thread in checks():
        thread.join(WAIT)
    assert not checks()


def test_damage_in_a_small_folder_is_refused_when_it_is_opened(path: Path) -> None:
    zero(path, "00000.values.npy")
    with pytest.raises(RowSourceError, match=r"frail is damaged: 00000\.values\.npy does not hold what was written"):
        hf.Session(folder_of(path), queries=10)
    with hf.Session(path, queries=10) as session:  # written anew from its file
        assert 0.4 < session.mean("flag").value < 0.6


@pytest.mark.usefixtures("large")
def test_damage_in_a_large_folder_is_found_in_the_background_and_refuses_every_question(path: Path) -> None:
    zero(path, "00000.values.npy")
    with hf.Session(folder_of(path), queries=10) as session:
        finish_check()
        for question in ("flag", "x > 0.5", "word = 'red'"):
            with pytest.raises(RowSourceError, match="is damaged"):
                session.mean(question)
        assert session.budget.answers_given == 0
        assert not session.ledger.begun
        with pytest.raises(RowSourceError, match="is damaged"):
            session.verify_data()


@pytest.mark.usefixtures("large")
def test_an_intact_folder_passes_and_is_checked_again_now_and_then(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_files, "_AGAIN", 0.01)
    with hf.Session(folder_of(path), queries=10) as session:
        assert 0.4 < session.mean("flag").value < 0.6
        assert checks()
        left = session.budget.answers_left
        zero(path, "00001.values.npy")  # after any number of passes
        finish_check()
        with pytest.raises(RowSourceError, match=r"00001\.values\.npy"):
            session.mean("NOT flag")
        assert session.mean("flag").cached  # an answer of before stands in the ledger
        assert session.budget.answers_left == left  # and nothing was charged for what was refused


@pytest.mark.usefixtures("large")
def test_a_damaged_dictionary_is_refused_when_it_is_opened(path: Path) -> None:
    zero(path, "00002.dictionary.starts.npy")
    with pytest.raises(RowSourceError, match="dictionary"):
        open_rows(folder_of(path))


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("where", [None, "x > 0.5"])
@pytest.mark.parametrize("question", ["word = 'red'", "word = 'red' AND x > 0.5"])
def test_codes_that_name_no_text_are_damage_and_no_error_of_another_kind(
    path: Path, question: str, where: str | None
) -> None:
    rows = open_rows(folder_of(path))
    rows.close()  # type: ignore[attr-defined]  # nothing is found in the background
    with (folder_of(path) / "00002.codes.npy").open("r+b") as file:
        file.seek(128)
        file.write(b"\xff" * 4 * ROWS)
    query = build_mean(question, rows.schema, where=where)
    with pytest.raises(RowSourceError, match=r"00002\.codes\.npy"):
        rows.tally(query, draws=100, mass=0.01, rng=np.random.default_rng(1))
    with pytest.raises(RowSourceError, match="is damaged"):  # whatever is asked
        rows.sample(build_mean("flag", rows.schema), AllRows(), np.random.default_rng(1))


@pytest.mark.usefixtures("large")
def test_damage_is_found_by_passes_that_read_their_rows_together(path: Path) -> None:
    rows = cast(FolderRows, open_rows(folder_of(path)))
    rows.close()  # nothing is found in the background
    with (folder_of(path) / "00002.codes.npy").open("r+b") as file:
        file.seek(128)
        file.write(b"\xff" * 4 * ROWS)
    whole = build_groups("flag", rows.schema, by="word", groups=["red", "green"])
    with pytest.raises(RowSourceError, match=r"00002\.codes\.npy"):
        rows.tally_passes(whole, whole.in_passes(2), draws=100, mass=0.01, rng=np.random.default_rng(1))


CUT_OFF = """
import os, sys, holdfast as hf
folder, when = sys.argv[1:]
def cut():
    os.truncate(os.path.join(folder, "00001.values.npy"), 4096)
if when == "before":
    cut()
try:
    session = hf.Session(folder, queries=10)
    session.mean("x > 0.5")
    cut()
    session.mean("x > 0.25")
except hf.RowSourceError as error:
    print("refused:", error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_file_that_is_cut_off_is_an_error_and_no_signal(path: Path, when: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CUT_OFF, str(folder_of(path)), when], capture_output=True, text=True, timeout=WAIT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("refused:")
    assert "00001.values.npy" in done.stdout


def test_a_damaged_manifest_is_refused_whichever_byte_changed(path: Path) -> None:
    manifest = folder_of(path) / "manifest.json"
    content = manifest.read_bytes()
    for place in np.random.default_rng(2).integers(0, len(content), 100).tolist():
        changed = bytearray(content)
        changed[place] ^= 1
        try:
            same = json.loads(changed) == json.loads(content)  # white space says nothing
        except ValueError:
            same = False
        manifest.write_bytes(changed)
        if same:
            open_rows(folder_of(path))
        else:
            with pytest.raises(RowSourceError):
                open_rows(folder_of(path))


def test_what_the_disk_cannot_read_is_damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(array_files, "_fill", broken)
    with pytest.raises(RowSourceError, match="is damaged"):
        open_rows(folder_of(path))


@pytest.mark.usefixtures("large")
def test_a_folder_that_was_written_anew_is_no_damage_to_those_who_read_the_old_one(path: Path) -> None:
    with hf.Session(folder_of(path), queries=10) as session:
        os.utime(path, ns=(5, 5))
        open_rows(path)
        session.verify_data()
        assert session.mean("flag").value > 0


@pytest.mark.usefixtures("large")
def test_the_check_ends_with_the_session_or_with_the_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_files, "_RESTS", 1e6)
    with hf.Session(folder_of(path), queries=10):
        assert len(checks()) == 1
    finish_check()
    rows = open_rows(folder_of(path))
    with hf.Session(rows, queries=10):
        assert len(checks()) == 1
    assert len(checks()) == 1  # the rows may serve another session
    del rows
    for _ in range(int(10 * WAIT)):  # the thread may have had hold of them just then
        if not checks():
            break
        gc.collect()
        for thread in checks():
            thread.join(0.1)
    assert not checks()


@pytest.mark.slow
@pytest.mark.usefixtures("large")
def test_the_check_does_not_hold_up_the_end_of_the_process(path: Path) -> None:
    program = (
        "import sys, holdfast.rows.disk.array_files as b, holdfast as hf\n"
        "b._RESTS = 1e6\n"
        "import holdfast.rows.disk.folder as f; f.AT_ONCE = 0\n"
        "rows = hf.open(sys.argv[1])"
    )
    done = subprocess.run([sys.executable, "-c", program, str(folder_of(path))], timeout=WAIT, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.slow
@pytest.mark.usefixtures("large")
def test_a_forked_process_checks_for_itself(path: Path) -> None:
    program = """
import os, sys, time, numpy as np, holdfast as hf
import holdfast.rows.disk.folder as f; f.AT_ONCE = 0
import holdfast.rows.disk.array_files as b; b._RESTS = 0; b._AGAIN = 0.01
session = hf.Session(sys.argv[1], queries=100)
session.mean("flag")
if os.fork() == 0:
    with open(sys.argv[1] + "/00000.values.npy", "r+b") as file:
        file.seek(128); file.write(bytes(1000))
    try:
        for i in range(10_000):
            session._rows._about_to_read(slice(0, 1), ("flag",))
            time.sleep(0.005)
    except hf.RowSourceError:
        os._exit(0)
    os._exit(1)
_, status = os.wait()
sys.exit(os.waitstatus_to_exitcode(status))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(folder_of(path))], timeout=WAIT * 2, capture_output=True
    )
    assert done.returncode == 0, done.stderr


def test_verifying_names_the_file(path: Path) -> None:
    rows = open_rows(folder_of(path))
    rows.verify()
    zero(path, "00002.codes.npy")
    with pytest.raises(RowSourceError, match=r"00002\.codes\.npy"):
        rows.verify()


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_blocks_do_not_depend_on_how_the_bytes_arrive(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    whole, pieces = BlockHashes(), BlockHashes()
    whole.update(data)
    for part in np.array_split(data, 7):
        pieces.update(part)
    assert whole.digests == pieces.digests
    assert len(whole.digests) == -(-size // BLOCK)
    assert whole.hexdigest() == pieces.hexdigest()


def test_every_block_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_files, "BLOCK", 1 << 12)
    pl.DataFrame({"x": np.arange(10_000)}).write_parquet(tmp_path / "t.parquet")
    folder = tmp_path / "t.parquet.holdfast"
    assert isinstance(open_rows(tmp_path / "t.parquet"), FolderRows)
    content = (folder / "00000.values.npy").read_bytes()
    for place in range(128, len(content), 997):
        changed = bytearray(content)
        changed[place] ^= 0x10
        (folder / "00000.values.npy").write_bytes(changed)
        with pytest.raises(RowSourceError, match="is damaged"):
            open_rows(folder)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_what_the_system_lacks_is_no_damage(path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    rows = open_rows(path)
    assert isinstance(rows, FolderRows)
    with monkeypatch.context() as lacking:

        def refuse(self: Path, *args: object, **options: object) -> object:
            raise OSError(code, os.strerror(code))

        lacking.setattr(Path, "open", refuse)
        with pytest.raises(RowSourceError, match=r"^Cannot read .*\.npy: "):
            rows.verify()
    rows.require_sound()
    rows.verify()
    rows.close()


@pytest.mark.usefixtures("large")
def test_a_check_that_lacked_a_file_is_made_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, refused = Path.open, []

    def refuse_once(self: Path, *args: object, **options: object) -> object:
        if self.name.endswith(".values.npy") and threading.current_thread() in checks() and not refused:
            refused.append(self.name)
            raise OSError(errno.EMFILE, "Too many open files")
        return real(self, *args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(array_files, "_LATER", 0.01)
    monkeypatch.setattr(Path, "open", refuse_once)
    zero(path, "00001.values.npy")
    with hf.Session(folder_of(path), queries=10) as session:
        finish_check()  # which it does when it has found the damage
        assert refused
        with pytest.raises(RowSourceError, match=r"00001\.values\.npy does not hold"):
            session.mean("flag")


FEW_FILES = """
import resource, sys
import holdfast as hf
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
for kept in sys.argv[1:]:
    try:
        print(hf.deal(kept, kept + ".deck", cards=10) if kept.endswith(".parquet") else hf.open(kept))
    except hf.RowSourceError as refused:
        print(refused)
"""


@pytest.mark.slow
def test_more_columns_than_a_process_may_have_open_files(tmp_path: Path) -> None:
    table = tmp_path / "wide.parquet"
    pl.DataFrame({f"column {i}": [1.0, 2.0] for i in range(200)}).write_parquet(table)
    folder = open_rows(table).location
    command = [sys.executable, "-c", FEW_FILES, str(folder), str(table)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == 2
    assert all(
        line.endswith("too many open files; a column takes one to three, so allow more: ulimit -n 65536.")
        for line in lines
    )
