"""`holdfast reproduce`."""

import os
from pathlib import Path
from typing import Annotated

from holdfast.cli.command import Argument, Flag
from holdfast.cli.options import Json
from holdfast.cli.output import note, say, show_json


def command(
    names: Annotated[
        list[str] | None,
        Argument(
            metavar="EXPERIMENT",
            help="cost, lower_bound, sample_size, counting, sampling, optimization, looseness, attacked; or all.",
        ),
    ] = None,
    full: Annotated[bool, Flag("--full", help="Run at full size: minutes instead of seconds.")] = False,
    output: Annotated[Path, Flag(help="Folder for the numbers, the figures and the page.")] = Path("reproduce-output"),
    seed: Annotated[int, Flag(least=0)] = 1,
    processes: Annotated[int | None, Flag(least=1, help="Parts to run at once; by default, one per processor.")] = None,
    json: Json = False,
) -> None:
    """Reproduce the paper's table and claims.

    Writes the raw numbers as JSON, and figures and a page made from these numbers alone.

    \b
    holdfast reproduce                          all experiments, at small size
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
