"""Are gradients made of coins unbiased, and as noisy as the theorem says?  Seeded; tolerance derived; mutants caught.

Coordinate j of one gradient is lo + w (X/ell - a)/(1 - 2a), X a sum of ell independent coins with biases P_i = a +
(1-2a) f_i, f_i the mean over the rows of clip(ell u - i, 0, 1), u = (gradient - lo)/w. So over R gradients: |average -
data mean| <= Z sd/sqrt(R), sd^2 = w^2 sum_i P_i(1-P_i)/(ell (1-2a))^2; and the empirical variance of (nearly normal)
averages of ell coins is within Z sqrt(2/(R-1)) (1 + 1/ell) of sd^2 relatively; coordinates of different draws have
correlation within Z/sqrt(R). Z covers all comparisons, FALSE_ALARM in all. A gradient that is not debiased, clipped,
randomized too rarely, whose coins all ask about the whole range, or which the same draws answer for all coordinates, is
caught.
"""

import numpy as np
import pytest
from scipy.stats import norm

import holdfast as hf
from holdfast.optimize.descent import CoinChoice, Contest, ExponentialChoice
from holdfast.optimize.gradient import CoinGradient, GradientAt, LaplaceGradient, Scales
from holdfast.optimize.objective import Ball, LossAt
from holdfast.rows import local
from own_losses import uniform_table
from plain_query import rows_of

FALSE_ALARM, R, N, ELL, MASS = 1e-6, 3_000, 500, 40, 0.1
POINT = np.array([2.0, -1.0, 0.5])
Z = norm.isf(FALSE_ALARM / (4 * POINT.size + 2))


def source_and_objective():
    columns = uniform_table(N, 2, 5)
    data = columns | {"late": columns["x0"] + columns["x1"] < -0.4}
    source = hf.open(data)
    loss = hf.losses.Logistic({"x0": (-1, 1), "x1": (-1, 1)}, "late")
    return source, loss.bind(source.schema, Ball(3.0, 3))


def of_every_row(source, objective) -> np.ndarray:
    """One line for each coordinate."""
    rows = rows_of(source, columns=objective.columns)
    return np.array([objective.coordinates(rows, POINT, np.full(N, j)) for j in range(POINT.size)])


def exact(source, objective) -> np.ndarray:
    return of_every_row(source, objective).mean(axis=1)


def filled(source, objective) -> np.ndarray:
    """f_i: how much of each slice of its range a coordinate fills on average; one line for each coordinate."""
    ranges = objective.ranges
    u = (of_every_row(source, objective) - ranges.lows[:, None]) / ranges.widths[:, None]
    return np.clip(ELL * u[:, None, :] - np.arange(ELL)[:, None], 0, 1).mean(axis=2)


def scatter_is_as_stated(oracle_of, seed: int) -> bool:
    source, objective = source_and_objective()
    oracle, rng = oracle_of(objective), np.random.default_rng(seed)
    drawn = np.array([oracle(POINT, source, rng) for _ in range(R)])
    mean, ranges = exact(source, objective), objective.ranges
    p = MASS + (1 - 2 * MASS) * filled(source, objective)
    sd = ranges.widths * np.sqrt((p * (1 - p)).sum(axis=1)) / (ELL * (1 - 2 * MASS))
    unbiased = np.abs(drawn.mean(axis=0) - mean) <= Z * sd / np.sqrt(R)
    spread = np.abs(drawn.var(axis=0, ddof=1) / sd**2 - 1) <= Z * np.sqrt(2 / (R - 1)) * (1 + 1 / ELL)
    apart = np.abs(np.corrcoef(drawn.T)[np.triu_indices(POINT.size, 1)]) <= Z / np.sqrt(R)
    within = (np.linalg.norm(drawn, axis=1) <= oracle.largest + 1e-9).all()
    return bool(unbiased.all() and spread.all() and apart.all() and within)


def coins(objective) -> CoinGradient:
    return CoinGradient(objective, ELL, MASS)


class Undebiased(CoinGradient):
    def __call__(self, point, source, rng):
        ranges = self.objective.ranges
        share = (super().__call__(point, source, rng) - ranges.lows) / ranges.widths
        return ranges.lows + ranges.widths * (self.mass + (1 - 2 * self.mass) * share)


class Clipped(CoinGradient):
    def __call__(self, point, source, rng):
        drawn = super().__call__(point, source, rng)
        return np.clip(drawn, self.objective.ranges.lows * 0.1, self.objective.ranges.highs * 0.1)


class RandomizedHalfAsOften(CoinGradient):
    def __call__(self, point, source, rng):
        ranges, less = self.objective.ranges, CoinGradient(self.objective, self.ell, self.mass / 2)
        share = (less(point, source, rng) - ranges.lows) / ranges.widths
        share = (self.mass / 2 + (1 - self.mass) * share - self.mass) / (1 - 2 * self.mass)
        return ranges.lows + ranges.widths * share


