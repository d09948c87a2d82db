"""Do coins come up, and get flipped, with the right law?  Seeded; tolerance derived; mutants must be caught.

Tossing. Ones among rows with biases v_i have mean M = sum v_i and variance V = sum v_i (1-v_i). By Bernstein's
inequality they are within sqrt(2 V L) + 2 L/3 of M, L = log(2/FALSE_ALARM), except with probability FALSE_ALARM.

Flipping. The law of flipped counts is enumerated coin by coin: each outcome stays with probability 1 - c mass and
is otherwise uniform, independently; counts of all c^m results are summed up exactly. Pearson's statistic of T
flips against that law, cells expecting fewer than 100 pooled, exceeds the chi-square quantile with probability
FALSE_ALARM.
"""

from collections import Counter
from collections.abc import Callable
from itertools import product
from math import log, prod, sqrt

import numpy as np
import pytest
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.stats import chi2

from holdfast.queries.query import Said
from holdfast.rows import toss

FALSE_ALARM = 1e-6
LOG = log(2 / FALSE_ALARM)
NAN = float("nan")


# Tossing

BIASES = np.tile([0.0, 0.1, 0.5, 0.65, 0.999, 1.0], 20_000)


def near(ones: int, biases: NDArray[np.float64]) -> bool:
    mean, variance = float(biases.sum()), float((biases * (1 - biases)).sum())
    return abs(ones - mean) <= sqrt(2 * variance * LOG) + 2 * LOG / 3


Toss = Callable[[Said, int, Generator], NDArray[np.int64]]


def counted_one_by_one(said: Said, outcomes: int, rng: Generator) -> NDArray[np.int64]:
    return np.bincount(toss.outcomes_of(said, outcomes, rng), minlength=outcomes)


