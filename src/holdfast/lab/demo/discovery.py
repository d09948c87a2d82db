"""How to discover an effect in noise, and what the naive mean makes of it.

The analyst asks of every pair of signals whether their agreement tells the `outcome`: the share of rows with
(s_a = s_b) = outcome, which is 1/2 in the population. On n rows it is 1/2 ± 1/(2 sqrt(n)) by chance. A rule in which
every pair votes with its own deviation as weight collects all this chance; after k pairs it seems right about

    Phi(sqrt(k/n))                                  of the rows it was built from,

and about half of any others. `outcome` is a fair coin independent of all signals, so every such rule is right with
probability exactly 1/2.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.lab.demo.population import signal

LOOK_EVERY = 10  # signals
REAL = 0.5
_BLOCK = 1 << 16  # rows
_GRID = float(2**30)  # weights are whole numbers, so that a vote is the same in whatever order it is added up


@dataclass(frozen=True)
class Step:
    """One more signal: it is paired with the first `partners` signals, and then perhaps the rule is looked at."""

    signal: int
    partners: int
    look: bool
    asked: int  # questions asked by the end of this step


def steps(questions: int, *, before: int = 0) -> tuple[Step, ...]:
    """Divide a number of questions into pairs and looks, ending with a look; `before` were asked already.

    >>> steps(10)
    (Step(signal=1, partners=1, look=False, asked=1), Step(signal=2, partners=2, look=False, asked=3), \
Step(signal=3, partners=3, look=False, asked=6), Step(signal=4, partners=3, look=True, asked=10))
    """
    made, left, index = [], questions, 1
    while left > 0:
        partners = min(index, left - 1)
        left -= partners
        look = left == 1 or index % LOOK_EVERY == 0
        left -= look
        made.append(Step(index, partners, look, before + questions - left))
        index += 1
    return tuple(made)


@dataclass(frozen=True)
class Look:
    """What an analyst was told about the rule after so many questions."""

    asked: int
    value: float
    low: float
    high: float

    @property
    def misses(self) -> bool:
        """Whether the interval leaves out what is real."""
        return not self.low <= REAL <= self.high


class Rule:
    """Predicts `outcome` by a vote of pairs, each weighted by how it did. A function of one row."""

    def __init__(self, answers: Sequence[tuple[int, int, float]]) -> None:
        signals = 1 + max(second for _, second, _ in answers)
        self.weights = np.zeros((signals, signals))
        for first, second, answer in answers:
            self.weights[first, second] = round((answer - REAL) * _GRID)
        self.names = [signal(index) for index in range(signals)]
        self.__name__ = f"rule_of_{len(answers)}_pairs"

    def __call__(self, rows: pl.DataFrame) -> NDArray[np.bool_]:
        """Return for each row whether the rule is right."""
        signs = _signs(rows.select(self.names))
        vote = ((signs @ self.weights) * signs).sum(axis=1)
        right: NDArray[np.bool_] = (vote > 0) == rows["outcome"].to_numpy()
        return right


def naive(path: Path, plan: Sequence[Step]) -> list[Look]:
    """Dig with exact means of all rows: what the rule seems to reach at each look, with textbook 95 % error bars."""
    signals = 1 + plan[-1].signal
    table = pl.read_parquet(path, columns=[*map(signal, range(signals)), "outcome"])
    rows = table.height
    bits = np.stack([np.packbits(column.to_numpy()) for column in table])
    weights = np.zeros((signals, signals), dtype=np.float32)
    for step in plan:
        right = bits[: step.partners] ^ bits[step.signal] ^ bits[-1]  # (a = b) = outcome, bit by bit
        weights[step.signal, : step.partners] = np.bitwise_count(right).sum(axis=1, dtype=np.int64) / rows - REAL
    counts = np.sum([_right_at_looks(block, weights, plan) for block in _blocks(bits, rows)], axis=0)
    looks = []
    for step, count in zip([step for step in plan if step.look], counts, strict=True):
        share = float(count) / rows
        error = 1.96 * sqrt(share * (1 - share) / rows)
        looks.append(Look(step.asked, share, share - error, share + error))
    return looks


def _blocks(bits: NDArray[np.uint8], rows: int) -> Iterator[NDArray[np.uint8]]:
    """Unpack the bits of some rows at a time: 0 and 1, one line per column."""
    for start in range(0, rows, _BLOCK):
        yield np.unpackbits(bits[:, start // 8 : (start + _BLOCK) // 8], axis=1, count=min(_BLOCK, rows - start))


def _right_at_looks(block: NDArray[np.uint8], weights: NDArray[np.float32], plan: Sequence[Step]) -> NDArray[np.int64]:
    """Return on how many of these rows the rule is right, at each look."""
    signs, outcome = block[:-1].astype(np.float32) * 2 - 1, block[-1].astype(bool)
    parts = weights @ signs
    vote, begin, counts = np.zeros(outcome.size, dtype=np.float32), 0, []
    for step in plan:
        if step.look:
            end = step.signal + 1
            vote += np.einsum("ij,ij->j", parts[begin:end], signs[begin:end])
            counts.append(np.count_nonzero((vote > 0) == outcome))
            begin = end
    return np.array(counts)


def _signs(rows: pl.DataFrame) -> NDArray[np.float64]:
    return rows.to_numpy().astype(np.float64) * 2 - 1
