"""Queries given in Python: a Polars expression, or any function of a frame of rows. Both are tried on made-up rows.

A Polars expression's serialized tree is checked node by node. Polars' own `is_row_separable()` does not suffice (it
calls `x - x.mean()` separable), so an allow-list decides. Arithmetic is Polars' own: integers wrap around. Comparisons
are not: NaN, the largest number to Polars, counts as NULL. Strict casts, which would raise and quote the data, are made
non-strict. Dates and timestamps stay in the years 1 to 9999, whatever they are made from: beyond, Polars may panic, and
print that it did.

The trial (`synthetic.must_be_rowwise`) cannot prove that a function looks at one row at a time, so functions are
accepted only from code that uses the library directly, never over a network.
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from io import StringIO
from numbers import Real
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from polars.exceptions import PanicException, PolarsError

from holdfast.errors import InvalidQuery
from holdfast.queries.evaluate import (
    FAILURES,
    Expression,
    booleans,
    check_name,
    floats,
    in_own_context,
    in_pieces,
    normalized,
    silence,
    within_calendar,
)
from holdfast.queries.node import PHYSICAL, Steps, StepWriter, repeated
from holdfast.queries.synthetic import must_be_rowwise, trial_rows
from holdfast.schema import Column, Schema, SchemaKey, Type

_UNTYPED = re.compile(r"\bdyn (?:int|float): (?=-?\d)")  # what Polars writes before a number without a type of its own
LONGEST_TREE = 100_000  # characters of serialized tree
MOST_NODES = 500
DEEPEST_TREE = 127  # levels of JSON that Polars can read
_TOO_DEEP = (
    "A Polars expression must nest less deeply. A sum of more than 60 terms also nests too deeply: write it as text,"
    " such as 'a + b + c'."
)

_OPERATORS = frozenset([
    "Eq", "EqValidity", "NotEq", "NotEqValidity", "Lt", "LtEq", "Gt", "GtEq", "Plus", "Minus", "Multiply",
    "TrueDivide", "RustDivide", "FloorDivide", "Modulus", "And", "Or", "Xor", "LogicalAnd", "LogicalOr",
])  # fmt: skip
_OPERATIONS = frozenset(["BinaryExpr", "Cast", "Function", "Ternary"])  # nodes that compute something
_COMPARISONS = frozenset(["Eq", "EqValidity", "NotEq", "NotEqValidity", "Lt", "LtEq", "Gt", "GtEq"])
_COMPARING = frozenset(["Boolean.IsBetween", "Clip", "MaxHorizontal", "MinHorizontal", "Sign"])
_FUNCTIONS = frozenset([
    "Abs", "Negate", "Sign", "Floor", "Ceil", "Exp", "Log", "Log1p", "FillNull", "Coalesce", "Clip",
    "Round", "MaxHorizontal", "MinHorizontal", "Boolean.IsNull", "Boolean.IsNotNull", "Boolean.IsNan",
    "Boolean.IsNotNan", "Boolean.IsFinite", "Boolean.IsInfinite", "Boolean.Not", "Boolean.IsBetween",
    "Boolean.IsIn", "Boolean.AllHorizontal", "Boolean.AnyHorizontal", "Pow.Sqrt", "Pow.Cbrt",
    "Trigonometry.Sin", "Trigonometry.Cos", "Trigonometry.Tan", "Trigonometry.ArcSin",
    "Trigonometry.ArcCos", "Trigonometry.ArcTan", "Trigonometry.Sinh", "Trigonometry.Cosh",
    "Trigonometry.Tanh", "Trigonometry.Degrees", "Trigonometry.Radians", "StringExpr.Lowercase",
    "StringExpr.Uppercase", "StringExpr.LenChars", "StringExpr.LenBytes", "StringExpr.StartsWith",
    "StringExpr.EndsWith", "StringExpr.Contains", "StringExpr.Slice", "StringExpr.Head", "StringExpr.Tail",
    "StringExpr.StripChars", "StringExpr.StripCharsStart", "StringExpr.StripCharsEnd", "TemporalExpr.Year",
    "TemporalExpr.Quarter", "TemporalExpr.Month", "TemporalExpr.Week", "TemporalExpr.WeekDay",
    "TemporalExpr.Day", "TemporalExpr.OrdinalDay", "TemporalExpr.Hour", "TemporalExpr.Minute",
    "TemporalExpr.Second", "TemporalExpr.Date",
])  # fmt: skip
_CAST_TARGETS = frozenset([
    "Boolean", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float32",
    "Float64", "String", "Date",
])  # fmt: skip


def from_polars(expression: pl.Expr, schema: Schema) -> Expression:
    """Return the checked expression, tried on made-up rows, or refuse it; a tree seen before costs a lookup."""
    try:
        serialized = expression.meta.serialize(format="json")
    except (PolarsError, PanicException, TypeError, ValueError):
        raise InvalidQuery("A Polars expression must be serializable; this one is not.") from None
    if len(serialized) > LONGEST_TREE:
        raise InvalidQuery(
            f"A Polars expression must be at most {LONGEST_TREE} characters when serialized; got {len(serialized)}."
        )
    return _checked(serialized, schema.key)


@lru_cache(maxsize=256)
@silence
def _checked(serialized: str, key: SchemaKey) -> Expression:
    checker = _TreeChecker(key.schema)
    try:
        tree = json.loads(serialized)
        checker.check(tree)
    except RecursionError:
        raise InvalidQuery(_TOO_DEEP) from None
    if not checker.reads:
        raise InvalidQuery("A query must mention at least one column.")
    written = json.dumps(tree, sort_keys=True, separators=(",", ":"))
    try:
        text, steps = _UNTYPED.sub("", str(_expression(tree))), _in_steps(tree, checker.reads, dated=checker.dated)
    except (PolarsError, PanicException):  # an infinite constant does not survive serialization
        if _nesting(tree) > DEEPEST_TREE:
            raise InvalidQuery(_TOO_DEEP) from None
        raise InvalidQuery("A constant in a Polars expression must be finite.") from None
    type_ = _tried(steps, Schema(tuple(checker.reads.values()), key.schema.dataset))
    return Expression(
        type=type_,
        nullable=_may_be_missing(tree, type_, key.schema),
        text=text,
        identity=f"polars:{written}",
        reads=checker.reads,
        compiled=replace(steps, value=steps.value.cast(PHYSICAL[type_], strict=False)),
        range=key.schema[tree["Column"]].bounds if isinstance(tree.get("Column"), str) else None,
    )


def _expression(tree: Any) -> pl.Expr:
    return pl.Expr.deserialize(StringIO(json.dumps(tree)), format="json")


def _nesting(tree: Any) -> int:
    """Return how many levels a tree has."""
    levels, row = 0, [tree]
    while row := [part for each in row if isinstance(each, dict | list) for part in _parts(each)]:
        levels += 1
    return levels


def _parts(node: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return node.values() if isinstance(node, dict) else node


def _in_steps(tree: Any, columns: Iterable[str], *, dated: bool) -> Steps:
    """Return the expression in steps: every choice (when, then) and all that it mentions are evaluated beforehand.

    If it is `dated`, so is whatever may give a date or a timestamp, which is then moved into the calendar.
    """
    writer = StepWriter(columns, bound=within_calendar if dated else None)
    separate = _OPERATIONS if dated else frozenset(["Ternary"])

    def apart(node: Any, *, cleaned: bool = False) -> Any:
        value = _expression(node)
        constant = "Literal" in node if dated else not value.meta.root_names()
        if "Column" in node or constant:
            return node
        return {"Column": writer.apart(value, cleaned=cleaned).meta.output_name()}

    def part(node: Any) -> Any:
        if isinstance(node, list):
            return [part(each) for each in node]
        if not isinstance(node, dict):
            return node
        return apart(whole(node)) if separate.intersection(node) else whole(node)

    def whole(node: dict[str, Any]) -> dict[str, Any]:
        parts = {name: part(each) for name, each in node.items()}
        if "Ternary" in parts:
            return {"Ternary": {name: apart(each) for name, each in parts["Ternary"].items()}}
        compared = parts.get("BinaryExpr", {})
        if compared.get("op") in _COMPARISONS:  # to Polars, NaN is larger than all numbers and equal to itself
            return {"BinaryExpr": compared | {side: apart(compared[side], cleaned=True) for side in ("left", "right")}}
        if parts.get("Function", {}).get("function") and _function(parts["Function"]["function"])[0] in _COMPARING:
            called = parts["Function"]
            return {"Function": called | {"input": [apart(each, cleaned=True) for each in called["input"]]}}
        return parts

    value = _expression(part(tree) if dated else whole(tree))
    return writer.steps(value.alias("value"))


def _may_be_missing(tree: Any, type_: Type, schema: Schema) -> bool:
    """Whether a value may be missing. No trial can rule it out, so only the declaration of a bare column is trusted."""
    if isinstance(tree.get("Column"), str):
        return schema[tree["Column"]].nullable
    return type_ is not Type.BOOL  # a predicate that is NULL is false


def _tried(steps: Steps, schema: Schema) -> Type:
    """Return the type of the values; refuse an expression that fails on made-up rows or looks beyond one row."""

    def value(rows: pl.DataFrame) -> NDArray[Any]:
        result = repeated(steps(rows), rows.height)
        if result.dtype.is_numeric() or result.dtype == pl.Boolean:
            return result.cast(pl.Float64, strict=False).to_numpy()
        return result.cast(pl.String, strict=False).fill_null("").to_numpy()

    try:
        must_be_rowwise(value, schema, what="Polars expression")
        return _type_of(steps(trial_rows(schema)).dtype)
    except (PolarsError, PanicException) as error:
        raise InvalidQuery(f"The Polars expression fails on made-up rows: {_first_line(error)}.") from None


def _first_line(error: BaseException) -> str:
    return str(error).split("\n")[0].rstrip(".")[:200]


def _type_of(dtype: pl.DataType) -> Type:
    if dtype.is_integer():
        return Type.INT
    if dtype.is_float():
        return Type.FLOAT
    for type_, stored in PHYSICAL.items():
        if dtype.base_type() == stored.base_type():
            return type_
    raise InvalidQuery(f"A query must give a boolean, number, text, date or timestamp; this one gives {dtype}.")


class _TreeChecker:
    """Checks every node of one serialized tree, and makes strict casts non-strict."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.reads: dict[str, Column] = {}
        self.dated = False  # whether there is a date or a timestamp anywhere
        self.nodes = 0

    def check(self, node: Any) -> None:
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise InvalidQuery(f"A query must have at most {MOST_NODES} parts; this one has more.")
        if not isinstance(node, dict) or len(node) != 1:
            raise InvalidQuery(f"{_name(node)} is not allowed in a query.")
        ((kind, body),) = node.items()
        match kind:
            case "Column" if isinstance(body, str):
                self.reads[body] = self.schema[body]
                self.dated |= self.schema[body].type in (Type.DATE, Type.DATETIME)
                check_name(body)
            case "Literal":
                self.dated |= _check_literal(body).startswith("Date")
            case "Alias":
                self.check(body[0])
            case "BinaryExpr":
                if body["op"] not in _OPERATORS:
                    raise InvalidQuery(f"{_name(body['op'])} is not allowed in a query.")
                self.check(body["left"])
                self.check(body["right"])
            case "Ternary":
                for part in ("predicate", "truthy", "falsy"):
                    self.check(body[part])
            case "Cast":
                self.cast(body)
            case "Function":
                self.function(body)
            case _:
                raise InvalidQuery(f"{kind} is not allowed in a query; it may look at more than one row.")

    def cast(self, body: dict[str, Any]) -> None:
        target = body["dtype"].get("Literal") if isinstance(body["dtype"], dict) else None
        named = target if isinstance(target, str) else next(iter(target), "") if isinstance(target, dict) else ""
        if named not in _CAST_TARGETS and named != "Datetime":
            raise InvalidQuery(f"A cast to {named or 'this type'} is not allowed in a query.")
        if body["options"] not in ("Strict", "NonStrict"):
            raise InvalidQuery("A cast that wraps numbers around is not allowed in a query.")
        body["options"] = "NonStrict"
        self.dated |= named.startswith("Date")
        self.check(body["expr"])

    def function(self, body: dict[str, Any]) -> None:
        name, options = _function(body["function"])
        if name not in _FUNCTIONS:
            raise InvalidQuery(f"{name} is not allowed in a query; it may look at more than one row.")
        first, *rest = body["input"]
        if name == "StringExpr.Contains" and not (isinstance(options, dict) and options.get("literal")):
            raise InvalidQuery("str.contains must be called with literal=True; regular expressions are not allowed.")
        self.check(first)
        if name == "Boolean.IsIn":
            # Anything but a list of constants would be looked up in the whole batch, not in the row.
            if len(rest) != 1 or not _is_list(rest[0]):
                raise InvalidQuery(
                    "is_in must be called with a list of constants; a column would be searched across all rows."
                )
            self.nodes += 1
            return
        for part in rest:
            self.check(part)


