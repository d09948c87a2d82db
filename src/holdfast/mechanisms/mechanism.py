"""What a mechanism is: it draws, evaluates, adds chance, and releases.

The code that draws is the code that accounts: a session reserves what the guarantee charges for this many draws, and
the mechanism draws exactly that many. What the rows said exists only inside `release`; what leaves is what
theorems cover.
"""

from typing import Protocol, Self

from numpy.random import Generator

from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.release import Release
from holdfast.guarantees.statistic import Statistic
from holdfast.queries.query import Query
from holdfast.rows.draws import Order
from holdfast.rows.source import RowSource


class Mechanism(Protocol):
    """An algorithm box."""

    @classmethod
    def under(cls, guarantee: Guarantee, draws: int, order: Order | None) -> Self:
        """Return the mechanism with the numbers of these terms.

        Parameters
        ----------
        guarantee
            Whose terms say how much chance to add.
        draws
            How many rows to draw.
        order
            The secret order of the rows, and how far it is used up: for mechanisms that use rows once. None: rows are
            drawn anew each time.
        """
        ...

    @staticmethod
    def rows_read(statistic: Statistic, draws: int, rows: int) -> int:
        """Return how many rows one release reads; refuse, before anything is paid for, if it lacks a package.

        Parameters
        ----------
        statistic, draws
            What is released, and from how many draws.
        rows
            How many rows there are.
        """
        ...

    def release(self, query: Query, source: RowSource, rng: Generator) -> Release:
        """Draw, evaluate, add chance, release.

        Parameters
        ----------
        query
            What is asked of each row.
        source
            Where the rows live.
        rng
            The source of all randomness, draws included.
        """
        ...
