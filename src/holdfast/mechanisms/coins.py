"""Answer from coins: each drawn row gives one outcome, sometimes replaced by a random one (A3, and its averages).

The algorithm box (c outcomes, extra mass a per outcome):

    repeat ell times
        draw        i ~ uniform on the n rows, with replacement
        toss        z ~ the law that row i gives to the outcomes     (a value v in [0,1] is a coin with bias v)
        randomize   with probability c a replace z by a uniform outcome
    release  how often each outcome came up

With c = 2 a coin is replaced by its opposite with probability a: the paper's sampling counting query. No floating-point
noise is involved. A guarantee charges c-1 per draw.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.statistic import Statistic, Tally
from holdfast.mechanisms import MECHANISMS
from holdfast.queries.query import Composed, OnePass, Query
from holdfast.rows.draws import Order
from holdfast.rows.source import Passes, RowSource


@dataclass(frozen=True, kw_only=True)
class Coins:
    """`draws` coins per query, each outcome with extra `mass`."""

    draws: int  # ell
    mass: float  # a

    def __post_init__(self) -> None:
        check.whole(draws=self.draws)
        check.probability(mass=self.mass)
        check.at_most("1/2", 0.5, mass=self.mass)

    @classmethod
    def under(cls, guarantee: Guarantee, draws: int, order: Order | None) -> "Coins":
        """Return coins with the guarantee's mass."""
        return _coins(draws, guarantee.coin_mass)

    @staticmethod
    def rows_read(statistic: Statistic, draws: int, rows: int) -> int:
        """One row per coin."""
        return draws

    def release(self, query: Query, source: RowSource, rng: Generator) -> Tally:
        """Let the row source tally the draws; only the counts leave it."""
        return self._released(query, source.tally(query, draws=self.draws, mass=self.mass, rng=rng))

    def release_passes(
        self, whole: Composed, passes: Sequence[OnePass], source: RowSource, rng: Generator
    ) -> list[Tally]:
        """Let the row source tally each pass; if it can, it reads the rows of all passes together."""
        if not hasattr(type(source), "tally_passes"):  # a source around another may have a `tally` of its own
            return [self.release(one, source, rng) for one in passes]
        tallies = cast(Passes, source).tally_passes(whole, passes, draws=self.draws, mass=self.mass, rng=rng)
        return [self._released(one, counts) for one, counts in zip(passes, tallies, strict=True)]

    def _released(self, query: Query, tally: NDArray[np.int64]) -> Tally:
        counts, statistic = tuple(tally.tolist()), query.statistic
        values = statistic.from_counts(counts, self.draws, mass=self.mass)
        return Tally(values, self.draws, counts, statistic.reported)


@lru_cache(maxsize=1024)
def _coins(draws: int, mass: float) -> Coins:
    return Coins(draws=draws, mass=mass)  # validated once: most answers use the same numbers


def bits(release: Tally, rng: Generator) -> list[int]:
    """Return the single flips behind the counts of a share, in random order.

    Independent draws from one coin are exchangeable: given how many ones there are, every order is equally likely. So
    shuffled flips have the same law as the flips in the order in which they were drawn.
    """
    zeros, ones = release.counts
    order = rng.permutation(np.repeat(np.array([0, 1]), [zeros, ones]))
    return [int(bit) for bit in order]


MECHANISMS.register("coins", Coins)
