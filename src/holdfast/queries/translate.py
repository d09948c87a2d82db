"""Parsed text to a checked tree: only known kinds of nodes pass, and every type is settled from the schema."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

from holdfast.errors import InvalidQuery, UnknownName
from holdfast.queries.node import Node
from holdfast.queries.shape import shaped
from holdfast.queries.walk import COMPARISON, Reading, Walk, too_deep
from holdfast.queries.words import dialect, settled
from holdfast.schema import Same, Schema, Type


def translated(text: str, schema: Schema) -> Node:
    """Return the checked tree of a text, or refuse it. Reads nothing but the schema."""
    shape = shaped(text) if isinstance(text, str) else None
    if shape is not None:
        with suppress(InvalidQuery, UnknownName):  # refused below, in terms of the text itself
            return _walked(_parsed_shape(shape[0], Same(schema)), schema, shape[1])
    return _walked(_parsed(text, schema), schema, {})


def _walked(parsed: Any, schema: Schema, numbers: Mapping[str, str]) -> Node:
    try:
        node = Walk(schema, _GRAMMAR, numbers).node(parsed, 1)
    except RecursionError:
        raise too_deep() from None
    if node.type is None:
        raise InvalidQuery("A query must have a value; NULL has none.")
    return node


@lru_cache(maxsize=1024)
def _parsed_shape(shape: str, same: Same) -> Any:
    return _parsed(shape, same.schema)  # read by many walks, changed by none


def _parsed(text: str, schema: Schema) -> Any:
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    tokens = settled(text, schema)
    try:
        statements = dialect().parser().parse_into(exp.Condition, tokens, text)
    except RecursionError:
        raise too_deep() from None
    except (SqlglotError, ValueError, TypeError, AttributeError, KeyError, IndexError):
        # The parser's own slips on odd input are refusals too: it saw the caller's text and nothing else.
        raise InvalidQuery(f"A query must be an SQL expression about a row; cannot read {_quoted(text)}.") from None
    if len(statements) != 1 or statements[0] is None:
        raise InvalidQuery("A query must be one expression.")
    return statements[0]


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


def _reading(how: Callable[[Walk, Any, int], Node], *parts: str) -> Reading:
    return Reading(how, frozenset(parts))


def _plain(op: str, *reads: str) -> Reading:
    def how(walk: Walk, parsed: Any, depth: int) -> Node:
        return walk.checked(op, walk.children(parsed, depth, *reads))

    return _reading(how, *reads, "safe", "coalesce", "ignore_nulls", "typed")


def _constant(value: Callable[[Any], Any]) -> Callable[[Walk, Any, int], Node]:
    def how(_walk: Walk, parsed: Any, _depth: int) -> Node:
        found = value(parsed)
        return Node("literal", value=found, type=None if found is None else Type.BOOL, nullable=found is None)

    return how


_OF_ONE = (
    "Abs", "Sign", "Floor", "Ceil", "Sqrt", "Cbrt", "Exp", "Ln", "Sin", "Cos", "Tan", "Asin", "Acos",
    "Atan", "Tanh", "Degrees", "Radians", "Length", "Lower", "Upper",
)  # fmt: skip
_PARTS_AS_FUNCTIONS = (
    "Year", "Quarter", "Month", "Week", "Day", "Hour", "Minute", "Second", "DayOfWeek", "DayOfWeekIso",
    "DayOfYear", "DayOfMonth", "WeekOfYear",
)  # fmt: skip
_GRAMMAR: dict[str, Reading] = {
    "Column": _reading(Walk.column, "this"),
    "Literal": _reading(Walk.literal, "this", "is_string"),
    "Boolean": _reading(_constant(lambda parsed: bool(parsed.this)), "this"),
    "Null": _reading(_constant(lambda parsed: None)),
    "Paren": _reading(lambda walk, parsed, depth: walk.node(parsed.this, depth), "this"),
    "Neg": _reading(Walk.negative, "this"),
    **{kind: _reading(Walk.flat, "this", "expression", "safe") for kind in ("And", "Or", "DPipe")},
    "Not": _plain("NOT", "this"),
    **{kind: _reading(Walk.comparison, "this", "expression") for kind in COMPARISON},
    "Between": _reading(Walk.comparison, "this", "low", "high"),
    "In": _reading(Walk.membership, "this", "expressions"),
    "Like": _reading(Walk.like, "this", "expression", "negate"),
    "ILike": _reading(Walk.like, "this", "expression", "negate"),
    "Is": _reading(Walk.test, "this", "expression"),
    "Case": _reading(Walk.case, "this", "ifs", "default"),
    "If": _reading(Walk.if_, "this", "true", "false"),
    "Cast": _reading(Walk.cast, "this", "to"),
    "TryCast": _reading(Walk.cast, "this", "to", "safe"),
    "Add": _reading(Walk.add, "this", "expression"),
    "Sub": _reading(Walk.add, "this", "expression"),
    "Mul": _plain("*", "this", "expression"),
    "Div": _plain("/", "this", "expression"),
    "Mod": _plain("%", "this", "expression"),
    "Pow": _plain("POWER", "this", "expression"),
    "Atan2": _plain("ATAN2", "this", "expression"),
    "Log": _reading(Walk.logarithm, "this", "expression"),
    "Round": _reading(Walk.round, "this", "decimals"),
    "Trim": _reading(Walk.trim, "this", "expression", "position"),
    **{kind: _plain(kind.upper(), "this") for kind in _OF_ONE},
    "Coalesce": _plain("COALESCE", "this", "expressions"),
    "Greatest": _plain("GREATEST", "this", "expressions"),
    "Least": _plain("LEAST", "this", "expressions"),
    "Nullif": _plain("NULLIF", "this", "expression"),
    "Substring": _plain("SUBSTRING", "this", "start", "length"),
    "Left": _plain("LEFT", "this", "expression"),
    "Right": _plain("RIGHT", "this", "expression"),
    "Concat": _plain("CONCAT", "expressions"),
    "Replace": _plain("REPLACE", "this", "expression", "replacement"),
    "StartsWith": _plain("STARTS_WITH", "this", "expression"),
    "EndsWith": _plain("ENDS_WITH", "this", "expression"),
    "Contains": _plain("CONTAINS", "this", "expression"),
    "StrPosition": _plain("STRPOS", "this", "substr"),
    "Extract": _reading(Walk.extract, "this", "expression"),
    **{kind: _reading(Walk.extract, "this") for kind in _PARTS_AS_FUNCTIONS},
    "TimestampTrunc": _reading(Walk.truncate, "this", "unit"),
    "DateTrunc": _reading(Walk.truncate, "this", "unit"),
    "DateDiff": _reading(Walk.difference, "this", "expression", "unit", "date_part_boundary"),
}
