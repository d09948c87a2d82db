"""`holdfast completion`."""

from typing import Annotated

import typer

from holdfast import check
from holdfast.cli.options import COMPLETE_VARIABLE, Json
from holdfast.cli.output import say, show_json

NO_ARGS_IS_HELP = True
SHELLS = ("bash", "zsh", "fish")


def _shells(beginning: str) -> list[str]:
    return [name for name in SHELLS if name.startswith(beginning)]


def command(
    shell: Annotated[str, typer.Argument(metavar="|".join(SHELLS), help="Which shell.", autocompletion=_shells)],
    json: Json = False,
) -> None:
    """Print what makes a shell complete commands, options and kinds of questions.

    Nothing is installed: put the line for your shell where it starts.

    \b
    eval "$(holdfast completion bash)"       in ~/.bashrc
    eval "$(holdfast completion zsh)"        in ~/.zshrc, after compinit
    holdfast completion fish | source        in ~/.config/fish/config.fish
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # has no other home

    check.one_of("shell", shell, SHELLS)
    script = get_completion_script(prog_name="holdfast", complete_var=COMPLETE_VARIABLE, shell=shell)
    if json:
        show_json(shell=shell, script=script)
    else:
        say(script)
