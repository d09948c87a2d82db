"""Every operation that an expression may use, how Polars computes it, and its names. Any other operation is refused.

Numbers     in double precision, so nothing overflows: exact to 2^53, then rounded; where mathematics has no answer
            (division by zero, the root of a negative number), the result is NULL
Logic       AND, OR and NOT work on three values: true, false and NULL
Texts       positions and lengths count characters; patterns are constants, so none is ever built from the data
Times       dates and timestamps, kept within the years 1 to 9999; timestamps are in UTC
"""

import re
from collections.abc import Callable, Sequence
from datetime import date, datetime
from functools import partial, reduce
from operator import and_, eq, ge, gt, invert, le, lt, ne, or_
from typing import Any

import polars as pl

from holdfast.errors import InvalidQuery
from holdfast.queries.node import PHYSICAL, SUM, Build, Case, Node, NullRule, Operation, common_type
from holdfast.schema import Type

# -- numbers ----------------------------------------------------------------------------------------------------------

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


# -- times ------------------------------------------------------------------------------------------------------------

FIRST_DAY, LAST_DAY = date(1, 1, 1), date(9999, 12, 31)
FIRST_MOMENT, LAST_MOMENT = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)
EPOCH = date(1970, 1, 1)
_MICROSECONDS = {"DAY": 86_400_000_000, "HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000}
_TRUNCATE = {
    "YEAR": "1y", "QUARTER": "1q", "MONTH": "1mo", "WEEK": "1w", "DAY": "1d",
    "HOUR": "1h", "MINUTE": "1m", "SECOND": "1s",
}  # fmt: skip
TRUNCATE_PARTS = frozenset(_TRUNCATE)
DIFF_PARTS = frozenset(_MICROSECONDS) | {"YEAR", "MONTH"}
_GETTERS = {
    "YEAR": "year", "QUARTER": "quarter", "MONTH": "month", "WEEK": "week", "DAY": "day", "DOY": "ordinal_day",
    "ISODOW": "weekday", "HOUR": "hour", "MINUTE": "minute", "SECOND": "second",
}  # fmt: skip
EXTRACT_PARTS = frozenset(_GETTERS) | {"DOW"}
CLOCK_PARTS = frozenset({"HOUR", "MINUTE", "SECOND"})


def days(when: pl.Expr) -> pl.Expr:
    """Return a date as days since 1970."""
    return when.cast(pl.Int32).cast(pl.Int64)


def microseconds(when: pl.Expr, type_: Type | None) -> pl.Expr:
    """Return a date or timestamp as microseconds since 1970."""
    return days(when) * _MICROSECONDS["DAY"] if type_ is Type.DATE else when.cast(pl.Int64)


def within_years(when: pl.Expr, type_: Type) -> pl.Expr:
    """Move what lies beyond the years 1 to 9999 to the nearest day (or moment) inside."""
    if type_ is Type.DATE:
        return when.clip(FIRST_DAY, LAST_DAY)
    return when.clip(FIRST_MOMENT, LAST_MOMENT)


def _extract(node: Node, args: Sequence[pl.Expr]) -> pl.Expr:
    if node.value == "DOW":  # 0 is Sunday
        return args[0].dt.weekday().cast(pl.Int64) % 7
    got: pl.Expr = getattr(args[0].dt, _GETTERS[node.value])()
    return got.cast(pl.Int64)


def _truncate(node: Node, args: Sequence[pl.Expr]) -> pl.Expr:
    type_ = node.args[0].type or Type.DATE
    return within_years(args[0].dt.truncate(_TRUNCATE[node.value]), type_)


def _difference(node: Node, args: Sequence[pl.Expr]) -> pl.Expr:
    """Count the boundaries between start and end, as SQL does: 23:59 to 00:01 is one day."""

    def ticks(when: pl.Expr, type_: Type | None) -> pl.Expr:
        if node.value == "YEAR":
            return when.dt.year().cast(pl.Int64)
        if node.value == "MONTH":
            return when.dt.year().cast(pl.Int64) * 12 + when.dt.month().cast(pl.Int64)
        if node.value == "DAY" and type_ is Type.DATE:
            return days(when)
        return microseconds(when, type_) // _MICROSECONDS[node.value]

    start, end = (ticks(arg, given.type) for given, arg in zip(node.args, args, strict=True))
    return end - start


def _shift(node: Node, args: Sequence[pl.Expr]) -> pl.Expr:
    first, last = (FIRST_DAY - EPOCH).days, (LAST_DAY - EPOCH).days
    start, by = days(args[0]).cast(pl.Float64), args[1].cast(pl.Float64, strict=False)  # floats do not overflow
    shifted = start + by if node.op == "DATE_ADD" else start - by
    return shifted.clip(float(first), float(last)).cast(pl.Int32, strict=False).cast(pl.Date)


# -- comparing, choosing and converting -------------------------------------------------------------------------------

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


# -- texts ------------------------------------------------------------------------------------------------------------

LONGEST_PATTERN = 200
LONGEST_CUT = 1_000_000
MOST_GROWTH = 64


def _substring(node: Node, args: Sequence[pl.Expr]) -> pl.Expr:
    start = node.args[1].value - 1
    length = node.args[2].value if len(node.args) > 2 else None
    return args[0].str.slice(start, length)


def _position(node: Node, args: Sequence[pl.Expr]) -> pl.Expr:
    sought = node.args[1].value
    before = args[0].str.splitn(sought, 2).struct.field("field_0").str.len_chars().cast(pl.Int64) + 1
    return before * args[0].str.contains(sought, literal=True).cast(pl.Int64)


def _strip(how: str) -> Operation:
    def build(node: Node, args: Sequence[pl.Expr]) -> pl.Expr:
        characters = node.args[1].value if len(node.args) > 1 else " "
        stripped: pl.Expr = getattr(args[0].str, how)(characters)
        return stripped

    return Operation(("text", "text"), Type.STRING, build, least=1)


def like_regex(pattern: str, *, any_case: bool) -> str:
    """Return LIKE's pattern as a regular expression without backtracking (`%` any text, `_` one character)."""
    parts = [{"%": ".*", "_": "."}.get(part, re.escape(part)) for part in re.split("([%_])", pattern)]
    return f"(?s{'i' * any_case})\\A{''.join(parts)}\\z"


def _like(node: Node, args: Sequence[pl.Expr]) -> pl.Expr:
    pattern: str = node.value
    bare = pattern.strip("%")
    if "%" not in bare and "_" not in bare and bare:  # the common shapes need no regular expression
        open_left, open_right = pattern.startswith("%"), pattern.endswith("%")
        if open_left and open_right:
            return args[0].str.contains(bare, literal=True)
        if open_right:
            return args[0].str.starts_with(bare)
        if open_left:
            return args[0].str.ends_with(bare)
        return args[0] == bare
    return _by_regex(args[0], pattern, any_case=False)


def _by_regex(text: pl.Expr, pattern: str, *, any_case: bool) -> pl.Expr:
    if len(pattern) > LONGEST_PATTERN:  # matching takes time proportional to the pattern, for every character
        raise InvalidQuery(f"LIKE patterns must be at most {LONGEST_PATTERN} characters long; got {len(pattern)}.")
    return text.str.contains(like_regex(pattern, any_case=any_case))


def check_constants(node: Node) -> None:
    """Refuse counts and patterns that are not constants, and texts that could grow too long."""
    op, rest = node.op, node.args[1:]
    if op in ("SUBSTRING", "LEFT", "RIGHT"):
        for place, arg in enumerate(rest):
            least = 1 if op == "SUBSTRING" and place == 0 else 0
            whole = arg.is_literal and isinstance(arg.value, int)
            if not whole or not least <= arg.value <= LONGEST_CUT:
                raise InvalidQuery(f"{op} takes constant whole numbers from {least} to {LONGEST_CUT}; got {arg}.")
    if op in ("REPLACE", "TRIM", "LTRIM", "RTRIM", "STRPOS"):
        for arg in rest:
            if not arg.is_literal or not isinstance(arg.value, str):
                raise InvalidQuery(f"{op} takes constant text after its first argument; got {arg}.")
        if rest and rest[0].value == "":
            raise InvalidQuery(f"{op} must search for at least one character; got ''.")
    if node.type is Type.STRING and growth(node) > MOST_GROWTH:
        raise InvalidQuery(
            f"{op} must make text at most {MOST_GROWTH} times longer; this could be {growth(node)} times."
        )


def growth(node: Node) -> int:
    """Return how many times longer than its longest input the text can get."""
    if node.type is not Type.STRING or not node.args:
        return 1
    grown = [growth(arg) for arg in node.args]
    if node.op in ("||", "CONCAT"):
        return sum(grown)
    if node.op == "REPLACE":
        sought, new = (len(arg.value.encode()) for arg in node.args[1:])
        return grown[0] * max(1, -(-new // sought))
    return max(grown)


# -- the table --------------------------------------------------------------------------------------------------------

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
    "LIKE": Operation(("text",), Type.BOOL, _like),
    "ILIKE": Operation(("text",), Type.BOOL, lambda node, args: _by_regex(args[0], node.value, any_case=True)),
    "LENGTH": Operation(("text",), Type.INT, lambda _, args: args[0].str.len_chars().cast(pl.Int64)),
    "LOWER": Operation(("text",), Type.STRING, lambda _, args: args[0].str.to_lowercase()),
    "UPPER": Operation(("text",), Type.STRING, lambda _, args: args[0].str.to_uppercase()),
    "TRIM": _strip("strip_chars"),
    "LTRIM": _strip("strip_chars_start"),
    "RTRIM": _strip("strip_chars_end"),
    "SUBSTRING": Operation(("text", "number", "number"), Type.STRING, _substring, least=2),
    "LEFT": Operation(("text", "number"), Type.STRING, lambda node, args: args[0].str.head(node.args[1].value)),
    "RIGHT": Operation(("text", "number"), Type.STRING, lambda node, args: args[0].str.tail(node.args[1].value)),
    "||": Operation(("text", "text"), Type.STRING, lambda _, args: pl.concat_str(list(args)), more=True),
    "CONCAT": Operation(
        ("text",), Type.STRING, lambda _, args: pl.concat_str(list(args), ignore_nulls=True), null="never", more=True
    ),
    "REPLACE": Operation(
        ("text", "text", "text"),
        Type.STRING,
        lambda node, args: args[0].str.replace_all(node.args[1].value, node.args[2].value, literal=True),
    ),
    "STARTS_WITH": Operation(("text", "text"), Type.BOOL, lambda _, args: args[0].str.starts_with(args[1])),
    "ENDS_WITH": Operation(("text", "text"), Type.BOOL, lambda _, args: args[0].str.ends_with(args[1])),
    "CONTAINS": Operation(("text", "text"), Type.BOOL, lambda _, args: args[0].str.contains(args[1], literal=True)),
    "STRPOS": Operation(("text", "text"), Type.INT, _position, copies=(2,)),
    "EXTRACT": Operation(("date or timestamp",), Type.INT, _extract),
    "DATE_TRUNC": Operation(("date or timestamp",), None, _truncate),
    "DATE_DIFF": Operation(("date or timestamp", "date or timestamp"), Type.INT, _difference, copies=(2,)),
    "DATE_ADD": Operation(("date", "whole number"), Type.DATE, _shift),
    "DATE_SUB": Operation(("date", "whole number"), Type.DATE, _shift),
}

_NOT_FUNCTIONS = frozenset([
    "AND", "OR", "NOT", "IN", "IS", "LIKE", "ILIKE", "BETWEEN", "CASE", "NEG", "DATE_ADD", "DATE_SUB",
])  # fmt: skip
# Maps every name of a function to its operation. All names of one operation have the same canonical text.
FUNCTION_NAMES: dict[str, str] = {
    **{name: name for name in OPERATIONS if name.isidentifier() and name not in _NOT_FUNCTIONS},
    **{"CEILING": "CEIL", "POW": "POWER", "MOD": "%", "LOG2": "LOG", "LOG10": "LOG", "IFNULL": "COALESCE"},
    **{"TRY_CAST": "CAST", "IF": "CASE", "IIF": "CASE", "POSITION": "STRPOS", "INSTR": "STRPOS"},
    **{"CHAR_LENGTH": "LENGTH", "CHARACTER_LENGTH": "LENGTH", "LEN": "LENGTH", "SUBSTR": "SUBSTRING"},
    **dict.fromkeys(("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"), "EXTRACT"),
    **{"DAYOFWEEK": "EXTRACT", "ISODOW": "EXTRACT", "DAYOFYEAR": "EXTRACT", "DAYOFMONTH": "EXTRACT"},
    **{"DATEDIFF": "DATE_DIFF", "DATETRUNC": "DATE_TRUNC"},
}
