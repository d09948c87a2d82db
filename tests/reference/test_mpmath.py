"""Fifty digits say what the formulas are; floating point must agree, and round to the safe side.

Sizes go up to 10^12 rows. "Safe" is: an interval's end outwards, a radius up, a bound on what was learnt up.
"""

from itertools import product
from math import prod

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf

from holdfast.guarantees import information, posterior
from holdfast.guarantees.mathematics import checks, concentration, exchange, privacy, special
from holdfast.guarantees.mathematics.concentration import clopper_pearson, clopper_pearsons, kl, kl_lower, kl_upper

ROWS = [10, 10**3, 10**6, 10**9, 10**12]


@pytest.fixture(autouse=True)
def fifty_digits():
    with mpmath.workdps(50):
        yield


def exact_kl(p, q):
    p, q = mpf(p), mpf(q)
    ones = p * mpmath.log(p / q) if p > 0 else mpf(0)
    return ones + ((1 - p) * (mpmath.log1p(-p) - mpmath.log1p(-q)) if p < 1 else mpf(0))


def off(value, exact):
    """Relative error."""
    return abs(mpf(value) - exact) / abs(exact)


SHARES = [0.0, 1e-12, 1e-6, 0.01, 0.3, 0.5, 0.9, 1 - 1e-6, 1 - 1e-12, 1.0]


@pytest.mark.parametrize("p", SHARES)
@pytest.mark.parametrize("gap", [1e-12, 1e-9, 1e-6, 1e-3, 0.0099, 0.0101, 0.1, 0.4])
def test_divergence(p, gap):
    for q in (p + gap, p - gap, p * (1 + gap), p * (1 - gap)):
        if 0 < q < 1 and q != p:
            assert off(kl(p, q), exact_kl(p, q)) < 1e-12


@pytest.mark.parametrize("q", [1e-300, 1e-30, 1e-17, 1e-9, 1 - 1e-9, 1 - 2**-53])
def test_divergence_far_out(q):
    for p in SHARES:
        if p != q:
            assert off(kl(p, q), exact_kl(p, q)) < 1e-12


@pytest.mark.parametrize("p", SHARES)
@pytest.mark.parametrize("n", ROWS)
@pytest.mark.parametrize("r", [0.5, 12.0, 300.0])
def test_the_reach_of_a_budget_is_rounded_outwards(p, n, r):
    """The exact divergence at the returned end is at least the budget; a hair inside it is below."""
    budget = r / n
    low, high = kl_lower(p, budget), kl_upper(p, budget)
    for end, outermost in ((high, 1.0), (low, 0.0)):
        if end != outermost:
            assert exact_kl(p, end) >= mpf(r) / n * (1 - mpf(10) ** -15)
            hair = mpf(10) ** -9 * (mpf(end) - mpf(p)) + mpmath.sign(mpf(end) - mpf(p)) * mpf(10) ** -15
            if abs(hair) < abs(mpf(end) - mpf(p)):
                assert exact_kl(p, mpf(end) - hair) <= mpf(r) / n


