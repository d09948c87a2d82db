"""Theorems are monotone, inverses invert, bounds order, intervals contain what they must."""

from math import e, exp, inf, log, nextafter

import hypothesis.strategies as st
import pytest
from hypothesis import assume, example, given, settings

from holdfast.guarantees import information, posterior
from holdfast.guarantees.mathematics import exchange, privacy
from holdfast.guarantees.mathematics import shares as coins
from holdfast.guarantees.mathematics.concentration import (
    clopper_pearson,
    clopper_pearson_width,
    hoeffding_radius,
    kl,
    kl_lower,
    kl_upper,
    laplace_radius,
)

shares = st.floats(0, 1)
levels = st.floats(1e-30, 0.999)
budgets = st.floats(1e-18, 50)
rows = st.integers(20, 10**12)
sizes = st.integers(1, 10**7)
UNTIMED = settings(deadline=None)


@UNTIMED
@given(shares, shares)
def test_divergence_is_a_divergence(p, q):
    assert kl(p, q) >= 2 * (p - q) ** 2 * (1 - 1e-9)  # Pinsker
    assert kl(p, p) == 0
    assert kl(1 - p, 1 - q) == pytest.approx(kl(p, q), rel=1e-6, abs=1e-14) or min(q, 1 - q, p, 1 - p) < 1e-9


@UNTIMED
@given(shares, budgets)
@example(5e-324, 0.5)
@example(1 - 2**-53, 1e-18)
@example(0.5, 40.0)
def test_the_reach_of_a_budget_is_the_root_rounded_outwards(p, budget):
    low, high = kl_lower(p, budget), kl_upper(p, budget)
    assert 0 <= low <= p <= high <= 1
    if high < 1:
        assert kl(p, high) >= budget
        assert kl(p, max(p, high - 2e-15 - 1e-9 * (high - p))) <= budget
    if low > 0:
        assert kl(p, low) >= budget
        assert kl(p, min(p, low + 2e-15 + 1e-9 * (p - low))) <= budget


@UNTIMED
@given(shares, budgets, budgets)
def test_a_larger_budget_reaches_further(p, one, two):
    small, large = sorted((one, two))
    assert kl_lower(p, large) <= kl_lower(p, small)
    assert kl_upper(p, small) <= kl_upper(p, large)


@UNTIMED
@given(st.integers(1, 10**9), levels, levels, st.data())
def test_exact_intervals_nest_and_contain_the_share(ell, one, two, data):
    count = data.draw(st.integers(0, ell))
    strict, loose = sorted((one, two))
    outer, inner = clopper_pearson(count, ell, strict), clopper_pearson(count, ell, loose)
    assert 0 <= outer[0] <= inner[0] <= count / ell <= inner[1] <= outer[1] <= 1


@UNTIMED
@given(sizes, levels, st.data())
def test_the_width_covers_both_ends(ell, level, data):
    count = data.draw(st.integers(0, ell))
    low, high = clopper_pearson(count, ell, level)
    width = float(clopper_pearson_width(ell, level))
    assert max(high - count / ell, count / ell - low) <= width
    assert width <= hoeffding_radius(ell, level) * (1 + 1e-9)


@UNTIMED
@given(st.lists(sizes, min_size=2, max_size=2).map(sorted), st.lists(levels, min_size=2, max_size=2).map(sorted))
def test_more_draws_and_looser_levels_are_narrower(ells, betas):
    for radius in (hoeffding_radius, clopper_pearson_width):
        assert radius(ells[1], betas[0]) <= radius(ells[0], betas[0])
        assert radius(ells[0], betas[1]) <= radius(ells[0], betas[0])
    assert laplace_radius(1.0, betas[1]) <= laplace_radius(1.0, betas[0])


@UNTIMED
@given(st.floats(1e-12, 30), rows, st.data())
def test_amplification_inverts_orders_and_never_costs(epsilon, n, data):
    ell = data.draw(st.integers(1, n))
    without = privacy.without_replacement(epsilon, ell=ell, n=n)
    replaced = privacy.with_replacement(epsilon, ell=ell, n=n)
    assert without <= epsilon * (1 + 1e-12)
    assert without <= replaced * (1 + 1e-12)
    back = privacy.epsilon_without_replacement(without, ell=ell, n=n)
    assert back == pytest.approx(epsilon, rel=1e-9)
    assert privacy.epsilon_with_replacement(replaced, ell=ell, n=n) == pytest.approx(epsilon, rel=1e-9)
    if ell < n:
        assert without <= privacy.without_replacement(epsilon, ell=ell + 1, n=n)


