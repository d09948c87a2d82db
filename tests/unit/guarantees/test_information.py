"""The information guarantee in small: exact leave-one-out costs, the radius, intervals."""

from itertools import product
from math import exp, log, sqrt

import numpy as np
import pytest

from holdfast.errors import InvalidArgument
from holdfast.guarantees import information
from holdfast.guarantees.mathematics.concentration import kl


@pytest.mark.parametrize("flips", [1.0, 1e4, 1e8, 1e12])
@pytest.mark.parametrize("k", [1, 10**4, 10**12])
@pytest.mark.parametrize("beta", [0.9, 0.04, 1e-6, 1e-12])
def test_the_radius_is_the_smallest_that_will_do(flips, k, beta):
    n = 10**6
    r = information.radius(flips, n=n, k=k, beta=beta)
    nats = information.session_nats(flips, n=n)
    assert r >= log(2 * k / beta)
    assert r <= information.simple_radius(flips, n=n, k=k, beta=beta)
    if r < 600:  # e^-r is still a number
        smaller = log(2 * k) + (r - log(2 * k)) * (1 - 1e-9)
        if smaller > log(2 * k / beta):
            assert kl(beta, 2 * k * exp(-smaller)) < nats * (1 + 1e-6)


def test_a_silent_session_leaves_chernoff_alone():
    assert information.radius(0, n=1000, k=7, beta=0.1) == pytest.approx(log(2 * 7 / 0.1), rel=1e-6)


def test_widening_is_every_population_within_reach():
    low, high = information.widen((0.2, 0.3), n=1000, r=9.0)
    assert 1000 * kl(0.2, low) == pytest.approx(9.0)
    assert 1000 * kl(0.3, high) == pytest.approx(9.0)
    assert information.widen((0.2, 0.3), n=0, r=9.0) == (0.0, 1.0)


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
    assert information.sampling_accuracy(n=1000, r=20.0) == pytest.approx(0.001 + sqrt(0.01))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: information.draw_cost(1), "outcomes must be a whole number of at least 2"),
        (lambda: information.radius(1, n=10, k=0, beta=0.1), "k must be a whole number"),
        (lambda: information.radius(1, n=10, k=1, beta=1.0), "beta must be strictly between"),
        (lambda: information.gaussian_cost(0.0, n=10), "sigma must be positive"),
        (lambda: information.private_cost(-1.0, n=10), "eps0 must be positive"),
    ],
)
def test_what_no_theorem_covers_is_refused(call, says):
    with pytest.raises(InvalidArgument, match=says):
        call()
