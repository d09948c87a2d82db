"""A mean by groups, and the difference of two: which rows count where, passes, prices, and what cannot be told."""

import json
import tracemalloc
from inspect import signature
from pathlib import Path
from typing import Any, get_overloads

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.errors import InvalidArgument, NotCovered
from holdfast.queries.build import build_difference, build_groups, build_histogram
from holdfast.queries.query import Query
from holdfast.questions.answer import Record
from holdfast.questions.difference import DifferenceAnswer
from holdfast.questions.estimate import TOO_FEW, Estimate
from holdfast.questions.mean import MEAN, AskMean, GroupsAnswer
from holdfast.rows.draws import AllRows
from holdfast.rows.source import RowSource
from holdfast.session.session import Session

ROWS = 6_000
COMPLETE = ("g", "x", "b")


def table() -> pl.DataFrame:
    rng = np.random.default_rng(5)
    texts = rng.choice(["a", "b", "c"], ROWS)
    return pl.DataFrame(
        {
            "s": [None if i % 7 == 0 else text for i, text in enumerate(texts)],
            "t": rng.choice(["u", "v"], ROWS),
            "g": rng.integers(0, 5, ROWS),
            "x": rng.random(ROWS),
            "b": rng.random(ROWS) < 0.4,
            "y": [None if i % 5 == 0 else i / ROWS for i in range(ROWS)],
        }
    )


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[RowSource]:
    """The rows in memory and in a folder, which keeps texts as codes."""
    path: Path = tmp_path_factory.mktemp("groups") / "rows.parquet"
    table().write_parquet(path)
    return [hf.open(table(), complete=COMPLETE), hf.open(path, complete=COMPLETE)]


def build(query: str, **options: Any) -> Query:
    schema = hf.open(table(), complete=COMPLETE).schema
    return (build_difference if "group" in options else build_groups)(query, schema, **options)


ASKED = [
    ("b", {"by": "s", "groups": ["a", "c", "never seen"]}, "s", [("a",), ("c",), ("never seen",)]),
    ("b", {"by": ["t", "g"], "groups": {"t": ["u"], "g": [3, 0]}, "where": "x > 0.3"}, "x > 0.3", [("u", 3), ("u", 0)]),
    ("y", {"by": ["s", "t"], "groups": [("a", "v"), ("b", "u")], "within": (0, 1)}, "y", [("a", "v"), ("b", "u")]),
    ("x", {"by": "b", "groups": None, "within": (0, 1)}, "x", [(True,), (False,)]),
    ("x", {"by": "g % 2 = 0", "groups": [False], "within": (0, 1)}, "x", [(False,)]),
]


def expected(query: str, options: dict[str, Any], groups: list[tuple[Any, ...]]) -> tuple[list[int], list[float]]:
    """Return the size and the sum of every group, by Polars."""
    frame = table()
    if "where" in options:
        frame = frame.filter(pl.col("x") > 0.3)
    keys = options["by"] if isinstance(options["by"], list) else [options["by"]]
    sizes, sums = [], []
    for group in groups:
        part = frame
        for key, value in zip(keys, group, strict=True):
            column = pl.col("g") % 2 == 0 if key == "g % 2 = 0" else pl.col(key)
            part = part.filter(column == value)
        part = part.filter(pl.col(query).is_not_null())
        sizes.append(part.height)
        sums.append(float(part[query].cast(pl.Float64).sum() or 0.0))
    return sizes, sums


@pytest.mark.parametrize(("query", "options", "_", "groups"), ASKED)
def test_every_row_counts_in_its_group(
    sources: list[RowSource], query: str, options: dict[str, Any], _: str, groups: list[tuple[Any, ...]]
) -> None:
    built = build(query, **options)
    sizes, sums = expected(query, options, groups)
    for source in sources:
        values = source.sample(built, AllRows(), np.random.default_rng(1))
        columns = built.statistic.columns(values)
        assert [int(column.sum()) for column in columns[::2]] == sizes
        assert [float(column.sum()) for column in columns[1::2]] == pytest.approx(sums)
        counts = source.tally(built, draws=200_000, mass=0.0, rng=np.random.default_rng(2))
        assert counts.sum() == 200_000
        for place, size in enumerate(sizes):
            share = size / ROWS
            drawn = (counts[1 + 2 * place] + counts[2 + 2 * place]) / 200_000
            assert abs(drawn - share) <= 6 * np.sqrt(share * (1 - share) / 200_000)
            if size:
                ones = counts[2 + 2 * place] / 200_000
                assert abs(ones - sums[place] / ROWS) <= 6 * np.sqrt(0.25 / 200_000)


