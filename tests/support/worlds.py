"""Populations whose means are known exactly, samples of them, and analysts who ask about them.

A world is one sample and one session on it. An analyst is a generator of (answer, population value) pairs; a world is
missed if any answer's interval does not contain its population value.
"""

from collections.abc import Callable, Iterator, Sequence
from math import exp, log, nan, sqrt
from typing import Any

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.stats import binom

from holdfast.queries.query import Query, Values
from holdfast.questions.answer import Answer
from holdfast.rows.draws import Selection
from holdfast.rows.memory import memory_rows
from holdfast.schema import Schema
from holdfast.session.session import Session

FALSE_ALARM = 1e-6
COMPLETE = ("x", "e")  # numbers of `one_of_everything` that are never missing
WORD = 48  # features in one integer column: six bytes
FEW = 64  # rows

Asked = Iterator[tuple[Answer, float]]
Analyst = Callable[[Session, Generator], Asked]


class Sampled:
    """Rows of one world. All worlds of a population share one schema, so that a text is parsed once for all of them."""

    name, fingerprint, location = "world", "a sample of its own", None
    _schemas: dict[tuple[Any, ...], Schema] = {}  # noqa: RUF012 - shared on purpose

    def __init__(self, data: dict[str, Any], unit: str | None = None) -> None:
        self._rows = memory_rows(data, name=self.name, complete=[name for name in COMPLETE if name in data], unit=unit)
        own = self._rows.schema
        self.schema = self._schemas.setdefault((unit, *own.columns), own)

    def __len__(self) -> int:
        return len(self._rows)

    def tally(self, query: Query, *, draws: int, mass: float, rng: Generator) -> NDArray[np.int64]:
        return self._rows.tally(query, draws=draws, mass=mass, rng=rng)

    def sample(self, query: Query, selection: Selection, rng: Generator) -> Values:
        return self._rows.sample(query, selection, rng)

    def verify(self) -> None:
        self._rows.verify()


def misses(
    world: Callable[[Generator], tuple[dict[str, Any], Analyst]],
    *,
    worlds: int,
    seed: int,
    unit: str | None = None,
    **plan: Any,
) -> int:
    """Return in how many of so many independent worlds, of rows or of units, any interval misses."""
    missed = 0
    for number in range(worlds):
        rng = np.random.default_rng([seed, number])
        data, analyst = world(rng)
        rows = Sampled(data, unit)
        with Session(rows, seed=int(rng.integers(2**62)), **plan) as session:
            assert session.schema is rows.schema  # or every world parses its texts anew, in twice the time
            missed += any(not answer.low <= truth <= answer.high for answer, truth in analyst(session, rng))
    return missed


def breaks_promise(missed: int, worlds: int, promised: float = 0.05) -> bool:
    """Whether so many misses would be an accident of less than FALSE_ALARM if the promise were kept."""
    return bool(binom.sf(missed - 1, worlds, promised) < FALSE_ALARM)


# -- fair coins, attacked -----------------------------------------------------------------------------------------


