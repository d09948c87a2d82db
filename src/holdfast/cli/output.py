"""How results look: tables and bars for people, one JSON document for programs, plain lines in a pipe."""

import codecs
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from holdfast.questions.answer import Answer
    from holdfast.questions.estimate import Estimate

BAR, SHORT_BAR = 44, 28


def say(text: str = "", *, bold: bool = False) -> None:
    """Write a line on standard output."""
    _write(sys.stdout, text, bold=bold)


def note(text: str) -> None:
    """Write a remark on standard error, so that it never mixes with results."""
    _write(sys.stderr, text)


def show_notes(notes: Iterable[str]) -> None:
    """Write a remark for each."""
    for sentence in notes:
        note(sentence)


def show_json(**document: Any) -> None:
    """Write the one JSON document of a command that succeeded."""
    say(json.dumps({"ok": True} | document, ensure_ascii=False, default=str))


def _write(stream: TextIO, text: str, *, bold: bool = False) -> None:
    # Not click.echo: it writes UTF-8 even to terminals that do not support it.
    stream.write((click.style(text, bold=True) if bold and stream.isatty() else text) + "\n")
    stream.flush()


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """Write a table: with Rich on a terminal, as aligned columns elsewhere. `right` are the right-aligned columns."""
    from holdfast.notebook import aligned  # only needed for tables

    lines = aligned([headings, *rows], right=right)
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold underline")
        for place, heading in enumerate(headings):
            drawn.add_column(heading, justify="right" if place in right else "left", no_wrap=True)
        for row in rows:
            drawn.add_row(*(cell.replace("[", r"\[") for cell in row))
        # On a narrower terminal, lines wrap, so that a number is never cut off.
        Console(file=sys.stdout, width=max(Console().width, max(map(len, lines)) + 2 * len(headings))).print(drawn)
        return
    for line in lines:
        say(line)


def bar(estimate: "Estimate | Answer", bounds: tuple[float, float] = (0.0, 1.0), width: int = BAR) -> str:
    """Draw an interval inside its declared bounds.

    >>> from holdfast.questions.answer import Estimate
    >>> bar(Estimate(value=0.5, low=0.25, high=0.75), width=8)
    '0 ──━━┿━━─ 1'
    """
    low, high = bounds
    span = (high - low) or 1.0

    def place(x: float) -> int:
        return min(width - 1, max(0, int(width * (x - low) / span)))

    first, last = place(estimate.low), place(estimate.high)
    marks = ["━" if first <= i <= last else "─" for i in range(width)]
    if not estimate.too_few:
        marks[place(estimate.value)] = "┿"
    return f"{low:.15g} {''.join(marks)} {high:.15g}"


def written(estimate: "Estimate | Answer") -> tuple[str, str]:
    """Write the value and its interval, whose ends are rounded outwards.

    >>> from holdfast.questions.answer import Estimate
    >>> written(Estimate(value=0.5, low=0.25011, high=0.74989))
    ('0.500', '[0.250, 0.750]')
    """
    value, low, high = estimate.rounded()
    return value, f"[{low}, {high}]"


@contextmanager
def progress_bar(label: str, total: int, *, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with how many of `total` are done; shows a bar on standard error, if a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(label, total=total)
        yield lambda done: shown.update(task, completed=done)


# -- terminals that lack characters -----------------------------------------------------------------------------

_STAND_INS = {
    "±": "+/-", "–": "-", "—": "-", "…": "...", "·": "-", "×": "x", "≤": "<=", "≥": ">=", "²": "^2", "→": "->",
    "’": "'", "“": '"', "”": '"', "─": "-", "━": "=", "┿": "|", "│": "|", "┃": "|", "├": "|", "┤": "|",
    "●": "o", "█": "#", "▏": "|", "└": "+", "╸": "=",
}  # fmt: skip
_BRAILLE_BLANK, _BRAILLE_LAST = 0x2800, 0x28FF


def write_on_any_terminal() -> None:
    """Let standard output and error replace characters that their encoding lacks, instead of failing."""
    codecs.register_error("holdfast-plain", _replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="holdfast-plain")


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_stand_in, error.object[error.start : error.end])), error.end


def _stand_in(character: str) -> str:
    if _BRAILLE_BLANK <= ord(character) <= _BRAILLE_LAST:
        return " " if ord(character) == _BRAILLE_BLANK else "*"
    return _STAND_INS.get(character, "?")
