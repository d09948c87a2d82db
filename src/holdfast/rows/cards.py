"""Cards: copies of rows, each with a random place. Sorted by place they are independent uniform draws.

Of every chunk of m rows a Poisson(rate * m) number of cards is drawn; each card is a uniformly random row of the chunk
and has a uniformly random place of 63 bits. So every row has Poisson(rate) copies, whatever the chunks are, and given
the number of all cards, those in order of place are independent uniform draws with replacement: `docs/proofs/decks.md`.

All chance of a chunk comes from a key made of (secret, deck, partition, number of the chunk). A task that an engine
runs a second time deals the same cards, and two partitions, or two decks, never share a key.
"""

import hmac
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b, sha256
from math import sqrt

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.randomness import keyed_generator
from holdfast.rows.columns import Storage
from holdfast.rows.draws import mix
from holdfast.rows.fingerprint import physical, validity

RESERVED = "__holdfast_"  # how the names of columns begin that are written beside those of the table
PLACE = f"{RESERVED}place"
PLACES = 1 << 63
CHUNK = 1 << 17  # rows; part of what a retry repeats, so never a setting
_ENOUGH = 10.0  # standard deviations: fewer cards than were asked for come up less than once in 10^22 decks
_MISSING = np.uint64(0x9E3779B97F4A7C15)
_REMEMBERED = 1 << 16  # texts


def rate_for(cards: int, rows: int) -> float:
    """Return a rate at which so many cards come up, or more."""
    return (cards + _ENOUGH * sqrt(cards) + _ENOUGH**2) / rows


class Dealer:
    """Deals the cards of one partition, and adds up its content on the way.

    Parameters
    ----------
    secret, deck, partition
        What the cards are keyed by.
    rate
        Expected copies of a row.
    columns
        The columns of the table, and how they are stored.
    """

    def __init__(self, secret: bytes, deck: str, partition: str, rate: float, columns: Mapping[str, Storage]) -> None:
        self._key = hmac.digest(secret, f"{len(deck)} {deck} {partition}".encode(), "sha256")
        self._rate, self._columns = rate, columns
        self.content = Content(columns)

    def deal(self, batches: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Yield the cards of these batches, each with its place. How rows are cut into batches does not matter."""
        for number, chunk in enumerate(chunks(batches, CHUNK)):
            # Series by series: a query, even `select`, waits for Polars' threads.
            chunk = pl.DataFrame([chunk.get_column(name) for name in self._columns])
            self.content.add(chunk)
            rng = keyed_generator(hmac.digest(self._key, str(number).encode(), "sha256"))
            count = rng.poisson(self._rate * chunk.height)
            rows, places = rng.integers(0, chunk.height, count), rng.integers(0, PLACES, count)
            yield chunk[rows].hstack([pl.Series(PLACE, places)])


def chunks(batches: Iterable[pl.DataFrame], size: int) -> Iterator[pl.DataFrame]:
    """Cut batches anew: all of `size` rows but the last."""
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


class Content:
    """What a table holds, whatever the order of its rows and columns: sums of a hash of every row."""

    def __init__(self, columns: Mapping[str, Storage]) -> None:
        self._columns = columns
        self._keys = {name: _key(f"{name}\0{storage.label}") for name, storage in columns.items()}
        self._texts, self._hashes = pl.Series([], dtype=pl.String), np.zeros(0, np.uint64)  # of texts seen lately
        self.rows = 0
        self.sums = (0, 0)

    def add(self, frame: pl.DataFrame) -> None:
        """Add rows."""
        total = np.zeros(frame.height, np.uint64)
        for name, storage in self._columns.items():
            total += mix(self._bits(frame[name], storage) ^ self._keys[name])
        first = mix(total)
        self.include(frame.height, (int(first.sum()), int(mix(first ^ _MISSING).sum())))

    def include(self, rows: int, sums: tuple[int, int]) -> None:
        """Add what another one has summed up."""
        self.rows += rows
        self.sums = ((self.sums[0] + sums[0]) % 2**64, (self.sums[1] + sums[1]) % 2**64)

    def fingerprint(self) -> str:
        """Return one hash for the content."""
        lines = sorted(f"{len(name.encode())} {name} {storage.label}" for name, storage in self._columns.items())
        return sha256("\n".join([f"holdfast rows 1, {self.rows} rows, {self.sums}", *lines]).encode()).hexdigest()

    def _bits(self, series: pl.Series, storage: Storage) -> NDArray[np.uint64]:
        if storage.numpy is None:
            return self._text_bits(series.cast(pl.String))
        values, valid = physical(series, storage)
        wide = values.astype(np.float64 if values.dtype.kind == "f" else np.int64)  # wraps 64 bits without a sign
        bits = wide.view(np.uint64)
        return bits if valid is None else np.where(valid, bits, _MISSING)

    def _text_bits(self, series: pl.Series) -> NDArray[np.uint64]:
        valid = validity(series)
        filled = series if valid is None else series.fill_null("")
        codes = filled.cast(pl.Enum(self._texts), strict=False).to_physical()
        if codes.null_count():  # texts that were not seen before
            found = filled.unique()
            if self._texts.len() + found.len() > _REMEMBERED:
                self._texts = self._texts.clear()
            new = found.filter(~found.is_in(self._texts.implode()))
            kept = self._hashes[: self._texts.len()]
            self._hashes = np.concatenate([kept, np.array([*map(_hash, new)], np.uint64)])
            self._texts = pl.concat([self._texts, new])
            codes = filled.cast(pl.Enum(self._texts)).to_physical()
        hashes = self._hashes[codes.to_numpy()]
        return hashes if valid is None else np.where(valid, hashes, _MISSING)


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _key(text: str) -> np.uint64:
    return np.uint64(_hash(text))
