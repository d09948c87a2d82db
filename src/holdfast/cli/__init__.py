"""The command line: `holdfast <command>`.

A command is a file in `commands/` with a function `command`: its name is the file's name, its help the function's
docstring. The file is imported only when the command is run or described, so adding a command means adding a file and
does not slow down the others. A file may define a `CLASS` to build its command with, or `COMMANDS`, a mapping of names
to functions, which become subcommands: `holdfast board make`.
"""

import gc
import json
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click

from holdfast.cli.command import Command
from holdfast.cli.output import note, say, write_on_any_terminal
from holdfast.errors import HoldfastError, InvalidArgument, error_json

_FIRST = ("demo", "open", "plan", "ask", "sql", "batch", "check", "budget", "history", "receipt", "verify")
INTERRUPTED = 130
SELDOM = 100_000  # new objects between two garbage collections, which take a tenth of the time of imports by default


def command_names() -> list[str]:
    """Return the names of all commands: the most common first, then the rest."""
    found = {path.stem.replace("_", "-") for path in (Path(__file__).parent / "commands").glob("[a-z]*.py")}
    return [name for name in _FIRST if name in found] + sorted(found.difference(_FIRST))


def subcommands(name: str) -> list[str]:
    """Return the names of a command's subcommands."""
    return list(getattr(_module(name), "COMMANDS", {}))


class Commands(click.Group):
    """Finds commands by file name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names."""
        return command_names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in command_names():
            return None
        module = _module(cmd_name)
        if hasattr(module, "COMMANDS"):
            own = [Command(name, function, no_args_is_help=True) for name, function in module.COMMANDS.items()]
            return _Group(cmd_name, own, help=cleandoc(module.command.__doc__), no_args_is_help=True)
        made: type[Command] = getattr(module, "CLASS", Command)
        return made(cmd_name, module.command, no_args_is_help=getattr(module, "NO_ARGS_IS_HELP", False))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; refuse an unknown word, with the nearest command as a suggestion."""
        near = get_close_matches(args[0], command_names(), n=1) if args[0] not in command_names() else []
        if near:
            raise click.UsageError(f"No command {args[0]!r}. Did you mean {near[0]!r}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with the first lines of their docstrings, without building them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _module(name).command.__doc__.partition("\n")[0]) for name in command_names()])


class _Group(click.Group):
    """A command with commands of its own."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, with the whole first line of what each says."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, (own.help or "").partition("\n")[0]) for name, own in self.commands.items()])


def _module(name: str) -> Any:
    return import_module(f"holdfast.cli.commands.{name.replace('-', '_')}")


def _version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked:
        from holdfast import __version__

        say(f"holdfast {__version__}")
        ctx.exit()


@click.group(
    cls=Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def app() -> None:
    """Ask a table thousands of questions, each chosen after the last answer; every answer holds for the population.

    \b
    The first five minutes:
      holdfast demo                                      see it work, nothing to download
      holdfast ask flights.parquet "dep_delay > 15"      a share, with an interval that stays true
      holdfast budget flights.parquet                    what is left to ask
      holdfast plan --rows 1000000 --queries 10000       what a million rows can promise

    Commands take --json. An error is one sentence, and the exit code says its kind.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    write_on_any_terminal()
    gc.set_threshold(SELDOM)
    try:
        code = app.main(words, prog_name="holdfast", standalone_mode=False)
    except HoldfastError as error:
        code = _refuse(words, error.to_dict(), error.exit_code)
    except click.ClickException as error:
        shape = error_json(_usage(error), kind="usage", status=InvalidArgument.status, details={})
        code = _refuse(words, shape, InvalidArgument.exit_code)
    except (KeyboardInterrupt, click.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:
        note("Interrupted. What was answered is in the ledger; a question that was begun stays spent.")
    sys.exit(code if isinstance(code, int) else 0)


def _usage(error: click.ClickException) -> str:
    """Return the text of a usage error, with a pointer to the command's help."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error.format_message()
    context = error.ctx if isinstance(error, click.UsageError) else None
    where = "holdfast" if context is None else context.command_path
    message = error.format_message().rstrip(".")
    return f"{message}{'' if message.endswith(('?', '?)')) else '.'} See {where} --help."


def _refuse(words: Sequence[str], error: dict[str, Any], code: int) -> int:
    note(error["error"])
    if "--json" in words:
        say(json.dumps(error, ensure_ascii=False))
    return code
