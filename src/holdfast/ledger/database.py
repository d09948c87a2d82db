"""A ledger in a database: one connection to read, one to write, each behind a lock.

Writers of one ledger take turns anyway (each entry contains the hash of the one before), so a second writing
connection would only wait inside the database instead of here. The scribe writes for all threads that wait: one
transaction, one sync to disk, however many they are. Reads are short and never wait for writers.
"""

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol
from weakref import finalize

from holdfast.errors import HoldfastError, LedgerDamaged
from holdfast.ledger import forking
from holdfast.ledger.scribe import Job, Scribe
from holdfast.ledger.store import Row, Tip
from holdfast.ledger.tables import Statements


class Cursor(Protocol):
    """The part of a DB-API cursor used here."""

    def execute(self, sql: Any, parameters: Any = ..., /) -> object: ...  # noqa: D102
    def fetchone(self) -> Any: ...  # noqa: D102
    def fetchall(self) -> list[Any]: ...  # noqa: D102


class Connection(Protocol):
    """The part of a DB-API connection used here; in autocommit mode: transactions are begun by hand."""

    def cursor(self) -> Cursor: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class Held(Protocol):
    """Something to let go of."""

    def drop(self) -> None: ...  # noqa: D102


class Line:
    """One connection, opened when needed, used by one thread at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connection: Connection | None = None
        self.cursor: Cursor | None = None

    def drop(self) -> None:
        """Close the connection; call it holding the lock."""
        connection, self.connection, self.cursor = self.connection, None, None
        if connection is not None:
            connection.close()


class Transaction:
    """An open write transaction."""

    def __init__(self, store: "Database", cursor: Cursor) -> None:
        self._store, self._cursor = store, cursor
        cursor.execute(store.sql.lock, {"name": store.dataset})
        found = cursor.fetchone()
        self._tip = None if found is None else Tip._make(found)

    def tip(self) -> Tip | None:
        """Return the tip as locked, and as moved since."""
        return self._tip

    def find(self, key_digest: str) -> Row | None:
        """Return the row with this key."""
        self._cursor.execute(self._store.sql.find, {"name": self._store.dataset, "key_digest": key_digest})
        found = self._cursor.fetchone()
        return None if found is None else Row._make(found)

    def append(self, row: Row) -> None:
        """Add the row and move the tip."""
        name = self._store.dataset
        self._cursor.execute(self._store.sql.append, {"dataset": name, **row._asdict()})
        self._tip = Tip(row.seq, row.hash, row.charge, row.intervals)
        self._cursor.execute(
            self._store.sql.advance,
            {
                "name": name,
                "new_seq": row.seq,
                "new_hash": row.hash,
                "new_charge": row.charge,
                "new_intervals": row.intervals,
            },
        )


class Database(ABC):
    """What SQLite and PostgreSQL share."""

    begin = "BEGIN"
    driver_errors: tuple[type[Exception], ...]

    def __init__(self, location: str, dataset: str, sql: Statements) -> None:
        self.location = location
        self.dataset = dataset
        self.sql = sql
        self._reads, self._writes = Line(), Line()
        self._scribe = Scribe(location)
        self._held: list[Held] = [self._writes, self._reads]
        # A ledger that nobody closes leaves nothing open; but not at exit, where the scribe may still be writing.
        finalize(self, _drop_all, self._held).atexit = False
        forking.watch(self)

    @abstractmethod
    def connect(self) -> Connection:
        """Open a connection in autocommit mode."""

    @abstractmethod
    def translate(self, error: Exception) -> HoldfastError:
        """Turn the driver's error into ours."""

    @abstractmethod
    def absent(self, error: Exception) -> bool:
        """Whether the error says that the tables are not there (yet)."""

    def gone(self, error: Exception) -> bool:
        """Whether the error only says that a connection kept open has died meanwhile."""
        return False

    def commit(self, cursor: Any) -> None:
        """Commit, or raise."""
        cursor.execute("COMMIT")

    def turn(self) -> AbstractContextManager[None]:
        """Wait for this process's turn to write, where the database itself does not queue writers."""
        return nullcontext()

    def tip(self) -> Tip | None:
        """Return the tip."""
        found = self._ask(self.sql.tip, {"name": self.dataset})
        return Tip._make(found[0]) if found else None

    def find(self, key_digest: str) -> Row | None:
        """Return the row with this key."""
        found = self._ask(self.sql.find, {"name": self.dataset, "key_digest": key_digest})
        return Row._make(found[0]) if found else None

    def read(self, start: int, limit: int) -> list[Row]:
        """Return up to `limit` rows from `start` on."""
        found = self._ask(self.sql.read, {"name": self.dataset, "start": start, "count": limit})
        return [Row._make(row) for row in found]

    def create(self, genesis: Row) -> bool:
        """Begin the ledger with this row; False if somebody else was first."""
        begun: list[bool] = []
        self._scribe.bring(Job(lambda _: begun.append(self.begin_at(genesis)), alone=True), self._write_all)
        return begun[-1]

    @abstractmethod
    def begin_at(self, genesis: Row) -> bool:
        """Do what `create` says; the scribe calls it, when it has the turn."""

    def write(self, settle: Callable[[Transaction], None]) -> None:
        """Have the scribe write this, with what other threads bring meanwhile, and return when it is durable.

        Interrupted, the caller learns nothing; at worst the answer was paid for in vain, and asking again finds it.
        """
        self._scribe.bring(Job(settle), self._write_all)

    def _write_all(self, take: Callable[[], list[Job]]) -> None:
        """Wait for the turn, then do what has been brought by then: in one transaction, but for the first of all."""
        with self._writes.lock, self.turn():
            jobs = take()
            together = [job for job in jobs if not job.alone]
            if together:
                self._write_together(together)
            for job in jobs:
                if job.alone:
                    with job.outcome():
                        job.do(None)

    def _write_together(self, jobs: list[Job]) -> None:
        settling = False
        try:
            with self._transaction() as cursor:
                transaction = Transaction(self, cursor)
                settling = True
                for job in jobs:
                    job.do(transaction)
                settling = False
        except BaseException:
            if not settling or len(jobs) == 1:
                raise
            for job in jobs:  # one of them is the reason: nobody else's work shall fail with it
                with job.outcome():
                    self._write_together([job])
        else:
            for job in jobs:
                job.end()

    def close(self) -> None:
        """Close both connections. While the interpreter is taken down they end with it: nobody lets go of locks."""
        if not sys.is_finalizing():
            with self._writes.lock, self._reads.lock:
                self._let_go()

    def begin_ledger(self, cursor: Cursor, genesis: Row) -> bool:
        """Write the first row and the tip, inside an open transaction; False if the ledger is there."""
        cursor.execute(self.sql.lock, {"name": self.dataset})
        if cursor.fetchone() is not None:
            return False
        cursor.execute(self.sql.read, {"name": self.dataset, "start": 0, "count": 1})
        if cursor.fetchone() is not None:  # beginning anew would hand out the budget a second time
            raise LedgerDamaged(
                f"Ledger {self.location} is damaged: it has entries of {self.dataset} but no head. Restore the ledger.",
                location=self.location,
            )
        tip = Tip(genesis.seq, genesis.hash, genesis.charge, genesis.intervals)
        cursor.execute(self.sql.begin, {"dataset": self.dataset, **tip._asdict()})
        cursor.execute(self.sql.append, {"dataset": self.dataset, **genesis._asdict()})
        return True

    def _ask(self, sql: str, parameters: dict[str, object]) -> list[Any]:
        """Run one reading statement; once more if the connection has died since it was last used."""
        with self._reads.lock, self._translated(self._reads):
            kept = self._reads.cursor is not None
            try:
                return self._fetch(sql, parameters)
            except self.driver_errors as error:
                if self.absent(error):
                    return []
                if not (kept and self.gone(error)):
                    raise
            self._reads.drop()
            return self._fetch(sql, parameters)

    def _fetch(self, sql: str, parameters: dict[str, object]) -> list[Any]:
        cursor = self._open(self._reads)
        cursor.execute(sql, parameters)
        return cursor.fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[Cursor]:
        """Begin, then commit or undo; call it holding the writing lock."""
        with self._translated(self._writes):
            cursor = self._start()
            try:
                yield cursor
                self.commit(cursor)
            except BaseException:
                self._undo(cursor)
                raise

    def _start(self) -> Cursor:
        kept = self._writes.cursor is not None
        try:
            return self._begin()
        except self.driver_errors as error:
            if not (kept and self.gone(error)):
                raise
        self._writes.drop()
        return self._begin()

    def _begin(self) -> Cursor:
        cursor = self._open(self._writes)
        cursor.execute(self.begin)
        return cursor

    def _undo(self, cursor: Cursor) -> None:
        try:
            cursor.execute("ROLLBACK")
        except self.driver_errors:  # already undone, or unreachable: closing undoes it
            self._writes.drop()

    def _open(self, line: Line) -> Cursor:
        if line.cursor is None:
            line.connection = self.connect()
            line.cursor = line.connection.cursor()
        return line.cursor

    @contextmanager
    def _translated(self, line: Line) -> Iterator[None]:
        try:
            yield
        except self.driver_errors as error:
            line.drop()
            raise self.translate(error) from error

    def pause(self) -> None:
        """Wait for the threads that use the connections, keep others away, and close them."""
        for line in (self._writes, self._reads):
            line.lock.acquire()
        self._let_go()

    def _let_go(self) -> None:
        _drop_all(self._held)

    def resume(self) -> None:
        """Let threads use connections again."""
        for line in (self._reads, self._writes):
            line.lock.release()

    def begin_anew(self) -> None:
        """In a forked child: the parent's threads are not here, and what they wait to write is theirs."""
        self._scribe = Scribe(self.location)
        for line in (self._reads, self._writes):
            line.lock = threading.Lock()
            if line.connection is not None:  # the fork could not be waited for; closing it here would hurt the parent
                _inherited.append(line.connection)
                line.connection = line.cursor = None
        self._let_go()


def _drop_all(held: list[Held]) -> None:
    for one in held:
        one.drop()


_inherited: list[Connection] = []