@UNTIMED
@given(st.floats(1e-9, 0.5), st.integers(1, 10**12))
def test_a_coin_is_cheaper_on_more_rows_and_with_more_flips(flip, n):
    price = privacy.coin_epsilon(flip, n=n)
    assert privacy.coin_epsilon(flip, n=n + 1) <= price
    assert privacy.coin_epsilon(min(0.5, flip * 1.5), n=n) <= price


@UNTIMED
@given(st.floats(1e-9, 1), st.floats(1e-15, 0.5), st.integers(1, 10**12))
def test_composition_inverts_and_the_papers_lemma_is_the_weaker(epsilon, delta, k):
    step = privacy.zcdp_step(epsilon, delta, k=k)
    assert privacy.zcdp_epsilon(step, delta, k=k) == pytest.approx(epsilon, rel=1e-9)
    lemma = privacy.advanced_step(epsilon, delta, k=k)
    assert privacy.zcdp_epsilon(lemma, delta, k=k) <= epsilon * (1 + 1e-12)


@UNTIMED
@given(st.floats(0, 1e15), rows, st.integers(1, 10**12), st.floats(1e-12, 0.999))
def test_the_radius_is_at_least_chernoffs_and_at_most_the_simple_form(flips, n, k, beta):
    r = information.radius(flips, n=n, k=k, beta=beta)
    assert r >= log(2 * k / beta) * (1 - 1e-12)
    assert r <= information.simple_radius(flips, n=n, k=k, beta=beta)
    assert r <= information.radius(2 * flips, n=n, k=k, beta=beta) * (1 + 1e-9)
    assert r <= information.radius(flips, n=n, k=2 * k, beta=beta) * (1 + 1e-9)


@UNTIMED
@given(
    st.integers(2, 10**12),
    st.floats(1, 1e15),
    st.floats(1e-7, 0.3),
    st.floats(1e-9, 0.5),
)
def test_chi_grows_with_flips_and_falls_with_beta(n, flips, mass, beta):
    chi = posterior.chi(n, flips, mass, beta)
    assert chi > 0
    assert chi <= posterior.chi(n, 2 * flips, mass, beta)
    assert chi >= posterior.chi(n, flips, mass, min(0.9, 2 * beta)) * (1 - 1e-12)


@UNTIMED
@given(st.floats(0, 1), st.floats(0, 1), st.floats(1e-12, 10))
def test_posterior_widening_contains_and_nests(x, y, chi):
    low, high = sorted((x, y))
    lo, hi = posterior.widen((low, high), chi=chi)
    assert 0 <= lo <= low <= high <= hi <= 1
    wider = posterior.widen((low, high), chi=chi * 2)
    assert wider[0] <= lo <= hi <= wider[1]
    outer = posterior.widen((max(0.0, low - 0.1), min(1.0, high + 0.1)), chi=chi)
    assert outer[0] <= lo + 1e-15
    assert hi - 1e-15 <= outer[1]


@UNTIMED
@given(st.floats(0, 1), st.floats(0, 1), st.floats(1e-12, 1.2), st.floats(1e-3, 1))
def test_exchange_widening_contains_and_nests(x, y, j, g):
    low, high = sorted((x, y))
    lo, hi = exchange.lo(low, j), exchange.hi(high, j)
    assert 0 <= lo <= low <= high <= hi <= 1
    assert exchange.lo(low, 2 * j) <= lo <= hi <= exchange.hi(high, 2 * j)
    assert hi - high <= exchange.worst_case(j) * (1 + 1e-9) + 2e-12
    assert low - lo <= exchange.worst_case(j) * (1 + 1e-9) + 2e-12
    assert exchange.hi(high * 0.9, j) <= hi  # grows with the posterior mean
    inside = exchange.group_lower(low, g, j), exchange.group_upper(high, g, j)
    assert 0 <= inside[0] <= lo + 1e-11
    assert hi - 1e-11 <= inside[1] <= 1
    smaller = exchange.group_lower(low, g / 2, j), exchange.group_upper(high, g / 2, j)
    assert smaller[0] <= inside[0] + 1e-11
    assert inside[1] - 1e-11 <= smaller[1]


