"""The paper's sizes, recomputed from the formulas of docs/proofs/paper-sizes.md and checked at their hinges.

Each formula is followed by the inequalities it must imply (privacy by the exact price, accuracy by the exact
tail). Where the paper prints a smaller number, the same inequalities refute it.
"""

import math
from itertools import product

import numpy as np
import pytest
from scipy.stats import binom

from holdfast.guarantees.mathematics import sizes

SETTINGS = list(product((0.5, 0.1, 0.01), (0.2, 0.05, 1e-3), (1, 100, 10**5)))


def step(epsilon: float, delta: float, k: int) -> float:
    return epsilon / (2 * math.sqrt(2 * k * math.log(1 / delta)))


def zcdp(eps0: float, delta: float, k: int) -> float:
    rho = k * eps0**2 / 2
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def rows_without(ell: int, least: float, eps0: float) -> int:
    return max(ell, math.ceil(ell * math.expm1(least) / math.expm1(eps0)))


def rows_with(ell: int, least: float, eps0: float) -> int:
    return math.ceil(math.expm1(least) / math.expm1(eps0 / ell))


def inverse(n: int, ell: int, eps0: float, *, replacement: bool) -> float:
    if replacement:
        return math.log1p(n * math.expm1(eps0 / ell))
    return math.log1p(n / ell * math.expm1(eps0))


# The inequalities behind the transfer theorems.


def test_half_of_all_monitored_runs_fail() -> None:
    for beta in np.concatenate([np.linspace(1e-4, 1, 3000), 1 / np.arange(1, 60), 1 / np.arange(2, 60) + 1e-12]):
        rounds = math.floor(1 / beta)
        assert 1 - (1 - beta) ** rounds >= 0.5 - 1e-9


def test_constants_of_the_statistical_transfer() -> None:
    for alpha, beta in product(np.linspace(0.001, 1, 200), (0.9, 0.4, 0.05, 1e-6)):
        rounds = math.floor(1 / beta)
        right = alpha / 8 + 2 * rounds * alpha * beta / 16 + math.expm1(alpha / 64) + rounds * alpha * beta / 32
        assert right < alpha / 2


def test_constants_of_the_core_transfer() -> None:
    for gamma, beta, k in product(np.linspace(0.001, 1, 50), (0.9, 0.05, 1e-6), (1, 1000)):
        rounds = math.floor(1 / beta)
        n = 256 * math.log(2 * k / beta) / gamma**2
        epsilon, delta = gamma / 32, gamma * beta / 8
        right = math.expm1(2 * epsilon) + rounds * delta + 2 * math.log(2 * k * rounds) / (epsilon * n)
        assert right < gamma / 2


def test_absolute_values_cannot_be_bounded_by_privacy_alone() -> None:
    """A mechanism that says nothing is (0,0)-private, yet E|q(S) - q(D)| > 0 (n = 4, a fair coin)."""
    x = np.arange(5)
    law = binom.pmf(x, 4, 0.5)
    assert law @ np.abs(x / 4 - 0.5) > 0.18
    assert abs(law @ (x / 4 - 0.5)) < 1e-12


def test_expected_absolute_value_with_a_private_sign() -> None:
    """E|q(S)-q(D)| <= e^(eps+m) - 1 + delta + 2 log 2/(m n) for a fixed query (eps = delta = 0)."""
    for n in (1, 10, 1000):
        x = np.arange(n + 1)
        spread = float(binom.pmf(x, n, 0.5) @ np.abs(x / n - 0.5))
        for m in (0.01, 0.1, 1.0):
            assert spread <= math.expm1(m) + 2 * math.log(2) / (m * n)


# A1.


