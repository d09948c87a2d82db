"""A checked expression as a tree, and its canonical text.

The canonical text identifies a question, so it is rendered from the checked tree and never from what the caller
typed. Parsing it again gives the same tree: `canonical(canonical(text)) == canonical(text)`.
"""

import re
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from holdfast.schema import Schema, Type


@dataclass(frozen=True, slots=True)
class Node:
    """One step of an expression: what is done (`op`), to what (`args`), and what comes out."""

    op: str
    args: tuple["Node", ...] = ()
    value: Any = None  # a column's name, a literal's value, a cast's target, a pattern, a part of a date, signs
    type: Type | None = None  # None: the bare NULL, which fits anywhere
    nullable: bool = False

    @property
    def is_literal(self) -> bool:
        """Whether this is a constant written in the text."""
        return self.op == "literal"

    @property
    def is_constant(self) -> bool:
        """Whether no column takes part."""
        return self.op != "column" and all(arg.is_constant for arg in self.args)

    def __str__(self) -> str:
        return _render(self)


SQL_NAMES = {
    Type.BOOL: "BOOLEAN",
    Type.INT: "BIGINT",
    Type.FLOAT: "DOUBLE",
    Type.STRING: "TEXT",
    Type.DATE: "DATE",
    Type.DATETIME: "TIMESTAMP",
}
SUM = "+-"  # a sum of more than two terms, left to right; the node's value holds the signs of all but the first
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")

_ATOM = 9
_PRECEDENCE = {
    "OR": 1, "AND": 2, "NOT": 3, "BETWEEN": 4, "IN": 4, "LIKE": 4, "ILIKE": 4, "IS": 4, **dict.fromkeys(COMPARISONS, 4),
    "||": 5, SUM: 6, "+": 6, "-": 6, "DATE_ADD": 6, "DATE_SUB": 6, "*": 7, "/": 7, "%": 7, "NEG": 8,
}  # fmt: skip
_SIMPLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Words that cannot name a column without quotes.
RESERVED = frozenset([
    "AND", "OR", "NOT", "IN", "IS", "LIKE", "ILIKE", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE", "END",
    "NULL", "TRUE", "FALSE", "AS", "FROM", "FOR", "BOTH", "LEADING", "TRAILING", "ISNULL", "NOTNULL",
])  # fmt: skip


def identifier(name: str) -> str:
    """Return a column's name as it is written in a text: quoted where it must be."""
    if _SIMPLE.fullmatch(name) and name.upper() not in RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


def literal_text(value: object) -> str:
    """Return the one spelling of a constant."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return repr(value)


def _precedence(node: Node) -> int:
    if node.is_literal and isinstance(node.value, int | float) and str(node.value).startswith("-"):
        return _PRECEDENCE["NEG"]
    return _PRECEDENCE.get(node.op, _ATOM)


def _grouped(node: Node, at_least: int) -> str:
    text = _render(node)
    return text if _precedence(node) >= at_least else f"({text})"


def _render(node: Node) -> str:
    op, args = node.op, node.args
    precedence = _PRECEDENCE.get(op, _ATOM)
    if op == "column":
        return identifier(node.value)
    if op == "literal":
        return literal_text(node.value)
    if op in ("AND", "OR", "||"):
        return f" {op} ".join(_grouped(arg, precedence + 1) for arg in args)
    if op == SUM:
        signed = (f" {sign} {_grouped(arg, precedence + 1)}" for sign, arg in zip(node.value, args[1:], strict=True))
        return _grouped(args[0], precedence) + "".join(signed)
    if op == "NOT":
        return f"NOT {_grouped(args[0], 5)}"
    if op == "NEG":
        return f"-{_grouped(args[0], _ATOM)}"
    if op in COMPARISONS:
        return f"{_grouped(args[0], 5)} {op} {_grouped(args[1], 5)}"
    if op in ("+", "-", "*", "/", "%", "DATE_ADD", "DATE_SUB"):
        op = {"DATE_ADD": "+", "DATE_SUB": "-"}.get(op, op)
        return f"{_grouped(args[0], precedence)} {op} {_grouped(args[1], precedence + 1)}"
    if op == "BETWEEN":
        return f"{_grouped(args[0], 5)} BETWEEN {_grouped(args[1], 5)} AND {_grouped(args[2], 5)}"
    if op == "IN":
        return f"{_grouped(args[0], 5)} IN ({', '.join(map(_render, args[1:]))})"
    if op in ("LIKE", "ILIKE", "IS"):
        return f"{_grouped(args[0], 5)} {op} {literal_text(node.value)}"
    if op == "CAST":
        return f"CAST({_render(args[0])} AS {SQL_NAMES[node.value]})"
    if op == "EXTRACT":
        return f"EXTRACT({node.value} FROM {_render(args[0])})"
    if op == "CASE":
        return _render_case(args)
    if op in ("DATE_TRUNC", "DATE_DIFF"):  # the part comes first
        return f"{op}({', '.join([literal_text(node.value.lower()), *map(_render, args)])})"
    return f"{op}({', '.join(map(_render, args))})"


def _render_case(args: tuple[Node, ...]) -> str:
    pairs = zip(args[:-1:2], args[1:-1:2], strict=True)
    text = "CASE " + " ".join(f"WHEN {_render(when)} THEN {_render(then)}" for when, then in pairs)
    otherwise = "" if args[-1].is_literal and args[-1].value is None else f" ELSE {_render(args[-1])}"
    return f"{text}{otherwise} END"


class SchemaKey:
    """A schema as a cache key: by identity, because hashing every column costs more than the lookup."""

    __slots__ = ("schema",)

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SchemaKey) and other.schema is self.schema
