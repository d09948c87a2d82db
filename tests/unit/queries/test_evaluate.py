"""Columns as row sources store them: narrow, wide, zoned or categorical, they are evaluated alike."""

from datetime import date, datetime

import numpy as np
import polars as pl
import pytest

from holdfast.queries.evaluate import nan_unless
from holdfast.queries.node import AddedColumn, Step, Steps
from holdfast.queries.parse import from_text
from holdfast.schema import Column
from query_examples import SCHEMA

MOMENT = datetime(2024, 2, 29, 12, 30, 15)


@pytest.mark.parametrize(
    ("text", "series", "values"),
    [
        ("i + 1", pl.Series("i", [1, 127], dtype=pl.Int8), [2, 128]),
        ("i > 200", pl.Series("i", [255, 5], dtype=pl.UInt8), [True, False]),
        ("i - 300", pl.Series("i", [255, 5], dtype=pl.UInt16), [-45, -295]),
        ("i = 9223372036854775807", pl.Series("i", [2**64 - 1, 5], dtype=pl.UInt64), [True, False]),
        ("x > 0.25", pl.Series("x", [0.5, 0.25], dtype=pl.Float32), [True, False]),
        ("y is null", pl.Series("y", [float("nan"), None, 1.0], dtype=pl.Float32), [True, True, False]),
        ("t = 'a'", pl.Series("t", ["a", "b", None], dtype=pl.Categorical), [True, False, None]),
        ("t || 'b'", pl.Series("t", ["a", None], dtype=pl.Enum(["a"])), ["ab", None]),
        ("b", pl.Series("b", [1, 0], dtype=pl.Int8), [True, False]),
        ("w = '2024-02-29 12:30:15'", pl.Series("w", [MOMENT], dtype=pl.Datetime("ms")), [True]),
        ("w = '2024-02-29 12:30:15'", pl.Series("w", [MOMENT], dtype=pl.Datetime("ns")), [True]),
        ("hour(w)", pl.Series("w", [MOMENT], dtype=pl.Datetime("us", "UTC")), [12]),
        (
            "hour(w)",
            pl.Series("w", [MOMENT], dtype=pl.Datetime("us", "UTC")).dt.convert_time_zone("Asia/Tokyo"),
            [12],
        ),
        ("year(d)", pl.Series("d", [2**31 - 1, -(2**31), 0], dtype=pl.Int32).cast(pl.Date), [9999, 1, 1970]),
        ("year(w)", pl.Series("w", [2**63 - 1, -(2**63), 0]).cast(pl.Datetime("us")), [9999, 1, 1970]),
        ("year(w)", pl.Series("w", [2**63 - 1, -(2**63), 0]).cast(pl.Datetime("ms")), [9999, 1, 1970]),
        ("year(w)", pl.Series("w", [2**63 - 1, -(2**63), 0]).cast(pl.Datetime("ns")), [2262, 1677, 1970]),
        ("cast(d as text)", pl.Series("d", [2**31 - 1], dtype=pl.Int32).cast(pl.Date), ["9999-12-31"]),
        (
            "cast(t as timestamp)",
            pl.Series("t", ["2024-02-29T12:30:15Z", "2024-02-29 14:30:15+02:00", "2024-02-29T12:30", "later"]),
            [MOMENT, MOMENT, MOMENT.replace(second=0), None],
        ),
        (
            "cast(t as date)",
            pl.Series("t", ["2024-02-29", "2024-02-29T12:30:15Z", "2024-03-01T01:00:00+02:00", "29.2.2024"]),
            [date(2024, 2, 29), date(2024, 2, 29), date(2024, 2, 29), None],
        ),
        ("d < w", pl.DataFrame({"d": [date(2024, 2, 29)], "w": [MOMENT]}), [True]),
    ],
)
def test_any_storage_type_is_evaluated_alike(text, series, values):
    rows = series if isinstance(series, pl.DataFrame) else series.to_frame()
    assert from_text(text, SCHEMA).series(rows).to_list() == values


def test_an_operation_that_fails_after_all_costs_its_own_row_alone():
    """The safety net under the table: here a compiled expression that Polars refuses for one value."""
    expression = from_text("cast(s as int)", SCHEMA)
    reads: dict[str, Column] = expression.reads
    strict = type(expression)(
        type=expression.type,
        nullable=True,
        text="",
        identity=None,
        compiled=Steps((), pl.col("s").cast(pl.Int64)),
        reads=reads,
    )
    assert strict.series(pl.DataFrame({"s": ["1", "x", "3"]})).to_list() == [1, None, 3]


def test_a_part_that_polars_folds_to_a_constant_is_repeated() -> None:
    rows = pl.DataFrame({"0": [1, 2, 3]})
    folded = pl.lit(0) == pl.coalesce(pl.lit(0), pl.col("0"))
    step = Step.of([AddedColumn("more", pl.col("0") > 1), AddedColumn("folded", folded)])
    assert step(rows)["folded"].to_list() == [True] * 3


@pytest.mark.parametrize(
    "values", [np.array([0.25, np.nan, -0.0, 1.0, np.inf]), np.array([True, False, True, False, True])]
)
def test_numbers_are_nan_where_a_row_is_not_inside_and_else_as_they_were(values):
    inside = np.array([True, True, True, False, True])
    found = nan_unless(inside, values)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, np.where(inside, values.astype(float), np.nan))
    assert np.isnan(nan_unless(~inside, values)).tolist() == [True, True, True, False, True]
