"""`holdfast receipt`."""

import json as jsonlib
from pathlib import Path
from typing import Annotated

from holdfast.cli.command import Argument, Flag
from holdfast.cli.options import Data, Json, Ledger, looking, nothing_asked
from holdfast.cli.output import note, say, show_json
from holdfast.errors import InvalidArgument, UnknownName

NO_ARGS_IS_HELP = True


def command(
    data: Data,
    seq: Annotated[
        int, Argument(metavar="NUMBER", help="The number of the answer, as `holdfast history` shows it.", least=0)
    ],
    output: Annotated[Path | None, Flag("--output", "-o", help="Write it to this file.")] = None,
    ledger: Ledger = None,
    json: Json = False,
) -> None:
    """Prove that an answer is in the ledger.

    Anyone can check the receipt against a published head, without the data or the ledger.

    \b
    holdfast receipt flights.parquet 17 -o r.json
    holdfast verify --receipt r.json --head HASH       HASH: the ledger's head, as published
    """
    with looking(data, ledger) as session:
        if not session.ledger.begun:
            raise UnknownName(f"No answer {seq}. {nothing_asked(session)}", name=seq)
        proof = session.receipt(seq)
    text = jsonlib.dumps(proof.to_dict(), indent=1, ensure_ascii=False)
    if output is not None:
        try:
            output.write_text(f"{text}\n", encoding="utf-8")
        except OSError as problem:
            message = f"--output must be a file that can be written; got {str(output)!r}."
            raise InvalidArgument(message, name="output") from problem
    if json:
        show_json(receipt=proof.to_dict(), output=output)
    elif output is None:
        say(text)
    else:
        say(f"Receipt of answer {seq}, under head {proof.head.hash} (no. {proof.head.seq}): {output}")
        note("Publish the head where nobody can change it: the receipt can then be checked against it.")
