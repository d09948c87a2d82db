"""Exact privacy of the paper's mechanisms on small samples, and of what is printed where that fails.

Laplace answers are mixtures of shifted Laplace laws. Between two kinks the ratio of two such densities is
that of A e^-y + B e^y and C e^-y + D e^y, hence monotone: it is enough to look at the kinks and far out.
"""

import math
from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

Array = NDArray[np.float64]
SLACK = 1e-10
SIZES = [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3), (3, 2), (4, 3), (5, 2), (5, 4)]
EPSILONS = [0.05, 0.5, 1.0, 2.0, 5.0]


def density(values: tuple[float, ...], draws: list[tuple[int, ...]], epsilon: float, y: Array) -> Array:
    """Density of mean(drawn values) + Lap(1/(ell epsilon)) at y, every draw equally likely."""
    ell = len(draws[0])
    means = np.array([sum(values[i] for i in draw) / ell for draw in draws])
    rate = ell * epsilon
    return np.asarray((rate / 2 * np.exp(-rate * np.abs(y[:, None] - means))).mean(axis=1))


def worst_ratio(n: int, ell: int, epsilon: float, *, replacement: bool) -> float:
    """The largest |log-ratio| over neighboring samples with values in {0, 1/2, 1} and all outputs."""
    if replacement:
        draws = list(product(range(n), repeat=ell))
    else:
        draws = list(combinations(range(n), ell))
    y = np.concatenate([np.arange(2 * ell + 1) / (2 * ell), [-1.0, 2.0]])
    worst = 0.0
    for rest in product((0.0, 0.5, 1.0), repeat=n - 1):
        laws = [density((x, *rest), draws, epsilon, y) for x in (0.0, 0.5, 1.0)]
        for one, two in product(laws, repeat=2):
            worst = max(worst, float(np.log(one / two).max()))
    return worst


def without_replacement(epsilon: float, ell: int, n: int) -> float:
    return math.log1p(ell / n * math.expm1(epsilon))


def with_replacement(epsilon: float, ell: int, n: int) -> float:
    return ell * math.log1p(math.expm1(epsilon) / n)


def printed_with_replacement(epsilon: float, ell: int, n: int) -> float:
    return math.log1p((1 - (1 - 1 / n) ** ell) * math.expm1(epsilon))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("n", "ell"), SIZES)
def test_laplace_mean_with_replacement_is_exactly_priced(n: int, ell: int, epsilon: float) -> None:
    assert worst_ratio(n, ell, epsilon, replacement=True) == pytest.approx(with_replacement(epsilon, ell, n), abs=SLACK)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("n", "ell"), [(n, ell) for n, ell in SIZES if ell <= n])
def test_laplace_mean_without_replacement_is_exactly_priced(n: int, ell: int, epsilon: float) -> None:
    exact = worst_ratio(n, ell, epsilon, replacement=False)
    assert exact == pytest.approx(without_replacement(epsilon, ell, n), abs=SLACK)


def test_the_printed_price_with_replacement_fails() -> None:
    for n, ell in SIZES:
        exact = worst_ratio(n, ell, 0.5, replacement=True)
        printed = printed_with_replacement(0.5, ell, n)
        assert (exact <= printed + SLACK) == (ell == 1)


def test_inverses() -> None:
    for n, ell, eps0 in product((1, 3, 100, 10**6), (1, 2, 50), (1e-6, 0.3, 4.0)):
        assert with_replacement(math.log1p(n * math.expm1(eps0 / ell)), ell, n) == pytest.approx(eps0, rel=1e-9)
        if ell <= n:
            assert without_replacement(math.log1p(n / ell * math.expm1(eps0)), ell, n) == pytest.approx(eps0, rel=1e-9)


def test_linear_amplification_needs_a_small_epsilon() -> None:
    for ell, n in ((1, 10), (5, 100)):
        for eps in (0.1, 0.5, 1.0):
            assert without_replacement(eps, ell, n) <= 2 * ell / n * eps
            assert with_replacement(eps, ell, n) <= 2 * ell / n * eps
    assert without_replacement(4.0, 1, 1000) > 2 / 1000 * 4.0  # printed epsilon' above 1: not private enough


def test_a_mechanism_that_attains_the_price_with_replacement() -> None:
    """P(1 | drawn) = c e^(eps J) is eps-DP, J = draws of the special row; the price is E e^(eps J)."""
    eps, ell, n = 0.7, 3, 4
    j = np.arange(ell + 1)
    c = 0.1 * math.exp(-eps * ell)
    one = c * np.exp(eps * j)
    assert np.all(np.abs(np.diff(np.log(one))) <= eps + SLACK)
    assert np.all(np.abs(np.diff(np.log(1 - one))) <= eps)
    ratio = (binom.pmf(j, ell, 1 / n) @ one) / c
    assert math.log(ratio) == pytest.approx(with_replacement(eps, ell, n))


