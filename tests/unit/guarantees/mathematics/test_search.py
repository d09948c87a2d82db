"""The two searches: roots on the safe side of a goal, and minima of smooth valleys."""

from math import log

import numpy as np
import pytest

from holdfast.guarantees.mathematics.search import largest, smallest, zoom


@pytest.mark.parametrize("root", [1, 2, 3, 17, 999, 123_456_789, 10**15 - 1])
@pytest.mark.parametrize("power", [0.5, 1.0, 3.0])
def test_the_smallest_number_that_will_do(root, power):
    calls = []

    def excess(n: int) -> float:
        calls.append(n)
        return power * (log(root) - log(n))

    found = smallest(excess, low=1, high=10**15)
    assert found is not None
    assert root <= found <= root * 1.0001 + 1
    assert type(found) is int
    assert len(calls) < 80


@pytest.mark.parametrize("root", [1, 2, 3, 17, 999, 123_456_789, 10**12])
def test_the_largest_number_that_will_do(root):
    found = largest(lambda k: log(k) - log(root), low=1, high=10**12)
    assert found is not None
    assert root / 1.0001 - 1 <= found <= root
    assert type(found) is int


def test_no_number_will_do():
    assert smallest(lambda n: 1.0, low=2, high=10**6) is None
    assert largest(lambda k: 1.0, low=1, high=10**6) is None


def test_every_number_will_do():
    assert smallest(lambda n: -1.0, low=2, high=10**6) == 2
    assert largest(lambda k: -1.0, low=1, high=10**6) == 10**6


def test_a_goal_met_only_at_the_very_end():
    assert smallest(lambda n: 0.0 if n == 10**6 else 1.0, low=2, high=10**6) == 10**6
    assert largest(lambda k: 0.0 if k == 1 else 1.0, low=1, high=10**6) == 1


def test_steps_are_met_on_the_safe_side():
    """Accuracies jump where whole numbers do: the answer meets the goal all the same."""
    found = smallest(lambda n: 1.0 if n // 1000 < 37 else -0.5, low=1, high=10**9)
    assert found is not None
    assert 37_000 <= found <= 37_005


def test_zoom_finds_the_bottom_of_a_valley():
    target = (0.3, -2.0, 4.5)

    def valley(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        return (x - target[0]) ** 2 + 3 * (y - target[1]) ** 2 + (z - target[2]) ** 4

    assert zoom(valley, [(0, 1), (-5, 5), (0, 10)], levels=12) == pytest.approx(target, abs=0.05)


def test_zoom_stays_in_its_box_and_survives_a_plain_of_infinities():
    assert zoom(lambda x: x, [(2.0, 3.0)]) == (2.0,)
    assert zoom(lambda x: np.full(x.shape, np.inf), [(2.0, 3.0)]) == (2.5,)
    assert zoom(lambda x, y: y, [(7.0, 7.0), (1.0, 2.0)]) == (7.0, 1.0)