def test_a_difference_to_the_rest_says_that_rows_of_which_it_is_unknown_are_among_it() -> None:
    rest = build("x", group="t = 'u'", other=None, within=(0, 1))
    stated = build("x", group="t = 'u'", other="NOT t = 'u'", within=(0, 1))
    assert rest.text.endswith("between t = 'u' and all other rows")
    assert stated.text.endswith("between t = 'u' and NOT (t = 'u')")
    assert rest.identity != stated.identity


def test_a_row_in_both_groups_of_a_difference_counts_in_neither(sources: list[RowSource]) -> None:
    frame = table()
    first, second = pl.col("x") > 0.5, pl.col("b")
    built = build("x", group="x > 0.5", other="b", within=(0, 1))
    rest = build("x", group="x > 0.5", other=None, within=(0, 1))
    for source in sources:
        columns = built.statistic.columns(source.sample(built, AllRows(), np.random.default_rng(1)))
        sizes = [int(column.sum()) for column in columns[::2]]
        assert sizes == [frame.filter(first & ~second).height, frame.filter(second & ~first).height]
        columns = rest.statistic.columns(source.sample(rest, AllRows(), np.random.default_rng(1)))
        assert sum(int(column.sum()) for column in columns[::2]) == ROWS


def flights(rows: int = 200_000) -> dict[str, Any]:
    rng = np.random.default_rng(6)
    group = rng.choice(4, rows, p=[0.6, 0.3, 0.0995, 0.0005])
    return {"g": np.array(list("abcd"))[group], "b": rng.random(rows) < 0.1 + 0.2 * group}


def test_groups_too_small_to_tell_show_no_value_anywhere() -> None:
    with Session(flights(), seed=1, queries=100) as session:
        answer = session.mean("b", by="g", groups=["a", "b", "c", "d"])
        assert isinstance(answer, GroupsAnswer)
        assert [one.too_few for one in answer.values()] == [False, False, False, True]
        assert "nan" not in repr(answer) + answer._repr_html_()
        assert repr(answer).count(TOO_FEW) == 1
        assert json.loads(json.dumps(answer.to_dict(), allow_nan=False))["groups"][3]["value"] is None
        assert answer.frame["value"].is_null().to_list() == [False, False, False, True]
        assert answer.frame.columns == ["g", "value", "low", "high", "share_low", "share_high"]
        assert session.history()["value"].null_count() == 1
        shares = answer.frame.filter(pl.col("g") == "b").select("share_low", "share_high").row(0)
        assert shares[0] <= 0.3 <= shares[1]
        assert session.mean("b", by="g", groups=["a", "b", "c", "d"]).cached
        alone = session.mean("b", where="g = 'd'")
        assert (alone.too_few, f"{alone:.2f}", repr(alone).startswith(TOO_FEW)) == (True, TOO_FEW, True)


