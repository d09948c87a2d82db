"""The exchange guarantee in small: its interval, groups, guards, the constants in the terms, and what is not true."""

from dataclasses import replace
from itertools import pairwise, product
from math import comb, exp, inf, log, sqrt

import numpy as np
import pytest
from scipy.special import expit

from holdfast.errors import InvalidArgument, NotCovered, PlanConflict
from holdfast.guarantees import posterior, read
from holdfast.guarantees.exchange import Exchange
from holdfast.guarantees.mathematics import exchange
from holdfast.guarantees.mathematics.concentration import clopper_pearson
from holdfast.guarantees.statistic import OneShare, OutcomeShares, Tally
from holdfast.guarantees.terms import Goal
from holdfast.session.planning import plan
from planned import certified, expected_release, planned
from toy_queries import Group, Histogram, Mean, Share

SETTING = {"n": 10**6, "charge": 47_365 * 10**4, "mass": 0.0078, "om2": 0.183, "kap": 0.34, "s": 0.997}
NATS = {"L": 4.1, "L2": 10.0}


def by_hand(setting):
    """The theorem for c >= 3 and rho = 1/2, written again from its statement."""
    n, charge, a, om2, kap, s, nats, more = setting.values()
    lam = sqrt(1 + om2)
    prime = a * (1 - a) / (1 - 2 * a) ** 2
    eps2 = (2 / 3) / (n * a) + 0.8474 * (3 * om2 / (4 * n * a**2) + (lam**2 + 3) / (4 * n**2 * a**2))
    eps3 = 3 * charge * (log(2 / a) + 0.5) * exp(-n * a**2 / (2 * om2 + (2 / 3) * (lam + 1) * a))
    k1, big = 0.36 * kap * prime, 1.5 * (1 + 0.36 * kap * (0.5 + 2 * prime))
    w, v = om2 * (1 + eps2) / 2, charge / (2 * n)
    trace = v * (1 + k1 + big * log(1 / (1 - s)) / (2 * s * prime * n)) + more / (kap * n * a**2)
    return (nats + eps3 + w * trace) / (1 - lam**-2 - w * v * big / (s * prime * n))


@pytest.mark.parametrize("changed", [{}, {"mass": 0.02}, {"om2": 1.0}, {"kap": 4.0}, {"s": 0.5}, {"charge": 10**6}])
def test_ibar_is_the_theorems(changed):
    setting = SETTING | NATS | changed
    assert float(exchange.ibar(**setting)) == pytest.approx(by_hand(setting), rel=1e-5)  # .8474 is rounded


def test_constants_for_two_outcomes_are_smaller():
    assert exchange.ibar(**SETTING, **NATS, outcomes=2) < exchange.ibar(**SETTING, **NATS)


@pytest.mark.parametrize(
    "changed",
    [
        {"n": 100},  # the denominator is not positive
        {"mass": 0.21},
        {"mass": 0.0},
        {"kap": 4.1},
        {"kap": 0.0},
        {"s": 1.0},
        {"s": 0.0},
        {"om2": 0.0},
        {"rho": 0.6},
        {"rho": 0.0},
    ],
)
def test_what_the_theorem_does_not_cover_promises_nothing(changed):
    assert exchange.ibar(**(SETTING | NATS | changed)) == inf


def test_an_extrapolated_law_that_leaves_the_unit_interval_promises_nothing():
    """At a = .0005 and n = 10^6 coins leave [0, 1] when extrapolated: eps3 exceeds n."""
    nats = float(exchange.ibar(**(SETTING | NATS | {"mass": 0.0005})))
    assert exchange.j(10**6, nats) == inf
    assert exchange.hi(0.3, inf) == 1.0
    assert exchange.lo(0.7, inf) == 0.0
    assert exchange.worst_case(inf) == 1.0
    assert (exchange.group_lower(0.5, 1.0, inf), exchange.group_upper(0.5, 1.0, inf)) == (0.0, 1.0)


def test_less_mass_is_possible_if_less_of_it_is_kept():
    thin = SETTING | NATS | {"mass": 0.002}
    assert exchange.j(10**6, exchange.ibar(**thin)) == inf
    assert exchange.ibar(**thin, rho=0.1) < 1.25 * exchange.ibar(**SETTING, **NATS)


