"""Evaluate a checked tree, one value per drawn row. Total: whatever the rows hold, nothing raises, warns or leaks.

Three things ensure this. `silence` wraps every evaluation (in `Session` and in the methods of row sources).
`normalized` converts columns, however row sources store them, to the one storage type of their `Type`. And an
`Expression` that still fails is evaluated in pieces, so that only the rows it fails on are NULL.

A tree becomes Polars expressions (`compiled`, in `Steps`) or, if it consists only of comparisons, AND, OR and NOT, a
function of columns (`on_columns`). Most questions have this second form, and for them Polars takes longer to prepare an
expression than to evaluate it. The operators that would build an expression then compute directly on series, or on
numpy arrays where a column holds numbers or booleans and none is missing. Texts that differ in their numbers alone
share this function.

`silence` holds however the caller has set up numpy and Python: numpy's own warnings (division by zero, overflow,
underflow) are switched off for the context that evaluates. Warnings from other code, such as the caller's Python
function, are dropped by a filter in front of the caller's own filters, which ignores everything while this context
evaluates. Polars calls Python functions (`map_elements`) in threads of its own, which have no context: there everything
is ignored while anybody evaluates. Only threads that the caller's function starts itself are not silenced.
`warnings.catch_warnings` is not used, because it replaces the filters of all threads.
"""

import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial, wraps
from itertools import count
from typing import Any, ParamSpec, Protocol, TypeVar
from weakref import ref

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.exceptions import PanicException

from holdfast.errors import InvalidQuery
from holdfast.queries.functions import FIRST_DAY, FIRST_MOMENT, LAST_DAY, LAST_MOMENT, OPERATIONS, growth
from holdfast.queries.node import PHYSICAL, Case, Node, Operation, Steps, StepWriter, repeated, without_nan
from holdfast.queries.query import Direct, Function
from holdfast.schema import Column, Type

Piece = TypeVar("Piece")
P = ParamSpec("P")
R = TypeVar("R")
FAILURES = (Exception, PanicException)  # what an evaluation may raise; interrupts propagate
OnColumns = Callable[[Any], Any]  # from a frame to a series, or from arrays by name to an array
OnNumbersAndColumns = Callable[[Sequence[Any], Any], Any]  # the same, with the numbers that columns are compared with

TEXT_STEP = 10  # a step on text counts as this many steps on numbers
_LARGEST = 2**63 - 1
_ONE = np.int8(1)
_PER_DAY = 86_400_000_000  # microseconds
_DAYS = ((FIRST_DAY - FIRST_DAY.replace(year=1970)).days, (LAST_DAY - FIRST_DAY.replace(year=1970)).days)
_TICKS = (_DAYS[0] * _PER_DAY, (_DAYS[1] + 1) * _PER_DAY - 1)


class RowFunction(Function, Protocol):
    """A checked function of one row: what text, Polars expressions and Python functions all become."""

    @property
    def reads(self) -> dict[str, Column]:
        """The columns it reads, by name."""

    @property
    def text(self) -> str:
        """Human-readable text."""

    @property
    def range(self) -> tuple[float, float] | None:
        """The range of its numbers that follows from declared bounds; None if none does."""


@dataclass(eq=False, slots=True)  # nobody changes one; `frozen` would take longer than all else about a new text
class Expression:
    """A checked expression, evaluated by Polars or directly on columns.

    Expressions are compared by identity: they are cached, so equal texts share one.
    """

    type: Type
    nullable: bool
    text: str
    identity: str | None
    reads: dict[str, Column]
    compiled: Steps | OnColumns
    work: int = 1
    range: tuple[float, float] | None = None
    values: tuple[Any, ...] | None = None  # all possible values except NULL, if its text lists them
    columns: tuple[str, ...] = field(init=False)  # the ones it reads, in order of first mention
    direct: Direct | None = field(init=False)  # how to evaluate without a frame, where that is possible

    def __post_init__(self) -> None:
        self.columns = tuple(self.reads)
        self.direct = None if isinstance(self.compiled, Steps) else self.compiled

    def series(self, rows: pl.DataFrame) -> pl.Series:
        """Return one value per row."""
        # No operation should fail; should one, only its row is NULL.
        pieces = in_pieces(lambda some: self.on_normalized(normalized(some, self.reads)), rows, FAILURES, self._none)
        return pieces[0] if len(pieces) == 1 else pl.concat(pieces)

    def on_normalized(self, rows: pl.DataFrame) -> pl.Series:
        """Return one value per normalized row, without catching failures."""
        return repeated(self.compiled(rows), rows.height)

    def _none(self, count: int) -> pl.Series:
        return pl.Series("value", [None] * count, dtype=PHYSICAL[self.type])


