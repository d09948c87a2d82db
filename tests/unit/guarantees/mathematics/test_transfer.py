"""From the sample to the population: the demands as printed, and what they leave out."""

from math import expm1, log

import pytest

from holdfast.errors import InvalidArgument
from holdfast.guarantees.mathematics import privacy


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


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: privacy.statistical_queries(0.0, 0.1), "alpha must be strictly between"),
        (lambda: privacy.statistical_queries(0.1, 1.0), "beta must be strictly between"),
        (lambda: privacy.sampling_queries(0.1, 0.1, k=0), "k must be a whole number"),
        (lambda: privacy.jung(0.1, 0.1, 0.1, 0.0, c=0.0, d=0.1), "c must be positive"),
    ],
)
def test_what_no_theorem_covers_is_refused(call, says):
    with pytest.raises(InvalidArgument, match=says):
        call()
