"""Tails: known values, ends of the range, refusals."""

import sys
from itertools import pairwise
from math import exp, inf, log, sqrt

import numpy as np
import pytest
from scipy import special as scipy_special
from scipy.stats import binom

from holdfast.errors import InvalidArgument
from holdfast.guarantees.mathematics import WORTH_IMPORTING, concentration, special
from holdfast.guarantees.mathematics.concentration import (
    clopper_pearson,
    clopper_pearson_beside,
    clopper_pearson_each,
    clopper_pearson_width,
    clopper_pearsons,
    hoeffding_radius,
    kl,
    kl_lower,
    kl_range,
    kl_upper,
    laplace_radius,
    tangents,
)


def test_hoeffding_inverts_its_tail():
    t = hoeffding_radius(1000, 0.01)
    assert 2 * exp(-2 * 1000 * t * t) == pytest.approx(0.01, rel=1e-12)


def test_laplace_radius_inverts_its_tail():
    assert exp(-laplace_radius(0.3, 1e-9) / 0.3) == pytest.approx(1e-9, rel=1e-9)
    assert laplace_radius(1.0, 2.0) == 0.0  # a level above one promises nothing


@pytest.mark.parametrize("wrong", [{"ell": 0, "beta": 0.1}, {"ell": 10, "beta": 0}, {"ell": 10, "beta": -1}])
def test_nonsense_is_refused(wrong):
    with pytest.raises(InvalidArgument, match="must be positive"):
        hoeffding_radius(**wrong)


@pytest.mark.parametrize(("p", "q", "value"), [(0, 0, 0), (1, 1, 0), (0, 0.5, log(2)), (1, 0.25, log(4))])
def test_divergence_at_the_ends(p, q, value):
    assert kl(p, q) == pytest.approx(value, abs=1e-15)


def test_divergence_is_infinite_where_the_support_is_missing():
    assert kl(0.5, 0.0) == inf
    assert kl(0.5, 1.0) == inf
    assert kl(0.0, 1.0) == inf


def test_divergence_from_a_share_that_is_next_to_nothing():
    assert kl(0.5, 1e-30) == pytest.approx(0.5 * log(0.25e30))
    assert kl(1.0, 5e-324) == pytest.approx(-log(5e-324))


def test_divergence_of_a_denormal_share_is_that_of_zero():
    assert kl(5e-324, 0.5) == pytest.approx(log(2))


@pytest.mark.parametrize("p", [-0.1, 1.1])
def test_divergence_takes_shares(p):
    with pytest.raises(InvalidArgument, match="must be between 0 and 1"):
        kl(p, 0.5)


@pytest.mark.parametrize("p", [0.0, 1e-300, 1e-9, 0.3, 1 - 1e-9, 1.0])
def test_no_budget_leaves_the_share_where_it_is(p):
    assert kl_lower(p, 0.0) <= p <= kl_upper(p, 0.0)
    assert kl_upper(p, 0.0) - kl_lower(p, 0.0) < 1e-15


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_an_infinite_budget_allows_everything(p):
    assert (kl_lower(p, inf), kl_upper(p, inf)) == (0.0, 1.0)


def test_nobody_seen_is_bounded_by_its_closed_form():
    assert kl_upper(0.0, 0.01) == pytest.approx(1 - exp(-0.01), rel=1e-9)
    assert kl_lower(1.0, 0.01) == pytest.approx(exp(-0.01), rel=1e-9)


def test_clopper_pearson_by_its_definition():
    for successes, trials, beta in [(3, 10, 0.05), (0, 7, 0.2), (7, 7, 0.2), (400, 1000, 1e-6)]:
        low, high = clopper_pearson(successes, trials, beta)
        if successes > 0:
            assert binom.sf(successes - 1, trials, low) == pytest.approx(beta / 2, rel=1e-6)
        if successes < trials:
            assert binom.cdf(successes, trials, high) == pytest.approx(beta / 2, rel=1e-6)


def test_clopper_pearson_at_the_ends():
    assert clopper_pearson(0, 0, 0.05) == (0.0, 1.0)
    assert clopper_pearson(0, 5, 0.05)[0] == 0.0
    assert clopper_pearson(5, 5, 0.05)[1] == 1.0


