"""Lazy frames and Arrow streams: read once, in order, never as a whole."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from holdfast.errors import InvalidArgument, RowSourceError
from holdfast.rows.scans.scan import BATCH, UNREADABLE, LazyScan, Origin, Scan


def scan_stream(data: object) -> Scan | None:
    """Return the scan of a lazy frame, or of anything that exports an Arrow stream; None for anything else."""
    if isinstance(data, pl.LazyFrame):
        return LazyFrameScan(data)
    if hasattr(data, "__arrow_c_stream__"):
        return StreamScan(data)
    if hasattr(data, "collect_schema") and hasattr(data, "collect"):
        raise InvalidArgument(
            "data must be a table, not a lazy frame of this library; collect() it first.", name="data"
        )
    return None


class LazyFrameScan(LazyScan):
    """A Polars lazy frame, run once; its number of rows is known only afterwards."""

    name, where, format = "data", "", "a lazy frame"

    def __init__(self, frame: pl.LazyFrame) -> None:
        self._given = frame

    def lazy(self) -> pl.LazyFrame:
        """Return the frame as it was given."""
        return self._given

    def origin(self) -> Origin:
        """Return the origin without a state, which is unknown."""
        return Origin(self.name, "")

    def rows(self) -> int | None:
        """Unknown: counting would run the frame once more."""
        return None

    def unfit(self, problem: BaseException) -> RowSourceError:
        """Return an error with only the type of the problem, since its text may quote values."""
        return RowSourceError(f"The lazy frame failed while it ran: {type(problem).__name__}.")


class StreamScan(Scan):
    """Anything with `__arrow_c_stream__`: a PyArrow reader, a DuckDB relation, a pandas or ibis table, ..."""

    name, where = "data", ""

    def __init__(self, data: Any) -> None:
        self._data = data

    def open(self) -> None:
        """Begin the stream and read its schema."""
        try:
            import pyarrow as pa
        except ImportError:
            raise RowSourceError(
                "An Arrow stream needs pyarrow to be read batch by batch. Install it with: pip install pyarrow."
            ) from None
        self._reader = pa.RecordBatchReader.from_stream(self._data)
        required = [field.name for field in self._reader.schema if not field.nullable]
        empty = pl.DataFrame(self._reader.schema.empty_table())
        self.take_schema(empty.schema, required)

    def origin(self) -> Origin:
        """Return the origin without a state, which is unknown."""
        return Origin(self.name, "")

    def rows(self) -> int | None:
        """Unknown."""
        return None

    def batches(self, after: int = 0) -> Iterator[pl.DataFrame]:
        """Read the stream. Its errors may quote values, so only their type is passed on."""
        while True:
            try:
                batch = next(self._reader, None)
                frame = None if batch is None else pl.DataFrame(batch)
            except (*UNREADABLE, ValueError, RuntimeError) as problem:
                raise RowSourceError(f"The stream failed while it was read: {type(problem).__name__}.") from None
            if frame is None:
                return
            yield from frame.iter_slices(BATCH)
