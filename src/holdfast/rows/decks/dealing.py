"""One deal, from a table to decks: keep some rows for checks, deal, sort, write; or resume an interrupted deal.

Every deal has a new secret, from which the places of cards are derived. It is stored beside the runs, so that the same
call resumes a deal that was interrupted or killed, and deals the same cards. It is forgotten when all cards are durable
and none has its final name yet: so a deck that opens has no secret beside it, whatever killed the deal.
"""

import secrets
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.errors import RowSourceError
from holdfast.guarantees.request import PlanRequest
from holdfast.rows.columns import TEXT, Storage, storage_named
from holdfast.rows.decks.cards import PLACE, ROW, Chance, chunk_for, rate_for
from holdfast.rows.decks.deck import KEPT, deals_in
from holdfast.rows.decks.placing import Placing
from holdfast.rows.decks.sorting import Block, Piece, Runs, block_for, ranges_for
from holdfast.rows.decks.supply import Chunk, Division, KeptRows, Supply, by_unit, counted, keep, put
from holdfast.rows.decks.threads import THREADS, ThreadPool, ahead
from holdfast.rows.disk.array_files import Incomplete
from holdfast.rows.disk.column_writer import ColumnFiles, NumberFiles, TextFiles, UnitFile
from holdfast.rows.disk.folder import Dealt, Manifest
from holdfast.rows.disk.ingest import Together, vouch
from holdfast.rows.disk.partial import Note, clear, reported, swap_in, sync
from holdfast.rows.engines import ENGINES, Task, split_summaries
from holdfast.rows.fingerprint import Coder, Joined, Part
from holdfast.rows.scans.scan import Origin, Scan

_FORMAT = 8  # the version of the dealing procedure: another one would deal other cards


@dataclass(frozen=True)
class Begun:
    """What is needed to resume a deal; `deck` is its public name.

    The secret is empty once all cards are durable: then they only have to be named.
    """

    deck: str
    secret: str = field(repr=False)
    ranges: int
    block: int
    chunk: int


