"""Open data and its ledger for commands that look and must not begin anything."""

from pathlib import Path
from typing import Any

from holdfast.beginning import ledger_beside
from holdfast.errors import UnknownName
from holdfast.ledger import exists
from holdfast.rows.open import open_rows
from holdfast.session import Session


def standing(data: str, ledger: str | None) -> Session:
    """Return the session of a ledger that exists already."""
    rows: Any = open_rows(data)
    if not begun(rows, ledger):
        where = "the database" if ledger is not None and "://" in ledger else ledger or ledger_beside(rows)
        raise UnknownName(
            f"No ledger of {rows.name!r} at {where}. It begins with the first question: holdfast ask.", name=rows.name
        )
    return Session(rows, ledger=ledger)


def begun(rows: Any, ledger: str | None) -> bool:
    """Return whether these rows have a ledger there."""
    location: str | Path | None = ledger_beside(rows) if ledger is None else ledger
    return exists(location, rows.name)
