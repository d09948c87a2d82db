"""Theorems of descent move the right way, and projections are projections."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.guarantees.mathematics import descent
from holdfast.optimize.descent import Descent
from holdfast.optimize.objective import Ball, Box, domain_of

positive = st.floats(0.01, 100)
counts = st.integers(1, 2_000)
averages = st.sampled_from(descent.AVERAGES)


@given(positive, positive, counts, averages)
def test_more_steps_never_hurt_much_and_noise_always_does(diameter, norm, steps, average):
    now = descent.convex_excess(diameter, norm, steps, average=average)
    assert descent.convex_excess(diameter, norm, 4 * steps, average=average) < now
    assert descent.convex_excess(diameter, 2 * norm, steps, average=average) == pytest.approx(2 * now)
    plain = descent.convex_excess(diameter, norm, steps)
    assert plain == pytest.approx(math.sqrt(2 / steps) * diameter * norm)
    assert now >= plain * (1 - 1e-12)  # the plain average has the best proof


gradients = st.lists(st.lists(st.floats(-3, 3), min_size=2, max_size=2), min_size=1, max_size=12).map(np.array)


@given(gradients, averages, st.sampled_from([Ball(1.0, 2), Box((-1.0, -0.5), (0.5, 2.0))]))
def test_the_regret_of_adaptive_steps_keeps_its_bound_whatever_the_gradients(given_, average, domain):
    """A sequence fixed beforehand, however hostile: no randomness is involved in this part of the proof."""

    class Fixed:
        moment = largest = float(np.linalg.norm(given_, axis=1).max()) or 1.0
        spread, asked = 0.0, 0

        def __call__(self, point, source, rng):
            self.asked += 1
            return given_[self.asked - 1]

    objective = SimpleNamespace(l2=0.0, ranges=SimpleNamespace(curvature=0.0))
    run = Descent(objective, domain, Fixed(), len(given_), average).run(None, None)
    bound = descent.convex_excess(domain.diameter, Fixed.largest, len(given_), average=average)
    assert run.regret <= bound * (1 + 1e-9)


def test_steps_that_forget_the_past_break_the_bound(monkeypatch):
    """Gradients that follow the sign of the point: long steps go back and forth for ever."""

    class Pushing:
        moment = largest = 1.0
        spread = 0.0

        def __call__(self, point, source, rng):
            return np.where(point < 0, -1.0, 1.0)

    objective = SimpleNamespace(l2=0.0, ranges=SimpleNamespace(curvature=0.0))

    def regret() -> float:
        return Descent(objective, Ball(1.0, 1), Pushing(), 400, "uniform").run(None, None).regret

    bound = descent.convex_excess(2.0, 1.0, 400)
    assert regret() <= bound
    monkeypatch.setattr(descent, "step", lambda diameter, *_: diameter / math.sqrt(2))
    assert regret() > bound


@given(st.floats(0, 1e6))
def test_the_inequality_behind_the_last_half(x):
    """2 sqrt(1 + x^2) <= 2 + x + .148 x^2, with which the first half of the steps costs less than a tenth."""
    assert 2 * math.sqrt(1 + x * x) <= (2 + x + 0.148 * x * x) * (1 + 1e-12)
    assert math.sqrt(2) * (1 + 0.148 / 2) <= 1.52


@given(positive, positive, st.integers(3, 2_000), averages)
def test_strong_convexity_ends_up_better(norm, curvature, steps, average):
    value = descent.strongly_convex_excess(norm, curvature, steps, average=average)
    assert descent.strongly_convex_excess(norm, 2 * curvature, steps, average=average) == pytest.approx(value / 2)
    assert value >= descent.strongly_convex_excess(norm, curvature, steps) * (
        1 - 1e-12
    )  # the plain average has the best proof


@given(st.floats(1e-9, 0.5), positive, positive, counts, averages)
def test_tails_grow_with_confidence(beta, diameter, s, steps, average):
    for tail, arguments in (
        (descent.convex_tail, (diameter, s, steps)),
        (descent.strongly_convex_tail, (s, diameter, steps)),
    ):
        assert tail(*arguments, beta / 2, average=average) > tail(*arguments, beta, average=average)


@given(st.floats(0, 10), positive, positive, st.floats(0.01, 10), st.floats(1e-6, 0.5))
def test_curvature_never_loosens_the_posterior_bound(expected, apart, lipschitz, curvature, step):
    plain = descent.posterior_excess(expected, R=apart, lipschitz=lipschitz, H=0.0, step=step)
    curved = descent.posterior_excess(expected, R=apart, lipschitz=lipschitz, H=curvature, step=step)
    assert expected <= curved + 1e-12
    assert curved <= plain
    if curved < plain:  # a fixed point of e = E + b sqrt(e)
        b = 2 * lipschitz * step * math.sqrt(2 / curvature)
        assert curved == pytest.approx(expected + b * math.sqrt(curved), rel=1e-9, abs=1e-12)


vectors = st.lists(st.floats(-50, 50), min_size=3, max_size=3).map(np.array)


@pytest.mark.parametrize("domain", [Ball(2.0, 3), Box((-1.0, 0.0, 2.0), (1.0, 5.0, 3.0))], ids=["ball", "box"])
@given(vectors, vectors)
def test_projection(domain, one, other):
    near, far = domain.project(one), domain.project(other)
    assert np.allclose(domain.project(near), near)
    assert np.linalg.norm(near - far) <= np.linalg.norm(one - other) + 1e-9
    assert np.linalg.norm(near - far) <= domain.diameter + 1e-9
    assert np.linalg.norm(near) <= domain.norm + 1e-9
    assert one @ near >= domain.least(one) - 1e-9  # the support function is a lower bound ...
    assert abs(near @ other) <= domain.reach(np.abs(other)) + 1e-9


@pytest.mark.parametrize("domain", [Ball(2.0, 3), Box((-1.0, 0.0, 2.0), (1.0, 5.0, 3.0))], ids=["ball", "box"])
def test_the_support_function_is_reached(domain):
    direction = np.array([1.0, -2.0, 0.5])
    assert direction @ domain.project(-1e9 * direction) == pytest.approx(domain.least(direction))


def test_domains_are_declared():
    assert domain_of(2, radius=1) == Ball(1.0, 2)
    assert domain_of(2, box=(-1, 1)) == Box((-1.0, -1.0), (1.0, 1.0))
    assert domain_of(2, box=[(-1, 1), (0, 2)]) == Box((-1.0, 0.0), (1.0, 2.0))
