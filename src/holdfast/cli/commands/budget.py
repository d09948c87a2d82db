"""`holdfast budget`."""

from holdfast.cli.options import Data, Json, LedgerOption
from holdfast.cli.output import say, show_json

NO_ARGS_IS_HELP = True


def command(data: Data, ledger: LedgerOption = None, json: Json = False) -> None:
    """Say what is left to ask.

    One budget for everyone who uses this ledger.

    \b
    holdfast budget flights.parquet
    holdfast budget flights.parquet --ledger postgresql+psycopg://host/db
    """
    from holdfast.cli.opening import standing
    from holdfast.planning.present import sentence

    with standing(data, ledger) as session:
        left = session.budget
        if json:
            show_json(budget=left.to_dict(), plan=session.plan.to_dict(), ledger=session.ledger.location)
            return
        say(f"{left}", bold=True)
        spent = f"{left.flips_spent:,} of {left.flips_total:,} {left.unit} spent"
        say(f"{left.answers:,} answers given, {spent}; ledger {session.ledger.location}")
        say(f"The plan: {sentence(session.plan)}")
