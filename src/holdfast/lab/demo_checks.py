"""The second act of the demo: half of the rows are open, and everything found there is noise.

Two analysts explore the open half freely. Each picks signals that seem to predict `outcome`, a fair coin, and lets them
vote. The first asks an ordinary holdout for the exact share of every signal and keeps those that lean the same way on
both halves; after a thousand questions the rule overfits the holdout too, which confirms it although it is right for
only half of the population. The second checks the same guesses with holdfast.

Among n held rows a signal leans by about 1/(2 sqrt(n)), by chance. A vote of the m signals that lean the same way on
both halves seems right for about Phi(sqrt(2 m/(pi n))) of the rows of either half.
"""

from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.questions.check import CheckAnswer
from holdfast.session.parts import hold_back
from holdfast.session.session import Session

ROWS, SIGNALS, LOOKS = 20_000, 1_000, 5
WORD = 8  # signals per column: few enough that a column does not identify rows
MARGIN = 3.0  # divided by sqrt(n): four deviations of the difference between the two halves
TRUTH = 0.5  # how often any rule of signals is right
_ERROR_BARS = 1.96


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
        return (last - TRUTH) / (_ERROR_BARS * sqrt(last * (1 - last) / (self.rows / 2)))


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


def table(rng: np.random.Generator, rows: int = ROWS, signals: int = SIGNALS) -> pl.DataFrame:
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
        answers.append(session.check(agreement(number - 1), float(TRUTH + seen[number - 1]), margin))
        if number % (signals // LOOKS):
            continue
        asked = np.arange(signals) < number
        suggested = Votes(np.where(asked, np.where(seen < 0, -1.0, 1.0), 0.0))
        confirmed = Votes(np.where(asked & (seen * kept > 0), np.sign(seen), 0.0))
        claim = float(suggested(explore).mean())
        answers.append(session.check(suggested, TRUTH, margin / 2))
        looks.append(Look(number, claim, float(confirmed(held).mean()), *answers[-1].interval))
    doubted = session.check(suggested, claim, margin / 2)
    answers.append(doubted)
    missed = sum(not answer.low <= TRUTH <= answer.high for answer in answers)
    wrong = sum(not answer.holds for answer in answers)
    return SecondAct(explore.height + held.height, len(answers), wrong, missed, doubted.outcome, tuple(looks))


def _leanings(part: pl.DataFrame, signals: int) -> NDArray[np.float64]:
    outcome = part["outcome"].to_numpy()[:, None]
    return np.asarray((_bits(part, signals) == outcome).mean(axis=0) - TRUTH)


def to_json(act: SecondAct) -> dict[str, Any]:
    """Return all numbers as plain JSON values."""
    return asdict(act) | {"truth": TRUTH, "error_bars": act.error_bars}
