"""`holdfast budget`."""

from typing import TYPE_CHECKING

from holdfast.cli.options import Data, Json, Ledger, ledger_file, looking, nothing_asked
from holdfast.cli.output import say, show_json

if TYPE_CHECKING:
    from holdfast.guarantees.plan import Plan
    from holdfast.questions.price import Budget

NO_ARGS_IS_HELP = True


def command(data: Data, ledger: Ledger = None, json: Json = False) -> None:
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
        from holdfast.questions.price import Budget

        found = audit(file)
        plan = Plan.from_dict(found.genesis["terms"], location=f"The ledger {found.location}")
        _show(Budget.of(plan.standing, found.spent, found.answered), plan, found.location, json=json)
        return
    with looking(data, ledger) as session:
        if session.ledger.begun:
            _show(session.budget, session.plan, session.ledger.location, json=json)
        elif json:
            facts = {"ledger": session.ledger.location, "ledger_begun": False}
            show_json(budget=session.budget.to_dict(), plan=session.plan.to_dict(), **facts)
        else:
            say(nothing_asked(session), bold=True)
            say(f"Unless you choose another plan, it will be this one: {session.plan.sentence}")


def _show(budget: "Budget", plan: "Plan", location: str, *, json: bool) -> None:
    if json:
        show_json(budget=budget.to_dict(), plan=plan.to_dict(), ledger=location, ledger_begun=True)
        return
    say(str(budget), bold=True)
    given = "1 answer" if budget.answers_given == 1 else f"{budget.answers_given:,} answers"
    say(f"{given} given so far; ledger {location}")
    say(f"The plan: {plan.sentence}")
