"""Do the formulas describe the rows that are drawn?  Seeded; tolerance derived; a mutant must be caught.

A mean of n independent values in [lo, hi] is within (hi - lo) sqrt(log(2/FALSE_ALARM)/(2 n)) of its expectation except
with probability FALSE_ALARM (Hoeffding): 0.0055 (hi - lo) for n = 240,000. The mutants move a
formula by more than that.
"""

from math import log, sqrt

import numpy as np
import pytest

from holdfast.lab import populations

FALSE_ALARM, N = 1e-6, 240_000
RADIUS = sqrt(log(2 / FALSE_ALARM) / (2 * N))


@pytest.fixture(scope="module")
def rows():
    return populations.draw(N, np.random.default_rng(20260101), signals=3)


def near(mean: float, expected: float) -> bool:
    return abs(mean - expected) <= RADIUS


@pytest.mark.parametrize("minutes", [-5, 0, 15, 60])
def test_share_later_than(rows, minutes):
    share = (rows["dep_delay"] > minutes).mean()
    assert near(share, populations.share_later_than(minutes))
    assert not near(share, populations.share_later_than(minutes + 1.5 if minutes < 60 else minutes - 20))


@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
def test_quantile_is_where_the_share_is(rows, q):
    at = populations.delay_quantile(q)
    assert near((rows["dep_delay"] <= at).mean(), q)
    assert not near((rows["dep_delay"] <= at + 3).mean(), q)


def test_carriers_have_their_shares(rows):
    for carrier in populations.CARRIERS:
        assert near((rows["carrier"] == carrier.name).mean(), carrier.share)


def test_mean_distance_of_a_carrier(rows):
    # The group's sum over all rows is a mean of values in [0, 2900]; a formula 50 miles off moves it by 15.
    in_group = rows["distance"] * (rows["carrier"] == "UA")
    expected = 0.3 * populations.mean_distance("UA")
    assert abs(in_group.mean() - expected) <= 2_900 * RADIUS
    assert abs(in_group.mean() - expected - 0.3 * 80) > 2_900 * RADIUS


def test_outcome_is_a_fair_coin_that_only_the_hint_predicts(rows):
    outcome = rows["outcome"]
    assert near(outcome.mean(), 0.5)
    assert near((rows["hint"] == outcome).mean(), populations.HINT)
    for index in range(3):
        assert near((rows[populations.signal(index)] == outcome).mean(), 0.5)