class Unsliced(CoinGradient):
    """Every coin asks about the whole range: unbiased as well, but noisier."""

    def __call__(self, point, source, rng):
        ranges = self.objective.ranges
        query = GradientAt(self.objective, point, Scales(ranges))
        share = source.tally(query, draws=self.ell, mass=self.mass, rng=rng)[:, 1] / self.ell
        return ranges.lows + ranges.widths * (share - self.mass) / (1 - 2 * self.mass)


class SharedDraws(CoinGradient):
    """One row and one coin answer for every coordinate."""

    def __call__(self, point, source, rng):
        rows = rows_of(source, rng.integers(0, N, self.ell), self.objective.columns)
        ranges, d = self.objective.ranges, point.size
        toss, turned = (np.arange(self.ell) + rng.random(self.ell)) / self.ell, rng.random(self.ell) < self.mass
        values = [self.objective.coordinates(rows, point, np.full(self.ell, j)) for j in range(d)]
        coins = ((np.array(values) - ranges.lows[:, None]) / ranges.widths[:, None] > toss) ^ turned
        return ranges.lows + ranges.widths * (coins.mean(axis=1) - self.mass) / (1 - 2 * self.mass)


def test_coin_gradients_are_unbiased_and_scatter_as_stated(seed):
    assert scatter_is_as_stated(coins, seed)


def test_pieces_that_fit_in_memory_change_nothing(seed, monkeypatch):
    monkeypatch.setattr(local, "_LINES_BYTES", 800)
    assert scatter_is_as_stated(coins, seed)


@pytest.mark.parametrize("mutant", [Undebiased, Clipped, RandomizedHalfAsOften, Unsliced, SharedDraws])
def test_a_wrong_gradient_is_caught(seed, mutant):
    assert not scatter_is_as_stated(lambda objective: mutant(objective, ELL, MASS), seed)


def test_slices_vary_less_than_the_bound_and_than_whole_coins():
    """Exactly: sum P_i(1-P_i) <= ell Q(1-Q) for the mean Q of the P_i, which is what the bound takes as ell/4."""
    source, objective = source_and_objective()
    p = MASS + (1 - 2 * MASS) * filled(source, objective)
    sliced, whole = (p * (1 - p)).mean(axis=1), p.mean(axis=1) * (1 - p.mean(axis=1))
    assert (sliced < 0.9 * whole).all()
    ranges, oracle = objective.ranges, coins(objective)
    variance = ranges.widths**2 * sliced / (ELL * (1 - 2 * MASS) ** 2)
    assert (variance <= oracle.spread**2).all()
    assert (exact(source, objective) ** 2 + variance).sum() <= oracle.moment**2


def test_laplace_gradients_are_unbiased_and_as_noisy_as_stated(seed):
    """Variance w^2 ((1 - ell/n) S2/ell + 2 b^2) <= w^2 (1/(4 ell) + 2 b^2), Laplace kurtosis 6 at most."""
    source, objective = source_and_objective()
    oracle, rng = LaplaceGradient(objective, ELL, 0.02, N), np.random.default_rng(seed)
    repeats = 400
    drawn = np.array([oracle(POINT, source, rng) for _ in range(repeats)])
    most = objective.ranges.widths**2 * (1 / (4 * ELL) + 2 * oracle.scale**2)
    assert (np.abs(drawn.mean(axis=0) - exact(source, objective)) <= Z * np.sqrt(most / repeats)).all()
    assert (drawn.var(axis=0) <= most * (1 + Z * np.sqrt(5 / repeats))).all()
    assert (
        drawn.var(axis=0) >= objective.ranges.widths**2 * 2 * oracle.scale**2 * (1 - Z * np.sqrt(5 / repeats))
    ).all()


@pytest.mark.parametrize("of_one", [False, True], ids=["several coordinates", "one coordinate"])
def test_how_numpy_is_told_to_complain_does_not_show_what_is_in_the_rows(seed, of_one):
    hostile = [np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-308, 0.0, 1.0] * 10
    data = {"x0": hostile, "x1": hostile[::-1], "late": [True, False] * 40}
    source, rng = hf.open(data), np.random.default_rng(seed)
    features = {"x0": (-1e308, 1e307)} | ({} if of_one else {"x1": (-1, 1)})
    d = len(features)
    loss = hf.losses.Logistic(features, "late", intercept=False)
    domain = Ball(3.0, d)
    objective, points = loss.bind(source.schema, domain), [np.full(d, 0.5), np.zeros(d)]
    contest = Contest(objective, domain)
    with np.errstate(all="raise"):
        for oracle in (CoinGradient(objective, 10, 0.1), LaplaceGradient(objective, 10, 0.5, 80)):
            assert oracle(points[0], source, rng).shape == (d,)
        for choice in (CoinChoice(contest, 2, 50, 0.1), ExponentialChoice(contest, 2, 50, 0.5, 80)):
            assert choice.choose(points, source, rng) in (0, 1)
        assert source.tally(LossAt(objective, points[0]), draws=200, mass=0.1, rng=rng).sum() == 200
