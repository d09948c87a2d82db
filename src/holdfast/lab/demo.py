"""The demo: a tour of the questions, and a discovery in pure noise, on made-up flights whose population is known.

How to discover an effect in noise: for every pair of signals the analyst asks whether their agreement predicts the
`outcome`: the share of rows with (s_a = s_b) = outcome, which is 1/2 in the population. On n rows it deviates from 1/2
by about 1/(2 sqrt(n)), by chance. A rule in which every pair votes, weighted by its own deviation, adds up all these
chance deviations; after k pairs it seems right for about

    Phi(sqrt(k/n))                                  of the rows it was built from,

and for about half of any others. `outcome` is a fair coin independent of all signals, so every such rule is right with
probability exactly 1/2.

In its second act, half of the rows are open, and everything found there is noise, too; the third is in `leaderboard`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from pathlib import Path
from shutil import rmtree
from time import perf_counter
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.lab import populations
from holdfast.lab.populations import signal
from holdfast.questions.answer import Answer
from holdfast.questions.check import CheckAnswer
from holdfast.rows.open import open_rows
from holdfast.session.parts import hold_back
from holdfast.session.planning import plan
from holdfast.session.session import Session

ROWS, QUESTIONS, TOUR = 1_000_000, 10_000, 100  # TOUR: questions planned in addition to the discovery's
FLIP_ROWS, FLIPS = 100_000, 1_000
LATE, CARRIERS = "dep_delay > 15", tuple(each.name for each in populations.CARRIERS[:3])

LOOK_EVERY = 10  # signals between two looks at the rule
POPULATION_SHARE = 0.5  # how often any rule of signals is right
ERROR_BARS = 1.96
_BLOCK = 1 << 16  # rows per block
_WEIGHT_GRID = float(2**30)  # weights are integers, so that a vote does not depend on the order of summation

CHART_HEIGHT, CHART_GAP = 15, 3
CHART_STEPS = (0.005, 0.01, 0.02, 0.05, 0.1)  # of lines: shares that are round in percent, so 50% has a line
CHART_LABEL = 7  # characters before the first column: a share, such as " 50.0% "


# -- what is asked ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DemoStep:
    """One more signal, to be paired with the first `partners` signals; if `look`, then the rule is asked about."""

    signal: int
    partners: int
    look: bool
    asked: int  # questions asked by the end of this step


def steps(questions: int, *, before: int = 0) -> tuple[DemoStep, ...]:
    """Divide a number of questions into pairs and looks, ending with a look; `before` questions were asked already.

    >>> steps(10)
    (DemoStep(signal=1, partners=1, look=False, asked=1), DemoStep(signal=2, partners=2, look=False, asked=3), \
DemoStep(signal=3, partners=3, look=False, asked=6), DemoStep(signal=4, partners=3, look=True, asked=10))
    """
    made, left, index = [], questions, 1
    while left > 0:
        partners = min(index, left - 1)
        left -= partners
        look = left == 1 or index % LOOK_EVERY == 0
        left -= look
        made.append(DemoStep(index, partners, look, before + questions - left))
        index += 1
    return tuple(made)


class PairRule:
    """Predicts `outcome` by a vote of pairs, each weighted by its deviation. Evaluates each row by itself."""

    def __init__(self, answers: Sequence[tuple[int, int, float]]) -> None:
        signals = 1 + max(second for _, second, _ in answers)
        self.weights = np.zeros((signals, signals))
        for first, second, answer in answers:
            self.weights[first, second] = round((answer - POPULATION_SHARE) * _WEIGHT_GRID)
        self.names = [signal(index) for index in range(signals)]
        self.__name__ = f"rule_of_{len(answers)}_pairs"

    def __call__(self, rows: pl.DataFrame) -> NDArray[np.bool_]:
        """Return for each row whether the rule is right."""
        signs = rows.select(self.names).to_numpy().astype(np.float64) * 2 - 1
        vote = ((signs @ self.weights) * signs).sum(axis=1)
        right: NDArray[np.bool_] = (vote > 0) == rows["outcome"].to_numpy()
        return right


# -- what is answered ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TourAnswer:
    """One answer of the tour, with the population's value."""

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
class RuleLook:
    """How often the rule seems to be right after some number of questions."""

    asked: int
    value: float
    low: float
    high: float

    @property
    def misses(self) -> bool:
        """Whether the interval misses the population's share."""
        return not self.low <= POPULATION_SHARE <= self.high


