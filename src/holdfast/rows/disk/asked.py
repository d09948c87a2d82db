"""Rows that have answered questions: nothing else takes the place of their folder.

A ledger belongs to its rows, and to what is drawn from them: rows or units. A file that has changed since it was begun,
or is opened in another way, is refused before its folder is replaced. So a refused call changes nothing: opened as
before, the data go on.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.errors import HoldfastError, PlanConflict, RowSourceError
from holdfast.ledger import FileWitness, content_of, file_beside
from holdfast.ledger.chain import Opened
from holdfast.ledger.opening import store_at
from holdfast.ledger.witness import BOARD, SPLIT
from holdfast.rows.disk.folder import Manifest
from holdfast.rows.scans.scan import Origin, Scan

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
