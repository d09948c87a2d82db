"""The schema of a dataset: column names, types, whether values may be missing, and whatever else is declared. Public.

A schema is declared or read from a file's header. What the rows happen to show (this column has missing values, that
one has none) would be an answer about the sample that nobody paid for. Only types that nobody declared, of files that
have no header, are inferred from the first rows.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from holdfast import notebook
from holdfast.cached import cached_property
from holdfast.errors import UnknownName

Category = bool | int | float | str | date  # a value of a column, such as a group or a bin of a histogram
MOST_SHOWN = 20  # names of columns in a refusal
SHOWN = ("column", "type", "missing values", "declared")
MOST_LISTED = 20  # categories of a column in its description


class Type(StrEnum):
    """The column types that queries can use."""

    BOOL = "boolean"
    INT = "integer"
    FLOAT = "number"
    STRING = "text"
    DATE = "date"
    DATETIME = "timestamp"

    def __init__(self, name: str) -> None:
        self.is_number = name in ("integer", "number")  # whether arithmetic applies


@dataclass(frozen=True)
class Column:
    """One column.

    Parameters
    ----------
    name, type
        The column's name, and the type of its values.
    nullable
        Whether NULL or NaN may occur: no declaration rules them out. It does not say that there are any.
    bounds
        The declared range of its numbers, used where a question leaves `within` out. Values outside are clipped.
    categories
        Its declared values, used where a question counts or groups without a list. The column may hold others.
    label
        A name to show to people.
    published
        Whether the categories are the texts that actually occur in the column, which the admin has made public.
    """

    name: str
    type: Type
    nullable: bool
    bounds: tuple[float, float] | None = None
    categories: tuple[Category, ...] | None = None
    label: str | None = None
    published: bool = False

    @property
    def declared(self) -> str:
        """What is declared about its values, in words; empty if nothing is."""
        if self.bounds is not None:
            return "{:.15g} to {:.15g}".format(*self.bounds)
        if self.categories is None:
            return ""
        more = len(self.categories) - MOST_LISTED
        listed = ", ".join(map(str, self.categories[:MOST_LISTED])) + (f" and {more} more" if more > 0 else "")
        return f"published: {listed}" if self.published else listed

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        categories = None if self.categories is None else [_plain(value) for value in self.categories]
        known = {"name": self.name, "type": str(self.type), "nullable": self.nullable}
        bounds = None if self.bounds is None else list(self.bounds)
        declared = {"label": self.label, "published": self.published}
        return known | {"bounds": bounds, "categories": categories} | declared

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Column":
        """Read the `values` that `to_json` wrote; dates among categories stay text, as questions take them."""
        pairs = {name: None if values[name] is None else tuple(values[name]) for name in ("bounds", "categories")}
        return cls(**{**values, **pairs, "type": Type(values["type"])})


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value


@dataclass(frozen=True, repr=False)
class Schema:
    """The columns of a dataset, in order.

    Parameters
    ----------
    columns
        The columns that can be asked about.
    dataset
        The name of the dataset.
    unit
        The column that says which rows belong together, if any. It names the units, so it is not among `columns`.
    """

    columns: tuple[Column, ...]
    dataset: str = "data"
    unit: str | None = None

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.by_name

    @cached_property
    def key(self) -> "SchemaKey":
        """The schema as a key of caches."""
        return SchemaKey(self)

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        """The columns by name. Use `schema[name]` to refuse an unknown name with an explanation."""
        return {column.name: column for column in self.columns}

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, in order."""
        return tuple(column.name for column in self.columns)

    def units_of(self, count: int) -> str:
        """Return a number of what is drawn in words: rows, or units with the column that names them.

        Parameters
        ----------
        count
            How many are drawn.
        """
        noun = "row" if self.unit is None else "unit"
        named = "" if self.unit is None else f" ({self.unit})"
        return f"{count:,} {noun}{'' if count == 1 else 's'}{named}"

    def declared(self, complete: Collection[str]) -> "Schema":
        """Return the schema with some columns declared complete.

        Parameters
        ----------
        complete
            Columns without missing values; an unknown name is refused.
        """
        named = {self[name].name for name in complete}
        return replace(
            self, columns=tuple(replace(each, nullable=each.nullable and each.name not in named) for each in self)
        )

    def _lines(self) -> list[tuple[str, str, str, str]]:
        return [(c.name, str(c.type), "possible" if c.nullable else "never", c.declared) for c in self]

    def __repr__(self) -> str:
        return "\n".join(notebook.aligned([SHOWN, *self._lines()]))

    def _repr_html_(self) -> str:
        return notebook.table(SHOWN, self._lines(), left=range(len(SHOWN)))

    def __getitem__(self, name: str) -> Column:
        column = self.by_name.get(name)
        if column is None:
            raise self.unknown(name)
        return column

    def unknown(self, name: str, otherwise: str = "") -> UnknownName:
        """Return the refusal of an unknown name, with the column that may be meant.

        Parameters
        ----------
        name
            A name that is no column.
        otherwise
            What else it can be, if no column is meant.
        """
        if name == self.unit:
            return UnknownName(
                f"Column {name!r} of {self.dataset} names the units, so it cannot be asked about. Ask about what their"
                " rows say.",
                name=name,
            )
        parts = [known for known in self.names if name.lower() in known.lower().split("_")]
        near = parts or get_close_matches(name, self.names, n=1)
        near = near or get_close_matches(name.lower(), [known.lower() for known in self.names], n=1)
        longer = next((known for known in self.names if " " in known and name.lower() in known.lower().split()), None)
        if longer is not None:
            hint = f' Write a name that has a space in double quotes: "{longer}".'
        elif near:
            hint = f" Did you mean {' or '.join(map(repr, near[:2]))}?"
        else:
            hint = otherwise
        more = len(self.names) - MOST_SHOWN
        shown = ", ".join(self.names[:MOST_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
        return UnknownName(f"No column {name!r} in {self.dataset}.{hint} It has: {shown}.", name=name)


class SchemaKey:
    """A schema as a key of caches: by identity, because comparing every column costs more than what is looked up."""

    __slots__ = ("schema",)

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
