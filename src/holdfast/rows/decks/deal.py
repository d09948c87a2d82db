"""`holdfast.deal`: one pass over a table of any size makes a deck, whose cards are the draws of all questions to come.

deal      draw the cards of every chunk of rows (`cards`): here, or where an engine has the rows
sort      by place, in bounded memory (`sorting`)
write     as columns, durably, the manifest last; then rename the folder: a deck is complete or not there at all
"""

from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from holdfast import check
from holdfast.errors import HoldfastError, InvalidArgument, RowSourceError
from holdfast.guarantees.request import PlanRequest
from holdfast.ledger.witness import BOARD, SPLIT
from holdfast.rows.decks.cards import MOST_RANGES, RESERVED, ROW
from holdfast.rows.decks.dealing import Job, first_card
from holdfast.rows.decks.dealt import note_deal
from holdfast.rows.decks.deck import Deck, deals_in, require_complete
from holdfast.rows.decks.sorting import MOST
from holdfast.rows.disk.folder import Manifest
from holdfast.rows.disk.ingest import unwritable
from holdfast.rows.disk.partial import locked_partial, partial_beside
from holdfast.rows.engines import ENGINES
from holdfast.rows.open import dialect_of, find_scan, is_own, known_ledger, unknown_path
from holdfast.rows.scans.scan import Origin, Scan
from holdfast.rows.scans.texts import Dialect
from holdfast.rows.source import Table
from holdfast.rows.units import check_unit
from holdfast.schema import Column, Schema

MOST_CARDS = MOST_RANGES * MOST
MOST_SLICES = 1_000
_WORK = "deal"  # what is under construction in a deck
_ALONE = {  # options that need one process that reads the whole table, and why
    "unit": "an engine deals each partition separately, while the rows of a unit may be in several",
    "distinct": "one process must read all rows to number them",
    "checks": "one process must count all rows to keep some of them",
}


@check.options
def deal(
    source: Table,
    deck: str | Path,
    *,
    cards: float,
    next: bool = False,
    slices: int = 1,
    unit: str | None = None,
    distinct: bool = False,
    checks: float | None = None,
    engine: str | None = None,
    scratch: str | None = None,
    name: str | None = None,
    complete: Collection[str] = (),
    types: Mapping[str, str] | None = None,
    separator: str | None = None,
    encoding: str = "utf-8",
    null_values: Collection[str] = (),
    decimal: str = ".",
    version: int | None = None,
    progress: bool | None = None,
) -> Deck | list[Deck]:
    """Deal a deck from a table: read it once, and write random draws in the order in which questions will use them.

    Parameters
    ----------
    source
        The table, as for `open`; for an engine, a data frame of Spark or a dataset of Ray.
    deck
        The folder to make, for example "events.deck".
    cards
        How many draws. One for every unit of the budget is enough: questions times the rows that an answer reads.
    next
        Deal more cards into an existing deck, for when its cards are used up. The table must be the same.
    slices
        Deal this many decks at once, each with `cards` cards, for as many machines that share one ledger. They are
        called `events-1-of-4.deck` and so on.
    unit
        The column that says which rows belong together, such as "patient": a card is then a unit with all its rows.
        Remembered.
    distinct
        Record on every card, in 8 bytes, which row it is a copy of, so that answers can be made from distinct rows, as
        mechanism="laplace" requires. Coins do not need it. Remembered.
    checks
        The share of rows, or units, that are on no card and only check guesses: a random set, stored in the deck. A
        session on the deck then has no end, and also says whether a guess holds. Remembered.
    engine
        "spark" or "ray": the engine that reads the table. By default this process.
    scratch
        Where an engine writes cards before they are sorted: a folder or an address that all its workers can reach. By
        default beside the deck.
    name
        The name of the dataset; by default the name of the deck.
    complete, types, separator, encoding, null_values, decimal, version, progress
        As for `open`.

    Returns
    -------
    Deck
        The deck, for `Session`; a list of them if there are several slices.
    """
    count = _cards(cards)
    if checks is not None:
        check.probability(checks=checks)
    check.whole(slices=slices)
    check.at_most("the most slices", MOST_SLICES, slices=slices)
    check.at_most("the most cards", MOST_CARDS, cards=count * slices)
    paths = _paths(Path(deck), slices)
    there = _first_cards(paths[0])
    dataset = name or (there.source.name if there else Path(deck).name.removesuffix(".deck"))
    if engine is not None:
        _refuse_engine(unit, distinct, checks, there)
    dialect = dialect_of(types=types, separator=separator, encoding=encoding, null_values=null_values, decimal=decimal)
    scan = _scan(source, engine, dialect, version)
    scan.unit = unit if there is None else there.unit
    try:
        scan.open()
        unit = _unit(unit, there, scan)
        distinct = _distinct(distinct, there)
        _refuse_checks(checks, there)
        if there is None and engine is None:
            _refuse_asked(scan)
        reserved = _reserved(scan.columns)
        if reserved is not None:
            raise RowSourceError(f"Column {reserved!r} has a name that decks use themselves; rename it.")
        begun = partial_beside(paths[0] / _WORK).exists()
        for path in paths if not begun else ():
            first_card(path, next)  # raises if the deck must not, or must, exist
            require_complete(path, complete)
        try:
            with ExitStack() as locks:
                # Another process that deals into one of these decks waits, and then finds what was dealt.
                work = locks.enter_context(locked_partial(paths[0] / _WORK, kept=True))
                for path in paths[1:]:
                    locks.enter_context(locked_partial(path / _WORK))
                declared = {*complete, *(each.name for each in (there.columns if there else ()) if not each.nullable)}
                note_deal(scan, paths)
                job = Job(scan, work, paths, count, Origin(dataset, ""), declared, progress, unit, distinct, checks)
                job.run(next, engine, scratch)
        except HoldfastError:
            raise
        except OSError as problem:
            raise unwritable(paths[0], problem, "Deal again where there is room: what was dealt is lost.") from None
        finally:
            for path in paths:
                with suppress(OSError):
                    path.rmdir()  # if nothing was dealt
    finally:
        scan.close()
    made = [Deck(path, name=name, complete=complete) for path in paths]  # including earlier cards
    return made if slices > 1 else made[0]


