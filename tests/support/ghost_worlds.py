"""Sessions so small that every sample, every ghost, every exchange and every transcript is written down.

A population on two or three points, n rows and n ghosts, and an adaptive tree of draws. R are the 2n values without
the knowledge of which are rows; an exchange zeta in {-1, 1}^n says which, so S_i = R_i^+ if zeta_i = 1. Arrays have the
axes (R, zeta, T); T runs over all transcripts, also the unfinished ones, the empty one first.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from holdfast.guarantees.exchange import Exchange
from holdfast.guarantees.terms import Goal

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]


def cube(n: int) -> Array:
    """Return all exchanges of n rows."""
    return np.array(list(product((-1.0, 1.0), repeat=n)))


def channel(n: int, lam: float) -> Array:
    """Return the law of zeta' given zeta: every bit is kept with probability (1 + 1/lam)/2."""
    same = (cube(n)[:, None, :] == cube(n)[None, :, :]).sum(axis=2)
    return np.asarray(((1 + 1 / lam) / 2) ** same * ((1 - 1 / lam) / 2) ** (n - same))


def divergence_from_uniform(law: Array, axis: int = 1) -> Array:
    """Return KL(law || uniform) along an axis."""
    logs = np.log(np.maximum(law * law.shape[axis], 1e-300))
    return np.asarray((law * logs).sum(axis=axis))


@dataclass(frozen=True)
class Coin:
    """One draw with c outcomes and mass a: P_u = a + (1 - ca) f_u."""

    rule: Array  # (n, points, c): how likely a row in slot i with that value gives each outcome
    mass: float

    @property
    def charge(self) -> int:
        return int(self.rule.shape[2]) - 1

    def law(self, means: Array) -> Array:
        return np.asarray(self.mass + (1 - means.shape[-1] * self.mass) * means)

    def extrapolated(self, far: Array, near: Array, rho: float) -> Array:
        """Return the law at lam zeta': clipped for two outcomes; for more, given up for the one at zeta'."""
        wild, floor = self.law(far), rho * self.mass
        if wild.shape[-1] == 2:
            return np.asarray(wild.clip(floor, 1 - floor))
        return np.where(wild.min(axis=-1, keepdims=True) >= floor, wild, self.law(near))


@dataclass(frozen=True)
class Noisy:
    """The mean of all rows plus discrete Gaussian noise on a grid that holds every possible mean."""

    rule: Array  # (n, points, 1)
    sigma: float
    grid: Array
    charge: int = 0

    def law(self, means: Array) -> Array:
        density = np.exp(-((self.grid - means) ** 2) / (2 * self.sigma**2))
        return np.asarray(density / density.sum(axis=-1, keepdims=True))

    def extrapolated(self, far: Array, near: Array, rho: float) -> Array:
        return self.law(far)


@dataclass
class Asked:
    """A question at a transcript: the means of its outcomes for every R and zeta, and half the differences b."""

    draw: Coin | Noisy
    plus: Array  # (R, n, c): what the slots' first values give
    minus: Array
    population: Array  # (n, c): p_i for each slot

    @property
    def n(self) -> int:
        return len(self.population)

    @cached_property
    def middle(self) -> Array:  # (R, c)
        return np.asarray((self.plus + self.minus).mean(axis=1) / 2)

    @cached_property
    def b(self) -> Array:  # (R, n, c)
        return np.asarray((self.plus - self.minus) / 2)

    def means(self, exchanges: Array) -> Array:  # (R, zeta, c)
        return np.asarray(self.middle[:, None, :] + np.einsum("rnc,zn->rzc", self.b, exchanges) / self.n)

    @property
    def p(self) -> Array:
        return np.asarray(self.population.mean(axis=0))

    @cached_property
    def parts(self) -> tuple[Array, Array, Array]:
        """Return f, mean_i(w_i + p_i - 2 w_i p_i), and e' times a', for every R and zeta: (R, zeta, c) each."""
        zeta, p_i = cube(self.n), self.population
        rows = np.where(zeta[None, :, :, None] > 0, self.plus[:, None], self.minus[:, None])
        delta = ((rows - p_i) * (p_i - self.p)).mean(axis=2)
        spread = ((p_i - self.p) ** 2).mean(axis=0)  # over the slots; 0 for identical rows, and then so is delta
        both = (rows + p_i - 2 * rows * p_i).mean(axis=2)
        return self.means(zeta), both, np.asarray(delta**2 / (4 * np.where(spread > 1e-12, spread, np.inf)))


