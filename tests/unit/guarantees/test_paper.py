"""The paper's systems: intervals for the averages it promises, and for nothing else."""

import pytest

from holdfast.errors import PlanConflict
from holdfast.guarantees.guarantee import EVERYTHING
from holdfast.guarantees.plan import plan
from holdfast.guarantees.release import Tally
from holdfast.guarantees.statistic import GroupMean, OneShare
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
    with pytest.raises(PlanConflict, match="shares and means only"):
        standing.supports(GroupMean())


def test_coins_and_noise_are_not_mixed():
    with pytest.raises(PlanConflict, match="noisy answers"):
        planned("paper", "coins").standing.epsilon_for(10)
    with pytest.raises(PlanConflict, match="coins"):
        _ = planned("paper", "laplace").standing.coin_mass
