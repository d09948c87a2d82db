"""What was dealt from which table: noted beside the table and beside each deck, since they have one budget.

    flights.parquet.dealt    a line for every deck that was dealt from the table
    flights.deck.dealt       a line for the table

A line has the state that the table was in (of files: names, sizes, times), and where the other one is. A note is
written before the first card, so it may speak of a deck that was never finished; only decks that are there count.

A deck counts for a table in the state that it was dealt from. A file that was copied back or touched has other times:
then its content is compared, which reads all rows once for each state, and is noted beside the table in a third item.
"""

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from holdfast.errors import InvalidArgument, RowSourceError
from holdfast.ledger import FileWitness, content_of, file_beside
from holdfast.rows.decks.cards import ROW
from holdfast.rows.decks.deck import Deck, deals_in
from holdfast.rows.decks.used import USED, UsedFile
from holdfast.rows.disk.folder import FolderRows, Manifest
from holdfast.rows.fingerprint import Content
from holdfast.rows.local import LocalRows
from holdfast.rows.open import target_of
from holdfast.rows.scans.scan import Scan

NOTE = ".dealt"  # ends the names of notes
_AT_ONCE = 1 << 16  # rows, or units, hashed at once


def note_deal(scan: Scan, decks: list[Path]) -> None:
    """Note that these decks are dealt from a table, unless it is a stream, which nobody can open again."""
    state = scan.origin().state
    if not state or not scan.where:
        return
    table = target_of(scan).absolute()
    for deck in decks:
        for here, there in ((table, deck.absolute()), (deck.absolute(), table)):
            if (state, there) not in _read(here).others:
                _append(here, state, str(there))


def decks_of(rows: LocalRows) -> list[Path]:
    """Return the decks that are there and were dealt from this table, or from one of its rows in the same folder."""
    table = rows.location
    if table is None:
        return []
    with suppress(RowSourceError):
        state = Manifest.read(table).source.state
        own = _decks_of(table, state, rows) if _note(table).exists() else []
        return own or _decks_of_copies(table, state, rows)
    return []


def _decks_of_copies(table: Path, state: str, rows: LocalRows) -> list[Path]:
    """Return the decks of the same rows that the notes in the folder tell of: it may have been copied or renamed."""
    decks = _noted_in(table.parent, but=_note(table))
    return [deck for deck in decks if _is_dealt_from(deck, rows) and _content_in(deck) == _content(table, state, rows)]


def _noted_in(folder: Path, but: Path | None = None) -> list[Path]:
    """Return all that the notes in a folder are about, or tell of: decks and tables, there or not."""
    notes = [note.with_suffix("") for note in folder.glob(f"*{NOTE}") if note != but]
    return list(dict.fromkeys(each for one in notes for each in (one, *(there for _, there in _read(one).others))))


def _is_dealt_from(deck: Path, rows: LocalRows) -> bool:
    """Whether a deck may have been dealt from these rows, by its size and the names of its columns."""
    found = deals_in(deck)
    cards = Manifest.read(found[0]) if found else None
    if cards is None or cards.dealt is None:
        return False
    alike = cards.dealt.rows == len(rows) or (cards.unit, rows.schema.unit) != (None, None)
    return alike and {each.name for each in cards.columns} - {ROW} == set(rows.storages)


def decks_of_scan(scan: Scan, rows: LocalRows | None) -> list[Path]:
    """Return the decks that are there and were dealt from the table of a scan, or from its rows, if they are known."""
    try:
        return _decks_of(target_of(scan).absolute(), scan.origin().state, rows)
    except (InvalidArgument, RowSourceError):  # a stream, or a file that cannot be read
        return []


def decks_of_copies(scan: Scan, rows: LocalRows) -> list[Path]:
    """Return the decks of these rows that were dealt from other tables in the folder, such as copies of the table."""
    try:
        return _decks_of_copies(target_of(scan).absolute(), scan.origin().state, rows)
    except (InvalidArgument, RowSourceError):
        return []


def _decks_of(table: Path, state: str, rows: LocalRows | None) -> list[Path]:
    return _dealt_from(table, state, lambda: _content(table, state, rows))


def _content(table: Path, state: str, rows: LocalRows | None) -> str:
    """Return the identity of the rows as decks have it, in whichever order they are; it is noted, with the state."""
    found = _read(table).contents.get(state, "")
    if not found and rows is not None:
        found = unordered_content(rows)
        with suppress(OSError):  # no room: it is computed again
            _append(table, state, None, found)
    return found


