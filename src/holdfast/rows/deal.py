"""`holdfast.deal`: one pass over a table of any size gives a deck, whose cards are the draws of all questions to come.

    deal      every chunk of rows gives its cards (`cards`): here, or where an engine has the rows
    sort      by place, in bounded memory (`sorting`)
    write     as columns; the manifest last, everything durable; then it is renamed: a deck opens whole or not at all

The secret that places come from is made anew for every deal, and forgotten when the deck is there.
"""

import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, suppress
from hashlib import sha256
from pathlib import Path

import polars as pl

from holdfast import check
from holdfast.errors import InvalidArgument, RowSourceError
from holdfast.randomness import keyed_generator
from holdfast.rows.cards import PLACES, RESERVED, Content, Dealer, rate_for
from holdfast.rows.deck import Deck, deals_in
from holdfast.rows.engines import ENGINES, Task, split_summaries
from holdfast.rows.folder import Dealt, Manifest
from holdfast.rows.ingest import _fill, locked_partial, reported, swap_in, vouch
from holdfast.rows.open import dialect_of, find_scan
from holdfast.rows.scans.files import Dialect
from holdfast.rows.scans.scan import Origin, Scan
from holdfast.rows.sorting import Runs
from holdfast.rows.source import Table

MOST_CARDS = 10**13
MOST_SLICES = 1_000


def deal(
    source: Table,
    deck: str | Path,
    *,
    cards: float,
    next: bool = False,
    slices: int = 1,
    engine: str | None = None,
    scratch: str | None = None,
    name: str | None = None,
    complete: Collection[str] = (),
    types: Mapping[str, str] | None = None,
    separator: str | None = None,
    encoding: str = "utf-8",
    null_values: Collection[str] = (),
    version: int | None = None,
    progress: bool | None = None,
) -> Deck | list[Deck]:
    """Deal a deck from a table: read it once, and write random draws in the order in which questions will use them.

    Parameters
    ----------
    source
        What holds the table, as for `open`; for an engine, a data frame of Spark or a dataset of Ray.
    deck
        The folder to make, for example "events.deck".
    cards
        How many draws. One for every unit of the budget is enough: questions times rows that an answer reads.
    next
        Deal more cards into a deck that is there, to go on with when it is used up. The table must be the same.
    slices
        Deal so many decks at once, each with this many cards, for as many machines that share one ledger: they are
        called `events-1-of-4.deck` and so on.
    engine
        "spark" or "ray": who reads the table. Left out: this process.
    scratch
        Where an engine writes cards that are not sorted yet: a folder or an address that all its workers reach. Left
        out: beside the deck.
    name
        What the dataset is called; left out: the name of the deck.
    complete, types, separator, encoding, null_values, version, progress
        As for `open`.

    Returns
    -------
    Deck
        To be given to `Session`; a list of them if there are several slices.
    """
    count = _cards(cards)
    check.whole(slices=slices)
    check.at_most("the most slices", MOST_SLICES, slices=slices)
    paths = _paths(Path(deck), slices)
    dataset = name or _name(paths[0]) or Path(deck).name.removesuffix(".deck")
    scan = _scan(source, engine, dialect_of(types, separator, encoding, null_values), version)
    try:
        scan.open()
        reserved = next_reserved(scan.columns)
        if reserved is not None:
            raise RowSourceError(f"Column {reserved!r} has a name that decks use themselves; rename it.")
        for path in paths:
            _first(path, next)  # refuses
        try:
            with ExitStack() as locks:
                # Whoever else deals into one of these decks waits, and then finds what was dealt.
                work, *_ = [locks.enter_context(locked_partial(path / "deal")) for path in paths]
                firsts = [_first(path, next) for path in paths]
                declared = {*complete, *_complete(paths[0])}
                _deal(scan, work, paths, firsts, count, Origin(dataset, ""), declared, progress, engine, scratch)
        finally:
            for path in paths:
                with suppress(OSError):
                    path.rmdir()  # if nothing came of it
    finally:
        scan.close()
    made = [Deck(path, name=name) for path in paths]
    return made if slices > 1 else made[0]


