"""`holdfast restore`."""

from typing import TYPE_CHECKING, Annotated

from holdfast.cli.command import Argument, Flag
from holdfast.cli.options import Json, Ledger, Target, is_data
from holdfast.cli.output import say, show_json
from holdfast.errors import InvalidArgument, MissingExtra

if TYPE_CHECKING:
    from holdfast.ledger import Witness

NO_ARGS_IS_HELP = True


def command(
    backup: Annotated[str, Argument(metavar="BACKUP", help="A file that `holdfast backup` wrote.")],
    target: Target,
    ledger: Ledger = None,
    database: Annotated[
        str | None,
        Flag(metavar="URL", help="The token database of a server that served the data: it remembers more."),
    ] = None,
    json: Json = False,
) -> None:
    """Restore a ledger from a backup; what was spent since stays spent.

    Answers given after the backup are lost, but their cost is not refunded: a file beside the data, and a server's
    database, remember how far the ledger had advanced. Give the data, so that this file is found.

    \b
    holdfast restore /backup/flights.ledger flights.parquet
    holdfast restore /backup/flights.ledger flights.parquet --ledger postgresql://host/db
    """
    from holdfast.ledger.backup import restore

    place, fingerprint, witnesses = ledger or target, None, list["Witness"]()
    if is_data(target):
        from holdfast.rows.open import open_rows
        from holdfast.session.beside import ledger_beside, witnesses_of_a_restore

        rows = open_rows(target)
        place, fingerprint = ledger or str(ledger_beside(rows)), rows.fingerprint
        witnesses = witnesses_of_a_restore(rows)
        if database is not None:
            witnesses.append(_server(database, fingerprint))
    elif ledger is not None or database is not None:
        raise InvalidArgument("--ledger and --database go with data: give the data, not the ledger.", name="target")
    done = restore(backup, place, fingerprint=fingerprint, witnesses=witnesses)
    if json:
        show_json(**done.to_dict())
        return
    for line in done.sentences():
        say(line)


def _server(database: str, fingerprint: str) -> "Witness":
    from holdfast.ledger import content_of

    try:
        from holdfast.service.database import DatabaseWitness, TokenDatabase
    except ModuleNotFoundError as error:
        message = f"A server's database needs {error.name}. Install it with: pip install 'holdfast[server]'."
        raise MissingExtra(message, extra="server") from error
    return DatabaseWitness(TokenDatabase(database), content_of(fingerprint))
