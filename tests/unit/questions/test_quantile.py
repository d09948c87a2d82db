"""Bisection: thresholds that close in on a quantile, and never leave the declared range."""

from typing import Any

import pytest

from holdfast.questions.estimate import Estimate
from holdfast.questions.quantile import Bisection


def search(q: float, low: float, high: float, steps: int, share: Any, radius: float = 0.0) -> Estimate:
    bisection = Bisection(q, low, high)
    for _ in range(steps):
        threshold = bisection.next_threshold()
        assert low <= threshold <= high
        value = share(threshold)
        bisection.learn(threshold, Estimate(value, max(0.0, value - radius), min(1.0, value + radius)))
    estimate = bisection.estimate()
    assert low <= estimate.low <= estimate.high <= high
    assert estimate.too_few or estimate.low <= estimate.value <= estimate.high
    return estimate


@pytest.mark.parametrize("q", [0.01, 0.25, 0.5, 0.9])
def test_bisection_closes_in(q: float) -> None:
    exact = search(q, 0, 1, 20, lambda t: t)
    assert exact.high - exact.low <= 2.0**-19
    assert exact.low <= q <= exact.high
    rough = search(q, 0, 1, 30, lambda t: t, radius=0.1)
    assert rough.low <= q <= rough.high
    assert rough.low >= q - 0.1 - 1e-3 or rough.low == 0
    assert rough.high <= q + 0.1 + 1e-3 or rough.high == 1


def test_shares_that_contradict_each_other_give_an_interval_all_the_same() -> None:
    bisection = Bisection(0.5, 0.0, 1.0)
    for threshold, low, high in ((0.5, 0.4, 0.6), (0.25, 0.7, 0.8), (0.6, 0.1, 0.2)):  # falls, as no shares do
        bisection.learn(threshold, Estimate((low + high) / 2, low, high))
    estimate = bisection.estimate()
    assert (estimate.low, estimate.high) == (0.25, 0.6)
    assert estimate.low <= estimate.value <= estimate.high


def test_the_ends_of_a_distribution() -> None:
    # Uniform on [0, 1], asked within (-10, 10): nothing lies below 0, and the 0 quantile is not minus ten.
    share = lambda t: min(1.0, max(0.0, t))  # noqa: E731
    lowest, highest = (search(q, -10, 10, 12, share) for q in (0.0, 1.0))
    assert lowest.low <= 0 <= lowest.high <= 0.5
    assert highest.low <= 1 <= highest.high
    assert highest.low >= 0.98


def test_bounds_that_clip_everything() -> None:
    above, below = search(0.5, 0, 1, 20, lambda t: 0.0), search(0.5, 0, 1, 20, lambda t: 1.0)
    assert above.low > 0.99
    assert above.high == 1
    assert below.high < 0.01
    assert below.low == 0


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.7e308), (1e308, 1.7e308), (-8e307, 8e307), (0.0, 5e-324), (1, 1 + 2**-52)]
)
def test_bounds_at_the_edge_of_floating_point(low: float, high: float) -> None:
    for share in (0.0, 0.5, 1.0):
        search(0.5, low, high, 50, lambda t, share=share: share, radius=0.1)
