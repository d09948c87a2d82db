"""Moments and pairs: every step of docs/proofs/moments.md on cases written down; wrong versions must fail."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from math import inf, sqrt

import mpmath
import numpy as np
import pytest
from scipy.special import gammaincc
from scipy.stats import binom

from examples import examples
from ghost_worlds import Array, World, farthest, sessions, standing
from holdfast.guarantees.exchange import Exchange
from holdfast.guarantees.mathematics import exchange, moments
from holdfast.guarantees.mathematics.moments import QuadraticForm
from holdfast.questions import moments as asked
from holdfast.questions.moments import (
    Ranged,
    _in_units,
    correlation_of,
    covariance_of,
    deviation_of,
    slope_of,
    unequal,
    variance_of,
)
from holdfast.questions.stages import Found, Stages
from holdfast.session.session import Session

SLACK = 1e-8
Interval = tuple[float, float]


# Quadratic functions.


def random_form(rng: np.random.Generator) -> QuadraticForm:
    return QuadraticForm(
        *(rng.normal(size=5) * (rng.random(5) < 0.7)).tolist(), (float(rng.random()), float(rng.random()))
    )


def test_a_quadratic_function_is_extreme_where_the_page_says() -> None:
    rng, inside = np.random.default_rng(1), 0
    for _ in range(200):
        form, (a, b, c, d) = random_form(rng), np.sort(rng.normal(size=4)).tolist()
        low, high = form.over((a, c), (b, d))
        values = form.at(*np.meshgrid(np.linspace(a, c, 101), np.linspace(b, d, 101)))
        assert low - SLACK <= values.min() <= low + 0.01 * (high - low) + SLACK
        assert high - 0.01 * (high - low) - SLACK <= values.max() <= high + SLACK
        corners = [form.at(x, y) for x, y in product((a, c), (b, d))]
        inside += low < min(corners) - 1e-6 or high > max(corners) + 1e-6  # the corners alone are not enough
    assert inside > 20


def test_a_central_moment_is_that_about_any_point_less_what_the_means_are_off() -> None:
    rng, off = np.random.default_rng(2), 0
    for _ in range(100):
        d, (x, y) = rng.dirichlet(np.ones(5)), rng.random((2, 5))
        form = QuadraticForm(xx=rng.normal(), xy=rng.normal(), yy=rng.normal())
        a, b = rng.random(2)
        true = float(d @ form.at(x - d @ x, y - d @ y))
        mean, p, q = float(d @ form.at(x - a, y - b)), float(d @ x - a), float(d @ y - b)
        low, high = moments.central(form, (mean, mean), (p, p), (q, q))
        assert [low, high] == pytest.approx([true, true])
        low, high = moments.central(form, (mean - 0.1, mean + 0.1), (p - 0.1, p + 0.2), (q - 0.1, q + 0.05))
        assert low <= true - 0.1 + SLACK
        assert high >= true + 0.1 - SLACK
        off += abs(mean - true) > 1e-3  # without what the means are off
    assert off > 80


def test_a_quotient_is_at_least_what_every_numerator_and_denominator_make_it() -> None:
    rng, reached, wrong = np.random.default_rng(3), 0.0, 0
    for _ in range(300):
        top, m = rng.normal(), rng.uniform(0.1, 2)
        below = m - rng.random() * 0.3, m + rng.random() * 0.3
        tried = []
        for r in rng.normal(size=2):
            tried.append((float(r), (top - r * m - rng.random() * 0.5, top - r * m + rng.random() * 0.5)))
        low, high = moments.quotient(tried, below)
        assert low - SLACK <= top / m <= high + SLACK
        (r, (first, _)), *_ = tried
        if below[0] > 0:  # one alone is as narrow as can be
            alone = moments.quotient(tried[:1], below)
            assert alone[0] == pytest.approx(r + min(first / one for one in below))
            reached += 1
        wrong += max(r + first / below[1] for r, (first, _) in tried) > top / m + SLACK  # always by the larger one
    assert reached > 200
    assert wrong > 5


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


# Moments, from a posterior that is known exactly.


class Known(Stages):
    """Stages that know the means of all functions, and how wide to make their intervals."""

    def __init__(self, law: Array, points: Sequence[Array], interval: Callable[[Array, Interval], Interval]) -> None:
        super().__init__(measures=(), draws=100, sliced=True)
        self.law, self.points, self.interval = law, points, interval
        self.measures = tuple(points)  # type: ignore[assignment]

    def _values(self, form: QuadraticForm) -> Array:
        first, second = self.points[0], self.points[1] if len(self.points) > 1 else np.zeros(len(self.points[0]))
        values: Array = form.at(first - form.about[0], second - form.about[1])
        return values

    def rough(self, form: QuadraticForm, part: float = 0.0) -> float:
        return float(self.law @ self._values(form.moved(self.centers)))

    def deviation(self, center: float, part: float) -> float:
        return float(self.law @ abs(self.points[0] - center))

    def certain(self, form: QuadraticForm, draws: int, cuts: Sequence[float] | None = None) -> Found:
        values = self._values(form)
        low, high = form.range
        return float(self.law @ values), self.interval(values, (min(0.0, low), max(0.0, high)))


def true_moments(d: Array, x: Array, y: Array) -> tuple[float, float, float, float]:
    """Return variance, covariance, correlation and slope; nan where there is none."""
    one, other = float(d @ x**2 - (d @ x) ** 2), float(d @ y**2 - (d @ y) ** 2)
    both = float(d @ (x * y) - (d @ x) * (d @ y))
    exists = min(one, other) > 1e-12
    return one, both, both / sqrt(one * other) if exists else np.nan, both / one if one > 1e-12 else np.nan


MOMENTS = (variance_of, covariance_of, correlation_of, slope_of)


def ends_of(which: int, law: Array, x: Array, y: Array, interval: Callable[[Array, Interval], Interval]) -> Interval:
    points = (x,) if which == 0 else (x, y)
    (_, ends), (low, high) = MOMENTS[which](Known(law, points, interval))
    return max(low, ends[0]), min(high, ends[1])


def by_theorem(d_t: Array, j: float) -> Callable[[Array, Interval], Interval]:
    def interval(values: Array, within: Interval) -> Interval:
        (least, most), mean = within, float(d_t @ values)
        at = min(1.0, max(0.0, (mean - least) / (most - least)))
        return tuple(least + (most - least) * end(at, j) for end in (exchange.lo, exchange.hi))  # type: ignore[return-value]

    return interval


def test_moments_for_every_transcript() -> None:
    rng, used = np.random.default_rng(33), 0
    for world in worlds(False):
        d_t, js = posterior(world)
        d, points = world.populations[0], len(world.populations[0])
        x, y = rng.random((2, points)).round(int(rng.integers(0, 3)))
        true = true_moments(d, x, y)
        for t, j in enumerate(js):
            if not j < 1:
                continue
            for which, value in enumerate(true):
                if not np.isnan(value):
                    used += 1
                    low, high = ends_of(which, d_t[:, t], x, y, by_theorem(d_t[:, t], float(j)))
                    assert low - 1e-7 <= value <= high + 1e-7
    assert used > 1_000


def moment_misses(*, wrong: float = 1.0) -> tuple[int, float]:
    """Return how many moments of populations at the border are outside, and how near they come; `wrong` times J."""
    rng, missed, nearest = np.random.default_rng(36), 0, 0.0
    for _ in range(120):
        points, j = int(rng.integers(3, 8)), float(rng.choice([0.001, 0.02, 0.15]))
        law = rng.dirichlet(np.full(points, float(rng.choice([0.3, 1.0, 5.0])))) * (1 - 1e-5) + 1e-5 / points
        x, y = rng.random((2, points)) ** rng.choice([1, 4]) if rng.random() < 0.6 else rng.integers(0, 2, (2, points))
        guarantee = standing(j * wrong)

        def interval(values: Array, within: Interval, law: Array = law, guarantee: Exchange = guarantee) -> Interval:
            mean = float(law @ values)
            second = float(law @ (values - mean) ** 2)
            low, high = guarantee.spread_out((0.0, 0.0), (within[0] - mean, within[1] - mean), second)
            return mean + low, mean + high

        for sign, (which, (of_x, of_y)) in product((1, -1), enumerate(((x, x), (x, y), (x, y), (x, y)))):
            d = farthest(law, sign * (of_x - law @ of_x) * (of_y - law @ of_y), j)
            true, center = (true_moments(one, x, y)[which] for one in (d, law))
            if np.isnan(true) or np.isnan(center):
                continue
            low, high = ends_of(which, law, x, y, interval)
            missed += not low - 1e-8 <= true <= high + 1e-8
            if abs(true - center) > 1e-6:
                nearest = max(nearest, abs(true - center) / max(high - center, center - low))
    return missed, nearest


def test_moments_of_every_population_that_the_theorem_allows() -> None:
    missed, nearest = moment_misses()
    assert missed == 0
    assert nearest > 0.7  # not much is given away
    assert moment_misses(wrong=0.3)[0] > 0


def test_moments_about_other_numbers_than_the_true_ones() -> None:
    """What was seen is of another law: means, deviations and quotients that are looked at are all somewhat wrong."""
    rng, above = np.random.default_rng(35), 0
    for _ in range(150):
        d, other = rng.dirichlet(np.ones(5), size=2)
        other = 0.7 * d + 0.3 * other
        x, y = rng.random((2, 5))
        true = true_moments(d, x, y)

        def interval(values: Array, within: Interval, d: Array = d) -> Interval:
            mean = float(d @ values)
            return mean - rng.random() * 0.002, mean + rng.random() * 0.002

        for which, value in enumerate(true):
            low, high = ends_of(which, other, x, y, interval)
            assert low - 1e-7 <= value <= high + 1e-7
        above += d @ (x - other @ x) ** 2 > true[0] + 1e-3  # an upper end, but no lower one
    assert above > 20


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


def test_the_arithmetic_mean_of_two_numbers_over_the_geometric_one() -> None:
    rng, wrong = np.random.default_rng(38), 0
    for _ in range(200):
        first, second = np.sort(rng.uniform(0.1, 2, (2, 2))).tolist()
        low, high = unequal(tuple(first), tuple(second))
        one, other = np.meshgrid(np.linspace(*first, 60), np.linspace(*second, 60))
        values = (one + other) / 2 / np.sqrt(one * other)
        assert low - SLACK <= values.min() <= low + 0.02
        assert high * 0.999 - SLACK <= values.max() <= high + SLACK
        wrong += values.max() > 1 + 1e-3  # leaving it out
    assert wrong > 100
    assert unequal((0.0, 1.0), (0.5, 1.0)) == (1.0, inf)


def test_a_slope_is_as_steep_as_a_range_that_is_far_too_wide_makes_it() -> None:
    """Values up to 100, declared within a million: in [0, 1] the slope is 15,000, and coins see no spread."""
    x = np.arange(200_000) % 101
    true = np.cov(x, x > 50)[0, 1] / x.var()
    with Session({"x": x.astype(float), "y": x > 50}, seed=1, queries=20, guarantee="exchange") as session:
        found = session.slope("x", "y", within=(0, 1e6))
    assert found.low <= true <= found.high
    assert len(repr(found)) < 200


def without_doubt(d: Array) -> Callable[[Array, Interval], Interval]:
    return lambda values, within: (float(d @ values), float(d @ values))


def test_without_doubt_the_moments_are_exact() -> None:
    rng = np.random.default_rng(34)
    for _ in range(50):
        d, (x, y) = rng.dirichlet(np.ones(5)), rng.random((2, 5))
        for which, value in enumerate(true_moments(d, x, y)):
            assert ends_of(which, d, x, y, without_doubt(d)) == pytest.approx((value, value), abs=1e-6)


def rounded_inwards(moment: Callable[[Stages], Ranged], kind: str, unit: float) -> int:
    """Return how many moments are outside of their own ends, in worlds whose means are exact in double precision.

    All values and probabilities are multiples of 1/16 or 1/32, so that the ends are only off by the roundings of what
    is worked out of means: roots, quotients and units.
    """
    rng, missed = np.random.default_rng(39), 0
    for _ in range(60):
        law, x, y = rng.multinomial(32, [0.25] * 4) / 32, *rng.integers(0, 17, (2, 4)) / 16
        with mpmath.workdps(60):
            d, a, b = (np.array(list(map(mpmath.mpf, values.tolist()))) for values in (law, x, y))
            a, b = a - d @ a, b - d @ b
            one, other, both = d @ a**2, d @ b**2, d @ (a * b)
            if not (one and other):
                continue
            found, within = moment(Known(law, (x, y)[: 1 + (kind in ("correlation", "slope"))], without_doubt(law)))
            estimate, _ = _in_units(found, within, unit, rounded=False)
            moments = {"variance": one, "std": mpmath.sqrt(one), "slope": both / one}
            true = unit * (moments | {"correlation": both / mpmath.sqrt(one * other)})[kind]
            missed += not mpmath.mpf(estimate.low) <= true <= mpmath.mpf(estimate.high)
    return missed


@pytest.mark.parametrize(
    ("moment", "kind", "unit"),
    [
        (variance_of, "variance", 0.1),
        (deviation_of, "std", 1.0),
        (correlation_of, "correlation", 1.0),
        (slope_of, "slope", 0.3),
    ],
)
def test_ends_are_rounded_outwards(
    moment: Callable[[Stages], Ranged], kind: str, unit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rounded_inwards(moment, kind, unit) == 0
    monkeypatch.setattr(asked, "ROUNDING", 0.0)  # as the machine rounds: to the nearest
    assert rounded_inwards(moment, kind, unit) > 10


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
        expected = min(1.0, min(excess(x - ahead, coins) / ahead for ahead in moments.AHEAD))
        assert moments.sum_tail(x, coins) == pytest.approx(expected, rel=1e-9)
        x = moments.sum_exponent(1e-5, coins)
        assert moments.sum_tail(x, coins) <= 1e-5 <= moments.sum_tail(x - 1e-6, coins)


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
            bound, found = moments.sum_tail(float(x), coins), float(chance[-tails.sum(axis=1) > x].sum())
            assert found <= bound + SLACK
            nearest = max(nearest, found / bound)
    assert nearest > 0.9


def test_the_sum_of_exponents_of_slices_that_a_pilot_chose() -> None:
    """As above, where the count of a pilot decides where to cut: the posterior is that after the pilot, too.

    Exponents at the mean before the slices were asked, after the pilot alone, are not bounded: the mutant.
    """
    rng, nearest, wrong = np.random.default_rng(45), 0.0, 0
    for _ in range(20):
        rows, mass = int(rng.integers(1, 4)), float(rng.choice([0.01, 0.1]))
        values, pilot = np.array([0.0, rng.random(), 1.0]), int(rng.integers(1, 4))
        draws, population = rng.integers(1, 5, 2), rng.dirichlet(np.full(3, 0.5))
        samples = np.array(list(product(range(3), repeat=rows)))
        before = population[samples].prod(axis=1)
        seen = mass + (1 - 2 * mass) * values[samples].mean(axis=1)
        counts = np.array(list(product(*(range(each + 1) for each in draws))))
        chances, exponents_at, mutants = [], [], []
        for piloted in range(pilot + 1):
            prior, cut = before * binom.pmf(piloted, pilot, seen), rng.random()  # another cut for every count
            edges = np.array([0.0, cut, 1.0])
            filled = np.clip((values[:, None] - edges[:-1]) / np.diff(edges), 0, 1)
            bias = mass + (1 - 2 * mass) * filled[samples].mean(axis=1)
            joint = prior[:, None] * binom.pmf(counts[None], draws, bias[:, None, :]).prod(axis=2)
            chance = joint.sum(axis=0)
            mean = np.einsum("st,sc->tc", joint, bias) / chance[:, None]
            earlier = np.broadcast_to((prior @ bias) / prior.sum(), mean.shape)
            chances.append(chance)
            exponents_at.append(-binom.logcdf(counts, draws, mean).sum(axis=1))
            mutants.append(-binom.logcdf(counts, draws, earlier).sum(axis=1))
        chance, exponent, mutant = (np.concatenate(each) for each in (chances, exponents_at, mutants))
        assert chance.sum() == pytest.approx(1)
        for x in np.linspace(0.02, 12, 60):
            bound, found = moments.sum_tail(float(x), 2), float(chance[exponent > x].sum())
            assert found <= bound + SLACK
            nearest = max(nearest, found / bound)
            wrong += float(chance[mutant > x].sum()) > bound
    assert nearest > 0.5
    assert wrong > 0


def test_slices_or_the_zeros_and_ones_of_a_group_whichever_a_pilot_chose() -> None:
    """Draws from small samples, some of whose rows do not count: two slices, or draws with three outcomes.

    Each has one statement here, about the posterior after the pilot and its own draws, that fails with a probability of
    at most its level; so whichever a pilot chooses does. Statements about the posterior after the pilot alone do not:
    the mutant.
    """
    rng, nearest, wrong = np.random.default_rng(46), 0.0, 0
    levels = np.geomspace(0.003, 0.9, 40)
    two, one = (np.array([moments.sum_exponent(float(each), coins) for each in levels]) for coins in (2, 1))
    for _ in range(40):
        rows, mass = int(rng.integers(1, 3)), 0.01
        values, pilot = np.array([np.nan, rng.random(), 1.0]), int(rng.integers(1, 4))
        population, (first, second, whole) = rng.dirichlet(np.full(3, 0.5)), rng.integers(2, 12, 3)
        samples = np.array(list(product(range(3), repeat=rows)))
        before, inside = population[samples].prod(axis=1), ~np.isnan(values)
        seen, cut = mass + (1 - 2 * mass) * inside[samples].mean(axis=1), rng.random()
        filled = np.stack([np.clip(values / cut, 0, 1), np.clip((values - cut) / (1 - cut), 0, 1)], axis=1)
        coins = mass + (1 - 2 * mass) * np.where(inside[:, None], filled, 0.0)[samples].mean(axis=1)
        third = 2 * mass + (1 - 3 * mass) * inside[samples].mean(axis=1)  # a draw lands inside, as zero or one
        pairs, counts = np.array(list(product(range(first + 1), range(second + 1)))), np.arange(whole + 1)
        chosen, mutant = np.zeros(levels.size), np.zeros(levels.size)
        for piloted in range(pilot + 1):
            prior = before * binom.pmf(piloted, pilot, seen)
            in_slices = binom.pmf(pairs[None], [first, second], coins[:, None, :]).prod(axis=2)
            in_whole = binom.pmf(counts[None], whole, third[:, None])
            for later in (True, False):
                if piloted % 2:
                    chance = prior @ in_whole
                    share = (prior * third) @ in_whole / chance if later else prior @ third / prior.sum()
                    failed = (-binom.logcdf(counts, whole, share) > one[:, None]) @ chance
                else:
                    chance = prior @ in_slices
                    mean = in_slices.T @ (prior[:, None] * coins) / chance[:, None]
                    mean = mean if later else np.broadcast_to(prior @ coins / prior.sum(), mean.shape)
                    failed = (-binom.logcdf(pairs, [first, second], mean).sum(axis=1) > two[:, None]) @ chance
                chosen, mutant = (chosen + failed, mutant) if later else (chosen, mutant + failed)
        assert np.all(chosen <= levels + SLACK)
        nearest, wrong = max(nearest, float((chosen / levels).max())), wrong + int((mutant > levels).sum())
    assert nearest > 0.3
    assert wrong > 0


@pytest.mark.parametrize("signs", [(1, 1, 1), (-1, 1, 1)])
def test_the_largest_sum_holds_every_bias_that_the_exponents_allow(signs: tuple[int, ...]) -> None:
    rng, mass, x = np.random.default_rng(42), 0.01, 9.0
    reached, alone = 0.0, 0
    for _ in range(15):
        draws, truth = rng.integers(100, 900, 3), rng.random(3) ** 3
        ones = rng.binomial(draws, mass + (1 - 2 * mass) * truth)
        weights = np.array(signs) * rng.uniform(0.05, 1, 3)
        sums = moments.CoinSums(ones, draws, mass=mass, x=x)
        bound = sums.largest(weights)
        spread = np.sqrt((ones + 1) / draws) / np.sqrt(draws)
        tried = np.clip(ones / draws + rng.normal(size=(20_000, 3)) * 3 * spread, 1e-6, 1 - 1e-6)
        total = sum(exponents(ones[j], draws[j], tried[:, j], up=bool(signs[j] > 0)) for j in range(3))
        values = (np.clip((tried - mass) / (1 - 2 * mass), 0, 1) * weights).sum(axis=1)
        assert values[total <= x].max() <= bound + SLACK
        seen = float(weights @ np.clip((ones / draws - mass) / (1 - 2 * mass), 0, 1))
        reached = max(reached, (values[total <= x].max() - seen) / (bound - seen))
        equal = moments.CoinSums(ones, draws, mass=mass, x=x / 3)  # each coin with a third of it
        alone += values[total <= x].max() > sum(
            w * (high if w > 0 else low) for w, (low, high) in zip(weights, equal.each, strict=True)
        )
    assert reached > 0.9  # not much is given away
    assert alone > 0


def test_the_square_of_a_sliced_number_has_two_regions() -> None:
    """Slices that raise it and slices that lower it: which is which depends on counts, so there are two regions.

    Biases are tried that either of the declared sums of exponents allows, all coins too low or all too high. One region
    for both signs would leave some of their squares out.
    """
    rng, mass, x, wrong = np.random.default_rng(44), 0.01, 9.0, 0
    for _ in range(15):
        draws, cuts = rng.integers(200, 900, 3), np.array([0.0, 0.2, 0.5, 1.0])
        ones = rng.binomial(draws, mass + (1 - 2 * mass) * np.sort(rng.random(3))[::-1])
        rise = np.diff((cuts - 0.45) ** 2)  # falls, then grows
        sums = moments.CoinSums(ones, draws, mass=mass, x=x)
        bound = sums.largest(np.maximum(rise, 0)) + sums.largest(np.minimum(rise, 0))
        tried = np.clip(ones / draws + rng.normal(size=(20_000, 3)) * 4 / np.sqrt(draws) * 0.5, 1e-6, 1 - 1e-6)
        up, down = (sum(exponents(ones[j], draws[j], tried[:, j], up=way) for j in range(3)) for way in (True, False))
        allowed = (up <= x) & (down <= x)
        values = (np.clip((tried - mass) / (1 - 2 * mass), 0, 1) @ rise)[allowed]
        assert values.max() <= bound + SLACK
        wrong += values.max() > sums.largest(rise) + SLACK
    assert wrong > 0


def test_a_square_is_at_most_its_chords() -> None:
    rng = np.random.default_rng(43)
    for _ in range(50):
        cuts, c, v = np.array([0.0, *np.sort(rng.random(3)), 1.0]), rng.random(), rng.random(100)
        parts = np.clip((v[:, None] - cuts[:-1]) / np.diff(cuts), 0, 1)
        assert parts @ np.diff(cuts) == pytest.approx(v)
        assert np.all((v - c) ** 2 <= c**2 + parts @ np.diff((cuts - c) ** 2) + SLACK)
