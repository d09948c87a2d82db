"""A ledger in one SQLite file, written by any number of processes of this machine.

Durable: write-ahead log with synchronous=FULL, so the log is on disk before a commit is visible to anyone.

In turn: a writer that finds the file busy sleeps, in SQLite itself, up to 100 ms at a time, and writers get the file
in no particular order. Writers therefore queue on a lock file beside the ledger, and then find the ledger free. The
lock file is only for fairness; BEGIN IMMEDIATE alone prevents overspending. The committer's thread waits for the lock
file without a time limit, but threads that wait for the committer give up after a while, so that a process that was
stopped while it held the lock does not block others forever. Reading needs no lock.

Complete from the start: a new ledger, including its first entry, is built under another name and then linked into
place, unless there is one already. So an empty or half-written file at the ledger's own name is damage, never a new
ledger.

Private: the file holds the ledger's secret, so it and the files beside it are created with access for the owner only.

Direct: while one thread of this process is the only writer, it need not hand its entry to the committer's thread. Its
locks and its transaction are then held by context managers written in C, and the lock file by a `finally` that begins
with a C call. Python handles no signal between an exception and these, so an interrupt at any point rolls back and
releases everything.
"""

import os
import secrets
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from glob import escape
from math import inf
from pathlib import Path
from urllib.parse import quote

from holdfast.errors import HoldfastError, LedgerUnavailable
from holdfast.ledger import chain
from holdfast.ledger.concurrency import Connection, open_private, opening
from holdfast.ledger.database import ENTRIES, LEDGERS, TABLES, DatabaseTransaction, Statements
from holdfast.ledger.sqlite_file import POLL, SqliteFile
from holdfast.ledger.store import Transaction, closed_error

if sys.platform != "win32":
    import fcntl

LOCK_TIMEOUT = 20.0  # seconds to wait for a busy file
ROOM = 8 << 20  # bytes that a disk must have left for a question: more than nearly every answer takes
_SPACE_FOR = 0.1  # seconds for which what a disk has left is taken as known
_OLD = 3_600.0  # seconds; building a ledger never takes this long
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT}
_HAS_LEDGERS = f"SELECT 1 FROM sqlite_master WHERE name = '{LEDGERS}'"
_APPEND_ONLY = """CREATE TRIGGER {table}_no_{act} BEFORE {act} ON {table}
BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END"""

_ledgers, _entries, _index = TABLES
SQL = Statements(
    "?",
    lock="",  # BEGIN IMMEDIATE locks the file
    tables=(
        f"{_ledgers} WITHOUT ROWID",
        _entries,  # with row ids: appending to such a table fills its last page, without splitting pages
        _index,
        *(
            _APPEND_ONLY.format(table=table, act=act)
            for table, act in ((ENTRIES, "UPDATE"), (ENTRIES, "DELETE"), (LEDGERS, "DELETE"))
        ),
    ),
)


