"""Arithmetic. Everything is computed in double precision, so nothing overflows: exact to 2^53, then rounded.

Where mathematics has no answer (division by zero, the root of a negative number) the result is NULL.
"""

from collections.abc import Callable, Sequence
from functools import partial

import polars as pl

from holdfast.queries.functions.operation import PHYSICAL, Build, NullRule, Operation
from holdfast.queries.node import SUM, Case, Node
from holdfast.schema import Type

_FLOAT = PHYSICAL[Type.FLOAT]


def as_floats(node: Node, args: Sequence[pl.Expr]) -> list[pl.Expr]:
    """Return the arguments in double precision."""
    return [
        arg
        if given.type is Type.FLOAT
        else pl.lit(None if given.value is None else float(given.value), dtype=pl.Float64)
        if given.is_literal
        else arg.cast(pl.Float64, strict=False)
        for given, arg in zip(node.args, args, strict=True)
    ]


def _of_floats(function: Callable[..., pl.Expr]) -> Build:
    return lambda node, args: function(*as_floats(node, args))


def _spread(constant: pl.Expr) -> pl.Expr:
    """Repeat a constant divisor for every row.

    Polars multiplies by the reciprocal of a single number, which rounds differently from division: a row would get
    a different value alone than among others.
    """
    return constant + pl.int_range(pl.len()).cast(pl.Float64) * 0.0


def _where(condition: pl.Expr, value: pl.Expr, dtype: pl.DataType = _FLOAT) -> Case:
    """Return the value where the condition is true, else NULL."""
    return Case(((condition, value),), pl.lit(None, dtype=dtype))


def _divisor(node: Node, args: Sequence[pl.Expr]) -> pl.Expr | Case:
    """Return the divisor, with NULL for zero."""
    whole = node.type is Type.INT
    right = args[-1] if whole else as_floats(node, args)[-1]
    if not node.args[1].is_constant:
        return _where(right != 0, right, PHYSICAL[Type.INT] if whole else _FLOAT)
    right = right if whole else _spread(right)
    return pl.when(right != 0).then(right)  # a constant: Polars may choose, since no row takes part


def _divide(node: Node, args: Sequence[pl.Expr]) -> pl.Expr:
    divisor, *given = args
    return as_floats(node, given)[0] / divisor


def _floored(node: Node, args: Sequence[pl.Expr]) -> pl.Expr:
    """Return the remainder with the sign of the divisor, as Polars computes it."""
    divisor, *given = args
    return (given if node.type is Type.INT else as_floats(node, given))[0] % divisor


def _remainder(node: Node, args: Sequence[pl.Expr]) -> pl.Expr:
    """Return the remainder with the sign of the dividend, as SQL defines it."""
    whole = node.type is Type.INT
    floored, _, *given = args
    left, right = given if whole else as_floats(node, given)
    other_side = (floored != 0) & ((left < 0) != (right < 0))
    remainder = floored - right * other_side.cast(pl.Int64 if whole else pl.Float64)
    # Polars computes left - floor(left / right) * right, which overflows if the quotient does; inf * 0.0 makes it NaN.
    return remainder if whole else remainder + remainder * 0.0


def _rounded(node: Node, args: Sequence[pl.Expr]) -> pl.Expr:
    if node.args[0].type is Type.INT:
        return args[0]
    decimals = node.args[1].value if len(node.args) > 1 else 0
    return args[0].round(decimals, mode="half_away_from_zero")


def _unless_whole(function: Callable[[pl.Expr], pl.Expr]) -> Build:
    return lambda node, args: args[0] if node.args[0].type is Type.INT else function(args[0])


def _positive(node: Node, args: Sequence[pl.Expr]) -> Case:
    """Return the last argument, with NULL unless it has a logarithm."""
    of = as_floats(node, args[-len(node.args) :])[-1]
    return _where(of > 0.0, of)


def _base(node: Node, args: Sequence[pl.Expr]) -> Case:
    base = as_floats(node, args)[0]
    return _where((base > 0.0) & (base != 1.0), base)


def _quotient_of_logarithms(node: Node, args: Sequence[pl.Expr]) -> pl.Expr:
    of, base = args[:2]
    return of.log() / base.log()


def _logarithm(node: Node, args: Sequence[pl.Expr]) -> Case:
    """Round powers of the base, which come out slightly off (log10(1000) = 2.9999999999999996), to the whole number."""
    quotient, near = args[0], args[0].round(0)
    return Case((((quotient - near).abs() < 1e-13, near),), quotient)


_numeric = partial(Operation, may_be_nan=True, passes_nan=True)


def _arithmetic(function: Callable[[pl.Expr, pl.Expr], pl.Expr], *, null: NullRule = "any") -> Operation:
    return _numeric(("number", "number"), Type.FLOAT, _of_floats(function), null=null)


def _summed(node: Node, args: Sequence[pl.Expr]) -> pl.Expr:
    """Add and subtract from left to right."""
    total, *others = as_floats(node, args)
    for sign, term in zip(node.value, others, strict=True):
        total = total + term if sign == "+" else total - term
    return total


def _smooth(function: Callable[[pl.Expr], pl.Expr], *, null: NullRule = "any") -> Operation:
    return _numeric(("number",), Type.FLOAT, _of_floats(function), null=null)


OPERATIONS: dict[str, Operation] = {
    "+": _arithmetic(lambda a, b: a + b),
    "-": _arithmetic(lambda a, b: a - b),
    SUM: _numeric(("number",), Type.FLOAT, _summed, more=True),
    "*": _arithmetic(lambda a, b: a * b),
    "/": _numeric(("number", "number"), Type.FLOAT, _divide, null="may", copies=(1, 2), before=(_divisor,)),
    "%": Operation(
        ("number", "number"), None, _remainder, null="may", may_be_nan=True, copies=(2, 4), before=(_divisor, _floored)
    ),
    "NEG": _smooth(lambda a: -a),
    "ABS": _smooth(lambda a: a.abs()),
    "SIGN": Operation(("number",), Type.INT, lambda _, args: args[0].sign().cast(pl.Int64, strict=False)),
    "ROUND": _numeric(("number", "number"), None, _rounded, least=1),
    "FLOOR": _numeric(("number",), None, _unless_whole(lambda a: a.floor())),
    "CEIL": _numeric(("number",), None, _unless_whole(lambda a: a.ceil())),
    "SQRT": _smooth(lambda a: a.sqrt(), null="may"),
    "CBRT": _smooth(lambda a: a.cbrt()),
    "EXP": _smooth(lambda a: a.exp()),
    "LN": _numeric(
        ("number",), Type.FLOAT, lambda _, args: args[0].log(), null="may", copies=(2,), before=(_positive,)
    ),
    "LOG": Operation(
        ("number", "number"),
        Type.FLOAT,
        _logarithm,
        null="may",
        may_be_nan=True,
        copies=(3, 2),
        before=(_base, _positive, _quotient_of_logarithms),
    ),
    "POWER": _arithmetic(lambda a, b: a**b, null="may"),
    "SIN": _smooth(lambda a: a.sin()),
    "COS": _smooth(lambda a: a.cos()),
    "TAN": _smooth(lambda a: a.tan()),
    "ASIN": _smooth(lambda a: a.arcsin(), null="may"),
    "ACOS": _smooth(lambda a: a.arccos(), null="may"),
    "ATAN": _smooth(lambda a: a.arctan()),
    "ATAN2": _arithmetic(pl.arctan2),
    "TANH": _smooth(lambda a: a.tanh()),
    "DEGREES": _smooth(lambda a: a.degrees()),
    "RADIANS": _smooth(lambda a: a.radians()),
}
