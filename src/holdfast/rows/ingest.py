"""Turn a file (Parquet, CSV, Arrow) into a column folder, once.

    scan       the file batch by batch, with one wording for all that can be wrong with it
    lock       a sibling `.<folder>.partial`: whoever holds its lock is the only one who writes
    write      batch after batch into it; hash on the way; the manifest last; everything durable
    rename     over to the folder's name: it appears whole or not at all

The lock belongs to the process, so it ends with it, however it ends: a partial folder nobody holds is a
leftover, cleared away by the next one who comes. Who finds the lock taken waits, and then usually finds the
work done.
"""

import fcntl
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl

from holdfast.errors import RowSourceError
from holdfast.rows.column_writer import ColumnFiles, NumberFiles, TextFiles
from holdfast.rows.columns import TEXT, Storage, storage_of
from holdfast.rows.fingerprint import fingerprint_of
from holdfast.rows.folder import MANIFEST, FolderRows, Manifest, SourceFile

FORMATS = {
    ".parquet": "Parquet",
    ".csv": "CSV",
    ".arrow": "Arrow",
    ".ipc": "Arrow",
    ".feather": "Arrow",
}
# Errors of the reader. Their text may quote values, so it is never passed on.
_UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, UnicodeDecodeError)
_LOOK_AHEAD = 10_000
_BATCH = 1 << 18
# Distinct texts a dictionary may hold. While a table is ingested all dictionaries are in memory at once.
_MOST_DISTINCT = 1 << 18
_MOST_DISTINCT_IN_ALL = 1 << 21
_OURS = re.compile(r"\d{5,}\.[a-z.]+\.npy|" + re.escape(MANIFEST))


def ingest_file(path: Path, folder: Path, *, name: str | None = None, progress: bool | None = None) -> FolderRows:
    """Return the rows of a file from its column folder, written first if it is missing or out of date.

    A folder is up to date if the file still has the name, size and time of change it had when it was read. A
    file edited in place within one tick of the clock, to the same size, goes unnoticed.
    """
    source = SourceFile.of(path)
    rows = _up_to_date(folder, source, name)
    if rows is not None:
        shutil.rmtree(_outdated(folder), ignore_errors=True)  # of somebody who died just after renaming
        return rows
    _refuse_foreign(folder)
    try:
        with _locked_partial(folder) as partial:
            source = SourceFile.of(path)  # the file may have changed while we waited
            rows = _up_to_date(folder, source, name)  # by whoever held the lock before
            if rows is None:
                _write(path, source, partial, progress)
                _swap_in(path, partial, folder)
                rows = FolderRows(folder, name=name)
            return rows
    except RowSourceError:
        raise
    except OSError as problem:
        raise RowSourceError(
            f"Cannot write {folder}: {problem.strerror}. Say where else with folder=...", path=str(folder)
        ) from None


def _up_to_date(folder: Path, source: SourceFile, name: str | None) -> FolderRows | None:
    try:
        if Manifest.read(folder).source == source:
            return FolderRows(folder, name=name)
    except RowSourceError:
        return None  # missing or damaged: written anew
    return None


def _refuse_foreign(folder: Path) -> None:
    """Never replace a folder that somebody else filled."""
    if folder.exists() and not (folder.is_dir() and all(_OURS.fullmatch(e.name) for e in folder.iterdir())):
        raise RowSourceError(f"{folder} exists and is not a holdfast folder; move it away or give folder=...")


@contextmanager
def _locked_partial(folder: Path) -> Iterator[Path]:
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
    try:
        _clear(partial)
        yield partial
    finally:
        if _is_at(partial, handle):  # else it was renamed, and what is there now is another's
            shutil.rmtree(partial, ignore_errors=True)
        os.close(handle)


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _clear(partial: Path) -> None:
    for leftover in partial.iterdir():
        leftover.unlink()


def _swap_in(path: Path, partial: Path, folder: Path) -> None:
    _sync(partial)
    partial.chmod(_permissions(path))
    outdated = _outdated(folder)
    shutil.rmtree(outdated, ignore_errors=True)
    if folder.exists():
        folder.rename(outdated)
    partial.rename(folder)
    _sync(folder.parent)
    shutil.rmtree(outdated, ignore_errors=True)


def _permissions(path: Path) -> int:
    """Who may read the file may enter the folder, and nobody else."""
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


def _write(path: Path, source: SourceFile, partial: Path, progress: bool | None) -> None:
    try:
        columns = _fill(Scan(path), partial, progress)
    except UnparsedError:
        _clear(partial)
        columns = _fill(Scan(path, thorough=True), partial, progress)
    rows = columns[0].digest.rows
    if rows == 0:
        raise RowSourceError(f"{path} has no rows; holdfast needs at least one.")
    if SourceFile.of(path) != source:
        raise RowSourceError(f"{path} changed while it was read; open it again.")
    manifest = Manifest(
        rows=rows,
        fingerprint=fingerprint_of([column.digest for column in columns]),
        source=source,
        columns=tuple(column.entry() for column in columns),
        files={file.name: file.stat().st_size for file in sorted(partial.iterdir())},
    )
    manifest.write(partial)


