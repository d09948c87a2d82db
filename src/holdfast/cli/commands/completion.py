"""`holdfast completion`."""

from typing import Annotated

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from holdfast import check
from holdfast.cli.command import Argument
from holdfast.cli.options import Json
from holdfast.cli.output import say, show_json

NO_ARGS_IS_HELP = True
SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


def _shells(beginning: str) -> list[str]:
    return [name for name in SHELLS if name.startswith(beginning)]


def command(
    shell: Annotated[str, Argument(metavar="|".join(SHELLS), help="Which shell.", complete=_shells)],
    json: Json = False,
) -> None:
    """Print a script that lets your shell complete commands, options and kinds of questions.

    Nothing is installed: put the line for your shell into its startup file.

    \b
    eval "$(holdfast completion bash)"       in ~/.bashrc
    eval "$(holdfast completion zsh)"        in ~/.zshrc, after compinit
    holdfast completion fish | source        in ~/.config/fish/config.fish
    """
    check.one_of("shell", shell, tuple(SHELLS))
    script = SHELLS[shell](click.Command("holdfast"), {}, "holdfast", "_HOLDFAST_COMPLETE").source()
    if json:
        show_json(shell=shell, script=script)
    else:
        say(script)
