"""Commands about data, before anything is asked: open, deal, deck, hold-back, plan."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.cli.options import (
    Argument,
    Confidence,
    Data,
    End,
    Flag,
    Flips,
    Guarantee,
    Identical,
    Json,
    Ledger,
    Margin,
    Mechanism,
    Queries,
    RowsEach,
    Unit,
    has_password,
    plan_option,
    planned,
    rows_each,
    spread,
)
from holdfast.cli.output import note, noting_warnings, say, show_json, show_notes, spell, table
from holdfast.errors import InvalidArgument, RowSourceError

if TYPE_CHECKING:
    from holdfast.check import TextFormat
    from holdfast.rows.source import RowSource

Complete = Annotated[str | None, Flag(metavar="A,B", help="Columns whose values are never missing; remembered.")]

Version = Annotated[
    int | None,
    Flag("--version", metavar="N", help="The version of a Delta table, or the snapshot of an Iceberg table."),
]


def _read(
    *,
    types: Annotated[
        str | None, Flag(metavar="A=number,B=text", help="Types of columns of a CSV or JSON lines file; remembered.")
    ] = None,
    separator: Annotated[str | None, Flag(help="What separates the values of a CSV file, such as ';' or tab.")] = None,
    encoding: Annotated[str, Flag(help="The encoding of a CSV file, such as latin-1.")] = "utf-8",
    null_values: Annotated[
        str | None, Flag(metavar="A,B", help="Texts of a CSV file that stand for missing values.")
    ] = None,
    decimal: Annotated[str, Flag(help="The decimal point of a CSV file: . or a comma.")] = ".",
) -> "TextFormat":
    """Return how a file is written, as arguments of `holdfast.open`."""
    return {
        "types": dict(_pair(part) for part in types.split(",")) if types else None,
        "separator": "\t" if separator in ("\\t", "tab") else separator,
        "encoding": encoding,
        "null_values": null_values.split(",") if null_values else (),
        "decimal": decimal,
    }


def _that_reads(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of how a file is written, in place of its parameter `reading`."""
    return spread(command, reading=list(signature(_read).parameters.values()))


@_that_reads
def open(
    data: Data,
    folder: Annotated[str | None, Flag(help="Where to put the folder of columns.")] = None,
    complete: Complete = None,
    unit: Unit = None,
    *,
    reading: Mapping[str, Any],
    version: Version = None,
    json: Json = False,
) -> None:
    """Show the columns that can be asked about.

    Spends nothing. The first time, the file is copied into a folder of columns beside it. A mean of a column that may
    have missing values costs 2 answers; of a column declared complete, 1. Bounds, categories and labels declared in a
    TOML file beside the data (flights.toml for flights.parquet) are shown, too.

    \b
    holdfast open flights.parquet
    holdfast open flights.parquet --complete distance,air_time
    holdfast open visits.parquet --unit patient
    holdfast open flights.csv --folder /fast/disk/flights.holdfast
    holdfast open lake/events --version 12 --folder events-12.holdfast
    """
    from holdfast.ledger import exists
    from holdfast.rows.open import open_rows
    from holdfast.session.beside import declare, ledger_beside

    named = tuple(complete.split(",")) if complete else ()
    with noting_warnings() as notes:
        rows = open_rows(data, folder=folder, complete=named, unit=unit, version=version, **_read(**reading))
    schema, ledger = declare(rows), ledger_beside(rows)
    begun = exists(ledger, rows.name)
    if begun:
        notes += _refused(rows, ledger)
    if version is not None:
        notes.append(f"Ask this version as {rows.location}: the table itself stands for its newest version.")
    if json:
        columns = [column.to_json() for column in schema]
        what = {"rows": len(rows), "unit": schema.unit, "columns": columns, "fingerprint": rows.fingerprint}
        show_json(name=rows.name, **what, folder=rows.location, ledger=ledger, ledger_begun=begun, notes=notes)
        return
    show_notes(notes)
    say(f"{rows.name}: {schema.units_of(len(rows))}, {len(schema)} column{'s' * (len(schema) > 1)}", bold=True)
    lines = [(c.name, str(c.type), "possible" if c.nullable else "never", c.declared, c.label or "") for c in schema]
    used = [place for place in range(5) if place < 3 or any(line[place] for line in lines)]
    headings = ("column", "type", "missing values", "declared", "label")
    table([headings[place] for place in used], [[line[place] for place in used] for line in lines])
    say(f"\nfingerprint  {rows.fingerprint}")
    if rows.location is not None:
        say(f"columns      {rows.location}")
    say(f"ledger       {ledger or 'in memory'}{'' if begun else ' (begins with the first answer)'}")


