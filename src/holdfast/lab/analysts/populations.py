"""Populations whose means are known exactly, so that every answer can be judged."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.lab.analysts.base import Arrays, Bits, Randomness
from holdfast.lab.analysts.questions import Agreement, Vote, feature


@dataclass(frozen=True)
class CoinTable:
    """A label `y` and `features` coins `x0, x1, ...`; the first `signal` of them agree with the label more often.

    Given the label, features are independent; feature j agrees with it with probability 1/2 + bias (1/2 without
    signal). So every single agreement and every vote of equal weights has a known mean.
    """

    features: int
    signal: int = 0
    bias: float = 0.0

    def __post_init__(self) -> None:
        check.whole(features=self.features)
        check.whole(0, signal=self.signal)
        check.at_most("features", self.features, signal=self.signal)
        check.share(bias=self.bias)
        check.at_most("1/2", 0.5, bias=self.bias)

    def agreement(self, index: int) -> float:
        """Return the probability that a feature agrees with the label."""
        return 0.5 + (self.bias if index < self.signal else 0.0)

    def draw(self, rows: int, rng: Randomness) -> Arrays:
        """Draw labels and features."""
        label = coins(rng, rows)
        columns = {"y": label}
        for index in range(self.features):
            if index < self.signal:
                columns[feature(index)] = label ^ (rng.random(rows) >= self.agreement(index))
            else:
                columns[feature(index)] = coins(rng, rows)
        return columns

    def training(self, rows: int, rng: Randomness) -> NDArray[np.float64]:
        """Return the share of agreements of every feature on a sample of the analyst's own.

        Agreements of different features are independent, so their counts are independent binomials.
        """
        chances = np.full(self.features, 0.5)
        chances[: self.signal] += self.bias
        return rng.binomial(rows, chances) / rows

    def mean(self, question: Any) -> float:
        """Return the mean of an agreement or a vote."""
        if isinstance(question, Agreement):
            return self.agreement(question.index)
        if isinstance(question, Vote):
            return self._vote(question)
        raise InvalidArgument(
            "A coin table knows the means of agreements and votes only; got another question."
            " Give the population as a Table to have any question judged."
        )

    def _vote(self, vote: Vote) -> float:
        """P(margin > 0) + P(margin = 0)/2: by symmetry a tie is right half the time."""
        telling = [weight for index, weight in zip(vote.indices, vote.weights, strict=True) if index < self.signal]
        if self.bias == 0 or not telling:
            return 0.5
        unit = abs(vote.weights[0])
        if any(abs(weight) != unit for weight in vote.weights):
            raise InvalidArgument("The mean of a vote is known for equal weights, or without signal.")
        from scipy.stats import binom  # heavy, and only votes on real signal need it

        total = len(vote.weights)
        law = np.ones(1)
        for count, chance in (
            (sum(weight > 0 for weight in telling), 0.5 + self.bias),
            (sum(weight < 0 for weight in telling), 0.5 - self.bias),
            (total - len(telling), 0.5),
        ):
            law = np.convolve(law, binom.pmf(np.arange(count + 1), count, chance))
        margin = 2 * np.arange(total + 1) - total
        return float(law[margin > 0].sum() + law[margin == 0].sum() / 2)


@dataclass(frozen=True)
class Cells:
    """A `cell`, one of many and equally likely, and a label `y` that is a fair coin whatever the cell."""

    cells: int

    def __post_init__(self) -> None:
        check.whole(cells=self.cells)

    def draw(self, rows: int, rng: Randomness) -> Arrays:
        """Draw cells and labels."""
        return {"cell": rng.integers(0, self.cells, rows), "y": coins(rng, rows)}

    def mean(self, question: Any) -> float:
        """Return the mean of any question about the two columns."""
        return self._table.mean(question)

    @cached_property
    def _table(self) -> "Table":
        cells = np.arange(self.cells)
        return Table({"cell": np.repeat(cells, 2), "y": np.tile(np.array([False, True]), self.cells)})


@dataclass(frozen=True)
class Universe:
    """Identities `id` from 0 to `size` - 1, equally likely."""

    size: int

    def __post_init__(self) -> None:
        check.whole(size=self.size)

    def draw(self, rows: int, rng: Randomness) -> Arrays:
        """Draw identities."""
        return {"id": rng.integers(0, self.size, rows)}

    def mean(self, question: Any) -> float:
        """Return the mean of any question about the identity."""
        return self._table.mean(question)

    @cached_property
    def _table(self) -> "Table":
        return Table({"id": np.arange(self.size)})


class Table:
    """A table taken for the population itself: rows are drawn from it with replacement, means are exact."""

    def __init__(self, data: Mapping[str, Any] | pl.DataFrame) -> None:
        self._frame = data if isinstance(data, pl.DataFrame) else pl.DataFrame(dict(data))
        if self._frame.height == 0:
            raise InvalidArgument("A population must have at least one row; got none.", name="data")

    def draw(self, rows: int, rng: Randomness) -> Arrays:
        """Draw rows of the table, with replacement."""
        drawn = self._frame[rng.integers(0, self._frame.height, rows)]
        return {name: drawn[name].to_numpy() for name in drawn.columns}

    def mean(self, question: Any) -> float:
        """Evaluate a question on the whole table."""
        return float(np.mean(question.evaluate(self._frame.select(question.columns))))


def coins(rng: Randomness, count: int) -> Bits:
    """Toss fair coins."""
    packed = np.frombuffer(rng.bytes((count + 7) // 8), dtype=np.uint8)
    return np.unpackbits(packed, count=count).view(np.bool_)
