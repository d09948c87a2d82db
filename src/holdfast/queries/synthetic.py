"""Rows made up from the schema alone, ordinary and hostile, and the trial of a query on them before it touches data.

The trial asks: is it a function of one row? Each row's value in the batch is compared with its value alone, among other
neighbors, in another order and beside copies of itself. It finds honest mistakes (a mean over the batch, a random
number); it cannot prove that there are none, so it adds to other checks wherever there are any. Sums that round
differently in different batches are not treated as a mistake.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.errors import InvalidQuery
from holdfast.queries.evaluate import silence
from holdfast.queries.node import PHYSICAL
from holdfast.randomness import Randomness
from holdfast.schema import Column, Schema, Type

TRIED_ROWS = 96
MANY_TIMES = 32  # copies of other rows in the largest batch, to reveal dependence on its size
MOST_EXCUSED = 4  # ordinary rows whose value may depend on rounding
NEARBY = 32
TINY = 2.0**-40  # larger than the relative rounding error of sums of many numbers

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
_QUOTED = re.compile(r"'((?:[^']|'')*)'")
_WHOLE = re.compile(r"(?<![\w.])\d{1,15}(?![\w.])")
_DAYS_1900_TO_2100 = (-25_567, 47_482)


def synthetic_rows(schema: Schema, count: int, rng: Generator, *, hostile: float = 0.5) -> pl.DataFrame:
    """Return `count` made-up rows: ordinary values, a share of hostile ones, NULL where the schema allows it."""
    check.whole(0, count=count)
    check.share(hostile=hostile)
    return pl.DataFrame([_values(column, count, rng, hostile) for column in schema])


def naming(schema: Schema, asked: Iterable[object]) -> Schema:
    """Return the schema with the values that a question names as categories, where a column declares nothing.

    Rows made up from it are in the groups that are asked about. In SQL, a text is found by its quotation marks. A
    number comes with its neighbors, so that not all rows are equal to it.
    """
    found = [value for each in asked for value in _named(each)]
    texts = [value for value in found if isinstance(value, str)]
    numbers = [value + near for value in found if isinstance(value, int) for near in (-1, 0, 1)]
    values: dict[Type, tuple[Any, ...]] = {Type.STRING: (*texts, "other"), Type.INT: tuple(numbers)}
    columns = (
        replace(column, categories=values[column.type])
        if column.bounds is None and column.categories is None and len(values.get(column.type, ())) > 1
        else column
        for column in schema
    )
    return replace(schema, columns=tuple(columns))


def _named(asked: object, listed: bool = False) -> Iterator[str | int]:
    if isinstance(asked, str):
        if listed:
            yield asked
        yield from (text.replace("''", "'") for text in _QUOTED.findall(asked))
        yield from map(int, _WHOLE.findall(_QUOTED.sub("", asked)))
    elif isinstance(asked, int) and not isinstance(asked, bool) and abs(asked) < 10**15:
        yield asked
    elif isinstance(asked, Mapping | list | tuple):
        for each in asked.values() if isinstance(asked, Mapping) else asked:
            yield from _named(each, listed=True)


def _values(column: Column, count: int, rng: Generator, share: float) -> pl.Series:
    dtype = PHYSICAL[column.type]
    ordinary = _declared(column, count, rng, dtype)
    if ordinary is None:
        ordinary = _ordinary(column.type, count, rng).cast(dtype)
    hostile = pl.Series(HOSTILE[column.type], dtype=dtype)
    chosen = hostile.gather(rng.integers(0, hostile.len(), count).tolist())
    odd = pl.Series(rng.random(count) < share, dtype=pl.Boolean)
    values = chosen.zip_with(odd, ordinary)
    if column.nullable:
        present = pl.Series(rng.random(count) >= 0.2, dtype=pl.Boolean)
        values = values.zip_with(present, pl.Series([None], dtype=dtype).new_from_index(0, count))
    return values.alias(column.name)


def _declared(column: Column, count: int, rng: Generator, dtype: Any) -> pl.Series | None:
    """Return values that the column's declarations allow; None if it has none."""
    if column.categories is not None:
        categories = pl.Series(column.categories, dtype=dtype)
        return categories.gather(rng.integers(0, categories.len(), count).tolist())
    if column.bounds is None:
        return None
    low, high = column.bounds
    drawn = pl.Series(low + (high - low) * rng.random(count))
    return (drawn.floor() if column.type is Type.INT else drawn).cast(dtype, strict=False)


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


def trial_rows(schema: Schema, number: int = 0, *, hostile: float = 0.5) -> pl.DataFrame:
    """Return made-up rows to try something on; the same ones every time for the same number."""
    return _trial_rows(schema, number, hostile).clone()  # the caller's code may change what it is handed


@lru_cache(maxsize=32)
def _trial_rows(schema: Schema, number: int, hostile: float) -> pl.DataFrame:
    return synthetic_rows(schema, TRIED_ROWS, Randomness(number).generator(), hostile=hostile)


