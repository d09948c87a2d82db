"""Declared once: bounds, categories and labels, in arguments or in a TOML file beside the data."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st

import holdfast as hf
from examples import examples
from holdfast.cli.output import spell
from holdfast.queries.parse import from_text
from holdfast.schema import Column, Schema, Type
from holdfast.service.errors import error_payload
from holdfast.session.beside import Declarations, declared_beside

FLIGHTS = {
    "dep_delay": np.linspace(-60.0, 600.0, 2_000),
    "distance": np.arange(2_000),
    "carrier": ["UA", "AA"] * 1_000,
    "late": [True, False] * 1_000,
}
TOML = """
[bounds]
dep_delay = [-60, 600]

[categories]
carrier = ["UA", "AA", "DL"]

[labels]
dep_delay = "departure delay in minutes"
"""


def session(**declared: object) -> hf.Session:
    return hf.Session(FLIGHTS, queries=50, seed=1, complete=list(FLIGHTS), **declared)


def test_what_is_declared_need_not_be_said_again() -> None:
    with session(bounds={"dep_delay": (-60, 600)}, categories={"carrier": ["UA", "AA"]}) as s:
        said = s.mean("dep_delay", within=(-60, 600))
        assert s.mean("dep_delay").seq == said.seq  # one question, stored with the bounds it used
        assert "within [-60, 600]" in said.question
        assert s.mean(pl.col("dep_delay")).bounds == (-60.0, 600.0)
        assert s.mean("dep_delay / 60").bounds == (-1.0, 10.0)
        assert s.quantile("dep_delay", 0.5, steps=2).bounds == (-60.0, 600.0)
        assert set(s.histogram("carrier")) == {"UA", "AA", "other"}
        assert set(s.histogram("late")) == {"True", "False", "other"}
        loss = hf.losses.Squared(["dep_delay"], target="dep_delay / 60")
        assert s.price(loss, "minimize", radius=1.0, iterations=2).answers > 0


def test_other_bounds_are_another_question() -> None:
    """The answer to a question under bounds that were declared before is not passed off as one under the new ones."""
    with session(bounds={"dep_delay": (-60, 600)}) as first, session(bounds={"dep_delay": (0, 100)}) as second:
        names = [s.prepare("dep_delay").identity for s in (first, second)]
        fits = [
            s.prepare(hf.losses.Squared(["dep_delay"], target="late"), "minimize", radius=1.0, iterations=2).identity
            for s in (first, second)
        ]
    assert len(set(names)) == len(set(fits)) == 2


def test_a_file_beside_the_data_declares_and_arguments_come_first(tmp_path: Path) -> None:
    path = tmp_path / "flights.parquet"
    pl.DataFrame(FLIGHTS).write_parquet(path)
    path.with_suffix(".toml").write_text(TOML)
    with hf.Session(path, queries=50, bounds={"dep_delay": (0, 100)}) as s:
        assert s.schema["dep_delay"].bounds == (0.0, 100.0)
        assert s.schema["dep_delay"].label == "departure delay in minutes"
        assert s.schema["carrier"].declared == "UA, AA, DL"
    assert declared_beside(tmp_path / "flights.held.holdfast").bounds == {"dep_delay": [-60, 600]}


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"bounds": {"delay": (0, 1)}}, "No column 'delay' in data. Did you mean 'dep_delay'?"),
        ({"bounds": {"carrier": (0, 1)}}, "bounds must be of numbers; 'carrier' is text."),
        (
            {"bounds": {"distance": (5, 1)}},
            "bounds['distance'] must be a pair (low, high) with low < high; got (5, 1).",
        ),
        ({"bounds": [("distance", 0, 1)]}, "bounds must be a dict by column names"),
        ({"categories": {"carrier": ["UA", "UA"]}}, "categories['carrier'] must be distinct; got 'UA' twice."),
        ({"categories": {"carrier": [1]}}, "categories['carrier'][0] must be"),
        ({"categories": {"carrier": "UA"}}, "categories['carrier'] must be a list of values, or 'published'"),
        ({"labels": {"carrier": "a\nb"}}, "labels['carrier'] must be a line"),
    ],
)
def test_declarations_that_do_not_fit_are_refused(declared: dict[str, object], words: str) -> None:
    with pytest.raises(hf.HoldfastError) as refused:
        session(**declared)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"), [("port = 1", "got 'port'. If it is something else"), ("[bounds", "cannot be read as TOML")]
)
def test_a_file_that_declares_nothing_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "flights.toml"
    path.write_text(text)
    with pytest.raises(hf.InvalidArgument, match=words):
        Declarations.read(path)


def test_a_file_that_declares_what_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "flights.parquet"
    pl.DataFrame(FLIGHTS).write_parquet(path)
    path.with_suffix(".toml").write_text("[bounds]\ndep_dely = [-60, 600]\n")
    with pytest.raises(hf.UnknownName) as refused:
        hf.Session(path)
    assert str(refused.value).startswith("flights.toml: No column 'dep_dely' in flights. Did you mean 'dep_delay'?")


def test_a_missing_range_is_refused_in_the_words_of_each_surface() -> None:
    with session() as s, pytest.raises(hf.InvalidArgument) as refused:
        s.mean("distance")
    assert "open the session with bounds={'distance': (low, high)}." in str(refused.value)
    typed = spell(str(refused.value), {"within": "--within"})
    assert typed.startswith("--within must say the range")
    assert "write distance = [low, high] under [bounds] in a TOML file beside the data" in typed
    served = error_payload(refused.value)["error"]
    assert served.endswith("The admin can declare it once, as bounds of 'distance', in a TOML file beside the data.")
    assert "low and high, such as 0, 100. It is declared" in served
    with session() as s, pytest.raises(hf.InvalidArgument, match=r"categories=\{'carrier': \[...\]\}"):
        s.histogram("carrier")


def test_a_dry_run_makes_up_what_is_declared() -> None:
    with session(bounds={"dep_delay": (-60, 600)}, categories={"carrier": ["UA", "AA"]}) as s:
        shares = s.dry_run("carrier", "histogram")
        assert shares["UA"].value > 0.1
        assert s.schema["carrier"].categories == ("UA", "AA")
        assert not s.ledger.begun


def test_a_column_travels() -> None:
    column = Column("carrier", Type.STRING, False, categories=("UA", "AA"), label="who flies")
    assert Column.from_json(column.to_json()) == column
    number = Column("delay", Type.FLOAT, True, (-60.0, 600.0))
    assert Column.from_json(number.to_json()) == number


# -- the range of an expression ---------------------------------------------------------------------------------------

SCHEMA = Schema((Column("a", Type.FLOAT, True, (-3.0, 2.0)), Column("b", Type.FLOAT, False, (1.0, 4.0))))
leaves = st.sampled_from(["a", "b", "2", "-1", "0.5", "(a > 0)::INTEGER"])
numbers = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds("{0}({1}, {2})".format, st.sampled_from(["LEAST", "GREATEST", "COALESCE", "NULLIF"]), inner, inner),
        st.builds("({1} {0} {2})".format, st.sampled_from("+-*"), inner, inner),
        st.builds("{0}({1})".format, st.sampled_from(["-", "ABS", "FLOOR", "CEIL", "ROUND"]), inner),
        st.builds("({0} / 4)".format, inner),
        st.builds("({0})::INTEGER".format, inner),
        st.builds("CASE WHEN {0} > 0 THEN {1} ELSE {2} END".format, inner, inner, inner),
    ),
    max_leaves=6,
)
ROWS = pl.DataFrame(
    [(a, b) for a in (None, -3.0, -2.0, -0.5, 0.0, 1.0, 2.0) for b in (1.0, 1.5, 3.0, 4.0)],
    schema=["a", "b"],
    orient="row",
)  # every number here has few binary digits, so that no operation rounds


@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(numbers)
def test_no_value_leaves_the_range_of_its_expression(text: str) -> None:
    try:
        value = from_text(f"{text} + 0 * b", SCHEMA)
    except hf.InvalidQuery:
        reject()
    assume(value.range is not None)
    low, high = value.range
    assert value.series(ROWS).drop_nulls().is_between(low, high).all()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", (-3.0, 2.0)),
        ("a / b", (-3.0, 2.0)),
        ("b / a", None),  # a may be 0
        ("a % 2", None),  # not followed
        ("2 + 0 * b", (2.0, 2.0)),
        ("(b / 8)::INTEGER", (0.0, 1.0)),  # it is rounded
        ("CAST(a / 4 AS BIGINT)", (-1.0, 1.0)),
        ("c::INTEGER", None),
        ("LEAST(GREATEST(c, 0.5)::INTEGER, 9)", (0.0, 9.0)),
        ("GREATEST(c, 0)", None),
        ("LEAST(GREATEST(c, 0), 9)", (0.0, 9.0)),
        ("EXTRACT(hour FROM t)", (0.0, 23.0)),
    ],
)
def test_ranges(text: str, expected: tuple[float, float] | None) -> None:
    others = (Column("c", Type.FLOAT, True), Column("t", Type.DATETIME, True))
    found = from_text(text, Schema((*SCHEMA.columns, *others))).range
    assert found == (None if expected == (2.0, 2.0) else expected)  # a constant has no range to clip to


def test_an_admin_may_publish_the_texts_of_a_column(tmp_path: Path) -> None:
    frame = pl.DataFrame({"carrier": ["UA", "AA", None, "DL"] * 500, "late": [True, False] * 1_000})
    with hf.Session(frame, queries=80, seed=1, categories={"carrier": "published"}) as s:
        assert s.schema["carrier"].declared == "published: AA, DL, UA"
        for answer in (s.histogram("carrier"), s.mean("late", by="carrier"), s.top("carrier", most=2)):
            assert answer.question.endswith("; the values of carrier are published from the data")
        assert set(s.histogram("carrier")) == {"AA", "DL", "UA", "other"}
        assert s.sql("SELECT carrier, COUNT(*) FROM data GROUP BY carrier")["carrier"].to_list() == ["AA", "DL", "UA"]
        assert "published" not in s.mean("late").question
    frame.write_parquet(tmp_path / "flights.parquet")
    (tmp_path / "flights.toml").write_text('[categories]\ncarrier = "published"\n')
    with hf.Session(tmp_path / "flights.parquet", queries=80, seed=1) as s:
        assert s.schema["carrier"].categories == ("AA", "DL", "UA")
        assert Column.from_json(s.schema["carrier"].to_json()) == s.schema["carrier"]


@pytest.mark.parametrize("texts", [[None, None], ["", None], ["a", None]])
def test_the_same_texts_are_published_from_memory_and_from_a_folder(tmp_path: Path, texts: list[str | None]) -> None:
    frame = pl.DataFrame({"note": pl.Series(texts * 50, dtype=pl.String)})
    frame.write_parquet(tmp_path / "notes.parquet")
    in_memory, on_disk = hf.open(frame), hf.open(tmp_path / "notes.parquet", progress=False)
    assert in_memory.texts("note") == on_disk.texts("note") == sorted({text for text in texts if text is not None})


@pytest.mark.parametrize(
    ("categories", "message"),
    [
        ({"late": "published"}, "categories['late'] can be 'published' for a column of texts; 'late' is a boolean"),
        (
            {"carrier": "publish"},
            "must be a list of values, or 'published' for those it has; got 'publish'",
        ),
    ],
)
def test_what_cannot_be_published_is_refused(categories: dict[str, str], message: str) -> None:
    with pytest.raises(hf.InvalidArgument) as refused:
        session(categories=categories)
    assert message in str(refused.value)


def test_held_rows_publish_the_texts_of_the_exploration_part(tmp_path: Path) -> None:
    """Otherwise a guess that all rows have one of the listed texts would always hold, and never for the population."""
    texts = [f"t{number:03}" for number in np.random.default_rng(1).integers(0, 500, 1_000)]
    pl.DataFrame({"s": texts, "y": [True, False] * 500}).write_parquet(tmp_path / "trips.parquet")
    (tmp_path / "trips.toml").write_text('[categories]\ns = "published"\n')
    explore, held = hf.hold_back(tmp_path / "trips.parquet", explore=0.5, seed=1)
    known = tuple(sorted(set(explore["s"])))
    with held:
        assert held.schema["s"].categories == known
        assert not held.schema["s"].published
    again = {"guarantee": "checks", "seed": 1}
    for more in ({}, {"categories": {"s": "published"}}):
        with hf.Session(tmp_path / "trips.held.holdfast", **again, **more) as held:
            assert held.schema["s"].categories == known
            listed = ", ".join(f"'{text}'" for text in known)
            assert held.check(f"s IN ({listed})", guess=1.0, margin=0.005).outcome != "holds"
    (tmp_path / "trips.explore.parquet").unlink()
    with pytest.raises(hf.InvalidArgument, match=r"trips.toml: The texts of 's' cannot be published: these rows check"):
        hf.Session(tmp_path / "trips.held.holdfast", **again)
    (tmp_path / "trips.toml").write_text('[categories]\ns = ["t001"]\n')
    with hf.Session(tmp_path / "trips.held.holdfast", **again) as held:
        assert held.schema["s"].categories == ("t001",)


@pytest.mark.parametrize("checking", [{"guarantee": "checks"}, {"queries": 50, "checks": 0.2}])
def test_rows_that_check_guesses_publish_nothing(checking: dict[str, object]) -> None:
    frame = pl.DataFrame({"carrier": ["UA", "AA", None, "DL"] * 500, "late": [True, False] * 1_000})
    with pytest.raises(hf.InvalidArgument, match="'carrier' cannot be published: these rows check guesses"):
        hf.Session(frame, seed=1, categories={"carrier": "published"}, **checking)
    with hf.Session(frame, seed=1, categories={"carrier": ["UA", "AA"]}, **checking) as session:
        assert session.schema["carrier"].categories == ("UA", "AA")


@pytest.mark.parametrize("checking", [{"checks": 0.2}, {"guarantee": "checks"}])
def test_texts_are_not_published_beside_a_plan_that_checks_whoever_began_it(checking: dict[str, object]) -> None:
    """The plan of another session stands from its first answer on, also for one that was opened before."""
    rows = hf.open({"carrier": ["UA", "AA", None, "DL"] * 500, "late": [True, False] * 1_000})
    early = hf.Session(rows, categories={"carrier": "published"})
    hf.Session(rows, **checking).answering.plan.begin()
    message = "'carrier' cannot be published: these rows check guesses"
    for ask in (lambda: early.check("carrier = 'UA'", 0.3, 0.05), lambda: early.mean("late"), lambda: early.plan):
        with pytest.raises(hf.InvalidArgument, match=message):
            ask()
    assert early.ledger.spent.answers == 0
