"""How results look: tables and bars for people, one JSON document for programs, plain lines in a pipe."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import typer

if TYPE_CHECKING:
    from holdfast.answer import Answer

BAR, SHORT_BAR = 44, 28


def say(text: str = "", *, bold: bool = False) -> None:
    """Write a line on standard output."""
    _write(sys.stdout, text, bold=bold)


def note(text: str) -> None:
    """Write a remark on standard error, so that it never mixes with results."""
    _write(sys.stderr, text)


def show_json(**document: Any) -> None:
    """Write the one JSON document of a command that succeeded."""
    say(json.dumps({"ok": True} | document, ensure_ascii=False, default=str))


def _write(stream: TextIO, text: str, *, bold: bool = False) -> None:
    # Not typer.echo: it writes UTF-8 to terminals that said they cannot read it.
    stream.write((typer.style(text, bold=True) if bold and stream.isatty() else text) + "\n")
    stream.flush()


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """Write a table: Rich on a terminal, aligned columns elsewhere. `right` are the columns of numbers."""
    cells = [list(headings), *map(list, rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(headings))]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold underline")
        for place, heading in enumerate(headings):
            drawn.add_column(heading, justify="right" if place in right else "left", no_wrap=True)
        for row in rows:
            drawn.add_row(*(cell.replace("[", r"\[") for cell in row))
        # Where the terminal is narrower, lines run on: a number is never cut.
        Console(file=sys.stdout, width=max(Console().width, sum(widths) + 2 * len(widths))).print(drawn)
        return
    for row in cells:
        parts = [
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        say("  ".join(parts).rstrip())


def bar(answer: Answer, width: int = BAR) -> str:
    """Draw an interval inside its declared bounds.

    >>> from types import SimpleNamespace
    >>> bar(SimpleNamespace(value=0.5, low=0.25, high=0.75, bounds=(0.0, 1.0)), 8)
    '0 ──━━┿━━─ 1'
    """
    low, high = answer.bounds
    span = (high - low) or 1.0

    def place(x: float) -> int:
        return min(width - 1, max(0, int(width * (x - low) / span)))

    first, middle, last = place(answer.low), place(answer.value), place(answer.high)
    marks = ["━" if first <= i <= last else "─" for i in range(width)]
    marks[middle] = "┿"
    return f"{low:g} {''.join(marks)} {high:g}"


@contextmanager
def noting_warnings() -> Iterator[list[str]]:
    """Collect this package's own warnings as sentences; others stay unseen, as they do by default."""
    sentences: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield sentences
        finally:
            ours = (warning for warning in caught if warning.category.__module__.startswith("holdfast"))
            sentences.extend(str(warning.message) for warning in ours)
