"""`holdfast backup`."""

from typing import Annotated

import typer

from holdfast.cli.options import Json, Ledger, Target, WhichDataset, ledger_of
from holdfast.cli.output import say, show_json

NO_ARGS_IS_HELP = True


def command(
    target: Target,
    to: Annotated[str, typer.Argument(metavar="FILE", help="The copy; replaced if it is an older one.")],
    ledger: Ledger = None,
    dataset: WhichDataset = None,
    json: Json = False,
) -> None:
    """Copy a ledger into one file, while it is in use.

    The copy holds the answers and the ledger's secret: keep it as safe as the data.

    \b
    holdfast backup flights.parquet /backup/flights.ledger
    holdfast backup postgresql://host/db /backup/flights.ledger --dataset flights
    """
    from holdfast.ledger import backup

    head = backup(ledger_of(target, ledger), to, dataset=dataset)
    if json:
        show_json(file=to, head={"seq": head.seq, "hash": head.hash})
        return
    say(f"Entries 0 to {head.seq} are in {to}, head {head.hash}.")
