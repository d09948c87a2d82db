"""What was dealt from which table: noted beside the table and beside each deck, since they have one budget.

    flights.parquet.dealt    a line for every deck that was dealt from the table
    flights.deck.dealt       a line for the table

A line has the state that the table was in (of files: names, sizes, times), and where the other one is. A note is
written before the first card, so it may speak of a deck that was never finished; only decks that are there count.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.errors import InvalidArgument, RowSourceError
from holdfast.ledger import file_beside
from holdfast.rows.decks.deck import USED, Deck, UsedFile, deals_in
from holdfast.rows.disk.folder import Manifest
from holdfast.rows.disk.ingest import asked
from holdfast.rows.open import target_of
from holdfast.rows.scans.scan import Scan


def note_deal(scan: Scan, decks: list[Path]) -> None:
    """Note that these decks are dealt from a table, unless it is a stream, which nobody can open again."""
    state = scan.origin().state
    if not state or not scan.where:
        return
    table = target_of(scan).absolute()
    for deck in decks:
        for here, there in ((table, deck.absolute()), (deck.absolute(), table)):
            if (state, there) not in _lines(here):
                _append(here, state, there)


def decks_of(table: Path, state: str | None = None) -> list[Path]:
    """Return the decks that are there and were dealt from a table in its present state: that of its folder, if None."""
    if not _note(table).exists():
        return []
    if state is None:
        try:
            state = Manifest.read(table).source.state
        except RowSourceError:
            return []
    return [deck for then, deck in _lines(table) if then == state and deals_in(deck)]


def decks_of_scan(scan: Scan | None) -> list[Path]:
    """Return the decks that are there and were dealt from the table of a scan."""
    try:
        return [] if scan is None else decks_of(target_of(scan).absolute(), scan.origin().state)
    except (InvalidArgument, RowSourceError):  # a stream, or a file that cannot be read
        return []


def decks_beside(deck: Deck) -> Iterator[tuple[Path, UsedFile]]:
    """Yield the other decks of the same table, each with how far it is used."""
    for state, table in _lines(deck.location):
        for other in decks_of(table, state):
            if other != deck.location:
                yield other, UsedFile(other / USED)


def table_ledger(deck: Deck) -> str | None:
    """Return the ledger that has begun on the table of a deck itself, such as while it was dealt."""
    for state, table in _lines(deck.location):
        with suppress(RowSourceError):  # nobody has opened it
            rows = Manifest.read(table)
            begun = asked(table, rows) if rows.source.state == state else None
            if begun is not None:
                return begun.ledger
    return None


def _note(folder: Path) -> Path:
    return file_beside(folder).with_suffix(".dealt")


def _lines(folder: Path) -> list[tuple[str, Path]]:
    """Return what the note beside a folder says: states, and where the others are, or were moved together with it."""
    found = []
    with suppress(OSError):
        for line in _note(folder).read_text(encoding="utf-8", errors="surrogateescape").splitlines():
            with suppress(ValueError, TypeError):  # cut off by a kill
                state, there = json.loads(line)
                path = Path(there)
                moved = folder.with_name(path.name)
                found.append((str(state), moved if moved.exists() and not path.exists() else path))
    return found


def _append(folder: Path, state: str, there: Path) -> None:
    with suppress(OSError):  # a read-only folder has no notes
        note = os.open(_note(folder), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(note, json.dumps([state, str(there)]).encode("utf-8", "surrogateescape") + b"\n")
        finally:
            os.close(note)
