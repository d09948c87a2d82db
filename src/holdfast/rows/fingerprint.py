"""One hash for the content of a table, the same wherever the table is stored and however it is cut into batches.

column     hash of the values end to end (missing ones as zeros; texts as UTF-8, then their lengths), block by block,
           and SHA-256 of the positions of the missing values
table      SHA-256 of the number of rows and each column's name, type and digests, whatever the order of columns
"""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.rows.blocks import BlockHashes, FileEntry
from holdfast.rows.columns import Storage


class ColumnDigest:
    """Hashes one column, batch after batch."""

    def __init__(self, name: str, storage: Storage) -> None:
        self.name, self.storage = name, storage
        self.rows = 0
        self.values, self._lengths, self._missing = BlockHashes(), hashlib.sha256(), hashlib.sha256()

    def numbers(self, values: NDArray[np.generic], valid: NDArray[np.bool_] | None) -> None:
        """Add fixed-width values; those not valid must be zero."""
        self.values.update(np.ascontiguousarray(values).data)
        self.mark(valid, values.size)

    def texts(self, series: pl.Series, valid: NDArray[np.bool_] | None) -> None:
        """Add texts."""
        filled = series.fill_null("")
        self.values.update(filled.str.join("").item().encode())
        self._lengths.update(np.ascontiguousarray(filled.str.len_bytes().to_numpy()).data)
        self.mark(valid, series.len())

    def add(self, series: pl.Series) -> None:
        """Add a batch of any type."""
        series = series.alias("")  # see `physical`
        if self.storage.numpy is None:
            self.texts(series, validity(series))
        else:
            self.numbers(*physical(series, self.storage))

    def mark(self, valid: NDArray[np.bool_] | None, count: int) -> None:
        """Add which of the next `count` values are missing; the caller hashes the values themselves."""
        if valid is not None:
            self._missing.update((np.flatnonzero(~valid) + self.rows).astype(np.int64).tobytes())
        self.rows += count

    def line(self) -> str:
        """Return this column's line in the table's hash."""
        digests = " ".join(each.hexdigest() for each in (self.values, self._lengths, self._missing))
        return f"{len(self.name.encode())} {self.name} {self.storage.label} {digests}"


def fingerprint_of(columns: Sequence[ColumnDigest]) -> str:
    """Return the table's fingerprint."""
    lines = [f"holdfast table 2, {columns[0].rows} rows", *sorted(column.line() for column in columns)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def fingerprint_of_files(files: Mapping[str, FileEntry]) -> str:
    """Return a hash of files, computed from the hashes of their blocks."""
    lines = [f"{name} {entry.size} {' '.join(entry.blocks)}" for name, entry in sorted(files.items())]
    return hashlib.sha256("\n".join(["holdfast cards 2", *lines]).encode()).hexdigest()


def validity(series: pl.Series) -> NDArray[np.bool_] | None:
    """Return which values are present; None if all are."""
    return series.alias("").is_not_null().to_numpy() if series.null_count() else None


def physical(series: pl.Series, storage: Storage) -> tuple[NDArray[np.generic], NDArray[np.bool_] | None]:
    """Return a series as stored numbers (missing ones as zero), and which are valid (None if all are)."""
    series = series.alias("")  # Polars reads a name such as "^$" as a pattern
    valid = validity(series)
    if storage.recast:
        series = series.to_physical()
    elif series.dtype != storage.polars:
        series = series.cast(storage.polars)
    if valid is not None:
        series = series.fill_null(False if series.dtype == pl.Boolean else 0)
    return series.to_numpy(), valid
