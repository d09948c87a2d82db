"""The command line: `holdfast <command>`.

A command is a function in one of the modules here, of the command's name; its docstring is the help. The module is
imported only when the command is run or described, so one does not slow down the others.
"""

import gc
import json as jsonlib
import shlex
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

import click

from holdfast.cli.options import Argument, Command, CommandGroup, Json
from holdfast.cli.output import note, say, show_json, write_on_any_terminal
from holdfast.errors import HoldfastError, InvalidArgument, error_json

# The module of every command, in the order of the help: the most common first.
_MODULES = {
    "demo": "holdfast.cli.lab",
    "open": "holdfast.cli.data",
    "plan": "holdfast.cli.data",
    "ask": "holdfast.cli.ask",
    "sql": "holdfast.cli.ask",
    "batch": "holdfast.cli.ask",
    "check": "holdfast.cli.ask",
    "budget": "holdfast.cli.ledger",
    "history": "holdfast.cli.ledger",
    "receipt": "holdfast.cli.ledger",
    "verify": "holdfast.cli.ledger",
    "attack": "holdfast.cli.lab",
    "backup": "holdfast.cli.ledger",
    "board": "holdfast.cli.board",
    "completion": "holdfast.cli",
    "deal": "holdfast.cli.data",
    "deck": "holdfast.cli.data",
    "hold-back": "holdfast.cli.data",
    "mcp": "holdfast.cli.serve",
    "monitor": "holdfast.cli.lab",
    "reproduce": "holdfast.cli.lab",
    "restore": "holdfast.cli.ledger",
    "selftest": "holdfast.cli.lab",
    "serve": "holdfast.cli.serve",
}
_RUN_ALONE = {"attack", "demo", "mcp", "monitor", "reproduce", "serve"}  # the others show their help without words
SHELLS = ("bash", "zsh", "fish")
INTERRUPTED = 130
SELDOM = 100_000  # new objects between two garbage collections, which take a tenth of the time of imports by default


def command_names() -> list[str]:
    """Return the names of all commands: the most common first, then the rest."""
    return list(_MODULES)


def subcommands(name: str) -> list[str]:
    """Return the names of a command's subcommands."""
    return list(getattr(_command(name), "commands", {}))


def _command(name: str) -> click.Command:
    """Import a command: what its module makes of it, or its function with options."""
    module = import_module(_MODULES[name])
    made: dict[str, click.Command] = getattr(module, "COMMANDS", {})
    return made.get(name) or Command(
        name, getattr(module, name.replace("-", "_")), no_args_is_help=name not in _RUN_ALONE
    )


class Commands(CommandGroup):
    """Finds commands by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names."""
        return command_names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        return _command(cmd_name) if cmd_name in _MODULES else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; refuse an unknown word, with the nearest command as a suggestion."""
        near = get_close_matches(args[0], command_names(), n=1) if args[0] not in _MODULES else []
        if near:
            raise click.UsageError(f"No command {args[0]!r}. Did you mean {near[0]!r}?", ctx)
        return super().resolve_command(ctx, args)


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
        shape = error_json(_usage(error, words), kind="usage", status=InvalidArgument.status, details={})
        code = _refuse(words, shape, InvalidArgument.exit_code)
    except (KeyboardInterrupt, click.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:
        note("Interrupted. What was answered is in the ledger; a question that was begun stays spent.")
    sys.exit(code if isinstance(code, int) else 0)


def _usage(error: click.ClickException, words: Sequence[str]) -> str:
    """Return the text of a usage error, with a pointer to the command's help."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error.format_message()
    context = error.ctx if isinstance(error, click.UsageError) else None
    where = "holdfast" if context is None else context.command_path
    message = error.format_message().rstrip(".")
    if (
        isinstance(error, click.NoSuchOption)
        and context is not None
        and (meant := _meant(error.option_name, context, words))
    ):
        message = f"No such option {error.option_name!r}. {meant}"
    way = _ONE_ARGUMENT.get(where, "") if "unexpected extra argument" in message else ""
    return f"{message}{'' if message.endswith(('?', '?)')) else '.'}{way} See {where} --help."


def _meant(flag: str, context: click.Context, words: Sequence[str]) -> str:
    """Say which option is meant by one that goes by another name elsewhere, or belongs to `holdfast open`."""
    from holdfast.check import READING
    from holdfast.questions import OPTIONS_OTHERWISE_CALLED

    name = flag.lstrip("-").replace("-", "_")
    here = {option: each.name for each in context.command.params for option in each.opts}
    meant, reading = (f"--{names.get(name, '').replace('_', '-')}" for names in (OPTIONS_OTHERWISE_CALLED, READING))
    near = next((each for each in (meant, reading) if each in here), None)
    if near is not None:
        return f"Did you mean {near!r}?"
    if name in _REMEMBERED and "data" in here.values():
        return f"It says what the rows are: give it once to {_opening(f'--{name}', flag, words)}, which remembers it"
    if reading != "--" and "data" in here.values():
        return f"It says how a file is written: give it once to {_opening(reading, flag, words)}, which remembers it"
    return ""


def _opening(reading: str, flag: str, words: Sequence[str]) -> str:
    """Return the call of `holdfast open` that says of these data what was said with another command."""
    where = next((place for place, word in enumerate(words) if word.partition("=")[0] == flag), None)
    value = None if where is None else words[where].partition("=")[2] or next(iter(words[where + 1 :]), None)
    data = words[1] if len(words) > 1 and not words[1].startswith("-") else None
    if data is None:
        return f"holdfast open DATA {reading}"
    return shlex.join(["holdfast", "open", data, reading, *([] if value is None else [value])])


_REMEMBERED = ("unit", "complete")  # by the folder that `holdfast open` writes
_ONE_ARGUMENT = {
    "holdfast ask": " Put the question in quotation marks, after DATA; its kind is said by --kind.",
    "holdfast sql": " Put the statement in quotation marks, after DATA.",
}


def _refuse(words: Sequence[str], error: dict[str, Any], code: int) -> int:
    note(error["error"])
    if "--json" in words:
        say(jsonlib.dumps(error, ensure_ascii=False))
    return code


def _shells(beginning: str) -> list[str]:
    return [name for name in SHELLS if name.startswith(beginning)]


def completion(
    shell: Annotated[str, Argument(metavar="|".join(SHELLS), help="Which shell.", complete=_shells)], json: Json = False
) -> None:
    """Print a script that lets your shell complete commands, options and kinds of questions.

    Nothing is installed: put the line for your shell into its startup file.

    \b
    eval "$(holdfast completion bash)"       in ~/.bashrc
    eval "$(holdfast completion zsh)"        in ~/.zshrc, after compinit
    holdfast completion fish | source        in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    from holdfast import check

    check.one_of("shell", shell, SHELLS)
    made = get_completion_class(shell)
    assert made is not None  # click has these shells
    script = made(click.Command("holdfast"), {}, "holdfast", "_HOLDFAST_COMPLETE").source()
    if json:
        show_json(shell=shell, script=script)
    else:
        say(script)
