"""The posterior guarantee in small: exact moments of the leave-one-out ratios, intervals, refusals."""

from dataclasses import replace
from math import e, inf, prod, sqrt

import numpy as np
import pytest
from scipy.stats import binom

from holdfast.errors import InvalidArgument
from holdfast.guarantees import posterior
from holdfast.guarantees.mathematics import shares as coins
from holdfast.guarantees.mathematics.concentration import clopper_pearson
from holdfast.guarantees.statistic import OutcomeShares, Tally
from holdfast.session.planning import plan
from planned import certified, expected_release, planned
from toy_queries import Group, Histogram, Mean, Share


def moment(n: int, charge: int, mass: float, p: int, ones: int) -> float:
    """E[W^p] of a fixed question asked `charge` times on n rows of which `ones` say 1, exactly."""
    share = ones / n
    bias = mass + (1 - 2 * mass) * share
    total = 0.0
    for x in range(charge + 1):
        w = 0.0
        for value, many in ((1, ones), (0, n - ones)):
            if many:
                other = mass + (1 - 2 * mass) * (ones - value) / (n - 1)
                ratio = (other / bias) ** x * ((1 - other) / (1 - bias)) ** (charge - x)
                w += many * (ratio - 1) ** 2
        total += float(binom.pmf(x, charge, bias)) * w**p
    return total


@pytest.mark.parametrize("mass", [0.02, 0.1, 0.3])
@pytest.mark.parametrize(("n", "charge"), [(5, 3), (20, 10), (100, 60)])
def test_moments_of_one_question_stay_below_sigma(n, charge, mass):
    for ones in {0, 1, n // 2, n - 1}:
        for p in (2, 3, 5):
            double_factorial = prod(range(1, 2 * p, 2))
            root = (moment(n, charge, mass, p, ones) / double_factorial) ** (1 / p)
            assert root <= float(posterior.sigma(n, charge, mass, p))


def test_chi_is_the_best_order():
    settings = {"n": 10**5, "charge": 5 * 10**6, "mass": 0.02, "beta": 0.04}
    by_hand = []
    for p in range(2, 21):
        double_factorial = float(prod(range(1, 2 * p, 2)))
        sigma = float(posterior.sigma(settings["n"], settings["charge"], settings["mass"], p))
        by_hand.append(sigma / settings["n"] * (double_factorial / settings["beta"]) ** (1 / p))
    h = min(by_hand)
    assert posterior.chi(**settings) == pytest.approx(h / (1 - h), rel=1e-9)


def test_chi_promises_nothing_where_the_bound_is_useless():
    assert posterior.chi(10, 10**9, 0.01, 0.05) == inf
    assert posterior.chi(2, 1, 1e-7, 1e-9) == inf


def test_chi_of_arrays_is_chi_of_numbers():
    charge = np.array([1e6, 1e7, 1e12])
    several = posterior.chi_array(10**5, charge, 0.02, 0.04)
    assert [float(x) for x in several] == pytest.approx([posterior.chi(10**5, f, 0.02, 0.04) for f in charge])


def test_the_level_counts_e_times_every_interval():
    assert posterior.level(0.01, k=100) == pytest.approx(0.01 / (e * 100))


@pytest.mark.parametrize("chi", [1e-9, 0.01, 0.5, 3.0])
def test_widening_reaches_exactly_the_populations_that_theorem_1_allows(chi):
    """Every mu in [L, U] and every q(D) with (q(D)-mu)^2 <= chi mu(1-mu) lies inside; the ends are reached."""
    for low, high in [(0.0, 0.0), (0.1, 0.4), (0.5, 0.5), (0.0, 1.0), (0.98, 1.0)]:
        mu = np.linspace(low, high, 2001)
        reach = np.sqrt(chi * mu * (1 - mu))
        lo, hi = posterior.widen((low, high), chi=chi)
        assert lo <= max(0.0, float((mu - reach).min())) + 1e-12
        assert hi >= min(1.0, float((mu + reach).max())) - 1e-12
        if hi < 1:
            assert hi == pytest.approx(float((mu + reach).max()), abs=1e-9)
        if lo > 0:
            assert lo == pytest.approx(float((mu - reach).min()), abs=1e-9)


def test_nothing_is_promised_without_chi():
    assert posterior.widen((0.2, 0.3), chi=1e300) == (0.0, 1.0)
    assert posterior.outcome_interval(5, 10, outcomes=2, mass=0.1, chi=inf, level=0.1) == (0.0, 1.0)
    assert posterior.group_interval(5, 10, 20, mass=0.1, chi=inf, level=0.1) == (0.0, 1.0)


def test_a_rare_outcome_has_a_narrow_interval():
    settings = {"outcomes": 2, "mass": 0.002, "chi": 0.00138, "level": 1e-7}
    rare = posterior.outcome_interval(40, 18_000, **settings)
    fair = posterior.outcome_interval(9_000, 18_000, **settings)
    assert rare[0] == 0.0
    assert rare[1] < (fair[1] - fair[0]) / 5


def test_a_small_group_is_refused_an_interval_and_a_large_one_gets_it():
    settings = {"mass": 0.01, "chi": 0.002, "level": 1e-6}
    assert posterior.group_interval(100, 300, 10_000, **settings) == (0.0, 1.0)
    low, high = posterior.group_interval(3_000, 5_000, 10_000, **settings)
    assert 0 < low < 0.6 < high < 1


def test_the_interval_of_a_group_step_by_step():
    """The ones among the included are taken at a smaller level: how often the included fall is random too."""
    mass, chi, level = 0.01, 0.002, 1e-6
    pi = clopper_pearson(5_000, 10_000, level)
    theta = clopper_pearson(3_000, 5_000, pi[0] * 10_001 / 5_001 * level)
    share = (pi[0] - 2 * mass) / (1 - 3 * mass)
    low, high = coins.group_mean_range(theta, pi, mass=mass)
    step = chi / (share - chi)
    found = posterior.group_interval(3_000, 5_000, 10_000, mass=mass, chi=chi, level=level)
    assert found == pytest.approx((low - sqrt(step * low * (1 - low)), high + sqrt(step * high * (1 - high))))


def test_the_moment_bound_grows_with_the_flips():
    values = [float(posterior.sigma(10**6, charge, 0.01, 3)) for charge in (1, 10**3, 10**6, 10**9)]
    assert values == sorted(values)
    assert posterior.sigma(10**6, 10**14, 0.01, 3) == inf
    assert sqrt(values[0]) > 0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"n": 1}, "n must be a whole number of at least 2"),
        ({"charge": 0}, "charge must be positive"),
        ({"mass": 0.0}, "mass must be strictly between"),
        ({"mass": 0.5}, "mass must be at most 1/2"),
        ({"beta": 1.0}, "beta must be strictly between"),
    ],
)
def test_what_no_theorem_covers_is_refused(wrong, says):
    with pytest.raises(InvalidArgument, match=says):
        posterior.chi(**({"n": 100, "charge": 10, "mass": 0.1, "beta": 0.1} | wrong))


