"""Do coins come up, and get randomized, with the right law?  Seeded; tolerance derived; mutants must be caught.

Tossing. Ones among rows with biases v_i have mean M = sum v_i and variance V = sum v_i (1-v_i). By Bernstein's
inequality they are within sqrt(2 V L) + 2 L/3 of M, L = log(2/FALSE_ALARM), except with probability FALSE_ALARM.

Randomizing. The law of randomized counts is enumerated outcome by outcome: each stays with probability 1 - c mass and
is otherwise uniform, independently; counts of all c^m results are summed up exactly. Pearson's statistic of T
results against that law, cells expecting fewer than 100 pooled, exceeds the chi-square quantile with probability
FALSE_ALARM. The parts of one call are independent: the law of a pair of them is the product of theirs.
"""

from collections import Counter
from collections.abc import Callable
from itertools import product
from math import log, prod, sqrt
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.stats import chi2

from holdfast.queries.query import Values
from holdfast.rows import draws
from holdfast.rows.draws import STEPS, coins, outcomes_of, randomized, tallied, tallied_parts, tossed

FALSE_ALARM = 1e-6
LOG = log(2 / FALSE_ALARM)
NAN = float("nan")


# Tossing

BIASES = np.tile([0.0, 0.1, 0.5, 0.65, 0.999, 1.0], 20_000)


def near(ones: int, biases: NDArray[np.float64]) -> bool:
    mean, variance = float(biases.sum()), float((biases * (1 - biases)).sum())
    return abs(ones - mean) <= sqrt(2 * variance * LOG) + 2 * LOG / 3


Toss = Callable[[Values, int, Generator], NDArray[np.int64]]


def counted_one_by_one(values: Values, outcomes: int, rng: Generator) -> NDArray[np.int64]:
    return np.bincount(outcomes_of(values, outcomes, rng), minlength=outcomes)


def said_several_times(values: Values, outcomes: int, rng: Generator) -> NDArray[np.int64]:
    """Every value once, and how many rows say it."""
    distinct, times = np.unique(values, return_counts=True)
    return tallied(distinct, outcomes, 0.0, rng, times)


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


def in_parts(values: Values, outcomes: int, rng: Generator) -> NDArray[np.int64]:
    """Toss in three parts, of which the last is empty."""
    part = np.arange(values.size) % 2
    counts = tallied_parts(values, outcomes, 0.0, rng, part, 3)
    assert counts.sum(axis=1).tolist() == [(part == 0).sum(), (part == 1).sum(), 0]
    total: NDArray[np.int64] = counts.sum(axis=0)
    return total


COUNTED = [tossed, counted_one_by_one, in_parts, said_several_times]
EACH = pytest.mark.parametrize("count", COUNTED, ids=["counts", "one by one", "in parts", "several times"])


@EACH
def test_coins_have_their_bias(seed: int, count: Toss) -> None:
    assert tosses_are_right(count, seed)


@EACH
def test_sure_things_are_sure(seed: int, count: Toss) -> None:
    rng = np.random.default_rng(seed)
    assert count(np.array([True, False, True]), 2, rng).tolist() == [1, 2]
    assert count(np.array([1.0, 0.0, NAN, 1.0]), 2, rng).tolist() == [2, 2]
    assert count(np.array([1.0, 0.0, NAN, NAN, 1.0]), 3, rng).tolist() == [2, 1, 2]
    assert count(np.array([0, 3, 3]), 5, rng).tolist() == [1, 0, 0, 2, 0]
    assert count(np.array([NAN]), 3, rng).tolist() == [1, 0, 0]


