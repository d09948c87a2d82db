"""The predictions of the best submission to a board, kept so that an improvement can be compared with it row by row.

They lie beside the board's rows, for their owner alone, or in memory. Every submission is kept before it is committed,
whatever its score is, so that nothing can be told from the time it takes; those that are not the best are removed later
on. Where they are missing (another machine scored the best), the comparison is left out, and nothing else changes.
"""

import json
import os
import threading
from contextlib import suppress
from pathlib import Path
from time import time
from typing import NamedTuple

import polars as pl

from holdfast.answer import Interval
from holdfast.ledger import Ledger

KEPT = ".best"  # how the folder of predictions is called
MOST_KEPT = 8  # submissions, before those that are not the best are looked for
IN_FLIGHT = 3_600  # seconds, at most, from keeping to committing


class Best(NamedTuple):
    """A submission that was the best when it was committed: its number, its cell in units of the metric, and itself."""

    seq: int
    cell: Interval
    predictions: pl.DataFrame


class BestKept:
    """What is kept of the submissions to one board. Safe to share between threads and processes."""

    def __init__(self, ledger: Ledger, rows: Path | None) -> None:
        self._ledger = ledger
        self._folder = None if rows is None else rows.with_name(rows.name.removesuffix(".holdfast") + KEPT)
        self._memory: dict[str, pl.DataFrame] = {}
        self._lock = threading.Lock()
        self._next, self._newest = 1, ("", 0, (0.0, 0.0))  # the next entry to read; digest, number and cell of the best

    def exchange(self, digest: str, predictions: pl.DataFrame) -> Best | None:
        """Keep a submission that is about to be committed; return the best among those committed by now."""
        with self._lock:
            self._keep(digest, predictions)
            for entry in self._ledger.entries(self._next):
                self._next = entry.seq + 1
                if entry.answer.get("improved"):
                    low, high = entry.answer["cell"]
                    self._newest = json.loads(entry.key or "{}").get("submission", ""), entry.seq, (low, high)
            best, seq, cell = self._newest
            self._sweep({best, digest})
            found = self._memory.get(best) if self._folder is None else _read(self._folder / f"{best}.parquet")
        return None if not seq or found is None or found.shape != predictions.shape else Best(seq, cell, found)

    def _keep(self, digest: str, predictions: pl.DataFrame) -> None:
        if self._folder is None:
            self._memory[digest] = predictions
            return
        with suppress(OSError):  # a full disk costs the comparison, no more
            self._folder.mkdir(mode=0o700, exist_ok=True)
            written = self._folder / f"{digest}.{os.getpid()}.{threading.get_ident()}"
            with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                predictions.write_parquet(file, compression="uncompressed", statistics=False)
            written.replace(self._folder / f"{digest}.parquet")

    def _sweep(self, requested: set[str]) -> None:
        """Remove what is neither the best nor, perhaps, about to be."""
        if self._folder is None:
            if len(self._memory) > MOST_KEPT:
                committed = {digest for digest in self._memory if self._is_committed(digest)}
                for digest in committed - requested:
                    del self._memory[digest]
            return
        with suppress(OSError):
            there = [path for path in self._folder.iterdir() if path.stem not in requested]
            if len(there) <= MOST_KEPT:
                return
            for path in there:
                if self._is_committed(path.stem) or time() - path.stat().st_mtime > IN_FLIGHT:
                    path.unlink(missing_ok=True)

    def _is_committed(self, digest: str) -> bool:
        return self._ledger.find(identity_of(digest)) is not None


def identity_of(digest: str) -> str:
    """Return how a ledger names the submission with this digest."""
    return json.dumps({"submission": digest})


def _read(path: Path) -> pl.DataFrame | None:
    try:
        return pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError):
        return None
