"""Amplification, composition, transfer: against exact laws, their inverses, what is printed, and what they refuse.

What sampling is worth: the same functions the mechanism uses, against exact output laws of tiny mechanisms.

The mean of ell drawn values plus Laplace noise has a mixture of shifted Laplace densities. Between two kinks the
log-ratio of two such mixtures is monotone, so its maximum is at a kink or far out.
"""

from itertools import combinations, product
from math import exp, expm1, log, log1p

import numpy as np
import pytest

from holdfast.errors import InvalidArgument
from holdfast.guarantees.mathematics import privacy
from holdfast.guarantees.mathematics.privacy import advanced_step, zcdp_epsilon, zcdp_step
from holdfast.mechanisms.noisy_means import Laplace

# -- amplification ------------------------------------------------------------------------------------------------


SIZES = [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (4, 3), (5, 2), (6, 1)]  # n, ell
LEVELS = (0.0, 0.5, 1.0)


def density(values: tuple[float, ...], draws: list[tuple[int, ...]], scale: float) -> np.ndarray:
    """The law of the released mean, at every kink and far out."""
    ell = len(draws[0])
    points = np.concatenate([np.arange(2 * ell + 1) / (2 * ell), [-2.0, 3.0]])
    means = np.array([sum(values[i] for i in draw) / ell for draw in draws])
    return np.exp(-np.abs(points[:, None] - means) / scale).mean(axis=1) / (2 * scale)


def exact_epsilon(mechanism: Laplace, n: int) -> float:
    """The largest log-ratio over neighboring samples, at the scale the mechanism itself would use."""
    choose = (
        product(range(n), repeat=mechanism.draws) if mechanism.replacement else combinations(range(n), mechanism.draws)
    )
    draws, worst = list(choose), 0.0
    for rest in product(LEVELS, repeat=n - 1):
        laws = [density((x, *rest), draws, mechanism.scale(n)) for x in LEVELS]
        worst = max(worst, max(float(np.log(one / two).max()) for one in laws for two in laws))
    return worst


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 3.0])
@pytest.mark.parametrize(("n", "ell"), SIZES)
def test_a_sampled_laplace_answer_is_exactly_as_private_as_it_says(n, ell, epsilon, replacement):
    mechanism = Laplace(draws=ell, epsilon=epsilon, replacement=replacement)
    assert exact_epsilon(mechanism, n) == pytest.approx(epsilon, rel=1e-9)


def test_the_exact_cases_include_more_than_one_nat_on_the_drawn_rows():
    spent = [Laplace(draws=ell, epsilon=0.3).epsilon_on_drawn(n) for n, ell in SIZES]
    assert min(spent) < 1 < max(spent)


def test_the_linear_rule_of_thumb_would_overspend():
    """eps' = epsilon n/ell, without the logarithm, is not private enough: the exact test sees it."""
    n, ell, epsilon = 6, 1, 1.0
    wrong = Laplace(draws=ell, epsilon=privacy.without_replacement(epsilon * n / ell, ell=ell, n=n))
    assert exact_epsilon(wrong, n) > epsilon * 1.5


@pytest.mark.parametrize("flip", [0.01, 0.1, 0.25, 0.49, 0.5])
@pytest.mark.parametrize("n", [1, 2, 3, 10, 57])
def test_the_price_of_a_coin_is_the_enumerated_maximum(flip, n):
    def ones(count: int) -> float:
        return flip + (1 - 2 * flip) * count / n

    ratios = [
        abs(log(law(count + 1) / law(count))) for count in range(n) for law in (ones, lambda count: 1 - ones(count))
    ]
    assert privacy.coin_epsilon(flip, n=n) == pytest.approx(max(ratios), abs=1e-12)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-3, 1.0, 20.0])
@pytest.mark.parametrize(("ell", "n"), [(1, 1), (1, 10**12), (10**6, 10**9), (17, 17)])
def test_inverses_invert(epsilon, ell, n):
    for there, back in [
        (privacy.without_replacement, privacy.epsilon_without_replacement),
        (privacy.with_replacement, privacy.epsilon_with_replacement),
    ]:
        assert back(there(epsilon, ell=ell, n=n), ell=ell, n=n) == pytest.approx(epsilon, rel=1e-9)


def test_with_replacement_stays_within_twice_the_linear_rule():
    for epsilon in (0.01, 0.5, 1.0):
        for n, ell in [(10, 3), (1000, 999), (10**6, 10**3)]:
            assert privacy.with_replacement(epsilon, ell=ell, n=n) <= 2 * ell / n * epsilon


