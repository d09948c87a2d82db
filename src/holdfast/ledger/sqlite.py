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
from contextlib import contextmanager, suppress
from glob import escape
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import quote
from weakref import WeakSet

from holdfast.errors import HoldfastError, LedgerDamaged, LedgerUnavailable
from holdfast.ledger import chain
from holdfast.ledger.concurrency import LockFile, open_private, opening
from holdfast.ledger.database import ENTRIES, LEDGERS, TABLES, Connection, Database, DatabaseTransaction, Statements
from holdfast.ledger.store import Tip, Transaction, closed_error

if sys.platform != "win32":
    import fcntl

LOCK_TIMEOUT = 20.0  # seconds to wait for a busy file
ROOM = 8 << 20  # bytes that a disk must have left for a question: more than nearly every answer takes
_SPACE_FOR = 0.1  # seconds for which what a disk has left is taken as known
_POLL = 0.005  # seconds between two checks of a busy file
_STILL = 1.0  # seconds without a change after which no checkpoint (log moved into the file) can be under way
_TICK = 10**8  # nanoseconds, more than the tick of any clock that dates files to less than a second
_OLD = 3_600.0  # seconds; building a ledger never takes this long
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT}
_HAS_LEDGERS = f"SELECT 1 FROM sqlite_master WHERE name = '{LEDGERS}'"
_APPEND_ONLY = """CREATE TRIGGER {table}_no_{act} BEFORE {act} ON {table}
BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END"""

FileId = tuple[int, int]  # device and inode: another file system mounted here may have the same inodes
FileState = tuple[
    FileId, int, int, int
]  # with times and size: changes whenever the file, or the list of a folder, does
LogIds = tuple[FileId | None, FileId | None]  # of the write-ahead log, and of its index, which says where the log ends

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


