"""Comparisons, and what AND, OR and NOT make of them, evaluated on the columns at once.

Most questions are of this kind, and for them Polars takes longer to prepare an expression than to evaluate it. The
rules are the same: what an operation builds from expressions, it computes from series, and from arrays where a column
is numbers or truths without a missing one.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from holdfast.queries.functions.table import RULES
from holdfast.queries.node import Node
from holdfast.queries.query import Direct
from holdfast.schema import Type


def direct(node: Node) -> Direct | None:
    """Return how to evaluate a checked tree on settled rows, or None if it takes an expression."""
    if node.op == "column":
        name = node.value
        return lambda columns: columns[name]
    rule = RULES.get(node.op)
    if rule is None or not rule.direct or not _alike(node.args):
        return None
    parts: list[Direct] = []
    for arg in node.args:
        part = _constant(arg, node.args[0]) if arg.is_literal else direct(arg)
        if part is None:
            return None
        parts.append(part)
    build: Callable[[Node, list[Any]], Any] = rule.build
    return lambda columns: build(node, [part(columns) for part in parts])


def _alike(args: tuple[Node, ...]) -> bool:
    """Whether values of the first argument's type meet nothing but their like and constants to compare them with."""
    first, *others = args
    return not first.is_literal and all(
        _comparable(first, other) if other.is_literal else other.type is first.type for other in others
    )


def _comparable(value: Node, literal: Node) -> bool:
    if literal.value is None or literal.type is Type.BOOL:
        return False
    return literal.type is value.type or {literal.type, value.type} == {Type.INT, Type.FLOAT}


def _constant(literal: Node, value: Node) -> Direct:
    """Return a constant as it counts beside this value: in double precision if either is."""
    number = literal.value
    if value.type is Type.FLOAT or literal.type is Type.FLOAT:
        number = np.float64(number)  # not Python's own, which numpy would round to the precision of its array
    return lambda columns: number
