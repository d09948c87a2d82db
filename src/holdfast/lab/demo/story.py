"""The demo, step by step: a session like anybody's, asked about a population that is known."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import rmtree
from time import perf_counter
from typing import Any

import numpy as np

from holdfast.answer import Answer
from holdfast.lab.demo import population
from holdfast.lab.demo.discovery import REAL, Look, Rule, Step, naive, steps
from holdfast.lab.demo.population import signal
from holdfast.session import Session

ROWS, QUESTIONS, TOUR = 1_000_000, 10_000, 100
FLIP_ROWS, FLIPS = 100_000, 1_000
LATE, CARRIERS = "dep_delay > 15", tuple(each.name for each in population.CARRIERS[:3])


@dataclass(frozen=True)
class Stop:
    """One answer of the tour beside the population's own value."""

    call: str
    value: float
    low: float
    high: float
    population: float
    rows_read: int
    milliseconds: float

    @property
    def holds(self) -> bool:
        """Whether the interval contains the population's value."""
        return self.low <= self.population <= self.high


@dataclass(frozen=True)
class Dig:
    """The adaptive analyst's 10,000 questions, and what naive answers to the same questions would claim."""

    questions: int
    misses: int
    seconds: float
    rows_read: int
    hint: Stop
    holdfast: tuple[Look, ...]
    naive: tuple[Look, ...]

    @property
    def error_bars(self) -> float:
        """How many of its own error bars the naive claim lies from what is real."""
        last = self.naive[-1]
        return (last.value - REAL) / (last.high - last.value)


class Demo:
    """One run, in a folder of its own. `seed` makes data and draws repeatable."""

    def __init__(self, folder: Path, *, rows: int = ROWS, questions: int = QUESTIONS, seed: int | None = None) -> None:
        self.folder, self.rows, self.questions, self.seed = folder, rows, questions, seed
        self.path = folder / "flights.parquet"
        self._rng = np.random.default_rng(seed)

    def prepare(self) -> Session:
        """Draw new rows, write them as Parquet, and open them as any file is opened."""
        self._clear()
        population.write(self.path, self.rows, self._rng)
        return Session(self.path, queries=self.questions + TOUR, seed=self.seed, analyst="demo")

    def tour(self, session: Session) -> list[Stop]:
        """Ask one question of each kind."""
        shares = {each.name: each.share for each in population.CARRIERS}
        late, distance = population.share_later_than(15), population.mean_distance("UA")
        session.price(LATE)  # loads the parser, so that times are of questions alone
        stops = [
            _stop('s.mean("dep_delay > 15")', late, lambda: session.mean(LATE)),
            _stop(
                's.mean("distance", within=(0, 5000), where="carrier = \'UA\'")',
                distance,
                lambda: session.mean("distance", within=(0, 5_000), where="carrier = 'UA'"),
            ),
        ]
        begun = perf_counter()
        histogram = session.histogram("carrier", categories=CARRIERS)
        elapsed = perf_counter() - begun
        for name in CARRIERS:
            call = f's.histogram("carrier", categories=[...])["{name}"]'
            stops.append(_measured(call, shares[name], histogram[name], elapsed))
        quantile = population.delay_quantile(0.9)
        call = 's.quantile("dep_delay", 0.9, within=(-60, 600))'
        ask = lambda: session.quantile("dep_delay", 0.9, within=(-60, 600))  # noqa: E731
        return [*stops, _stop(call, quantile, ask)]

    def flips(self) -> Stop:
        """Flip coins about one row each: another sample with a ledger of its own, planned for flips."""
        path = self.folder / "flips.parquet"
        population.write(path, FLIP_ROWS, self._rng, signals=0)
        with Session(path, queries={"flip": FLIPS}, seed=self.seed, analyst="demo") as session:
            late = population.share_later_than(15)
            return _stop('s.flips("dep_delay > 15", 1000)', late, lambda: session.flips(LATE, FLIPS).average)

    def dig(self, session: Session, progress: Callable[[int], None]) -> Dig:
        """Let the analyst dig; `progress` hears how many questions were asked."""
        begun = perf_counter()
        hint = _stop('s.mean("hint = outcome")', population.HINT, lambda: session.mean("hint = outcome"))
        asked = _Asked(session, progress)
        schedule = steps(self.questions - 1, before=1)
        looks = [look for step in schedule if (look := asked.step(step)) is not None]
        seconds = perf_counter() - begun
        return Dig(
            questions=self.questions,
            misses=asked.misses + (not hint.holds),
            seconds=seconds,
            rows_read=asked.rows_read + hint.rows_read,
            hint=hint,
            holdfast=tuple(looks),
            naive=tuple(naive(self.path, schedule)),
        )

    def _clear(self) -> None:
        """Remove what an earlier run left: new rows need a new ledger."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for stem in ("flights", "flips"):
            rmtree(self.folder / f"{stem}.parquet.holdfast", ignore_errors=True)
            for left in self.folder.glob(f"{stem}.parquet*"):
                left.unlink()


class _Asked:
    """What the analyst learnt so far. Every rule is built from holdfast's own answers."""

    def __init__(self, session: Session, progress: Callable[[int], None]) -> None:
        self._session, self._progress = session, progress
        self._answers: list[tuple[int, int, float]] = []
        self.misses = self.rows_read = 0

    def step(self, step: Step) -> Look | None:
        for partner in range(step.partners):
            answer = self._ask(f"({signal(partner)} = {signal(step.signal)}) = outcome")
            self._answers.append((partner, step.signal, answer.value))
        told = self._ask(Rule(self._answers)) if step.look else None
        self._progress(step.asked)
        return None if told is None else Look(step.asked, told.value, told.low, told.high)

    def _ask(self, query: Any) -> Answer:
        answer = self._session.mean(query)
        self.misses += not answer.low <= REAL <= answer.high
        self.rows_read += answer.rows_read
        return answer


def _stop(call: str, real: float, ask: Callable[[], Answer]) -> Stop:
    begun = perf_counter()
    return _measured(call, real, ask(), perf_counter() - begun)


def _measured(call: str, real: float, answer: Answer, seconds: float) -> Stop:
    return Stop(call, answer.value, answer.low, answer.high, real, answer.rows_read, round(seconds * 1_000, 2))


def document(demo: Demo, session: Session, tour: list[Stop], flips: Stop, dig: Dig) -> dict[str, Any]:
    """Return all numbers of a run as plain JSON values."""
    return {
        "rows": demo.rows,
        "seed": demo.seed,
        "plan": session.plan.to_dict(),
        "tour": [asdict(stop) for stop in tour],
        "flips": asdict(flips),
        "discovery": asdict(dig) | {"real": REAL, "error_bars": dig.error_bars},
    }