class SqliteStore(SqliteFile):
    """The rows of one dataset in a SQLite file. `own_file`: the file holds this ledger alone, whatever its name."""

    begin_statement = "BEGIN IMMEDIATE"
    driver_errors = (sqlite3.Error,)

    def __init__(self, path: Path, dataset: str, *, own_file: bool) -> None:
        super().__init__(path, dataset, SQL)
        self._space_until = -inf  # until when the disk is known to have room
        self._queues_since = inf  # when the committer's thread began to wait for the lock file; inf if it does not wait
        self._own_file = own_file
        self._inspected = False
        self._last_thread: int | None = None  # the thread that wrote last

    # -- writing directly -----------------------------------------------------------------------------------------

    def write(self, decide: Callable[[Transaction], None]) -> Transaction:
        """Write directly if this thread is the only writer; otherwise use the committer: a batch is faster."""
        self.check_process()
        thread, last = threading.get_ident(), self._last_thread
        self._last_thread = thread
        alone = thread == last and self._writer is None and not self._committer
        return (self._write_directly(decide) if alone else None) or super().write(decide)

    def _write_directly(self, decide: Callable[[Transaction], None]) -> Transaction | None:
        """Write in this thread; return None, with nothing done, if the file is busy or not open (yet)."""
        if sys.platform == "win32" or self._closed:
            return None
        with self._writes.lock:
            self._writer = threading.get_ident()
            try:
                connection, file = self._writes.connection, self._lock_file.file
                if not isinstance(connection, sqlite3.Connection) or file is None:
                    return None
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    with connection:  # rolls back if anything raises
                        connection.execute(self.begin_statement)
                        self._check_same_file()
                        transaction = DatabaseTransaction(self.sql, self.dataset, connection)
                        decide(transaction)
                        transaction.finish()
                        self.commit(connection)
                        transaction.committed = True
                except BlockingIOError:
                    return None  # leave the waiting to the committer's thread, so that this one can be interrupted
                except ValueError:
                    if not file.closed:
                        raise
                    return None  # a signal handler forked, and so closed the file, before anything was written
                except sqlite3.Error as error:
                    if _code(error) == sqlite3.SQLITE_BUSY:
                        return None
                    self._writes.close()
                    raise self.translate(error) from error
                finally:  # begins with a C call: no signal is handled before it
                    if not file.closed:  # unless a signal handler forked
                        fcntl.flock(file, fcntl.LOCK_UN)
            finally:
                self._writer = None
        return transaction

    # -- what differs from other databases --------------------------------------------------------------------------

    def create_alone(self, fill: Callable[[Connection], bool]) -> bool:
        """Fill a new file, or one that exists."""
        if not self._path.exists() and self._build(fill):
            return True
        if self._own_file:
            self._inspect()
        with self._transaction() as connection:
            if connection.execute(_HAS_LEDGERS).fetchone() is None:
                for statement in self.sql.tables:
                    connection.execute(statement)
            filled = fill(connection)
        self._writes.close()  # the next connection finds the tables and turns on the write-ahead log
        return filled

    def connect(self, *, to_write: bool = False) -> sqlite3.Connection:
        """Open the file, which must exist."""
        if self._forked_while_open:  # SQLite would believe that this process already holds the file locks
            raise self._unavailable("this process was forked while the file was open. Start the process again")
        self.before_connecting(to_write)
        connection = self._connect(self._path)
        try:
            if connection.execute("PRAGMA journal_mode").fetchone() == ("wal",):
                if to_write:  # only BEGIN can find the file busy: `execute_begin` waits
                    connection.execute("PRAGMA busy_timeout=0")
                connection.execute(_HAS_LEDGERS).fetchone()  # begins the log, if it was turned on just now
                self.connected(to_write)
        except BaseException:
            connection.close()
            raise
        return connection

    def in_transaction(self, connection: sqlite3.Connection) -> bool:
        """Whether a transaction is open."""
        return connection.in_transaction

    def execute_begin(self, connection: Connection) -> Connection:
        """Begin; wait if a program that does not queue on the lock file is writing."""
        deadline = time.monotonic() + self._patience()
        while True:
            try:
                super().execute_begin(connection)
                break
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(POLL)
        try:
            self._check_same_file()
        except BaseException:
            self._roll_back(connection)  # otherwise nobody could write, not even to restore the newest copy
            raise
        return connection

    def tables_missing(self, error: Exception) -> bool:
        """Whether the file lacks holdfast's tables."""
        return str(error).startswith("no such table")

    def translate(self, error: Exception) -> HoldfastError:
        """Distinguish damage, and ledgers of an earlier version, from a file that is busy, full or forbidden."""
        self._space_until = -inf  # look again before anything else is paid for
        if str(error).startswith("no such column"):
            return chain.unknown_format(self.location, None)
        if _code(error) in _DAMAGE:
            return self._damaged(f"SQLite says {str(error)!r}. Restore the file from a copy.")
        return LedgerUnavailable(
            f"Ledger {self.location} cannot be used: SQLite says {str(error)!r}. "
            "Check that the file and its folder are writable and that the disk has room, then try again.",
            location=self.location,
        )

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Queue on the lock file."""
        self._queues_since = time.monotonic()
        try:
            self._lock_file.acquire()
        except OSError as error:
            raise self._unavailable(f"its lock file cannot be opened ({error.strerror})") from error
        finally:
            self._queues_since = inf
        try:
            yield
        finally:
            self._lock_file.release()

    def look(self) -> None:
        """Give up if this store was closed, or if the lock was held elsewhere for too long."""
        waited = time.monotonic() - self._queues_since
        if waited > 0 and self._closed:
            raise closed_error(self.location)
        if waited > self._patience():
            raise self._unavailable(
                "another process has held its lock for too long. End that process if it is stopped or stuck, then try"
                " again"
            )

    def _patience(self) -> float:
        return min(LOCK_TIMEOUT, self.patience)

    def require_space(self) -> None:
        """Raise if the disk is nearly full: an answer would be paid for with a few bytes, and then not fit."""
        now = time.monotonic()
        if now < self._space_until or sys.platform == "win32":
            return
        try:
            found = os.statvfs(self._folder)
        except OSError:  # writing says what is wrong
            return
        left = found.f_bavail * found.f_frsize
        if left < ROOM and found.f_blocks:  # some file systems say nothing: 0 of 0 blocks
            raise self._unavailable(
                f"its disk has {left:,} bytes left, and an answer that was paid for might not fit; make room"
            )
        self._space_until = now + _SPACE_FOR

    def probe(self) -> None:
        """Raise if nothing could be written now, even if the file has yet to be created."""
        if not self.present() and not os.access(self._path.parent, os.W_OK | os.X_OK):
            raise self._unavailable("its folder is not writable")
        super().probe()

    def present(self) -> bool:
        """Whether the file exists; if so, it has been inspected."""
        if not self._inspected:
            try:
                has_log = self._sibling("-wal").exists()  # before the file: somebody may begin the ledger just now
                has_file = self._path.exists()
            except OSError as error:
                raise self._unavailable(f"it is out of reach ({error.strerror})") from error
            if not has_file:
                if has_log:
                    raise self._damaged(f"the file is gone, but its log {self._path.name}-wal is there. Restore it.")
                if not self._path.parent.is_dir():
                    raise self._unavailable("its folder does not exist")
                return False
            self._inspect()
        return True

    def _inspect(self) -> None:
        """Check what an existing file contains."""
        if self._path.is_dir():
            raise self._unavailable("it is a folder")
        if self._path.stat().st_size == 0:
            raise self._damaged("the file is empty. Restore it, or remove it if it never was a ledger.")
        if self._query(_HAS_LEDGERS, ()):
            names = [name for (name,) in self._query(self.sql.datasets, ())]
            if self._own_file and not names:
                raise self._damaged("the head is gone. Restore the file from a copy.")
            if self._own_file and len(names) == 1:
                (self.dataset,) = names  # data may have been renamed; the fingerprint decides
        elif self._own_file:
            raise self._damaged("the file is a database, but holds no ledger. Choose another file name.")
        self._inspected = True

    def _connect(self, path: Path, mode: str = "rw") -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode={mode}",
            uri=True,
            timeout=LOCK_TIMEOUT,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=32,
        )
        try:
            for setting in ("synchronous=FULL", "fullfsync=ON", "trusted_schema=OFF"):
                connection.execute(f"PRAGMA {setting}")
            if mode == "rwc" or connection.execute(_HAS_LEDGERS).fetchone():  # do not change files of other programs
                connection.execute("PRAGMA journal_mode=WAL")
        except BaseException:
            connection.close()
            raise
        return connection

    def _build(self, fill: Callable[[Connection], bool]) -> bool:
        """Build the file under another name and link it into place; return False if somebody else was first."""
        try:
            for leftover in self._path.parent.glob(f"{escape(self._path.name)}-*-new*"):  # of killed processes
                if time.time() - leftover.stat().st_mtime > _OLD:
                    leftover.unlink(missing_ok=True)
            new = self._sibling(f"-{secrets.token_hex(4)}-new")
            os.close(open_private(new))  # SQLite gives its log the permissions of the file
            with opening:
                connection = self._writes.connection = self._connect(new, "rwc")  # so that a fork closes it
            try:
                connection.execute(self.begin_statement)
                for statement in self.sql.tables:
                    connection.execute(statement)
                fill(connection)
                connection.execute("COMMIT")
            finally:
                self._writes.close()
            _sync(new)
            try:
                os.link(new, self._path)
            except FileExistsError:
                return False
            finally:
                new.unlink()
            _sync(self._path.parent)
            return True
        except self.driver_errors as error:
            raise self.translate(error) from error
        except OSError as error:
            raise self._unavailable(f"it cannot be begun ({error.strerror})") from error


def _code(error: Exception) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code


def _sync(path: Path) -> None:
    if sys.platform == "win32":  # Windows cannot sync a folder
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
