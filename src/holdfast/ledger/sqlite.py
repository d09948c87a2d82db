"""A ledger in one SQLite file, written by any number of processes of this machine.

Durable: write-ahead log with synchronous=FULL, so the log is on disk before a commit is visible to anyone.

In turn: SQLite itself lets a writer that finds the file busy sleep, up to 100 ms at a time, whoever comes
first afterwards. Writers therefore queue on a lock file beside the ledger and find it free. The lock file is
for fairness; that nobody overspends rests on BEGIN IMMEDIATE alone.

Whole from the start: a new ledger is built under another name and moved into place, first entry included. So
an empty or half-written file at the ledger's own name is damage, never a beginning.
"""

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy.dialects.sqlite.pysqlite import dialect

from holdfast.errors import HoldfastError, LedgerDamaged, LedgerUnavailable
from holdfast.ledger.database import Database
from holdfast.ledger.store import Row
from holdfast.ledger.tables import LEDGERS, Statements, statements

if sys.platform != "win32":
    import fcntl

PATIENCE = 60.0  # seconds to wait for a busy file
_HAS_LEDGERS = f"SELECT 1 FROM sqlite_master WHERE name = '{LEDGERS}'"
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT}


class _Queue:
    """Where writing processes wait for each other: a lock file, opened when needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def enter(self) -> None:
        if sys.platform != "win32":
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def leave(self) -> None:
        if sys.platform != "win32" and self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def drop(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


@cache
def _statements() -> Statements:
    return statements(dialect(paramstyle="named"))


class SqliteStore(Database):
    """The rows of one dataset in a SQLite file. `sole`: the file is this ledger's alone, whoever asks."""

    begin = "BEGIN IMMEDIATE"
    driver_errors = (sqlite3.Error,)

    def __init__(self, path: Path, dataset: str, *, sole: bool) -> None:
        super().__init__(str(path), dataset, _statements())
        self._path = path.absolute()
        self._sole = sole
        self._queue = _Queue(self._beside("-lock"))
        self._held.append(self._queue)
        self._inode: int | None = None
        if self._path.exists():
            self._find_dataset()
        elif self._beside("-wal").exists():
            raise self._damaged(f"the file is gone, but its log {path.name}-wal is there. Restore the file.")

    def begin_at(self, genesis: Row) -> bool:
        """Begin the ledger: in a new file, or beside others in a file that is there."""
        if not self._path.exists():
            self._build(genesis)
            return True
        if self._sole:
            self._find_dataset()
            return False
        with self._transaction() as cursor:
            cursor.execute(_HAS_LEDGERS)
            if cursor.fetchone() is None:
                for statement in self.sql.schema:
                    cursor.execute(statement)
            return self.begin_ledger(cursor, genesis)

    def connect(self) -> sqlite3.Connection:
        """Open the file, which must exist."""
        connection = self._connect(self._path)
        if self._inode is None:
            self._inode = _inode(self._path)
        return connection

    def absent(self, error: Exception) -> bool:
        """Whether the file has no tables of ours."""
        return str(error).startswith("no such table")

    def translate(self, error: Exception) -> HoldfastError:
        """Tell damage from a file that is busy, full or forbidden."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _DAMAGE:
            return self._damaged(f"SQLite says {str(error)!r}. Restore the file from a copy.")
        return LedgerUnavailable(
            f"Ledger {self.location} cannot be used: SQLite says {str(error)!r}. "
            "Check that the file and its folder may be written and that the disk has room, then try again.",
            location=self.location,
        )

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Queue on the lock file; then make sure that the file is still the one that was opened."""
        try:
            self._queue.enter()
        except OSError as error:
            raise self._unavailable(f"its lock file cannot be opened ({error.strerror})") from error
        try:
            self._still_there()
            yield
        finally:
            self._queue.leave()

    def _still_there(self) -> None:
        """Refuse to write to a file that was moved away: what is written there would be seen by nobody."""
        if self._inode is not None and _inode(self._path) != self._inode:
            raise self._unavailable("the file was moved or replaced since it was opened. Open it anew")

    def _find_dataset(self) -> None:
        """Look inside a file that is there."""
        if self._path.is_dir():
            raise self._unavailable("it is a folder")
        if self._path.stat().st_size == 0:
            raise self._damaged("the file is empty. Restore it, or remove it if it never was a ledger.")
        if not self._ask(_HAS_LEDGERS, {}):
            if self._sole:
                raise self._damaged("the file is a database, but holds no ledger. Choose another file name.")
            return
        names = [name for (name,) in self._ask(self.sql.datasets, {})]
        if self._sole and not names:
            raise self._damaged("the head is gone. Restore the file from a copy.")
        if self._sole and len(names) == 1:
            (self.dataset,) = names  # data may be renamed; its fingerprint decides

    def _ask(self, sql: str, parameters: dict[str, object]) -> list[Any]:
        if self._reads.cursor is None and not self._path.exists():
            return []  # nothing there yet, and looking must not create it
        return super()._ask(sql, parameters)

    def _connect(self, path: Path, mode: str = "rw") -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode={mode}",
            uri=True,
            timeout=PATIENCE,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=32,
        )
        try:
            for setting in ("synchronous=FULL", "fullfsync=ON", "trusted_schema=OFF"):
                connection.execute(f"PRAGMA {setting}")
            if mode == "rwc" or connection.execute(_HAS_LEDGERS).fetchone():  # leave other people's files as they are
                connection.execute("PRAGMA journal_mode=WAL")
        except BaseException:
            connection.close()
            raise
        return connection

    def _build(self, genesis: Row) -> None:
        new = self._beside("-new")
        for leftover in ("", "-wal", "-shm"):  # of a process that died right here
            new.with_name(new.name + leftover).unlink(missing_ok=True)
        try:
            connection = self._connect(new, "rwc")
            try:
                cursor = connection.cursor()
                cursor.execute(self.begin)
                for statement in self.sql.schema:
                    cursor.execute(statement)
                self.begin_ledger(cursor, genesis)
                cursor.execute("COMMIT")
            finally:
                connection.close()
        except self.driver_errors as error:
            raise self.translate(error) from error
        _sync(new)
        new.rename(self._path)
        _sync(self._path.parent)

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    def _damaged(self, fact: str) -> LedgerDamaged:
        return LedgerDamaged(f"Ledger {self.location} is damaged: {fact}", location=self.location)

    def _unavailable(self, fact: str) -> LedgerUnavailable:
        return LedgerUnavailable(f"Ledger {self.location} cannot be used: {fact}.", location=self.location)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:  # gone, or out of reach
        return None


def _sync(path: Path) -> None:
    if sys.platform == "win32":  # has no way to sync a folder
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