@dataclass(frozen=True)
class Discovery:
    """The adaptive analyst's questions: what holdfast answers, and what plain means of the same rows claim."""

    questions: int
    misses: int
    seconds: float
    rows_read: int
    hint: TourAnswer
    holdfast: tuple[RuleLook, ...]
    naive: tuple[RuleLook, ...]

    @property
    def real(self) -> float:
        """How often the rule is right in the population."""
        return POPULATION_SHARE

    @property
    def error_bars(self) -> float:
        """How many of its own error bars the last plain mean is away from the population's share."""
        last = self.naive[-1]
        return (last.value - POPULATION_SHARE) / (last.high - last.value)


class Demo:
    """One run, in its own folder. `seed` makes data and draws repeatable."""

    def __init__(self, folder: Path, *, rows: int = ROWS, questions: int = QUESTIONS, seed: int | None = None) -> None:
        self.folder, self.rows, self.questions, self.seed = folder, rows, questions, seed
        self.path = folder / "flights.parquet"
        self.rng = np.random.default_rng(seed)

    def prepare(self) -> Session:
        """Draw new rows, write them as Parquet, and open them like any file."""
        self._clear()
        populations.write(self.path, self.rows, self.rng)
        queries = self.questions + TOUR
        half = plan(rows=self.rows, queries=queries).rows_per_query // 2  # half the best plan's, to end within a minute
        rows = open_rows(self.path, complete=["dep_delay"])
        return Session(rows, queries=queries, rows_per_query=half, seed=self.seed, analyst="demo")

    def tour(self, session: Session) -> list[TourAnswer]:
        """Ask questions of several kinds."""
        session.price(LATE)  # loads the parser, so that the times shown are those of the questions alone
        answers = [
            _timed('s.mean("dep_delay > 15")', populations.share_later_than(15), lambda: session.mean(LATE)),
            _timed(
                's.mean("distance", within=(0, 5000), where="carrier = \'UA\'")',
                populations.mean_distance("UA"),
                lambda: session.mean("distance", within=(0, 5_000), where="carrier = 'UA'"),
            ),
        ]
        start = perf_counter()
        histogram = session.histogram("carrier", categories=CARRIERS)
        elapsed = perf_counter() - start
        shares = {each.name: each.share for each in populations.CARRIERS}
        for name in CARRIERS:
            call = f's.histogram("carrier", categories=[...])["{name}"]'
            answers.append(_compared(call, shares[name], histogram[name], elapsed))
        quantile = _timed(
            's.quantile("dep_delay", 0.9, within=(-60, 600))',
            populations.delay_quantile(0.9),
            lambda: session.quantile("dep_delay", 0.9, within=(-60, 600)),
        )
        return [*answers, quantile]

    def flips(self) -> TourAnswer:
        """Ask for flips, each about one row, on another sample with its own ledger, planned for flips."""
        path = self.folder / "flips.parquet"
        populations.write(path, FLIP_ROWS, self.rng, signals=0)
        with Session(path, queries={"flip": FLIPS}, seed=self.seed, analyst="demo") as session:
            late = populations.share_later_than(15)
            return _timed('s.flips("dep_delay > 15", 1000)', late, lambda: session.flips(LATE, FLIPS).average)

    def discover(self, session: Session, progress: Callable[[int], None]) -> Discovery:
        """Let the analyst search; `progress` is called with the number of questions asked."""
        start = perf_counter()
        hint = _timed('s.mean("hint = outcome")', populations.HINT, lambda: session.mean("hint = outcome"))
        analyst = _PairAnalyst(session)
        schedule, looks = steps(self.questions - 1, before=1), []
        for step in schedule:
            look = analyst.ask(step)
            if look is not None:
                looks.append(look)
            progress(step.asked)
        seconds = perf_counter() - start
        return Discovery(
            questions=self.questions,
            misses=analyst.misses + (not hint.holds),
            seconds=seconds,
            rows_read=analyst.rows_read + hint.rows_read,
            hint=hint,
            holdfast=tuple(looks),
            naive=tuple(naive_looks(self.path, schedule)),
        )

    def second_act(self) -> "SecondAct":
        """Let analysts look at half of a table, and check on the other half what they found."""
        return play(coin_table(np.random.default_rng(self.seed)), seed=self.seed)

    def _clear(self) -> None:
        """Remove what an earlier run left: new rows need a new ledger."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for stem in ("flights", "flips"):
            rmtree(self.folder / f"{stem}.parquet.holdfast", ignore_errors=True)
            for left in self.folder.glob(f"{stem}.parquet*"):
                left.unlink()


class _PairAnalyst:
    """Builds every rule from holdfast's own answers."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._answers: list[tuple[int, int, float]] = []
        self.misses = self.rows_read = 0

    def ask(self, step: DemoStep) -> RuleLook | None:
        """Ask the questions of one step; return what the look at the rule showed."""
        for partner in range(step.partners):
            answer = self._ask(f"({signal(partner)} = {signal(step.signal)}) = outcome")
            self._answers.append((partner, step.signal, answer.value))
        if not step.look:
            return None
        answer = self._ask(PairRule(self._answers))
        return RuleLook(step.asked, answer.value, answer.low, answer.high)

    def _ask(self, query: str | PairRule) -> Answer:
        answer = self._session.mean(query)
        self.misses += not answer.low <= POPULATION_SHARE <= answer.high
        self.rows_read += answer.rows_read
        return answer


