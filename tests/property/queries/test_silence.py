"""Nothing raises or warns about the rows, however numpy and Python were told to complain.

The attack: tell numpy to raise and Python to turn warnings into errors, ask about a column in which one row is extreme,
and see whether anything happens. Every operation, measure and loss must say the same as when nobody complains.
"""

import _thread
import inspect
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from types import FrameType
from typing import Any

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from examples import few
from holdfast.errors import InvalidQuery
from holdfast.queries import evaluate
from holdfast.queries.build import build_at_most, build_histogram, build_mean
from holdfast.queries.evaluate import silence
from holdfast.queries.from_python import from_polars
from holdfast.queries.guess import Guess
from holdfast.queries.parse import from_text
from holdfast.queries.query import Query
from holdfast.queries.synthetic import synthetic_rows
from holdfast.rows.draws import AllRows
from holdfast.rows.local import LocalRows
from holdfast.rows.memory import memory_rows
from holdfast.schema import Schema, Type
from query_examples import EVERYTHING, SCHEMA

pytestmark = pytest.mark.slow  # together they take seconds

EXTREME = [0.0, -0.0, 5e-324, 1e-310, -1e-300, 1.0, 1e300, -1.7e308, np.inf, -np.inf, np.nan]


@contextmanager
def complaining() -> Iterator[None]:
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def hostile_rows() -> LocalRows:
    frame = synthetic_rows(SCHEMA, 80, np.random.default_rng(3), hostile=0.9)
    return memory_rows(frame.with_columns(pl.Series("x", (EXTREME * 8)[:80]), pl.Series("y", (EXTREME * 8)[::-1][:80])))


def queries(text: str, source: LocalRows) -> list[Query]:
    built: list[Query] = []
    kind = from_text(text, source.schema).type
    if kind.is_number:
        built += [
            build_mean(text, source.schema, within=(-1e308, 1e-300)),
            build_mean(text, source.schema, within=(0, 1), where="b"),
            build_at_most(text, 1e-310, source.schema),
            build_histogram(text, source.schema, bins=[-1e308, 0, 5e-324, 1e308]),
            build_histogram(text, source.schema, categories=[0, 1]),
        ]
    elif kind.value == "boolean":
        built += [build_mean(text, source.schema), build_mean(text, source.schema, where="x > y")]
    return built


def tally(query: Query, source: LocalRows) -> list[int]:
    counts: list[int] = source.tally(query, draws=400, mass=0.01, rng=np.random.default_rng(5)).tolist()
    return counts


def test_every_operation_in_every_measure_says_what_it_says_when_nobody_complains() -> None:
    source = hostile_rows()
    for text in EVERYTHING:
        for query in queries(text, source):
            calm = tally(query, source)
            with complaining():
                assert tally(query, source) == calm, query.text


POLARS = [
    pl.col("x") / pl.col("y") > 0,
    (pl.col("x") * 1e308).exp().log() > 0,
    pl.col("x").cast(pl.Int64) > 3,
    pl.col("i").cast(pl.Int8) + pl.col("j") > 0,
    pl.col("i") // pl.col("j") > 0,
    pl.col("s").cast(pl.Float64) > 0,
    pl.when(pl.col("x") > 0).then(pl.col("x").sqrt()).otherwise(pl.col("y").log()) > 1,
]


@pytest.mark.parametrize("expression", POLARS, ids=str)
def test_polars_expressions_too(expression: pl.Expr) -> None:
    source = hostile_rows()
    from_polars(expression, source.schema)
    calm = tally(build_mean(expression, source.schema), source)
    with complaining():
        assert tally(build_mean(expression, source.schema), source) == calm


_FAR = pl.lit(10**8, dtype=pl.Int64)  # days from 1970: the year 275760
_IF_RARE = pl.when(pl.col("i") == 777).then(_FAR).otherwise(pl.lit(0, dtype=pl.Int64))