@dataclass
class World:
    """All of a session."""

    populations: Array  # (n, points): the law of each slot
    plus: Numbers  # (R, n)
    minus: Numbers
    weight: Array  # (R,)
    parent: list[int] = field(default_factory=list)
    outcome: list[int] = field(default_factory=list)
    asked: list[Asked | None] = field(default_factory=list)  # None: the session ended
    depth: list[int] = field(default_factory=list)
    charge: int = 0

    @property
    def n(self) -> int:
        return int(self.plus.shape[1])

    @cached_property
    def exchanges(self) -> Array:
        return cube(self.n)

    @cached_property
    def rows(self) -> Numbers:  # (R, zeta, n): S
        return np.where(self.exchanges[None, :, :] > 0, self.plus[:, None, :], self.minus[:, None, :])

    @property
    def ends(self) -> list[int]:
        return [t for t, question in enumerate(self.asked) if question is None]

    def along(self, values: Callable[[Asked], Array], start: float = 0.0) -> Array:
        """Return, for every transcript, the sum over its draws of values(question)[..., outcome]."""
        total = np.full((len(self.weight), len(self.exchanges), len(self.parent)), start)
        known: dict[int, Array] = {}
        for t in range(1, len(self.parent)):
            above = self.parent[t]
            if above not in known:
                question = self.asked[above]
                assert question is not None
                known[above] = values(question)
            total[:, :, t] = total[:, :, above] + known[above][:, :, self.outcome[t]]
        return total

    @cached_property
    def log_given(self) -> Array:  # log L_T(zeta)
        return self.along(lambda q: np.log(q.draw.law(q.means(self.exchanges))))

    @cached_property
    def given(self) -> Array:
        return np.asarray(np.exp(self.log_given))

    @cached_property
    def marginal(self) -> Array:  # P^1, (R, T)
        return np.asarray(self.given.mean(axis=1))

    @cached_property
    def transcript(self) -> Array:  # (T,)
        return np.asarray(self.weight @ self.marginal)

    @cached_property
    def post(self) -> Array:  # the law of zeta given R and T
        return np.asarray(self.given / self.given.sum(axis=1, keepdims=True))

    @cached_property
    def information(self) -> Array:  # I(R, T)
        return divergence_from_uniform(self.post)

    def given_transcript(self, values: Array) -> Array:
        """Return E[values | T] for an array (R, T) or (R, zeta, T)."""
        law = self.weight[:, None] * self.marginal / self.transcript
        inner = values if values.ndim == 2 else (self.post * values).sum(axis=1)
        return np.asarray((law * inner).sum(axis=0))

    def extrapolated(self, lam: float, rho: float = 0.5) -> Array:  # P^lam, (R, T)
        logs = self.along(lambda q: np.log(self.far_law(q, lam, rho)))
        return np.asarray(np.exp(logs).mean(axis=1))

    def far_law(self, question: Asked, lam: float, rho: float = 0.5) -> Array:
        near = question.means(self.exchanges)
        return question.draw.extrapolated(question.means(lam * self.exchanges), near, rho)

    def noise(self, lam: float, rho: float = 0.5) -> Array:
        """Return sum_t E[log(Phat at lam zeta' / P at zeta) | R, zeta, T]."""
        spread = channel(self.n, lam)

        def one(question: Asked) -> Array:
            far = np.log(self.far_law(question, lam, rho))
            near = np.log(question.draw.law(question.means(self.exchanges)))
            return np.asarray(np.einsum("zy,ryc->rzc", spread, far) - near)

        return self.along(one)

    def delta(self, lam: float, rho: float = 0.5) -> Array:  # (R, T)
        return np.asarray((self.post * self.noise(lam, rho)).sum(axis=1))

    def share(self) -> Array:
        """Return D_T slot by slot, (n, points, T), from the ghosts."""
        points = np.arange(self.populations.shape[1])
        joint = self.weight[:, None, None] * self.given
        law = joint / joint.sum(axis=(0, 1))
        return np.asarray(np.einsum("rznx,rzt->nxt", (self.rows[..., None] == points).astype(float), law))


Choose = Callable[[np.random.Generator, World, int, Array], "Coin | Noisy | None"]


