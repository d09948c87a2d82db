import tracemalloc

import numpy as np
import pytest

from holdfast.errors import InvalidArgument
from holdfast.rows.draws import permuted_block, with_replacement, without_replacement

HUGE = 10**12  # rows: one byte for each would not fit


def test_draws_from_a_trillion_rows_need_no_memory_for_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tracemalloc.start()
    try:
        drawn = [
            with_replacement(rng, HUGE, 12_000),
            without_replacement(rng, HUGE, 12_000),
            permuted_block(7, HUGE, HUGE - 12_000, 12_000),
        ]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20e6
    for indices in drawn:
        assert indices.dtype == np.int64
        assert indices.size == 12_000
        assert indices.min() >= 0
        assert HUGE // 2 < indices.max() < HUGE


def test_a_few_per_cent_of_many_rows_need_no_memory_for_the_rest(seed: int) -> None:
    tracemalloc.start()
    try:
        without_replacement(np.random.default_rng(seed), 10**8, 10**5)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20e6


def test_blocks_of_one_shuffle_share_no_row() -> None:
    blocks = [permuted_block(3, HUGE, start, 1_000) for start in range(0, 10_000, 1_000)]
    assert np.unique(np.concatenate(blocks)).size == 10_000


def test_another_key_is_another_shuffle() -> None:
    assert not np.array_equal(permuted_block(1, 1_000, 0, 1_000), permuted_block(2, 1_000, 0, 1_000))


@pytest.mark.parametrize(("n", "count"), [(5, 6), (5, -1), (0, 0), (5, 1.0)])
def test_impossible_selections_are_refused(seed: int, n: int, count: int) -> None:
    with pytest.raises(InvalidArgument, match="must be"):
        without_replacement(np.random.default_rng(seed), n, count)


@pytest.mark.parametrize(("key", "n", "start", "count"), [(1, 5, 3, 3), (-1, 5, 0, 1), (1, 0, 0, 0), (1, 5, -1, 2)])
def test_impossible_blocks_are_refused(key: int, n: int, start: int, count: int) -> None:
    with pytest.raises(InvalidArgument, match="must be"):
        permuted_block(key, n, start, count)