def _is_list(node: Any) -> bool:
    """Whether a node is a constant list."""
    for step in ("Literal", "Scalar", "List"):
        if not isinstance(node, dict) or step not in node:
            return False
        node = node[step]
    return True


def _check_literal(body: Any) -> str:
    """Return the type of a constant, or refuse it."""
    allowed = {"Boolean", "Int", "Float", "Str", "String", "Null", "Date", "Datetime", "DatetimeOwned"}
    allowed |= {f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)} | {"Float32", "Float64"}
    ((how, value),) = body.items() if isinstance(body, dict) and len(body) == 1 else (("", None),)
    kind = str(next(iter(value), "")) if isinstance(value, dict) else how
    if how not in ("Dyn", "Scalar") or kind not in allowed:
        raise InvalidQuery(
            f"A constant must be one boolean, number, text, date or timestamp; got {kind or 'something else'}."
        )
    return kind


def _function(function: Any) -> tuple[str, Any]:
    """Return the dotted name of a serialized function, and its options."""
    if isinstance(function, str):
        return function, None
    if not isinstance(function, dict) or len(function) != 1:
        return "This function", None
    ((family, inner),) = function.items()
    if family not in ("Boolean", "Pow", "Trigonometry", "StringExpr", "TemporalExpr"):
        return family, inner
    if isinstance(inner, str):
        return f"{family}.{inner}", None
    ((member, options),) = inner.items() if isinstance(inner, dict) and len(inner) == 1 else (("?", None),)
    return f"{family}.{member}", options


