"""What a row looks like: column names, types and whether a value may be missing. Public; never values.

It is declared, or comes from the header of a file; it is never observed. What a sample happens to show (this column has
missing values, that one has none) would be an answer about the sample that nobody paid for.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum

from holdfast.errors import UnknownName


class Type(StrEnum):
    """The types a query can speak about."""

    BOOL = "boolean"
    INT = "integer"
    FLOAT = "number"
    STRING = "text"
    DATE = "date"
    DATETIME = "timestamp"

    @property
    def is_number(self) -> bool:
        """Whether arithmetic applies."""
        return self in (Type.INT, Type.FLOAT)


@dataclass(frozen=True)
class Column:
    """One column. `nullable` says that nothing declared rules out NULL or NaN; not that there are any."""

    name: str
    type: Type
    nullable: bool


@dataclass(frozen=True)
class Schema:
    """The columns of a dataset, in order.

    Parameters
    ----------
    columns
        Those that can be asked about.
    dataset
        What the dataset is called.
    unit
        The column that says which rows belong together, if one does. It names the units, so it is none of the others.
    """

    columns: tuple[Column, ...]
    dataset: str = "data"
    unit: str | None = None

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __contains__(self, name: object) -> bool:
        return any(column.name == name for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, in order."""
        return tuple(column.name for column in self.columns)

    def units_of(self, count: int) -> str:
        """Write a `count` of what is drawn: rows, or units with the column that names them."""
        noun = "row" if self.unit is None else "unit"
        named = "" if self.unit is None else f" ({self.unit})"
        return f"{count:,} {noun}{'' if count == 1 else 's'}{named}"

    def declared(self, complete: Collection[str]) -> "Schema":
        """Return the schema with these columns declared complete; an unknown one is refused."""
        named = {self[name].name for name in complete}
        return replace(
            self, columns=tuple(replace(each, nullable=each.nullable and each.name not in named) for each in self)
        )

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        if name == self.unit:
            raise UnknownName(
                f"Column {name!r} of {self.dataset} names the units, so it cannot be asked about. Ask about what their"
                " rows say.",
                name=name,
            )
        near = get_close_matches(name, self.names, n=1) or get_close_matches(
            name.lower(), [known.lower() for known in self.names], n=1
        )
        hint = f" Did you mean {near[0]!r}?" if near else ""
        shown = ", ".join(self.names[:20]) + (", ..." if len(self.names) > 20 else "")
        raise UnknownName(f"No column {name!r} in {self.dataset}.{hint} It has: {shown}.", name=name)