def test_the_printed_price_with_replacement_is_too_low():
    """One row, drawn twice: 2 epsilon, not epsilon."""
    assert privacy.with_replacement(0.5, ell=2, n=1) == pytest.approx(1.0)
    printed = log1p((1 - (1 - 1 / 1) ** 2) * expm1(0.5))
    wrong = Laplace(draws=2, epsilon=privacy.with_replacement(printed, ell=2, n=1), replacement=True)
    assert exact_epsilon(wrong, 1) > 0.99 > exp(-0.5)


# -- composition --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 1000, 10**12])
@pytest.mark.parametrize("delta", [0.5, 1e-6, 1e-100])
@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 5.0])
def test_the_step_inverts_the_total(epsilon, delta, k):
    assert zcdp_epsilon(zcdp_step(epsilon, delta, k=k), delta, k=k) == pytest.approx(epsilon, rel=1e-12)


def test_one_bound_is_about_twice_the_other():
    assert 1.9 < zcdp_step(0.1, 1e-8, k=500) / advanced_step(0.1, 1e-8, k=500) < 2.0


def test_the_papers_lemma_by_hand():
    assert advanced_step(0.5, 1e-6, k=100) == pytest.approx(0.5 / (2 * (200 * 13.815510557964274) ** 0.5))


# -- transfer -----------------------------------------------------------------------------------------------------


def test_statistical_queries_ask_for_an_eighth():
    demand = privacy.statistical_queries(0.1, 0.05)
    assert demand == privacy.Demand(0.1 / 64, 0.1 * 0.05 / 32, 0.0125, 0.1 * 0.05 / 16, 1.0)


def test_sampling_queries_ask_for_rows():
    demand = privacy.sampling_queries(0.1, 0.05, k=1000)
    assert (demand.epsilon, demand.delta) == (0.1 / 64, 0.1 * 0.05 / 16)
    assert demand.least_rows == pytest.approx(1024 * log(2 * 1000 / 0.05) / 0.01)


@pytest.mark.parametrize("alpha", [1e-6, 0.1, 0.5, 1.0])
def test_in_expectation_half_the_error_is_left(alpha):
    assert privacy.in_expectation(alpha / 8, alpha / 4) <= alpha / 2


def test_jung_adds_up():
    alpha, beta = privacy.jung(0.01, 1e-6, 0.02, 1e-8, c=0.03, d=0.04)
    assert alpha == pytest.approx(0.01 + expm1(0.02) + 0.03 + 0.08)
    assert beta == pytest.approx(1e-6 / 0.03 + 1e-8 / 0.04)


# -- all three ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: privacy.without_replacement(0.0, ell=1, n=2), "epsilon must be positive"),
        (lambda: privacy.without_replacement(1.0, ell=3, n=2), r"ell must be at most n \(2\)"),
        (lambda: privacy.epsilon_without_replacement(1.0, ell=3, n=2), r"ell must be at most n \(2\)"),
        (lambda: privacy.with_replacement(1.0, ell=1, n=0), "n must be a whole number"),
        (lambda: privacy.coin_epsilon(0.0, n=5), "mass must be positive"),
        (lambda: privacy.coin_epsilon(0.6, n=5), "mass must be at most 1/2"),
        (lambda: advanced_step(1.5, 1e-6, k=3), r"epsilon must be at most 1 \(1.0\)"),
        (lambda: advanced_step(0.5, 0.0, k=3), "delta must be strictly between"),
        (lambda: advanced_step(0.5, 0.6, k=3), "delta must be at most 1/2"),
        (lambda: zcdp_epsilon(0.0, 0.1, k=3), "eps0 must be positive"),
        (lambda: zcdp_step(0.5, 1.0, k=3), "delta must be strictly between"),
        (lambda: zcdp_step(0.5, 0.1, k=0), "k must be positive"),
        (lambda: privacy.statistical_queries(0.0, 0.1), "alpha must be strictly between"),
        (lambda: privacy.statistical_queries(0.1, 1.0), "beta must be strictly between"),
        (lambda: privacy.sampling_queries(0.1, 0.1, k=0), "k must be a whole number"),
        (lambda: privacy.jung(0.1, 0.1, 0.1, 0.0, c=0.0, d=0.1), "c must be positive"),
    ],
)
def test_what_no_theorem_covers_is_refused(call, says):
    with pytest.raises(InvalidArgument, match=says):
        call()
