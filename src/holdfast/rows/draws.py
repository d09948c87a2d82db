"""Which rows are drawn, and how their values become randomized outcomes.

    WithReplacement       each draw uniform on range(n), independent of the others
    WithoutReplacement    a uniform ordered selection of distinct rows
    Fresh                 positions start, start+1, ... of one keyed shuffle of range(n): blocks that do not
                          overlap share no row, so there is no need to store which rows were used
    AllRows               every row, in order
    Consecutive           rows start to stop - 1, in order

Each is a frozen value; `indices(n, rng)` returns which rows of n it selects.

Values of rows become outcomes in two steps: toss each row's coin, then randomize. A query's `evaluate` gives the law of
one outcome per row (see `holdfast.queries.query`). Tossing turns it into an outcome; randomizing then replaces an
outcome, with probability `outcomes * mass`, by a uniformly random one. Independent outcomes that are only counted can
be randomized together:

    kept_z ~ Binomial(count_z, 1 - outcomes * mass)             each outcome stays with that probability
    counts = kept + Multinomial(total - sum kept, uniform)      the others are drawn again

which has the law of randomizing every outcome separately, at the price of one draw per possible outcome. With two
outcomes a coin is turned over with probability `mass`, and two draws are enough. Where many parts have few coins each
(the coordinates of a gradient), the randomization is applied to the bias before tossing: a coin of bias b that is
turned over with probability m is a coin of bias m + (1 - 2m) b. Where many rows have the same coin, their heads are
drawn together, as a binomial variable.

A coin takes 16 random bits, and 53 more only if these fall on the very step that contains its bias: its probability of
heads is its bias, rounded up at most to the next multiple of 2^-69.
"""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.queries.query import Values

Indices = NDArray[np.int64]

# Alternating Feistel rounds: a few suffice for large n; tables of a few rows need the rest.
_ROUNDS = 16
_KEY_BYTES = 16  # at least 128 bits
_DENSE = 4  # for draws of at least 1/4 of all rows, all are shuffled, which is still linear in the draws


class Selection(Protocol):
    """A rule that selects rows; for the same n, always the same number of them."""

    def indices(self, n: int, rng: Generator) -> Indices:
        """Return which of n rows are selected, in order."""
        ...


@dataclass(frozen=True)
class WithReplacement:
    """`count` rows, each uniform and independent."""

    count: int

    def __post_init__(self) -> None:
        check.whole(count=self.count)

    def indices(self, n: int, rng: Generator) -> Indices:
        """Draw anew."""
        return with_replacement(rng, n, self.count)


@dataclass(frozen=True)
class WithoutReplacement:
    """`count` distinct rows: every ordered selection is equally likely."""

    count: int

    def __post_init__(self) -> None:
        check.whole(count=self.count)

    def indices(self, n: int, rng: Generator) -> Indices:
        """Draw anew; refuse to draw more rows than there are."""
        return without_replacement(rng, n, self.count)


@dataclass(frozen=True)
class Order:
    """The secret order in which rows are used up, and how many are used: `key` determines a shuffle of all rows."""

    key: bytes = field(repr=False)  # secret: it determines which rows are used when
    start: int = 0

    def __post_init__(self) -> None:
        check_key(self.key)
        check.whole(0, start=self.start)

    def after(self, rows: int) -> "Order":
        """Return the order after this many more rows are used."""
        return replace(self, start=self.start + rows)


@dataclass(frozen=True)
class Fresh:
    """Positions `start` to `start + count - 1` of the shuffle that `key` determines."""

    key: bytes = field(repr=False)
    start: int
    count: int

    def __post_init__(self) -> None:
        check.whole(count=self.count)
        check.whole(0, start=self.start)
        check_key(self.key)

    def indices(self, n: int, rng: Generator) -> Indices:
        """Look up the positions, without using the generator; refuse more rows than there are."""
        return permuted_block(self.key, n, self.start, self.count)


@dataclass(frozen=True)
class AllRows:
    """Every row once, in order."""

    def indices(self, n: int, rng: Generator) -> Indices:
        """Count up; the generator is not used."""
        return np.arange(n)


@dataclass(frozen=True)
class Consecutive:
    """Rows `start` to `stop - 1`, in order: a piece of a scan."""

    start: int
    stop: int

    def indices(self, n: int, rng: Generator) -> Indices:
        """Count up; the generator is not used."""
        return np.arange(self.start, self.stop)


