"""Looking again at pooled coins is wrong; new coins each time are right.  Seeded.

An analyst asks for the same flips again and again. Each released interval is of its own coins, and all of them hold
together. Who pools all coins so far into one exact interval at level 5%, and stops when it looks interesting (here:
when it leaves out the population's share), reports a miss in about 0.3 of all worlds after 50 looks. With 200 worlds
that is refuted from 28 misses on (FALSE_ALARM = 1e-6); by Hoeffding's inequality a rate of 0.25 or more yields fewer
than that with probability exp(-2 * 200 * 0.11^2) < 0.01, and the seed is fixed.
"""

from typing import Any

import numpy as np
from numpy.random import Generator

from holdfast.guarantees.mathematics.concentration import clopper_pearson
from holdfast.session.session import Session
from worlds import Asked, Sampled, breaks_promise, misses

WORLDS, LOOKS, COINS, ROWS = 200, 50, 20, 20_000
PLAN: dict[str, Any] = {"queries": {"flip": LOOKS * COINS}}


def coins(rng: Generator) -> dict[str, Any]:
    return {"b": rng.random(ROWS) < 0.5}


def looks_again(session: Session, rng: Generator) -> Asked:
    for _ in range(LOOKS):
        yield session.flips("b", COINS).average, 0.5


def test_new_coins_each_time_hold(seed: int) -> None:
    missed = misses(lambda rng: (coins(rng), looks_again), worlds=WORLDS, seed=seed, **PLAN)
    assert not breaks_promise(missed, WORLDS)


def stops_when_interesting(session: Session) -> bool:
    """Whether the pooled interval at level 5% ever leaves out the truth."""
    ones = 0
    for look in range(1, LOOKS + 1):
        ones += sum(session.flips("b", COINS))
        low, high = clopper_pearson(ones, look * COINS, 0.05)
        if not low <= 0.5 <= high:
            return True
    return False


def test_pooled_coins_with_a_stop_that_depends_on_them_miss(seed: int) -> None:
    missed = 0
    for world in range(WORLDS):
        rng = np.random.default_rng([seed, world])
        with Session(Sampled(coins(rng)), seed=int(rng.integers(2**62)), **PLAN) as session:
            missed += stops_when_interesting(session)
    assert breaks_promise(missed, WORLDS)