def _deal(
    scan: Scan,
    work: Path,
    paths: list[Path],
    firsts: list[int],
    count: int,
    origin: Origin,
    complete: Collection[str],
    progress: bool | None,
    engine: str | None,
    scratch: str | None,
) -> None:
    targets = [path / f"{_number(path):04d}" for path in paths]
    (work / "runs").mkdir()
    runs = Runs(work / "runs")
    rows, batches = _counted(scan, work)
    secret, deck = secrets.token_bytes(32), secrets.token_hex(16)
    task = Task(secret, deck, len(paths) * rate_for(count, rows), scan.columns)
    before = scan.origin()
    with reported(f"Dealing {origin.name}", "rows", lambda: rows, progress) as advance:
        if engine is None:
            content = _deal_here(task, batches(), runs, advance)
        else:
            written = ENGINES[engine].deal(scan, task, scratch or str(work / "unsorted"))
            content = _take_over(written, task, runs, advance)
    if scan.origin() != before or content.rows != rows:
        raise RowSourceError(f"{scan.where or 'The table'} changed while it was dealt; deal it again.")
    _refuse_changed(paths, content)
    with reported(f"Sorting {origin.name}", "cards", lambda: runs.cards, progress) as advance:
        for i, (target, first) in enumerate(zip(targets, firsts, strict=True)):
            dealt = Dealt(rows, content.fingerprint(), first, f"{i + 1} of {len(paths)}")
            places = (PLACES * i // len(paths), PLACES * (i + 1) // len(paths))
            chance = keyed_generator(sha256(secret + f"equal places {i}".encode()).digest())
            ordered = runs.ordered(chance, advance, *places)
            _write(scan, _first_cards(ordered, count), target, work, origin, complete, dealt)


def _deal_here(task: Task, batches: Iterator[pl.DataFrame], runs: Runs, advance: Callable[[int], None]) -> Content:
    dealer = Dealer(task.secret, task.deck, "0", task.rate, task.columns)
    done = 0
    for cards in dealer.deal(batches):
        runs.add(cards)
        advance(dealer.content.rows - done)
        done = dealer.content.rows
    return dealer.content


def _take_over(written: Iterator[pl.DataFrame], task: Task, runs: Runs, advance: Callable[[int], None]) -> Content:
    content = Content(task.columns)
    for cards, rows in split_summaries(written, content, task.columns):
        runs.add(cards)
        advance(rows)
    return content


def _write(
    scan: Scan,
    cards: Iterator[pl.DataFrame],
    target: Path,
    work: Path,
    origin: Origin,
    complete: Collection[str],
    dealt: Dealt,
) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = work / target.parent.name
    partial.mkdir(mode=0o700)
    vouch(scan, origin, _fill(scan.columns, cards, partial), partial, complete, dealt)
    swap_in(scan.path, partial, target)


def _first_cards(ordered: Iterator[pl.DataFrame], count: int) -> Iterator[pl.DataFrame]:
    """Yield the cards with the smallest places."""
    for cards in ordered:
        yield cards.head(count)
        count -= min(count, cards.height)
    if count:  # by chance: less than once in 10^22 decks
        raise RowSourceError("Fewer cards came up than were asked for; deal again.")


def _counted(scan: Scan, work: Path) -> tuple[int, Callable[[], Iterator[pl.DataFrame]]]:
    """Return how many rows there are, and how to read them: a stream is written to disk first."""
    rows = scan.rows()
    if rows is None:
        rows = 0
        kept: list[Path] = []
        for batch in scan.batches():
            kept.append(work / f"{len(kept):06d}.rows")
            batch.write_ipc(kept[-1], compression="lz4")
            rows += batch.height

        def again() -> Iterator[pl.DataFrame]:
            for path in kept:
                yield pl.read_ipc(path)
                path.unlink()

        read: Callable[[], Iterator[pl.DataFrame]] = again
    else:
        read = scan.batches
    if rows == 0:
        raise RowSourceError(f"{scan.where or 'The table'} has no rows; holdfast needs at least one.")
    return rows, read


def _scan(source: object, engine: str | None, dialect: Dialect, version: int | None) -> Scan:
    if engine is not None:
        check.one_of("engine", engine, ENGINES.names())
        return ENGINES[engine].scan(source)
    scan = find_scan(source, dialect, version)
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


def _first(path: Path, next: bool) -> int:
    """Return how many cards a deck has; whether it may be there is up to the caller."""
    there = deals_in(path)
    if there and not next:
        raise RowSourceError(f"{path} is there already; deal more cards into it with next=True, or name another.")
    if not there:
        if next:
            raise RowSourceError(f"{path} is no deck yet; leave next out to deal its first cards.")
        return 0
    last = Manifest.read(there[-1])
    assert last.dealt is not None
    return last.dealt.first + last.rows


def _name(path: Path) -> str | None:
    """Return what the dataset of a deck is called, if it is there."""
    return next((Manifest.read(each).source.name for each in deals_in(path)), None)


def _number(path: Path) -> int:
    """Return the number of the next deal; earlier ones may have been removed."""
    return max((int(each.name) for each in deals_in(path)), default=0) + 1


def _complete(path: Path) -> list[str]:
    """Return what was declared complete when the first cards of a deck were dealt, or since."""
    return [entry.name for each in deals_in(path)[:1] for entry in Manifest.read(each).columns if not entry.nullable]


def _refuse_changed(paths: list[Path], content: Content) -> None:
    for path in paths:
        for folder in deals_in(path)[:1]:
            dealt = Manifest.read(folder).dealt
            if dealt is not None and dealt.fingerprint != content.fingerprint():
                raise RowSourceError(
                    f"The table has changed since {path} was dealt: {content.rows:,} rows now, {dealt.rows:,} then, or"
                    " other values. A deck is of one table; deal another deck, with a ledger of its own."
                )


def next_reserved(columns: Collection[str]) -> str | None:
    """Return a column whose name is reserved."""
    return next((name for name in columns if name.startswith(RESERVED)), None)
