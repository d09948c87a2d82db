"""What commands share: their options, how help shows them, opening data only to look, and messages in flags."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from holdfast.cli.output import noting_warnings
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.session import Session

PLAN = "Options of the plan"

Data = Annotated[str, typer.Argument(metavar="DATA", help="A Parquet, CSV or Arrow file, or a holdfast folder.")]
Json = Annotated[bool, typer.Option("--json", help="Write one JSON document to standard output.")]
LedgerOption = Annotated[
    str | None,
    typer.Option("--ledger", metavar="PATH|URL", help="Where the ledger is; if left out, beside the data."),
]
Queries = Annotated[int | None, typer.Option("--queries", help="How many questions to plan for.", rich_help_panel=PLAN)]
FlipsPlanned = Annotated[
    int | None, typer.Option("--flips", help="How many single flips to plan for.", rich_help_panel=PLAN)
]
PlanMargin = Annotated[
    float | None,
    typer.Option(
        "--plan-margin",
        help="Instead of --queries: the margin (±) every answer shall have, for answers between 0 and 1.",
        rich_help_panel=PLAN,
    ),
]
Confidence = Annotated[
    float | None,
    typer.Option(
        "--confidence",
        help="The probability that all answers hold at once; if left out, 0.95.",
        rich_help_panel=PLAN,
    ),
]
Guarantee = Annotated[
    str, typer.Option("--guarantee", help="best, or one of {guarantees}.", show_default=True, rich_help_panel=PLAN)
]
PlanMechanism = Annotated[
    str,
    typer.Option("--plan-mechanism", help="best, or one of {mechanisms}.", show_default=True, rich_help_panel=PLAN),
]


def flags_of(*names: str) -> dict[str, str]:
    """Return the flag of each option that has its own name here."""
    return {name: "--" + name.replace("_", "-") for name in names}


# What a session calls the options of its plan; a question may have a margin and a mechanism of its own.
PLAN_FLAGS = flags_of("queries", "flips", "confidence", "guarantee") | {
    "margin": "--plan-margin",
    "mechanism": "--plan-mechanism",
}


def planned(queries: int | None, flips: int | None) -> int | dict[str, int] | None:
    """Return `queries` as the planner takes it."""
    if flips is None:
        return queries
    return {"mean": queries or 0, "flip": flips}


class Command(TyperCommand):
    """A command whose help has a section for each group of options and names what is registered."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections; names from registries are looked up only here, because that imports them."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                usual = "Arguments" if param.param_type_name == "argument" else "Options"
                title = getattr(param, "rich_help_panel", None) or usual
                sections.setdefault(title, []).append((record[0], _with_registered(record[1])))
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def _with_registered(text: str) -> str:
    if "{guarantees}" not in text and "{mechanisms}" not in text:
        return text
    from holdfast.guarantees import GUARANTEES

    mechanisms = dict.fromkeys(name for each in GUARANTEES.all() for name in each.mechanisms)
    return text.format(guarantees=", ".join(GUARANTEES.names()), mechanisms=", ".join(mechanisms))


@contextmanager
def looking(data: str, ledger: str | None) -> Iterator["Session"]:
    """Open data for a command that asks nothing, without the warnings meant for somebody who is about to."""
    from holdfast.session import Session

    with noting_warnings():
        session = Session(data, ledger=ledger)
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


# What the library writes as Python arguments, beside those of the plan.
_ARGUMENTS = {
    "queries={'flip': ...}": "--flips N",
    "{'mean': ..., 'flip': ...}": "--queries N --flips N",
    "folder=...": "holdfast open --folder",
    "Give ledger= a file": "Give --ledger a file",
}


def spell(message: str, flags: Mapping[str, str]) -> str:
    """Write options as flags, where a message of the library clearly means an option.

    >>> spell("Give rows_per_query or margin, not both.", {"rows_per_query": "--rows-per-query", "margin": "--margin"})
    'Give --rows-per-query or --margin, not both.'
    >>> spell("margin must be positive; got 0. A margin is a distance.", {"margin": "--margin"})
    '--margin must be positive; got 0. A margin is a distance.'
    >>> spell("Pass queries= or margin= to choose.", {})
    'Pass --queries or --plan-margin to choose.'
    """
    for argument, flag in _ARGUMENTS.items():
        message = message.replace(argument, flag)
    # Only as the library words it: a question that a message quotes may compare a column of that name.
    plan = "|".join(PLAN_FLAGS)
    message = re.sub(rf"\bwith ({plan})='(\w+)'", lambda found: f"with {PLAN_FLAGS[found[1]]} {found[2]}", message)
    message = re.sub(rf"\b({plan})=(?= or | to )", lambda found: PLAN_FLAGS[found[1]], message)
    if not flags:
        return message
    names = rf"(?<![-\w'])({'|'.join(map(re.escape, flags))})(?![-\w'])"

    def all_names(found: re.Match[str]) -> str:
        return re.sub(names, lambda name: flags[name[1]], found[0])

    message = re.sub(rf"^{names}(?=(\[\d+\])? (must|is|are)\b)", all_names, message)
    message = re.sub(r"\b(Give|[Ll]eave|needs either)\b[^.:]*", all_names, message)
    return re.sub(r"(?<![-\w'])\w+_\w+(?![-\w'])", all_names, message)
