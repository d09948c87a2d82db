"""What a place must do to keep a ledger.

A store knows rows and their order, nothing of budgets. Entries are only ever appended, together with the new
tip, in one transaction: so a row that is there once is there for good, and reading in pieces is safe.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol


class Row(NamedTuple):
    """One entry as stored. All beside `body` follows from the bodies and is re-checked against them."""

    seq: int
    key_digest: str | None  # sha256 of the key: keys may be longer than an index allows
    body: str
    previous: str
    hash: str
    charge: int  # spent up to and including this entry
    intervals: int


class Tip(NamedTuple):
    """Where the ledger ends; kept apart from the rows, so that rows missing at the end are noticed."""

    seq: int
    hash: str
    charge: int
    intervals: int


class Writing(Protocol):
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
    """Keeps the rows of one dataset."""

    @property
    def location(self) -> str:
        """Where this is, for people; passwords masked."""
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

    def create(self, genesis: Row) -> bool:
        """Begin the ledger with this row; False if somebody else was first."""
        ...

    def write(self, settle: Callable[[Writing], None]) -> None:
        """Lock, run `settle`, and commit durably before returning; undo everything if it raises.

        What other threads bring meanwhile may be committed together with it: one sync to disk for all of them.
        """
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...
