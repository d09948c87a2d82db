"""Means of all rows plus Gaussian noise by the exchange theorem: the plan, the interval, the noise on a grid."""

from math import e, exp, log

import numpy as np
import pytest
from scipy.stats import norm

import holdfast as hf
from holdfast.errors import InvalidArgument, NotCovered
from holdfast.guarantees import read
from holdfast.guarantees.mathematics import exchange
from holdfast.guarantees.statistic import NoisyMeans
from holdfast.mechanisms import noisy_means
from holdfast.session.planning import plan
from planned import certified, expected_release, planned
from toy_queries import Group, Share


@pytest.mark.parametrize(
    ("n", "charge", "om2", "s", "nats"), [(10**6, 4.7e8, 0.18, 0.99, 4.0), (50, 30.0, 2.0, 0.5, 3.0)]
)
def test_ibar_is_the_theorems(n, charge, om2, s, nats):
    """E[tr|T] <= (V/2)(1 + (2/(sn))(I + log(1/(1-s))/2)), put into (1 - lam^-2) I = L + om2 E[tr|T]/2."""
    found = float(exchange.gaussian_ibar(n, charge, om2, s, nats))
    trace = charge / n / 2 * (1 + 2 / (s * n) * (found + log(1 / (1 - s)) / 2))
    assert (1 - 1 / (1 + om2)) * found == pytest.approx(nats + om2 * trace / 2)


def test_useless_constants_promise_nothing():
    assert exchange.gaussian_ibar(10, 10**6, 0.5, 0.5, 3.0) == np.inf
    assert exchange.gaussian_ibar(10**6, 10**6, 0.5, 1.0, 3.0) == np.inf
    assert exchange.gaussian_ibar(10**6, 10**6, 0.0, 0.5, 3.0) == np.inf


@pytest.mark.parametrize("deviation", [0.3, 1.0, 5.0])
def test_a_gaussian_beside_the_grid_has_no_more_mass_than_one_on_it(deviation):
    """So the extrapolated law, whose mean is beside the grid, is at most a density: the theorem holds on the grid."""
    grid = np.arange(-200, 201)
    on_it = np.exp(-(grid**2) / (2 * deviation**2)).sum()
    for center in np.linspace(0, 1, 21):
        assert np.exp(-((grid - center) ** 2) / (2 * deviation**2)).sum() <= on_it * (1 + 1e-14)


@pytest.mark.parametrize("deviation", [0.3, 1.0, 5.0, 40.0])
def test_tails_on_the_grid_are_those_of_the_line_one_step_further_in(deviation):
    grid = np.arange(-2000, 2001)
    law = np.exp(-(grid**2) / (2 * deviation**2))
    law /= law.sum()
    for step in range(int(8 * deviation) + 2):
        assert law[grid >= step].sum() <= norm.sf((step - 1) / deviation) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("rows", "queries", "margin"), [(10**6, 10**4, 0.0241), (10**5, 10**3, 0.0436), (10**4, 100, 0.0819)]
)
def test_margins(rows, queries, margin):
    found = plan(rows=rows, queries=queries, mechanism="gaussian")
    assert found.margin == pytest.approx(margin, rel=0.005)
    assert found.margin < plan(rows=rows, queries=queries).margin
    assert found.rows_per_query == rows
    assert "Each answer reads all rows." in found.sentence


def test_rows_for_a_tenth_and_a_thousand_queries():
    found = {
        identical: plan(queries=1000, margin=0.1, guarantee="gaussian", identical=identical)
        for identical in (True, False)
    }
    assert found[True].rows == pytest.approx(1.90e4, rel=0.005)
    assert found[True].rows < found[False].rows < 1.04 * found[True].rows


def test_scanning_everything_is_chosen_only_if_asked():
    found = plan(rows=10**4, queries=100)
    offered = {each.guarantee: each for each in found.alternatives}
    assert found.guarantee == "exchange"
    assert offered["gaussian"].margin < found.margin
    assert "chosen by name" in offered["gaussian"].note
    assert plan(rows=10**4, queries=100, guarantee="gaussian").mechanism == "gaussian"
    with pytest.raises(hf.PlanInfeasible):
        plan(rows=10**4, queries=100, mechanism="gaussian", rows_per_query=50)


