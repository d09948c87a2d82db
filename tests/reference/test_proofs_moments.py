"""Moments and pairs: every step of docs/proofs/moments.md on cases written down; wrong versions must fail."""

from functools import cache
from itertools import product
from math import inf, sqrt
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import gammaincc
from scipy.stats import binom

from examples import examples
from ghost_worlds import Array, World, farthest, sessions, standing
from holdfast.answer import Estimate
from holdfast.guarantees.mathematics import exchange, moments, slices
from holdfast.guarantees.release import NoisyMeans, Tally
from holdfast.guarantees.statistic import JointCells
from holdfast.queries.moments import OneOfTwo, Paired, TwoOfOne
from holdfast.questions.cells import Read
from holdfast.questions.moments import correlation_of, covariance_of, deviation_of, slope_of, variance_of
from holdfast.session import Session
from planned import planned

SLACK = 1e-8


# Cells.


def test_cells_are_laws_and_their_weights_are_the_functions() -> None:
    rng = np.random.default_rng(1)
    x, y, c, a, b = rng.random((5, 200))
    two, each = np.stack(TwoOfOne.law(None, x)), np.stack(OneOfTwo.law(None, x, y))  # type: ignore[arg-type]
    pair = np.stack(Paired.law(None, x, y))  # type: ignore[arg-type]
    for law in (two, each, pair):
        assert np.all(law >= 0)
        assert law.sum(axis=0) == pytest.approx(1)
    assert (np.stack([c * c, c * c - c, (1 - c) ** 2]) * two).sum(axis=0) == pytest.approx((x - c) ** 2)
    assert np.array([0, 0.5, 1]) @ two == pytest.approx(x)
    around = np.stack([a * b, -a * (1 - b), -(1 - a) * b, (1 - a) * (1 - b)])
    assert (around * each).sum(axis=0) == pytest.approx((x - a) * (y - b))
    assert np.array([0, -1, 1]) @ pair == pytest.approx(x - y)
    assert np.all((x - y) ** 2 <= pair[1] + pair[2] + SLACK)
    for function, weights, law in (((x - c) ** 2, np.stack([c * c, c * c - c, (1 - c) ** 2]), two),
                                   ((x - a) * (y - b), around, each)):  # fmt: skip
        assert np.all(function**2 <= (weights**2 * law).sum(axis=0) + SLACK)


# Corners.


@pytest.mark.parametrize(
    ("outcomes", "unions"), [(3, ()), (4, ((2, 3), (1, 3), (0, 3))), (5, ((3, 4), (2, 4), (1, 4)))]
)
def test_corners_have_the_extremes_of_linear_programming(outcomes: int, unions: Any) -> None:
    rng, sets = np.random.default_rng(2), np.array(JointCells(outcomes, unions).sets, dtype=float)
    for _ in range(30):
        inside = sets @ rng.dirichlet(np.ones(outcomes))
        lows = np.maximum(0, inside - rng.random(len(sets)) * 0.1)
        highs = np.minimum(1, inside + rng.random(len(sets)) * 0.1)
        laws = moments.corners(sets, lows, highs)
        weights = rng.normal(size=outcomes)
        for sign in (1, -1):
            best = linprog(
                sign * weights,
                A_ub=np.concatenate([sets, -sets]),
                b_ub=np.concatenate([highs, -lows]),
                A_eq=np.ones((1, outcomes)),
                b_eq=[1],
                bounds=(0, 1),
            )
            values = laws @ weights
            assert sign * best.fun == pytest.approx(values.min() if sign == 1 else values.max(), abs=1e-6)


# Spread.


@cache
def worlds(different: bool) -> list[World]:
    return sessions(31, examples(120), a=0.1, different=different)


def posterior(world: World) -> tuple[Array, Array]:
    """Return (D_T, J) for every transcript, J with E[I|T] itself in place of Ibar."""
    information = np.maximum(0, world.given_transcript(world.information))
    return world.share().mean(axis=0), 2 * information / world.n


def spread_misses(*, different: bool = False, wrong: str | None = None) -> tuple[int, float]:
    rng, missed, closest = np.random.default_rng(32), 0, 0.0
    for world in worlds(different):
        d_t, js = posterior(world)
        d = world.populations.mean(axis=0)
        for _ in range(4):
            function = rng.normal(size=len(d)) * (rng.random(len(d)) < 0.7)
            function -= rng.choice([0.0, function.mean()])
            reach, most = float(np.ptp(function)), float((function**2).max())
            if most < 1e-12:
                continue
            for t, j in enumerate(js):
                if not 1e-9 < j < 0.9:
                    continue
                second = float(function**2 @ d_t[:, t])
                step = moments.exchange_spread(float(j), second, most, reach, identical=not different)
                if wrong == "sample only":
                    step = sqrt(j * second / (1 - j))
                off = abs(float(function @ d_t[:, t]) - float(function @ d))
                missed += off > step + 1e-7
                closest = max(closest, off / (step + 1e-9))
    return missed, closest


