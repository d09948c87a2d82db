"""What a session starts from: the plan of rows that have none yet, and what lies beside them.

Beside rows on disk lie their ledger, what remembers how far it had come, a file of declarations, and the exploration
part of held rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import polars as pl
from numpy.random import Generator

from holdfast.errors import InvalidArgument
from holdfast.guarantees.compare import BEST, FAST
from holdfast.guarantees.plan import Plan
from holdfast.guarantees.request import PlanRequest
from holdfast.guarantees.terms import NO_CAP
from holdfast.ledger import Cost, FileWitness, Place, Spent, Witness, content_of, file_beside
from holdfast.queries.declared import Declarations, beside
from holdfast.queries.synthetic import synthetic_rows
from holdfast.rows.deck import Deck
from holdfast.rows.folder import FolderRows
from holdfast.rows.hand import cards_for_distinct
from holdfast.rows.local import LocalRows
from holdfast.rows.memory import memory_rows
from holdfast.rows.source import RowSource
from holdfast.schema import Schema

MADE_UP_ROWS = 1_000
COINS = "coins"  # the mechanism that draws with replacement
DISTINCT, REPEATED = "laplace", "laplace_with_replacement"  # noisy means of rows, drawn once or more often
SEALED, CONFUSION = ".board.holdfast", ".confusion.holdfast"  # the rows of a board that score, and those that answer
HELD, EXPLORE = ".held.holdfast", ".explore.parquet"  # how the names of the two parts of a file end


def cards_taken(plan: Plan, taken: Cost | Place | Spent) -> int:
    """Return how many cards stand for what was taken of a budget: its charge in coins, or so many for a noisy mean.

    Noisy means are counted by the charge, which is the same for each of them. Statements are fewer: a fit makes two,
    whatever its number of steps.
    """
    return taken.charge // _charge_of_mean(plan) * _cards_of_mean(plan)


def reach_of(plan: Plan, deck: Deck) -> Cost:
    """Return how far a budget can be taken until the cards of a deck end: the other way round than `cards_taken`."""
    return Cost(deck.cards.stop // _cards_of_mean(plan) * _charge_of_mean(plan), NO_CAP)


def _charge_of_mean(plan: Plan) -> int:
    """Return the charge of one coin, or of one noisy mean."""
    terms = plan.terms
    return terms.charge_per_answer if terms.mechanism in (DISTINCT, REPEATED) else 1


def _cards_of_mean(plan: Plan) -> int:
    """Return how many cards one coin, or one noisy mean, has."""
    terms = plan.terms
    if terms.mechanism == DISTINCT:
        return cards_for_distinct(terms.rows_per_query, terms.rows)
    return terms.rows_per_query if terms.mechanism == REPEATED else 1


def require_dealt_for(deck: Deck, mechanism: str) -> None:
    """Refuse what the cards of a deck cannot be drawn for."""
    if mechanism == DISTINCT and not deck.numbered:
        raise InvalidArgument(
            f"mechanism {DISTINCT!r} draws distinct rows, and the cards of {deck.name} do not say which row they are."
            " Deal a deck with distinct=True.",
            name="mechanism",
        )
    if mechanism not in (COINS, DISTINCT, REPEATED):
        raise InvalidArgument(
            f"mechanism must be {COINS!r} for a deck, which holds draws and not the table; got {mechanism!r}.",
            name="mechanism",
        )


def plan_for(rows: RowSource, request: PlanRequest) -> Plan:
    """Return the plan of a new ledger. A deck holds draws with replacement, and so many of them."""
    if not isinstance(rows, Deck):
        return request.make(len(rows))
    if request.checks is not None:
        raise InvalidArgument(
            "checks must be left out for a deck: its cards are dealt. Check on rows that were not dealt from.",
            name="checks",
        )
    if request.mechanism != BEST:
        require_dealt_for(rows, request.mechanism)
        if request.mechanism != COINS:
            return request.make(len(rows))
    request = replace(request, mechanism=COINS)
    if isinstance(request.rows_per_query, int) or request.margin is not None:
        return request.make(len(rows))
    # Every answer reads as many cards, so that they can be counted beforehand.
    plan = request.make(len(rows))
    if plan.endless:
        return replace(request, rows_per_query=request.rows_per_query or FAST).make(len(rows))
    each = rows.cards.stop // max(1, plan.statements)
    return replace(request, rows_per_query=max(1, min(plan.rows_per_query, each))).make(len(rows))


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
