"""The interval of every guarantee for every kind of question: shape, order, the promised accuracy, the units."""

from dataclasses import replace
from fractions import Fraction
from math import inf, log, sqrt

import numpy as np
import pytest

from holdfast import certify, plan
from holdfast.errors import InvalidArgument
from holdfast.guarantees import information, posterior
from holdfast.guarantees.mathematics.concentration import clopper_pearson
from holdfast.mechanisms.base import Release, answer_from, intervals
from holdfast.mechanisms.coins import Coins
from holdfast.mechanisms.fresh_rows import FreshRows
from holdfast.mechanisms.laplace import Laplace
from holdfast.planning import Plan
from holdfast.queries.query import Query
from holdfast.rows.open import open_rows
from toy_queries import Group, Histogram, Mean, Share

PAIRS = [
    ("posterior", "coins"),
    ("information", "coins"),
    ("information", "laplace"),
    ("dp", "laplace"),
    ("paper", "laplace"),
    ("paper", "coins"),
    ("split", "best"),
]
QUERIES: list[Query] = [Share(), Mean(), Mean(bounds=(-3.0, 5.0)), Group(), Group(bounds=(10.0, 20.0)), Histogram()]
NAMES = ["share", "mean", "mean in units", "group", "group in units", "histogram"]


def planned(guarantee: str, mechanism: str) -> Plan:
    """A plan that says something: the paper's systems need far more rows."""
    rows = 10**12 if guarantee == "paper" else 10**7
    return plan(rows=rows, queries=10, guarantee=guarantee, mechanism=mechanism)


PLANS = {pair: planned(*pair) for pair in PAIRS}


@pytest.fixture(params=PAIRS, ids="-".join)
def standing(request: pytest.FixtureRequest) -> Plan:
    return PLANS[request.param]


def covers(standing: Plan, query: Query) -> bool:
    """The paper's averaged coins answer shares and means only; a session refuses the rest."""
    return not (standing.guarantee == "paper" and standing.mechanism == "coins" and intervals(query) > 1)


def made_up(standing: Plan, query: Query, share: float, member: float = 0.5) -> Release:
    """The release whose every statistic is as expected, if `share` say one and `member` are in the group."""
    ell = standing.rows_per_query
    if query.kind == "histogram":
        law = [share, *[(1 - share) / (query.outcomes - 1)] * (query.outcomes - 1)]
    elif query.kind == "group":
        law = [1 - member, member * (1 - share), member * share]
    else:
        law = [1 - share, share]
    if standing.mechanism == "coins":
        mass = standing.flip_probability
        counts = [round(ell * ((1 - len(law) * mass) * p + mass)) for p in law]
        counts[counts.index(max(counts))] += ell - sum(counts)
        coins = Coins(draws=ell, flip_probability=mass)
        return Release(coins._answer(query, tuple(counts)), ell, counts=tuple(counts))
    values = {"histogram": tuple(law), "group": (member, member * share)}.get(query.kind, (share,))
    counts = [round(value * ell) for value in values]
    counted = {"share": counts, "histogram": counts, "group": counts[:1]}.get(query.kind, [])
    return Release(answer_from(query, values), ell, counts=tuple(counted), values=values)


@pytest.mark.parametrize("query", QUERIES, ids=NAMES)
@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.5, 0.999, 1.0])
def test_every_estimate_is_ordered_and_within_the_bounds(standing, query, share):
    if not covers(standing, query):
        return
    found = certify.certify(standing, query, made_up(standing, query, share), draws=standing.rows_per_query)
    low, high = query.bounds
    assert len(found) == (query.outcomes if query.kind == "histogram" else 1)
    for estimate in found:
        assert low <= estimate.low <= estimate.value <= estimate.high <= high
    assert found[0].value == pytest.approx(low + (high - low) * share, abs=(high - low) * 0.002)


