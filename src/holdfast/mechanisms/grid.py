"""Score a submission on sealed rows, and say only which cell of a grid its score falls into.

The algorithm box:

    scan      v = the mean gain of all n rows, added up in whole units of 2^-40: exactly             gain(row) in [0, 1]
    cell      c with (c-1) eta <= v < c eta; the last of the J = ceil(1/eta) cells includes 1
    release   c if it is better than every cell released before, else "no improvement"

The cell exists in memory until the ledger commits: what was released before it is known only then, and the guarantee
decides, inside that transaction, whether the cell is shown. The score itself never leaves this function.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
from numpy.random import Generator

from holdfast import check
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.ladder import Ladder
from holdfast.guarantees.release import GRID, GridCell
from holdfast.guarantees.statistic import Statistic
from holdfast.mechanisms import MECHANISMS
from holdfast.queries.query import Query
from holdfast.rows.draws import Consecutive, Order
from holdfast.rows.source import RowSource

PIECE = 1 << 20  # rows whose units add up inside 62 bits


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
        total = sum(int(np.sum(units[start : start + PIECE])) for start in range(0, len(units), PIECE))
        mean = Fraction(total, len(units) << GRID)
        return GridCell((), len(units), min(self.cells, mean // self.eta + 1))


MECHANISMS.register("grid", Grid)
