"""The file of a SQLite ledger, its write-ahead log and its lock file: are they still those that were opened?

A file may be moved, replaced or overwritten with an older copy, and its log removed, while it is in use. SQLite does
not notice, and would lose answers. So before each read and write, and after each commit, the dates of the file and of
its folder are looked at, and if they have changed, what is in them.
"""

import os
import sqlite3
import sys
import time
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any
from urllib.parse import quote
from weakref import WeakSet

from holdfast.errors import HoldfastError, LedgerDamaged, LedgerUnavailable
from holdfast.ledger.concurrency import open_private
from holdfast.ledger.database import Database, Statements
from holdfast.ledger.store import Tip

if sys.platform != "win32":
    import fcntl

POLL = 0.005  # seconds between two checks of a busy file
_STILL = 1.0  # seconds without a change after which no checkpoint (log moved into the file) can be under way
_CHECKPOINT = 20.0  # seconds after which it is not waited for any longer
_TICK = 10**8  # nanoseconds, more than the tick of any clock that dates files to less than a second

FileId = tuple[int, int]  # device and inode: another file system mounted here may have the same inodes
FileState = tuple[
    FileId, int, int, int
]  # with times and size: changes whenever the file, or the list of a folder, does
LogIds = tuple[FileId | None, FileId | None]  # of the write-ahead log, and of its index, which says where the log ends


class SqliteFile(Database):
    """A database in a file, which is watched as long as it is open."""

    def __init__(self, path: Path, dataset: str, sql: Statements) -> None:
        self._name = str(path.absolute())
        self._follow_links()
        self._lock_file = LockFile(self._sibling("-lock"))  # set first: from `super().__init__` on, a fork closes it
        super().__init__(str(path), dataset, sql, str(self._path))
        self._resources.append(self._lock_file)
        self._inode: FileId | None = None
        self._state: FileState | None = None  # of the file, when it was last checked
        self._seq = -1  # the newest entry in the file then
        self._older: FileState | None = None  # the state in which the file was found to be an older copy
        self._logs: dict[bool, LogIds] = {}  # those that the connections have open; True: the one that writes
        self._folder_state: FileState | None = None  # in which these were known to be there
        _stores.add(self)

    def _follow_links(self) -> None:
        """Find where the file is: SQLite puts the log beside the file itself, not beside a link to it."""
        self._path = Path(os.path.realpath(self._name))
        self._folder, self._log_names = str(self._path.parent), (f"{self._path}-wal", f"{self._path}-shm")
        self.asking_folder = self._sibling("-asking")

    def tip(self) -> Tip | None:
        """Return the tip; raise if another file has replaced the one that was opened."""
        self._check_same_file()
        return super().tip()

    def before_connecting(self, to_write: bool) -> None:
        """Note which file is opened, and check the log of every connection to it.

        This comes before connecting: if interrupted here, no connection is left that nobody can close.
        """
        if self._inode is None:
            self._follow_links()  # somebody may have made one since
            self._inode = _inode(str(self._path))
        for store in _stores_of(self._inode):  # SQLite shares the index among all connections of a process
            store._check_log()
        self._logs.pop(to_write, None)

    def connected(self, to_write: bool) -> None:
        """Note which log a new connection has open."""
        self._logs[to_write], self._folder_state = self._logs_there(), None

    def commit(self, connection: Any) -> None:
        """Commit; then check that the log it was written to has not been removed."""
        super().commit(connection)
        self._check_log()

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
        state, since, until = None, 0.0, time.monotonic() + _CHECKPOINT
        while True:
            found, seq, now = self._state_of_file(), self._seq_in_file(), time.monotonic()
            if seq is not None and seq >= known:
                return False
            if found != state:
                state, since = found, now
            if now > min(since + _STILL, until):
                return seq is not None
            time.sleep(POLL)

    def _seq_in_file(self) -> int | None:
        """Return the newest entry in the file without its log, -1 for none; None if it cannot be read just now.

        Nobody forks meanwhile: a child would wait for ever for what a thread that it does not have holds in SQLite.
        """
        try:
            with self.no_fork():
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

    def _sibling(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    def _damaged(self, fact: str) -> LedgerDamaged:
        return LedgerDamaged(f"Ledger {self.location} is damaged: {fact}", location=self.location)

    def _unavailable(self, fact: str) -> LedgerUnavailable:
        return LedgerUnavailable(f"Ledger {self.location} cannot be used: {fact}.", location=self.location)


_stores: WeakSet[SqliteFile] = WeakSet()
_lost: set[FileId] = set()  # ledgers whose log was removed while this process had it open


def _stores_of(file: FileId | None) -> list[SqliteFile]:
    while True:
        try:
            return [store for store in _stores if store._inode == file]
        except RuntimeError:  # another thread has added one
            continue


def _inode(path: str) -> FileId | None:
    found = _state(path)
    return None if found is None else found[0]


def _state(path: str) -> FileState | None:
    try:
        found = os.stat(path)
    except OSError:  # gone, or out of reach
        return None
    return (found.st_dev, found.st_ino), found.st_mtime_ns, found.st_ctime_ns, found.st_size


class LockFile:
    """A lock file, opened when needed. It may be closed, which releases the lock, even while a thread waits for it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.file: FileIO | None = None  # not its descriptor, which may be reused for another file once it is closed

    def acquire(self) -> None:
        """Wait for the lock without a time limit; continue without it if the file is closed meanwhile, as by a fork."""
        if sys.platform != "win32":
            file = self.file
            if file is None:
                file = self.file = FileIO(open_private(self._path), "r+")
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
            except (ValueError, OSError):
                if not file.closed:
                    raise

    def release(self) -> None:
        """Release the lock."""
        file = self.file
        if sys.platform != "win32" and file is not None:
            with suppress(ValueError):  # closed meanwhile
                fcntl.flock(file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file."""
        file, self.file = self.file, None
        if file is not None:
            file.close()
