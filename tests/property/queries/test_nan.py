"""NaN, which is no number, is never counted as one: not as true, not as inside a bin, not as a small loss."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from examples import few
from holdfast.optimize.objective import Ball, OwnObjective
from holdfast.queries.build import build_at_most, build_histogram, build_mean
from holdfast.queries.evaluate import silence
from holdfast.queries.parse import from_text
from holdfast.queries.synthetic import synthetic_rows
from query_examples import NUMBERS, SCHEMA

ROWS = synthetic_rows(SCHEMA, 400, np.random.default_rng(11), hostile=0.9).with_columns(
    pl.Series("x", [np.inf, -np.inf, 0.0, -1.0] * 100),
    pl.Series("y", [np.nan, np.inf, -np.inf, 0.0, -1.0] * 80),
    pl.Series("s", ["nan", "NaN", "-nan", "1"] * 100),
)
PREDICATES = ["{} > 0", "{} < 0", "{} >= 0", "{} <= 0", "{} = {}", "{} <> {}", "{} between -1 and 1", "{} in (0, 1)",
              "not ({} > 0)", "not ({} <= 0)", "not ({} = 0)", "not ({} between -1 and 1)", "not ({} in (0, 1))",
              "greatest({}, {}) > -1", "least({}, {}) < 1", "abs({}) >= 0", "sign({}) <> 5", "round({}) < 1e9",
              "coalesce({}, {}) <= 1e308", "cast({} as bigint) > -5", "case when {} > 0 then true else {} < 0 end",
              "cast({} as double) > -1", "nullif({}, 5) <> 7", "{} * 0 = 0", "power({}, 2) >= 0"]  # fmt: skip
TEXTS = [*NUMBERS, "cast(s as double)", "cast(s as double) - x", "x - x", "x / y", "x * 0", "0 * y", "x + y - x"]


def missing(text: str) -> Any:
    """Where a number is NaN or NULL."""
    values = from_text(text, SCHEMA).series(ROWS).cast(pl.Float64, strict=False).to_numpy()
    return np.isnan(values)


def test_the_rows_have_every_reason_for_nan() -> None:
    assert sum(missing(text).any() for text in TEXTS) > 60
    assert missing("x - x").any()
    assert not missing("x").any()


@pytest.mark.parametrize("text", few(TEXTS))
def test_no_predicate_is_true_of_nan(text: str) -> None:
    nowhere = missing(text)
    for form in PREDICATES:
        predicate = form.replace("{}", f"({text})")
        assert not build_mean(predicate, SCHEMA).evaluate(ROWS)[nowhere].any(), predicate


@pytest.mark.parametrize("text", TEXTS)
@silence
def test_no_measure_counts_nan(text: str) -> None:
    nowhere = missing(text)
    for bounds in ((-1.0, 1.0), (-1e308, 1e307)):
        mean = build_mean(text, SCHEMA, within=bounds)
        said = mean.evaluate(ROWS)[nowhere]
        assert (np.isnan(said) | (said == 0)).all()
        assert mean.value.nullable or not np.isnan(said).any()
    below = build_at_most(text, 1e308, SCHEMA).evaluate(ROWS)[nowhere]
    assert not (below == 1).any()
    for histogram in (
        build_histogram(text, SCHEMA, bins=[-1e308, 0, 1, 1e308]),
        build_histogram(text, SCHEMA, categories=[0, 1, 2**62]),
    ):
        other = len(histogram.labels) - 1
        assert (histogram.evaluate(ROWS)[nowhere] == other).all()


x, y = pl.col("x"), pl.col("y")
POLARS = [x - x, x / x, x * 0, (x - x) + y, x.log(), x.sqrt(), x.sin(), pl.col("s").cast(pl.Float64)]


@pytest.mark.parametrize("value", few(POLARS, 2), ids=str)
def test_polars_does_not_call_nan_the_largest_number(value: pl.Expr) -> None:
    numbers = ROWS.select(value).to_series()
    nowhere = (numbers.is_nan() | numbers.is_null()).to_numpy()
    assert nowhere.any()
    for predicate in (
        *(value > 0, value >= 0, value < 0, value <= 0, value == value, value != 5, value > 0),
        *(value.is_between(-1, 1), ~(value > 0), value.clip(-1, 1) > -2, value.sign() > -2),
        *(pl.max_horizontal(value, value) > 0, pl.min_horizontal(value, value) < 1),
        *(pl.when(value > 0).then(True).otherwise(value < 0), value.is_in([0.0, 1.0])),
    ):
        assert not build_mean(predicate, SCHEMA).evaluate(ROWS)[nowhere].any(), str(predicate)
    assert build_mean(value.is_nan(), SCHEMA).evaluate(ROWS).any() or not numbers.is_nan().any()  # who asks is told


class Own:
    """A loss that is no number, or fails, where x is infinite or negative."""

    dimension = 1
    columns = ("x",)
    gradient_range = (-1.0, 1.0)
    value_range = (0.25, 3.0)

    def values(self, rows: pl.DataFrame, point: Any) -> Any:
        if (rows["x"] < 0).any():
            raise ValueError
        return rows["x"].to_numpy() - rows["x"].to_numpy() + 0.5

    def gradients(self, rows: pl.DataFrame, point: Any) -> Any:
        return self.values(rows, point)[:, None]


def test_a_loss_that_is_no_number_is_the_largest_and_has_no_slope() -> None:
    objective = OwnObjective.of(Own(), SCHEMA, Ball(1.0, 1))
    rows, point = ROWS.head(4), np.zeros(1)
    assert silence(objective.values)(rows, point).tolist() == [3.0, 3.0, 0.5, 3.0]
    assert silence(objective.coordinates)(rows, point, np.zeros(4, np.int64)).tolist() == [0.0, 0.0, 0.5, 0.0]


def test_no_category_is_mistaken_for_everything_else() -> None:
    named = ["other", "(other)", "nan"]
    histogram = build_histogram("s", SCHEMA, categories=named)
    assert len(set(histogram.labels)) == 4
    close = [0.1, float(np.nextafter(0.1, 1)), float(np.nextafter(np.nextafter(0.1, 1), 1))]
    assert len(set(build_histogram("x", SCHEMA, bins=close).labels)) == 3
