"""Arguments and options: from a function to a command, and what commands share.

The parameters of a function are the arguments and options of its command, its docstring is the help. A parameter is
annotated `Annotated[type, Argument(...)]` or `Annotated[type, Flag(...)]`; its default applies when it is left out.
Click parses the words; several commands can share a group of options.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, cleandoc, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import click

from holdfast.cli.output import PLAN_FLAGS, in_flags, noting_at_once, noting_warnings

if TYPE_CHECKING:
    from holdfast.session.session import Session

PLAN = "Options of the plan"  # many, and rarely needed: help lists them last
Completion = Callable[[str], list[Any]]  # from the beginning of a word to its completions


@dataclass(frozen=True, kw_only=True)
class Argument:
    """A positional argument; a shell completes it with files, unless `complete` is given."""

    metavar: str
    help: str
    least: int | None = None
    complete: Completion | None = None

    def parameter(self, name: str, kind: Any, default: object) -> click.Parameter:
        """Return the click parameter."""
        many = get_origin(kind) is list
        required = default is Parameter.empty
        metavar = (self.metavar if required else f"[{self.metavar}]") + "..." * many
        shared = {"metavar": metavar, "required": required, "shell_complete": _completing(self.complete or _files)}
        if not required and not many:
            shared["default"] = default
        result = _Argument([name], type=_type(str if many else kind, self.least), nargs=-1 if many else 1, **shared)
        result.meaning = self.help
        return result


class _Argument(click.Argument):
    meaning = ""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the help line, as for an option; click before 8.5 has none for arguments."""
        return self.make_metavar(ctx).removesuffix("...").strip("[]"), self.meaning + "  [required]" * self.required


class Flag:
    """An option; its flag is by default the name of the parameter, and for a switch also its opposite.

    `metavar` is the name of its value in help (by default, its type), `section` the part of help that lists it, `least`
    and `most` are the range of a whole number, and `complete` returns completions of its value.
    """

    def __init__(
        self,
        *flags: str,
        help: str = "",
        metavar: str | None = None,
        section: str = "Options",
        least: int | None = None,
        most: int | None = None,
        complete: Completion | None = None,
    ) -> None:
        self._flags, self._section, self._range = flags, section, (least, most)
        self._shown = {"help": help, "metavar": metavar, "shell_complete": _completing(complete)}

    def parameter(self, name: str, kind: Any, default: object) -> click.Parameter:
        """Return the click parameter."""
        flag = "--" + name.replace("_", "-")
        flags = self._flags or ([f"{flag}/--no-{name.replace('_', '-')}"] if kind is bool else [flag])
        facts: dict[str, Any] = {"is_flag": True} if kind is bool else {}
        if default is Parameter.empty:
            facts["required"] = True
        elif default is not None:
            facts |= {"default": default, "show_default": default is not False}
        result = _Option([name, *flags], type=_type(kind, *self._range), **facts, **self._shown)
        result.section = self._section
        return result


class _Option(click.Option):
    section = "Options"


def _files(beginning: str) -> list[Any]:
    from click.shell_completion import CompletionItem  # only needed when a shell asks

    return [CompletionItem(beginning, type="file")]


def _completing(complete: Completion | None) -> Any:
    return None if complete is None else lambda ctx, param, beginning: complete(beginning)


class _Whole(click.types.IntParamType):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(_written_out(value), param, ctx)


class _WholeRange(click.IntRange):
    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(_written_out(value), param, ctx)


def _written_out(value: Any) -> Any:
    """Write out 10,000 and 1e6, which options of questions take, too; what is no whole number stays as it is."""
    from decimal import Decimal

    with suppress(ArithmeticError, AttributeError):
        number = Decimal(value.replace(",", "").replace("_", ""))
        return str(int(number)) if number % 1 == 0 else value
    return value


def _type(kind: Any, least: int | None = None, most: int | None = None) -> Any:
    if least is not None or most is not None:
        return _WholeRange(least, most)
    if kind is int:
        return _Whole()
    return click.Path(path_type=Path) if kind is Path else get_args(kind) or kind


