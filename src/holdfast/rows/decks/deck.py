"""A deck: rows drawn beforehand, so that an answer reads its draws in sequence, each card once.

    events.deck/0001, 0002, ...    column folders of cards, in the order in which they are used
    events.deck/used               how many cards are used, and by which ledger
    events.deck/kept               a column folder of the rows that only check guesses, if any; no card is a copy of one

Cards are numbered consecutively through all folders. The ledger decides which cards a question gets: they start at the
charge taken before the question. The ledger takes the charge for good before any card is read, so no card is read for
two questions, in whichever process they are asked. A share that pays for more than one outcome leaves cards unused; a
deck with one card for every unit of the budget lasts as long as the budget.

A deck is refused if more of it was used than its ledger has taken, or if another ledger used it.
"""

import mmap
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import notebook
from holdfast.errors import BudgetExhausted, InvalidArgument, PlanConflict, RowSourceError
from holdfast.guarantees.plan import BEST, FAST, Plan
from holdfast.guarantees.request import PlanRequest
from holdfast.guarantees.terms import Amounts
from holdfast.process import this_process
from holdfast.queries.query import Query, Values
from holdfast.rows.decks.cards import COINS, ROW, CardDraws, Hand, require_dealt_for
from holdfast.rows.decks.used import USED, Mark, UsedFile
from holdfast.rows.disk.folder import MANIFEST, Dealt, FolderRows, Manifest, explained
from holdfast.rows.draws import Indices, Selection
from holdfast.rows.source import LedgerView
from holdfast.schema import Schema

KEPT = "kept"
_DEAL = re.compile(r"\d{4,}")
_AHEAD = 16  # how many questions' worth of pages to request from the system ahead of the current one


def is_deck(folder: Path) -> bool:
    """Whether a folder is a deck, finished or not."""
    return folder.suffix == ".deck" or bool(deals_in(folder))


def deals_in(folder: Path) -> list[Path]:
    """Return the folders of cards of a deck, in order."""
    if not folder.is_dir():
        return []
    try:
        found = [each for each in folder.iterdir() if _DEAL.fullmatch(each.name) and (each / MANIFEST).is_file()]
    except OSError as problem:
        raise RowSourceError(f"Cannot read {folder}: {problem.strerror}.") from None
    return sorted(found, key=lambda each: int(each.name))


def require_complete(folder: Path, complete: Collection[str]) -> None:
    """Refuse columns that are not complete in every folder of a deck, before any folder records them as complete."""
    manifests = [Manifest.read(each) for each in deals_in(folder)]
    if any(each.dealt is not None and each.dealt.kept for each in manifests):
        manifests.append(Manifest.read(folder / KEPT))
    for each in manifests:
        each.declared(complete)