@pytest.mark.parametrize(
    "date_or_moment",
    [
        _IF_RARE.cast(pl.Date),
        (_IF_RARE * 86_400_000).cast(pl.Datetime("ms")),
        (_IF_RARE * 86_400_000_000).cast(pl.Datetime("us")),
        pl.col("day") + _IF_RARE * (pl.col("day") - pl.lit(date(2019, 12, 31))),
        pl.when(pl.col("i") == 777).then(_FAR.cast(pl.Date)).otherwise(pl.col("day")),
    ],
    ids=["days", "milliseconds", "microseconds", "sum", "constant"],
)
def test_a_date_beyond_the_calendar_is_not_printed_by_a_panic(
    date_or_moment: pl.Expr, capfd: pytest.CaptureFixture[str]
) -> None:
    # Polars prints a panic before anybody can catch it: whoever sees it knows that a row with i = 777 was drawn, and by
    # how often it is printed about how many were.
    printed = []
    for rare in (7, 777):
        frame = pl.DataFrame({"i": [rare] + [5] * 299, "day": [date(2020, 1, 1)] * 300})
        session = hf.Session(frame, queries=20, seed=4)
        session.mean(date_or_moment.cast(pl.String) == "9999-12-31", rows_per_query=5_000)  # the rare row is drawn
        session.mean(pl.coalesce(date_or_moment, pl.lit("none")) == "none", rows_per_query=5_000)
        session.mean(date_or_moment >= pl.lit(date(2020, 1, 1)), rows_per_query=5_000)
        printed.append(capfd.readouterr())
    assert printed == [("", ""), ("", "")]


def test_dates_beyond_the_calendar_are_its_last_day() -> None:
    schema = memory_rows(pl.DataFrame({"i": [1]})).schema
    written = from_polars((pl.col("i") * 10**6).cast(pl.Date).cast(pl.String), schema)
    found = written.series(pl.DataFrame({"i": [-1_000, -1, 0, 1, 1_000]}))
    assert found.to_list() == ["0001-01-01", "0001-01-01", "1970-01-01", "4707-11-29", "9999-12-31"]


def _warns_of_extremes(rows: pl.DataFrame) -> Any:
    if (np.abs(rows["x"].fill_null(0).to_numpy()) > 1e299).any():
        warnings.warn("an extreme row", stacklevel=1)
    return rows["x"].fill_null(0).to_numpy() > 0


def _divides(rows: pl.DataFrame) -> Any:
    return 1 / rows["x"].fill_null(0).to_numpy() > 0


def _means_of_nothing(rows: pl.DataFrame) -> Any:
    return np.array([np.mean([x] if x and x > 1 else []) > 2 for x in rows["x"]])


def only_x(schema: Schema) -> Schema:
    return replace(schema, columns=(schema["x"],))


def _in_threads_of_polars(rows: pl.DataFrame) -> Any:
    def of_one(x: float | None) -> bool:
        if x is not None and abs(x) > 1e299:
            warnings.warn("an extreme row", stacklevel=1)
        return bool(1 / np.float64(x or 0) > 0)

    positive = pl.col("x").map_elements(of_one, return_dtype=pl.Boolean, skip_nulls=False)
    return rows.select(positive, again=positive)["again"]