def test_all_numbers_stand_in_the_terms():
    terms = planned("gaussian", "gaussian").terms
    assert terms.charge == terms.queries * terms.charge_per_answer
    assert terms.charge_per_answer >= 1 / (4 * terms.sigma**2)
    assert exp(-terms.L) + terms.beta2 <= (1 - terms.confidence) * (1 + 1e-12)
    assert terms.radius == pytest.approx(terms.sigma * norm.isf(terms.beta2 / (2 * e * terms.queries)))
    assert read(planned("gaussian", "gaussian").to_dict()).terms == terms


def test_an_interval_is_the_noise_widened_and_inside_the_margin():
    standing = planned("gaussian", "gaussian").standing
    terms, release = standing.terms, expected_release(standing, Share().statistic, 0.3)
    found = certified(standing, Share(), release)[0]
    assert found.low == pytest.approx(exchange.lo(0.3 - terms.radius, terms.j))
    assert found.high == pytest.approx(exchange.hi(0.3 + terms.radius, terms.j))
    assert max(found.high - 0.3, 0.3 - found.low) <= terms.margin
    group = certified(standing, Group(), expected_release(standing, Group().statistic, 0.3, member=0.1))[0]
    assert group.low < 0.3 < group.high
    assert group.high - group.low > 2 * (found.high - found.low)
    empty = expected_release(standing, Group().statistic, 0.3, member=0.0)
    assert standing.group(empty) == (0.0, 1.0)


def test_other_releases_and_fits_are_refused():
    standing = planned("gaussian", "gaussian").standing
    with pytest.raises(NotCovered, match="says nothing about Tally"):
        standing.share(expected_release(planned("exchange", "coins").standing, Share().statistic, 0.3), 0)
    data = {"x": np.linspace(0, 1, 500), "y": np.linspace(0, 1, 500)}
    with hf.Session(data, queries=10, mechanism="gaussian", seed=1) as session:
        loss = hf.losses.Squared({"x": (0, 1)}, "y", target_within=(0, 1))
        with pytest.raises(NotCovered, match=r"\(gaussian\) cannot give. Open one with guarantee='exchange'"):
            session.minimize(loss, radius=1)
        with pytest.raises(InvalidArgument, match="every answer reads the same number of rows"):
            session.mean("x > 0.5", rows_per_query=10)
        answer = session.mean("x > 0.5")
    assert answer.low <= 0.5 <= answer.high
    assert answer.rows_read == 500


# Single answers that read all rows, in a session of coins.


def test_a_scan_beside_coins_costs_what_as_many_coins_do():
    coins = planned("exchange", "coins").standing
    scans = coins.by("gaussian")
    assert scans is coins.by("gaussian")
    assert coins.by("coins") is coins
    each = coins.terms.rows_per_query
    for question in (Share(), Group()):
        assert scans.charge(question.statistic, each) == coins.charge(question.statistic, each)
    assert scans.sigma(each) == pytest.approx(1 / (2 * each**0.5))
    assert scans.terms.charge == coins.terms.charge
    assert scans.margin(each) < coins.margin(each) < 1.1 * scans.margin(each)
    assert scans.margin(scans.draws_for(0.1)) <= 0.1 < scans.margin(scans.draws_for(0.1) - 1)