def test_a_price_says_how_wide_groups_will_be_and_how_many_passes_it_takes() -> None:
    with Session(flights(), seed=1, queries=1_000) as session:
        price = session.price("b", by="g", groups=[*"abcdefghijklmnopqrstuvwxyz"])
        assert [share for share, _ in price.widths] == [0.01, 0.05, 0.2]
        assert price.widths[0][1] > price.widths[1][1] > price.widths[2][1] > session.plan.margin
        assert f"±{price.widths[2][1]:.3f}"[:5] in str(price)
        assert "26 groups in " in str(price)
        assert price.answers == 52
        passes = price.rows_read // session.plan.terms.rows_per_query
        most = session.plan.standing.most_at_once
        assert passes == -(-26 // ((most - 1) // 2)) > 1
        assert "for 20%" in str(session.price("b", where="g = 'a'"))
        assert session.price("b").widths == ()


@pytest.mark.parametrize(
    ("kind", "options"),
    [("mean", {"by": "g", "groups": [*"abcde"]}), ("difference", {"group": "g = 'a'", "other": "g = 'b'"})],
)
def test_a_price_counts_the_draws_of_all_passes(kind: str, options: dict[str, Any]) -> None:
    rows = {"g": [*"abcde"] * 4_000, "b": [number // 5 % 2 == 0 for number in range(20_000)]}
    with Session(rows, seed=1) as session:
        _, (share, margin) = session.price("b", kind, **options).widths[-2:]
        answer = session.ask("b", kind, **options)
        groups = [one for _, one in (answer.rows() if kind == "mean" else answer.parts)]
    assert share == 0.2
    assert margin == pytest.approx(np.mean([one.high - one.low for one in groups]) / 2, rel=0.05)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"groups": ["a"]}, "groups are values of by"),
        ({"by": "g"}, "groups must list the values of g"),
        ({"by": [], "groups": ["a"]}, "by must name at least one column"),
        ({"by": "g", "groups": ["a", "a"]}, "groups must be distinct"),
        ({"by": "g", "groups": [1]}, r"groups\[0\] must be"),
        ({"by": ["g", "b"], "groups": ["a"]}, r"groups\[0\] must be a list of 2 values"),
        ({"by": ["g", "b"], "groups": {"g": ["a"]}}, "a list for each of 2 expressions"),
        ({"by": "g", "groups": ["a"], "margin": 0.1}, "margin must be left out beside by"),
    ],
)
def test_refusals_say_what_is_wrong(options: dict[str, Any], words: str) -> None:
    with Session(flights(2_000), seed=1, queries=10) as session, pytest.raises(InvalidArgument, match=words):
        session.ask("b", **options)


@pytest.mark.parametrize(
    ("plan", "passes"),
    [
        ({"queries": 500, "guarantee": "exchange"}, 1),
        ({"queries": 500, "guarantee": "posterior"}, 1),
        ({"guarantee": "exchange"}, 2),  # without a plan, draws with five outcomes are too noisy
    ],
)
def test_a_difference_is_narrower_than_two_answers_subtracted(plan: dict[str, Any], passes: int) -> None:
    with Session(flights(), seed=1, **plan) as session:
        answer = session.difference("b", "g = 'a'", "g = 'b'")
        price = session.price("b", "difference", group="g = 'a'", other="g <> 'a'")
        assert price.rows_read == answer.rows_read == passes * session.mean("b").rows_read
        assert answer.low <= -0.2 <= answer.high
        assert answer.first.low <= 0.1 <= answer.first.high
        assert answer.second.low <= 0.3 <= answer.second.high
        one, other = session.mean("b", where="g = 'a'"), session.mean("b", where="g = 'b'")
        assert answer.high - answer.low < 0.9 * (one.high - one.low + other.high - other.low)
        assert answer.bounds == (-1.0, 1.0)
        assert answer.lift is not None
        assert answer.lift[0] <= 0.1 / 0.3 - 1 <= answer.lift[1]


def test_a_histogram_of_some_rows_has_shares_among_them(sources: list[RowSource]) -> None:
    frame = table()
    with Session(flights(), seed=1, queries=200) as session:
        whole = session.histogram("g", categories=["a", "b"])
        answer = session.histogram("g", categories=["a", "b"], where="g != 'a'")
        assert answer["a"].low == 0.0
        assert answer["b"].low <= 0.75 <= answer["b"].high
        assert (whole.cost, answer.cost) == (3, 4)
        assert answer.question == "histogram of g over 'a', 'b' where g <> 'a'"
    built = build_histogram("s", hf.open(table(), complete=COMPLETE).schema, categories=["a", "c"], where="b")
    for source in sources:
        columns = built.statistic.columns(source.sample(built, AllRows(), np.random.default_rng(1)))
        inside = frame.filter(pl.col("b"))
        found = [inside.filter(pl.col("s") == "a").height, inside.filter(pl.col("s") == "c").height]
        expected = [ROWS - inside.height, *found, inside.height - sum(found)]
        assert [int(column.sum()) for column in columns] == expected


def delays(rows: int = 200_000) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    return {"d": rng.exponential(20, rows) - 10, "b": rng.random(rows) < 0.5}


