"""Cards: copies of rows in random order, which are independent uniform draws; and the hand of one question.

Every card has a random place. From every chunk of m rows a Poisson(rate * m) number of cards is drawn, each a uniformly
random row of the chunk; so every row has Poisson(rate) copies, whatever the chunks are. Given the total number of
cards, the cards in order of place are independent uniform draws with replacement: `docs/proofs/decks.md`.

    placed    by an engine's workers, whose cards arrive in any order: a place is a 63-bit number
    ranged    on one machine: only the range that contains the place is drawn; each range is shuffled later

All randomness of a chunk comes from a key made of (secret, deck, partition, chunk number). A task that an engine runs a
second time deals the same cards, and two partitions, or two decks, never share a key.

A hand: the cards of one question, used in order as draws with replacement, or for distinct rows by first appearance.

A question's place in the ledger decides which cards of a deck it gets: the charge taken before it is the number of its
first card or, for noisy means, a fixed number of cards for each mean before it.
"""

import hmac
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.guarantees.plan import Plan
from holdfast.guarantees.terms import NO_CAP, Amounts
from holdfast.queries.evaluate import silence
from holdfast.queries.query import Query, Values
from holdfast.randomness import keyed_generator
from holdfast.rows.columns import Storage
from holdfast.rows.draws import Selection, WithoutReplacement, WithReplacement, first_appearances
from holdfast.rows.fingerprint import Content
from holdfast.rows.scans.scan import mean_bytes
from holdfast.rows.source import LedgerView, PartOfRows, Reserved, RowSource

if TYPE_CHECKING:
    from holdfast.rows.decks.deck import Cards, Deck

RESERVED = "__holdfast_"  # prefix of the columns that holdfast adds to those of the table
PLACE = f"{RESERVED}place"
ROW = f"{RESERVED}row"  # which row, or unit, a card is a copy of
PLACES = 1 << 63
CHUNK = 1 << 18  # rows
CHUNK_BYTES = 8 << 20  # of a chunk, or of its cards; several chunks are in memory at once
_MOST_AT_ONCE = 1 << 19  # expected cards of a chunk, at most
MOST_RANGES = 1 << 16
_ENOUGH = 10.0  # standard deviations: fewer cards than requested come up less than once in 10^22 decks


def rate_for(cards: int, rows: int) -> float:
    """Return a rate at which at least `cards` cards come up."""
    return (cards + _ENOUGH * sqrt(cards) + _ENOUGH**2) / rows


def chunk_for(sample: pl.DataFrame, rate: float) -> int:
    """Return how many rows like these are dealt at once, at most: the longer the texts, the fewer rows.

    >>> chunk_for(pl.DataFrame({"x": [1.5]}), rate=1.0) == CHUNK
    True
    >>> chunk_for(pl.DataFrame({"text": ["x" * 2_032]}), rate=2.0) == CHUNK_BYTES // 4_096
    True
    """
    return max(1, min(CHUNK, int(CHUNK_BYTES / max(1.0, mean_bytes(sample) * max(1.0, rate)))))


def width_of(ranges: int) -> int:
    """Return how many places a range has; all ranges have the same number.

    >>> width_of(1) == PLACES, width_of(3) * 3 == PLACES - 2
    (True, True)
    """
    return PLACES // ranges


