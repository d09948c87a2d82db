"""Attacks: what can be attacked, what is reported, and that a seed identifies a world."""

import json
import pickle
import sys
from itertools import pairwise

import numpy as np
import pytest

import holdfast as hf
from holdfast.cli import main
from holdfast.errors import InvalidArgument, MissingExtra, PlanInfeasible
from holdfast.guarantees.statistic import Release
from holdfast.lab import MECHANISM_NAMES, attack, contender
from holdfast.lab.analysts import HillClimber, WeightedAttack
from holdfast.lab.attack import processes_for
from holdfast.lab.baselines import FullLaplace, Naive, Thresholdout
from holdfast.lab.populations import FinitePopulation, TableRule
from holdfast.mechanisms import noisy_means
from holdfast.mechanisms.coins import Coins
from holdfast.mechanisms.noisy_means import Laplace
from holdfast.session.planning import plan

SETTINGS = {"rows": 200, "queries": 21, "worlds": 3, "seed": 5}


@pytest.mark.parametrize("name", MECHANISM_NAMES)
def test_every_mechanism_can_be_attacked(name):
    report = attack(name, "weighted", **SETTINGS)
    assert [world.answers.size for world in report.worlds] == [21] * 3
    assert report.mechanism == name
    assert report.population_mean == 0.5
    assert report.rows_read > 0
    assert (report.promised is None) == (name == "thresholdout")
    assert "worlds" in repr(report)
    assert "<table" in report._repr_html_()


def test_the_same_seed_repeats_and_another_does_not():
    first, again, other = (attack("coins", "climber", **SETTINGS | {"seed": seed}) for seed in (5, 5, 6))
    assert first.to_dict() == again.to_dict()
    assert first.to_dict() != other.to_dict()


def test_a_seed_is_chosen_and_reported_if_none_is_given():
    report = attack("naive", "harmless", **SETTINGS | {"seed": None})
    again = attack("naive", "harmless", **SETTINGS | {"seed": report.seed})
    assert again.to_dict() == report.to_dict()
    assert len(set(report.to_dict()["seeds"])) == 3


@pytest.mark.slow
def test_worlds_in_parallel_are_the_same_worlds():
    done: list[int] = []
    alone = attack("coins", "weighted", **SETTINGS)
    together = attack("coins", "weighted", **SETTINGS, processes=2, progress=done.append)
    assert together.to_dict() == alone.to_dict()
    assert done == [1, 2, 3]


def test_settings_of_a_session_and_a_plan_are_mechanisms_too():
    planned = plan(rows=200, queries=21, guarantee="information", mechanism="coins")
    by_plan = attack(planned, "weighted", **SETTINGS)
    by_settings = attack({"guarantee": "information", "mechanism": "coins"}, "weighted", **SETTINGS)
    assert by_plan.to_dict() == by_settings.to_dict()
    assert by_plan.promised == planned.margin


@pytest.mark.parametrize("guarantee", ["split", "information"])
def test_a_session_of_fresh_rows_never_uses_a_row_twice(guarantee):
    report = attack({"guarantee": guarantee}, "climber", **SETTINGS)
    if guarantee == "split":
        assert report.rows_read <= 200
    assert report.broken == 0


def test_checkpoints_are_running_maxima():
    report = attack("naive", "weighted", **SETTINGS)
    points = report.checkpoints()
    assert [point.asked for point in points] == [1, 2, 5, 10, 20, 21]
    assert points[-1].worst == pytest.approx(report.largest.max())
    for earlier, later in pairwise(points):
        assert earlier.actual <= later.actual
        assert earlier.worst <= later.worst
    # 1.96 standard errors of a share near one half
    assert points[0].claimed == pytest.approx(1.96 / np.sqrt(4 * 200), rel=0.01)


def test_a_broken_promise_is_counted_and_a_kept_one_too():
    assert attack("naive", "weighted", rows=100, queries=101, worlds=3, seed=1).broken == 3
    assert attack("naive", "harmless", rows=2_000, queries=5, worlds=3, seed=1).broken == 0


