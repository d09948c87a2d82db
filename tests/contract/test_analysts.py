"""What every analyst owes: questions of one row, chosen from answers and its own chance alone."""

import numpy as np
import polars as pl
import pytest

from holdfast.lab.analysts import ANALYSTS
from holdfast.lab.analysts.answering import MechanismOracle, SessionOracle, converse
from holdfast.lab.baselines import Naive
from holdfast.mechanisms.coins import Coins
from holdfast.queries.python_function import from_function
from holdfast.rows.memory import memory_rows
from holdfast.session import Session

ROWS, QUERIES = 120, 22


@pytest.fixture(params=sorted(ANALYSTS))
def analyst(request):
    return ANALYSTS[request.param](QUERIES)


def sample(analyst, seed: int = 1):
    return analyst.population(ROWS).draw(ROWS, np.random.default_rng(seed))


def dialogue(analyst, mechanism, *, data: int = 1, own: int = 2, chance: int = 3):
    oracle = MechanismOracle(mechanism, memory_rows(sample(analyst, data)), np.random.default_rng(chance))
    return list(converse(analyst.ask(ROWS, np.random.default_rng(own)), oracle))


def said(exchanges, frame: pl.DataFrame) -> list[list[bool]]:
    return [question.evaluate(frame.select(question.columns)).tolist() for question, _ in exchanges]


def test_it_asks_as_many_questions_as_it_says(analyst):
    assert len(dialogue(analyst, Naive())) == analyst.queries == QUERIES


def test_the_same_answers_lead_to_the_same_questions(analyst):
    frame = pl.DataFrame(dict(sample(analyst, 9)))
    first, again = (said(dialogue(analyst, Naive()), frame) for _ in range(2))
    assert first == again


class Replaying:
    """An oracle without rows."""

    def __init__(self, answers):
        self.answers = iter(answers)

    def answer(self, question):
        return next(self.answers)

    def recall(self, question, answer):
        pass


def replayed(analyst, answers):
    return list(converse(analyst.ask(ROWS, np.random.default_rng(2)), Replaying(answers)))


def test_it_sees_answers_only(analyst):
    """With the answers alone, and no rows anywhere, it asks the very same."""
    exchanges = dialogue(analyst, Coins(draws=20, flip_probability=0.01))
    frame = pl.DataFrame(dict(sample(analyst, 9)))
    assert said(replayed(analyst, [answer for _, answer in exchanges]), frame) == said(exchanges, frame)


def test_the_last_question_of_an_adaptive_analyst_depends_on_the_answers(analyst):
    frame = pl.DataFrame(dict(sample(analyst, 9)))
    one, other = (said(replayed(analyst, np.random.default_rng(seed).random(QUERIES)), frame)[-1] for seed in (1, 4))
    assert (one == other) == (analyst.name == "harmless")


def test_every_question_is_a_function_of_one_row(analyst):
    source = memory_rows(sample(analyst))
    exchanges = dialogue(analyst, Naive())
    for question, _ in (exchanges[0], exchanges[-1]):
        assert question.kind == "share"
        from_function(question, source.schema, question.columns)  # refuses what is not


def test_text_and_function_of_a_question_agree(analyst):
    frame = pl.DataFrame(dict(sample(analyst)))
    for question, _ in dialogue(analyst, Naive()):
        if question.sql is not None:
            text = frame.select(pl.sql_expr(question.sql)).to_series().to_list()
            assert text == question.evaluate(frame.select(question.columns)).tolist()


def test_the_population_knows_the_mean_of_every_question(analyst):
    """Hoeffding: on 20,000 fresh rows a mean is off by 0.021 with probability below 1e-6 a question."""
    population = analyst.population(ROWS)
    fresh = pl.DataFrame(dict(population.draw(20_000, np.random.default_rng(5))))
    for question, _ in dialogue(analyst, Naive()):
        found = float(np.mean(question.evaluate(fresh.select(question.columns))))
        assert abs(found - population.mean(question)) <= 0.021


def test_it_can_be_let_loose_on_a_session(analyst):
    with Session(dict(sample(analyst)), queries=2 * QUERIES, seed=1) as session:
        exchanges = list(converse(analyst.ask(ROWS, np.random.default_rng(2)), SessionOracle(session)))
        assert len(exchanges) == QUERIES
        assert session.budget.queries_left == QUERIES
