"""`holdfast restore`."""

from typing import Annotated

import typer

from holdfast.cli.options import Json, Ledger, Target, is_data
from holdfast.cli.output import say, show_json
from holdfast.errors import MissingExtra

NO_ARGS_IS_HELP = True


def command(
    backup: Annotated[str, typer.Argument(metavar="BACKUP", help="A file that `holdfast backup` wrote.")],
    target: Target,
    ledger: Ledger = None,
    database: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A server's token database, if it served the data: it has seen more."),
    ] = None,
    json: Json = False,
) -> None:
    """Put a ledger back from a backup; what was spent since stays spent.

    Answers given after the backup are lost, their cost is not: the file beside the data, and a server's database,
    remember how far the ledger had come. The restored ledger records what was lost.

    \b
    holdfast restore /backup/flights.ledger flights.parquet
    holdfast restore /backup/flights.ledger flights.parquet --ledger postgresql://host/db
    """
    from holdfast.ledger import Witness, restore

    content, witnesses, place = None, list[Witness](), ledger or target
    if is_data(target):
        from holdfast.rows.open import open_rows
        from holdfast.session import ledger_beside, witnesses_beside

        rows = open_rows(target)
        content, witnesses = rows.fingerprint, witnesses_beside(rows)
        place = ledger or str(ledger_beside(rows))
        if database is not None:
            witnesses.append(_server(database, content))
    done = restore(backup, place, content=content, witnesses=witnesses)
    if json:
        show_json(**done.to_dict())
        return
    for line in done.sentences():
        say(line)