@pytest.mark.parametrize(("alpha", "beta", "k"), SETTINGS)
@pytest.mark.parametrize("replacement", [False, True])
def test_a1(alpha: float, beta: float, k: int, replacement: bool) -> None:
    alpha_s, beta_s, epsilon, delta = alpha / 8, alpha * beta / 16, alpha / 64, alpha * beta / 32
    eps0 = step(epsilon, delta, k)
    ell = math.ceil(2 * math.log(4 * k / beta_s) / alpha_s**2)
    least = 2 * math.log(2 * k / beta_s) / (ell * alpha_s)
    n = (rows_with if replacement else rows_without)(ell, least, eps0)
    inner = inverse(n, ell, eps0, replacement=replacement)
    noise = math.exp(-alpha_s / 2 * ell * inner)
    sampling = 2 * math.exp(-2 * ell * (alpha_s / 2) ** 2)
    assert k * (noise + sampling) <= beta_s * (1 + 1e-9)
    assert zcdp(eps0, delta, k) <= epsilon


def test_a1_example() -> None:
    alpha_s, beta_s = 0.1 / 8, 0.1 * 0.05 / 16
    ell = math.ceil(2 * math.log(4000 / beta_s) / alpha_s**2)
    least = 2 * math.log(2000 / beta_s) / (ell * alpha_s)
    assert ell == pytest.approx(2.1e5, rel=0.01)
    assert rows_without(ell, least, step(0.1 / 64, 0.1 * 0.05 / 32, 1000)) == pytest.approx(4.27e8, rel=0.005)


def test_the_linearised_size_of_a1_is_slightly_too_small() -> None:
    """n = 4 sqrt(2k log(1/delta)) log(2k/beta_S)/(alpha_S epsilon), with eps' inverted exactly."""
    alpha_s, beta_s, epsilon, delta, k = 0.1 / 8, 0.1 * 0.05 / 16, 0.1 / 64, 0.1 * 0.05 / 32, 1000
    ell = math.ceil(2 * math.log(4 * k / beta_s) / alpha_s**2)
    n = math.ceil(4 * math.sqrt(2 * k * math.log(1 / delta)) * math.log(2 * k / beta_s) / (alpha_s * epsilon))
    for replacement in (False, True):
        inner = inverse(n, ell, step(epsilon, delta, k), replacement=replacement)
        assert math.exp(-alpha_s / 2 * ell * inner) > beta_s / (2 * k)


def test_the_printed_noise_of_thm_lsq_is_a_factor_two_short() -> None:
    """Printed: eps' = epsilon n/(4 ell sqrt(2k log(1/delta))) at the printed n. The tail is sqrt(beta/2k)."""
    alpha, beta, k = 0.1, 0.05, 1000
    epsilon, delta = alpha / 64, alpha * beta / 32
    root = math.sqrt(2 * k * math.log(1 / delta))
    ell = 2 * math.log(4 * k / beta) / alpha**2
    n = 4 * root * math.log(2 * k / beta) / (alpha * epsilon)
    inner = epsilon * n / (4 * ell * root)
    tail = math.exp(-alpha * inner * ell / 2)
    assert tail == pytest.approx(math.sqrt(beta / (2 * k)))
    assert tail > beta / (2 * k)


@pytest.mark.parametrize("alpha", [1.0, 0.3, 0.05, 0.002])
@pytest.mark.parametrize("k", [1, 1000])
def test_a1_in_expectation(alpha: float, k: int) -> None:
    ell = math.ceil(4 / alpha**2)
    least = 4 / (ell * alpha)
    for epsilon, delta, absolute in ((alpha / 8, alpha / 4, False), (alpha / 16, alpha / 8, True)):
        eps0 = step(epsilon, delta, k)
        assert zcdp(eps0, delta, k) <= epsilon
        n = max(rows_without(ell, least, eps0), math.ceil(256 * math.log(2) / alpha**2) if absolute else 1)
        on_sample = 1 / (ell * inverse(n, ell, eps0, replacement=False)) + 1 / (2 * math.sqrt(ell))
        assert on_sample <= alpha / 2 + 1e-12
        if absolute:
            gap = math.expm1(2 * epsilon) + delta + 2 * math.log(2) / (epsilon * n)
        else:
            gap = math.expm1(epsilon) + delta
        assert on_sample + gap <= alpha


# A3, counts from flips, flips from counts.