@pytest.mark.parametrize("query", [Share(), Mean(), Mean(bounds=(-3.0, 5.0)), Histogram()], ids=str)
def test_the_promised_accuracy_is_kept_whatever_comes_up(standing, query):
    if not covers(standing, query):
        return
    low, high = query.bounds
    for share in np.linspace(0, 1, 101):
        release = made_up(standing, query, float(share))
        for estimate in certify.certify(standing, query, release, draws=standing.rows_per_query):
            reach = max(estimate.high - estimate.value, estimate.value - estimate.low)
            if query.outcomes > 2 and standing.mechanism == "coins":
                spread = (1 - 2 * standing.flip_probability) / (1 - query.outcomes * standing.flip_probability)
            else:
                spread = 1.0  # the plan's accuracy is for two outcomes
            if standing.guarantee == "paper" and standing.mechanism == "coins":
                spread += standing.flip_probability / standing.accuracy  # the interval is around the flipped share
            assert reach <= (high - low) * (standing.accuracy * spread + 1e-9)


def test_a_group_is_wider_than_the_whole_and_an_unseen_one_says_nothing(standing):
    if not covers(standing, Group()):
        return
    ell = standing.rows_per_query
    (whole,) = certify.certify(standing, Mean(), made_up(standing, Mean(), 0.4), draws=ell)
    (group,) = certify.certify(standing, Group(), made_up(standing, Group(), 0.4, member=0.5), draws=ell)
    assert group.low < whole.low < 0.4 < whole.high < group.high
    (nobody,) = certify.certify(standing, Group(), made_up(standing, Group(), 0.4, member=0.0), draws=ell)
    assert (nobody.low, nobody.high) == (0.0, 1.0)


