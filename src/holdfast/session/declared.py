"""Bounds, categories and labels, declared once for a column instead of with every question.

They are given as arguments of `Session`, or in a TOML file beside the data, `flights.toml` for `flights.parquet`:

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from holdfast import check
from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.queries.build import categories_of
from holdfast.queries.functions.operation import with_article
from holdfast.rows.local import LocalRows
from holdfast.rows.source import RowSource
from holdfast.schema import Column, Schema, Type
from holdfast.session.beside import explored_texts, is_held

PUBLISHED = "published"
DECLARED = ("bounds", "categories", "labels")
LONGEST_LABEL = 200


@dataclass(frozen=True)
class Declarations:
    """Declarations by column, as they were given."""

    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    categories: Mapping[str, Sequence[Any] | str] = field(default_factory=dict)
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


def beside(location: Path | None) -> Declarations:
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
    schema = Declarations(**declared).on(beside(rows.location).on(rows.schema, texts), texts)
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