def parameters(function: Callable[..., None]) -> list[click.Parameter]:
    """Return the arguments and options of a function as click parameters."""
    found = []
    for each in signature(function, eval_str=True).parameters.values():
        kind, described = get_args(each.annotation)
        if isinstance(kind, UnionType):
            (kind,) = (one for one in get_args(kind) if one is not NoneType)
        found.append(described.parameter(each.name, kind, each.default))
    return found


def spread(command: Callable[..., None], **groups: Sequence[Parameter]) -> Callable[..., None]:
    """Return the command with a group of options in place of a parameter, which gets their values as a mapping."""
    options = [each for name, own in signature(command).parameters.items() for each in groups.get(name, [own])]

    @wraps(command)
    def with_options(**values: Any) -> None:
        gathered = {name: {each.name: values.pop(each.name) for each in group} for name, group in groups.items()}
        command(**values, **gathered)

    keywords = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in options]
    with_options.__signature__ = Signature(keywords)  # type: ignore[attr-defined]
    return with_options


class Command(click.Command):
    """A function as a command; help has a section for each group of options, and errors name options as flags."""

    def __init__(self, name: str, function: Callable[..., None], *, no_args_is_help: bool = False) -> None:
        super().__init__(name, help=cleandoc(function.__doc__ or ""), no_args_is_help=no_args_is_help)
        self.take(function)

    def take(self, function: Callable[..., None]) -> None:
        """Use a function as the callback, with its parameters."""
        self.callback, self.params = function, parameters(function)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        flags = {str(param.name): param.opts[0] for param in self.params if param.param_type_name == "option"}
        with in_flags(flags), noting_at_once():
            return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections; registered names are looked up only here, because that imports their modules."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                title = "Arguments" if isinstance(param, click.Argument) else getattr(param, "section", "Options")
                sections.setdefault(title, []).append((record[0], _with_registered(record[1])))
        for title in sorted(sections, key=PLAN.__eq__):
            with formatter.section(title):
                formatter.write_dl(sections[title])


class CommandGroup(click.Group):
    """A command with subcommands, which its help lists in their order, with the whole first line of theirs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names; click would sort them."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list; click would shorten the lines."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, ((own and own.help) or "").partition("\n")[0]) for name, own in found])


def group(function: Callable[..., None], *own: Callable[..., None]) -> CommandGroup:
    """Return a command with subcommands, each named like its function; the first function's docstring is the help."""
    commands = [Command(each.__name__, each, no_args_is_help=True) for each in own]
    return CommandGroup(function.__name__, commands, help=cleandoc(function.__doc__ or ""), no_args_is_help=True)


def _with_registered(text: str) -> str:
    if "{metrics}" in text:
        from holdfast.queries.submission import METRICS

        return text.format(metrics=", ".join(METRICS))
    if "{guarantees}" not in text and "{mechanisms}" not in text:
        return text
    from holdfast.guarantees import GUARANTEES

    mechanisms = dict.fromkeys(name for each in GUARANTEES.all() for name in each.planning.mechanisms)
    return text.format(guarantees=", ".join(GUARANTEES.names()), mechanisms=", ".join(mechanisms))


# -- what commands share --------------------------------------------------------------------------------------------


def plan_option(help: str) -> Any:
    """Describe an option of the plan, which help lists in a separate section."""
    return Flag(help=help, section=PLAN)


