"""One signature for every surface: options read from JSON, a command line or a form ask the same question."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Annotated, Any

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.errors import InvalidArgument
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.ladder import Ladder
from holdfast.ledger import Answered
from holdfast.optimize.losses import LinearLoss
from holdfast.questions import KINDS, kind_named
from holdfast.questions.board_files import BoardFiles
from holdfast.questions.options import (
    About,
    BoxForm,
    Categories,
    Edges,
    Expressions,
    GroupsForm,
    LossForm,
    Query,
    Real,
    Reals,
    Text,
    Whole,
    options_of,
    plain,
)
from holdfast.questions.question import Context
from holdfast.schema import Column, Schema, Type
from holdfast.session.planning import plan

COLUMNS = (("b", Type.BOOL), ("x", Type.FLOAT), ("g", Type.INT), ("s", Type.STRING), ("d", Type.DATE))
SCHEMA = Schema(tuple(Column(name, kind, False) for name, kind in COLUMNS))
LOSS = hf.losses.Logistic({"x": (0, 1)}, "b")


class Ids(BoardFiles):
    """A board of which only the ids are known."""

    def __init__(self, ids: Sequence[int], others: Sequence[int]) -> None:
        self._known, self._elsewhere = ids, others

    def ids(self, column: str) -> pl.Series:
        return pl.Series(column, self._known)

    def others(self, column: str) -> pl.Series:
        return pl.Series(column, self._elsewhere)

    @property
    def unit_starts(self) -> None:
        return None

    def key(self) -> bytes:
        return b""


def context_of(guarantee: Guarantee, schema: Schema, ids: Sequence[int] = (), others: Sequence[int] = ()) -> Context:
    return Context(guarantee, schema, guarantee.rows_at(0), Ids(ids, others))


@pytest.fixture(scope="module")
def context() -> Context:
    return context_of(plan(rows=10**6, queries={"mean": 100, "flip": 100}).standing, SCHEMA)


ASKED: list[tuple[str, dict[str, Any]]] = [
    ("mean", {"query": "b"}),
    ("mean", {"query": "x", "within": (0, 1), "where": "g = 1", "rows_per_query": np.int64(7)}),
    ("mean", {"query": "x > 0.5", "margin": 0.2}),
    ("mean", {"query": "b", "by": "s", "groups": ("a", "b")}),
    ("mean", {"query": "b", "by": ["s", "g"], "groups": {"s": ["a"], "g": np.array([1, 2])}}),
    ("mean", {"query": "x", "within": (0, 1), "by": ("s", "d"), "groups": [("a", date(2024, 2, 29))]}),
    ("difference", {"query": "b", "group": "g = 1", "other": "g = 2", "where": "x > 0"}),
    ("difference", {"query": "x", "group": "b", "within": (0, 1)}),
    ("difference", {"query": "b", "minus": "x > 0.5"}),
    ("variance", {"query": "x", "within": (0, 1), "where": "b", "rows_per_query": 500}),
    ("count", {"query": "b", "population": np.int64(50), "margin": 20}),
    ("total", {"query": "x", "within": (0, 1), "where": "b", "population": 7}),
    ("std", {"query": "x", "within": (0, 1)}),
    ("covariance", {"query": "x", "other": "b", "within": (0, 1)}),
    ("correlation", {"query": "b", "other": "x", "other_within": (0, 1), "where": "g = 1"}),
    ("slope", {"query": "x", "other": "b", "within": (0, 1), "rows_per_query": 900}),
    ("histogram", {"query": "s", "categories": ("a", "b")}),
    ("histogram", {"query": "d", "categories": [date(2024, 2, 29)]}),
    ("histogram", {"query": "x", "bins": np.array([0.0, 0.5, 1.0]), "rows_per_query": 500}),
    ("histogram", {"query": "x", "bins": np.int64(4), "within": (0, 1)}),
    ("auc", {"query": "x", "positive": "b", "within": (0, 1), "cuts": np.array([0.25, 0.5])}),
    ("top", {"query": "s", "longest": np.int64(1), "alphabet": "abc"}),
    ("quantile", {"query": "x", "q": 0.5, "within": (0.0, 2.0), "steps": 4}),
    ("flips", {"query": "b", "count": 3}),
    ("minimize", {"loss": LOSS, "radius": 2, "iterations": 5}),
    ("minimize", {"loss": LOSS, "box": (-1, 1), "average": "uniform", "runs": 2, "select": "coins"}),
    ("minimize", {"loss": LOSS, "box": [(-1, 1), (0, 2)], "mechanism": "coins", "rows_per_coordinate": 3}),
    ("check", {"query": "b", "guess": 0.5}),
    ("check", {"query": "x", "guess": 1, "margin": 0.1, "within": (0, 2), "where": "g = 1", "at_least": np.int64(9)}),
    ("check", {"query": "b", "guess": 0.5, "margin": 0.1, "rows_per_query": 1_000}),
    ("register", {"questions": ["b", {"kind": "quantile", "query": "x", "q": np.float64(0.5), "within": (0, 1)}]}),
    ("units", {"query": "x > 0.5", "at_least": np.int64(2), "where": "b"}),
    ("units", {"query": "x", "cap": 3, "margin": 0.5}),
    ("submit", {"predictions": {"id": [2, 1, 3], "prediction": np.array([True, False, True])}, "name": "first"}),
    ("submit", {"predictions": pl.DataFrame({"id": ["3", "2", "1"], "b": ["true", "false", "true"]})}),
    ("confusion", {"predictions": {"id": [2, 1, 3], "prediction": ["a", "b", "a"]}, "positive_label": "a"}),
]
CHECKING = context_of(plan(rows=10**6, queries=1, guarantee="checks").standing, SCHEMA)
SCORED: dict[str, Any] = {
    "metric": "accuracy",
    "id": "id",
    "target": "b",
    "low": 0.0,
    "high": 1.0,
    "clip": 0.001,
    "classes": "[]",
}
LADDER = Ladder.grid(3, confidence=0.95, step=None, scale=1.0, about="labels", **SCORED)
UNITS = context_of(plan(rows=10**6, queries=100).standing, replace(SCHEMA, unit="g"))
SEALED = Schema((Column("id", Type.INT, False), Column("label", Type.STRING, False)), "sealed")
ANSWERING = context_of(
    plan(rows=10**6, queries=100).standing,
    SEALED,
    ids=[1, 2],
    others=[3],
)
BOARD = context_of(LADDER, SCHEMA, ids=[1, 2, 3])


CONTEXTS = {"check": CHECKING, "submit": BOARD, "units": UNITS, "confusion": ANSWERING}


def test_every_kind_is_asked_here() -> None:
    assert {kind for kind, _ in ASKED} == set(KINDS.names())


@pytest.mark.parametrize(("name", "values"), ASKED, ids=lambda value: f"{value!s:.50}")
def test_a_question_that_travels_is_the_same_question(context: Context, name: str, values: dict[str, Any]) -> None:
    kind, context = KINDS[name], CONTEXTS.get(name, context)
    sent = json.loads(json.dumps(kind.to_json(values), allow_nan=False))
    assert sent.pop("kind") == name
    here, there = kind.question(context, **values), kind.question(context, **kind.from_json(sent))
    assert (there.identity, there.text, there.cost) == (here.identity, here.text, here.cost)
    assert (there.forecast(Answered(0, 0)), there.rows_read) == (here.forecast(Answered(0, 0)), here.rows_read)


def test_what_is_left_out_is_not_sent() -> None:
    assert KINDS["mean"].to_json({"query": "b", "where": None}) == {"kind": "mean", "query": "b"}
    assert KINDS["mean"].from_json({"query": "b", "where": None}) == {"query": "b"}


@pytest.mark.parametrize("code", [pl.col("x") > 0, lambda rows: rows["b"]])
def test_code_does_not_travel(code: Any) -> None:
    for values in ({"query": code}, {"query": "b", "where": code}):
        with pytest.raises(InvalidArgument, match="must be text when a server is asked"):
            KINDS["mean"].to_json(values)
        with pytest.raises(InvalidArgument, match="must be text when a server is asked"):
            KINDS["register"].to_json({"questions": ["b", values]})


@pytest.mark.parametrize("kind", KINDS.names())
def test_options_a_kind_does_not_have_are_refused_with_a_hint(context: Context, kind: str) -> None:
    for ask in (KINDS[kind].to_json, KINDS[kind].from_json, lambda values: KINDS[kind].question(context, **values)):
        with pytest.raises(InvalidArgument, match=f"{kind} has no option"):
            ask({"nonsense": 1})
    with pytest.raises(InvalidArgument, match="Did you mean 'within'"):
        KINDS["mean"].question(context, "x", whitin=(0, 1))
    with pytest.raises(InvalidArgument, match=r"minimize has no option 'target'\. It has: "):  # not average
        KINDS["minimize"].question(context, "x", target="y")
    with pytest.raises(InvalidArgument, match=r"quantile needs 'q', such as 0\.9\.$"):
        KINDS["quantile"].question(context, "x")
    with pytest.raises(InvalidArgument, match=r"mean takes only query without writing a name; .*, such as within=\.$"):
        KINDS["mean"].question(context, "x", (0, 1))
    with pytest.raises(InvalidArgument, match=r"takes only query and other without writing a name; .* such as within="):
        KINDS["correlation"].question(context, "x", "y", (0, 1))
    with pytest.raises(InvalidArgument, match="mean cannot be asked this way: multiple values for argument 'query'"):
        KINDS["mean"].question(context, "x", query="y")


@pytest.mark.parametrize("kind", KINDS.names())
def test_every_option_says_what_it_is(kind: str) -> None:
    found = KINDS[kind]
    assert found.summary.endswith(".")
    assert found.subject is found.options[0]
    assert found.subject.required
    for option in found.options:
        assert option.help.endswith(".")
        assert option.form.example
        assert option.name in (found.build.__doc__ or "")


TYPED: list[tuple[Any, str, Any]] = [
    (Text(), "x > 1", "x > 1"),
    (Whole(), "10,000", 10_000),
    (Whole(), "10_000", 10_000),
    (Whole(), "1e6", 1_000_000),
    (Expressions(), "carrier", "carrier"),
    (Expressions(), "origin, DATE_TRUNC('a, b', day)", ["origin", "DATE_TRUNC('a, b', day)"]),
    (GroupsForm(), "EWR, UA; JFK, B6;", [["EWR", "UA"], ["JFK", "B6"]]),
    (GroupsForm(), '["a; b"]', ["a; b"]),
    (Real(), "0.25", 0.25),
    (Reals(2), "0, 100", (0.0, 100.0)),
    (Reals(2), "-1 to 1", (-1.0, 1.0)),
    (Reals(), "0, 10, 100,", [0.0, 10.0, 100.0]),
    (Categories(), "UA, AA", ["UA", "AA"]),
    (Categories(), "1, 2.5, true, '7', x", [1, 2.5, True, "7", "x"]),
    (Categories(), '["a, b", 1, null]', ["a, b", 1, None]),
    (BoxForm(), "-1, 1", (-1.0, 1.0)),
    (BoxForm(), "[[-1, 1], [0, 2]]", [[-1, 1], [0, 2]]),
    (BoxForm(), "[-1, 1]", (-1, 1)),
]


@pytest.mark.parametrize(("form", "text", "value"), TYPED, ids=lambda value: f"{value!s:.30}")
def test_what_people_type(form: Any, text: str, value: Any) -> None:
    found = form.parse("it", text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (Whole(), "many"), (Whole(), "1.5"), (Whole(), "inf"), (Whole(), ""), (Real(), "half"), (Reals(2), "1"),
        (Reals(2), "1, 2, 3"),
        (Reals(), "1, x"), (Edges(), "x"),
        (Categories(), "[1, 2"), (BoxForm(), "[1, 2"), (BoxForm(), "1"), (LossForm(), "late"),
    ],
    ids=str,
)  # fmt: skip
def test_what_nobody_can_read_is_refused_by_name(form: Any, text: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        form.parse("bins", text)
    assert str(refusal.value).startswith("loss must be" if isinstance(form, LossForm) else "bins must be")


def test_a_loss_is_read_from_a_formula_or_an_object() -> None:
    form = LossForm()
    for found in (form.parse("loss", "logistic: b ~ x [0, 1]"), form.from_json(form.to_json("loss", LOSS))):
        assert isinstance(found, LinearLoss)
        assert found.names == LOSS.names
    assert form.from_json(LOSS) is LOSS


def test_plain_values_are_what_json_knows() -> None:
    value = {"a": (1, np.float64(2.5)), "b": np.arange(2), "c": date(2024, 1, 2), "d": "text", "e": None}
    assert plain(value) == {"a": [1, 2.5], "b": [0, 1], "c": "2024-01-02", "d": "text", "e": None}


def test_a_parameter_without_a_form_is_a_mistake_of_the_programmer() -> None:
    def lacking(context: Context, query: Query, size: int = 1) -> None: ...

    def described(context: Context, query: Query, size: Annotated[int, "a number"] = 1) -> None: ...

    for build in (lacking, described):
        with pytest.raises(TypeError, match=r"'size' of .* must be Annotated with its form"):
            options_of(build)


def test_what_a_kind_says_of_a_shared_option_is_what_is_shown() -> None:
    def scored(context: Context, query: Annotated[Query, About(Text("late"), "A score.")]) -> None: ...

    (option,) = options_of(scored)
    assert (option.form.example, option.help) == ("late", "A score.")
    assert kind_named("auc").subject.help.startswith("A score")
    assert kind_named("histogram").subject.form.example == "carrier"
