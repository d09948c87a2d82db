"""`holdfast history`."""

from typing import Annotated

import typer

from holdfast.cli.options import Data, Json, LedgerOption
from holdfast.cli.output import say, show_json, table

NO_ARGS_IS_HELP = True


def command(
    data: Data,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many of the newest answers to show.")] = 20,
    ledger: LedgerOption = None,
    json: Json = False,
) -> None:
    """Show the answers given so far.

    Newest last, whoever asked.

    \b
    holdfast history flights.parquet
    holdfast history flights.parquet --limit 1000 --json
    """
    from holdfast.cli.opening import standing
    from holdfast.history import history_frame

    with standing(data, ledger) as session:
        total = session.ledger.head.seq
        frame = history_frame(session.ledger.entries(max(1, total - limit + 1)))
    if json:
        show_json(total=total, answers=frame.to_dicts())
        return
    rows = [
        (
            str(row["seq"]),
            row["time"][:19].replace("T", " "),
            row["analyst"] or "",
            row["question"] + (f" = {row['category']}" if row["category"] is not None else ""),
            f"{row['value']:.4g}",
            f"[{row['low']:.4g}, {row['high']:.4g}]",
            f"{row['rows_read']:,}",
        )
        for row in frame.to_dicts()
    ]
    table(("no.", "time (UTC)", "analyst", "question", "answer", "interval", "rows read"), rows, right=(0, 4, 6))
    if total > limit:
        say(f"... the newest {limit:,} of {total:,} answers.")
