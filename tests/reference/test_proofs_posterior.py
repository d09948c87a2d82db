"""The posterior theorem on sessions small enough to write down completely.

A population on a few points, n rows, and an adaptive tree of draws give finitely many samples S and
transcripts T. Every law is then an array, and each inequality of docs/proofs/posterior.md is checked for
*every* S or T, not on average. SLACK only absorbs rounding of sums of a few hundred doubles.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import beta as beta_law
from scipy.stats import binom

from holdfast.guarantees import posterior
from holdfast.guarantees.mathematics import groups as difference

Array = NDArray[np.float64]
SLACK = 1e-9


def double_factorial(p: int) -> float:
    return math.prod(range(1, 2 * p, 2))


def sigma(n: int, flips: int, a: float, p: int) -> float:
    e0 = n / (n - 1) ** 2
    clock = e0 * flips
    big_a = n * a * (1 - a) / (1 - 2 * a) ** 2
    if p == 1:
        return big_a * math.expm1(clock / big_a) if clock / big_a < 600 else math.inf
    g = math.sqrt(e0 * (1 - a) / a)
    kappa = (1 + g / math.sqrt(big_a)) ** (2 * p - 2)
    a1, big_g = big_a / (2 * p - 1), (2 * p - 1) * g
    s = big_g / math.sqrt(clock)
    exponent = kappa * (1 + s) * clock / a1
    if exponent > 600:
        return math.inf
    tau = (a1 + big_g**2 + big_g * math.sqrt(clock)) / (1 + s) * math.expm1(exponent)
    return (math.sqrt(tau) + (2 * p - 2) * g) ** 2


@dataclass
class World:
    """All samples of n rows from a finite population, and the law of every transcript given each of them."""

    population: Array  # D, or one law for each row
    samples: NDArray[np.int64]  # (samples, n): the row values
    weight: Array  # (samples,): D^n
    given: Array  # (samples, transcripts): L_S(T)
    without: Array  # (samples, n, transcripts): L_{S_-i}(T)
    flips: int

    @property
    def ratios(self) -> Array:  # m_i = M_i - 1
        return np.asarray(self.without / self.given[:, None, :] - 1)

    @property
    def energy(self) -> Array:  # W(S, T)
        return np.asarray((self.ratios**2).sum(axis=1))

    @property
    def posterior(self) -> Array:  # P(S | T), one column per transcript
        joint = self.weight[:, None] * self.given
        return np.asarray(joint / joint.sum(axis=0))

    @property
    def transcript(self) -> Array:
        return self.weight @ self.given

    def posterior_population(self) -> Array:  # D_T, (values, transcripts)
        values = np.arange(len(self.population))
        share = (self.samples[:, :, None] == values).mean(axis=1)
        return np.asarray(share.T @ self.posterior)


def play(
    rng: np.random.Generator, *, n: int, points: int, depth: int, a: float, most: int = 3, unlike: bool = False
) -> World:
    """An adaptive session: at every node its own number of outcomes, mass and randomized row-wise rule.

    `unlike`: every row has a law of its own, and rules depend on the row's place.
    """
    population = rng.dirichlet(np.full(points, rng.choice([0.5, 1.0, 5.0])), size=n if unlike else None)
    samples = np.array(list(product(range(points), repeat=n)))
    weight = (population[np.arange(n), samples] if unlike else population[samples]).prod(axis=1)
    given: list[Array] = []
    without: list[Array] = []
    flips = 0

    def node(left: int, here: Array, here_without: Array, paid: int) -> None:
        nonlocal flips
        if left == 0:
            given.append(here)
            without.append(here_without)
            flips = max(flips, paid)
            return
        c = int(rng.integers(2, most + 1))
        mass = a if rng.random() < 0.7 else a + (0.9 / c - a) * rng.random() * (a < 0.9 / c)
        shape = (n, points) if unlike else (points,)
        rule = rng.dirichlet(np.full(c, 0.15), size=shape)  # mostly near the corners, where it hurts
        if rng.random() < 0.4:
            rule = np.eye(c)[rng.integers(0, c, size=shape)]
        laws = rule[np.arange(n), samples] if unlike else rule[samples]  # (samples, n, c)
        full = (1 - c * mass) * laws.mean(axis=1) + mass
        out = (1 - c * mass) * (laws.sum(axis=1, keepdims=True) - laws) / (n - 1) + mass
        for z in range(c):
            node(left - 1, here * full[:, z], here_without * out[:, :, z], paid + c - 1)

    node(depth, np.ones(len(samples)), np.ones((len(samples), n)), 0)
    return World(population, samples, weight, np.stack(given, axis=1), np.stack(without, axis=2), flips)


def worlds(seed: int, count: int) -> list[World]:
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        n, points = int(rng.integers(2, 5)), int(rng.integers(2, 4))
        made.append(play(rng, n=n, points=points, depth=int(rng.integers(1, 5)), a=0.01))
    return made


WORLDS = worlds(20, 120)  # for what holds transcript by transcript, whatever the mass


def bounded(world: World, a: float, p: int) -> bool:
    """Check E[W^p | S] <= (2p-1)!! sigma_p^p for every S; say whether the bound is a number worth testing."""
    bound = sigma(world.samples.shape[1], world.flips, a, p)
    moment = (world.given * world.energy**p).sum(axis=1)
    assert np.all((moment / double_factorial(p)) ** (1 / p) <= bound * (1 + SLACK))
    return bound < 1e9


@pytest.mark.parametrize("a", [0.05, 0.1, 0.2, 0.3])
def test_first_moments_with_two_and_three_outcomes(a: float) -> None:
    rng = np.random.default_rng(21)
    useful = 0
    for _ in range(20):
        n, depth = int(rng.integers(2, 6)), int(rng.integers(1, 5))
        useful += bounded(play(rng, n=n, points=2, depth=depth, a=a), a, 1)
    assert useful > 10


@pytest.mark.parametrize("a", [0.2, 0.3, 0.4, 0.49])
@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_moments_of_the_energy_are_bounded_for_every_sample(a: float, p: int) -> None:
    rng = np.random.default_rng(7)
    useful = 0
    for _ in range(12):
        n = int(rng.integers(2, 7))
        useful += bounded(play(rng, n=n, points=2, depth=int(rng.integers(1, 6)), a=a, most=2), a, p)
    assert useful > 0 or (a < 0.4 and p > 2)  # elsewhere so few rows are promised nothing


def moment_of_one_question(n: int, flips: int, a: float, ones: int, p: int) -> float:
    """E[W^p | S], exact, when one question with `ones` ones on S is tossed `flips` times (T is the count)."""
    x = np.arange(flips + 1)
    bias = a + (1 - 2 * a) * ones / n
    energy = np.zeros(flips + 1)
    for value, rows in ((1, ones), (0, n - ones)):
        out = a + (1 - 2 * a) * (ones - value) / (n - 1)
        log_ratio = x * math.log(out / bias) + (flips - x) * math.log((1 - out) / (1 - bias))
        energy += rows * np.expm1(log_ratio) ** 2
    return float(binom.pmf(x, flips, bias) @ energy**p)


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("flips", [1, 100, 20_000])
@pytest.mark.parametrize("a", [0.002, 0.02, 0.2])
def test_moments_at_real_size(p: int, flips: int, a: float) -> None:
    n = 100_000
    bound = sigma(n, flips, a, p)
    for ones in (0, 1, 50, 5_000, 50_000, 99_999):
        moment = moment_of_one_question(n, flips, a, ones, p)
        assert (moment / double_factorial(p)) ** (1 / p) <= bound * (1 + SLACK)


def test_the_double_factorial_is_needed() -> None:
    """A question asked again and again makes W a squared normal: its moments are (2p-1)!! V^p, not V^p."""
    n, flips, a = 10**6, 20_000, 0.02
    for p in (2, 3):
        moment = moment_of_one_question(n, flips, a, n // 2, p)
        assert moment > sigma(n, flips, a, p) ** p


def test_first_moment_is_not_slack_everywhere() -> None:
    """A bound with half the clock must fail: the enumeration has the power to see a wrong constant."""
    rng = np.random.default_rng(3)
    broken = False
    for _ in range(40):
        world = play(rng, n=8, points=2, depth=1, a=0.05, most=2)
        moment = (world.given * world.energy).sum(axis=1).max()
        assert moment <= sigma(8, 1, 0.05, 1)
        broken |= bool(moment > sigma(8, 1, 0.05, 1) / 2)
    assert broken


def test_posterior_identity() -> None:
    for world in WORLDS[:40]:
        post = world.posterior
        nu = np.einsum("st,sit->it", post, world.ratios)
        assert np.allclose(nu, nu[0], atol=1e-9)  # the same for every row
        for value, probability in enumerate(world.population):
            hit = world.samples == value
            left = np.einsum("st,sit,si->it", post, world.ratios + 1, hit)
            assert np.allclose(left, (1 + nu) * probability, atol=1e-9)


def chi_square(numerator: Array, denominator: Array) -> Array:
    return np.asarray(((numerator[:, None] - denominator) ** 2 / denominator).sum(axis=0))


def test_chi_square_inequality_for_every_transcript() -> None:
    """sup over q of (q(D)-mu)^2/Var_{D_T}(q) is the chi-square divergence: all queries at once."""
    used = 0
    for world in WORLDS:
        n = world.samples.shape[1]
        h = (world.posterior * world.energy).sum(axis=0) / n
        ok = h < 1
        used += int(ok.sum())
        divergence = chi_square(world.population, world.posterior_population())
        assert np.all(divergence[ok] <= h[ok] / (1 - h[ok]) + SLACK)
    assert used > 300


def test_the_variance_under_the_population_would_be_wrong() -> None:
    """With Var_D in place of Var_{D_T} the ratio is chi-square(D_T||D); it exceeds the bound."""
    rng = np.random.default_rng(11)
    broken = False
    for _ in range(200):
        world = play(rng, n=int(rng.integers(2, 5)), points=2, depth=1, a=0.1, most=2)
        h = (world.posterior * world.energy).sum(axis=0) / world.samples.shape[1]
        d_t = world.posterior_population()
        wrong = ((world.population[:, None] - d_t) ** 2 / world.population[:, None]).sum(axis=0)
        ok = h < 1
        broken |= bool(np.any(wrong[ok] > h[ok] / (1 - h[ok]) + 1e-6))
    assert broken


def test_conditional_means_for_every_transcript() -> None:
    used = 0
    rng = np.random.default_rng(5)
    for world in WORLDS:
        n = world.samples.shape[1]
        d, d_t = world.population, world.posterior_population()
        h = (world.posterior * world.energy).sum(axis=0) / n
        for t in np.flatnonzero(h < 1):
            chi = h[t] / (1 - h[t])
            for _ in range(4):
                inside = rng.random(len(d)) < 0.6
                q = rng.random(len(d)).round(int(rng.integers(0, 2)))
                g = d_t[inside, t].sum()
                if g <= chi * (1 + 1e-9):
                    continue
                used += 1
                mu = (q[inside] @ d_t[inside, t]) / g
                mean = (q[inside] @ d[inside]) / d[inside].sum()
                assert (mean - mu) ** 2 <= chi / (g - chi) * mu * (1 - mu) + SLACK
    assert used > 200


def test_tail_probability_of_the_event_in_theorem_one() -> None:
    """P(some query breaks chi) <= beta1, exactly, wherever the theorem promises anything."""
    promised = 0
    rng = np.random.default_rng(9)
    for _ in range(60):
        n = int(rng.integers(4, 8))
        a = float(rng.choice([0.3, 0.4, 0.45]))
        world = play(rng, n=n, points=2, depth=int(rng.integers(1, 4)), a=a, most=2)
        divergence = chi_square(world.population, world.posterior_population())
        for b1 in (0.5, 0.2, 0.05):
            h = min(sigma(n, world.flips, a, p) / n * (double_factorial(p) / b1) ** (1 / p) for p in range(1, 21))
            if h < 1:
                promised += 1
                assert world.transcript[divergence > h / (1 - h) + SLACK].sum() <= b1
    assert promised > 20


# Step 4: coins against posterior means.


def test_minus_log_tails_are_convex() -> None:
    grid = np.linspace(1e-4, 1 - 1e-4, 2001)
    for ell in (1, 2, 5, 40):
        for x in range(ell + 1):
            for tail in (binom.logsf(x - 1, ell, grid), binom.logcdf(x, ell, grid)):
                k = -np.asarray(tail)
                second = k[:-2] - 2 * k[1:-1] + k[2:]
                assert np.all(second >= -1e-9 * (1 + np.abs(k[1:-1])))


def test_excess_of_the_p_value_exponent() -> None:
    """E (K(P) - x0)_+ <= e^-x0 for exact binomial tails."""
    for ell in (1, 3, 30):
        x = np.arange(ell + 1)
        for bias in (0.01, 0.3, 0.5, 0.97):
            law = binom.pmf(x, ell, bias)
            for k in (-binom.logsf(x - 1, ell, bias), -binom.logcdf(x, ell, bias)):
                for x0 in (0.0, 0.5, 2.0, 5.0):
                    assert law @ np.maximum(k - x0, 0) <= math.exp(-x0) * (1 + SLACK)


def tail_misses(level: float, *, a: float, ell: int, support: Array, weights: Array) -> float:
    """P(a Clopper-Pearson bound at two-sided `level` misses E[P_j | T]) when T is the count alone."""
    bias = a + (1 - 2 * a) * support
    x = np.arange(ell + 1)
    joint = weights[:, None] * binom.pmf(x, ell, bias[:, None])
    law = joint.sum(axis=0)
    center = np.asarray((bias[:, None] * joint).sum(axis=0) / law)
    lower = np.where(x == 0, 0.0, beta_law.ppf(level / 2, np.maximum(x, 1), ell - x + 1))
    upper = np.where(x == ell, 1.0, beta_law.isf(level / 2, x + 1, np.maximum(ell - x, 1)))
    return float(law @ ((center < lower - 1e-12) | (center > upper + 1e-12)))


def test_clopper_pearson_contains_the_posterior_mean() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        support = rng.random(4).round(2)
        weights = rng.dirichlet(np.full(4, 0.3))
        beta2 = float(rng.choice([0.5, 0.1, 0.02]))
        assert tail_misses(beta2 / math.e, a=0.01, ell=12, support=support, weights=weights) <= beta2


def test_group_share_and_ratio_recover_the_group_mean() -> None:
    """mu_I = theta + a(2 theta - 1)/(pi - 2a), and its extremes over a rectangle sit where the code looks."""
    rng = np.random.default_rng(2)
    for _ in range(300):
        a = float(rng.uniform(0.001, 0.3))
        g, mu = rng.uniform(0.05, 1), rng.uniform(0, 1)
        pi = 2 * a + (1 - 3 * a) * g
        theta = (a + (1 - 3 * a) * g * mu) / pi
        assert theta + a * (2 * theta - 1) / (pi - 2 * a) == pytest.approx(mu, abs=1e-12)
        t = np.sort(rng.random(2))
        s = 2 * a + (1 - 2 * a) * np.sort(rng.uniform(0.01, 1, 2))
        tt, ss = np.meshgrid(np.linspace(t[0], t[1], 31), np.linspace(s[0], s[1], 31))
        values = tt + a * (2 * tt - 1) / (ss - 2 * a)

        def at(theta: float, pi: float, a: float = a) -> float:
            return theta + a * (2 * theta - 1) / (pi - 2 * a)

        high = at(t[1], s[0] if t[1] > 0.5 else s[1])
        low = at(t[0], s[0] if t[0] < 0.5 else s[1])
        assert values.max() == pytest.approx(high, rel=1e-12, abs=1e-12)
        assert values.min() == pytest.approx(low, rel=1e-12, abs=1e-12)


def test_draws_inside_a_group_are_rarely_few() -> None:
    """E[pi (ell+1)/(M+1)] <= 1 for M of ell draws inside, whatever pi; with ell/M it would be false."""
    for ell in (1, 4, 30):
        counts = np.arange(ell + 1)
        for pi in (1e-3, 0.1, 0.5, 0.99, 1.0):
            law = binom.pmf(counts, ell, pi)
            assert pi * float(law @ ((ell + 1) / (counts + 1))) <= 1 + SLACK
    assert 0.1 * float(binom.pmf(np.arange(1, 31), 30, 0.1) @ (30 / np.arange(1, 31))) > 1


@dataclass(frozen=True)
class GroupReleased:
    """All counts (M, X) of ell draws, M inside a group and X of them ones, for a prior of a few samples S."""

    weights: Array  # (S,)
    laws: Array  # (S, 3): excluded, zero, one, with the mass
    ell: int

    @cached_property
    def counts(self) -> Array:
        return np.array([(m, x) for m in range(self.ell + 1) for x in range(m + 1)], dtype=float)

    @cached_property
    def joint(self) -> Array:  # (S, T)
        (m, x), pi = self.counts.T, self.laws[:, 1] + self.laws[:, 2]
        inside = binom.pmf(m, self.ell, pi[:, None]) * binom.pmf(x, m, (self.laws[:, 2] / pi)[:, None])
        return np.asarray(self.weights[:, None] * inside)

    @cached_property
    def law(self) -> Array:
        return np.asarray(self.joint.sum(axis=0))

    def mean(self, values: Array) -> Array:
        """Return E[values(S) | T]."""
        return np.asarray(values @ self.joint / self.law)


def releases(seed: int, count: int) -> Iterator[tuple[float, GroupReleased]]:
    """Yield masses and releases; groups are now and then very small in one sample and all of another."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        a = float(rng.choice([0.002, 0.02, 0.1]))
        weights, raw = rng.dirichlet(np.full(3, 0.4)), rng.dirichlet(np.full(3, 0.2), size=3)
        yield a, GroupReleased(weights, (1 - 3 * a) * raw + a, int(rng.choice([2, 7, 16])))


