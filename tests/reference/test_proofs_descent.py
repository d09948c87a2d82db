"""The theorems on descent, on runs small enough to write down completely.

Rows say 0 or 1, so a sample of n rows is its count of ones, and a run of T steps with ell coins each has (ell+1)^T
paths. `Descent` itself is replayed on every path; the law of a path given the sample is a product of laws of counts,
each a sum of ell independent coins. Every inequality of docs/proofs/descent.md is then checked for every sample, or
for every transcript, without simulation. SLACK only absorbs rounding. Each claim has a deliberately wrong variant that
is caught.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from holdfast.guarantees.mathematics import descent as theorems
from holdfast.guarantees.mathematics import privacy
from holdfast.optimize.descent import CoinChoice, Descent
from holdfast.optimize.gradient import CoinGradient
from holdfast.optimize.objective import Box, Ranges

Array = NDArray[np.float64]
SLACK = 1e-9
BETAS = (0.7, 0.3, 0.1, 0.01)
AVERAGES = theorems.AVERAGES
SIZES = [(2, 1, 4, 0.05), (4, 2, 3, 0.3), (3, 3, 2, 0.02), (4, 3, 1, 0.4)]  # rows, steps, coins, mass


@dataclass(frozen=True)
class Setting:
    """A loss of rows that say 0 or 1; `q` is the share of ones. Gradients lie in [-steepest, steepest]."""

    box: Box
    ranges: Ranges
    loss: Callable[[Any, Any], Any]
    slope: Callable[[Any, Any], Any]
    best: Callable[[Any], Any]

    @property
    def objective(self) -> Any:
        return SimpleNamespace(ranges=self.ranges, l2=0.0)

    @property
    def steepest(self) -> float:
        return self.ranges.lipschitz

    @property
    def apart(self) -> float:  # R
        low, high = self.ranges.values
        return min(high - low, self.steepest * self.box.diameter)

    def excess(self, x: Any, q: Any) -> Array:
        return np.asarray(self.loss(x, q) - self.loss(self.best(q), q))


def ranges(steepest: float, values: tuple[float, float], curvature: float) -> Ranges:
    return Ranges(np.array([-steepest]), np.array([steepest]), values, steepest, steepest, curvature)


SETTINGS = {
    "squared": Setting(  # (x - row)^2/2 on [0, 1]
        Box((0.0,), (1.0,)),
        ranges(1.0, (0.0, 0.5), 1.0),
        lambda x, q: (q * (1 - x) ** 2 + (1 - q) * x**2) / 2,
        lambda x, q: x - q,
        lambda q: q,
    ),
    "curved": Setting(  # (x - 0.4 - row/5)^2/2 on [0, 1]: steps 2/(H t) have the better bound
        Box((0.0,), (1.0,)),
        ranges(0.6, (0.0, 0.18), 1.0),
        lambda x, q: (q * (0.6 - x) ** 2 + (1 - q) * (0.4 - x) ** 2) / 2,
        lambda x, q: x - 0.4 - q / 5,
        lambda q: 0.4 + q / 5,
    ),
    "linear": Setting(  # (1 - 2 row) x on [-1/2, 1/2]
        Box((-0.5,), (0.5,)),
        ranges(1.0, (-0.5, 0.5), 0.0),
        lambda x, q: (1 - 2 * q) * x,
        lambda x, q: 1 - 2 * q + 0 * x,
        lambda q: np.where(np.asarray(q) > 0.5, 0.5, -0.5),
    ),
}


class Replay:
    """An oracle that gives the gradients of one path of coin counts, and remembers where it was asked."""

    def __init__(self, coins: CoinGradient, path: tuple[int, ...]) -> None:
        self.coins, self.path = coins, path
        self.points: list[float] = []
        self.given: list[float] = []
        self.ell, self.charge, self.rows_read = coins.ell, coins.charge, coins.rows_read
        self.moment, self.largest, self.spread = coins.moment, coins.largest, coins.spread

    def __call__(self, point: Array, source: Any, rng: Any) -> Array:
        steepest = self.coins.objective.ranges.lipschitz
        gradient = steepest * debiased(self.path[len(self.points)], self.ell, self.coins.mass)
        self.points.append(float(point[0]))
        self.given.append(gradient)
        return np.array([gradient])


def debiased(count: Any, ell: int, mass: float) -> Any:
    """A gradient in [-1, 1] from its coins, as the code does it."""
    return -1 + 2 * (count / ell - mass) / (1 - 2 * mass)


def count_law(low: float, high: float, shares: Array, ell: int, mass: float) -> Array:
    """The law of the count of ones, (counts, samples): rows fill `low` or, a share of them, `high` of the range.

    Coin i asks how much of slice i is filled.
    """
    pieces = np.arange(ell)
    empty, full = (np.clip(ell * each - pieces, 0, 1)[:, None] for each in (low, high))
    law = np.vstack([np.ones_like(shares), np.zeros((ell, shares.size))])
    for bias in mass + (1 - 2 * mass) * (empty * (1 - shares) + full * shares):
        law = law * (1 - bias) + np.vstack([np.zeros_like(shares), law[:-1] * bias])
    return law


@dataclass(frozen=True)
class Runs:
    """All paths of one descent: one line per path, one column per sample."""

    setting: Setting
    descent: Descent
    shares: Array  # q(S) of every sample, by its count of ones
    points: Array  # (paths, T)
    given: Array  # (paths, T): the released gradients
    law: Array  # (paths, samples)
    found: Array  # (paths,)
    regret: Array  # (paths,)

    @property
    def excess(self) -> Array:
        return self.setting.excess(self.found[:, None], self.shares)

    @property
    def weights(self) -> Array:
        return theorems.weights(self.descent.average, self.descent.iterations)

    @property
    def noise(self) -> Array:  # xi_t: (paths, T, samples)
        return np.asarray(self.given[:, :, None] - self.setting.slope(self.points[:, :, None], self.shares))

    @property
    def away(self) -> Array:  # v_t = x_t - x*
        return np.asarray(self.points[:, :, None] - self.setting.best(self.shares))

    def tail_sum(self, kept: float) -> Array:
        """X: (paths, samples); `kept` is the curvature that stays with the noise, H/4."""
        return np.asarray(np.tensordot(-self.noise * self.away - kept * self.away**2, self.weights, axes=(1, 0)))

    def likely(self, beta: float) -> Array:
        return np.array([self.descent.likely_excess(beta, regret) for regret in self.regret])


@lru_cache(maxsize=64)
def runs_of(kind: str, n: int, steps: int, ell: int, mass: float, average: str) -> Runs:
    setting = SETTINGS[kind]
    shares = np.arange(n + 1) / n
    coins = CoinGradient(setting.objective, ell, mass)
    points, given, laws, found, regret = [], [], [], [], []
    for path in product(range(ell + 1), repeat=steps):
        oracle = Replay(coins, path)
        descent = Descent(setting.objective, setting.box, oracle, steps, average)
        run = descent.run(None, None)  # type: ignore[arg-type]
        law = np.ones_like(shares)
        for point, count in zip(oracle.points, path, strict=True):
            low, high = ((float(setting.slope(point, row)) / setting.steepest + 1) / 2 for row in (0.0, 1.0))
            law = law * count_law(low, high, shares, ell, mass)[count]
        laws.append(law)
        points.append(oracle.points)
        given.append(oracle.given)
        found.append(float(run.point[0]))
        regret.append(run.regret)
    arrays = (np.array(each) for each in (points, given, laws, found, regret))
    return Runs(setting, descent, shares, *arrays)


def everything() -> list[Runs]:
    return [runs_of(kind, *size, average) for kind in SETTINGS for size in SIZES for average in AVERAGES]


def samples_law(n: int, share: float) -> Array:
    return np.asarray(binom.pmf(np.arange(n + 1), n, share))


# The oracle


def moments_are_right(mass: float, estimate: Callable[[Any, int, float], Any], spread_mass: float) -> bool:
    """Unbiased, of the stated variance, bounded by the stated number, and sub-Gaussian with the stated spread."""
    right = True
    for ell, low, high, share in product((1, 3, 6), (0.0, 0.2, 0.55), (0.3, 0.7, 1.0), (0.0, 0.3, 0.5, 1.0)):
        counts = np.arange(ell + 1)
        law = count_law(low, high, np.array([share]), ell, mass)[:, 0]
        said, truth = estimate(counts, ell, mass), -1 + 2 * (low + share * (high - low))
        second = theorems.coin_moment(abs(truth), [2.0], ell=ell, mass=mass) ** 2
        s = theorems.spread([2.0], ell=ell, mass=spread_mass)
        right &= bool(abs(law @ said - truth) < SLACK and law @ said**2 <= second + SLACK)
        right &= bool(np.abs(said).max() <= theorems.largest_gradient([-1.0], [1.0], mass=mass) + SLACK)
        for tilt in (-3.0, -0.5, -0.01, 0.01, 0.5, 3.0):
            right &= bool(law @ np.exp(tilt * (said - truth)) <= math.exp(tilt**2 * s**2 / 2) + SLACK)
    return right


@pytest.mark.parametrize("mass", [0.01, 0.2, 0.45])
def test_debiased_coins(mass: float) -> None:
    assert moments_are_right(mass, debiased, mass)
    assert not moments_are_right(mass, lambda c, ell, a: np.clip(debiased(c, ell, a), -1, 1), mass)
    assert not moments_are_right(mass, lambda c, ell, a: debiased(c, ell, 0.0), mass)
    assert not moments_are_right(mass, debiased, 0.0)  # the spread must know of the debiasing


@pytest.mark.parametrize("mass", [0.01, 0.2])
def test_slices_scatter_no_more_than_whole_coins(mass: float) -> None:
    """With the same mean and the same bounds; strictly less where rows differ or fill some slices only."""
    for ell, low, high, share in product((2, 5), (0.0, 0.3), (0.5, 1.0), (0.0, 0.4, 1.0)):
        counts, mean = np.arange(ell + 1), low + share * (high - low)
        sliced = count_law(low, high, np.array([share]), ell, mass)[:, 0]
        whole = binom.pmf(counts, ell, mass + (1 - 2 * mass) * mean)
        assert sliced @ counts == pytest.approx(whole @ counts)
        scatter = [law @ counts**2 - (law @ counts) ** 2 for law in (sliced, whole)]
        assert scatter[0] <= scatter[1] + SLACK
        if 0 < mean < 1 and (low, high) != (0.0, 1.0):
            assert scatter[0] < scatter[1]


# The excess on the rows


def test_expected_excess_for_every_sample() -> None:
    for runs in everything():
        assert runs.law.sum(axis=0) == pytest.approx(1.0, abs=SLACK)
        assert (runs.excess >= -SLACK).all()
        assert ((runs.law * runs.excess).sum(axis=0) <= runs.descent.expected_excess() + SLACK).all()


def test_rows_that_say_nothing_have_no_curvature() -> None:
    """Noise-free descent on m * 0 + (1 - m) (x - 1)^2/2 over [0, 1]: the curvature is 1 - m, not 1."""
    steps, said = 10_000, 0.1

    def excess(curvature: float) -> float:
        x, total = 0.0, 0.0
        for t in range(1, steps + 1):
            total += x
            x = min(1.0, max(0.0, x - theorems.step(1.0, curvature, t, 0.0) * said * (x - 1)))
        return said * (total / steps - 1) ** 2 / 2

    assert excess(said) <= theorems.strongly_convex_excess(said, said, steps)
    assert excess(1.0) > theorems.strongly_convex_excess(said, 1.0, steps)


def certificate_holds(runs: Runs, kept: float) -> bool:
    """Whether sum w_t (L_S(x_t) - min L_S) <= W regret + X on every path, for every sample; the average is better."""
    losses = np.tensordot(runs.setting.excess(runs.points[:, :, None], runs.shares), runs.weights, axes=(1, 0))
    total = runs.weights.sum()
    assert (total * runs.excess <= losses + SLACK).all()
    return bool((losses - total * runs.regret[:, None] <= runs.tail_sum(kept) + SLACK).all())


def before(runs: Runs) -> float:
    """The bound known beforehand, with the sure bound on gradients; for curved losses that of the plain average."""
    descent, largest = runs.descent, runs.descent.largest or 0.0
    if descent.curvature:
        return theorems.strongly_convex_excess(largest, descent.curvature, descent.iterations)
    diameter, average = descent.domain.diameter, descent.average
    return theorems.convex_excess(diameter, largest, descent.iterations, average=average)


def theorem_holds(runs: Runs, kept: float) -> bool:
    """Whether it bounds the excess up to X on every path, for every sample."""
    if not kept:
        return bool((runs.weights.sum() * (runs.excess - before(runs)) <= runs.tail_sum(0.0) + SLACK).all())
    steps = runs.descent.iterations
    plain = (-runs.noise * runs.away - kept * runs.away**2).sum(axis=1)
    losses = runs.setting.excess(runs.points[:, :, None], runs.shares)
    return bool((losses.sum(axis=1) <= steps * before(runs) + plain + SLACK).all())


def test_every_path_certifies_itself() -> None:
    """A deterministic inequality: the regret costs no probability of its own."""
    curved = set()
    for runs in everything():
        curvature = runs.descent.curvature
        curved.add(curvature > 0)
        assert certificate_holds(runs, curvature / 4)
        assert theorem_holds(runs, curvature / 4)
    assert curved == {False, True}


class Noiseless:
    """The gradient of (x - target)^2/2."""

    moment = largest = 1.0
    spread = 0.0

    def __init__(self, target: float) -> None:
        self.target = target

    def __call__(self, point: Array, source: Any, rng: Any) -> Array:
        return point - self.target


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("target", [0.1, 0.3, 0.9])
def test_certificates_do_not_depend_on_where_zero_is(average: str, target: float) -> None:
    """The same run far from zero, where squares of points have no digits left for how far they are apart."""

    def certified(shift: float) -> tuple[float, float]:
        box = Box((shift,), (shift + 1.0,))
        descent = Descent(SETTINGS["squared"].objective, box, Noiseless(shift + target), 64, average)  # type: ignore[arg-type]
        assert descent.curvature == 1.0
        run = descent.run(None, None)  # type: ignore[arg-type]
        return run.regret, float(run.point[0] - shift - target) ** 2 / 2

    near = certified(0.0)
    assert near[0] >= near[1] - SLACK
    for shift in (2.0**20, 2.0**27):  # points there are multiples of 2^-25
        far = certified(shift)
        assert far == pytest.approx(near, abs=1e-6)
        assert far[0] >= far[1] - 1e-6


def test_curvature_cannot_be_spent_twice() -> None:
    """With all of H in the regret, or three quarters of it with the noise, the certificate is wrong."""
    runs = [runs for runs in everything() if runs.descent.curvature]
    assert not all(certificate_holds(each, 3 * each.descent.curvature / 4) for each in runs)

    def greedy(each: Runs) -> bool:  # the maximum over u of <g, x - u> - H/2 |x - u|^2 instead of H/4
        w, h = each.weights, 2 * each.descent.curvature
        total, mean = each.given @ w, each.points @ w / w.sum()
        inner, scatter = (each.given * each.points) @ w, (each.points**2) @ w - w.sum() * mean**2
        regret = [
            theorems.released_regret_strong(i, [t], [m], s, w.sum(), h)
            for i, t, m, s in zip(inner, total, mean, scatter, strict=True)
        ]
        excess = w.sum() * (each.excess - np.array(regret)[:, None])
        return bool((excess <= each.tail_sum(h / 8) + SLACK).all())

    assert not all(greedy(each) for each in runs)


def tilts_and_room(runs: Runs, s: float) -> tuple[list[float], float]:
    """The lambdas of the proof, and v with E[exp(lambda X) | S] <= exp(lambda^2 v)."""
    curvature, w = runs.descent.curvature, runs.weights
    if curvature:
        return [curvature / (2 * s**2 * w.max())], 0.0
    room = s**2 * runs.descent.domain.diameter**2 * float(w @ w) / 2
    return [math.sqrt(math.log(1 / beta) / room) for beta in BETAS], room


def noise_is_paid_for(runs: Runs, *, s: float) -> bool:
    """Whether E[exp(lambda X) | S] is at most what the tails are made of, for every sample."""
    tilts, room = tilts_and_room(runs, s)
    sums = runs.tail_sum(runs.descent.curvature / 4)
    return all(bool(((runs.law * np.exp(t * sums)).sum(axis=0) <= math.exp(t**2 * room) + SLACK).all()) for t in tilts)


def test_likely_excess_is_certificate_plus_markov() -> None:
    """The code gives the smaller certificate plus (log(1/beta) + lambda^2 v)/lambda; beta is halved where X differ."""
    for runs in everything():
        descent, w = runs.descent, runs.weights
        uneven = w.max() * len(w) / w.sum() if descent.curvature else 1.0
        events = 2 if descent.curvature and descent.average != "uniform" else 1
        tilts, room = tilts_and_room(runs, descent.gradient.spread)
        for beta, tilt in zip(BETAS, tilts * (len(BETAS) // len(tilts)), strict=True):
            tail = (math.log(events / beta) + tilt**2 * room) / tilt / w.sum()
            certified = np.minimum(before(runs) * uneven, runs.regret)
            assert runs.likely(beta) == pytest.approx(certified + tail, rel=1e-9)


def test_exponential_moments_of_the_noise() -> None:
    for runs in everything():
        assert noise_is_paid_for(runs, s=runs.descent.gradient.spread)
    for kind in SETTINGS:
        wrong = [runs_of(kind, *size, "uniform") for size in SIZES]
        assert not all(noise_is_paid_for(runs, s=runs.descent.gradient.spread / 3) for runs in wrong)


def misses(runs: Runs, bound: Array) -> float:
    """The chance of a larger excess on the rows, for the worst sample."""
    return float((runs.law * (runs.excess > bound[:, None] + SLACK)).sum(axis=0).max())


def posterior_misses(runs: Runs, bound: Array, share: float) -> float:
    """The chance that the posterior mean of the excess on the rows is larger, for this population."""
    joint = runs.law * samples_law(len(runs.shares) - 1, share)
    chance = joint.sum(axis=1)
    return float(chance[(joint * runs.excess).sum(axis=1) > (bound + SLACK) * chance].sum())


def test_likely_excess_and_its_posterior_mean() -> None:
    for runs, beta in product(everything(), BETAS):
        bound = runs.likely(beta)
        assert misses(runs, bound) <= beta
        assert all(posterior_misses(runs, bound, share) <= beta for share in (0.1, 0.5))


@pytest.mark.parametrize("kind", SETTINGS)
def test_the_regret_alone_is_no_bound(kind: str) -> None:
    """Coins that cancel look like a minimum."""
    runs = runs_of(kind, 4, 1, 4, 0.1, "uniform")
    assert (runs.descent.curvature > 0) == (kind != "linear")
    assert misses(runs, runs.regret) > 0.1
    assert posterior_misses(runs, runs.regret, 0.5) > 0.1


def test_weights_chosen_after_the_fact_are_not_covered() -> None:
    """The step whose own regret looks best is not the average that was declared."""
    runs = runs_of("linear", 4, 3, 2, 0.02, "uniform")
    own = runs.given * runs.points + np.abs(runs.given) / 2  # regret of each step by itself, on [-1/2, 1/2]
    picked = runs.points[np.arange(len(own)), own.argmin(axis=1)]
    excess = runs.setting.excess(picked[:, None], runs.shares)
    noise = -runs.noise * runs.away
    declared = noise.mean(axis=1)  # the X of the plain average
    assert (excess > own.min(axis=1)[:, None] + declared + SLACK).any()


def test_later_questions_take_nothing_back() -> None:
    """T is everything released: a second run, on a loss chosen by the first, and both posterior means hold at once."""
    n, steps, ell, mass = 4, 2, 2, 0.1
    first = runs_of("squared", n, steps, ell, mass, "suffix")
    second = {kind: runs_of(kind, n, steps, ell, mass, "uniform") for kind in SETTINGS}
    for share, beta in product((0.2, 0.5), BETAS):
        prior, one, two = samples_law(n, share), 0.0, 0.0
        for i, point in enumerate(first.found):
            then = second["linear" if point > 0.5 else "squared"]
            joint = prior * first.law[i] * then.law  # (paths of the second run, samples)
            chance = joint.sum(axis=1)
            one += chance[joint @ first.excess[i] > (first.likely(beta)[i] + SLACK) * chance].sum()
            two += chance[(joint * then.excess).sum(axis=1) > (then.likely(beta) + SLACK) * chance].sum()
        assert max(one, two) <= beta


# From the rows to the population


def posteriors(runs: Runs, share: float) -> tuple[Array, Array, Array]:
    """For every transcript: its chance, the share of ones under D_T, and chi^2(D || D_T)."""
    joint = runs.law * samples_law(len(runs.shares) - 1, share)
    chance = joint.sum(axis=1)
    mean = joint @ runs.shares / chance
    return chance, mean, (share - mean) ** 2 / (mean * (1 - mean))


def test_posterior_step_for_every_transcript() -> None:
    halved = []
    for runs, share in product(everything(), (0.1, 0.4, 0.5)):
        setting, curvature = runs.setting, runs.setting.ranges.curvature
        apart, steepest = setting.apart, setting.steepest
        chance, mean, chi = posteriors(runs, share)
        best = setting.best(share)
        moved = (setting.loss(runs.found, share) - setting.loss(best, share)) - (
            setting.loss(runs.found, mean) - setting.loss(best, mean)
        )  # phi(D) - D_T(phi): losses are linear in the share of ones
        near = steepest * np.abs(runs.found - best)  # a bound on |phi| by itself, as the section on curvature uses it
        assert (near <= steepest * setting.box.diameter + SLACK).all()
        for reach in (near, apart):
            assert (np.abs(moved) <= reach * np.sqrt(chi) + SLACK).all()
        halved.append(bool((np.abs(moved) <= near / 2 * np.sqrt(chi) + SLACK).all()))
        on_rows = (runs.law * samples_law(len(runs.shares) - 1, share) * runs.excess).sum(axis=1) / chance
        excess = setting.excess(runs.found, share)
        for e, expected, x in zip(excess, on_rows, chi, strict=True):
            for h in (0.0, curvature):
                step = math.sqrt(x) / 2
                assert e <= theorems.posterior_excess(expected, R=apart, lipschitz=steepest, H=h, step=step) + SLACK
    assert not all(halved)  # phi has a range of 2R: half of it is not enough


def nats(runs: Runs, share: float) -> float:
    """I(S;T), exactly; S enters by its count only."""
    prior = samples_law(len(runs.shares) - 1, share)
    marginal = runs.law @ prior
    return float((prior * runs.law * np.log(runs.law / marginal[:, None])).sum())


def test_information_step() -> None:
    short = []
    for kind, (n, steps, ell), share in product(SETTINGS, ((4, 1, 2), (8, 2, 2), (10, 1, 1)), (0.2, 0.5)):
        runs = runs_of(kind, n, steps, ell, 1 / n, "uniform")
        told = nats(runs, share)
        assert told <= privacy.session_nats(steps * ell, n=n)
        step = theorems.information_step(runs.setting.apart, nats=told, n=n)
        joint = runs.law * samples_law(n, share)
        population = joint.sum(axis=1) @ runs.setting.excess(runs.found, share)
        assert population <= (joint * runs.excess).sum() + step + SLACK
        # The analyst's worst function with values -1 and 1: its sign follows the transcript.
        chance, mean, _ = posteriors(runs, share)
        gap = float(chance @ (2 * np.abs(mean - share)))
        assert gap <= theorems.information_step(1.0, nats=told, n=n) + SLACK
        short.append(gap <= theorems.information_step(0.5, nats=told, n=n))
    assert not all(short)


def test_information_step_is_in_units_of_a_range_chosen_in_advance() -> None:
    """A loss that is large only when the coins were misleading: the ratio to R keeps the promise, the sum does not."""
    n, flips = 40, 6
    counts = np.arange(n + 1)
    law = binom.pmf(np.arange(flips + 1)[:, None], flips, 1 / n + (1 - 2 / n) * counts / n) * samples_law(n, 0.5)
    chance = law.sum(axis=1)
    gap = np.abs(2 * (law @ (counts / n) / chance - 0.5))  # of the function +-(2 row - 1), R = 1
    step = theorems.information_step(1.0, nats=privacy.session_nats(flips, n=n), n=n)
    assert chance @ gap <= step
    scale = np.where(np.arange(flips + 1) == flips, 1.0, 1e-6)  # R, chosen after the coins
    assert chance @ (scale * gap) > 1.5 * (chance @ scale) * step


# The choice among runs


def behind(points: tuple[float, float], draws: int, mass: float, share: float) -> tuple[float, Array, Array]:
    """How far the chosen of two points is behind the best on the rows: the exact law of a choice by coins."""
    setting = SETTINGS["linear"]
    losses = np.array([float(setting.loss(x, share)) for x in points])
    counts = np.arange(draws + 1)
    laws = [binom.pmf(counts, draws, mass + (1 - 2 * mass) * (each + 0.5)) for each in losses]
    second = float((laws[0][:, None] * laws[1] * (counts[:, None] > counts)).sum())  # ties go to the first
    chances = np.array([1 - second, second])
    short = losses - losses.min()
    return float(chances @ short), chances, short


def test_choice_by_coins() -> None:
    caught = []
    for draws, mass, share in product((1, 5, 40), (0.02, 0.3, 0.48), (0.0, 0.3, 1.0)):
        contest: Any = SimpleNamespace(width=1.0)
        choice = CoinChoice(contest, 2, draws, mass)
        expected, chances, short = behind((0.4, -0.5), draws, mass, share)
        assert expected <= choice.loss() + SLACK
        for beta in BETAS:
            assert chances[short > choice.loss(beta)].sum() <= beta
        unflipped = CoinChoice(contest, 2, draws, 0.0)
        caught.append(any(chances[short > unflipped.loss(beta)].sum() > beta for beta in BETAS))
    assert any(caught)


def distances_hold(distance: Callable[[float, float], float]) -> bool:
    """Compare, on a grid, with H/2 x^2 + s |x - m| + g x over [-1, 1]: convex beside the curvature, with a corner."""
    points = np.linspace(-1, 1, 401)
    for curved, s, m, g in product((0.5, 2.0), (0.0, 1.0), (-0.3, 0.6), (-3.0, -0.4, 0.0, 1.0)):
        loss = curved / 2 * points**2 + s * np.abs(points - m) + g * points
        best = int(loss.argmin())
        for point, excess in zip(points, loss - loss[best], strict=True):
            if abs(point - points[best]) > distance(float(excess), curved) + 0.011:  # the grid is 0.005 wide
                return False
    return True


def test_strong_convexity_keeps_the_best_point_near() -> None:
    assert distances_hold(theorems.distance_from_minimizer)
    assert not distances_hold(lambda excess, curved: math.sqrt(excess / curved))


def test_expected_excess_from_a_likely_one_is_sharp() -> None:
    """A session that is off by `most` with probability beta, and else by `likely`, has very nearly that mean."""
    for likely, beta, most in product((0.1, 0.5), (0.01, 0.05), (1.0, 3.0)):
        mean = (1 - beta) * likely + beta * most
        bound = theorems.expected_from_likely(likely, beta=beta, most=most)
        assert mean <= bound <= mean + beta * likely + 1e-15
        assert mean > likely  # the bound without beta fails
