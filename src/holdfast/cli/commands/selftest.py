"""`holdfast selftest`."""

from typing import Annotated

import click

from holdfast.cli.command import Argument, Flag
from holdfast.cli.options import Confidence, Guarantee, Json, Ledger, Margin, Processes, Queries, Worlds, looking
from holdfast.cli.output import note, progress_bar, say, show_json
from holdfast.errors import InvalidArgument

NO_ARGS_IS_HELP = True
BROKEN = 1


def command(
    data: Annotated[str | None, Argument(metavar="DATA", help="Test the plan of this dataset; no row is read.")] = None,
    ledger: Ledger = None,
    rows: Annotated[int | None, Flag(help="Or test a plan for this many rows.")] = None,
    queries: Queries = None,
    margin: Margin = None,
    confidence: Confidence = None,
    guarantee: Guarantee = "best",
    worlds: Worlds = 60,
    questions: Annotated[
        int | None, Flag(least=3, help="Questions in each world; by default, as many as planned.")
    ] = None,
    seed: Annotated[int, Flag(least=0)] = 0,
    processes: Processes = None,
    json: Json = False,
) -> None:
    """Simulate a plan on made-up rows and see whether it keeps its promise.

    In every world new rows are drawn from a known population, and an analyst adapts to every answer. The exit code is
    1 if the promise was broken.

    \b
    holdfast selftest flights.parquet                      the plan of this dataset
    holdfast selftest --rows 100000 --queries 1000
    holdfast selftest --rows 1000000 --queries 10000 --worlds 10
    """
    from holdfast.lab.attack import processes_for
    from holdfast.lab.selftest import selftest
    from holdfast.session.planning import plan

    if data is not None:
        if any(given is not None for given in (rows, queries, margin, confidence)):
            raise InvalidArgument("Give either DATA, whose ledger has a plan, or the numbers of a plan; not both.")
        with looking(data, ledger) as session:
            planned = session.plan
    else:
        planned = plan(rows=rows, queries=queries, margin=margin, confidence=confidence, guarantee=guarantee)
    if not json:
        say(f"{planned.sentence}\n")
    with progress_bar("   worlds", worlds, quiet=json) as show:
        found = selftest(
            planned,
            worlds=worlds,
            questions=questions,
            seed=seed,
            processes=processes
            or processes_for(worlds * (questions or planned.queries or 1_000) * planned.rows_per_query),
            progress=show,
        )
    if json:
        show_json(**found.to_dict())
    else:
        say(found.sentence, bold=True)
        note(f"Seed {found.seed}.")
    if not found.kept:
        raise click.exceptions.Exit(BROKEN)