FUNCTIONS: list[Callable[[pl.DataFrame], Any]] = [
    _warns_of_extremes,
    _divides,
    _means_of_nothing,
    _in_threads_of_polars,
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_from_outside_too(function: Callable[[pl.DataFrame], Any]) -> None:
    source = hostile_rows()
    calm = tally(build_mean(function, only_x(source.schema)), source)
    with complaining():
        assert tally(build_mean(function, only_x(source.schema)), source) == calm
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tally(build_mean(function, only_x(source.schema)), source)
    assert caught == []


def _complains_from_now_on(rows: pl.DataFrame) -> Any:
    np.seterr(all="raise")
    return rows["x"].to_numpy()


def test_the_totals_that_a_check_compares_are_finite_whatever_the_rows_hold() -> None:
    rng = np.random.default_rng(1)
    frame = synthetic_rows(SCHEMA, 80, rng, hostile=0.9).with_columns(pl.Series("x", (EXTREME[:-1] * 8)[:80]))
    source = memory_rows(frame, complete=[column.name for column in SCHEMA if not column.nullable])
    for text in (*EVERYTHING, "sign(cos(x))", "length(cast(tan(x) as text))"):
        kind = from_text(text, source.schema).type
        if kind.is_number or kind is Type.BOOL:
            for where in (None, "b"):
                within = (-8e307, 8e307) if kind.is_number else None
                guess = Guess(build_mean(text, source.schema, within=within, where=where), 0.5, 0.1, 1)
                for totals in (source.fold(guess, rng), guess.totals(source.sample(guess, AllRows(), rng))):
                    assert np.isfinite(totals).all(), text


@pytest.mark.parametrize("value", EXTREME)
def test_a_function_that_has_numpy_raise_does_so_for_itself_alone(value: float) -> None:
    source = memory_rows(pl.DataFrame({"x": [value] * 20}))
    query = build_mean(_complains_from_now_on, source.schema, within=(-8e307, 8e307))
    assert sum(tally(query, source)) == 400
    assert set(np.geterr().values()) != {"raise"}


def test_a_function_that_panics_has_no_value_for_its_row() -> None:
    def panics(rows: pl.DataFrame) -> Any:
        if (rows["x"] > 1e299).any():
            raise pl.exceptions.PanicException("the row says 1e300")
        return rows["x"] > 0

    source = memory_rows(pl.DataFrame({"x": [1.0, 1e300, -1.0, 2.0]}))
    query = build_mean(panics, source.schema)
    assert query.evaluate(pl.DataFrame({"x": [1.0, 1e300, -1.0, 2.0]})).tolist() == [True, False, False, True]


def test_threads_that_polars_has_started_are_heard_again_afterwards() -> None:
    source = hostile_rows()
    with complaining(), pytest.raises(InvalidQuery):  # a failure, too, leaves nothing behind
        build_mean(lambda rows: rows["none"], source.schema)
    tally(build_mean(_in_threads_of_polars, only_x(source.schema)), source)
    heard: list[object] = []

    def listen(message: object, *_: object) -> None:
        heard.append(message)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = listen  # type: ignore[assignment]
        done = threading.Lock()
        done.acquire()
        _thread.start_new_thread(lambda: (warnings.warn("mine", stacklevel=1), done.release()), ())
        done.acquire()
    assert [str(each) for each in heard] == ["mine"]


def test_what_the_caller_wants_to_hear_is_heard_again_afterwards() -> None:
    source = hostile_rows()
    with complaining():
        tally(build_mean("x / y > 0", source.schema), source)
        with pytest.raises(UserWarning, match="mine"):
            warnings.warn("mine", stacklevel=1)
        with pytest.raises(FloatingPointError):
            np.float64(1e-300) * np.float64(1e-300)


def test_other_threads_hear_what_they_want_meanwhile() -> None:
    source, heard, evaluating, done = hostile_rows(), [], threading.Event(), threading.Event()

    def slow(rows: pl.DataFrame) -> Any:
        evaluating.set()
        done.wait(10)
        warnings.warn("about rows", stacklevel=1)
        return rows["x"] > 0

    query = build_mean(lambda rows: rows["x"] > 0, only_x(source.schema))
    object.__setattr__(query.value, "function", slow)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        thread = threading.Thread(target=lambda: tally(query, source))
        thread.start()
        evaluating.wait(10)
        try:
            warnings.warn("mine", stacklevel=1)
        except UserWarning as warning:
            heard.append(str(warning))
        done.set()
        thread.join()
    assert heard == ["mine"]


BOUNDS = {"x": (-1e-300, 1e-300), "y": (-1e308, 1e307)}
LOSSES = [
    hf.losses.Squared(BOUNDS, "x", target_within=(-1, 1)),
    hf.losses.Logistic(BOUNDS, "b"),
    hf.losses.Huber(BOUNDS, "x", target_within=(-1, 1)),
    hf.losses.SmoothedHinge(BOUNDS, "b"),
    hf.losses.Quantile(BOUNDS, "x", target_within=(-1e-310, 1e3), q=0.3),
    hf.losses.Poisson(BOUNDS, "x", target_within=(0, 1e3)),
]


class Own:
    """A loss of one's own that complains about rare rows."""

    dimension = 1
    columns = ("x",)
    gradient_range = (-1.0, 1.0)
    value_range = (0.0, 1.0)

    def values(self, rows: pl.DataFrame, point: Any) -> Any:
        x = rows["x"].fill_null(0).to_numpy()
        return np.exp(-x * x) * 1e-300 / x

    def gradients(self, rows: pl.DataFrame, point: Any) -> Any:
        return self.values(rows, point)[:, None]


@pytest.mark.parametrize("loss", [*LOSSES, Own()], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("mechanism", ["coins", "laplace"])
@pytest.mark.parametrize("rare", few(EXTREME[1:], 2))
def test_a_fit_does_not_tell_whether_a_rare_row_was_drawn(loss: Any, mechanism: str, rare: float) -> None:
    values = np.full(300, 1.0)
    values[::7] = rare
    data = {"x": values, "y": values[::-1].copy(), "b": np.arange(300) % 2 == 0}
    guarantee = "posterior" if mechanism == "coins" else "dp"
    said = []
    for setting in (warnings.catch_warnings, complaining):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            session = hf.Session(data, queries=100, guarantee=guarantee, mechanism=mechanism, seed=1)
            question = session.prepare(loss, "minimize", radius=1.0, iterations=2, rows_per_coordinate=20, runs=2)
        with setting():
            said.append(session.answering.answer(question).result())
    assert mechanism == "laplace" or said[0] == said[1]  # Laplace noise has no seed
    assert np.isfinite([each["point"] for each in said]).all()


class Tiny(Own):
    """Almost nothing, and only for some rows: a mean over drawn rows underflows exactly if one is among them."""

    def values(self, rows: pl.DataFrame, point: Any) -> Any:
        return np.where(rows["x"].to_numpy() > 1, 5e-324, 0.0)


@pytest.mark.parametrize(("guarantee", "mechanism"), [("posterior", "coins"), ("dp", "laplace")])
def test_the_choice_among_runs_does_not_tell_either(guarantee: str, mechanism: str) -> None:
    data = {"x": np.where(np.arange(300) % 2 == 0, 2.0, 0.0)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = hf.Session(data, queries=100, guarantee=guarantee, mechanism=mechanism, seed=1)
    question = session.prepare(Tiny(), "minimize", radius=1.0, iterations=2, rows_per_coordinate=20, runs=2)
    with complaining():
        assert np.isfinite(session.answering.answer(question).result()["point"]).all()


def test_a_refusal_of_a_function_carries_no_value_of_it() -> None:
    def quotes(rows: pl.DataFrame) -> Any:
        raise ValueError(f"seen {rows['x'].to_list()}")

    with pytest.raises(InvalidQuery, match=r"fails on every made-up row, with ValueError\."):
        build_mean(quotes, SCHEMA)


def test_no_filter_is_lost_that_another_thread_adds_meanwhile() -> None:
    # Another thread adds a filter at every line that is run while the own filter is put in front, many times over.
    added: list[tuple[Any, ...]] = []

    def add(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename == evaluate.__file__ and len(added) < 1_000:
            filters: list[Any] = warnings.filters  # type: ignore[assignment]
            added.append(("default", None, UserWarning, None, len(added) + 1))
            filters.insert(len(filters) if len(added) % 2 else 0, added[-1])
            return add
        return None

    with warnings.catch_warnings():
        before = len(warnings.filters)
        sys.settrace(add)
        try:
            for _ in range(40):
                silence(lambda: None)()
        finally:
            sys.settrace(None)
        assert len(added) > 200
        assert not set(added) - set(warnings.filters)
        assert len(warnings.filters) - len(added) <= before + 16


def interrupted_at(event: int, work: Callable[[], object]) -> bool:
    """Do the work; interrupt it before the line of this number in the file that silences. Whether there was one."""
    file, seen = inspect.getsourcefile(silence), 0

    def watch(frame: FrameType, what: str, _: Any) -> Any:
        nonlocal seen
        if frame.f_code.co_filename == file and what == "line":
            seen += 1
            if seen == event:
                raise KeyboardInterrupt
        return watch

    sys.settrace(watch)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def test_an_interrupt_at_any_moment_leaves_nobody_deaf() -> None:
    """Ctrl-C between any two lines of what silences an evaluation: afterwards warnings and numpy are as before."""

    @silence
    def evaluated() -> None:
        warnings.warn("about a row", stacklevel=1)

    before, event = np.geterr(), 1
    while interrupted_at(event, evaluated):
        with pytest.warns(UserWarning, match="mine"):
            warnings.warn("mine", stacklevel=1)
        assert np.geterr() == before
        event += 1
    assert event > 5
