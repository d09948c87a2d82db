"""Look at all rows, and release only which cell their mean falls into.

`cells`, for a guess that is checked on rows set aside for checks:

    scan      v = the mean of q(x_i) over all n rows, or over ell rows drawn with replacement      q(row) in [0, 1]
    release   holds      if g - tau <= v <= g + tau
              too low    if v > g + tau
              too high   if v < g - tau
              too few rows, whatever v is, if a group has fewer rows than were declared

Every check reads all its rows, whatever their values, so its running time reveals nothing. Counts are compared
exactly; a mean of numbers is within n roundings of the exact mean, and the guarantee widens the cell by that much.

`grid`, for a submission that is scored on sealed rows:

    scan      v = the mean gain of all n rows, added up in whole units of 2^-40: exactly             gain(row) in [0, 1]
    cell      c with (c-1) eta <= v < c eta; the last of the J = ceil(1/eta) cells includes 1
    release   c if it is better than every cell released before, else "no improvement"

The cell stays in memory until the ledger commits. Only inside that transaction is it known which cells were released
before, so that is where the guarantee decides whether the cell is shown.

The value v never leaves the mechanism: it is not logged, stored or shown.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Self, cast

import numpy as np
from numpy.random import Generator

from holdfast import check
from holdfast.guarantees.checks import Checks
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.ladder import Ladder
from holdfast.guarantees.statistic import GRID, Cell, GridCell, Statistic
from holdfast.mechanisms import MECHANISMS
from holdfast.queries.guess import Guess
from holdfast.queries.query import Query
from holdfast.rows.draws import Consecutive, Order, WithReplacement
from holdfast.rows.source import Folds, RowSource

PIECE = 1 << 17  # rows scanned at once if the source has no `fold`
ADDED = 1 << 20  # rows whose units can be added up in 62 bits


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Checks on `draws` drawn rows each, or on all rows, each read once, if `draws` is at least their number."""

    draws: int

    def __post_init__(self) -> None:
        check.whole(draws=self.draws)

    @classmethod
    def under(cls, guarantee: Guarantee, draws: int, order: Order | None) -> Self:
        """Return checks of this many rows; refuse a guarantee that does not check guesses."""
        if not isinstance(guarantee, Checks):
            raise guarantee.cannot_certify("checks")
        return cls(draws=draws)

    @staticmethod
    def rows_read(statistic: Statistic, draws: int, rows: int) -> int:
        """One pass."""
        return draws

    def release(self, query: Query, source: RowSource, rng: Generator) -> Cell:
        """Scan or draw; release the cell."""
        if not isinstance(query, Guess):
            raise TypeError("A check is about a guess.")
        n = len(source)
        if self.draws < n:
            totals = query.totals(source.sample(query, WithReplacement(self.draws), rng))
        elif hasattr(source, "fold"):
            totals = cast(Folds, source).fold(query, rng)
        else:
            pieces = [Consecutive(start, min(start + PIECE, n)) for start in range(0, n, PIECE)]
            totals = np.sum([query.totals(source.sample(query, piece, rng)) for piece in pieces], axis=0)
        return Cell((), min(self.draws, n), query.least_rows(n), query.outcome(totals))


MECHANISMS.register("cells", Cells)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A grid of `cells` cells, each `eta` wide, on the mean of the first `draws` rows (all of them)."""

    draws: int
    cells: int
    eta: Fraction

    def __post_init__(self) -> None:
        check.whole(draws=self.draws, cells=self.cells)

    @classmethod
    def under(cls, guarantee: Guarantee, draws: int, order: Order | None) -> Self:
        """Return the grid of a board; refuse any guarantee but the ladder."""
        if not isinstance(guarantee, Ladder):
            raise guarantee.cannot_certify("submissions")
        return cls(draws=draws, cells=guarantee.terms.cells, eta=guarantee.eta)

    @staticmethod
    def rows_read(statistic: Statistic, draws: int, rows: int) -> int:
        """Every row."""
        return rows

    def release(self, query: Query, source: RowSource, rng: Generator) -> GridCell:
        """Scan all rows; release the cell."""
        units = source.sample(query, Consecutive(0, self.draws), rng)
        total = sum(int(np.sum(units[start : start + ADDED])) for start in range(0, len(units), ADDED))
        mean = Fraction(total, len(units) << GRID)
        return GridCell((), len(units), min(self.cells, mean // self.eta + 1))


MECHANISMS.register("grid", Grid)
