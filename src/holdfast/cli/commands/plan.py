"""`holdfast plan`."""

from dataclasses import asdict
from typing import Annotated, Any

from holdfast.cli.command import Argument
from holdfast.cli.messages import spell
from holdfast.cli.options import (
    Confidence,
    End,
    Flips,
    Guarantee,
    Identical,
    Json,
    Margin,
    Mechanism,
    Queries,
    RowsEach,
    Unit,
    plan_option,
    planned,
    rows_each,
)
from holdfast.cli.output import say, show_json, table

NO_ARGS_IS_HELP = True


def command(
    data: Annotated[
        str | None, Argument(metavar="DATA", help="A file whose rows are counted, in place of --rows.")
    ] = None,
    unit: Unit = None,
    rows: Annotated[int | None, plan_option("How many rows the table has.")] = None,
    queries: Queries = None,
    flips: Flips = None,
    margin: Margin = None,
    confidence: Confidence = None,
    rows_per_query: RowsEach = None,
    end: End = False,
    identical: Identical = False,
    guarantee: Guarantee = "best",
    mechanism: Mechanism = "best",
    json: Json = False,
) -> None:
    """Show what is possible. Needs no data, or counts the rows of a file.

    Give two of --rows, --queries and --margin; the third is solved for, by every guarantee that applies. With --rows
    alone, the plan is for a session without an end.

    \b
    holdfast plan flights.parquet                      as many rows as the file has
    holdfast plan visits.parquet --unit patient        as many patients as the file has
    holdfast plan --rows 1000000                       any number of questions
    holdfast plan --rows 1000000 --queries 10000       what margin?
    holdfast plan --rows 1000000 --margin 0.02         how many questions?
    holdfast plan --queries 1000 --margin 0.05         how many rows?
    holdfast plan --rows 100000 --flips 5000           single flips
    """
    from holdfast.guarantees import plan as plans
    from holdfast.session.planning import plan

    counted: Any = int(data) if data is not None and data.isdecimal() else data  # a number is refused, with a hint
    made = plan(
        counted,
        unit=unit,
        rows=rows,
        queries=planned(queries, flips),
        margin=margin,
        confidence=confidence,
        rows_per_query=rows_each(rows_per_query),
        guarantee=guarantee,
        mechanism=mechanism,
        end=end,
        identical=identical or None,
    )
    if json:
        others, readings = [asdict(each) for each in made.alternatives], [asdict(each) for each in made.readings]
        facts = {"vacuous": made.vacuous, "sentence": made.sentence, "alternatives": others, "readings": readings}
        show_json(plan=made.to_dict(), **facts)
        return
    say(f"{spell(made.sentence, {})}\n")
    rows_shown = [plans.alternative_cells(each) for each in made.alternatives]
    table(plans.HEADINGS, rows_shown, right=range(2, len(plans.HEADINGS) - 1))
    if made.readings:
        say(f"\n{made.other_ways}\n")
        table(plans.READING_HEADINGS, [plans.reading_cells(each) for each in made.readings], right=range(2, 5))
