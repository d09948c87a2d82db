"""Numbers that queries need of every row, kept side by side: one gather instead of one for every column.

A pack is made when so many rows have been drawn for it that making it costs no more than has been spent without it.
Making one reads all rows but releases nothing, so it is charged nowhere.
"""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from holdfast.queries.query import Packed, Packing
from holdfast.rows.draws import Indices

MOST_BYTES = 4 << 30  # of all packs of a dataset; beyond it rows are gathered column by column
EARLY = 4  # a pack is made once 1/EARLY as many rows have been drawn for it as there are: a line costs as much as that
PIECE = 1 << 15  # rows computed at once when a pack is made: columns are written into lines, which must stay in cache

Compute = Callable[[Packing, Indices | slice], Packed]


class Packs:
    """The packs of one dataset of so many rows; `compute` makes lines from the rows themselves."""

    def __init__(self, rows: int, compute: Compute) -> None:
        self._rows, self._compute = rows, compute
        self._kept: dict[str, Packed] = {}
        self._drawn: dict[str, int] = {}
        self._making = threading.Lock()

    def lines(self, packing: Packing, rows: Indices, out: Callable[[int], Packed]) -> Packed:
        """Return the lines of these rows.

        Parameters
        ----------
        packing
            Which numbers.
        rows
            Which rows.
        out
            Gives memory for so many numbers.
        """
        kept = self._find(packing, rows.size)
        if kept is None:
            return self._compute(packing, rows)
        lines = out(rows.size * packing.width).reshape(rows.size, packing.width)
        return np.take(kept, rows, axis=0, out=lines, mode="clip")  # "raise" would copy; draws are inside

    def _find(self, packing: Packing, drawn: int) -> Packed | None:
        name = packing.identity
        if name is None or name in self._kept:
            return None if name is None else self._kept[name]
        self._drawn[name] = self._drawn.get(name, 0) + drawn
        if self._drawn[name] * EARLY < self._rows or self._bytes(packing) > MOST_BYTES:
            return None
        if not self._making.acquire(blocking=False):
            return None  # another thread makes one; this one goes on meanwhile
        try:
            if name not in self._kept:
                self._make_room(self._bytes(packing))
                self._kept[name] = self._made(packing)
            return self._kept[name]
        finally:
            self._making.release()

    def _made(self, packing: Packing) -> Packed:
        made: Packed = np.empty((self._rows, packing.width), dtype=np.float32)
        for start in range(0, self._rows, PIECE):
            part = slice(start, min(start + PIECE, self._rows))
            made[part] = self._compute(packing, part)
        return made

    def _make_room(self, needed: int) -> None:
        """Drop the oldest packs; whoever is using one keeps it."""
        while self._kept and needed + sum(one.nbytes for one in self._kept.values()) > MOST_BYTES:
            oldest = next(iter(self._kept))
            del self._kept[oldest], self._drawn[oldest]

    def _bytes(self, packing: Packing) -> int:
        return self._rows * packing.width * np.dtype(np.float32).itemsize

    def __getstate__(self) -> dict[str, Any]:
        """Leave the packs behind: another process makes its own."""
        return {"_rows": self._rows, "_compute": self._compute, "_kept": {}, "_drawn": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._making = threading.Lock()
