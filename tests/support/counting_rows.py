"""A row source that counts how often, and how many, rows are read."""

import threading
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast.queries.query import Query, Values
from holdfast.rows.draws import Indices, Selection
from holdfast.rows.source import RowSource
from holdfast.schema import Schema


class CountingRows:
    """Wraps any source. `tallies` and `samples` count calls, `rows_tallied` and `rows_sampled` rows."""

    def __init__(self, source: RowSource) -> None:
        self._source = source
        self._lock = threading.Lock()
        self.tallies = self.samples = self.rows_tallied = self.rows_sampled = 0

    @property
    def rows_read(self) -> int:
        """Rows read by either verb."""
        return self.rows_tallied + self.rows_sampled

    @property
    def name(self) -> str:
        return self._source.name

    @property
    def schema(self) -> Schema:
        return self._source.schema

    @property
    def fingerprint(self) -> str:
        return self._source.fingerprint

    @property
    def location(self) -> Path | None:
        return self._source.location

    def __len__(self) -> int:
        return len(self._source)

    def tally(self, query: Query, *, draws: int, mass: float, rng: Generator) -> NDArray[np.int64]:
        with self._lock:
            self.tallies += 1
            self.rows_tallied += query.parts * draws
        return self._source.tally(query, draws=draws, mass=mass, rng=rng)

    def sample(self, query: Query, selection: Selection, rng: Generator) -> Values:
        with self._lock:
            self.samples += 1
        return self._source.sample(query, _Counted(self, selection), rng)

    def verify(self) -> None:
        self._source.verify()


class _Counted:
    """Counts the rows a selection names, once for every part."""

    def __init__(self, counter: CountingRows, selection: Selection) -> None:
        self._counter, self._selection = counter, selection

    def indices(self, n: int, rng: Generator) -> Indices:
        indices = self._selection.indices(n, rng)
        with self._counter._lock:
            self._counter.rows_sampled += indices.size
        return indices
