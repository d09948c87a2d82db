"""Rows of a deck that are kept for checks: a random set of rows, on no card, stored as a table beside the cards.

    keep    choose them and write them as columns, in one pass; the cards are dealt from the other rows in another pass
    put     put them into a deck, before its first cards: all slices and all deals have the same rows

The key that determines the choice is stored beside them.
"""

import hmac
import json
import os
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.errors import RowSourceError
from holdfast.randomness import keyed_generator
from holdfast.rows.decks.supply import Supply
from holdfast.rows.disk.folder import DIVISION, Manifest
from holdfast.rows.disk.ingest import write_rows
from holdfast.rows.disk.partial import swap_in, write_whole
from holdfast.rows.fingerprint import Content
from holdfast.rows.scans.scan import Origin, Scan, skipping
from holdfast.rows.units import lengths_of

_MOST = 10**9 - 1  # rows or units: the limit of numpy's hypergeometric distribution
_PIECE = 1 << 18  # rows or units decided at once; a different value would select other rows in the next deal


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
    division: Division, supply: Supply, folder: Path, scan: Scan, origin: Origin, complete: Collection[str]
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

    def batches() -> Iterator[pl.DataFrame]:
        for mine, rest in division.halves(supply):
            kept.add(mine)
            others.add(rest)
            yield mine

    write_rows(scan, origin, batches(), folder, complete, supply.unit)
    found = KeptRows(division, kept.rows, kept.sums, others.sums)
    found.write(folder)
    return found


def put(kept: Path, folder: Path, source: Path | None) -> None:
    """Put the kept rows into a deck, as hard links; anybody who may read the `source` may read them."""
    partial = kept.with_name(f"{kept.name}.put")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(kept, partial, copy_function=os.link)
    swap_in(source, partial, folder)
