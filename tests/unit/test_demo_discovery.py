"""Does the naive dig compute what it says, and reach what theory says?

Two routes to one number: bit counts and running votes here, the `Rule` of exact means applied to every row there. The
rule's apparent share after k pairs is Phi(sqrt(k/n)) up to chance; its standard deviation over samples is about
1/(2 sqrt(n)), 0.0035 at n = 20,000, so six of them, 0.021, are a false alarm of 2e-9 by the normal law. The dig reaches
0.61 there, so a rule that collected nothing (0.5) is five times that far off.
"""

from math import sqrt

import numpy as np
import polars as pl
import pytest
from scipy.stats import norm

from holdfast.lab.demo import population
from holdfast.lab.demo.discovery import REAL, Look, Rule, naive, steps
from holdfast.lab.demo.population import signal

ROWS, QUESTIONS = 20_000, 1_500


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    path = tmp_path_factory.mktemp("demo") / "flights.parquet"
    population.write(path, ROWS, np.random.default_rng(3), signals=60)
    return path


@pytest.mark.parametrize("questions", [2, 10, 57, 1_500, 9_999])
def test_steps_ask_exactly_so_many_questions(questions):
    made = steps(questions, before=1)
    assert sum(step.partners + step.look for step in made) == questions
    assert made[-1].look
    assert made[-1].asked == questions + 1
    assert all(step.partners <= step.signal for step in made)


def test_ten_thousand_questions_need_no_more_signals_than_there_are():
    assert steps(9_999)[-1].signal < population.SIGNALS


def test_naive_claims_are_those_of_the_rule(sample):
    schedule, rows = steps(QUESTIONS), pl.read_parquet(sample)
    told = {look.asked: look for look in naive(sample, schedule)}
    answers = []
    for step in schedule:
        for partner in range(step.partners):
            right = (rows[signal(partner)] == rows[signal(step.signal)]) == rows["outcome"]
            answers.append((partner, step.signal, right.mean()))
        if step.look:
            assert told[step.asked].value == pytest.approx(Rule(answers)(rows).mean(), abs=3 / ROWS)  # ties


def test_the_claim_is_as_large_as_theory_says_and_false(sample):
    schedule = steps(QUESTIONS)
    last = naive(sample, schedule)[-1]
    pairs = sum(step.partners for step in schedule)
    assert abs(last.value - norm.cdf(sqrt(pairs / ROWS))) <= 6 / (2 * sqrt(ROWS))
    assert abs(REAL - norm.cdf(sqrt(pairs / ROWS))) > 6 / (2 * sqrt(ROWS))  # a dig that collects nothing is caught
    assert last.misses


def test_the_rule_is_worth_nothing_on_other_rows(sample):
    # Given the rule, the rows are independent: right with probability 1/2 each. 5 standard deviations: 6e-7.
    rows = pl.read_parquet(sample)
    answers = [
        (a, b, ((rows[signal(a)] == rows[signal(b)]) == rows["outcome"]).mean()) for b in range(60) for a in range(b)
    ]
    rule = Rule(answers)
    others = population.draw(ROWS, np.random.default_rng(4), signals=60)
    assert abs(rule(others).mean() - 0.5) <= 5 / (2 * sqrt(ROWS))
    assert rule(rows).mean() - 0.5 > 5 / (2 * sqrt(ROWS))


def test_a_rule_is_a_function_of_one_row(sample):
    rows = pl.read_parquet(sample).head(50)
    rule = Rule([(0, 1, 0.51), (1, 2, 0.49), (0, 2, 0.503)])
    together = rule(rows)
    alone = np.concatenate([rule(row) for row in rows.iter_slices(1)])
    assert np.array_equal(together, alone)


def test_a_look_knows_whether_it_misses():
    assert not Look(1, 0.5, 0.49, 0.51).misses
    assert Look(1, 0.54, 0.53, 0.55).misses
