"""A checked expression as a tree: its canonical text, and its evaluation in steps.

The canonical text identifies a question, so it is rendered from the checked tree and never from what the caller
typed. Parsing it again gives the same tree, and the same text.

It is evaluated in steps, so that its running time does not reveal what the rows hold. Polars takes shortcuts where an
expression chooses (when, then, otherwise). If all rows choose alike, the other branch is not evaluated; and the result
may be a single value for all rows, so that whatever follows is computed only once. One differing row among thousands
would show in the time of an answer. So everything that a choice mentions is evaluated beforehand, for every row; the
choice is made here; and its result is written out for every row.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import polars as pl
from polars.exceptions import ShapeError

from holdfast.schema import Type


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


@dataclass(frozen=True)
class Case:
    """For every row the value whose condition is the first to be true; `otherwise` where none is. All of one type."""

    branches: tuple[tuple[pl.Expr, pl.Expr], ...]
    otherwise: pl.Expr

    @property
    def parts(self) -> tuple[pl.Expr, ...]:
        """Everything it mentions: the last value, then conditions and values from the last to the first."""
        return (self.otherwise, *(part for branch in reversed(self.branches) for part in branch))

    @staticmethod
    def among(parts: list[pl.Series]) -> pl.Series:
        """Choose each row's value, from the values of the parts."""
        chosen = parts[0]
        for condition, value in zip(parts[1::2], parts[2::2], strict=True):
            chosen = value.zip_with(condition, chosen)  # NULL is not true
        return chosen


@dataclass(frozen=True)
class AddedColumn:
    """A column to be added: an expression, with NULL for NaN if `cleaned`, or a choice. `bound` is applied last."""

    name: str
    value: pl.Expr | Case
    cleaned: bool = False
    bound: Callable[[pl.Series], pl.Series] | None = None

    @property
    def parts(self) -> tuple[pl.Expr, ...]:
        """The expressions to be evaluated for it."""
        return self.value.parts if isinstance(self.value, Case) else (self.value,)

    def of(self, parts: list[pl.Series]) -> pl.Series:
        """Return the column, from the values of its parts."""
        values = Case.among(parts) if isinstance(self.value, Case) else parts[0]
        values = without_nan(values) if self.cleaned else values
        return (values if self.bound is None else self.bound(values)).alias(self.name)


@dataclass(frozen=True)
class Step:
    """Columns that are evaluated together."""

    columns: tuple[AddedColumn, ...]
    parts: tuple[pl.Expr, ...]

    @classmethod
    def of(cls, columns: Iterable[AddedColumn]) -> "Step":
        """Return a step that adds these columns."""
        added = tuple(columns)
        parts = [part for column in added for part in column.parts]
        return cls(added, tuple(part.alias(str(place)) for place, part in enumerate(parts)))

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows with the new columns."""
        # Sequentially: a draw is too small for threads to pay off.
        try:
            found = rows.select_seq(self.parts).get_columns()
        except ShapeError:  # Polars folded a part to a constant, and does not repeat it beside other columns
            found = [rows.select_seq(part).to_series() for part in self.parts]
        values = (repeated(each, rows.height) for each in found)
        return rows.hstack([column.of([next(values) for _ in column.parts]) for column in self.columns])


@dataclass(frozen=True)
class Steps:
    """An expression, and the steps before it."""

    before: tuple[Step, ...]
    value: pl.Expr

    def __call__(self, rows: pl.DataFrame) -> pl.Series:
        """Return one value per row; a constant may be one value for all of them.

        A single row is evaluated as two: Polars takes a single value for a constant, with which it computes in other
        ways (powers as products, 0 - x as it is written), and the row would not have the digits it has among others.
        """
        if rows.height == 1:
            return self(pl.DataFrame([pl.concat([each, each]) for each in rows])).slice(0, 1)
        for step in self.before:
            rows = step(rows)
        if self.value.meta.is_column():
            return rows.get_column(self.value.meta.output_name())
        return rows.select_seq(self.value).to_series()


class StepWriter:
    """Collects the steps of one expression over the given columns; `bound` is applied to what each step gives."""

    def __init__(self, columns: Iterable[str], bound: Callable[[pl.Series], pl.Series] | None = None) -> None:
        self._bound = bound
        self._stem = max(columns, key=len, default="")  # names that extend the longest column name are new
        self._numbers: dict[str, int] = {}  # the step in which each new column is evaluated
        self._steps: list[list[AddedColumn]] = []

    def apart(self, value: pl.Expr | Case, *, cleaned: bool = False) -> pl.Expr:
        """Have the value evaluated beforehand for every row, with NULL for NaN if `cleaned`; return its column."""
        column = AddedColumn(f"{self._stem}#{len(self._numbers)}", value, cleaned, self._bound)
        roots = (root for part in column.parts for root in part.meta.root_names())
        number = 1 + max((self._numbers.get(root, -1) for root in roots), default=-1)
        if number == len(self._steps):
            self._steps.append([])
        self._steps[number].append(column)
        self._numbers[column.name] = number
        return pl.col(column.name)

    def steps(self, value: pl.Expr) -> Steps:
        """Return all steps, the last of which gives the value."""
        return Steps(tuple(map(Step.of, self._steps)), value)


def repeated(values: pl.Series, count: int) -> pl.Series:
    """Return one value per row where Polars computed a constant expression once for all."""
    return values if values.len() == count else values.new_from_index(0, count)


def without_nan(series: pl.Series) -> pl.Series:
    """Return floats with NULL for NaN, by the same steps whether there are any or not; other types unchanged."""
    if not series.dtype.is_float():
        return series
    return series.zip_with(series.is_not_nan(), pl.Series(series.name, [None], dtype=series.dtype))