def test_slices_narrow_the_mean_of_a_number_with_few_large_values() -> None:
    with Session(delays(), seed=1, queries=500, complete=("d",)) as session:
        plain = session.mean("d", within=(-60, 600), slices="none")
        sliced = session.mean("d", within=(-60, 600), slices=[0, 60, 200])
        assert sliced.low <= 10 <= sliced.high
        assert sliced.high - sliced.low < 0.6 * (plain.high - plain.low)
        assert (sliced.cost, plain.cost) == (1, 1)
        assert abs(sliced.rows_read - plain.rows_read) < 10
        group = session.mean("d", within=(-60, 600), slices=[0, 60, 200], where="b")
        assert group.low <= 10 <= group.high
        assert session.mean("d", within=(-60, 600), slices=[0, 60, 200]).cached
        for options, words in [
            ({"slices": [700]}, "increasing numbers inside the range"),
            ({"slices": [5, 5]}, "increasing numbers"),
            ({"slices": "many"}, "slices must be one of 'auto', 'none'"),
            ({"slices": "auto", "margin": 1.0}, "margin must be left out beside slices"),
            ({"slices": [5], "margin": 1.0}, "margin must be left out beside slices"),
        ]:
            with pytest.raises(InvalidArgument, match=words):
                session.mean("d", within=(-60, 600), **options)
        with pytest.raises(InvalidArgument, match="slices are for the mean of a number"):
            session.mean("b", slices=[0.5])
    with Session(delays(2_000), queries=20, guarantee="split") as session, pytest.raises(NotCovered, match="slices"):
        session.mean("d", within=(-60, 600), slices=[0])


def test_slices_narrow_every_group_for_the_price_of_one_pass() -> None:
    data = delays() | {"g": np.array(["a", "b"])[np.arange(200_000) % 2]}
    groups = ["a", "b", "nobody"]
    with Session(data, seed=1, queries=500) as session:
        asked = {"within": (-60, 600), "by": "g", "groups": groups}
        price = session.price("d", **asked, slices=[0, 60, 200])
        plain, sliced = (session.mean("d", **asked, slices=slices) for slices in ("none", [0, 60, 200]))
        assert price.answers == plain.cost == sliced.cost
        assert price.rows_read == sliced.rows_read
        for group in groups[:2]:
            assert sliced[group].low <= 10 <= sliced[group].high
            assert sliced[group].margin < 0.7 * plain[group].margin
        alone = [session.mean("d", within=(-60, 600), where=f"g = '{g}'", slices=[0, 60, 200]) for g in "ab"]
        widths = [sum(each.high - each.low for each in them) for them in ([sliced["a"], sliced["b"]], alone)]
        assert widths[0] == pytest.approx(widths[1], rel=0.25)  # each of the four deviates by 6%
        assert np.isnan(sliced["nobody"].value)
        for low, high, share in zip(sliced.frame["share_low"], sliced.frame["share_high"], (0.5, 0.5, 0), strict=True):
            assert low <= share <= high
        assert session.mean("d", **asked, slices=[0, 60, 200]).cached
        with pytest.raises(InvalidArgument, match="slices are for the mean of a number"):
            session.mean("b", by="g", groups=groups, slices=[0.5])


def test_type_checkers_see_the_options_of_a_mean() -> None:
    options = [option.name for option in MEAN.options]
    for one in get_overloads(AskMean.__call__):
        assert list(signature(one).parameters)[1:] == options


def test_type_checkers_know_which_options_go_with_groups() -> None:
    alone, several = (signature(one).parameters for one in get_overloads(AskMean.__call__))
    assert several["slices"] == alone["slices"]
    refused = {"rows_per_unit": 9, "weight": "x", "largest_weight": 2.0, "margin": 0.1, "until": 0.1}
    with hf.Session(flights(2_000), seed=1) as session:
        for name, value in refused.items():
            assert several[name].annotation is None
            with pytest.raises(InvalidArgument, match="must be left out"):
                session.mean("b", by="g", groups=["a"], **{name: value})
    left = {name for name in several if name not in refused and several[name].annotation is None}
    assert left == set()