# The flag of an option is the name of the parameter, unless it is declared here.
TABLES = (
    "a file (Parquet, CSV, Arrow, JSON lines), a glob, a folder of Parquet files, a holdfast folder, a deck, an address"
    " such as s3://lake/events/, a Delta or Iceberg table, or a PostgreSQL URL"
)
Data = Annotated[str, Argument(metavar="DATA", help=f"{TABLES[0].upper()}{TABLES[1:]}.")]
Json = Annotated[bool, Flag("--json", help="Write one JSON document to standard output.")]
Ledger = Annotated[str | None, Flag(metavar="PATH|URL", help="Where the ledger is; if left out, beside the data.")]
Unit = Annotated[
    str | None, Flag(metavar="COLUMN", help="Which rows belong together, if rows are not independent; remembered.")
]
Analyst = Annotated[str | None, Flag(help="Your name, to be kept in the ledger.")]
Target = Annotated[str, Argument(metavar="DATA|LEDGER", help="A dataset, or a ledger's file or database URL.")]
Price = Annotated[bool, Flag("--price", help="Show what it would cost; spend nothing.")]
WhichDataset = Annotated[str | None, Flag("--dataset", help="Which dataset, in a database with several.")]
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
    plan_option("All rows have the same distribution; by default they may differ, and answers are about the average."),
]
ChecksShare = Annotated[
    float | None, plan_option("The share of rows that check guesses instead of answering, such as 0.2.")
]
Guarantee = Annotated[str, plan_option("best, or one of {guarantees}.")]
Mechanism = Annotated[str, plan_option("best, or one of {mechanisms}.")]
Worlds = Annotated[int, Flag(least=1, help="Independent worlds.")]
Processes = Annotated[int | None, Flag(least=1, help="Worlds to run at once; by default, as many as save time.")]


def planned(queries: int | None, flips: int | None) -> int | dict[str, int] | None:
    """Return `queries` as the planner expects it."""
    return queries if flips is None else {"mean": queries or 0, "flip": flips}


def rows_each(text: str | None) -> int | str | None:
    """Return rows per query as the planner expects it: a number or a word."""
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
    """Return the plan as arguments of a session."""
    chosen = {"confidence": confidence, "guarantee": guarantee, "mechanism": plan_mechanism, "end": end}
    chosen |= {"identical": identical or None, "rows_per_query": rows_each(plan_rows_per_query)}
    return {"queries": planned(queries, flips), "margin": plan_margin, "checks": checks} | chosen


def with_plan(command: Callable[..., None], *, but: str = "") -> Callable[..., None]:
    """Give a command the options of `session_plan`, except `but`, in place of its parameter `plan`."""
    return spread(command, plan=[each for each in signature(session_plan).parameters.values() if each.name != but])


def _asking(
    data: Data, *, ledger: Ledger = None, analyst: Analyst = None, json: Json = False, unit: Unit = None
) -> None:
    """The data and the options of all commands that ask, besides those of the plan."""


def that_asks(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the data, the options of a plan and of who asks, in place of its parameter `asked`."""
    described = (_asking, session_plan)
    return spread(command, asked=[each for one in described for each in signature(one).parameters.values()])


def open_session(
    data: str, plan: Mapping[str, Any], *, ledger: str | None, analyst: str | None = None, unit: str | None = None
) -> "Session":
    """Open data under the plan whose options a command received."""
    from holdfast.session.session import Session

    with in_flags(PLAN_FLAGS):
        return Session(data, **session_plan(**plan), ledger=ledger, analyst=analyst, unit=unit)


def is_data(target: str) -> bool:
    """Whether a word names data, rather than a ledger."""
    from holdfast.rows.open import ROW_SOURCES
    from holdfast.rows.scans.files import FORMATS
    from holdfast.rows.scans.remote import POSTGRES, REMOTE

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
    """Whether a database URL contains a password, even where `urlsplit` would not find it."""
    user, at, _ = url.partition("://")[2].rpartition("@")
    return (bool(at) and bool(user.partition(":")[2])) or "password=" in url


@contextmanager
def looking(data: str, ledger: str | None) -> Iterator["Session"]:
    """Open data for a command that asks nothing, without the warnings meant for those who ask."""
    with noting_warnings():
        session = open_session(data, {}, ledger=ledger)
    with session:
        yield session


def nothing_asked(session: "Session") -> str:
    """Return the sentence that the ledger has not begun."""
    return f"Nothing has been asked of {session.dataset} yet; its ledger begins with the first answer."