def must_be_rowwise(value: Callable[[pl.DataFrame], NDArray[Any]], schema: Schema, *, what: str) -> None:
    """Refuse a `value`, which the refusal calls `what`, if its result for a row depends on anything but the row."""
    fault = fault_of(value, schema)
    if fault is not None:
        raise InvalidQuery(f"The {what} {fault}; a query must be a function of one row.")


@silence
def fault_of(value: Callable[[pl.DataFrame], NDArray[Any]], schema: Schema) -> str | None:
    """Return what a row's value depends on besides the row, as the end of a sentence; None if on nothing.

    Ordinary rows are tried first; hostile rows alone would hide a mean over the batch, since infinities swamp it. A
    fault counts only if it also shows on other rows.
    """
    rng = Randomness(0).generator()
    for hostile, most_excused in ((0.0, MOST_EXCUSED), (0.5, TRIED_ROWS)):
        for number in range(2):
            rows, others = (trial_rows(schema, 2 * number + one, hostile=hostile) for one in range(2))
            fault = _Trial(value, rows, rng).fault(others, most_excused)
            if fault is None:
                break
        else:
            return fault
    return None


class _Trial:
    """A function, and its values on some rows evaluated all together."""

    def __init__(self, value: Callable[[pl.DataFrame], NDArray[Any]], rows: pl.DataFrame, rng: Generator) -> None:
        self.value, self.rows, self.rng = value, rows, rng
        self.expected = value(rows)
        self.nearby: dict[int, NDArray[Any] | None] = {}

    def fault(self, others: pl.DataFrame, most_excused: int) -> str | None:
        rows, rng, every = self.rows, self.rng, np.arange(TRIED_ROWS)
        order = rng.permutation(TRIED_ROWS)
        half = np.flatnonzero(rng.random(TRIED_ROWS) < 0.5)
        twice = rng.integers(0, TRIED_ROWS, TRIED_ROWS)
        neighbors = "depends on which other rows are there"
        trials = [
            (rows, every, "gives different values when called again"),
            (rows[order.tolist()], order, "depends on the order of the rows"),
            (rows[half.tolist()], half, neighbors),
            (rows[twice.tolist()], twice, "depends on copies among the rows"),
            (pl.concat([rows, others]), every, neighbors),
            (pl.concat([others] * MANY_TIMES + [rows]), every - TRIED_ROWS, neighbors),
        ]
        for batch, places, fault in trials:
            got = self.value(batch)
            if not self._agree(got[places] if places.min() < 0 else got[: places.size], places, most_excused):
                return fault
        alone = np.concatenate([self.value(row) for row in rows.iter_slices(1)])
        return None if self._agree(alone, every, most_excused) else neighbors

    def _agree(self, got: NDArray[Any], places: NDArray[np.int64], most_excused: int) -> bool:
        """Whether rows have the expected values, except for a few that are excused because they differ by rounding."""
        right = self.expected[places]
        different = np.flatnonzero(~_equal(got, right).reshape(places.size, -1).all(axis=1))
        rows = set((places[different] % TRIED_ROWS).tolist())
        return len(rows) <= most_excused and all(
            self._rounding(int(places[one]) % TRIED_ROWS, got[one], right[one]) for one in different
        )

    def _rounding(self, place: int, got: Any, right: Any) -> bool:
        """Whether a difference is no larger than what changing the last digits of the row itself makes: sums round
        differently in different batches, and where they cancel, only rounding errors are left."""
        if place not in self.nearby:
            self.nearby[place] = self._values_nearby(place)
        nearby = self.nearby[place]
        if nearby is None:
            return False
        if nearby.dtype.kind != "f":
            return bool((nearby != nearby[0]).any())
        away, spread = np.abs(got - right), np.ptp(nearby, axis=0)
        return bool(np.all((away <= spread) | _equal(got, right)))  # false for NaN

    def _values_nearby(self, place: int) -> NDArray[Any] | None:
        """Return the row's values by itself as its last digits change; None if repeated calls on it disagree."""
        row = self.rows.slice(place, 1)
        first, *again = (self.value(row) for _ in range(4))
        if not all(_equal(other, first).all() for other in again):
            return None
        moved = pl.DataFrame([_moved(column, self.rng) for column in pl.concat([row] * NEARBY)])
        return np.concatenate([self.value(each) for each in moved.iter_slices(1)])


def _moved(values: pl.Series, rng: Generator) -> pl.Series:
    """Return numbers, each reduced by its own tiny fraction; whole numbers only if that rounds to one or more."""
    parts = pl.Series(rng.random(values.len()) * TINY)
    if values.dtype == pl.Float64:
        return values - (values * parts)
    if values.dtype == pl.Int64:
        return values - (values.cast(pl.Float64) * parts).round().cast(pl.Int64, strict=False)
    return values


def _equal(got: NDArray[Any], right: NDArray[Any]) -> NDArray[np.bool_]:
    if right.dtype.kind != "f":
        return np.asarray(got == right, dtype=np.bool_)
    close: NDArray[np.bool_] = np.isclose(got, right, rtol=1e-9, atol=0.0, equal_nan=True)
    return close
