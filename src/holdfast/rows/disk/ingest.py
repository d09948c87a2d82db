"""Turn a table into a column folder, once.

    scan       the table batch by batch (`scans`)
    write      batch after batch into a partial folder (`partial`); hash on the way; note the progress
    vouch      write the manifest last; make everything durable; then give the folder its name

A process that is interrupted or killed leaves what it has written, and the next one resumes there if the table is still
in the same state: the files are compared with their hashes, and their rows are not read again from the source. Streams
and database queries start over. Rows grouped by unit are hashed in the order of the table, and stored in another: once
all of them have been read, grouping them resumes, without reading the table again; before that, it starts over.
"""

import errno
import json
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from holdfast.errors import RowSourceError
from holdfast.rows.columns import TEXT, Storage, refuse_contradiction
from holdfast.rows.disk.array_files import Incomplete, reason
from holdfast.rows.disk.asked import asked, refuse_other_rows, refuse_other_unit
from holdfast.rows.disk.column_writer import DICTIONARY_BYTES, ColumnFiles, NumberFiles, TextFiles, UnitFile
from holdfast.rows.disk.folder import MANIFEST, VERSION, Dealt, FolderRows, Manifest
from holdfast.rows.disk.partial import Note, clear, locked_partial, outdated_beside, swap_in
from holdfast.rows.fingerprint import ColumnDigest, Digested, fingerprint_of, fingerprint_of_files
from holdfast.rows.scans.scan import Origin, Scan
from holdfast.rows.units import Grouping, lengths_of