@UNTIMED
@given(rows, st.floats(1, 1e15), st.floats(1e-6, 0.2), st.floats(1e-9, 0.5), st.floats(0.05, 1), st.floats(0.05, 0.5))
def test_ibar_grows_with_the_charge_and_what_is_not_covered_is_infinite(n, charge, mass, beta, stretch, rho):
    free = exchange.constants(n, charge, mass, beta, stretch=stretch)
    assert exp(-free.L) + exp(-free.L2) <= beta * (1 + 1e-9)
    constants = (free.om2, free.kap, free.s)
    found = float(exchange.ibar(n, charge, mass, *constants, free.L, free.L2, rho=rho))
    assert found > free.L
    assert found <= float(exchange.ibar(n, 2 * charge, mass, *constants, free.L, free.L2, rho=rho))
    assert found <= float(exchange.ibar(n, charge, mass, *constants, 2 * free.L, free.L2, rho=rho))
    assert float(exchange.ibar(n, charge, mass, *constants, free.L, free.L2, rho=rho, outcomes=2)) <= found
    assert exchange.worst_case(exchange.j(n, found)) <= 1


@UNTIMED
@given(
    st.integers(1, 10**6),
    st.integers(2, 9),
    st.floats(1e-6, 0.05),
    st.floats(1e-6, 1),
    st.floats(1e-12, 0.1),
    st.data(),
)
def test_the_posterior_interval_contains_the_debiased_share(ell, outcomes, mass, chi, level, data):
    count = data.draw(st.integers(0, ell))
    low, high = posterior.outcome_interval(count, ell, outcomes=outcomes, mass=mass, chi=chi, level=level)
    assert 0 <= low <= coins.debias(count / ell, outcomes=outcomes, mass=mass) <= high <= 1


@UNTIMED
@given(st.integers(1, 10**6), st.integers(2, 9), rows, st.floats(1, 1e4), st.floats(1e-12, 0.1), st.data())
def test_the_information_interval_contains_the_debiased_share(ell, outcomes, n, r, level, data):
    count = data.draw(st.integers(0, ell))
    low, high = information.outcome_interval(count, ell, outcomes=outcomes, n=n, r=r, level=level)
    assert 0 <= low <= coins.debias(count / ell, outcomes=outcomes, mass=1 / n) <= high <= 1


@UNTIMED
@given(st.integers(1, 10**6), st.floats(1e-6, 0.1), st.floats(1e-9, 0.2), st.floats(1e-12, 0.1), st.data())
def test_group_intervals_contain_the_debiased_mean(ell, mass, chi, level, data):
    included = data.draw(st.integers(0, ell))
    ones = data.draw(st.integers(0, included))
    n = max(20, round(1 / mass))
    for (low, high), a in [
        (posterior.group_interval(ones, included, ell, mass=mass, chi=chi, level=level), mass),
        (information.group_interval(ones, included, ell, n=n, r=10.0, level=level), 1 / n),
    ]:
        assert 0 <= low <= high <= 1
        if included > 2 * a * ell:
            assert low - 1e-12 <= coins.mean_of_group(ones / included, included / ell, mass=a) <= high + 1e-12


@UNTIMED
@given(st.floats(1e-9, 1 / 3.01), shares, shares)
def test_debiasing_keeps_order(mass, x, y):
    low, high = sorted((x, y))
    assert coins.debias(low, outcomes=3, mass=mass) <= coins.debias(high, outcomes=3, mass=mass)


@UNTIMED
@given(st.floats(1e-6, 0.999), st.integers(1, 10**12))
def test_levels_share_what_there_is(beta, k):
    assert posterior.level(beta, k=k) * k * e <= nextafter(beta * (1 + 1e-12), inf)
    assume(k < 10**12)
    assert posterior.level(beta, k=k + 1) <= posterior.level(beta, k=k)
