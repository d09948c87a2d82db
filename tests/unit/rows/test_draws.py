import tracemalloc
from typing import Any

import numpy as np
import pytest

from holdfast.errors import InvalidArgument
from holdfast.rows.draws import Fresh, Order, permuted_block, with_replacement, without_replacement

KEY = bytes(range(32))
HUGE = 10**12  # rows: one byte for each would not fit


def test_draws_from_a_trillion_rows_need_no_memory_for_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tracemalloc.start()
    try:
        drawn = [
            with_replacement(rng, HUGE, 12_000),
            without_replacement(rng, HUGE, 12_000),
            permuted_block(KEY, HUGE, HUGE - 12_000, 12_000),
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
    blocks = [permuted_block(KEY, HUGE, start, 1_000) for start in range(0, 10_000, 1_000)]
    assert np.unique(np.concatenate(blocks)).size == 10_000


def test_another_key_is_another_shuffle() -> None:
    assert not np.array_equal(permuted_block(KEY, 1_000, 0, 1_000), permuted_block(bytes(32), 1_000, 0, 1_000))


@pytest.mark.parametrize(("n", "count"), [(5, 6), (5, -1), (0, 0), (5, 1.0)])
def test_impossible_selections_are_refused(seed: int, n: int, count: int) -> None:
    with pytest.raises(InvalidArgument, match="must be"):
        without_replacement(np.random.default_rng(seed), n, count)


@pytest.mark.parametrize(("n", "start", "count"), [(5, 3, 3), (0, 0, 0), (5, -1, 2)])
def test_impossible_blocks_are_refused(n: int, start: int, count: int) -> None:
    with pytest.raises(InvalidArgument, match="must be"):
        permuted_block(KEY, n, start, count)


@pytest.mark.parametrize("key", [7, -1, "x" * 32, b"", b"fifteen bytes 15", None])
def test_a_key_that_could_be_guessed_is_refused_and_not_quoted(key: Any) -> None:
    key = key[:15] if isinstance(key, bytes) else key
    for make in (lambda: permuted_block(key, 5, 0, 1), lambda: Fresh(key, 0, 1), lambda: Order(key)):
        with pytest.raises(InvalidArgument, match=r"^key must be at least 16 secret bytes; got something else\.$"):
            make()


def test_every_bit_of_a_key_matters() -> None:
    shuffles = [permuted_block(KEY, 1_000, 0, 50)]
    for bit in range(256):
        flipped = (int.from_bytes(KEY) ^ (1 << bit)).to_bytes(32)
        shuffles.append(permuted_block(flipped, 1_000, 0, 50))
    assert len({shuffle.tobytes() for shuffle in shuffles}) == 257


def test_keys_are_not_shown() -> None:
    order = Order(KEY, 5)
    for shown in (repr(order), repr(Fresh(KEY, 0, 5)), repr(order.after(3))):
        assert "key" not in shown
    assert order.after(3) == Order(KEY, 8)
