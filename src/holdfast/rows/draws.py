"""Which rows are drawn. Time and memory grow with the number of draws, not with the number of rows.

    WithReplacement       each draw uniform on range(n), independent of the others
    WithoutReplacement    a uniform ordered selection of distinct rows
    Fresh                 positions start, start+1, ... of one keyed shuffle of range(n): blocks that do not
                          overlap share no row, so there is no need to store which rows were used
    AllRows               every row, in order
    Consecutive           rows start to stop - 1, in order

Each is a frozen value; `indices(n, rng)` returns which rows of n it selects.
"""

import hmac
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.errors import InvalidArgument

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
