"""From what rows say to outcomes: toss the coins, then flip some of them.

A query's `evaluate` gives the law of one outcome per row (see `holdfast.queries.query`). Tossing turns it into
an outcome; flipping then replaces an outcome, with probability `outcomes * mass`, by a uniformly random one.
Counts of independent flips can be flipped at once:

    kept_z ~ Binomial(count_z, 1 - outcomes * mass)       each outcome keeps its own with that probability
    counts = kept + Multinomial(total - sum kept, uniform)    the rest is dealt anew

which has the law of flipping every coin by itself, at the price of one draw per outcome.
"""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.queries.query import Values

Counts = NDArray[np.int64]


def outcomes_of(said: Values, outcomes: int, rng: Generator) -> NDArray[np.int64]:
    """Toss once per row; return each row's outcome.

    A coin's bias that is NaN means outcome 0: the lower bound with two outcomes, "excluded" with three.
    """
    if said.dtype.kind != "f":
        return said.astype(np.int64)
    ones = rng.random(said.size) < said  # false for NaN
    if outcomes == 2:
        return ones.astype(np.int64)
    return np.where(np.isnan(said), 0, 1 + ones)


def tossed(said: Values, outcomes: int, rng: Generator) -> Counts:
    """Toss once per row; return how often each outcome came up."""
    if said.dtype.kind == "b" or (said.dtype.kind == "f" and outcomes == 2):
        coins = said if said.dtype.kind == "b" else rng.random(said.size) < said  # false for NaN
        ones = int(np.count_nonzero(coins))
        return np.array([said.size - ones, ones], dtype=np.int64)
    if said.dtype.kind == "f":  # three outcomes, counted without writing out each row's
        ones, excluded = int(np.count_nonzero(rng.random(said.size) < said)), int(np.count_nonzero(np.isnan(said)))
        return np.array([excluded, said.size - excluded - ones, ones], dtype=np.int64)
    return np.bincount(outcomes_of(said, outcomes, rng), minlength=outcomes)


def flipped(counts: Counts, mass: float, rng: Generator) -> Counts:
    """Flip counted outcomes: the law of `flip_each`, in one draw per outcome."""
    replaced = _replaced(mass, counts.size)
    if counts.size == 2:  # the usual case: single numbers cost a third of what arrays of two cost
        zeros, ones = counts.tolist()
        kept_zeros, kept_ones = rng.binomial(zeros, 1.0 - replaced), rng.binomial(ones, 1.0 - replaced)
        anew = zeros + ones - kept_zeros - kept_ones
        new_ones = rng.binomial(anew, 0.5)
        return np.array([kept_zeros + anew - new_ones, kept_ones + new_ones], dtype=np.int64)
    kept = rng.binomial(counts, 1.0 - replaced)
    anew = int(counts.sum() - kept.sum())
    return np.asarray(kept + rng.multinomial(anew, np.full(counts.size, 1.0 / counts.size)), dtype=np.int64)


def flip_each(drawn: NDArray[np.int64], outcomes: int, mass: float, rng: Generator) -> NDArray[np.int64]:
    """Flip outcomes one by one."""
    replace = rng.random(drawn.size) < _replaced(mass, outcomes)
    return np.where(replace, rng.integers(0, outcomes, drawn.size), drawn)


def _replaced(mass: float, outcomes: int) -> float:
    check.number(mass=mass)
    if not 0 <= outcomes * mass <= 1 + 1e-12:
        raise InvalidArgument(f"mass must be between 0 and 1/{outcomes}; got {mass!r}.", name="mass")
    return min(1.0, outcomes * mass)
