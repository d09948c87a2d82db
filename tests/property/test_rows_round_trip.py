"""Whatever a table holds, its rows come back as they were, and its fingerprint is a matter of content alone."""

import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from examples import examples
from holdfast.rows import local
from holdfast.rows.disk import column_writer, ingest
from holdfast.rows.draws import permuted_block, without_replacement
from holdfast.rows.open import open_rows
from holdfast.rows.scans import scan
from plain_query import rows_of

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.rows.columns.LocalTimes")

DTYPES = [
    pl.Boolean(),
    *(t() for t in (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)),
    pl.Float32(),
    pl.Float64(),
    pl.String(),
    pl.Date(),
    pl.Datetime("ms"),
    pl.Datetime("us", "Asia/Kathmandu"),
    pl.Datetime("ns", "UTC"),
]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def values(dtype: pl.DataType) -> st.SearchStrategy[object]:
    if dtype == pl.Boolean:
        return st.booleans()
    if dtype == pl.String:
        return TEXT
    if dtype.is_float():
        return st.floats(width=32 if dtype == pl.Float32 else 64)
    if dtype.is_integer():
        bits = int(str(dtype).lstrip("UInt"))
        low = 0 if dtype.is_unsigned_integer() else -(2 ** (bits - 1))
        return st.integers(low, low + 2**bits - 1)
    return st.integers(-(2**31), 2**31 - 1) if dtype == pl.Date else st.integers(-(2**62), 2**62)


@st.composite
def tables(draw: st.DrawFn) -> pl.DataFrame:
    rows = draw(st.integers(1, 30))
    names = draw(st.lists(TEXT, min_size=1, max_size=5, unique=True))
    columns = {}
    for name in names:
        dtype = draw(st.sampled_from(DTYPES))
        value = st.none() | values(dtype) if draw(st.booleans()) else values(dtype)
        content = draw(st.lists(value, min_size=rows, max_size=rows))
        if dtype.is_temporal():  # beyond what Python's dates can say
            columns[name] = pl.Series(content, dtype=pl.Int32 if dtype == pl.Date else pl.Int64).cast(dtype)
        else:
            columns[name] = pl.Series(content, dtype=dtype)
    return pl.DataFrame(columns)


@settings(max_examples=examples(60), deadline=None)
@given(table=tables(), batch=st.integers(1, 7), distinct=st.integers(0, 8), data=st.data())
def test_rows_come_back_as_they_were(table: pl.DataFrame, batch: int, distinct: int, data: st.DataObject) -> None:
    indices = data.draw(st.lists(st.integers(0, table.height - 1), max_size=20))
    memory = open_rows(table)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as scratch:
        # small limits, so that thirty rows see every seam: batches, pieces, an overflowing dictionary
        patch.setattr(scan, "BATCH", batch)
        patch.setattr(column_writer, "_PIECE", batch + 1)
        patch.setattr(local, "_PIECE", batch + 2)
        patch.setattr(local, "_BLOCK", batch + 3)
        patch.setattr(ingest, "_MOST_DISTINCT", distinct)
        path = Path(scratch) / "table.parquet"
        table.write_parquet(path)
        folder = open_rows(path)
        for source in (memory, folder, open_rows(Path(scratch) / "table.parquet.holdfast")):
            assert_frame_equal(rows_of(source, indices), table[indices], check_exact=True)
            assert_frame_equal(rows_of(source), table, check_exact=True)
        assert folder.fingerprint == memory.fingerprint
        assert folder.schema.columns == memory.schema.columns
        folder.verify()


@settings(max_examples=examples(60), deadline=None)
@given(table=tables(), data=st.data())
def test_any_change_of_content_changes_the_fingerprint(table: pl.DataFrame, data: st.DataObject) -> None:
    before = open_rows(table).fingerprint
    name = data.draw(st.sampled_from(table.columns))
    other = data.draw(TEXT.filter(lambda text: text not in table.columns))
    row = data.draw(st.integers(0, table.height - 1))
    column = table[name]
    changed = [
        table.rename({name: other}),
        pl.concat([table, table[-1:]]),
        table.with_columns(pl.lit(1).alias(other)),
    ]
    if not column.is_null()[row]:
        changed.append(table.with_columns(column.clone().scatter(row, None).alias(name)))
    if not column.reverse().equals(column):
        changed.append(table.with_columns(column.reverse().alias(name)))
    for frame in changed:
        assert open_rows(frame).fingerprint != before


@given(key=st.binary(min_size=16, max_size=40), n=st.integers(1, 3_000), data=st.data())
def test_a_keyed_shuffle_is_a_permutation_read_in_any_blocks(key: bytes, n: int, data: st.DataObject) -> None:
    whole = permuted_block(key, n, 0, n)
    assert np.array_equal(np.sort(whole), np.arange(n))
    start = data.draw(st.integers(0, n))
    count = data.draw(st.integers(0, n - start))
    assert np.array_equal(permuted_block(key, n, start, count), whole[start : start + count])


@given(n=st.integers(1, 10**15), data=st.data(), seed=st.integers(0, 2**32))
def test_selections_are_distinct_rows(n: int, data: st.DataObject, seed: int) -> None:
    count = data.draw(st.integers(0, min(n, 2_000)))
    drawn = without_replacement(np.random.default_rng(seed), n, count)
    assert drawn.size == count == np.unique(drawn).size
    assert drawn.dtype == np.int64
    assert not count or (drawn.min() >= 0 and drawn.max() < n)
