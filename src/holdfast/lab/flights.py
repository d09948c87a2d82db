"""Made-up flights: a population whose means are all known by formula.

carrier     one of CARRIERS, with its share
dep_delay   minutes: -10 + an exponential time, longer for some carriers
distance    uniform from 100 to the carrier's farthest distance
hour        of departure, 5 to 22, equally likely
outcome     a fair coin; nothing predicts it except
hint        which equals it in 60 % of rows
s000 ...    signals: fair coins, independent of everything; a rule made of them predicts `outcome` half the time
"""

from dataclasses import dataclass
from math import exp
from pathlib import Path

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast.lab.populations import fair_bits

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
