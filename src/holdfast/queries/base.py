"""What every query is: a function of one row, with finitely many outcomes.

A query never sees the table. It is handed a small frame of drawn rows and says, for each of them, what that row
*says*: the law of one outcome. Three shapes are enough:

    boolean array    outcomes 0 and 1                        shares
    float array      in [0, 1]: the bias of a coin           means, rescaled from [low, high] to [0, 1]
                     NaN: this row is outside the group      outcomes "excluded", 0, 1
    integer array    the outcome itself, 0 .. outcomes-1     histograms

`evaluate` is total: no content of the rows may raise, and row i of the result depends on row i alone. A query that can
say the same from a dict of arrays, without a frame, has that as `direct`.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

Said = NDArray[np.bool_] | NDArray[np.float64] | NDArray[np.int64]
Direct = Callable[[Any], Any]  # from columns by name (a frame, a dict of arrays) to one value per row of the same sort


class Query(Protocol):
    """A question about one row, checked against the schema."""

    @property
    def kind(self) -> str:
        """ "share", "mean", "group" (three outcomes: excluded, 0, 1) or "histogram"."""
        ...

    @property
    def outcomes(self) -> int:
        """How many outcomes one draw can have."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns `evaluate` reads; nothing else is gathered."""
        ...

    @property
    def bounds(self) -> tuple[float, float]:
        """The declared range of the mean; (0, 1) for shares and histograms."""
        ...

    @property
    def text(self) -> str:
        """How the question reads, for people."""
        ...

    @property
    def identity(self) -> str | None:
        """Canonical text: equal exactly for equal questions. None: identity cannot be decided (callables)."""
        ...

    def evaluate(self, rows: pl.DataFrame) -> Said:
        """Return what each of these rows says."""
        ...
