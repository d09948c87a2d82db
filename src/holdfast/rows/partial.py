"""A folder under construction: `.<name>.partial` beside the one that it will be.

    lock      whoever holds the lock of the folder is the only one who writes
    go on     a note says what was begun and how far it has come; who dies leaves it to the next one who comes
    rename    over to the folder's name, when everything is durable: it appears whole or not at all

The lock belongs to the process, so it ends with it, however it ends. Who finds it taken waits, and then usually finds
the work done.
"""

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from holdfast.rows.posix import fcntl
from holdfast.rows.scans.scan import Scan

_NOTE = "begun.json"


@contextmanager
def locked_partial(folder: Path, *, kept: bool = False) -> Iterator[Path]:
    """Yield a folder that nobody else writes, beside the one that is to be made; what is left of it is removed.

    If it is `kept`, whoever dies or is interrupted leaves it to the next one who comes, as it is.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    while True:
        partial.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            partial.mkdir(mode=0o700)
        try:
            handle = os.open(partial, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # just renamed by its owner
        fcntl.flock(handle, fcntl.LOCK_EX)
        if _is_at(partial, handle):
            break
        os.close(handle)  # what we waited for is finished and has moved on
    interrupted = False
    try:
        if not kept:
            clear(partial)
        yield partial
    except BaseException as problem:
        interrupted = not isinstance(problem, Exception)
        raise
    finally:
        # If it is elsewhere it was renamed, and what is there now is another's.
        if not (kept and interrupted) and _is_at(partial, handle):
            shutil.rmtree(partial, ignore_errors=True)
        os.close(handle)


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def clear(partial: Path) -> None:
    """Remove what somebody left."""
    for leftover in partial.iterdir():
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()


def swap_in(path: Path | None, partial: Path, folder: Path) -> None:
    """Rename what is complete over to its folder; who may read the file at `path` may read it."""
    _sync(partial)
    partial.chmod(_permissions(path))
    outdated = outdated_beside(folder)
    if folder.exists():  # else somebody was killed right here, and the one moved away alone knows the unit
        shutil.rmtree(outdated, ignore_errors=True)
        folder.rename(outdated)
    partial.rename(folder)
    _sync(folder.parent)
    shutil.rmtree(outdated, ignore_errors=True)


def _permissions(path: Path | None) -> int:
    """Who may read the file may enter the folder, and nobody else."""
    if path is None:
        return 0o700
    readers = path.stat().st_mode & 0o444
    return 0o700 | readers | readers >> 2


def outdated_beside(folder: Path) -> Path:
    """Return where a folder waits to be removed while the new one takes its name."""
    return folder.with_name(f".{folder.name}.outdated")


def write_whole(path: Path, text: str) -> None:
    """Write a small file, durably; whoever reads meanwhile sees the old one or the new one."""
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")  # of its own: others may write one as well
    try:
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Note:
    """What was begun in a partial folder, and how far it has come; forgotten when it is finished.

    Parameters
    ----------
    folder
        The partial folder.
    scan, moment
        The table that is read, and the state that it is in; only where that can be told, somebody may go on.
    how
        What else must be the same.
    """

    def __init__(self, folder: Path, scan: Scan, moment: str, how: list[Any]) -> None:
        self._path = folder / _NOTE
        self.known = bool(moment)
        labels = [[name, storage.label] for name, storage in scan.columns.items()]
        origin = scan.origin()
        about = [origin.name, moment, origin.how, labels, *how, np.__version__, pl.__version__, _boot()]
        self._about = json.loads(json.dumps(about))

    def read(self) -> Any:
        """Return how far the same work has come; None if nothing of it is there."""
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found["done"] if self.known and found["about"] == self._about else None

    def write(self, done: Any) -> None:
        """Note how far it has come, in one piece; not durable, so it is worth nothing after the machine stopped."""
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps({"about": self._about, "done": done}), encoding="utf-8")
        new.replace(self._path)

    def remove(self) -> None:
        """There is nothing to go on with: it is finished."""
        self._path.unlink(missing_ok=True)


def _boot() -> str:
    """Return what names the time since this machine was started."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return secrets.token_hex(16)  # nobody can say: nothing is gone on with