def play(rng: np.random.Generator, populations: Array, choose: Choose) -> World:
    """Return the session of an analyst who, at each depth, chooses a draw from what was released."""
    n, points = populations.shape
    pairs = np.array(list(product(range(points), repeat=2 * n)))
    plus, minus = pairs[:, :n], pairs[:, n:]
    slots = np.arange(n)
    weight = populations[slots, plus].prod(axis=1) * populations[slots, minus].prod(axis=1)
    world = World(populations, plus, minus, weight)

    def node(parent: int, outcome: int, depth: int, here: Array, paid: int) -> None:
        t = len(world.parent)
        world.parent.append(parent)
        world.outcome.append(outcome)
        world.depth.append(depth)
        world.asked.append(None)
        draw = choose(rng, world, depth, here)
        if draw is None:
            world.charge = max(world.charge, paid)
            return
        means = np.einsum("nx,nxc->nc", populations, draw.rule)
        question = Asked(draw, draw.rule[slots, plus], draw.rule[slots, minus], means)
        world.asked[t] = question
        law = draw.law(question.means(world.exchanges))
        for z in range(law.shape[2]):
            node(t, z, depth + 1, here * law[:, :, z], paid + draw.charge)

    node(-1, -1, 0, np.ones((len(weight), 2**n)), 0)
    return world


def rules(rng: np.random.Generator, n: int, points: int, c: int, *, by_slot: bool = False) -> Array:
    """Return a random rule, mostly near the corners, where it hurts."""
    shape = (n, points) if by_slot else (1, points)
    rule = rng.dirichlet(np.full(c, 0.15), size=shape)
    if rng.random() < 0.5:
        rule = np.eye(c)[rng.integers(0, c, size=shape)]
    return np.asarray(np.broadcast_to(rule, (n, points, c)))


def vote(world: World, here: Array, points: int, c: int) -> Array:
    """Return the question that says one where the rows seem to have more of a value than the population."""
    law = world.weight[:, None] * here
    seen = np.einsum("rznx,rz->nx", world.rows[..., None] == np.arange(points), law / law.sum())
    rule = np.zeros((*seen.shape, c))
    more = seen > world.populations
    rule[..., 1], rule[..., 0] = more, ~more
    return rule


def session(
    rng: np.random.Generator, *, n: int, points: int, depth: int, a: float, most: int, different: bool = False
) -> World:
    """Return a random adaptive session: every question anew, the same for ever, or greedy votes after the first."""
    populations = rng.dirichlet(np.full(points, rng.choice([0.5, 1.0, 5.0])), size=n if different else 1)
    style = str(rng.choice(["anew", "the same", "greedy"]))
    first = rules(rng, n, points, int(rng.integers(2, most + 1)), by_slot=different)

    def choose(rng: np.random.Generator, world: World, at: int, here: Array) -> Coin | None:
        if at == depth:
            return None
        rule = first
        if at and style == "anew":
            rule = rules(rng, n, points, int(rng.integers(2, most + 1)), by_slot=different)
        if at and style == "greedy":
            rule = vote(world, here, points, first.shape[2])
        c = rule.shape[2]
        mass = a if rng.random() < 0.7 else a + (0.9 / c - a) * rng.random() * (a < 0.9 / c)
        return Coin(rule, float(mass))

    return play(rng, np.asarray(np.broadcast_to(populations, (n, points))), choose)


