"""`attack`: any analyst against any mechanism, in many independent worlds.

A world is one sample of a known population, one contender that answers questions about it, and one analyst who asks.
"""

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import partial
from html import escape
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from holdfast import check, notebook
from holdfast.errors import BudgetExhausted
from holdfast.guarantees.plan import Plan, write_margin
from holdfast.lab.analysts import Analyst, analyst_named
from holdfast.lab.baselines import Naive, Releaser
from holdfast.lab.contenders import Contender, contender, converse
from holdfast.lab.populations import Population
from holdfast.rows.memory import memory_rows

PARALLEL_FROM = 200_000_000  # row evaluations: a few seconds; less work ends before other processes have started
_IN_JSON = (
    "mechanism", "analyst", "rows", "queries", "confidence", "promised", "predicted_excess", "excess", "last_answer",
    "population_mean", "broken", "rows_read", "seed",
)  # fmt: skip
HEADINGS = ("questions", "claimed error", "actual error", "worst world", "promised")

Floats = NDArray[np.float64]
Progress = Callable[[int], None]
Item = TypeVar("Item")
Result = TypeVar("Result")


def attack(
    mechanism: str | Releaser | Plan | Mapping[str, Any],
    analyst: str | Analyst = "weighted",
    population: Population | None = None,
    *,
    rows: int = 2_000,
    queries: int = 501,
    worlds: int = 20,
    confidence: float = 0.95,
    seed: int | None = None,
    processes: int = 1,
    progress: Progress | None = None,
) -> "AttackReport":
    """Let an analyst attack a mechanism in many independent worlds; report claimed, actual and promised error.

    Parameters
    ----------
    mechanism
        A name (naive, split, thresholdout, laplace, gaussian, a1, coins), a mechanism, a plan, or the settings of a
        session such as `{"guarantee": "information"}`.
    analyst
        A name (sign, weighted, persistent, selection, selection-signal, boosting, fingerprint, climber, harmless) or
        an analyst.
    population
        Where rows come from; by default, the population the analyst is designed for.
    rows, queries, worlds
        Rows of each sample, questions in each world, and number of worlds.
    confidence
        The confidence of the promises.
    seed
        Makes a run repeatable, except for Laplace noise, which comes from the operating system.
    processes
        Above 1, worlds run in parallel.
    progress
        Called with the number of finished worlds.

    Returns
    -------
    AttackReport
        The errors by number of questions; it prints as a table.

    Examples
    --------
    >>> report = attack("naive", "weighted", rows=400, queries=401, worlds=2, seed=1)
    >>> report.broken, report.population_mean
    (2, 0.5)
    """
    check.whole(2, rows=rows)
    check.whole(worlds=worlds, processes=processes, queries=queries)
    check.probability(confidence=confidence)
    analyst = analyst_named(analyst, queries)
    if seed is None:
        seed = secrets.randbits(32)
    against = contender(mechanism, rows=rows, queries=analyst.queries, confidence=confidence)
    source = analyst.population(rows) if population is None else population
    run = partial(run_world, against, analyst, source, rows)
    noise = against.noise
    return AttackReport(
        mechanism=against.name,
        analyst=analyst.name,
        rows=rows,
        queries=analyst.queries,
        confidence=confidence,
        promised=against.promised,
        predicted_excess=None if noise is None else analyst.predicted_excess(rows, noise),
        seed=seed,
        worlds=tuple(in_parallel(run, world_seeds(seed, worlds), processes, progress)),
    )


# -- one world ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class World:
    """The answers of one world, question by question.

    `excess` is how far the last question's mean on the rows is above its mean in the population.
    """

    seed: int
    answers: Floats
    population_means: Floats
    low: Floats
    high: Floats
    rows_read: int
    excess: float

    @property
    def errors(self) -> Floats:
        """How far each answer is from the population's value."""
        return np.abs(self.answers - self.population_means)

    @property
    def misses(self) -> int:
        """How many intervals do not contain the population's value."""
        return int(np.count_nonzero((self.population_means < self.low) | (self.population_means > self.high)))


def run_world(contender: Contender, analyst: Analyst, population: Population, rows: int, seed: int) -> World:
    """Run one world. Data, analyst and mechanism have independent generators, all derived from one seed."""
    for_data, for_analyst, for_mechanism = (np.random.default_rng([seed, part]) for part in range(3))
    source = memory_rows(population.draw(rows, for_data))
    questions, replies = [], []
    try:
        for question, reply in converse(analyst.ask(rows, for_analyst), contender.start(source, for_mechanism)):
            questions.append(question)
            replies.append(reply)
    except BudgetExhausted:
        pass  # the mechanism ended the dialogue before the analyst did
    means = np.array([population.mean(question) for question in questions])
    (data_mean,) = Naive().release(questions[-1], source, for_mechanism).values
    return World(
        seed=seed,
        answers=np.array([reply.value for reply in replies]),
        population_means=means,
        low=np.array([reply.low for reply in replies]),
        high=np.array([reply.high for reply in replies]),
        rows_read=sum(reply.rows_read for reply in replies),
        excess=data_mean - float(means[-1]),
    )


