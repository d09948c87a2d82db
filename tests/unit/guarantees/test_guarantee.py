"""What every guarantee keeps: intervals with shape, order and the promised margin; terms that travel or are refused."""

import json
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest

from holdfast.errors import InvalidArgument, NotCovered, PlanConflict
from holdfast.guarantees import GUARANTEES, read
from holdfast.guarantees.guarantee import EVERYTHING, Guarantee, around, full_scan_margin, ratio
from holdfast.guarantees.plan import Plan
from holdfast.guarantees.statistic import GroupMean, OneMean, OneShare, OutcomeShares, Release, SingleFlips
from holdfast.queries.query import Query
from holdfast.questions.question import Drawing
from holdfast.rows.draws import Order
from holdfast.rows.open import open_rows
from holdfast.session.planning import plan
from pairwise import pairwise
from planned import PAIRS, certified, covered, expected_release, planned
from toy_queries import Group, Histogram, Mean, Share

QUERIES: list[Query] = [Share(), Mean(), Mean(bounds=(-3.0, 5.0)), Group(), Group(bounds=(10.0, 20.0)), Histogram()]
NAMES = ["share", "mean", "mean in units", "group", "group in units", "histogram"]


@pytest.fixture(params=PAIRS, ids="-".join)
def standing(request: pytest.FixtureRequest) -> Guarantee:
    return planned(*request.param).standing


@pytest.mark.parametrize("query", QUERIES, ids=NAMES)
def test_every_estimate_is_ordered_and_within_the_bounds(standing, query):
    if not covered(standing, query.statistic):
        return
    low, high = query.bounds
    for share in (0.0, 0.001, 0.3, 0.5, 0.999, 1.0):
        found = certified(standing, query, expected_release(standing, query.statistic, share))
        assert len(found) == (query.statistic.outcomes if isinstance(query, Histogram) else 1)
        for estimate in found:
            assert low <= estimate.low <= estimate.value <= estimate.high <= high
        assert found[0].value == pytest.approx(low + (high - low) * share, abs=(high - low) * 0.002)


@pytest.mark.parametrize("query", [Share(), Mean(), Mean(bounds=(-3.0, 5.0)), Histogram()], ids=str)
def test_the_promised_margin_is_kept_whatever_comes_up(standing, query):
    if not covered(standing, query.statistic):
        return
    low, high = query.bounds
    outcomes, coins = query.statistic.outcomes, standing.terms.mechanism == "coins"
    spread = 1.0
    if outcomes > 2 and coins:  # the plan's margin is for two outcomes
        spread = (1 - 2 * standing.coin_mass) / (1 - outcomes * standing.coin_mass)
    if standing.name == "paper" and coins:  # the interval is around the share of coins, some of them replaced
        spread += standing.coin_mass / standing.terms.margin
    for share in np.linspace(0, 1, 101):
        release = expected_release(standing, query.statistic, float(share))
        for estimate in certified(standing, query, release):
            reach = max(estimate.high - estimate.value, estimate.value - estimate.low)
            assert reach <= (high - low) * (standing.terms.margin * spread + 1e-9)


def test_a_group_is_wider_than_the_whole_and_an_unseen_one_says_nothing(standing):
    if not covered(standing, GroupMean()):
        return
    (whole,) = certified(standing, Mean(), expected_release(standing, OneMean(), 0.4))
    (group,) = certified(standing, Group(), expected_release(standing, GroupMean(), 0.4, member=0.5))
    assert group.low < whole.low < 0.4 < whole.high < group.high
    (nobody,) = certified(standing, Group(), expected_release(standing, GroupMean(), 0.4, member=0.0))
    assert (nobody.low, nobody.high) == (0.0, 1.0)


def test_a_release_of_another_kind_is_never_certified(standing):
    @dataclass(frozen=True)
    class Rumor(Release):
        """What no theorem is about."""

    for certify in (lambda release: standing.share(release, 0), standing.group):
        with pytest.raises(NotCovered, match="says nothing about Rumor"):
            certify(Rumor((0.5,), 10))


def test_single_flips_are_answered_by_coins_that_were_planned_for_them(standing):
    if (standing.name, standing.terms.mechanism) in (("information", "coins"), ("paper", "coins")):
        standing.supports(SingleFlips())
        return
    with pytest.raises(NotCovered, match="single flips"):
        standing.supports(SingleFlips())


