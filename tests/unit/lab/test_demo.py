"""The demo on few rows: its whole course, its numbers as JSON, both pictures; and the search with plain means.

Plain means are computed twice: by bit counts and running votes, and by a `PairRule` of exact means applied to every
row. The rule's apparent share after k pairs is Phi(sqrt(k/n)) up to chance; its standard deviation over samples is
about 1/(2 sqrt(n)), 0.0035 at n = 20,000, so six of them, 0.021, are a false alarm of 2e-9 by the normal law. The
search reaches 0.61 there, so a rule that collected nothing (0.5) is five times that far off.
"""

import json
from dataclasses import replace
from math import sqrt

import numpy as np
import polars as pl
import pytest
from scipy.stats import norm

from holdfast.lab import populations
from holdfast.lab.demo import (
    POPULATION_SHARE,
    Demo,
    Discovery,
    PairRule,
    RuleLook,
    TourAnswer,
    chart,
    naive_looks,
    steps,
    to_json,
)
from holdfast.lab.plots import demo_picture
from holdfast.lab.populations import signal

ROWS, QUESTIONS = 20_000, 1_500


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    path = tmp_path_factory.mktemp("demo") / "flights.parquet"
    populations.write(path, ROWS, np.random.default_rng(3), signals=60)
    return path


@pytest.mark.parametrize("questions", [2, 10, 57, 1_500, 9_999])
def test_steps_ask_exactly_so_many_questions(questions):
    made = steps(questions, before=1)
    assert sum(step.partners + step.look for step in made) == questions
    assert made[-1].look
    assert made[-1].asked == questions + 1
    assert all(step.partners <= step.signal for step in made)


def test_ten_thousand_questions_need_no_more_signals_than_there_are():
    assert steps(9_999)[-1].signal < populations.SIGNALS


def test_naive_claims_are_those_of_the_rule(sample):
    schedule, rows = steps(QUESTIONS), pl.read_parquet(sample)
    looks = {look.asked: look for look in naive_looks(sample, schedule)}
    answers = []
    for step in schedule:
        for partner in range(step.partners):
            right = (rows[signal(partner)] == rows[signal(step.signal)]) == rows["outcome"]
            answers.append((partner, step.signal, right.mean()))
        if step.look:
            assert looks[step.asked].value == pytest.approx(PairRule(answers)(rows).mean(), abs=3 / ROWS)  # ties


def test_the_claim_is_as_large_as_theory_says_and_false(sample):
    schedule = steps(QUESTIONS)
    last = naive_looks(sample, schedule)[-1]
    pairs = sum(step.partners for step in schedule)
    predicted, allowed = norm.cdf(sqrt(pairs / ROWS)), 6 / (2 * sqrt(ROWS))
    assert abs(last.value - predicted) <= allowed
    assert abs(POPULATION_SHARE - predicted) > allowed  # a search that collects nothing is caught
    assert last.misses


def test_the_rule_is_worth_nothing_on_other_rows(sample):
    # Given the rule, the rows are independent: right with probability 1/2 each. 5 standard deviations: 6e-7.
    rows = pl.read_parquet(sample)
    answers = [
        (a, b, ((rows[signal(a)] == rows[signal(b)]) == rows["outcome"]).mean()) for b in range(60) for a in range(b)
    ]
    rule = PairRule(answers)
    others = populations.draw(ROWS, np.random.default_rng(4), signals=60)
    assert abs(rule(others).mean() - 0.5) <= 5 / (2 * sqrt(ROWS))
    assert rule(rows).mean() - 0.5 > 5 / (2 * sqrt(ROWS))


def test_a_rule_is_a_function_of_one_row(sample):
    rows = pl.read_parquet(sample).head(50)
    rule = PairRule([(0, 1, 0.51), (1, 2, 0.49), (0, 2, 0.503)])
    together = rule(rows)
    alone = np.concatenate([rule(row) for row in rows.iter_slices(1)])
    assert np.array_equal(together, alone)


def test_a_look_knows_whether_it_misses():
    assert not RuleLook(1, 0.5, 0.49, 0.51).misses
    assert RuleLook(1, 0.54, 0.53, 0.55).misses


# -- a whole run ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    demo = Demo(tmp_path_factory.mktemp("demo"), rows=20_000, questions=120, seed=1)
    asked = []
    with demo.prepare() as session:
        tour, flips = demo.tour(session), demo.flips()
        discovery = demo.discover(session, asked.append)
        return to_json(demo, session, tour, flips, discovery, demo.second_act()), discovery, asked, session.budget


@pytest.mark.slow
def test_the_numbers_are_plain_json(finished):
    numbers, discovery, _, _ = finished
    read = json.loads(json.dumps(numbers))
    assert read["rows"] == 20_000
    assert read["discovery"]["questions"] == discovery.questions == 120
    assert len(read["discovery"]["naive"]) == len(read["discovery"]["holdfast"]) == len(discovery.naive)
    assert {"call", "value", "low", "high", "population", "rows_read", "milliseconds"} <= set(read["tour"][0])


@pytest.mark.slow
def test_every_question_was_charged(finished):
    numbers, _, asked, budget = finished
    assert asked[-1] == 120
    # share 1, group 2, histogram of three and "other" 4, quantile 10, then the search
    assert budget.answers_total - budget.answers_left >= 120 + 17
    assert budget.answers_given == 120 + 4
    assert numbers["plan"]["queries"] == 120 + 100


def test_a_second_run_begins_anew(tmp_path):
    demo = Demo(tmp_path, rows=10_000, questions=50)
    with demo.prepare() as first:
        first.mean("dep_delay > 15")
        before = first.ledger.fingerprint
    with demo.prepare() as second:
        assert second.budget.answers_given == 0
        assert second.ledger.fingerprint != before


ANSWER = TourAnswer("q", 0.6, 0.55, 0.65, 0.6, 10, 1.0)
DISCOVERY = Discovery(
    questions=100,
    misses=0,
    seconds=1.0,
    rows_read=1_000,
    hint=ANSWER,
    holdfast=(RuleLook(10, 0.5, 0.46, 0.54), RuleLook(100, 0.51, 0.47, 0.55)),
    naive=(RuleLook(10, 0.51, 0.509, 0.511), RuleLook(100, 0.54, 0.539, 0.541)),
)


def test_error_bars_count_from_what_is_real():
    assert DISCOVERY.error_bars == pytest.approx(40)
    assert ANSWER.holds
    assert not replace(ANSWER, population=0.7).holds


def test_the_terminal_picture_puts_things_where_they_are():
    lines = chart(DISCOVERY).splitlines()
    (real,) = (line for line in lines if line.startswith(" 50.0%"))
    assert "┃───┃" in real  # both intervals contain what is real
    columns = {at for line in lines[:-1] for at, mark in enumerate(line) if mark in "┃●"}
    assert columns == {real.index("┃"), real.rindex("┃")}  # with a label beside it or not
    above = [line for line in lines[: lines.index(real)] if "●" in line]
    assert len(above) == 2  # both claims lie above
    assert above[0].rindex("●") > above[1].index("●")  # the later one higher
    assert "100 questions" in lines[-2]


@pytest.mark.slow
def test_a_png_is_drawn(tmp_path):
    demo_picture(DISCOVERY, tmp_path / "demo.png", rows=1_000)
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
