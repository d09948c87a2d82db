"""Do intervals hold for units whose rows depend on each other, however unequal they are?  Seeded; mutants are caught.

Worlds as in `test_coverage`: the promise is refuted if so many worlds are missed that this would happen with
probability below FALSE_ALARM = 1e-6 were each missed with probability 5%; for 200 worlds from 28 on, for 30 from 11
on, for 8 from 6 on.

*Unequal* persons have 1, 5 or 60 rows, and those with more say yes more often; in half of them all rows are equal. The
mean over persons is 0.31, the mean over rows 0.80. Whoever draws rows uniformly, and speaks of persons, misses nearly
always.

*Copies*: 400 persons of 25 equal rows, fair coins. Planned as 10,000 rows for 300 questions the margin is 0.12; the
vote of 180 answers reaches about Phi(sqrt(180)/(400 sqrt(1/400 + 1/ell))) - 1/2 > 0.2 on the sample.
"""

from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator
from scipy.stats import binom

from holdfast.session.session import Session
from worlds import Analyst, Asked, attack, breaks_promise, fair_coins, misses

pytestmark = pytest.mark.slow

WORLDS, ATTACKED_WORLDS, MUTANT_WORLDS = 200, 30, 8
SIZES, LAW, YES = np.array([1, 5, 60]), np.array([0.7, 0.25, 0.05]), np.array([0.2, 0.5, 0.9])
EQUAL = 0.5  # persons all of whose rows are equal
CAP, LEAST = 4, 3
HEAVY = {True: 0.5, False: 0.1}  # how often a row weighs 4, not 1, by what it says


def unequal(rng: Generator, persons: int, *, asked_as_rows: bool = False) -> tuple[dict[str, Any], Analyst]:
    kind = rng.choice(3, persons, p=LAW)
    person = np.repeat(np.arange(persons), SIZES[kind])
    rows = np.repeat(kind, SIZES[kind])
    alone, together = rng.random(rows.size), np.repeat(rng.random(persons), SIZES[kind])
    yes = np.where(np.repeat(rng.random(persons) < EQUAL, SIZES[kind]), together, alone) < YES[rows]
    weight = np.where(rng.random(rows.size) < np.where(yes, HEAVY[True], HEAVY[False]), 4.0, 1.0)
    data = {"person": person, "yes": yes, "weight": weight, "group": np.repeat(rng.random(persons) < 0.5, SIZES[kind])}
    return data, partial(everything, asked_as_rows=asked_as_rows)


def over_units(alone: np.ndarray, equal: np.ndarray) -> float:
    """Return the mean over persons of what is known for each size, rows being independent or equal."""
    return float(LAW @ (EQUAL * equal + (1 - EQUAL) * alone))


def everything(session: Session, rng: Generator, *, asked_as_rows: bool) -> Asked:
    """Ask about every quantity of units; none is chosen by an answer."""
    mean = float(LAW @ YES)
    yield session.mean("yes"), mean
    if asked_as_rows:
        return
    yield session.mean("yes", where="group"), mean
    yield session.mean("yes", rows_per_unit=60), float((LAW * SIZES) @ YES / (LAW @ SIZES))
    capped = np.minimum(SIZES, 20)  # a larger unit counts as 20 rows
    yield session.mean("yes", rows_per_unit=20), float((LAW * capped) @ YES / (LAW @ capped))
    heavy = {says: 4 * p + 1 - p for says, p in HEAVY.items()}
    weighted = mean * heavy[True] / (mean * heavy[True] + (1 - mean) * heavy[False])
    yield session.mean("yes", weight="weight", largest_weight=4), weighted
    yield session.units("yes"), over_units(1 - (1 - YES) ** SIZES, YES)
    yield session.units("yes", having="all"), over_units(YES**SIZES, YES)
    yield session.units("yes", at_least=LEAST), over_units(binom.sf(LEAST - 1, SIZES, YES), YES * (SIZES >= LEAST))
    sums = np.array([binom.expect(lambda x: np.minimum(x, CAP), (int(n), p)) for n, p in zip(SIZES, YES, strict=True)])
    yield session.units("yes", cap=CAP), over_units(sums, YES * np.minimum(SIZES, CAP))
    histogram = session.histogram("yes", categories=[True])
    yield histogram["True"], mean


def copies(rng: Generator, persons: int, most: int, asked: int) -> tuple[dict[str, Any], Analyst]:
    """Return fair coins of persons with 1 to `most` rows, or all with as many if `most` is negative; rows are equal."""
    sizes = np.full(persons, -most) if most < 0 else rng.integers(1, most + 1, persons)
    data = {name: np.repeat(coins, sizes) for name, coins in fair_coins(rng, persons, asked).items()}
    return data | {"person": np.repeat(np.arange(persons), sizes)}, attack(asked=asked, sign=True)


@pytest.mark.parametrize("guarantee", ["exchange", "posterior"])
def test_quantities_of_very_unequal_units(seed: int, guarantee: str) -> None:
    world = partial(unequal, persons=1_500)
    missed = misses(world, worlds=WORLDS, seed=seed, unit="person", queries=40, guarantee=guarantee)
    assert not breaks_promise(missed, WORLDS)


def test_rows_drawn_uniformly_do_not_speak_of_units(seed: int) -> None:
    world = partial(unequal, persons=1_500, asked_as_rows=True)
    assert breaks_promise(misses(world, worlds=MUTANT_WORLDS, seed=seed, queries=40), MUTANT_WORLDS)


def test_units_under_attack(seed: int) -> None:
    world = partial(copies, persons=2_000, most=12, asked=180)
    missed = misses(world, worlds=ATTACKED_WORLDS, seed=seed, unit="person", queries=300)
    assert not breaks_promise(missed, ATTACKED_WORLDS)


def test_rows_planned_as_units_are_missed(seed: int) -> None:
    world = partial(copies, persons=400, most=-25, asked=180)
    assert breaks_promise(misses(world, worlds=MUTANT_WORLDS, seed=seed, queries=300), MUTANT_WORLDS)