def a3(alpha: float, beta: float, k: int) -> tuple[int, float]:
    a = alpha / 2
    eps0 = step(alpha / 64, alpha * beta / 16, k)
    n = max((1 - 2 * a) / (a * math.expm1(eps0)), 1024 * math.log(2 * k / beta) / alpha**2)
    return math.ceil(n), eps0


@pytest.mark.parametrize(("alpha", "beta", "k"), SETTINGS)
def test_a3_and_averages_of_it(alpha: float, beta: float, k: int) -> None:
    n, eps0 = a3(alpha, beta, k)
    assert math.log1p((1 - alpha) / (alpha / 2 * n)) <= eps0 * (1 + 1e-9)
    assert zcdp(eps0, alpha * beta / 16, k) <= alpha / 64
    ell = math.ceil(2 * math.log(4 * k / beta) / alpha**2)
    assert k * 2 * math.exp(-2 * ell * (alpha / 2) ** 2) <= beta / 2
    assert a3(alpha / 2, beta / 2, k * ell)[0] > n


def clipped_mean(x: float, b: float) -> float:
    """E clip(x + Lap(b)) to [0, 1], in closed form."""
    below = b / 2 * math.exp(-x / b)
    above = b / 2 * math.exp(-(1 - x) / b)
    return x + below - above


def test_bias_of_a_noisy_mean_turned_into_a_coin() -> None:
    rng = np.random.default_rng(0)
    for b in (0.01, 0.2, 1.0, 5.0):
        grid = (np.arange(400_001) - 200_000) / 200_000 * 40 * b
        weights = np.exp(-np.abs(grid) / b)
        weights /= weights.sum()
        for x in (0.0, 0.3, 0.5, 1.0, *rng.random(2)):
            numeric = float(weights @ np.clip(x + grid, 0, 1))
            assert clipped_mean(x, b) == pytest.approx(numeric, abs=1e-3 * b)
            assert abs(clipped_mean(x, b) - x) <= b / 2 + 1e-12


def test_under_the_papers_own_definition_flips_from_counts_need_fewer_rows() -> None:
    """E over all coins: bias b/2 = 1/(2 n eps0) on S. The full scan loses on rows read only."""
    alpha, beta, k = 0.1, 0.05, 10**6
    n, eps0 = a3(alpha, beta, k)
    full_scan = max(math.ceil(1 / (alpha * eps0)), math.ceil(1024 * math.log(2 * k / beta) / alpha**2))
    assert full_scan < n


# Lower bound.


def least_evaluations(alpha: float, s: float) -> float:
    return (1 - s) * math.log((2 - s) / s) / (8 * alpha * math.atanh(4 * alpha))


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.12])
@pytest.mark.parametrize("s", [0.8, 0.42])
def test_no_test_with_fewer_evaluations_tells_the_coins_apart(alpha: float, s: float) -> None:
    """For fixed m the best test has error sum 1 - TV, computed exactly; it must exceed s below the bound."""
    m = math.floor(least_evaluations(alpha, s))
    x = np.arange(m + 1)
    gap = binom.pmf(x, m, 0.5 + 2 * alpha) - binom.pmf(x, m, 0.5 - 2 * alpha)
    assert 1 - np.abs(gap).sum() / 2 >= s


def test_simple_constants_of_the_lower_bound() -> None:
    for alpha in np.linspace(1e-4, 0.125, 300):
        assert least_evaluations(alpha, 0.8) >= 1 / (434 * alpha**2)
        assert least_evaluations(alpha, 0.42) >= 1 / (46 * alpha**2)
    for universe, s in ((math.log(10), 0.8), (math.log(200), 0.42)):  # |X| alpha^2/2
        assert 2 * (0.2 + 2 * math.exp(-universe)) == pytest.approx(s)


# Descent.


def test_descent_sums() -> None:
    for rounds in (1, 2, 10, 1000):
        t = np.arange(1, rounds + 1)
        assert np.sum(1 / np.sqrt(t)) <= 2 * math.sqrt(rounds)
        assert np.sum(1 / t) <= 1 + math.log(rounds)


