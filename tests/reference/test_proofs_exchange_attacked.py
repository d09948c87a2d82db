"""The exchange theorem against the worst of all analysts, found exactly.

What the theorem says of a transcript depends on its questions and outcomes alone, so the best of all adaptive
strategies over a menu of questions is found by dynamic programming: at each transcript, the question whose outcomes are
worth most. Nothing here is shared with the code that enumerates random sessions (ghost_worlds.py): the formulas
are written down again from docs/proofs/exchange.md, by somebody who would like them to be wrong.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from math import exp, log

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import gammaln

from examples import QUICK
from holdfast.guarantees.mathematics import exchange

Array = NDArray[np.float64]
SLACK = 1e-9


@dataclass
class Question:
    """For every R (pairs of values), exchange and outcome: log-likelihood, noise, and excess of the trace."""

    logs: Array
    noise: Array
    excess: Array
    trace: Array  # w X_t, what the noise is allowed to cost, without eps3
    charge: int


@dataclass
class Small:
    """n rows with values 0 .. points-1 from a population, the constants, and a menu of questions."""

    n: int
    population: tuple[float, ...]
    lam: float
    a: float = 0.1
    kap: float = 1.0
    rho: float = 0.5

    def __post_init__(self) -> None:
        n, points = self.n, len(self.population)
        pairs = np.array(list(product(range(points), repeat=2 * n)))
        self.plus, self.minus = pairs[:, :n], pairs[:, n:]
        d = np.array(self.population)
        self.weight = d[pairs].prod(axis=1)
        self.cube = np.array(list(product((-1.0, 1.0), repeat=n)))
        same = (self.cube[:, None] == self.cube[None]).sum(axis=2)
        self.channel = ((1 + 1 / self.lam) / 2) ** same * ((1 - 1 / self.lam) / 2) ** (n - same)
        self.om2 = self.lam**2 - 1

    def question(self, rule: Iterable[Iterable[float]], mass: float) -> Question:
        """`rule[x][z]` is how likely a row of value x gives outcome z."""
        w, n = np.array(list(map(list, rule))), self.n
        c, p = w.shape[1], np.array(self.population) @ w
        plus, minus = w[self.plus], w[self.minus]  # (R, n, c)
        b = (plus - minus) / 2

        def law(u: Array) -> Array:
            f = ((plus + minus) / 2).mean(axis=1)[:, None] + np.einsum("zn,rnc->rzc", u, b) / n
            return mass + (1 - c * mass) * f

        near, far = law(self.cube), law(self.lam * self.cube)
        low = self.rho * mass
        if c == 2:
            far = far.clip(low, 1 - low)
        else:
            far = np.where(far.min(axis=2, keepdims=True) >= low, far, near)
        noise = np.einsum("zy,ryc->rzc", self.channel, np.log(far)) - np.log(near)
        f = (near - mass) / (1 - c * mass)
        both = f + p - 2 * f * p
        theta = self.kap * n * self.a**2
        length = (1 - c * mass) ** 2 * both / (4 * n * near**2)
        phi = np.log((near * np.exp(theta * length)).sum(axis=2, keepdims=True))
        k_rho = -(log(self.rho) + sum((1 - self.rho) ** j / j for j in (1, 2, 3))) / (1 - self.rho) ** 4
        a, lam2 = self.a, self.lam**2
        eps2 = 2 / (3 * n * a) + 2 * k_rho * (3 * self.om2 / (4 * n * a**2) + (lam2 + 3) / (4 * n**2 * a**2))
        squares = (b**2).sum(axis=1)[:, None, :] * (1 - c * mass) ** 2 / (n * near) ** 2
        return Question(np.log(near), noise, theta * length - phi, self.om2 / 2 * (1 + eps2) * squares, c - 1)

    def menu(self) -> list[Question]:
        """All 0/1 questions, soft and rare ones, three outcomes; the least mass and a larger one."""
        points = len(self.population)
        asked = []
        for yes in product((0.0, 1.0), repeat=points):
            if 0 < sum(yes) < points and yes[0] == 0:
                asked += [self.question([(1 - x, x) for x in yes], mass) for mass in (self.a, 0.3)]
        asked.append(self.question([(1 - x, x) for x in np.linspace(0.02, 0.3, points)], self.a))
        three = [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.3, 0.7)][:points]
        asked.append(self.question(three, self.a))
        return asked


State = tuple[Array, Array, Array, Array, int]  # log-likelihood, noise, excess, trace: (R, zeta) each; charge


def told(small: Small, state: State) -> dict[str, float]:
    """Return the probability of a transcript and E[.|T] of everything the theorem speaks of."""
    logs, noise, excess, trace, _ = state
    given = np.exp(logs)
    of_pairs = given.mean(axis=1)
    joint = small.weight[:, None] * given / given.shape[1]
    law = float(joint.sum())
    post = given / given.sum(axis=1, keepdims=True)
    information = (post * np.log(np.maximum(post * post.shape[1], 1e-300))).sum(axis=1)
    over_pairs, over_all = small.weight * of_pairs / law, joint / law
    learned = float(over_pairs @ information)
    return {
        "law": law,
        "information": learned,
        "delta": float((over_all * noise).sum()),
        "phi": (1 - small.lam**-2) * learned + float((over_all * noise).sum()),
        "without noise": (1 - small.lam**-2) * learned,
        "contracted too much": (1 - small.lam**-6) * learned + float((over_all * noise).sum()),
        "excess": float((over_all * excess).sum()),
        "trace": float((over_all * trace).sum()),
    }


def worst(small: Small, depth: int, worth: Callable[[dict[str, float]], float]) -> float:
    """Return the largest E[worth(T)] that any adaptive strategy reaches; it may stop when it likes."""
    menu = small.menu()

    def best(state: State, left: int) -> float:
        found = told(small, state)
        stop = found["law"] * worth(found)
        if left == 0:
            return stop
        logs, noise, excess, trace, charge = state
        values = [stop]
        for q in menu:
            after = (
                (logs + q.logs[..., z], noise + q.noise[..., z], excess + q.excess[..., z], trace + q.trace[..., z],
                 charge + q.charge) for z in range(q.logs.shape[2])
            )  # fmt: skip
            values.append(sum(best(state, left - 1) for state in after))
        return max(values)

    nothing = np.zeros((len(small.weight), len(small.cube)))
    return best((nothing, nothing, nothing, nothing, 0), depth)


WORLDS = [
    Small(1, (0.5, 0.5), 1.3),
    Small(2, (0.5, 0.5), 2.0),
    Small(2, (0.98, 0.02), 1.3),
    Small(2, (0.999, 0.001), 2.0, a=0.02, rho=0.1),
    Small(1, (0.6, 0.3, 0.1), 1.1, a=0.2, kap=4.0),
    Small(3, (0.9, 0.1), 1.5, a=0.05),
]
DEPTH = 2 if QUICK else 3


@pytest.mark.parametrize("number", range(len(WORLDS)))
def test_no_analyst_reaches_more_than_one(number: int) -> None:
    """E exp(E[Phi|T]) <= 1, and E exp(E[sum theta Xb - phi | T]) <= 1, for the best strategy over the whole menu."""
    small = WORLDS[number]
    for name in ("phi", "excess"):
        assert worst(small, DEPTH, lambda found, name=name: exp(found[name])) <= 1 + SLACK  # type: ignore[misc]


def test_the_best_analyst_finds_wrong_versions_of_the_step() -> None:
    small = Small(1, (0.5, 0.5), 1.2)
    assert worst(small, 2, lambda found: exp(found["without noise"])) > 1.05
    assert worst(small, 2, lambda found: exp(found["contracted too much"])) > 1.03


@pytest.mark.parametrize("number", range(len(WORLDS)))
@pytest.mark.parametrize("nats", [0.05, 0.3, 1.0])
def test_no_analyst_makes_an_event_likelier_than_it_may_be(number: int, nats: float) -> None:
    """P(E[Phi|T] > L) <= e^-L: the most that any strategy reaches, exactly; likewise of the trace."""
    small = WORLDS[number]
    for name in ("phi", "excess"):
        reached = worst(small, DEPTH, lambda found, name=name: float(found[name] > nats))  # type: ignore[misc]
        assert reached <= exp(-nats) + SLACK


@pytest.mark.parametrize("number", range(len(WORLDS)))
def test_no_analyst_makes_the_noise_dearer_than_it_is_charged(number: int) -> None:
    """-E[Delta|T] <= E[sum w X_t|T] + eps3 for every transcript of every strategy: its largest breach, exactly."""
    small = WORLDS[number]
    n, a, om2, d = small.n, small.a, small.om2, 1 - small.rho
    rare = exp(-2 * d**2 * n * a**2 / (om2 + 2 / 3 * (small.lam + 1) * d * a))
    each = 3 * (0.5 - log(small.rho * a)) * rare  # eps3 of one unit of charge, which every draw costs at least
    assert worst(small, DEPTH, lambda found: float(-found["delta"] > found["trace"] + DEPTH * 2 * each + SLACK)) == 0


# Whole sessions at the smallest sizes where the code promises anything, by the law of the number of ones alone.


def log_choose(n: int) -> Array:
    """Return the logarithms of n over 0, 1, .. n."""
    k = np.arange(n + 1.0)
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))


def ones_given(n: int, p: float, a: float, counts: Array, tosses: int) -> Array:
    """Return E[share of ones | so many of the tosses came up], for every count; a share p in the population."""
    k = np.arange(n + 1)
    prior = log_choose(n) + k * log(p) + (n - k) * log(1 - p)
    bias = a + (1 - 2 * a) * k / n
    logs = prior[:, None] + counts * np.log(bias)[:, None] + (tosses - counts) * np.log(1 - bias)[:, None]
    law = np.exp(logs - logs.max(axis=0))
    return np.asarray(k / n @ (law / law.sum(axis=0)))


@pytest.mark.parametrize("n", [40, 100, 300])
@pytest.mark.parametrize("share", ["half", "rare", "one row"])
def test_spending_everything_on_one_question_stays_inside(n: int, share: str) -> None:
    """All of the charge on one share, chosen to hurt: where the code's J says anything, the ends are rarely beyond."""
    p = {"half": 0.5, "rare": 0.02, "one row": 1 / n}[share]
    for per_row, a, beta in ((2, 0.15, 0.3), (10, 0.1, 0.3), (40, 0.05, 0.1)):
        charge = per_row * n
        free = exchange.constants(n, charge, a, beta, stretch=0.5)
        constants = (free.om2, free.kap, free.s, free.L, free.L2)
        j = exchange.j(n, float(exchange.ibar(n, charge, a, *constants, rho=0.1)))
        counts = np.arange(charge + 1)
        mu = ones_given(n, p, a, counts.astype(float), charge)
        k = np.arange(n + 1)
        rows = np.exp(log_choose(n) + k * log(p) + (n - k) * log(1 - p))
        bias = (a + (1 - 2 * a) * k / n)[:, None]
        given = np.exp(log_choose(charge) + counts * np.log(bias) + (charge - counts) * np.log(1 - bias))
        law = rows @ given
        missed = [not exchange.lo(m, j) <= p <= exchange.hi(m, j) for m in mu]
        assert law[missed].sum() <= beta
        assert np.all(np.abs(mu - p)[~np.array(missed)] <= float(exchange.worst_case(j)) + 1e-12)


def test_some_of_these_promise_something() -> None:
    """Else the test above would say nothing."""
    promised = 0
    for n, per_row, a in product((40, 100, 300), (2, 10), (0.15, 0.1)):
        free = exchange.constants(n, per_row * n, a, 0.3, stretch=0.5)
        constants = (free.om2, free.kap, free.s, free.L, free.L2)
        promised += exchange.j(n, float(exchange.ibar(n, per_row * n, a, *constants, rho=0.1))) < 1
    assert promised >= 4
