"""The exchange theorem on sessions small enough to write down completely.

Every inequality of docs/proofs/exchange.md is checked for every transcript of random adaptive sessions (tests/
ghost_worlds.py enumerates samples, ghosts, exchanges and transcripts), in the order of the page, and at sizes where
margins exist for one question tossed again and again. Wrong versions of a step are put through the same functions and
must fail. SLACK only absorbs rounding of sums of some thousand doubles.
"""

import math
from functools import cache

import numpy as np
import pytest
from scipy.signal import fftconvolve
from scipy.stats import binom

from examples import QUICK, examples
from ghost_worlds import (
    Array,
    Asked,
    Coin,
    Noisy,
    Tossed,
    World,
    channel,
    cube,
    divergence_from_uniform,
    play,
    rules,
    sessions,
    vote,
)
from holdfast.guarantees.mathematics import exchange

SLACK = 1e-9
MASS = 0.1
LAMBDAS = (1.05, 1.3, 2.0)


@cache
def worlds() -> list[World]:
    return sessions(1, examples(150), a=MASS)


@cache
def two_outcomes() -> list[World]:
    return sessions(2, examples(60), a=0.2, most=2)


@cache
def different() -> list[World]:
    """Rows that are not identical, and questions that depend on the slot."""
    return sessions(3, examples(100), a=MASS, different=True)


def extra(a: float) -> float:
    """Return a'."""
    return a * (1 - a) / (1 - 2 * a) ** 2


# Step 1: ghosts.


def posterior_of_the_rows(world: World) -> Array:
    """Return D_T slot by slot, (n, points, T), from the rows alone: no ghost, no exchange."""
    n, points = world.populations.shape
    rows = np.array(np.meshgrid(*[np.arange(points)] * n, indexing="ij")).reshape(n, -1).T
    slots = np.arange(n)
    given = np.ones((len(rows), len(world.parent)))
    for t in range(1, len(world.parent)):
        question = world.asked[world.parent[t]]
        assert question is not None
        law = question.draw.law(question.draw.rule[slots, rows].mean(axis=1))
        given[:, t] = given[:, world.parent[t]] * law[:, world.outcome[t]]
    joint = world.populations[slots, rows].prod(axis=1)[:, None] * given
    hit = (rows[..., None] == np.arange(points)).astype(float)
    return np.asarray(np.einsum("snx,st->nxt", hit, joint / joint.sum(axis=0)))


def test_ghosts_change_nothing_for_the_rows_and_know_nothing_themselves() -> None:
    for world in worlds() + different():
        assert np.allclose(world.share(), posterior_of_the_rows(world), atol=1e-12)
        points = np.arange(world.populations.shape[1])
        ghosts = np.where(world.exchanges[None] > 0, world.minus[:, None], world.plus[:, None])
        joint = world.weight[:, None, None] * world.given
        hit = (ghosts[..., None] == points).astype(float)
        law = np.einsum("rznx,rzt->nxt", hit, joint / joint.sum(axis=(0, 1)))
        assert np.allclose(law, world.populations[:, :, None], atol=1e-12)


# Steps 2 to 4: the extrapolated law, the channel, Donsker and Varadhan.


def channel_excess(law: Array, lam: float, power: float) -> float:
    """Return the largest KL(Q||uniform) - lam^-power KL(law||uniform)."""
    n = round(math.log2(law.shape[1]))
    moved = np.einsum("zy,rzt->ryt", channel(n, lam), law)
    return float((divergence_from_uniform(moved) - lam**-power * divergence_from_uniform(law)).max())


def test_the_channel_contracts_by_the_square_and_no_more() -> None:
    rng = np.random.default_rng(4)
    laws = [rng.dirichlet(np.full(2**n, c), size=40)[:, :, None] for n in (1, 2, 3, 4) for c in (0.1, 1.0, 30.0)]
    laws += [world.post for world in worlds()]
    for lam in LAMBDAS:
        assert max(channel_excess(law, lam, 2) for law in laws) <= 1e-14
        assert max(channel_excess(law, lam, 2.2) for law in laws) > 1e-4  # wrong
        assert max(channel_excess(law, lam, 6) for law in laws) > 1e-3  # wrong


def test_the_extrapolated_law_is_a_law() -> None:
    for world in worlds():
        for lam in LAMBDAS:
            for rho in (0.5, 0.1):
                total = world.extrapolated(lam, rho)[:, world.ends].sum(axis=1)
                assert np.allclose(total, 1, atol=1e-12)


def phi(world: World, lam: float, *, power: float = 2.0, noise: bool = True, rho: float = 0.5) -> Array:
    """Return (1 - lam^-2) I + Delta for every R and T; other powers, or no noise, are wrong."""
    return np.asarray((1 - lam**-power) * world.information + (world.delta(lam, rho) if noise else 0.0))


def expected_exponential(world: World, values: Array) -> float:
    """Return E exp(E[values | T]) at the end of the session."""
    return float((world.transcript * np.exp(world.given_transcript(values)))[world.ends].sum())


def test_what_is_learned_about_the_exchanges_less_the_noise_has_exponential_at_most_one() -> None:
    for world in worlds():
        for lam in LAMBDAS:
            here, ends = phi(world, lam), world.ends
            ratio = np.log(world.extrapolated(lam) / world.marginal)
            assert np.all(here <= ratio + SLACK)
            assert float((world.weight[:, None] * world.marginal * np.exp(here))[:, ends].sum()) <= 1 + SLACK
            assert expected_exponential(world, here) <= 1 + SLACK
            assert expected_exponential(world, phi(world, lam, rho=0.2)) <= 1 + SLACK


def test_wrong_versions_of_that_step_are_caught() -> None:
    def worst(lam: float, *, power: float = 2.0, noise: bool = True) -> float:
        return max(expected_exponential(world, phi(world, lam, power=power, noise=noise)) for world in worlds())

    assert worst(2.0, noise=False) > 1.1
    assert worst(1.3, noise=False) > 1.05
    assert worst(1.3, power=6) > 1.01
    assert worst(1.3) <= 1 + SLACK


# Step 5: the noise.


def k_of(rho: float) -> float:
    d = 1 - rho
    return -(math.log(rho) + d + d**2 / 2 + d**3 / 3) / d**4


def test_constants_of_the_logarithm() -> None:
    assert 0.42368 < k_of(0.5) <= 0.4237 == 0.8474 / 2
    assert k_of(0.25) == pytest.approx(0.678, abs=5e-4)
    assert k_of(0.1) == pytest.approx(1.1501, abs=5e-5)
    for rho in (0.5, 0.25, 0.1, 0.01):
        x = np.concatenate([np.linspace(rho - 1, 1, 200_001), np.geomspace(1, 1e6, 2001)])
        cubic = x - x**2 / 2 + x**3 / 3
        assert np.all(np.log1p(x) >= cubic - k_of(rho) * x**4 - 1e-14 * (1 + x**4))
        everywhere = np.concatenate([-np.geomspace(1e-3, 1e6, 2001), x])
        g = everywhere - everywhere**2 / 2 + everywhere**3 / 3 - k_of(rho) * everywhere**4
        assert g.max() < 0.5
    x = np.linspace(-0.5, 0, 1001)  # a smaller constant is wrong
    assert np.any(np.log1p(x) < x - x**2 / 2 + x**3 / 3 - 0.4236 * x**4)


