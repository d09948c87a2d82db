"""Batches that fit into bounded memory: so many rows at most, and so many bytes of values.

Rows alone would bound nothing: a batch of 2^18 texts with 2,000 characters each has half a gigabyte, and what processes
a batch makes copies of it. The bytes of a text count as often as the text occurs: views of one text in many rows take
little memory in Polars, until texts are hashed or written one after another.
"""

from collections.abc import Generator, Iterable, Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

BATCH_BYTES = 16 << 20
_VIEW = 16  # bytes of a text in Polars, besides its characters


def cut(batch: pl.DataFrame, rows: int, size: int | None = None) -> Iterator[pl.DataFrame]:
    """Yield the rows of a batch, at most `rows` at once, and with at most `size` bytes unless a single row has more.

    >>> frame = pl.DataFrame({"text": ["a" * 10, "b" * 10, "c" * 100, "d"]})
    >>> [part.height for part in cut(frame, rows=1_000, size=60)]
    [2, 1, 1]
    """
    for start, stop in spans(np.cumsum(row_bytes(batch)), rows, size):
        yield batch[start:stop]


def spans(ends: NDArray[np.int64], rows: int, size: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield where to cut rows that end at these bytes: from which row, and up to which; limits as for `cut`.

    >>> list(spans(np.array([10, 20, 120, 121]), rows=1_000, size=25))
    [(0, 2), (2, 3), (3, 4)]
    """
    start, size = 0, BATCH_BYTES if size is None else size
    while start < ends.size:
        before = ends[start - 1] if start else 0
        stop = max(start + 1, min(start + rows, int(np.searchsorted(ends, before + size, side="right"))))
        yield start, stop
        start = stop


def gathered(batches: Iterable[pl.DataFrame], rows: int, size: int | None = None) -> Iterator[pl.DataFrame]:
    """Put batches together while they stay within the same limits as those of `cut`, and cut larger ones.

    Only what was put together is measured: small batches are taken to have rows as long as those before them.
    """
    waiting: list[pl.DataFrame] = []
    height, mean, size = 0, -1.0, BATCH_BYTES if size is None else size
    for batch in batches:
        if not batch.height:  # as where reading is resumed: it says nothing about the rows to come
            continue
        mean = mean_bytes(batch) if mean < 0 else mean
        if waiting and (height + batch.height > rows or (height + batch.height) * mean > size):
            mean = yield from _within(pl.concat(waiting), rows, size)
            waiting, height = [], 0
        waiting.append(batch)
        height += batch.height
    if waiting:
        yield from _within(pl.concat(waiting), rows, size)


def _within(batch: pl.DataFrame, rows: int, size: int) -> Generator[pl.DataFrame, None, float]:
    """Yield a batch, cut if it is beyond the limits; return how many bytes its rows have on average."""
    mean = mean_bytes(batch)
    if batch.height > rows or mean * batch.height > size:
        yield from cut(batch, rows, size)
    else:
        yield batch
    return mean


def row_bytes(batch: pl.DataFrame) -> NDArray[np.int64]:
    """Return how many bytes the values of each row have."""
    found = np.full(batch.height, sum(map(_width, batch.dtypes)), np.int64)
    for series in batch:
        if _is_text(series.dtype):
            found += series.alias("").cast(pl.String).str.len_bytes().fill_null(0).to_numpy()
    return found


def all_bytes(batch: pl.DataFrame) -> int:
    """Return how many bytes the values of all rows have."""
    texts = (series.alias("").cast(pl.String).str.len_bytes().sum() for series in batch if _is_text(series.dtype))
    return sum(map(_width, batch.dtypes)) * batch.height + sum(map(int, texts))


def mean_bytes(batch: pl.DataFrame) -> float:
    """Return how many bytes the values of a row have on average; 0 if there are no rows."""
    return all_bytes(batch) / max(1, batch.height)


def has_texts(types: Iterable[pl.DataType]) -> bool:
    """Whether rows of these types may have any length."""
    return any(map(_is_text, types))


def _is_text(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.String | pl.Categorical | pl.Enum)


def _width(dtype: pl.DataType) -> int:
    return _VIEW if _is_text(dtype) else 8