# -- by the terms of a plan -------------------------------------------------------------------------------------------


def test_coins_are_certified_by_the_theorem_they_stand_on():
    standing = planned("posterior", "coins").standing
    terms, ell = standing.terms, standing.terms.rows_per_query
    found = standing.share(Tally((0.3,), ell, (ell - ell // 3, ell // 3), (1,)), 0)
    level = posterior.level(terms.beta2, k=10)
    mean = posterior.outcome_mean(ell // 3, ell, outcomes=2, mass=terms.mass, level=level)
    assert found == posterior.widen_unlike(mean, h=terms.widening)
    alike = plan(rows=10**6, queries=10, guarantee="posterior", identical=True).standing
    ell, level = alike.terms.rows_per_query, posterior.level(alike.terms.beta2, k=10)
    found = alike.share(Tally((0.3,), ell, (ell - ell // 3, ell // 3), (1,)), 0)
    chi = {"chi": alike.terms.widening, "mass": alike.terms.mass}
    assert found == posterior.outcome_interval(ell // 3, ell, outcomes=2, **chi, level=level)


@pytest.mark.parametrize("query", [Share(), Mean(bounds=(-3.0, 5.0)), Group(), Histogram()], ids=str)
def test_terms_without_chi_promise_nothing(query):
    standing = planned("posterior", "coins").standing
    silent = posterior.Posterior(replace(standing.terms, widening=None))
    for estimate in certified(silent, query, expected_release(standing, query.statistic, 0.3)):
        assert (estimate.low, estimate.high) == query.bounds


def test_histograms_that_would_be_mostly_noise_are_refused():
    standing = planned("posterior", "coins").standing
    most = int(0.5 / standing.terms.mass)
    standing.supports(OutcomeShares(most))
    with pytest.raises(InvalidArgument, match=f"it allows {most}") as refusal:
        standing.supports(OutcomeShares(most + 1))
    assert refusal.value.fields == {"outcomes": most + 1, "most": most}
