"""Two drawers of one table: rows that are drawn from, and rows kept for checks, told apart by a secret key alone."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast.queries.query import Query, Values
from holdfast.rows.draws import Indices, Selection, WithReplacement, check_key, permuted_block
from holdfast.rows.randomize import tallied
from holdfast.rows.source import RowSource
from holdfast.schema import Schema

_PIECE = 1 << 20  # positions of the shuffle looked up at once


class DividedRows:
    """The first `kept` rows in the secret order of `key` are kept; the others are asked."""

    def __init__(self, rows: RowSource, key: bytes, kept: int) -> None:
        check_key(key)
        self._rows, self._key, self._kept = rows, key, kept

    @cached_property
    def _numbers(self) -> tuple[Indices, Indices]:
        """The rows of both, each in the order in which they lie; worked out when the first row is read."""
        n = len(self._rows)
        inside = np.zeros(n, np.bool_)
        for start in range(0, self._kept, _PIECE):
            inside[permuted_block(self._key, n, start, min(_PIECE, self._kept - start))] = True
        return np.flatnonzero(~inside), np.flatnonzero(inside)

    @property
    def asked(self) -> "Drawer":
        """The rows that answer."""
        return Drawer(self._rows, self, 0, len(self._rows) - self._kept)

    @property
    def kept(self) -> "Drawer":
        """The rows that check."""
        return Drawer(self._rows, self, 1, self._kept)

    def rows(self, which: int) -> Indices:
        """Return which rows of the table are in one of the drawers."""
        return self._numbers[which]


@dataclass(frozen=True)
class Within:
    """A selection of the rows of one drawer."""

    selection: Selection
    rows: Indices

    def indices(self, n: int, rng: Generator) -> Indices:
        """Select among the rows of the drawer."""
        return self.rows.take(self.selection.indices(self.rows.size, rng))


class Drawer:
    """A row source that is part of another: the rows of one drawer."""

    def __init__(self, rows: RowSource, drawers: DividedRows, which: int, count: int) -> None:
        self._rows, self._drawers, self._which, self._count = rows, drawers, which, count

    @property
    def name(self) -> str:
        """That of the table."""
        return self._rows.name

    @property
    def schema(self) -> Schema:
        """That of the table."""
        return self._rows.schema

    @property
    def fingerprint(self) -> str:
        """That of the table: both drawers have one budget."""
        return self._rows.fingerprint

    @property
    def location(self) -> Path | None:
        """That of the table."""
        return self._rows.location

    def __len__(self) -> int:
        return self._count

    def tally(self, query: Query, *, draws: int, mass: float, rng: Generator) -> NDArray[np.int64]:
        """Draw from the drawer alone, evaluate, toss, randomize."""
        values = self.sample(query, WithReplacement(draws), rng)
        outcomes = query.statistic.outcomes
        if query.parts == 1:
            return tallied(values, outcomes, mass, rng)
        return np.stack([tallied(part, outcomes, mass, rng) for part in values])

    def sample(self, query: Query, selection: Selection, rng: Generator) -> Values:
        """Return what rows of the drawer say. Secret."""
        return self._rows.sample(query, Within(selection, self._drawers.rows(self._which)), rng)

    def verify(self) -> None:
        """Verify the whole table."""
        self._rows.verify()
