"""Suggestions in an empty form: questions about the dataset's columns, made from the schema alone."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from holdfast.queries.node import identifier, literal_text
from holdfast.schema import Column, Schema, Type

MOST = 4
OF_NUMBERS = ("total", "variance", "std", "covariance", "correlation", "slope", "quantile", "auc")  # kinds
OF_TEXTS = ("histogram", "top")

Suggestion = dict[str, str]


def suggestions(schema: Schema, asks: str | None = None) -> list[Suggestion]:
    """Return a few complete questions, each with its wording and the address of the filled-in form.

    There are none if the dataset accepts only questions of one kind, named by `asks`: it has its own form.
    """
    found = [] if asks is not None else list(_questions(schema))[:MOST]
    return [{"words": words, "address": f"?{urlencode(form)}"} for words, form in found]


def _questions(schema: Schema) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield questions, the simplest first."""
    condition, group = _condition(schema), _categorical(schema)
    number = next((one for one in _numbers(schema) if one.bounds is not None), None)
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


def examples(schema: Schema, kind: str) -> dict[str, str]:
    """Return the examples that empty fields of a kind show, by option name, made from this dataset's columns."""
    condition, numbers, group = _condition(schema), _numbers(schema), _categorical(schema)
    text = group or next((column for column in schema if column.type is Type.STRING), None)
    found = {"query": condition, "positive": condition, "where": condition, "group": condition}
    if text is not None:
        found |= {"by": identifier(text.name)} | ({"query": identifier(text.name)} if kind in OF_TEXTS else {})
    if group is not None:
        name, values = identifier(group.name), [literal_text(value) for value in group.categories or ()]
        found |= dict.fromkeys(("where", "group", "versus"), f"{name} = {values[0]}")
        found["other"] = f"{name} = {values[-1]}"
        found |= dict.fromkeys(("groups", "categories"), ", ".join(map(str, (group.categories or ())[:3])))
    if numbers:
        first, second = numbers[0], numbers[min(1, len(numbers) - 1)]
        found |= {"within": _range(first), "other_within": _range(second)}
        if kind in OF_NUMBERS:
            found |= {"query": identifier(first.name), "other": identifier(second.name)}
        if second is not first:
            found |= {"minus": _above(second), "positive": _above(second)}
        if second is not first and second.bounds is not None:
            found["loss"] = f"logistic: {_above(first)} ~ {identifier(second.name)} [{_range(second)}]"
    return {name: example for name, example in found.items() if example is not None}


def _condition(schema: Schema) -> str | None:
    """Return a condition about a column: a number above the middle of its declared bounds, or else a boolean."""
    number = next(iter(_numbers(schema)), None)
    boolean = next((column for column in schema if column.type is Type.BOOL), None)
    if number is None:
        return None if boolean is None else identifier(boolean.name)
    return _above(number)


def _above(number: Column) -> str:
    low, high = number.bounds or (0.0, 0.0)
    return f"{identifier(number.name)} > {_round((low + high) / 2)}"


def _range(number: Column) -> str | None:
    return None if number.bounds is None else "{:.15g}, {:.15g}".format(*number.bounds)


def _numbers(schema: Schema) -> list[Column]:
    """Return the columns of numbers, those whose range is declared first."""
    return sorted((one for one in schema if one.type.is_number), key=lambda one: one.bounds is None)


def _categorical(schema: Schema) -> Column | None:
    return next((column for column in schema if column.categories), None)


def _round(x: float) -> Any:
    return f"{x:.2g}" if abs(x) < 100 else f"{x:.0f}"
