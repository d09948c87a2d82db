"""What a ledger holds, as frozen values, and the interface of a store, which keeps them as rows.

A store knows rows and their order, but nothing about budgets. Rows are only ever appended, together with the new tip,
in one transaction: a row, once written, is there for good, and reading in pieces is safe. A store also keeps the
ledger's secret, which no entry contains.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast.errors import InvalidArgument, LedgerUnavailable
from holdfast.ledger import tree
from holdfast.process import this_process

MAX_DATASET_NAME = 200  # characters


class Tip(NamedTuple):
    """Where the ledger ends; stored apart from the rows, so that rows missing at the end are noticed.

    `charge` and `intervals` are the cost of all entries. What was *taken* from the two caps is at least that: it also
    includes questions that are being answered, questions that never were answered, and what processes have taken ahead.
    `places` is how many question numbers were given out.
    """

    seq: int
    hash: str
    charge: int
    intervals: int
    peaks: str = ""  # of the tree over the hashes of all entries (tree.py)
    taken_charge: int = 0
    taken_intervals: int = 0
    places: int = 0

    @property
    def taken(self) -> tuple[int, int, int]:
        """What was taken: charge, intervals and places."""
        return self[5:]

    def taking(self, charge: int, intervals: int, places: int) -> "Tip":
        """Return this tip with these totals taken."""
        return Tip(*self[:5], charge, intervals, places)

    def after(self, row: "Row") -> "Tip":
        """Return the tip after appending a row."""
        seq, _, _, _, reached, charge, intervals = row
        return Tip(seq, reached, charge, intervals, tree.append(self[4], seq, reached), *self[5:])


class Row(NamedTuple):
    """One entry as stored. Everything except `body` follows from the bodies and is re-checked against them."""

    seq: int
    key_digest: str | None  # sha256 of the key: keys may be longer than an index allows
    body: str
    previous: str
    hash: str
    charge: int  # spent up to and including this entry
    intervals: int


START = Tip(-1, "0" * 64, 0, 0)  # the tip before the first entry


class Transaction(Protocol):
    """An open write transaction: nobody else writes to this ledger until it ends."""

    start: Tip | None  # the tip at its start; None if there is no ledger
    tip: Tip | None  # after everything written in it so far, by any thread; whoever takes something sets what is taken
    committed: bool  # whether all of it is known to be written

    def hash_at(self, seq: int) -> str | None:
        """Return the hash of a row."""
        ...

    def append(self, row: Row) -> Row:
        """Add the row, move the tip to it and return it; if there is a row with its key already, return that row."""
        ...


class Store(Protocol):
    """Holds the rows of one dataset."""

    address: str | None  # identifies this ledger within this process; None if no other store can reach it
    patience: float  # seconds to wait, at most, for other writers; each store also has its own limit
    asking_folder: (
        Path | None
    )  # through which processes that use it ask each other (underway.py); None if there is none

    @property
    def location(self) -> str:
        """Where this is, with passwords masked."""
        ...

    @property
    def dataset(self) -> str:
        """Whose rows these are."""
        ...

    def tip(self) -> Tip | None:
        """Return the tip, or None if there is no ledger yet."""
        ...

    def find(self, key_digest: str) -> Row | None:
        """Return the row with this key."""
        ...

    def read(self, start: int, limit: int) -> list[Row]:
        """Return up to `limit` rows from `start` on, in order."""
        ...

    def hash_at(self, seq: int) -> str | None:
        """Return the hash of a row."""
        ...

    def secret(self) -> bytes | None:
        """Return the secret that `begin` was given, or None if there is no ledger yet."""
        ...

    def content(self) -> str | None:
        """Return the content of the data that `begin` was given; None if there is no ledger yet, or for tests."""
        ...

    def owner(self, content: str) -> str | None:
        """Return the dataset that has a ledger for this content here; None if there is none."""
        ...

    def begin(self, genesis: Row, secret: bytes, content: str | None = None) -> bool:
        """Begin the ledger with this row, secret and content; False if somebody else was first."""
        ...

    def write(self, decide: Callable[[Transaction], None]) -> Transaction:
        """Lock, run `decide`, and commit durably; roll back if it raises. Return the transaction that was committed.

        `decide` may be run more than once; only its last run counts. Other threads' writes may be committed in the same
        transaction, with one sync to disk for all of them.
        """
        ...

    def probe(self) -> None:
        """Raise if nothing could be written now; writes nothing."""
        ...

    def require_space(self) -> None:
        """Raise if there may be no room for another answer, as far as that is known without writing."""
        ...

    def close(self) -> None:
        """Close files and connections for good. May be called again."""
        ...


def closed_error(location: str) -> LedgerUnavailable:
    """Return the error for a store that was closed."""
    return LedgerUnavailable(f"Ledger {location} is closed; open a new session or ledger.", location=location)


def nested_error(location: str) -> LedgerUnavailable:
    """Return the error for a write inside a write of the same thread, which would deadlock."""
    return LedgerUnavailable(
        f"Ledger {location} cannot be written by a destructor or signal handler that runs during a write.",
        location=location,
    )


def second_ledger(location: str, owner: str) -> InvalidArgument:
    """Return the error for beginning a second ledger for content that has one under another name."""
    return InvalidArgument(
        f"These rows have a ledger in {location} already, as dataset {owner!r}; a second one would spend one budget"
        f" twice. Open them under that name: holdfast.open(..., name={owner!r}), or {owner}=FILE for a server.",
        name="dataset",
        dataset=owner,
    )


LARGEST = 2**62  # totals stay inside the 64-bit columns of every database
# The same two numbers can hold a second account (guarantees/drawers): each of its entries counts at least APART
# statements, and its charges are multiples of APART_CHARGE.
APART = 2**31
APART_CHARGE = 2**42


@dataclass(frozen=True, slots=True)
class Cost:
    """What one answer takes from the two caps.

    `charge` is what its release takes from the guarantee's capacity, in the guarantee's own units; `intervals` is the
    number of statements it makes about the population.
    """

    charge: int
    intervals: int

    def __post_init__(self) -> None:
        charge, intervals = self.charge, self.intervals
        if type(charge) is int is type(intervals) and 0 <= charge <= LARGEST and 0 <= intervals <= LARGEST:
            return
        for name, value in (("charge", charge), ("intervals", intervals)):
            if type(value) is not int or not 0 <= value <= LARGEST:
                raise InvalidArgument(f"{name} must be a whole number from 0 to 2**62; got {value!r}.", name=name)


@dataclass(frozen=True, slots=True)
class Answered(Cost):
    """What all answers so far took, and how many statements were taken by questions that `failed` to give one.

    Whether a question fails may depend on the rows it has read, so it counts as a response. One that is `under_way` in
    this process may still be answered; so may one of another process that says so (underway.py). All others count as
    failed: nobody knows.
    """

    failed: int = 0
    under_way: int = 0


@dataclass(frozen=True, slots=True)
class Reach(Cost):
    """Where the shares of questions must end: for shares beyond this, there are no rows yet.

    `account`: the charge is counted modulo this; multiples of it belong to another account, which reads other rows.
    """

    account: int = 2 * LARGEST


@dataclass(frozen=True, slots=True)
class Place:
    """What the ledger gives a question before any row is drawn for it: taken for good, answered or not.

    `number` counts the questions of a ledger from 1 on; `charge` and `intervals` are where its share of the two caps
    begins. No two questions share a number, or any part of the caps. Only `process` may use the place, not a forked
    child of it.

    Places taken ahead are not used in order. `reached` is an upper bound on the charge of all questions begun so far,
    this one included: at least the end of its own share, and more if somebody had taken more before it began. It counts
    other processes only where the charge has no cap, since only such guarantees use it.
    """

    number: int
    charge: int
    intervals: int
    reached: int = field(default=0, compare=False)
    process: int = field(default_factory=lambda: this_process.number, compare=False, repr=False)

    def within(self, reach: Reach, cost: Cost) -> bool:
        """Whether the share of a question of this cost ends within `reach`; always true for the other account."""
        if cost.intervals >= APART:
            return True
        end = self.charge % reach.account + cost.charge
        return end <= reach.charge and self.intervals + cost.intervals <= reach.intervals


@dataclass(frozen=True, slots=True)
class Spent:
    """What all questions so far have taken, answered or not, and the number of answers given."""

    charge: int
    intervals: int
    answers: int


@dataclass(frozen=True, slots=True)
class Head:
    """The newest entry. Once it is published, nobody can rewrite or drop anything up to it unnoticed."""

    seq: int
    hash: str


class Entry:
    """One answer, as committed.

    `hash` is computed from `seq`, `previous`, the root of the tree over all hashes before it, and the entry's text: the
    canonical JSON of the fields from `seq` to `place`. `place` was reserved before the rows were drawn.
    """

    seq: int
    time: str
    analyst: str | None
    key: str | None
    question: dict[str, Any]
    answer: dict[str, Any]
    cost: Cost
    rows_read: int
    place: Place
    previous: str
    hash: str

    def __init__(self, row: Row, written: Mapping[str, Any] = MappingProxyType({})) -> None:
        """`written`: fields that whoever wrote the row still has; the others are decoded when they are read."""
        self._row = row
        self.seq, self.previous, self.hash = row.seq, row.previous, row.hash
        vars(self).update(written)

    if not TYPE_CHECKING:  # or any name would count as an attribute

        def __getattr__(self, name):
            """Decode the text when one of its fields is first read."""
            if name not in Entry.__annotations__:
                raise AttributeError(name)
            body = json.loads(self._row.body)
            vars(self).update(body, cost=Cost(**body["cost"]), place=Place(**body["place"]))
            return vars(self)[name]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entry) and self._row == other._row

    def __hash__(self) -> int:
        return hash(self._row)

    def __repr__(self) -> str:
        return f"<Entry {self.seq}: {self._row.body}>"
