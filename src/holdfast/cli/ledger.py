"""Commands about a ledger: budget, history, receipt, verify, backup, restore."""

import json as jsonlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.cli.options import (
    Argument,
    Data,
    Flag,
    Json,
    Ledger,
    Target,
    WhichDataset,
    is_data,
    ledger_file,
    looking,
    nothing_asked,
)
from holdfast.cli.output import note, say, show_json, table
from holdfast.errors import InvalidArgument, MissingExtra, UnknownName

if TYPE_CHECKING:
    from holdfast.guarantees.plan import Plan
    from holdfast.ledger import Head, Witness
    from holdfast.questions.budget import Budget


def budget(data: Data, ledger: Ledger = None, json: Json = False) -> None:
    """Show what is left to ask.

    Everyone who uses this ledger shares one budget. A ledger beside the data is read without opening the data.

    \b
    holdfast budget flights.parquet
    holdfast budget flights.parquet --ledger postgresql+psycopg://host/db
    """
    file = ledger_file(data) if ledger is None else None
    if file is not None:
        from holdfast.guarantees.plan import Plan
        from holdfast.ledger import audit
        from holdfast.questions.budget import Budget

        found = audit(file)
        plan = Plan.from_dict(found.genesis["terms"], location=f"The ledger {found.location}")
        _show_budget(Budget.of(plan.standing, found.spent, found.answered), plan, found.location, json=json)
        return
    with looking(data, ledger) as session:
        if session.ledger.begun:
            _show_budget(session.budget, session.plan, session.ledger.location, json=json)
        elif json:
            facts = {"ledger": session.ledger.location, "ledger_begun": False}
            show_json(budget=session.budget.to_dict(), plan=session.plan.to_dict(), **facts)
        else:
            say(nothing_asked(session), bold=True)
            say(f"Unless you choose another plan, it will be this one: {session.plan.sentence}")


def _show_budget(budget: "Budget", plan: "Plan", location: str, *, json: bool) -> None:
    if json:
        show_json(budget=budget.to_dict(), plan=plan.to_dict(), ledger=location, ledger_begun=True)
        return
    say(str(budget), bold=True)
    from holdfast.questions.budget import write_answers

    say(f"{write_answers(budget.answers_given)} given so far; ledger {location}")
    say(f"The plan: {plan.sentence}")


def history(
    data: Data,
    limit: Annotated[int, Flag(least=1, help="How many of the newest answers to show.")] = 20,
    ledger: Ledger = None,
    json: Json = False,
) -> None:
    """Show the answers given so far.

    Shows the answers of all analysts, the newest last.

    \b
    holdfast history flights.parquet
    holdfast history flights.parquet --limit 1000 --json
    """
    from holdfast.questions.estimate import Estimate, written
    from holdfast.questions.history import history_frame

    with looking(data, ledger) as session:
        total = session.budget.answers_given
        entries = session.ledger.entries(max(1, total - limit + 1)) if total else []
        answers = history_frame(entries, session.plan.standing, session.answering.registered).to_dicts()
        nothing = nothing_asked(session)
    if json:
        show_json(total=total, answers=answers)
        return
    if not total:
        say(nothing)
        return
    lines = []
    for row in answers:
        when, who = row["time"][:19].replace("T", " "), row["analyst"] or ""
        question = row["question"] + ("" if row["category"] is None else f": {row['category']}")
        value, interval = written(Estimate.from_json(row))
        listed = "" if row["registered"] is None else f"in {row['registered']}"
        lines.append(
            (str(row["seq"]), when, who, question, row["outcome"] or value, interval, f"{row['rows_read']:,}", listed)
        )
    headings = ("no.", "time (UTC)", "analyst", "question", "answer", "interval", "rows read", "registered")
    shown = 8 if any(line[-1] for line in lines) else 7
    table(headings[:shown], [line[:shown] for line in lines], right=(0, 4, 6))
    if total > limit:
        say(f"... the newest {limit:,} of {total:,} entries.")


def receipt(
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


def verify(
    target: Annotated[str | None, Argument(metavar="DATA|LEDGER", help="A dataset, or a ledger alone.")] = None,
    head: Annotated[str | None, Flag(help="A head published earlier, which the ledger must contain.")] = None,
    receipt: Annotated[Path | None, Flag(help="Check this receipt against --head.")] = None,
    ledger: Ledger = None,
    dataset: WhichDataset = None,
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
        checked |= _check_receipt(receipt, head)
    elif target is None:
        raise InvalidArgument("Say what to verify: a dataset, a ledger, or --receipt FILE --head HASH.", name="target")
    if target is not None:
        checked |= with_data(target, ledger, head) if is_data(target) else _alone(target, dataset, head)
    show_checks(checked, json=json)


def show_checks(checked: dict[str, Any], *, json: bool) -> None:
    """Show what was checked: sentences, or a JSON document with the facts as well."""
    if json:
        show_json(**checked)
        return
    for line in checked["checks"]:
        say(line)


def _check_receipt(path: Path, head: str) -> dict[str, Any]:
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


def backup(
    target: Target,
    to: Annotated[str, Argument(metavar="FILE", help="Where to put the copy; an older copy is replaced.")],
    ledger: Ledger = None,
    dataset: WhichDataset = None,
    json: Json = False,
) -> None:
    """Copy a ledger into one file, even while it is in use.

    The copy holds every answer and the ledger's secret: keep it as safe as the data.

    \b
    holdfast backup flights.parquet /backup/flights.ledger
    holdfast backup postgresql://host/db /backup/flights.ledger --dataset flights
    """
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


def restore(
    backup: Annotated[str, Argument(metavar="BACKUP", help="A file that `holdfast backup` wrote.")],
    target: Target,
    ledger: Ledger = None,
    database: Annotated[
        str | None, Flag(metavar="URL", help="The token database of a server that served the data: it remembers more.")
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
