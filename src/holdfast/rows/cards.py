"""Cards: copies of rows in random order, which are independent uniform draws.

Every card has a random place. From every chunk of m rows a Poisson(rate * m) number of cards is drawn, each a uniformly
random row of the chunk; so every row has Poisson(rate) copies, whatever the chunks are. Given the total number of
cards, the cards in order of place are independent uniform draws with replacement: `docs/proofs/decks.md`.

    placed    by an engine's workers, whose cards arrive in any order: a place is a 63-bit number
    ranged    on one machine: only the range that contains the place is drawn; each range is shuffled later

All randomness of a chunk comes from a key made of (secret, deck, partition, chunk number). A task that an engine runs a
second time deals the same cards, and two partitions, or two decks, never share a key.
"""

import hmac
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast.randomness import keyed_generator
from holdfast.rows.columns import Storage
from holdfast.rows.content import Content

RESERVED = "__holdfast_"  # prefix of the columns that holdfast adds to those of the table
PLACE = f"{RESERVED}place"
ROW = f"{RESERVED}row"  # which row, or unit, a card is a copy of
PLACES = 1 << 63
CHUNK = 1 << 18  # rows; a retry must cut the same chunks, so this is not a setting
_MOST_AT_ONCE = 1 << 19  # expected cards of a chunk, at most
MOST_RANGES = 1 << 16
_ENOUGH = 10.0  # standard deviations: fewer cards than requested come up less than once in 10^22 decks


def rate_for(cards: int, rows: int) -> float:
    """Return a rate at which at least `cards` cards come up."""
    return (cards + _ENOUGH * sqrt(cards) + _ENOUGH**2) / rows


def width_of(ranges: int) -> int:
    """Return how many places a range has; all ranges have the same number.

    >>> width_of(1) == PLACES, width_of(3) * 3 == PLACES - 2
    (True, True)
    """
    return PLACES // ranges


def ranges_of(places: NDArray[np.uint64], ranges: int) -> NDArray[np.uint16]:
    """Return the range of every place.

    >>> ranges_of(np.array([0, width_of(3) - 1, width_of(3), 3 * width_of(3) - 1], np.uint64), 3).tolist()
    [0, 0, 1, 2]
    """
    return (places // np.uint64(width_of(ranges))).astype(np.uint16)


class Ranged(NamedTuple):
    """The cards of a chunk, range after range: which rows of the chunk they are, and how many are in each range."""

    rows: NDArray[np.int64]
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class Chance:
    """The randomness of one partition: which cards are drawn from each of its chunks.

    Parameters
    ----------
    key
        The key of the partition.
    rate
        Expected copies of a row.
    """

    key: bytes
    rate: float

    @classmethod
    def of(cls, secret: bytes, deck: str, partition: str, rate: float) -> "Chance":
        """Return the randomness of a partition of a deck."""
        return cls(hmac.digest(secret, f"{len(deck)} {deck} {partition}".encode(), "sha256"), rate)

    @property
    def chunk(self) -> int:
        """How many rows are dealt at once: a function of the rate alone, so that a retry cuts the same chunks."""
        return max(1, min(CHUNK, int(_MOST_AT_ONCE / self.rate)))

    def placed(self, number: int, height: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Draw the cards of a chunk of `height` rows: rows and places."""
        rng = self._generator(number)
        count = rng.poisson(self.rate * height)
        return rng.integers(0, height, count), rng.integers(0, PLACES, count, np.uint64)

    def ranged(self, number: int, height: int, ranges: int) -> Ranged:
        """Draw the cards of a chunk of `height` rows, for each of `ranges` ranges of equal size."""
        rng = self._generator(number)
        counts = self._counts(rng, height, ranges)
        return Ranged(rng.integers(0, height, counts.sum()), counts)

    def totals(self, chunks: int, rows: int, ranges: int) -> NDArray[np.int64]:
        """Return how many cards each range gets from the first `chunks` chunks of a partition, without reading rows."""
        found = np.zeros(ranges, np.int64)
        for number in range(chunks):
            height = min(self.chunk, rows - number * self.chunk)
            found += self._counts(self._generator(number), height, ranges)
        return found

    def _counts(self, rng: Generator, height: int, ranges: int) -> NDArray[np.int64]:
        return rng.poisson(self.rate * height / ranges, ranges)

    def _generator(self, number: int) -> Generator:
        return keyed_generator(hmac.digest(self.key, str(number).encode(), "sha256"))


class Dealer:
    """Deals the cards of one partition as frames, and sums up its content on the way: for workers of an engine.

    Parameters
    ----------
    chance
        The randomness of the partition.
    columns
        The columns of the table, and how they are stored.
    """

    def __init__(self, chance: Chance, columns: Mapping[str, Storage]) -> None:
        self._chance, self._columns = chance, columns
        self.content = Content(columns)

    def deal(self, batches: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Yield the cards of these batches, each with its place. How rows are cut into batches does not matter."""
        for number, chunk in enumerate(chunks(batches, self._chance.chunk)):
            # Series by series, because a query, even `select`, waits for Polars' threads.
            chunk = pl.DataFrame([chunk.get_column(name) for name in self._columns])
            self.content.add(chunk)
            rows, places = self._chance.placed(number, chunk.height)
            yield chunk[rows].hstack([pl.Series(PLACE, places.view(np.int64))])


def chunks(batches: Iterable[pl.DataFrame], size: int) -> Iterator[pl.DataFrame]:
    """Cut batches into chunks of `size` rows; only the last one may be shorter."""
    waiting: list[pl.DataFrame] = []
    height = 0
    for batch in batches:
        while batch.height:
            part, batch = batch.head(size - height), batch.slice(size - height)
            waiting.append(part)
            height += part.height
            if height == size:
                yield pl.concat(waiting)
                waiting, height = [], 0
    if waiting:
        yield pl.concat(waiting)