def _fill(scan: "Scan", partial: Path, progress: bool | None) -> list[ColumnFiles]:
    texts = sum(storage is TEXT for storage in scan.columns.values())
    distinct = min(_MOST_DISTINCT, _MOST_DISTINCT_IN_ALL // max(1, texts))
    columns: list[ColumnFiles] = []
    try:
        for position, (name, storage) in enumerate(scan.columns.items()):
            columns.append(
                TextFiles(partial, position, name, storage, distinct)
                if storage is TEXT
                else NumberFiles(partial, position, name, storage)
            )
        with _reported(scan, progress) as advance:
            for batch in scan.batches():
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
def _reported(scan: "Scan", progress: bool | None) -> Iterator[Callable[[int], None]]:
    """Show progress if asked to, or on a terminal if not told otherwise."""
    if not (sys.stderr.isatty() if progress is None else progress):
        yield lambda rows: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    bar = Progress(
        TextColumn("Preparing {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows"),
        TimeElapsedColumn(),
        console=console,
        transient=console.is_terminal,
    )
    with bar:
        task = bar.add_task(scan.path.name, total=scan.rows())
        yield lambda rows: bar.advance(task, rows)


class UnparsedError(Exception):
    """A CSV value does not fit the type its column seemed to have: read again, looking at all rows."""


class Scan:
    """One reading of one file. `thorough` infers the types of a CSV file from all of its rows."""

    def __init__(self, path: Path, *, thorough: bool = False) -> None:
        self.path = path
        self.format = FORMATS[path.suffix.lower()]
        self._thorough = thorough
        try:
            self._frame = self._lazy()
            found = self._frame.collect_schema()
        except RowSourceError:
            raise
        except pl.exceptions.DuplicateError:
            raise RowSourceError(f"{path} has two columns of the same name; rename one of them.") from None
        except pl.exceptions.NoDataError:
            raise RowSourceError(f"{path} is empty; holdfast needs at least one row.") from None
        except _UNREADABLE:
            raise self._damaged() from None
        if not found:
            raise RowSourceError(f"{path} has no columns; holdfast needs at least one.")
        self.columns: dict[str, Storage] = {name: storage_of(name, dtype) for name, dtype in found.items()}

    def rows(self) -> int:
        """Count the rows without looking at them."""
        try:
            return int(self._frame.select(pl.len()).collect().item())
        except _UNREADABLE:
            raise self._damaged() from None

    def batches(self) -> Iterator[pl.DataFrame]:
        """Yield the rows in order, in batches of bounded size; all of them, or it raises."""
        missing = self.rows()
        reading = iter(self._frame.collect_batches(maintain_order=True, chunk_size=_BATCH))
        while True:
            try:
                batch = next(reading, None)
            except pl.exceptions.PolarsError:
                if self.format == "CSV" and not self._thorough:
                    raise UnparsedError from None
                raise self._damaged() from None
            except _UNREADABLE:
                raise self._damaged() from None
            if batch is None:
                break
            missing -= batch.height
            yield from batch.iter_slices(_BATCH)
        if missing:  # on some damage the reader stops without an error
            raise self._damaged()

    def _lazy(self) -> pl.LazyFrame:
        if self.format == "Parquet":
            return pl.scan_parquet(self.path, glob=False, hive_partitioning=False)
        if self.format == "Arrow":
            return pl.scan_ipc(self.path, glob=False, hive_partitioning=False)
        header = pl.read_csv(self.path, has_header=False, n_rows=1, infer_schema=False, glob=False)
        names = ["" if name is None else name for name in header.row(0)]
        self._refuse_header(names)
        self._thorough = self._thorough or not self._typed_by_head()
        return self._csv(None if self._thorough else _LOOK_AHEAD)

    def _csv(self, look_ahead: int | None) -> pl.LazyFrame:
        return pl.scan_csv(self.path, infer_schema_length=look_ahead, try_parse_dates=True, glob=False)

    def _typed_by_head(self) -> bool:
        """Whether the first rows give every column a type that they themselves fit."""
        try:
            head = self._csv(_LOOK_AHEAD).head(_LOOK_AHEAD).collect()
        except pl.exceptions.PolarsError:
            return False
        return all(series.null_count() < head.height for series in head)

    def _refuse_header(self, names: list[str]) -> None:
        if any("\0" in name or "\ufffd" in name for name in names):
            raise self._damaged()
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise RowSourceError(f"{self.path} has two columns named {twice[0]!r}; rename one of them.")

    def _damaged(self) -> RowSourceError:
        return RowSourceError(
            f"Cannot read {self.path} as {self.format}: it is cut off, damaged, or not {self.format} at all."
        )
