"""A folder under construction: its lock ends with whoever holds it, and its note goes first."""

import fcntl
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast.rows.disk import partial
from holdfast.rows.disk.partial import locked_partial, partial_beside


def is_locked(folder: Path) -> bool:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def interrupted(*args: object, **options: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_while_a_folder_is_removed_leaves_no_lock_and_no_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = partial_beside(tmp_path / "t")

    def work() -> None:
        with locked_partial(tmp_path / "t", kept=True):
            (folder / partial._NOTE).write_text("a secret")
            (folder / "rows").touch()

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:
            work()
    assert [each.name for each in folder.iterdir()] == ["rows"]
    assert not is_locked(folder)
    assert caught.traceback  # which somebody holds, as a notebook does


def test_the_note_of_leftovers_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there: list[bool] = []
    note = tmp_path / partial._NOTE
    note.touch()
    for number in range(20):
        (tmp_path / str(number)).mkdir()
    monkeypatch.setattr(shutil, "rmtree", lambda *args: there.append(note.exists()))
    partial.clear(tmp_path)
    assert there == [False] * 20


def test_a_child_that_was_forked_meanwhile_does_not_keep_the_lock(tmp_path: Path) -> None:
    folder, children = partial_beside(tmp_path / "t"), []

    def work() -> None:
        with locked_partial(tmp_path / "t", kept=True):
            children.append(os.fork())
            if not children[0]:
                signal.pause()
            assert is_locked(folder)
            interrupted()

    try:
        with pytest.raises(KeyboardInterrupt):
            work()
        assert not is_locked(folder)
    finally:
        os.kill(children[0], signal.SIGKILL)
        os.waitpid(children[0], 0)


def test_a_folder_that_an_interrupt_kept_open_is_closed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next call would wait for a lock that its own process has."""
    folder = partial_beside(tmp_path / "t")

    def work() -> None:
        with locked_partial(tmp_path / "t", kept=True):
            interrupted()

    with monkeypatch.context() as patch:
        patch.setattr(partial._Opened, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            work()
    assert is_locked(folder)
    partial._Opened(tmp_path).close()
    assert not is_locked(folder)
    assert not partial._open


def test_a_lock_that_only_a_cycle_keeps_is_not_waited_for(tmp_path: Path) -> None:
    """As when an interrupt comes while an error of one makes its way out."""
    kept: list[Any] = [locked_partial(tmp_path / "t", kept=True)]
    folder = kept[0].__enter__()
    kept.append(kept)
    del kept
    opened = partial._Opened(folder)
    opened.lock()
    assert is_locked(folder)
    opened.close()
    assert not is_locked(folder)
