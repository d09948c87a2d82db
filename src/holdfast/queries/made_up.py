"""Rows invented from the schema alone, ordinary and hostile, to try a query on before it touches data."""

from datetime import date, datetime
from typing import Any

import numpy as np
import polars as pl
from numpy.random import Generator

from holdfast import check
from holdfast.queries.functions.logic import PHYSICAL
from holdfast.schema import Column, Schema, Type

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


def made_up(schema: Schema, count: int, rng: Generator, *, hostile: float = 0.5) -> pl.DataFrame:
    """Return `count` invented rows: ordinary values, a share of hostile ones, NULL where the schema allows it."""
    check.whole(0, count=count)
    check.share(hostile=hostile)
    return pl.DataFrame([_values(column, count, rng, hostile) for column in schema])


def _values(column: Column, count: int, rng: Generator, share: float) -> pl.Series:
    wanted = PHYSICAL[column.type]
    ordinary = _ordinary(column.type, count, rng).cast(wanted)
    hostile = pl.Series(HOSTILE[column.type], dtype=wanted)
    chosen = hostile.gather(rng.integers(0, hostile.len(), count).tolist())
    odd = pl.Series(rng.random(count) < share, dtype=pl.Boolean)
    values = chosen.zip_with(odd, ordinary)
    if column.nullable:
        present = pl.Series(rng.random(count) >= 0.2, dtype=pl.Boolean)
        values = values.zip_with(present, pl.Series([None], dtype=wanted).new_from_index(0, count))
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
            letters = np.array(list("abcXYZ019 é"))
            words = ["".join(rng.choice(letters, size)) for size in rng.integers(1, 8, count)]
            return pl.Series(words, dtype=pl.String)
        case Type.DATE:
            return pl.Series(rng.integers(*_DAYS_1900_TO_2100, count), dtype=pl.Int32)
        case Type.DATETIME:
            days = rng.integers(*_DAYS_1900_TO_2100, count)
            return pl.Series(days * 86_400_000_000 + rng.integers(0, 86_400_000_000, count))
