"""What a board has besides its rows: their ids, the key that names submissions, and the best submission so far.

The predictions of the best submission are kept, so that an improvement can be compared with it row by row. They are
stored beside the board's rows, readable by their owner alone, or in memory. Every submission is kept before it is
committed, whatever its score is, so that the time it takes reveals nothing; those that are not the best are removed
later. If the best is missing (another machine scored it), the comparison is left out, and nothing else changes.
"""

import json
import os
import threading
from contextlib import suppress
from pathlib import Path
from time import time
from typing import NamedTuple

import polars as pl

from holdfast.cached import cached_property
from holdfast.errors import RowSourceError
from holdfast.ledger import Entry, Follower, Ledger
from holdfast.questions.estimate import Interval
from holdfast.questions.submit import identity_of
from holdfast.rows.disk.folder import FolderRows
from holdfast.rows.draws import Indices
from holdfast.rows.local import LocalRows
from holdfast.rows.source import RowSource

SEALED, CONFUSION = ".board.holdfast", ".confusion.holdfast"  # a board's rows for scores, and for confusion matrices
NAMES = "names of submissions"  # the purpose for which the ledger derives their key
FOLDER = ".best"  # the ending of the folder of predictions
MOST_STORED = 8  # submissions stored before those that are not the best are removed
IN_FLIGHT = 3_600  # seconds: the longest time from keeping to committing


class Best(NamedTuple):
    """A submission that was the best when it was committed: its number, its cell in units of the metric, and itself."""

    seq: int
    cell: Interval
    predictions: pl.DataFrame


class BoardFiles:
    """The files of one board, read only when they are needed. Safe to share between threads and processes."""

    def __init__(self, rows: RowSource, ledger: Ledger) -> None:
        self._rows, self._ledger = rows, ledger
        place = rows.location
        self._folder = None if place is None else place.with_name(place.name.removesuffix(".holdfast") + FOLDER)
        self._memory: dict[str, pl.DataFrame] = {}
        self._newest = ("", 0, (0.0, 0.0))  # digest, number and cell of the best
        self._follower = Follower(ledger, self._add)

    def ids(self, column: str) -> pl.Series:
        """Return the ids of the rows, which everybody who submits must know."""
        if not isinstance(self._rows, LocalRows):
            raise RowSourceError("A board's rows must be on this machine, in memory or in a folder.")
        return self._rows.ids(column)

    def others(self, column: str) -> pl.Series | None:
        """Return the ids of the board's other part, if it has two."""
        return None if self._other_part is None else self._other_part.ids(column)

    @cached_property
    def _other_part(self) -> FolderRows | None:
        place, ends = self._rows.location, {SEALED: CONFUSION, CONFUSION: SEALED}
        own = next((end for end in ends if place is not None and place.name.endswith(end)), None)
        if place is None or own is None:
            return None
        part = place.with_name(place.name.removesuffix(own) + ends[own])
        return FolderRows(part) if part.is_dir() else None

    @property
    def unit_starts(self) -> Indices | None:
        """Where units begin among the rows, if there are units."""
        return self._rows.unit_starts if isinstance(self._rows, LocalRows) else None

    def key(self) -> bytes:
        """Return the secret key that makes the names of submissions."""
        return self._ledger.key(NAMES)

    def best(self, digest: str, predictions: pl.DataFrame) -> Best | None:
        """Keep a submission that is about to be committed; return the best among those committed by now."""
        best = self._follower.caught_up(lambda: self._exchange(digest, predictions))
        return None if best is None or best.predictions.shape != predictions.shape else best

    def _exchange(self, digest: str, predictions: pl.DataFrame) -> Best | None:
        self._store(digest, predictions)
        best, seq, cell = self._newest
        self._sweep({best, digest})
        found = self._memory.get(best) if self._folder is None else _read(self._folder / f"{best}.parquet")
        return None if not seq or found is None else Best(seq, cell, found)

    def _add(self, entry: Entry) -> None:
        if entry.answer.get("improved"):
            low, high = entry.answer["cell"]
            self._newest = json.loads(entry.key or "{}").get("submission", ""), entry.seq, (low, high)

    def _store(self, digest: str, predictions: pl.DataFrame) -> None:
        if self._folder is None:
            self._memory[digest] = predictions
            return
        with suppress(OSError):  # a full disk costs only the comparison
            self._folder.mkdir(mode=0o700, exist_ok=True)
            written = self._folder / f"{digest}.{os.getpid()}.{threading.get_ident()}"
            with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                predictions.write_parquet(file, compression="uncompressed", statistics=False)
            written.replace(self._folder / f"{digest}.parquet")

    def _sweep(self, requested: set[str]) -> None:
        """Remove submissions that are neither the best nor possibly about to be committed."""
        if self._folder is None:
            if len(self._memory) > MOST_STORED:
                committed = {digest for digest in self._memory if self._is_committed(digest)}
                for digest in committed - requested:
                    del self._memory[digest]
            return
        with suppress(OSError):
            there = [path for path in self._folder.iterdir() if path.stem not in requested]
            if len(there) <= MOST_STORED:
                return
            for path in there:
                if self._is_committed(path.stem) or time() - path.stat().st_mtime > IN_FLIGHT:
                    path.unlink(missing_ok=True)

    def _is_committed(self, digest: str) -> bool:
        return self._ledger.find(identity_of(digest)) is not None


def _read(path: Path) -> pl.DataFrame | None:
    try:
        return pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError):
        return None