# Distinct texts that a dictionary may hold. During ingestion all dictionaries are in memory at once.
_MOST_DISTINCT = 1 << 18
_MOST_DISTINCT_IN_ALL = 1 << 21
_DICTIONARY_BYTES_IN_ALL = 96 << 20
_KEPT = "What was done so far is kept: the same call resumes there, if the table is still the same."
_DROPPED = (
    "What was done so far is not kept: a stream, a database, an engine, or rows by unit while they are being read,"
    " cannot be resumed, so the same call starts over."
)
_OURS = re.compile(r"\d{5,}\.[a-z.]+\.npy|pack-[0-9a-f]+\.[a-z.]+|" + re.escape(MANIFEST) + r"((\.[0-9a-f]+)?\.new)?")


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

    A folder is up to date if the table is in the same state as when it was read (for files: names, sizes and times of
    change), and if its rows are grouped by the declared unit, if there is one. A file edited in place within one tick
    of the clock, to the same size, goes unnoticed. A stream has no state, and is never read into an existing folder.
    """
    unit = unit or _remembered_unit(folder)
    rows = _up_to_date(folder, scan, name, complete, unit)
    if rows is not None:
        shutil.rmtree(outdated_beside(folder), ignore_errors=True)  # left by a process that died just after renaming
        return rows
    refuse_foreign(folder)
    try:
        with locked_partial(folder, kept=bool(scan.origin().state)) as partial:
            rows = _up_to_date(folder, scan, name, complete, unit)  # another process may just have written it
            if rows is None:
                if not scan.origin().state and folder.exists():
                    raise RowSourceError(
                        f"{folder} is there already, and a stream cannot be compared with it; open the folder."
                    )
                _write_unless_asked(scan, partial, folder, progress, complete, unit)
                swap_in(scan.path, partial, folder)
                rows = FolderRows(folder, name=name)
            return rows
    except RowSourceError:
        raise
    except OSError as problem:
        raise unwritable(folder, problem, "Choose another place with folder=...") from None


def unwritable(folder: Path, problem: OSError, way_out: str) -> RowSourceError:
    """Return the error for a folder that cannot be written: a full disk, missing permissions, too many columns."""
    hint = "" if problem.errno == errno.EMFILE else f" {way_out}"
    return RowSourceError(f"Cannot write {folder}: {reason(problem)}.{hint}", path=str(folder))


def _up_to_date(
    folder: Path, scan: Scan, name: str | None, complete: Collection[str], unit: str | None
) -> FolderRows | None:
    try:
        manifest = Manifest.read(folder)
        types = {entry.name: entry.column.type for entry in manifest.columns}
        if unit in (None, manifest.unit) and scan.agrees(manifest.source, types):
            return FolderRows(folder, name=name, complete=complete)
    except RowSourceError:
        return None  # missing or damaged: it will be written again
    return None


def _remembered_unit(folder: Path) -> str | None:
    """Return the unit of a folder that may be out of date: forgetting it would make intervals wrong, not just wide.

    So it is also read from folders that are damaged or of another version, as long as they name one; and from a folder
    that was moved aside by a process killed before the new folder took its name.
    """
    for place in (folder, outdated_beside(folder)):
        try:
            unit = json.loads((place / MANIFEST).read_text(encoding="utf-8"))["unit"]
        except (OSError, ValueError, TypeError, KeyError):
            continue
        return unit if isinstance(unit, str) else None
    return None


def refuse_foreign(folder: Path) -> None:
    """Refuse to replace a folder that holdfast did not write."""
    if folder.exists() and not (folder.is_dir() and all(_OURS.fullmatch(e.name) for e in folder.iterdir())):
        raise RowSourceError(f"{folder} exists and is not a holdfast folder; move it away or give folder=...")


def _write_unless_asked(
    scan: Scan, partial: Path, folder: Path, progress: bool | None, complete: Collection[str], unit: str | None
) -> None:
    """Write a partial folder; refuse it if rows that have answered questions would lose their folder to other rows."""
    before = None
    with suppress(RowSourceError):  # missing or damaged
        before = Manifest.read(folder)
    begun = None if before is None else asked(folder, before)
    refuse_other_unit(scan, begun, unit)
    if before is not None:
        scan.recall(before.source)
    origin = scan.origin()
    try:
        scan.open()
        _write(scan, origin, partial, progress, complete, unit)
    except RowSourceError as problem:
        if before is not None:
            try:
                refuse_other_rows(scan, folder, before, begun, origin)
            except RowSourceError as refusal:
                problem.message = f"{refusal} Besides, it cannot be read as before: {problem}"
        raise
    after = Manifest.read(partial)
    refuse_other_unit(scan, asked(folder, after), unit)
    if before is not None and after.fingerprint != before.fingerprint:
        refuse_other_rows(scan, folder, before, asked(folder, before), origin)  # it may have begun meanwhile


def _write(
    scan: Scan,
    origin: Origin,
    partial: Path,
    progress: bool | None,
    complete: Collection[str],
    unit: str | None,
) -> None:
    before = scan.moment()
    if unit is None:
        columns, together = _fill(scan, before, partial, progress), None
    else:
        columns, together = _fill_by_unit(scan, before, partial, progress, unit, origin.name)
    if (scan.moment(), scan.origin()) != (before, origin):
        raise RowSourceError(f"{scan.where} changed while it was read; open it again.")
    vouch(scan, origin, columns, partial, complete, together=together)


def _fill(scan: Scan, moment: str, partial: Path, progress: bool | None) -> list[ColumnFiles]:
    """Write columns, or resume those of an interrupted process."""
    note = Note(partial, scan, moment, ["columns", VERSION])
    columns, done, message = _begun(scan, partial, note), 0, scan.note
    if columns:
        done = columns[0].digest.rows
    else:
        message = _cleared(partial, message)
        columns = _columns(scan.columns, partial)
    with (
        reported(f"Preparing {scan.name}", "rows", scan.rows, progress, message, note.known) as advance,
        _closing(columns),
    ):
        advance(done)
        for batch in scan.batches(done):
            _append(columns, batch)
            advance(batch.height)
            if note.known:
                note.write([column.so_far() for column in columns])
    note.remove()
    return columns


def _cleared(partial: Path, message: str) -> str:
    """Remove what an interrupted process left; return the message to print, which says so."""
    if any(partial.iterdir()):
        message = f"Earlier work could not be resumed: all rows were read again. {message}".strip()
    clear(partial)
    return message


def _begun(scan: Scan, partial: Path, note: Note) -> list[ColumnFiles]:
    """Return the columns of an interrupted process, positioned after the noted progress; none if any is incomplete."""
    states = note.read()
    if states is None:
        return []
    columns = _columns(scan.columns, partial, over=True)
    try:
        for column, state in zip(columns, states, strict=True):
            column.go_on(state)
    except Incomplete:
        for column in columns:
            column.abandon()
        return []
    return columns


def _fill_by_unit(
    scan: Scan, moment: str, partial: Path, progress: bool | None, unit: str, name: str
) -> tuple[list[ColumnFiles], "Together"]:
    """Write columns with rows grouped by unit, and where units begin; resume once all rows have been read."""
    note, message = Note(partial, scan, moment, ["units", unit, VERSION]), scan.note
    grouping = Grouping(unit, partial, scan.columns, name)
    batches = _begun_by_unit(grouping, partial, note)
    if batches is None:
        message = _cleared(partial, message)
        batches = grouping.batches(scan.batches(), scan.rows(), note.write if note.known else None)
    columns = _columns(scan.columns, partial, hashed=False)
    try:
        with (
            reported(f"Preparing {scan.name}", "rows", scan.rows, progress, message, lambda: grouping.kept) as advance,
            _closing(columns),
        ):
            for batch in batches:
                _append(columns, batch)
                advance(batch.height)
    except BaseException:
        if not grouping.kept:
            shutil.rmtree(partial, ignore_errors=True)
        raise
    note.remove()
    for chunk in partial.glob("chunk.*"):
        chunk.unlink()
    starts = UnitFile(partial, len(columns))
    with _closing([starts]):
        starts.append(np.diff(grouping.starts))
    return columns, Together(grouping.unit, starts, grouping.digests)


def _begun_by_unit(grouping: Grouping, partial: Path, note: Note) -> Iterator[pl.DataFrame] | None:
    """Return the rows that an interrupted process has read, grouped by unit; None if it has not read all of them."""
    state = note.read()
    if state is None:
        return None
    try:
        batches = grouping.resume(state)
    except Incomplete:
        return None
    needed = {note.path.name, *(name for name, *_ in state["chunks"])}
    for leftover in partial.iterdir():
        if leftover.name not in needed:  # columns are written again
            leftover.unlink()
    return batches


def write_rows(
    scan: Scan,
    origin: Origin,
    batches: Iterable[pl.DataFrame],
    partial: Path,
    complete: Collection[str],
    unit: str | None,
) -> None:
    """Write some rows of a table as a folder, except for its final name; no batch may end within a unit."""
    columns = _columns(scan.columns, partial)
    starts = None if unit is None else UnitFile(partial, len(columns))
    with _closing(columns if starts is None else [*columns, starts]):
        for batch in batches:
            _append(columns, batch)
            if starts is not None and unit is not None:
                starts.append(lengths_of(batch[unit]))
    together = None
    if starts is not None and unit is not None:
        together = Together(unit, starts, [column.digest for column in columns])
    vouch(scan, origin, columns, partial, complete, together=together)


class Together(NamedTuple):
    """Rows grouped by unit: the column that names units, where units begin, and the digests in the original order."""

    unit: str
    starts: UnitFile
    digests: Sequence[ColumnDigest | Digested]


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


def _columns(
    storages: Mapping[str, Storage], partial: Path, *, over: bool = False, hashed: bool = True
) -> list[ColumnFiles]:
    """Open the files of columns; with `over`, overwrite existing ones in place.

    `hashed` says whether the fingerprint is of the texts in this order.
    """
    texts = sum(storage is TEXT for storage in storages.values())
    distinct = min(_MOST_DISTINCT, _MOST_DISTINCT_IN_ALL // max(1, texts))
    size = min(DICTIONARY_BYTES, _DICTIONARY_BYTES_IN_ALL // max(1, texts))
    return [
        TextFiles(partial, position, name, storage, distinct, most_bytes=size, over=over, hashed=hashed)
        if storage is TEXT
        else NumberFiles(partial, position, name, storage, over=over)
        for position, (name, storage) in enumerate(storages.items())
    ]


def _append(columns: Iterable[ColumnFiles], batch: pl.DataFrame) -> None:
    for column in columns:
        column.append(batch[column.digest.name])


@contextmanager
def _closing(columns: Collection[ColumnFiles | UnitFile]) -> Iterator[None]:
    """Make columns durable at the end, and close their files in any case."""
    try:
        yield
        for column in columns:
            column.close()
    finally:
        for column in columns:
            column.abandon()


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
