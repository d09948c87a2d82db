"""Answer a bounded mean from rows plus noise.

`laplace` (A1), from ell freshly drawn rows:

    draw    I ~ ell of the n rows, uniformly, without replacement (or with)
    value   v = (1/ell) * sum of q(x_i), i in I          q(row) in [0, 1], rounded to a grid
    answer  a = v + Lap(1/(ell eps'))

Replacing one drawn row moves v by at most 1/ell, so the answer is eps'-DP on the drawn rows; eps' is chosen so that it
is `epsilon`-DP on all n rows, by the exact inverse of amplification. A group takes two such answers, a histogram one
for each outcome; each draws rows of its own.

`gaussian`, from all rows:

    scan    v = (1/n) * sum of q(x_i) over all n rows
    answer  a = v + N(0, sigma^2), discrete on the grid that holds v

Here the answers of a group or a histogram come from one scan, each with noise of its own.

Floating-point artifacts cannot reveal values through the noise: values lie on an integer grid, and the noise that
opendp adds is an integer.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.errors import MissingExtra
from holdfast.guarantees.gaussian import Scans
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.mathematics import privacy
from holdfast.guarantees.statistic import GRID, NoisyMeans, Statistic, grid_bits
from holdfast.mechanisms import MECHANISMS
from holdfast.queries.query import Query
from holdfast.rows.draws import AllRows, Order, WithoutReplacement, WithReplacement
from holdfast.rows.source import RowSource

__all__ = ["GRID", "gaussian_mean", "grid_bits", "laplace_mean", "require"]


def laplace_mean(values: NDArray[np.float64], scale: float) -> float:
    """Return the mean of values in [0, 1] plus Laplace noise of this scale, computed in whole numbers.

    The sum on the grid is an exact integer; replacing one value moves it by at most 2^bits; the discrete Laplace noise
    is exact too. Dividing at the end is post-processing.
    """
    total, unit = _on_grid(values)
    noisy: int = _integer_laplace(scale * unit)(total)
    return noisy / unit


def gaussian_mean(values: NDArray[np.float64], sigma: float) -> float:
    """Return the mean plus Gaussian noise of standard deviation sigma: discrete, on the grid that holds the sum."""
    total, unit = _on_grid(values)
    noisy: int = _integer_gaussian(sigma * unit)(total)
    return noisy / unit


def _on_grid(values: NDArray[np.float64]) -> tuple[int, float]:
    """Return the sum of the rounded values in grid units, and how many grid units correspond to a mean of 1."""
    bits = grid_bits(len(values))
    return int(np.sum(np.rint(np.ldexp(values, bits)).astype(np.int64))), len(values) * 2.0**bits


@lru_cache(maxsize=256)
def _integer_laplace(scale: float) -> Any:
    dp = _opendp("laplace")
    return dp.m.make_laplace(dp.atom_domain(T=dp.i64), dp.absolute_distance(T=dp.i64), scale=scale)


@lru_cache(maxsize=256)
def _integer_gaussian(scale: float) -> Any:
    dp = _opendp("gaussian")
    return dp.m.make_gaussian(dp.atom_domain(T=dp.i64), dp.absolute_distance(T=dp.i64), scale=scale)


def require(extra: str) -> None:
    """Refuse, before anything is charged, if opendp is not installed; `extra` names what to install."""
    if find_spec("opendp") is None:
        raise MissingExtra(
            f"{extra.capitalize()} noise needs the package opendp; install it with: pip install 'holdfast[{extra}]'."
        )


def _opendp(extra: str) -> Any:
    require(extra)  # sessions ask before they charge; what calls a mechanism directly learns it here
    import opendp.prelude as dp

    dp.enable_features("contrib")
    return dp


@dataclass(frozen=True, kw_only=True)
class Laplace:
    """`draws` rows per statistical query, `epsilon`-DP on all rows."""

    draws: int  # ell
    epsilon: float  # eps0: the price of one statistical query on all n rows
    replacement: bool = False
    noise: float | None = None  # the scale of its noise, if that is not for the rows it draws from

    def __post_init__(self) -> None:
        check.whole(draws=self.draws)
        check.positive(epsilon=self.epsilon)

    @classmethod
    def under(cls, guarantee: Guarantee, draws: int, order: Order | None) -> Self:
        """Return answers with the guarantee's epsilon."""
        return cls(draws=draws, epsilon=guarantee.epsilon_for(draws))

    def as_of(self, draws: int, rows: int) -> Self:
        """Return the same with the noise of this many draws of this many rows."""
        return replace(self, noise=replace(self, draws=draws).scale(rows))

    def epsilon_on_drawn(self, n: int) -> float:
        """Return eps', what may be spent on the drawn rows."""
        if self.replacement:
            return privacy.epsilon_with_replacement(self.epsilon, ell=self.draws, n=n)
        return privacy.epsilon_without_replacement(self.epsilon, ell=self.draws, n=n)

    def scale(self, n: int) -> float:
        """Return the scale of the noise, 1/(ell eps')."""
        return 1 / (self.draws * self.epsilon_on_drawn(n))

    @staticmethod
    def rows_read(statistic: Statistic, draws: int, rows: int) -> int:
        """The rows of every statistical query."""
        require("laplace")
        return statistic.intervals * draws

    def release(self, query: Query, source: RowSource, rng: Generator) -> NoisyMeans:
        """Draw rows for each statistic, average, add noise."""
        statistic, scale = query.statistic, self.scale(len(source)) if self.noise is None else self.noise
        selection = WithReplacement(self.draws) if self.replacement else WithoutReplacement(self.draws)
        means = tuple(
            laplace_mean(statistic.columns(source.sample(query, selection, rng))[part], scale)
            for part in range(statistic.intervals)
        )
        grid = 2.0 ** -grid_bits(self.draws)
        return NoisyMeans(statistic.from_means(means), self.draws, means, scale, grid)


@dataclass(frozen=True, kw_only=True)
class LaplaceWithReplacement(Laplace):
    """The same with rows drawn with replacement, as the paper also allows: a row may be drawn more than once."""

    replacement: bool = True


MECHANISMS.register("laplace", Laplace)
MECHANISMS.register("laplace_with_replacement", LaplaceWithReplacement)


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """Means of all rows, each with noise of standard deviation `sigma`."""

    sigma: float

    def __post_init__(self) -> None:
        check.positive(sigma=self.sigma)

    @classmethod
    def under(cls, guarantee: Guarantee, draws: int, order: Order | None) -> Self:
        """Return answers with the guarantee's noise."""
        if not isinstance(guarantee, Scans):
            raise guarantee.cannot_certify("Gaussian answers")
        return cls(sigma=guarantee.sigma(draws))

    @staticmethod
    def rows_read(statistic: Statistic, draws: int, rows: int) -> int:
        """One pass over all rows."""
        require("gaussian")
        return rows

    def release(self, query: Query, source: RowSource, rng: Generator) -> NoisyMeans:
        """Scan, average, add noise."""
        n = len(source)
        columns = query.statistic.columns(source.sample(query, AllRows(), rng))
        means = tuple(gaussian_mean(column, self.sigma) for column in columns)
        return NoisyMeans(query.statistic.from_means(means), n, means, self.sigma, 2.0 ** -grid_bits(n))


MECHANISMS.register("gaussian", Gaussian)
