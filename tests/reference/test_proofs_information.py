"""The information guarantee by enumeration: one draw, whole sessions, noise, and the released interval.

Laws are written down completely, so every inequality of docs/proofs/information.md is checked for each sample
rather than on average. SLACK only absorbs rounding.
"""

import math
from itertools import product

import numpy as np
import pytest
from mpmath import mp, mpf  # type: ignore[import-untyped]
from numpy.typing import NDArray
from scipy.special import rel_entr
from scipy.stats import beta as beta_law
from scipy.stats import binom

from holdfast.guarantees.information import Information
from holdfast.guarantees.statistic import NoisyMeans, Tally
from holdfast.guarantees.terms import Goal

Array = NDArray[np.float64]
SLACK = 1e-12


def leave_one_out(rows: Array, mass: float) -> float:
    """sum_i KL(P || P_-i) for rows that give outcome laws rows[i], with extra mass per outcome."""
    n, c = rows.shape
    total = rows.sum(axis=0)
    p = (1 - c * mass) * total / n + mass
    q = (1 - c * mass) * (total - rows) / (n - 1) + mass
    return float(np.sum(p * np.log(p / q)))


def rows_with(counts: tuple[int, ...]) -> Array:
    return np.repeat(np.eye(len(counts)), counts, axis=0)


@pytest.mark.parametrize("c", [2, 3, 4, 5])
def test_one_draw_with_sure_rows(c: int) -> None:
    for n in sorted({c, c + 1, 7, 12} - set(range(c))):
        for counts in product(range(n + 1), repeat=c):
            if sum(counts) == n and sorted(counts) == list(counts):
                assert leave_one_out(rows_with(counts), 1 / n) <= (c - 1) / (2 * n) + SLACK


@pytest.mark.parametrize("c", [2, 3, 4, 5])
def test_one_draw_with_randomized_rows(c: int) -> None:
    rng = np.random.default_rng(c)
    for _ in range(600):
        n = int(rng.integers(max(c, 2), 30))
        rows = rng.dirichlet(np.full(c, rng.choice([0.02, 0.2, 1.0])), size=n)
        assert leave_one_out(rows, 1 / n) <= (c - 1) / (2 * n) + SLACK
        larger = 1 / n + rng.random() * (1 / c - 1 / n)  # any mass from 1/n up to 1/c will do
        assert leave_one_out(rows, larger) <= (c - 1) / (2 * n) + SLACK


@pytest.mark.parametrize("c", [2, 3, 4, 5])
def test_the_constant_is_sharp(c: int) -> None:
    ratios = []
    for per in (20, 200, 2000):
        n = per * c
        ratios.append(leave_one_out(rows_with((per,) * c), 1 / n) / ((c - 1) / (2 * n)))
    assert ratios == sorted(ratios)
    assert 0.999 < ratios[-1] <= 1
    # so nine tenths of it (a mutant) is already wrong
    assert ratios[-1] > 0.9


def test_half_the_extra_mass_is_not_enough() -> None:
    worst = max(leave_one_out(rows_with((n - j, j)), 0.25 / n) * 2 * n for n in (5, 20, 60) for j in range(1, n))
    assert worst > 1.01


def session_information(rng: np.random.Generator, *, n: int, points: int, depth: int) -> tuple[float, int]:
    """I(S; T) in nats and the flips of an adaptive session, every S and T enumerated."""
    population = rng.dirichlet(np.ones(points))
    samples = np.array(list(product(range(points), repeat=n)))
    weight = population[samples].prod(axis=1)
    leaves: list[Array] = []
    flips = 0

    def node(left: int, here: Array, paid: int) -> None:
        nonlocal flips
        if left == 0:
            leaves.append(here)
            flips = max(flips, paid)
            return
        c = int(rng.integers(2, min(3, n) + 1))
        rule = np.eye(c)[rng.integers(0, c, size=points)]
        if rng.random() < 0.3:
            rule = rng.dirichlet(np.full(c, 0.3), size=points)
        full = (1 - c / n) * rule[samples].mean(axis=1) + 1 / n
        for z in range(c):
            node(left - 1, here * full[:, z], paid + c - 1)

    node(depth, np.ones(len(samples)), 0)
    given = np.stack(leaves, axis=1)
    return float(np.sum(weight[:, None] * given * np.log(given / (weight @ given)))), flips


def test_whole_sessions_tell_at_most_half_a_nat_per_n_flips() -> None:
    rng = np.random.default_rng(8)
    best = 0.0
    for _ in range(250):
        n, points = int(rng.integers(2, 6)), int(rng.integers(2, 4))
        nats, flips = session_information(rng, n=n, points=points, depth=int(rng.integers(1, 6)))
        assert nats <= flips / (2 * n) + SLACK
        best = max(best, nats / (flips / (2 * n)))
    assert best > 0.1  # the bound is within reach: not satisfied by sessions that tell nothing