def test_ones_among_the_included_at_the_posterior_mean() -> None:
    """pi (K(theta) - x0)_+ <= E[pi_S (K(theta_S) - x0)_+ | T] for every T; without the weights pi it is false."""
    unweighted = 0
    for _, released in releases(4, 60):
        m, x = released.counts.T
        ones, pi = released.laws[:, 2], released.laws[:, 1] + released.laws[:, 2]
        theta, share = released.mean(ones) / released.mean(pi), released.mean(pi)
        here = -binom.logsf(x - 1, m, theta)
        each = -binom.logsf(x - 1, m, (ones / pi)[:, None])
        for x0 in (0.1, 1.0, 3.0):
            over = np.maximum(each - x0, 0)
            weighted = (pi[:, None] * over * released.joint).sum(axis=0) / released.law
            plain = (over * released.joint).sum(axis=0) / released.law
            some = released.law > 1e-200
            assert np.all((share * np.maximum(here - x0, 0) <= weighted + SLACK)[some])
            unweighted += int((np.maximum(here - x0, 0) > plain + 1e-6)[some].sum())
    assert unweighted > 0


def group_misses(level: float, used: float) -> float:
    """Return the largest chance, in units of e `level`, that a mean or share of groups is outside its interval."""
    worst = 0.0
    for a, released in releases(5, 150):
        m, x = released.counts.T
        means, shares = difference.group_means(m - x, x, released.ell, outcomes=3, mass=a, level=used)
        mean = (released.mean(released.laws[:, 2]) - a) / (released.mean(1 - released.laws[:, 0]) - 2 * a)
        share = (released.mean(1 - released.laws[:, 0]) - 2 * a) / (1 - 3 * a)
        out = (mean < means[:, 0] - SLACK) | (mean > means[:, 1] + SLACK)
        out |= (share < shares[:, 0] - SLACK) | (share > shares[:, 1] + SLACK)
        worst = max(worst, float(released.law[out].sum()) / (math.e * level))
    return worst