class InOrder:
    """A file that records how many ranges of a deck have been put in order."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self) -> None:
        """Record that none are in order."""
        self._path.write_bytes(_twice(0))

    def read(self) -> int:
        """Return how many are in order; raise if the file does not say, since the deal cannot be resumed then."""
        found = self._path.read_bytes() if self._path.exists() else b""
        ranges = int.from_bytes(found[:8], "little")
        if found != _twice(ranges):
            raise Incomplete
        return ranges

    def note(self, ranges: int) -> None:
        """Record the number in one write."""
        with self._path.open("r+b", buffering=0) as file:
            file.write(_twice(ranges))


def _twice(ranges: int) -> bytes:
    return 2 * ranges.to_bytes(8, "little")


@dataclass(frozen=True)
class Job:
    """One deal: what is dealt, where it is worked on, and into which decks."""

    scan: Scan
    work: Path
    paths: list[Path]
    count: int
    origin: Origin
    complete: Collection[str]
    progress: bool | None
    unit: str | None = None  # the column that names units, if units are dealt
    distinct: bool = False  # whether cards record which row they are copies of
    checks: float | None = None  # the share that is kept for checks, if these are the first cards

    @property
    def columns(self) -> dict[str, Storage]:
        """The columns of cards: those of the table, and the number of the row if `distinct`."""
        return self.scan.columns | ({ROW: storage_named("int64")} if self.distinct else {})

    def run(self, next: bool, engine: str | None, scratch: str | None) -> None:
        """Deal, sort, write; or resume where an earlier call was interrupted."""
        before = self.scan.moment()
        asked = [self.count, len(self.paths), self.unit, self.distinct, self.checks]
        note = Note(self.work, self.scan, before, ["cards", _FORMAT, *asked])
        try:
            self._run(before, note, next, engine, scratch)
        except Incomplete:
            raise RowSourceError(
                "What an interrupted deal had left was incomplete or had been changed, so it is removed. Deal again."
            ) from None
        except BaseException:
            if engine is not None or note.read() is None:  # nobody could resume it
                shutil.rmtree(self.work, ignore_errors=True)
            raise

    def _run(self, before: str, note: Note, next: bool, engine: str | None, scratch: str | None) -> None:
        found = note.read() if engine is None else None
        begun = None if found is None else Begun(**found)
        message, known = "", note.known and engine is None
        if begun is not None and not begun.secret:
            firsts = self._firsts(begun, next)
            if all(self._first_written(path) == first for path, first in firsts.items()):
                self._name(firsts)
                return
            begun = None  # somebody dealt into one of the slices meanwhile
        if begun is None:
            if any(self.work.iterdir()):
                why = "it is not the same deal" if note.path.exists() else "no card had been dealt"
                why = why if known else "nobody can say whether the rows are still the same"
                message = f"An earlier, unfinished deal could not be resumed, since {why}: everything was dealt again."
            clear(self.work)
        firsts = self._firsts(begun, next)
        (self.work / "runs").mkdir(exist_ok=True)
        if self.unit is None:
            supply = counted(self.scan, self.work, self._reading)
        else:
            supply = by_unit(self.scan, self.work, self.unit, self._reading)
        if supply.rows == 0:
            raise RowSourceError(f"{self.scan.where or 'The table'} has no rows; holdfast needs at least one.")
        all_drawn, kept = supply.drawn, self._keep(supply)
        if kept is not None:
            supply = kept.division.others(supply, kept.rows)
        rate = len(self.paths) * rate_for(self.count, supply.drawn)
        with ExitStack() as stack:
            with reported(
                f"Dealing {self.origin.name}", "rows", lambda: supply.rows, self.progress, message, known
            ) as advance:
                if engine is None:
                    begun, runs = self._deal_here(begun, note, supply, rate, advance, stack)
                else:
                    begun, runs = self._deal_there(engine, note, scratch, rate, supply.rows, advance, stack)
            if self.scan.moment() != before or runs.content.rows != supply.rows:
                raise self._changed()
            fingerprint = runs.content.fingerprint() if kept is None else kept.fingerprint(runs.content, self.scan)
            order = "" if runs.order is None else runs.order.fingerprint()
            self._require_same(fingerprint, order)
            secret, per = bytes.fromhex(begun.secret), begun.ranges // len(self.paths)
            with reported(
                f"Sorting {self.origin.name}", "cards", lambda: runs.cards, self.progress, kept=known
            ) as advance:
                for i, path in enumerate(self.paths):
                    if path in firsts:
                        which = f"{i + 1} of {len(self.paths)}"
                        kept_count = 0 if kept is None else kept.division.kept
                        dealt = Dealt(all_drawn, fingerprint, firsts[path], which, begun.deck, kept_count, order)
                        if self._is_written(path, dealt):
                            advance(self.count)
                            continue
                        done = 0 if runs.placing is None else self._in_order(path).read()
                        with closing(runs.ordered(secret, advance, i * per, (i + 1) * per, done)) as ordered:
                            self._write(runs, ordered, path, dealt, done)
        self._forget(begun, note)
        self._name(firsts)

    def _firsts(self, begun: Begun | None, next: bool) -> dict[Path, int]:
        """Return the number of the first card in every deck, except those that this deal is already in."""
        return {
            path: first_card(path, next)
            for path in self.paths
            if begun is None or not any(_dealt(each).deal == begun.deck for each in deals_in(path))
        }

    def _deal_here(
        self,
        begun: Begun | None,
        note: Note,
        supply: Supply,
        rate: float,
        advance: Callable[[int], None],
        stack: ExitStack,
    ) -> tuple[Begun, Runs]:
        reading: Iterator[pl.DataFrame] | None = None
        if begun is None:
            reading = supply.read(0)
            first = next(reading)
            begun, reading = self._begin(note, first, supply, rate), chain([first], reading)
        runs, ranges = self._runs(begun, stack), begun.ranges
        chance = Chance.of(bytes.fromhex(begun.secret), begun.deck, "0", rate, begun.chunk)
        done = runs.content.rows
        if supply.unit is None:
            self._place(runs, chance, supply.rows)
        advance(done)

        def prepared(item: tuple[int, Chunk]) -> Piece:
            number, dealt = item
            chunk, lengths = dealt.numbered(ROW) if self.distinct else dealt.rows, dealt.lengths
            if lengths is None and chunk.height != min(chance.chunk, supply.rows - number * chance.chunk):
                raise self._changed()  # with other counts, these cards would overwrite other cards
            drawn = chance.ranged(number, chunk.height if lengths is None else lengths.size, ranges)
            return runs.prepare(runs.coder.parts(chunk), chunk.height, drawn, lengths)

        with closing(ahead(prepared, supply.chunks(chance.chunk, done, reading))) as pieces:
            for piece in pieces:
                runs.collect(piece)
                advance(piece.rows)
        runs.finish()
        return begun, runs

    def _deal_there(
        self,
        engine: str,
        note: Note,
        scratch: str | None,
        rate: float,
        rows: int,
        advance: Callable[[int], None],
        stack: ExitStack,
    ) -> tuple[Begun, Runs]:
        columns = self.scan.columns
        secret, deck = secrets.token_bytes(32), secrets.token_hex(16)
        out = f"{scratch.rstrip('/')}/{deck}" if scratch else str(self.work / "unsorted")
        written = ENGINES[engine].deal(self.scan, Task(secret, deck, rate, columns), out)
        runs = begun = None
        for cards, summary in split_summaries(written, columns):
            if begun is None or runs is None:
                begun = self._begin(note, cards, Supply(rows, rows, self.scan.batches), rate, secret, deck)
                runs = self._runs(begun, stack)
            places = cards[PLACE].to_numpy().view(np.uint64)
            runs.collect(runs.sort_in(runs.coder.parts(cards), places, *summary))
            advance(summary.rows)
        if begun is None or runs is None:
            raise RowSourceError(f"{self.scan.where} has no rows; holdfast needs at least one.")
        runs.finish()
        return begun, runs

    def _runs(self, begun: Begun, stack: ExitStack) -> Runs:
        runs = Runs(self.work / "runs", Coder(self.columns), begun.ranges, begun.block)
        stack.callback(runs.close)
        return runs

    def _place(self, runs: Runs, chance: Chance, rows: int) -> None:
        """Prepare `Placing` for numeric columns: how many cards each range has, and how many are already written."""
        done, all_chunks = runs.content.rows // chance.chunk, -(-rows // chance.chunk)
        folders = [self._partial(path) for path in self.paths]
        if runs.content.rows == rows:
            done = all_chunks
        sizes = chance.totals(all_chunks, rows, runs.ranges)
        filled = chance.totals(done, rows, runs.ranges)
        runs.placing = Placing(folders, self.columns, sizes, filled, self.count, runs.memory)
        if done == 0:
            runs.placing.begin()
            for path in self.paths:
                self._in_order(path).begin()
        elif done < all_chunks:
            runs.placing.go_on()

    def _partial(self, path: Path) -> Path:
        """Return the folder in which the columns of a deck are built."""
        return self.work / path.name

    def _in_order(self, path: Path) -> InOrder:
        return InOrder(self.work / f"{path.name}.in-order")

    def _changed(self) -> RowSourceError:
        return RowSourceError(f"{self.scan.where or 'The table'} changed while it was dealt; deal it again.")

    def _begin(
        self, note: Note, sample: pl.DataFrame, supply: Supply, rate: float, secret: bytes = b"", deck: str = ""
    ) -> Begun:
        block = max(1, block_for(sample) * supply.drawn // supply.rows)  # in cards: a unit may have several rows
        ranges = ranges_for(rate * supply.drawn, len(self.paths), block)
        deck, secret = deck or secrets.token_hex(16), secret or secrets.token_bytes(32)
        begun = Begun(deck, secret.hex(), ranges, block, chunk_for(sample, rate))
        note.write(asdict(begun))
        return begun

    def _write(self, runs: Runs, ordered: Iterator[Block], path: Path, dealt: Dealt, done: int) -> None:
        partial = self._partial(path)
        partial.mkdir(mode=0o700, exist_ok=True)
        columns: list[ColumnFiles] = []
        together = None
        if self.unit is not None:
            together = Together(self.unit, UnitFile(partial, len(self.columns)), [])
        try:
            sorted_ = {name: texts.sorted() for name, texts in runs.coder.texts.items()}
            for i, (name, storage) in enumerate(self.columns.items()):
                columns.append(
                    TextFiles(partial, i, name, storage, 2**32 if runs.is_coded(i) else 0, texts=len(sorted_[name][0]))
                    if storage is TEXT
                    else NumberFiles(partial, i, name, storage, over=runs.placing is not None)
                )
            with closing(ThreadPool(THREADS)) as threads:  # hashing takes as long as sorting
                for number, block in enumerate(_first_cards(ordered, self.count), 1):
                    threads.each(_append, columns, block.columns, repeat(sorted_))
                    if together is not None and block.lengths is not None:
                        together.starts.append(block.lengths)
                    if runs.placing is not None and number > done:
                        self._in_order(path).note(number)
                for column, missing in zip(columns, runs.missing, strict=True):
                    column.missing = missing
                    if isinstance(column, TextFiles) and column.layout == "coded":
                        column.take_dictionary(sorted_[column.digest.name][0])
                threads.each(lambda column: column.close(), columns)  # wait for the disk in parallel
            if together is not None:
                together.starts.close()
        finally:
            for column in columns:
                column.abandon()
            if together is not None:
                together.starts.abandon()
        vouch(self.scan, self.origin, columns, partial, self.complete, dealt, together)

    def _is_written(self, path: Path, dealt: Dealt) -> bool:
        """Whether an earlier process wrote these cards, all of them."""
        try:
            found = Manifest.read(self._partial(path))
        except RowSourceError:
            return False
        return (found.dealt, found.source) == (dealt, self.origin)

    def _first_written(self, path: Path) -> int:
        try:
            return _dealt(self._partial(path)).first
        except RowSourceError:
            raise Incomplete from None

    def _forget(self, begun: Begun, note: Note) -> None:
        """Forget the secret, and remove what is not part of the decks."""
        note.write(asdict(replace(begun, secret="")))
        sync(self.work)
        needed = {note.path, self.work / KEPT, *map(self._partial, self.paths)}
        for each in self.work.iterdir():
            if each not in needed:
                shutil.rmtree(each) if each.is_dir() else each.unlink()

    def _name(self, paths: Collection[Path]) -> None:
        """Give cards that are durable their final names: from then on, they are in the decks."""
        for path in paths:  # refuse before the first one has its name: who wrote them may have declared less
            found = Manifest.read(self._partial(path))
            declared = replace(found, source=self.origin).declared(self.complete)
            if declared != found:
                declared.write(self._partial(path))
        for path in paths:
            path.mkdir(parents=True, exist_ok=True)
            if _dealt(self._partial(path)).kept and not deals_in(path):
                put(self.work / KEPT, path / KEPT, self.scan.path)
            swap_in(self.scan.path, self._partial(path), path / f"{_number(path):04d}")

    def _keep(self, supply: Supply) -> KeptRows | None:
        """Keep rows for checks: the same as for earlier cards, if there are any; None if no rows are kept."""
        there = next(iter(deals_in(self.paths[0])), None)
        if there is not None:
            division = KeptRows.read(self.paths[0] / KEPT).division if _dealt(there).kept else None
        elif self.checks is not None:
            kept = PlanRequest(checks=self.checks).kept(supply.drawn)
            division = Division(secrets.token_bytes(32), supply.drawn, kept)
        else:
            division = None
        if division is None:
            return None
        if division.drawn != supply.drawn:
            raise self._another()
        return keep(division, supply, self.work / KEPT, self.scan, self.origin, self.complete, self._reading)

    def _reading(self, what: str, rows: int | None) -> AbstractContextManager[Callable[[int], None]]:
        """Report a pass over the table before cards are dealt."""
        return reported(f"{what} {self.origin.name}", "rows", lambda: rows, self.progress)

    def _require_same(self, fingerprint: str, order: str) -> None:
        """Refuse if earlier cards are of another table, of other rows that are kept, or number the rows otherwise.

        With other numbers, two cards with different numbers could be copies of the same row.
        """
        for path in self.paths:
            for folder in deals_in(path)[:1]:
                dealt = _dealt(folder)
                if (dealt.fingerprint, dealt.order) != (fingerprint, order):
                    raise self._another()

    def _another(self) -> RowSourceError:
        return RowSourceError(
            f"The table has changed since {self.paths[0]} was dealt: it has other rows or other values, or, if some are"
            " kept for checks or cards say which row they are, its rows come in another order. A deck is of one table;"
            " deal another deck, with a separate ledger."
        )


def _append(column: ColumnFiles, part: Part, texts: Mapping[str, tuple[pl.Series, NDArray[Any]]]) -> None:
    if isinstance(part.values, Joined):
        assert isinstance(column, TextFiles)
        column.add_joined(part.values, part.valid)
    elif isinstance(column, TextFiles):
        assert isinstance(part.values, np.ndarray)
        column.add_codes(texts[column.digest.name][1].take(part.values), part.valid)
    else:
        assert isinstance(column, NumberFiles)
        assert isinstance(part.values, np.ndarray)
        column.add(part.values, part.valid)
    column.start_saving()


def _first_cards(ordered: Iterator[Block], count: int) -> Iterator[Block]:
    """Yield the cards with the smallest places."""
    for block in ordered:
        if count <= block.cards:
            yield block.first(count)
            return
        count -= block.cards
        yield block
    # happens by chance in less than one of 10^22 decks
    raise RowSourceError("Fewer cards came up than were asked for; deal again.")


def first_card(path: Path, next: bool) -> int:
    """Return the number of the next card of a deck; refuse an existing deck without `next`, and none with it."""
    there = deals_in(path)
    if there and not next:
        raise RowSourceError(f"{path} is there already; deal more cards into it with next=True, or name another.")
    if not there:
        if next:
            raise RowSourceError(f"{path} is not a deck yet; leave next out to deal its first cards.")
        return 0
    return _dealt(there[-1]).first + Manifest.read(there[-1]).drawn


def _number(path: Path) -> int:
    """Return the number of the next deal; earlier ones may have been removed."""
    return max((int(each.name) for each in deals_in(path)), default=0) + 1


def _dealt(folder: Path) -> Dealt:
    dealt = Manifest.read(folder).dealt
    if dealt is None:
        raise RowSourceError(f"{folder} holds rows, not cards; remove it, or name another deck.")
    return dealt
