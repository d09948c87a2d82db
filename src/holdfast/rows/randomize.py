"""From the values of rows to outcomes: toss each row's coin, then randomize for privacy.

A query's `evaluate` gives the law of one outcome per row (see `holdfast.queries.query`). Tossing turns it into an
outcome; randomizing then replaces an outcome, with probability `outcomes * mass`, by a uniformly random one.
Independent outcomes that are only counted can be randomized together:

    kept_z ~ Binomial(count_z, 1 - outcomes * mass)             each outcome stays with that probability
    counts = kept + Multinomial(total - sum kept, uniform)      the others are drawn again

which has the law of randomizing every outcome separately, at the price of one draw per possible outcome. With two
outcomes a coin is turned over with probability `mass`, and two draws are enough. Where many parts have few coins each
(the coordinates of a gradient), the randomization is applied to the bias before tossing: a coin of bias b that is
turned over with probability m is a coin of bias m + (1 - 2m) b.

A coin takes 16 random bits, and 53 more only if these fall on the very step that contains its bias: its probability of
heads is its bias, rounded up at most to the next multiple of 2^-69.
"""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.queries.query import Values

Counts = NDArray[np.int64]

STEPS = 1 << 16  # what 16 random bits can distinguish
FEW = 64  # up to this many, outcomes are randomized faster one by one


def outcomes_of(values: Values, outcomes: int, rng: Generator) -> NDArray[np.int64]:
    """Toss once per row; return each row's outcome.

    A bias of NaN means outcome 0: the lower bound with two outcomes, "excluded" with three. A group number of NaN
    (where there are groups) also means outcome 0.
    """
    if values.dtype.kind != "f":
        return values.astype(np.int64, copy=False)
    if values.ndim == 2 and values.shape[1] == outcomes - 1:  # the law of all outcomes but the first
        upto: NDArray[np.float64] = np.cumsum(values, axis=1, dtype=np.float64)
        place = rng.random(len(values))
        return np.where(place < upto[:, -1], 1 + (place[:, None] >= upto[:, :-1]).sum(axis=1), 0)
    if values.ndim == 2:  # a group's number and a bias
        group, bias = values[:, 0], values[:, 1]
        inside = ~np.isnan(group)
        chosen = 1 + 2 * np.where(inside, group, 0.0).astype(np.int64) + coins(bias, rng)
        return np.where(inside, chosen, 0)
    ones = coins(values, rng)
    if outcomes == 2:
        return ones.astype(np.int64)
    return np.where(np.isnan(values), 0, 1 + ones)