def test_spread_for_every_transcript() -> None:
    missed, closest = spread_misses()
    assert missed == 0
    assert closest > 0.7
    assert spread_misses(wrong="sample only")[0] > 0
    assert spread_misses(different=True)[0] == 0


def test_the_spread_of_rows_that_are_not_identical_is_the_formula_of_the_page() -> None:
    rng = np.random.default_rng(37)
    for _ in range(100):
        j, most, reach = 10 ** float(rng.uniform(-3, -0.1)), *rng.uniform(0.1, 2, 2)
        second = float(rng.uniform(0, most))
        inside = second + most * exchange.hi(second / most, j, identical=False) + j * reach**2 / 2
        step = moments.exchange_spread(j, second, float(most), float(reach), identical=False)
        assert step**2 * (1 - j) == pytest.approx(j * inside, rel=1e-9)


# Variance and covariance, from a posterior that is known exactly.


class Known:
    """A guarantee that knows J."""

    def __init__(self, j: float) -> None:
        self.j = j

    def spread_out(self, mean: tuple[float, float], within: tuple[float, float], second: float | None = None) -> Any:
        least, span = within[0], within[1] - within[0]
        low, high = ((end - least) / span for end in mean)
        return least + span * exchange.lo(low, self.j), least + span * exchange.hi(high, self.j)


def read(law: Array, j: float, seen: Array | None = None) -> Read:
    release: Any = SimpleNamespace(values=tuple((law if seen is None else seen)[1:]))
    query: Any = SimpleNamespace(some_left_out=False)
    return Read(query, release, Known(j), law[None, :])  # type: ignore[arg-type]


def test_variance_and_covariance_for_every_transcript() -> None:
    rng, used = np.random.default_rng(33), 0
    for world in worlds(False):
        d_t, js = posterior(world)
        d, points = world.populations[0], len(world.populations[0])
        x, y = rng.random((2, points)).round(int(rng.integers(0, 3)))
        true = float(d @ x**2 - (d @ x) ** 2), float(d @ (x * y) - (d @ x) * (d @ y))
        two, each = np.stack(TwoOfOne.law(None, x)), np.stack(OneOfTwo.law(None, x, y))  # type: ignore[arg-type]
        for t, j in enumerate(js):
            if not j < 1:
                continue
            used += 1
            spread = variance_of(read(two @ d_t[:, t], float(j)))
            together = covariance_of(read(each @ d_t[:, t], float(j)))
            slope = true[1] / true[0] if true[0] > 0 else 0.0  # without a spread there is none, and nothing is said
            for found, value in (
                (spread, true[0]),
                (together, true[1]),
                (slope_of(together, spread)[0], slope),
            ):
                low, high = found[1]
                assert low - 1e-7 <= value <= high + 1e-7
    assert used > 300


def moment_misses(*, wrong: float = 1.0) -> tuple[int, float]:
    """Return how many moments of populations at the border are outside, and how near they come; `wrong` times J."""
    rng, missed, nearest = np.random.default_rng(36), 0, 0.0
    for _ in range(150):
        points, j = int(rng.integers(3, 8)), float(rng.choice([0.001, 0.02, 0.15]))
        law = rng.dirichlet(np.full(points, float(rng.choice([0.3, 1.0, 5.0])))) * (1 - 1e-5) + 1e-5 / points
        x, y = rng.random((2, points)) ** rng.choice([1, 4]) if rng.random() < 0.6 else rng.integers(0, 2, (2, points))
        inside = np.where(rng.random(points) < rng.choice([0.6, 1.0]), 1.0, 0.0)
        inside[0] = 1.0
        left = bool((inside == 0).any())
        now = law * inside / (law @ inside)
        for sign, (of_x, of_y) in product((1, -1), ((x, x), (x, y))):
            d = farthest(law, sign * inside * (of_x - now @ of_x) * (of_y - now @ of_y), j)
            then = d * inside / (d @ inside)
            cells = np.stack(TwoOfOne.law(None, x) if of_x is of_y else OneOfTwo.law(None, x, y))  # type: ignore[arg-type]
            counted = cells * inside @ law
            release: Any = SimpleNamespace(values=tuple(counted if left else counted[1:]))
            query: Any = SimpleNamespace(some_left_out=left)
            seen = np.concatenate([[1 - counted.sum()], counted]) if left else counted
            found = Read(query, release, standing(j * wrong), seen[None, :])
            (low, high) = (variance_of if of_x is of_y else covariance_of)(found)[1]
            true, center = (float(one @ (of_x * of_y) - (one @ of_x) * (one @ of_y)) for one in (then, now))
            missed += not low - 1e-8 <= true <= high + 1e-8
            if of_x is not of_y and abs(true - center) > 1e-6:
                nearest = max(nearest, abs(true - center) / max(high - center, center - low))
    return missed, nearest


