"""No expression is cut short by what the rows hold.

Polars leaves out a branch that no row takes, and computes once what follows if all rows take a constant one; either
shows in the time of an answer. So no choice is left to Polars; in Polars expressions, which say so themselves, it
chooses among columns that are there already. That is checked on the expressions, not with a clock.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from holdfast.queries.build import build_mean
from holdfast.queries.evaluate import compiled
from holdfast.queries.from_python import from_polars
from holdfast.queries.functions import OPERATIONS
from holdfast.queries.node import Node, Steps
from holdfast.queries.parse import tree
from holdfast.queries.synthetic import synthetic_rows
from query_examples import EVERYTHING, NUMBERS, SCHEMA

NESTED = [re.sub(rf"\b{column}\b", f"({text})", text) for text in NUMBERS for column in "xy" if f"({column}" in text]
CHOICES = ["case when b then exp(x) else y end > 1", "length(upper(case when b then s || t else 'abc' end))",
           "1 / (x - 1) + 2", "ln(x * y) > ln(x + 1)", "nullif(x + 1, y * 2) + 3", "(x + y) % (x - y) > 0",
           "log(x + 1, y + 1) + 1", "strpos(upper(s), 'A') + strpos(lower(case when b then s end), 'a')",
           "case when case when b then x else y end > 0 then sin(x) else cos(y) end",
           "cast(upper(s) as boolean)"]  # fmt: skip


def trees(node: Any) -> Iterator[dict[str, Any]]:
    """Every node of a serialized expression that is a mapping."""
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from trees(child)


def mentions_columns(node: Any) -> bool:
    return any("Column" in each for each in trees(node))


def expressions(steps: Steps) -> list[pl.Expr]:
    return [steps.value, *(part for step in steps.before for part in step.parts)]


def choices(expression: pl.Expr) -> list[dict[str, Any]]:
    """Every choice that is left to Polars and depends on the rows."""
    every = trees(json.loads(expression.meta.serialize(format="json")))
    return [each["Ternary"] for each in every if "Ternary" in each and mentions_columns(each["Ternary"])]


def shortcuts(steps: Steps) -> list[str]:
    """The expressions that Polars may cut short."""
    return [str(one) for one in expressions(steps) if choices(one)]


def test_no_choice_is_left_to_polars() -> None:
    for text in (*EVERYTHING, *CHOICES):
        assert shortcuts(compiled(tree(text, SCHEMA), SCHEMA.names)) == [], text


def test_no_choice_is_left_to_polars_in_nested_operations() -> None:
    assert len(NESTED) > 20
    for text in NESTED:
        assert shortcuts(compiled(tree(text, SCHEMA), SCHEMA.names)) == [], text


def test_a_choice_that_is_left_to_polars_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(node: Node, args: Sequence[pl.Expr]) -> pl.Expr:
        return pl.when(args[0]).then(args[1]).otherwise(args[2])

    monkeypatch.setitem(OPERATIONS, "CASE", replace(OPERATIONS["CASE"], build=build))
    assert shortcuts(compiled(tree(CHOICES[0], SCHEMA), SCHEMA.names)) != []


def test_all_branches_are_evaluated_for_every_row() -> None:
    rows = pl.DataFrame({"b": [False] * 50, "s": ["x"] * 50, "t": ["y"] * 50})
    steps = compiled(tree("case when b then upper(s) else lower(t) end", SCHEMA), SCHEMA.names)
    (step,) = steps.before
    assert [len(each) for each in rows.select(step.parts)] == [50, 50, 50]
    assert steps(rows).to_list() == ["y"] * 50


POLARS = [
    pl.when(pl.col("b")).then(pl.col("x").exp()).otherwise(pl.col("y")) > 1,
    pl.when(pl.col("b")).then(pl.col("s").str.to_uppercase()).otherwise(pl.lit("abc")).str.len_chars() > 2,
    (pl.col("x") * pl.col("y")).fill_nan(0) > 1,
    pl.when(pl.when(pl.col("b")).then(pl.col("x")).otherwise(1.0) > 0).then(pl.col("x").sin()).otherwise(pl.lit(None))
    > 0,
]


def is_ready(node: dict[str, Any]) -> bool:
    """Whether a branch is a column that is there already, or mentions none."""
    return "Column" in node or not mentions_columns(node)


@pytest.mark.parametrize("expression", POLARS, ids=str)
def test_polars_expressions_choose_among_what_is_there(expression: pl.Expr) -> None:
    checked = from_polars(expression, SCHEMA)
    assert isinstance(checked.compiled, Steps)
    chosen = [choice for one in expressions(checked.compiled) for choice in choices(one)]
    assert chosen
    assert all(is_ready(part) for choice in chosen for part in choice.values())
    rows = synthetic_rows(SCHEMA, 200, np.random.default_rng(2), hostile=0.0)
    values = build_mean(expression, SCHEMA).evaluate(rows)
    assert values.tolist() == rows.select(expression.fill_null(False)).to_series().to_list()