def test_a_mechanism_an_analyst_and_a_population_of_your_own():
    class Always:
        """Says one half, whatever is asked."""

        def release(self, query, source, rng):
            return Release((0.5,), 0)

    class Asks:
        name, queries = "asks", 2

        def population(self, rows):
            raise AssertionError("another population was given")

        def ask(self, rows, rng):
            yield TableRule(np.array([True, False]))
            yield TableRule(np.array([True, True]))

        def predicted_excess(self, rows, noise=0.0):
            return None

    population = FinitePopulation({"cell": [0, 1, 1, 1], "y": [True, True, True, False]})
    report = attack(Always(), Asks(), population, rows=50, worlds=2, seed=1)
    assert [world.population_means.tolist() for world in report.worlds] == [[0.5, 0.75]] * 2
    assert report.largest.tolist() == [0.25, 0.25]
    assert report.predicted_excess is None
    assert report.broken is None
    assert "promises nothing" in report.verdict()


def test_a_mechanism_whose_budget_is_exhausted_ends_its_world():
    holdout = Thresholdout(threshold=1e-6, sigma=1e-9, budget=4, key=0)
    report = attack(holdout, "weighted", **SETTINGS)
    assert all(4 <= world.answers.size < 21 for world in report.worlds)
    assert holdout.budget == 4  # each world has a copy of its own


@pytest.mark.parametrize(
    ("mechanism", "noise"),
    [
        (Naive(), 0.0),
        (Coins(draws=50, mass=0.001), 1 / 200 / 0.998**2),
        (FullLaplace(epsilon=0.1), 2 / (200 * 0.1) ** 2),
    ],
)
def test_the_noise_of_known_mechanisms_is_known(mechanism, noise):
    assert contender(mechanism, rows=200, queries=10).noise == pytest.approx(noise)


def test_sampled_laplace_counts_drawing_and_noise():
    a1 = Laplace(draws=50, epsilon=0.1)
    expected = 2 * a1.scale(200) ** 2 + (1 - 50 / 200) / 200
    assert contender(a1, rows=200, queries=10).noise == pytest.approx(expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mechanism": "magic"}, "mechanism must be one of"),
        ({"analyst": "magic"}, "analyst must be one of"),
        ({"worlds": 0}, "worlds must be a whole number"),
        ({"rows": 1}, "rows must be a whole number of at least 2"),
        ({"confidence": 1.0}, "confidence must be strictly between"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_wrong_arguments_are_refused(change, message):
    words = {"mechanism": "naive", "analyst": "sign"} | SETTINGS | change
    with pytest.raises(InvalidArgument, match=message):
        attack(**words)


def test_splitting_more_questions_than_rows_is_refused():
    with pytest.raises(PlanInfeasible, match="cannot answer 301 questions on 200 rows"):
        attack("split", "weighted", **SETTINGS | {"queries": 301})


def test_the_package_offers_attack():
    assert hf.attack is attack


def test_little_work_stays_in_one_process():
    assert processes_for(1_000) == 1
    assert processes_for(10**12) >= 1


def test_contenders_and_analysts_travel_between_processes():
    for each in (contender("coins", rows=200, queries=21), WeightedAttack(21), HillClimber(21)):
        assert pickle.loads(pickle.dumps(each)) == each


def test_without_opendp_what_needs_it_is_left_out_or_refused_in_a_sentence(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "opendp", None)
    small = ("--rows", "200", "--queries", "21", "--worlds", "2", "--seed", "1")
    with pytest.raises(SystemExit) as ended:
        main(["attack", *small, "--json"])
    said = capsys.readouterr()
    assert not ended.value.code
    kept = [name for name in MECHANISM_NAMES if name not in ("laplace", "a1")]
    assert [each["mechanism"] for each in json.loads(said.out)["attacks"]] == kept
    assert said.err.startswith("Left out: laplace, a1. Laplace noise needs the package opendp; install it with: pip")
    for name in ("laplace", "a1"):
        with pytest.raises(SystemExit) as ended:
            main(["attack", name, *small])
        assert ended.value.code == MissingExtra.exit_code
        assert capsys.readouterr().err.strip().endswith("pip install 'holdfast[laplace]'.")


def test_without_opendp_noise_is_refused_wherever_it_is_added(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp", None)
    noisy_means._integer_laplace.cache_clear()
    with pytest.raises(MissingExtra, match="Laplace noise needs the package opendp"):
        noisy_means.laplace_mean(np.array([0.0, 1.0]), 0.1)