def _name(node: Any) -> str:
    return node if isinstance(node, str) else next(iter(node), "?") if isinstance(node, dict) else "This part"


# -- functions --------------------------------------------------------------------------------------------------------

BatchFunction = Callable[[pl.DataFrame], pl.Series | ArrayLike]  # one boolean or number for each row
BatchValues = NDArray[np.bool_] | NDArray[np.float64]


@dataclass(frozen=True)
class PythonFunction:
    """A function the caller wrote. A row on which it raises is NULL (false, if it gives booleans)."""

    function: BatchFunction
    type: Type
    reads: dict[str, Column]

    identity = None
    direct = None
    range = None
    work = 1

    @property
    def nullable(self) -> bool:
        """Numbers may be NaN; a boolean that fails is false."""
        return self.type is not Type.BOOL

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are passed to it."""
        return tuple(self.reads)

    @property
    def text(self) -> str:
        """Its name."""
        name = str(getattr(self.function, "__name__", "") or type(self.function).__name__)
        return "a function" if name == "<lambda>" else f"{name}(rows)"

    def series(self, rows: pl.DataFrame) -> pl.Series:
        """Return one value per row; a row on which the function fails has no effect on others."""
        rows = normalized(rows.select(self.columns), self.reads)
        return pl.Series(_values(self.function, rows, boolean=self.type is Type.BOOL))


@silence
def from_function(function: BatchFunction, schema: Schema) -> PythonFunction:
    """Return the function as a checked function of one row, tried on made-up rows, or refuse it."""
    if not len(schema):
        raise InvalidQuery("A function must be given at least one column; got none.")
    boolean = _gives_booleans(function, trial_rows(schema))
    must_be_rowwise(lambda rows: _values(function, rows, boolean=boolean), schema, what="function")
    return PythonFunction(function, Type.BOOL if boolean else Type.FLOAT, dict(schema.by_name))


def _gives_booleans(function: BatchFunction, rows: pl.DataFrame) -> bool:
    """Find out the type of the values from the first batch on which the function does not fail."""
    fault: BaseException | None = None
    for batch in (rows, *rows.iter_slices(1)):
        try:
            return _series(in_own_context(function, batch.clone()), batch.height).dtype == pl.Boolean
        except InvalidQuery:
            raise
        except FAILURES as error:
            fault = error
    raise InvalidQuery(
        f"The function fails on every made-up row, with {type(fault).__name__}. It is given a Polars frame, and returns"
        f" a value for each row: lambda rows: rows[{rows.columns[0]!r}] == 0, for example."
    )


def _series(result: pl.Series | ArrayLike, count: int) -> pl.Series:
    """Return what a function returned as a series of booleans or numbers, or refuse it."""
    if isinstance(result, pl.DataFrame | pl.Expr | str | bytes | dict) or np.isscalar(result) or result is None:
        raise InvalidQuery(f"A function must return one value per row; got {type(result).__name__}.")
    if isinstance(result, pl.Series):
        series = result
    elif isinstance(result, list | tuple):
        series = _from_values(result)
    else:
        array = np.asarray(result)
        if array.dtype != object and array.dtype.kind not in "biuf":
            raise InvalidQuery(f"A function must return booleans or numbers; got {array.dtype}.")
        if array.ndim != 1:
            raise InvalidQuery(f"A function must return one value per row; got an array of shape {array.shape}.")
        series = _from_values(array.tolist()) if array.dtype == object else pl.Series(array)
    if series.len() != count:
        raise InvalidQuery(f"A function must return one value per row ({count}); got {series.len()}.")
    if series.dtype == pl.Boolean or series.dtype.is_numeric() or series.dtype == pl.Null:
        return series
    raise InvalidQuery(f"A function must return booleans or numbers; got {series.dtype}.")


def _from_values(values: Iterable[object]) -> pl.Series:
    """Convert value by value: Polars would convert all values of a list to a type that depends on the others."""
    plain = [_plain(each) for each in values]
    if {type(each) for each in plain} - {type(None)} == {bool}:
        return pl.Series(plain, dtype=pl.Boolean)
    return pl.Series([None if each is None else float(each) for each in plain], dtype=pl.Float64)


def _plain(value: object) -> bool | float | None:
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, Real | Decimal):
        return float(value)
    raise InvalidQuery(f"A function must return booleans or numbers; got {type(value).__name__}.")


def _values(function: BatchFunction, rows: pl.DataFrame, *, boolean: bool) -> BatchValues:
    """Call the function on the batch; if it fails, on parts of it, so that no row affects another."""

    def value(batch: pl.DataFrame) -> NDArray[Any]:
        values = _series(function(batch.clone()), batch.height)  # it may add or drop columns in place
        if boolean and values.dtype != pl.Boolean:
            raise InvalidQuery("A function must return booleans for all rows or for none.")
        return booleans(values) if boolean else floats(values)

    def missing(count: int) -> NDArray[Any]:
        return np.zeros(count, np.bool_) if boolean else np.full(count, np.nan)

    pieces = in_pieces(value, rows, FAILURES, missing)
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
