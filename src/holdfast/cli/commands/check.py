"""`holdfast check`."""

from collections.abc import Mapping
from typing import Annotated, Any

import click

from holdfast.cli.command import Argument, Flag
from holdfast.cli.messages import noting_warnings
from holdfast.cli.options import Data, Json, Ledger, open_session, with_plan
from holdfast.cli.output import note, say, show_json, table, written

NO_ARGS_IS_HELP = True
BROKEN_CODE, OPEN_CODE = 20, 21  # above the exit codes of errors


@with_plan
def command(
    data: Data,
    expectations: Annotated[
        str, Argument(metavar="EXPECTATIONS", help="A YAML or JSON file with a list of expectations.")
    ],
    *,
    plan: Mapping[str, Any],
    ledger: Ledger = None,
    analyst: Annotated[str | None, Flag(help="Your name, to be kept in the ledger.")] = None,
    strict: Annotated[
        bool, Flag("--strict", help="Exit with code 21 if an interval leaves an expectation open.")
    ] = False,
    json: Json = False,
) -> None:
    """Check expectations about the population, for a build that should fail if one is broken.

    An expectation is kept if the whole interval is inside it, broken if the whole interval is outside, and open
    otherwise. The exit code is 0, or 20 if one is broken. All verdicts hold at once, and checking a list again is free.

    \b
    As in expectations.yml:
      - {query: dep_delay > 15, expect: {at_most: 0.3}}
      - {query: distance, within: [0, 5000], expect: {at_least: 900, at_most: 1200}}
    \b
    holdfast check flights.parquet expectations.yml
    """
    from pathlib import Path

    from holdfast.errors import InvalidArgument
    from holdfast.questions.batch import BROKEN, OPEN, judge, read_expectations, refuse_unreachable

    if not Path(expectations).is_file():
        raise InvalidArgument(
            f"There is no file {expectations!r} with expectations. To check one guess on rows that are kept aside:"
            f' holdfast ask {data} "{expectations}" --kind check',
            name="expectations",
        )
    requested = read_expectations(expectations)
    with noting_warnings() as notes:
        session = open_session(data, plan, ledger=ledger, analyst=analyst)
        with session:
            refuse_unreachable(requested, session.dry_run)
            verdicts = judge(requested, session.ask_many([dict(one.question) for one in requested]))
            budget, location = session.budget, session.ledger.location
    outcomes = [one.outcome for one in verdicts]
    if json:
        listed = [one.to_dict() for one in verdicts]
        show_json(expectations=listed, budget=budget.to_dict(), ledger=location, notes=notes)
    else:
        for sentence in notes:
            note(sentence)
        lines = [(one.outcome, one.question, one.expected, *written(one.estimate)) for one in verdicts]
        table(("", "question", "expected", "value", "interval"), lines, right=(3,))
        counts = ", ".join(f"{outcomes.count(name)} {name}" for name in dict.fromkeys(outcomes))
        say(f"{len(outcomes)} expectation{'' if len(outcomes) == 1 else 's'}: {counts}.", bold=True)
        note(f"{budget}; ledger {location}")
    if BROKEN in outcomes:
        raise click.exceptions.Exit(BROKEN_CODE)
    if strict and OPEN in outcomes:
        raise click.exceptions.Exit(OPEN_CODE)
