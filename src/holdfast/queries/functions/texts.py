"""Text. Positions and lengths count characters; patterns are constants, so none is ever built from the data."""

import re
from collections.abc import Sequence

import polars as pl

from holdfast.errors import InvalidQuery
from holdfast.queries.functions.operation import Operation
from holdfast.queries.node import Node
from holdfast.schema import Type


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


OPERATIONS: dict[str, Operation] = {
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
}
LONGEST_PATTERN = 200
LONGEST_CUT = 1_000_000
MOST_GROWTH = 64


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