class EveryStep:
    """Stands for a generator: all numbers of 16 bits in turn, and then this number."""

    def __init__(self, then: float) -> None:
        self.then = then

    def integers(self, low: int, high: int, size: int, dtype: Any) -> NDArray[Any]:
        assert (low, high, size) == (0, 1 << 64, STEPS // 4)
        return np.arange(STEPS, dtype=np.uint16).view(dtype)

    def random(self, size: int) -> NDArray[np.float64]:
        return np.full(size, self.then)


@pytest.mark.parametrize("bias", [0.0, 1e-9, 1 / STEPS, 0.3, 0.5, 1 - 1e-9, 1.0])
def test_a_coin_has_its_bias_to_the_last_digit(bias: float) -> None:
    """Heads are its whole steps, and of the step that it ends in the part that belongs to it."""
    whole, part = divmod(bias * STEPS, 1.0)
    for then, more in ((0.0, part > 0), (np.nextafter(part, 0.0), part > 0), (part, 0), (0.999, part > 0.999)):
        rng: Any = EveryStep(then)
        assert np.count_nonzero(coins(np.full(STEPS, bias), rng)) == whole + more


def rounded(values: Values, outcomes: int, rng: Generator) -> NDArray[np.int64]:
    sharp = np.where(np.isnan(values), NAN, (values > 0.5).astype(float))
    return tossed(sharp, outcomes, rng)


def one_coin_for_all(values: Values, outcomes: int, rng: Generator) -> NDArray[np.int64]:
    return tossed(np.where(np.isnan(values), NAN, (rng.random() < values).astype(float)), outcomes, rng)


def nan_is_one(values: Values, outcomes: int, rng: Generator) -> NDArray[np.int64]:
    return tossed(np.nan_to_num(values, nan=1.0), outcomes, rng)


@pytest.mark.parametrize("mutant", [rounded, one_coin_for_all, nan_is_one])
def test_a_wrong_toss_is_caught(seed: int, mutant: Toss) -> None:
    assert not tosses_are_right(mutant, seed)


# Randomizing

Randomize = Callable[[NDArray[np.int64], float, Generator], NDArray[np.int64]]
TRIALS = 30_000
START = {"two": np.array([3, 1]), "three": np.array([2, 0, 2]), "four": np.array([0, 3, 0, 0])}


def law(start: NDArray[np.int64], mass: float) -> dict[tuple[int, ...], float]:
    """Enumerate what randomizing every outcome by itself can give, and how likely."""
    outcomes = start.size
    coins = np.repeat(np.arange(outcomes), start).tolist()
    chances: Counter[tuple[int, ...]] = Counter()
    for ends in product(range(outcomes), repeat=len(coins)):
        chance = prod(mass + (1 - outcomes * mass) * (a == b) for a, b in zip(coins, ends, strict=True))
        chances[tuple(np.bincount(ends, minlength=outcomes).tolist())] += chance  # type: ignore[assignment]
    return dict(chances)


def randomizes_rightly(randomize: Randomize, start: NDArray[np.int64], mass: float, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    seen = Counter(tuple(randomize(start, mass, rng).tolist()) for _ in range(TRIALS))
    return follows(seen, law(start, mass))


def follows(seen: "Counter[tuple[int, ...]]", chances: dict[tuple[int, ...], float]) -> bool:
    """Pearson's test of TRIALS results."""
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
    replace = rng.random(drawn.size) < start.size * mass
    return np.bincount(np.where(replace, rng.integers(0, start.size, drawn.size), drawn), minlength=start.size)


def as_one_part(start: NDArray[np.int64], mass: float, rng: Generator) -> NDArray[np.int64]:
    """The middle one of three parts, the others full of other outcomes."""
    counts = randomized(np.array([5 * start[::-1], start, 1_000 + start]), mass, rng)
    result: NDArray[np.int64] = counts[1]
    return result


def as_many(start: NDArray[np.int64], mass: float, rng: Generator) -> NDArray[np.int64]:
    """As where there are many outcomes: all in one call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draws, "FEW", 0)
        return randomized(start, mass, rng)


def before_they_fall(start: NDArray[np.int64], mass: float, rng: Generator) -> NDArray[np.int64]:
    """Sure things in parts, with what a missing value says; other numbers of outcomes are tossed first."""
    start = np.atleast_2d(start)
    parts, outcomes = start.shape
    cells = np.repeat(np.arange(start.size), start.ravel())
    said = cells % outcomes
    values = np.where(said == 0, NAN, said.astype(float)) if outcomes == 2 else said
    counts = tallied_parts(values, outcomes, mass, rng, cells // outcomes, parts)
    return counts[0] if parts == 1 else counts


STARTS = pytest.mark.parametrize("start", START.values(), ids=START.keys())


@STARTS
@pytest.mark.parametrize("randomize", [randomized, one_by_one, as_one_part, as_many, before_they_fall])
def test_counts_have_the_law_of_single_outcomes(seed: int, randomize: Randomize, start: NDArray[np.int64]) -> None:
    assert randomizes_rightly(randomize, start, 0.1, seed)


def not_at_all(start: NDArray[np.int64], mass: float, rng: Generator) -> NDArray[np.int64]:
    return start


def too_seldom(start: NDArray[np.int64], mass: float, rng: Generator) -> NDArray[np.int64]:
    return randomized(start, mass / start.size, rng)


def only_upwards(start: NDArray[np.int64], mass: float, rng: Generator) -> NDArray[np.int64]:
    """A bias that is raised, and not lowered at its other end."""
    said = np.repeat(np.arange(start.size), start)
    return np.bincount(np.where(rng.random(said.size) < mass, start.size - 1, said), minlength=start.size)


def dealt_in_one_lump(start: NDArray[np.int64], mass: float, rng: Generator) -> NDArray[np.int64]:
    kept = rng.binomial(start, 1 - start.size * mass)
    kept[rng.integers(0, start.size)] += start.sum() - kept.sum()
    return kept


def all_in_unison(start: NDArray[np.int64], mass: float, rng: Generator) -> NDArray[np.int64]:
    if rng.random() >= start.size * mass:
        return start
    return rng.multinomial(start.sum(), np.full(start.size, 1 / start.size))


@STARTS
@pytest.mark.parametrize("mutant", [not_at_all, too_seldom, only_upwards, dealt_in_one_lump, all_in_unison])
def test_a_wrong_randomization_is_caught(seed: int, mutant: Randomize, start: NDArray[np.int64]) -> None:
    assert not randomizes_rightly(mutant, start, 0.1, seed)


@STARTS
def test_the_extremes_are_exact(seed: int, start: NDArray[np.int64]) -> None:
    rng = np.random.default_rng(seed)
    assert randomized(start, 0.0, rng).tolist() == start.tolist()
    assert randomized(start * 1000, 1 / start.size, rng).sum() == start.sum() * 1000
    assert randomizes_rightly(randomized, start, 1 / start.size, seed)


# Parts

PAIR = {"two": np.array([[2, 0], [1, 1]]), "three": np.array([[1, 1, 0], [0, 0, 1]])}
PAIRS = pytest.mark.parametrize("start", PAIR.values(), ids=PAIR.keys())


def parts_are_independent(randomize: Randomize, start: NDArray[np.int64], seed: int) -> bool:
    rng = np.random.default_rng(seed)
    seen = Counter(tuple(randomize(start, 0.2, rng).ravel().tolist()) for _ in range(TRIALS))
    first, second = (law(part, 0.2) for part in start)
    return follows(seen, {a + b: first[a] * second[b] for a in first for b in second})


def apart(start: NDArray[np.int64], mass: float, rng: Generator) -> NDArray[np.int64]:
    return np.stack([one_by_one(part, mass, rng) for part in start])


def with_one_generator(start: NDArray[np.int64], mass: float, rng: Generator) -> NDArray[np.int64]:
    """Every part right by itself, all of them from the same random numbers."""
    seed = int(rng.integers(2**62))
    return np.stack([one_by_one(part, mass, np.random.default_rng(seed)) for part in start])


def across_parts(start: NDArray[np.int64], mass: float, rng: Generator) -> NDArray[np.int64]:
    """Randomized as if all parts were one."""
    return randomized(start.ravel(), mass * start.shape[1] / start.size, rng).reshape(start.shape)


@PAIRS
@pytest.mark.parametrize("randomize", [randomized, apart, before_they_fall])
def test_parts_are_randomized_independently(seed: int, randomize: Randomize, start: NDArray[np.int64]) -> None:
    assert parts_are_independent(randomize, start, seed)


@PAIRS
@pytest.mark.parametrize("mutant", [with_one_generator, across_parts])
def test_parts_that_depend_on_each_other_are_caught(seed: int, mutant: Randomize, start: NDArray[np.int64]) -> None:
    assert not parts_are_independent(mutant, start, seed)
