"""Rows made up from the schema alone, ordinary and hostile, and the trial of a query on them before it touches data.

The trial asks: is it a function of one row? Each row's value in the batch is compared with its value alone, among other
neighbors, in another order and beside copies of itself. It finds honest mistakes (a mean over the batch, a random
number); it cannot prove that there are none, so it comes on top of other checks wherever there are any.
"""

from collections.abc import Callable
from datetime import date, datetime
from typing import Any

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.errors import InvalidQuery
from holdfast.queries.functions.operation import PHYSICAL
from holdfast.randomness import Randomness
from holdfast.schema import Column, Schema, Type

TRIED_ROWS = 96

HOSTILE: dict[Type, list[Any]] = {
    Type.BOOL: [True, False],
    Type.INT: [0, 1, -1, 2, 63, 64, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)],
    Type.FLOAT: [0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 1e300, -1e300, float("inf"), float("-inf"), 5e-324],
    Type.STRING: ["", " ", "a", "A", "ab", "é", "ß", "🙂", "%", "_", "'", "\\", "\n", "\x00", "-1", "1e309", "nan",
                  "true", "2024-02-30", "2024-02-29", "99999-01-01", "x" * 1000, "\u202e", "٣"],
    Type.DATE: [date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1), date(1969, 12, 31), date(2024, 2, 29)],
    Type.DATETIME: [
        datetime(1, 1, 1),
        datetime(9999, 12, 31, 23, 59, 59, 999_999),
        datetime(1970, 1, 1),
        datetime(1969, 12, 31, 23, 59, 59, 999_999),
        datetime(2024, 2, 29, 12, 30, 15),
    ],
}  # fmt: skip
_DAYS_1900_TO_2100 = (-25_567, 47_482)


def synthetic_rows(schema: Schema, count: int, rng: Generator, *, hostile: float = 0.5) -> pl.DataFrame:
    """Return `count` made-up rows: ordinary values, a share of hostile ones, NULL where the schema allows it."""
    check.whole(0, count=count)
    check.share(hostile=hostile)
    return pl.DataFrame([_values(column, count, rng, hostile) for column in schema])


def _values(column: Column, count: int, rng: Generator, share: float) -> pl.Series:
    dtype = PHYSICAL[column.type]
    ordinary = _ordinary(column.type, count, rng).cast(dtype)
    hostile = pl.Series(HOSTILE[column.type], dtype=dtype)
    chosen = hostile.gather(rng.integers(0, hostile.len(), count).tolist())
    odd = pl.Series(rng.random(count) < share, dtype=pl.Boolean)
    values = chosen.zip_with(odd, ordinary)
    if column.nullable:
        present = pl.Series(rng.random(count) >= 0.2, dtype=pl.Boolean)
        values = values.zip_with(present, pl.Series([None], dtype=dtype).new_from_index(0, count))
    return values.alias(column.name)


def _ordinary(type_: Type, count: int, rng: Generator) -> pl.Series:
    match type_:
        case Type.BOOL:
            return pl.Series(rng.random(count) < 0.5, dtype=pl.Boolean)
        case Type.INT:
            return pl.Series(rng.integers(-100, 1000, count))
        case Type.FLOAT:
            return pl.Series(rng.normal(10, 50, count))
        case Type.STRING:
            ends = np.cumsum(rng.integers(1, 8, count)).tolist()
            letters = "".join(np.array(list("abcXYZ019 é"))[rng.integers(0, 11, ends[-1] if ends else 0)])
            words = [letters[start:end] for start, end in zip([0, *ends], ends, strict=False)]
            return pl.Series(words, dtype=pl.String)
        case Type.DATE:
            return pl.Series(rng.integers(*_DAYS_1900_TO_2100, count), dtype=pl.Int32)
        case Type.DATETIME:
            days = rng.integers(*_DAYS_1900_TO_2100, count)
            return pl.Series(days * 86_400_000_000 + rng.integers(0, 86_400_000_000, count))


def trial_rows(schema: Schema) -> pl.DataFrame:
    """Return made-up rows to try something on; the same ones every time."""
    return synthetic_rows(schema, TRIED_ROWS, Randomness(0).generator())


def must_be_rowwise(value: Callable[[pl.DataFrame], NDArray[Any]], schema: Schema, *, what: str) -> None:
    """Refuse a `value` that changes for a row with anything but the row.

    Parameters
    ----------
    value
        Gives one value per row of a frame with the columns of `schema`.
    what
        What to call it in a refusal.
    """
    rng = Randomness(0).generator()
    # Hostile rows alone would hide a mean over the batch: infinities swamp it. So ordinary rows are tried too.
    for hostile in (0.5, 0.0):
        rows, others = (synthetic_rows(schema, TRIED_ROWS, rng, hostile=hostile) for _ in range(2))
        fault = _fault(value, rows, others, rng)
        if fault is not None:
            raise InvalidQuery(f"The {what} {fault}; a query must be a function of one row.")


def _fault(
    value: Callable[[pl.DataFrame], NDArray[Any]], rows: pl.DataFrame, others: pl.DataFrame, rng: Generator
) -> str | None:
    expected = value(rows)
    order = rng.permutation(TRIED_ROWS)
    half = np.flatnonzero(rng.random(TRIED_ROWS) < 0.5)
    twice = rng.integers(0, TRIED_ROWS, TRIED_ROWS)
    neighbors = "depends on which other rows are there"
    trials = [
        (value(rows), expected, "gives different values when called again"),
        (value(rows[order.tolist()]), expected[order], "depends on the order of the rows"),
        (value(rows[half.tolist()]), expected[half], neighbors),
        (value(rows[twice.tolist()]), expected[twice], "depends on copies among the rows"),
        (value(pl.concat([rows, others]))[:TRIED_ROWS], expected, neighbors),
        (np.concatenate([value(row) for row in rows.iter_slices(1)]), expected, neighbors),
    ]
    return next((fault for got, right, fault in trials if not _equal(got, right)), None)


def _equal(got: NDArray[Any], right: NDArray[Any]) -> bool:
    if right.dtype.kind != "f":
        return bool(np.array_equal(got, right))
    return bool(np.allclose(got, right, rtol=1e-9, atol=0.0, equal_nan=True))
