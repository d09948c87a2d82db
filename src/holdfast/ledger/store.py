"""What a place must do to hold a ledger.

A store knows rows and their order, nothing of budgets. Entries are only ever appended, together with the new
tip, in one transaction: so a row that is there once is there for good, and reading in pieces is safe.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from holdfast.errors import LedgerUnavailable
from holdfast.ledger import tree

MAX_DATASET_NAME = 200  # characters


class Tip(NamedTuple):
    """Where the ledger ends; stored apart from the rows, so that rows missing at the end are noticed."""

    seq: int
    hash: str
    charge: int
    intervals: int
    peaks: str = ""  # of the tree over the hashes of all entries (tree.py)

    def after(self, row: "Row") -> "Tip":
        """Return this tip moved to a row."""
        return Tip(row.seq, row.hash, row.charge, row.intervals, tree.append(self.peaks, row.seq, row.hash))


class Row(NamedTuple):
    """One entry as stored. All beside `body` follows from the bodies and is re-checked against them."""

    seq: int
    key_digest: str | None  # sha256 of the key: keys may be longer than an index allows
    body: str
    previous: str
    hash: str
    charge: int  # spent up to and including this entry
    intervals: int


START = Tip(-1, "0" * 64, 0, 0)  # what the first entry follows


class Transaction(Protocol):
    """An open write transaction: nobody else writes to this ledger until it ends."""

    def tip(self) -> Tip | None:
        """Return the tip, which nobody else can move while this is open; None if there is no ledger."""
        ...

    def find(self, key_digest: str) -> Row | None:
        """Return the row with this key."""
        ...

    def append(self, row: Row) -> None:
        """Add the row and move the tip to it."""
        ...


class Store(Protocol):
    """Holds the rows of one dataset."""

    @property
    def location(self) -> str:
        """Where this is, as it may be shown; passwords masked."""
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

    def begin(self, genesis: Row) -> bool:
        """Begin the ledger with this row; False if somebody else was first."""
        ...

    def write(self, decide: Callable[[Transaction], None]) -> None:
        """Lock, run `decide`, and commit durably before returning; roll back if it raises.

        `decide` may be run more than once; only its last run counts. What other threads want to write meanwhile may
        be committed together with it: one sync to disk for all of them.
        """
        ...

    def close(self) -> None:
        """Close files and connections for good. May be called again."""
        ...


def closed_error(location: str) -> LedgerUnavailable:
    """Word the refusal of a store that was closed."""
    return LedgerUnavailable(f"Ledger {location} is closed; open a new session or ledger.", location=location)


def nested_error(location: str) -> LedgerUnavailable:
    """Word the refusal of a write inside a write of the same thread, which would wait for itself."""
    return LedgerUnavailable(
        f"Ledger {location} cannot be written by a destructor or signal handler that runs during a write.",
        location=location,
    )