def test_a_group_is_two_statements() -> None:
    assert group_misses(0.02, used=0.02) <= 2
    assert group_misses(0.02, used=0.5) > 2


def test_interval_ends_are_monotone_where_used() -> None:
    for chi in (1e-4, 0.01, 0.3, 2.0, 50.0):
        r2 = 1 / (1 + chi)
        x = np.linspace(0, r2, 4001)
        f = x + np.sqrt(chi * x * (1 - x))
        assert np.all(np.diff(f) >= -1e-12)
        assert f[-1] == pytest.approx(1, abs=1e-9)


# Rows that are not identical.


def unlike_worlds(count: int) -> list[World]:
    rng = np.random.default_rng(31)
    sizes = [(int(rng.integers(2, 5)), int(rng.integers(2, 4)), int(rng.integers(1, 4))) for _ in range(count)]
    return [play(rng, n=n, points=points, depth=depth, a=0.01, unlike=True) for n, points, depth in sizes]


def unlike_ratios(count: int) -> tuple[float, float, float]:
    """Return the largest ratios of (p-mu)^2 to Theorem N, of groups to theirs, and of (p-mu)^2 to Theorem 1's form."""
    rng, means, groups, like = np.random.default_rng(32), 0.0, 0.0, 0.0
    for world in unlike_worlds(count):
        n, points = world.population.shape
        slots, law = np.arange(n), world.posterior
        energy = (law * world.energy).sum(axis=0) / n  # H
        for _ in range(6):
            q, inside = (rng.random((n, points)).round(int(rng.integers(0, 2))) for _ in range(2))
            inside = inside.round()
            mu = q[slots, world.samples].mean(axis=1) @ law
            p = float((q * world.population).sum() / n)
            seen = (p - mu) ** 2 > 1e-9
            means = max(
                means, float(((p - mu) ** 2 / (energy * (mu * (1 - mu) + energy) + 1e-15))[seen].max(initial=0))
            )
            chi = np.where(energy < 1, energy / np.maximum(1 - energy, 1e-9), 1e18)  # no promise
            like = max(like, float(((p - mu) ** 2 / (chi * np.maximum(mu * (1 - mu), 0) + 1e-9))[seen].max(initial=0)))
            share = inside[slots, world.samples].mean(axis=1) @ law
            size = float((inside * world.population).sum() / n)
            used = (share > energy) & (size > 1e-9)
            if not used.any():
                continue
            of_group = np.clip((q * inside)[slots, world.samples].mean(axis=1) @ law / np.where(used, share, 1), 0, 1)
            true = float((q * inside * world.population).sum() / n) / size
            allowed = energy / np.where(used, share - energy, 1) * (of_group * (1 - of_group) + energy / share)
            groups = max(groups, float(((true - of_group) ** 2 / (allowed + 1e-12))[used].max()))
    return means, groups, like


