"""Are rows drawn as promised?  Seeded; tolerance derived; mutants must be caught.

Each test counts how often each of c equally likely cells comes up in T independent trials. Pearson's statistic is
then chi-square with c-1 degrees of freedom up to terms of order c/T (every cell expects 100 or more), so a fair
draw exceeds its quantile with probability FALSE_ALARM. A mutant that shifts the law by a chi-square divergence
d = sum (p-q)^2/q raises the statistic by T d on average; each mutant below raises it to three times the threshold
or more.
"""

from collections.abc import Callable
from itertools import permutations

import numpy as np
import polars as pl
import pytest
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.stats import chi2

from holdfast.rows import draws
from holdfast.rows.draws import Indices, Selection, WithoutReplacement
from holdfast.rows.open import open_rows
from holdfast.rows.source import DividedRows
from plain_query import PlainQuery

FALSE_ALARM = 1e-6


def fair(counts: NDArray[np.int64]) -> bool:
    expected = counts.sum() / counts.size
    assert expected >= 100  # else the approximation is not good enough
    statistic = float(((counts - expected) ** 2).sum() / expected)
    return statistic <= float(chi2.isf(FALSE_ALARM, counts.size - 1))


# Draws with replacement, seen through a tally of a table whose row i says i.

ROWS = 200
TABLE = open_rows({"row": np.arange(ROWS)})
WHICH = PlainQuery(("row",), lambda rows: rows["row"].to_numpy(), outcomes=ROWS)


def tally_is_fair(seed: int) -> bool:
    rng = np.random.default_rng(seed)
    return fair(TABLE.tally(WHICH, draws=200_000, mass=0.0, rng=rng))


def test_every_row_is_drawn_equally_often(seed: int) -> None:
    assert tally_is_fair(seed)


def tilted(rng: Generator, n: int, count: int) -> NDArray[np.int64]:
    return (n * rng.random(count) ** 1.1).astype(np.int64)


def never_the_last(rng: Generator, n: int, count: int) -> NDArray[np.int64]:
    return rng.integers(0, n - 1, count)


def folded(rng: Generator, n: int, count: int) -> NDArray[np.int64]:
    return rng.integers(0, 256, count) % n  # the classic modulo bias