def in_pieces(
    value: Callable[[pl.DataFrame], Piece],
    rows: pl.DataFrame,
    failures: tuple[type[BaseException], ...],
    missing: Callable[[int], Piece],
) -> list[Piece]:
    """Evaluate all rows at once; if that fails, each half separately, so that a failing row affects no other.

    `missing` gives the value of a failing row, for this many rows (one or none); exceptions other than `failures`
    propagate. Returns the values of consecutive rows, in order.
    """
    try:
        return [in_own_context(value, rows)]
    except failures:
        if rows.height <= 1:
            return [missing(rows.height)]
    half = rows.height // 2
    parts = (rows.slice(0, half), rows.slice(half))
    return [piece for part in parts for piece in in_pieces(value, part, failures, missing)]


def in_own_context(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function that may be the caller's own in a context of its own, so that it cannot have numpy raise here."""
    return copy_context().run(function, *args, **kwargs)


def check_name(column: str) -> None:
    """Refuse a column that Polars would not find by its name."""
    if column == "*" or (column.startswith("^") and column.endswith("$")):
        raise InvalidQuery(f"Column {column!r} has a name that Polars reads as a pattern; rename it.")


def normalized(rows: pl.DataFrame, columns: Mapping[str, Column]) -> pl.DataFrame:
    """Return the rows with one storage type per `Type`, NaN as NULL, and dates in the years 1 to 9999.

    Row sources may deliver narrower integers, Float32, categories, or timestamps of any unit and zone. Unsigned
    integers above 2^63 - 1 become that number; timestamps become UTC in microseconds.
    """
    changed = []
    for name, column in columns.items():
        series = rows.get_column(name)
        fixed = _normalized(series, column)
        if fixed is not series:
            changed.append(fixed)
    return rows.with_columns(changed) if changed else rows


def _normalized(series: pl.Series, column: Column) -> pl.Series:
    dtype = PHYSICAL[column.type]
    if series.dtype != dtype:
        series = _converted(series, dtype)
    if column.type is Type.FLOAT and column.nullable:
        return without_nan(series)
    if column.type is Type.DATE or column.type is Type.DATETIME:
        return _within_years(series, column.type)
    return series


def _converted(series: pl.Series, dtype: pl.DataType) -> pl.Series:
    stored = series.dtype
    if dtype == pl.Int64() and stored == pl.UInt64:
        series = series.clip(0, _LARGEST)
    if dtype == pl.String() and isinstance(stored, pl.Categorical | pl.Enum):
        return series.cast(pl.String)
    if isinstance(stored, pl.Datetime) and dtype == pl.Datetime("us"):
        return _microseconds(series, stored.time_unit)
    return series.cast(dtype, strict=False)


def _microseconds(series: pl.Series, unit: str) -> pl.Series:
    ticks = series.to_physical()
    if unit == "ms":  # clip to the calendar first: milliseconds far beyond it overflow as microseconds
        ticks = ticks.clip(_TICKS[0] // 1_000, _TICKS[1] // 1_000) * 1_000
    elif unit == "ns":
        ticks = ticks // 1_000
    return ticks.cast(pl.Datetime("us"))


def _within_years(series: pl.Series, type_: Type) -> pl.Series:
    first, last = (FIRST_DAY, LAST_DAY) if type_ is Type.DATE else (FIRST_MOMENT, LAST_MOMENT)
    ticks = series.to_physical()
    low, high = ticks.min(), ticks.max()
    ends = _DAYS if type_ is Type.DATE else _TICKS
    if low is None or high is None or (int(low) >= ends[0] and int(high) <= ends[1]):  # type: ignore[arg-type]
        return series
    return series.clip(first, last)


def within_calendar(series: pl.Series) -> pl.Series:
    """Return dates and timestamps of any unit moved into the years 1 to 9999; other types unchanged.

    Polars panics where it writes one far beyond as text, and a panic is printed before anybody can catch it.
    """
    stored = series.dtype
    if stored == pl.Date:
        first, last = _DAYS
    elif isinstance(stored, pl.Datetime) and stored.time_unit != "ns":  # nanoseconds end in 2262
        parts = 1_000 if stored.time_unit == "ms" else 1
        first, last = (end // parts for end in _TICKS)
    else:
        return series
    return series.to_physical().clip(first, last).cast(stored)


def booleans(values: pl.Series | NDArray[Any]) -> NDArray[np.bool_]:
    """Return true or false per row; NULL is false."""
    if isinstance(values, np.ndarray):
        return values
    if values.null_count():
        values = values & values.is_not_null()
    return values.to_numpy()


def floats(values: pl.Series | NDArray[Any]) -> NDArray[np.float64]:
    """Return numbers per row; NULL is NaN."""
    if isinstance(values, np.ndarray):
        return values.astype(np.float64, copy=False)
    if values.dtype != pl.Float64:
        values = values.cast(pl.Float64, strict=False)
    return values.to_numpy()


def nan_unless(inside: NDArray[np.bool_], values: NDArray[Any]) -> NDArray[np.float64]:
    """Return these numbers or booleans per row as floats, NaN where a row is not inside.

    A choice by row would take longer, and how long would depend on the rows: on how well a processor predicts it.
    """
    bits = (inside.view(np.int8) - _ONE).astype(np.int64)  # none of a row inside, all of the others: NaN, as floats
    found = bits.view(np.float64)
    found += values
    return found


def work(node: Node, weight: Callable[[Node], int] = lambda _: 1) -> int:
    """Return how many steps of this `weight` Polars takes. An argument mentioned repeatedly is evaluated only once."""
    if not node.args:
        return weight(node)
    operation, of_arguments = OPERATIONS[node.op], 0
    steps = 1 + len(operation.before)
    for place, arg in enumerate(node.args):
        steps += operation.mentions(place) - 1
        of_arguments += work(arg, weight)
    return weight(node) * steps + of_arguments


def text_weight(node: Node) -> int:
    """Return the cost of one node's step, in steps on numbers; text costs more, the longer it can get."""
    texts = [growth(one) for one in (node, *node.args) if one.type is Type.STRING]
    return TEXT_STEP * max(texts) if texts else 1


def compiled(node: Node, columns: Iterable[str]) -> Steps:
    """Return a checked tree over these columns as Polars expressions."""
    writer = StepWriter(columns)
    return writer.steps(_compiled(node, writer))


def _compiled(node: Node, writer: StepWriter) -> pl.Expr:
    if node.op == "column":
        return pl.col(node.value)
    if node.is_literal:
        return pl.lit(node.value, dtype=PHYSICAL[node.type or Type.STRING])
    operation = OPERATIONS[node.op]
    args = [_argument(node, operation, place, writer) for place in range(len(node.args))]
    for build in operation.before:
        part = build(node, args)
        if isinstance(part, Case) or part.meta.root_names():  # not a constant
            part = writer.apart(part)
        args = [part, *args]
    value = operation.build(node, args)
    return writer.apart(value) if isinstance(value, Case) else value


def _argument(node: Node, operation: Operation, place: int, writer: StepWriter) -> pl.Expr:
    """Return an argument as the operation takes it: of the common type, and with NULL for NaN where that matters."""
    arg = node.args[place]
    value = _compiled(arg, writer)
    if arg.args:
        made_by = OPERATIONS[arg.op]
        cleaned = made_by.may_be_nan and arg.type is Type.FLOAT and not operation.passes_nan
        if cleaned or (operation.mentions(place) > 1 and not arg.is_constant):
            value = writer.apart(value, cleaned=cleaned)
    if operation.gives is None and node.type is Type.FLOAT and arg.type is Type.INT:
        return value.cast(pl.Float64, strict=False)  # explicit, since Polars may use the type of one branch
    return value


@dataclass(frozen=True)
class Comparisons:
    """A tree of comparisons, AND, OR and NOT, as a function of columns and of the numbers that it compares with."""

    values: OnNumbersAndColumns
    literals: tuple[int | float, ...]  # the numbers in the tree, in order
    doubles: tuple[bool, ...]  # for each of them whether it is compared with a float

    def at(self, numbers: Iterable[int | float]) -> OnColumns:
        """Return the function of columns that compares with these numbers, in double precision if either is a float.

        numpy would round a Python float to the precision of the array.
        """
        pairs = zip(numbers, self.doubles, strict=True)
        return partial(self.values, [np.float64(one) if double or type(one) is float else one for one, double in pairs])


def on_columns(node: Node) -> Comparisons | None:
    """Return how to evaluate a checked tree on normalized columns, or None if it needs a Polars expression."""
    found: list[tuple[int | float, bool]] = []
    values = _on_columns(node, found)
    return None if values is None else Comparisons(values, *zip(*found, strict=True) if found else ((), ()))


def _on_columns(node: Node, found: list[tuple[int | float, bool]]) -> OnNumbersAndColumns | None:
    """Return the function of numbers and columns, and add the tree's own numbers to those that were found."""
    if node.op == "column":
        name = node.value
        return lambda _, columns: columns[name]
    operation = OPERATIONS.get(node.op)
    if operation is None or operation.operator is None or not _comparable(node.args):
        return None
    operator, first = operation.operator, node.args[0]
    if first.op == "column" and len(node.args) == 2 and _is_number(node.args[1]):  # most questions
        name, place = first.value, len(found)
        found.append((node.args[1].value, first.type is Type.FLOAT))
        return lambda numbers, columns: operator(columns[name], numbers[place])
    parts = []
    for arg in node.args:
        part = _constant(arg, first, found) if arg.is_literal else _on_columns(arg, found)
        if part is None:
            return None
        parts.append(part)
    return lambda numbers, columns: operator(*[part(numbers, columns) for part in parts])


def _constant(literal: Node, compared: Node, found: list[tuple[int | float, bool]]) -> OnNumbersAndColumns:
    if _is_number(literal):
        place = len(found)
        found.append((literal.value, compared.type is Type.FLOAT))
        return lambda numbers, _: numbers[place]
    value = literal.value
    return lambda _, __: value


def _is_number(node: Node) -> bool:
    return node.is_literal and node.type is not None and node.type.is_number


def _comparable(args: tuple[Node, ...]) -> bool:
    """Whether the first argument is compared only with values of its own type and with compatible constants."""
    first, *others = args
    return not first.is_literal and all(
        _comparable_constant(first, other) if other.is_literal else other.type is first.type for other in others
    )


def _comparable_constant(value: Node, literal: Node) -> bool:
    if literal.value is None or literal.type is Type.BOOL:
        return False
    return literal.type is value.type or {literal.type, value.type} == {Type.INT, Type.FLOAT}


class _Evaluation:
    """An evaluation, from when its context is made until that is gone."""

    __slots__ = ("__weakref__",)


class _AnyWhileEvaluating:
    """Takes the place of a filter's message pattern: matches all messages while this context evaluates, else none.

    Code that copies filters by their `pattern`, as scikit-learn does for every job, gets one that matches nothing.
    """

    pattern = "(?!)"

    def match(self, message: str) -> bool:
        return _evaluating.get() is not None or (bool(_under_way) and _is_foreign(threading.current_thread()))


def _is_foreign(thread: threading.Thread) -> bool:
    """Whether Python has not started this thread."""
    return isinstance(thread, threading._DummyThread)


_evaluating: ContextVar[_Evaluation | None] = ContextVar("evaluating", default=None)
_under_way: set[ref[_Evaluation]] = set()  # added and discarded in C: no interrupt can come between
_filters = [("ignore", _AnyWhileEvaluating(), Warning, None, 0) for _ in range(16)]  # they take turns
_turn = count()


def _put_in_front() -> None:
    """Put a filter in front of any that the caller has added since; it stays there, idle between evaluations.

    Without a lock, which an interrupt could leave held. Every change is one step of a list, so that no filter is lost
    that another thread adds meanwhile; and the filter that is moved is not one that somebody has just put in front.
    """
    filters: list[object] = warnings.filters  # type: ignore[assignment]
    own = _filters[next(_turn) % len(_filters)]
    with suppress(ValueError):  # it is not there
        filters.remove(own)
    filters.insert(0, own)


def silence(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function, silenced: for everything that evaluates rows.

    It runs in a context of its own, so that nothing has to be set back afterwards, whatever interrupts it.
    """

    @wraps(function)
    def silenced(*args: P.args, **kwargs: P.kwargs) -> R:
        filters: Sequence[Any] = warnings.filters
        if not filters or type(filters[0][1]) is not _AnyWhileEvaluating:
            _put_in_front()
        return copy_context().run(quietly, *args, **kwargs)

    @np.errstate(all="ignore")  # numpy keeps its error state in the context, too; `seterr` would take twice as long
    def quietly(*args: P.args, **kwargs: P.kwargs) -> R:
        if _evaluating.get() is None:
            evaluation = _Evaluation()
            _under_way.add(ref(evaluation, _under_way.discard))
            _evaluating.set(evaluation)
            del evaluation  # a traceback would keep it
        return function(*args, **kwargs)

    return silenced
