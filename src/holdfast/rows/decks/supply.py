"""What a deal is made from: the rows of a table in chunks, or whole units, and how many there are.

    Supply     a table of known size, which can be read again from the beginning
    counted    rows in their order; a stream is written to disk first, since it cannot be counted otherwise
    by_unit    rows grouped by unit (`units`), written to disk in files that no unit straddles

The number of rows or units must be known before the first card is dealt.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.errors import RowSourceError
from holdfast.rows.decks.cards import chunks
from holdfast.rows.scans.scan import Scan, skipping
from holdfast.rows.units import Grouping, lengths_of

MOST_ROWS = 1 << 20  # of one unit: they are in memory together, once for every time the unit is drawn from a chunk


class Chunk(NamedTuple):
    """Rows that are dealt together, and how many of them each unit has, if units are drawn.

    `first` is the number of the first row, or unit, in the table.
    """

    rows: pl.DataFrame
    lengths: NDArray[np.int64] | None = None
    first: int = 0

    def numbered(self, column: str) -> pl.DataFrame:
        """Return the rows with a column of their numbers, or of the numbers of their units."""
        count = self.rows.height if self.lengths is None else self.lengths.size
        numbers = np.arange(self.first, self.first + count)
        each = numbers if self.lengths is None else np.repeat(numbers, self.lengths)
        return self.rows.hstack([pl.Series(column, each)])


@dataclass(frozen=True)
class Supply:
    """A table of known size.

    Parameters
    ----------
    rows, drawn
        How many rows it has, and how many rows or units there are to draw from.
    read
        Yields rows in batches, skipping a given number of rows.
    unit
        The column that names units; then no unit straddles two batches.
    """

    rows: int
    drawn: int
    read: Callable[[int], Iterator[pl.DataFrame]]
    unit: str | None = None

    def chunks(
        self, size: int, done: int, reading: Iterator[pl.DataFrame] | None = None
    ) -> Iterator[tuple[int, Chunk]]:
        """Yield chunks of about `size` rows with their numbers; the cuts are the same every time.

        Parameters
        ----------
        size
            The rows of a chunk.
        done
            How many rows were dealt before.
        reading
            An iterator over all rows, if reading has already begun.
        """
        if self.unit is None:
            left = (reading or self.read(done)) if done < self.rows else ()
            for number, rows in enumerate(chunks(left, size), done // size):
                yield number, Chunk(rows, None, number * size)
            return
        number = seen = units = 0
        for batch in reading or self.read(0):
            for rows, lengths in whole_units(batch, self.unit, size):
                if seen >= done:
                    yield number, Chunk(rows, lengths, units)
                number, seen, units = number + 1, seen + rows.height, units + lengths.size


def counted(scan: Scan, work: Path) -> Supply:
    """Count rows, or write them to disk to be counted."""
    rows = scan.rows()
    if rows is None:
        spool = Spool(work)
        for batch in scan.batches():
            spool.write(batch)
        return Supply(spool.rows, spool.rows, spool.read)
    return Supply(rows, rows, scan.batches)


def by_unit(scan: Scan, work: Path, unit: str) -> Supply:
    """Group rows by unit and write them to disk, where a resumed deal finds them."""
    spool, about = Spool(work), work / "by-unit.json"
    if about.exists():
        units, spool.files, spool.rows = json.loads(about.read_text(encoding="ascii"))
        return Supply(spool.rows, units, spool.read, unit)
    grouping = Grouping(unit, work, scan.columns, scan.name)
    tail: pl.DataFrame | None = None
    for batch in grouping.batches(scan.batches(), scan.rows()):
        batch = batch if tail is None else pl.concat([tail, batch])
        last = int(lengths_of(batch[unit])[-1])
        if last > MOST_ROWS:
            raise RowSourceError(
                f"A unit of {unit!r} has more than {MOST_ROWS:,} rows, and a card holds all rows of its unit. Open the"
                f" table itself with unit={unit!r}, or aggregate its rows first.",
                column=unit,
            )
        # The last unit may continue in the next batch.
        tail, batch = batch.slice(batch.height - last), batch.head(batch.height - last)
        spool.write(batch)
    if tail is not None:
        spool.write(tail)
    units = grouping.starts.size - 1 if tail is not None else 0
    about.with_suffix(".new").write_text(json.dumps([units, spool.files, spool.rows]), encoding="ascii")
    about.with_suffix(".new").replace(about)
    return Supply(spool.rows, units, spool.read, unit)


class Spool:
    """Batches on disk."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.files, self.rows = folder, 0, 0

    def write(self, batch: pl.DataFrame) -> None:
        """Add a batch."""
        if batch.height:
            batch.write_ipc(self._path(self.files), compression="lz4")
            self.files, self.rows = self.files + 1, self.rows + batch.height

    def read(self, after: int) -> Iterator[pl.DataFrame]:
        """Yield the rows that follow the first `after` rows."""
        yield from skipping((pl.read_ipc(self._path(number)) for number in range(self.files)), after)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:06d}.rows"


def whole_units(batch: pl.DataFrame, unit: str, size: int) -> Iterator[tuple[pl.DataFrame, NDArray[np.int64]]]:
    """Cut a batch between units into chunks of at most `size` rows, or of one unit if it has more.

    >>> frame = pl.DataFrame({"unit": [1, 1, 1, 2, 3, 3]})
    >>> [lengths.tolist() for _, lengths in whole_units(frame, "unit", 3)]
    [[3], [1, 2]]
    """
    lengths = lengths_of(batch[unit])
    ends, first, start = np.cumsum(lengths), 0, 0
    while first < lengths.size:
        last = max(first + 1, int(np.searchsorted(ends, start + size, side="right")))
        yield batch[start : int(ends[last - 1])], lengths[first:last]
        first, start = last, int(ends[last - 1])
