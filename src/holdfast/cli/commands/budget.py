"""`holdfast budget`."""

from holdfast.cli.options import Data, Json, Ledger, looking, nothing_asked
from holdfast.cli.output import say, show_json

NO_ARGS_IS_HELP = True


def command(data: Data, ledger: Ledger = None, json: Json = False) -> None:
    """Show what is left to ask.

    Everyone who uses this ledger shares one budget.

    \b
    holdfast budget flights.parquet
    holdfast budget flights.parquet --ledger postgresql+psycopg://host/db
    """
    with looking(data, ledger) as session:
        budget, plan, begun, location = session.budget, session.plan, session.ledger.begun, session.ledger.location
        if json:
            show_json(budget=budget.to_dict(), plan=plan.to_dict(), ledger=location, ledger_begun=begun)
            return
        if not begun:
            say(nothing_asked(session), bold=True)
            say(f"Unless you choose another plan, it will be this one: {plan.sentence}")
            return
        say(str(budget), bold=True)
        given = "1 answer" if budget.answers_given == 1 else f"{budget.answers_given:,} answers"
        say(f"{given} given so far; ledger {location}")
        say(f"The plan: {plan.sentence}")
