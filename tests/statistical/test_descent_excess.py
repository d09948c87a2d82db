"""Does the excess fall with steps, coins and rows as the theorems say, and do the bounds hold?  Seeded.

Slopes. The excess of `MeanLoss` at theta is |theta - mean|^2/2, a sum of d nearly normal squares, so the average of R
runs has relative deviation sqrt(2/(d R)), and the slope of its logarithm over three points a factor 4 apart has
deviation sqrt(2/(d R))/(sqrt(2) log 4). TOLERANCE is Z times that, FALSE_ALARM for all slopes together; d R is 240,
and 120 for d = 1. The strongly convex theorem, 1/T up to a logarithm, is sharp here, for d from 1 to 100: slope -1. So
is the variance of the coins, 1/(ell T), for signs: half of their slices toss fair coins, whatever ell is. The convex
theorem, 1/sqrt(T), is sharp for the median of a population of which three quarters have the very same value: the point
lives on one side of it, a step's length away, and averages do not take that back. The excess there has deviation below
its mean, so TOLERANCE suffices: slope -1/2, from both sides. Elsewhere that theorem promises at least -1/2. Steps that
shrink too fast or not at all, and a descent that never uses more than one coin, are caught.

Bounds. `likely_excess(beta)` fails with probability at most beta for each run: the number of failures in W runs is
compared with the binomial law, one-sided.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom, norm

import holdfast as hf
from holdfast.guarantees.mathematics import descent as theorems
from holdfast.lab.baselines import FullGradient
from holdfast.optimize.descent import Descent
from holdfast.optimize.gradient import CoinGradient
from holdfast.optimize.objective import Ball, Box, OwnObjective
from own_losses import MeanLoss, MedianLoss, uniform_table
from plain_query import rows_of

FALSE_ALARM, D, R, MASS = 1e-6, 20, 12, 0.01
Z = norm.isf(FALSE_ALARM / 16)
TOLERANCE = Z * np.sqrt(2 / (D * R)) / (np.sqrt(2) * np.log(4))
WIDE, FEW = 120, 2  # as many coordinates and runs together, in fewer steps
COLUMNS = tuple(f"x{j}" for j in range(D))
BOX = Box((-1.0,) * D, (1.0,) * D)


def descent_on(source, loss, domain, iterations: int, ell: int) -> Descent:
    objective = OwnObjective.of(loss, source.schema, domain)
    return Descent(objective, domain, CoinGradient(objective, ell, MASS), iterations)


def slope(sizes, excesses) -> float:
    return float(np.polyfit(np.log(sizes), np.log(excesses), 1)[0])


@pytest.fixture(scope="module")
def shifted():
    data = uniform_table(5_000, D, 1, shift=0.3)
    return hf.open(data), np.column_stack(list(data.values()))


def mean_excess(run: Descent, source, target, rng, repeats: int = R) -> float:
    points = np.array([run.run(source, rng).point for _ in range(repeats)])
    return float(((points - target) ** 2).sum(axis=1).mean() / 2)


def strongly_convex_falls(d: int, seed: int) -> bool:
    data = uniform_table(5_000, d, 1, shift=0.3)
    source, target = hf.open(data), np.array([column.mean() for column in data.values()])
    rng, sizes, box = np.random.default_rng(seed), (8, 32, 128), Box((-1.0,) * d, (1.0,) * d)
    repeats = 120 if d == 1 else -(-D * R // d)
    runs = [descent_on(source, MeanLoss(tuple(data)), box, T, 4) for T in sizes]
    found = [mean_excess(run, source, target, rng, repeats) for run in runs]
    below = all(e <= run.expected_excess() for e, run in zip(found, runs, strict=True))
    assert all(run.curvature == 1 for run in runs)
    return below and abs(slope(sizes, found) + 1) <= TOLERANCE * np.sqrt(D * R / (d * repeats))


@pytest.mark.parametrize("d", [1, 10, 100])
def test_strongly_convex_excess_falls_with_the_steps(d, seed):
    assert strongly_convex_falls(d, seed)


def test_strongly_convex_steps_that_shrink_too_fast_are_caught(seed, monkeypatch):
    monkeypatch.setattr(theorems, "step", lambda _diameter, _curvature, t, _squares: 0.3 / t**2)
    assert not strongly_convex_falls(D, seed)


def convex_falls(seed: int) -> bool:
    """A quarter of the rows say -1, the others 0: the median is 0, the excess |x|/2 below it and x above it."""
    rng, sizes = np.random.default_rng(seed), (64, 256, 1_024)
    columns, box = tuple(f"x{j}" for j in range(WIDE)), Box((-1.0,) * WIDE, (1.0,) * WIDE)
    source = hf.open({name: rng.permutation(np.repeat([-1.0, 0.0], [1_000, 3_000])) for name in columns})
    found = []
    for steps in sizes:
        run = descent_on(source, MedianLoss(columns), box, steps, 1)
        points = np.array([run.run(source, rng).point for _ in range(FEW)])
        found.append(np.maximum(-points / 2, points).sum(axis=1).mean())
        if found[-1] > run.expected_excess():
            return False
    return abs(slope(sizes, found) + 0.5) <= TOLERANCE


def test_convex_excess_falls_exactly_as_fast_where_the_theorem_is_sharp(seed):
    assert convex_falls(seed)


@pytest.mark.parametrize(("first", "power"), [(0.1, 0), (2.0, 1)])  # slopes near 0 and near -.86, whatever the seed
def test_wrong_convex_steps_are_caught(seed, monkeypatch, first, power):
    monkeypatch.setattr(theorems, "step", lambda _diameter, _curvature, t, _squares: first / t**power)
    assert not convex_falls(seed)


def coins_help(seed: int) -> bool:
    rng, sizes = np.random.default_rng(seed), (4, 16, 64)  # fewer coins drive the point into the walls
    source = hf.open({name: rng.permutation(np.repeat([-1.0, 1.0], 2_500)) for name in COLUMNS})
    runs = [descent_on(source, MeanLoss(COLUMNS), BOX, 64, ell) for ell in sizes]
    found = [mean_excess(run, source, np.zeros(D), rng) for run in runs]
    return abs(slope(sizes, found) + 1) <= TOLERANCE


def test_excess_falls_with_the_coins(seed):
    assert coins_help(seed)


def test_coins_that_are_never_used_are_caught(seed, monkeypatch):
    call = CoinGradient.__call__
    monkeypatch.setattr(CoinGradient, "__call__", lambda self, *rest: call(replace(self, ell=1), *rest))
    assert not coins_help(seed)


def test_convex_excess_falls_with_the_steps(shifted, seed):
    source, rows = shifted
    rng, sizes = np.random.default_rng(seed), (16, 64, 256)
    best = np.abs(rows - np.median(rows, axis=0)).mean(axis=0).sum()
    found = []
    for steps in sizes:
        run = descent_on(source, MedianLoss(COLUMNS), BOX, steps, 4)
        assert run.curvature == 0
        points = [run.run(source, rng).point for _ in range(R)]
        found.append(np.mean([np.abs(rows - point).mean(axis=0).sum() - best for point in points]))
        assert found[-1] <= run.expected_excess()
    assert slope(sizes, found) <= -0.5 + TOLERANCE


def test_excess_on_the_population_falls_with_the_rows(seed):
    """Fair signs: the rows' own mean is off by 1/n a coordinate, so the excess is D/(2n) and what descent adds."""
    rng, sizes = np.random.default_rng(seed), (25, 100, 400)
    found = []
    for n in sizes:
        excesses = []
        for _ in range(R):
            source = hf.open({name: rng.choice([-1.0, 1.0], n) for name in COLUMNS})
            run = descent_on(source, MeanLoss(COLUMNS), BOX, 64, 100)
            excesses.append(float((run.run(source, rng).point ** 2).sum() / 2))
        found.append(np.mean(excesses))
    added = 2 * D / (64 * 100)  # at most 4/(4 ell) a coordinate and step, averaged over 64 steps, and twice that
    assert abs(slope(sizes, np.maximum(np.array(found) - added / 2, 1e-9)) + 1) <= TOLERANCE + 0.1


