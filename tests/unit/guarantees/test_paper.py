"""The paper's systems: intervals for the averages it promises, and for nothing else."""

import numpy as np
import pytest

from holdfast.errors import BudgetExhausted, NotCovered
from holdfast.guarantees.guarantee import EVERYTHING
from holdfast.guarantees.mathematics import privacy, sizes
from holdfast.guarantees.statistic import GroupMean, NoisyMeans, OneShare, Tally
from holdfast.mechanisms import MECHANISMS
from holdfast.optimize.losses import Squared
from holdfast.session.planning import plan
from holdfast.session.session import Session
from planned import planned


def test_averages_of_another_length_have_no_interval():
    standing = planned("paper", "coins").standing
    assert standing.share(Tally((0.5,), 10, (5, 5), (1,)), 0) == EVERYTHING
    ell = standing.terms.rows_per_query
    low, high = standing.share(Tally((0.5,), ell, (ell - ell // 2, ell // 2), (1,)), 0)
    assert high - low == pytest.approx(2 * standing.terms.margin)


def test_flips_alone_have_no_interval_of_their_average():
    standing = plan(rows=10**9, queries={"flip": 5}, guarantee="paper").standing
    assert standing.share(Tally((1.0,), 1, (0, 1), (1,)), 0) == EVERYTHING


def test_averaged_coins_answer_shares_and_means_only():
    standing = planned("paper", "coins").standing
    standing.supports(OneShare())
    with pytest.raises(NotCovered, match="shares and means only"):
        standing.supports(GroupMean())


def test_noise_has_no_coins_but_among_coins_noise_costs_as_many():
    coins = planned("paper", "coins").standing
    assert privacy.private_cost(coins.epsilon_for(10), n=coins.terms.rows) == pytest.approx(10)
    assert set(coins.fits.mechanisms) == {"coins", "laplace"}
    with pytest.raises(NotCovered, match="coins"):
        _ = planned("paper", "laplace").standing.coin_mass


def test_with_replacement_and_in_expectation_are_planned_only_by_name():
    usual = {each.mechanism for each in plan(rows=10**9, queries=10).alternatives}
    assert "laplace_with_replacement" not in usual
    assert "expectation" not in {each.guarantee for each in plan(rows=10**9, queries=10).alternatives}
    assert "paper" not in plan(rows=10**9, queries=10).guarantee
    replaced = plan(rows=10**9, queries=10, guarantee="paper", mechanism="laplace_with_replacement")
    without = plan(rows=10**9, queries=10, guarantee="paper")
    assert replaced.margin == pytest.approx(without.margin, rel=1e-3)
    assert sizes.a1(replaced.margin, 0.05, 10, replacement=True).n <= 10**9
    (mechanism,) = [MECHANISMS[replaced.mechanism].under(replaced.standing, replaced.rows_per_query, None)]
    assert mechanism.replacement
    assert not MECHANISMS[without.mechanism].under(without.standing, without.rows_per_query, None).replacement


def test_accuracy_in_expectation_takes_fewer_rows_and_gives_no_intervals():
    planned_for = plan(rows=10**7, queries=100, guarantee="expectation")
    assert sizes.a1_in_expectation(planned_for.margin, 100).n <= 10**7
    assert planned_for.margin < plan(rows=10**7, queries=100, guarantee="paper").margin
    assert "on average over sessions" in planned_for.sentence
    assert planned_for.standing.share(NoisyMeans((0.5,), 10, (0.5,), 0.1, 0.0), 0) == EVERYTHING
    assert planned_for.standing.fits.mechanisms == ()
    with pytest.raises(NotCovered, match="groups"):
        planned_for.standing.supports(GroupMean())


def test_answers_in_expectation_are_values_without_an_interval():
    """An interval of everything would otherwise say that there were too few rows to tell."""
    with Session({"x": [True] * 70_000 + [False] * 30_000}, queries=2, guarantee="expectation", seed=1) as session:
        answer, again = session.mean("x"), session.mean("x")
    assert abs(answer.value - 0.7) < 10 * session.plan.margin
    assert answer.interval == answer.bounds
    assert not answer.too_few
    assert str(answer).startswith(f"{answer.value:.4g}  no interval")
    assert (again.value, again.cached) == (answer.value, True)


def test_a_fit_of_noisy_answers_costs_an_answer_for_every_coordinate_and_its_price_says_so_when_it_is_too_expensive():
    loss = Squared({"a": (0, 1)}, "x", intercept=False)
    fit = {"radius": 1, "runs": 6, "iterations": 10}
    data = {"a": np.linspace(0, 1, 600_000), "x": np.arange(600_000) % 2 == 0}
    with Session(data, queries=2, guarantee="paper", mechanism="laplace", seed=1) as session:
        price = session.price(loss, "minimize", **fit)
        with pytest.raises(BudgetExhausted) as refused:
            session.minimize(loss, **fit)
    assert (price.answers, price.affordable) == (62, False)
    assert refused.value.fields["cost"] == price.answers


def test_a_fit_is_promised_what_the_paper_promises():
    """The gap is that of the transfer theorem: from rows to population, twice the range times it, and nothing else."""
    for mechanism, gap in (("laplace", 0.5), ("coins", 0.25)):
        standing = planned("paper", mechanism).standing
        assert standing.fits.excess(0.1, R=2.0, lipschitz=9.0, curvature=9.0) == pytest.approx(
            0.1 + 2 * 2.0 * gap * standing.terms.margin
        )
        assert 0 < standing.fits.level < 0.05
        assert standing.fits.expected_step(1.0) < 2 * gap * standing.terms.margin
