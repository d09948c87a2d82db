"""A function of one row, in any spelling: what it reads, what it gives, and its value on some rows."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import polars as pl
from polars.exceptions import PanicException, PolarsError

from holdfast.errors import InvalidQuery
from holdfast.queries import physical
from holdfast.queries.direct import direct
from holdfast.queries.functions.logic import PHYSICAL
from holdfast.queries.functions.rule import Rule
from holdfast.queries.functions.table import RULES
from holdfast.queries.node import Node
from holdfast.queries.query import Direct
from holdfast.queries.translate import translated
from holdfast.schema import Column, Same, Schema, Type

MOST_WORK = 4_000  # steps of one evaluation


class Rowwise(Protocol):
    """What text, Polars expressions and callables all become."""

    @property
    def type(self) -> Type:
        """The type of the value."""
        ...

    @property
    def nullable(self) -> bool:
        """Whether the value may be missing."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        ...

    @property
    def text(self) -> str:
        """How it reads, for people."""
        ...

    @property
    def identity(self) -> str | None:
        """Canonical text; None where identity cannot be decided."""
        ...

    @property
    def direct(self) -> Direct | None:
        """How to evaluate on arrays, without a frame; None where it takes one."""
        ...

    def series(self, rows: pl.DataFrame) -> pl.Series:
        """Return one value per row; total, and row i depends on row i alone."""
        ...


@dataclass(frozen=True)
class Expression:
    """An expression that Polars evaluates, after some preparation or directly."""

    type: Type
    nullable: bool
    text: str
    identity: str | None
    reads: dict[str, Column]
    compiled: pl.Expr | Direct

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads, in order of first mention."""
        return tuple(self.reads)

    @property
    def direct(self) -> Direct | None:
        """How to evaluate without an expression, where it takes none."""
        return None if isinstance(self.compiled, pl.Expr) else self.compiled

    def series(self, rows: pl.DataFrame) -> pl.Series:
        """Return one value per row."""
        rows = physical.settled(rows, self.reads)
        try:
            result = self.on_settled(rows)
        except (PolarsError, PanicException):  # no operation should do this; should one, only its row is NULL
            return pl.Series([self._alone(row) for row in rows.iter_slices(1)], dtype=PHYSICAL[self.type])
        if result.len() != rows.height:  # Polars may settle a constant branch as one value
            return result.new_from_index(0, rows.height)
        return result

    def on_settled(self, rows: pl.DataFrame) -> pl.Series:
        """Return what Polars makes of rows in their one form; a constant may be one value for all of them."""
        if isinstance(self.compiled, pl.Expr):
            return rows.select(self.compiled).to_series()
        values: pl.Series = self.compiled(rows)
        return values

    def _alone(self, row: pl.DataFrame) -> Any:
        try:
            return self.on_settled(row).item()
        except (PolarsError, PanicException):
            return None


def from_text(text: str, schema: Schema) -> Expression:
    """Return the checked expression of a text, or refuse it; a text seen before costs a lookup."""
    if not isinstance(text, str):
        raise InvalidQuery(f"A query must be text, a Polars expression or a function; got {type(text).__name__}.")
    return _from_text(text, Same(schema))


def canonical(text: str, schema: Schema) -> str:
    """Return the one spelling of a text: equal for texts that differ in spelling alone."""
    return from_text(text, schema).text


@lru_cache(maxsize=4096)
def _from_text(text: str, same: Same) -> Expression:
    node = translated(text, same.schema)
    columns = tuple(dict.fromkeys(_columns(node)))
    if not columns:
        raise InvalidQuery(f"A query must mention at least one column; got {node}.")
    if node.type is None:
        raise InvalidQuery("A query must have a value; NULL has none.")
    if work(node) > MOST_WORK:
        raise InvalidQuery(f"A query must be simpler; this one takes {work(node)} steps and the most is {MOST_WORK}.")
    written = str(node)
    return Expression(
        type=node.type,
        nullable=node.nullable,
        text=written,
        identity=written,
        reads=physical.expected(same.schema, columns),
        compiled=direct(node) or compiled(node),
    )


def _columns(node: Node) -> list[str]:
    if node.op == "column":
        return [node.value]
    return [name for arg in node.args for name in _columns(arg)]


def work(node: Node) -> int:
    """Return how many steps Polars will take: operations mention their arguments more than once, and that nests."""
    if not node.args:
        return 1
    rule = RULES[node.op]
    return 1 + sum(
        rule.copies[min(place, len(rule.copies) - 1)] * work(arg) * (2 if _cleaned(rule, arg) else 1)
        for place, arg in enumerate(node.args)
    )


def _cleaned(rule: Rule, arg: Node) -> bool:
    """Whether the argument may hold NaN, which this operation must see as NULL."""
    return not rule.passes_nan and bool(arg.args) and arg.type is Type.FLOAT and RULES[arg.op].may_be_nan


def compiled(node: Node) -> pl.Expr:
    """Return the Polars expression of a checked tree."""
    return _compiled(node).alias("value")


def _compiled(node: Node) -> pl.Expr:
    if node.op == "column":
        return pl.col(node.value)
    if node.is_literal:
        return pl.lit(node.value, dtype=PHYSICAL[node.type or Type.STRING])
    rule = RULES[node.op]
    return rule.build(node, [_argument(node, rule, arg) for arg in node.args])


def _argument(node: Node, rule: Rule, arg: Node) -> pl.Expr:
    """Return an argument as the operation takes it: of the common type, and with NULL for NaN where that matters."""
    compiled = _compiled(arg)
    if rule.gives is None and node.type is Type.FLOAT and arg.type is Type.INT:
        return compiled.cast(pl.Float64, strict=False)  # not left to Polars, which may give the type of one branch
    return pl.when(compiled.is_not_nan()).then(compiled) if _cleaned(rule, arg) else compiled
