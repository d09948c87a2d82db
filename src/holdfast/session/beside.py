"""What is stored beside the data: declarations, the ledger and its witness, the other part of a split.

Bounds, categories and labels are declared once for a column instead of with every question. They are given as arguments
of `Session`, or in a TOML file beside the data, `flights.toml` for `flights.parquet`:

    [bounds]
    dep_delay = [-60, 600]                       # used where `within` is left out

    [categories]
    carrier = ["UA", "AA", "DL"]                 # used for counts and groups where no list is given
    origin = "published"                         # all texts in the column, which the admin makes public; for held
                                                 # rows, all texts in the exploration part

    [labels]
    dep_delay = "departure delay in minutes"

Declarations are public. Except for published texts, they never come from rows: they state what is known without the
data. They may be changed at any time, because the range and the categories of a question are part of the question.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

import polars as pl

from holdfast import check
from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.ledger import FileWitness, Witness, content_of, file_beside
from holdfast.ledger.store import Tip
from holdfast.ledger.witness import DEALT, Seen
from holdfast.queries.build import categories_of
from holdfast.queries.node import with_article
from holdfast.rows.decks.dealt import decks_beside, decks_of, ledger_of_copies, table_ledger, tables_of, witness_of
from holdfast.rows.decks.deck import Deck
from holdfast.rows.decks.used import Mark
from holdfast.rows.local import LocalRows
from holdfast.rows.memory import memory_rows
from holdfast.rows.scans.files import EXPLORE
from holdfast.rows.source import RowSource
from holdfast.schema import Category, Column, Schema, Type

PUBLISHED = "published"
DECLARED = ("bounds", "categories", "labels")
LONGEST_LABEL = 200
WITNESS = ".witness"


@dataclass(frozen=True)
class Declarations:
    """Declarations by column, as they were given."""

    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    categories: Mapping[str, Sequence[Category] | str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    source: Path | None = None  # the file that says so, for refusals

    def __post_init__(self) -> None:
        for kind in DECLARED:
            given = getattr(self, kind)
            if given is None:
                object.__setattr__(self, kind, {})
            elif not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
                raise InvalidArgument(f"{kind} must be a dict by column names; got {given!r}.", name=kind)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a TOML file."""
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InvalidArgument(f"{path} cannot be read as TOML: {reason}.", name="declarations") from None
        for name in found:
            if name not in DECLARED:
                raise InvalidArgument(
                    f"{path} must have tables of declarations, [bounds], [categories] or [labels]; got {name!r}."
                    " If it is something else, give it another name.",
                    name="declarations",
                )
        return cls(**found, source=path)

    def on(self, schema: Schema, texts: Callable[[str], Sequence[str]] = lambda name: ()) -> Schema:
        """Return the schema with what is declared here, or refuse it; `texts` returns the texts of a column."""
        if not (self.bounds or self.categories or self.labels):
            return schema  # the same object: parsed texts are cached by the schema's identity
        try:
            return self._on(schema, texts)
        except HoldfastError as error:
            if self.source is not None:  # name the file: the question is not at fault
                error.message = f"{self.source.name}: {error.message}"
            raise

    def _on(self, schema: Schema, texts: Callable[[str], Sequence[str]]) -> Schema:
        columns = {column.name: column for column in schema}
        for name, pair in self.bounds.items():
            column = _declared(columns, schema, name)
            if not column.type.is_number:
                raise InvalidArgument(
                    f"bounds must be of numbers; {name!r} is {with_article(column.type)}.", name="bounds"
                )
            columns[name] = replace(column, bounds=check.interval(f"bounds[{name!r}]", pair))
        for name, values in self.categories.items():
            column, subject = _declared(columns, schema, name), f"categories[{name!r}]"
            if isinstance(values, str) and values != PUBLISHED:
                raise InvalidArgument(
                    f"{subject} must be a list of values, or 'published' for those it has; got {values!r}.",
                    name="categories",
                )
            published = isinstance(values, str)
            if published and column.type is not Type.STRING:
                raise InvalidArgument(
                    f"{subject} can be 'published' for a column of texts; {name!r} is {with_article(column.type)}. List"
                    " its values.",
                    name="categories",
                )
            listed = categories_of(texts(name) if published else values, column.type, subject)
            columns[name] = replace(column, categories=listed, published=published)
        for name, label in self.labels.items():
            if not isinstance(label, str) or not 0 < len(label) <= LONGEST_LABEL or not label.isprintable():
                raise InvalidArgument(
                    f"labels[{name!r}] must be a line of at most {LONGEST_LABEL} characters; got {label!r}.",
                    name="labels",
                )
            columns[name] = replace(_declared(columns, schema, name), label=label)
        return replace(schema, columns=tuple(columns.values()))


