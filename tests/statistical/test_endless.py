"""Sessions without an end, sessions beyond their plan, rows that are not identical: do all intervals hold?

As in test_coverage.py: a world is missed if any interval of it ever misses. That is the worst of all rules for when to
stop: whoever stops, for whatever reason, has seen some of these intervals. 200 worlds each; the promise is refuted by
28 misses, which would happen with probability below 1e-6 were each world missed with probability 5%.

The attack: n = 1,000 rows of fair coins. Each question reads n rows of one coin; after 50, 100, 200 and 400 questions
the vote of all coins so far, weighted by the answers, is asked with 50,000 draws. In the end it is up in two thirds of
the rows, and still in half of the population. Whoever keeps the step to the population that is right for the first
answer, or for a plan of 20, misses it in nearly every world. Answers are tallied here from binomial counts, which is
what `RowSource.tally` returns; a miss of a coin's own question needs a count 3 standard deviations off, so only those
are certified one by one.
"""

from collections.abc import Callable
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator

from holdfast.guarantees.exchange import Exchange
from holdfast.guarantees.statistic import OneShare, Tally
from holdfast.session.planning import plan
from holdfast.session.session import Session
from worlds import Analyst, Asked, breaks_promise, misses

pytestmark = pytest.mark.slow

WORLDS, MUTANT_WORLDS = 200, 40
ROWS, COINS, VOTES, VOTE_DRAWS = 1_000, 400, (50, 100, 200, 400), 50_000
AtPlace = Callable[[int, int], Exchange]


def attacked(standing: Exchange, rng: Generator, at: AtPlace) -> bool:
    """Whether any interval of a session misses."""
    mass = standing.coin_mass

    def holds(ones: int, draws: int, place: Exchange) -> bool:
        (value,) = OneShare().from_counts((draws - ones, ones), draws, mass=mass)
        low, high = place.share(Tally((value,), draws, (draws - ones, ones), (1,)), 0)
        return low <= 0.5 <= high

    signals = rng.integers(0, 2, (ROWS, COINS), dtype=np.int8)
    counts = rng.binomial(ROWS, mass + (1 - 2 * mass) * signals.mean(axis=0))
    answers = (counts / ROWS - mass) / (1 - 2 * mass) - 0.5
    charge = statement = 0
    for number in range(COINS):
        charge, statement = charge + ROWS, statement + 1
        if abs(counts[number] - ROWS / 2) > 1.5 * sqrt(ROWS) and not holds(
            int(counts[number]), ROWS, at(charge, statement)
        ):
            return True
        if number + 1 in VOTES:
            up = float(((signals[:, : number + 1] - 0.5) @ answers[: number + 1] > 0).mean())
            charge, statement = charge + VOTE_DRAWS, statement + 1
            ones = int(rng.binomial(VOTE_DRAWS, mass + (1 - 2 * mass) * up))
            if not holds(ones, VOTE_DRAWS, at(charge, statement)):
                return True
    return False


@pytest.mark.parametrize("queries", [None, 20], ids=["no plan", "a plan of 20"])
def test_intervals_hold_however_long_a_session_goes_on(seed: int, queries: int | None) -> None:
    made = plan(rows=ROWS, queries=queries, guarantee="exchange", rows_per_query="best")
    standing = made.standing
    assert isinstance(standing, Exchange)
    assert made.margin < 0.35  # it says something

    def missed(worlds: int, at: AtPlace) -> int:
        return sum(attacked(standing, np.random.default_rng([seed, world]), at) for world in range(worlds))

    def growing(charge: int, statement: int) -> Exchange:
        return standing.at(charge, statement - 1)

    assert growing(COINS * ROWS, COINS).step > 2.5 * growing(ROWS, 1).step
    assert not breaks_promise(missed(WORLDS, growing), WORLDS)
    kept = growing(standing.terms.charge or ROWS, 1)
    assert breaks_promise(missed(MUTANT_WORLDS, lambda charge, statement: kept), MUTANT_WORLDS)


# -- rows that are not identical ------------------------------------------------------------------------------------

RARE = 0.04  # of the rows are in the small stratum


def drift(rng: Generator, rows: int) -> tuple[dict[str, Any], Analyst]:
    """Rates that change over time, and a small stratum with other rates; both are fixed, the values are drawn."""
    time = np.arange(rows) / rows
    stratum = np.arange(rows) % round(1 / RARE) == 0
    rate = np.where(stratum, 0.9 - 0.8 * time, 0.05 + 0.3 * time**2)
    middle = np.where(stratum, 8.0, 2.0 + 4.0 * time)
    data = {
        "hit": rng.random(rows) < rate,
        "x": np.clip(middle + rng.uniform(-2, 2, rows), 0, 10),
        "stratum": stratum,
        "late": time >= 0.75,
    }
    late = time >= 0.75
    truths = {
        "hit": rate.mean(),
        "rare": rate[stratum].mean(),
        "late": rate[late].mean(),
        "x": middle.mean(),
        "x rare": middle[stratum].mean(),
    }

    def analyst(session: Session, rng: Generator) -> Asked:
        yield session.mean("hit"), truths["hit"]
        yield session.mean("hit", where="stratum"), truths["rare"]
        yield session.mean("hit", where="late"), truths["late"]
        yield session.mean("x", within=(0, 10)), truths["x"]
        yield session.mean("x", within=(0, 10), where="stratum"), truths["x rare"]
        yield session.histogram("hit", categories=[True])["True"], truths["hit"]
        yield session.mean("hit and stratum"), RARE * truths["rare"]

    return data, analyst


@pytest.mark.parametrize("terms", [{}, {"queries": 3}], ids=["no plan", "beyond a plan"])
def test_strata_and_drift(seed: int, terms: dict[str, Any]) -> None:
    """Means under the average law of the rows, of a rare stratum, of a period."""
    missed = misses(partial(drift, rows=4_000), worlds=WORLDS, seed=seed, **terms)
    assert not breaks_promise(missed, WORLDS)


def test_strata_and_drift_would_show_intervals_that_are_too_narrow(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Exchange, "_j", 0.0)
    by_the_terms = Exchange.__init__

    def wrong(self: Exchange, *terms: Any) -> None:
        by_the_terms(self, *terms)
        self.level = 0.5

    monkeypatch.setattr(Exchange, "__init__", wrong)
    assert breaks_promise(misses(partial(drift, rows=4_000), worlds=MUTANT_WORLDS, seed=seed), MUTANT_WORLDS)
