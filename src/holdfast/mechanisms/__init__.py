"""Mechanisms: each is one algorithm box that takes a query and returns a release.

The code that draws is the code that accounts: a session reserves what the guarantee charges for this many draws, and
the mechanism draws exactly that many. The values of rows exist only inside `release`; what leaves it is what the
theorems cover.

coins         each drawn row gives one outcome, sometimes replaced by a random one
noisy_means   the mean of sampled rows plus Laplace noise, or of all rows plus Gaussian noise
fresh_rows    the mean of rows that no earlier question has used
cells         whether a guess holds on all rows; which cell of a grid the score of a submission falls into
exponential   pick one of many candidates, better ones more likely

To add one: a file with a `Mechanism`, and `MECHANISMS.register(name, cls)`.
"""

from collections.abc import Sequence
from typing import Protocol, Self, runtime_checkable

from numpy.random import Generator

from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.statistic import Release, Statistic
from holdfast.queries.query import Composed, OnePass, Query
from holdfast.registry import Registry
from holdfast.rows.draws import Order
from holdfast.rows.source import RowSource


class Mechanism(Protocol):
    """An algorithm box."""

    @classmethod
    def under(cls, guarantee: Guarantee, draws: int, order: Order | None) -> Self:
        """Return the mechanism with the numbers that the guarantee's terms fix.

        Parameters
        ----------
        guarantee
            Its terms say how much randomness to add.
        draws
            How many rows to draw.
        order
            For mechanisms that use each row once: the secret order of the rows, and how much of it is used up. None if
            rows are drawn anew each time.
        """
        ...

    @staticmethod
    def rows_read(statistic: Statistic, draws: int, rows: int) -> int:
        """Return how many rows one release reads; refuse, before anything is charged, if a package is missing.

        Parameters
        ----------
        statistic, draws
            What is released, and from how many draws.
        rows
            How many rows there are.
        """
        ...

    def release(self, query: Query, source: RowSource, rng: Generator) -> Release:
        """Draw, evaluate, add randomness, release.

        Parameters
        ----------
        query
            What is asked of each row.
        source
            Where the rows live.
        rng
            The source of all randomness, draws included.

        Returns
        -------
        Release
            All that leaves the rows.
        """
        ...


class InPasses(Protocol):
    """An optional ability of a mechanism that draws rows anew each time: to read rows of several passes together."""

    def release_passes(
        self, whole: Composed, passes: Sequence[OnePass], source: RowSource, rng: Generator
    ) -> Sequence[Release]:
        """Return what `release` does for each of the `passes` of the `whole`."""
        ...


@runtime_checkable
class NoiseOfRows(Protocol):
    """A mechanism whose noise depends on how many rows there are; a dry run has few."""

    def as_of(self, draws: int, rows: int) -> Mechanism:
        """Return the mechanism with the noise of an answer from this many draws of this many rows."""
        ...


MECHANISMS: Registry[type[Mechanism]] = Registry(
    "holdfast.mechanisms", ("coins", "noisy_means.laplace", "noisy_means.gaussian", "fresh_rows", "cells", "cells.grid")
)
