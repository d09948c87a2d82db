"""Decks: the law of cards in order of place, exactly on tiny tables; and dealt ones, against every sequence.

The chi-square statistic of D decks over the 81 sequences of four cards from three rows has 80 degrees of freedom; the
threshold is exceeded with probability FALSE_ALARM by a deck that is right. Every wrong way to deal named in the proof
is dealt here, too, and caught.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import comb, factorial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.stats import chi2, norm

import sequences
from holdfast.rows.decks import cards as cards_
from holdfast.rows.decks import sorting, supply
from holdfast.rows.decks.cards import PLACE, Chance, Dealer
from holdfast.rows.decks.deal import deal
from holdfast.rows.decks.deck import Deck
from holdfast.rows.decks.supply import Division
from holdfast.rows.engines import ENGINES, Engine, Task
from holdfast.rows.memory import memory_rows
from sequences import unlikeliness
from toy_scan import Parts

FALSE_ALARM = 1e-6
CARDS, DECKS = 4, 2_430
TABLE = pl.DataFrame({"row": [0, 1, 2]})
STORAGES = memory_rows(TABLE)._storages
SECRET = b"a secret for tests" + bytes(14)


# -- the theorem, by enumeration ------------------------------------------------------------------------------------


def law(count: int, places: int, chunks: list[list[int]], ties: str) -> dict[tuple[int, ...], Fraction]:
    """The exact law of rows in order of place, given the number of cards; ties are broken by chance or by chunk."""
    n = sum(map(len, chunks))
    found: dict[tuple[int, ...], Fraction] = Counter()  # type: ignore[assignment]
    for sizes in itertools.product(range(count + 1), repeat=len(chunks)):
        if sum(sizes) != count:
            continue
        share = Fraction(factorial(count))  # Poisson numbers given their sum
        for size, chunk in zip(sizes, chunks, strict=True):
            share *= Fraction(len(chunk), n) ** size / factorial(size)
        cells = [chunk for size, chunk in zip(sizes, chunks, strict=True) for _ in range(size)]
        for rows in itertools.product(*cells):
            each = share
            for chunk in cells:
                each /= len(chunk)
            for where in itertools.product(range(places), repeat=count):
                orders = list(itertools.permutations(range(count))) if ties == "chance" else [tuple(range(count))]
                for order in orders:
                    key = sorted(range(count), key=lambda i: (where[i], order[i]))
                    found[tuple(rows[i] for i in key)] += each / places**count / len(orders)
    return found


@pytest.mark.parametrize("chunks", [[[0, 1, 2]], [[0, 1], [2]], [[0], [1], [2]]])
def test_cards_in_order_of_place_are_independent_and_uniform(chunks: list[list[int]]) -> None:
    found = law(3, 2, chunks, "chance")
    assert len(found) == 27
    assert set(found.values()) == {Fraction(1, 27)}


def test_ties_broken_by_chunk_are_not() -> None:
    assert len(set(law(3, 2, [[0, 1], [2]], "chunk").values())) > 1


# -- dealt cards ------------------------------------------------------------------------------------------------------

Deal = Callable[[int], list[int]]


def dealt(deck: str, partition: str, rows: pl.DataFrame) -> pl.DataFrame:
    return pl.concat(Dealer(Chance.of(SECRET, deck, partition, 5.0), STORAGES).deal([rows]))


def ordered(*partitions: pl.DataFrame) -> list[int]:
    return pl.concat(partitions).sort(PLACE)["row"].to_list()


def one_partition(number: int) -> list[int]:
    return ordered(dealt(f"deck {number}", "0", TABLE))


def in_ranges(number: int) -> list[int]:
    """Three ranges, of a chunk of one row and a chunk of two, each put in random order."""
    chance, found = Chance.of(SECRET, f"deck {number}", "0", 5.0), []
    drawn = [(first, chance.ranged(i, height, 3)) for i, (first, height) in enumerate(((0, 1), (1, 2)))]
    for k in range(3):
        cut = [(first, rows, counts[:k].sum(), counts[: k + 1].sum()) for first, (rows, counts) in drawn]
        cards = np.concatenate([first + rows[begin:end] for first, rows, begin, end in cut])
        found += cards[
            sorting._chance(SECRET + bytes([number % 251, number // 251]), k).permutation(cards.size)
        ].tolist()
    return found


def two_partitions(number: int) -> list[int]:
    return ordered(dealt(f"deck {number}", "0", TABLE[:2]), dealt(f"deck {number}", "1", TABLE[2:]))


def one_key_for_two_partitions(number: int) -> list[int]:
    deck = f"deck {number}"
    return ordered(dealt(deck, "0", TABLE[:1]), dealt(deck, "0", TABLE[1:2]), dealt(deck, "0", TABLE[2:]))


def unkeyed_retry(number: int) -> list[int]:
    """Each attempt at the one partition tosses anew; of each, half of the cards are kept, those that look new."""
    first, again = (dealt(f"deck {number}, attempt {i}", "0", TABLE) for i in (1, 2))
    kept = first.filter(pl.col("row") == 0)
    return ordered(kept, again.filter(pl.col(PLACE) > cards_.PLACES // 4, pl.col("row") != 0))


def permuted_table(number: int) -> list[int]:
    rng = np.random.default_rng(number)
    return [int(row) for _ in range(2) for row in rng.permutation(3)]


def used_twice(number: int) -> list[int]:
    first, second, *rest = one_partition(number)
    return [first, second, second, *rest]


def skipped_by_content(number: int) -> list[int]:
    first, *rest = one_partition(number)
    while rest[0] == first:
        del rest[0]
    return [first, *rest]


def statistic(deal: Deal) -> float:
    found = Counter(tuple(rows[:CARDS]) for rows in map(deal, range(DECKS)) if len(rows) >= CARDS)
    expected = found.total() / 3**CARDS
    return sum((found[each] - expected) ** 2 / expected for each in itertools.product(range(3), repeat=CARDS))


LIMIT = float(chi2.isf(FALSE_ALARM, 3**CARDS - 1))


@pytest.mark.parametrize("right", [one_partition, in_ranges, two_partitions])
def test_every_sequence_of_cards_is_as_likely(right: Deal) -> None:
    assert statistic(right) < LIMIT


def test_a_retry_deals_the_same_cards() -> None:
    """So it does not matter which attempt at a partition counts."""
    for number in range(50):
        assert dealt(f"deck {number}", "1", TABLE).equals(dealt(f"deck {number}", "1", TABLE))


@pytest.mark.parametrize(
    "wrong", [one_key_for_two_partitions, unkeyed_retry, permuted_table, used_twice, skipped_by_content]
)
def test_wrong_ways_to_deal_are_caught(wrong: Deal) -> None:
    assert statistic(wrong) > LIMIT


# -- a deck, from its file to its columns -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[np.ndarray]:
    folder = tmp_path_factory.mktemp("deck")
    rows = 1_000
    pl.DataFrame({"row": np.arange(rows)}).write_parquet(folder / "t.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cards_, "CHUNK", 64)
        deck = deal(folder / "t.parquet", folder / "t.deck", cards=200_000)
    assert isinstance(deck, Deck)
    yield deck._deals[0].frame(np.arange(200_000))["row"].to_numpy()
    deck.close()


Z = float(norm.isf(FALSE_ALARM / 2))


def test_every_row_is_drawn_as_often(drawn: np.ndarray) -> None:
    counts = np.bincount(drawn, minlength=1_000)
    assert np.sum((counts - 200) ** 2 / 200) < chi2.isf(FALSE_ALARM, 999)


def test_neighbors_do_not_depend_on_each_other(drawn: np.ndarray) -> None:
    scaled = (drawn - 499.5) / np.std(np.arange(1_000))
    for lag in (1, 2, 17):
        assert abs(np.mean(scaled[lag:] * scaled[:-lag])) < Z / np.sqrt(drawn.size - lag)
    repeats = np.mean(drawn[1:] == drawn[:-1])
    assert abs(repeats - 0.001) < Z * np.sqrt(0.001 / drawn.size)


def test_position_says_nothing_of_the_row(drawn: np.ndarray) -> None:
    scaled = (drawn - 499.5) / np.std(np.arange(1_000))
    place = np.linspace(-np.sqrt(3), np.sqrt(3), drawn.size)
    assert abs(np.mean(scaled * place)) < Z / np.sqrt(drawn.size)


def test_as_many_distinct_rows_as_draws_have(drawn: np.ndarray) -> None:
    """Of 700 draws from 1,000 rows: n(1-(1-1/n)^m) distinct, with a variance below n e^-a (1-(1+a)e^-a), a = m/n."""
    blocks = drawn[: 285 * 700].reshape(285, 700)
    distinct = [np.unique(block).size for block in blocks]
    a = 0.7
    mean, variance = 1_000 * (1 - 0.999**700), 1_000 * np.exp(-a) * (1 - (1 + a) * np.exp(-a))
    assert abs(np.mean(distinct) - mean) < Z * np.sqrt(variance / 285)


# -- one long deck of three rows, through files, ranges and runs ------------------------------------------------------


def tried_twice(scan: Parts, task: Task, out: str) -> Iterator[pl.DataFrame]:
    """Of each partition, the first attempt is lost halfway: what it wrote is kept, the rest is from the second."""
    for number, part in reversed([*enumerate(scan.parts)]):
        first, again = list(task.run(str(number), [part])), list(task.run(str(number), [part]))
        yield from [*first[:1], *again[1:]]


def long_deck(folder: Path, patch: pytest.MonkeyPatch, engine: str | None) -> np.ndarray:
    patch.setattr(sorting, "MOST", 1 << 14)  # several ranges
    patch.setattr(cards_, "_MOST_AT_ONCE", 1 << 17)  # chunks of one row
    TABLE.write_parquet(folder / "t.parquet")
    source: object = folder / "t.parquet" if engine is None else [TABLE[:1], TABLE[1:]]
    deck = deal(source, folder / "t.deck", cards=200_000, engine=engine)  # type: ignore[arg-type]
    assert isinstance(deck, Deck)
    deck.close()
    return np.load(folder / "t.deck" / "0001" / "00000.values.npy")


@pytest.mark.parametrize("engine", [None, "twice"])
def test_every_sequence_is_as_likely_in_a_deck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str | None
) -> None:
    monkeypatch.setitem(ENGINES, "twice", Engine(Parts, tried_twice))
    assert unlikeliness(long_deck(tmp_path, monkeypatch, engine)) < sequences.LIMIT


def test_ranges_that_are_not_sorted_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unchanged:
        permutation = staticmethod(np.arange)

    monkeypatch.setattr(sorting, "_chance", lambda secret, number: Unchanged)
    assert unlikeliness(long_deck(tmp_path, monkeypatch, None)) > sequences.LIMIT


@pytest.mark.parametrize(("unit", "right"), [("unit", True), (None, False)])
def test_every_sequence_of_units_is_as_likely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: str | None, right: bool
) -> None:
    """Units of 1, 2 and 3 rows; dealt by row, those with more rows come up more often, and that is caught."""
    monkeypatch.setattr(sorting, "MOST", 1 << 14)
    monkeypatch.setattr(cards_, "_MOST_AT_ONCE", 1 << 17)  # chunks of one unit
    pl.DataFrame({"unit": [2, 0, 1, 2, 1, 2], "x": range(6)}).write_parquet(tmp_path / "t.parquet")
    deck = deal(tmp_path / "t.parquet", tmp_path / "t.deck", cards=200_000, unit=unit)
    assert isinstance(deck, Deck)
    deck.close()
    drawn = np.load(tmp_path / "t.deck" / "0001" / "00000.values.npy")
    if unit is not None:
        starts = np.load(tmp_path / "t.deck" / "0001" / "00002.units.npy")
        assert np.array_equal(np.diff(starts), drawn[starts[:-1]] + 1)  # all rows of its unit, and no others
        drawn = drawn[starts[:-1]]
    assert (unlikeliness(drawn) < sequences.LIMIT) == right


@pytest.mark.slow
def test_ten_million_cards(tmp_path: Path) -> None:
    """As many cards as rows, in ten ranges of places: rows by position, neighbors, and how many rows come up at all."""
    n = 10_000_000
    pl.DataFrame({"row": np.arange(n, dtype=np.int32)}).write_parquet(tmp_path / "t.parquet")
    deck = deal(tmp_path / "t.parquet", tmp_path / "t.deck", cards=n)
    assert isinstance(deck, Deck)
    deck.close()
    drawn = np.load(tmp_path / "t.deck" / "0001" / "00000.values.npy")
    block = n // 100
    cells = np.bincount(np.arange(n) // block * 100 + drawn // block, minlength=10_000)
    expected = block / 100  # in every hundredth of the cards, every hundredth of the rows
    assert np.sum((cells - expected) ** 2 / expected) < chi2.isf(FALSE_ALARM, 100 * 99)
    scaled = (drawn - (n - 1) / 2) / np.sqrt((float(n) ** 2 - 1) / 12)
    for lag in (1, 2, 1_000):
        assert abs(np.mean(scaled[lag:] * scaled[:-lag])) < Z / np.sqrt(n - lag)
    close = np.abs(np.diff(drawn.astype(np.int64))) < cards_.CHUNK  # neighbors from one chunk, about
    share = 2 * cards_.CHUNK / n - (cards_.CHUNK / n) ** 2
    assert abs(np.mean(close) - share) < Z * np.sqrt(share / n) + 2 / n
    distinct = np.count_nonzero(np.bincount(drawn, minlength=n))
    mean, variance = n * (1 - (1 - 1 / n) ** n), n * np.exp(-1) * (1 - 2 * np.exp(-1))
    assert abs(distinct - mean) < Z * np.sqrt(variance)


# -- rows that are kept for checks ----------------------------------------------------------------------------------

PIECES = ((0, 1), (2, 3), (4,))  # of five rows, two of which are kept
SETS = list(itertools.combinations(range(5), 2))


def law_of_kept(numbers: Callable[[int, int, int], dict[int, Fraction]]) -> dict[tuple[int, ...], Fraction]:
    """The exact law of the set, if each piece keeps so many, by chance, of those that are left, and any as likely."""
    found: dict[tuple[int, ...], Fraction] = Counter()  # type: ignore[assignment]

    def go_on(pieces: tuple[tuple[int, ...], ...], chosen: tuple[int, ...], share: Fraction) -> None:
        if not pieces:
            found[chosen] += share
            return
        piece, *rest = pieces
        for number, chance in numbers(2 - len(chosen), sum(map(len, pieces)), len(piece)).items():
            for some in itertools.combinations(piece, number):
                go_on(tuple(rest), chosen + some, share * chance / comb(len(piece), number))

    go_on(PIECES, (), Fraction(1))
    return found


def hypergeometric(kept: int, left: int, size: int) -> dict[int, Fraction]:
    return {
        number: Fraction(comb(kept, number) * comb(left - kept, size - number), comb(left, size))
        for number in range(min(kept, size) + 1)
        if size - number <= left - kept
    }


def test_a_hypergeometric_number_of_every_piece_keeps_every_set_alike() -> None:
    found = law_of_kept(hypergeometric)
    assert set(found) == set(SETS)
    assert set(found.values()) == {Fraction(1, 10)}


def test_the_same_share_of_every_piece_does_not() -> None:
    found = law_of_kept(lambda kept, left, size: {min(kept, -(-size * 2 // 5)): Fraction(1)})
    assert len(found) < 10


def kept_by(number: int) -> tuple[int, ...]:
    masks = list(Division(number.to_bytes(16, "little"), 5, 2).masks())
    assert [mask.size for mask in masks] == [2, 2, 1]
    return tuple(np.flatnonzero(np.concatenate(masks)).tolist())


def of_the_whole_table(number: int) -> tuple[int, ...]:
    """A wrong way: how many a piece keeps does not depend on how many were kept before."""
    rng = np.random.default_rng(number)
    while True:
        found = [i for piece in PIECES for i in rng.permutation(piece)[: rng.binomial(1, 2 / 5) * len(piece)]]
        if len(found) == 2:
            return tuple(sorted(map(int, found)))


def unlike(kept: Callable[[int], tuple[int, ...]], times: int = 4_000) -> float:
    counts = Counter(kept(number) for number in range(times))
    assert set(counts) <= set(SETS)
    return float(chi2.sf(sum((counts[each] - times / 10) ** 2 * 10 / times for each in SETS), 9))


def test_every_set_of_rows_is_kept_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supply, "_PIECE", 2)
    assert unlike(kept_by) > FALSE_ALARM
    assert unlike(of_the_whole_table) < FALSE_ALARM


def test_cards_beside_kept_rows_are_uniform_on_the_others(tmp_path: Path) -> None:
    """Given what is kept, every pair of cards from the three other rows is as likely."""
    path, pairs = tmp_path / "t.parquet", 30_000
    pl.DataFrame({"row": np.arange(5)}).write_parquet(path)
    deck = deal(path, tmp_path / "t.deck", cards=2 * pairs, checks=0.4)
    assert isinstance(deck, Deck)
    assert deck.kept is not None
    kept = deck.kept.frame(np.arange(2))["row"].to_list()
    cards = deck._deals[0].frame(np.arange(2 * pairs))["row"].to_numpy()
    assert not np.isin(cards, kept).any()
    counts = np.bincount(cards[::2] * 5 + cards[1::2], minlength=25)
    counts = counts[counts > 0]
    assert counts.size == 9
    assert chi2.sf(((counts - pairs / 9) ** 2).sum() * 9 / pairs, 8) > FALSE_ALARM
