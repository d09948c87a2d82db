"""The last steps of the exchange theorem, from their words alone: any rows, any transcript, J worked out exactly.

Two rows or one, of laws of their own; what a transcript says of them is any likelihood at all. J is then known, and so
are posterior means and means in the population: every end must hold. How far a mean can be from its posterior mean if
every slot pays for its own move is a linear program over the laws of slots.
"""

from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from holdfast.guarantees.mathematics import exchange, groups, moments

Floats = NDArray[np.float64]
SLACK = 1e-12


class World(NamedTuple):
    """The j of the theorem, and for every slot the laws of its row: given the transcript, and in the population."""

    j: float
    posterior: Floats
    population: Floats


def world(rng: np.random.Generator, *, identical: bool) -> World:
    n, k = int(rng.integers(1, 3)), int(rng.integers(2, 4))
    laws = rng.dirichlet(np.ones(k), size=1 if identical else n)
    laws = np.repeat(laws, n, axis=0) if identical else laws
    likelihood = rng.random((k,) * n) ** rng.choice([0.2, 1.0, 3.0]) + 1e-12
    joint, nats = np.zeros((k,) * n), 0.0
    for rows in product(range(k), repeat=n):
        joint[rows] = np.prod([laws[i, row] for i, row in enumerate(rows)]) * likelihood[rows]
    for pairs in product(
        product(range(k), repeat=2), repeat=n
    ):  # rows and ghosts, of which nobody knows which is which
        chance = np.prod([laws[i, one] * laws[i, other] for i, (one, other) in enumerate(pairs)])
        said = np.array([likelihood[rows] for rows in product(*pairs)])
        law = said / said.sum()
        nats += chance * said.mean() * float((law * np.log(law * law.size)).sum())
    posterior = joint / joint.sum()
    slots = np.array([posterior.sum(axis=tuple(j for j in range(n) if j != i)) for i in range(n)])
    return World(2 * nats / joint.sum() / n, slots, laws)


def mean(laws: Floats, values: Floats) -> float:
    return float((laws * values).sum() / len(laws))


def missed(*, identical: bool, part: float = 1.0) -> dict[str, int]:
    """Return how often each end does not hold, in 600 worlds, computed from this part of J."""
    rng, tried = np.random.default_rng(17), 0
    found = dict.fromkeys(("mean", "spread", "share", "upper", "lower", "difference"), 0)
    while tried < 600:
        whole, posterior, population = world(rng, identical=identical)
        if not whole < 1:
            continue
        tried += 1
        j = part * whole
        shape = (1, posterior.shape[1]) if identical else posterior.shape  # else questions may know the slot
        q = np.broadcast_to((rng.random(shape) < 0.5) * 1.0 if tried % 2 else rng.random(shape), posterior.shape)
        inside = np.broadcast_to(rng.integers(0, 3, shape), posterior.shape)  # in no group, or in one of two
        mu, p = mean(posterior, q), mean(population, q)
        low, high = exchange.lo(mu, j, identical=identical), exchange.hi(mu, j, identical=identical)
        found["mean"] += not low - SLACK <= p <= high + SLACK
        about = rng.random()
        spread = moments.exchange_spread(
            j, mean(posterior, (q - about) ** 2), max(about, 1 - about) ** 2, 1.0, identical=identical
        )
        found["spread"] += abs(mu - p) > spread + SLACK
        known = []
        for group in (1, 2):
            g, share = mean(posterior, inside == group), mean(population, inside == group)
            if not g > whole or not share > 0:
                continue
            m, t = mean(posterior, q * (inside == group)) / g, mean(population, q * (inside == group)) / share
            found["share"] += share > g * exchange.most_over(g, j, identical=identical) + SLACK
            for least in (g, 0.9 * g):
                found["upper"] += t > exchange.group_upper(m, least, j, identical=identical) + SLACK
                found["lower"] += t < exchange.group_lower(m, least, j, identical=identical) - SLACK
            known.append(((m, m), (t, t), g))
        if len(known) == 2:
            apart = (known[0][0][0] - known[1][0][0]) - (known[0][1][0] - known[1][1][0])
            step = groups.exchange_step((known[0], known[1]), j, identical=identical)
            found["difference"] += abs(apart) > step + SLACK
    return found


@pytest.mark.parametrize("identical", [True, False])
def test_ends_hold_in_any_world(identical: bool) -> None:
    assert set(missed(identical=identical).values()) == {0}


@pytest.mark.parametrize("identical", [True, False])
def test_ends_of_half_of_j_are_caught_one_and_all(identical: bool) -> None:
    assert min(missed(identical=identical, part=0.5).values()) > 0


def farthest(mu: float, j: float) -> float:
    """The largest mean of v, if that of u is mu that of (u-v)^2/(u+v-2uv) at most j: on a grid, a lower bound."""
    fine = np.geomspace(1e-4, 0.05, 12)
    top = exchange.hi(mu, j)
    grid = np.unique(np.concatenate([np.linspace(0, 1, 41), fine, 1 - fine, [mu, top]]))
    u, v = (each.ravel() for each in np.meshgrid(grid, grid, indexing="ij"))
    either = u + v - 2 * u * v
    paid = np.where(u == v, 0.0, (u - v) ** 2 / np.where(either > 0, either, 1.0))
    found = linprog(-v, A_ub=[paid], b_ub=[j], A_eq=[np.ones(u.size), u], b_eq=[1.0, mu], method="highs")
    return float(-found.fun)


@pytest.mark.parametrize("j", [0.125, 0.03])
@pytest.mark.parametrize("mu", [0.0, 0.002, 0.01, 0.1, 0.5, 0.85, 0.95])
def test_a_mean_of_slots_that_pay_for_their_own_moves(mu: float, j: float) -> None:
    far = farthest(mu, j)
    assert far <= exchange.hi(mu, j, identical=False) + 1e-9
    assert far >= exchange.hi(mu, j) - 1e-9  # nor is less true: all slots alike come so far


def test_the_corners_are_needed() -> None:
    """Without them, the end of identical rows would be exceeded."""
    assert farthest(0.005, 0.125) > exchange.hi(0.005, 0.125) + 1e-6
