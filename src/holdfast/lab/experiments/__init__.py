"""The paper's table and claims, measured: one file for each experiment, with a small size for tests.

`reproduce` runs them, keeps their numbers as JSON, and writes figures and a page from these numbers.

cost          rows evaluated, against questions and margin (Table 1)
lower_bound   the fewest rows that any mechanism must read
sample_size   how many rows a mechanism needs under attack
counting      counting queries by coins, and coins by counting queries (Section 5)
sampling      sampled rows against full scans
optimization  how often gradients are evaluated (Section 6)
looseness     the rows that guarantees require, compared with those that attacks make necessary
attacked      the margin of every guarantee, compared with the error of the worst attack known
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from math import exp, log
from pathlib import Path
from typing import Any, Literal

import numpy as np

from holdfast import check
from holdfast.errors import RowSourceError
from holdfast.lab.plots import Chart, draw

NAMES = ("cost", "lower_bound", "sample_size", "counting", "sampling", "optimization", "looseness", "attacked")
FOLDER = "experiments"
PAGE = "paper.md"

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


@cache
def experiments() -> tuple[Experiment, ...]:
    """Return all experiments: each module here has one."""
    return tuple(import_module(f"{__name__}.{name}").EXPERIMENT for name in NAMES)


_OPENING = """---
orphan: true
---

# The paper, measured

`holdfast reproduce` writes every table and figure on this page from the numbers in `experiments/*.json`, which include
the raw repetitions. The paper is Fish, Reyzin and Rubinstein, *Sampling Without Compromising Accuracy in Adaptive Data
Analysis*. Symbols: n rows, k questions, margin α, failure probability β. Laplace noise comes from the operating system
and cannot be seeded; everything else repeats with the seed, in the same version.
"""


def reproduce(
    folder: Path,
    *,
    names: Sequence[str] = NAMES,
    size: Size = "small",
    seed: int = 1,
    processes: int = 1,
    progress: Callable[[str], None] | None = None,
) -> list[Path]:
    """Run experiments into `folder`/experiments and rewrite `folder`/paper.md; return the files written.

    Parameters
    ----------
    folder
        Where numbers, figures and page go.
    names
        Which experiments to run; by default, all.
    size
        "small" takes seconds, "full" minutes.
    seed, processes
        As in `attack`.
    progress
        Called with the title of each experiment before it runs.
    """
    check.one_of("size", size, ("small", "full"))
    check.whole(0, seed=seed)
    for name in names:
        check.one_of("name", name, NAMES)
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    written = []
    for experiment in experiments():
        if experiment.name in names:
            if progress is not None:
                progress(experiment.title)
            results = {"experiment": experiment.name, "version": version("holdfast"), "size": size, "seed": seed}
            results |= experiment.run(size, seed, processes)
            path = folder / FOLDER / f"{experiment.name}.json"
            path.write_text(_compact(results) + "\n", encoding="utf-8")
            written.append(path)
    return written + write_page(folder)


def write_page(folder: Path) -> list[Path]:
    """Write figures and page from the numbers in this folder; return the files written."""
    written = []
    for experiment in experiments():
        results = _read(folder / FOLDER / f"{experiment.name}.json")
        if results is not None:
            written.append(folder / FOLDER / f"{experiment.name}.png")
            draw(experiment.panels(results), written[-1])
    page = folder / PAGE
    page.write_text(page_text(folder), encoding="utf-8")
    return [*written, page]


def page_text(folder: Path) -> str:
    """Return the page made from the numbers in this folder."""
    parts = [_OPENING]
    for experiment in experiments():
        results = _read(folder / FOLDER / f"{experiment.name}.json")
        if results is not None:
            picture = f"![{experiment.title}]({FOLDER}/{experiment.name}.png)"
            by = f"holdfast {results['version']}, size {results['size']}, seed {results['seed']}"
            seeded = f"By {by}: `{FOLDER}/{experiment.name}.json`."
            parts.append(f"## {experiment.title}\n\n{picture}\n\n{experiment.section(results)}\n\n{seeded}\n")
    return "\n".join(parts)


def _read(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise RowSourceError(f"{path.name} must be JSON as `holdfast reproduce` writes it; run that again.") from None
    return results


def _compact(results: dict[str, Any]) -> str:
    """Write one line for every entry and every member of a list: compact, and readable in a diff."""
    parts = []
    for name, value in results.items():
        if isinstance(value, list):
            members = ",\n  ".join(json.dumps(member, ensure_ascii=False) for member in value)
            parts.append(f"{json.dumps(name)}: [\n  {members}\n ]")
        else:
            parts.append(f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n " + ",\n ".join(parts) + "\n}"


# -- what experiments share ---------------------------------------------------------------------------------------


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
