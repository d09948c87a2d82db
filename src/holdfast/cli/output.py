"""What is written: tables and bars for people, one JSON document for programs, plain lines in a pipe; and remarks.

Messages of the library are put into the words of the command line: flags in place of Python arguments.
"""

import ast
import codecs
import io
import json
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import click

from holdfast.errors import HoldfastError

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


# -- messages of the library, with flags in place of Python arguments ---------------------------------------------


@contextmanager
def noting_warnings() -> Iterator[list[str]]:
    """Collect this package's own warnings, worded for the command line; others are hidden."""
    sentences: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield sentences
        except HoldfastError:
            for sentence in _worded(caught):  # they may explain the error
                note(sentence)
            raise
        sentences.extend(_worded(caught))


@contextmanager
def noting_at_once() -> Iterator[None]:
    """Note this package's own warnings when they come, worded for the command line: for a command that runs on."""

    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        if category.__module__.startswith("holdfast"):
            note(spell(str(message), {}))

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = show
        yield


def _worded(caught: Iterable[warnings.WarningMessage]) -> list[str]:
    ours = (str(each.message) for each in caught if each.category.__module__.startswith("holdfast"))
    return [spell(text, {}) for text in dict.fromkeys(ours)]


@contextmanager
def in_flags(flags: Mapping[str, str]) -> Iterator[None]:
    """Word errors of the library for the command line; `flags` are the options they may mention."""
    try:
        yield
    except HoldfastError as error:
        error.message = spell(error.message, flags)
        raise


# Python arguments in the library's messages, and their flags; a question may have its own margin and mechanism.
PLAN_FLAGS = {
    "guarantee": "--guarantee",
    "margin": "--plan-margin",
    "mechanism": "--plan-mechanism",
    "rows_per_query": "--plan-rows-per-query",
}
_ARGUMENTS = {
    "give queries= or margin=": "give --queries or --plan-margin",
    "(queries=3, end=True)": "(--queries 3 --end)",
    "a plan (queries=100)": "a plan (--queries 100)",
    "end=True refuses": "--end refuses",
    "queries={'flip': ...}": "--flips N",
    "{'mean': ..., 'flip': ...}": "--queries N --flips N",
    "folder=...": "holdfast open DATA --folder",
    "Give ledger= a file": "Give --ledger a file",
    "such as within=(0, 100)": "such as --within 0 100",
    "such as other_within=(0, 100)": "such as --other-within 0 100",
    "Read it with pandas or Polars, and give the frame.": "Write it as Parquet or CSV.",
    "by unit=.": "by --unit.",
    "Leave unit= out": "Leave --unit out",
    "then, without unit=": "then, without --unit",
    "a new ledger with ledger=.": "a new ledger with --ledger.",
    "into it with next=True": "into it with --next",
    "leave next out": "leave --next out",
    "with id=, target= and unit=": "with --id, --target and --unit",
    "Ask with the kind check": "Ask with --kind check",
    "with checks=0.2": "with --checks 0.2",
    "holdfast.hold_back(data)": "holdfast hold-back DATA",
    "Make one with holdfast.Board(labels)": "Make one with holdfast board make LABELS",
    "Open it with Session.": "Ask it with holdfast ask.",
    "give cap= for": "give --cap for",
    "in every row with id=, and": "in every row with --id, and",
}


_TOML = {"bounds": "[low, high]", "categories": '["A", "B"] or [1, 2]'}


OPEN = "holdfast open DATA"


def _in_toml(declaration: re.Match[str]) -> str:
    what, column = declaration.groups()
    return (
        f"write {column} = {_TOML[what]} under [{what}] in a TOML file beside the data (flights.toml for flights.csv)"
    )


def _quoted(text: str) -> str:
    return f"'{text}'" if text.endswith((".", ",")) else shlex.quote(text)  # a sentence may end after it


def _null_values(texts: re.Match[str]) -> str:
    return f"say so: {OPEN} --null-values {_quoted(','.join(ast.literal_eval(f'[{texts[1]}]')))}"


def _all_together(options: re.Match[str]) -> str:
    call = ast.parse(f"dict({options[1]})", mode="eval").body
    given = {str(each.arg): ast.literal_eval(each.value) for each in getattr(call, "keywords", ())}
    types = ",".join(f"{name}={type_}" for name, type_ in given.get("types", {}).items())
    null_values = ",".join(given.get("null_values", ()))
    texts = given | ({"types": types} if types else {}) | ({"null_values": null_values} if null_values else {})
    flags = [(f"--{name.replace('_', '-')}", "tab" if text == "\t" else text) for name, text in texts.items()]
    return f"All together: {OPEN} {' '.join(f'{flag} {_quoted(text)}' for flag, text in flags)}."


def _check_held(path: re.Match[str]) -> str:
    return f'check what you find with holdfast ask {shlex.quote(ast.literal_eval(path[1]))} "a condition" --kind check'


def _into_folder(call: re.Match[str]) -> str:
    return f"holdfast open {shlex.quote(ast.literal_eval(call[1]))} --folder {shlex.quote(call[2])}"


