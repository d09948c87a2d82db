"""Turn a table into a column folder, once.

    scan       the table batch by batch (`scans`)
    lock       a sibling `.<folder>.partial`: whoever holds its lock is the only one who writes
    write      batch after batch into it; hash on the way; the manifest last; everything durable
    rename     over to the folder's name: it appears whole or not at all

The lock belongs to the process, so it ends with it, however it ends: a partial folder nobody holds is a
leftover, cleared away by the next one who comes. Who finds the lock taken waits, and then usually finds the
work done.
"""

import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial as partial_
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from holdfast.errors import RowSourceError
from holdfast.rows.column_writer import ColumnFiles, NumberFiles, TextFiles, UnitFile
from holdfast.rows.columns import TEXT, Storage, refuse_contradiction
from holdfast.rows.fingerprint import ColumnDigest, fingerprint_of, fingerprint_of_files
from holdfast.rows.folder import MANIFEST, Dealt, FolderRows, Manifest
from holdfast.rows.posix import fcntl
from holdfast.rows.scans.scan import Origin, Scan
from holdfast.rows.units import Grouping

# Distinct texts a dictionary may hold. While a table is ingested all dictionaries are in memory at once.
_MOST_DISTINCT = 1 << 18
_MOST_DISTINCT_IN_ALL = 1 << 21
_OURS = re.compile(r"\d{5,}\.[a-z.]+\.npy|pack-[0-9a-f]+\.[a-z.]+|" + re.escape(MANIFEST) + r"(\.new)?")


def ingest(
    scan: Scan,
    folder: Path,
    *,
    name: str | None = None,
    progress: bool | None = None,
    complete: Collection[str] = (),
    unit: str | None = None,
) -> FolderRows:
    """Return the rows of a table from its column folder, written first if it is missing or out of date.

    A folder is up to date if the table is in the state that it was read in: for files, their names, sizes and times of
    change; and if its rows lie by the unit that is declared, if one is. A file edited in place within one tick of the
    clock, to the same size, goes unnoticed. A stream has no state, and is never read into a folder that is there.
    """
    unit = unit or _remembered_unit(folder)
    rows = _up_to_date(folder, scan, name, complete, unit)
    if rows is not None:
        shutil.rmtree(_outdated(folder), ignore_errors=True)  # of somebody who died just after renaming
        return rows
    refuse_foreign(folder)
    try:
        with locked_partial(folder) as partial:
            rows = _up_to_date(folder, scan, name, complete, unit)  # by whoever held the lock before
            if rows is None:
                origin = scan.origin()
                if not origin.state and folder.exists():
                    raise RowSourceError(
                        f"{folder} is there already, and a stream cannot be compared with it; open the folder."
                    )
                scan.open()
                _write(scan, origin, partial, progress, complete, unit)
                swap_in(scan.path, partial, folder)
                rows = FolderRows(folder, name=name)
            return rows
    except RowSourceError:
        raise
    except OSError as problem:
        raise RowSourceError(
            f"Cannot write {folder}: {problem.strerror}. Say where else with folder=...", path=str(folder)
        ) from None


def _up_to_date(
    folder: Path, scan: Scan, name: str | None, complete: Collection[str], unit: str | None
) -> FolderRows | None:
    try:
        manifest = Manifest.read(folder)
        types = {entry.name: entry.column.type for entry in manifest.columns}
        if unit in (None, manifest.unit) and scan.agrees(manifest.source, types):
            return FolderRows(folder, name=name, complete=complete)
    except RowSourceError:
        return None  # missing or damaged: written anew
    return None


def _remembered_unit(folder: Path) -> str | None:
    """Return the unit of a folder that may be out of date: forgetting it would make intervals wrong, not just wide."""
    try:
        return Manifest.read(folder).unit
    except RowSourceError:
        return None


def refuse_foreign(folder: Path) -> None:
    """Never replace a folder that somebody else filled."""
    if folder.exists() and not (folder.is_dir() and all(_OURS.fullmatch(e.name) for e in folder.iterdir())):
        raise RowSourceError(f"{folder} exists and is not a holdfast folder; move it away or give folder=...")


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
    outdated = _outdated(folder)
    shutil.rmtree(outdated, ignore_errors=True)
    if folder.exists():
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


