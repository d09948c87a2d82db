"""What each measure says about a row, NULL by NULL."""

from datetime import date, datetime

import numpy as np
import polars as pl
import pytest

from holdfast.guarantees.statistic import GroupMean, OneMean, OneShare, OutcomeShares
from holdfast.queries.build import build_at_most, build_groups, build_histogram, build_mean, build_total
from holdfast.queries.histogram import FEW_EDGES
from holdfast.queries.synthetic import synthetic_rows
from holdfast.schema import Column, Schema, Type
from query_examples import SCHEMA

NAN = float("nan")
INF = float("inf")


def values_of(query, **columns) -> list:
    result = query.evaluate(pl.DataFrame(columns))
    assert result.dtype in (np.bool_, np.float64, np.int64)
    return result.tolist()


def same(left: list, right: list) -> bool:
    return np.array_equal(np.array(left, dtype=float), np.array(right, dtype=float), equal_nan=True)


def test_a_null_predicate_is_false():
    query = build_mean("y > 0", SCHEMA)
    assert (query.statistic, query.bounds, query.columns) == (OneShare(), (0.0, 1.0), ("y",))
    assert values_of(query, y=[1.0, -1.0, None, NAN, INF]) == [True, False, False, False, True]
    assert values_of(build_mean("not (y > 0)", SCHEMA), y=[1.0, -1.0, None, NAN]) == [False, True, False, False]


def test_a_group_share_excludes_by_where_alone():
    query = build_mean("y > 0", SCHEMA, where="c")
    assert (query.statistic, query.columns) == (GroupMean(), ("y", "c"))
    answers = values_of(query, y=[1.0, -1.0, None, 1.0, 1.0], c=[True, True, True, False, None])
    assert same(answers, [1, 0, 0, NAN, NAN])


def test_a_mean_is_clipped_and_rescaled():
    query = build_mean("x", SCHEMA, within=(-10, 10))
    assert (query.statistic, query.bounds) == (OneMean(), (-10.0, 10.0))
    assert values_of(query, x=[-INF, -11.0, -10.0, 0.0, 5.0, 10.0, 1e300, INF]) == [0, 0, 0, 0.5, 0.75, 1, 1, 1]


def test_a_total_adds_numbers_that_are_clipped_and_nothing_for_rows_that_do_not_count():
    query = build_total("y", SCHEMA, within=(1, 4), where="c")
    assert (query.statistic, query.bounds) == (OneMean(), (0.0, 4.0))
    assert query.text == "mean of y within [1, 4] where c"
    answers = values_of(query, y=[-INF, 0.0, 2.0, INF, None, NAN, 2.0], c=[True] * 6 + [False])
    assert answers == [0.25, 0.25, 0.5, 1, 0, 0, 0]
    assert values_of(build_total("x", SCHEMA, within=(-4, -1)), x=[-9.0, 0.0]) == [0, 0.75]


def test_a_mean_leaves_out_what_has_no_value():
    query = build_mean("y", SCHEMA, within=(0, 4))
    assert query.statistic == GroupMean()
    assert same(values_of(query, y=[1.0, None, NAN, 4.0]), [0.25, NAN, NAN, 1])
    inside = build_mean("i", SCHEMA, within=(0, 4), where="b")
    assert inside.statistic == GroupMean()
    assert same(values_of(inside, i=[1, 2, 9], b=[True, False, True]), [0.25, NAN, 1])


def test_a_value_nobody_announced_as_missing_counts_low():
    query = build_mean("x - x", SCHEMA, within=(-1, 1))
    assert query.statistic == OneMean()
    assert values_of(query, x=[3.0, INF]) == [0.5, 0.0]


def test_nullability_is_decided_by_the_schema():
    always = ["x", "i + x", "coalesce(y, x)", "case when c then 1 else 2 end", "length(s)", "cast(b as int)"]
    sometimes = ["x / 2", "sqrt(x)", "y", "case when b then 1 end", "cast(s as int)", "length(t)", "ln(x)"]
    assert {build_mean(text, SCHEMA, within=(0, 1)).statistic for text in always} == {OneMean()}
    assert {build_mean(text, SCHEMA, within=(0, 1)).statistic for text in sometimes} == {GroupMean()}


def test_at_most_is_about_rows_that_have_a_value():
    assert values_of(build_at_most("x", 1, SCHEMA), x=[0.0, 1.0, 2.0, INF]) == [True, True, False, False]
    query = build_at_most("y", 1, SCHEMA)
    assert query.statistic == GroupMean()
    assert same(values_of(query, y=[0.0, 2.0, None, NAN]), [1, 0, NAN, NAN])
    within = build_at_most("x", 1, SCHEMA, where="b")
    assert same(values_of(within, x=[0.0, 2.0, 0.0], b=[True, True, False]), [1, 0, NAN])


@pytest.mark.parametrize(
    ("query", "categories", "values", "codes"),
    [
        ("t", ["UA", "", "é"], ["UA", "", None, "é", "ua", "x"], [0, 1, 3, 2, 3, 3]),
        ("j", [3, 1], [1, 2, 3, None], [1, 2, 0, 2]),
        ("y", [0, 0.5], [0.0, -0.0, 0.5, NAN, None, INF], [0, 0, 1, 2, 2, 2]),
        ("c", [True], [True, False, None], [0, 1, 1]),
        ("e", ["2020-01-01", date(2021, 1, 1)], [date(2021, 1, 1), None, date(2020, 1, 1)], [1, 2, 0]),
        (
            "v",
            [datetime(2020, 1, 1, 5), "2021-01-01"],
            [datetime(2021, 1, 1), datetime(2020, 1, 1, 5), None],
            [1, 0, 2],
        ),
        ("i", [2**63 - 1], [2**63 - 1, 2**63 - 2], [0, 1]),
    ],
)
def test_a_histogram_numbers_its_categories(query, categories, values, codes):
    histogram = build_histogram(query, SCHEMA, categories=categories)
    assert (histogram.statistic, histogram.labels[-1]) == (OutcomeShares(len(categories) + 1), "other")
    assert values_of(histogram, **{query: values}) == codes