@pytest.mark.parametrize("j", [1e-9, 3.4e-4, 0.05, 0.6])
def test_the_interval_holds_exactly_the_populations_that_the_theorem_allows(j):
    p = np.linspace(0, 1, 20_001)
    for x in (0.0, 1e-4, 0.02, 0.5, 0.9, 1.0):
        allowed = p[(x - p) ** 2 <= j * (x + p - 2 * x * p)]
        inside = allowed if len(allowed) else np.array([x])
        assert exchange.lo(x, j) <= inside.min() <= exchange.lo(x, j) + 1e-4
        assert exchange.hi(x, j) - 1e-4 <= inside.max() <= exchange.hi(x, j)
        assert exchange.hi(x, j) - x <= exchange.worst_case(j) + 2e-12


@pytest.mark.parametrize("rows", [150, 203, 400, 2_000])
@pytest.mark.parametrize("queries", [0, 1, 5])
@pytest.mark.parametrize("identical", [True, False])
def test_an_answer_is_no_wider_than_its_margin_also_from_few_rows(rows, queries, identical):
    terms = Exchange.plan(Goal(rows, queries, 0.95, ends=False, identical=identical), "coins")
    draws = terms.rows_per_query
    guarantee = Exchange(terms).at(draws, 0)
    for ones in range(0, draws + 1, 1 + draws // 50):
        (value,) = OneShare().from_counts((draws - ones, ones), draws, mass=terms.mass)
        low, high = guarantee.share(Tally((value,), draws, (draws - ones, ones), (1,)), 0)
        assert max(value - low, high - value) <= guarantee.margin(draws) + 1e-12


def test_the_ends_are_mirrored_and_a_rare_event_stays_rare():
    j = 3.4e-4
    assert exchange.hi(0.0, j) == pytest.approx(j)
    assert exchange.lo(j, j) == 0.0
    for x in np.linspace(0, 1, 101):
        assert exchange.lo(float(x), j) == pytest.approx(1 - exchange.hi(1 - float(x), j), abs=3e-12)


@pytest.mark.parametrize("j", [1e-6, 3.4e-4, 0.02])
@pytest.mark.parametrize("g", [1.0, 0.3, 0.05])
def test_a_group_holds_exactly_the_means_that_the_theorem_allows(j, g):
    k, r = j / g, exchange.hi(g, j) / g
    t = np.linspace(0, 1, 20_001)
    for mu in (0.0, 0.01, 0.4, 0.5, 0.97, 1.0):
        allowed = t[(mu - t) ** 2 <= k * ((mu - t) ** 2 + mu * (1 - mu) + r * t * (1 - t))] if k < 1 else t
        inside = allowed if len(allowed) else np.array([mu])
        low, high = exchange.group_lower(mu, g, j), exchange.group_upper(mu, g, j)
        assert low <= inside.min() <= low + 1e-4
        assert high - 1e-4 <= inside.max() <= high


def test_group_ends_grow_with_the_mean_and_shrink_with_the_share():
    j, means = 3.4e-4, np.linspace(0, 1, 201)
    for g in (1.0, 0.1, 0.01, 0.003):
        upper = [exchange.group_upper(float(mu), g, j) for mu in means]
        assert upper == sorted(upper)
        lower = [exchange.group_lower(float(mu), g, j) for mu in means]
        assert lower == sorted(lower)
    reach = [exchange.group_upper(0.5, g, 3.426e-4) - 0.5 for g in (1.0, 0.1, 0.01, 0.003)]
    assert reach == pytest.approx([0.0131, 0.0422, 0.139, 0.261], abs=5e-4)
    assert exchange.group_upper(0.5, j / 2, j) == 1.0


def test_no_chi_in_the_posterior_guarantees_interval_can_stand_for_j():
    """Two rows, each 1 with chance .05; ten tosses at a = .05, all 0. Exactly: the population is outside chi's end."""
    n, a, share, tosses = 2, 0.05, 0.05, 10
    weights, means = [], []
    for ones in range(n + 1):
        f = ones / n
        weights.append(comb(n, ones) * share**ones * (1 - share) ** (n - ones) * (1 - a - (1 - 2 * a) * f) ** tosses)
        means.append(f)
    mu = float(np.dot(weights, means) / np.sum(weights))
    tight = (mu - share) ** 2 / (mu + share - 2 * mu * share)  # the smallest j that the theorem's inequality allows
    assert exchange.hi(mu, tight) == pytest.approx(share, rel=1e-9)
    _, renamed = posterior.widen((mu, mu), chi=4 * tight / (2 - tight))
    assert renamed < share / 2


def test_the_plan_holds_the_constants_and_they_alone_make_j():
    terms = planned("exchange", "coins").terms
    constants = {name: getattr(terms, name) for name in ("mass", "kap", "L2", "rho", "identical")}
    found = []
    for om2, nats in zip(terms.om2, terms.L, strict=True):
        s = float(exchange.good_s(terms.rows, terms.charge, om2, nats))
        found.append(float(exchange.ibar(terms.rows, terms.charge, om2=om2, s=s, L=nats, **constants)))
    assert terms.j_at(0) == terms.j_at(terms.charge) == pytest.approx(2 * min(found) / terms.rows, rel=1e-12)
    assert terms.beta1 + terms.beta2 + terms.later_beta2 <= (1 - terms.confidence) * (1 + 1e-12)
    again = read(planned("exchange", "coins").to_dict())
    assert again.terms.j_at(0) == terms.j_at(0)


@pytest.mark.parametrize("rows", [50, 2_000, 10**5, 10**8])
@pytest.mark.parametrize("end", [{}, {"queries": 100}])
def test_no_extrapolation_that_is_left_out_would_have_made_j_smaller(rows, end):
    terms = plan(rows=rows, guarantee="exchange", **end).terms
    constants = {"rho": terms.rho, "identical": terms.identical}
    best = set()
    for charge in np.unique(np.geomspace(max(1, terms.charge), 10**5 * rows, 200).astype(int)).tolist():
        every = [
            exchange.ibar_of_one(rows, charge, terms.mass, om2, terms.kap, nats, terms.L2, **constants)
            for om2, nats in zip(terms.om2, terms.L, strict=True)
        ]
        assert terms.j_at(charge) == exchange.j(rows, min(every))
        best |= {every.index(min(every))} if min(every) < inf else set()
    assert len(best) > 1 or rows < 1_000


def test_a_larger_cap_with_the_same_constants_is_wider():
    standing = planned("exchange", "coins").standing
    wider = Exchange(replace(standing.terms, charge=4 * standing.terms.charge))
    assert wider.step > standing.step


@pytest.mark.parametrize(("rows", "queries"), [(10**6, 10**4), (10**4, 100), (2_000, 20), (300, 10)])
def test_constants_are_near_the_best(rows, queries):
    """A search over all of them, at the planned draws, mass and split, gains less than half a per cent."""
    terms = plan(rows=rows, queries=queries, guarantee="exchange", rows_per_query="best", end=True).terms
    beta1, (om2,), (planned_nats,) = terms.beta1, terms.om2, terms.L
    part, planned_s = exp(-terms.L2) / beta1, float(exchange.good_s(rows, terms.charge, om2, planned_nats))
    best = terms.j_at(0)
    for scale, kap, s, shift in product((0.8, 1.0, 1.25), (0.5, 1.0, 2.0), (-1.0, 0.0, 1.0), (-1.5, 0.0, 1.5)):
        share = float(expit(log(part / (1 - part)) + shift))
        kept = 1 - (1 - planned_s) * exp(s)
        nats = -log(beta1 * (1 - share)), -log(beta1 * share)
        tried = (om2 * scale, min(4.0, terms.kap * kap), kept, *nats)
        ibar = exchange.ibar(rows, terms.charge, terms.mass, *tried, rho=terms.rho, identical=False)
        best = min(best, exchange.j(rows, ibar))
    assert sqrt(terms.j_at(0)) <= 1.005 * sqrt(best)


@pytest.mark.parametrize("query", [Share(), Mean(bounds=(0, 1)), Histogram(), Group()], ids=lambda q: type(q).__name__)
def test_intervals_are_the_coins_widened(query):
    standing = planned("exchange", "coins").standing
    release = expected_release(standing, query.statistic, 0.3)
    low, high = (certified(standing, query, release)[0].low, certified(standing, query, release)[0].high)
    assert low < 0.3 < high
    if query.statistic.outcomes == 2:
        terms = standing.terms
        ends = clopper_pearson(release.counts[1], release.draws, terms.beta2 / (np.e * terms.statements))
        debiased = [(end - terms.mass) / (1 - 2 * terms.mass) for end in ends]
        assert low == pytest.approx(exchange.lo(debiased[0], terms.j_at(0), identical=False))
        assert high == pytest.approx(exchange.hi(debiased[1], terms.j_at(0), identical=False))
        assert max(high - 0.3, 0.3 - low) <= terms.margin


def test_single_flips_and_noise_are_refused():
    standing = planned("exchange", "coins").standing
    with pytest.raises(InvalidArgument, match="mostly noise"):
        standing.supports(OutcomeShares(10**6))
    with pytest.raises(NotCovered, match="says nothing about NoisyMeans"):
        standing.share(expected_release(planned("dp", "laplace").standing, Share().statistic, 0.3), 0)


def test_no_plan_of_one_guarantee_is_read_by_the_other():
    facts = planned("exchange", "coins").to_dict()
    with pytest.raises(PlanConflict):
        read(facts | {"guarantee": "posterior"})


@pytest.mark.parametrize("j", [0.125, 0.05, 0.01])
def test_of_rows_that_are_not_identical_too_a_larger_group_is_never_wider(j: float) -> None:
    """`hi` jumps to 1 there, so hi(g)/g alone would not fall in g."""
    shares = np.linspace(max(0.5, 2 * j), 1.0, 2_001)
    ends = [exchange.group_upper(0.5, float(g), j, identical=False) for g in shares]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(ends))
    for g in shares[::100]:
        most = exchange.most_over(float(g), j, identical=False)
        assert most >= max(exchange.hi(float(x), j, identical=False) / x for x in shares if x >= g)


