"""A folder with one array file per column, mapped into memory: opening it is cheap, however many rows.

`manifest.json` describes the folder's files and the file that it was made from. It is written last, so its presence
means that everything else is complete; it ends with a hash of itself. `packs` stores what fits computed from the
columns beside them.
"""

import json
import mmap
import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import wraps
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from polars.exceptions import PanicException, PolarsError

from holdfast.errors import RowSourceError
from holdfast.queries.query import Query
from holdfast.rows.columns import CodedText, Numbers, PackedText, StoredColumn, code_type, refuse_missing, storage_named
from holdfast.rows.disk.array_files import (
    AT_ONCE,
    DataCheck,
    FileEntry,
    MappedArray,
    populate_in_background,
    spare_memory,
)
from holdfast.rows.disk.packs import PackFiles
from holdfast.rows.disk.partial import write_whole
from holdfast.rows.draws import Indices
from holdfast.rows.local import LocalRows
from holdfast.rows.scans.scan import Origin
from holdfast.rows.units import Units
from holdfast.schema import Column, Schema

MANIFEST = "manifest.json"
DIVISION = "division.json"  # beside rows that a deck keeps for checks: which they are
_FAULTS = (PolarsError, PanicException, IndexError)  # no evaluation raises these on undamaged rows
_FORMAT = "holdfast column folder"
VERSION = 7


def file_name(position: int, what: str) -> str:
    """Name a column's file by position, since column names may contain anything."""
    return f"{position:05d}.{what}.npy"


@dataclass(frozen=True)
class Dealt:
    """What a folder of a deck's cards records about the table they were dealt from.

    Parameters
    ----------
    rows, fingerprint
        How many rows the table has, and the hash of its content and of which rows are kept for checks.
    first
        How many cards were dealt before these.
    slice
        Which of several decks from one deal this is, for example "1 of 4".
    deal
        The name of the deal.
    kept
        How many rows, or units, are kept for checks: the cards are copies of the others.
    order
        A hash of all rows with their numbers, if cards carry row numbers: one question may draw cards of two deals.
    """

    rows: int
    fingerprint: str
    first: int
    slice: str
    deal: str
    kept: int = 0
    order: str = ""


@dataclass(frozen=True)
class ColumnEntry:
    """One column of a folder."""

    name: str
    type: str  # a label of holdfast.rows.columns.Storage
    nullable: bool  # unless declared complete, or ruled out by the header of the file
    layout: str  # numbers, coded, packed
    missing: bool  # whether any value is missing: for speed, and to refuse a false declaration; never shown
    marked: bool  # whether there is a file of validity marks
    bytes: int = 0  # size of packed texts
    distinct: int = 0  # number of texts in the dictionary

    @property
    def column(self) -> Column:
        """What is public about it."""
        return Column(self.name, storage_named(self.type).type, self.nullable)


