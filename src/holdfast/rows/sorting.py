"""Cards in order of place, in bounded memory: sorted runs on disk, then one range of places after another.

    add       cards are collected, sorted and written, a block at a time: a run
    ordered   places are cut into ranges, about a block of cards in each; the piece that every run has of a range is
              read, and the pieces are sorted together

Which of two cards with the same place comes first is decided by chance: by the order of the runs, it would depend on
the rows.
"""

from collections.abc import Callable, Iterator
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast.rows.cards import PLACE, PLACES

_BLOCK_BYTES = 48 << 20
_MOST, _LEAST = 1 << 20, 1 << 12  # cards in a block
_PIECE = 1 << 14  # cards of a run that are read at once
_TIE = f"{PLACE}_tie"


class Runs:
    """Cards on their way into order.

    Parameters
    ----------
    folder
        Where the runs are written; whoever made it removes it.
    block
        Cards in a run; left out, as many as take some megabytes.
    """

    def __init__(self, folder: Path, block: int | None = None) -> None:
        self._folder, self._given = folder, block
        self._block = block or _MOST
        self._waiting: list[pl.DataFrame] = []
        self._height = self.cards = self._runs = 0

    def add(self, cards: pl.DataFrame) -> None:
        """Add cards, in any order."""
        self._waiting.append(cards)
        self._height += cards.height
        self.cards += cards.height
        if self._given is None and self._runs == 0 and self._height > _LEAST:  # long texts make short blocks
            size = max(1.0, sum(each.estimated_size() for each in self._waiting) / self._height)
            self._block = int(min(_MOST, max(_LEAST, _BLOCK_BYTES / size)))
        if self._height >= self._block:
            self._write()

    def _write(self) -> None:
        run = pl.concat(self._waiting).sort(PLACE)
        # Texts with offsets: views would be written with all the memory that they point into.
        path, oldest = self._path(self._runs), pl.CompatLevel.oldest()
        run.write_ipc(path, compression="uncompressed", compat_level=oldest, record_batch_size=_PIECE)
        self._waiting, self._height, self._runs = [], 0, self._runs + 1

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:06d}.run"

    def ordered(
        self, rng: Generator, advance: Callable[[int], Any], first: int = 0, last: int = PLACES
    ) -> Iterator[pl.DataFrame]:
        """Yield the cards whose places are from `first` to `last` - 1, in order, without their places.

        Parameters
        ----------
        rng
            Decides between equal places.
        advance
            Is told how many cards are done.
        first, last
            The range of places.
        """
        if self._height:
            self._write()
        ranges = max(1, ceil(self.cards * (last - first) / PLACES / self._block))
        edges = np.array([first + (last - first) * i // ranges for i in range(ranges)] + [last - 1], np.int64)
        cuts = np.stack([self._cuts(number, edges, last) for number in range(self._runs)])
        for i in range(ranges):
            pieces = [
                self._scan(number).slice(int(cuts[number, i]), int(cuts[number, i + 1] - cuts[number, i]))
                for number in range(self._runs)
                if cuts[number, i] < cuts[number, i + 1]
            ]
            if pieces:
                cards = _sorted(pl.concat(pl.collect_all(pieces)), rng)
                advance(cards.height)
                yield cards

    def _cuts(self, number: int, edges: NDArray[np.int64], last: int) -> NDArray[np.int64]:
        places = self._scan(number).select(PLACE).collect()[PLACE].to_numpy()
        cuts = np.searchsorted(places, edges)
        cuts[-1] = np.searchsorted(places, last - 1, side="right")  # PLACES itself is no 64-bit integer
        return cuts

    def _scan(self, number: int) -> pl.LazyFrame:
        return pl.scan_ipc(self._path(number), glob=False, hive_partitioning=False)


def _sorted(cards: pl.DataFrame, rng: Generator) -> pl.DataFrame:
    cards = cards.sort(PLACE)
    places = cards[PLACE].to_numpy()
    if (places[1:] == places[:-1]).any():
        cards = cards.with_columns(pl.Series(_TIE, rng.permutation(cards.height))).sort(PLACE, _TIE).drop(_TIE)
    return cards.drop(PLACE)
