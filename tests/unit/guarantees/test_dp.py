"""Differential privacy and a transfer theorem: one margin for every noisy mean."""

import numpy as np
import pytest

from holdfast.guarantees.guarantee import EVERYTHING
from holdfast.guarantees.statistic import NoisyMeans
from holdfast.session.planning import plan
from holdfast.session.session import Session
from planned import planned


def test_a_noisy_mean_has_the_planned_margin_and_the_grid_of_its_noise():
    standing = planned("dp", "laplace").standing
    margin, grid = standing.terms.margin, 2.0**-30
    low, high = standing.share(NoisyMeans((0.4,), 100, (0.4,), 0.001, grid), 0)
    assert (low, high) == pytest.approx((0.4 - margin - grid, 0.4 + margin + grid), abs=1e-15)


def test_a_group_has_the_range_of_a_ratio():
    standing = planned("dp", "laplace").standing
    margin = standing.terms.margin
    low, high = standing.group(NoisyMeans((0.5,), 100, (0.4, 0.2), 0.001, 0.0))
    assert low == pytest.approx((0.2 - margin) / (0.4 + margin))
    assert high == pytest.approx((0.2 + margin) / (0.4 - margin))
    assert standing.group(NoisyMeans((0.5,), 100, (margin / 2, 0.0), 0.001, 0.0)) == EVERYTHING


def test_nothing_is_planned_for_single_flips():
    found = plan(rows=10**6, queries={"mean": 5, "flip": 5})
    (line,) = [each for each in found.alternatives if each.guarantee == "dp"]
    assert line.margin is None


def test_a_dry_run_has_the_noise_of_the_answer():
    """Of as many rows as are made up, it had some ten times as much: its interval missed what is true of every row."""
    always = "x < 1 OR x >= 1 OR x IS NULL"
    with Session({"x": np.arange(100_000)}, seed=1, queries=200, guarantee="dp") as session:
        answer = session.mean(always)
        assert answer.high == 1
        for _ in range(20):
            dry = session.dry_run(always)
            assert dry.high == 1
            assert dry.low == pytest.approx(1 - session.plan.margin, abs=0.1)