def _refused(rows: "RowSource", ledger: Path | None) -> list[str]:
    """Return why the ledger refuses these rows, and what to do; nothing if they are the ones it was begun with."""
    from holdfast.ledger import open_ledger

    try:
        open_ledger(ledger, dataset=rows.name, fingerprint=rows.fingerprint).close()
    except RowSourceError as error:
        way_out = (
            "Questions are refused until then. If the file is the same but was read with other options, remove"
            f" {rows.location} and open the file with the options it had when the first question was asked."
        )
        return [f"{error} {way_out}"]
    return []


def _pair(part: str) -> tuple[str, str]:
    name, equals, type_ = part.rpartition("=")
    if not equals:
        raise InvalidArgument(f"types must be like A=number,B=text; got {part!r}.", name="types")
    return name, type_


@_that_reads
def deal(
    source: Annotated[
        str,
        Argument(
            metavar="SOURCE", help="Files, a lake's table or a database URL: as for open, but no holdfast folder."
        ),
    ],
    deck: Annotated[str, Argument(metavar="DECK", help="The folder to make, for example events.deck.")],
    *,
    cards: Annotated[float, Flag(help="How many draws: questions times rows per answer.")],
    next: Annotated[bool, Flag("--next", help="Deal more cards into an existing deck.")] = False,
    slices: Annotated[int, Flag(help="How many decks to deal at once, one for each machine.")] = 1,
    complete: Complete = None,
    unit: Annotated[
        str | None, Flag(metavar="COLUMN", help="Rows that belong together, such as patient; remembered.")
    ] = None,
    distinct: Annotated[
        bool, Flag("--distinct", help="Record which row each card is: for noisy means of distinct rows.")
    ] = False,
    checks: Annotated[
        float | None, Flag(metavar="SHARE", help="Rows that only check guesses, such as 0.1; remembered.")
    ] = None,
    reading: Mapping[str, Any],
    version: Version = None,
    json: Json = False,
) -> None:
    """Draw rows for all questions to come, in one pass over a table of any size.

    Answers then read their draws in sequence, each once. You need as many cards as questions times rows per answer;
    `holdfast plan` shows both. With Spark or Ray, call holdfast.deal from Python.

    \b
    holdfast deal "s3://lake/events/*.parquet" events.deck --cards 1e8
    holdfast deal events.parquet events.deck --cards 1e8 --next
    holdfast deal events.parquet checked.deck --cards 1e8 --checks 0.1
    holdfast ask events.deck "amount > 100"
    """
    from holdfast.rows.decks.deal import deal

    if "://" in source and has_password(source):
        raise InvalidArgument(
            "source must not contain a password on the command line, where every user of this machine can see it. Put"
            " it into the environment variable PGPASSWORD, or into ~/.pgpass.",
            name="source",
        )
    named = tuple(complete.split(",")) if complete else ()
    made = deal(
        source,
        deck,
        cards=cards,
        next=next,
        slices=slices,
        complete=named,
        unit=unit,
        distinct=distinct,
        checks=checks,
        version=version,
        **_read(**reading),
    )
    decks = made if isinstance(made, list) else [made]
    if json:
        found = [{"deck": each.location, "cards": each.cards.stop, "left": each.left} for each in decks]
        show_json(name=decks[0].name, rows=len(decks[0]), kept_for_checks=decks[0].kept_count, decks=found)
        return
    for each in decks:
        say(f"{each.location.name}: {each.cards.stop:,} cards from {each.schema.units_of(len(each))}", bold=True)
    if decks[0].kept_count:
        note(f"{decks[0].kept_count:,} of them are on no card: they check guesses (holdfast ask ... --kind check).")
    note(f"Ask it like any file: holdfast ask {decks[0].location.name} ... The ledger is stored beside it.")
    note("From now on, ask the deck and not the table: nobody would notice a second ledger.")


