"""One entry of the table: what an operation takes and gives, when it is NULL, and how Polars computes it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from math import isfinite
from operator import attrgetter
from typing import Any, Literal

import polars as pl

from holdfast.errors import InvalidQuery
from holdfast.queries.node import COMPARISONS, Case, Node
from holdfast.schema import Type

NullRule = Literal["any", "all", "may", "never"]
Build = Callable[[Node, Sequence[pl.Expr]], pl.Expr | Case]

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
                way = f" Text such as 2024-12-31 is read by CAST({arg} AS TIMESTAMP)." if read else ""
                raise InvalidQuery(f"{op} takes {a_number}; '{arg}' is {with_article(arg.type)}.{way}")
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
    if left.type is Type.BOOL and op in ("=", "<>"):
        return f" It is true or false by itself: write {left}, or NOT {left}."
    if left.type is not None and left.type.is_number and right.is_literal and _is_number(right.value):
        return f" Write the number without quotation marks: {right.value}."
    return ""


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