class SqliteStore(Database):
    """The rows of one dataset in a SQLite file. `own_file`: the file holds this ledger alone, whatever its name."""

    begin_statement = "BEGIN IMMEDIATE"
    driver_errors = (sqlite3.Error,)

    def __init__(self, path: Path, dataset: str, *, own_file: bool) -> None:
        self._name = str(path.absolute())
        self._follow_links()
        self._lock_file = LockFile(self._sibling("-lock"))  # set first: from `super().__init__` on, a fork closes it
        super().__init__(str(path), dataset, SQL, str(self._path))
        self._resources.append(self._lock_file)
        self._space_until = -inf  # until when the disk is known to have room
        self._queues_since = inf  # when the committer's thread began to wait for the lock file; inf if it does not wait
        self._own_file = own_file
        self._inspected = False
        self._inode: FileId | None = None
        self._state: FileState | None = None  # of the file, when it was last checked
        self._seq = -1  # the newest entry in the file then
        self._older: FileState | None = None  # the state in which the file was found to be an older copy
        self._logs: dict[bool, LogIds] = {}  # those that the connections have open; True: the one that writes
        self._folder_state: FileState | None = None  # in which these were known to be there
        self._last_thread: int | None = None  # the thread that wrote last
        _stores.add(self)

    def _follow_links(self) -> None:
        """Find where the file is: SQLite puts the log beside the file itself, not beside a link to it."""
        self._path = Path(os.path.realpath(self._name))
        self._folder, self._log_names = str(self._path.parent), (f"{self._path}-wal", f"{self._path}-shm")
        self.asking_folder = self._sibling("-asking")

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

    def tip(self) -> Tip | None:
        """Return the tip; raise if another file has replaced the one that was opened."""
        self._check_same_file()
        return super().tip()

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
        if self._inode is None:  # before connecting: if interrupted here, no connection is left that nobody can close
            self._follow_links()  # somebody may have made one since
            self._inode = _inode(str(self._path))
        for store in _stores_of(self._inode):  # SQLite shares the index among all connections of a process
            store._check_log()
        self._logs.pop(to_write, None)
        connection = self._connect(self._path)
        try:
            if connection.execute("PRAGMA journal_mode").fetchone() == ("wal",):
                if to_write:  # only BEGIN can find the file busy: `execute_begin` waits
                    connection.execute("PRAGMA busy_timeout=0")
                connection.execute(_HAS_LEDGERS).fetchone()  # begins the log, if it was turned on just now
                self._logs[to_write], self._folder_state = self._logs_there(), None
        except BaseException:
            connection.close()
            raise
        return connection

    def commit(self, connection: Any) -> None:
        """Commit; then check that the log it was written to has not been removed."""
        super().commit(connection)
        self._check_log()

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
            time.sleep(_POLL)
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

    def close(self) -> None:
        """Close both connections, unless the log was removed: then they are left alone for good."""
        with suppress(HoldfastError):
            self._check_log()
        super().close()

    def close_for_fork(self) -> None:
        """Close the lock file, too: a child that inherited it would keep the lock after its parent is killed."""
        super().close_for_fork()
        self._lock_file.close()

    def _check_same_file(self) -> None:
        """Refuse to continue with a file that was moved away, or that was overwritten with an older copy.

        A connection would continue from the pages that it has cached. The file itself, without its log, changes only
        when somebody moves the log into it (a checkpoint), and then it only gets newer.
        """
        if self._inode is None:
            return
        state = _state(self._name)
        if state is None or state != self._state:
            self._check_contents(self._state_of_file())
        self._check_log()

    def _check_contents(self, state: FileState) -> None:
        """Refuse a file that is in this state by now if it ends before an entry that was in it."""
        known = self._seq  # read before the file: another thread may read the file later, but store `_seq` earlier
        seq = self._seq_in_file()
        # Read twice: while somebody moves the log into the file, half of a page may be new.
        if seq is not None and seq == self._seq_in_file():
            if seq < known and (state == self._older or self._stays_before(known)):
                self._older = state
                raise self._damaged("an older copy was written into the file. Stop, and put the newest copy back.")
            self._state, self._seq = state, max(seq, self._seq)

    def _state_of_file(self) -> FileState:
        """Return the state of the file, which must be the one that was opened."""
        found = _state(self._name)
        if found is None or found[0] != self._inode:
            raise self._unavailable("the file was moved or replaced since it was opened. Open it again")
        return found

    def _stays_before(self, known: int) -> bool:
        """Whether the file still ends before this entry once nobody is moving the log into it any more.

        During such a move some pages are new and others old. In a table that several ledgers share, a row that moves
        from one page to another can then be on neither.
        """
        state, since, until = None, 0.0, time.monotonic() + LOCK_TIMEOUT
        while True:
            found, seq, now = self._state_of_file(), self._seq_in_file(), time.monotonic()
            if seq is not None and seq >= known:
                return False
            if found != state:
                state, since = found, now
            if now > min(since + _STILL, until):
                return seq is not None
            time.sleep(_POLL)

    def _seq_in_file(self) -> int | None:
        """Return the newest entry in the file without its log, -1 for none; None if it cannot be read just now."""
        try:
            connection = sqlite3.connect(f"file:{quote(self._name)}?mode=ro&immutable=1", uri=True)
            try:
                found = connection.execute(self.sql.tip, (self.dataset,)).fetchone()
            finally:
                connection.close()
        except sqlite3.Error as error:  # other errors: somebody is moving the log into it
            return -1 if self.tables_missing(error) else None
        return -1 if found is None else Tip._make(found).seq

    def _check_log(self) -> None:
        """Refuse to continue if the write-ahead log was removed: it holds answers, and others cannot see new ones.

        Or if its index was: the next process would begin another, and the two would write over each other's answers.
        """
        folder = _state(self._folder)
        if (folder is None or folder != self._folder_state) and self._log_is_gone(folder):
            state = self._state_of_file()  # raises if the file is gone too: the folder was moved, or is out of reach
            if self._log_is_gone(_state(self._folder)):
                _lost.add(state[0])
                # Closed, they would move an old log into the file, and remove the one that others write to.
                for slot in (self._reads, self._writes):
                    slot.keep()
        if _lost and self._inode in _lost:
            raise self._unavailable(
                f"its log {self._path.name}-wal was removed while it was in use, or the -shm file beside it, perhaps"
                " with answers in it. End all programs that use the ledger, then restore both from a backup"
            )

    def _log_is_gone(self, folder: FileState | None) -> bool:
        """Whether the log or the index that a connection has open was removed or replaced; `folder` is now like this.

        While their folder is unchanged they were not, and the log is better not looked at: Linux (since 6.13) dates the
        next change of a file more finely once somebody has read its dates, and the commit after each look would have to
        write that date, too, which makes it a third slower.
        """
        opened = [
            (slot, connection, logs)
            for to_write, slot in ((False, self._reads), (True, self._writes))
            if (connection := slot.connection) is not None and (logs := self._logs.get(to_write)) is not None
        ]
        if not opened:
            return False
        there = self._logs_there()
        for slot, connection, logs in opened:
            # Only if it is open still: SQLite removes both with the last connection, which a fork closes at any moment.
            if (logs != there or there[0] is None) and slot.connection is connection and not slot.closing:
                return True
        # Dates may be as coarse as a clock tick, or a second: another change just now could have the same date.
        if folder is not None and folder[1] % 10**9 and time.time_ns() - folder[1] > _TICK:
            self._folder_state = folder
        return False

    def _logs_there(self) -> LogIds:
        log, index = self._log_names
        return _inode(log), _inode(index)

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
        if left < ROOM:
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

    def _sibling(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    def _damaged(self, fact: str) -> LedgerDamaged:
        return LedgerDamaged(f"Ledger {self.location} is damaged: {fact}", location=self.location)

    def _unavailable(self, fact: str) -> LedgerUnavailable:
        return LedgerUnavailable(f"Ledger {self.location} cannot be used: {fact}.", location=self.location)


_stores: WeakSet[SqliteStore] = WeakSet()
_lost: set[FileId] = set()  # ledgers whose log was removed while this process had it open


def _stores_of(file: FileId | None) -> list[SqliteStore]:
    while True:
        try:
            return [store for store in _stores if store._inode == file]
        except RuntimeError:  # another thread has added one
            continue


def _code(error: Exception) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code


def _inode(path: str) -> FileId | None:
    found = _state(path)
    return None if found is None else found[0]


def _state(path: str) -> FileState | None:
    try:
        found = os.stat(path)
    except OSError:  # gone, or out of reach
        return None
    return (found.st_dev, found.st_ino), found.st_mtime_ns, found.st_ctime_ns, found.st_size


def _sync(path: Path) -> None:
    if sys.platform == "win32":  # Windows cannot sync a folder
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