def _dealt_from(table: Path, state: str, content: Callable[[], str]) -> list[Path]:
    """Return the decks of a table that are there and were dealt from this state of it, or from this content."""
    others = _read(table).others
    there = [deck for deck in dict.fromkeys(deck for _, deck in others) if deals_in(deck)]
    here = "" if all((state, deck) in others for deck in there) else content()
    return [deck for deck in there if (state, deck) in others or (here and _content_in(deck) == here)]


def unordered_content(rows: LocalRows) -> str:
    """Return the identity under which witnesses know decks that are dealt from these rows. Reads all rows."""
    content = Content(rows.storages)
    for start in range(0, len(rows), _AT_ONCE):
        content.add(rows.frame(np.arange(start, min(start + _AT_ONCE, len(rows)))))
    return content_of(content.fingerprint())


def _content_in(deck: Path) -> str:
    """Return the identity of the rows that a deck was dealt from; "" for one that is damaged."""
    try:
        dealt = Manifest.read(deals_in(deck)[0]).dealt
    except RowSourceError:
        return ""
    return "" if dealt is None else content_of(dealt.fingerprint)


def decks_beside(deck: Deck) -> Iterator[tuple[Path, UsedFile]]:
    """Yield the other decks of the same table, or of a copy beside it, each with how far it is used."""
    content, tables = content_of(deck.fingerprint), _read(deck.location).others
    found = [each for state, table in tables for each in _dealt_from(table, state, lambda: content)]
    folders = dict.fromkeys([deck.location.parent, *(table.parent for _, table in tables)])
    noted = [each for folder in folders for each in _noted_in(folder) if deals_in(each)]
    found += [each for each in noted if each not in found and _content_in(each) == content]
    for other in dict.fromkeys(found):
        if other != deck.location:
            yield other, UsedFile(other / USED)


def table_ledger(deck: Deck) -> str | None:
    """Return the ledger that has begun on a deck's table, or what was made of it, such as while it was dealt.

    Only the witness beside the table is asked: a ledger that is there, too, may be that of the deck.
    """
    for state, table in _read(deck.location).others:
        contents = [content_of(deck.fingerprint)]  # of labels that were sealed, which nobody has opened
        with suppress(RowSourceError):
            rows = Manifest.read(table)
            contents += [content_of(rows.fingerprint)] if rows.source.state == state else []
        for content in contents:
            seen = FileWitness(witness_of(table), content).newest()
            if seen is not None:
                return seen.address
    return None


def ledger_of_copies(deck: Deck) -> str | None:
    """Return the ledger that has begun on a table of the same rows in the folder: that of the deck may be a copy."""
    tables, content = [table for _, table in _read(deck.location).others], content_of(deck.fingerprint)
    folders = {each.parent for each in (deck.location, *tables)}
    for folder in sorted(one for parent in folders for one in parent.glob("*.holdfast")):
        with suppress(RowSourceError):
            there = Manifest.read(folder)
            seen = FileWitness(witness_of(folder), content_of(there.fingerprint)).newest()
            if folder in tables or there.dealt is not None or seen is None:
                continue
            rows = FolderRows(folder)
            if _is_dealt_from(deck.location, rows) and _content(folder, there.source.state, rows) == content:
                return seen.address
    return None


def tables_of(deck: Deck) -> list[Path]:
    """Return the tables that a deck was dealt from, as far as the notes beside it and beside them tell, sorted."""
    return sorted({table for _, table in _read(deck.location).others if _note(table).exists()})


def witness_of(table: Path) -> Path:
    """Return where the witness of a table or a deck is."""
    return file_beside(table).with_suffix(".witness")


def _note(folder: Path) -> Path:
    return file_beside(folder).with_suffix(NOTE)


class _Read(NamedTuple):
    """What a note says: states with where the others are, or were moved together with it; contents of states."""

    others: list[tuple[str, Path]]
    contents: dict[str, str]


def _read(folder: Path) -> _Read:
    found = _Read([], {})
    with suppress(OSError):
        for line in _note(folder).read_text(encoding="utf-8", errors="surrogateescape").splitlines():
            with suppress(ValueError, TypeError):  # cut off by a kill
                state, there, *content = json.loads(line)
                if content:
                    found.contents[state] = str(content[0])
                    continue
                path = Path(there)
                moved = folder.with_name(path.name)
                found.others.append((str(state), moved if moved.exists() and not path.exists() else path))
    return found


def _append(folder: Path, *line: str | None) -> None:
    """Add a line, durably; raise if there is no room for it. A read-only folder has no notes."""
    text = b"\n" + json.dumps(line).encode("utf-8", "surrogateescape") + b"\n"  # the line before may have been cut off
    try:
        note = os.open(_note(folder), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_SYNC | os.O_CLOEXEC, 0o600)
        try:
            while text:
                text = text[os.write(note, text) :]
        finally:
            os.close(note)
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
