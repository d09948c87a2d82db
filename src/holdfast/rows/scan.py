"""Files read batch by batch: Parquet, CSV and Arrow, with one wording for all that can be wrong with them."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from holdfast.errors import RowSourceError
from holdfast.rows.kinds import Kind, kind_of

FORMATS = {
    ".parquet": "Parquet",
    ".csv": "CSV",
    ".arrow": "Arrow",
    ".ipc": "Arrow",
    ".feather": "Arrow",
}
# Errors of the reader. Their text may quote values, so it is never passed on.
_UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, UnicodeDecodeError)
_LOOK_AHEAD = 10_000
_BATCH = 1 << 18


class UnparsedError(Exception):
    """A CSV value does not fit the type its column seemed to have: read again, looking at all rows."""


class Scan:
    """One reading of one file. `thorough` infers the types of a CSV file from all of its rows."""

    def __init__(self, path: Path, *, thorough: bool = False) -> None:
        self.path = path
        self.format = FORMATS[path.suffix.lower()]
        self._thorough = thorough
        try:
            self._frame = self._lazy()
            found = self._frame.collect_schema()
        except RowSourceError:
            raise
        except pl.exceptions.DuplicateError:
            raise RowSourceError(f"{path} has two columns of the same name; rename one of them.") from None
        except pl.exceptions.NoDataError:
            raise RowSourceError(f"{path} is empty; holdfast needs at least one row.") from None
        except _UNREADABLE:
            raise self._damaged() from None
        if not found:
            raise RowSourceError(f"{path} has no columns; holdfast needs at least one.")
        self.kinds: dict[str, Kind] = {name: kind_of(name, dtype) for name, dtype in found.items()}

    def rows(self) -> int:
        """Count the rows without looking at them."""
        try:
            return int(self._frame.select(pl.len()).collect().item())
        except _UNREADABLE:
            raise self._damaged() from None

    def batches(self) -> Iterator[pl.DataFrame]:
        """Yield the rows in order, in batches of bounded size; all of them, or it raises."""
        missing = self.rows()
        reading = iter(self._frame.collect_batches(maintain_order=True, chunk_size=_BATCH))
        while True:
            try:
                batch = next(reading, None)
            except pl.exceptions.PolarsError:
                if self.format == "CSV" and not self._thorough:
                    raise UnparsedError from None
                raise self._damaged() from None
            except _UNREADABLE:
                raise self._damaged() from None
            if batch is None:
                break
            missing -= batch.height
            yield from batch.iter_slices(_BATCH)
        if missing:  # on some damage the reader gives up without a word
            raise self._damaged()

    def _lazy(self) -> pl.LazyFrame:
        if self.format == "Parquet":
            return pl.scan_parquet(self.path, glob=False, hive_partitioning=False)
        if self.format == "Arrow":
            return pl.scan_ipc(self.path, glob=False, hive_partitioning=False)
        header = pl.read_csv(self.path, has_header=False, n_rows=1, infer_schema=False, glob=False)
        names = ["" if name is None else name for name in header.row(0)]
        self._refuse_header(names)
        self._thorough = self._thorough or not self._typed_by_head()
        return self._csv(None if self._thorough else _LOOK_AHEAD)

    def _csv(self, look_ahead: int | None) -> pl.LazyFrame:
        return pl.scan_csv(self.path, infer_schema_length=look_ahead, try_parse_dates=True, glob=False)

    def _typed_by_head(self) -> bool:
        """Whether the first rows give every column a type that they themselves fit."""
        try:
            head = self._csv(_LOOK_AHEAD).head(_LOOK_AHEAD).collect()
        except pl.exceptions.PolarsError:
            return False
        return all(series.null_count() < head.height for series in head)

    def _refuse_header(self, names: list[str]) -> None:
        if any("\0" in name or "\ufffd" in name for name in names):
            raise self._damaged()
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise RowSourceError(f"{self.path} has two columns named {twice[0]!r}; rename one of them.")

    def _damaged(self) -> RowSourceError:
        return RowSourceError(
            f"Cannot read {self.path} as {self.format}: it is cut off, damaged, or not {self.format} at all."
        )
