"""The table the cases ask about: invented flights, built once in a scratch folder, streamed."""

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from numpy.typing import NDArray

CARRIERS = ("AA", "AS", "B6", "DL", "F9", "NK", "UA", "WN")
PIECE = 2_000_000


def piece(rows: int, rng: np.random.Generator) -> dict[str, NDArray[np.float64] | NDArray[np.int32]]:
    """Return some rows: a delay with a long tail, a distance, and a carrier's number."""
    return {
        "delay": rng.standard_exponential(rows) * 20 - 10,
        "distance": rng.integers(80, 5_000, rows, dtype=np.int32),
        "carrier": np.minimum(rng.integers(0, 10, rows, dtype=np.int32), 7),
    }


def parquet(scratch: Path, rows: int) -> Path:
    """Return the Parquet file with this many rows, written if it is not there yet."""
    path = scratch / f"flights-{rows}.parquet"
    if not path.exists():
        rng = np.random.default_rng(rows)
        names = pa.array(CARRIERS)
        schema = pa.schema(
            [("delay", pa.float64()), ("distance", pa.int32()), ("carrier", pa.dictionary(pa.int32(), pa.string()))]
        )
        partial = path.with_suffix(".part")
        with pq.ParquetWriter(partial, schema, compression="snappy", use_dictionary=["carrier"]) as writer:
            for start in range(0, rows, PIECE):
                columns = piece(min(PIECE, rows - start), rng)
                carrier = pa.DictionaryArray.from_arrays(pa.array(columns["carrier"]), names)
                arrays = [pa.array(columns["delay"]), pa.array(columns["distance"]), carrier]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
        partial.rename(path)
    return path


def narrow(scratch: Path, rows: int) -> Path:
    """Return a Parquet file of whole delays alone, a byte each: what fits on a disk at 10^9 rows."""
    path = scratch / f"narrow-{rows}.parquet"
    if not path.exists():
        rng = np.random.default_rng(rows)
        schema = pa.schema([("delay", pa.uint8())])
        partial = path.with_suffix(".part")
        with pq.ParquetWriter(partial, schema, compression="none", use_dictionary=False) as writer:
            for start in range(0, rows, 4 * PIECE):
                delays = rng.integers(0, 60, min(4 * PIECE, rows - start), dtype=np.uint8)
                writer.write_table(pa.Table.from_arrays([pa.array(delays)], schema=schema))
        partial.rename(path)
    return path


def frame(scratch: Path, rows: int) -> pl.DataFrame:
    """Return the same rows in memory, the carrier as a category: the kindest form for an exact scan."""
    read = pl.read_parquet(parquet(scratch, rows)).rechunk()
    return read.with_columns(pl.col("carrier").cast(pl.Enum(CARRIERS)))