def test_a_charge_counts_draws_noisy_means_or_rows(standing):
    ell, per_answer = standing.terms.rows_per_query, standing.terms.charge_per_answer
    assert standing.charge(OneShare(), ell) == standing.charge(OneMean(), ell) == per_answer
    parts = {"coins": 3, "laplace": 4, "gaussian": 4, "fresh_rows": 1}[
        standing.terms.mechanism
    ]  # draws with four outcomes, means
    if covered(standing, OutcomeShares(4)):
        assert standing.charge(OutcomeShares(4), ell) == parts * per_answer
    assert standing.terms.answers_left(0, 0) == 10
    assert standing.terms.answers_left(10 * per_answer, 0) == 0


def test_the_planned_number_of_rows_has_the_planned_margin(standing):
    assert standing.margin(standing.terms.rows_per_query) == standing.terms.margin


def test_answers_that_cannot_vary_say_so(standing):
    if standing.flexible:
        return
    for vary in (lambda: standing.margin(100), lambda: standing.draws_for(0.1)):
        with pytest.raises(InvalidArgument, match="every answer reads the same number of rows"):
            vary()


def test_coins_can_be_answered_from_any_number_of_draws():
    flexible = [pair for pair in PAIRS if planned(*pair).standing.flexible]
    assert flexible == [("exchange", "coins"), ("posterior", "coins"), ("information", "coins")]