@pytest.mark.parametrize("alpha", [0.5, 0.05])
@pytest.mark.parametrize("dimension", [1, 7, 100])
@pytest.mark.parametrize("strong", [None, 0.1, 5.0])
def test_descent_through_a1(alpha: float, dimension: int, strong: float | None) -> None:
    k, diameter, gradient, loss = 50, 2.0, 1.0, 2.0
    width = 2 * gradient
    ell = max(1, math.ceil(dimension * width**2 / (2 * gradient**2)))
    if strong is None:
        rounds = math.ceil(18 * diameter**2 * gradient**2 / alpha**2)
    else:
        x = 4 * gradient**2 / (strong * alpha)
        rounds = math.ceil(2 * x * (1 + math.log(2 * x))) if x >= 0.5 else 1
    epsilon, delta = math.log1p(alpha / (8 * loss)), alpha / (8 * loss)
    eps0 = step(epsilon, delta, k * rounds * dimension)
    assert zcdp(eps0, delta, k * rounds * dimension) <= epsilon
    least = 2 * width * math.sqrt(dimension) / (ell * gradient)
    for replacement, rows in ((False, rows_without), (True, rows_with)):
        n = rows(ell, least, eps0)
        noise = 1 / (ell * inverse(n, ell, eps0, replacement=replacement))
        second = gradient**2 + dimension * width**2 * (1 / (4 * ell) + 2 * noise**2)
        assert second <= 2 * gradient**2 * (1 + 1e-9)
        if strong is None:
            on_sample = 1.5 * diameter * math.sqrt(second / rounds)
        else:
            on_sample = second * (1 + math.log(rounds)) / (strong * rounds)
        assert on_sample + 2 * loss * (math.expm1(epsilon) + delta) <= alpha * (1 + 1e-9)


@pytest.mark.parametrize("alpha", [1.0, 0.3, 0.05])
@pytest.mark.parametrize("loss", [0.2, 1.0, 10.0])
@pytest.mark.parametrize("k", [1, 10_000])
def test_eight_and_a_half(alpha: float, loss: float, k: int) -> None:
    """Coins, ell = d: n >= max(1000, 8.5 R D G d sqrt(k)/alpha^2), T = round(18 (DG/alpha)^2)."""
    dimension, diameter, gradient = 20, 1.0, 1.0
    n = max(1000, math.ceil(8.5 * loss * diameter * gradient * dimension * math.sqrt(k) / alpha**2))
    rounds = round(18 * (diameter * gradient / alpha) ** 2)
    second = gradient**2 * (1 + (n / (n - 2)) ** 2)
    nats = k * rounds * dimension**2 / (2 * n)
    excess = 1.5 * diameter * math.sqrt(second / rounds) + 2 * loss * math.sqrt(nats / (2 * n))
    assert excess <= alpha


@pytest.mark.parametrize("alpha", [0.5, 0.05])
@pytest.mark.parametrize("strong", [None, 0.1, 5.0])
def test_boosted_descent(alpha: float, strong: float | None) -> None:
    """A quarter for the best of m runs, a quarter for choosing it, a half for the step to the population."""
    k, beta, dimension, diameter, gradient, loss = 50, 0.05, 7, 2.0, 1.0, 2.0
    width = 2 * gradient
    runs = math.ceil(math.log2(3 * k / beta))
    assert k * 0.5**runs <= beta / 3
    ell = max(1, math.ceil(dimension * width**2 / (2 * gradient**2)))
    if strong is None:
        rounds = math.ceil(288 * diameter**2 * gradient**2 / alpha**2)
        expected = 1.5 * diameter * math.sqrt(2 * gradient**2 / rounds)
    else:
        x = 16 * gradient**2 / (strong * alpha)
        rounds = math.ceil(2 * x * (1 + math.log(2 * x))) if x >= 0.5 else 1
        expected = 2 * gradient**2 * (1 + math.log(rounds)) / (strong * rounds)
    assert 2 * expected <= alpha / 4 * (1 + 1e-9)
    gamma = alpha / (4 * loss)
    steps = k * (runs * rounds * dimension + 1)
    eps0 = step(gamma / 32, gamma * beta / 24, steps)
    assert zcdp(eps0, gamma * beta / 24, steps) <= gamma / 32
    least = 2 * width * math.sqrt(dimension) / (ell * gradient)
    n = max(
        rows_without(ell, least, eps0),
        math.ceil(8 * loss * math.log(3 * k * runs / beta) / (alpha * eps0)),
        math.ceil(256 * math.log(6 * k / beta) / gamma**2),
    )
    assert 2 * loss / (n * eps0) * math.log(3 * k * runs / beta) <= alpha / 4
    assert 2 * loss * gamma <= alpha / 2