def sessions(seed: int, count: int, *, a: float = 0.1, most: int = 3, different: bool = False) -> list[World]:
    """Return that many random sessions of at most five draws on at most three rows."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        n, points = int(rng.integers(1, 4)), int(rng.integers(2, 4))
        c = int(rng.integers(2, most + 1))
        depth = int(rng.integers(1, {2: 6, 3: 4}[c] - (n * points == 9)))
        made.append(session(rng, n=n, points=points, depth=depth, a=a, most=c, different=different))
    return made


@dataclass(frozen=True)
class Tossed:
    """One question with a share p of ones, tossed `tosses` times on n rows; the transcript is the number of ones.

    All that matters of R is how many pairs hold two ones and how many hold one; of zeta, how many of these `ones` are
    rows. So there are sums over binomial laws instead of cubes, and n can be large enough for margins to exist.
    """

    n: int
    p: float
    a: float
    tosses: int
    lam: float

    @cached_property
    def choose(self) -> Array:  # log of binomial coefficients
        factorials = np.cumsum(np.log(np.maximum(1, np.arange(self.n + 1))))
        j, m = np.meshgrid(np.arange(self.n + 1), np.arange(self.n + 1))
        logs = factorials[m] - factorials[np.minimum(j, m)] - factorials[np.maximum(m - j, 0)]
        return np.where(j <= m, logs, -np.inf)

    def fair(self, m: int) -> Array:
        return np.asarray(np.exp(self.choose[m, : m + 1] - m * math.log(2)))

    def moved(self, m: int) -> Array:
        """Return the law of the number of ones among the rows after the channel, given the number before."""
        keep = (1 + 1 / self.lam) / 2
        law = np.zeros((m + 1, m + 1))
        for k in range(m + 1):
            stay, come = np.arange(k + 1), np.arange(m - k + 1)
            left = np.exp(self.choose[k, : k + 1]) * keep**stay * (1 - keep) ** (k - stay)
            right = np.exp(self.choose[m - k, : m - k + 1]) * (1 - keep) ** come * keep ** (m - k - come)
            law[k] = np.convolve(left, right)
        return law

    @cached_property
    def outcomes(self) -> dict[str, Array]:
        """Return, for every number of ones released, its probability and E[. | T] of what the theorem speaks of.

        `rows` is the law of the number of ones in S given T, one column for every T. Freaks are left out.
        """
        x = np.arange(self.tosses + 1)
        ways = np.array([math.comb(self.tosses, int(i)) for i in x], dtype=float)
        total = {name: np.zeros(len(x)) for name in ("law", "information", "delta", "trace")}
        total["rows"] = np.zeros((self.n + 1, len(x)))
        for m in range(self.n + 1):
            fair, moved = self.fair(m), self.moved(m)
            k = np.arange(m + 1)
            for both in range(self.n - m + 1):
                none = self.n - m - both
                ways_of_pairs = self.choose[self.n, m] + self.choose[self.n - m, both] + m * math.log(2)
                ones, zeros = m + 2 * both, m + 2 * none
                weight = math.exp(ways_of_pairs + ones * math.log(self.p) + zeros * math.log(1 - self.p))
                if weight < 1e-25:
                    continue
                bias = self.a + (1 - 2 * self.a) * (both + k) / self.n
                far = self.a + (1 - 2 * self.a) * (both + m / 2 + self.lam * (k - m / 2)) / self.n
                far = far.clip(self.a / 2, 1 - self.a / 2)
                near_log = x * np.log(bias)[:, None] + (self.tosses - x) * np.log(1 - bias)[:, None]
                far_log = x * np.log(far)[:, None] + (self.tosses - x) * np.log(1 - far)[:, None]
                joint = fair[:, None] * np.exp(near_log)
                one = joint.sum(axis=0)
                post = joint / one
                information = (post * (near_log - np.log(one))).sum(axis=0)
                delta = (post * (moved @ far_log - near_log)).sum(axis=0)
                mass = weight * ways * one
                total["law"] += mass
                total["information"] += mass * information
                total["delta"] += mass * delta
                total["rows"][both : both + m + 1] += mass * post
                counts = x / bias[:, None] ** 2 + (self.tosses - x) / (1 - bias[:, None]) ** 2
                total["trace"] += mass * (post * counts).sum(axis=0) * (1 - 2 * self.a) ** 2 * m / 4 / self.n**2
        law = total.pop("law")
        seen = law > 1e-12  # so that what was left out is nothing beside what was not
        told = {name: (values / law)[..., seen] for name, values in total.items()}
        return {"ones": x[seen].astype(float), "law": law[seen], **told}


def farthest(law: Array, direction: Array, j: float) -> Array:
    """Return the population farthest from the posterior `law` in a direction that (K6) allows for every function."""
    tilt = law * (direction - law @ direction)
    falls = tilt < -1e-12
    low, high = 0.0, float((law[falls] / -tilt[falls]).min()) * (1 - 1e-9) if falls.any() else 0.0
    for _ in range(40):
        middle = (low + high) / 2
        d, gap = law + middle * tilt, middle * tilt
        allowed = j * (np.diag(law) + np.diag(d) - np.outer(law, d) - np.outer(d, law)) - np.outer(gap, gap)
        low, high = (middle, high) if np.linalg.eigvalsh(allowed).min() >= -1e-13 else (low, middle)
    return law + low * tilt


@cache
def standing(j: float, *, mass: float | None = None, identical: bool = True) -> Exchange:
    """Return an exchange guarantee that knows J; every outcome has this mass, if it is said."""
    planned = Exchange.plan(Goal(10**5, 100, 0.95, identical=identical), "coins")
    assert planned is not None
    found = Exchange(planned if mass is None else replace(planned, mass=mass))
    found.__dict__["_j"] = j
    return found
