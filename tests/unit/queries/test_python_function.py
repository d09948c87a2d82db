"""Functions are tried on made-up rows, and one row's failure is its own."""

import math
import random
from dataclasses import replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest

from holdfast.errors import InvalidQuery
from holdfast.guarantees.statistic import GroupMean, OneShare
from holdfast.queries.build import build_at_most, build_histogram, build_mean
from holdfast.queries.from_python import _values
from holdfast.schema import Column, Schema, Type
from query_examples import SCHEMA

SMALL = Schema((Column("x", Type.FLOAT, False), Column("i", Type.INT, False), Column("s", Type.STRING, True)))
ROWS = pl.DataFrame({"x": [1.0, 2.0, -3.0], "i": [1, 0, 2], "s": ["a", None, "ccc"]})


@pytest.mark.parametrize(
    "function",
    [
        lambda rows: rows["x"] > rows["x"].mean(),
        lambda rows: rows["x"] - rows["x"].median(),
        lambda rows: rows["x"].rank(),
        lambda rows: rows["x"].shift(1).fill_null(0.0),
        lambda rows: rows["x"].cum_sum(),
        lambda rows: rows["i"].is_duplicated(),
        lambda rows: rows["s"].is_first_distinct(),
        lambda rows: np.arange(len(rows)),
        lambda rows: np.full(len(rows), len(rows)),
        lambda rows: np.random.default_rng().random(len(rows)),
        lambda rows: [random.random() for _ in range(len(rows))],
        lambda rows: rows["x"].sort(),
        lambda rows: rows["i"] == rows["i"].max(),
        lambda rows: rows["i"] > rows["i"][0],
    ],
)
def test_a_function_of_many_rows_is_refused(function):
    with pytest.raises(InvalidQuery, match="function of one row"):
        build_mean(function, SMALL, within=(0, 1))


@pytest.mark.parametrize(
    "function",
    [
        lambda rows: 1.0,
        lambda rows: True,
        lambda rows: None,
        lambda rows: "abc",
        lambda rows: [1.0],
        lambda rows: rows,
        lambda rows: rows["s"],
        lambda rows: pl.col("x"),
        lambda rows: np.ones((len(rows), 2)),
        lambda rows: ["a"] * len(rows),
        lambda rows: rows["nope"],
        lambda rows: 1 / 0,
        lambda: 1,
    ],
)
def test_a_function_of_the_wrong_shape_or_type_is_refused(function):
    with pytest.raises(InvalidQuery) as refusal:
        build_mean(function, SMALL, within=(0, 1))
    assert str(refusal.value).endswith(".")


def test_booleans_make_a_share():
    query = build_mean(lambda rows: rows["x"] > 0, SMALL)
    assert (query.statistic, query.identity) == (OneShare(), None)
    assert query.columns == ("x", "i", "s")
    assert query.evaluate(ROWS).tolist() == [True, True, False]


def test_numbers_make_a_group_because_they_may_be_missing():
    query = build_mean(lambda rows: rows["x"].to_numpy() * 2, replace(SMALL, columns=(SMALL["x"],)), within=(0, 4))
    assert (query.statistic, query.columns) == (GroupMean(), ("x",))
    assert query.evaluate(ROWS).tolist() == [0.5, 1.0, 0.0]


def test_rows_on_which_it_raises_have_no_value():
    inverse = build_mean(lambda rows: [1 / int(i) for i in rows["i"]], SMALL, within=(0, 1))
    assert np.array_equal(inverse.evaluate(ROWS), [1.0, np.nan, 0.5], equal_nan=True)
    long = build_mean(lambda rows: [len(s) > 2 for s in rows["s"]], SMALL)
    assert long.evaluate(ROWS).tolist() == [False, False, True]


def test_named_functions_are_named():
    def is_late(rows: pl.DataFrame) -> pl.Series:
        return rows["x"] > 15

    assert build_mean(is_late, SMALL).text == "share of is_late(rows)"
    assert build_mean(is_late, SMALL, where="i > 0").text == "share of is_late(rows) where i > 0"


def test_functions_in_every_measure():
    def double(rows: pl.DataFrame) -> pl.Series:
        return rows["x"] * 2

    assert build_at_most(double, 2.0, SMALL).evaluate(ROWS).tolist() == [1.0, 0.0, 1.0]
    assert build_histogram(double, SMALL, bins=[0, 3, 9]).evaluate(ROWS).tolist() == [0, 1, 2]
    assert build_histogram(double, SMALL, categories=[4]).evaluate(ROWS).tolist() == [1, 0, 1]
    where = build_mean("x", SMALL, within=(0, 2), where=lambda rows: rows["i"] > 0)
    assert np.array_equal(where.evaluate(ROWS), [0.5, np.nan, 0.0], equal_nan=True)
    assert where.identity is None


def test_interrupts_pass():
    def interrupted(rows: pl.DataFrame) -> pl.Series:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_mean(interrupted, SCHEMA)


def test_no_rows_at_all():
    query = build_mean(lambda rows: rows["x"] > 0, SMALL)
    assert query.evaluate(ROWS.clear()).shape == (0,)


KINDS_OF_VALUES = [
    1, True, None, 0.5, math.nan, 300, 2**63, 2**130, -(2**70), np.int8(1), np.float32(0.1), np.float64(0.1),
    np.True_, np.uint64(2**63), Decimal("0.1"), Decimal("0.123456789"), Decimal("Infinity"), Fraction(1, 3), "1",
    date(2020, 1, 1), [1], np.array(1.0), 10**400,
]  # fmt: skip


@pytest.mark.parametrize("boolean", [False, True])
def test_the_types_of_other_values_in_a_list_do_not_matter(boolean: bool) -> None:
    """Polars converts a list to a type that depends on all of its values, or on the first."""

    def values(*chosen: int) -> list[float]:
        def function(rows: pl.DataFrame) -> list[Any]:
            return [KINDS_OF_VALUES[k] for k in rows["k"]]

        found: list[float] = _values(function, pl.DataFrame({"k": chosen}), boolean=boolean).astype(float).tolist()
        return found

    for first in range(len(KINDS_OF_VALUES)):
        for second in range(len(KINDS_OF_VALUES)):
            alone = values(first) + values(second)
            assert values(first, second) == pytest.approx(alone, rel=0, abs=0, nan_ok=True)
    if not boolean:
        assert values(*range(6)) == pytest.approx([1, 1, math.nan, 0.5, math.nan, 300], nan_ok=True)


def with_column(rows: pl.DataFrame) -> pl.Series:
    rows.insert_column(0, (rows["i"] % 3).alias("rest"))
    return rows["rest"] == 1


def without_column(rows: pl.DataFrame) -> pl.Series:
    return rows.drop_in_place("i") > 1


@pytest.mark.parametrize("function", [with_column, without_column])
def test_a_function_may_add_or_drop_columns_of_its_frame_in_place(function):
    query = build_mean(function, SMALL)
    assert query.evaluate(ROWS).tolist() == query.evaluate(ROWS.clone()).tolist() == function(ROWS.clone()).to_list()


def test_a_row_that_fails_after_the_frame_was_changed_has_no_effect_on_others():
    def fails_on_two(rows: pl.DataFrame) -> list[float]:
        rows.insert_column(0, rows["i"].alias("again"))
        return [1.0 / (each - 2) for each in rows["again"].to_list()]

    values = build_mean(fails_on_two, SMALL, within=(-2, 2)).evaluate(ROWS)
    assert np.array_equal(values, [0.25, 0.375, math.nan], equal_nan=True)
