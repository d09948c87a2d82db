"""Engines that read a table where it is stored and deal its cards there: Spark and Ray.

An engine is one file that registers an `Engine`. Its workers run `Task.run` on every partition and write what it
yields, cards and one summary, to a location that all of them can reach; then the cards are collected from there. An
engine that runs a partition twice gets the same cards, since the task is keyed; how the engine writes files decides
which attempt counts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import polars as pl

from holdfast.registry import Registry
from holdfast.rows.columns import Storage
from holdfast.rows.decks.cards import PLACE, RESERVED, Chance, Dealer
from holdfast.rows.scans.scan import Scan

ROWS, SUMS = f"{RESERVED}rows", (f"{RESERVED}sum_1", f"{RESERVED}sum_2")
_SUMMARY = -1  # the place value that marks a partition's summary line


@dataclass(frozen=True)
class Task:
    """What a worker needs to deal a partition. It is sent to workers and not stored."""

    secret: bytes = field(repr=False)
    deck: str
    rate: float
    columns: dict[str, Storage]

    def chance(self, partition: str) -> Chance:
        """Return the randomness of a partition."""
        return Chance.of(self.secret, self.deck, partition, self.rate)

    def run(self, partition: str, batches: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Yield the cards of one partition, then one line that summarizes its content."""
        dealer = Dealer(self.chance(partition), self.columns)
        extra = [pl.lit(None, pl.Int64).alias(name) for name in (ROWS, *SUMS)]
        for cards in dealer.deal(batches):
            yield cards.with_columns(extra)
        content = dealer.content
        signed = [each - (each >> 63 << 64) for each in content.sums]  # as signed 64-bit numbers
        line: dict[str, int | None] = dict.fromkeys(self.columns)
        line |= {PLACE: _SUMMARY, ROWS: content.rows, SUMS[0]: signed[0], SUMS[1]: signed[1]}
        types = {name: storage.polars for name, storage in self.columns.items()}
        yield pl.DataFrame([line], schema={**types, **dict.fromkeys((PLACE, ROWS, *SUMS), pl.Int64())})


@dataclass(frozen=True)
class Engine:
    """The two functions of an engine.

    Parameters
    ----------
    scan
        Returns what is known about a table before it is read: its columns and its number of rows.
    deal
        `deal(table, task, out)` runs the task on every partition of the table, writes what it yields to `out`, and
        returns an iterator over that: batches, in any order.
    """

    scan: Callable[[Any], Scan]
    deal: Callable[[Any, Task, str], Iterator[pl.DataFrame]]


ENGINES: Registry[Engine] = Registry("holdfast.rows.engines", ("spark", "ray"))


class Summary(NamedTuple):
    """What partitions contribute to the content of a table."""

    rows: int
    sums: tuple[int, int]


def split_summaries(
    written: Iterable[pl.DataFrame], columns: Mapping[str, Storage]
) -> Iterator[tuple[pl.DataFrame, Summary]]:
    """Yield the cards that workers wrote, and the sum of the summaries among them."""
    names = [*(pl.col(name).cast(storage.polars) for name, storage in columns.items()), PLACE]
    for batch in written:
        summary = Summary(0, (0, 0))
        for rows, *sums in batch.filter(pl.col(PLACE) == _SUMMARY).select(ROWS, *SUMS).iter_rows():
            both = zip(summary.sums, sums, strict=True)
            first, second = ((before + new) % 2**64 for before, new in both)
            summary = Summary(summary.rows + rows, (first, second))
        yield batch.filter(pl.col(PLACE) != _SUMMARY).select(names), summary