@pytest.mark.parametrize("n", [1, 2, 3, 10, 57])
@pytest.mark.parametrize("a", [0.001, 0.05, 0.25, 0.49, 0.5])
def test_price_of_one_flipped_row_for_all_counts(n: int, a: float) -> None:
    count = np.arange(n + 1)
    one = a + (1 - 2 * a) * count / n
    worst = max(np.abs(np.diff(np.log(one))).max(), np.abs(np.diff(np.log(1 - one))).max())
    assert worst == pytest.approx(math.log1p((1 - 2 * a) / (a * n)), abs=SLACK)


def test_fractional_rows_do_not_raise_the_price_of_a_flipped_row() -> None:
    rng = np.random.default_rng(0)
    a, n = 0.05, 5
    for _ in range(300):
        rest, x, y = rng.random(n - 1), rng.random(), rng.random()
        one = [a + (1 - 2 * a) * (rest.sum() + v) / n for v in (x, y)]
        for p, q in (one, [1 - v for v in one]):
            assert abs(math.log(p / q)) <= math.log1p((1 - 2 * a) / (a * n)) + SLACK


# Composition: randomized response is the worst pure-DP step, so its k-fold delta is exact.


def exact_delta(eps0: float, k: int, epsilon: float) -> float:
    """The smallest delta for which k eps0-DP steps are always (epsilon, delta)-DP."""
    p = 1 / (1 + math.exp(-eps0))
    j = np.arange(k + 1)
    loss = (2 * j - k) * eps0
    law = binom.pmf(j, k, p)
    return float(np.sum(law * -np.expm1(np.minimum(0, epsilon - loss))))


def zcdp_epsilon(eps0: float, k: int, delta: float) -> float:
    rho = k * eps0**2 / 2
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


@pytest.mark.parametrize("k", [1, 2, 10, 300])
@pytest.mark.parametrize("eps0", [0.001, 0.05, 0.5, 2.0])
def test_zcdp_covers_the_exact_composition(k: int, eps0: float) -> None:
    for delta in (0.3, 1e-2, 1e-6):
        assert exact_delta(eps0, k, zcdp_epsilon(eps0, k, delta)) <= delta


@pytest.mark.parametrize("k", [1, 2, 10, 300])
@pytest.mark.parametrize("epsilon", [0.001, 0.1, 0.99])
def test_the_papers_composition_lemma(k: int, epsilon: float) -> None:
    for delta in (0.5, 1e-2, 1e-6, 1e-12):
        eps0 = epsilon / (2 * math.sqrt(2 * k * math.log(1 / delta)))
        assert exact_delta(eps0, k, epsilon) <= delta
        assert zcdp_epsilon(eps0, k, delta) <= epsilon


def test_a_composition_that_grows_too_slowly_is_caught() -> None:
    eps0, k, delta = 0.05, 300, 1e-2
    assert exact_delta(eps0, k, zcdp_epsilon(eps0, k, delta) / 2) > delta


# From privacy to the population: pure DP bounds every posterior.


def posterior_distance(population: Array, n: int, a: float, rules: Array) -> Array:
    """Total variation between D and D_T for every transcript of flips with the given 0/1 rules."""
    points = len(population)
    samples = np.array(list(product(range(points), repeat=n)))
    weight = population[samples].prod(axis=1)
    share = (samples[:, :, None] == np.arange(points)).mean(axis=1)
    distances = []
    for answers in product((0, 1), repeat=len(rules)):
        joint = weight.copy()
        for rule, answer in zip(rules, answers, strict=True):
            one = a + (1 - 2 * a) * rule[samples].mean(axis=1)
            joint = joint * (one if answer else 1 - one)
        distances.append(np.abs((joint @ share) / joint.sum() - population).sum() / 2)
    return np.array(distances)


def test_posteriors_of_private_sessions_stay_near_the_population() -> None:
    """q(D_T) - q(D) <= e^eps - 1 for all T and q at once, eps the price of all flips together (delta = 0)."""
    rng = np.random.default_rng(12)
    nearest = 0.0
    for _ in range(150):
        n, a, flips = int(rng.integers(1, 6)), float(rng.choice([0.1, 0.3, 0.45])), int(rng.integers(1, 4))
        population = rng.dirichlet(np.ones(3))
        rules = rng.integers(0, 2, size=(flips, 3)).astype(float)
        bound = math.expm1(flips * math.log1p((1 - 2 * a) / (a * n)))
        distance = posterior_distance(population, n, a, rules).max()
        assert distance <= bound + SLACK
        nearest = max(nearest, distance / bound)
    assert nearest > 0.2
