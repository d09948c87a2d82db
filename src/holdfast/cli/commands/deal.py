"""`holdfast deal`."""

from typing import Annotated

from holdfast.cli.command import Argument, Flag
from holdfast.cli.options import Json, has_password
from holdfast.cli.output import note, say, show_json
from holdfast.errors import InvalidArgument

NO_ARGS_IS_HELP = True


def command(
    source: Annotated[str, Argument(metavar="SOURCE", help="Files, a table in a lake, or a database URL.")],
    deck: Annotated[str, Argument(metavar="DECK", help="The folder to make, for example events.deck.")],
    cards: Annotated[float, Flag(help="How many draws: questions times rows per answer.")],
    next: Annotated[bool, Flag("--next", help="Deal more cards into an existing deck.")] = False,
    slices: Annotated[int, Flag(help="How many decks to deal at once, one for each machine.")] = 1,
    complete: Annotated[
        str | None, Flag(metavar="A,B", help="Columns whose values are never missing; remembered.")
    ] = None,
    unit: Annotated[
        str | None, Flag(metavar="COLUMN", help="Rows that belong together, such as patient; remembered.")
    ] = None,
    distinct: Annotated[
        bool, Flag("--distinct", help="Record which row each card is: for noisy means of distinct rows.")
    ] = False,
    checks: Annotated[
        float | None, Flag(metavar="SHARE", help="Rows that only check guesses, such as 0.1; remembered.")
    ] = None,
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
