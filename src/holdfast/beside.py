"""What is stored beside rows on disk: their ledger, its witness, declarations, and the other part of a split."""

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
SEALED, CONFUSION = ".board.holdfast", ".confusion.holdfast"  # a board's rows for scores, and for confusion matrices
HELD, EXPLORE = ".held.holdfast", ".explore.parquet"  # suffixes of the two parts of a split file


def made_up(schema: Schema, rng: Generator) -> LocalRows:
    """Return made-up rows; if they have units, about three rows per unit."""
    rows = synthetic_rows(schema, MADE_UP_ROWS, rng)
    if schema.unit is not None:
        rows = rows.with_columns(pl.Series(schema.unit, rng.integers(0, MADE_UP_ROWS // 3, MADE_UP_ROWS)))
    return memory_rows(rows, name="made up", unit=schema.unit)


def declare(rows: RowSource, **declared: Any) -> Schema:
    """Return the schema of rows with declarations applied: from the file beside them, overridden by arguments."""
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
    """Return a function that reads the exploration part stored beside held rows, or returns None if there is none."""
    folder = rows.location
    if folder is None or not folder.name.endswith(HELD):
        return lambda: None
    path = folder.with_name(folder.name.removesuffix(HELD) + EXPLORE)
    unit = rows.schema.unit
    return cache(lambda: memory_rows(pl.read_parquet(path), name=path.name, unit=unit) if path.is_file() else None)


def ids_beside(rows: RowSource) -> Callable[[str], pl.Series | None]:
    """Return a function that reads the ids of a board's other part, or returns None if there is none."""
    folder = rows.location
    ends = {SEALED: CONFUSION, CONFUSION: SEALED}
    own = next((end for end in ends if folder is not None and folder.name.endswith(end)), None)
    if folder is None or own is None:
        return lambda column: None
    part = folder.with_name(folder.name.removesuffix(own) + ends[own])
    return cache(lambda column: FolderRows(part).ids(column) if part.is_dir() else None)


def ledger_beside(rows: RowSource) -> Path | None:
    """Return the path of the ledger for data on disk; None for data in memory."""
    return None if rows.location is None else file_beside(rows.location)


def witnesses_beside(rows: RowSource) -> list[Witness]:
    """Return the witnesses beside the data, which remember how far its ledger had advanced."""
    ledger = ledger_beside(rows)
    return [] if ledger is None else [FileWitness(ledger.with_suffix(".witness"), content_of(rows.fingerprint))]
