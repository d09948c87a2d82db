"""Turn the text of a query into a checked expression: tokens, sqlglot's parser, translation, limits; then its range.

Texts that differ only in their numbers are parsed once, because a search for a threshold asks many of them. A text's
shape is the text with every number replaced by a placeholder, which the parser passes through untouched; translating
the parsed shape puts the numbers back. Only plain texts have a shape: words, numbers, operators and simple quotations,
so that whatever looks like a number is one. Where columns are merely compared with numbers, no check depends on the
numbers: the shape is translated once, too, and a text of it differs only in the numbers it shows and compares with.

The range of an expression, or its values, follow from its constants and from declared bounds. No guarantee relies on
them: values are clipped to whatever range a question has. If an expression uses an operation without a rule for ranges,
or a column without bounds, it has no range, and the caller must give one.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import product
from math import ceil, exp, floor, inf, isfinite, isnan, log, nextafter, sqrt, ulp
from operator import add
from typing import TYPE_CHECKING, Any

from holdfast.errors import InvalidQuery, UnknownName
from holdfast.queries.evaluate import Comparisons, Expression, compiled, on_columns, text_weight, work
from holdfast.queries.grammar import Translator, compared_number, too_deep
from holdfast.queries.node import Node, identifier
from holdfast.queries.tokens import checked_tokens, dialect, parse_hint
from holdfast.schema import Column, Schema, SchemaKey, Type

if TYPE_CHECKING:
    from sqlglot.expressions import Expr as Parsed

MOST_WORK = 1_000  # steps of one evaluation
NUMBERS = (Type.INT, Type.FLOAT)
_EMPTY = "\\"  # where a number will be in a canonical text: plain texts have no backslash, nor have their columns
LONGEST_SHAPE = 500  # characters: longer texts are rare, and their length limits apply to the text, not the shape

_PLAIN = re.compile(r"""(?:[\w\s.,()<>=!+*/%|-]++|'[^'"\\]*+'|"[^'"\\]*+")*+""")
# Quotations are matched first, so that nothing inside one is taken for a number.
_PIECE = re.compile(r"""'[^']*'|"[^"]*"|(?<![\w.])([0-9]+)(\.[0-9]+)?([eE][+-]?[0-9]+)?(?![\w.])""")
_FIRST = 8_140_173_920  # placeholders count up from here; the parser puts no such number into a tree by itself
_ENDS = {1: "", 2: ".5", 3: "e0"}  # of a placeholder, by the last part that the number has


def from_text(text: object, schema: Schema) -> Expression:
    """Return the checked expression of a text, or refuse it; a text seen before costs a lookup."""
    if not isinstance(text, str):
        hint = " Write the condition itself, as text: 'dep_delay > 15'." if hasattr(text, "__array__") else ""
        raise InvalidQuery(f"A query must be text, a Polars expression or a function; got {type(text).__name__}.{hint}")
    return _from_text(text, schema.key)


@lru_cache(maxsize=4096)
def _from_text(text: str, key: SchemaKey) -> Expression:
    shape = shape_of(text)
    if shape is not None:
        try:
            known = _known_shape(shape[0], len(shape[1]), key)
            if known.filled is not None:
                return known.filled(shape[1].values())
            return _expression(*_translated(known.parsed, key.schema, shape[1]))
        except (InvalidQuery, UnknownName):
            pass  # refused below, in terms of the text itself
    try:
        return _expression(*_translated(_parsed(text, key.schema), key.schema, {}))
    except InvalidQuery as refusal:
        raise InvalidQuery(f"{refusal}{_quoted(text, key.schema, str(refusal))}") from None


def _quoted(text: str, schema: Schema, refusal: str) -> str:
    """Say that what stands in single quotes is a text, where it may have been meant as a column or as the query."""
    texts = re.findall("'([^']*)'", text)
    if texts == [text.strip()[1:-1]]:
        return " Write the query without single quotes around it: they make it a text."
    column = next((one for one in texts if one in schema and f"'{one}'" in refusal), None)
    return "" if column is None else f" {column!r} is a text here; write the column as {identifier(column)}."


def _expression(node: Node, columns: dict[str, Column]) -> Expression:
    """Return the expression of a checked tree over these columns, or refuse it."""
    if not columns:
        raise InvalidQuery(f"A query must mention at least one column; got {node}.")
    if node.type is None:
        raise InvalidQuery("A query must have a value; NULL has none.")
    weighed = work(node, text_weight)
    if weighed > MOST_WORK and (steps := work(node)) > MOST_WORK:
        raise InvalidQuery(f"A query must take at most {MOST_WORK} steps to evaluate; this one takes {steps}.")
    written = str(node)
    comparisons = on_columns(node)
    return Expression(
        type=node.type,
        nullable=node.nullable,
        text=written,
        identity=written,
        reads=columns,
        compiled=compiled(node, columns) if comparisons is None else comparisons.at(comparisons.literals),
        work=weighed,
        range=range_of(node, columns) if node.type.is_number else None,
        values=values_of(node),
    )


def tree(text: str, schema: Schema) -> Node:
    """Return the checked tree of a text, or refuse it. Reads nothing but the schema."""
    return _translated(_parsed(text, schema), schema, {})[0]


def shape_of(text: str) -> tuple[str, Mapping[str, str]] | None:
    """Return the shape of a text and the number behind each placeholder; None if the text is not plain.

    >>> shape, numbers = shape_of("delay > 15 AND distance < 1.5e3")
    >>> shape, sorted(numbers.values())
    ('delay > 8140173920 AND distance < 8140173921e0', ['1.5e3', '15'])
    """
    if len(text) > LONGEST_SHAPE or not _PLAIN.fullmatch(text):
        return None
    numbers: dict[str, str] = {}

    def placeholder(piece: re.Match[str]) -> str:
        kind = piece.lastindex
        if kind is None:  # a quotation
            return piece[0]
        number = f"{_FIRST + len(numbers)}{_ENDS[kind]}"
        numbers[number] = piece[0]
        return number

    return _PIECE.sub(placeholder, text), numbers


@dataclass(frozen=True)
class _Shape:
    """A parsed shape; and if it only compares columns with its numbers, how they make an expression of it."""

    parsed: "Parsed"  # translated many times, never changed
    filled: Callable[[Iterable[str]], Expression] | None


@lru_cache(maxsize=1024)
def _known_shape(shape: str, count: int, key: SchemaKey) -> _Shape:
    """Return what the texts of this shape, with `count` placeholders, have in common."""
    parsed = _parsed(shape, key.schema)
    with suppress(InvalidQuery, UnknownName):
        node, columns = _translated(parsed, key.schema, {})
        comparisons = on_columns(node) if count else None  # without numbers there is only one text
        # A number in the tree that is no placeholder has another place than all of them.
        if comparisons is not None and [abs(int(one)) - _FIRST for one in comparisons.literals] == list(range(count)):
            return _Shape(parsed, _filling(node, columns, comparisons))
    return _Shape(parsed, None)


def _filling(node: Node, columns: dict[str, Column], comparisons: Comparisons) -> Callable[[Iterable[str]], Expression]:
    """Return how numbers make an expression of a shape's tree. Only the order of BETWEEN's ends depends on them."""
    blank = _expression(node, columns)
    signs = ["-" * (one < 0) for one in comparisons.literals]
    ranges = list(_constant_ranges(node))
    template = str(_emptied(node)).replace("%", "%%").replace(_EMPTY, "%r")

    def filled(texts: Iterable[str]) -> Expression:
        numbers = tuple(map(compared_number, map(add, signs, texts)))
        if any(numbers[low] > numbers[high] for low, high in ranges):
            raise InvalidQuery("BETWEEN takes the lower end first.")  # worded where the text is parsed by itself
        written = template % numbers
        return Expression(blank.type, blank.nullable, written, written, columns, comparisons.at(numbers), blank.work)

    return filled


def _constant_ranges(node: Node) -> Iterable[tuple[int, int]]:
    """Yield the places of both numbers of every BETWEEN in a shape's tree that has two."""
    if node.op == "BETWEEN" and all(arg.is_literal and arg.type in NUMBERS for arg in node.args[1:]):
        low, high = (abs(int(arg.value)) - _FIRST for arg in node.args[1:])
        yield low, high
    for arg in node.args:
        yield from _constant_ranges(arg)


def _emptied(node: Node) -> Node:
    """Return a tree with a mark in place of every number."""
    if node.is_literal and node.type in NUMBERS:
        return replace(node, value=_Empty())
    return replace(node, args=tuple(map(_emptied, node.args)))


class _Empty:
    """Where a number will be."""

    def __repr__(self) -> str:
        return _EMPTY


def _parsed(text: str, schema: Schema) -> "Parsed":
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    tokens = checked_tokens(text, schema)
    try:
        statements = dialect().parser().parse_into(exp.Condition, tokens, text)
    except RecursionError:
        raise too_deep() from None
    except (SqlglotError, ValueError, TypeError, AttributeError, KeyError, IndexError):
        # Internal errors of the parser on odd input are refusals too: it saw only the caller's text.
        shown, hint = repr(text if len(text) <= 80 else text[:77] + "..."), parse_hint(tokens, schema)
        raise InvalidQuery(f"A query must be an SQL expression over one row; {shown} cannot be parsed.{hint}") from None
    if len(statements) != 1 or statements[0] is None:
        raise InvalidQuery("A query must be one expression.")
    return statements[0]


def _translated(parsed: "Parsed", schema: Schema, numbers: Mapping[str, str]) -> tuple[Node, dict[str, Column]]:
    translator = Translator(schema, numbers)
    try:
        return translator.node(parsed, 1), translator.columns
    except RecursionError:
        raise too_deep() from None


# -- ranges -----------------------------------------------------------------------------------------------------------

Range = tuple[float, float]

_ANY: Range = (-inf, inf)
_PARTS = {
    "QUARTER": (1.0, 4.0), "MONTH": (1.0, 12.0), "WEEK": (1.0, 53.0), "DAY": (1.0, 31.0), "DOY": (1.0, 366.0),
    "ISODOW": (1.0, 7.0), "DOW": (0.0, 6.0), "HOUR": (0.0, 23.0), "MINUTE": (0.0, 59.0), "SECOND": (0.0, 59.0),
}  # fmt: skip


def range_of(node: Node, columns: Mapping[str, Column]) -> Range | None:
    """Return the range of a checked tree whose value is a number; None if none is declared.

    >>> from holdfast.queries.parse import tree
    >>> from holdfast.schema import Schema
    >>> flights = Schema((Column("delay", Type.FLOAT, True, (-60, 600)), Column("miles", Type.FLOAT, False)))
    >>> named = {column.name: column for column in flights}
    >>> range_of(tree("delay / 60", flights), named), range_of(tree("LEAST(ABS(miles), 500)", flights), named)
    ((-1.0, 10.0), (0.0, 500.0))
    >>> range_of(tree("miles", flights), named)
    >>> range_of(tree("SQRT(delay + 60) / 2 + EXP(delay * 0)", flights), named) is not None
    True
    >>> range_of(tree("LN(delay)", flights), named)  # which has no lower end
    """
    low, high = _range(node, columns)
    return (low, high) if low < high and isfinite(high - low) else None


def values_of(node: Node) -> tuple[Any, ...] | None:
    """Return all values except NULL that an expression can have, if its text lists them; else None.

    >>> from holdfast.queries.parse import tree
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
            listed = [one.value for one in results if one.value is not None]
            return tuple(dict.fromkeys(map(float, listed) if node.type is Type.FLOAT else listed)) or None
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
        case "CAST" if node.type is Type.INT:  # rounds
            return _of_arithmetic("ROUND", [_range(node.args[0], columns)])
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
        case "FLOOR" | "CEIL" | "ROUND", [(low, high), *_]:
            return float(floor(low)) if isfinite(low) else low, float(ceil(high)) if isfinite(high) else high
        case "CAST" | "NULLIF", [first, *_]:
            return first
        case "SQRT", [(low, high)] if high >= 0:
            return _root(max(0.0, low), -inf), _root(high, inf)
        case "EXP", [(low, high)]:
            return _beyond(exp, low, -inf), _beyond(exp, high, inf)
        case "LN", [(low, high)] if low > 0:
            return _beyond(log, low, -inf), _beyond(log, high, inf)
        case "LOG", [(base, _) as both, (low, high)] if base > 0 and low > 0 and not both[0] <= 1 <= both[1]:
            ends = [_quotient_of_logarithms(x, b) for x, b in product((low, high), both)]
            return min(first for first, _ in ends), max(last for _, last in ends)
    return _ANY


def _beyond(function: Callable[[float], float], x: float, toward: float) -> float:
    """Return a logarithm or an exponential, rounded outward; exact where it is a whole number."""
    try:
        value = function(x)
    except OverflowError:
        return inf
    if not isfinite(value) or (function, x) in ((log, 1.0), (exp, 0.0)):
        return value
    return nextafter(nextafter(value, toward), toward)  # it is off by less than one unit in the last place


def _root(x: float, toward: float) -> float:
    """Return a square root, rounded outward."""
    root = sqrt(x)
    if not isfinite(root):
        return root
    beyond = Fraction(root) ** 2 - Fraction(x)  # the root is the nearest number, on either side
    inside = beyond < 0 if toward > 0 else beyond > 0
    return nextafter(root, toward) if inside else root


def _quotient_of_logarithms(x: float, base: float) -> Range:
    """Return a logarithm as an interval; it is rounded to the whole number where that is near, as LOG is."""
    if not isfinite(x):
        return _ANY
    value = log(x) / log(base)
    if abs(value - round(value)) < 1e-13:
        return float(round(value)), float(round(value))
    return value - 4 * ulp(value), value + 4 * ulp(value)


def _least(args: tuple[Node, ...], columns: Mapping[str, Column]) -> Range:
    """LEAST skips missing values, so only an argument that is never missing bounds it from above; else any may."""
    ranges = [_range(arg, columns) for arg in args]
    always = [high for arg, (_, high) in zip(args, ranges, strict=True) if not arg.nullable]
    low, high = _either(ranges)
    return low, min(always, default=high)


def _either(ranges: list[Range]) -> Range:
    return min((low for low, _ in ranges), default=-inf), max((high for _, high in ranges), default=inf)


def _extremes(values: list[float]) -> Range:
    return _ANY if any(map(isnan, values)) else (min(values), max(values))