def test_moments_of_every_population_that_the_theorem_allows() -> None:
    missed, nearest = moment_misses()
    assert missed == 0
    assert nearest > 0.7  # not much is given away
    assert moment_misses(wrong=0.3)[0] > 0


def test_moments_about_another_number_than_the_mean() -> None:
    """What was seen differs from the posterior: E(x-c)^2 alone is above the variance, E(x-a)(y-b) off either way."""
    rng, above, apart = np.random.default_rng(35), 0, 0
    for _ in range(100):
        d, other = rng.dirichlet(np.ones(5), size=2)
        x, y = rng.random((2, 5))
        true = float(d @ x**2 - (d @ x) ** 2), float(d @ (x * y) - (d @ x) * (d @ y))
        two, each = np.stack(TwoOfOne.law(None, x)), np.stack(OneOfTwo.law(None, x, y))  # type: ignore[arg-type]
        low, high = variance_of(read(two @ d, 0.0, two @ other))[1]
        assert low - 1e-6 <= true[0] <= high + 1e-6
        above += d @ (x - other @ x) ** 2 > true[0] + 1e-3  # an upper end, but no lower one
        low, high = covariance_of(read(each @ d, 0.0, each @ other))[1]
        assert low - 1e-6 <= true[1] <= high + 1e-6
        apart += abs(d @ ((x - other @ x) * (y - other @ y)) - true[1]) > 1e-3
    assert min(above, apart) > 20


def test_a_correlation_is_that_of_the_rows_with_both_values() -> None:
    """The other number is mostly missing where the first is 1, and equal to it otherwise: correlation 1, slope 1.

    Of rows with both values a fifth have 1, of all rows one half. With the variance of all rows the quotients would be
    0.8 and 0.64; both are excluded here.
    """
    rng = np.random.default_rng(37)
    x, there = rng.integers(0, 2, 400_000).astype(float), rng.random(400_000)
    data = {"x": x, "y": np.where((x == 0) | (there < 0.25), x, np.nan)}
    with Session(data, seed=1, queries=20, guarantee="exchange") as session:
        found = session.correlation("x", "y", within=(0, 1), other_within=(0, 1))
        steep = session.slope("x", "y", within=(0, 1), other_within=(0, 1))
    assert 0.8 < found.low <= 1 <= found.high
    assert 0.64 < steep.low <= 1 <= steep.high


def test_quotients_of_moments_hold_every_quotient_and_reach_it() -> None:
    """All corners of what the intervals allow; dividing end by end, whatever the sign, is wrong."""
    rng, wrong = np.random.default_rng(36), 0
    for _ in range(200):
        top, (least, most), (lowest, highest) = np.sort(rng.uniform(-0.25, 0.25, 2)), *np.sort(rng.random((2, 2))) / 4
        together, one, other = (0.0, tuple(top)), (0.1, (least, most)), (0.1, (lowest, highest))
        slopes = [end / spread for end in top for spread in (least, most)]
        ((_, (low, high)), (_, steepest)) = slope_of(together, one)
        assert [low, high] == pytest.approx([min(slopes), max(slopes)], abs=1e-12)
        assert steepest >= 0.5 / sqrt(least)  # by Cauchy and Schwarz, no slope is steeper
        related = [end / sqrt(x * y) for end in top for x in (least, most) for y in (lowest, highest)]
        assert correlation_of(together, one, other)[1] == pytest.approx((min(related), max(related)), abs=1e-12)
        wrong += top[0] / most > min(slopes) + 1e-9
    assert wrong > 20
    nothing, _ = slope_of((0.1, (0.05, 0.15)), (0.01, (0.0, 0.02)))
    assert nothing[1] == (-inf, inf)  # the variance may be 0