def _declared(columns: Mapping[str, Column], schema: Schema, name: str) -> Column:
    return columns[schema[name].name]  # schema[name] refuses an unknown name, with a suggestion


def declared_beside(location: Path | None) -> Declarations:
    """Return what is declared in the TOML file beside the folder of columns at `location`, if there is one."""
    if location is None:
        return Declarations()
    name = location.name.removesuffix(".holdfast").removesuffix(".held")
    stem = Path(name).stem if Path(name).suffix else name
    path = location.with_name(f"{stem}.toml")
    return Declarations.read(path) if path.is_file() else Declarations()


def declare(rows: RowSource, **declared: Any) -> Schema:
    """Return the schema of rows with declarations applied: from the file beside them, overridden by arguments."""
    texts = partial(_texts, rows)
    schema = Declarations(**declared).on(declared_beside(rows.location).on(rows.schema, texts), texts)
    if is_held(rows) and any(column.published for column in schema):  # the list says nothing about these rows
        return replace(schema, columns=tuple(replace(column, published=False) for column in schema))
    return schema


def refuse_published(schema: Schema) -> None:
    """Refuse texts that were published from rows which check guesses: a guess made from them has seen the rows."""
    for column in schema:
        if column.published:
            raise InvalidArgument(
                f"The texts of {column.name!r} cannot be published: these rows check guesses, so nobody may see what is"
                " in them. List those that matter as its categories.",
                name="categories",
            )


def _texts(rows: RowSource, name: str) -> Sequence[str]:
    """Return all texts of a column, which the admin publishes; for held rows, those of the exploration part."""
    if is_held(rows):
        explored = explored_texts(rows, name)
        if explored is None:
            raise InvalidArgument(
                f"The texts of {name!r} cannot be published: these rows check guesses, and their exploration part, the"
                " file that anybody may look at, is not beside them. List those that matter as its categories.",
                name="categories",
            )
        return explored
    found = rows.texts(name) if isinstance(rows, LocalRows) else None
    if found is None:
        why = "there are too many" if isinstance(rows, LocalRows) else "decks and sources of your own do not list them"
        raise InvalidArgument(
            f"The texts of {name!r} cannot be published: {why}. List those that matter as its categories.",
            name="categories",
        )
    return found


# -- ledger, witness, the other part ----------------------------------------------------------------------------------


HELD = ".held.holdfast"  # ends the name of the held part of a split file, as EXPLORE that of the other


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


class FoundWitness(Witness):
    """A witness that is never told anything: what it says is found where the data are, each time it is asked."""

    def remember(self, seen: Seen) -> None:
        """Do nothing: nobody stores anything here."""

    def accept(self, seen: Seen) -> None:
        """Do nothing: a restored ledger goes on behind what this witness says."""


class NeighborWitness(FoundWitness):
    """The witnesses of other files in the folder: the data may have been renamed or copied there."""

    name = "a witness beside other data"

    def __init__(self, own: Path, content: str, *, but: Path | None = None, where: str = "in this folder") -> None:
        self._own, self._content, self._but, self._where = own, content, but, where

    def newest(self) -> Seen | None:
        """Return the newest state of a ledger for this content that any of them saw."""
        newest: Seen | None = None
        for path in self._own.parent.glob(f"*{WITNESS}"):
            seen = None if path in (self._own, self._but) else FileWitness(path, self._content).newest()
            # At one entry, the one that saw most taken: a restore counts it.
            if seen is not None and (newest is None or _reached(seen) > _reached(newest)):
                newest, self.name = seen, f"{path.name} {self._where}"
        return newest


