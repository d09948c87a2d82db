"""Rows of a deck that are kept for checks: a random set, on no card, which lies beside the cards as it is.

    keep    choose them, and write them as columns, in one pass; the cards are dealt from the others in another
    put     into a deck, before its first cards: all slices and all deals have the same

Which they are is remembered beside them, as the key of the choice.
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
from holdfast.rows.content import Content
from holdfast.rows.folder import DIVISION, Manifest
from holdfast.rows.ingest import write_rows
from holdfast.rows.partial import swap_in, write_whole
from holdfast.rows.scans.scan import Origin, Scan
from holdfast.rows.supply import Supply, lengths_of

_MOST = 10**9 - 1  # rows or units, of which numpy can draw how many are kept
_PIECE = 1 << 18  # of which it is decided at once whether they are kept; part of what the next deal repeats


@dataclass(frozen=True)
class Division:
    """A uniformly random set of rows, or units, which only check guesses; no card is dealt from them.

    Of every piece of the table a hypergeometric number is kept, and that many of it: `docs/proofs/decks.md`.

    Parameters
    ----------
    key
        Secret; with the same one, and rows in the same order, it is the same set.
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
        """Yield the rows of those that are kept, and of the others."""
        masks, mask = self.masks(), np.zeros(0, np.bool_)
        for batch in supply.read(0):
            lengths = None if supply.unit is None else lengths_of(batch, supply.unit)
            count = batch.height if lengths is None else lengths.size
            while mask.size < count:  # rows that were not counted are not kept: whoever counts again will notice
                mask = np.concatenate([mask, next(masks, np.zeros(count, np.bool_))])
            these, mask = mask[:count], mask[count:]
            each = these if lengths is None else np.repeat(these, lengths)
            yield batch.filter(pl.Series(each)), batch.filter(pl.Series(~each))

    def others(self, supply: Supply, rows_kept: int) -> Supply:
        """Return what cards are dealt from."""

        def read(after: int) -> Iterator[pl.DataFrame]:
            for _, batch in self.halves(supply):
                yield batch.slice(after)
                after -= min(after, batch.height)

        return replace(supply, rows=supply.rows - rows_kept, drawn=supply.drawn - self.kept, read=read)


@dataclass(frozen=True)
class KeptRows:
    """Rows that are kept for checks: which they are, how many, and what they and the others add to the content."""

    division: Division
    rows: int
    sums: tuple[int, int]
    others: tuple[int, int]

    def write(self, folder: Path) -> None:
        """Remember it beside them, durably: the next deal keeps the same ones, and it lies there whole or not."""
        division = self.division
        facts = [division.key.hex(), division.drawn, division.kept, self.rows, self.sums, self.others]
        write_whole(folder / DIVISION, json.dumps(facts))

    @classmethod
    def read(cls, folder: Path) -> "KeptRows":
        """Return what was remembered."""
        try:
            key, drawn, kept, rows, sums, others = json.loads((folder / DIVISION).read_text(encoding="ascii"))
        except (OSError, ValueError):
            raise RowSourceError(f"{folder} is damaged: it does not say which rows it keeps. Restore it.") from None
        return cls(Division(bytes.fromhex(key), drawn, kept), rows, tuple(sums), tuple(others))

    def fingerprint(self, others: Content, scan: Scan) -> str:
        """Return the hash of the whole table, and that of what is kept of it; `others` is what was dealt from.

        Two decks with one ledger keep the same rows: else one would ask what the other checks on. The second hash is
        keyed, as two other sets of rows may look the same. By the first, the table has no second ledger.
        """
        if others.sums != self.others:  # then a row may be kept, and dealt from
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
    """Write the rows that are kept into this folder, unless they are there."""
    if (folder / DIVISION).exists():
        Manifest.read(folder).declared(complete)  # refuses: less may have been declared when they were written
        return KeptRows.read(folder)
    if division.drawn > _MOST:
        raise RowSourceError(f"Rows are kept for checks of at most {_MOST:,}; leave checks out.")
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
    """Put what is kept into a deck, as links; who may read the `source` may read it."""
    partial = kept.with_name(f"{kept.name}.put")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(kept, partial, copy_function=os.link)
    swap_in(source, partial, folder)