def fair_coins(rng: Generator, rows: int, features: int) -> dict[str, Any]:
    """Return independent fair coins, `WORD` of them in each column; all population shares are exactly 1/2."""
    words = -(-features // WORD)
    return {f"w{i}": rng.integers(0, 2**WORD, rows) for i in range(words)}


def feature(number: int) -> str:
    """Return the question about one coin: is its bit set?"""
    bit = number % WORD
    return f"w{number // WORD} % {2 ** (bit + 1)} >= {2**bit}"


def majority(weights: NDArray[np.float64]) -> Callable[[pl.DataFrame], NDArray[np.bool_]]:
    """Return the final question: does the weighted vote of a row's coins go up? Half the population's do.

    Votes of eight coins at a time are looked up; of few rows, added up at once, which a hundred trials of one row take.
    """
    padded = np.zeros(-(-weights.size // WORD) * WORD)
    padded[: weights.size] = weights
    signs = (np.arange(256)[:, None] >> np.arange(8) & 1) - 0.5
    names = [f"w{word}" for word in range(padded.size // WORD)]
    tables = (padded.reshape(-1, 8) @ signs.T).reshape(-1, WORD // 8, 256)  # 256 votes for each byte of each word

    def vote(rows: pl.DataFrame) -> NDArray[np.bool_]:
        if rows.height < FEW:
            coins = np.ascontiguousarray(rows[names].to_numpy(), dtype="<i8").view(np.uint8)
            bits = np.unpackbits(coins.reshape(rows.height, -1, 8)[:, :, : WORD // 8], axis=2, bitorder="little")
            return ((bits.reshape(rows.height, -1) - 0.5) @ padded) > 0
        total = np.zeros(rows.height)
        for word, bytewise in enumerate(tables):
            coins = rows[f"w{word}"].to_numpy()
            for byte, votes in enumerate(bytewise):
                total += votes[coins >> (8 * byte) & 255]
        return total > 0

    return vote


def attack(*, asked: int, sign: bool = False) -> Analyst:
    """Return the analyst who asks about each coin, then about the vote of all, weighted by what was answered.

    The vote goes up for more than half of the rows that took part in the answers, though not of the population. All
    that is left of the budget goes into that last question. Those about coins do not depend on each other: a vote that
    is not by signs asks them all at once, which is faster.
    """

    def analyst(session: Session, rng: Generator) -> Asked:
        coins = [feature(number) for number in range(asked)]
        answers = list(map(session.mean, coins)) if sign else list(session.ask_many(coins))
        values = np.array([float(answer) for answer in answers]) - 0.5
        yield from ((answer, 0.5) for answer in answers)
        weights = np.sign(values) if sign else values
        weights = weights + 1e-6 * np.abs(values).max() * rng.random(asked)  # no vote ends in a tie
        left = session.plan.terms.charge - session.ledger.spent.charge
        yield session.mean(majority(weights), rows_per_query=left), 0.5

    return analyst


def coins_and_a_number(rng: Generator, rows: int, features: int) -> dict[str, Any]:
    """Return fair coins, and a number near 0.4 or 0.6 that does not depend on them: its mean is 1/2 in any group."""
    near = rng.choice([0.4, 0.6], rows) + 0.04 * (rng.random(rows) - 0.5)
    return {**fair_coins(rng, rows, features), "x": near}


def attack_by_group(*, asked: int) -> Analyst:
    """Return the analyst who asks how often each coin agrees with a large number, then for the mean in a group.

    The group is the rows for which the weighted vote of the coins goes up: of those in the sample, more have a large
    number. All that is left of the budget goes into that last question, a mean of a group that is cut into slices.
    """

    def analyst(session: Session, rng: Generator) -> Asked:
        coins = [feature(number) for number in range(asked)]
        answers = list(session.ask_many([f"x > 0.5 AND {coin} OR x <= 0.5 AND NOT ({coin})" for coin in coins]))
        yield from ((answer, 0.5) for answer in answers)
        weights = np.array([float(answer) for answer in answers]) - 0.5
        left = session.plan.terms.charge - session.ledger.spent.charge
        yield session.mean("x", within=(0, 1), where=majority(weights), rows_per_query=left // 2), 0.5

    return analyst


# -- one of everything --------------------------------------------------------------------------------------------

GROUPS = (0.5, 0.3, 0.15, 0.05)


def one_of_everything(rng: Generator, rows: int, rare: float) -> dict[str, Any]:
    """Return coins, a rare event, bounded and unbounded numbers, groups, texts and missing values."""
    x, group = rng.random(rows), rng.choice(4, rows, p=GROUPS)
    return {
        "b": rng.random(rows) < 0.3,
        "rare": rng.random(rows) < rare,
        "x": x,
        "e": rng.exponential(size=rows),
        "g": group,
        "y": rng.random(rows) * (group + 1) / 4,
        "s": np.array(list("abcd"))[group],
        "u": np.where(rng.random(rows) < 0.2, np.nan, x),
    }


def curious(
    rare: float,
    *,
    quantiles: bool = True,
    flips: bool = False,
    slices: bool = False,
    cuts: Sequence[float] = (0.25, 0.5, 0.75),
) -> Analyst:
    """Return the analyst who asks one question of every kind, none chosen by an answer."""

    def analyst(session: Session, rng: Generator) -> Asked:
        yield session.mean("b"), 0.3
        yield session.mean("rare"), rare
        yield session.mean("x", within=(0, 1)), 0.5
        yield session.mean("2 * x - 1", within=(-1, 1)), 0.0
        yield session.mean("e", within=(0, 3)), 1 - exp(-3)
        yield session.mean("u", within=(0, 1)), 0.5
        yield session.mean("x > 0.75", where="b"), 0.25
        for group in range(4):
            yield session.mean("y", within=(0, 1), where=f"g = {group}"), (group + 1) / 8
            yield session.mean("y", within=(0, 1), where=f"g = {group}", slices="none"), (group + 1) / 8
        for slices_of_groups in (None, "none"):
            grouped = session.mean("y", within=(0, 1), by="s", groups=list("dcba"), slices=slices_of_groups)
            yield from zip(grouped.values(), (4 / 8, 3 / 8, 2 / 8, 1 / 8), strict=True)
        yield session.difference("y", "s = 'a'", "g = 2", within=(0, 1)), -2 / 8
        yield session.difference("x > 0.75", "b"), 0.0
        yield session.count("b", population=50), 15.0
        yield session.total("u", within=(0, 1), where="b", population=100), 100 * 0.8 * 0.3 * 0.5
        yield session.std("u", within=(0, 1)), sqrt(1 / 12)
        yield session.covariance("x", "x > 0.75", within=(0, 1)), 0.25 * 0.375
        yield session.correlation("b", "x", other_within=(0, 1)), 0.0
        yield session.slope("x", "x > 0.75", within=(0, 1)), 0.25 * 0.375 * 12
        yield session.difference("x > 0.5", minus="x > 0.75"), 0.25
        yield session.auc("x", "x > 0.75 OR b", within=(0, 1), cuts=cuts), 0.3625 / 0.475
        found = session.top("s", longest=1, most=2, alphabet="abcd")
        shares = dict(zip("abcd", GROUPS, strict=True))
        yield from ((answer, shares[text]) for text, answer in found.items())
        unlisted = max(share for text, share in shares.items() if text not in found)
        yield Answer(nan, 0.0, found.missed, found.record), unlisted
        yield session.auc("b", "x > 0.75 OR b"), 0.5 + 0.15 / 0.475
        if slices:
            yield session.auc("x", "x > 0.75 OR b", within=(0, 1)), 0.3625 / 0.475
            yield session.mean("e", within=(0, 8), slices=[1, 3]), 1 - exp(-8)
            yield session.mean("y", within=(0, 2), slices=[0.25, 1], where="b"), (0.5 + 0.6 + 0.45 + 0.2) / 8
            yield session.mean("e", within=(0, 40), slices="auto"), 1 - exp(-40)
            yield session.mean("u", within=(0, 4), slices="auto", where="b"), 0.5
            yield session.difference("y", "s = 'a'", "g = 2", within=(0, 1), slices=[0.5]), -2 / 8
            sliced = session.mean("y", within=(0, 1), by="s", groups=["d", "a"], slices=[0.5])
            yield from zip(sliced.values(), (4 / 8, 1 / 8), strict=True)
        histogram = session.histogram("s", categories=["a", "b", "c", "never seen"])
        yield from zip(histogram.values(), (*GROUPS[:3], 0.0, GROUPS[3]), strict=True)
        inside = session.histogram("s", categories=["a", "b"], where="x > 0.5")
        yield from zip(inside.values(), (*GROUPS[:2], GROUPS[2] + GROUPS[3]), strict=True)
        bins = session.histogram("e", bins=[0, 1, 2])
        yield from zip(bins.values(), (1 - exp(-1), exp(-1) - exp(-2), exp(-2)), strict=True)
        if quantiles:
            yield session.quantile("x", 0.5, within=(0, 1), steps=6), 0.5
            yield session.quantile("e", 0.9, within=(0, 10), steps=5), -log(0.1)
            yield session.quantile("u", 0.25, within=(0, 1), steps=4), 0.25
        if flips:
            yield session.flips("b", 500).average, 0.3

    return analyst


QUESTIONS = 140  # enough for everything `curious` asks
