"""What a deal is made from: the rows of a table in chunks, or whole units, and how many there are.

    Supply     a table of known size, which can be read again from the beginning
    counted    rows in their order; a stream is written to disk first, since it cannot be counted otherwise
    by_unit    rows grouped by unit (`units`), written to disk in files that no unit straddles

The number of rows or units must be known before the first card is dealt.

A random set of rows may be kept for checks: they are on no card, but stored as a table beside the cards, together with
the key that determines the choice.

    keep       choose them and write them as columns, in one pass; cards are dealt from the other rows in another pass
    put        put them into a deck, before its first cards: all slices and all deals have the same rows
"""

import hmac
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.errors import RowSourceError
from holdfast.randomness import keyed_generator
from holdfast.rows.decks.cards import chunks
from holdfast.rows.disk.folder import DIVISION, Manifest
from holdfast.rows.disk.ingest import write_rows
from holdfast.rows.disk.partial import replace_text, swap_in, write_whole
from holdfast.rows.fingerprint import Content
from holdfast.rows.scans.scan import Origin, Scan, skipping
from holdfast.rows.units import Grouping, lengths_of

_MOST = 10**9 - 1  # rows or units: the limit of numpy's hypergeometric distribution
_PIECE = 1 << 18  # rows or units decided at once; a different value would select other rows in the next deal
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


Pass = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]
"""Reports a pass over the table: what it does and to how many rows, if that is known; yields what counts them."""


def counted(scan: Scan, work: Path, reading: Pass) -> Supply:
    """Count rows, or write them to disk to be counted."""
    rows = scan.rows()
    if rows is None:
        spool = Spool(work)
        with reading("Reading", None) as advance:
            for batch in scan.batches():
                spool.write(batch)
                advance(batch.height)
        return Supply(spool.rows, spool.rows, spool.read)
    return Supply(rows, rows, scan.batches)


def by_unit(scan: Scan, work: Path, unit: str, reading: Pass) -> Supply:
    """Group rows by unit and write them to disk, where a resumed deal finds them."""
    spool, about = Spool(work), work / "by-unit.json"
    if about.exists():
        units, spool.files, spool.rows = json.loads(about.read_text(encoding="ascii"))
        return Supply(spool.rows, units, spool.read, unit)
    grouping = Grouping(unit, work, scan.columns, scan.name)
    tail: pl.DataFrame | None = None
    rows = scan.rows()
    with reading("Grouping", rows) as advance:
        for batch in grouping.batches(scan.batches(), rows):
            advance(batch.height)
            batch = batch if tail is None else pl.concat([tail, batch])
            last = int(lengths_of(batch[unit])[-1])
            if last > MOST_ROWS:
                raise RowSourceError(
                    f"A unit of {unit!r} has more than {MOST_ROWS:,} rows, and a card holds all rows of its unit. Open"
                    f" the table itself with unit={unit!r}, or aggregate its rows first.",
                    column=unit,
                )
            # The last unit may continue in the next batch.
            tail, batch = batch.slice(batch.height - last), batch.head(batch.height - last)
            spool.write(batch)
        if tail is not None:
            spool.write(tail)
    units = grouping.starts.size - 1 if tail is not None else 0
    replace_text(about, json.dumps([units, spool.files, spool.rows]))
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


@dataclass(frozen=True)
class Division:
    """A uniformly random set of rows, or units, which only check guesses; no card is dealt from them.

    For every piece of the table, a hypergeometric number is drawn, and that many of the piece are kept, so that one
    pass over a stream is enough: `docs/proofs/decks.md`.

    Parameters
    ----------
    key
        Secret; the same key, with rows in the same order, gives the same set.
    drawn, kept
        How many rows or units there are, and how many of them are kept.
    """

    key: bytes = field(repr=False)
    drawn: int
    kept: int

    def masks(self) -> Iterator[NDArray[np.bool_]]:
        """Yield, piece after piece, whether each row or unit is kept."""
        rng, kept = keyed_generator(self.key), self.kept
        for start in range(0, self.drawn, _PIECE):
            left = self.drawn - start
            mask = np.zeros(min(_PIECE, left), np.bool_)
            here = int(rng.hypergeometric(kept, left - kept, mask.size))
            mask[rng.choice(mask.size, here, replace=False, shuffle=False)] = True
            kept -= here
            yield mask

    def halves(self, supply: Supply) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
        """Yield, batch after batch, the rows that are kept and the others."""
        masks, mask = self.masks(), np.zeros(0, np.bool_)
        for batch in supply.read(0):
            lengths = None if supply.unit is None else lengths_of(batch[supply.unit])
            count = batch.height if lengths is None else lengths.size
            while mask.size < count:  # rows beyond those counted are not kept; a later count notices them
                mask = np.concatenate([mask, next(masks, np.zeros(count, np.bool_))])
            these, mask = mask[:count], mask[count:]
            each = these if lengths is None else np.repeat(these, lengths)
            yield batch.filter(pl.Series(each)), batch.filter(pl.Series(~each))

    def others(self, supply: Supply, rows_kept: int) -> Supply:
        """Return the supply of the other rows, from which cards are dealt."""

        def read(after: int) -> Iterator[pl.DataFrame]:
            return skipping((others for _, others in self.halves(supply)), after)

        return replace(supply, rows=supply.rows - rows_kept, drawn=supply.drawn - self.kept, read=read)