@pytest.mark.parametrize("n", ROWS)
@pytest.mark.parametrize("beta", [0.5, 0.04, 1e-6])
@pytest.mark.parametrize("k", [1, 10**6, 10**12])
def test_the_radius(n, beta, k):
    for flips in (1, n // 7, n * 100):
        r = information.radius(flips, n=n, k=k, beta=beta)
        nats = mpf(flips) / (2 * n)
        miss = 2 * k * mpmath.exp(-mpf(r))
        assert miss <= beta
        assert exact_kl(beta, miss) >= nats
        shorter = mpmath.log(2 * k) + (mpf(r) - mpmath.log(2 * k)) * (1 - mpf(10) ** -10)
        if 2 * k * mpmath.exp(-shorter) < mpf(beta):
            assert exact_kl(beta, 2 * k * mpmath.exp(-shorter)) < nats


def exact_sigma(n, flips, a, p):
    n, flips, a = mpf(n), mpf(flips), mpf(a)
    e0 = n / (n - 1) ** 2
    v, big_a = e0 * flips, n * a * (1 - a) / (1 - 2 * a) ** 2
    g = mpmath.sqrt(e0 * (1 - a) / a)
    kap = (1 + g / mpmath.sqrt(big_a)) ** (2 * p - 2)
    a1, big_g = big_a / (2 * p - 1), (2 * p - 1) * g
    s = big_g / mpmath.sqrt(v)
    tau = (a1 + big_g**2 + big_g * mpmath.sqrt(v)) / (1 + s) * mpmath.expm1(kap * (1 + s) * v / a1)
    return (mpmath.sqrt(tau) + (2 * p - 2) * g) ** 2


@pytest.mark.parametrize("n", ROWS[1:])
@pytest.mark.parametrize("mass", [1e-6, 0.01, 0.3])
def test_sigma_and_chi(n, mass):
    for flips in (1, n // 10, 50 * n):
        heights = []
        for p in range(2, 21):
            exact = exact_sigma(n, flips, mass, p)
            value = float(posterior.sigma(n, flips, mass, p))
            if value < float("inf"):
                assert off(value, exact) < 1e-11
            heights.append(exact / n * (mpf(prod(range(1, 2 * p, 2))) / mpf("0.04")) ** (mpf(1) / p))
        h = min(heights)
        chi = posterior.chi(n, flips, mass, 0.04)
        if chi < float("inf"):
            assert h / (1 - h) <= chi <= h / (1 - h) * (1 + mpf(10) ** -9)
        else:
            assert h >= 1 - mpf(10) ** -9


@pytest.mark.parametrize("n", ROWS)
def test_amplification_and_its_inverses(n):
    for epsilon, ell in product((1e-9, 1e-3, 1.0, 20.0), {1, n // 3, n}):
        x, share = mpf(epsilon), mpf(ell) / n
        for value, exact in [
            (privacy.without_replacement(epsilon, ell=ell, n=n), mpmath.log1p(share * mpmath.expm1(x))),
            (privacy.epsilon_without_replacement(epsilon, ell=ell, n=n), mpmath.log1p(mpmath.expm1(x) / share)),
            (privacy.with_replacement(epsilon, ell=ell, n=n), ell * mpmath.log1p(mpmath.expm1(x) / n)),
            (privacy.epsilon_with_replacement(epsilon, ell=ell, n=n), mpmath.log1p(n * mpmath.expm1(x / ell))),
        ]:
            assert off(value, exact) < 1e-14
    for flip in (1e-9, 0.01, 0.4):
        exact = mpmath.log1p((1 - 2 * mpf(flip)) / (mpf(flip) * n))
        assert off(privacy.coin_epsilon(flip, n=n), exact) < 1e-14


@pytest.mark.parametrize("k", [1, 10**4, 10**12])
@pytest.mark.parametrize("delta", [0.5, 1e-9, 1e-200])
@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 1.0, 50.0])
def test_composition(k, delta, epsilon):
    nats = mpmath.log(1 / mpf(delta))
    root = mpmath.sqrt(nats + mpf(epsilon)) - mpmath.sqrt(nats)
    assert off(privacy.zcdp_step(epsilon, delta, k=k), root * mpmath.sqrt(mpf(2) / k)) < 1e-14
    rho = k * mpf(epsilon) ** 2 / 2
    assert off(privacy.zcdp_epsilon(epsilon, delta, k=k), rho + 2 * mpmath.sqrt(rho * nats)) < 1e-14


def upper_tail(count, trials, p):
    """P(Bin(trials, p) >= count) for a count above the mean: the first term times a sum of falling ratios."""
    p, q = mpf(p), 1 - mpf(p)
    first = mpmath.exp(
        mpmath.loggamma(trials + 1)
        - mpmath.loggamma(count + 1)
        - mpmath.loggamma(trials - count + 1)
        + count * mpmath.log(p)
        + (trials - count) * mpmath.log(q)
    )
    total = term = mpf(1)
    while count < trials and term > total * mpf(10) ** -25:
        term *= p / q * (trials - count) / (count + 1)
        total += term
        count += 1
    return first * total


TOSSES = [(1, [0, 1]), (2, [1]), (10, [0, 1, 5, 9]), (1000, [1, 333, 999]), (10**6, [1, 1000, 10**6 - 1])]
TOSSES += [(10**9, [1, 2, 999, 1000, 10**9 - 1]), (10**12, [1, 999, 1000, 10**12 - 1])]


@pytest.mark.parametrize(("trials", "counts"), TOSSES)
@pytest.mark.parametrize("beta", [0.05, 1e-6, 1e-12, 1e-20])
@pytest.mark.parametrize("scipy", [True, False])
def test_exact_binomial_intervals_are_rounded_outwards(trials, counts, beta, scipy, monkeypatch):
    """At each end the tail is at most beta/2; a relative step of 1e-8 inwards it is above."""
    monkeypatch.setattr(special, "at_hand", lambda: scipy)
    for count in counts:
        low, high = clopper_pearson(count, trials, beta)
        if low > 0:
            assert upper_tail(count, trials, low) <= mpf(beta) / 2
            inside = min(mpf(low) * (1 + mpf(10) ** -8) + mpf(10) ** -15, mpf(count) / trials)
            assert upper_tail(count, trials, inside) > mpf(beta) / 2
        if high < 1:
            assert upper_tail(trials - count, trials, 1 - mpf(high)) <= mpf(beta) / 2
            inside = max(mpf(high) * (1 - mpf(10) ** -8) - mpf(10) ** -15, mpf(count) / trials)
            assert upper_tail(trials - count, trials, 1 - inside) > mpf(beta) / 2


@pytest.mark.parametrize("trials", [1, 30, 750, 4_999, 5_001, 12_000])  # on both sides of where quantiles are scipy's
@pytest.mark.parametrize("beta", [0.05, 1e-6, 1e-12])
@pytest.mark.parametrize("each", [True, False])  # whether trials and level are given for each count
def test_ends_of_many_counts_at_once_are_rounded_outwards(trials, beta, each):
    counts = np.unique([0, 1, 2, 3, 9, trials // 20, trials // 7, trials // 3, trials // 2, trials - 2, trials])
    counts = np.tile(counts[(counts >= 0) & (counts <= trials)], 4)
    given = (np.full(counts.size, trials), np.full(counts.size, beta)) if each else (trials, beta)
    lows, highs = clopper_pearsons(counts, *given)
    for count, low, high in set(zip(counts.tolist(), lows.tolist(), highs.tolist(), strict=True)):
        for end, seen in ((mpf(low), count), (1 - mpf(high), trials - count)):
            if seen == 0 or end <= 0:
                continue
            assert upper_tail(seen, trials, end) <= mpf(beta) / 2
            near = end + end * (1 - end) * mpf("2e-8") + mpf("2e-15")
            assert near >= 1 or upper_tail(seen, trials, near) >= mpf(beta) / 2 * (1 - mpf("1e-12"))


@pytest.mark.parametrize("trials", [640_006, 792_866, 868_430, 977_983])
def test_ends_where_all_tosses_are_the_same_are_rounded_outwards(trials):
    """The tail is p^n, a straight line on a log scale, so that a single step from anywhere seems to be enough."""
    lows, highs = clopper_pearsons([trials, 0] * 8, trials, 1e-12)
    assert mpf(lows[0]) ** trials <= mpf(5e-13)
    assert (1 - mpf(highs[1])) ** trials <= mpf(5e-13)
    assert (mpf(lows[0]) + mpf("1e-14")) ** trials >= mpf(5e-13)


@pytest.mark.parametrize("before", [9, 10**3, 70_481, 10**6, 93_252_080, 1_744_748_412, 2**31 - 1])
def test_weights_of_responses_are_rounded_down(before):
    """A description length is a difference of logarithms of factorials, which are as large as the number of checks."""

    def log_choices(n, j):
        return mpmath.loggamma(n + 1) - mpmath.loggamma(j + 1) - mpmath.loggamma(n - j + 1)

    for some in (1, 2, 4, before // 20_000 + 1):
        count = mpmath.log(mpf((some + 1) * (some + 2)) * (before + 1) / (before + 2))
        exact = count + log_choices(before, some)
        assert exact <= checks.guess_nats(before + 1, some, 0.0) <= exact * (1 + mpf("2e-12")) + mpf("2e-4")
        failed = mpmath.log(mpf(before + 2) / checks.FAILING) + log_choices(before + 1, some)
        assert failed <= checks.failure_nats(before + 1, some) <= failed * (1 + mpf("2e-12")) + mpf("2e-4")


@pytest.mark.parametrize("identical", [True, False])
def test_the_least_mean_of_a_group_that_is_hardly_large_enough_is_rounded_down(identical):
    """1 - J/g is then all that is left of two numbers near 1."""
    rng = np.random.default_rng(5)
    for _ in range(200):
        j = float(rng.uniform(0.001, 0.12))
        share = j * (1 + float(10 ** rng.uniform(-8, -3)))
        k, r = mpf(j) / mpf(share), mpf(exchange.most_over(share, j, identical=identical))
        c = 0 if identical else mpf(1) / 2
        lead, half = 1 - k + k * r, 1 - k + k * r / 2
        root = (half - mpmath.sqrt(half**2 - lead * (1 - k - c * k**2))) / lead  # the smaller, at a mean of 1
        low, _ = exchange.group_range((1.0, 1.0), share, j, identical=identical)
        assert low <= max(0, root)


@pytest.mark.parametrize("sigmas", [0.1, 1, 5, 30])
@pytest.mark.parametrize("trials", [2, 15, 16, 100, 12_000, 10**6])
def test_a_tail_of_one_count_is_right_to_twelve_digits(trials, sigmas):
    """Or as if p were off by less than ULP, by which an end is moved outwards."""
    for count in {1, trials // 100, trials // 3, trials // 2, trials - 1} - {0}:
        share = count / trials
        p = share - min(sigmas * (share * (1 - share) / trials) ** 0.5, 0.9999 * share)
        log_tail, slope, _ = concentration._UpperTail(count, trials).at(p)
        exact = upper_tail(count, trials, p)
        off = 1e-12 * max(1, -log_tail) + concentration.ULP * slope / p
        assert log_tail == pytest.approx(float(mpmath.log(exact)), abs=off)
        step = mpf(10) ** -15
        rise = mpmath.log(upper_tail(count, trials, p * (1 + step)) / exact) / step
        assert slope == pytest.approx(float(rise), rel=1e-9)


def test_fifty_digits_are_what_is_used():
    assert mp.dps == 50