def coins(bias: Values, rng: Generator) -> NDArray[np.bool_]:
    """Toss once for each bias; false for NaN."""
    bits = rng.integers(0, 1 << 64, -(-bias.size // 4), dtype=np.uint64).view(np.uint16)[: bias.size]
    above: NDArray[np.float64] = np.multiply(bias, STEPS, dtype=np.float64)
    above -= bits  # how many steps the bias is above the random bits: 0 or less is tails, 1 or more is heads
    heads, some = above >= 1.0, above > 0.0
    undecided = np.flatnonzero(heads ^ some)
    heads[undecided] = rng.random(undecided.size) < above[undecided]
    return heads


def accepted(law: Values, rng: Generator) -> Values:
    """Toss whether each row counts, from its probabilities of 0 and 1; return its coin's bias, NaN if it does not."""
    counts = law.sum(axis=1)
    return np.where(rng.random(len(law)) < counts, law[:, 1] / np.where(counts > 0, counts, 1.0), np.nan)


def tossed(values: Values, outcomes: int, rng: Generator) -> Counts:
    """Toss once per row; return how often each outcome came up."""
    size = len(values)
    if values.ndim == 2:
        return np.bincount(outcomes_of(values, outcomes, rng), minlength=outcomes)
    if values.dtype.kind == "b" or (values.dtype.kind == "f" and outcomes == 2):
        ones = int(np.count_nonzero(values if values.dtype.kind == "b" else coins(values, rng)))
        return np.array([size - ones, ones], dtype=np.int64)
    if values.dtype.kind == "f":  # three outcomes, counted without an array of each row's outcome
        ones, excluded = int(np.count_nonzero(coins(values, rng))), int(np.count_nonzero(np.isnan(values)))
        return np.array([excluded, size - excluded - ones, ones], dtype=np.int64)
    return np.bincount(values, minlength=outcomes)


def tallied(
    values: Values, outcomes: int, mass: float, rng: Generator, times: NDArray[np.int64] | None = None
) -> Counts:
    """Toss once per row, randomize; return how often each outcome came up. `times`: how many rows have each value."""
    if times is not None:
        if values.dtype.kind == "f":
            values = np.repeat(values.astype(np.float64, copy=False), times, axis=0)
        else:  # counted, not tossed; sums of whole numbers below 2^53 are exact
            counts = np.bincount(values, weights=times, minlength=outcomes).astype(np.int64)
            return randomized(counts, mass, rng)
    if outcomes != 2 or values.ndim == 2 or values.dtype.kind not in "bf":
        return randomized(tossed(values, outcomes, rng), mass, rng)
    ones = int(np.count_nonzero(values if values.dtype.kind == "b" else coins(values, rng)))
    return _turned(values.size - ones, ones, _replaced(mass, 2) / 2, rng)


def tallied_parts(
    values: Values, outcomes: int, mass: float, rng: Generator, part: NDArray[np.int64], parts: int
) -> Counts:
    """Toss once per row, randomize; return how often each outcome came up in each part, shape (parts, outcomes)."""
    if outcomes == 2 and values.dtype.kind == "f" and values.ndim == 1:
        turned = _replaced(mass, 2) / 2
        bias = np.fmax(values, 0.0)  # zero where it is NaN
        bias *= 1.0 - 2.0 * turned
        bias += turned
        counts = np.empty((parts, 2), np.int64)
        counts[:, 1] = np.bincount(part[coins(bias, rng)], minlength=parts)
        np.subtract(np.bincount(part, minlength=parts), counts[:, 1], out=counts[:, 0])
        return counts
    cells = part * outcomes + outcomes_of(values, outcomes, rng)
    return randomized(np.bincount(cells, minlength=parts * outcomes).reshape(parts, outcomes), mass, rng)


def randomized(counts: Counts, mass: float, rng: Generator) -> Counts:
    """Randomize counted outcomes, along the last axis."""
    outcomes = counts.shape[-1]
    replaced = _replaced(mass, outcomes)
    if outcomes == 2:  # a replaced coin is equally likely to be either outcome: it turns over half the time
        turned = replaced / 2
        if counts.ndim == 1:
            zeros, ones = counts.tolist()
            return _turned(zeros, ones, turned, rng)
        new = rng.binomial(counts[..., 1], 1.0 - turned) + rng.binomial(counts[..., 0], turned)
        return np.stack([counts.sum(axis=-1) - new, new], axis=-1)
    if counts.ndim == 1 and outcomes <= FEW:
        kept = np.array([rng.binomial(count, 1.0 - replaced) for count in counts.tolist()], dtype=np.int64)
    else:
        kept = rng.binomial(counts, 1.0 - replaced)
    anew = (counts - kept).sum(axis=-1)
    return np.asarray(kept + rng.multinomial(anew, np.full(outcomes, 1.0 / outcomes)), dtype=np.int64)


def _turned(zeros: int, ones: int, turned: float, rng: Generator) -> Counts:
    """Turn coins over, with scalar draws, which cost a third of arrays of two."""
    new = rng.binomial(ones, 1.0 - turned) + rng.binomial(zeros, turned)
    return np.array([zeros + ones - new, new], dtype=np.int64)


def _replaced(mass: float, outcomes: int) -> float:
    if type(mass) is not float:
        check.number(mass=mass)
    if not 0 <= outcomes * mass <= 1 + 1e-12:  # false for NaN
        raise InvalidArgument(f"mass must be between 0 and 1/{outcomes}; got {mass!r}.", name="mass")
    return min(1.0, outcomes * mass)
