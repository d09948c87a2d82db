"""`holdfast batch`."""

from collections.abc import Mapping
from typing import Annotated, Any

from holdfast.cli.command import Argument, Flag
from holdfast.cli.messages import noting_warnings
from holdfast.cli.options import Data, Json, Ledger, open_session, with_plan
from holdfast.cli.output import note, say, show_json, table, written

NO_ARGS_IS_HELP = True


@with_plan
def command(
    data: Data,
    questions: Annotated[str, Argument(metavar="QUESTIONS", help="A YAML or JSON file with a list of questions.")],
    *,
    plan: Mapping[str, Any],
    ledger: Ledger = None,
    analyst: Annotated[str | None, Flag(help="Your name, to be kept in the ledger.")] = None,
    price: Annotated[bool, Flag("--price", help="Show what they would cost; spend nothing.")] = False,
    register: Annotated[bool, Flag("--register", help="Write the list into the ledger, and ask nothing yet.")] = False,
    json: Json = False,
) -> None:
    """Ask a list of questions at once, registered in the ledger before the first answer.

    All are checked and paid for together: either all are answered, or none. The history shows which questions were on a
    list before they were asked.

    \b
    A question is text, or has a kind and options, as in questions.yml:
      - dep_delay > 15
      - {query: distance, within: [0, 5000], where: carrier = 'UA'}
      - {kind: quantile, query: dep_delay, q: 0.9, within: [-60, 600]}
    \b
    holdfast batch flights.parquet questions.yml --price
    holdfast batch flights.parquet questions.yml
    """
    from holdfast.questions.batch import Questions

    listed = Questions.read(questions)
    with noting_warnings() as notes:
        session = open_session(data, plan, ledger=ledger, analyst=analyst)
        with session:
            prices = session.price_many(listed) if price else None
            registration = session.register(listed) if register and not price else None
            answers = session.ask_many(listed) if not price and not register else ()
            budget, begun, location = session.budget, session.ledger.begun, session.ledger.location
    if json:
        found = {"answers": [answer.to_dict() for answer in answers]}
        shown = {"price": prices.to_dict()} if prices else {"answer": registration.to_dict()} if registration else found
        show_json(**shown, budget=budget.to_dict(), ledger=location, ledger_begun=begun, notes=notes)
        return
    for sentence in notes:
        note(sentence)
    if price or register:
        say(str(prices) if price else repr(registration))
    else:
        lines = [
            (answer.question if label is None else f"{answer.question}: {label}", *written(estimate))
            for answer in answers
            for label, estimate in answer.rows()
        ]
        table(("question", "value", "interval"), lines, right=(1,))
    note(f"{budget}; ledger {location}" + ("" if begun else ", which begins with the first answer"))
