"""Noise that floating-point arithmetic cannot undo: values on an integer grid, integer noise from opendp."""

from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import MissingExtra
from holdfast.guarantees.release import GRID, grid_bits

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
    """Return the same plus Gaussian noise of deviation sigma: discrete, on the grid that holds the sum itself."""
    total, unit = _on_grid(values)
    noisy: int = _integer_gaussian(sigma * unit)(total)
    return noisy / unit


def _on_grid(values: NDArray[np.float64]) -> tuple[int, float]:
    """Return the sum of the rounded values as a whole number, and how many of its units are a mean of 1."""
    bits = grid_bits(len(values))
    return int(np.sum(np.rint(np.ldexp(values, bits)).astype(np.int64))), len(values) * 2.0**bits


@lru_cache(maxsize=256)
def _integer_laplace(scale: float) -> Any:
    dp = _opendp()
    return dp.m.make_laplace(dp.atom_domain(T=dp.i64), dp.absolute_distance(T=dp.i64), scale=scale)


@lru_cache(maxsize=256)
def _integer_gaussian(scale: float) -> Any:
    dp = _opendp()
    return dp.m.make_gaussian(dp.atom_domain(T=dp.i64), dp.absolute_distance(T=dp.i64), scale=scale)


def require(extra: str) -> None:
    """Refuse if opendp is not there, by the name of the `extra` to install: before anything is paid for."""
    if find_spec("opendp") is None:
        raise MissingExtra(
            f"{extra.capitalize()} noise needs the package opendp; install it with: pip install 'holdfast[{extra}]'."
        )


def _opendp() -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    return dp
