"""Turn a file (Parquet, CSV, Arrow) into a column folder, once.

    scan       the file batch by batch, with one wording for all that can be wrong with it
    lock       a sibling `.<folder>.partial`: whoever holds its lock is the only one who writes
    write      batch after batch into it; hash on the way; the manifest last; everything durable
    rename     over to the folder's name: it appears whole or not at all

What a CSV file does not say, the types of its columns, is declared or taken from its first rows, and a value further
down that does not fit is refused: the type of a column does not depend on one row among millions.

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
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from holdfast.errors import InvalidArgument, RowSourceError, UnknownName
from holdfast.rows.array_files import ArrayFile
from holdfast.rows.blocks import FileEntry
from holdfast.rows.column_writer import ColumnFiles, NumberFiles, TextFiles
from holdfast.rows.columns import TEXT, Storage, keeps, refuse_contradiction, storage_of
from holdfast.rows.fingerprint import fingerprint_of
from holdfast.rows.folder import MANIFEST, FolderRows, Manifest, SourceFile, file_name
from holdfast.rows.header import required_columns
from holdfast.rows.units import Grouping
from holdfast.schema import Type

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
_OURS = re.compile(r"\d{5,}\.[a-z.]+\.npy|pack-[0-9a-f]+\.[a-z.]+|" + re.escape(MANIFEST) + r"(\.new)?")
# How the values of a declared type are read from CSV text.
_READ_AS: dict[Type, pl.DataType] = {
    Type.BOOL: pl.Boolean(),
    Type.INT: pl.Int64(),
    Type.FLOAT: pl.Float64(),
    Type.STRING: pl.String(),
    Type.DATE: pl.Date(),
    Type.DATETIME: pl.Datetime("us"),
}
_COLUMN = re.compile(r" at column '(.*)' \(column number", re.DOTALL)  # in what Polars says about a value


def ingest_file(
    path: Path,
    folder: Path,
    *,
    name: str | None = None,
    progress: bool | None = None,
    complete: Collection[str] = (),
    types: dict[str, Type] | None = None,
    unit: str | None = None,
) -> FolderRows:
    """Return the rows of a file from its column folder, written first if it is missing or out of date.

    A folder is up to date if the file still has the name, size and time of change it had when it was read, its columns
    have the declared types, and its rows lie by the unit that is declared, if one is. A file edited in place within one
    tick of the clock, to the same size, goes unnoticed.
    """
    types, unit = types or {}, unit or _remembered_unit(folder)
    source = SourceFile.of(path)
    rows = _up_to_date(folder, source, name, complete, types, unit)
    if rows is not None:
        shutil.rmtree(_outdated(folder), ignore_errors=True)  # of somebody who died just after renaming
        return rows
    _refuse_foreign(folder)
    try:
        with _locked_partial(folder) as partial:
            source = SourceFile.of(path)  # the file may have changed while we waited
            rows = _up_to_date(folder, source, name, complete, types, unit)  # by whoever held the lock before
            if rows is None:
                _write(Scan(path, types), source, partial, progress, complete, unit)
                _swap_in(path, partial, folder)
                rows = FolderRows(folder, name=name)
            return rows
    except RowSourceError:
        raise
    except OSError as problem:
        raise RowSourceError(
            f"Cannot write {folder}: {problem.strerror}. Say where else with folder=...", path=str(folder)
        ) from None


def _up_to_date(
    folder: Path,
    source: SourceFile,
    name: str | None,
    complete: Collection[str],
    types: dict[str, Type],
    unit: str | None,
) -> FolderRows | None:
    try:
        manifest = Manifest.read(folder)
        found = {entry.name: entry.column.type for entry in manifest.columns}
        if manifest.source == source and found == found | types and unit in (None, manifest.unit):
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


def _write(
    scan: "Scan",
    source: SourceFile,
    partial: Path,
    progress: bool | None,
    complete: Collection[str],
    unit: str | None,
) -> None:
    path = scan.path
    grouping = None if unit is None else Grouping(unit, partial, scan.columns, path.name)
    columns = _fill(scan, partial, progress, grouping)
    rows = columns[0].digest.rows
    if rows == 0:
        raise RowSourceError(f"{path} has no rows; holdfast needs at least one.")
    if SourceFile.of(path) != source:
        raise RowSourceError(f"{path} changed while it was read; open it again.")
    refuse_contradiction(str(path), scan.never_missing, [column.digest.name for column in columns if column.missing])
    Manifest(
        rows=rows,
        fingerprint=fingerprint_of([column.digest for column in columns] if grouping is None else grouping.digests),
        source=source,
        columns=tuple(column.entry(nullable=column.digest.name not in scan.never_missing) for column in columns),
        files={name: entry for column in columns for name, entry in column.files().items()}
        | ({} if grouping is None else _write_starts(partial, len(columns), grouping)),
        unit=unit,
        units=0 if grouping is None else grouping.starts.size - 1,
    ).declared(complete).write(partial)


def _write_starts(partial: Path, position: int, grouping: Grouping) -> dict[str, FileEntry]:
    file = ArrayFile(partial / file_name(position, "units"), np.int64)
    try:
        file.append(grouping.starts)
        file.close()
    finally:
        file.abandon()
    return {file.path.name: file.entry()}


def _fill(scan: "Scan", partial: Path, progress: bool | None, grouping: Grouping | None) -> list[ColumnFiles]:
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
            batches = scan.batches() if grouping is None else grouping.batches(scan.batches(), scan.rows())
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
    if scan.format == "CSV":
        types = ", ".join(f"{name} {storage.type}" for name, storage in scan.columns.items())
        console.print(f"Types, as declared or from the first {_LOOK_AHEAD:,} rows: {types}", markup=False)


class Scan:
    """One reading of one file. `types` are those of a CSV file that are declared; the first rows say the others."""

    def __init__(self, path: Path, types: Mapping[str, Type]) -> None:
        self.path = path
        self.format = FORMATS[path.suffix.lower()]
        self._types = types
        if types and self.format != "CSV":
            raise InvalidArgument(f"types must be left out: {path.name} says its own types.", name="types")
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
        # A number may be NaN even where NULL is ruled out.
        required = required_columns(path, self.format)
        self.never_missing = {
            name for name, storage in self.columns.items() if name in required and storage.type is not Type.FLOAT
        }

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
            except _UNREADABLE as problem:
                raise self._unfit(problem) or self._damaged() from None
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
        return self._csv(self._typed())

    def _csv(self, types: Mapping[str, pl.DataType], **options: Any) -> pl.LazyFrame:
        return pl.scan_csv(self.path, schema=types, glob=False, **options)

    def _typed(self) -> dict[str, pl.DataType]:
        """Return the type of every column, from the declaration or from the first rows."""
        inferred = pl.scan_csv(self.path, infer_schema_length=_LOOK_AHEAD, try_parse_dates=True, glob=False)
        types = dict(inferred.collect_schema())
        for unknown in self._types.keys() - types.keys():
            raise UnknownName(f"types must name columns of {self.path.name}; it has no {unknown!r}.", name=unknown)
        types |= {name: _READ_AS[type_] for name, type_ in self._types.items()}
        types |= {name: pl.String() for name, dtype in types.items() if not keeps(dtype)}
        texts = self._csv(dict.fromkeys(types, pl.String())).head(_LOOK_AHEAD).collect()
        values = self._csv(types, ignore_errors=True).head(_LOOK_AHEAD).collect()
        unfit = {name for name in types if values[name].null_count() > texts[name].null_count()}
        return types | dict.fromkeys(unfit - self._types.keys(), pl.String())  # which every value fits

    def _refuse_header(self, names: list[str]) -> None:
        if any("\0" in name or "\ufffd" in name for name in names):
            raise self._damaged()
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise RowSourceError(f"{self.path} has two columns named {twice[0]!r}; rename one of them.")

    def _unfit(self, problem: BaseException) -> RowSourceError | None:
        """Say which value does not fit the type of its column, if that was the problem."""
        types = dict(self._frame.collect_schema())
        column = _column_in(problem, types) if self.format == "CSV" else None
        if column is None:
            return None
        this = pl.nth(list(types).index(column))  # not by name, which may be a pattern to Polars
        texts = self._csv(dict.fromkeys(types, pl.String())).select(this.alias("text"))
        values = self._csv(types, ignore_errors=True).select(this.alias("value"))
        unfit = pl.concat([texts, values], how="horizontal").with_row_index("row", 1)
        unfit = unfit.filter(pl.col("text").is_not_null() & pl.col("value").is_null()).select("row").head(1)
        try:
            row = f"row {unfit.collect().item():,}"
        except (*_UNREADABLE, ValueError):  # something else is wrong with the file, too
            return None
        type_ = self.columns[column].type
        why = "as declared" if column in self._types else f"as its first {_LOOK_AHEAD:,} rows suggest"
        return RowSourceError(
            f"{self.path}, {row}: the value of {column!r} is not of type {type_}, {why}. Declare what fits all values,"
            f" for example types={{{column!r}: 'text'}}."
        )

    def _damaged(self) -> RowSourceError:
        return RowSourceError(
            f"Cannot read {self.path} as {self.format}: it is cut off, damaged, or not {self.format} at all."
        )


def _column_in(problem: BaseException, names: Collection[str]) -> str | None:
    """Return the column that a message of the CSV reader speaks of."""
    found = _COLUMN.search(str(problem))
    return found[1] if found is not None and found[1] in names else None
