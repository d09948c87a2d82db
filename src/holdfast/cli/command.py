"""From a function to a command: its parameters are the arguments and options, its docstring is the help.

A parameter is annotated `Annotated[type, Argument(...)]` or `Annotated[type, Flag(...)]`; its default applies when it
is left out. Click parses the words; several commands can share a group of options (`options.py`).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, cleandoc, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

import click

from holdfast.cli.messages import in_flags

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
        self._said = {"help": help, "metavar": metavar, "shell_complete": _completing(complete)}

    def parameter(self, name: str, kind: Any, default: object) -> click.Parameter:
        """Return the click parameter."""
        flag = "--" + name.replace("_", "-")
        flags = self._flags or ([f"{flag}/--no-{name.replace('_', '-')}"] if kind is bool else [flag])
        facts: dict[str, Any] = {"is_flag": True} if kind is bool else {}
        if default is Parameter.empty:
            facts["required"] = True
        elif default is not None:
            facts |= {"default": default, "show_default": default is not False}
        result = _Option([name, *flags], type=_type(kind, *self._range), **facts, **self._said)
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
        with in_flags(flags):
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
