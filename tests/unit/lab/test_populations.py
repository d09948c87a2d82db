"""Populations: exact means, and refusals where a mean is not known."""

from itertools import product

import numpy as np
import polars as pl
import pytest

from holdfast.errors import InvalidArgument
from holdfast.lab.analysts import FeatureSelection, HillClimber
from holdfast.lab.populations import (
    Agreement,
    CoinTable,
    FinitePopulation,
    LabeledCells,
    Marked,
    TableRule,
    Universe,
    Vote,
)


def exact_vote(table: CoinTable, vote: Vote) -> float:
    """By enumeration of the label and all features."""
    total = 0.0
    for label, *values in product([False, True], repeat=1 + table.features):
        chance = 0.5
        for index, value in enumerate(values):
            agrees = table.agreement(index)
            chance *= agrees if value == label else 1 - agrees
        row = pl.DataFrame({"y": [label]} | {f"x{index}": [value] for index, value in enumerate(values)})
        total += chance * bool(vote.evaluate(row)[0])
    return total


@pytest.mark.parametrize("weights", [(1, 1, 1), (1, -1, 1, 1), (-1, 1), (1, 1, 1, 1, 1, -1), (0, 1, 0, 1)])
def test_the_mean_of_a_vote_is_exact(weights):
    table = CoinTable(len(weights), signal=2, bias=0.2)
    vote = Vote.of(np.arange(len(weights)), np.array(weights, dtype=float))
    assert table.mean(vote) == pytest.approx(exact_vote(table, vote), abs=1e-12)


def test_a_vote_on_noise_is_right_half_the_time_whatever_its_weights():
    vote = Vote.of(np.arange(3), np.array([0.7, -0.1, 0.4]))
    assert CoinTable(3).mean(vote) == 0.5
    assert exact_vote(CoinTable(3), vote) == pytest.approx(0.5)


def test_a_vote_of_nobody_is_the_first_feature():
    assert Vote.of(np.array([4, 5]), np.zeros(2)).columns == ("x4", "y")


def test_unequal_weights_on_signal_are_refused():
    with pytest.raises(InvalidArgument, match="equal weights"):
        CoinTable(3, signal=1, bias=0.1).mean(Vote.of(np.arange(3), np.array([0.5, 0.2, 0.1])))


def test_a_coin_table_refuses_other_questions():
    with pytest.raises(InvalidArgument, match="agreements and votes only"):
        CoinTable(3).mean(TableRule(np.array([True])))


def test_finite_populations_evaluate_everything():
    assert Universe(4).mean(Marked(np.array([True, False, False, False]))) == 0.25
    assert LabeledCells(3).mean(TableRule(np.array([True, False, True]))) == 0.5
    table = FinitePopulation({"x0": [True, True, False], "y": [True, False, False]})
    assert table.mean(Agreement(0)) == pytest.approx(2 / 3)
    drawn = table.draw(50, np.random.default_rng(1))
    assert {name: len(values) for name, values in drawn.items()} == {"x0": 50, "y": 50}


def test_training_counts_have_the_law_of_agreements(seed):
    """Binomial means: within z sqrt(p(1-p)/(rows features)), z = 4.9 for a false alarm of 1e-6."""
    table = CoinTable(400, signal=200, bias=0.1)
    training = table.training(500, np.random.default_rng(seed))
    allowed = 4.9 * np.sqrt(0.25 / (500 * 200))
    assert abs(training[:200].mean() - 0.6) <= allowed
    assert abs(training[200:].mean() - 0.5) <= allowed


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: CoinTable(0), "features must be a whole number"),
        (lambda: CoinTable(3, signal=4), r"signal must be at most features \(3\); got 4"),
        (lambda: CoinTable(3, bias=0.7), "bias must be at most 1/2"),
        (lambda: FinitePopulation({"x": []}), "at least one row"),
        (lambda: HillClimber(2), "queries must be a whole number of at least 3"),
        (lambda: FeatureSelection(5, signal=5), r"signal must be at most queries - 1 \(4\)"),
    ],
)
def test_wrong_settings_are_refused(build, message):
    with pytest.raises(InvalidArgument, match=message):
        build()


def test_a_climber_that_goes_round_and_round_has_no_formula_with_noise():
    assert HillClimber(102).predicted_excess(1_000, 0.01) is None
    assert HillClimber(52, cells=100).predicted_excess(1_000) is None
    # lambda rows in a cell: about 1/sqrt(2 pi lambda)
    assert HillClimber(102).predicted_excess(10_000) == pytest.approx(1 / np.sqrt(2 * np.pi * 100), rel=0.01)