def test_coins_are_certified_by_the_theorem_they_stand_on():
    standing = PLANS["posterior", "coins"]
    ell = standing.rows_per_query
    release = Release(0.3, ell, counts=(ell - ell // 3, ell // 3))
    (found,) = certify.certify(standing, Share(), release, draws=ell)
    assert (found.low, found.high) == posterior.outcome_interval(
        ell // 3,
        ell,
        outcomes=2,
        mass=standing.flip_probability,
        chi=standing.constants["chi"],
        level=posterior.level(standing.constants["beta2"], k=10),
    )
    standing = PLANS["information", "coins"]
    ell = standing.rows_per_query
    release = Release(0.3, ell, counts=(ell - ell // 3, ell // 3))
    (found,) = certify.certify(standing, Share(), release, draws=ell)
    assert (found.low, found.high) == information.outcome_interval(
        ell // 3,
        ell,
        outcomes=2,
        n=standing.rows,
        r=standing.constants["radius"],
        level=standing.constants["beta2"] / 10,
    )


def test_fresh_rows_are_certified_exactly():
    standing = PLANS["split", "best"]
    ell, level = standing.rows_per_query, 0.05 / 10
    (share,) = certify.certify(standing, Share(), Release(0.25, ell, counts=(ell // 4,), values=(0.25,)), draws=ell)
    assert (share.low, share.high) == pytest.approx(clopper_pearson(ell // 4, ell, level))
    (mean,) = certify.certify(standing, Mean(), Release(0.25, ell, values=(0.25,)), draws=ell)
    assert (mean.low, mean.high) == pytest.approx(information.widen((0.25, 0.25), n=ell, r=log(2 / level)))
    assert mean.high >= share.high - 1e-9  # a mean may vary less than a share, but nobody promised


def test_noisy_answers_are_certified_by_noise_and_sampling_at_half_a_level_each():
    standing = PLANS["information", "laplace"]
    ell, half = standing.rows_per_query, standing.constants["beta2"] / (2 * standing.statements)
    scale = Laplace(draws=ell, epsilon=standing.constants["epsilon"]).scale(standing.rows)
    radius = scale * log(1 / half) + sqrt(log(2 / half) / (2 * ell))
    sample = (0.4 - radius, 0.4 + radius)
    expected = information.widen(sample, n=standing.rows, r=standing.constants["radius"])
    (found,) = certify.certify(standing, Mean(), Release(0.4, ell, values=(0.4,)), draws=ell)
    assert (found.low, found.high) == pytest.approx(expected, rel=1e-9)
    assert found.low <= expected[0]  # the grid of the noise is allowed for
    assert found.high >= expected[1]


@pytest.mark.parametrize("query", QUERIES, ids=NAMES)
@pytest.mark.parametrize("guarantee", ["posterior", "information"])
def test_an_infinite_chi_or_radius_promises_nothing(guarantee, query):
    standing = PLANS[guarantee, "coins"]
    silent = {name: value for name, value in standing.constants.items() if name != "chi"}
    if guarantee == "information":
        silent["radius"] = inf
    release = made_up(standing, query, 0.3)
    for estimate in certify.certify(replace(standing, constants=silent), query, release, draws=standing.rows_per_query):
        assert (estimate.low, estimate.high) == query.bounds


def test_more_draws_are_narrower_and_the_plans_number_gives_the_plans_accuracy():
    for guarantee in ("posterior", "information"):
        standing = PLANS[guarantee, "coins"]
        ell = standing.rows_per_query
        assert certify.accuracy_at(standing, ell) == pytest.approx(standing.accuracy, rel=1e-9)
        values = [certify.accuracy_at(standing, draws) for draws in (1, ell // 2, ell, 2 * ell, 10**9)]
        assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("guarantee", ["posterior", "information"])
def test_draws_for_an_accuracy_are_the_fewest(guarantee):
    standing = PLANS[guarantee, "coins"]
    for factor in (0.9, 1.0, 2.0):
        wanted = standing.accuracy * factor
        draws = certify.draws_for(standing, wanted)
        assert draws is not None
        assert certify.accuracy_at(standing, draws) <= wanted < certify.accuracy_at(standing, draws - 1)
    assert certify.draws_for(standing, 1e-6) is None
    assert certify.draws_for(standing, 1.0) == 1


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair[0] not in ("posterior", "information")] + [PAIRS[2]])
def test_answers_that_cannot_vary_say_so(pair):
    with pytest.raises(InvalidArgument, match="cannot be made wider or narrower under"):
        certify.accuracy_at(PLANS[pair], 100)


def test_averages_of_another_length_have_no_interval_in_the_paper():
    standing = PLANS["paper", "coins"]
    (found,) = certify.certify(standing, Share(), Release(0.5, 10, counts=(5, 5)), draws=10)
    assert (found.low, found.high) == (0.0, 1.0)


@pytest.mark.parametrize("query", QUERIES, ids=NAMES)
@pytest.mark.parametrize(
    "pair", [("posterior", "coins"), ("information", "laplace"), ("dp", "laplace"), ("split", "best")]
)
def test_real_releases_are_certified_around_the_data(pair, query, seed):
    """Plans of a size that can be run. The population is the data's own, i.i.d.: all intervals hold with 1 - 1e-6."""
    rng = np.random.default_rng(seed)
    n = 40_000
    rows = open_rows({"x": rng.random(n), "g": rng.integers(0, 2, n).astype(float)})
    standing = plan(rows=n, queries=10, confidence=1 - 1e-6, guarantee=pair[0], mechanism=pair[1])
    mechanism = {
        "coins": lambda: Coins(draws=standing.rows_per_query, flip_probability=standing.flip_probability),
        "laplace": lambda: Laplace(draws=standing.rows_per_query, epsilon=standing.constants["epsilon"]),
    }.get(standing.mechanism, lambda: FreshRows(draws=standing.rows_per_query, key=4))()
    found = certify.certify(standing, query, mechanism.release(query, rows, rng), draws=standing.rows_per_query)
    low, high = query.bounds
    truth = {"histogram": [0.25] * 4}.get(query.kind, [0.5 if query.bounds == (0.0, 1.0) else None])
    for estimate, value in zip(found, truth, strict=True):
        if value is None:  # x in [0, 1] of other bounds
            value = 0.5 if low < 0 else 10.0
        assert low <= estimate.low <= value <= estimate.high <= high


@pytest.mark.parametrize("bounds", [(1e15, 1e15 + 1), (1.7e9, 1.7e9 + 1), (-5.0, 5.0), (0.0, 3.0), (-1e-3, 1e9)])
def test_ends_are_rounded_outwards_in_the_units_of_the_question(bounds):
    low, high = (Fraction(bound) for bound in bounds)
    for first, last in [(0.2, 0.8), (0.0, 1.0), (0.1, 0.3), (1 / 3, 2 / 3)]:
        estimate = certify._in_units(Mean("x", bounds), (first + last) / 2, (first, last))
        assert Fraction(estimate.low) <= low + (high - low) * Fraction(first)
        assert Fraction(estimate.high) >= low + (high - low) * Fraction(last)
        assert bounds[0] <= estimate.low <= estimate.value <= estimate.high <= bounds[1]
