"""`holdfast reproduce`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.options import Json
from holdfast.cli.output import note, say, show_json


def command(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="cost, lower_bound, sample_size, counting, sampling, looseness; left out: all."),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Full size: minutes instead of seconds.")] = False,
    output: Annotated[Path, typer.Option("--output", help="Folder for numbers, figures and page.")] = Path(
        "reproduce-output"
    ),
    seed: Annotated[int, typer.Option("--seed", min=0)] = 1,
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, help="Parts run at once; left out: one a processor.")
    ] = None,
    json: Json = False,
) -> None:
    """Measure the paper's table and claims again.

    Writes the raw numbers as JSON, figures, and a page that is made from them alone.

    \b
    holdfast reproduce                          everything, small
    holdfast reproduce sample_size --full
    """
    from holdfast.lab.experiments import NAMES, reproduce

    written = reproduce(
        output,
        names=names or NAMES,
        size="full" if full else "small",
        seed=seed,
        processes=processes or os.cpu_count() or 1,
        progress=None if json else lambda title: note(f"{title} ..."),
    )
    if json:
        show_json(written=[str(path) for path in written])
        return
    for path in written:
        say(str(path))
