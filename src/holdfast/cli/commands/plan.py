"""`holdfast plan`."""

from typing import Annotated

import typer

from holdfast.cli.options import PLAN, Confidence, FlipsPlanned, Guarantee, Json, Queries, flags_of, in_flags, planned
from holdfast.cli.output import say, show_json, table

NO_ARGS_IS_HELP = True
FLAGS = flags_of("rows", "queries", "flips", "margin", "confidence", "rows_per_query", "guarantee", "mechanism")


def command(
    rows: Annotated[
        int | None, typer.Option("--rows", help="How many rows the table has.", rich_help_panel=PLAN)
    ] = None,
    queries: Queries = None,
    flips: FlipsPlanned = None,
    margin: Annotated[
        float | None,
        typer.Option(
            "--margin",
            help="The margin (±) every answer shall have, for answers between 0 and 1.",
            rich_help_panel=PLAN,
        ),
    ] = None,
    confidence: Confidence = None,
    rows_per_query: Annotated[
        int | None,
        typer.Option(
            "--rows-per-query",
            help="Rows each answer reads; if left out, the best number.",
            rich_help_panel=PLAN,
        ),
    ] = None,
    guarantee: Guarantee = "best",
    mechanism: Annotated[
        str,
        typer.Option("--mechanism", help="best, or one of {mechanisms}.", show_default=True, rich_help_panel=PLAN),
    ] = "best",
    json: Json = False,
) -> None:
    """Show what is possible. Needs no data.

    Give two of --rows, --queries and --margin; the third is solved for, by every guarantee that applies.

    \b
    holdfast plan --rows 1000000 --queries 10000       what margin?
    holdfast plan --rows 1000000 --margin 0.02         how many questions?
    holdfast plan --queries 1000 --margin 0.05         how many rows?
    holdfast plan --rows 100000 --flips 5000           single flips
    """
    from dataclasses import asdict

    from holdfast.guarantees.plan import DEFAULT_CONFIDENCE, HEADINGS, alternative_cells, plan

    with in_flags(FLAGS):
        made = plan(
            rows=rows,
            queries=planned(queries, flips),
            margin=margin,
            confidence=DEFAULT_CONFIDENCE if confidence is None else confidence,
            rows_per_query=rows_per_query,
            guarantee=guarantee,
            mechanism=mechanism,
        )
    if json:
        others = [asdict(alternative) for alternative in made.alternatives]
        show_json(plan=made.to_dict(), vacuous=made.vacuous, sentence=made.sentence, alternatives=others)
        return
    say(made.sentence)
    say()
    table(HEADINGS, [alternative_cells(each) for each in made.alternatives], right=range(2, len(HEADINGS) - 1))
