"""Parquet files with large row groups, read page by page.

Polars decodes whole row groups, several at a time, so that its memory grows with what the writer of a file put into
one: PyArrow puts a million rows there, which with long texts are gigabytes. PyArrow, where it is installed, reads a row
group page by page.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from holdfast.rows import batches
from holdfast.rows.scans.header import may_have_large_row_groups

LARGE = 16 << 20  # bytes of a row group, uncompressed
_MOST_AT_ONCE = 1 << 14  # rows


class RowGroups:
    """Files of the same columns, read page by page; the values are those that Polars would read.

    Parameters
    ----------
    files
        PyArrow's view of the files.
    schema
        The columns to read.
    """

    def __init__(self, files: Sequence[Any], schema: pl.Schema) -> None:
        self._files, self._schema = files, schema

    @classmethod
    def of(cls, paths: Sequence[Path], schema: pl.Schema) -> "RowGroups | None":
        """Return these files; None if Polars can or must read them.

        It can if their row groups are small, and must if PyArrow is not installed or sees columns of other types.
        """
        if not any(may_have_large_row_groups(path, LARGE) for path in paths):
            return None
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            return None
        try:
            files = [pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) for path in paths]
            large = any(_largest(file) > LARGE for file in files)
            if large and all(_agree(file, schema) for file in files):
                return cls(files, schema)
        except (pa.ArrowException, OSError, pl.exceptions.PolarsError):
            pass  # damaged, or not what Polars takes them for: Polars reports it
        return None

    def read(self, after: int) -> Iterator[pl.DataFrame]:
        """Yield the rows in order, without the first `after`; raises errors of PyArrow."""
        import pyarrow as pa

        for file in self._files:
            for number in range(file.num_row_groups):
                group = file.metadata.row_group(number)
                if after >= group.num_rows:
                    after -= group.num_rows
                    continue
                each = max(1, group.total_byte_size // max(1, group.num_rows))
                rows = max(1, min(_MOST_AT_ONCE, batches.BATCH_BYTES // 4 // each))
                for batch in file.iter_batches(rows, [number], self._schema.names()):
                    frame = pl.DataFrame([each.cast(self._schema[each.name]) for each in pl.DataFrame(batch)])
                    yield frame.slice(after)
                    after -= min(after, batch.num_rows)
                    del batch
                    pa.default_memory_pool().release_unused()


def _largest(file: Any) -> int:
    return max((file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups)), default=0)


def _agree(file: Any, schema: pl.Schema) -> bool:
    """Whether PyArrow sees these columns with the same types; decimals, which are stored as numbers, are cast."""
    if any("." in name for name in schema):  # by which PyArrow means a field of a record
        return False
    found = pl.DataFrame(file.schema_arrow.empty_table()).schema
    return all(
        name in found and (found[name] == dtype or (isinstance(found[name], pl.Decimal) and dtype == pl.Float64))
        for name, dtype in schema.items()
    )