def test_a_slope_is_as_steep_as_a_range_that_is_far_too_wide_makes_it() -> None:
    """Values up to 100, declared within a million: in [0, 1] the slope is 15,000, and coins see no spread."""
    x = np.arange(200_000) % 101
    true = np.cov(x, x > 50)[0, 1] / x.var()
    with Session({"x": x.astype(float), "y": x > 50}, seed=1, queries=20, guarantee="exchange") as session:
        found = session.slope("x", "y", within=(0, 1e6))
    assert found.low <= true <= found.high
    assert len(repr(found)) < 200
    for least in (1e-9, 1e-12):  # known to be larger than that: then so steep it may be, and no steeper
        _, (_, steepest) = slope_of((0.0, (-0.25, 0.25)), (least, (least, least)))
        assert steepest == pytest.approx(0.5 / sqrt(least))


def test_without_doubt_the_moments_are_exact() -> None:
    rng = np.random.default_rng(34)
    for _ in range(50):
        d = rng.dirichlet(np.ones(5))
        x, y = rng.random((2, 5))
        two, each = np.stack(TwoOfOne.law(None, x)) @ d, np.stack(OneOfTwo.law(None, x, y)) @ d  # type: ignore[arg-type]
        value, (low, high) = variance_of(read(two, 0.0))
        assert [value, low, high] == pytest.approx([d @ x**2 - (d @ x) ** 2] * 3, abs=1e-6)
        value, (low, high) = covariance_of(read(each, 0.0))
        assert [value, low, high] == pytest.approx([d @ (x * y) - (d @ x) * (d @ y)] * 3, abs=1e-6)


# Slices.


def exponents(ones: Array, draws: int, bias: Array, *, up: bool) -> Array:
    """Return -log of the one-sided p-values: large if the bias is too large (up), or too small."""
    return np.asarray(-binom.logcdf(ones, draws, bias) if up else -binom.logsf(ones - 1, draws, bias))


def excess(y: float, terms: int) -> float:
    return float(sum(gammaincc(m, y) for m in range(1, terms + 1)))


@pytest.mark.parametrize("coins", [2, 3])
def test_excess_of_a_sum_of_exponents(coins: int) -> None:
    rng, draws, broken = np.random.default_rng(41), 8, 0
    counts = np.array(np.meshgrid(*[np.arange(draws + 1)] * coins)).reshape(coins, -1).T
    for _ in range(20):
        bias = rng.random(coins)
        weight = binom.pmf(counts, draws, bias).prod(axis=1)
        for up in (True, False):
            total = exponents(counts, draws, bias, up=up).sum(axis=1)
            for y in (0.5, 2.0, 5.0, 9.0):
                mean = float(weight @ np.maximum(total - y, 0))
                assert mean <= excess(y, coins) + SLACK
                broken += mean > excess(y, 1)  # as if there were one coin
    assert broken > 0


def test_the_tail_of_a_sum_is_the_formula_of_the_page_and_its_inverse() -> None:
    for x, coins in ((9.0, 2), (20.0, 6)):
        expected = min(1.0, min(excess(x - ahead, coins) / ahead for ahead in slices.AHEAD))
        assert slices.sum_tail(x, coins) == pytest.approx(expected, rel=1e-9)
        x = slices.sum_exponent(1e-5, coins)
        assert slices.sum_tail(x, coins) <= 1e-5 <= slices.sum_tail(x - 1e-6, coins)


def test_the_sum_of_exponents_at_the_posterior_mean() -> None:
    """Small samples from three values, asked in up to three slices: the posterior after all counts, written down."""
    rng, nearest = np.random.default_rng(44), 0.0
    for _ in range(20):
        rows, coins, mass = int(rng.integers(1, 4)), int(rng.integers(1, 4)), float(rng.choice([0.01, 0.1]))
        edges = np.array([0.0, *np.sort(rng.random(coins - 1)), 1.0])
        filled = np.clip((np.array([0.0, rng.random(), 1.0])[:, None] - edges[:-1]) / np.diff(edges), 0, 1)
        draws, population = rng.integers(1, 5, coins), rng.dirichlet(np.full(3, 0.5))
        samples = np.array(list(product(range(3), repeat=rows)))
        prior, bias = population[samples].prod(axis=1), mass + (1 - 2 * mass) * filled[samples].mean(axis=1)
        counts = np.array(list(product(*(range(each + 1) for each in draws))))
        joint = prior[:, None] * binom.pmf(counts[None], draws, bias[:, None, :]).prod(axis=2)
        chance = joint.sum(axis=0)
        mean = np.einsum("st,sc->tc", joint, bias) / chance[:, None]
        down = rng.integers(0, 2, coins).astype(bool)  # of a weighted sum: the lower tail where the weight is negative
        tails = np.where(down, binom.logsf(counts - 1, draws, mean), binom.logcdf(counts, draws, mean))
        for x in np.linspace(0.02, 12, 60):
            bound, found = slices.sum_tail(float(x), coins), float(chance[-tails.sum(axis=1) > x].sum())
            assert found <= bound + SLACK
            nearest = max(nearest, found / bound)
    assert nearest > 0.9