def test_sessions_without_flips_break_the_bound() -> None:
    """Mutant: the row's outcome itself, no extra mass. Two points, n = 2, one draw of a fair coin."""
    weight, bias = np.array([0.25, 0.5, 0.25]), np.array([0.0, 0.5, 1.0])
    entropy = -sum(
        w * (b * math.log(b) + (1 - b) * math.log(1 - b)) for w, b in zip(weight, bias, strict=True) if 0 < b < 1
    )
    assert math.log(2) - entropy > 1 / (2 * 2)


# Noise paid from the same budget.


def test_gaussian_and_laplace_reference_laws() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        n, scale = int(rng.integers(2, 50)), float(rng.uniform(0.01, 1))
        values = rng.random(n).round(int(rng.integers(0, 3)))
        shift = (values - 0.5) / n  # mean - ((n-1) mean_-i + 1/2)/n
        assert np.allclose(values.mean() - ((n * values.mean() - values) + 0.5) / n, shift)
        gauss = np.sum(shift**2 / (2 * scale**2))
        assert gauss <= 1 / (8 * scale**2 * n) + SLACK
        x = np.abs(shift) / scale
        laplace = np.sum(np.expm1(-x) + x)  # KL(Lap(0) || Lap(shift)), exact
        assert laplace <= 1 / (8 * scale**2 * n) + SLACK


def test_pure_privacy_in_nats() -> None:
    """An eps-DP pair has KL <= eps tanh(eps/2) <= eps^2/2; randomized response attains the first."""
    for eps in (0.01, 0.5, 1.0, 3.0, 10.0):
        p = 1 / (1 + math.exp(-eps))
        attained = (2 * p - 1) * eps
        assert attained == pytest.approx(eps * math.tanh(eps / 2))
        assert attained <= eps * eps / 2


# From nats to a radius, and the interval that is released.