def _outdated(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.outdated")


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write(
    scan: Scan,
    origin: Origin,
    partial: Path,
    progress: bool | None,
    complete: Collection[str],
    unit: str | None,
) -> None:
    batches, grouping = scan.batches, None
    if unit is not None:
        grouping = Grouping(unit, partial, scan.columns, origin.name)
        batches = partial_(grouping.batches, scan.batches(), scan.rows())
    with reported(f"Preparing {scan.name}", "rows", scan.rows, progress, scan.note) as advance:
        columns = _fill(scan.columns, batches(), partial, advance, hashed=grouping is None)
    if scan.origin() != origin:
        raise RowSourceError(f"{scan.where} changed while it was read; open it again.")
    together = None
    if grouping is not None:
        starts = UnitFile(partial, len(columns))
        try:
            starts.append(np.diff(grouping.starts))
            starts.close()
        finally:
            starts.abandon()
        together = Together(grouping.unit, starts, grouping.digests)
    vouch(scan, origin, columns, partial, complete, together=together)


class Together(NamedTuple):
    """Rows that lie by unit: which column names units, where these begin, and the rows in the order they came in."""

    unit: str
    starts: UnitFile
    digests: list[ColumnDigest]


def vouch(
    scan: Scan,
    origin: Origin,
    columns: list[ColumnFiles],
    partial: Path,
    complete: Collection[str],
    dealt: Dealt | None = None,
    together: Together | None = None,
) -> None:
    """Write the manifest of columns that are complete and durable."""
    rows = columns[0].digest.rows
    if rows == 0:
        raise RowSourceError(f"{scan.where} has no rows; holdfast needs at least one.")
    refuse_contradiction(scan.where, scan.never_missing, [column.digest.name for column in columns if column.missing])
    files = {name: entry for column in columns for name, entry in column.files().items()}
    digests = [column.digest for column in columns] if together is None else together.digests
    Manifest(
        rows=rows,
        fingerprint=fingerprint_of(digests) if dealt is None else fingerprint_of_files(files),
        source=origin,
        columns=tuple(column.entry(nullable=column.digest.name not in scan.never_missing) for column in columns),
        files=files if together is None else files | together.starts.files(),
        unit=None if together is None else together.unit,
        units=0 if together is None else together.starts.units,
        dealt=dealt,
    ).declared(complete).write(partial)


def _fill(
    storages: Mapping[str, Storage],
    batches: Iterable[pl.DataFrame],
    partial: Path,
    advance: Callable[[int], None] = lambda rows: None,
    *,
    hashed: bool = True,
) -> list[ColumnFiles]:
    """Write columns; `hashed`: whether their texts in this order are what the fingerprint is about."""
    texts = sum(storage is TEXT for storage in storages.values())
    distinct = min(_MOST_DISTINCT, _MOST_DISTINCT_IN_ALL // max(1, texts))
    columns: list[ColumnFiles] = []
    try:
        for position, (name, storage) in enumerate(storages.items()):
            columns.append(
                TextFiles(partial, position, name, storage, distinct, hashed=hashed)
                if storage is TEXT
                else NumberFiles(partial, position, name, storage)
            )
        for batch in batches:
            for column in columns:
                column.append(batch[column.digest.name])
            advance(batch.height)
        for column in columns:
            column.close()
    finally:
        for column in columns:
            column.abandon()
    return columns


@contextmanager
def reported(
    what: str, unit: str, total: Callable[[], int | None], progress: bool | None, note: str = ""
) -> Iterator[Callable[[int], None]]:
    """Show progress if asked to, or on a terminal if not told otherwise; yields what is to be told of every step.

    Parameters
    ----------
    what, unit
        What is going on, and what is counted.
    total
        How many there will be, if somebody can say.
    progress
        Whether to show a bar; None: only on a terminal.
    note
        A line to print afterwards.
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
    with bar:
        task = bar.add_task(what, total=total())
        yield lambda rows: bar.advance(task, rows)
    if note:
        console.print(note, markup=False)