def check_ends(low, high, alone):
    """Both round outwards by BETA_SAFE: the lower end relatively, the upper one, one less a lower end, absolutely."""
    assert low == pytest.approx(alone[0], rel=2 * concentration.BETA_SAFE, abs=1e-15)
    assert high == pytest.approx(alone[1], abs=2 * concentration.BETA_SAFE)


@pytest.fixture
def without_scipy(monkeypatch):
    """As in a command that has not imported it."""
    monkeypatch.setattr(special, "at_hand", lambda: False)


def test_scipy_is_imported_once_it_would_have_been_worth_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "scipy.special", raising=False)
    monkeypatch.setattr(special, "_missed", 0)
    monkeypatch.setattr(special, "load", lambda: sys.modules.setdefault("scipy.special", scipy_special))
    assert [special.at_hand() for _ in range(WORTH_IMPORTING + 1)] == [*[False] * (WORTH_IMPORTING - 1), True, True]


def test_an_interval_is_the_same_with_scipy_and_without(monkeypatch):
    by_scipy = [clopper_pearson(int(count), 12_000, 1e-6) for count in COUNTS]
    monkeypatch.setattr(special, "at_hand", lambda: False)
    alone = [clopper_pearson(int(count), 12_000, 1e-6) for count in COUNTS]
    np.testing.assert_allclose(alone, by_scipy, rtol=2 * concentration.CONVERGED, atol=1e-15)


def test_a_quantile_of_scipy_that_is_wrong_is_found_by_halving(monkeypatch):
    right = [clopper_pearson(int(count), 12_000, 1e-6) for count in COUNTS]
    monkeypatch.setattr(special, "betaincinv", lambda a, b, level: 0.9 * a / (a + b))
    monkeypatch.setattr(special, "betainccinv", lambda a, b, level: (1 + a / (a + b)) / 2)
    halved = [clopper_pearson(int(count), 12_000, 1e-6) for count in COUNTS]
    np.testing.assert_allclose(halved, right, rtol=1e-8, atol=1e-15)


COUNTS = np.array([0, 1, 2, 3, 7, 40, 500, 5_999, 11_000, 11_993, 11_999, 12_000])


@pytest.mark.usefixtures("without_scipy")
@pytest.mark.parametrize("beta", [0.9, 0.05, 1e-3, 1e-6, 1e-12, 1e-30])
def test_many_counts_at_once_have_the_ends_that_each_has_alone(beta):
    lows, highs = clopper_pearsons(COUNTS, 12_000, beta)
    for low, high, count in zip(lows, highs, COUNTS, strict=True):
        check_ends(low, high, clopper_pearson(int(count), 12_000, beta))


@pytest.mark.parametrize("beta", [0.9, 1e-3, 1e-6, 1e-30])
def test_an_end_does_not_depend_on_the_counts_beside_it(beta):
    counts = COUNTS.tolist()
    alone = [clopper_pearson(count, 12_000, beta) for count in counts]
    assert clopper_pearson_each(counts, 12_000, beta) == alone
    assert clopper_pearson_each(counts[::-1], 12_000, beta) == alone[::-1]
    several = clopper_pearson_each(3 * counts, 12_000, beta)  # in arrays
    for (low, high), one in zip(several, 3 * alone, strict=True):
        check_ends(low, high, one)


@pytest.mark.parametrize("beta", [0.9, 1e-3, 1e-6, 1e-30])
@pytest.mark.parametrize("trials", [1, 10, 1_000, 5_000])
def test_an_end_of_few_trials_is_the_same_whatever_is_beside_it(trials, beta):
    counts = [round(share * trials) for share in (0, 0.001, 0.01, 0.2, 0.5, 0.9, 1)]
    alone = [clopper_pearson(count, trials, beta) for count in counts]
    assert clopper_pearson_each(counts, trials, beta) == alone
    others = len(counts) * [trials]
    assert clopper_pearson_beside(counts, others, len(counts) * [beta]) == alone
    several = clopper_pearson_beside(3 * counts, 3 * others, 3 * len(counts) * [beta])  # in arrays
    for (low, high), one in zip(several, 3 * alone, strict=True):
        check_ends(low, high, one)


