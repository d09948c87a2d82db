"""Do releases follow the law that the theorems are about?  Tolerances are exact; every mutant must be caught.

T independent releases fall into cells whose probabilities p_1..p_m are known exactly. The number in cell j is
Bin(T, p_j), so it lies between the FALSE_ALARM/(2m) quantiles on both sides in all cells at once, except with
probability FALSE_ALARM. (Where noise is continuous, the cells are "closer than the median of the noise" and "further":
one half each; where values are told apart in spite of noise, the chance of a mix-up is far below FALSE_ALARM/T.)

T is chosen so that each mutant moves some cell by at least ten of its standard deviations, twice the tolerance.
Rows and coins are seeded; Laplace noise comes from opendp, which cannot be seeded, so those tests are new every time.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from itertools import combinations
from math import exp, log
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, norm

from holdfast.guarantees.statistic import Tally
from holdfast.lab.baselines import CoinFromMean, FullGaussian, FullLaplace, Thresholdout
from holdfast.mechanisms import coins, exponential, noisy_means
from holdfast.mechanisms.coins import Coins
from holdfast.mechanisms.fresh_rows import FreshRows
from holdfast.mechanisms.noisy_means import Laplace
from holdfast.rows import draws, local
from holdfast.rows.open import open_rows
from holdfast.rows.source import RowSource
from toy_queries import Group, Histogram, Mean, Share

FALSE_ALARM = 1e-6
MEDIAN = log(2)  # P(|Lap(1)| <= log 2) = 1/2
HALVES = {True: 0.5, False: 0.5}


def follows(cells: list[Any], law: Mapping[Any, float]) -> bool:
    """Whether so many releases in each cell are what this law gives."""
    found, total = Counter(cells), len(cells)
    tail = FALSE_ALARM / (2 * len(law))
    inside = all(binom.ppf(tail, total, p) <= found[cell] <= binom.isf(tail, total, p) for cell, p in law.items())
    return inside and set(found) <= set(law)


def source(**columns: Any) -> RowSource:
    return open_rows({name: np.asarray(values, dtype=float) for name, values in columns.items()})


# -- coins -----------------------------------------------------------------------------------------------------------

VALUES = [0.0, 0.0, 0.1, 0.2, 0.3, 0.4, 0.3, 0.2, 0.1, 1.0]  # the last row says what no other says
MASS, ELL = 0.1, 4


def mean_counts_follow(seed: int) -> bool:
    """The number of ones among ELL coins of a mean is binomial with bias a + (1-2a) mean."""
    rows, rng = source(x=VALUES), np.random.default_rng(seed)
    mechanism = Coins(draws=ELL, mass=MASS)
    bias = MASS + (1 - 2 * MASS) * float(np.mean(VALUES))
    law = {ones: float(binom.pmf(ones, ELL, bias)) for ones in range(ELL + 1)}
    return follows([mechanism.release(Mean(), rows, rng).counts[1] for _ in range(6_000)], law)


def group_counts_follow(seed: int) -> bool:
    """One draw from a group: excluded, 0 or 1, each with extra mass a."""
    rows, rng = source(x=VALUES, g=[0, 0, 0, 0, 1, 1, 1, 1, 0, 1]), np.random.default_rng(seed)
    mechanism = Coins(draws=1, mass=MASS)
    shares = (0.5, (0.7 + 0.6 + 0.7 + 0.8) / 10, (0.3 + 0.4 + 0.3 + 0.2 + 1.0) / 10)
    law = {outcome: (1 - 3 * MASS) * share + MASS for outcome, share in enumerate(shares)}
    return follows([mechanism.release(Group(), rows, rng).counts.index(1) for _ in range(6_000)], law)


def histogram_counts_follow(seed: int) -> bool:
    """One draw from a histogram of four bars."""
    rows, rng = source(x=VALUES), np.random.default_rng(seed)
    mechanism = Coins(draws=1, mass=MASS)
    law = {bar: (1 - 4 * MASS) * share + MASS for bar, share in enumerate((0.6, 0.3, 0.0, 0.1))}
    return follows([mechanism.release(Histogram(), rows, rng).counts.index(1) for _ in range(6_000)], law)


COIN_LAWS = [mean_counts_follow, group_counts_follow, histogram_counts_follow]


@pytest.mark.parametrize("law", COIN_LAWS)
def test_coins_follow_their_law(law, seed):
    assert law(seed)


@pytest.mark.parametrize("law", COIN_LAWS)
def test_outcomes_that_are_not_randomized_are_caught(law, seed, monkeypatch):
    tally = local.tallied
    monkeypatch.setattr(local, "tallied", lambda values, outcomes, mass, *rest: tally(values, outcomes, 0.0, *rest))
    assert not law(seed)


@pytest.mark.parametrize("law", [mean_counts_follow, group_counts_follow])
def test_rounding_instead_of_tossing_is_caught(law, seed, monkeypatch):
    tally = local.tallied
    monkeypatch.setattr(local, "tallied", lambda values, *rest: tally(np.round(values), *rest))
    assert not law(seed)


@pytest.mark.parametrize("law", COIN_LAWS)
def test_an_index_that_misses_the_last_row_is_caught(law, seed, monkeypatch):
    monkeypatch.setattr(draws, "with_replacement", lambda rng, n, count: rng.integers(0, n - 1, count))
    assert not law(seed)


def test_one_row_for_all_coins_of_an_answer_is_caught(seed, monkeypatch):
    """The average is right, the independence is not."""
    monkeypatch.setattr(draws, "with_replacement", lambda rng, n, count: np.repeat(rng.integers(0, n), count))
    assert not mean_counts_follow(seed)


def bits_in_any_order(seed: int) -> bool:
    """A release with one 1 among four: its place is uniform."""
    rng = np.random.default_rng(seed)
    release = Tally((0.25,), 4, (3, 1), (1,))
    return follows([coins.bits(release, rng).index(1) for _ in range(4_000)], dict.fromkeys(range(4), 0.25))


def test_bits_fall_in_any_order(seed):
    assert bits_in_any_order(seed)


def test_sorted_bits_are_caught(seed, monkeypatch):
    monkeypatch.setattr(coins, "bits", lambda release, rng: [0] * release.counts[0] + [1] * release.counts[1])
    assert not bits_in_any_order(seed)


# -- Laplace ---------------------------------------------------------------------------------------------------------


def within_the_median(mechanism: Any, median: float, rows: RowSource, mean: float, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    values = [mechanism.release(Mean(), rows, rng).means[0] for _ in range(4_000)]
    return follows([abs(value - mean) <= median for value in values], HALVES) and follows(
        [value <= mean for value in values], HALVES
    )


def laplace_scatters(seed: int) -> bool:
    """Rows that all say the same: only the noise is left."""
    for mechanism in (Laplace(draws=3, epsilon=0.5), Laplace(draws=3, epsilon=0.5, replacement=True)):
        if not within_the_median(mechanism, MEDIAN * mechanism.scale(10), source(x=[0.5] * 10), 0.5, seed):
            return False
    return True


def full_laplace_scatters(seed: int) -> bool:
    rows = source(x=VALUES)
    return within_the_median(FullLaplace(epsilon=0.5), MEDIAN / (10 * 0.5), rows, float(np.mean(VALUES)), seed)


def drawing_everything_is_exact(seed: int) -> bool:
    """All ten rows without replacement: their mean, without any scatter from sampling."""
    mechanism, rows = Laplace(draws=10, epsilon=5.0), source(x=[0.0, 1.0] * 5)
    return within_the_median(mechanism, MEDIAN * mechanism.scale(10), rows, 0.5, seed)


@pytest.mark.parametrize("law", [laplace_scatters, full_laplace_scatters, drawing_everything_is_exact])
def test_laplace_answers_scatter_as_they_say(law, seed):
    assert law(seed)


@pytest.mark.parametrize("factor", [0.8, 1.25])
@pytest.mark.parametrize("law", [laplace_scatters, full_laplace_scatters])
def test_a_wrong_noise_scale_is_caught(law, factor, seed, monkeypatch):
    right = noisy_means.laplace_mean
    monkeypatch.setattr(noisy_means, "laplace_mean", lambda values, scale: right(values, factor * scale))
    assert not law(seed)


def test_replacement_where_none_was_promised_is_caught(seed, monkeypatch):
    monkeypatch.setattr(draws, "without_replacement", draws.with_replacement)
    assert not drawing_everything_is_exact(seed)


def pairs_are_uniform(seed: int) -> bool:
    """Two of three rows, noise too small to hide which: every pair equally often, no row twice.

    Means are 0.1 apart or more, so one is taken for another with probability exp(-0.05/scale) at most.
    """
    rows, rng = source(x=[0.0, 0.4, 1.0]), np.random.default_rng(seed)
    mechanism = Laplace(draws=2, epsilon=300.0)
    assert 3_000 * exp(-0.05 / mechanism.scale(3)) < FALSE_ALARM / 100
    means = [0.0, 0.2, 0.4, 0.5, 0.7, 1.0]
    values = [mechanism.release(Mean(), rows, rng).means[0] for _ in range(3_000)]
    nearest = [min(means, key=lambda mean: abs(mean - value)) for value in values]
    return follows(nearest, {0.2: 1 / 3, 0.5: 1 / 3, 0.7: 1 / 3})


def test_every_pair_of_rows_is_equally_likely(seed):
    assert pairs_are_uniform(seed)


def first_rows(rng: np.random.Generator, n: int, count: int) -> np.ndarray:
    return np.arange(count)


@pytest.mark.parametrize("mutant", [draws.with_replacement, first_rows])
def test_other_draws_are_caught(mutant, seed, monkeypatch):
    monkeypatch.setattr(draws, "without_replacement", mutant)
    assert not pairs_are_uniform(seed)


# -- the exponential mechanism ---------------------------------------------------------------------------------------

SCORES, EPSILON, SENSITIVITY = [0.0, 0.1, 0.25, 0.2], 1.0, 0.1


def exponential_follows(seed: int) -> bool:
    weights = np.exp(EPSILON * np.array(SCORES) / (2 * SENSITIVITY))
    law: dict[Hashable, float] = {i: float(w / weights.sum()) for i, w in enumerate(weights)}
    rng = np.random.default_rng(seed)
    options = {"epsilon": EPSILON, "sensitivity": SENSITIVITY, "rng": rng}
    return follows([exponential.choose(SCORES, **options) for _ in range(8_000)], law)


def test_the_exponential_mechanism_follows_its_law(seed):
    assert exponential_follows(seed)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_forgotten_factor_of_two_is_caught(factor, seed, monkeypatch):
    right = exponential.probabilities
    monkeypatch.setattr(
        exponential,
        "probabilities",
        lambda scores, *, epsilon, sensitivity: right(scores, epsilon=factor * epsilon, sensitivity=sensitivity),
    )
    assert not exponential_follows(seed)


def test_the_exponential_mechanism_is_as_private_as_it_says():
    """Every score moves by at most the sensitivity: no log-ratio exceeds epsilon, and some come close to it."""
    rng = np.random.default_rng(5)
    worst = 0.0
    moves = [np.array([1, -1, -1, -1]), *(rng.uniform(-1, 1, 4) for _ in range(200))]
    for move in moves:
        law, other = (
            exponential.probabilities(list(scores), epsilon=EPSILON, sensitivity=SENSITIVITY)
            for scores in (np.array([0.0, 1.0, 1.0, 1.0]), np.array([0.0, 1.0, 1.0, 1.0]) + SENSITIVITY * move)
        )
        worst = max(worst, float(np.abs(np.log(law / other)).max()))
    assert 0.95 * EPSILON < worst <= EPSILON * (1 + 1e-12)


def test_the_expected_loss_of_the_exponential_mechanism_is_bounded():
    law = exponential.probabilities(SCORES, epsilon=EPSILON, sensitivity=SENSITIVITY)
    lost = max(SCORES) - float(law @ np.array(SCORES))
    assert 0 < lost <= exponential.expected_loss(len(SCORES), epsilon=EPSILON, sensitivity=SENSITIVITY)


# -- baselines -------------------------------------------------------------------------------------------------------


def gaussian_scatters(seed: int, sigma: float = 0.3) -> bool:
    """Half of a normal law lies within 0.6745 deviations."""
    mechanism, promised = FullGaussian(sigma=sigma), 0.3
    median = float(norm.ppf(0.75)) * promised
    return within_the_median(mechanism, median, source(x=VALUES), float(np.mean(VALUES)), seed)


def test_gaussian_answers_scatter_as_they_say(seed):
    assert gaussian_scatters(seed)


@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_a_wrong_deviation_is_caught(factor, seed):
    assert not gaussian_scatters(seed, sigma=0.3 * factor)


KEY, SIGMA = 17, 0.0002


def two_halves(training: float, holdout: float) -> RowSource:
    """Ten rows whose training half, in the mechanism's secret order, says one thing and the holdout another."""
    values = np.empty(10)
    order = draws.permuted_block(KEY.to_bytes(32), 10, 0, 10)
    values[order[:5]], values[order[5:]] = training, holdout
    return source(x=values)


