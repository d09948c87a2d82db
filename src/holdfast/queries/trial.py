"""Is it a function of one row? Tried on made-up rows: alone, among other neighbours, in another order, beside copies.

A trial finds mistakes; it cannot prove innocence. It is the second lock, never the first.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast.errors import InvalidQuery

TRIED_ROWS = 96


def must_be_rowwise(
    value: Callable[[pl.DataFrame], NDArray[Any]],
    rows: pl.DataFrame,
    others: pl.DataFrame,
    rng: Generator,
    *,
    what: str,
) -> None:
    """Refuse a `value` that changes for a row with anything but the row. `rows` has TRIED_ROWS of them."""
    expected = value(rows)
    order = rng.permutation(TRIED_ROWS)
    half = np.flatnonzero(rng.random(TRIED_ROWS) < 0.5)
    twice = rng.integers(0, TRIED_ROWS, TRIED_ROWS)
    trials = [
        (value(rows), expected, "gives different values when called again"),
        (value(rows[order.tolist()]), expected[order], "depends on the order of the rows"),
        (value(rows[half.tolist()]), expected[half], "depends on which other rows are there"),
        (value(rows[twice.tolist()]), expected[twice], "depends on copies among the rows"),
        (value(pl.concat([rows, others]))[:TRIED_ROWS], expected, "depends on which other rows are there"),
        (
            np.concatenate([value(row) for row in rows.iter_slices(1)]),
            expected,
            "depends on which other rows are there",
        ),
    ]
    for got, wanted, fault in trials:
        if not _equal(got, wanted):
            raise InvalidQuery(f"The {what} {fault}; a query must be a function of one row.")


def _equal(got: NDArray[Any], wanted: NDArray[Any]) -> bool:
    if wanted.dtype.kind != "f":
        return bool(np.array_equal(got, wanted))
    return bool(np.allclose(got, wanted, rtol=1e-9, atol=0.0, equal_nan=True))
