"""A folder under construction: `.<name>.partial` beside the final folder.

    lock      only the process that holds the folder's lock writes
    go on     a note records the work and its progress; if the process dies, the next one resumes from it
    rename    to the final name, when everything is durable: the folder appears whole or not at all

The lock belongs to the process, so it is released however the process ends. A process that finds the lock taken waits,
and then usually finds the work done.
"""

import fcntl
import gc
import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import polars as pl

from holdfast.rows.scans.scan import Scan

_NOTE = "begun.json"


@contextmanager
def locked_partial(folder: Path, *, kept: bool = False) -> Iterator[Path]:
    """Yield a locked partial folder beside the final one; what remains of it afterwards is removed.

    A process that dies leaves it for the next one, and if `kept`, so does one that is interrupted.
    """
    partial = partial_beside(folder)
    while True:
        partial.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            partial.mkdir(mode=0o700)
        try:
            opened = _Opened(partial)
        except FileNotFoundError:
            continue  # just renamed by its owner
        try:
            opened.lock()
            here = opened.is_at(partial)
        except BaseException:  # interrupted while waiting
            opened.close()
            raise
        if here:
            break
        opened.close()  # the folder we waited for was finished and renamed: try again
    interrupted = False
    try:
        yield partial
    except BaseException as problem:
        interrupted = not isinstance(problem, Exception)
        raise
    finally:
        # If our folder is not at this path it was renamed, and a folder that is there now belongs to another process.
        try:
            if not (kept and interrupted) and opened.is_at(partial):
                _forget(partial)
                shutil.rmtree(partial, ignore_errors=True)
        finally:
            opened.close()


_open: "dict[int, ref[_Opened]]" = {}  # the folders that this process has open, by the number of the open file


class _Opened:
    """A folder that is open; if an interrupt keeps it from being closed, the next that is opened makes up for it."""

    def __init__(self, folder: Path) -> None:
        _close_abandoned()
        self._own = ref(self)
        self.number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        _open[self.number] = self._own

    def lock(self) -> None:
        """Lock the folder, or wait for whoever has locked it."""
        try:
            fcntl.flock(self.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            gc.collect()  # an interrupted call of this process may have it still, kept alive by a cycle of its errors
            _close_abandoned()
            fcntl.flock(self.number, fcntl.LOCK_EX)

    def is_at(self, path: Path) -> bool:
        """Whether the folder is still open and at this path."""
        try:
            return _open.get(self.number) is self._own and os.path.samestat(path.stat(), os.fstat(self.number))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Release the lock, and close the folder."""
        if _open.get(self.number) is self._own:
            try:
                # A child that was forked meanwhile has the folder open, too, and would keep the lock.
                fcntl.flock(self.number, fcntl.LOCK_UN)
            finally:
                del _open[self.number]  # before its number may be that of another file
                os.close(self.number)


def _close_abandoned() -> None:
    for number, opened in list(_open.items()):
        if opened() is None and _open.pop(number, None) is not None:
            os.close(number)


def _forget(partial: Path) -> None:
    """Remove the note first of all: it may hold a secret, and nobody shall go on with what is half removed."""
    with suppress(OSError):
        (partial / _NOTE).unlink(missing_ok=True)


def clear(partial: Path) -> None:
    """Remove leftovers of an earlier process."""
    _forget(partial)
    for leftover in partial.iterdir():
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()


def swap_in(path: Path | None, partial: Path, folder: Path) -> None:
    """Rename the complete partial folder to its final name; those who may read the file at `path` may read it."""
    sync(partial)
    partial.chmod(_permissions(path))
    outdated = outdated_beside(folder)
    if folder.exists():  # else a process was killed right here, and only the folder it moved aside records the unit
        shutil.rmtree(outdated, ignore_errors=True)
        folder.rename(outdated)
    partial.rename(folder)
    sync(folder.parent)
    shutil.rmtree(outdated, ignore_errors=True)


def _permissions(path: Path | None) -> int:
    """Return permissions that let those who may read the file, and nobody else, enter the folder."""
    if path is None:
        return 0o700
    readers = path.stat().st_mode & 0o444
    return 0o700 | readers | readers >> 2


def partial_beside(folder: Path) -> Path:
    """Return where a folder is while it is under construction."""
    return folder.with_name(f".{folder.name}.partial")


def outdated_beside(folder: Path) -> Path:
    """Return where the old folder is moved while the new one takes its name."""
    return folder.with_name(f".{folder.name}.outdated")


def write_whole(path: Path, text: str) -> None:
    """Write a small file durably and atomically: a concurrent reader sees the old one or the new one."""
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")  # own name: another process may write one, too
    try:
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def replace_text(path: Path, text: str) -> None:
    """Write a small file atomically but not durably: it does not count after a restart of the machine."""
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def sync(folder: Path) -> None:
    """Make durable which files a folder has."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Note:
    """A record of the work in a partial folder and its progress; removed when the work is finished.

    Parameters
    ----------
    folder
        The partial folder.
    scan, moment
        The table that is read, and its state; work can be resumed only if that is known.
    how
        What else must be the same.
    """

    def __init__(self, folder: Path, scan: Scan, moment: str, how: list[Any]) -> None:
        self.path = folder / _NOTE
        self.known = bool(moment)
        labels = [[name, storage.label] for name, storage in scan.columns.items()]
        origin = scan.origin()
        about = [origin.name, moment, origin.how, labels, *how, np.__version__, pl.__version__, _boot()]
        self._about = json.loads(json.dumps(about))

    def read(self) -> Any:
        """Return the progress of the same work; None if there is none."""
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found["done"] if self.known and found["about"] == self._about else None

    def write(self, done: Any) -> None:
        """Record the progress; it does not count after a restart of the machine."""
        replace_text(self.path, json.dumps({"about": self._about, "done": done}))

    def remove(self) -> None:
        """Remove the note: the work is finished."""
        self.path.unlink(missing_ok=True)


def _boot() -> str:
    """Return an identifier of the machine's current boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return secrets.token_hex(16)  # unknown, so nothing is ever resumed


_KEPT = "What was done so far is kept: the same call resumes there, if the table is still the same."
_DROPPED = (
    "What was done so far is not kept: a stream, a database, an engine, and rows that are still being grouped by unit"
    " or set aside for checks, cannot be resumed, so the same call starts over."
)


@contextmanager
def reported(
    what: str,
    unit: str,
    total: Callable[[], int | None],
    progress: bool | None,
    note: str = "",
    kept: bool | Callable[[], bool] = False,
) -> Iterator[Callable[[int], None]]:
    """Show progress if requested, or by default on a terminal; yields the function to call after every step.

    Parameters
    ----------
    what, unit
        What is going on, and what is counted.
    total
        How many there will be, if that is known.
    progress
        Whether to show a bar; None means only on a terminal.
    note
        A line to print afterwards.
    kept
        Whether interrupted work can be resumed; an interrupt prints a line that says so, or that it starts over.
    """
    if not (sys.stderr.isatty() if progress is None else progress):
        yield lambda rows: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        console=console,
        transient=console.is_terminal,
    )
    try:
        with bar:
            task = bar.add_task(what, total=total())
            yield lambda rows: bar.advance(task, rows)
    except KeyboardInterrupt:
        console.print(_KEPT if (kept() if callable(kept) else kept) else _DROPPED, markup=False)
        raise
    if note:
        console.print(note, markup=False)
