"""`holdfast hold-back`."""

from typing import Annotated

from holdfast.cli.command import Flag
from holdfast.cli.messages import noting_warnings
from holdfast.cli.options import Confidence, Data, Json, Ledger, Unit
from holdfast.cli.output import note, say, show_json

NO_ARGS_IS_HELP = True


def command(
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
    whether guesses hold, with an interval, and nothing else. A file can be split only once.

    \b
    holdfast hold-back flights.parquet
    holdfast hold-back flights.parquet --explore 0.3 --id flight_id
    holdfast ask flights.held.holdfast "dep_delay > 15" --kind check
    """
    from pathlib import Path

    from holdfast.session.parts import hold_back, part_paths

    with noting_warnings() as notes:
        names = () if id is None else id.split(",")  # "" is the name that pandas gives its index in a file
        frame, session = hold_back(data, explore, id=names, confidence=confidence, ledger=ledger, unit=unit)
    with session:
        (shown, held), place = part_paths(Path(data)), session.ledger.location
        if json:
            rows = {"explore": frame.height, "held": session.plan.rows}
            show_json(explore=shown, held=held, ledger=place, rows=rows, plan=session.plan.to_dict(), notes=notes)
            return
        for sentence in notes:
            note(sentence)
        say(f"{frame.height:,} rows to look at: {shown}", bold=True)
        say(f"{session.plan.rows:,} rows kept aside: {held}", bold=True)
        say(f"The plan: {session.plan.sentence}")
        say(f'Check what you find: holdfast ask {held} "a condition" --kind check')
        both = [str(path) for path in (Path(data), Path(f"{data}.holdfast")) if path.exists()]
        keep = "contains both parts: keep it" if len(both) == 1 else "contain both parts: keep them"
        note(f"ledger {place}; {' and '.join(both)} {keep} away from the analysts")
