"""Which of several listed values a row has: the category of a histogram, the group of a mean."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.queries.evaluate import RowFunction
from holdfast.queries.node import literal_text
from holdfast.queries.query import Direct, RowValues
from holdfast.schema import Column, Type

Category = bool | int | float | str | date
Numbers = NDArray[np.int64]

LARGEST = np.uint64(2**63 - 1)
FEW_TEXTS = 1_000  # up to this many are looked up faster one by one
FEW_EDGES = 100


@dataclass(frozen=True)
class _InList:
    """A function's value, compared with a list."""

    of: RowFunction
    listed: tuple[Category, ...]
    nullable = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return self.of.columns

    @property
    def work(self) -> int:
        """Steps that one row takes."""
        return self.of.work


@dataclass(frozen=True)
class Position(_InList):
    """The place of a function's value in a list; the list's length for other values, NULL included."""

    type = Type.INT

    @property
    def identity(self) -> str | None:
        """The identity of the function; the caller adds the list."""
        return self.of.identity

    @cached_property
    def direct(self) -> Direct | None:
        """How to evaluate on arrays, without a frame."""
        value = self.of.direct
        return None if value is None else lambda columns: self._in_array(value(columns))

    def _in_array(self, values: NDArray[Any]) -> Numbers:
        if values.dtype == object:  # texts
            return np.array([self._known.get(text, len(self.listed)) for text in values], dtype=np.int64)
        return _in_array(values, self._ordered)

    def series(self, rows: pl.DataFrame) -> pl.Series:
        """Return one place per row."""
        return self.places_of(self.of.series(rows))

    def places_of(self, values: pl.Series) -> pl.Series:
        """Return the place of each of these values."""
        if values.dtype == pl.String and values.len() <= FEW_TEXTS:
            other = len(self.listed)
            return pl.Series([self._known.get(text, other) for text in values.to_list()], dtype=pl.Int64)
        return _in_series(values, self.listed)

    @cached_property
    def _known(self) -> dict[Any, int]:
        return {value: place for place, value in enumerate(self.listed)}

    @cached_property
    def _ordered(self) -> tuple[NDArray[Any], Numbers]:
        """The values in increasing order, and the place of each."""
        listed = np.asarray(self.listed)
        order = np.argsort(listed)
        return listed[order], order


@dataclass(frozen=True)
class Unlisted(_InList):
    """Whether a function's value is not in a list; false for NULL."""

    type = Type.BOOL
    direct = None
    range = None

    @property
    def reads(self) -> dict[str, Column]:
        """The same columns, by name."""
        return self.of.reads

    @property
    def text(self) -> str:
        """Human-readable text."""
        return f"{self.of.text} not in ({', '.join(map(literal_text, self.listed))})"

    @property
    def identity(self) -> str | None:
        """Canonical text; None if the function has none."""
        return None if self.of.identity is None else f"{self.of.identity} not in {self.listed!r}"

    def series(self, rows: pl.DataFrame) -> pl.Series:
        """Return true or false per row."""
        values = self.of.series(rows)
        found = Position(self.of, self.listed).places_of(values)
        return values.is_not_null() & (found == len(self.listed))


def places(row_values: RowValues) -> Numbers:
    """Return the values of a `Position` as an array."""
    return row_values.to_numpy() if isinstance(row_values, pl.Series) else row_values


def _in_array(values: NDArray[Any], listed: tuple[NDArray[Any], Numbers]) -> Numbers:
    if values.dtype == np.uint64:
        values = np.minimum(values, LARGEST).astype(np.int64)  # clipped, as everywhere else
    ordered, order = listed
    found = np.maximum(count_up_to(values, ordered), 1) - 1
    found_at: Numbers = ordered.size + (order.take(found) - ordered.size) * (ordered.take(found) == values)
    return found_at


def count_up_to(values: NDArray[Any], edges: NDArray[Any]) -> NDArray[np.unsignedinteger | np.signedinteger]:
    """Return how many of these increasing edges are at most each value; for NaN, none or all of them.

    Comparing with each of a few edges is several times faster than searching among them, whose branches a processor
    cannot predict, and takes as long whatever the values are.
    """
    if edges.size > FEW_EDGES:
        return np.searchsorted(edges, values, side="right")
    count = np.zeros(values.size, np.uint8)
    for edge in edges:
        count += (values >= edge).view(np.uint8)
    return count


def _in_series(values: pl.Series, listed: Sequence[Category]) -> pl.Series:
    other = len(listed)
    if values.dtype == pl.String:
        codes = values.cast(pl.Enum([str(one) for one in listed]), strict=False).to_physical()
        return codes.cast(pl.Int64).fill_null(other)
    values_of = pl.Series(listed, dtype=values.dtype, strict=False)
    return values.replace_strict(values_of, range(other), default=other, return_dtype=pl.Int64)
