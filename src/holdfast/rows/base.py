"""Where rows live, behind two verbs.

`tally` draws rows uniformly with replacement, evaluates the query where the rows live, tosses and flips the
coins and returns outcome counts: all that leaves the rows. `gather` returns some rows, for draws without
replacement and for descent. Nothing else reaches rows.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast.queries.query import Query
from holdfast.schema import Schema


class RowSource(Protocol):
    """A dataset that can be asked but not seen."""

    @property
    def name(self) -> str:
        """What the dataset is called: names its ledger and its place in a shared database."""
        ...

    @property
    def schema(self) -> Schema:
        """Column names, types, nullability. Public."""
        ...

    @property
    def fingerprint(self) -> str:
        """A hash of the content: the same data always has the same one."""
        ...

    @property
    def location(self) -> Path | None:
        """The folder that holds the rows; None if they are in memory. A ledger lies beside it."""
        ...

    def __len__(self) -> int:
        """Number of rows n. Public."""
        ...

    def tally(self, query: Query, *, draws: int, mass: float, rng: Generator) -> NDArray[np.int64]:
        """Draw, evaluate, toss, flip; return how often each outcome came up.

        With probability `query.outcomes * mass` an outcome is replaced by a uniformly random one: every outcome
        has at least probability `mass`, whatever the rows say.
        """
        ...

    def gather(self, indices: NDArray[np.int64], columns: Sequence[str]) -> pl.DataFrame:
        """Return these rows, in this order, of these columns."""
        ...