def test_moments_of_the_noise() -> None:
    rng = np.random.default_rng(5)
    for lam in LAMBDAS:
        om2 = lam**2 - 1
        for n in (1, 2, 4):
            zeta, law = cube(n), channel(n, lam)
            eta = lam * zeta[None, :, :] - zeta[:, None, :]
            expected = [np.einsum("zy,zyi->zi", law, eta**j) for j in (1, 2, 3, 4)]
            assert np.allclose(expected[0], 0)
            assert np.allclose(expected[1], om2)
            assert np.allclose(expected[2], -2 * om2 * zeta)
            assert np.allclose(expected[3], om2 * (lam**2 + 3))
            b = rng.uniform(-0.5, 0.5, size=n) if rng.random() < 0.5 else np.full(n, 0.5)
            a, bias = 0.1, rng.uniform(0.1, 0.9)
            x = (1 - 2 * a) * (eta @ b) / (n * bias)
            size = (1 - 2 * a) ** 2 * (b @ b) / (n * bias) ** 2
            assert size <= 1 / (4 * n * a * a)
            assert np.allclose((law * x**2).sum(axis=1), om2 * size)
            assert np.all(np.abs((law * x**3).sum(axis=1)) <= om2 * size / (n * a) + SLACK)
            fourth = 3 * om2 / (4 * n * a**2) + (lam**2 + 3) / (4 * n**2 * a**2)
            assert np.all((law * x**4).sum(axis=1) <= om2 * size * fourth + SLACK)


def noise_factor(n: int, a: float, lam: float, rho: float = 0.5) -> float:
    """Return w = om2 (1 + eps2)/2."""
    om2 = lam**2 - 1
    eps2 = 2 / (3 * n * a) + 2 * k_of(rho) * (3 * om2 / (4 * n * a**2) + (lam**2 + 3) / (4 * n**2 * a**2))
    return om2 * (1 + eps2) / 2


def bernstein(n: int, a: float, lam: float, rho: float = 0.5) -> float:
    """Return the bound on the probability that one outcome moves by more than (1-rho) a, either way."""
    d = 1 - rho
    return 2 * math.exp(-2 * d**2 * n * a**2 / (lam**2 - 1 + 2 / 3 * (lam + 1) * d * a))


def test_bernstein_at_one_half() -> None:
    for n, a, lam in ((100, 0.1, 1.2), (10**6, 0.0078, 1.09)):
        plain = 2 * math.exp(-n * a**2 / (2 * (lam**2 - 1) + 2 / 3 * (lam + 1) * a))
        assert bernstein(n, a, lam) == pytest.approx(plain, rel=1e-12)


@pytest.mark.parametrize("rho", [0.5, 0.2])
@pytest.mark.parametrize("lam", LAMBDAS)
def test_cost_of_the_noise_of_every_draw(lam: float, rho: float) -> None:
    """E log(Phat/P) >= -w X - (1/2 + log(1/(rho a))) Prob(Bad), and Bernstein bounds Prob(Bad)."""
    unclipped = 0
    for world in worlds():
        spread = channel(world.n, lam)
        for question in filter(None, world.asked):
            assert isinstance(question.draw, Coin)
            a, c = question.draw.mass, question.draw.charge + 1
            near = question.draw.law(question.means(world.exchanges))
            wild = question.draw.law(question.means(lam * world.exchanges))
            bad = np.abs(wild[:, None, :, :] - near[:, :, None, :]).max(axis=3) > (1 - rho) * a * (1 + 1e-12)
            chance = np.einsum("zy,rzy->rz", spread, bad)
            assert np.all(chance <= (1 if c == 2 else c) * bernstein(world.n, a, lam, rho) + SLACK)
            cost = np.einsum("zy,ryc->rzc", spread, np.log(world.far_law(question, lam, rho))) - np.log(near)
            length = (1 - c * a) ** 2 * (question.b**2).sum(axis=1)[:, None, :] / (world.n * near) ** 2
            allowed = noise_factor(world.n, a, lam, rho) * length
            assert np.all(cost >= -allowed - (0.5 - math.log(rho * a)) * chance[:, :, None] - SLACK)
            unclipped += int((chance == 0).sum())
    assert unclipped > 500  # where the second term says nothing


def real_cost(n: int, a: float, lam: float, rows: int, ghosts: int, base: int) -> tuple[float, float, float]:
    """Return (E log(Phat/P), X, Prob(Bad)) for outcome 1, exact, of a 0/1 question.

    `rows` pairs have their one in the sample, `ghosts` pairs in the ghost sample, `base` pairs hold two ones.
    """
    turned = (1 - 1 / lam) / 2
    away, into = (binom.pmf(np.arange(pairs + 1), pairs, turned) for pairs in (rows, ghosts))
    law = fftconvolve(away, into[::-1])
    less = np.arange(rows + ghosts + 1) - ghosts  # ones turned away less ones turned in
    middle, now = base + (rows + ghosts) / 2, base + rows
    wild = a + (1 - 2 * a) * (middle + lam * (now - less - middle)) / n
    bias = a + (1 - 2 * a) * now / n
    value = float(law @ np.log(wild.clip(a / 2, 1 - a / 2) / bias))
    return value, ((1 - 2 * a) / (n * bias)) ** 2 * (rows + ghosts) / 4, float(law @ (np.abs(wild - bias) > a / 2))


