"""What commands share: their options, how help shows them, opening data, and messages in flags."""

import ast
import re
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.session import Session


def plan_option(help: str) -> Any:
    """Describe an option of the plan, which help lists in a section of its own."""
    return typer.Option(help=help, rich_help_panel="Options of the plan")


COMPLETE_VARIABLE = "_HOLDFAST_COMPLETE"  # set by a shell that asks how a word may go on

# The flag of an option is the name of the parameter, unless it is declared here.
Data = Annotated[str, typer.Argument(metavar="DATA", help="A Parquet, CSV or Arrow file, or a holdfast folder.")]
Json = Annotated[bool, typer.Option("--json", help="Write one JSON document to standard output.")]
Ledger = Annotated[
    str | None, typer.Option(metavar="PATH|URL", help="Where the ledger is; if left out, beside the data.")
]
Unit = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Which rows belong together, if rows are not independent; remembered."),
]
Target = Annotated[str, typer.Argument(metavar="DATA|LEDGER", help="A dataset, or a ledger's file or database URL.")]
WhichDataset = Annotated[str | None, typer.Option("--dataset", help="Which dataset, in a database with several.")]
Queries = Annotated[int | None, plan_option("How many questions to plan for.")]
Flips = Annotated[int | None, plan_option("How many single flips to plan for.")]
_MARGIN = "the margin (±) that every answer should have, for answers between 0 and 1."
Margin = Annotated[float | None, plan_option(_MARGIN.capitalize())]
PlanMargin = Annotated[float | None, plan_option(f"Instead of --queries: {_MARGIN}")]
Confidence = Annotated[float | None, plan_option("The probability that all answers hold at once; if left out, 0.95.")]
RowsEach = Annotated[
    str | None,
    plan_option("Rows each answer reads: a number, fast (at most 12,000), balanced (100,000; if left out) or best."),
]
End = Annotated[bool, plan_option("Refuse questions beyond the plan, instead of answering with wider margins.")]
Identical = Annotated[
    bool,
    plan_option("Rows follow one law; if left out, they may follow different ones, and answers speak of the average."),
]
ChecksShare = Annotated[
    float | None, plan_option("The share of rows that check guesses instead of answering, such as 0.2.")
]
Guarantee = Annotated[str, plan_option("best, or one of {guarantees}.")]
Mechanism = Annotated[str, plan_option("best, or one of {mechanisms}.")]
Worlds = Annotated[int, typer.Option(min=1, help="Independent worlds.")]
Processes = Annotated[int | None, typer.Option(min=1, help="Worlds to run at once; left out: as many as save time.")]


def planned(queries: int | None, flips: int | None) -> int | dict[str, int] | None:
    """Return `queries` as the planner takes it."""
    return queries if flips is None else {"mean": queries or 0, "flip": flips}


def rows_each(text: str | None) -> int | str | None:
    """Return rows per query as the planner takes it: a number or a word."""
    return int(text) if text is not None and text.isdecimal() else text


def session_plan(
    *,
    queries: Queries = None,
    flips: Flips = None,
    plan_margin: PlanMargin = None,
    confidence: Confidence = None,
    plan_rows_per_query: RowsEach = None,
    end: End = False,
    identical: Identical = False,
    checks: ChecksShare = None,
    guarantee: Guarantee = "best",
    plan_mechanism: Mechanism = "best",
) -> dict[str, Any]:
    """Return the plan as a session takes it."""
    chosen = {"confidence": confidence, "guarantee": guarantee, "mechanism": plan_mechanism, "end": end}
    chosen |= {"rows": "identical" if identical else None, "rows_per_query": rows_each(plan_rows_per_query)}
    return {"queries": planned(queries, flips), "margin": plan_margin, "checks": checks} | chosen


def spread(command: Callable[..., None], **groups: Sequence[Parameter]) -> Callable[..., None]:
    """Return the command with a group of options in place of a parameter, which receives their values by name."""
    options = [each for name, own in signature(command).parameters.items() for each in groups.get(name, [own])]

    @wraps(command)
    def with_options(**values: Any) -> None:
        gathered = {name: {each.name: values.pop(each.name) for each in group} for name, group in groups.items()}
        command(**values, **gathered)

    keywords = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in options]
    with_options.__signature__ = Signature(keywords)  # type: ignore[attr-defined]
    return with_options