@dataclass(frozen=True)
class Manifest:
    """The whole of `manifest.json`."""

    rows: int
    fingerprint: str
    source: Origin
    columns: tuple[ColumnEntry, ...]
    files: dict[str, FileEntry]
    unit: str | None = None  # the column that names units, if rows are grouped by unit
    units: int = 0
    dealt: Dealt | None = None  # if the rows are cards

    @property
    def drawn(self) -> int:
        """The number of rows, or of units if units are drawn."""
        return self.rows if self.unit is None else self.units

    def declared(self, complete: Collection[str]) -> "Manifest":
        """Return the manifest with these columns declared complete; refuse those that are not."""
        schema = Schema(tuple(entry.column for entry in self.columns), Path(self.source.name).stem).declared(complete)
        refuse_missing(complete, [entry.name for entry in self.columns if entry.missing])
        pairs = zip(self.columns, schema, strict=True)
        return replace(self, columns=tuple(replace(entry, nullable=column.nullable) for entry, column in pairs))

    def write(self, folder: Path) -> None:
        """Write durably and atomically: a concurrent reader sees the old manifest or the new one."""
        content: dict[str, Any] = {"format": _FORMAT, "version": VERSION} | asdict(self)
        write_whole(folder / MANIFEST, json.dumps(content | {"hash": _hash(content)}, indent=1))

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read, and check that every file has its size."""
        try:
            content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            raise RowSourceError(f"{folder} is not a holdfast folder: it has no {MANIFEST}.") from None
        except OSError as problem:
            raise RowSourceError(f"Cannot read {folder}: {problem.strerror}.") from None
        except ValueError:
            raise _damaged(folder) from None
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise _damaged(folder)
        if content.get("version") != VERSION:
            raise RowSourceError(
                f"{folder} was written by another version of holdfast; delete it and open the original file again,"
                " which writes a new one."
            )
        if content.pop("hash", None) != _hash(content):
            raise _damaged(folder)
        try:
            manifest = cls._from(content)
        except (KeyError, TypeError, ValueError):
            raise _damaged(folder) from None
        for name, entry in manifest.files.items():
            try:
                found = (folder / name).stat().st_size
            except OSError:
                raise RowSourceError(f"{folder} lacks {name}; remove the folder and open again.") from None
            if found != entry.size:
                raise RowSourceError(f"{folder / name} has the wrong size; remove the folder and open again.")
        return manifest

    @classmethod
    def _from(cls, content: dict[str, Any]) -> "Manifest":
        return cls(
            rows=int(content["rows"]),
            fingerprint=str(content["fingerprint"]),
            source=Origin(**content["source"]),
            columns=tuple(ColumnEntry(**entry) for entry in content["columns"]),
            files={
                str(name): FileEntry(int(entry["size"]), tuple(entry["blocks"]))
                for name, entry in content["files"].items()
            },
            unit=content["unit"],
            units=int(content["units"]),
            dealt=None if content["dealt"] is None else Dealt(**content["dealt"]),
        )


def _hash(content: dict[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _damaged(folder: Path) -> RowSourceError:
    return RowSourceError(f"{folder / MANIFEST} is damaged; remove the folder and open again.")


Verb = TypeVar("Verb", bound=Callable[..., Any])


def explained(verb: Verb) -> Verb:
    """Return a method that evaluates a query, but looks for damage after an error that sound rows cannot cause."""

    @wraps(verb)
    def explaining(self: "FolderRows", query: Query, *args: Any, **kwargs: Any) -> Any:
        try:
            return verb(self, query, *args, **kwargs)
        except _FAULTS:
            self._explain(query.columns)
            raise

    return cast(Verb, explaining)


class FolderRows(LocalRows):
    """The rows of a column folder. Opening checks the manifest, all file sizes, and the content of a small folder.

    The content of a larger one is checked in the background; see `blocks`.
    """

    _advice = mmap.MADV_RANDOM

    @property
    def _hashes_content(self) -> bool:
        """Whether the fingerprint is that of the rows as stored; with units, they originally came in another order."""
        return self.schema.unit is None

    def __init__(self, folder: Path, *, name: str | None = None, complete: Collection[str] = ()) -> None:
        folder = folder.absolute()  # so that it can be reopened from anywhere
        found = Manifest.read(folder)
        if found.rows < 1 or not found.columns:
            raise RowSourceError(f"{folder} holds no rows; remove it and open the original file again.")
        self._refuse(found, folder)
        manifest = found.declared(complete)
        name = name or Path(manifest.source.name).stem
        check = self._check = DataCheck(name, folder, manifest.files)
        small = sum(entry.size for entry in manifest.files.values()) <= AT_ONCE
        check.now(None if small else [file for file in manifest.files if _read_at_once(file)])
        if manifest != found:
            with suppress(OSError):  # in a read-only folder, a declaration holds for this session only
                manifest.write(folder)
        self._spare_memory = spare_memory()
        self._mapped: dict[str | None, list[MappedArray]] = {}  # by column; key None for the starts of units
        self._unpopulated: dict[str | None, list[MappedArray]] = {}
        self._requested: dict[str, list[MappedArray]] = {}
        self._packed = PackFiles(folder, manifest.rows, manifest.fingerprint, check)
        super().__init__(
            name,
            [
                (entry.column, storage_named(entry.type), self._open(folder, position, entry, manifest.rows))
                for position, entry in enumerate(manifest.columns)
            ],
            manifest.rows,
            fingerprint=manifest.fingerprint,
            location=folder,
            packs=self._packed,
            unit=manifest.unit,
            units=self._open_units(folder, manifest),
        )
        check.start()
        weakref.finalize(self, check.stop)

    def _refuse(self, manifest: Manifest, folder: Path) -> None:
        if manifest.dealt is not None:
            raise RowSourceError(f"{folder} holds cards of a deck, not rows; open the deck: {folder.parent}.")
        if (folder / DIVISION).exists():  # whatever answers they gave, they could not check
            raise RowSourceError(f"{folder} holds rows that only check guesses; open their deck: {folder.parent}.")

    def __reduce__(self) -> tuple[Any, ...]:  # another process maps the files itself
        complete = tuple(column.name for column in self.schema if not column.nullable)
        return _reopen, (self.location, self.name, self.fingerprint, complete)

    tally = explained(LocalRows.tally)
    tally_passes = explained(LocalRows.tally_passes)
    sample = explained(LocalRows.sample)
    fold = explained(LocalRows.fold)

    def verify(self) -> None:
        """Compare every file with its hashes, then hash everything again; raise if it is not the data opened."""
        self._check.now()
        self._require_whole(self.schema.names)
        if self._hashes_content:
            super().verify()

    def require_sound(self) -> None:
        """Refuse if a check has found damage."""
        self._check.require_sound()

    def close(self) -> None:
        """Stop the background check."""
        self._check.stop()

    def _explain(self, columns: Sequence[str]) -> None:
        """Look for damage after an error that undamaged rows cannot cause."""
        self._check.now([mapped.name for name in columns for mapped in self._mapped[name]])

    def _require_whole(self, columns: Sequence[str]) -> None:
        for name in columns if self._units is None else (None, *columns):
            for mapped in self._mapped[name]:
                if mapped.cut_off:
                    self._check.report(mapped.name)
        self._check.require_sound()

    def _about_to_read(self, rows: Indices | slice, columns: Sequence[str]) -> None:
        self._require_whole(columns)
        if self._unpopulated:
            new = [mapped for name in (None, *columns) for mapped in self._unpopulated.pop(name, ())]
            if new:  # the first draw from a column maps its pages, and has it checked before others
                self._check.hurry([mapped.name for mapped in new])
                self._spare_memory = populate_in_background(new, self._spare_memory)
        if self._requested and not isinstance(rows, slice):
            for name in columns:
                for mapped in self._requested.get(name, ()):
                    mapped.request(rows)

    def _open_units(self, folder: Path, manifest: Manifest) -> Units | None:
        if manifest.unit is None:
            return None
        starts = MappedArray(folder / file_name(len(manifest.columns), "units"), np.dtype(np.int64), manifest.units + 1)
        self._mapped[None] = self._unpopulated[None] = [starts]
        return Units(starts.array)

    def _about_to_read_lines(self) -> None:
        for pack in self._packed.mapped:
            if pack.cut_off:
                self._check.report(pack.name)
        self._check.require_sound()

    def _open(self, folder: Path, position: int, entry: ColumnEntry, rows: int) -> StoredColumn:
        mapped: list[MappedArray] = []  # without dictionaries, which are read now and not again

        def array(what: str, dtype: Any, length: int) -> Any:
            opened = MappedArray(folder / file_name(position, what), np.dtype(dtype), length, self._advice)
            if not _read_at_once(opened.name):
                mapped.append(opened)
            return opened.array

        storage = storage_named(entry.type)
        valid = array("valid", np.bool_, rows) if entry.marked else None
        stored: StoredColumn
        if entry.layout == "numbers" and storage.numpy is not None:
            stored = Numbers(storage, array("values", storage.numpy, rows), valid, entry.missing)
        elif entry.layout == "coded":
            codes = array("codes", code_type(entry.distinct), rows)
            texts = array("dictionary.texts", np.uint8, entry.bytes)
            starts = array("dictionary.starts", np.int64, entry.distinct + 1)
            stored = CodedText(codes, PackedText(starts, texts).part("", 0, entry.distinct), valid)
        elif entry.layout == "packed":
            starts = array("starts", np.int64, rows + 1)
            stored = PackedText(starts, array("texts", np.uint8, entry.bytes), valid)
        else:
            raise RowSourceError(f"{folder} has an unknown layout; remove the folder and open again.")
        self._mapped[entry.name] = self._unpopulated[entry.name] = mapped
        large = [each for each in mapped if each.larger_than_memory and each.array.size in (rows, rows + 1)]
        if large:
            self._requested[entry.name] = large
        return stored


def _read_at_once(file: str) -> bool:
    """Whether opening reads the whole file: dictionaries are kept in memory as texts."""
    return ".dictionary." in file


def _reopen(folder: Path, name: str, fingerprint: str, complete: Collection[str]) -> FolderRows:
    rows = FolderRows(folder, name=name, complete=complete)
    if rows.fingerprint != fingerprint:
        raise RowSourceError(f"{folder} holds other data than before; open it again.")
    return rows
