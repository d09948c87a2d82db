"""Undoing the flips: exact laws of small tables, and ranges against a fine grid."""

from itertools import product

import numpy as np
import pytest

from holdfast.guarantees.mathematics.shares import debias, group_mean_range, group_share, mean_of_group


@pytest.mark.parametrize("outcomes", [2, 3, 7])
@pytest.mark.parametrize("mass", [1e-9, 0.01, 0.1])
def test_debiasing_undoes_the_flips(outcomes, mass):
    for share in np.linspace(0, 1, 11):
        flipped = (1 - outcomes * mass) * share + mass
        assert debias(flipped, outcomes=outcomes, mass=mass) == pytest.approx(share, abs=1e-12)


def test_debiasing_clips():
    assert debias(0.001, outcomes=2, mass=0.01) == 0.0
    assert debias(0.9999, outcomes=2, mass=0.01) == 1.0


@pytest.mark.parametrize("mass", [0.001, 0.05, 0.15])
def test_the_mean_of_a_group_is_recovered_from_its_law(mass):
    """Every small table: n rows of which m are in the group and s of those are ones."""
    n = 6
    for m in range(1, n + 1):
        for s in range(m + 1):
            ones, zeros = ((1 - 3 * mass) * count / n + mass for count in (s, m - s))
            pi, theta = ones + zeros, ones / (ones + zeros)
            assert mean_of_group(theta, pi, mass=mass) == pytest.approx(s / m, abs=1e-12)
            assert group_share(pi, mass=mass) == pytest.approx(m / n)


@pytest.mark.parametrize("mass", [0.001, 0.05])
@pytest.mark.parametrize(
    ("theta", "pi"),
    [((0.2, 0.4), (0.3, 0.6)), ((0.6, 0.9), (0.3, 0.6)), ((0.2, 0.9), (0.12, 1.0)), ((0.5, 0.5), (0.2, 0.3))],
)
def test_the_range_over_a_rectangle_is_the_range_over_a_grid(theta, pi, mass):
    grid = [mean_of_group(t, p, mass=mass) for t, p in product(np.linspace(*theta, 41), np.linspace(*pi, 41))]
    assert group_mean_range(theta, pi, mass=mass) == pytest.approx((min(grid), max(grid)), abs=1e-12)


def test_a_group_that_may_be_empty_says_nothing():
    assert group_mean_range((0.4, 0.6), (0.02, 0.5), mass=0.01) == (0.0, 1.0)
    assert group_share(0.01, mass=0.01) == 0.0
    assert group_share(1.0, mass=0.01) == 1.0