@pytest.mark.parametrize("far", [1e-9, 3e-4, 0.1, 0.125, 0.2, 0.7, inf])
@pytest.mark.parametrize("identical", [True, False])
def test_many_intervals_at_once_are_those_of_each_alone(far, identical):
    rng = np.random.default_rng(5)
    lows = np.concatenate([[0.0, 0.0, 1.0, 1e-9], rng.random(60), min(far, 1.0) * 2 * rng.random(60)]).clip(0, 1)
    means = np.array([lows, (lows + 0.05 * rng.random(lows.size)).clip(0, 1)])
    shares = rng.permutation(lows).clip(1e-12, 1)
    found = exchange.intervals(means, far, identical=identical)
    alone = [exchange.interval(mean, far, identical=identical) for mean in means.T.tolist()]
    np.testing.assert_allclose(found, np.transpose(alone), rtol=0, atol=3e-12)
    found = exchange.group_ranges(means, shares, far, identical=identical)
    pairs = zip(means.T.tolist(), shares.tolist(), strict=True)
    alone = [exchange.group_range(mean, share, far, identical=identical) for mean, share in pairs]
    np.testing.assert_allclose(found, np.transpose(alone), rtol=0, atol=1e-11)


@pytest.mark.parametrize("count", [3, 11, 12, 14, 30])
@pytest.mark.parametrize("guarantee", ["exchange", "posterior"])
@pytest.mark.parametrize("identical", [True, False])
def test_many_shares_and_groups_of_a_release_are_those_of_each_alone(count, guarantee, identical):
    standing = plan(rows=10**6, queries=100, guarantee=guarantee, identical=identical).standing
    rng = np.random.default_rng(count)
    counts = [*rng.multinomial(12_000, rng.dirichlet(np.ones(2 * count + 1))).tolist(), 0, 0]
    release = Tally((), 12_000, tuple(counts), tuple(range(len(counts))))
    every = [standing.share(release, part) for part in range(len(counts))]
    check_nearly(standing.shares(release, len(counts)), every)
    check_nearly(standing.shares(release, count), every[:count])
    alone = [standing.group(release, part) for part in range(count + 1)]
    check_nearly([mean for mean, _ in standing.groups(release, count + 1)], alone)


def check_nearly(found, alone):
    """Ends are rounded outward, and may be nearer to the exact ones than those found alone, by a part of CONVERGED."""
    (lows, highs), (low, high) = np.transpose(found), np.transpose(alone)
    assert ((low - 1e-9 <= lows) & (lows <= low + 1e-8) & (high - 1e-8 <= highs) & (highs <= high + 1e-9)).all()