class Cards(FolderRows):
    """One folder of cards. Its rows are read in order, and the pages of the next ones are requested meanwhile."""

    _advice = mmap.MADV_SEQUENTIAL
    _hashes_content = False  # the fingerprint of cards is that of their files

    def __init__(self, folder: Path, *, name: str | None = None, complete: Collection[str] = ()) -> None:
        super().__init__(folder, name=name, complete=complete)
        self.numbers = range(self.dealt.first, self.dealt.first + len(self))  # the numbers of its cards
        self._which = self._columns.plain.pop(ROW, None)  # the number of the row, or unit, that each row is a copy of
        self._schema = replace(self._schema, columns=tuple(each for each in self._schema if each.name != ROW))
        self._unpopulated.clear()  # cards are read once
        self._asked: dict[str, int] = {}  # by column: the card up to which pages have been requested

    def _refuse(self, manifest: Manifest, folder: Path) -> None:
        if manifest.dealt is None:
            raise RowSourceError(f"{folder} holds rows, not cards; deal a deck from them.")
        self.dealt: Dealt = manifest.dealt

    tallied = explained(FolderRows._tallied)  # of the cards of one question
    values = explained(FolderRows._values)

    @property
    def numbered(self) -> bool:
        """Whether cards record which row, or unit, they are copies of."""
        return self._which is not None

    def which(self, cards: range) -> Indices:
        """Return the numbers of the rows, or units, that these cards are copies of. Secret."""
        assert self._which is not None
        self._require_whole([ROW])
        if self._units is None:
            return self._which[cards.start : cards.stop]
        return self._which.take(self._units.starts[cards.start : cards.stop])

    def _evaluate_parts(
        self, query: Query, rows: Indices | slice, part: NDArray[np.int64], draw: NDArray[np.int64]
    ) -> Values:
        if not query.packings:
            return super()._evaluate_parts(query, rows, part, draw)
        # Compute lines only for these cards and do not cache them: no card is read again.
        return query.evaluate_packed([self._compute_lines(each, rows) for each in query.packings], part, draw)

    def _about_to_read(self, rows: Indices | slice, columns: Sequence[str]) -> None:
        self._require_whole(columns)
        if not isinstance(rows, slice):  # the rows of consecutive units
            rows = slice(int(rows[0]), int(rows[-1]) + 1)
        size = rows.stop - rows.start
        for name in columns:
            if not rows.stop < self._asked.get(name, 0) - size <= rows.stop + _AHEAD * size:
                self._asked[name] = ahead = min(self._rows, rows.stop + _AHEAD * size)
                for mapped in self._mapped[name]:
                    if mapped.array.size in (self._rows, self._rows + 1):
                        mapped.expect(rows.start, ahead)


class KeptFolder(FolderRows):
    """The rows that only check guesses, opened by their deck."""

    def _refuse(self, manifest: Manifest, folder: Path) -> None:
        """Refuse nothing: such a folder may be opened only by its deck, as here."""


