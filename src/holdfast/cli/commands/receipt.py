"""`holdfast receipt`."""

import json as to_json
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.options import Data, Json, LedgerOption
from holdfast.cli.output import note, say, show_json

NO_ARGS_IS_HELP = True


def command(
    data: Data,
    seq: Annotated[int, typer.Argument(help="The number of the answer, as history shows it.", min=0)],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write it to this file.")] = None,
    ledger: LedgerOption = None,
    json: Json = False,
) -> None:
    """Prove that an answer is in the ledger.

    Anyone can check the receipt, without data or ledger, against a head published earlier.

    \b
    holdfast receipt flights.parquet 17 -o r.json
    holdfast verify --receipt r.json --head HASH       HASH: the ledger's head, as published
    """
    from holdfast.cli.opening import standing
    from holdfast.errors import InvalidArgument

    with standing(data, ledger) as session:
        proof = session.receipt(seq)
    if output is not None:
        try:
            output.write_text(to_json.dumps(proof.to_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        except OSError as problem:
            raise InvalidArgument(f"output must be a file that can be written; got {str(output)!r}.") from problem
    if json:
        show_json(receipt=proof.to_dict(), output=output)
    elif output is None:
        say(to_json.dumps(proof.to_dict(), indent=1, ensure_ascii=False))
    else:
        say(f"Receipt of answer {seq} under head {proof.head.hash} (no. {proof.head.seq}): {output}")
        note("Publish the head where it cannot be changed; the receipt leads to it.")