def ranges_of(places: NDArray[np.uint64], ranges: int) -> NDArray[np.uint16]:
    """Return the range of every place.

    >>> ranges_of(np.array([0, width_of(3) - 1, width_of(3), PLACES - 1], np.uint64), 3).tolist()
    [0, 0, 1, 2]
    """
    found = (places // np.uint64(width_of(ranges))).clip(max=np.uint64(ranges - 1))  # the last few places are left over
    return found.astype(np.uint16)


class Ranged(NamedTuple):
    """The cards of a chunk, range after range: which rows of the chunk they are, and how many are in each range."""

    rows: NDArray[np.int64]
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class Chance:
    """The randomness of one partition: which cards are drawn from each of its chunks.

    Parameters
    ----------
    key
        The key of the partition.
    rate
        Expected copies of a row.
    most
        How many rows are dealt at once, at most; a retry must have the same number, so that it cuts the same chunks.
    """

    key: bytes
    rate: float
    most: int = CHUNK

    @classmethod
    def of(cls, secret: bytes, deck: str, partition: str, rate: float, most: int = CHUNK) -> "Chance":
        """Return the randomness of a partition of a deck."""
        return cls(hmac.digest(secret, f"{len(deck)} {deck} {partition}".encode(), "sha256"), rate, most)

    @property
    def chunk(self) -> int:
        """How many rows are dealt at once."""
        return max(1, min(self.most, int(_MOST_AT_ONCE / self.rate)))

    def placed(self, number: int, height: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Draw the cards of a chunk of `height` rows: rows and places."""
        rng = self._generator(number)
        count = rng.poisson(self.rate * height)
        return rng.integers(0, height, count), rng.integers(0, PLACES, count, np.uint64)

    def ranged(self, number: int, height: int, ranges: int) -> Ranged:
        """Draw the cards of a chunk of `height` rows, for each of `ranges` ranges of equal size."""
        rng = self._generator(number)
        counts = self._counts(rng, height, ranges)
        return Ranged(rng.integers(0, height, counts.sum()), counts)

    def totals(self, chunks: int, rows: int, ranges: int) -> NDArray[np.int64]:
        """Return how many cards each range gets from the first `chunks` chunks of a partition, without reading rows."""
        found = np.zeros(ranges, np.int64)
        for number in range(chunks):
            height = min(self.chunk, rows - number * self.chunk)
            found += self._counts(self._generator(number), height, ranges)
        return found

    def _counts(self, rng: Generator, height: int, ranges: int) -> NDArray[np.int64]:
        return rng.poisson(self.rate * height / ranges, ranges)

    def _generator(self, number: int) -> Generator:
        return keyed_generator(hmac.digest(self.key, str(number).encode(), "sha256"))


class Dealer:
    """Deals the cards of one partition as frames, and sums up its content on the way: for workers of an engine.

    Parameters
    ----------
    chance
        The randomness of the partition.
    columns
        The columns of the table, and how they are stored.
    """

    def __init__(self, chance: Chance, columns: Mapping[str, Storage]) -> None:
        self._chance, self._columns = chance, columns
        self.content = Content(columns)

    def deal(self, batches: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Yield the cards of these batches, each with its place. How rows are cut into batches does not matter."""
        for number, chunk in enumerate(chunks(batches, self._chance.chunk)):
            # Series by series, because a query, even `select`, waits for Polars' threads.
            chunk = pl.DataFrame([chunk.get_column(name) for name in self._columns])
            self.content.add(chunk)
            rows, places = self._chance.placed(number, chunk.height)
            yield chunk[rows].hstack([pl.Series(PLACE, places.view(np.int64))])


def chunks(batches: Iterable[pl.DataFrame], size: int) -> Iterator[pl.DataFrame]:
    """Cut batches into chunks of `size` rows; only the last one may be shorter."""
    waiting: list[pl.DataFrame] = []
    height = 0
    for batch in batches:
        while batch.height:
            part, batch = batch.head(size - height), batch.slice(size - height)
            waiting.append(part)
            height += part.height
            if height == size:
                yield pl.concat(waiting)
                waiting, height = [], 0
    if waiting:
        yield pl.concat(waiting)


def rows_of_cards(lengths: NDArray[np.int64], cards: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of `cards`, one card after another, and how many each has; `lengths` are those of all cards.

    >>> rows, each = rows_of_cards(np.array([1, 3, 2]), np.array([1, 0, 1]))
    >>> rows.tolist(), each.tolist()
    ([1, 2, 3, 0, 1, 2, 3], [3, 1, 3])
    """
    each = lengths.take(cards)
    ends = np.cumsum(each)
    shift = (np.cumsum(lengths) - lengths).take(cards) - (ends - each)
    return np.repeat(shift, each) + np.arange(ends[-1] if ends.size else 0), each


COINS = "coins"  # the mechanism that draws with replacement
DISTINCT, REPEATED = "laplace", "laplace_with_replacement"  # noisy means of distinct rows, or of rows that may repeat
_NEVER = log(1e22)


def cards_for_distinct(count: int, rows: int) -> int:
    """Return how many cards have `count` distinct rows among them, except once in 10^22 times.

    While fewer distinct rows have come up, a card repeats one with probability at most q = (count - 1)/rows; so the
    number of repeats among m cards is at most a binomial variable with mean mq, which exceeds mq + t with probability
    at most exp(-t^2 / (2mq + 2t/3)) (Bernstein).

    >>> cards_for_distinct(1, 10), cards_for_distinct(1_000, 1_000_000)
    (35, 1038)
    """
    check.at_most("rows", rows, count=count)
    q, cards, enough = (count - 1) / rows, 0, count
    while cards < enough:
        cards = enough
        spread = _NEVER / 3 + sqrt(_NEVER**2 / 9 + 2 * _NEVER * cards * q)
        enough = count + ceil(cards * q + spread)
    return cards


def cards_taken(plan: Plan, taken: Amounts) -> int:
    """Return how many cards belong to what was taken from a budget: one per coin, or a fixed number per noisy mean.

    Noisy means are counted by the charge, which is the same for each of them. Statements would be too few: a fit makes
    two, whatever its number of steps.
    """
    return taken.charge % plan.terms.account // _charge_of_mean(plan) * _cards_of_mean(plan)


def _charge_of_mean(plan: Plan) -> int:
    """Return the charge of one coin, or of one noisy mean."""
    return 1 if plan.terms.mechanism == COINS else plan.terms.charge_per_answer


def _cards_of_mean(plan: Plan) -> int:
    """Return how many cards one coin, or one noisy mean, uses."""
    terms = plan.terms
    if terms.mechanism == DISTINCT:
        return cards_for_distinct(terms.rows_per_query, terms.rows)
    return terms.rows_per_query if terms.mechanism == REPEATED else 1


def require_dealt_for(deck: "Deck", mechanism: str) -> None:
    """Refuse a mechanism that the cards of a deck cannot serve."""
    if mechanism == DISTINCT and not deck.numbered:
        raise InvalidArgument(
            f"mechanism {DISTINCT!r} draws distinct rows, and the cards of {deck.name} do not say which row they are."
            " Deal a deck with distinct=True.",
            name="mechanism",
        )
    if mechanism not in (COINS, DISTINCT, REPEATED):
        raise InvalidArgument(
            f"mechanism must be {COINS!r} for a deck, which holds draws, not the table; got {mechanism!r}.",
            name="mechanism",
        )


class CardDraws:
    """The draws of questions to a deck: each question uses the cards that its place in the ledger gives it."""

    dealt = True

    def __init__(self, deck: "Deck", plan: Plan, ledger: LedgerView) -> None:
        require_dealt_for(deck, plan.terms.mechanism)
        self._deck, self._ledger, self._account = deck, ledger, plan.terms.account
        self._charge_each, self._cards_each = _charge_of_mean(plan), _cards_of_mean(plan)

    def join(self) -> None:
        """Refuse a deck whose cards were used beyond what this ledger has taken, or by another ledger."""
        self._deck.join(self._ledger.first, lambda: self._ledger.taken, self._cards)

    @property
    def reach(self) -> tuple[int, int, int]:
        """The inverse of `cards_taken`."""
        return self._deck.cards.stop // self._cards_each * self._charge_each, NO_CAP, self._account

    def expect(self, costs: Sequence[Amounts]) -> None:
        """Refuse damaged cards and those of another ledger; open the next cards if these questions need them."""
        deck, count = self._deck, self._cards(*costs)
        deck.require_sound()
        if not count or deck.reaches(self._cards(self._ledger.taken) + count):  # otherwise the ledger will refuse
            deck.claim(self._ledger.first)

    def refuse(self, costs: Sequence[Amounts]) -> None:
        """Refuse with the number of cards, if too few are left."""
        self._deck.require(self._cards(self._ledger.taken), self._cards(*costs))

    def rows_for(self, place: Reserved, cost: Amounts) -> "tuple[RowSource, RowSource | None]":
        """Return a new hand for the question, and the rows that check guesses, which all questions share."""
        taken = place.charge + cost.charge, place.intervals + cost.intervals, place.number
        return self._deck.hand(self._ledger.first, self._cards(place), self._cards(cost), taken), self._deck.kept

    def _cards(self, *taken: Amounts) -> int:
        """Like `cards_taken`, for all of these together."""
        means = 0
        for one in taken:
            means += one.charge % self._account // self._charge_each
        return means * self._cards_each


class Hand(PartOfRows):
    """The cards of one question: a row source that uses the next cards for every draw."""

    def __init__(self, deck: "Deck", numbers: range) -> None:
        super().__init__(deck)
        self._deck, self._next_card, self._end = deck, numbers.start, numbers.stop

    def __len__(self) -> int:
        return len(self._deck) - self._deck.kept_count

    @silence
    def tally(self, query: Query, *, draws: int, mass: float, rng: Generator) -> NDArray[np.int64]:
        """Take the next cards, evaluate, toss, randomize; return how often each outcome came up."""
        if type(draws) is not int or draws < 1:
            check.whole(draws=draws)
        blocks = self._take(query, query.parts * draws)
        if len(blocks) == 1:  # nearly always
            cards, rows, first = blocks[0]
            return cards.tallied(query, rows, first, draws, mass, rng)
        counts = [cards.tallied(query, rows, first, draws, mass, rng) for cards, rows, first in blocks]
        total: NDArray[np.int64] = np.sum(counts, axis=0)
        return total

    @silence
    def sample(self, query: Query, selection: Selection, rng: Generator) -> Values:
        """Take the next cards and return their values. Secret. A deck cannot give all rows, or rows in order."""
        if isinstance(selection, WithoutReplacement):
            parts: list[NDArray[Any]] = [
                self._distinct(query, selection.count, part, rng) for part in range(query.parts)
            ]
            return parts[0] if query.parts == 1 else np.stack(parts)
        if not isinstance(selection, WithReplacement):
            raise InvalidArgument("A deck holds draws, not the table; plan with mechanism='coins'.", name="mechanism")
        taken = self._take(query, query.parts * selection.count)
        blocks = [np.array(cards.values(query, rows, first, selection.count, rng)) for cards, rows, first in taken]
        values: NDArray[Any] = np.concatenate(blocks)
        return values if query.parts == 1 else values.reshape(query.parts, -1, *values.shape[1:])

    def _distinct(self, query: Query, count: int, part: int, rng: Generator) -> Values:
        """Return the values of `count` distinct rows for a part: those on the next cards, by first appearance."""
        pieces = self._next(cards_for_distinct(count, len(self)))
        which = np.concatenate([cards.which(rows) for cards, rows in pieces])
        first = first_appearances(which)[:count]
        if first.size < count:  # by chance: less than once in 10^22 questions
            raise InvalidArgument("Too few of the cards were distinct rows; ask again.", name="draws")
        blocks, before, number = [], 0, part * count
        for cards, rows in pieces:
            mine = first[(first >= before) & (first < before + len(rows))] - before + rows.start
            size, before = cards.block(query), before + len(rows)
            for start in range(0, mine.size, size):
                some = mine[start : start + size]
                blocks.append(np.array(cards.values(query, some, number, count, rng)))
                number += some.size
        values: NDArray[Any] = np.concatenate(blocks)
        return values

    def _take(self, query: Query, count: int) -> list[tuple["Cards", slice, int]]:
        """Return cards in blocks, each with the draw number of its first card; they are used up, even on an error."""
        blocks, first = [], 0
        for cards, rows in self._next(count):
            size, start, end = cards.block(query), rows.start, rows.stop
            while start < end:
                stop = min(start + size, end)
                blocks.append((cards, slice(start, stop), first))
                start, first = stop, first + stop - start
        return blocks

    def _next(self, count: int) -> list[tuple["Cards", range]]:
        """Return the next cards; refuse a question that draws more than it reserved."""
        start, stop = self._next_card, self._next_card + count
        if stop > self._end:
            more = stop - self._end
            raise InvalidArgument(f"A question draws {more:,} cards more than were reserved for it.", name="draws")
        self._next_card = stop
        return self._deck.find(start, stop)
