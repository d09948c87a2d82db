"""Hoeffding, Chernoff with Bernoulli divergence and Clopper-Pearson against exact binomial laws."""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from mpmath import mp, mpf  # type: ignore[import-untyped]
from scipy.special import ndtr, ndtri
from scipy.stats import beta as beta_law
from scipy.stats import binom, hypergeom

SLACK = 1e-10
BIASES = (0.0, 1e-3, 0.1, 0.37, 0.5, 0.9, 1.0)


def kl(p: float, q: float) -> float:
    if p == q:
        return 0.0
    if q in (0.0, 1.0):
        return math.inf
    return (p * math.log(p / q) if p else 0.0) + ((1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0.0)


def ends(ell: int, level: float) -> tuple[np.ndarray, np.ndarray]:
    x = np.arange(ell + 1)
    low = np.where(x == 0, 0.0, beta_law.ppf(level / 2, np.maximum(x, 1), ell - x + 1))
    high = np.where(x == ell, 1.0, beta_law.isf(level / 2, x + 1, np.maximum(ell - x, 1)))
    return low, high


@pytest.mark.parametrize("n", [1, 2, 7, 60])
def test_chernoff_with_bernoulli_divergence(n: int) -> None:
    x = np.arange(n + 1)
    for bias in BIASES:
        law = binom.pmf(x, n, bias)
        exponents = np.array([n * kl(i / n, bias) for i in x])
        for r in (0.1, 1.0, 3.0, 10.0):
            for side in (x >= n * bias, x <= n * bias):
                assert law[side & (exponents >= r)].sum() <= math.exp(-r) + SLACK


@pytest.mark.parametrize("ell", [1, 2, 9, 80])
@pytest.mark.parametrize("level", [0.5, 0.05, 1e-4])
def test_clopper_pearson_misses_each_side_at_most_half_the_level(ell: int, level: float) -> None:
    low, high = ends(ell, level)
    assert low[0] == 0
    assert high[-1] == 1
    for bias in np.concatenate([np.linspace(0, 1, 101), low[low > 0] - 1e-9, high[high < 1] + 1e-9]):
        law = binom.pmf(np.arange(ell + 1), ell, bias)
        assert law[low > bias].sum() <= level / 2 + SLACK
        assert law[high < bias].sum() <= level / 2 + SLACK


def test_one_sided_tails_at_the_whole_level_are_caught() -> None:
    low, high = ends(80, 0.2)
    worst = max(binom.pmf(np.arange(81), 80, b)[(low > b) | (high < b)].sum() for b in np.linspace(0.05, 0.95, 400))
    assert worst > 0.1


@pytest.mark.parametrize("ell", [1, 5, 100, 3000])
@pytest.mark.parametrize("level", [0.3, 1e-3, 1e-9])
def test_ends_lie_within_hoeffding_and_within_the_normal_width(ell: int, level: float) -> None:
    low, high = ends(ell, level)
    share = np.arange(ell + 1) / ell
    reach = max((high - share).max(), (share - low).max())
    assert reach <= math.sqrt(math.log(2 / level) / (2 * ell)) + SLACK
    assert reach <= -ndtri(level / 2) / (2 * math.sqrt(ell)) + 1 / ell + SLACK


@pytest.mark.parametrize("n", [1, 3, 40])
def test_zubkov_and_serov(n: int) -> None:
    """P(X <= k) <= Phi(sign((k+1)/n - p) sqrt(2 n kl((k+1)/n || p)))."""
    for p in (0.01, 0.3, 0.5, 0.8):
        for k in range(n):
            x = (k + 1) / n
            assert binom.cdf(k, n, p) <= ndtr(math.copysign(math.sqrt(2 * n * kl(x, p)), x - p)) + SLACK


def test_hoeffding_without_replacement() -> None:
    n, ell = 40, 12
    for ones in range(n + 1):
        j = np.arange(ell + 1)
        law = hypergeom.pmf(j, n, ones, ell)
        for t in (0.05, 0.2, 0.4):
            assert law[np.abs(j / ell - ones / n) >= t - 1e-12].sum() <= 2 * math.exp(-2 * ell * t * t)


def test_binomial_tails_are_beta_laws() -> None:
    for ell, x, p in ((5, 2, 0.3), (40, 1, 0.01), (40, 40, 0.99)):
        assert binom.sf(x - 1, ell, p) == pytest.approx(beta_law.cdf(p, x, ell - x + 1), rel=1e-10)


def distribution(a: int, b: int, u: mpf) -> mpf:
    return mp.betainc(a, b, 0, mp.exp(u), regularized=True)


def farthest_over(last_step: Callable[[mpf, mpf], mpf]) -> mpf:
    """Return how far, at most, a step leads above the tail it aims at, as a ratio; from every start of a grid."""
    most = mpf(0)
    for (a, b), level in product(((1, 1), (1, 6), (3, 4), (5, 1), (30, 9), (9, 30)), (0.3, 1e-3, 1e-9)):
        for start in (0.02, 0.2, 0.5, 0.9):
            u = mp.log(mpf(start))
            p, reached = mp.exp(u), distribution(a, b, u)
            slope = p**a * (1 - p) ** (b - 1) / mp.beta(a, b) / reached
            step = (mp.log(mpf(level)) - mp.log(reached)) / slope
            bend = step * (a - (b - 1) * p / (1 - p) - slope) / 2
            most = max(most, distribution(a, b, min(mpf(0), u + last_step(step, bend))) / mpf(level))
    return most


def test_newtons_step_leads_to_a_tail_that_is_small_enough() -> None:
    mp.dps = 50
    assert farthest_over(lambda step, bend: step) <= 1 + mpf(10) ** -40


def test_halleys_as_the_last_step_is_caught() -> None:
    mp.dps = 50
    assert farthest_over(lambda step, bend: step / (1 + max(bend, mpf(-1) / 2))) > 1.01


def slack_of(t: float) -> float:
    """t - log(1+t) by its series, as the stable divergence uses it for small t."""
    return t * t * (1 / 2 - t * (1 / 3 - t * (1 / 4 - t * (1 / 5 - t * (1 / 6 - t * (1 / 7 - t / 8))))))


def test_divergence_written_with_the_gap_keeps_its_digits() -> None:
    mp.dps = 50
    for p, gap in ((0.5, 1e-7), (0.01, 3e-9), (0.9, -1e-8)):
        q = mpf(p) + mpf(gap)
        exact = mpf(p) * mp.log(mpf(p) / q) + (1 - mpf(p)) * mp.log((1 - mpf(p)) / (1 - q))
        stable = p * slack_of(gap / p) + (1 - p) * slack_of(-gap / (1 - p))
        assert stable == pytest.approx(float(exact), rel=1e-12)
        naive = kl(p, p + gap)  # the textbook form has lost them
        assert abs(naive / float(exact) - 1) > 1e-6
