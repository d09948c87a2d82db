"""`holdfast ask`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.options import Confidence, Data, FlipsPlanned, Guarantee, Json, LedgerOption, Queries, planned
from holdfast.cli.output import SHORT_BAR, bar, note, noting_warnings, say, show_json, table

if TYPE_CHECKING:
    from holdfast.answer import AnyAnswer
    from holdfast.session import Session

NO_ARGS_IS_HELP = True


class Kind(StrEnum):
    """What can be asked for."""

    MEAN = "mean"
    HISTOGRAM = "histogram"
    QUANTILE = "quantile"
    FLIPS = "flips"


def command(
    data: Data,
    question: Annotated[str, typer.Argument(help='An expression about one row: "dep_delay > 15", "distance".')],
    within: Annotated[
        tuple[float, float] | None,
        typer.Option("--within", metavar="LO HI", help="The declared range of a number; values outside are clipped."),
    ] = None,
    where: Annotated[str | None, typer.Option("--where", help="Only rows of this group.")] = None,
    kind: Annotated[Kind, typer.Option("--kind", help="What to ask for.")] = Kind.MEAN,
    categories: Annotated[str | None, typer.Option("--categories", help="Of a histogram: A,B,C.")] = None,
    bins: Annotated[str | None, typer.Option("--bins", help="Edges of a histogram's bins: 0,15,60.")] = None,
    q: Annotated[float | None, typer.Option("--q", help="Of a quantile: 0.9.")] = None,
    count: Annotated[int | None, typer.Option("--count", help="How many flips; 1 if left out.")] = None,
    rows: Annotated[int | None, typer.Option("--rows", help="Rows to read for this one answer.")] = None,
    accuracy: Annotated[float | None, typer.Option("--accuracy", help="How accurate this one answer shall be.")] = None,
    queries: Queries = None,
    flips: FlipsPlanned = None,
    confidence: Confidence = None,
    guarantee: Guarantee = "best",
    ledger: LedgerOption = None,
    analyst: Annotated[str | None, typer.Option("--analyst", help="Who asks; kept in the ledger.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Answer from invented rows; spend nothing.")] = False,
    price: Annotated[bool, typer.Option("--price", help="Say what it would cost; spend nothing.")] = False,
    json: Json = False,
) -> None:
    """Ask one question.

    The answer is for the population the rows were drawn from, not for these rows alone.

    \b
    A share, a mean (its range is declared, never read from the data), a group:
      holdfast ask flights.parquet "dep_delay > 15"
      holdfast ask flights.parquet distance --within 0 5000
      holdfast ask flights.parquet distance --within 0 5000 --where "carrier = 'UA'"
    A histogram, a quantile:
      holdfast ask flights.parquet carrier --kind histogram --categories UA,AA,DL
      holdfast ask flights.parquet dep_delay --kind histogram --bins 0,15,60
      holdfast ask flights.parquet dep_delay --kind quantile --q 0.9 --within -60 600
    Look before paying:
      holdfast ask flights.parquet "dep_delay > 15" --price

    The first question begins the ledger. --queries, --flips, --confidence and --guarantee set its plan then; later
    they may be left out, and must agree if given. The same question again is free.
    """
    from holdfast.cli.opening import begun
    from holdfast.rows.open import open_rows
    from holdfast.session import Session

    source = open_rows(data)
    plan: dict[str, Any] = {"queries": planned(queries, flips), "confidence": confidence, "guarantee": guarantee}
    said = {"within": within, "where": where, "q": q, "count": count, "rows_per_query": rows, "accuracy": accuracy}

    def reply(session: Session, act: Callable[..., Any]) -> Any:
        return act(question, kind.value, **_options(session, kind, question, said, categories, bins))

    looking = price or dry_run
    with noting_warnings() as notes, ExitStack() as stack:
        first = not begun(source, ledger)
        where_to: str | Path | None = ledger
        if first:
            # The plan stands from the first question on: a slip in that, or a look at its price, must not begin it.
            where_to = Path(stack.enter_context(TemporaryDirectory())) / "trial.ledger"
        session = stack.enter_context(Session(source, **plan, ledger=where_to, analyst=analyst))
        if first and not looking and reply(session, session.price).affordable:
            session = stack.enter_context(Session(source, **plan, ledger=ledger, analyst=analyst))
        told = reply(session, session.price if price else session.dry_run if dry_run else session.ask)
        budget = session.budget
        location = "none yet" if first and looking else session.ledger.location
    notes = list(dict.fromkeys(notes))
    document = {"price" if price else "answer": told.to_dict()}
    if json:
        show_json(**document, budget=budget.to_dict(), ledger=location, notes=notes)
        return
    for sentence in notes:
        note(sentence)
    if price:
        say(str(told))
    else:
        _show(told)
    note(f"{budget}; ledger {location}")


def _options(
    session: Session, kind: Kind, question: str, given: dict[str, Any], categories: str | None, bins: str | None
) -> dict[str, Any]:
    """Keep what was said, read as the kind of question takes it."""
    from holdfast.errors import InvalidArgument

    options = {name: value for name, value in given.items() if value is not None}
    if categories is not None:
        options["categories"] = _categories(session, question, categories)
    if bins is not None:
        try:
            options["bins"] = [float(edge) for edge in bins.split(",")]
        except ValueError:
            raise InvalidArgument(f"bins must be numbers with commas between; got {bins!r}.", name="bins") from None
    if kind is Kind.QUANTILE and not {"q", "within"} <= options.keys():
        raise InvalidArgument("A quantile needs --q and --within LO HI.", name="q")
    if kind is Kind.FLIPS:
        options.setdefault("count", 1)
    return options


def _categories(session: Session, question: str, text: str) -> list[Any]:
    """Read categories as values of the expression's type; what cannot be read stays text, to be refused by name."""
    from holdfast.queries.build import rowwise
    from holdfast.schema import Type

    words = [word.strip() for word in text.split(",")]
    kind = rowwise(question, session.schema).type
    if kind is Type.BOOL:
        return [{"true": True, "false": False}.get(word.lower(), word) for word in words]
    if not kind.is_number:
        return words
    try:
        return [float(word) if kind is Type.FLOAT else int(word) for word in words]
    except ValueError:
        return words


def _show(answer: AnyAnswer) -> None:
    from holdfast.answer import Answer, FlipsAnswer, HistogramAnswer

    if isinstance(answer, HistogramAnswer):
        first = answer.answers[0][1]
        say(first.question, bold=True)
        rows = [
            (label, f"{each.value:.4f}", f"[{each.low:.4f}, {each.high:.4f}]", bar(each, SHORT_BAR))
            for label, each in answer.answers
        ]
        table(("category", "share", "interval", ""), rows, right=(1,))
        _small_print(first)
    elif isinstance(answer, FlipsAnswer):
        say("".join(map(str, answer.bits)), bold=True)
        _one(answer.average)
    elif isinstance(answer, Answer):
        say(answer.question, bold=True)
        _one(answer)


def _one(answer: Any) -> None:
    value, low, high = answer.rounded()
    say(f"{value}  [{low}, {high}]", bold=True)
    say(bar(answer))
    _small_print(answer)


def _small_print(answer: Any) -> None:
    if answer.made_up:
        say("Made up: nothing was read or spent.")
        return
    read = "asked before: free" if answer.cached else f"{answer.rows_read:,} rows read"
    percent = f"{100 * answer.confidence:g} %"
    say(f"{read}, {answer.guarantee} guarantee, {percent} for all answers at once, no. {answer.seq} in the ledger")