def test_bins_of_equal_width_are_the_same_question_as_their_edges():
    edges = [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1]
    assert build_histogram("x", SCHEMA, bins=10, within=(0, 1)) == build_histogram("x", SCHEMA, bins=edges)
    bounded = Schema([Column("y", Type.FLOAT, False, (-60.0, 600.0))], dataset="t")
    assert build_histogram("y", bounded, bins=11) == build_histogram("y", bounded, bins=range(-60, 601, 60))
    assert build_histogram("y", SCHEMA, bins=1, within=(2, 3)).labels == ("[2, 3)", "other")


def test_bins_are_open_on_the_right():
    bins = build_histogram("y", SCHEMA, bins=[0, 1, 2])
    assert bins.statistic == OutcomeShares(3)
    assert bins.labels == ("[0, 1)", "[1, 2)", "other")
    assert values_of(bins, y=[-0.1, 0.0, 0.99, 1.0, 2.0, None, NAN, INF, -INF]) == [2, 0, 0, 1, 2, 2, 2, 2, 2]


def test_a_histogram_of_an_expression():
    histogram = build_histogram("case when c then upper(t) end", SCHEMA, categories=["A"])
    assert values_of(histogram, c=[True, False, None, True], t=["a", "a", "a", "b"]) == [0, 1, 1, 1]


@pytest.mark.parametrize("count", [0, 1, 200])
def test_results_are_what_the_contract_says(count):
    rows = synthetic_rows(SCHEMA, count, np.random.default_rng(2))
    for query in (
        build_mean("y > x", SCHEMA),
        build_mean("c", SCHEMA, where="s < t"),
        build_mean("x * y", SCHEMA, within=(-5, 5)),
        build_mean("x * x", SCHEMA, within=(-5, 5)),
        build_at_most("i - j", 3, SCHEMA),
        build_histogram("t", SCHEMA, categories=["a", "ab"]),
        build_histogram("y", SCHEMA, bins=[-10, 0, 10]),
        build_mean("case when true then 1 else i end", SCHEMA, within=(0, 2)),
    ):
        result = query.evaluate(rows)
        assert result.shape == (count,)
        if result.dtype == np.int64:
            assert np.all((result >= 0) & (result < query.statistic.outcomes))
        elif result.dtype == np.float64:
            assert np.all(np.isnan(result) | ((result >= 0) & (result <= 1)))
            assert query.statistic.outcomes == 3 or not np.isnan(result).any()
        else:
            assert result.dtype == np.bool_
            assert query.statistic.outcomes == 2


def test_only_the_columns_it_names_are_needed():
    query = build_mean("x > y", SCHEMA, where="b")
    assert query.columns == ("x", "y", "b")
    query.evaluate(pl.DataFrame({"x": [1.0], "y": [2.0], "b": [True]}))


@pytest.mark.parametrize("named", [["a"], ["a", "other"], ["(other)", "other"], ["other", "((other))", "(other)"]])
def test_everything_else_is_called_as_no_category_is(named):
    *labels, rest = build_histogram("s", SCHEMA, categories=named).labels
    assert labels == named
    assert rest not in named
    assert rest.strip("()") == "other"


def test_arrays_are_compared_in_double_precision():
    narrow = {"x": np.array([0.1, 0.3], dtype=np.float32)}
    wide = pl.DataFrame({"x": narrow["x"].astype(np.float64)})
    for query in (
        build_at_most("x", 0.1, SCHEMA),
        build_histogram("x", SCHEMA, bins=[0, 0.1, 0.3]),
        build_mean("x", SCHEMA, within=(0, 0.1)),
    ):
        said = [function.direct(narrow) for function in query.functions]
        assert query.combined(said).tolist() == query.evaluate(wide).tolist()


@pytest.mark.parametrize("edges", [2, FEW_EDGES, FEW_EDGES + 1, 300])
def test_bins_and_categories_are_found_alike_however_many_there_are(edges):
    rng = np.random.default_rng(edges)
    marks = sorted(set(rng.integers(-500, 500, edges * 2).tolist()))[:edges]
    marks += range(501, 501 + edges - len(marks))
    values = [-INF, -501.0, *marks, *(mark + 0.5 for mark in marks), 1e300, INF, NAN, *rng.normal(0, 400, 200).round(1)]
    bins = build_histogram("y", SCHEMA, bins=marks)
    inside = [sum(mark <= value for mark in marks) - 1 for value in values]
    assert values_of(bins, y=values) == [one if 0 <= one < edges - 1 else edges - 1 for one in inside]
    shuffled = rng.permutation(marks).tolist()
    listed = build_histogram("x", SCHEMA, categories=shuffled)
    expected = [shuffled.index(value) if value in shuffled else edges for value in values]
    (position,) = listed.functions
    assert position.direct is not None
    assert position.direct({"x": np.array(values)}).tolist() == expected


def test_the_listed_values_of_a_choice_are_those_that_it_takes():
    """A whole number beyond 2^53 that stands beside a fraction is a double, and so is the group that it names."""
    text = "case when b then 1.5 else 9007199254740993 end"
    grouped = build_groups("x > 0", SCHEMA, by=text, groups=None)
    assert grouped.groups == ((1.5,), (9007199254740992.0,))
    assert values_of(grouped, x=[1.0, 1.0], b=[True, False]) == [2, 4]