def _reached(seen: Seen) -> tuple[int, tuple[int, ...]]:
    return seen.tip.seq, tuple(seen.tip.taken)


class DeckWitness(FoundWitness):
    """A deck, as a witness in a restore: it saw no entries, but what its ledger had given out for its questions."""

    def __init__(self, name: str, used: Callable[[], Mark]) -> None:
        self.name, self._used = name, used

    def newest(self) -> Seen | None:
        """Return the first entry of the ledger that used the deck, and what it had given out."""
        mark = self._used()
        return Seen("", Tip(0, mark.ledger, 0, 0, "", *mark.taken)) if any(mark.taken) else None


class TableOfDeck(FoundWitness):
    """The table of a deck, and all decks dealt from it: they have one ledger, that of any of them that is used."""

    name = "the table that was dealt"

    def __init__(self, deck: Deck) -> None:
        self._deck = deck

    def newest(self) -> Seen | None:
        """Return the ledger of the table itself, or the first entry of the one that used another deck."""
        for find, self.name in (
            (table_ledger, TableOfDeck.name),
            (ledger_of_copies, "a copy of the table that was dealt"),
        ):
            if (begun := find(self._deck)) is not None:
                return Seen(begun, Tip(0, "", 0, 0))
        for other, used in decks_beside(self._deck):
            if ledger := used.read().ledger or self._begun_for(other):
                return Seen(f"{DEALT}{other.name}", Tip(0, ledger, 0, 0))
        return None

    def _begun_for(self, other: Path) -> str:
        """Return the first entry of the ledger that has begun for another deck, whose first question is to come."""
        seen = FileWitness(witness_of(other), content_of(self._deck.fingerprint)).newest()
        return "" if seen is None or seen.tip.seq else seen.tip.hash

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold what beginning a ledger on the table holds, so that no other deck of it begins one meanwhile, either."""
        with ExitStack() as held:
            for table in tables_of(self._deck):
                held.enter_context(FileWitness(witness_of(table), content_of(self._deck.fingerprint)).alone())
            yield


class DealtWitness(FoundWitness):
    """The decks dealt from a table, which then has no ledger of its own."""

    name = "a deck of the table"

    def __init__(self, table: LocalRows) -> None:
        self._table = table

    def newest(self) -> Seen | None:
        """Return that the table was dealt, if it was."""
        names = ", ".join(deck.name for deck in decks_of(self._table))
        return Seen(f"{DEALT}{names}", Tip(0, "", 0, 0)) if names else None


def witnesses_of_a_restore(rows: RowSource) -> list[Witness]:
    """Return all witnesses beside the data; a deck is one itself, and so are the others of its table."""
    found: list[Witness] = []
    if isinstance(rows, Deck):
        own = rows.used.ledger
        found.append(DeckWitness("the deck", lambda: rows.used))
        for other, used in decks_beside(rows):
            if own in ("", used.read().ledger):  # else it belongs to another ledger, from when nobody noticed
                found.append(DeckWitness(f"the deck {other.name}", used.read))
    return _with_files(rows, found)


def witnesses_beside(rows: RowSource) -> list[Witness]:
    """Return the witnesses beside the data, which remember how far its ledger had advanced, or what was dealt."""
    found: list[Witness] = []
    if rows.location is not None and isinstance(rows, Deck):
        found.append(TableOfDeck(rows))
        content, where = content_of(rows.fingerprint), "beside the table that was dealt"
        found += [
            NeighborWitness(witness_of(table), content, where=where)
            for table in tables_of(rows)
            if table.parent != rows.location.parent
        ]
    elif rows.location is not None and isinstance(rows, LocalRows):
        found.append(DealtWitness(rows))
    return _with_files(rows, found)


def _with_files(rows: RowSource, found: Sequence[Witness]) -> list[Witness]:
    """Return the witness file of the data, what was found besides, and last, which says least, those of other files."""
    if rows.location is None:
        return [*found]
    own, content = witness_of(rows.location), content_of(rows.fingerprint)
    return [FileWitness(own, content), *found, NeighborWitness(own, content)]
