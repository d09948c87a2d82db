"""Comparing, choosing and converting. AND, OR and NOT work on three values: true, false and NULL."""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_, eq, ge, gt, invert, le, lt, ne, or_
from typing import Any

import polars as pl

from holdfast.queries.functions.operation import PHYSICAL, Operation, common_type
from holdfast.queries.functions.times import within_years
from holdfast.queries.node import Case, Node
from holdfast.schema import Type

_TRUE_WORDS, _FALSE_WORDS = ["true", "t", "yes", "y", "on", "1"], ["false", "f", "no", "n", "off", "0"]
_TRUTHS = [True] * len(_TRUE_WORDS) + [False] * len(_FALSE_WORDS)
_DAY = "%Y-%m-%d"
# Formats are fixed: a format guessed from the first row would make one row decide for the others.
_MOMENTS = ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M"]
_ZONE = "%#z"  # Z, +02:00, +0200 or +02


def _is(node: Node, args: Sequence[pl.Expr]) -> pl.Expr:
    if node.value is None:
        return args[0].is_null()
    return args[0].eq_missing(pl.lit(node.value))


def _on_all(takes: tuple[str, ...], operator: Callable[..., Any], **facts: Any) -> Operation:
    """Return an operation that an operator computes, of expressions as of series and of numpy arrays."""
    return Operation(takes, Type.BOOL, lambda _, args: operator(*args), operator=operator, **facts)


def _between(value: Any, low: Any, high: Any) -> Any:
    return (value >= low) & (value <= high)


def _in(node: Node, args: Sequence[pl.Expr]) -> pl.Expr:
    dtype = PHYSICAL[common_type(node.args) or Type.STRING]
    listed = pl.Series([arg.value for arg in node.args[1:]], dtype=dtype, strict=False)
    return args[0].cast(dtype, strict=False).is_in(listed.implode())


def _case(node: Node, args: Sequence[pl.Expr]) -> Case:
    return Case(tuple(zip(args[:-1:2], args[1:-1:2], strict=True)), args[-1])


def _null_if(node: Node, args: Sequence[pl.Expr]) -> Case:
    null = pl.lit(None, dtype=PHYSICAL[node.type or Type.STRING])
    return Case(((args[0] == args[1], null),), args[0])


def _cast(node: Node, args: Sequence[pl.Expr]) -> pl.Expr:
    """Convert, with NULL where the value has no counterpart. Never strict: that would raise and quote the data."""
    value, target = args[0], node.value
    source = node.args[0].type
    if source is target:
        return value
    if source is Type.STRING:
        return _from_text(value, target)
    if target is Type.STRING and source is Type.DATE:
        return value.dt.strftime(_DAY)
    if target is Type.STRING and source is Type.DATETIME:
        return value.dt.strftime("%Y-%m-%d %H:%M:%S%.6f")
    if target is Type.INT and source is Type.FLOAT:
        return value.round(0, mode="half_to_even").cast(pl.Int64, strict=False)
    return value.cast(PHYSICAL[target], strict=False)


def _from_text(text: pl.Expr, target: Type) -> pl.Expr:
    text = text.str.strip_chars(" ")
    match target:
        case Type.BOOL:
            words = text.str.to_lowercase()
            return words.replace_strict(_TRUE_WORDS + _FALSE_WORDS, _TRUTHS, default=None, return_dtype=pl.Boolean)
        case Type.DATE:
            day = text.str.to_date(_DAY, strict=False)
            return within_years(pl.coalesce(day, *(moment.dt.date() for moment in _moments(text))), target)
        case Type.DATETIME:
            day = within_years(text.str.to_date(_DAY, strict=False), Type.DATE)
            return within_years(pl.coalesce(*_moments(text), day.cast(pl.Datetime("us"), strict=False)), target)
        case _:
            return text.cast(PHYSICAL[target], strict=False)


def _moments(text: pl.Expr) -> list[pl.Expr]:
    """Return a text as a timestamp in each of the formats; one with a zone is put into UTC, as constants are."""
    local = [text.str.to_datetime(form, time_unit="us", strict=False) for form in _MOMENTS]
    zoned = [
        text.str.to_datetime(form + _ZONE, time_unit="us", time_zone="UTC", strict=False).dt.replace_time_zone(None)
        for form in _MOMENTS
    ]
    return local + zoned


CASTS: dict[Type, frozenset[Type]] = {
    Type.BOOL: frozenset({Type.BOOL, Type.INT, Type.FLOAT, Type.STRING}),
    Type.INT: frozenset({Type.BOOL, Type.INT, Type.FLOAT, Type.STRING}),
    Type.FLOAT: frozenset({Type.BOOL, Type.INT, Type.FLOAT, Type.STRING}),
    Type.STRING: frozenset(Type),
    Type.DATE: frozenset({Type.DATE, Type.DATETIME, Type.STRING}),
    Type.DATETIME: frozenset({Type.DATE, Type.DATETIME, Type.STRING}),
}
_COMPARE = {"=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}

OPERATIONS: dict[str, Operation] = {
    **{op: _on_all(("value", "value"), operator) for op, operator in _COMPARE.items()},
    "BETWEEN": _on_all(("value",) * 3, _between, copies=(2, 1)),
    "IN": Operation(("value",), Type.BOOL, _in, more=True),
    "IS": Operation(("value",), Type.BOOL, _is, null="never"),
    "AND": _on_all(("boolean",), lambda *args: reduce(and_, args), more=True),
    "OR": _on_all(("boolean",), lambda *args: reduce(or_, args), more=True),
    "NOT": _on_all(("boolean",), invert),
    "CASE": Operation(("value",), None, _case, more=True),
    "COALESCE": Operation(("value",), None, lambda _, args: pl.coalesce(*args), null="all", more=True),
    "NULLIF": Operation(("value", "value"), None, _null_if, null="may", copies=(2, 1)),
    "GREATEST": Operation(("value",), None, lambda _, args: pl.max_horizontal(*args), null="all", more=True),
    "LEAST": Operation(("value",), None, lambda _, args: pl.min_horizontal(*args), null="all", more=True),
    "CAST": Operation(("value",), Type.STRING, _cast, may_be_nan=True, copies=(5,)),
}
