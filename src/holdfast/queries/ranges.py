"""The range of an expression, or its values, as far as they follow from its constants and from what is declared.

No promise rests on it: values are clipped to whatever range a question has. Where the arithmetic of an expression is
not followed, or a column has no bounds, there is no range, and the caller gives one.
"""

from collections.abc import Mapping
from functools import reduce
from itertools import product
from math import ceil, floor, inf, isfinite, isnan
from typing import Any

from holdfast.queries.node import Node
from holdfast.schema import Column, Type

Range = tuple[float, float]

_ANY: Range = (-inf, inf)
_PARTS = {
    "QUARTER": (1.0, 4.0), "MONTH": (1.0, 12.0), "WEEK": (1.0, 53.0), "DAY": (1.0, 31.0), "DOY": (1.0, 366.0),
    "ISODOW": (1.0, 7.0), "DOW": (0.0, 6.0), "HOUR": (0.0, 23.0), "MINUTE": (0.0, 59.0), "SECOND": (0.0, 59.0),
}  # fmt: skip


def range_of(node: Node, columns: Mapping[str, Column]) -> Range | None:
    """Return the range of a checked tree whose value is a number; None if none is declared.

    >>> from holdfast.queries.sql.parse import tree
    >>> from holdfast.schema import Schema
    >>> flights = Schema((Column("delay", Type.FLOAT, True, (-60, 600)), Column("miles", Type.FLOAT, False)))
    >>> named = {column.name: column for column in flights}
    >>> range_of(tree("delay / 60", flights), named), range_of(tree("LEAST(ABS(miles), 500)", flights), named)
    ((-1.0, 10.0), (0.0, 500.0))
    >>> range_of(tree("miles", flights), named)
    """
    low, high = _range(node, columns)
    return (low, high) if low < high and isfinite(high - low) else None


def values_of(node: Node) -> tuple[Any, ...] | None:
    """Return the values that an expression can have, but for NULL, where the text itself says which; else None.

    >>> from holdfast.queries.sql.parse import tree
    >>> from holdfast.schema import Schema
    >>> flights = Schema((Column("hour", Type.INT, True), Column("day", Type.DATE, True)))
    >>> values_of(tree("CASE WHEN hour < 12 THEN 'am' ELSE 'pm' END", flights))
    ('am', 'pm')
    >>> values_of(tree("QUARTER(day)", flights))
    (1, 2, 3, 4)
    >>> values_of(tree("hour", flights))
    """
    if node.op == "EXTRACT" and node.value in _PARTS:
        low, high = _PARTS[node.value]
        return tuple(range(int(low), int(high) + 1))
    if node.op == "CASE":
        results = (*node.args[1:-1:2], node.args[-1])
        if all(one.is_literal for one in results):
            return tuple(dict.fromkeys(one.value for one in results if one.value is not None)) or None
    return None


def _range(node: Node, columns: Mapping[str, Column]) -> Range:
    if node.type is Type.BOOL:
        return 0.0, 1.0
    match node.op:
        case "column":
            return columns[node.value].bounds or _ANY
        case "literal":
            return (float(node.value), float(node.value)) if isinstance(node.value, int | float) else _ANY
        case "EXTRACT":
            return _PARTS.get(node.value, _ANY)
        case "CASE":
            results = (*node.args[1:-1:2], node.args[-1])
            return _either([_range(one, columns) for one in results if not (one.is_literal and one.value is None)])
        case "+-":
            first, *others = (_range(arg, columns) for arg in node.args)
            signed = zip(node.value, others, strict=True)
            return reduce(lambda total, term: _of_arithmetic(term[0], [total, term[1]]), signed, first)
        case "LEAST":
            return _least(node.args, columns)
        case "GREATEST":
            low, high = _least(
                tuple(Node("NEG", (arg,), type=arg.type, nullable=arg.nullable) for arg in node.args), columns
            )
            return -high, -low
    return _of_arithmetic(node.op, [_range(arg, columns) for arg in node.args])


def _of_arithmetic(op: str, ranges: list[Range]) -> Range:
    match op, ranges:
        case "NEG", [(low, high)]:
            return -high, -low
        case "ABS", [(low, high)]:
            return max(low, -high, 0.0), max(-low, high)
        case "+", [(low, high), (other_low, other_high)]:
            return low + other_low, high + other_high
        case "-", [(low, high), (other_low, other_high)]:
            return low - other_high, high - other_low
        case "*", [one, other]:
            return _extremes([x * y for x, y in product(one, other)])
        case "/", [one, other] if other[0] > 0 or other[1] < 0:
            return _extremes([x / y for x, y in product(one, other)])
        case "COALESCE", _:
            return _either(ranges)
        case "FLOOR" | "CEIL" | "ROUND", [(low, high), *_] if isfinite(high - low):
            return float(floor(low)), float(ceil(high))
        case "CAST" | "NULLIF", [first, *_]:
            return first
    return _ANY


def _least(args: tuple[Node, ...], columns: Mapping[str, Column]) -> Range:
    """Missing values are left out of LEAST, so it is at most what can never be missing, or else any of the others."""
    ranges = [_range(arg, columns) for arg in args]
    always = [high for arg, (_, high) in zip(args, ranges, strict=True) if not arg.nullable]
    low, high = _either(ranges)
    return low, min(always, default=high)


def _either(ranges: list[Range]) -> Range:
    return min((low for low, _ in ranges), default=-inf), max((high for _, high in ranges), default=inf)


def _extremes(values: list[float]) -> Range:
    return _ANY if any(map(isnan, values)) else (min(values), max(values))