def test_groups_that_would_be_called_the_same_are_told_apart() -> None:
    group = np.random.default_rng(1).integers(0, 2, 50_000)
    values = {"p": np.array(["a, b", "a"])[group], "q": np.array(["c", "b, c"])[group], "b": group == 1}
    groups = [("a, b", "c"), ("a", "b, c")]
    with hf.Session(values, queries=20, seed=1) as session:
        for _ in ("asked", "asked before"):
            found = session.mean("b", by=["p", "q"], groups=groups)
            assert list(found) == ["'a, b', 'c'", "'a', 'b, c'"]
            assert list(found.values()) == list(found.answers) == [found[group] for group in groups]
            assert [round(found[label].value) for label in found] == [0, 1]
            assert "a, b, c" not in found
        assert session.history()["category"].to_list() == list(found)
        assert list(session.mean("b", by=["p", "q"], groups=groups[:1])) == ["a, b, c"]


def test_the_frame_of_groups_has_a_column_for_every_key() -> None:
    group = np.random.default_rng(1).integers(0, 3, 50_000)
    values = {"value": np.array(list("abc"))[group], "low": group, "by_low": group > 0, "b": group == 1}
    with hf.Session(values, queries=50, seed=1, categories={"value": list("abc"), "low": [0, 1, 2]}) as session:
        found = session.mean("b", by=["value", "low", "by_low"], groups=[("a", 0, False), ("b", 1, True)])
        keys = ["by_value", "by_low", "by_by_low"]
        assert found.frame.columns == [*keys, "value", "low", "high", "share_low", "share_high"]
        assert found.frame.select(keys).rows() == [("a", 0, False), ("b", 1, True)]
        assert found.frame["low"].to_list() == [one.low for one in found.answers]
        named = session.sql("SELECT value, low, AVG(b) AS share FROM data GROUP BY value, low")  # as before
        assert named.columns == ["value", "low", "share", "share_low", "share_high"]
        for by in (["low", "low"], ["low", "value", " low "], [pl.col("b"), pl.col("b")]):
            with pytest.raises(InvalidArgument, match=r"by must be distinct; got .* twice"):
                session.mean("b", by=by, groups=[(0,) * len(by)])
        session.mean("b", by=[lambda rows: rows["low"] > 0, lambda rows: rows["low"] > 1], groups=[(True, True)])


def test_combinations_are_counted_before_they_are_made() -> None:
    # A price is free, and that of 200 values of each of a few expressions took all memory before it was refused.
    session = hf.Session(table(), queries=20, seed=1)
    conditions = [f"x > {place / 100}" for place in range(20)]
    tracemalloc.start()
    try:
        with pytest.raises(InvalidArgument, match="all combinations of these values are more"):
            session.price("b", by=conditions)
        with pytest.raises(InvalidArgument, match="all combinations of these values are more"):
            session.price("b", by=["g", "g + 1", "g + 2"], groups={name: list(range(100)) for name in "abc"})
        with pytest.raises(InvalidArgument, match="all combinations of these values are more"):
            session.price_sql(f"SELECT AVG(b) FROM data GROUP BY {', '.join(conditions)}")
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


def test_slices_may_be_an_array() -> None:
    with hf.Session({"x": np.random.default_rng(1).random(50_000)}, queries=50, seed=1) as session:
        assert session.mean("x", within=(0, 1), slices=np.array([0.25, 0.5])).low > 0.3
        assert session.mean("x", within=(0, 1), slices=[0.25, 0.5]).cached


def test_a_lift_uses_what_is_known_of_the_difference() -> None:
    record = Record("difference", "d", "exchange", 0.95)
    bounds = (-1.0, 1.0)
    first, second = Estimate(0.5, 0.4, 0.6), Estimate(0.5, 0.4, 0.6)
    wide = DifferenceAnswer(0.0, -0.2, 0.2, record, bounds, first, second)
    narrow = DifferenceAnswer(0.0, -0.05, 0.05, record, bounds, first, second)
    assert wide.lift == pytest.approx((0.4 / 0.6 - 1, 0.6 / 0.4 - 1))
    assert narrow.lift == pytest.approx((-0.05 / 0.45, 0.05 / 0.4))
    unknown = DifferenceAnswer(0.0, -0.2, 0.2, record, bounds, first, Estimate(0.1, 0.0, 0.2))
    assert unknown.lift is None