@pytest.mark.parametrize("signs", [(1, 1, 1), (-1, 1, 1)])
def test_the_largest_sum_holds_every_bias_that_the_exponents_allow(signs: tuple[int, ...]) -> None:
    rng, mass, x = np.random.default_rng(42), 0.01, 9.0
    reached, alone = 0.0, 0
    for _ in range(15):
        draws, truth = rng.integers(100, 900, 3), rng.random(3) ** 3
        ones = rng.binomial(draws, mass + (1 - 2 * mass) * truth)
        weights = np.array(signs) * rng.uniform(0.05, 1, 3)
        sums = slices.CoinSums(ones, draws, mass=mass, x=x)
        bound = sums.largest(weights)
        spread = np.sqrt((ones + 1) / draws) / np.sqrt(draws)
        tried = np.clip(ones / draws + rng.normal(size=(20_000, 3)) * 3 * spread, 1e-6, 1 - 1e-6)
        total = sum(exponents(ones[j], draws[j], tried[:, j], up=bool(signs[j] > 0)) for j in range(3))
        values = (np.clip((tried - mass) / (1 - 2 * mass), 0, 1) * weights).sum(axis=1)
        assert values[total <= x].max() <= bound + SLACK
        seen = float(weights @ np.clip((ones / draws - mass) / (1 - 2 * mass), 0, 1))
        reached = max(reached, (values[total <= x].max() - seen) / (bound - seen))
        equal = slices.CoinSums(ones, draws, mass=mass, x=x / 3)  # each coin with a third of it
        alone += values[total <= x].max() > sum(
            w * (high if w > 0 else low) for w, (low, high) in zip(weights, equal.each, strict=True)
        )
    assert reached > 0.9  # not much is given away
    assert alone > 0


def test_a_square_is_at_most_its_chords() -> None:
    rng = np.random.default_rng(43)
    for _ in range(50):
        cuts, c, v = np.array([0.0, *np.sort(rng.random(3)), 1.0]), rng.random(), rng.random(100)
        parts = np.clip((v[:, None] - cuts[:-1]) / np.diff(cuts), 0, 1)
        assert parts @ np.diff(cuts) == pytest.approx(v)
        assert np.all((v - c) ** 2 <= c**2 + parts @ np.diff((cuts - c) ** 2) + SLACK)


# Counts that contradict each other, or what rows can say: rarer than a miss, and no error.


COINS = [("exchange", "coins"), ("posterior", "coins"), ("information", "coins")]


@pytest.mark.parametrize(("guarantee", "mechanism"), [*COINS, ("gaussian", "gaussian")])
def test_counts_that_no_rows_explain_are_no_error(guarantee: str, mechanism: str) -> None:
    """Of two coins for one row, more than half of all pairs differ: the mean of (x - 1/2)^2 would be negative."""
    certain, cells, seen = planned(guarantee, mechanism).standing, JointCells(3), (0.98, 0.01)
    draws = certain.terms.rows_per_query
    if mechanism == "gaussian":
        release: Any = NoisyMeans(seen, draws, seen, 1e-6, 2.0**-40)
    else:
        counts = (draws // 100, draws - 2 * (draws // 100), draws // 100)
        release = Tally(seen, draws, counts, cells.reported)
    query: Any = SimpleNamespace(some_left_out=False)
    found = Read(query, release, certain, certain.laws(release, cells))
    for value, ends in (variance_of(found), deviation_of(variance_of(found))):
        one = Estimate.within((0.0, 1.0), min(1.0, max(0.0, value)), ends)
        assert 0 <= one.low <= one.high <= 0.5


@pytest.mark.parametrize("ones", [(20, 1_980, 20), (20, 1_980, 1_980), (1_980, 20, 1_980)])
@pytest.mark.parametrize("guarantee", ["exchange", "posterior"])
def test_slices_whose_counts_contradict_each_other_are_no_error(guarantee: str, ones: tuple[int, ...]) -> None:
    """As good as no row counts, by their own coins, while those of a slice say that all are full; or the reverse."""
    tallies = [Tally((one / 2_000,), 2_000, (2_000 - one, one), (1,)) for one in ones]
    found = planned(guarantee, "coins").standing.sliced(tallies, (0.0, 0.4, 1.0), some_left_out=True)
    one = Estimate.within((0.0, 1.0), 0.5, found)
    assert 0 <= one.low <= one.high <= 1
