"""A row source that counts how often, and how many, rows are read."""

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast.queries.query import Query
from holdfast.rows.source import RowSource
from holdfast.schema import Schema


class CountingRows:
    """Wraps any source. `tallies` and `gathers` count calls, `rows_tallied` and `rows_gathered` rows."""

    def __init__(self, source: RowSource) -> None:
        self._source = source
        self._lock = threading.Lock()
        self.tallies = self.gathers = self.rows_tallied = self.rows_gathered = 0

    @property
    def rows_read(self) -> int:
        """Rows read by either verb."""
        return self.rows_tallied + self.rows_gathered

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
        return getattr(self._source, "location", None)

    def __len__(self) -> int:
        return len(self._source)

    def tally(self, query: Query, *, draws: int, mass: float, rng: Generator) -> NDArray[np.int64]:
        with self._lock:
            self.tallies += 1
            self.rows_tallied += draws
        return self._source.tally(query, draws=draws, mass=mass, rng=rng)

    def gather(self, indices: NDArray[np.int64], columns: Sequence[str]) -> pl.DataFrame:
        with self._lock:
            self.gathers += 1
            self.rows_gathered += len(indices)
        return self._source.gather(indices, columns)