def deck(
    deck: Annotated[str, Argument(metavar="DECK", help="A deck, for example events.deck.")],
    ledger: Annotated[str | None, Flag(help="A path or a database URL, if it is not beside the deck.")] = None,
    json: Json = False,
) -> None:
    """Show how many cards of a deck are left, and for how many answers.

    Spends nothing. The number of answers is known once the ledger has begun: its plan says how many rows an answer
    reads.

    \b
    holdfast deck events.deck
    """
    from holdfast.ledger import Cost, exists
    from holdfast.rows.decks.cards import cards_taken
    from holdfast.rows.decks.deck import Deck, is_deck
    from holdfast.session.beside import ledger_beside
    from holdfast.session.session import Session

    if not is_deck(Path(deck)):
        raise InvalidArgument(f"deck must be a deck that `holdfast deal` made; got {deck!r}.", name="deck")
    cards = Deck(Path(deck))
    place = ledger or ledger_beside(cards)
    answers = None
    if exists(place, cards.name):
        with Session(cards, ledger=place) as session:
            left = max(0, cards.cards.stop - cards_taken(session.plan, session.ledger.taken))
            answers = left // cards_taken(session.plan, Cost(session.plan.terms.charge_per_answer, 1))
    else:
        left = cards.left
    cards.close()
    if json:
        counted = {"rows": len(cards), "kept_for_checks": cards.kept_count, "cards": cards.cards.stop, "left": left}
        show_json(name=cards.name, **counted, answers_left=answers)
        return
    say(
        f"{cards.name}: {left:,} of {cards.cards.stop:,} cards left, from {cards.schema.units_of(len(cards))}",
        bold=True,
    )
    if cards.kept_count:
        say(f"{cards.kept_count:,} of them are on no card and check guesses")
    if answers is not None:
        say(f"enough for {answers:,} more answers as planned")


def hold_back(
    data: Data,
    explore: Annotated[float, Flag(help="The share of rows to look at.")] = 0.5,
    id: Annotated[
        str | None, Flag(metavar="A,B", help="Columns that name rows; they are left out of the held part.")
    ] = None,
    confidence: Confidence = None,
    ledger: Ledger = None,
    unit: Unit = None,
    json: Json = False,
) -> None:
    """Split a file: rows to look at, and rows held back to check what was found.

    Chance decides which rows go where. The rows to look at become a Parquet file; the others become a folder that tells
    whether guesses hold, with an interval, and nothing else. A file is split only once: the same command again shows
    the same two parts.

    \b
    holdfast hold-back flights.parquet
    holdfast hold-back flights.parquet --explore 0.3 --id flight_id
    holdfast ask flights.held.holdfast "dep_delay > 15" --kind check
    """
    from holdfast.session.parts import hold_back, part_paths

    there = part_paths(Path(data))[0].exists()
    with noting_warnings() as notes:
        names = () if id is None else id.split(",")  # "" is the name that pandas gives its index in a file
        frame, session = hold_back(data, explore, id=names, confidence=confidence, ledger=ledger, unit=unit)
    with session:
        (shown, held), place = part_paths(Path(data)), session.ledger.location
        if json:
            rows = {"explore": frame.height, "held": session.plan.rows}
            show_json(explore=shown, held=held, ledger=place, rows=rows, plan=session.plan.to_dict(), notes=notes)
            return
        show_notes(notes)
        if there:
            note("These rows were split before: the two parts are the same, and the ledger goes on.")
        say(f"{frame.height:,} rows to look at: {shown}", bold=True)
        say(f"{session.plan.rows:,} rows kept aside: {held}", bold=True)
        say(f"The plan: {session.plan.sentence}")
        say(f'Check what you find: holdfast ask {held} "a condition" --kind check')
        both = [str(path) for path in (Path(data), Path(f"{data}.holdfast")) if path.exists()]
        keep = "contains both parts: keep it" if len(both) == 1 else "contain both parts: keep them"
        note(f"ledger {place}; {' and '.join(both)} {keep} away from the analysts")


def plan(
    data: Annotated[
        str | None, Argument(metavar="DATA", help="A table whose rows are counted, in place of --rows: as for open.")
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
