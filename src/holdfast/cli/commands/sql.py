"""`holdfast sql`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.cli.command import Argument, Flag
from holdfast.cli.messages import noting_warnings
from holdfast.cli.options import Data, Json, Ledger, open_session, with_plan
from holdfast.cli.output import note, say, show_json, table

if TYPE_CHECKING:
    import polars as pl

NO_ARGS_IS_HELP = True


@with_plan
def command(
    data: Data,
    statement: Annotated[str, Argument(metavar="SELECT", help="Aggregates over the data.")],
    *,
    plan: Mapping[str, Any],
    ledger: Ledger = None,
    analyst: Annotated[str | None, Flag(help="Your name, to be kept in the ledger.")] = None,
    price: Annotated[bool, Flag("--price", help="Show what it would cost; spend nothing.")] = False,
    json: Json = False,
) -> None:
    """Answer a SELECT of aggregates: a row for each group, and an interval for every value.

    Every aggregate is a separate question. Aggregates: AVG (also of a condition), COUNT, SUM, MEDIAN, QUANTILE, STDDEV,
    VARIANCE, CORR and COVAR_POP. The table's name is that of the file, without its extension. Declare the ranges of
    numbers and the groups of GROUP BY in a TOML file beside the data: flights.toml for flights.parquet.

    \b
    holdfast sql flights.parquet "SELECT AVG(dep_delay > 15) FROM flights WHERE month = 1"
    holdfast sql flights.parquet "SELECT carrier, AVG(dep_delay), COUNT(*) FROM flights GROUP BY carrier"
    """
    with noting_warnings() as notes:
        session = open_session(data, plan, ledger=ledger, analyst=analyst)
        with session:
            result = session.price_sql(statement) if price else session.sql(statement)
            budget, begun, location = session.budget, session.ledger.begun, session.ledger.location
    if json:
        shown = {"price": result.to_dict()} if price else {"columns": result.columns, "rows": result.rows()}  # type: ignore[union-attr]
        show_json(**shown, budget=budget.to_dict(), ledger=location, ledger_begun=begun, notes=notes)
        return
    for sentence in notes:
        note(sentence)
    if price:
        say(str(result))
    else:
        _show(result)  # type: ignore[arg-type]
    note(f"{budget}; ledger {location}" + ("" if begun else ", which begins with the first answer"))


def _show(frame: "pl.DataFrame") -> None:
    from holdfast.questions.sql import written_table

    headings, rows, numbers = written_table(frame)
    table(headings, rows, right=numbers)