def test_ends_of_no_trials_and_of_no_counts():
    assert tangents([0, 0], 0, 0.1) == 2 * [(0.0, np.inf)]
    assert clopper_pearson_each([], 10, 0.1) == clopper_pearson_beside([], [], []) == []
    assert clopper_pearson_each([0], 0, 0.1) == [(0.0, 1.0)]


@pytest.mark.usefixtures("without_scipy")
def test_arrays_of_trials_and_levels_too():
    trials, betas = np.array([1, 10, 1_000, 10**6]), np.array([0.5, 0.1, 1e-6, 1e-9])
    lows, highs = clopper_pearsons(np.array([1, 3, 0, 1_000]), trials, betas)
    for place, count in enumerate((1, 3, 0, 1_000)):
        check_ends(lows[place], highs[place], clopper_pearson(count, int(trials[place]), float(betas[place])))


FEW_TRIALS = np.array([1, 2, 30, 30, 31, 750, 751, 752, 1_000, 5_000, 5_000])
SOME_OF_THEM = np.array([1, 0, 3, 30, 9, 700, 55, 300, 2, 4_990, 2_500])


def wrong_quantile(a, b, tail):
    return 0.9 * a / (a + b)


def no_quantile(a, b, tail):
    return np.nan * a


@pytest.mark.parametrize("quantile", [special.betaincinv, wrong_quantile, no_quantile])
def test_arrays_of_few_trials_whatever_scipy_says_of_their_quantiles(quantile, monkeypatch):
    monkeypatch.setattr(special, "betaincinv", quantile)
    betas = 1e-6 * np.arange(1, FEW_TRIALS.size + 1)
    lows, highs = clopper_pearsons(SOME_OF_THEM, FEW_TRIALS, betas)
    alone = [*map(clopper_pearson, SOME_OF_THEM.tolist(), FEW_TRIALS.tolist(), betas.tolist())]
    np.testing.assert_allclose((lows, highs), np.transpose(alone), rtol=2 * concentration.CONVERGED, atol=1e-9)
    assert ((binom.sf(SOME_OF_THEM - 1, FEW_TRIALS, lows) <= betas / 2) | (lows == 0)).all()
    assert ((binom.cdf(SOME_OF_THEM, FEW_TRIALS, highs) <= betas / 2) | (highs == 1)).all()


@pytest.mark.usefixtures("without_scipy")
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_ends_that_the_steps_do_not_settle_are_found_by_halving(steps, monkeypatch):
    settled, near = clopper_pearsons(COUNTS, 12_000, 1e-6), {"rtol": 2 * concentration.CONVERGED, "atol": 1e-15}
    monkeypatch.setattr(concentration, "MOST_STEPS", steps)
    np.testing.assert_allclose(clopper_pearsons(COUNTS, 12_000, 1e-6), settled, **near)
    alone = [clopper_pearson(int(count), 12_000, 1e-6) for count in COUNTS]
    np.testing.assert_allclose(np.transpose(alone), settled, **near)


@pytest.mark.usefixtures("without_scipy")
@pytest.mark.parametrize("off", [1e-3, 0.5, 0.9, 1.001, 1.2, 1.6])
def test_steps_from_a_wrong_start_lead_to_the_same_ends(off, monkeypatch):
    """A start that is right for a tail `off` times as many standard deviations away: too near, or too far out."""
    right, expansion = clopper_pearsons(COUNTS, 12_000, 1e-6), concentration._expansion
    near = {"rtol": 2 * concentration.CONVERGED, "atol": 1e-15}
    shared = {name: getattr(concentration, name).__wrapped__ for name in ("_shared", "_shared_in_arrays")}

    def wrong(n, z, root):
        return expansion(n, off * z, root)

    for name, uncached in shared.items():
        monkeypatch.setattr(concentration, name, uncached)
    monkeypatch.setattr(concentration, "_expansion", wrong)
    np.testing.assert_allclose(clopper_pearsons(COUNTS, 12_000, 1e-6), right, **near)
    alone = [clopper_pearson(int(count), 12_000, 1e-6) for count in COUNTS]
    np.testing.assert_allclose(np.transpose(alone), right, **near)