@pytest.mark.parametrize("mutant", [tilted, never_the_last, folded])
def test_a_biased_draw_is_caught(
    seed: int, mutant: Callable[[Generator, int, int], NDArray[np.int64]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draws, "with_replacement", mutant)
    assert not tally_is_fair(seed)


# Draws from a drawer: its own rows alone, each equally often, whether it has few of all rows or most of them.


def drawer_is_fair(kept: int, which: int, seed: int) -> bool:
    divided = DividedRows(TABLE, b"k" * 32, kept)
    drawer = (divided.asked, divided.kept)[which]
    counts = drawer.tally(WHICH, draws=1_000 * len(drawer), mass=0.0, rng=np.random.default_rng(seed))
    own = divided.rows(which)
    assert counts.sum() == counts[own].sum() == 1_000 * len(drawer)
    return fair(counts[own])


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("kept", [20, 100, 180])
def test_every_row_of_a_drawer_is_drawn_equally_often(kept: int, which: int, seed: int) -> None:
    assert drawer_is_fair(kept, which, seed)


def the_next_of_the_drawer(self: DividedRows, which: int, count: int, share: float, rng: Generator) -> Indices:
    """Not drawn again where a row is in the other drawer, but moved on: a row after such rows comes up more often."""
    own = self.rows(which)
    return own.take(np.searchsorted(own, rng.integers(0, ROWS, count)), mode="wrap")


def the_first_again(self: DividedRows, which: int, count: int, share: float, rng: Generator) -> Indices:
    """The first row of the drawer stands in for every row that is in the other one."""
    some, own = rng.integers(0, ROWS, count), self.rows(which)
    return np.where(np.isin(some, own), some, own[0])


@pytest.mark.parametrize("mutant", [the_next_of_the_drawer, the_first_again])
def test_rows_of_a_drawer_that_stand_in_for_others_are_caught(
    mutant: Callable[..., Indices], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DividedRows, "_found", mutant)
    assert not drawer_is_fair(20, 0, seed)


# Parts of one query are asked of draws of their own: the rows of two parts are any two rows.

FEW = open_rows({"row": np.arange(10)})
PAIRS = 20_000


def paired(rows_of_parts: NDArray[np.int64]) -> bool:
    first, second = rows_of_parts
    return fair(np.bincount(10 * first + second, minlength=100))


def parts_of_a_tally_are_fair(seed: int) -> bool:
    drawn = np.full((2, PAIRS), -1)

    def note(rows: pl.DataFrame, part: NDArray[np.int64], draw: NDArray[np.int64]) -> NDArray[np.bool_]:
        drawn[part, draw] = rows["row"].to_numpy()
        return part > 0

    query = PlainQuery(("row",), note, parts=2)
    FEW.tally(query, draws=PAIRS, mass=0.0, rng=np.random.default_rng(seed))
    return paired(drawn)


def parts_of_a_sample_are_fair(selection: Selection, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    query = PlainQuery(("row",), lambda rows, part, draw: rows["row"].to_numpy(), parts=2)
    drawn = [FEW.sample(query, selection, rng)[:, 0] for _ in range(PAIRS)]
    return paired(np.array(drawn).T)


def test_parts_of_a_tally_have_draws_of_their_own(seed: int) -> None:
    assert parts_of_a_tally_are_fair(seed)


def the_same_for_both_parts(rng: Generator, n: int, count: int) -> NDArray[np.int64]:
    return np.tile(rng.integers(0, n, PAIRS), 2)[:count]


def seldom_the_same(rng: Generator, n: int, count: int) -> NDArray[np.int64]:
    first = rng.integers(0, n, PAIRS)
    second = np.where(rng.random(PAIRS) < 0.1, first, rng.integers(0, n, PAIRS))
    return np.concatenate([first, second])[:count]


@pytest.mark.parametrize("mutant", [the_same_for_both_parts, seldom_the_same])
def test_parts_of_a_tally_that_share_draws_are_caught(
    seed: int, mutant: "Draw", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draws, "with_replacement", mutant)
    assert not parts_of_a_tally_are_fair(seed)


def test_parts_of_a_sample_are_selected_anew(seed: int) -> None:
    assert parts_of_a_sample_are_fair(WithoutReplacement(3), seed)


class SelectedOnce:
    """Every other selection repeats the one before."""

    def __init__(self) -> None:
        self.kept: Indices | None = None

    def indices(self, n: int, rng: Generator) -> Indices:
        before, self.kept = self.kept, None
        if before is not None:
            return before
        self.kept = draws.without_replacement(rng, n, 3)
        return self.kept


def test_parts_of_a_sample_that_share_a_selection_are_caught(seed: int) -> None:
    assert not parts_of_a_sample_are_fair(SelectedOnce(), seed)


# Draws without replacement: every ordered selection equally likely.

Draw = Callable[[Generator, int, int], NDArray[np.int64]]


def selections_are_fair(draw: Draw, n: int, count: int, trials: int, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    cells = {selection: cell for cell, selection in enumerate(permutations(range(n), count))}
    counts = np.zeros(len(cells), dtype=np.int64)
    for _ in range(trials):
        drawn = tuple(draw(rng, n, count).tolist())
        if drawn not in cells:
            return False  # a row came up twice
        counts[cells[drawn]] += 1
    return fair(counts)


SIZES = pytest.mark.parametrize(
    ("n", "count"), [(5, 3), (4, 4), (13, 2), (9, 2)], ids=["dense", "all", "sparse", "barely sparse"]
)


@SIZES
def test_selections_are_equally_likely(seed: int, n: int, count: int) -> None:
    assert selections_are_fair(draws.without_replacement, n, count, 20_000, seed)


def with_repeats(rng: Generator, n: int, count: int) -> NDArray[np.int64]:
    return rng.integers(0, n, count)


def in_order(rng: Generator, n: int, count: int) -> NDArray[np.int64]:
    return np.sort(draws.without_replacement(rng, n, count))


def a_stretch(rng: Generator, n: int, count: int) -> NDArray[np.int64]:
    return (int(rng.integers(0, n)) + np.arange(count)) % n


@SIZES
@pytest.mark.parametrize("mutant", [with_repeats, in_order, a_stretch])
def test_a_wrong_selection_is_caught(seed: int, n: int, count: int, mutant: Draw) -> None:
    assert not selections_are_fair(mutant, n, count, 20_000, seed)


def test_selections_of_a_large_table_are_spread_evenly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = draws.without_replacement(rng, 10**12, 200_000)
    assert np.unique(drawn).size == drawn.size
    assert fair(np.bincount(drawn // 10**10, minlength=100))
    assert fair(np.bincount(drawn[:20_000] // 10**10, minlength=100))  # the order is random too


# Keyed shuffles: over keys, the rows at two positions are any two rows.


def shuffles_are_fair(n: int, first: int, second: int) -> bool:
    cells = {pair: cell for cell, pair in enumerate(permutations(range(n), 2))}
    counts = np.zeros(len(cells), dtype=np.int64)
    for key in range(150 * len(cells)):
        shuffled = draws.permuted_block(key.to_bytes(32), n, 0, n)
        counts[cells[int(shuffled[first]), int(shuffled[second])]] += 1
    return fair(counts)


@pytest.mark.parametrize(("n", "first", "second"), [(3, 0, 1), (6, 0, 1), (6, 2, 5), (7, 0, 4)])
def test_keyed_shuffles_are_fair(n: int, first: int, second: int) -> None:
    assert shuffles_are_fair(n, first, second)


def test_too_few_rounds_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draws, "_ROUNDS", 2)
    assert not shuffles_are_fair(6, 0, 1)


def test_a_block_of_a_large_shuffle_is_spread_evenly() -> None:
    block = draws.permuted_block(bytes(32), 10**12 + 39, 0, 200_000)
    assert fair(np.bincount(block // (10**10 + 1), minlength=100))
