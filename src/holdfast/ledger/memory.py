"""A ledger in memory: for trying things out; it is gone when the process ends."""

import threading
from collections.abc import Callable
from pathlib import Path

from holdfast.errors import LedgerUnavailable
from holdfast.ledger.store import START, Row, Tip, Transaction, nested_error
from holdfast.process import this_process


class MemoryTransaction:
    """What one write adds to a store in memory; nobody sees it before it is committed."""

    __slots__ = ("_store", "committed", "rows", "start", "tip")

    def __init__(self, store: "MemoryStore", tip: Tip | None) -> None:
        self._store = store
        self.start = self.tip = tip
        self.rows: list[Row] = []
        self.committed = False

    def hash_at(self, seq: int) -> str | None:
        """Return the hash of a row."""
        return self._store.hash_at(seq)

    def append(self, row: Row) -> Row:
        """Add the row, unless there is one with its key."""
        key = row.key_digest
        if key is not None:
            there = self._store.find(key)
            if there is not None:
                return there
            for there in self.rows:
                if there.key_digest == key:
                    return there
        self.tip = (self.tip or START).after(row)
        self.rows.append(row)
        return row


class MemoryStore:
    """Rows in a list, which count up to the tip.

    The tip is set last, in one step, so that an interrupt leaves a write done or not begun. Rows beyond it, and their
    keys, are left over from a write that was interrupted just before that step.
    """

    address: str | None = None
    patience = 0.0  # no other process writes
    asking_folder: Path | None = None

    def __init__(self, dataset: str) -> None:
        self.dataset = dataset
        self.location = "in memory"
        self._rows: list[Row] = []
        self._by_key: dict[str, Row] = {}
        self._tip: Tip | None = None
        self._secret: bytes | None = None
        self._content: str | None = None
        self._lock = threading.RLock()
        self._writer: int | None = None  # the thread that writes
        self._process = this_process.number

    def tip(self) -> Tip | None:
        """Return the tip."""
        return self._tip

    def find(self, key_digest: str) -> Row | None:
        """Return the row with this key."""
        tip = self._tip  # read first: what is left over lies beyond it, even if another thread writes in its place now
        row = self._by_key.get(key_digest)
        return None if row is None or tip is None or row.seq > tip.seq else row

    def read(self, start: int, limit: int) -> list[Row]:
        """Return up to `limit` rows from `start` on."""
        return self._rows[start : min(start + limit, self._count)]

    def hash_at(self, seq: int) -> str | None:
        """Return the hash of a row."""
        return self._rows[seq].hash if seq < self._count else None

    @property
    def _count(self) -> int:
        return 0 if self._tip is None else self._tip.seq + 1

    def secret(self) -> bytes | None:
        """Return the secret."""
        return None if self._tip is None else self._secret

    def content(self) -> str | None:
        """Return the content."""
        return None if self._tip is None else self._content

    def owner(self, content: str) -> str | None:
        """Return the dataset if this is its content; a store in memory has only one."""
        return self.dataset if content == self.content() else None

    def begin(self, genesis: Row, secret: bytes, content: str | None = None) -> bool:
        """Begin the ledger with this row; return False if another thread was first."""

        def decide(transaction: Transaction) -> None:
            if transaction.start is None:
                self._secret, self._content = secret, content
                transaction.append(genesis)

        return self.write(decide).start is None

    def write(self, decide: Callable[[Transaction], None]) -> Transaction:
        """Run `decide` under the lock; what it has written counts if it does not raise."""
        if this_process.number != self._process:
            raise self._forked_error()
        thread = threading.get_ident()
        if self._writer == thread:  # a destructor or a signal handler that runs during a write
            raise nested_error(self.location)
        with self._lock:
            self._writer = thread
            try:
                transaction = MemoryTransaction(self, self._tip)
                decide(transaction)
                if transaction.rows:
                    self._add(transaction.rows)
                self._tip = transaction.tip
                transaction.committed = True
            finally:
                self._writer = None
        return transaction

    def _add(self, rows: list[Row]) -> None:
        count = rows[0].seq
        if len(self._rows) > count:  # left over
            for row in self._rows[count:]:
                self._by_key.pop(row.key_digest or "", None)
            del self._rows[count:]
        self._rows += rows  # before their keys: otherwise an interrupt could leave keys over without rows
        for row in rows:
            if row.key_digest is not None:
                self._by_key[row.key_digest] = row

    def require_space(self) -> None:
        """Do nothing: memory is not asked."""

    def probe(self) -> None:
        """Take the lock."""
        self.write(lambda _: None)

    def close(self) -> None:
        """Do nothing: there are no files or connections."""

    def _forked_error(self) -> LedgerUnavailable:
        return LedgerUnavailable(
            "A ledger in memory cannot be written by a forked process: parent and child would spend the "
            "same budget twice. Give ledger= a file to share it.",
            location=self.location,
        )
