"""A checked expression as a tree: what its operations take and give, its canonical text, its evaluation in steps.

The canonical text identifies a question, so it is rendered from the checked tree and never from what the caller
typed. Parsing it again gives the same tree, and the same text.

It is evaluated in steps, so that its running time does not reveal what the rows hold. Polars takes shortcuts where an
expression chooses (when, then, otherwise). If all rows choose alike, the other branch is not evaluated; and the result
may be a single value for all rows, so that whatever follows is computed only once. One differing row among thousands
would show in the time of an answer. So everything that a choice mentions is evaluated beforehand, for every row; the
choice is made here; and its result is written out for every row.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from math import isfinite
from operator import attrgetter
from typing import Any, Literal

import polars as pl
from polars.exceptions import ShapeError

from holdfast.errors import InvalidQuery
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


# -- operations and types ---------------------------------------------------------------------------------------------

NullRule = Literal["any", "all", "may", "never"]
Build = Callable[[Node, Sequence[pl.Expr]], "pl.Expr | Case"]

PHYSICAL: dict[Type, pl.DataType] = {  # how values of each type are stored when an operation sees them
    Type.BOOL: pl.Boolean(),
    Type.INT: pl.Int64(),
    Type.FLOAT: pl.Float64(),
    Type.STRING: pl.String(),
    Type.DATE: pl.Date(),
    Type.DATETIME: pl.Datetime("us"),
}
ARGUMENT_TYPES: dict[str, tuple[Type, ...]] = {
    "number": (Type.INT, Type.FLOAT),
    "whole number": (Type.INT,),
    "text": (Type.STRING,),
    "boolean": (Type.BOOL,),
    "date": (Type.DATE,),
    "date or timestamp": (Type.DATETIME, Type.DATE),  # the first is what NULL stands for: it has all parts
    "value": tuple(Type),
}
_nullable = attrgetter("nullable")
_WAYS = {  # what may be meant where an operation is given what it does not take
    "||": " It joins texts; between conditions write OR.",
    "+": " Texts are joined by ||.",
    "OR": " Write every comparison in full: carrier = 'UA' OR carrier = 'AA'; or carrier IN ('UA', 'AA').",
    "AND": " Write every comparison in full: hour > 6 AND hour < 18.",
}
_PLURALS = {Type.BOOL: "booleans", Type.STRING: "text", Type.DATE: "dates", Type.DATETIME: "timestamps"}


@dataclass(frozen=True)
class Operation:
    """`takes` names the type of each argument (the last one repeats when `more`); `gives` is the type of the result.

    `gives=None` means the common type of all arguments. `may_be_nan` marks results that can be NaN. Operations with
    `passes_nan` (arithmetic) leave NaN as it is; all others treat it as NULL, and it is turned into NULL once, before
    them. `copies` says how often each argument is mentioned in what Polars evaluates (the last number repeats); an
    argument that is mentioned more than once is evaluated beforehand, once. `before` lists parts of the operation
    itself that are evaluated beforehand, in order: each result is put in front of the arguments of the next. An
    operation that chooses between values by row is a `Case`, never Polars' own (see `node`). `operator`
    computes the same of series or numpy arrays, for the operations that most questions consist of.
    """

    takes: tuple[str, ...]
    gives: Type | None
    build: Build
    null: NullRule = "any"
    least: int | None = None  # the least number of arguments; None: all of `takes`
    more: bool = False
    may_be_nan: bool = False
    passes_nan: bool = False
    copies: tuple[int, ...] = (1,)
    before: tuple[Build, ...] = ()
    operator: Callable[..., Any] | None = None

    def argument(self, place: int) -> str:
        """Return the type of the argument at this place."""
        return self.takes[min(place, len(self.takes) - 1)]

    def mentions(self, place: int) -> int:
        """Return how often what Polars evaluates mentions the argument at this place."""
        return self.copies[min(place, len(self.copies) - 1)]

    def nullable(self, args: Sequence[Node]) -> bool:
        """Return whether the result may be NULL, from the arguments alone."""
        match self.null:
            case "any":
                return any(map(_nullable, args))
            case "all":
                return all(map(_nullable, args))
            case "may":
                return True
            case "never":
                return False

    def apply(self, op: str, args: Sequence[Node]) -> Node:
        """Return the checked node of this operation, or refuse it."""
        least = len(self.takes) if self.least is None else self.least
        most = None if self.more else len(self.takes)
        if len(args) < least or (most is not None and len(args) > most):
            count = f"at least {least}" if most is None else f"{least} to {most}" if most > least else str(least)
            raise InvalidQuery(f"{op} takes {count} argument{'s' * (count != '1')}; got {len(args)}.")
        for place, arg in enumerate(args):
            takes = self.argument(place)
            if arg.type is not None and arg.type not in ARGUMENT_TYPES[takes]:
                a_number = takes if takes == "text" else f"a {takes}"
                read = takes == "date or timestamp" and arg.type is Type.STRING and not arg.is_literal
                way = f" Text such as 2024-12-31 is read by CAST({arg} AS TIMESTAMP)." if read else _WAYS.get(op, "")
                if op == "+" and arg.type is not Type.STRING:
                    way = ""
                shown = str(arg) if arg.type is Type.STRING and arg.is_literal else f"'{arg}'"
                raise InvalidQuery(f"{op} takes {a_number}; {shown} is {with_article(arg.type)}.{way}")
        if self.gives is None:
            args = unified(op, args)
            type_ = common_type(args)
        else:
            type_ = self.gives
            args = [
                arg if arg.type is not None else replace(arg, type=ARGUMENT_TYPES[self.argument(place)][0])
                for place, arg in enumerate(args)
            ]
        return Node(op, tuple(args), type=type_, nullable=self.nullable(args))


def with_article(type_: Type) -> str:
    """Return the type with its article, for use in a sentence.

    >>> with_article(Type.INT), with_article(Type.STRING)
    ('an integer', 'text')
    """
    if type_ is Type.STRING:
        return "text"
    return f"an {type_}" if type_ is Type.INT else f"a {type_}"


def unified(op: str, args: Sequence[Node]) -> list[Node]:
    """Bring arguments to one type: numbers together, dates with timestamps, text constants read as dates."""
    types = {arg.type for arg in args if arg.type is not None}
    if not types:
        raise InvalidQuery(f"{op} needs at least one value that is not NULL.")
    if types == {Type.INT, Type.FLOAT}:
        common = Type.FLOAT
    elif Type.DATETIME in types and types <= {Type.DATE, Type.DATETIME, Type.STRING}:
        common = Type.DATETIME
    elif Type.DATE in types and types <= {Type.DATE, Type.STRING}:
        common = Type.DATE
        if any(arg.is_literal and arg.type is Type.STRING and len(arg.value) > 10 for arg in args):
            common = Type.DATETIME  # a constant that names a time of day
    elif len(types) == 1:
        common = types.pop()
    else:
        raise _mismatch(op, args)
    if common in (Type.DATE, Type.DATETIME) and any(arg.type is Type.STRING and not arg.is_literal for arg in args):
        raise _mismatch(op, args)
    return [_as_common(arg, common) for arg in args]


def common_type(args: Sequence[Node]) -> Type | None:
    """Return the type of values brought to one type."""
    types = {arg.type for arg in args}
    return Type.FLOAT if Type.FLOAT in types else args[0].type


def _mismatch(op: str, args: Sequence[Node]) -> InvalidQuery:
    typed = [arg for arg in args if arg.type is not None]
    left = typed[0]
    right = next(arg for arg in typed if arg.type is not left.type)
    if op in COMPARISONS and not left.is_literal and left.type is not None and right.type is not None:
        plural = _PLURALS.get(right.type, "numbers")
        fact = f"'{left}' is {with_article(left.type)}; {op} {right} compares {plural}."
        return InvalidQuery(fact + _way(op, left, right))
    facts = " and ".join(f"'{arg}' is {with_article(arg.type)}" for arg in (left, right) if arg.type is not None)
    return InvalidQuery(f"{op} needs values of one type; {facts}.")


def _way(op: str, left: Node, right: Node) -> str:
    """Say how a comparison is written that mixes types as many do by mistake."""
    if left.op in COMPARISONS and op not in ("=", "<>"):  # 12 < hour < 18
        middle = left.args[0] if left.args[1].is_literal else left.args[1]  # constants stand on the right
        return f" Write two comparisons: {left} AND {middle} {op} {right}."
    if left.type in (Type.DATE, Type.DATETIME) and right.type is not None and right.type.is_number:
        return " Write a date in single quotes: '2024-12-31'."
    if left.type is Type.BOOL:
        return f" It is true or false by itself: write {left}, or NOT {left}."
    if left.type is not None and left.type.is_number and right.is_literal and _is_number(right.value):
        return f" Write the number without quotation marks: {right.value}."
    if left.type is Type.STRING and right.type is not None and right.type.is_number:
        return numbers_in(str(left))
    return ""


def numbers_in(text: str) -> str:
    """Say how to ask about numbers that are in a column of text."""
    return f" Numbers written as text are read by CAST({text} AS DOUBLE)."


def _is_number(text: object) -> bool:
    try:
        return isinstance(text, str) and isfinite(float(text))
    except ValueError:
        return False


def _as_common(arg: Node, common: Type) -> Node:
    if arg.type is None:
        return replace(arg, type=common)
    if arg.type is common or common is Type.FLOAT:
        return arg
    if arg.is_literal:
        return time_literal(arg.value, common)
    return Node("CAST", (arg,), value=common, type=common, nullable=arg.nullable)


def time_literal(value: str | date, type_: Type) -> Node:
    """Read a constant as a date or a timestamp, or refuse it."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.isoformat()  # a text of the same instant is read as UTC
    if isinstance(value, str):
        value = _read_time(value, type_)
    elif type_ is Type.DATETIME and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    return Node("literal", value=value, type=type_)


def _read_time(text: str, type_: Type) -> date:
    try:
        if type_ is Type.DATE:
            return date.fromisoformat(text.strip())
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is not None:  # timestamps are in UTC throughout
            moment = moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        example = "2024-12-31" if type_ is Type.DATE else "2024-12-31 23:59:59"
        raise InvalidQuery(f"{text!r} must be a {type_} such as '{example}'.") from None
    return moment


# -- evaluation in steps ----------------------------------------------------------------------------------------------


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