def _types(given: re.Match[str]) -> str:
    written = ",".join(f"{name}={type_}" for name, type_ in ast.literal_eval(given[2]).items())
    lead = "" if given[1] is None else f"Declare it{given[1]}: "
    return f"{lead}holdfast open DATA --types {shlex.quote(written)}"


_PATTERNS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"All together: (\w+=.*)\.$", _all_together),
    (r"open the session with (bounds|categories)=\{'(.*?)': .*\}", _in_toml),
    (r"\bWrite rows=(\d+)", r"Write --rows \1"),
    (r"\bunit='([^']*)'", r"--unit \1"),
    (r"\bthe session on the held part is holdfast\.Session\((.*?)\)", _check_held),
    (r"\bholdfast\.open\((.*), folder='(.*)'\)", _into_folder),
    (r"\bid=('[^']*') leaves", r"--id \1 leaves"),
    (r"and ('[^']*') with unit=\.", r"and \1 with --unit."),
    (r"\bsplit with id='([^']*)'", r"split with --id \1"),
    (r"\bseparator='\\t'", "holdfast open DATA --separator tab"),
    (r"\bseparated by '\\t'", "separated by tabs"),
    (r"\b(separator|decimal)=('.')", r"holdfast open DATA --\1 \2"),
    (r"\bencoding='([\w-]+)'", r"holdfast open DATA --encoding \1"),
    (r"say so when opening: holdfast", "say so: holdfast"),
    (r"say so when opening: null_values=\[([^\]]*)\]", _null_values),
    (r"\b(?:Declare it when opening([^:{]*): )?types=(\{'[^{}]*': '\w+'\})", _types),
    (
        r"^'([^']*)' is text; (.*) compares numbers\.( Numbers .* AS DOUBLE\)\.)$",
        r"'\1' is text; \2 compares numbers.\3 If it should be numbers, this shows which value of a CSV file is not:"
        r" holdfast open DATA --types '\1=number'.",
    ),
    (
        r"^A mean needs numbers or yes-or-no values; '\W?(\w+)\W?' is text\.( Ask for .* AS DOUBLE\)\.)$",
        r"A mean needs numbers or yes-or-no values; '\1' is text.\2 If it should be numbers, this shows which value of"
        r" a CSV file is not: holdfast open DATA --types '\1=number'.",
    ),
    # Only in the library's own wording: a quoted question may compare a column of the same name.
    (rf"\bwith ({'|'.join(PLAN_FLAGS)})='(\w+)'", lambda found: f"with {PLAN_FLAGS[found[1]]} {found[2]}"),
)


def _open_again(message: str) -> str:
    """Return `OPEN` with the data that the running command names, and what else was said about their file.

    A command that has these options itself, as `deal` does, is given them itself.
    """
    context = click.get_current_context(silent=True)
    own = () if context is None or context.info_name == "open" else context.command.params
    if any("--null-values" in option.opts for option in own):
        return ""
    data = None if context is None else context.params.get("data")
    if isinstance(data, Sequence) and len(data) == 1:  # of several files, as a server has them, any may be meant
        data = data[0]
    if OPEN not in message or context is None or not isinstance(data, str):
        return OPEN
    words = ["holdfast", "open", data]
    for option in context.command.params if context.info_name == "open" else ():
        flag, value = option.opts[0], context.params.get(option.name or "")
        given = context.get_parameter_source(option.name or "") is click.core.ParameterSource.COMMANDLINE
        if given and isinstance(option, click.Option) and isinstance(value, str) and flag not in message:
            words += [flag, value]
    return shlex.join(words)


def spell(message: str, flags: Mapping[str, str]) -> str:
    """Write options as flags, where a message of the library clearly means an option.

    >>> spell("Give rows_per_query or margin, not both.", {"rows_per_query": "--rows-per-query", "margin": "--margin"})
    'Give --rows-per-query or --margin, not both.'
    >>> spell("margin must be positive; got 0. A margin is a distance.", {"margin": "--margin"})
    '--margin must be positive; got 0. A margin is a distance.'
    >>> spell("end=True refuses questions beyond the plan: give queries= or margin=.", {})
    '--end refuses questions beyond the plan: give --queries or --plan-margin.'
    """
    for argument, flag in _ARGUMENTS.items():
        message = message.replace(argument, flag)
    for pattern, written in _PATTERNS:
        message = re.sub(pattern, written, message)
    again = _open_again(message)
    message = message.replace(OPEN if again else f"{OPEN} ", again)
    if not flags:
        return message
    name = rf"(?<![-\w'])(?:{'|'.join(map(re.escape, flags))})(?![-\w'])"
    subject = rf"^{name}(?=(?:\[\d+\])? (?:must|is|are)\b)"
    advice = r"\b(?:(?:Give|[Ll]eave|needs either)\b[^.:]*|Use \w+|left out beside \w+)"

    def in_clause(clause: re.Match[str]) -> str:
        return re.sub(name, lambda found: flags[found[0]], clause[0])

    return re.sub(f"{subject}|{advice}", in_clause, message)


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
