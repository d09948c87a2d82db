"""`holdfast verify`."""

import json as to_json
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.options import Json, LedgerOption
from holdfast.cli.output import say, show_json

NO_ARGS_IS_HELP = True


def command(
    target: Annotated[str | None, typer.Argument(metavar="[DATA|LEDGER]", help="A dataset, or a ledger alone.")] = None,
    head: Annotated[str | None, typer.Option("--head", help="A head published earlier; it must be there.")] = None,
    receipt: Annotated[Path | None, typer.Option("--receipt", help="Check this receipt against --head.")] = None,
    data: Annotated[bool, typer.Option("--data", help="Also read and hash all the data again.")] = False,
    ledger: LedgerOption = None,
    dataset: Annotated[str | None, typer.Option("--dataset", help="Which dataset, in a database with several.")] = None,
    json: Json = False,
) -> None:
    """Re-check a ledger, its data, or a receipt.

    \b
    holdfast verify flights.parquet                    the ledger, and that it belongs to this data
    holdfast verify flights.parquet --data             and that no value of the data has changed
    holdfast verify flights.ledger --head HASH         the ledger alone; HASH must be in it
    holdfast verify --receipt r.json --head HASH       one answer, without ledger or data
    """
    from holdfast.errors import InvalidArgument

    checked: dict[str, Any] = {}
    if receipt is not None:
        if head is None:
            raise InvalidArgument("A receipt needs the published head: add --head HASH.", name="head")
        checked |= _receipt(receipt, head)
    elif target is None:
        raise InvalidArgument("Say what to verify: a dataset, a ledger, or --receipt FILE --head HASH.", name="target")
    if target is not None:
        from holdfast.rows.ingest import FORMATS

        is_data = "://" not in target and (Path(target).is_dir() or Path(target).suffix.lower() in FORMATS)
        if data and not is_data:
            raise InvalidArgument("--data needs the data: give the dataset instead of its ledger.", name="data")
        checked |= _with_data(target, ledger, head, rehash=data) if is_data else _alone(target, dataset, head)
    if json:
        show_json(**checked)
        return
    for line in checked["checks"]:
        say(line)


def _receipt(path: Path, head: str) -> dict[str, Any]:
    from holdfast.errors import InvalidArgument
    from holdfast.ledger import Receipt, check_receipt

    try:
        proof = Receipt.from_dict(to_json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as problem:
        if isinstance(problem, InvalidArgument):
            raise
        raise InvalidArgument(
            f"receipt must be a JSON file that `holdfast receipt` wrote; got {str(path)!r}.", name="receipt"
        ) from problem
    check_receipt(proof, head)
    body = to_json.loads(proof.body)
    said = {name: body.get(name) for name in ("time", "analyst", "question", "answer")}
    question = (said["question"] or {}).get("text", "the plan")
    line = f"The receipt leads to this head: entry {proof.seq} ({question}) says {said['answer']}."
    return {"entry": {"seq": proof.seq} | said, "checks": [line]}


def _with_data(target: str, ledger: str | None, head: str | None, *, rehash: bool) -> dict[str, Any]:
    from holdfast.cli.opening import standing

    with standing(target, ledger) as session:
        found = session.ledger.verify(head)
        checks = [_intact(found, session.ledger.location), "It belongs to this data: the fingerprints are the same."]
        if head is not None:
            checks.append("The published head is in it.")
        if rehash:
            session.verify_data()
            checks.append(f"All {session.plan.rows:,} rows were read again: they have that fingerprint.")
        return {"head": {"seq": found.seq, "hash": found.hash}, "checks": checks}


def _alone(target: str, dataset: str | None, head: str | None) -> dict[str, Any]:
    from holdfast.ledger import audit

    genesis, found, location = audit(target, dataset=dataset, head=head)
    checks = [_intact(found, location), f"It is the ledger of {genesis['dataset']!r}, data {genesis['fingerprint']}."]
    if head is not None:
        checks.append("The published head is in it.")
    return {"head": {"seq": found.seq, "hash": found.hash}, "checks": checks}


def _intact(found: Any, location: str) -> str:
    return f"Ledger {location} is intact: entries 0 to {found.seq}, head {found.hash}."