def _scan(source: object, engine: str | None, dialect: Dialect, version: int | None) -> Scan:
    if engine is not None:
        check.one_of("engine", engine, ENGINES.names())
        return ENGINES[engine].scan(source)
    scan = find_scan(source, dialect, version)
    if scan is None and isinstance(source, str | Path):
        if is_own(Path(source)):
            raise RowSourceError(f"{source} was written by holdfast; deal the table that it was made of.")
        raise unknown_path(source)
    if scan is None:
        raise InvalidArgument(
            "source must be files, a table in a lake or a database, or a stream; rows in memory need no deck.",
            name="source",
        )
    return scan


def _cards(cards: object) -> int:
    if isinstance(cards, float) and cards.is_integer():
        cards = int(cards)
    check.whole(cards=cards)
    check.at_most("the most cards", MOST_CARDS, cards=cards)
    assert isinstance(cards, int)
    return cards


def _paths(deck: Path, slices: int) -> list[Path]:
    if deck.suffix != ".deck":
        raise InvalidArgument(f"deck must end in .deck; got {deck.name!r}.", name="deck")
    if slices == 1:
        return [deck]
    return [deck.with_name(f"{deck.stem}-{i + 1}-of-{slices}.deck") for i in range(slices)]


def _first_cards(deck: Path) -> Manifest | None:
    """Return the manifest of the first cards of a deck; None if it has none yet."""
    return next((Manifest.read(each) for each in deals_in(deck)), None)


def _refuse_engine(unit: str | None, distinct: bool, checks: float | None, there: Manifest | None) -> None:
    """Refuse options that an engine cannot serve, whether given or remembered by the deck."""
    if there is not None and there.dealt is not None:
        unit, distinct, checks = unit or there.unit, distinct or _numbered(there), checks or there.dealt.kept or None
    asked = {"unit": unit is not None, "distinct": distinct, "checks": checks is not None}
    for name, why in _ALONE.items():
        if asked[name]:
            raise InvalidArgument(f"{name} must be left out with an engine: {why}. Leave engine out.", name=name)


def _unit(unit: str | None, there: Manifest | None, scan: Scan) -> str | None:
    """Return the unit: as given, or as for the first cards of the deck."""
    if there is not None:
        if unit not in (None, there.unit):
            dealt = "rows" if there.unit is None else f"units by {there.unit!r}"
            raise InvalidArgument(f"unit must be left out: the first cards of this deck are {dealt}.", name="unit")
        unit = there.unit
    if unit is None:
        return None
    columns = tuple(Column(name, storage.type, True) for name, storage in scan.columns.items())
    check_unit(unit, Schema(columns, scan.name))
    return unit


def _distinct(distinct: bool, there: Manifest | None) -> bool:
    """Return whether cards record which row they are copies of: as given, or as for the first cards of the deck."""
    numbered = distinct if there is None else _numbered(there)
    if distinct and not numbered:
        raise InvalidArgument(
            "distinct must be left out: the first cards of this deck do not say which row they are.", name="distinct"
        )
    return numbered


def _numbered(there: Manifest) -> bool:
    return any(entry.name == ROW for entry in there.columns)


def _refuse_checks(checks: float | None, there: Manifest | None) -> None:
    dealt = None if there is None or checks is None else there.dealt
    if dealt is not None and PlanRequest(checks=checks).kept(dealt.rows) != dealt.kept:
        raise InvalidArgument(
            "checks must be left out: which rows are kept for them was decided with the first cards of this deck.",
            name="checks",
        )


def _refuse_asked(scan: Scan) -> None:
    """Refuse a table that has answered questions itself, or was split, as far as the files beside it tell."""
    known = known_ledger(scan)
    if known is not None:
        used = not known.startswith((SPLIT, BOARD))
        fact = f"has answered questions already (ledger {known})" if used else f"was {known}"
        raise InvalidArgument(
            f"{scan.where} {fact}. A deck of the same rows would have a second ledger, and spend their budget twice. Go"
            " on as you began, or deal rows that nobody has asked, from a file of another name.",
            name="source",
        )


def _reserved(columns: Collection[str]) -> str | None:
    """Return a column whose name is reserved; None if there is none."""
    return next((name for name in columns if name.startswith(RESERVED)), None)