@pytest.mark.parametrize("off", [1e-3, 0.5, 0.9, 1.001, 1.2])
def test_steps_from_a_multiple_of_the_start_lead_to_the_same_ends(off, monkeypatch):
    right, start = clopper_pearsons(COUNTS, 12_000, 1e-6), concentration._start

    def wrong(share, expansion):
        return np.minimum(0.9999 * share, off * start(share, expansion))

    monkeypatch.setattr(concentration, "_start", wrong)
    found = clopper_pearsons(COUNTS, 12_000, 1e-6)
    np.testing.assert_allclose(found, right, rtol=2 * concentration.CONVERGED, atol=1e-15)


@pytest.mark.parametrize("trials", [1, 2, 5, 12])
@pytest.mark.parametrize("beta", [0.9, 0.3, 0.05, 1e-4])
def test_clopper_pearson_covers_every_bias(trials, beta):
    """Exact coverage on a grid of biases, both tails by themselves."""
    ends = [clopper_pearson(x, trials, beta) for x in range(trials + 1)]
    for p in np.linspace(0, 1, 201):
        law = binom.pmf(np.arange(trials + 1), trials, p)
        too_low = sum(mass for mass, (low, _) in zip(law, ends, strict=True) if p < low)
        too_high = sum(mass for mass, (_, high) in zip(law, ends, strict=True) if p > high)
        assert max(too_low, too_high) <= beta / 2 * (1 + 1e-9)


def widest(ell: int, beta: float) -> float:
    """The largest distance of an end from X/ell, over all X."""
    ends = [clopper_pearson(x, ell, beta) for x in range(ell + 1)]
    return max(max(high - x / ell, x / ell - low) for x, (low, high) in enumerate(ends))


@pytest.mark.parametrize("beta", [0.99, 0.5, 0.1, 0.05, 1e-3, 1e-6, 1e-12, 1e-30])
def test_the_width_bounds_every_count(beta):
    for ell in [*range(1, 40), 50, 77, 100, 250]:
        assert clopper_pearson_width(ell, beta) >= widest(ell, beta)


@pytest.mark.parametrize(("ell", "beta", "loss"), [(1000, 1e-6, 0.02), (5000, 1e-8, 0.01), (18_000, 1e-6, 0.004)])
def test_the_width_wastes_little(ell, beta, loss):
    middle = range(int(ell * 0.4), int(ell * 0.6))
    true = max(clopper_pearson(x, ell, beta)[1] - x / ell for x in middle)
    assert true <= clopper_pearson_width(ell, beta) <= true * (1 + loss)


def test_the_width_takes_arrays_and_is_monotone():
    widths = clopper_pearson_width(np.array([1, 10, 100, 10**4, 10**12]), 1e-6)
    assert all(two < one for one, two in pairwise(widths))
    assert widths[0] <= 1.0 + 1e-9
    assert widths[-1] < sqrt(log(2e6) / 2e12)


def test_the_range_of_a_budget_is_every_population_within_reach():
    low, high = kl_range((0.2, 0.3), n=1000, r=9.0)
    assert 1000 * kl(0.2, low) == pytest.approx(9.0)
    assert 1000 * kl(0.3, high) == pytest.approx(9.0)
    assert kl_range((0.2, 0.3), n=0, r=9.0) == (0.0, 1.0)


@pytest.mark.parametrize("scipy", [True, False])
def test_an_end_at_another_level_is_above_the_tangent(scipy, monkeypatch):
    """The end at e^-y times the tail is at least p (1 - y/s), for larger and for smaller tails; nearly so close by."""
    monkeypatch.setattr(special, "at_hand", lambda: scipy)
    for count, trials in [(0, 9), (1, 10), (3, 5), (9, 9), (40, 60), (700, 12_000), (11_990, 12_000)]:
        for tail in (0.3, 1e-3, 1e-9):
            ((p, slope),) = tangents((count,), trials, tail)
            for y in (-0.7, -0.1, -1e-3, 1e-3, 0.1, 1.0, 5.0, 30.0):
                ((there, _),) = tangents((count,), trials, tail * np.exp(-y))
                assert there >= p * (1 - y / slope) - 1e-8 * p
                if abs(y) < 0.01 and count:
                    assert there == pytest.approx(p * (1 - y / slope), rel=1e-5)