def with_replacement(rng: Generator, n: int, count: int) -> Indices:
    """Draw `count` rows of n, each uniform and independent."""
    return rng.integers(0, n, count)


def without_replacement(rng: Generator, n: int, count: int) -> Indices:
    """Draw `count` distinct rows of n: every ordered selection is equally likely."""
    check.whole(n=n)
    check.whole(0, count=count)
    check.at_most("n", n, count=count)
    if count * _DENSE >= n:
        return rng.permutation(n)[:count]
    # The distinct values of a uniform sequence, in order of first appearance, are a uniform selection.
    drawn = rng.integers(0, n, count + count // 4 + 16)
    while (distinct := drawn[first_appearances(drawn)]).size < count:
        drawn = np.concatenate([distinct, rng.integers(0, n, count)])
    return distinct[:count]


def first_appearances(drawn: Indices) -> Indices:
    """Return where each value appears first, in order.

    >>> first_appearances(np.array([5, 3, 5, 9, 3])).tolist()
    [0, 1, 3]
    """
    _, first = np.unique(drawn, return_index=True)
    first.sort()
    return first


def check_key(key: object) -> None:
    """Refuse a key that could be guessed; the message does not quote it."""
    if not isinstance(key, bytes) or len(key) < _KEY_BYTES:
        raise InvalidArgument(f"key must be at least {_KEY_BYTES} secret bytes; got something else.", name="key")


def permuted_block(key: bytes, n: int, start: int, count: int) -> Indices:
    """Return positions start .. start+count-1 of the shuffle of range(n) that `key` determines.

    A Feistel network permutes the numbers below the next power of two; a number that lands outside range(n) is permuted
    again until it is inside (less than two steps on average), which gives a permutation of range(n).
    """
    check.whole(n=n)
    check_key(key)
    check.whole(0, start=start, count=count)
    check.at_most("n", n, **{"start + count": start + count})
    bits = max(2, (n - 1).bit_length())
    keys = _round_keys(key, bits)
    block = np.arange(start, start + count, dtype=np.uint64)
    block = _feistel(block, bits, keys)
    while (outside := np.flatnonzero(block >= n)).size:
        block[outside] = _feistel(block[outside], bits, keys)
    return block.astype(np.int64)


def _round_keys(key: bytes, bits: int) -> NDArray[np.uint64]:
    """Derive 64 bits for every round, all of which matter: they are mixed in before the result is masked."""
    material = b"".join(hmac.digest(key, f"{bits}:{i}".encode(), "sha256")[:8] for i in range(_ROUNDS))
    return np.frombuffer(material, dtype=np.uint64)


def _feistel(block: NDArray[np.uint64], bits: int, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    low_bits = np.uint64(bits // 2)
    low_mask = np.uint64((1 << (bits // 2)) - 1)
    high_mask = np.uint64((1 << (bits - bits // 2)) - 1)
    low, high = block & low_mask, block >> low_bits
    for i in range(0, _ROUNDS, 2):  # each half is XORed with a function of the other: every step is invertible
        low = low ^ (mix(high ^ keys[i]) & low_mask)
        high = high ^ (mix(low ^ keys[i + 1]) & high_mask)
    return (high << low_bits) | low


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return 64 bits mixed by Steele, Lea and Flood's finalizer (splitmix64); products wrap on purpose."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


Counts = NDArray[np.int64]

STEPS = 1 << 16  # what 16 random bits can distinguish
FEW = 12  # up to this many, outcomes are randomized faster one by one
_BYTE = 256  # how many values a byte has
_SINGLY, _PAIRED = 8, 64  # up to this many values are counted one by one, or pairs of them: faster, and in a time
# that depends less on which of them occur how often
_NUMBERS = [np.array(number, np.uint8) for number in range(_SINGLY)]  # faster than Python's numbers


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
    undecided = (heads ^ some).nonzero()[0]
    heads[undecided] = rng.random(undecided.size) < above[undecided]
    return heads


def accepted(law: Values, rng: Generator) -> Values:
    """Toss whether each row counts, from its probabilities of 0 and 1; return its coin's bias, NaN if it does not."""
    counts = law.sum(axis=1)
    return np.where(rng.random(len(law)) < counts, law[:, 1] / np.where(counts > 0, counts, 1.0), np.nan)


def tossed(values: Values, outcomes: int, rng: Generator, times: NDArray[np.int64] | None = None) -> Counts:
    """Toss once per row; return how often each outcome came up. `times`: how many rows have each value."""
    if times is not None:
        if values.ndim == 1:
            return _tossed_together(values, outcomes, rng, times)
        values = np.repeat(values.astype(np.float64, copy=False), times, axis=0)
    size = len(values)
    if values.ndim == 2:
        return np.bincount(outcomes_of(values, outcomes, rng), minlength=outcomes)
    if values.dtype.kind == "b" or (values.dtype.kind == "f" and outcomes == 2):
        ones = int(np.count_nonzero(values if values.dtype.kind == "b" else coins(values, rng)))
        return np.array([size - ones, ones], dtype=np.int64)
    if values.dtype.kind == "f":  # three outcomes, counted without an array of each row's outcome
        ones, excluded = int(np.count_nonzero(coins(values, rng))), int(np.count_nonzero(np.isnan(values)))
        return np.array([excluded, size - excluded - ones, ones], dtype=np.int64)
    return counts_of(values, outcomes)


def counts_of(numbers: NDArray[Any], most: int) -> NDArray[np.int64]:
    """Return how often each number below `most` occurs.

    >>> counts_of(np.array([0, 2, 2, 1, 2], np.uint8), 4).tolist()
    [1, 1, 3, 0]
    """
    if most > _PAIRED or numbers.dtype != np.uint8:
        return np.bincount(numbers, minlength=most)
    if most <= _SINGLY:
        return np.array([np.count_nonzero(numbers == number) for number in _NUMBERS[:most]])
    even = numbers.size & ~1
    pairs = np.bincount(numbers[:even].view(np.uint16), minlength=most * _BYTE).reshape(most, _BYTE)
    counts: NDArray[np.int64] = np.add.reduce(pairs, 1) + np.add.reduce(pairs[:, :most], 0)
    if even < numbers.size:
        counts[numbers[-1]] += 1
    return counts


def tallied(
    values: Values, outcomes: int, mass: float, rng: Generator, times: NDArray[np.int64] | None = None
) -> Counts:
    """Toss once per row, randomize; return how often each outcome came up. `times`: how many rows have each value."""
    if times is not None or outcomes != 2 or values.ndim == 2 or values.dtype.kind not in "bf":
        return randomized(tossed(values, outcomes, rng, times), mass, rng)
    ones = int(np.count_nonzero(values if values.dtype.kind == "b" else coins(values, rng)))
    return _turned(values.size - ones, ones, _replaced(mass, 2) / 2, rng)


def _tossed_together(values: Values, outcomes: int, rng: Generator, times: NDArray[np.int64]) -> Counts:
    """Toss as often as there are rows with each value; return how often each outcome came up.

    All coins of one bias are one binomial draw, also those that need not be tossed (0 and 1): otherwise a single row
    with another bias would show in the time it takes.
    """
    if values.dtype.kind != "f":  # sums of whole numbers below 2^53 are exact
        return np.bincount(values, weights=times, minlength=outcomes).astype(np.int64)
    missing = np.isnan(values)
    ones = int(rng.binomial(times, np.clip(np.where(missing, 0.0, values), 0.0, 1.0)).sum())
    others = int(times.sum()) - ones
    if outcomes == 2:
        return np.array([others, ones], dtype=np.int64)
    excluded = int(times[missing].sum())
    return np.array([excluded, others - excluded, ones], dtype=np.int64)


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
        listed = counts.tolist()
        few = [rng.binomial(count, 1.0 - replaced) for count in listed]
        counts = rng.multinomial(sum(listed) - sum(few), _uniform(outcomes))
        counts += few
        return counts
    kept = rng.binomial(counts, 1.0 - replaced)
    anew = (counts - kept).sum(axis=-1)
    return np.asarray(kept + rng.multinomial(anew, _uniform(outcomes)), dtype=np.int64)


def randomized_all(tallies: Sequence[Counts], mass: float, rng: Generator) -> list[Counts]:
    """Randomize the counts of several tallies, those with equally many outcomes in one step."""
    found = list(tallies)
    for size in {counts.size for counts in tallies}:
        alike = [place for place, counts in enumerate(tallies) if counts.size == size]
        for place, counts in zip(alike, randomized(np.array([tallies[one] for one in alike]), mass, rng), strict=True):
            found[place] = counts
    return found


@cache
def _uniform(outcomes: int) -> NDArray[np.float64]:
    law = np.full(outcomes, 1.0 / outcomes)
    law.flags.writeable = False  # shared
    return law


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
