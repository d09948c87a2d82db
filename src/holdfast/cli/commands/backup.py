"""`holdfast backup`."""

from typing import Annotated

from holdfast.cli.command import Argument
from holdfast.cli.options import Json, Ledger, Target, WhichDataset, is_data
from holdfast.cli.output import say, show_json
from holdfast.errors import InvalidArgument

NO_ARGS_IS_HELP = True


def command(
    target: Target,
    to: Annotated[str, Argument(metavar="FILE", help="Where to put the copy; an older copy is replaced.")],
    ledger: Ledger = None,
    dataset: WhichDataset = None,
    json: Json = False,
) -> None:
    """Copy a ledger into one file, also while it is in use.

    The copy holds every answer and the ledger's secret: keep it as safe as the data.

    \b
    holdfast backup flights.parquet /backup/flights.ledger
    holdfast backup postgresql://host/db /backup/flights.ledger --dataset flights
    """
    from pathlib import Path

    from holdfast.ledger.backup import backup

    folder = Path(to).absolute().parent
    if not folder.is_dir():
        raise InvalidArgument(f"FILE must be in a folder that is there; {folder} is not.", name="to")
    place = ledger or target
    if is_data(target):
        from holdfast.rows.open import open_rows
        from holdfast.session.beside import ledger_beside

        rows = open_rows(target)
        place, dataset = ledger or str(ledger_beside(rows)), dataset or rows.name
    elif ledger is not None:
        raise InvalidArgument("--ledger goes with data: give the data, or the ledger alone.", name="ledger")
    head = backup(place, to, dataset=dataset)
    if json:
        show_json(file=to, head={"seq": head.seq, "hash": head.hash})
        return
    say(f"Entries 0 to {head.seq} are in {to}, head {head.hash}.")