@pytest.mark.parametrize(("n", "a", "lam"), [(10_000, 0.0465, 1.23), (100_000, 0.0165, 1.15), (4_000, 0.02, 1.3)])
def test_cost_of_the_noise_at_real_size(n: int, a: float, lam: float) -> None:
    closest = 0.0
    for rows, ghosts in ((0, n // 10), (n // 10, 0), (n // 100, n // 100), (n // 4, n // 4), (n // 2, n // 10)):
        cost, length, bad = real_cost(n, a, lam, rows, ghosts, n // 50)
        assert bad <= bernstein(n, a, lam) + 1e-12
        assert -cost <= noise_factor(n, a, lam) * length + (0.5 + math.log(2 / a)) * bad + 1e-15
        closest = max(closest, -cost / ((lam**2 - 1) / 2 * length))
    assert closest > 1  # om2 X/2 without eps2 would be wrong


# Steps 6 and 7: the trace, and e_t.


def ends_apart(f: Array, p: Array, more: float) -> Array:
    """Return e: how far p lies beyond f + 2a', on the scale of the rarer side of f."""
    beyond = np.where(f <= 0.5, p - f, f - p) / 2 - more
    return np.asarray(np.maximum(beyond, 0) / (np.minimum(f, 1 - f) + more))


def expected_length(world: World, question: Asked) -> Array:
    """Return Xb for every outcome: (1-ca)^2 F/(4n P^2)."""
    f, both, _ = question.parts
    draw = question.draw
    assert isinstance(draw, Coin)
    return np.asarray((1 - f.shape[2] * draw.mass) ** 2 * both / (4 * world.n * draw.law(f) ** 2))


def compensator(world: World, question: Asked, theta: float) -> Array:
    """Return phi_t = log E[exp(theta Xb_t) | S, past], the same for every outcome."""
    law = question.draw.law(question.parts[0])
    value = np.log((law * np.exp(theta * expected_length(world, question))).sum(axis=2, keepdims=True))
    return np.asarray(np.broadcast_to(value, law.shape))


def test_expected_length_given_the_rows() -> None:
    """E[X_t | S, T] <= Xb_t: the ghosts are averaged out."""
    for world in worlds() + different():
        points = world.populations.shape[1]
        sample = (world.rows * points ** np.arange(world.n)).sum(axis=2)
        weight = np.broadcast_to(world.weight[:, None], sample.shape).ravel()
        for question in filter(None, world.asked):
            assert isinstance(question.draw, Coin)
            law = question.draw.law(question.means(world.exchanges))
            bound = expected_length(world, question)
            for z in range(law.shape[2]):
                size = (1 - law.shape[2] * question.draw.mass) ** 2 * (question.b[:, :, z] ** 2).sum(axis=1)
                length = (size[:, None] / (world.n * law[:, :, z]) ** 2).ravel()
                total = np.bincount(sample.ravel(), weight)
                mean = np.bincount(sample.ravel(), weight * length) / np.where(total > 0, total, 1)
                most = np.zeros(len(mean))
                most[sample.ravel()] = bound[:, :, z].ravel()
                assert np.all(mean <= most + SLACK)


@pytest.mark.parametrize("kap", [0.3, 1.0, 4.0])
def test_the_trace_and_its_compensator(kap: float) -> None:
    for world in worlds() + different():
        theta = kap * world.n * MASS**2
        lengths = world.along(lambda q: expected_length(world, q))  # noqa: B023 - used at once
        paid = world.along(lambda q: compensator(world, q, theta))  # noqa: B023 - used at once
        excess = theta * lengths - paid
        joint = world.weight[:, None, None] * world.given / 2**world.n
        assert (joint * np.exp(excess))[:, :, world.ends].sum() == pytest.approx(1, abs=SLACK)
        assert expected_exponential(world, (world.post * excess).sum(axis=1)) <= 1 + SLACK


def draw_bound(world: World, question: Asked, kap: float) -> Array:
    """Return the bound on phi_t/theta: (1/2n) sum_z (1-P_z)(1 + k1 + C1 (e_z + e'_z)), with the session's own a."""
    more = extra(MASS)
    f, _, apart = question.parts
    e = ends_apart(f, question.p, more) + apart / more
    k1, c1 = 0.36 * kap * more, 1 + 0.36 * kap * (0.5 + 2 * more)
    left = 1 - question.draw.law(f)
    return np.asarray((left * (1 + k1 + c1 * e)).sum(axis=2) / (2 * world.n))


@pytest.mark.parametrize("kap", [0.3, 1.0, 4.0])
def test_compensator_of_every_draw(kap: float) -> None:
    """Also of draws with more mass than the session's least, and with three outcomes."""
    for world in worlds() + different():
        theta = kap * world.n * MASS**2
        for question in filter(None, world.asked):
            assert np.all(theta * expected_length(world, question) <= 1 + SLACK)
            value = compensator(world, question, theta)[:, :, 0]
            assert np.all(value <= theta * draw_bound(world, question, kap) * (1 + SLACK))


def test_trace_on_a_fine_grid_of_shares() -> None:
    """200,000 random (c, a, f, p) that no small population has: the bound on phi_t, and the two facts it uses."""
    rng = np.random.default_rng(6)
    x = np.linspace(0, 1, 10_001)
    assert np.all(np.expm1(x) <= x + 0.72 * x * x)
    assert np.any(np.expm1(x) > x + 0.718 * x * x)
    closest = 0.0
    for c in (2, 3, 5):
        count = examples(70_000)
        session_mass = rng.uniform(0.001, (3 - math.sqrt(3)) / 6, size=(count, 1))
        mass = session_mass + (1 / c - session_mass) * rng.random((count, 1)) ** 3 * (session_mass < 1 / c) * 0.99
        keep = (mass * c < 1)[:, 0]
        session_mass, mass, count = session_mass[keep], mass[keep], int(keep.sum())
        f, p = (rng.dirichlet(np.full(c, shape), size=count) for shape in (0.3, 0.5))
        if c == 2:
            f = np.stack([x := rng.random(count) ** 4, 1 - x], axis=1)
        kap = rng.uniform(0.01, 4, size=(count, 1))
        more = session_mass * (1 - session_mass) / (1 - 2 * session_mass) ** 2
        assert np.all(more <= 0.5 + 1e-12)
        n = 50.0
        law = mass + (1 - c * mass) * f
        theta = kap * n * session_mass**2
        lengths = (1 - c * mass) ** 2 * (f + p - 2 * f * p) / (4 * n * law**2)
        e = np.maximum(np.where(f <= 0.5, p - f, f - p) / 2 - more, 0) / (np.minimum(f, 1 - f) + more)
        assert np.all(theta * lengths <= kap * more * (1 + e) / 2 * (1 + SLACK))
        assert np.all(theta * lengths <= 1 + SLACK)
        value = np.log((law * np.exp(theta * lengths)).sum(axis=1))
        bound = ((1 - law) * (1 + 0.36 * kap * more + (1 + 0.36 * kap * (0.5 + 2 * more)) * e)).sum(axis=1)
        ratio = value / (theta[:, 0] * bound / (2 * n))
        assert np.all(ratio <= 1 + SLACK)
        closest = max(closest, float(ratio.max()))
        least = mass * (1 - (c - 1) * mass) / (1 - c * mass) ** 2
        assert np.all(least >= more * (1 - SLACK))  # b_c(a_t) >= a'
        assert np.all(law * (1 - law) >= (1 - c * mass) ** 2 * (f * (1 - f) + least) * (1 - SLACK))
    assert closest > 0.95


def test_e_is_at_most_a_squared_difference_of_roots() -> None:
    f = np.linspace(0, 1, 401)[:, None]
    g = np.linspace(0, 1, 401)[None, :]
    for more in (0.001, 0.01, 0.1, 0.5):
        e = np.maximum((g - f) / 2 - more, 0) / (f + more)
        roots = (np.sqrt(f) - np.sqrt(g)) ** 2
        assert np.all(e <= roots / (2 * more) + 1e-12)
        if more < 0.1:  # 1/(2.2a') would be wrong; for a' = 1/2 there is no such p
            assert np.any(e > roots / (2.2 * more))
        with np.errstate(invalid="ignore"):
            assert np.all(roots <= np.where(f + g > 0, (f - g) ** 2 / (f + g), 0) + 1e-12)


@pytest.mark.parametrize("s", [0.3, 0.7, 0.95])
def test_e_is_small_given_the_transcript(s: float) -> None:
    """For every transcript and every earlier question: E[e|T] and E[e'|T] are bounded by E[I|T]."""
    more, apart_seen = extra(MASS), False
    for world in worlds() + different():
        information = world.given_transcript(world.information)
        bound = (information - math.log1p(-s) / 2) / (s * more * world.n)
        law = world.weight[:, None, None] * world.given
        law = law / law.sum(axis=(0, 1))
        for t, question in enumerate(world.asked):
            if question is None:
                continue
            f, _, apart = question.parts
            e = np.einsum("rzt,rzc->ct", law, ends_apart(f, question.p, more))
            e2 = np.einsum("rzt,rzc->ct", law, apart / more)
            below = [u for u in range(t, len(world.parent)) if descends(world, u, t)]
            assert np.all(e[:, below] <= bound[below] + SLACK)
            assert np.all(e2[:, below] <= bound[below] / 2 + SLACK)
            apart_seen |= bool(e2.max() > 1e-3)
    assert apart_seen


def descends(world: World, t: int, above: int) -> bool:
    while t > above:
        t = world.parent[t]
    return t == above


# The sum of all steps: Ibar.


@pytest.mark.parametrize(("om2", "kap", "s"), [(0.05, 1.0, 0.9), (0.2, 4.0, 0.7), (0.01, 0.3, 0.9)])
def test_ibar_for_every_transcript(om2: float, kap: float, s: float) -> None:
    """With E[Phi|T] for L and E[sum theta Xb - phi | T] for L2 the bound holds surely, for each T."""
    lam, a, finite = math.sqrt(1 + om2), 0.2, 0
    for world in two_outcomes():
        theta = kap * world.n * a**2
        here = world.given_transcript(phi(world, lam))
        lengths = world.along(lambda q: theta * expected_length(world, q) - compensator(world, q, theta))  # noqa: B023
        excess = world.given_transcript(lengths)
        information = world.given_transcript(world.information)
        depth = np.array(world.depth)
        for outcomes in (2, 3):
            bound = exchange.ibar(world.n, depth, a, om2, kap, s, here, excess, outcomes=outcomes)
            assert np.all(information <= bound + SLACK)
            finite += int(np.isfinite(bound).sum())
    assert finite >= 20


@cache
def tossed(n: int, p: float, a: float, tosses: int, om2: float) -> Tossed:
    return Tossed(n, p, a, tosses, math.sqrt(1 + om2))


TOSSED = [(100, 0.05, 0.2, 60, 0.2), (100, 0.5, 0.2, 100, 0.3)]
TOSSED += [] if QUICK else [(120, 0.02, 0.2, 120, 0.15), (120, 0.3, 0.15, 60, 0.2)]


@pytest.mark.parametrize("case", TOSSED)
def test_ibar_where_it_promises_something(case: tuple[int, float, float, int, float]) -> None:
    """The same for each T, then the tails: E[I|T] > Ibar, and any p beyond hi, happen with chance <= e^-L + e^-L2."""
    n, p, a, tosses, om2 = case
    world = tossed(*case)
    told, kap, s = world.outcomes, 2.0, 0.9
    law, information = told["law"], told["information"]
    assert law.sum() == pytest.approx(1, abs=1e-9)
    here = (1 - world.lam**-2) * information + told["delta"]
    assert law @ np.exp(here) <= 1 + SLACK
    f = np.arange(n + 1) / n
    bias, theta = a + (1 - 2 * a) * f, kap * n * a**2
    one, zero = ((1 - 2 * a) ** 2 * (f + p - 2 * f * p) / (4 * n * side**2) for side in (bias, 1 - bias))
    paid = np.log(bias * np.exp(theta * one) + (1 - bias) * np.exp(theta * zero))
    x = told["ones"]
    lengths = told["rows"].T @ one * x + told["rows"].T @ zero * (tosses - x)
    assert np.all(told["trace"] <= lengths + SLACK)
    excess = theta * lengths - tosses * (told["rows"].T @ paid)
    assert law @ np.exp(excess) <= 1 + SLACK
    assert np.all(information <= exchange.ibar(n, tosses, a, om2, kap, s, here, excess, outcomes=2))
    mean = f @ told["rows"]
    for first in (0.3, 0.7, 1.5, 3.0):
        bound = float(exchange.ibar(n, tosses, a, om2, kap, s, first, first + 1, outcomes=2))
        j = 2 * bound / n
        beta = math.exp(-first) + math.exp(-first - 1)
        assert law[information > bound].sum() <= beta
        missed = np.array([p > exchange.hi(m, j) or p < exchange.lo(m, j) for m in mean])
        assert law[missed].sum() <= beta
        assert np.array([p > exchange.hi(m, 0.0) or p < exchange.lo(m, 0.0) for m in mean]) @ law > 0.9  # Ibar = 0


def beyond(n: int, p: float, a: float, tosses: int, bound: float) -> float:
    """Return the chance that p is beyond the interval around the posterior mean of one question's tosses."""
    ones = np.arange(*near(n, p))
    weight = binom.pmf(ones, n, p)
    bias = a + (1 - 2 * a) * ones / n
    released = np.arange(near(tosses, float(bias[0]))[0], near(tosses, float(bias[-1]))[1])
    joint = weight[:, None] * binom.pmf(released, tosses, bias[:, None])
    law = joint.sum(axis=0)
    mean = (ones / n) @ joint / np.maximum(law, 1e-300)
    j = 2 * bound / n
    return float(law @ ((mean - p) ** 2 > j * (mean + p - 2 * mean * p)))


def near(count: int, p: float) -> tuple[int, int]:
    reach = math.ceil(9 * math.sqrt(count * p * (1 - p)) + 9)
    return max(0, math.floor(count * p) - reach), min(count, math.ceil(count * p) + reach) + 1


@pytest.mark.parametrize("beta", [0.01, 1e-4])
def test_one_question_at_real_size_would_catch_a_bound_twelve_times_smaller(beta: float) -> None:
    """The plainest of all attacks; those that vote are simulated elsewhere, and come much nearer."""
    n, tosses, a, p = 4_000, 8_000, 0.15, 0.5
    free = exchange.constants(n, tosses, a, beta, stretch=np.geomspace(0.05, 1, 9))
    bound = float(exchange.ibar(n, tosses, a, free.om2, free.kap, free.s, free.L, free.L2, outcomes=2).min())
    assert beyond(n, p, a, tosses, bound) <= beta
    assert beyond(n, p, a, tosses, bound / 12) > beta


# The end: no question can tell the rows from the ghosts.


def questions(rng: np.random.Generator, points: int) -> Array:
    """Return all 0/1 questions about the points, and some others."""
    sure = np.array(np.meshgrid(*[[0.0, 1.0]] * points)).reshape(points, -1).T
    return np.concatenate([sure, rng.random((4, points))])


def posterior(world: World) -> tuple[Array, Array]:
    """Return (D_T, J) for every transcript, J with E[I|T] itself in place of Ibar."""
    information = np.maximum(0, world.given_transcript(world.information))  # of nothing: 0 up to rounding
    return world.share().mean(axis=0), 2 * information / world.n


def test_the_quadratic_for_every_transcript_and_question() -> None:
    rng, closest = np.random.default_rng(7), 0.0
    for world in worlds():
        d_t, j = posterior(world)
        for q in questions(rng, len(d_t)):
            mu, p = q @ d_t, float(q @ world.populations[0])
            bound = j * (mu + p - 2 * mu * p)
            assert np.all((mu - p) ** 2 <= bound + 1e-12)
            assert np.all(np.abs(mu - p) <= exchange.worst_case(j) + 1e-12)
            seen = (mu - p) ** 2 > 1e-6
            closest = max(closest, float(((mu - p) ** 2 / np.where(seen, bound, np.inf)).max()))
            for m, known in zip(mu, j, strict=True):
                assert exchange.lo(m, known) - 1e-9 <= p <= exchange.hi(m, known) + 1e-9
    assert 0.9 < closest <= 1 + SLACK  # J itself cannot be a tenth smaller


def test_any_bounded_function() -> None:
    """(D_T phi - D phi)^2 <= J (D_T phi^2 + D phi^2 - 2 D_T phi D phi): what descent and groups stand on."""
    rng = np.random.default_rng(8)
    for world in worlds():
        d_t, j = posterior(world)
        for function in rng.normal(size=(6, len(d_t))):
            mean, true = function @ d_t, float(function @ world.populations[0])
            bound = j * (function**2 @ d_t + float(function**2 @ world.populations[0]) - 2 * mean * true)
            assert np.all((mean - true) ** 2 <= bound + 1e-12)
            assert np.all(np.abs(mean - true) <= np.ptp(function) * exchange.worst_case(j) + 1e-12)


def group_misses(*, wrong: bool) -> int:
    """Return how many groups' true means lie outside; wrong: an equivalent chi in the posterior guarantee's formula."""
    rng, missed, used = np.random.default_rng(9), 0, 0
    for world in worlds():
        d_t, js = posterior(world)
        d = world.populations[0]
        for inside in (np.arange(len(d)) < 2, np.arange(len(d)) > 0):
            q = rng.random(len(d)).round(int(rng.integers(0, 2)))
            if d[inside].sum() < 1e-9:
                continue
            true = float(q[inside] @ d[inside] / d[inside].sum())
            for g, top, j in zip(d_t[inside].sum(axis=0), q[inside] @ d_t[inside], js, strict=True):
                mu = min(1.0, top / g)
                chi = 4 * j / (2 - j)
                if (wrong and g <= chi * (1 + SLACK)) or j < 1e-9 or g <= j:
                    continue
                used += 1
                if wrong:
                    missed += (true - mu) ** 2 > chi / (g - chi) * mu * (1 - mu) + 1e-6
                else:
                    low, high = exchange.group_lower(mu, g, j), exchange.group_upper(mu, g, j)
                    missed += not low - 1e-9 <= true <= high + 1e-9
    assert used > 300
    return missed


def test_groups_for_every_transcript() -> None:
    assert group_misses(wrong=False) == 0
    assert group_misses(wrong=True) > 0


def test_an_equivalent_chi_is_wrong() -> None:
    """Two rows, one in twenty a one, ten tosses, all zero: chi = 4J/(2-J) puts the upper end at .0036."""
    a, tosses, d = 0.05, 10, np.array([0.95, 0.05])
    rule = np.broadcast_to(np.eye(2), (2, 2, 2))

    def choose(rng: np.random.Generator, world: World, depth: int, here: Array) -> Coin | None:
        last = world.outcome[-1] if depth else 0
        return Coin(rule, a) if depth < tosses and last == 0 else None  # nothing else matters after a one

    world = play(np.random.default_rng(0), np.broadcast_to(d, (2, 2)), choose)
    (end,) = [t for t in world.ends if world.depth[t] == tosses and world.outcome[t] == 0]
    d_t, js = posterior(world)
    mu, j = float(d_t[1, end]), float(js[end])
    chi = 4 * j / (2 - j)
    assert mu + math.sqrt(chi * mu * (1 - mu)) == pytest.approx(0.0036, abs=5e-5)
    assert exchange.hi(mu, j) >= 0.05
    assert exchange.hi(0.0, j) == pytest.approx(j)


# Functions of the interval that the code relies on.


@pytest.mark.parametrize("j", [1e-6, 1e-3, 0.05, 0.4, 0.99])
def test_interval_ends_are_roots_and_grow(j: float) -> None:
    x = np.linspace(0, 1, 2001)
    high = np.array([exchange.hi(value, j) for value in x])
    low = np.array([exchange.lo(value, j) for value in x])
    for p, inner in ((high, x < 1 - j), (low, x > j)):
        gap = (x - p) ** 2 - j * (x + p - 2 * x * p)
        assert np.all(np.abs(gap[inner]) <= 1e-11)
    assert np.all(high[x >= 1 - j] == 1)
    assert np.all(low[x <= j] == 0)
    assert np.all(np.diff(high) >= -1e-12)
    assert np.allclose(low, 1 - high[::-1], atol=1e-10)
    assert np.all(np.maximum(high - x, x - low) <= float(exchange.worst_case(j)) + 1e-12)
    middle = x[(x > 1e-3) & (x < 1 - j - 1e-3)]
    assert float(exchange.worst_case(j)) - max((exchange.hi(m, j) - m for m in middle), default=0) < 0.6 * j
    if j < 0.9:
        slope = (1 - exchange.hi(1 - 1.001 * j, j)) / (0.001 * j)
        assert slope == pytest.approx(1 / (3 - 2 * j), rel=0.01)


def test_group_ends_are_roots_and_monotone() -> None:
    for j in (1e-5, 1e-3, 0.03):
        for g in (1.0, 0.5, 0.1, 0.04):
            k, r = j / g, exchange.hi(g, j) / g
            x = np.linspace(0, 1, 501)
            high = np.array([exchange.group_upper(mu, g, j) for mu in x])
            inner = x < 1 - k
            t = high[inner]
            gap = (1 - k + k * r) * t**2 - (2 * (1 - k) * x[inner] + k * r) * t + x[inner] ** 2 - k * x[inner]
            assert np.all(np.abs(gap) <= 1e-10)
            assert np.all(high[~inner] == 1)
            assert np.all(np.diff(high) >= -1e-12)
            low = np.array([exchange.group_lower(mu, g, j) for mu in x])
            assert np.allclose(low, 1 - high[::-1], atol=1e-9)
            narrower = np.array([exchange.group_upper(mu, min(1.0, g * 1.3), j) for mu in x])
            assert np.all(narrower <= high + 1e-11)
            if g == 1:
                assert np.allclose(high, [exchange.hi(mu, j) for mu in x], atol=1e-11)
        assert exchange.group_upper(0.2, j, j) == 1
        assert exchange.group_lower(0.8, j / 2, j) == 0


def test_shares_grow_more_slowly_than_groups() -> None:
    """hi(g)/g falls in g: a smaller share can stand for the true one."""
    for j in (1e-4, 0.01, 0.5):
        g = np.linspace(0.01, 1, 991)
        ratio = np.array([exchange.hi(x, j) for x in g]) / g
        assert np.all(np.diff(ratio) <= 1e-12)


def plain_ibar(
    n: float, charge: float, a: float, om2: float, kap: float, s: float, first: float, second: float,
    *, c: int, rho: float = 0.5, gaussian: float = 0.0,
) -> float:  # fmt: skip
    """Return Ibar as the page writes it; `gaussian` is V_G, for a session that also has Gaussian answers."""
    lam, more, theta, d = math.sqrt(1 + om2), extra(a), kap * n * a**2, 1 - rho
    eps2 = (2 / 3) / (n * a) + 2 * k_of(rho) * (3 * om2 / (4 * n * a**2) + (lam**2 + 3) / (4 * n**2 * a**2))
    rare = math.exp(-2 * d**2 * n * a**2 / (om2 + 2 / 3 * (lam + 1) * d * a))
    eps3 = c * charge * (math.log(1 / (rho * a)) + 0.5) * rare
    k1, c1 = 0.36 * kap * more, (1 + 0.36 * kap * (0.5 + 2 * more)) * (1.5 if c == 3 else 1)
    w = om2 * (1 + eps2) / 2
    rest = 1 - lam**-2 - w * (charge / (2 * n)) * c1 / (s * more * n) - om2 * gaussian / (2 * s * n)
    trace = (charge / (2 * n)) * (1 + k1 + c1 * math.log(1 / (1 - s)) / (2 * s * more * n)) + second / theta
    scans = om2 * gaussian / 4 * (1 + math.log(1 / (1 - s)) / (s * n))
    return (first + eps3 + w * trace + scans) / rest if rest > 0 else math.inf


def test_ibar_is_the_formula_of_the_page() -> None:
    rng = np.random.default_rng(10)
    for _ in range(300):
        n, a, om2 = 10 ** rng.uniform(2, 8), 10 ** rng.uniform(-2.5, -0.7), 10 ** rng.uniform(-2, 0.5)
        charge, kap, s = n * 10 ** rng.uniform(-1, 3), rng.uniform(0.1, 4), rng.uniform(0.1, 0.999)
        first, second = rng.uniform(0.1, 12, 2)
        rho = float(rng.choice([0.5, 0.3, 0.1]))
        for c in (2, 3):
            value = float(exchange.ibar(n, charge, a, om2, kap, s, first, second, outcomes=c, rho=rho))
            assert value == pytest.approx(plain_ibar(n, charge, a, om2, kap, s, first, second, c=c, rho=rho), rel=1e-9)
            assert value <= float(exchange.ibar(n, charge * 1.1, a, om2, kap, s, first, second, outcomes=c, rho=rho))
            assert value <= float(exchange.ibar(n, charge, a, om2, kap, s, first + 0.1, second, outcomes=c, rho=rho))
            assert value <= float(exchange.ibar(n, charge, a, om2, kap, s, first, second + 0.1, outcomes=c, rho=rho))
            assert value >= (1 + om2) * (charge / n / 4 + first / om2)  # to leading order


@pytest.mark.parametrize("wrong", [{"a": 0.22}, {"kap": 4.1}, {"s": 1.0}, {"rho": 0.6}, {"om2": 0.0}])
def test_constants_outside_the_proof_promise_nothing(wrong: dict[str, float]) -> None:
    good = {"a": 0.05, "om2": 0.2, "kap": 1.0, "s": 0.9, "rho": 0.5}
    for values, finite in ((good, True), (good | wrong, False)):
        a, om2, kap, s, rho = values.values()
        assert np.isfinite(exchange.ibar(10**6, 10**8, a, om2, kap, s, 4.0, 8.0, rho=rho)) == finite


# All times at once.


@pytest.mark.parametrize("lam", LAMBDAS)
def test_all_times_at_once(lam: float) -> None:
    """E[Phi|T_t] <= log of a martingale in t, and both events of the theorem hold at all t at once."""
    kap = 1.0
    for world in worlds():
        ratio = (world.weight @ world.extrapolated(lam)) / world.transcript
        here = world.given_transcript(phi(world, lam))
        assert np.all(here <= np.log(ratio) + SLACK)
        theta = kap * world.n * MASS**2
        lengths = world.along(lambda q: theta * expected_length(world, q) - compensator(world, q, theta))  # noqa: B023
        joint = world.weight[:, None, None] * world.given / 2**world.n
        second = (joint * np.exp(lengths)).sum(axis=(0, 1)) / world.transcript
        for martingale, value in ((ratio, here), (second, world.given_transcript(lengths))):
            after = np.zeros(len(world.parent))
            np.add.at(after, world.parent[1:], (world.transcript * martingale)[1:])
            inner = [t for t, question in enumerate(world.asked) if question is not None]
            assert np.allclose((after / world.transcript)[inner], martingale[inner], atol=1e-9)
            largest = value.copy()
            for t in range(1, len(largest)):
                largest[t] = max(largest[t], largest[world.parent[t]])
            for level in np.unique(largest[world.ends]):
                reached = [t for t in world.ends if largest[t] >= level]
                assert world.transcript[reached].sum() <= math.exp(-level) + SLACK


# Rows that are not identical.


def unlike_excess(*, without: float) -> float:
    """Return the largest (mu-p)^2 - J (mu + p - 2 mu p + J/2), less `without` times the last term."""
    rng, worst = np.random.default_rng(11), -math.inf
    for world in different():
        slots = world.share()
        information = np.maximum(0, world.given_transcript(world.information))
        j = 2 * information / world.n
        for _ in range(8):
            q = rules(rng, world.n, slots.shape[1], 2, by_slot=True)[..., 1]
            mu_i, p_i = np.einsum("nx,nxt->nt", q, slots), (q * world.populations).sum(axis=1)
            assert np.all(((mu_i - p_i[:, None]) ** 2).mean(axis=0) <= j + 1e-12)
            mu, p = mu_i.mean(axis=0), float(p_i.mean())
            exact = j * (mu_i + p_i[:, None] - 2 * mu_i * p_i[:, None]).mean(axis=0)
            assert np.all((mu - p) ** 2 <= exact + 1e-12)
            assert np.all((mu - p) ** 2 <= j * (1 + j) / 2 + 1e-12)
            bound = j * (mu + p - 2 * mu * p + j / 2 * (1 - without))
            assert np.all(exact <= j * (mu + p - 2 * mu * p + j / 2) + 1e-12)
            worst = max(worst, float((exact - bound).max()))
    return worst


def test_rows_that_are_not_identical() -> None:
    assert unlike_excess(without=0) <= 1e-12
    assert unlike_excess(without=1) > 1e-4  # mean(w+p-2wp) <= mu+p-2mu p needs the J/2


@pytest.mark.parametrize("j", [1e-4, 0.02, 0.5, 0.99])
def test_interval_for_rows_that_are_not_identical(j: float) -> None:
    x = np.linspace(0, 1, 2001)
    root = x * (1 - j) + j / 2 + np.sqrt(3 * j**2 + 4 * j * (2 - j) * x * (1 - x)) / 2
    assert np.allclose((x - root) ** 2, j * (x + root - 2 * x * root + j / 2), atol=1e-12)
    inner = x < 1 - j * (1 + math.sqrt(3)) / 2
    assert np.all(root[inner] < 1 + 1e-12)
    assert np.all(root[~inner] >= 1 - 1e-12)
    assert np.all(np.diff(root[inner]) >= 0)
    if j > exchange.MOST_ALIKE:
        end = np.minimum(np.where(inner, root, 1.0), x + np.sqrt(j * (1 + j) / 2))
        assert np.allclose([exchange.hi(value, j, identical=False) for value in x], end)
    high = np.array([exchange.hi(value, j, identical=False) for value in x])
    assert np.all(np.diff(high) >= 0)
    assert np.all(high >= [exchange.hi(value, j) for value in x])
    assert np.all(high <= np.where(inner, root, 1.0) + 2e-12)
    assert np.all(high - x <= float(exchange.worst_case(j, identical=False)) + 2e-12)
    assert np.allclose([exchange.lo(value, j, identical=False) for value in x], 1 - high[::-1], atol=1e-11)


@pytest.mark.parametrize("j", [1e-4, 0.02, 0.1])
@pytest.mark.parametrize("g", [0.35, 0.9])
def test_groups_of_rows_that_are_not_identical_solve_the_equation_of_the_page(j: float, g: float) -> None:
    k, solved = j / g, 0
    r = min(1.0, exchange.hi(g, j, identical=False) / (1 - j * j)) / g
    for mu in np.linspace(0, 1, 201):
        for t in (exchange.group_upper(mu, g, j, identical=False), exchange.group_lower(mu, g, j, identical=False)):
            if 0 < t < 1:
                solved += 1
                right = k * (mu * (1 - mu) + r * t * (1 - t) + k / 2)
                assert (1 - k) * (mu - t) ** 2 == pytest.approx(right, rel=1e-9)
    assert solved > 10


def moved(mu: Array, p: Array) -> Array:
    """Return G = (mu-p)^2/(mu + p - 2 mu p), twice what a slot pays at least for moving from p to mu."""
    apart = mu + p - 2 * mu * p
    return np.where(apart > 0, (mu - p) ** 2 / np.where(apart > 0, apart, 1.0), 0.0)


def test_every_slot_pays_for_its_own_move() -> None:
    rng, closest, half = np.random.default_rng(14), 0.0, False
    for world in different():
        slots = world.share()
        j = 2 * np.maximum(0, world.given_transcript(world.information)) / world.n
        for _ in range(8):
            q = rules(rng, world.n, slots.shape[1], 2, by_slot=True)[..., 1]
            mu_i, p_i = np.einsum("nx,nxt->nt", q, slots), (q * world.populations).sum(axis=1)
            paid = moved(mu_i, p_i[:, None]).mean(axis=0)
            assert np.all(paid <= j + 1e-9)
            half |= bool(np.any(paid > 0.5 * j + 1e-9))  # E[I|T]/n, half of J, would be too little
            some = j > 1e-6
            closest = max(closest, float((paid[some] / j[some]).max(initial=0.0)))
    assert closest > 0.9
    assert half


def test_what_slots_can_move_together_for_what_they_pay() -> None:
    """Random slots, many of them near the corners: no mean of theirs leaves the interval for what they pay."""
    rng, closest = np.random.default_rng(15), 0.0
    for _ in range(examples(8_000)):
        count = int(rng.integers(1, 4))
        weights = rng.dirichlet(np.full(count, rng.choice([0.05, 0.3, 1.0])))
        mu_i, p_i = rng.random((2, count)) ** rng.choice([1, 4, 16], (2, count))
        if rng.random() < 0.5:
            p_i[0], mu_i[0] = 1 - p_i[0], 0.0
        if rng.random() < 0.5:
            mu_i, p_i = 1 - mu_i, 1 - p_i
        j, mu, p = float(weights @ moved(mu_i, p_i)), float(weights @ mu_i), float(weights @ p_i)
        if 1e-9 < j < 1:
            low, high = exchange.lo(mu, j, identical=False), exchange.hi(mu, j, identical=False)
            assert low - 1e-9 <= p <= high + 1e-9
            if j <= exchange.MOST_ALIKE:
                closest = max(closest, abs(p - mu) / (max(high - mu, mu - low)))
    assert closest > 0.99


def test_the_corners_of_that_interval_are_needed_and_so_is_a_small_step() -> None:
    """Slots at (0, 1) and near 0, for J of 1/8; and half of all slots lost at (0, 1), for a large J."""
    for weight, one in ((0.0646639619, (0.00256045358, 0.07151577)), (0.45, (0.2929, 0.7071))):
        mu_i, p_i, weights = np.array([0.0, one[0]]), np.array([1.0, one[1]]), np.array([weight, 1 - weight])
        j, mu, p = float(weights @ moved(mu_i, p_i)), float(weights @ mu_i), float(weights @ p_i)
        assert p > exchange.hi(mu, j) + 1e-5
        assert p <= exchange.hi(mu, j, identical=False)


@pytest.mark.parametrize("lam", LAMBDAS)
def test_unlike_rows_are_exchanged_all_the_same(lam: float) -> None:
    for world in different():
        assert expected_exponential(world, phi(world, lam)) <= 1 + SLACK
    assert max(expected_exponential(world, phi(world, lam, noise=False)) for world in different()) > 1.005


# Gaussian answers, alone and together with coins.


def noisy_worlds(count: int) -> list[World]:
    """Two adaptive answers on at most three rows; the second may be a coin."""
    rng = np.random.default_rng(12)
    made = []
    for _ in range(count):
        n, sigma = int(rng.integers(1, 4)), float(rng.uniform(0.25, 0.8))
        grid = np.arange(-math.ceil(7 * sigma * n) - n, math.ceil(7 * sigma * n) + 2 * n + 1) / n
        population = np.broadcast_to(rng.dirichlet(np.ones(2)), (n, 2))
        share = rng.random() < 0.5

        def choose(
            rng: np.random.Generator, world: World, depth: int, here: Array,
            n: int = n, sigma: float = sigma, grid: Array = grid, share: bool = share,
        ) -> Coin | Noisy | None:  # fmt: skip
            if depth == 2:
                return None
            rule = np.broadcast_to(np.eye(2)[rng.permutation(2)], (n, 2, 2))
            if depth and share:
                return Coin(rule, 0.2)
            return Noisy(rule[..., :1], sigma, grid)

        made.append(play(rng, population, choose))
    return made


def test_gaussian_answers_and_coins_share_a_session() -> None:
    rng, forgotten = np.random.default_rng(13), 0.0
    for world in noisy_worlds(examples(40)):
        for lam in LAMBDAS:
            om2 = lam**2 - 1
            here = phi(world, lam)
            assert expected_exponential(world, here) <= 1 + 1e-8
            forgotten = max(forgotten, expected_exponential(world, phi(world, lam, noise=False)))
            question = world.asked[0]
            assert question is not None
            assert isinstance(question.draw, Noisy)
            far, near = world.far_law(question, lam), question.draw.law(question.means(world.exchanges))
            cost = np.einsum("zy,ryc->rzc", channel(world.n, lam), np.log(np.maximum(far, 1e-300))) - np.log(near)
            trace = (question.b**2).sum(axis=(1, 2)) / (world.n * question.draw.sigma) ** 2
            assert np.all(cost >= -om2 / 2 * trace[:, None, None] - 1e-9)
        d_t, j = posterior(world)
        for q in questions(rng, 2):
            mu, p = q @ d_t, float(q @ world.populations[0])
            assert np.all((mu - p) ** 2 <= j * (mu + p - 2 * mu * p) + 1e-9)
    assert forgotten > 1.05


@pytest.mark.parametrize("om2", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("s", [0.5, 0.9])
def test_ibar_of_gaussian_answers(om2: float, s: float) -> None:
    """With E[Phi|T] for L it holds surely; and f + p - 2fp <= (1 + (f-p)^2)/2."""
    f, p = np.meshgrid(np.linspace(0, 1, 101), np.linspace(0, 1, 101))
    assert np.all(f + p - 2 * f * p <= (1 + (f - p) ** 2) / 2 + 1e-12)
    lam, finite = math.sqrt(1 + om2), 0
    for world in noisy_worlds(examples(40)):
        if not all(isinstance(question.draw, Noisy) for question in filter(None, world.asked)):
            continue
        question = world.asked[0]
        assert question is not None
        assert isinstance(question.draw, Noisy)
        spent = np.array(world.depth) / (4 * question.draw.sigma**2)
        here = world.given_transcript(phi(world, lam))
        bound = exchange.gaussian_ibar(world.n, spent, om2, s, here)
        assert np.all(world.given_transcript(world.information) <= bound + 1e-8)
        finite += int((np.isfinite(bound) & (spent > 0)).sum())
    assert finite > 10


@pytest.mark.parametrize(("om2", "kap", "s"), [(0.05, 1.0, 0.9), (0.02, 2.0, 0.95)])
def test_ibar_of_a_shared_session(om2: float, kap: float, s: float) -> None:
    """One Gaussian answer, then one coin: the prices add."""
    lam, a, finite = math.sqrt(1 + om2), 0.2, 0
    for world in noisy_worlds(examples(40)):
        kinds = {t: question.draw for t, question in enumerate(world.asked) if question is not None}
        scan = kinds[0]
        assert isinstance(scan, Noisy)
        if not any(isinstance(draw, Coin) for draw in kinds.values()):
            continue
        theta = kap * world.n * a**2

        def excess(question: Asked, world: World = world, theta: float = theta) -> Array:
            if isinstance(question.draw, Noisy):
                return np.zeros((len(world.weight), 2**world.n, len(question.draw.grid)))
            return np.asarray(theta * expected_length(world, question) - compensator(world, question, theta))

        first = world.given_transcript(phi(world, lam))
        second = world.given_transcript(world.along(excess))
        information = world.given_transcript(world.information)
        spent = 1 / (4 * scan.sigma**2) / world.n
        for t in world.ends:
            bound = plain_ibar(world.n, 1, a, om2, kap, s, first[t], second[t], c=2, gaussian=spent)
            assert information[t] <= bound + 1e-8
            finite += math.isfinite(bound)
    assert finite > 10


def test_a_gaussian_answer_is_charged_like_coins_as_noisy_as_itself() -> None:
    """Ibar of B coins covers every mix of coins and Gaussian answers with that charge, whatever the constants."""
    rng = np.random.default_rng(14)
    tried = 0
    for _ in range(2_000):
        n, a, om2 = 10 ** rng.uniform(0.5, 8), 10 ** rng.uniform(-2.5, math.log10(0.2)), 10 ** rng.uniform(-2, 1)
        charge, kap, s = n * 10 ** rng.uniform(-2, 3), rng.uniform(0.01, 4), rng.uniform(0.05, 0.999)
        first, second, rho = *rng.uniform(0.01, 12, 2), float(rng.choice([0.5, 0.3, 0.1]))
        for c in (2, 3):
            coins = float(exchange.ibar(n, charge, a, om2, kap, s, first, second, outcomes=c, rho=rho))
            tried += math.isfinite(coins)
            for part in (0.0, 0.3, 1.0):
                scans = (1 - part) * charge / n
                mixed = plain_ibar(n, part * charge, a, om2, kap, s, first, second, c=c, rho=rho, gaussian=scans)
                assert mixed <= coins * (1 + 1e-9)  # two ways to write the same sum
                alone = exchange.gaussian_ibar(n, (1 - part) * charge, om2, s, first)
                assert float(alone) <= coins * (1 + 1e-9)
    assert tried > 500


@pytest.mark.parametrize("coin_first", [True, False])
@pytest.mark.parametrize(("om2", "kap", "s"), [(0.05, 1.0, 0.9), (0.02, 2.0, 0.95)])
def test_mixed_sessions_are_covered_by_one_charge(om2: float, kap: float, s: float, coin_first: bool) -> None:
    """A coin and a scan in either order, the second a vote on the first: what code charges covers what was learned."""
    rng, lam, a, finite = np.random.default_rng(15), math.sqrt(1 + om2), 0.2, 0
    half_charged = math.inf
    for _ in range(examples(30)):
        n, sigma = int(rng.integers(1, 4)), float(rng.uniform(0.25, 0.8))
        grid = np.arange(-math.ceil(7 * sigma * n) - n, math.ceil(7 * sigma * n) + 2 * n + 1) / n
        population = np.broadcast_to(rng.dirichlet(np.full(2, rng.choice([0.3, 1.0]))), (n, 2))

        def choose(
            rng: np.random.Generator, world: World, depth: int, here: Array,
            n: int = n, sigma: float = sigma, grid: Array = grid,
        ) -> Coin | Noisy | None:  # fmt: skip
            if depth == 2:
                return None
            rule = vote(world, here, 2, 2) if depth else np.broadcast_to(np.eye(2), (n, 2, 2))
            return Coin(rule, a) if coin_first == (depth == 0) else Noisy(rule[..., 1:], sigma, grid)

        world = play(rng, population, choose)
        theta = kap * n * a**2

        def excess(question: Asked, world: World = world, theta: float = theta) -> Array:
            if isinstance(question.draw, Noisy):
                return np.zeros((len(world.weight), 2**world.n, len(question.draw.grid)))
            return np.asarray(theta * expected_length(world, question) - compensator(world, question, theta))

        here = phi(world, lam)
        assert expected_exponential(world, here) <= 1 + 1e-8
        first, second = world.given_transcript(here), world.given_transcript(world.along(excess))
        bound = exchange.ibar(n, 1 + 1 / (4 * sigma**2), a, om2, kap, s, first, second, outcomes=2)
        ends = np.array(world.ends)
        assert np.all(world.given_transcript(world.information)[ends] <= bound[ends] + 1e-8)
        finite += int(np.isfinite(bound[ends]).sum())
        # Mutant: half the charge. The noise of one scan alone would then cost more than is charged for it.
        for question in filter(None, world.asked):
            if isinstance(question.draw, Noisy):
                far, near = world.far_law(question, lam), question.draw.law(question.means(world.exchanges))
                cost = np.einsum("zy,ryc->rzc", channel(n, lam), np.log(np.maximum(far, 1e-300))) - np.log(near)
                trace = (question.b**2).sum(axis=(1, 2)) / (n * sigma) ** 2
                likely = near > 1e-6
                half_charged = min(half_charged, float((cost + om2 / 4 * trace[:, None, None])[likely].min()))
    assert finite > 10
    assert half_charged < -om2 / 100


def test_the_norm_of_a_discrete_gaussian_is_largest_on_its_grid() -> None:
    shift = np.linspace(0, 1, 101)
    for sigma in (0.1, 0.3, 1.0, 4.0):
        k = np.arange(-60, 61)
        norm = np.exp(-((k[:, None] - shift) ** 2) / (2 * sigma**2)).sum(axis=0)
        assert np.all(norm <= norm[0] * (1 + 1e-14))
        assert norm[0] >= sigma * math.sqrt(2 * math.pi) * (1 - 1e-14)
