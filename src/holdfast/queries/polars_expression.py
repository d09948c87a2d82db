"""A Polars expression as a query: its serialized tree is checked node by node.

Polars' own `is_row_separable()` does not suffice (it calls `x - x.mean()` separable), so an allow-list decides.
Arithmetic is Polars' own: integers wrap around. Comparisons are not: NaN, the largest number to Polars, counts as NULL.
Strict casts, which would raise and quote the data, are made non-strict. Dates and timestamps stay in the years 1 to
9999, whatever they are made from: beyond, Polars may panic, and print that it did.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from io import StringIO
from typing import Any

import polars as pl
from numpy.typing import NDArray
from polars.exceptions import PanicException, PolarsError

from holdfast.errors import InvalidQuery
from holdfast.queries.evaluate import Expression, check_name, silence, within_calendar
from holdfast.queries.functions.operation import PHYSICAL
from holdfast.queries.node import Steps, StepWriter, repeated
from holdfast.queries.synthetic import must_be_rowwise, trial_rows
from holdfast.schema import Column, Schema, SchemaKey, Type

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
        text, steps = str(_expression(tree)), _in_steps(tree, checker.reads, dated=checker.dated)
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
