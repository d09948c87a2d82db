"""A Polars expression as a query: allowed node by node over its serialised tree.

`is_row_separable()` is no lock (it calls `x - x.mean()` separable), so an allow-list decides. Arithmetic is
Polars' own here: integers wrap around. Strict casts, which would raise and quote the data, are made non-strict.
"""

import json
from functools import lru_cache
from io import StringIO
from typing import Any

import polars as pl
from polars.exceptions import PanicException, PolarsError

from holdfast.errors import InvalidQuery
from holdfast.queries import physical
from holdfast.queries.expression import Expression, Same
from holdfast.queries.functions.logic import PHYSICAL
from holdfast.queries.made_up import made_up
from holdfast.queries.words import resolved
from holdfast.rng import Randomness
from holdfast.schema import Schema, Type

LONGEST_TREE = 100_000  # characters of serialised tree
MOST_NODES = 500
TRIED_ROWS = 256

_OPERATORS = frozenset([
    "Eq", "EqValidity", "NotEq", "NotEqValidity", "Lt", "LtEq", "Gt", "GtEq", "Plus", "Minus", "Multiply",
    "TrueDivide", "RustDivide", "FloorDivide", "Modulus", "And", "Or", "Xor", "LogicalAnd", "LogicalOr",
])  # fmt: skip
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
        serialised = expression.meta.serialize(format="json")
    except (PolarsError, PanicException, TypeError, ValueError):
        raise InvalidQuery("A Polars expression must be serialisable; this one is not.") from None
    if len(serialised) > LONGEST_TREE:
        raise InvalidQuery("A Polars expression must be smaller; this one holds too much.")
    return _checked(serialised, Same(schema))


@lru_cache(maxsize=256)
def _checked(serialised: str, same: Same) -> Expression:
    walk = _Walk(same.schema)
    try:
        tree = json.loads(serialised)
        walk.check(tree)
    except RecursionError:
        raise InvalidQuery("A Polars expression must nest less deeply.") from None
    columns = tuple(walk.columns)
    if not columns:
        raise InvalidQuery("A query must mention at least one column.")
    written = json.dumps(tree, sort_keys=True, separators=(",", ":"))
    compiled = pl.Expr.deserialize(StringIO(written), format="json")
    tried = _tried(compiled.alias("value"), same.schema, columns)
    type_ = _type_of(tried.dtype)
    missing = tried.null_count() > 0 or (tried.dtype.is_float() and bool(tried.is_nan().any()))
    return Expression(
        type=type_,
        nullable=missing,
        text=str(compiled),
        identity=f"polars:{written}",
        compiled=compiled.cast(PHYSICAL[type_], strict=False).alias("value"),
        reads=physical.expected(same.schema, columns),
    )


def _tried(compiled: pl.Expr, schema: Schema, columns: tuple[str, ...]) -> pl.Series:
    wanted = Schema(tuple(schema[name] for name in columns), schema.dataset)
    rows = made_up(wanted, TRIED_ROWS, Randomness(0).generator())  # every try sees the same invented rows
    try:
        result = rows.select(compiled).to_series()
    except (PolarsError, PanicException) as error:
        raise InvalidQuery(f"The Polars expression fails on made-up rows: {_first_line(error)}.") from None
    return result


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
    raise InvalidQuery(f"A query must give a boolean, number, text, date or timestamp; got {dtype}.")


class _Walk:
    """One walk over one serialised tree; makes strict casts non-strict on the way."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.columns: dict[str, None] = {}
        self.nodes = 0

    def check(self, node: Any) -> None:
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise InvalidQuery(f"A query must have at most {MOST_NODES} parts; this one has more.")
        if not isinstance(node, dict) or len(node) != 1:
            raise InvalidQuery(f"{_name(node)} may not be used in a query.")
        ((kind, body),) = node.items()
        match kind:
            case "Column" if isinstance(body, str):
                self.columns[resolved(body, Schema((self.schema[body],), self.schema.dataset))] = None
            case "Literal":
                _check_literal(body)
            case "Alias":
                self.check(body[0])
            case "BinaryExpr":
                if body["op"] not in _OPERATORS:
                    raise InvalidQuery(f"{_name(body['op'])} may not be used in a query.")
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
                raise InvalidQuery(f"{kind} may not be used in a query: it is not known to look at one row at a time.")

    def cast(self, body: dict[str, Any]) -> None:
        target = body["dtype"].get("Literal") if isinstance(body["dtype"], dict) else None
        named = target if isinstance(target, str) else next(iter(target), "") if isinstance(target, dict) else ""
        if named not in _CAST_TARGETS and named != "Datetime":
            raise InvalidQuery(f"A cast to {named or 'this type'} may not be used in a query.")
        if body["options"] not in ("Strict", "NonStrict"):
            raise InvalidQuery("A cast that wraps numbers around may not be used in a query.")
        body["options"] = "NonStrict"
        self.check(body["expr"])

    def function(self, body: dict[str, Any]) -> None:
        name, options = _function(body["function"])
        if name not in _FUNCTIONS:
            raise InvalidQuery(f"{name} may not be used in a query: it is not known to look at one row at a time.")
        first, *rest = body["input"]
        if name == "StringExpr.Contains" and not (isinstance(options, dict) and options.get("literal")):
            raise InvalidQuery("str.contains must be given literal=True; patterns are not allowed.")
        self.check(first)
        for part in rest:
            if name == "Boolean.IsIn" and "List" in part.get("Literal", {}).get("Scalar", {}):
                self.nodes += 1  # the list of constants to look in
            else:
                self.check(part)


def _check_literal(body: Any) -> None:
    allowed = {"Boolean", "Int", "Float", "Str", "String", "Null", "Date", "Datetime", "DatetimeOwned"}
    allowed |= {f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)} | {"Float32", "Float64"}
    ((how, value),) = body.items() if isinstance(body, dict) and len(body) == 1 else (("", None),)
    kind = str(next(iter(value), "")) if isinstance(value, dict) else how
    if how not in ("Dyn", "Scalar") or kind not in allowed:
        raise InvalidQuery(
            f"A constant must be one boolean, number, text, date or timestamp; got a {kind or 'strange one'}."
        )


def _function(function: Any) -> tuple[str, Any]:
    """Return the dotted name of a serialised function, and its options."""
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