def _timed(call: str, population: float, ask: Callable[[], Answer]) -> TourAnswer:
    start = perf_counter()
    return _compared(call, population, ask(), perf_counter() - start)


def _compared(call: str, population: float, answer: Answer, seconds: float) -> TourAnswer:
    milliseconds = round(seconds * 1_000, 2)
    return TourAnswer(call, answer.value, answer.low, answer.high, population, answer.rows_read, milliseconds)


def to_json(
    demo: Demo, session: Session, tour: list[TourAnswer], flips: TourAnswer, discovery: Discovery, act: "SecondAct"
) -> dict[str, Any]:
    """Return all numbers of a run as plain JSON values."""
    return {
        "rows": demo.rows,
        "seed": demo.seed,
        "plan": session.plan.to_dict(),
        "tour": [asdict(answer) for answer in tour],
        "flips": asdict(flips),
        "discovery": asdict(discovery) | {"real": discovery.real, "error_bars": discovery.error_bars},
        "checks": act.to_json(),
    }


# -- the same search with plain means -----------------------------------------------------------------------------


def naive_looks(path: Path, schedule: Sequence[DemoStep]) -> list[RuleLook]:
    """Search with exact means of all rows; return each look at the rule, with textbook 95% error bars."""
    signals = 1 + schedule[-1].signal
    table = pl.read_parquet(path, columns=[*map(signal, range(signals)), "outcome"])
    rows = table.height
    bits = np.stack([np.packbits(column.to_numpy()) for column in table])
    weights = np.zeros((signals, signals), dtype=np.float32)
    for step in schedule:
        right = bits[: step.partners] ^ bits[step.signal] ^ bits[-1]  # (a = b) = outcome, bit by bit
        shares = np.bitwise_count(right).sum(axis=1, dtype=np.int64) / rows
        weights[step.signal, : step.partners] = shares - POPULATION_SHARE
    counts = np.sum([_right_at_looks(block, weights, schedule) for block in _blocks(bits, rows)], axis=0)
    looks = []
    for step, count in zip([step for step in schedule if step.look], counts, strict=True):
        share = float(count) / rows
        error = ERROR_BARS * sqrt(share * (1 - share) / rows)
        looks.append(RuleLook(step.asked, share, share - error, share + error))
    return looks