def world_seeds(seed: int, worlds: int) -> list[int]:
    """Return one seed for each world."""
    check.whole(0, seed=seed)
    return [int(each) for each in np.random.SeedSequence(seed).generate_state(worlds)]


def processes_for(evaluations: int) -> int:
    """Return 1 for little work, else the number of processors."""
    return 1 if evaluations < PARALLEL_FROM else os.cpu_count() or 1


def in_parallel(
    run: Callable[[Item], Result], items: Sequence[Item], processes: int, progress: Progress | None = None
) -> list[Result]:
    """Run every item (a world's seed, for example); return results in order. `progress` gets the number finished."""
    done = progress or (lambda count: None)
    if processes == 1 or len(items) == 1:
        results = []
        for count, item in enumerate(items, 1):
            results.append(run(item))
            done(count)
        return results
    # A spawned process inherits no threads; a forked one would copy Polars' thread pool in an unknown state.
    with ProcessPoolExecutor(min(processes, len(items)), mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(run, item) for item in items]
        for count, _ in enumerate(as_completed(futures), 1):
            done(count)
        return [future.result() for future in futures]


# -- the report ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checkpoint:
    """The errors after some number of questions.

    `claimed` is the median half width of the intervals so far; `actual` the largest error so far, in the median world;
    `worst` the largest in any world; `promised` the margin promised for all answers at once.
    """

    asked: int
    claimed: float
    actual: float
    worst: float
    promised: float | None


@dataclass(frozen=True, eq=False)
class AttackReport:
    """One analyst against one mechanism, in many worlds. Prints as a table; `plot` draws it."""

    mechanism: str
    analyst: str
    rows: int
    queries: int
    confidence: float
    promised: float | None
    predicted_excess: float | None
    seed: int
    worlds: tuple[World, ...]

    @property
    def largest(self) -> Floats:
        """The largest error of each world."""
        return np.array([world.errors.max() for world in self.worlds])

    @property
    def broken(self) -> int | None:
        """In how many worlds the promise was broken; None if nothing was promised."""
        if self.promised is None:
            return None
        return int(np.count_nonzero(self.largest > self.promised))

    @property
    def excess(self) -> float:
        """How far the last question's mean on the rows is above the population's, averaged over worlds."""
        return float(np.mean([world.excess for world in self.worlds]))

    @property
    def last_answer(self) -> float:
        """The last answer, averaged over worlds."""
        return float(np.mean([world.answers[-1] for world in self.worlds]))

    @property
    def population_mean(self) -> float:
        """The population's value of the last question, averaged over worlds."""
        return float(np.mean([world.population_means[-1] for world in self.worlds]))

    @property
    def rows_read(self) -> int:
        """Rows read in one world, on average."""
        return round(float(np.mean([world.rows_read for world in self.worlds])))

    def checkpoints(self) -> list[Checkpoint]:
        """Return the errors after 1, 2, 5, 10, ... questions and at the end."""
        asked = min(world.answers.size for world in self.worlds)
        steps = {base * 10**power for power in range(9) for base in (1, 2, 5)}
        errors = np.array([np.maximum.accumulate(world.errors[:asked]) for world in self.worlds])
        half_widths = np.array([(world.high - world.low)[:asked] / 2 for world in self.worlds])
        return [
            Checkpoint(
                step,
                float(np.median(half_widths[:, :step])),
                float(np.median(errors[:, step - 1])),
                float(errors[:, step - 1].max()),
                self.promised,
            )
            for step in sorted({*(step for step in steps if step < asked), asked})
        ]

    def verdict(self) -> str:
        """Say in one sentence whether the promise was kept."""
        count = len(self.worlds)
        if self.promised is None:
            return (
                f"{self.mechanism} promises nothing; its largest error in {count} worlds was {self.largest.max():.4f}."
            )
        return (
            f"{self.mechanism} against {self.analyst}: in {count - (self.broken or 0)} of {count} worlds every answer"
            f" was within {write_margin(self.promised)} of the population; {100 * self.confidence:g}% were promised."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; a world is identified by its seed."""
        return {name: getattr(self, name) for name in _IN_JSON} | {
            "seeds": [world.seed for world in self.worlds],
            "largest_errors": [round(float(error), 6) for error in self.largest],
            "checkpoints": [asdict(checkpoint) for checkpoint in self.checkpoints()],
        }

    def plot(self, path: str | Path) -> None:
        """Write a PNG of claimed, actual and promised error."""
        from holdfast.lab.plots import attack_picture

        attack_picture([self], Path(path))

    def cells(self) -> list[tuple[str, ...]]:
        """Return the table as text, one line for each checkpoint."""
        return [
            (
                f"{each.asked:,}",
                f"{each.claimed:.4f}",
                f"{each.actual:.4f}",
                f"{each.worst:.4f}",
                "-" if each.promised is None else f"{each.promised:.4f}",
            )
            for each in self.checkpoints()
        ]

    def __repr__(self) -> str:
        lines = notebook.aligned([HEADINGS, *self.cells()], right=range(len(HEADINGS)))
        return "\n".join([*lines, f"{self.verdict()} Seed {self.seed}."])

    def _repr_html_(self) -> str:
        table = notebook.table(HEADINGS, self.cells(), left=())
        return f"{table}<p>{escape(self.verdict())} Seed {self.seed}.</p>"
