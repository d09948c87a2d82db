"""Suggestions in an empty form: questions about the dataset's columns, made from the schema alone."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from holdfast.queries.node import identifier, literal_text
from holdfast.schema import Column, Schema, Type

MOST = 4

Suggestion = dict[str, str]


def suggestions(schema: Schema, asks: str | None = None) -> list[Suggestion]:
    """Return a few complete questions, each with its wording and the address of the filled-in form.

    There are none if the dataset accepts only questions of one kind, named by `asks`: it has its own form.
    """
    found = [] if asks is not None else list(_questions(schema))[:MOST]
    return [{"words": words, "address": f"?{urlencode(form)}"} for words, form in found]


def _questions(schema: Schema) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield questions, the simplest first."""
    condition, number, group = _condition(schema), _number(schema, declared=True), _categorical(schema)
    if condition is not None:
        yield f"How often is {condition}?", {"kind": "mean", "query": condition}
        if group is not None and group.name not in condition:
            yield f"… for each {group.name}?", {"kind": "mean", "query": condition, "by": identifier(group.name)}
    if number is not None:
        name = identifier(number.name)
        yield f"What is the mean of {number.name}?", {"kind": "mean", "query": name}
        yield f"Which {number.name} do 9 of 10 stay below?", {"kind": "quantile", "query": name, "q": "0.9"}
    if group is not None:
        yield f"How are rows spread over {group.name}?", {"kind": "histogram", "query": identifier(group.name)}


def examples(schema: Schema) -> dict[str, str]:
    """Return the examples that empty fields show, by option name, made from this dataset's columns."""
    found: dict[str, str] = {}
    number = _number(schema, declared=True) or _number(schema, declared=False)
    condition, group = _condition(schema), _categorical(schema)
    if condition is not None:
        found["query"] = condition
    if number is not None:
        found["other"] = identifier(number.name)
        if number.bounds is not None:
            found["within"] = found["other_within"] = "{:.15g}, {:.15g}".format(*number.bounds)
    if group is not None:
        name, values = identifier(group.name), group.categories or ()
        found |= {"by": name, "where": f"{name} = {literal_text(values[0])}"}
        found |= {"group": found["where"], "other": f"{name} = {literal_text(values[-1])}", "versus": found["where"]}
        found["groups"] = found["categories"] = ", ".join(str(value) for value in values[:3])
        return found
    if condition is not None:
        found["where"] = found["group"] = condition
    text = next((column for column in schema if column.type is Type.STRING), None)
    if text is not None:
        found["by"] = identifier(text.name)
    return found


def _condition(schema: Schema) -> str | None:
    """Return a condition about a column: a number above the middle of its declared bounds, or else a boolean."""
    number = _number(schema, declared=True) or _number(schema, declared=False)
    boolean = next((column for column in schema if column.type is Type.BOOL), None)
    if number is None:
        return None if boolean is None else identifier(boolean.name)
    low, high = number.bounds or (0.0, 0.0)
    return f"{identifier(number.name)} > {_round((low + high) / 2)}"


def _number(schema: Schema, *, declared: bool) -> Column | None:
    return next((one for one in schema if one.type.is_number and (one.bounds is not None or not declared)), None)


def _categorical(schema: Schema) -> Column | None:
    return next((column for column in schema if column.categories), None)


def _round(x: float) -> Any:
    return f"{x:.2g}" if abs(x) < 100 else f"{x:.0f}"