@pytest.mark.parametrize("name", ["exchange", "posterior", "information"])
def test_more_draws_are_narrower_and_the_planned_number_gives_the_planned_margin(name):
    standing = planned(name, "coins").standing
    ell = standing.terms.rows_per_query
    assert standing._margin(ell) == pytest.approx(standing.terms.margin, rel=1e-9)
    margins = [standing.margin(draws) for draws in (1, ell // 2, ell, 2 * ell, 10**9)]
    assert margins == sorted(margins, reverse=True)


@pytest.mark.parametrize("name", ["exchange", "posterior", "information"])
def test_draws_for_a_margin_are_the_fewest(name):
    standing = planned(name, "coins").standing
    for factor in (0.9, 1.0, 2.0):
        margin = standing.terms.margin * factor
        draws = standing.draws_for(margin)
        assert draws is not None
        assert standing._margin(draws) <= margin < standing._margin(draws - 1)
    assert standing.draws_for(1e-6) is None
    assert standing.draws_for(1.0) == 1


SMALL_PLANS = [
    ("exchange", "coins"),
    ("posterior", "coins"),
    ("gaussian", "gaussian"),
    ("information", "laplace"),
    ("dp", "laplace"),
    ("split", "fresh_rows"),
]


@pytest.mark.parametrize("query", QUERIES, ids=NAMES)
@pytest.mark.parametrize("pair", SMALL_PLANS, ids="-".join)
def test_real_releases_are_certified_around_the_data(pair, query, seed):
    """Plans of a size that can be run. The population is the data's own, i.i.d.: all intervals hold with 1 - 1e-6."""
    rng = np.random.default_rng(seed)
    n = 40_000
    rows = open_rows({"x": rng.random(n), "g": rng.integers(0, 2, n).astype(float)})
    standing = plan(rows=n, queries=10, confidence=1 - 1e-6, guarantee=pair[0], mechanism=pair[1]).standing
    found = Drawing(rows, rng, standing, Order(bytes(32))).estimates(query, standing.terms.rows_per_query)
    low, high = query.bounds
    truth = [0.25] * 4 if isinstance(query, Histogram) else [0.5 if low < 1 else 10.0]  # x in [0, 1], clipped
    for estimate, value in zip(found, truth, strict=True):
        assert low <= estimate.low <= value <= estimate.high <= high


def test_small_arithmetic_of_intervals():
    assert around(0.1, 0.2) == (0.0, pytest.approx(0.3))
    assert ratio((0.1, 0.2), (0.4, 0.5)) == (pytest.approx(0.2), pytest.approx(0.5))
    assert ratio((0.1, 0.9), (0.0, 0.5)) == EVERYTHING
    assert full_scan_margin(10, 10**9, 0.05) == 1.0


# -- terms that travel ------------------------------------------------------------------------------------------------


def recorded(standing: Guarantee) -> dict[str, Any]:
    """What a ledger's first entry holds, after a journey through text."""
    return json.loads(json.dumps(standing.to_json(), allow_nan=False))


def test_terms_come_back_as_they_were_recorded(standing):
    again = read(recorded(standing))
    assert type(again) is type(standing)
    assert again.terms == standing.terms
    assert again.to_json() == standing.to_json()
    assert recorded(standing)["caps"] == {"charge": standing.terms.charge, "intervals": standing.terms.statements}


@pytest.mark.parametrize("name", ["ghosts", "Exchange", "", None, 5, ["posterior"], {}])
def test_an_unknown_guarantee_is_refused_by_name(name):
    facts = recorded(planned("posterior", "coins").standing) | {"guarantee": name}
    with pytest.raises(PlanConflict) as refusal:
        read(facts, location="The ledger a.ledger")
    text = str(refusal.value)
    assert text.startswith(f"The ledger a.ledger uses the guarantee {name!r}, which this installation")
    assert all(known in text for known in GUARANTEES.names())
    assert text.endswith(".")
    assert refusal.value.fields["guarantee"] == name


@pytest.mark.parametrize("version", [0, 2, 1.5, "1", None, True])
def test_another_version_of_a_guarantee_is_refused(standing, version):
    with pytest.raises(PlanConflict, match=f"uses version .* of the guarantee '{standing.name}'") as refusal:
        read(recorded(standing) | {"version": version})
    assert refusal.value.fields["guarantee"] == standing.name


def test_a_term_that_is_not_known_is_refused_by_name(standing):
    with pytest.raises(PlanConflict, match="The terms hold 'kappa', which this version"):
        read(recorded(standing) | {"kappa": 1.0})


def test_a_term_that_is_missing_is_refused_by_name(standing):
    optional = {"epsilon", "mass", "order"}  # None where they do not apply
    for field in fields(standing.terms):
        facts = recorded(standing)
        del facts[field.name]
        if field.name in optional and field.default is None:
            continue
        with pytest.raises(PlanConflict, match=f"The terms lack '{field.name}'"):
            read(facts)
    for name in ("guarantee", "version"):
        with pytest.raises(PlanConflict):
            read({key: value for key, value in recorded(standing).items() if key != name})


WRONG_TYPES = {int: [1.5, "7", None, True, [7]], float: ["0.5", None, True, [0.5]], str: [5, None, ["coins"]]}


@pytest.mark.parametrize(("pair", "of"), pairwise(PAIRS, WRONG_TYPES))
def test_a_term_of_the_wrong_type_is_refused_by_name(pair, of):
    standing = planned(*pair).standing
    for field in fields(standing.terms):
        if field.type is not of:
            continue
        for value in WRONG_TYPES[of]:
            with pytest.raises(PlanConflict, match=f"The terms say {field.name} is .*, which is of the wrong type"):
                read(recorded(standing) | {field.name: value})


def test_a_whole_number_is_a_float_in_json():
    facts = recorded(planned("posterior", "coins").standing) | {"margin": 1}
    assert type(read(facts).terms.margin) is float


def test_a_mechanism_that_is_not_installed_draws_nothing(standing):
    other = Plan.from_dict(recorded(standing) | {"mechanism": "dice"}).standing
    with pytest.raises(NotCovered, match="the mechanism 'dice', which is not installed"):
        Drawing(None, None, other).release(Share(), 10)  # type: ignore[arg-type]


def test_charges_in_numbers():
    """A draw with three outcomes costs two coins, a noisy mean n^2 epsilon^2 of them, fresh rows their number."""
    coins = planned("posterior", "coins").standing
    assert coins.charge(GroupMean(), 100) == 200
    noisy = planned("dp", "laplace").standing
    small = type(noisy)(replace(noisy.terms, rows=1000, epsilon=0.01))
    assert small.charge(OneShare(), 100) == 100
    assert small.charge(GroupMean(), 100) == 200
    assert planned("split", "fresh_rows").standing.charge(OutcomeShares(4), 100) == 100
