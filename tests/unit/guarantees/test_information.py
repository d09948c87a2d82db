"""The information guarantee in small: the radius, intervals, refusals."""

from dataclasses import replace
from math import exp, inf, log, sqrt

import pytest

from holdfast.errors import InvalidArgument
from holdfast.guarantees import information
from holdfast.guarantees.mathematics import privacy
from holdfast.guarantees.mathematics.concentration import kl, kl_range
from holdfast.guarantees.statistic import OneMean, OutcomeShares, Tally
from holdfast.mechanisms.noisy_means import Laplace
from holdfast.session.planning import plan
from planned import certified, expected_release, planned
from toy_queries import Group, Histogram, Mean, Share


@pytest.mark.parametrize("flips", [1.0, 1e4, 1e8, 1e12])
@pytest.mark.parametrize("k", [1, 10**4, 10**12])
@pytest.mark.parametrize("beta", [0.9, 0.04, 1e-6, 1e-12])
def test_the_radius_is_the_smallest_that_will_do(flips, k, beta):
    n = 10**6
    r = information.radius(flips, n=n, k=k, beta=beta)
    nats = privacy.session_nats(flips, n=n)
    assert r >= log(2 * k / beta)
    assert r <= information.simple_radius(flips, n=n, k=k, beta=beta)
    if r < 600:  # e^-r is still a number
        smaller = log(2 * k) + (r - log(2 * k)) * (1 - 1e-9)
        if smaller > log(2 * k / beta):
            assert kl(beta, 2 * k * exp(-smaller)) < nats * (1 + 1e-6)


def test_a_silent_session_leaves_chernoff_alone():
    assert information.radius(0, n=1000, k=7, beta=0.1) == pytest.approx(log(2 * 7 / 0.1), rel=1e-6)


def test_both_ends_are_debiased():
    """q = 1 everywhere: without debiasing, ell much larger than n would exclude the truth."""
    low, high = information.outcome_interval(4_999 - 4, 5_000, outcomes=2, n=1000, r=20.0, level=1e-4)
    assert low < 1.0 == high


def test_a_group_is_wider_than_its_coins_alone_would_say():
    group = information.group_interval(300, 500, 1000, n=10**6, r=100.0, level=1e-4)
    share = information.outcome_interval(300, 500, outcomes=2, n=10**6, r=100.0, level=1e-4)
    assert group[0] < share[0] < 0.6 < share[1] < group[1]


def test_a_group_that_may_be_empty_says_nothing():
    assert information.group_interval(1, 1, 1000, n=1000, r=10.0, level=1e-4) == (0.0, 1.0)


def test_a_flip_is_close_to_its_share():
    assert information.flip_margin(n=1000, r=20.0) == pytest.approx(0.001 + sqrt(0.01))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: information.radius(1, n=10, k=0, beta=0.1), "k must be a whole number"),
        (lambda: information.radius(1, n=10, k=1, beta=1.0), "beta must be strictly between"),
    ],
)
def test_what_no_theorem_covers_is_refused(call, says):
    with pytest.raises(InvalidArgument, match=says):
        call()


# -- by the terms of a plan -------------------------------------------------------------------------------------------


def test_coins_are_certified_by_the_theorem_they_stand_on():
    standing = planned("information", "coins").standing
    terms, ell = standing.terms, standing.terms.rows_per_query
    found = standing.share(Tally((0.3,), ell, (ell - ell // 3, ell // 3), (1,)), 0)
    level = terms.beta2 / 10
    expected = information.outcome_interval(ell // 3, ell, outcomes=2, n=terms.rows, r=terms.radius, level=level)
    assert found == expected


def test_noisy_answers_are_certified_by_noise_and_sampling_at_half_a_level_each():
    standing = planned("information", "laplace").standing
    terms, ell = standing.terms, standing.terms.rows_per_query
    half = terms.beta2 / (2 * terms.statements)
    scale = Laplace(draws=ell, epsilon=terms.epsilon).scale(terms.rows)
    radius = scale * log(1 / half) + sqrt(log(2 / half) / (2 * ell))
    expected = kl_range((0.4 - radius, 0.4 + radius), n=terms.rows, r=terms.radius)
    found = standing.share(expected_release(standing, OneMean(), 0.4), 0)
    assert found == pytest.approx(expected, rel=1e-9)
    assert found[0] <= expected[0]  # the grid of the noise is allowed for
    assert found[1] >= expected[1]


@pytest.mark.parametrize("query", [Share(), Mean(bounds=(-3.0, 5.0)), Group(), Histogram()], ids=str)
def test_an_infinite_radius_promises_nothing(query):
    standing = planned("information", "coins").standing
    silent = information.Information(replace(standing.terms, radius=inf))
    for estimate in certified(silent, query, expected_release(standing, query.statistic, 0.3)):
        assert (estimate.low, estimate.high) == query.bounds


def test_outcomes_need_ten_rows_each():
    standing = plan(rows=100, queries=5, guarantee="information", mechanism="coins").standing
    standing.supports(OutcomeShares(10))
    with pytest.raises(InvalidArgument, match="at least 110 rows") as refusal:
        standing.supports(OutcomeShares(11))
    assert refusal.value.fields == {"outcomes": 11, "most": 10}