def _blocks(bits: NDArray[np.uint8], rows: int) -> Iterator[NDArray[np.uint8]]:
    """Unpack the bits of some rows at a time: 0 and 1, one line for each column."""
    for start in range(0, rows, _BLOCK):
        yield np.unpackbits(bits[:, start // 8 : (start + _BLOCK) // 8], axis=1, count=min(_BLOCK, rows - start))


def _right_at_looks(
    block: NDArray[np.uint8], weights: NDArray[np.float32], schedule: Sequence[DemoStep]
) -> NDArray[np.int64]:
    """Return on how many of these rows the rule is right, at each look."""
    signs, outcome = block[:-1].astype(np.float32) * 2 - 1, block[-1].astype(bool)
    parts = weights @ signs
    vote, begin, counts = np.zeros(outcome.size, dtype=np.float32), 0, []
    for step in schedule:
        if step.look:
            end = step.signal + 1
            vote += np.einsum("ij,ij->j", parts[begin:end], signs[begin:end])
            counts.append(np.count_nonzero((vote > 0) == outcome))
            begin = end
    return np.array(counts)


# -- the second act: half of the rows are open ------------------------------------------------------------------------
#
# Two analysts explore the open half freely. Each picks signals that seem to predict `outcome`, a fair coin, and lets
# them vote. The first asks an ordinary holdout for the exact share of every signal and keeps those that lean the same
# way on both halves; after a thousand questions the rule overfits the holdout too, which confirms it although it is
# right for only half of the population. The second checks the same guesses with holdfast.
#
# Among n held rows a signal leans by about 1/(2 sqrt(n)), by chance. A vote of the m signals that lean the same way on
# both halves seems right for about Phi(sqrt(2 m/(pi n))) of the rows of either half.

CHECKED_ROWS, SIGNALS, LOOKS = 20_000, 1_000, 5
WORD = 8  # signals per column: few enough that a column does not identify rows
MARGIN = 3.0  # divided by sqrt(n): four deviations of the difference between the two halves


@dataclass(frozen=True)
class Look:
    """How often a rule seems to be right after some number of signals: in the open half, by the holdout, by checks."""

    signals: int
    open_half: float
    holdout: float
    low: float
    high: float


@dataclass(frozen=True)
class SecondAct:
    """What both analysts were told."""

    rows: int
    checks: int
    wrong: int
    missed: int  # intervals of checks that miss the truth
    doubted: str  # the verdict on the guess that the rule is as good as the open half claims
    looks: tuple[Look, ...]

    @property
    def error_bars(self) -> float:
        """How many of its own error bars the holdout's last claim is away from the truth."""
        last = self.looks[-1].holdout
        return (last - POPULATION_SHARE) / (ERROR_BARS * sqrt(last * (1 - last) / (self.rows / 2)))

    def to_json(self) -> dict[str, Any]:
        """Return all numbers as plain JSON values."""
        return asdict(self) | {"truth": POPULATION_SHARE, "error_bars": self.error_bars}


class Votes:
    """Predicts `outcome` by a vote of signals: each sign is +1, -1, or 0 (left out). Evaluates each row by itself."""

    def __init__(self, signs: NDArray[np.float64]) -> None:
        self.signs = signs
        self.__name__ = f"vote_of_{np.count_nonzero(signs)}_signals"

    def __call__(self, rows: pl.DataFrame) -> NDArray[np.bool_]:
        """Return for each row whether the vote is right; a tie says yes."""
        votes = (_bits(rows, self.signs.size) * 2.0 - 1) @ self.signs.astype(np.float32)
        right: NDArray[np.bool_] = (votes >= 0) == rows["outcome"].to_numpy()
        return right


def coin_table(rng: np.random.Generator, rows: int = CHECKED_ROWS, signals: int = SIGNALS) -> pl.DataFrame:
    """Return fair coins: signals, `WORD` of them in each column, and an outcome independent of all of them."""
    words = {f"w{number}": rng.integers(0, 2**WORD, rows, dtype=np.uint8) for number in range(-(-signals // WORD))}
    return pl.DataFrame(words | {"outcome": rng.random(rows) < 0.5})


def agreement(signal: int) -> str:
    """Return the question whether a signal equals the outcome."""
    bit = signal % WORD
    return f"(w{signal // WORD} % {2 ** (bit + 1)} >= {2**bit}) = outcome"


def _bits(rows: pl.DataFrame, signals: int) -> NDArray[np.float32]:
    words = rows.select(f"w{number}" for number in range(-(-signals // WORD))).to_numpy()
    return np.unpackbits(words.astype(np.uint8), axis=1, count=signals, bitorder="little").astype(np.float32)


def play(frame: pl.DataFrame, signals: int = SIGNALS, *, seed: int | None = None) -> SecondAct:
    """Let both analysts work on the same split of a table, of so many signals; `seed` makes the split repeatable."""
    numbered = frame.with_row_index("row")
    explore, session = hold_back(numbered, explore=0.5, id="row", seed=seed, complete=numbered.columns)
    held = numbered.join(explore.select("row"), on="row", how="anti")  # ordinary holdout: same rows, exact answers
    with session:
        return _played(explore, held, signals, session)


def _played(explore: pl.DataFrame, held: pl.DataFrame, signals: int, session: Session) -> SecondAct:
    seen, kept = (_leanings(part, signals) for part in (explore, held))
    margin = MARGIN / sqrt(held.height)
    answers: list[CheckAnswer] = []
    looks: list[Look] = []
    for number in range(1, signals + 1):
        answers.append(session.check(agreement(number - 1), float(POPULATION_SHARE + seen[number - 1]), margin))
        if number % (signals // LOOKS):
            continue
        asked = np.arange(signals) < number
        suggested = Votes(np.where(asked, np.where(seen < 0, -1.0, 1.0), 0.0))
        confirmed = Votes(np.where(asked & (seen * kept > 0), np.sign(seen), 0.0))
        claim = float(suggested(explore).mean())
        answers.append(session.check(suggested, POPULATION_SHARE, margin / 2))
        looks.append(Look(number, claim, float(confirmed(held).mean()), *answers[-1].interval))
    doubted = session.check(suggested, claim, margin / 2)
    answers.append(doubted)
    missed = sum(not answer.low <= POPULATION_SHARE <= answer.high for answer in answers)
    wrong = sum(not answer.holds for answer in answers)
    return SecondAct(explore.height + held.height, len(answers), wrong, missed, doubted.outcome, tuple(looks))


def _leanings(part: pl.DataFrame, signals: int) -> NDArray[np.float64]:
    outcome = part["outcome"].to_numpy()[:, None]
    return np.asarray((_bits(part, signals) == outcome).mean(axis=0) - POPULATION_SHARE)


# -- the chart in the terminal ------------------------------------------------------------------------------------


def chart(discovery: Discovery) -> str:
    """Draw with characters: ● what plain means claim, ┃ holdfast's interval, ─ the population's share."""
    looks = [*discovery.holdfast, *discovery.naive]
    low, high = min(look.low for look in looks), max(look.high for look in looks)
    step = next(one for one in CHART_STEPS if high - low <= CHART_HEIGHT * one)

    def line(share: float) -> int:
        return round(share / step)

    columns = []
    for ours, naive in zip(discovery.holdfast, discovery.naive, strict=True):
        column = dict.fromkeys(range(line(ours.low), line(ours.high) + 1), "┃")
        column[line(naive.value)] = "●"
        columns.append(column)
    lines = []
    for height in range(line(high), line(low) - 1, -1):
        at_truth = height == line(POPULATION_SHARE)
        label = f"{100 * step * height:5.1f}% " if height % 2 == 0 or at_truth else ""
        background = "─" if at_truth else " "
        marks = (CHART_GAP * background).join(column.get(height, background) for column in columns)
        lines.append(label.ljust(CHART_LABEL) + marks.rstrip())
    first, last = discovery.holdfast[0].asked, discovery.holdfast[-1].asked
    width = (CHART_GAP + 1) * (len(columns) - 1) + 1
    axis = f"{first:,}".ljust(width // 2) + f"{last:,} questions".rjust(width - width // 2)
    key = "● what plain means claim   ┃ holdfast's interval   ─ the truth"
    return "\n".join([*lines, " " * CHART_LABEL + axis, " " * CHART_LABEL + key])
