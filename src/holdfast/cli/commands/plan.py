"""`holdfast plan`."""

from typing import Annotated

import typer

from holdfast.cli.options import Confidence, FlipsPlanned, Guarantee, Json, Queries, planned
from holdfast.cli.output import say, show_json, table

NO_ARGS_IS_HELP = True


def command(
    rows: Annotated[int | None, typer.Option("--rows", help="How many rows the table has.")] = None,
    queries: Queries = None,
    flips: FlipsPlanned = None,
    accuracy: Annotated[
        float | None, typer.Option("--accuracy", help="Largest error, for answers between 0 and 1.")
    ] = None,
    confidence: Confidence = None,
    rows_per_query: Annotated[int | None, typer.Option("--rows-per-query", help="Rows each answer reads.")] = None,
    guarantee: Guarantee = "best",
    mechanism: Annotated[str, typer.Option("--mechanism", help="best, coins or laplace.")] = "best",
    json: Json = False,
) -> None:
    """Say what is possible. Needs no data.

    Give two of --rows, --queries and --accuracy; the third is solved for, by every guarantee that applies.

    \b
    holdfast plan --rows 1000000 --queries 10000       how accurate?
    holdfast plan --rows 1000000 --accuracy 0.02       how many questions?
    holdfast plan --queries 1000 --accuracy 0.05       how many rows?
    holdfast plan --rows 100000 --flips 5000           single flips
    """
    from dataclasses import asdict

    from holdfast.planning import plan
    from holdfast.planning.present import HEADINGS, error, sentence

    made = plan(
        rows=rows,
        queries=planned(queries, flips),
        accuracy=accuracy,
        confidence=0.95 if confidence is None else confidence,
        rows_per_query=rows_per_query,
        guarantee=guarantee,
        mechanism=mechanism,
    )
    if json:
        others = [asdict(alternative) for alternative in made.alternatives]
        show_json(plan=made.to_dict(), vacuous=made.vacuous, sentence=sentence(made), alternatives=others)
        return
    say(sentence(made))
    say()
    lines = [
        (
            each.guarantee,
            each.mechanism,
            error(each.accuracy),
            *("-" if count is None else f"{count:,}" for count in (each.rows, each.queries, each.rows_per_query)),
            each.note,
        )
        for each in made.alternatives
    ]
    table(HEADINGS, lines, right=range(2, len(HEADINGS) - 1))