@pytest.mark.parametrize("d", [1, 10, 100])
@pytest.mark.parametrize("loss", [MeanLoss, MedianLoss])
def test_bounds_hold_in_every_dimension(seed, d, loss):
    rng, columns = np.random.default_rng(seed), tuple(f"x{j}" for j in range(d))
    source = hf.open(uniform_table(2_000, d, 3))
    frame = rows_of(source)
    rows = frame.to_numpy()
    made = loss(columns)
    run = descent_on(source, made, Ball(float(np.sqrt(d)), d), 20, 2)
    best = rows.mean(axis=0) if loss is MeanLoss else np.median(rows, axis=0)
    failures, worlds, beta = 0, 20, 0.2
    for _ in range(worlds):
        found = run.run(source, rng)
        excess = made.values(frame, found.point).mean() - made.values(frame, best).mean()
        failures += excess > run.likely_excess(beta, found.regret)
    assert binom.sf(failures - 1, worlds, beta) >= FALSE_ALARM


def test_a_regret_that_forgets_the_domain_is_caught(seed):
    """Without the minimum over the domain, what was released certifies an excess of about nothing."""
    rng, source = np.random.default_rng(seed), hf.open(uniform_table(2_000, 2, 3, shift=0.4))
    run = descent_on(source, MeanLoss(("x0", "x1")), Box((-1.0,) * 2, (1.0,) * 2), 1, 20_000)
    wrong = 0
    for _ in range(20):
        point = run.run(source, rng).point
        wrong += ((point - 0.4) ** 2).sum() / 2 > run.likely_excess(0.2, 0.0)
    assert binom.sf(wrong - 1, 20, 0.2) < FALSE_ALARM


