"""From a function to a command: its parameters are the arguments and options, its docstring is the help.

A parameter is annotated `Annotated[type, Argument(...)]` or `Annotated[type, Flag(...)]`; what it defaults to is what
it is when left out. Click parses the words; the same signature can be spread over several commands (`options.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, cleandoc, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

import click

from holdfast.cli.messages import in_flags

Completion = Callable[[str], list[Any]]  # from the beginning of a word to words


@dataclass(frozen=True, kw_only=True)
class Argument:
    """A word by its place; a shell completes it with files, unless `complete` says otherwise."""

    metavar: str
    help: str
    least: int | None = None
    complete: Completion | None = None

    def parameter(self, name: str, kind: Any, default: object) -> click.Parameter:
        """Return it as click has it."""
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
        """Say what it means, as of an option; of arguments click before 8.5 says nothing."""
        return self.make_metavar(ctx).removesuffix("...").strip("[]"), self.meaning + "  [required]" * self.required


class Flag:
    """A word by its flag: by default the name of the parameter, and for a switch also its opposite.

    Parameters
    ----------
    *flags
        How it is written.
    help
        What it means.
    metavar
        What its value is called; left out, its type.
    section
        Where help lists it.
    least, most
        The range of a whole number.
    complete
        How its value may go on.
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
        """Return it as click has it."""
        flag = "--" + name.replace("_", "-")
        flags = self._flags or ([f"{flag}/--no-{name.replace('_', '-')}"] if kind is bool else [flag])
        facts: dict[str, Any] = {"is_flag": True} if kind is bool else {}
        if default is Parameter.empty:
            facts["required"] = True
        elif default is not None:
            facts |= {"default": default, "show_default": True}
        result = _Option([name, *flags], type=_type(kind, *self._range), **facts, **self._said)
        result.section = self._section
        return result


class _Option(click.Option):
    section = "Options"


def _files(beginning: str) -> list[Any]:
    from click.shell_completion import CompletionItem  # when a shell asks

    return [CompletionItem(beginning, type="file")]


def _completing(complete: Completion | None) -> Any:
    return None if complete is None else lambda ctx, param, beginning: complete(beginning)


def _type(kind: Any, least: int | None = None, most: int | None = None) -> Any:
    if least is not None or most is not None:
        return click.IntRange(least, most)
    return click.Path(path_type=Path) if kind is Path else get_args(kind) or kind


def parameters(function: Callable[..., None]) -> list[click.Parameter]:
    """Return the arguments and options of a function, as click has them."""
    found = []
    for each in signature(function, eval_str=True).parameters.values():
        kind, described = get_args(each.annotation)
        if isinstance(kind, UnionType):
            (kind,) = (one for one in get_args(kind) if one is not NoneType)
        found.append(described.parameter(each.name, kind, each.default))
    return found


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


class Command(click.Command):
    """A function as a command; help has a section for each group of options, and errors name options as flags."""

    def __init__(self, name: str, function: Callable[..., None], *, no_args_is_help: bool = False) -> None:
        super().__init__(name, help=cleandoc(function.__doc__ or ""), no_args_is_help=no_args_is_help)
        self.take(function)

    def take(self, function: Callable[..., None]) -> None:
        """Take over what a function does, and its parameters."""
        self.callback, self.params = function, parameters(function)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        flags = {str(param.name): param.opts[0] for param in self.params if param.param_type_name == "option"}
        with in_flags(flags):
            return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections; names from registries are looked up only here, because that imports them."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                title = "Arguments" if isinstance(param, click.Argument) else getattr(param, "section", "Options")
                sections.setdefault(title, []).append((record[0], _with_registered(record[1])))
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