class Deck:
    """A table that was dealt. Its `len` is the number of rows of the table, not of cards.

    Parameters
    ----------
    folder
        The folder of the deck.
    name
        The name of the dataset; by default the name it was dealt under.
    complete
        Columns whose values are never missing.
    """

    def __init__(self, folder: Path, *, name: str | None = None, complete: Collection[str] = ()) -> None:
        folder = folder.absolute()
        deals = deals_in(folder)
        if not folder.exists():
            raise RowSourceError(f"No deck {folder}.")
        if not deals:
            raise RowSourceError(f"{folder} has no cards: dealing was not finished. Deal it again.")
        if complete:
            require_complete(folder, complete)
        self._deals = [Cards(each, name=name, complete=complete) for each in deals]
        first = self._deals[0]
        self.cards = range(first.numbers.start, self._deals[-1].numbers.stop)  # the numbers of all existing cards
        self._dealt, self._folder = first.dealt, folder
        self.kept_count = first.dealt.kept
        self.kept: FolderRows | None = None  # rows that only check guesses
        if self.kept_count:
            declared = [column.name for column in first.schema if not column.nullable]  # questions rely on these
            self.kept = KeptFolder(folder / KEPT, name=name, complete=declared)
            if len(self.kept) != self.kept_count:
                raise RowSourceError(f"{folder / KEPT} is not what was dealt with these cards; restore the deck.")
        self._used_here = UsedFile(folder / USED)
        self._claimed = ""  # the ledger for which this process has claimed the deck
        for cards, before in zip(self._deals[1:], self._deals, strict=False):
            one, other = cards.dealt, first.dealt
            same = (one.fingerprint, one.order, cards.schema) == (other.fingerprint, other.order, first.schema)
            if not same or cards.dealt.first != before.numbers.stop:
                raise RowSourceError(f"{cards.location} does not follow {before.location}; deal the next cards again.")

    # -- what a row source is -------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of the dataset."""
        return self._deals[0].name

    @property
    def schema(self) -> Schema:
        """Column names, types, nullability. Public."""
        return self._deals[0].schema

    @property
    def fingerprint(self) -> str:
        """A hash of the table's content, whatever the order of its rows: the same for all decks dealt from it.

        If rows are kept for checks, a hash of which ones is appended.
        """
        return self._dealt.fingerprint

    @property
    def location(self) -> Path:
        """The folder of the deck."""
        return self._folder

    def __len__(self) -> int:
        return self._dealt.rows

    def __repr__(self) -> str:
        table = self.schema.units_of(len(self))
        if self.kept_count:
            table += f" ({self.kept_count:,} of them kept for checks)"
        seen = self._used_here.last_seen  # a printout opens no file
        return f"{self.name}: a deck from {table}, {self._left_after(seen):,} of {self.cards.stop:,} cards left"

    def _repr_html_(self) -> str:
        return notebook.paragraphs(repr(self)) + self.schema._repr_html_()

    def tally(self, query: Query, *, draws: int, mass: float, rng: Generator) -> NDArray[np.int64]:
        """Refuse: a card is read only by the question that it is reserved for."""
        raise self._unreserved()

    def sample(self, query: Query, selection: Selection, rng: Generator) -> Values:
        """Refuse: a card is read only by the question that it is reserved for."""
        raise self._unreserved()

    def verify(self) -> None:
        """Read and hash all cards again; raise if they are not what was dealt."""
        for cards in self._folders:
            cards.verify()

    def require_sound(self) -> None:
        """Refuse if a background check has found damage."""
        for cards in self._folders:
            cards.require_sound()

    def close(self) -> None:
        """End the checks in the background."""
        for cards in self._folders:
            cards.close()

    @property
    def _folders(self) -> list[FolderRows]:
        return [*self._deals] if self.kept is None else [*self._deals, self.kept]

    # -- a plan ---------------------------------------------------------------------------------------------------

    def plan_for(self, request: PlanRequest) -> Plan:
        """Return the plan of a new ledger. A deck holds a limited number of draws, with replacement."""
        if request.checks is not None and request.kept(len(self)) != self.kept_count:
            kept = f"{self.kept_count:,} of {len(self):,}" if self.kept_count else "none"
            raise InvalidArgument(
                f"checks must be left out for a deck, which says itself which rows are kept for them: {kept}. Deal one"
                f" with checks={request.checks:g}.",
                name="checks",
            )
        if self.kept_count:
            request = replace(request, checks=self.kept_count / len(self))
        if request.mechanism != BEST:
            require_dealt_for(self, request.mechanism)
            if request.mechanism != COINS:
                return request.make(len(self))
        request = replace(request, mechanism=COINS)
        if isinstance(request.rows_per_query, int) or request.margin is not None:
            return request.make(len(self))
        # Every answer must read the same number of cards, so that they can be counted beforehand.
        plan = request.make(len(self))
        if plan.endless:
            return replace(request, rows_per_query=request.rows_per_query or FAST).make(len(self))
        each = self.cards.stop // max(1, plan.statements)
        return replace(request, rows_per_query=max(1, min(plan.rows_per_query, each))).make(len(self))

    def draws_under(self, plan: Plan, ledger: LedgerView) -> CardDraws:
        """Return the cards for questions under a plan; refuse a plan that the cards cannot serve."""
        return CardDraws(self, plan, ledger)

    # -- cards ----------------------------------------------------------------------------------------------------

    def _unreserved(self) -> InvalidArgument:
        return InvalidArgument(
            f"The cards of {self.name} are reserved in a ledger before they are read: ask a Session."
        )

    @property
    def numbered(self) -> bool:
        """Whether cards record which row they are copies of, so that distinct rows can be drawn."""
        return all(each.numbered for each in self._deals)

    @property
    def used(self) -> Mark:
        """How far the deck is used, according to the file `used`."""
        return self._used.read()

    @property
    def left(self) -> int:
        """How many cards are left, according to the file `used`."""
        return self._left_after(self.used)

    def _left_after(self, mark: Mark) -> int:
        return max(0, self.cards.stop - mark.cards)

    def reaches(self, end: int) -> bool:
        """Whether the cards go up to number `end`, including cards dealt since the deck was opened."""
        if end > self.cards.stop:
            self._join_next()
        return end <= self.cards.stop

    def require(self, start: int, count: int) -> None:
        """Refuse a question that needs `count` cards from number `start` on, unless all of them exist."""
        if not self.reaches(start + count) or start < self.cards.start:
            left = max(0, self.cards.stop - start)
            name, state = self._folder.name, "has too few cards left" if left else "is used up"
            raise BudgetExhausted(
                f"The deck {name} {state}: {left:,} of its {self.cards.stop:,} cards are left, and this question takes"
                f" {count:,}. Deal more: holdfast deal SOURCE {name} --cards N --next.",
                cost=count,
                left=left,
                total=self.cards.stop,
                unit="cards",
            )

    def join(self, ledger: str, taken: Callable[[], Amounts], cards: Callable[[Amounts], int]) -> None:
        """Refuse if another ledger used the deck, or if questions used it that this ledger does not count.

        Parameters
        ----------
        ledger
            The hash of the ledger's first entry.
        taken, cards
            What the ledger has given out, and how many cards that is.
        """
        mark = self.used
        self._require_own(mark, ledger)
        reached = taken()  # read after the mark: a process that takes cards meanwhile writes to the ledger first
        charge, statements, _ = mark.taken  # compared as well: checks take no card
        if mark.cards > cards(reached) or charge > reached.charge or statements > reached.intervals:
            raise PlanConflict(
                f"The ledger of {self._folder} lacks questions that used the deck, up to card {mark.cards:,}: it is an"
                " old copy. Restore the newest one, or let any backup go on behind these questions: holdfast restore"
                f" BACKUP {self._folder.name}."
            )

    def claim(self, ledger: str) -> None:
        """Mark the deck as used by the ledger with this first entry, or refuse: called before a question is charged."""
        if self._claimed != ledger:
            self._require_own(self._used.note(Mark(0, ledger)), ledger)
            self._claimed = ledger

    def hand(self, ledger: str, start: int, count: int, taken: tuple[int, int, int] = (0, 0, 0)) -> Hand:
        """Return cards `start` to `start + count - 1`, for the one question that they are reserved for.

        Parameters
        ----------
        ledger
            The first entry of the ledger that reserved them.
        start, count
            The number of the first card, and how many.
        taken
            What the ledger had given out when this question was reserved, including it: see `Mark`.
        """
        if count:  # a check needs none, and its place may lie beyond the cards of this slice
            self.require(start, count)
        self._require_own(self._used.note(Mark(start + count, ledger, taken)), ledger)
        return Hand(self, range(start, start + count))

    def find(self, start: int, stop: int) -> list[tuple[Cards, range]]:
        """Return where the cards from number `start` to `stop` - 1 are: which rows of which folders."""
        found = []
        for cards in self._deals:
            first, end = cards.numbers.start, cards.numbers.stop
            if start < end and first < stop:
                found.append((cards, range(max(start, first) - first, min(stop, end) - first)))
        return found

    def _join_next(self) -> None:
        """Open the folders of cards that were dealt since this deck was opened."""
        with self._used.lock:  # a thread that listed fewer folders must not undo what another thread has added
            deals = list(self._deals)
            known = {each.location for each in deals}  # compare names, not counts: old folders may be removed
            for folder in deals_in(self._folder):
                if folder in known:
                    continue
                complete = [column.name for column in self.schema if not column.nullable]
                cards = Cards(folder, name=self.name, complete=complete)
                if cards.dealt.fingerprint != self.fingerprint or cards.dealt.first != deals[-1].numbers.stop:
                    break
                deals.append(cards)
            self._deals = deals  # replaced in one step, since other threads are reading it
            self.cards = range(self.cards.start, deals[-1].numbers.stop)

    def _require_own(self, mark: Mark, ledger: str) -> None:
        if mark.ledger not in ("", ledger):
            raise PlanConflict(
                f"The cards of {self._folder} are used by another ledger, up to card {mark.cards:,}. Open that ledger,"
                " or deal another deck: a card is used once."
            )

    @property
    def _used(self) -> UsedFile:
        """The file `used`, as this process has it open; its lock also guards the deck."""
        used = self._used_here
        if used.process != this_process.number:
            used.close()
            used = self._used_here = UsedFile(self._folder / USED)
        return used
