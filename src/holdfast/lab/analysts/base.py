"""Who asks: an analyst is a dialogue that puts questions and hears answers, and nothing else.

    dialogue = analyst.ask(rows, rng)
    question = next(dialogue)                 the first question
    question = dialogue.send(answer)          the next one, chosen after the answer

The rows are out of reach by construction: what an analyst knows is what it was told. Its own chance comes from `rng`,
so a dialogue can be replayed from its answers, which is what the monitors do.
"""

from collections.abc import Generator, Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

Bits = NDArray[np.bool_]
Arrays = Mapping[str, NDArray[Any]]
Randomness = np.random.Generator


class RowQuestion:
    """A yes-or-no question about one row, in the form every mechanism takes; also callable, for sessions."""

    kind: ClassVar[str] = "share"
    outcomes: ClassVar[int] = 2
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    identity: ClassVar[str | None] = None
    sql: str | None = None  # the same question as text, where there is one

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        raise NotImplementedError

    @property
    def text(self) -> str:
        """How it reads."""
        return self.sql or type(self).__name__.lower()

    def evaluate(self, rows: pl.DataFrame) -> Bits:
        """Return yes or no per row; total, and row i depends on row i alone."""
        raise NotImplementedError

    def __call__(self, rows: pl.DataFrame) -> Bits:
        """Return yes or no per row."""
        return self.evaluate(rows)


Dialogue = Generator[RowQuestion, float, None]


class Population(Protocol):
    """Where rows come from, with means that are known: the judge of every answer."""

    def draw(self, rows: int, rng: Randomness) -> Arrays:
        """Draw rows independently."""
        ...

    def mean(self, question: Any) -> float:
        """Return the population's own answer."""
        ...


class Analyst(Protocol):
    """Somebody who asks. The last question is the discovery; the others prepare it."""

    @property
    def name(self) -> str:
        """What the analyst is called."""
        ...

    @property
    def queries(self) -> int:
        """How many questions a dialogue has, at most."""
        ...

    def population(self, rows: int) -> Population:
        """Return the population this analyst is usually let loose on, for samples of this many rows."""
        ...

    def ask(self, rows: int, rng: Randomness) -> Dialogue:
        """Begin a dialogue about a table of this many rows (the number is public)."""
        ...

    def reaches(self, rows: int, noise: float = 0.0) -> float | None:
        """Predict by how much the last question's mean on the rows exceeds its mean in the population.

        `noise` is the variance of the chance added to each answer; None where no formula is known.
        """
        ...