def test_exact_descent_on_an_adaptive_sequence_fits_the_rows_and_coins_do_not(seed):
    """p noise columns, each fitted alone; then one fit of the column that adds them up with the fitted signs.

    The population's best weight is 0 throughout. Exact answers reach a correlation of about sqrt(2 p/(pi n)) = .33 on
    the rows; the coins' signs carry s = (sqrt(p)/(2n))/sqrt(1/(4n) + 1/(4 ell T)) instead of sqrt(p/n) of it.
    """
    n, p, rng = 600, 100, np.random.default_rng(seed)
    columns = {f"x{j}": rng.choice([-1.0, 1.0], n) for j in range(p)}
    y = rng.choice([-1.0, 1.0], n)
    gaps = {}
    for name, made in (
        ("exact", lambda objective: FullGradient(objective, n)),
        ("coins", lambda objective: CoinGradient(objective, 1, 0.02)),
    ):
        signs = []
        for j in range(p):
            signs.append(np.sign(fitted({"x": columns[f"x{j}"], "y": y}, made, rng)))
        total = sum(sign * columns[f"x{j}"] for j, sign in enumerate(signs)) / np.sqrt(p)
        gaps[name] = float(np.mean(total * y))  # slope of the loss on the rows at 0; on the population it is 0
    assert gaps["exact"] > 0.2
    assert abs(gaps["coins"]) < gaps["exact"] / 2


def fitted(data, made, rng) -> float:
    source = hf.open(data)
    domain = Ball(0.5, 1)
    loss = hf.losses.Squared({"x": (-1, 1)}, "y", target_within=(-1, 1), intercept=False)
    objective = loss.bind(source.schema, domain)
    return float(Descent(objective, domain, made(objective), 16).run(source, rng).point[0])
