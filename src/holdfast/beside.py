"""What lies beside rows on disk: their ledger, what remembers how far it had come, declarations, another part."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import polars as pl
from numpy.random import Generator

from holdfast.errors import InvalidArgument
from holdfast.ledger import FileWitness, Witness, content_of, file_beside
from holdfast.queries.declared import Declarations, beside
from holdfast.queries.synthetic import synthetic_rows
from holdfast.rows.folder import FolderRows
from holdfast.rows.local import LocalRows
from holdfast.rows.memory import memory_rows
from holdfast.rows.source import RowSource
from holdfast.schema import Schema

MADE_UP_ROWS = 1_000
SEALED, CONFUSION = ".board.holdfast", ".confusion.holdfast"  # the rows of a board that score, and those that answer
HELD, EXPLORE = ".held.holdfast", ".explore.parquet"  # how the names of the two parts of a file end


def made_up(schema: Schema, rng: Generator) -> LocalRows:
    """Return invented rows; those of units are a few each."""
    rows = synthetic_rows(schema, MADE_UP_ROWS, rng)
    if schema.unit is not None:
        rows = rows.with_columns(pl.Series(schema.unit, rng.integers(0, MADE_UP_ROWS // 3, MADE_UP_ROWS)))
    return memory_rows(rows, name="made up", unit=schema.unit)


def declare(rows: RowSource, **declared: Any) -> Schema:
    """Return the schema of rows with what is declared: in the file beside them, and in arguments, which come first."""
    texts = partial(_texts, rows)
    return Declarations(**declared).on(beside(rows.location).on(rows.schema, texts), texts)


def _texts(rows: RowSource, name: str) -> Sequence[str]:
    """Return all texts of a column, which the admin publishes."""
    found = rows.texts(name) if isinstance(rows, LocalRows) else None
    if found is None:
        why = "there are too many" if isinstance(rows, LocalRows) else "decks and sources of your own do not list them"
        raise InvalidArgument(
            f"The texts of {name!r} cannot be published: {why}. List those that matter as its categories.",
            name="categories",
        )
    return found


def explored_beside(rows: RowSource) -> Callable[[], RowSource | None]:
    """Return how to read the exploration part of held rows on disk, which lies beside them; it may be missing."""
    folder = rows.location
    if folder is None or not folder.name.endswith(HELD):
        return lambda: None
    path = folder.with_name(folder.name.removesuffix(HELD) + EXPLORE)
    unit = rows.schema.unit
    return cache(lambda: memory_rows(pl.read_parquet(path), name=path.name, unit=unit) if path.is_file() else None)


def ids_beside(rows: RowSource) -> Callable[[str], pl.Series | None]:
    """Return how to read the ids of the other part of a board that has two; None where there is no other part."""
    folder = rows.location
    ends = {SEALED: CONFUSION, CONFUSION: SEALED}
    own = next((end for end in ends if folder is not None and folder.name.endswith(end)), None)
    if folder is None or own is None:
        return lambda column: None
    part = folder.with_name(folder.name.removesuffix(own) + ends[own])
    return cache(lambda column: FolderRows(part).ids(column) if part.is_dir() else None)


def ledger_beside(rows: RowSource) -> Path | None:
    """Return where the ledger of data on disk lies; None for data in memory."""
    return None if rows.location is None else file_beside(rows.location)


def witnesses_beside(rows: RowSource) -> list[Witness]:
    """Return who beside the data remembers how far its ledger had come."""
    ledger = ledger_beside(rows)
    return [] if ledger is None else [FileWitness(ledger.with_suffix(".witness"), content_of(rows.fingerprint))]
