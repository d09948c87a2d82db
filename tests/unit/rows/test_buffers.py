"""Pooled memory: used again and again, but never while something still refers to it."""

import threading

import numpy as np
import polars as pl
import pytest

from holdfast.rows import local
from holdfast.rows.buffers import BufferPool, SharedPool
from holdfast.rows.open import open_rows
from plain_query import PlainQuery

DTYPES = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float32, np.float64]


def address(values: np.ndarray) -> int:
    return values.__array_interface__["data"][0]


def test_memory_is_used_again() -> None:
    pool = BufferPool()
    places = set()
    for count in (100, 50, 100):
        pool.reset()
        places.add(address(pool(np.dtype(np.float64), count)))
    assert len(places) == 1


def test_two_buffers_of_one_evaluation_are_apart() -> None:
    pool = BufferPool()
    first, second = (pool(np.dtype(np.float64), 10) for _ in range(2))
    assert not np.shares_memory(first, second)


@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_that_a_series_refers_to_is_not_used_again(dtype: type[np.generic]) -> None:
    pool = BufferPool()
    memory = pool(np.dtype(dtype), 10)
    memory[:] = 1
    series = pl.Series(memory)
    part = series.slice(3, 4)
    del memory, series
    pool.reset()
    pool(np.dtype(dtype), 10)[:] = 2
    assert part.to_list() == [1] * 4


def test_threads_have_pools_of_their_own() -> None:
    pool = BufferPool()
    places = []
    barrier = threading.Barrier(2)

    def allocate() -> None:
        memory = pool(np.dtype(np.float64), 10)
        places.append(address(memory))
        barrier.wait()

    threads = [threading.Thread(target=allocate) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(places)) == 2


def test_shared_memory_is_used_again_once_nothing_refers_to_it() -> None:
    pool, kind = SharedPool(), np.dtype(np.int64)
    first, second = pool(kind, 10), pool(kind, 10)
    assert not np.shares_memory(first, second)
    place, bytes_of_it = address(first), first[2:5].data
    del first
    assert address(pool(kind, 10)) != place  # the bytes still refer to it
    del bytes_of_it
    assert address(pool(kind, 8)) == place
    assert address(pool(np.dtype(np.float64), 8)) != place


def test_what_another_thread_holds_of_shared_memory_is_not_used_again() -> None:
    pool, wrong = SharedPool(), []

    def work(number: int) -> None:
        for count in range(1, 500):
            mine = pool(np.dtype(np.int64), count)
            mine[:] = number
            if not (mine == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(pool._kept[np.dtype(np.int64)]) <= 4


def test_blocks_of_one_tally_share_their_memory(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    places = []

    def look(rows: pl.DataFrame) -> np.ndarray:
        places.append(address(rows["x"].to_numpy()))
        return np.ones(rows.height, dtype=np.bool_)

    monkeypatch.setattr(local, "_BLOCK", 1_000)
    rows = open_rows({"x": np.arange(100.0)})
    rows.tally(PlainQuery(("x",), look), draws=5_000, mass=0.0, rng=np.random.default_rng(seed))
    assert len(places) == 5
    assert len(set(places)) == 1


def test_a_question_within_a_question(seed: int) -> None:
    """A callable that asks another table while it is evaluated disturbs neither."""
    rng = np.random.default_rng(seed)
    inner = open_rows({"x": np.full(10, 5.0)})
    outer = open_rows({"x": np.full(10, 7.0)})
    inside = PlainQuery(("x",), lambda rows: (rows["x"] == 5.0).to_numpy())

    def ask(rows: pl.DataFrame) -> np.ndarray:
        assert inner.tally(inside, draws=rows.height, mass=0.0, rng=rng).tolist() == [0, rows.height]
        return (rows["x"] == 7.0).to_numpy()

    assert outer.tally(PlainQuery(("x",), ask), draws=100, mass=0.0, rng=rng).tolist() == [0, 100]