def test_printed_sampling_transfer_is_saved_by_slack_for_many_queries() -> None:
    for ratio in (18.0, 100.0, 1e6):
        assert 1024 * math.log(ratio) >= 823 * math.log(2 * ratio)
    assert 1024 * math.log(17.0) < 823 * math.log(34.0)
    assert math.expm1(1 / 32) + 1 / 16 + 2 * 64 / 823 < 1 / 4


def monitored(alpha: float, beta: float, share: float) -> float:
    """The left side of (M), for a failure probability of `share` times beta, at the constants of a planned session."""
    runs = math.floor(1 / (share * beta))
    on_sample, lost = alpha / 8, alpha * beta / 16
    return on_sample + 2 * runs * lost + math.expm1(alpha / 64) + runs * alpha * beta / 32


@pytest.mark.parametrize(("alpha", "beta", "k"), SETTINGS)
def test_fits_in_a_session_planned_for_answers(alpha: float, beta: float, k: int) -> None:
    """Answers, the core and the rows share beta; the session's privacy is what the core asks for."""
    assert monitored(alpha, beta, 0.45) < alpha / 2
    assert 0.45 + 0.5 + 0.05 == 1.0
    n = 10**9
    found = sizes.private_answers(alpha, beta, k=k, n=n)
    assert found.epsilon <= found.gap / 32 * (1 + 1e-12)
    assert found.delta <= found.gap * (beta / 2) / 8 * (1 + 1e-12)
    assert n >= 256 * math.log(2 * k / (beta / 2)) / found.gap**2 * (1 - 1e-12)
    assert k * found.level == pytest.approx(0.05 * beta)
    few = sizes.private_answers(alpha, beta, k=k, n=1_000)
    assert 256 * math.log(2 * k / (beta / 2)) / few.gap**2 <= 1_000 * (1 + 1e-12)

    planned = sizes.cq_by_scq(alpha, beta, k)
    found = sizes.private_coins(alpha, beta, k=k, n=planned.n)
    coins = k * planned.ell
    assert planned.epsilon_per_query == pytest.approx(step(found.epsilon, found.delta, coins))
    assert found.epsilon <= found.gap / 32 * (1 + 1e-12)
    assert found.delta <= found.gap * (beta / 2) / 8 * (1 + 1e-12)
    assert planned.n >= 256 * math.log(2 * coins / (beta / 2)) / found.gap**2 * (1 - 1e-12)
    assert 2 * k <= coins
    assert math.log1p((1 - 2 * planned.mass) / (planned.mass * planned.n)) >= (1 - 1e-6) / planned.n


def test_a_smaller_share_for_the_answers_would_not_do() -> None:
    assert monitored(0.5, 1e-3, 0.43) > 0.5 / 2


@pytest.mark.parametrize("strong", [0.0, 0.5])
def test_full_gradients_have_the_moment_of_descent_through_a1(strong: float) -> None:
    d, width, gradient = 7, 2.0, 1.5
    size = sizes.full_gradient_descent(
        0.1, 50, d=d, diameter=2.0, gradient=gradient, width=width, spread=1.0, strong=strong
    )
    scale = width / (size.n * size.epsilon_per_query)
    assert gradient**2 + 2 * d * scale**2 <= 2 * gradient**2
    fewer = width / (0.99 * size.n * size.epsilon_per_query)
    assert gradient**2 + 2 * d * fewer**2 > 2 * gradient**2  # no slack
