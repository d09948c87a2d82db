"""Populations whose means are known exactly, and the yes-or-no questions about their rows.

population          columns                        questions about it
CoinTable           y, x0, x1, ...: coins          Agreement of a feature with the label, Vote of several features
LabeledCells        cell, y                        TableRule: a label for every cell
Universe            id                             Marked: is this identity on a list?
FinitePopulation    those of a given table         any question

Made-up flights: a population whose means are all known by formula.

carrier     one of CARRIERS, with its share
dep_delay   minutes: -10 + an exponential time, longer for some carriers
distance    uniform from 100 to the carrier's farthest distance
hour        of departure, 5 to 22, equally likely
outcome     a fair coin; nothing predicts it except
hint        which equals it in 60% of rows
s000 ...    signals: fair coins, independent of everything; a rule made of them predicts `outcome` half the time
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.cached import cached_property
from holdfast.errors import InvalidArgument
from holdfast.guarantees.statistic import OneShare, Statistic
from holdfast.queries.query import Query

Bits = NDArray[np.bool_]
Arrays = Mapping[str, NDArray[Any]]

WEIGHT_GRID = float(2**20)  # weights are integers, so that a vote does not depend on the order of summation


# -- questions ----------------------------------------------------------------------------------------------------


class RowQuestion(Query):
    """A yes-or-no question about one row, as mechanisms take it; also callable, as sessions take functions."""

    statistic: ClassVar[Statistic] = OneShare()

    @property
    def sql(self) -> str | None:
        """The same question as text, if it has one."""
        return None

    @property
    def text(self) -> str:
        """A readable description."""
        return self.sql or type(self).__name__.lower()

    @abstractmethod
    def evaluate(self, rows: pl.DataFrame) -> Bits:
        """Return yes or no for each row."""

    def __call__(self, rows: pl.DataFrame) -> Bits:
        """Return yes or no for each row."""
        return self.evaluate(rows)


def feature(index: int) -> str:
    """Return the name of a feature column."""
    return f"x{index}"


@dataclass(frozen=True)
class Agreement(RowQuestion):
    """Whether one feature equals the label."""

    index: int

    @property
    def columns(self) -> tuple[str, ...]:
        """The feature and the label."""
        return feature(self.index), "y"

    @property
    def sql(self) -> str:
        """The question as text."""
        return f"{feature(self.index)} = y"

    def evaluate(self, rows: pl.DataFrame) -> Bits:
        """Compare."""
        same: Bits = rows[feature(self.index)].to_numpy() == rows["y"].to_numpy()
        return same


@dataclass(frozen=True, eq=False)
class Vote(RowQuestion):
    """Whether a weighted vote of features predicts the label."""

    indices: tuple[int, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, indices: NDArray[np.int64], weights: NDArray[np.float64]) -> "Vote":
        """Build a vote, leaving out weights that round to zero."""
        whole = np.rint(np.asarray(weights, dtype=np.float64) * WEIGHT_GRID)
        kept = np.flatnonzero(whole)
        if kept.size == 0:  # all weights are zero: the first feature decides
            return cls((int(indices[0]),), (1.0,))
        return cls(tuple(int(i) for i in np.asarray(indices)[kept]), tuple(float(w) for w in whole[kept]))

    @property
    def columns(self) -> tuple[str, ...]:
        """The voting features and the label."""
        return (*map(feature, self.indices), "y")

    @property
    def text(self) -> str:
        """A readable description."""
        return f"vote of {len(self.indices)} features"

    def evaluate(self, rows: pl.DataFrame) -> Bits:
        """Add up the votes; a tie predicts no."""
        votes = np.full(rows.height, -sum(self.weights))
        for index, weight in zip(self.indices, self.weights, strict=True):
            votes += (2 * weight) * rows[feature(index)].to_numpy()
        right: Bits = (votes > 0) == rows["y"].to_numpy()
        return right


@dataclass(frozen=True, eq=False)
class TableRule(RowQuestion):
    """Whether a rule that predicts one label for every cell is right."""

    predictions: Bits = field(repr=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """The cell and the label."""
        return "cell", "y"

    def evaluate(self, rows: pl.DataFrame) -> Bits:
        """Look up the prediction; cells out of range wrap around, so that no row raises an error."""
        predicted = self.predictions[rows["cell"].to_numpy() % len(self.predictions)]
        right: Bits = predicted == rows["y"].to_numpy()
        return right


@dataclass(frozen=True, eq=False)
class Marked(RowQuestion):
    """Whether an identity is marked: by a bit of a code, or on a list of the accused."""

    marks: Bits = field(repr=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """The identity."""
        return ("id",)

    def evaluate(self, rows: pl.DataFrame) -> Bits:
        """Look up the mark; identities out of range wrap around, so that no row raises an error."""
        marked: Bits = self.marks[rows["id"].to_numpy() % len(self.marks)]
        return marked


# -- populations --------------------------------------------------------------------------------------------------


class Population(Protocol):
    """Where rows come from. It knows the exact mean of every question it can be asked."""

    def draw(self, rows: int, rng: Generator) -> Arrays:
        """Draw rows independently."""

    def mean(self, question: Query) -> float:
        """Return the mean of a question over the whole population."""


def fair_bits(rng: Generator, count: int) -> Bits:
    """Draw independent bits, 0 or 1 with probability 1/2 each."""
    packed = np.frombuffer(rng.bytes((count + 7) // 8), dtype=np.uint8)
    return np.unpackbits(packed, count=count).view(np.bool_)


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

    def draw(self, rows: int, rng: Generator) -> Arrays:
        """Draw labels and features."""
        label = fair_bits(rng, rows)
        columns = {"y": label}
        for index in range(self.features):
            if index < self.signal:
                columns[feature(index)] = label ^ (rng.random(rows) >= self.agreement(index))
            else:
                columns[feature(index)] = fair_bits(rng, rows)
        return columns

    def training(self, rows: int, rng: Generator) -> NDArray[np.float64]:
        """Return how often every feature agrees with the label on a separate sample of this many rows.

        Agreements of different features are independent, so their counts are independent binomials.
        """
        chances = np.full(self.features, 0.5)
        chances[: self.signal] += self.bias
        return rng.binomial(rows, chances) / rows

    def mean(self, question: Query) -> float:
        """Return the mean of an agreement or a vote."""
        if isinstance(question, Agreement):
            return self.agreement(question.index)
        if isinstance(question, Vote):
            return self._vote(question)
        raise InvalidArgument(
            "A CoinTable knows the means of agreements and votes only; got another question."
            " Use a FinitePopulation, which evaluates any question."
        )

    def _vote(self, vote: Vote) -> float:
        """P(lead > 0) + P(lead = 0)/2: by symmetry a tie is right half the time."""
        with_signal = [weight for index, weight in zip(vote.indices, vote.weights, strict=True) if index < self.signal]
        if self.bias == 0 or not with_signal:
            return 0.5
        unit = abs(vote.weights[0])
        if any(abs(weight) != unit for weight in vote.weights):
            raise InvalidArgument("The mean of a vote is known only for equal weights, or without signal.")
        from scipy.stats import binom  # heavy, and only votes on real signal need it

        total = len(vote.weights)
        law = np.ones(1)
        for count, chance in (
            (sum(weight > 0 for weight in with_signal), 0.5 + self.bias),
            (sum(weight < 0 for weight in with_signal), 0.5 - self.bias),
            (total - len(with_signal), 0.5),
        ):
            law = np.convolve(law, binom.pmf(np.arange(count + 1), count, chance))
        lead = 2 * np.arange(total + 1) - total
        return float(law[lead > 0].sum() + law[lead == 0].sum() / 2)


class FinitePopulation:
    """A table taken as the whole population: rows are drawn from it with replacement, means are exact.

    >>> FinitePopulation({"x0": [True, False], "y": [True, True]}).mean(Agreement(0))
    0.5
    """

    def __init__(self, data: Mapping[str, Any] | pl.DataFrame) -> None:
        self._frame = data if isinstance(data, pl.DataFrame) else pl.DataFrame(dict(data))
        if self._frame.height == 0:
            raise InvalidArgument("A population must have at least one row; got none.", name="data")

    def draw(self, rows: int, rng: Generator) -> Arrays:
        """Draw rows of the table, with replacement."""
        drawn = self._frame[rng.integers(0, self._frame.height, rows)]
        return {name: drawn[name].to_numpy() for name in drawn.columns}

    def mean(self, question: Query) -> float:
        """Evaluate a question on the whole table."""
        return float(np.mean(question.evaluate(self._frame.select(question.columns))))


@dataclass(frozen=True)
class LabeledCells:
    """A `cell`, one of many and equally likely, and a label `y`: a fair coin in every cell."""

    cells: int

    def __post_init__(self) -> None:
        check.whole(cells=self.cells)

    def draw(self, rows: int, rng: Generator) -> Arrays:
        """Draw cells and labels."""
        return {"cell": rng.integers(0, self.cells, rows), "y": fair_bits(rng, rows)}

    def mean(self, question: Query) -> float:
        """Return the mean of any question about the two columns."""
        return self._everything.mean(question)

    @cached_property
    def _everything(self) -> FinitePopulation:
        cells = np.arange(self.cells)
        return FinitePopulation({"cell": np.repeat(cells, 2), "y": np.tile(np.array([False, True]), self.cells)})


@dataclass(frozen=True)
class Universe:
    """Identities `id` from 0 to `size` - 1, equally likely."""

    size: int

    def __post_init__(self) -> None:
        check.whole(size=self.size)

    def draw(self, rows: int, rng: Generator) -> Arrays:
        """Draw identities."""
        return {"id": rng.integers(0, self.size, rows)}

    def mean(self, question: Query) -> float:
        """Return the mean of any question about the identity."""
        return self._everything.mean(question)

    @cached_property
    def _everything(self) -> FinitePopulation:
        return FinitePopulation({"id": np.arange(self.size)})


SIGNALS = 142  # gives 10,011 pairs
EARLIEST = -10.0
NEAREST = 100.0
HINT = 0.6  # how often `hint` equals `outcome`


@dataclass(frozen=True)
class Carrier:
    """A carrier: its share of flights, its mean delay after the earliest departure, and its farthest flight."""

    name: str
    share: float
    delay: float
    farthest: float


CARRIERS = (
    Carrier("UA", 0.30, 20.0, 2_900.0),
    Carrier("AA", 0.25, 16.0, 2_500.0),
    Carrier("DL", 0.25, 12.0, 2_300.0),
    Carrier("B6", 0.15, 26.0, 1_700.0),
    Carrier("HA", 0.05, 8.0, 4_900.0),
)


def signal(index: int) -> str:
    """Return the name of a signal column."""
    return f"s{index:03d}"


def share_later_than(minutes: float) -> float:
    """Return the population's share of flights whose delay is above `minutes`.

    >>> share_later_than(-10.0)
    1.0
    """
    return sum(each.share * exp(-max(0.0, minutes - EARLIEST) / each.delay) for each in CARRIERS)


def mean_distance(name: str) -> float:
    """Return the mean distance of a carrier's flights.

    >>> mean_distance("UA")
    1500.0
    """
    (carrier,) = (each for each in CARRIERS if each.name == name)
    return (NEAREST + carrier.farthest) / 2


def delay_quantile(q: float) -> float:
    """Return the population's `q` quantile of the delay, by bisection of its formula."""
    low, high = EARLIEST, 10_000.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        if 1 - share_later_than(middle) < q:
            low = middle
        else:
            high = middle
    return high


def draw(rows: int, rng: Generator, *, signals: int = SIGNALS) -> pl.DataFrame:
    """Draw rows of the population, independently."""
    which = rng.choice(len(CARRIERS), size=rows, p=[each.share for each in CARRIERS])
    delay = np.array([each.delay for each in CARRIERS])[which]
    farthest = np.array([each.farthest for each in CARRIERS])[which]
    outcome = fair_bits(rng, rows)
    columns: dict[str, NDArray[np.generic] | pl.Series] = {
        "carrier": pl.Series([each.name for each in CARRIERS])[which],
        "dep_delay": EARLIEST + delay * rng.standard_exponential(rows),
        "distance": NEAREST + (farthest - NEAREST) * rng.random(rows),
        "hour": rng.integers(5, 23, size=rows),
        "outcome": outcome,
        "hint": outcome ^ (rng.random(rows) >= HINT),
    }
    return pl.DataFrame(columns | {signal(index): fair_bits(rng, rows) for index in range(signals)})


def write(path: Path, rows: int, rng: Generator, *, signals: int = SIGNALS) -> None:
    """Write a sample of the population as Parquet."""
    draw(rows, rng, signals=signals).write_parquet(path, compression="uncompressed")
