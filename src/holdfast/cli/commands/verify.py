"""`holdfast verify`."""

import json as jsonlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.cli.command import Argument, Flag
from holdfast.cli.options import Json, Ledger, is_data, looking, nothing_asked
from holdfast.cli.output import say, show_json
from holdfast.errors import InvalidArgument, UnknownName

if TYPE_CHECKING:
    from holdfast.ledger import Head

NO_ARGS_IS_HELP = True


def command(
    target: Annotated[str | None, Argument(metavar="DATA|LEDGER", help="A dataset, or a ledger alone.")] = None,
    head: Annotated[str | None, Flag(help="A head published earlier, which the ledger must contain.")] = None,
    receipt: Annotated[Path | None, Flag(help="Check this receipt against --head.")] = None,
    ledger: Ledger = None,
    dataset: Annotated[str | None, Flag(help="Which dataset, in a database with several.")] = None,
    json: Json = False,
) -> None:
    """Check a ledger, its data, or a receipt.

    \b
    holdfast verify flights.parquet                    the ledger, that it belongs to this data, and all the data
    holdfast verify flights.ledger --head HASH         the ledger alone, which must contain HASH
    holdfast verify --receipt r.json --head HASH       one answer, without the ledger or the data
    """
    checked: dict[str, Any] = {}
    if receipt is not None:
        if head is None:
            raise InvalidArgument("A receipt needs the published head: add --head HASH.", name="head")
        checked |= _receipt(receipt, head)
    elif target is None:
        raise InvalidArgument("Say what to verify: a dataset, a ledger, or --receipt FILE --head HASH.", name="target")
    if target is not None:
        checked |= with_data(target, ledger, head) if is_data(target) else _alone(target, dataset, head)
    if json:
        show_json(**checked)
        return
    for line in checked["checks"]:
        say(line)


def _receipt(path: Path, head: str) -> dict[str, Any]:
    from holdfast.ledger import Receipt, check_receipt

    try:
        proof = Receipt.from_dict(jsonlib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as problem:
        if isinstance(problem, InvalidArgument):
            raise
        message = f"--receipt must be a JSON file that `holdfast receipt` wrote; got {str(path)!r}."
        raise InvalidArgument(message, name="receipt") from problem
    check_receipt(proof, head)
    body = jsonlib.loads(proof.body)
    entry = {name: body.get(name) for name in ("time", "analyst", "question", "answer")}
    question = (entry["question"] or {}).get("text", "the plan")
    line = f"The receipt leads to this head: entry {proof.seq} ({question}) is {entry['answer']}."
    return {"entry": {"seq": proof.seq} | entry, "checks": [line]}


def with_data(target: str, ledger: str | None, head: str | None) -> dict[str, Any]:
    """Check a ledger together with its data; return what was found, in words."""
    with looking(target, ledger) as session:
        location = session.ledger.location
        if session.ledger.begun:
            owner = "It belongs to this data: the fingerprints are the same."
            found = session.ledger.verify(head)
            checked = _consistent(found, location, owner, head, session.ledger.confirmed_by())
        elif ledger is not None or head is not None:  # the caller expects a ledger
            message = f"No ledger of {session.dataset!r} at {location}. If it was there before, restore it."
            raise UnknownName(message, name=session.dataset)
        else:
            nothing = f"{nothing_asked(session)} There is nothing to check at {location}."
            checked = {"head": None, "checks": [nothing]}
        session.verify_data()
        what = session.schema.units_of(session.plan.rows)
        again = f"All {what} were read again: they are what was written, with its fingerprint."
        checked["checks"].append(again)
        return checked


def _alone(target: str, dataset: str | None, head: str | None) -> dict[str, Any]:
    from holdfast.ledger import audit

    found = audit(target, dataset=dataset, head=head)
    owner = f"It is the ledger of {found.genesis['dataset']!r}."
    return _consistent(found.head, found.location, owner, head, found.confirmed_by)


def _consistent(
    found: "Head", location: str, owner: str, head: str | None, confirmed_by: Sequence[str]
) -> dict[str, Any]:
    """Return the findings: a ledger alone cannot show that nothing is missing at its end."""
    consistent = f"Ledger {location} is consistent: entries 0 to {found.seq}, head {found.hash}."
    published = [] if head is None else ["The published head is in it."]
    if confirmed_by:
        end = f"Nothing is missing at its end: this is the newest entry that {' and '.join(confirmed_by)} saw."
    elif found.hash == head:
        end = "Its newest entry is the published head: nothing is missing up to there."
    else:
        end = "Whether newer entries are missing at its end is not known: no witness was found that could tell."
    return {
        "head": {"seq": found.seq, "hash": found.hash},
        "complete": found.hash == head or bool(confirmed_by),
        "checks": [consistent, *published, end, owner],
    }