def test_theorem_n_for_every_transcript_and_the_formula_of_identical_rows_is_wrong() -> None:
    means, groups, like = unlike_ratios(150)
    assert 0.3 < means <= 1 + SLACK
    assert 0.2 < groups <= 1 + SLACK
    assert like > 2  # as much, with Theorem 1's chi mu (1-mu)


def test_the_interval_of_theorem_n() -> None:
    for h in (1e-4, 0.02, 0.3):
        x = np.linspace(0, 1, 1001)
        low, high = (np.array(ends) for ends in zip(*(posterior.widen_unlike((v, v), h=h) for v in x), strict=True))
        root = x + np.sqrt(h * (x * (1 - x) + h))
        assert np.allclose(high, np.minimum(1, root))
        assert np.allclose(low, 1 - high[::-1])
        assert np.all(np.diff(high) >= 0)
    assert posterior.widen_unlike((0.2, 0.3), h=0.01, share=0.01) == (0.0, 1.0)


def test_the_step_of_a_difference_by_theorem_n() -> None:
    """Two groups of values; the step of docs/proofs/groups.md, with H itself, for every transcript."""
    rng, used, closest = np.random.default_rng(33), 0, 0.0
    for world in unlike_worlds(150):
        n, points = world.population.shape
        slots, law, energy = np.arange(n), world.posterior, (world.posterior * world.energy).sum(axis=0) / n
        for _ in range(6):
            q = rng.random((n, points)).round(int(rng.integers(0, 2)))
            first = np.broadcast_to(np.arange(points) == 0, (n, points))
            sides = [first, ~first]
            size = [float((side * world.population).sum() / n) for side in sides]
            if min(size) < 1e-9:
                continue
            true = [float((q * side * world.population).sum() / n) / one for side, one in zip(sides, size, strict=True)]
            shares = [side[slots, world.samples].mean(axis=1) @ law for side in sides]
            sums = [(q * side)[slots, world.samples].mean(axis=1) @ law for side in sides]
            for t in np.flatnonzero(np.minimum(*shares) > energy):
                means = [min(1.0, float(one[t] / share[t])) for one, share in zip(sums, shares, strict=True)]
                both = tuple(
                    ((mean, mean), (value, value), float(share[t]))
                    for mean, value, share in zip(means, true, shares, strict=True)
                )
                step = difference.posterior_step(both, float(energy[t]), identical=False)  # type: ignore[arg-type]
                off = abs(means[0] - means[1] - true[0] + true[1])
                used += 1
                assert off <= step + SLACK
                closest = max(closest, off / (step + 1e-9))
    assert used > 200
    assert closest > 0.2
