"""`holdfast history`."""

from typing import Annotated

from holdfast.cli.command import Flag
from holdfast.cli.options import Data, Json, Ledger, looking, nothing_asked
from holdfast.cli.output import say, show_json, table, written

NO_ARGS_IS_HELP = True


def command(
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
    from holdfast.questions.answer import Estimate
    from holdfast.questions.history import history_frame

    with looking(data, ledger) as session:
        total = session.budget.answers_given
        entries = session.ledger.entries(max(1, total - limit + 1)) if total else []
        answers = history_frame(entries, session.plan.standing, session.registered).to_dicts()
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
        question = row["question"] + ("" if row["category"] is None else f" = {row['category']}")
        estimate = written(Estimate.from_json(row))
        listed = "" if row["registered"] is None else f"in {row['registered']}"
        lines.append((str(row["seq"]), when, who, question, *estimate, f"{row['rows_read']:,}", listed))
    headings = ("no.", "time (UTC)", "analyst", "question", "answer", "interval", "rows read", "registered")
    shown = 8 if any(line[-1] for line in lines) else 7
    table(headings[:shown], [line[:shown] for line in lines], right=(0, 4, 6))
    if total > limit:
        say(f"... the newest {limit:,} of {total:,} entries.")
