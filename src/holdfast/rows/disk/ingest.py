"""Turn a table into a column folder, once.

    scan       the table batch by batch (`scans`)
    write      batch after batch into a partial folder (`partial`); hash on the way; note the progress
    vouch      write the manifest last; make everything durable; then give the folder its name

A process that is interrupted or killed leaves what it has written, and the next one resumes there if the table is still
in the same state: the files are compared with their hashes, and their rows are not read again from the source. Streams
and database queries start over. Rows grouped by unit are hashed in the order of the table, and stored in another: once
all of them have been read, grouping them resumes, without reading the table again; before that, it starts over.

A ledger belongs to its rows, and to what is drawn from them: rows or units. A file that has changed since it was begun,
or is opened in another way, is refused before its folder is replaced. So a refused call changes nothing: opened as
before, the data go on.
"""

import errno
import json
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from holdfast.errors import HoldfastError, PlanConflict, RowSourceError
from holdfast.ledger import FileWitness, content_of, file_beside
from holdfast.ledger.chain import Opened
from holdfast.ledger.opening import store_at
from holdfast.ledger.witness import BOARD, SPLIT
from holdfast.rows.columns import TEXT, Storage, refuse_contradiction
from holdfast.rows.disk.array_files import Incomplete, reason
from holdfast.rows.disk.column_writer import DICTIONARY_BYTES, ColumnFiles, NumberFiles, TextFiles, UnitFile
from holdfast.rows.disk.folder import MANIFEST, VERSION, Dealt, FolderRows, Manifest
from holdfast.rows.disk.partial import Note, clear, locked_partial, outdated_beside, reported, swap_in
from holdfast.rows.fingerprint import ColumnDigest, Digested, fingerprint_of, fingerprint_of_files
from holdfast.rows.scans.scan import Origin, Scan
from holdfast.rows.units import Grouping, lengths_of

# Distinct texts that a dictionary may hold. During ingestion all dictionaries are in memory at once.
_MOST_DISTINCT = 1 << 18
_MOST_DISTINCT_IN_ALL = 1 << 21
_DICTIONARY_BYTES_IN_ALL = 96 << 20
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
    origin, scan.unit = scan.origin(), unit
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


_MADE = (SPLIT, BOARD)  # what was made of rows has the ledger, instead of the rows themselves


class Asked(NamedTuple):
    """Where the ledger is that has begun on some rows, and the unit that it was begun for."""

    ledger: str
    unit: str | None


def asked(folder: Path, rows: Manifest) -> Asked | None:
    """Return the ledger that has begun on these rows, if one is beside the folder or known to the witness there."""
    place = file_beside(folder.absolute())
    first = _first_entry(place, rows.fingerprint) if place.exists() else None
    if first is not None:
        return Asked(str(place), first["terms"].get("unit"))
    seen = FileWitness(place.with_suffix(".witness"), content_of(rows.fingerprint)).newest()
    return None if seen is None else Asked(seen.address, rows.unit)


def _first_entry(ledger: Path, fingerprint: str) -> dict[str, Any] | None:
    """Return the first entry of a ledger file of these rows; None if it has not begun, is of other rows or damaged."""
    store = store_at(ledger, "data")
    try:
        entries, secret = store.read(0, 1), store.secret()
        if not entries or secret is None:
            return None
        first: dict[str, Any] = json.loads(entries[0].body)
        Opened(first["dataset"], fingerprint, reproducible=False).require(first, secret, store.location)
        return first
    except (HoldfastError, ValueError, KeyError):  # a session refuses a damaged ledger, unless it is being restored
        return None
    finally:
        store.close()


def refuse_other_unit(scan: Scan, begun: Asked | None, unit: str | None) -> None:
    """Refuse to draw anything but what the ledger that has begun on these rows was begun for."""
    if begun is None or begun.unit == unit:
        return
    if begun.ledger.startswith(_MADE):
        fact, again = f"The rows of {scan.where} were {begun.ledger}", "Go on with that"
    else:
        drawn = "single rows" if begun.unit is None else f"units by {begun.unit!r}"
        fact = f"The ledger {begun.ledger} was begun for {drawn}, and all of its answers are about those"
        again = "Leave unit= out to go on" if begun.unit is None else f"Open the data with unit={begun.unit!r}"
    raise PlanConflict(
        f"{fact}. {again}. Another unit needs data that have answered nothing yet.",
        standing={"unit": begun.unit},
        asked={"unit": unit},
    )


def refuse_other_rows(scan: Scan, folder: Path, before: Manifest, begun: Asked | None, origin: Origin) -> None:
    """Refuse rows other than those of the folder, which a ledger that has begun belongs to."""
    if begun is None or begun.ledger.startswith(_MADE) or _is_gone(begun.ledger):
        return
    if before.source.state == origin.state:  # only how it is read differs
        raise RowSourceError(
            f"Read like this, {scan.where} has other values than those that the ledger {begun.ledger} was begun with."
            " Leave out the options that say how it is written: those of the first time are remembered."
        )
    path = scan.path
    if path is not None and path.is_file():
        new = f"save them under a new name, such as {path.with_stem(f'{path.stem}-2').name}"
    else:
        new = f"copy them into another folder: holdfast.open({scan.where!r}, folder='{scan.name}-2.holdfast')"
    raise RowSourceError(
        f"{scan.where} has changed since the ledger {begun.ledger} was begun, which belongs to the rows of that time."
        f" To go on with those, open their copy: {folder}. For the rows of now, begin a ledger of their own: {new}."
    )


def _is_gone(ledger: str) -> bool:
    """Whether the ledger was a file that is there no longer."""
    return "://" not in ledger and Path(ledger).is_absolute() and not Path(ledger).exists()
