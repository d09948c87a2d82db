"""Answer from coins: each drawn row says one outcome, sometimes replaced by a random one (A3, and its averages).

The algorithm box (c outcomes, extra mass a per outcome):

    repeat ell times
        draw     i ~ uniform on the n rows, with replacement
        toss     z ~ the law that row i gives to the outcomes     (a value v in [0,1] is a coin with bias v)
        flip     with probability c a replace z by a uniform outcome
    release  how often each outcome came up

With c = 2 the flip probability is a: the paper's sampling counting query. No floating-point noise is involved. The
flips are what the guarantees charge: (c-1) per draw.
"""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.guarantees import information
from holdfast.guarantees.mathematics import amplification
from holdfast.guarantees.mathematics import debias as coins
from holdfast.mechanisms.base import Price, Release, clip, intervals
from holdfast.queries.query import Query
from holdfast.rows.source import RowSource


@dataclass(frozen=True, kw_only=True)
class Coins:
    """`draws` coins a query, each outcome with extra mass `flip_probability`."""

    draws: int  # ell
    flip_probability: float  # a

    def __post_init__(self) -> None:
        check.whole(draws=self.draws)
        check.probability(flip_probability=self.flip_probability)
        check.at_most("1/2", 0.5, flip_probability=self.flip_probability)

    def price(self, query: Query, n: int) -> Price:
        """(c-1) flips a draw; a histogram so wide that it would be mostly noise is refused."""
        if query.outcomes * self.flip_probability > 0.5:
            most = int(0.5 / self.flip_probability)
            raise InvalidArgument(
                f"A question with {query.outcomes} outcomes would be mostly noise in this session; it allows"
                f" {most}. Ask about fewer categories at once, or plan with guarantee='information'.",
                outcomes=query.outcomes,
                most=most,
            )
        epsilon = None
        if query.outcomes == 2:
            epsilon = self.draws * amplification.coin_epsilon(self.flip_probability, n=n)
        flips = self.draws * information.draw_cost(query.outcomes)
        return Price(flips=flips, intervals=intervals(query), rows_read=self.draws, epsilon=epsilon)

    def release(self, query: Query, source: RowSource, rng: Generator) -> Release:
        """Ask the rows to tally; nothing but the counts leaves them."""
        tally = source.tally(query, draws=self.draws, mass=self.flip_probability, rng=rng)
        counts = tuple(int(count) for count in tally)
        return Release(answer=self._answer(query, counts), rows_read=self.draws, counts=counts)

    def _answer(self, query: Query, counts: tuple[int, ...]) -> float:
        mass = self.flip_probability
        if query.kind == "group":
            included = counts[1] + counts[2]
            pi = included / self.draws
            if pi <= 2 * mass:
                return 0.5  # nobody seems to be in the group
            return coins.group_mean(counts[2] / included, pi, mass=mass)
        outcome = 0 if query.kind == "histogram" else 1
        return clip(coins.debias(counts[outcome] / self.draws, outcomes=query.outcomes, mass=mass))


def bits(release: Release, rng: Generator) -> list[int]:
    """Return the single flips behind the counts of a share, in the order they fell.

    Independent draws from one coin are exchangeable: given how many ones there are, every order is equally likely.
    """
    zeros, ones = release.counts
    order = rng.permutation(np.repeat(np.array([0, 1]), [zeros, ones]))
    return [int(bit) for bit in order]