def tosses_are_right(count: Toss, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    counts = count(BIASES, 2, rng)
    missing = np.concatenate([BIASES, np.full(500, NAN)])
    lower = count(missing, 2, rng)
    group = count(missing, 3, rng)
    return (
        counts.sum() == BIASES.size
        and near(int(counts[1]), BIASES)
        and lower.sum() == missing.size
        and near(int(lower[1]), BIASES)
        and group[0] == 500
        and near(int(group[2]), BIASES)
        and group.sum() == missing.size
    )


BOTH = pytest.mark.parametrize("count", [toss.tossed, counted_one_by_one], ids=["counts", "one by one"])


@BOTH
def test_coins_have_their_bias(seed: int, count: Toss) -> None:
    assert tosses_are_right(count, seed)


@BOTH
def test_sure_things_are_sure(seed: int, count: Toss) -> None:
    rng = np.random.default_rng(seed)
    assert count(np.array([True, False, True]), 2, rng).tolist() == [1, 2]
    assert count(np.array([1.0, 0.0, NAN, 1.0]), 2, rng).tolist() == [2, 2]
    assert count(np.array([1.0, 0.0, NAN, NAN, 1.0]), 3, rng).tolist() == [2, 1, 2]
    assert count(np.array([0, 3, 3]), 5, rng).tolist() == [1, 0, 0, 2, 0]
    assert count(np.array([NAN]), 3, rng).tolist() == [1, 0, 0]


def rounded(said: Said, outcomes: int, rng: Generator) -> NDArray[np.int64]:
    sharp = np.where(np.isnan(said), NAN, (said > 0.5).astype(float))
    return toss.tossed(sharp, outcomes, rng)


def one_coin_for_all(said: Said, outcomes: int, rng: Generator) -> NDArray[np.int64]:
    return toss.tossed(np.where(np.isnan(said), NAN, (rng.random() < said).astype(float)), outcomes, rng)


def nan_is_one(said: Said, outcomes: int, rng: Generator) -> NDArray[np.int64]:
    return toss.tossed(np.nan_to_num(said, nan=1.0), outcomes, rng)


@pytest.mark.parametrize("mutant", [rounded, one_coin_for_all, nan_is_one])
def test_a_wrong_toss_is_caught(seed: int, mutant: Toss) -> None:
    assert not tosses_are_right(mutant, seed)


# Flipping

Flip = Callable[[NDArray[np.int64], float, Generator], NDArray[np.int64]]
TRIALS = 30_000
START = {"two": np.array([3, 1]), "three": np.array([2, 0, 2]), "four": np.array([0, 3, 0, 0])}


def law(start: NDArray[np.int64], mass: float) -> dict[tuple[int, ...], float]:
    """Enumerate what flipping every coin by itself can give, and how likely."""
    outcomes = start.size
    coins = np.repeat(np.arange(outcomes), start).tolist()
    chances: Counter[tuple[int, ...]] = Counter()
    for ends in product(range(outcomes), repeat=len(coins)):
        chance = prod(mass + (1 - outcomes * mass) * (a == b) for a, b in zip(coins, ends, strict=True))
        chances[tuple(np.bincount(ends, minlength=outcomes).tolist())] += chance  # type: ignore[assignment]
    return dict(chances)


def flips_are_right(flip: Flip, start: NDArray[np.int64], mass: float, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    seen = Counter(tuple(flip(start, mass, rng).tolist()) for _ in range(TRIALS))
    chances = law(start, mass)
    if not seen.keys() <= chances.keys():
        return False
    common = [cell for cell, chance in chances.items() if chance * TRIALS >= 100]
    expected = np.array([chances[cell] * TRIALS for cell in common])
    observed = np.array([seen[cell] for cell in common])
    rest = TRIALS - expected.sum()
    statistic = float(((observed - expected) ** 2 / expected).sum())
    if rest >= 100:
        statistic += (TRIALS - observed.sum() - rest) ** 2 / rest
    return statistic <= float(chi2.isf(FALSE_ALARM, len(common)))


def one_by_one(start: NDArray[np.int64], mass: float, rng: Generator) -> NDArray[np.int64]:
    drawn = np.repeat(np.arange(start.size), start)
    return np.bincount(toss.flip_each(drawn, start.size, mass, rng), minlength=start.size)


STARTS = pytest.mark.parametrize("start", START.values(), ids=START.keys())


@STARTS
@pytest.mark.parametrize("flip", [toss.flipped, one_by_one])
def test_flips_have_the_law_of_single_coins(seed: int, flip: Flip, start: NDArray[np.int64]) -> None:
    assert flips_are_right(flip, start, 0.1, seed)


def no_flip(start: NDArray[np.int64], mass: float, rng: Generator) -> NDArray[np.int64]:
    return start


def too_seldom(start: NDArray[np.int64], mass: float, rng: Generator) -> NDArray[np.int64]:
    return toss.flipped(start, mass / start.size, rng)


def dealt_in_one_lump(start: NDArray[np.int64], mass: float, rng: Generator) -> NDArray[np.int64]:
    kept = rng.binomial(start, 1 - start.size * mass)
    kept[rng.integers(0, start.size)] += start.sum() - kept.sum()
    return kept


def flipped_in_unison(start: NDArray[np.int64], mass: float, rng: Generator) -> NDArray[np.int64]:
    if rng.random() >= start.size * mass:
        return start
    return rng.multinomial(start.sum(), np.full(start.size, 1 / start.size))


@STARTS
@pytest.mark.parametrize("mutant", [no_flip, too_seldom, dealt_in_one_lump, flipped_in_unison])
def test_a_wrong_flip_is_caught(seed: int, mutant: Flip, start: NDArray[np.int64]) -> None:
    assert not flips_are_right(mutant, start, 0.1, seed)


@STARTS
def test_the_extremes_are_exact(seed: int, start: NDArray[np.int64]) -> None:
    rng = np.random.default_rng(seed)
    assert toss.flipped(start, 0.0, rng).tolist() == start.tolist()
    assert toss.flipped(start * 1000, 1 / start.size, rng).sum() == start.sum() * 1000
    assert flips_are_right(toss.flipped, start, 1 / start.size, seed)
