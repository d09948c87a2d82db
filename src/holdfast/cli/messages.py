"""Messages of the library in the words of the command line: flags in place of Python arguments."""

import ast
import re
import shlex
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from holdfast.cli.output import note
from holdfast.errors import HoldfastError


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
    "give cap= for": "give --cap for",
    "in every row with id=, and": "in every row with --id, and",
}


_TOML = {"bounds": "[low, high]", "categories": '["A", "B"] or [1, 2]'}


def _in_toml(declaration: re.Match[str]) -> str:
    what, column = declaration.groups()
    return (
        f"write {column} = {_TOML[what]} under [{what}] in a TOML file beside the data (flights.toml for flights.csv)"
    )


def _null_values(texts: re.Match[str]) -> str:
    return f"say so: holdfast open DATA --null-values {shlex.quote(','.join(ast.literal_eval(f'[{texts[1]}]')))}"


def _check_held(path: re.Match[str]) -> str:
    return f'check what you find with holdfast ask {shlex.quote(ast.literal_eval(path[1]))} "a condition" --kind check'


def _into_folder(call: re.Match[str]) -> str:
    return f"holdfast open {shlex.quote(ast.literal_eval(call[1]))} --folder {shlex.quote(call[2])}"


_PATTERNS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"open the session with (bounds|categories)=\{'(.*?)': .*\}", _in_toml),
    (r"\bWrite rows=(\d+)", r"Write --rows \1"),
    (r"\bunit='([^']*)'", r"--unit \1"),
    (r"\bthe session on the held part is holdfast\.Session\((.*?)\)", _check_held),
    (r"\bholdfast\.open\((.*), folder='(.*)'\)", _into_folder),
    (r"\bid=('[^']*') leaves", r"--id \1 leaves"),
    (r"and ('[^']*') with unit=\.", r"and \1 with --unit."),
    (r"\bsplit with id='([^']*)'", r"split with --id \1"),
    (r"\b(separator|decimal)=('.')", r"holdfast open DATA --\1 \2"),
    (r"\bencoding='([\w-]+)'", r"holdfast open DATA --encoding \1"),
    (r"say so when opening: holdfast", "say so: holdfast"),
    (r"say so when opening: null_values=\[(.*)\]", _null_values),
    (r"\btypes=\{'(.*)': '(\w+)'\}", r"holdfast open DATA --types '\1=\2'"),
    (
        r"^'([^']*)' is text; (.*) compares numbers\.$",
        r"'\1' is text; \2 compares numbers. If it should be numbers, this shows which value of a CSV file is not:"
        r" holdfast open DATA --types '\1=number'.",
    ),
    (
        r"^A mean needs numbers or yes-or-no values; '(\w+)' is text\.(.*)$",
        r"A mean needs numbers or yes-or-no values; '\1' is text.\2 If it should be numbers, this shows which value of"
        r" a CSV file is not: holdfast open DATA --types '\1=number'.",
    ),
    # Only in the library's own wording: a quoted question may compare a column of the same name.
    (rf"\bwith ({'|'.join(PLAN_FLAGS)})='(\w+)'", lambda found: f"with {PLAN_FLAGS[found[1]]} {found[2]}"),
)


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
    if not flags:
        return message
    name = rf"(?<![-\w'])(?:{'|'.join(map(re.escape, flags))})(?![-\w'])"
    subject = rf"^{name}(?=(?:\[\d+\])? (?:must|is|are)\b)"
    advice = r"\b(?:(?:Give|[Ll]eave|needs either)\b[^.:]*|Use \w+|left out beside \w+)"

    def in_clause(clause: re.Match[str]) -> str:
        return re.sub(name, lambda found: flags[found[0]], clause[0])

    return re.sub(f"{subject}|{advice}", in_clause, message)
