"""`holdfast open`."""

from typing import Annotated

from holdfast.cli.command import Flag
from holdfast.cli.messages import noting_warnings
from holdfast.cli.options import Data, Json, Unit
from holdfast.cli.output import note, say, show_json, table
from holdfast.errors import InvalidArgument

NO_ARGS_IS_HELP = True


def command(
    data: Data,
    folder: Annotated[str | None, Flag(help="Where to put the folder of columns.")] = None,
    complete: Annotated[
        str | None, Flag(metavar="A,B", help="Columns whose values are never missing; remembered.")
    ] = None,
    types: Annotated[
        str | None, Flag(metavar="A=number,B=text", help="Types of columns of a CSV file; remembered.")
    ] = None,
    unit: Unit = None,
    separator: Annotated[str | None, Flag(help="What separates the values of a CSV file, such as ';'.")] = None,
    encoding: Annotated[str, Flag(help="The encoding of a CSV file, such as latin-1.")] = "utf-8",
    null_values: Annotated[
        str | None, Flag(metavar="A,B", help="Texts of a CSV file that stand for missing values.")
    ] = None,
    decimal: Annotated[str, Flag(help="The decimal point of a CSV file: . or a comma.")] = ".",
    json: Json = False,
) -> None:
    """Show the columns that can be asked about.

    Spends nothing. The first time, the file is copied into a folder of columns beside it. A mean of a column that may
    have missing values costs 2 answers; of a column declared complete, 1. Bounds, categories and labels declared in a
    TOML file beside the data (flights.toml for flights.parquet) are shown, too.

    \b
    holdfast open flights.parquet
    holdfast open flights.parquet --complete distance,air_time
    holdfast open visits.parquet --unit patient
    holdfast open flights.csv --folder /fast/disk/flights.holdfast
    """
    from holdfast.ledger import exists
    from holdfast.rows.open import open_rows
    from holdfast.session.beside import declare, ledger_beside

    named = tuple(complete.split(",")) if complete else ()
    declared = dict(_pair(part) for part in types.split(",")) if types else None
    written = {
        "separator": separator,
        "encoding": encoding,
        "null_values": null_values.split(",") if null_values else (),
        "decimal": decimal,
    }
    with noting_warnings() as notes:
        rows = open_rows(data, folder=folder, complete=named, types=declared, unit=unit, **written)  # type: ignore[arg-type]
    schema, ledger = declare(rows), ledger_beside(rows)
    begun = exists(ledger, rows.name)
    if json:
        columns = [column.to_json() for column in schema]
        what = {"rows": len(rows), "unit": schema.unit, "columns": columns, "fingerprint": rows.fingerprint}
        show_json(name=rows.name, **what, folder=rows.location, ledger=ledger, ledger_begun=begun, notes=notes)
        return
    for sentence in notes:
        note(sentence)
    say(f"{rows.name}: {schema.units_of(len(rows))}, {len(schema)} columns", bold=True)
    lines = [(c.name, str(c.type), "possible" if c.nullable else "never", c.declared, c.label or "") for c in schema]
    used = [place for place in range(5) if place < 3 or any(line[place] for line in lines)]
    headings = ("column", "type", "missing values", "declared", "label")
    table([headings[place] for place in used], [[line[place] for place in used] for line in lines])
    say(f"\nfingerprint  {rows.fingerprint}")
    if rows.location is not None:
        say(f"columns      {rows.location}")
    say(f"ledger       {ledger or 'in memory'}{'' if begun else ' (begins with the first answer)'}")


def _pair(part: str) -> tuple[str, str]:
    name, equals, type_ = part.rpartition("=")
    if not equals:
        raise InvalidArgument(f"types must be like A=number,B=text; got {part!r}.", name="types")
    return name, type_
