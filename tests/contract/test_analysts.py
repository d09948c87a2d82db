"""Every analyst asks questions about one row, chosen from the answers and its own randomness alone."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from holdfast.guarantees.statistic import OneShare
from holdfast.lab.analysts import ANALYSTS
from holdfast.lab.baselines import Naive
from holdfast.lab.contenders import MechanismOracle, Reply, converse
from holdfast.mechanisms.coins import Coins
from holdfast.queries.from_python import from_function
from holdfast.rows.memory import memory_rows
from holdfast.session.session import Session

ROWS, QUERIES = 120, 22


@pytest.fixture(params=sorted(ANALYSTS))
def analyst(request):
    return ANALYSTS[request.param](QUERIES)


def sample(analyst, seed: int = 1):
    return analyst.population(ROWS).draw(ROWS, np.random.default_rng(seed))


def dialogue(analyst, mechanism, *, data: int = 1, own: int = 2, noise: int = 3):
    oracle = MechanismOracle(mechanism, memory_rows(sample(analyst, data)), np.random.default_rng(noise))
    return list(converse(analyst.ask(ROWS, np.random.default_rng(own)), oracle))


def evaluated(exchanges, frame: pl.DataFrame) -> list[list[bool]]:
    return [question.evaluate(frame.select(question.columns)).tolist() for question, _ in exchanges]


def test_it_asks_as_many_questions_as_it_says(analyst):
    assert len(dialogue(analyst, Naive())) == analyst.queries == QUERIES


def test_the_same_answers_lead_to_the_same_questions(analyst):
    frame = pl.DataFrame(dict(sample(analyst, 9)))
    first, again = (evaluated(dialogue(analyst, Naive()), frame) for _ in range(2))
    assert first == again


class Replaying:
    """An oracle without rows."""

    def __init__(self, answers):
        self.answers = iter(answers)

    def answer(self, question):
        value = next(self.answers)
        return Reply(value, value, value, 0)


def replayed(analyst, answers):
    return list(converse(analyst.ask(ROWS, np.random.default_rng(2)), Replaying(answers)))


def test_it_sees_answers_only(analyst):
    """With the answers alone, and no rows anywhere, it asks the very same."""
    exchanges = dialogue(analyst, Coins(draws=20, mass=0.01))
    frame = pl.DataFrame(dict(sample(analyst, 9)))
    assert evaluated(replayed(analyst, [reply.value for _, reply in exchanges]), frame) == evaluated(exchanges, frame)


def test_the_last_question_of_an_adaptive_analyst_depends_on_the_answers(analyst):
    frame = pl.DataFrame(dict(sample(analyst, 9)))
    scripts = [np.random.default_rng(seed).random(QUERIES) for seed in (1, 4)]
    one, other = (evaluated(replayed(analyst, script), frame)[-1] for script in scripts)
    assert (one == other) == (analyst.name == "harmless")


def test_every_question_is_a_function_of_one_row(analyst):
    source = memory_rows(sample(analyst))
    exchanges = dialogue(analyst, Naive())
    for question, _ in (exchanges[0], exchanges[-1]):
        assert question.statistic == OneShare()
        read = replace(source.schema, columns=tuple(source.schema[name] for name in question.columns))
        from_function(question, read)  # refuses what is not


def test_text_and_function_of_a_question_agree(analyst):
    frame = pl.DataFrame(dict(sample(analyst)))
    for question, _ in dialogue(analyst, Naive()):
        if question.sql is not None:
            text = frame.select(pl.sql_expr(question.sql)).to_series().to_list()
            assert text == question.evaluate(frame.select(question.columns)).tolist()


def test_the_population_has_the_mean_of_every_question(analyst):
    """Hoeffding: on 20,000 fresh rows a mean is off by 0.021 with probability below 1e-6 a question."""
    population = analyst.population(ROWS)
    fresh = pl.DataFrame(dict(population.draw(20_000, np.random.default_rng(5))))
    for question, _ in dialogue(analyst, Naive()):
        found = float(np.mean(question.evaluate(fresh.select(question.columns))))
        assert abs(found - population.mean(question)) <= 0.021


class SessionOracle:
    """A session, asked the way any user asks it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def answer(self, question) -> Reply:
        answer = self._session.mean(question.sql or question)
        (_, estimate), *_ = answer.rows()
        return Reply(estimate.guess, estimate.low, estimate.high, answer.rows_read)


def test_it_can_question_a_session(analyst):
    rows = 2_000  # enough for a plan that says something
    data = analyst.population(rows).draw(rows, np.random.default_rng(1))
    with Session(dict(data), queries=2 * QUERIES, seed=1) as session:
        exchanges = list(converse(analyst.ask(rows, np.random.default_rng(2)), SessionOracle(session)))
        assert len(exchanges) == QUERIES
        assert session.budget.answers_left == QUERIES
