"""`holdfast.plot`: a picture of whatever has intervals: an answer, several, the history, the table of a SELECT."""

from collections.abc import Mapping
from dataclasses import replace
from math import nan
from typing import Any

import polars as pl

from holdfast.errors import InvalidArgument
from holdfast.questions.answer import AnyAnswer, Estimate, picture_lines
from holdfast.questions.batch import Answers
from holdfast.questions.mean import NUMBERS
from holdfast.questions.pictures import Panel, Picture
from holdfast.questions.sql import aggregates_of


def plot(shown: AnyAnswer | Answers | pl.DataFrame) -> Picture:
    """Return a picture: a dot and a bar for every interval. A notebook shows it; `save(path)` writes it.

    Parameters
    ----------
    shown
        An answer or several, `Session.history()`, or the frame of `Session.sql`. In a history, answers to questions
        that were registered beforehand have a full dot, the others a circle, if there are both.
    """
    if isinstance(shown, AnyAnswer):
        return shown.plot()
    if isinstance(shown, Answers):
        return shown.plot()
    if not isinstance(shown, pl.DataFrame):
        raise InvalidArgument(f"plot takes answers or a frame of them; got {type(shown).__name__}.", name="shown")
    if {"value", "low", "high"} <= set(shown.columns):
        return _of_lines(shown)
    aggregates = aggregates_of(shown)
    if not aggregates:
        raise InvalidArgument("plot takes a frame with value, low and high, or with x, x_low and x_high.", name="shown")
    return _of_table(shown, aggregates)


def _of_lines(frame: pl.DataFrame) -> Picture:
    """Draw a frame with a line for each interval; those of different scales in panels of their own."""
    rows = frame.rows(named=True)
    listed = [row.get("registered") is not None for row in rows]
    mixed = any(listed) and not all(listed)
    panels = []
    for title, bounds in (("between 0 and 1", (0.0, 1.0)), ("other numbers", None)):
        chosen = [row for row in rows if (row["low"] >= 0 and row["high"] <= 1) is (bounds is not None)]
        lines = picture_lines([(_label(row), _estimate(row, "value", "low", "high")) for row in chosen])
        circles = [mixed and row["registered"] is None for row in chosen]
        marked = [replace(line, open=circle) for line, circle in zip(lines, circles, strict=True)]
        panels.append(Panel(title, tuple(marked), bounds))
    return Picture(panels, "full dots: registered beforehand; circles: not" if mixed else "")


def _of_table(frame: pl.DataFrame, aggregates: Mapping[str, tuple[str, str]]) -> Picture:
    """Draw the table of a SELECT: a panel for each aggregate."""
    numbers = {*aggregates, *(end for both in aggregates.values() for end in both)}
    keys = [name for name in frame.columns if name not in numbers]
    rows = frame.rows(named=True)
    labels = [", ".join(str(row[key]) for key in keys) for row in rows]
    panels = []
    for name, ends in aggregates.items():
        estimates = [_estimate(row, name, *ends) for row in rows]
        panels.append(Panel(name, tuple(picture_lines(list(zip(labels, estimates, strict=True))))))
    return Picture(panels)


def _label(row: Mapping[str, Any]) -> str:
    parts = [str(row[name]) for name in ("question", "category") if row.get(name) is not None]
    if parts:
        return ": ".join(parts)
    return ", ".join(str(value) for name, value in row.items() if name not in NUMBERS)


def _estimate(row: Mapping[str, Any], value: str, low: str, high: str) -> Estimate:
    return Estimate(nan if row[value] is None else row[value], row[low], row[high])