@dataclass(frozen=True)
class KeptRows:
    """The rows that are kept for checks: which ones, how many, and the content sums of these and of the others."""

    division: Division
    rows: int
    sums: tuple[int, int]
    others: tuple[int, int]

    def write(self, folder: Path) -> None:
        """Store this beside the rows, durably and atomically, so that the next deal keeps the same rows."""
        division = self.division
        facts = [division.key.hex(), division.drawn, division.kept, self.rows, self.sums, self.others]
        write_whole(folder / DIVISION, json.dumps(facts))

    @classmethod
    def read(cls, folder: Path) -> "KeptRows":
        """Return what `write` stored."""
        try:
            key, drawn, kept, rows, sums, others = json.loads((folder / DIVISION).read_text(encoding="ascii"))
        except (OSError, ValueError):
            raise RowSourceError(f"{folder} is damaged: it does not say which rows it keeps. Restore it.") from None
        return cls(Division(bytes.fromhex(key), drawn, kept), rows, tuple(sums), tuple(others))

    def fingerprint(self, others: Content, scan: Scan) -> str:
        """Return the hash of the whole table and that of the kept rows; cards were dealt from `others`.

        Two decks with one ledger must keep the same rows: otherwise one deck would answer from rows that the other
        checks on. The second hash is keyed, since two different sets of rows may have equal content. The first hash
        prevents a second ledger for the table.
        """
        if others.sums != self.others:  # a row might be both kept and dealt
            raise RowSourceError(
                f"The rows of {scan.where or 'the table'} came in another order when they were read again, so none can"
                " be kept for checks. Sort them, or write them to a file first."
            )
        whole = Content(scan.columns)
        for rows, sums in ((others.rows, others.sums), (self.rows, self.sums)):
            whole.include(rows, sums)
        kept = hmac.digest(self.division.key, f"kept for checks: {self.rows} rows, {self.sums}".encode(), "sha256")
        return f"{whole.fingerprint()}, keeping {kept.hex()}"


def keep(
    division: Division,
    supply: Supply,
    folder: Path,
    scan: Scan,
    origin: Origin,
    complete: Collection[str],
    reading: Pass,
) -> KeptRows:
    """Write the kept rows into this folder, unless they are there already."""
    if (folder / DIVISION).exists():
        Manifest.read(folder).declared(complete)  # may refuse: fewer columns may have been declared before
        return KeptRows.read(folder)
    if division.drawn > _MOST:
        raise RowSourceError(f"Rows can be kept for checks only out of at most {_MOST:,}; leave checks out.")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    kept, others = Content(scan.columns), Content(scan.columns)

    def batches(advance: Callable[[int], None]) -> Iterator[pl.DataFrame]:
        for mine, rest in division.halves(supply):
            kept.add(mine)
            others.add(rest)
            advance(mine.height + rest.height)
            yield mine

    with reading("Dividing", supply.rows) as advance:
        write_rows(scan, origin, batches(advance), folder, complete, supply.unit)
    found = KeptRows(division, kept.rows, kept.sums, others.sums)
    found.write(folder)
    return found


def put(kept: Path, folder: Path, source: Path | None) -> None:
    """Put the kept rows into a deck, as hard links; anybody who may read the `source` may read them."""
    partial = kept.with_name(f"{kept.name}.put")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(kept, partial, copy_function=os.link)
    swap_in(source, partial, folder)
