"""A ledger in memory: for trying things out; it is gone when the process ends."""

import os
import threading
from collections.abc import Callable

from holdfast.errors import LedgerUnavailable
from holdfast.ledger.store import START, Row, Tip, Transaction, nested_error


class MemoryStore:
    """Rows in a list. The store itself serves as the write transaction, behind a lock."""

    address: str | None = None
    committed = True  # nothing is undone
    patience = 0.0  # no other process writes

    def __init__(self, dataset: str) -> None:
        self.dataset = dataset
        self.location = "in memory"
        self._rows: list[Row] = []
        self._reached = START  # the tip, but perhaps without the last row: see `tip`
        self._start: Tip | None = None  # the tip at the start of the current write
        self._secret: bytes | None = None
        self._content: str | None = None
        self._by_key: dict[str, Row] = {}
        self._indexed = 0
        self._lock = threading.RLock()
        self._writer: int | None = None  # the thread that writes
        self._process = os.getpid()

    def tip(self) -> Tip | None:
        """Return the tip."""
        tip = self._reached
        for row in self._rows[tip.seq + 1 :]:  # the first row, or one whose writer was interrupted after adding it
            tip = tip.after(row)
        return None if tip is START else tip

    def find(self, key_digest: str) -> Row | None:
        """Return the row with this key."""
        # Indexed here, not in `append`, so that adding a row is a single step that no interrupt can leave half done.
        # Several threads may index the same rows.
        start, end = self._indexed, len(self._rows)
        for row in self._rows[start:end]:
            if row.key_digest is not None:
                self._by_key[row.key_digest] = row
        self._indexed = end
        return self._by_key.get(key_digest)

    def read(self, start: int, limit: int) -> list[Row]:
        """Return up to `limit` rows from `start` on."""
        return self._rows[start : start + limit]

    def hash_at(self, seq: int) -> str | None:
        """Return the hash of a row."""
        return self._rows[seq].hash if seq < len(self._rows) else None

    def start(self) -> Tip | None:
        """Return the tip at the start of the write; called inside `write`."""
        return self._start

    def append(self, row: Row) -> Row:
        """Add the row, unless there is one with its key; called inside `write`."""
        there = None if row.key_digest is None else self.find(row.key_digest)
        if there is not None:
            return there
        tip = self.tip()
        assert tip is not None
        reached = tip.after(row)
        self._rows.append(row)  # from here on the row counts, even if interrupted: `tip` adds it to `_reached`
        self._reached = reached
        return row

    def take(self, tip: Tip) -> None:
        """Note what is taken; called inside `write`."""
        self._reached = tip

    def secret(self) -> bytes | None:
        """Return the secret."""
        return self._secret if self._rows else None

    def content(self) -> str | None:
        """Return the content."""
        return self._content if self._rows else None

    def owner(self, content: str) -> str | None:
        """Return the dataset if this is its content; a store in memory has only one."""
        return self.dataset if content == self.content() else None

    def begin(self, genesis: Row, secret: bytes, content: str | None = None) -> bool:
        """Begin the ledger with this row; return False if another thread was first."""
        began: list[bool] = []

        def decide(_: Transaction) -> None:
            began.append(not self._rows)
            if not self._rows:
                self._secret, self._content = secret, content
                self._rows.append(genesis)

        self.write(decide)
        return began[-1]

    def write(self, decide: Callable[[Transaction], None]) -> None:
        """Run `decide` under the lock."""
        self._refuse_forked()
        if self._writer == threading.get_ident():  # a destructor or a signal handler that runs during a write
            raise nested_error(self.location)
        with self._lock:
            self._writer = threading.get_ident()
            try:
                self._start = self.tip()
                decide(self)
            finally:
                self._writer = None

    def probe(self) -> None:
        """Take the lock."""
        self.write(lambda _: None)

    def close(self) -> None:
        """Do nothing: there are no files or connections."""

    def _refuse_forked(self) -> None:
        if os.getpid() != self._process:
            raise LedgerUnavailable(
                "A ledger in memory cannot be written by a forked process: parent and child would spend the "
                "same budget twice. Give ledger= a file to share it.",
                location=self.location,
            )
