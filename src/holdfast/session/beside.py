"""What is stored beside rows on disk: their ledger, its witness, the other part of a split."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path

import polars as pl

from holdfast.ledger import FileWitness, Witness, content_of, file_beside
from holdfast.ledger.store import Tip
from holdfast.ledger.witness import Seen
from holdfast.rows.decks.deck import Deck
from holdfast.rows.memory import memory_rows
from holdfast.rows.source import RowSource

HELD, EXPLORE = ".held.holdfast", ".explore.parquet"  # suffixes of the two parts of a split file


def explored_beside(rows: RowSource) -> Callable[[], RowSource | None]:
    """Return a function that reads the exploration part stored beside held rows, or returns None if there is none."""
    folder = rows.location
    if folder is None or not is_held(rows):
        return lambda: None
    path = folder.with_name(folder.name.removesuffix(HELD) + EXPLORE)
    unit = rows.schema.unit
    return cache(lambda: memory_rows(pl.read_parquet(path), name=path.name, unit=unit) if path.is_file() else None)


def explored_texts(rows: RowSource, column: str) -> list[str] | None:
    """Return the texts of a column in the exploration part beside held rows, sorted; None if there is no such part.

    While the rows are being split, it is still hidden.
    """
    folder = rows.location
    assert folder is not None  # only files have parts that are stored
    shown = folder.with_name(folder.name.removesuffix(HELD) + EXPLORE)
    for path in (shown, shown.with_name(f".{shown.name}")):
        if path.is_file():
            found = pl.read_parquet(path, columns=[column])[column]
            return found.cast(pl.String).drop_nulls().unique().sort().to_list()
    return None


def is_held(rows: RowSource) -> bool:
    """Whether these are the held rows of a split file."""
    return rows.location is not None and rows.location.name.endswith(HELD)


def ledger_beside(rows: RowSource) -> Path | None:
    """Return the path of the ledger for data on disk; None for data in memory."""
    return None if rows.location is None else file_beside(rows.location)


class DeckWitness:
    """A deck, as a witness in a restore: it saw no entries, but what its ledger had given out for its questions."""

    name = "the deck"

    def __init__(self, deck: Deck) -> None:
        self._deck = deck

    def newest(self) -> Seen | None:
        """Return the first entry of the ledger that used the deck, and what it had given out."""
        mark = self._deck.used
        return Seen("", Tip(0, mark.ledger, 0, 0, "", *mark.taken)) if any(mark.taken) else None

    def others(self) -> None:
        """Return None: a deck is told by questions, not by ledgers."""

    def remember(self, seen: Seen) -> None:
        """Do nothing, as above."""

    def alone(self) -> AbstractContextManager[None]:
        """Keep nobody from anything."""
        return nullcontext()

    def accept(self, seen: Seen) -> None:
        """Do nothing: the restored ledger goes on behind what the deck remembers."""

    def close(self) -> None:
        """Do nothing."""


def witnesses_of_a_restore(rows: RowSource) -> list[Witness]:
    """Return all witnesses beside the data; a deck is one itself."""
    return [*witnesses_beside(rows), *([DeckWitness(rows)] if isinstance(rows, Deck) else [])]


def witnesses_beside(rows: RowSource) -> list[Witness]:
    """Return the witnesses beside the data, which remember how far its ledger had advanced."""
    ledger = ledger_beside(rows)
    return [] if ledger is None else [FileWitness(ledger.with_suffix(".witness"), content_of(rows.fingerprint))]