def thresholdout(mechanism: type[Thresholdout], rows: RowSource, seed: int) -> tuple[list[float], int]:
    made = mechanism(threshold=0.1, sigma=SIGMA, budget=400, key=KEY)
    rng = np.random.default_rng(seed)
    return [made.release(Mean(), rows, rng).means[0] for _ in range(400)], made.budget


def answers_from_training_unless_they_disagree(mechanism: type[Thresholdout], seed: int) -> bool:
    """Noise of the threshold is at most 250 sigma apart from probability e^-60, so 0.05 never hides 0.1."""
    agreed, left = thresholdout(mechanism, two_halves(0.45, 0.5), seed)
    if set(agreed) != {0.45} or left != 400:
        return False
    apart, left = thresholdout(mechanism, two_halves(0.2, 0.8), seed)
    near = [abs(value - 0.8) <= MEDIAN * SIGMA for value in apart]
    return follows(near, HALVES) and left == 0


class FromHoldout(Thresholdout):
    def _compare(self, part: np.ndarray, rng: np.random.Generator) -> float:
        return float(part[len(part) // 2 :].mean())


class WithoutNoise(Thresholdout):
    def _compare(self, part: np.ndarray, rng: np.random.Generator) -> float:
        training, holdout = float(part[: len(part) // 2].mean()), float(part[len(part) // 2 :].mean())
        if abs(training - holdout) <= self.threshold:
            return training
        self.budget -= 1
        return holdout


def test_thresholdout_answers_from_training_unless_the_halves_disagree(seed):
    assert answers_from_training_unless_they_disagree(Thresholdout, seed)


@pytest.mark.parametrize("mutant", [FromHoldout, WithoutNoise])
def test_a_thresholdout_that_leaks_is_caught(mutant, seed):
    assert not answers_from_training_unless_they_disagree(mutant, seed)


def thresholds_scatter(seed: int, factor: float = 1.0) -> bool:
    """Halves exactly a threshold apart disagree when Lap(2 sigma) + Lap(4 sigma) < 0: half of the time.

    Halves further apart by x disagree when the sum Z of both is below x: with u = 2 sigma and v = 4 sigma,
    P(Z < x) = 1 - (v^2 exp(-x/v) - u^2 exp(-x/u))/(2 (v^2 - u^2)).
    """
    sigma = 0.01
    u, v, x = 2 * sigma, 4 * sigma, 0.04
    over = 1 - (v * v * np.exp(-x / v) - u * u * np.exp(-x / u)) / (2 * (v * v - u * u))
    rows, rng = two_halves(0.3, 0.3 + 0.1 + x), np.random.default_rng(seed)
    cells = []
    for _ in range(1_500):
        made = Thresholdout(threshold=0.1, sigma=factor * sigma, budget=1, key=KEY)
        made.release(Mean(), rows, rng)
        cells.append(made.budget == 0)
    return follows(cells, {True: float(over), False: float(1 - over)})


def test_the_noisy_threshold_follows_its_law(seed):
    assert thresholds_scatter(seed)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_threshold_with_other_noise_is_caught(factor, seed):
    assert not thresholds_scatter(seed, factor)


def fresh_pairs_are_uniform() -> bool:
    """Over secret keys, the first two of six rows are any pair, equally often."""
    rows, rng = source(x=np.array([1, 2, 4, 8, 16, 32]) / 64), np.random.default_rng(0)
    keys = [key.to_bytes(32) for key in range(2_000)]
    sums = [round(128 * FreshRows(draws=2, key=key).release(Mean(), rows, rng).means[0]) for key in keys]
    return follows(sums, {one + two: 1 / 15 for one, two in combinations((1, 2, 4, 8, 16, 32), 2)})


def test_fresh_rows_are_any_rows():
    assert fresh_pairs_are_uniform()


def test_rows_taken_in_their_order_are_caught(monkeypatch):
    monkeypatch.setattr(draws, "permuted_block", lambda key, n, start, count: np.arange(start, start + count))
    assert not fresh_pairs_are_uniform()


def coin_from_mean_follows(law: Callable[[float], float], seed: int) -> bool:
    """With hardly any noise the coin has the bias of the data's mean."""
    rows, rng = source(x=VALUES), np.random.default_rng(seed)
    mechanism, bias = CoinFromMean(epsilon=1e6), law(float(np.mean(VALUES)))
    answers = [mechanism.release(Mean(), rows, rng).values[0] for _ in range(3_000)]
    return follows(answers, {1.0: bias, 0.0: 1 - bias})


def test_a_coin_from_a_mean_has_its_bias(seed):
    assert coin_from_mean_follows(lambda mean: mean, seed)


def test_a_coin_with_the_opposite_bias_is_caught(seed):
    assert not coin_from_mean_follows(lambda mean: 1 - mean, seed)


def test_a_share_needs_no_rounding(seed):
    """Coins of a share with nobody and everybody: only what was replaced is left."""
    rng = np.random.default_rng(seed)
    for value, bias in ((0.0, MASS), (1.0, 1 - MASS)):
        rows = source(x=[value] * 3)
        mechanism = Coins(draws=1, mass=MASS)
        cells = [mechanism.release(Share(), rows, rng).counts[1] for _ in range(4_000)]
        assert follows(cells, {1: bias, 0: 1 - bias})
        assert not follows(cells, {1: value or 1e-12, 0: (1 - value) or 1e-12})
