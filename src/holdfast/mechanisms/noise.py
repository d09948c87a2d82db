"""Noise that floating-point arithmetic cannot undo: values on an integer grid, integer noise from opendp."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import MissingExtra

GRID = 40  # values are rounded to multiples of 2^-40


def grid_bits(count: int) -> int:
    """Return how fine a grid `count` values in [0, 1] may use without their sum leaving 62 bits."""
    return max(1, min(GRID, 62 - int(count).bit_length()))


def laplace_mean(values: NDArray[np.float64], scale: float) -> float:
    """Return the mean of values in [0, 1] plus Laplace noise of this scale, computed in whole numbers.

    The sum on the grid is an exact integer; replacing one value moves it by at most 2^bits; the discrete Laplace noise
    is exact too. Dividing at the end is post-processing.
    """
    bits = grid_bits(len(values))
    total = int(np.sum(np.rint(np.ldexp(values, bits)).astype(np.int64)))
    unit = len(values) * 2.0**bits
    noisy: int = _integer_laplace(scale * unit)(total)
    return noisy / unit


@lru_cache(maxsize=256)
def _integer_laplace(scale: float) -> Any:
    try:
        import opendp.prelude as dp
    except ImportError as missing:
        raise MissingExtra(
            "Laplace noise needs the package opendp; install it with: pip install 'holdfast[laplace]'."
        ) from missing
    dp.enable_features("contrib")
    return dp.m.make_laplace(dp.atom_domain(T=dp.i64), dp.absolute_distance(T=dp.i64), scale=scale)
