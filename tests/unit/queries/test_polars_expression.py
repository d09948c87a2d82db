"""Polars expressions pass node by node; what could look at other rows does not."""

from datetime import date

import numpy as np
import polars as pl
import pytest

from holdfast.errors import HoldfastError, InvalidQuery
from holdfast.guarantees.statistic import GroupMean, OneMean
from holdfast.queries.build import build_histogram, build_mean, rowwise
from holdfast.queries.synthetic import synthetic_rows
from holdfast.schema import Type
from query_examples import SCHEMA

c = pl.col
REFUSED = {
    "mean": c.x - c.x.mean(), "sum": c.x.sum() > 1, "max": c.x == c.x.max(), "first": c.x.first() > 0,
    "len": pl.len() > 3,
    "shift": c.x.shift(1) > 0, "over": c.x.over("s") > 1, "rank": c.x.rank() > 1, "sort": c.x.sort() > 1,
    "cum_sum": c.x.cum_sum() > 1, "diff": c.x.diff() > 0, "reverse": c.x.reverse() > 0, "head": c.x.head(1),
    "sample": c.x.sample(1), "shuffle": c.x.shuffle(), "unique": c.x.unique(), "gather": c.x.gather([0]),
    "filter": c.x.filter(c.b), "duplicated": c.i.is_duplicated(), "first_distinct": c.i.is_first_distinct(),
    "rolling": c.x.rolling_mean(3), "interpolate": c.y.interpolate(),
    "forward": c.y.forward_fill(),
    "fill_strategy": c.y.fill_null(strategy="mean"),
    "map_elements": c.x.map_elements(lambda v: v, return_dtype=pl.Float64),
    "map_batches": c.x.map_batches(lambda s: s), "all": pl.all() > 1, "several": pl.col("x", "y"),
    "regex": pl.col("^x.*$"),
    "constant": pl.lit(1) > 0, "series": c.x > pl.Series([1.0, 2.0]), "strings regex": c.s.str.contains("(a+)+b"),
    "replace": c.s.str.replace_all("a", "b"), "to_date": c.s.str.to_date(), "split": c.s.str.split(","),
    "unknown": c.nope > 1, "is_in column": c.x.is_in(c.y.implode()),
    "is_in batch": c.x.is_in(c.y), "lit is_in batch": pl.lit(17).is_in(c.i), "is_in len": c.i.is_in(pl.len()),
    "is_in element": c.i.is_in(pl.element()), "infinite": c.x < float("inf"), "int_range": pl.int_range(pl.len()) > 1,
    "random": pl.lit(1).sample(1) > c.x, "hash": c.x.hash(), "struct": pl.struct("x", "y"), "implode": c.x.implode(),
    "pow": c.i**c.j, "list cast": c.x.cast(pl.List(pl.Float64)), "quantile": c.x > c.x.quantile(0.5), "any": c.b.any(),
    "all rows": c.b.all(), "arg_max": c.x.arg_max() == c.i, "search_sorted": c.x.search_sorted(1.0),
    "explode": c.x.explode(),
    "mode": c.x.mode(), "null_count": c.y.null_count() > 1, "ewm": c.x.ewm_mean(alpha=0.5), "entropy": c.x.entropy(),
    "wrong types": c.s + 1, "concat": c.x.append(c.y), "repeat_by": c.s.repeat_by(c.i),
}  # fmt: skip
ALLOWED = {
    "x > 0.5": c.x > 0.5, "c & b": c.c & c.b, "~c": ~c.c, "y.is_null()": c.y.is_null(), "i + 1": c.i + 1,
    "cast": c.s.cast(pl.Int64), "when": pl.when(c.c).then(c.x).otherwise(None), "is_in": c.i.is_in([1, 2]),
    "fill": c.y.fill_null(0), "clip": c.x.clip(0, 1), "round": c.x.round(2), "log": c.x.log(), "sqrt": c.x.sqrt(),
    "year": c.d.dt.year() > 2000, "date": c.d > date(2020, 1, 1), "contains": c.s.str.contains("a", literal=True),
    "lower": c.t.str.to_lowercase() == "a", "len": c.s.str.len_chars(), "between": c.x.is_between(0, 1),
    "max": pl.max_horizontal("x", "y"), "coalesce": pl.coalesce("y", "x"), "div": c.i / c.j, "floordiv": c.i // c.j,
    "mod": c.i % c.j, "abs": c.i.abs(), "neg": -c.i, "alias": (c.x > 1).alias("z"), "sin": c.x.sin(),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_could_look_at_other_rows_is_refused(name):
    with pytest.raises(HoldfastError) as refusal:
        build_mean(REFUSED[name], SCHEMA, within=(0, 1))
    assert str(refusal.value).endswith(".")
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_allowed_is_total_and_row_by_row(name):
    expression = rowwise(ALLOWED[name], SCHEMA)
    rows = synthetic_rows(SCHEMA, 80, np.random.default_rng(4), hostile=0.7)
    together = expression.series(rows)
    alone = pl.concat([expression.series(row) for row in rows.iter_slices(1)])
    assert together.equals(alone, null_equal=True)


def test_strict_casts_do_not_raise_and_do_not_quote():
    query = build_mean(c.s.cast(pl.Int64) > 1, SCHEMA)
    assert query.evaluate(pl.DataFrame({"s": ["2", "secret", "0"]})).tolist() == [True, False, False]
    assert '"Strict"' not in query.identity


def test_the_type_is_found_on_made_up_rows():
    assert rowwise(c.x > 1, SCHEMA).type is Type.BOOL
    assert rowwise(c.i + 1, SCHEMA).type is Type.INT


def test_only_a_plain_column_is_trusted_never_to_be_missing():
    assert build_mean(c.x, SCHEMA, within=(0, 1)).statistic == OneMean()
    assert build_mean(c.y, SCHEMA, within=(0, 1)).statistic == GroupMean()
    assert build_mean(c.x.sqrt(), SCHEMA, within=(0, 1)).statistic == GroupMean()
    # No made-up text is ever this one, so trying it would not show that values can be missing.
    rare = pl.when(c.s != "a text that nobody makes up").then(c.x)
    assert build_mean(rare, SCHEMA, within=(0, 1)).statistic == GroupMean()


def test_identity_is_the_tree():
    assert build_mean(c.x > 1, SCHEMA).identity == build_mean(pl.col("x") > 1, SCHEMA).identity
    assert build_mean(c.x > 1, SCHEMA).identity != build_mean(c.x > 2, SCHEMA).identity
    assert build_mean(c.x > 1, SCHEMA).identity != build_mean("x > 1", SCHEMA).identity


@pytest.mark.parametrize(("levels", "says"), [(100, "write it as text"), (400, "parts"), (3_000, "must be")])
def test_a_tree_too_deep_is_refused(levels, says):
    deep = c.x
    for _ in range(levels):
        deep = deep + 1
    with pytest.raises(InvalidQuery, match=says):
        build_mean(deep > 0, SCHEMA)


def test_histogram_of_an_expression():
    query = build_histogram(c.t.str.to_lowercase(), SCHEMA, categories=["a"])
    assert query.evaluate(pl.DataFrame({"t": ["A", "b", None]})).tolist() == [0, 1, 1]


def test_a_number_is_written_as_a_number():
    assert rowwise((c.x > 1.5) & (c.i > -15), SCHEMA).text == '[([(col("x")) > (1.5)]) & ([(col("i")) > (-15)])]'