def test_its_interval_is_the_noise_widened_by_the_step_of_coins():
    coins = planned("exchange", "coins").standing
    scans, each = coins.by("gaussian"), coins.terms.rows_per_query
    radius = scans.sigma(each) * norm.isf(coins.terms.beta2 / (2 * e * coins.terms.queries))
    release = NoisyMeans((0.3,), coins.terms.rows, (0.3,), scans.sigma(each), 0.0)
    low, high = scans.share(release, 0)
    step = {"J": coins.terms.j_at(0), "identical": False}
    assert (low, high) == pytest.approx((exchange.lo(0.3 - radius, **step), exchange.hi(0.3 + radius, **step)))
    assert max(high - 0.3, 0.3 - low) <= scans.margin(each)
    with pytest.raises(NotCovered, match="says nothing about Tally"):
        scans.share(expected_release(coins, Share().statistic, 0.3), 0)
    with pytest.raises(NotCovered, match="says nothing about NoisyMeans"):
        coins.share(release, 0)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("mean", {"query": "x > 0.5"}),
        ("mean", {"query": "x > 0.5", "by": "g", "groups": [0, 1]}),
        ("histogram", {"query": "g", "categories": [0, 1]}),
    ],
)
@pytest.mark.parametrize("ask", ["ask", "dry_run"])
def test_an_answer_by_scans_is_made_by_scans(monkeypatch, kind, options, ask):
    """Asked for by name, all rows are averaged; else, in the same session, none are."""
    averaged = []
    monkeypatch.setattr(noisy_means, "gaussian_mean", lambda values, sigma: averaged.append(len(values)) or 0.5)
    data = {"x": np.linspace(0, 1, 20_000), "g": np.arange(20_000) % 4}
    with hf.Session(data, queries=100, seed=1) as session:
        getattr(session, ask)(kind=kind, **options)
        assert averaged == []
        getattr(session, ask)(kind=kind, mechanism="gaussian", **options)
        assert set(averaged) == {20_000 if ask == "ask" else 1_000}


def test_coins_and_scans_share_one_budget():
    data = {"x": np.linspace(0, 1, 20_000), "g": np.arange(20_000) % 4}
    with hf.Session(data, queries=100, seed=1) as session:
        left = session.budget.answers_left
        drawn, scanned = session.mean("x > 0.5"), session.mean("x > 0.5", mechanism="gaussian")
        assert session.budget.answers_left == left - 2
        assert session.mean("x > 0.5", mechanism="gaussian").cached
        assert session.mean("x > 0.5", mechanism="coins").seq == drawn.seq
        assert (drawn.rows_read, scanned.rows_read) == (session.plan.rows_per_query, 20_000)
        assert scanned.low <= 0.5 <= scanned.high
        narrow = session.mean("x > 0.6", margin=0.95 * session.plan.margin, mechanism="gaussian")
        assert narrow.high - narrow.low < scanned.high - scanned.low
        assert narrow.rows_read == 20_000
        bars = session.histogram("g", categories=[0, 1], mechanism="gaussian")
        assert all(bar.low <= share <= bar.high for bar, share in zip(bars.values(), (0.25, 0.25, 0.5), strict=True))
        group = session.mean("x", within=(0, 1), where="g < 2", mechanism="gaussian")
        assert group.low <= 0.5 <= group.high
        assert session.dry_run("x > 0.1", mechanism="gaussian").made_up
        spent = session.ledger.spent
        with pytest.raises(InvalidArgument, match=r"with gaussian an answer reads all rows\. Give margin"):
            session.mean("x > 0.2", mechanism="gaussian", rows_per_query=100)
        with pytest.raises(NotCovered, match="does not cover single answers by 'laplace'; leave mechanism out"):
            session.mean("x > 0.2", mechanism="laplace")
        with pytest.raises(InvalidArgument, match="mechanism must be one of"):
            session.mean("x > 0.2", mechanism="scan")
        assert session.ledger.spent == spent


@pytest.mark.parametrize("guarantee", ["gaussian", "posterior", "information", "split"])
def test_other_sessions_refuse_another_mechanism(guarantee):
    mechanism = {"gaussian": "coins"}.get(guarantee, "gaussian")
    with (
        hf.Session({"x": np.linspace(0, 1, 2_000)}, queries=5, guarantee=guarantee, seed=1) as session,
        pytest.raises(NotCovered, match="Sessions under the exchange guarantee take both"),
    ):
        session.mean("x > 0.5", mechanism=mechanism)
