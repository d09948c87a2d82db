"""No expression is cut short by what the rows hold.

Polars leaves out a branch that no row takes, and computes once what follows if all rows take a constant one; either
shows in the time of an answer. So what is chosen must be a column that is there already (or a constant), and what was
chosen must be written out before anything else looks at it. That is checked on the expressions themselves, not with a
clock.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from holdfast.queries.build import build_mean
from holdfast.queries.evaluate import compiled
from holdfast.queries.functions import OPERATIONS
from holdfast.queries.polars_expression import from_polars
from holdfast.queries.sql.parse import tree
from holdfast.queries.steps import Steps
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


def is_ready(node: dict[str, Any]) -> bool:
    """Whether a branch is a column, perhaps in another type, or mentions none."""
    while "Cast" in node:
        node = node["Cast"]["expr"]
    return "Column" in node or not mentions_columns(node)


def shortcuts(steps: Steps) -> list[str]:
    """What in these steps Polars may leave out, or compute once for all rows."""
    parts = [value for step in steps.before for value in step.values] + [steps.value]
    found = []
    for part in parts:
        every = trees(json.loads(part.meta.serialize(format="json")))
        chosen = [each["Ternary"] for each in every if "Ternary" in each and mentions_columns(each["Ternary"])]
        found += [str(part) for one in chosen if not (is_ready(one["truthy"]) and is_ready_or_choice(one["falsy"]))]
        found += [str(part) for one in chosen if any("Ternary" in each for each in trees(one["predicate"]))]
    return found


def is_ready_or_choice(node: dict[str, Any]) -> bool:
    """Whether a branch is ready, or goes on to the next WHEN, whose parts are looked at by themselves."""
    return "Ternary" in node or is_ready(node)


@pytest.mark.parametrize("text", [*EVERYTHING, *CHOICES])
def test_what_is_chosen_is_ready(text: str) -> None:
    assert shortcuts(compiled(tree(text, SCHEMA), SCHEMA.names)) == []


def test_what_is_chosen_is_ready_in_nested_operations() -> None:
    assert len(NESTED) > 20
    for text in NESTED:
        assert shortcuts(compiled(tree(text, SCHEMA), SCHEMA.names)) == [], text


def test_a_choice_that_is_not_prepared_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPERATIONS, "CASE", replace(OPERATIONS["CASE"], copies=(1,)))
    assert shortcuts(compiled(tree(CHOICES[1], SCHEMA), SCHEMA.names)) != []


@pytest.mark.parametrize(
    "text",
    ["upper(case when b then s else 'abc' end)", "exp(1 / x)", "exp(ln(x))", "exp(nullif(x, y))", "exp(log(x, y))"],
)
def test_what_was_chosen_is_written_out_before_anything_looks_at_it(text: str) -> None:
    steps = compiled(tree(text, SCHEMA), SCHEMA.names)
    assert steps.before
    assert '"Ternary"' not in steps.value.meta.serialize(format="json")


POLARS = [
    pl.when(pl.col("b")).then(pl.col("x").exp()).otherwise(pl.col("y")) > 1,
    pl.when(pl.col("b")).then(pl.col("s").str.to_uppercase()).otherwise(pl.lit("abc")).str.len_chars() > 2,
    (pl.col("x") * pl.col("y")).fill_nan(0) > 1,
    pl.when(pl.when(pl.col("b")).then(pl.col("x")).otherwise(1.0) > 0).then(pl.col("x").sin()).otherwise(pl.lit(None))
    > 0,
]


@pytest.mark.parametrize("expression", POLARS, ids=str)
def test_polars_expressions_are_not_cut_short_either(expression: pl.Expr) -> None:
    checked = from_polars(expression, SCHEMA)
    assert isinstance(checked.compiled, Steps)
    assert shortcuts(checked.compiled) == []
    rows = synthetic_rows(SCHEMA, 200, np.random.default_rng(2), hostile=0.3)
    values = build_mean(expression, SCHEMA).evaluate(rows)
    assert values.tolist() == rows.select(expression.fill_null(False)).to_series().to_list()
