"""One world: draw a sample, let an analyst ask a contender about it, and keep what both said."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import BudgetExhausted
from holdfast.lab.analysts.base import Analyst, Population, RowQuestion
from holdfast.lab.baselines import scan
from holdfast.lab.contenders import Answering, Contender, Told
from holdfast.rows.memory import memory_rows

Series = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class World:
    """What was said, question by question. `excess` is q(S) - q(D) of the last question."""

    seed: int
    answers: Series
    population: Series
    low: Series
    high: Series
    rows_read: int
    excess: float

    @property
    def errors(self) -> Series:
        """How far each answer is from the population."""
        return np.abs(self.answers - self.population)

    @property
    def misses(self) -> int:
        """How many error bars leave out what is real."""
        return int(np.count_nonzero((self.population < self.low) | (self.population > self.high)))


def run_world(contender: Contender, analyst: Analyst, population: Population, rows: int, seed: int) -> World:
    """Run one world. Data, analyst and mechanism have chance of their own, all from one seed."""
    data, own, chance = (np.random.default_rng([seed, part]) for part in range(3))
    source = memory_rows(population.draw(rows, data))
    told, asked = [], []
    for question, answer in _dialogue(contender.begin(source, chance), analyst, rows, own):
        asked.append(question)
        told.append(answer)
    means = np.array([population.mean(question) for question in asked])
    on_rows = float(scan(asked[-1], source)[0].mean())
    return World(
        seed=seed,
        answers=np.array([each.value for each in told]),
        population=means,
        low=np.array([each.low for each in told]),
        high=np.array([each.high for each in told]),
        rows_read=sum(each.rows_read for each in told),
        excess=on_rows - float(means[-1]),
    )


def _dialogue(
    answering: Answering, analyst: Analyst, rows: int, rng: np.random.Generator
) -> Iterator[tuple[RowQuestion, Told]]:
    dialogue = analyst.ask(rows, rng)
    try:
        question = next(dialogue)
        while True:
            told = answering.tell(question)
            yield question, told
            question = dialogue.send(told.value)
    except (StopIteration, BudgetExhausted):
        return  # the analyst is done, or the mechanism is
