"""Look at all rows, and release only which cell their mean falls into.

`cells`, for a guess that is checked on rows kept aside:

    scan      v = the mean of q(x_i) over all n rows, or over ell rows drawn with replacement      q(row) in [0, 1]
    release   holds      if g - tau <= v <= g + tau
              too low    if v > g + tau
              too high   if v < g - tau
              too few rows, whatever v is, if a group has fewer rows than were declared

Every check reads all its rows, whatever they say, so that nothing can be told from the time it takes. Counts are
compared exactly; a mean of numbers is within n roundings of the exact one, by which the guarantee widens the cell.

`grid`, for a submission that is scored on sealed rows:

    scan      v = the mean gain of all n rows, added up in whole units of 2^-40: exactly             gain(row) in [0, 1]
    cell      c with (c-1) eta <= v < c eta; the last of the J = ceil(1/eta) cells includes 1
    release   c if it is better than every cell released before, else "no improvement"

The cell exists in memory until the ledger commits: what was released before it is known only then, and the guarantee
decides, inside that transaction, whether the cell is shown.

What v is never leaves: it is not logged, kept or shown.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Self, cast

import numpy as np
from numpy.random import Generator

from holdfast import check
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.ladder import Ladder
from holdfast.guarantees.release import GRID, Cell, GridCell
from holdfast.guarantees.statistic import Statistic
from holdfast.mechanisms import MECHANISMS
from holdfast.queries.guess import Guess
from holdfast.queries.query import Query
from holdfast.rows.draws import Consecutive, Order, WithReplacement
from holdfast.rows.source import Folds, RowSource

PIECE = 1 << 17  # rows scanned at once, of a source that cannot fold
ADDED = 1 << 20  # rows whose units add up inside 62 bits


@dataclass(frozen=True, kw_only=True)
class Cells:
    """`draws` rows for each check; as many as there are, or more: all rows, once."""

    draws: int

    def __post_init__(self) -> None:
        check.whole(draws=self.draws)

    @classmethod
    def under(cls, guarantee: Guarantee, draws: int, order: Order | None) -> Self:
        """Return checks of this many rows, where guesses are checked."""
        if guarantee.answers:
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
        return Cell((), min(self.draws, n), query.speaking(n), query.outcome(totals))


MECHANISMS.register("cells", Cells)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A grid of `cells` cells, each `eta` wide, on the mean of the first `draws` rows, which are all there are."""

    draws: int
    cells: int
    eta: Fraction

    def __post_init__(self) -> None:
        check.whole(draws=self.draws, cells=self.cells)

    @classmethod
    def under(cls, guarantee: Guarantee, draws: int, order: Order | None) -> Self:
        """Return the grid of a board."""
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
