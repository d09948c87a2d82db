"""What an experiment is: a run that returns plain numbers, and text and figures made from these numbers alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any, Literal

import numpy as np

from holdfast.lab.plots import Chart

Size = Literal["small", "full"]
Results = dict[str, Any]


@dataclass(frozen=True)
class Experiment:
    """`run(size, seed, processes)` measures; `section` and `panels` turn saved numbers into Markdown and a figure."""

    name: str
    title: str
    run: Callable[[Size, int, int], Results]
    section: Callable[[Results], str]
    panels: Callable[[Results], Sequence[Chart]]


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the slope of log y over log x, by least squares.

    >>> round(slope([1, 10, 100], [5, 50, 500]), 6)
    1.0
    """
    return float(np.polyfit(np.log(np.asarray(x, dtype=float)), np.log(np.asarray(y, dtype=float)), 1)[0])


def spaced(low: float, high: float, count: int) -> list[float]:
    """Return numbers evenly spaced on a log scale, both ends included.

    >>> [round(x) for x in spaced(1, 100, 3)]
    [1, 10, 100]
    """
    return [exp(log(low) + (log(high) - log(low)) * step / (count - 1)) for step in range(count)]


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table; all columns but the first are aligned to the right."""
    lines = ["| " + " | ".join(headings) + " |", "|" + "|".join(["---"] + ["---:"] * (len(headings) - 1)) + "|"]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines)


def short(number: float | None) -> str:
    """Write a count in three significant digits.

    >>> short(1234567), short(950), short(None)
    ('1.23×10⁶', '950', '-')
    """
    if number is None:
        return "-"
    if number < 1_000_000:
        return f"{number:,.0f}"
    mantissa, _, exponent = f"{number:.2e}".partition("e")
    return f"{mantissa}×10{str(int(exponent)).translate(_RAISED)}"


_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