def kl(p: float, q: float) -> float:
    if q <= 0 or q >= 1:
        return 0.0 if p == q else math.inf
    left = p * math.log(p / q) if p > 0 else 0.0
    return left + ((1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0.0)


def simple_radius(nats: float, k: int, beta: float) -> float:
    entropy = -beta * math.log(beta) - (1 - beta) * math.log1p(-beta)
    return (nats + entropy) / beta + math.log(2 * k)


def test_simple_radius_is_sufficient() -> None:
    mp.dps = 60
    for nats, k, beta in product((0.01, 1.0, 50.0), (1, 1000), (0.001, 0.05, 0.5)):
        r = simple_radius(nats, k, beta)
        assert r >= math.log(2 * k / beta) - 1e-12
        b, q = mpf(beta), 2 * k * mp.exp(-mpf(r))
        assert b * mp.log(b / q) + (1 - b) * mp.log((1 - b) / (1 - q)) >= mpf(nats) - mpf(10) ** -12


def clopper_pearson(x: int, m: int, level: float) -> tuple[float, float]:
    low = float(beta_law.ppf(level / 2, x, m - x + 1)) if x else 0.0
    high = float(beta_law.isf(level / 2, x + 1, m - x)) if x < m else 1.0
    return low, high


def contains(ends: tuple[float, float], share: float, budget: float) -> bool:
    """Is kl(s || share) <= budget for some s in the interval? The nearest s decides."""
    return kl(min(ends[1], max(ends[0], share)), share) <= budget


def miss_probability(*, n: int, ell: int, share: float, r: float, level: float, debias: bool) -> float:
    """P(interval misses q(D)) when q(S) = q(D) = share: the coins alone are random. Exact."""
    bias = (1 - 2 / n) * share + 1 / n
    x = np.arange(ell + 1)
    law = binom.pmf(x, ell, bias)
    missed = 0.0
    for count in x[law > 1e-9]:
        ends = clopper_pearson(int(count), ell, level)
        if debias:
            ends = tuple(min(1.0, max(0.0, (p - 1 / n) * n / (n - 2))) for p in ends)  # type: ignore[assignment]
        missed += float(law[count]) * (not contains(ends, share, r / n))
    return missed


def test_debiasing_is_what_makes_sure_events_sure() -> None:
    """Undebiased, a sure event is missed once the other outcome is seen: 1 - 0.999^5000 of the runs."""
    level = 0.05 / 1000
    for share in (0.0, 1.0):
        assert miss_probability(n=1000, ell=5000, r=20.0, share=share, level=level, debias=True) <= level
        assert miss_probability(n=1000, ell=5000, r=20.0, share=share, level=level, debias=False) > 0.99


def test_chernoff_for_a_group_uses_its_own_size() -> None:
    """P(N kl(group mean on S || group mean on D) > r) <= 2 e^-r, N random; exact for 0/1 values."""
    n = 25
    for share, mean in product((0.1, 0.5, 1.0), (0.05, 0.5, 0.9)):
        for r in (0.5, 2.0, 5.0):
            bad = 0.0
            for size in range(1, n + 1):
                ones = np.arange(size + 1)
                law = binom.pmf(ones, size, mean)
                broken = [size * kl(o / size, mean) > r for o in ones]
                bad += binom.pmf(size, n, share) * law[np.array(broken)].sum()
            assert bad <= 2 * math.exp(-r)


def test_group_mean_from_share_and_ratio() -> None:
    rng = np.random.default_rng(6)
    for _ in range(200):
        n = int(rng.integers(4, 1000))
        g, mu = rng.uniform(0.01, 1), rng.random()
        pi = (1 - 3 / n) * g + 2 / n
        theta = ((1 - 3 / n) * g * mu + 1 / n) / pi
        assert theta + (2 * theta - 1) / (n * pi - 2) == pytest.approx(mu, abs=1e-9)
        assert n * (pi - 2 / n) / (1 - 3 / n) == pytest.approx(n * g)


def test_merged_outcomes_carry_the_mass_of_all_their_members() -> None:
    """A set of m outcomes has P = (1-c/n) f + m/n; debiasing with 1/n (mutant) is off by (m-1)/(n-c)."""
    n, c, m = 100, 10, 4
    f = np.full(c, 1 / c)
    p = ((1 - c / n) * f + 1 / n)[:m].sum()
    assert (p - m / n) / (1 - c / n) == pytest.approx(f[:m].sum())
    assert abs((p - 1 / n) / (1 - c / n) - f[:m].sum()) == pytest.approx((m - 1) / (n - c))


# Groups: every sample that the coins or the noise allow, and every population that the radius allows for it.


def reach(mean: float, rows: float, r: float) -> tuple[float, float]:
    """Return the ends of all d with rows kl(mean || d) <= r, by halving."""

    def end(outer: float) -> float:
        inner, far = mean, outer
        for _ in range(60):
            middle = (inner + far) / 2
            with np.errstate(divide="ignore", invalid="ignore"):
                away = float(rel_entr(mean, middle) + rel_entr(1 - mean, 1 - middle))
            inner, far = (middle, far) if rows * away <= r else (inner, middle)
        return inner

    return end(0.0), end(1.0)


def standing_for(rows: int, mechanism: str) -> Information:
    terms = Information.plan(Goal(rows, 10, 0.95, identical=True), mechanism)
    assert terms is not None
    return Information(terms)


def test_groups_hold_for_every_sample_that_the_coins_allow() -> None:
    standing, rng = standing_for(2_000, "coins"), np.random.default_rng(5)
    n, r, level = standing.terms.rows, standing.terms.radius, standing.level
    a = 1 / n
    for _ in range(40):
        several, draws = int(rng.integers(1, 4)), int(rng.choice([300, 5_000]))
        c = 2 * several + 1
        counts = rng.multinomial(draws, rng.dirichlet(np.full(c, 0.7)))
        release = Tally((0.5,) * several, draws, tuple(map(int, counts)), ())
        for part, (found, share) in enumerate(standing.groups(release, several)):
            zeros, ones = release.members(part)
            pi, theta = clopper_pearson(zeros + ones, draws, level), clopper_pearson(ones, zeros + ones, level)
            for p, o in product(np.linspace(*pi, 5), np.linspace(*theta, 5)):
                g = (p - 2 * a) / (1 - c * a)
                if g <= 0:
                    assert found == (0.0, 1.0)
                    continue
                low, high = reach(min(1.0, max(0.0, (o * p - a) / (p - 2 * a))), n * g, r)
                assert found[0] - 1e-9 <= low
                assert high <= found[1] + 1e-9
                low, high = reach(min(1.0, g), n, r)
                assert share[0] - 1e-9 <= low
                assert high <= share[1] + 1e-9


def test_groups_hold_for_every_sample_that_the_noise_allows() -> None:
    standing, rng = standing_for(10**6, "laplace"), np.random.default_rng(6)
    n, r, draws = standing.terms.rows, standing.terms.radius, standing.terms.rows_per_query
    for _ in range(20):
        share = float(rng.uniform(0.01, 0.5))
        total, scale = share * float(rng.random()), float(rng.choice([1e-5, 1e-4]))
        release = NoisyMeans((total / share,), draws, (share, total), scale, 2.0**-40)
        found = standing.group(release)
        radius = scale * math.log(2 / standing.level) + math.sqrt(math.log(4 / standing.level) / (2 * draws))
        shares, totals = (np.linspace(middle - radius, middle + radius, 5) for middle in (share, total))
        for g, x in product(shares, totals):
            if 0 < x < g < 1:
                low, high = reach(x / g, n * g, r)
                assert found[0] - 1e-9 <= low
                assert high <= found[1] + 1e-9