def with_plan(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `session_plan` in place of its parameter `plan`."""
    return spread(command, plan=list(signature(session_plan).parameters.values()))


class Command(TyperCommand):
    """A command whose help has a section for each group of options, and whose errors name its options as flags."""

    def invoke(self, ctx: Any) -> Any:
        """Run it."""
        flags = {str(param.name): param.opts[0] for param in self.params if param.param_type_name == "option"}
        with in_flags(flags):
            return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Name the arguments; only those that may be left out are in brackets."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections; names from registries are looked up only here, because that imports them."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                usual = "Arguments" if param.param_type_name == "argument" else "Options"
                title = getattr(param, "rich_help_panel", None) or usual
                name = record[0].partition(" <")[0] if title == "Arguments" else record[0]  # no types of Python
                sections.setdefault(title, []).append((name, _with_registered(record[1])))
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def _with_registered(text: str) -> str:
    if "{metrics}" in text:
        from holdfast.queries.submission import METRICS

        return text.format(metrics=", ".join(METRICS))
    if "{guarantees}" not in text and "{mechanisms}" not in text:
        return text
    from holdfast.guarantees import GUARANTEES

    mechanisms = dict.fromkeys(name for each in GUARANTEES.all() for name in each.mechanisms)
    return text.format(guarantees=", ".join(GUARANTEES.names()), mechanisms=", ".join(mechanisms))


def open_session(
    data: str, plan: Mapping[str, Any], *, ledger: str | None, analyst: str | None = None, unit: str | None = None
) -> "Session":
    """Open data under the plan whose options a command received."""
    from holdfast.session import Session

    with in_flags(PLAN_FLAGS):
        return Session(data, **session_plan(**plan), ledger=ledger, analyst=analyst, unit=unit)


def is_data(target: str) -> bool:
    """Whether a word names data, rather than a ledger."""
    from holdfast.rows.open import ROW_SOURCES
    from holdfast.rows.scans.files import FORMATS
    from holdfast.rows.scans.objects import REMOTE
    from holdfast.rows.scans.postgres import POSTGRES

    if target.startswith(REMOTE) or (target.startswith(POSTGRES) and ("table=" in target or "query=" in target)):
        return True
    if "://" in target:
        return False
    known = Path(target).is_dir() or Path(target).suffix.lower() in FORMATS
    return known or any(recognize(target) is not None for recognize in ROW_SOURCES.all())


def ledger_file(data: str) -> Path | None:
    """Return the ledger's file beside data on disk, if there is one."""
    from holdfast.ledger import file_beside

    path = Path(data).resolve()
    if not data or "://" in data or not path.name:
        return None
    file = file_beside(path)
    return file if file.is_file() else None


def has_password(url: str) -> bool:
    """Whether a database URL holds one; also where `urlsplit` would not find it."""
    user, at, _ = url.partition("://")[2].rpartition("@")
    return (bool(at) and bool(user.partition(":")[2])) or "password=" in url


@contextmanager
def noting_warnings() -> Iterator[list[str]]:
    """Collect this package's own warnings, worded for the command line; others stay unseen."""
    sentences: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield sentences
        finally:
            ours = (str(each.message) for each in caught if each.category.__module__.startswith("holdfast"))
            sentences.extend(spell(text, {}) for text in dict.fromkeys(ours))


@contextmanager
def looking(data: str, ledger: str | None) -> Iterator["Session"]:
    """Open data for a command that asks nothing, without the warnings meant for somebody who is about to."""
    with noting_warnings():
        session = open_session(data, {}, ledger=ledger)
    with session:
        yield session


def nothing_asked(session: "Session") -> str:
    """Say that the ledger has not begun."""
    return f"Nothing has been asked of {session.dataset} yet; its ledger begins with the first answer."


@contextmanager
def in_flags(flags: Mapping[str, str]) -> Iterator[None]:
    """Word errors of the library for the command line; `flags` are the options it may speak of."""
    try:
        yield
    except HoldfastError as error:
        error.message = spell(error.message, flags)
        raise


# What the library writes as Python arguments; a question may have a margin and a mechanism of its own.
PLAN_FLAGS = {
    "guarantee": "--guarantee",
    "margin": "--plan-margin",
    "mechanism": "--plan-mechanism",
    "rows_per_query": "--plan-rows-per-query",
}
_ARGUMENTS = {
    "give queries= or margin=": "give --queries or --plan-margin",
    "(queries=3, end=True)": "(--queries 3 --end)",
    "end=True refuses": "--end refuses",
    "queries={'flip': ...}": "--flips N",
    "{'mean': ..., 'flip': ...}": "--queries N --flips N",
    "folder=...": "holdfast open --folder",
    "Give ledger= a file": "Give --ledger a file",
    "by unit=.": "by --unit.",
    "into it with next=True": "into it with --next",
    "leave next out": "leave --next out",
    "with id=, target= and unit=": "with --id, --target and --unit",
    "with checks=0.2": "with --checks 0.2",
    "holdfast.hold_back(data)": "holdfast hold-back DATA",
}


_TOML = {"bounds": "[low, high]", "categories": '["A", "B"]'}


def _in_toml(declaration: re.Match[str]) -> str:
    what, column = declaration.groups()
    return (
        f"write {column} = {_TOML[what]} under [{what}] in a TOML file beside the data (flights.toml for flights.csv)"
    )


def _null_values(texts: re.Match[str]) -> str:
    return f"say so: holdfast open --null-values {shlex.quote(','.join(ast.literal_eval(f'[{texts[1]}]')))}"


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
    message = re.sub(r"open the data with (bounds|categories)=\{'(.*?)': .*\}", _in_toml, message)
    message = re.sub(r"\bWrite rows=(\d+)", r"Write --rows \1", message)
    message = re.sub(r"\bunit='([^']*)'", r"--unit \1", message)
    message = re.sub(r"\bseparator=('.')", r"holdfast open --separator \1", message)
    message = re.sub(r"say so when opening: null_values=\[(.*)\]", _null_values, message)
    message = re.sub(r"\btypes=\{'(.*)': '(\w+)'\}", r"holdfast open --types '\1=\2'", message)
    # Only as the library words it: a question that a message quotes may compare a column of that name.
    plan = rf"\bwith ({'|'.join(PLAN_FLAGS)})='(\w+)'"
    message = re.sub(plan, lambda found: f"with {PLAN_FLAGS[found[1]]} {found[2]}", message)
    if not flags:
        return message
    name = rf"(?<![-\w'])(?:{'|'.join(map(re.escape, flags))})(?![-\w'])"
    subject = rf"^{name}(?=(?:\[\d+\])? (?:must|is|are)\b)"
    advice = r"\b(?:(?:Give|[Ll]eave|needs either)\b[^.:]*|Use \w+)"

    def in_clause(clause: re.Match[str]) -> str:
        return re.sub(name, lambda found: flags[found[0]], clause[0])

    return re.sub(f"{subject}|{advice}", in_clause, message)
