"""A ledger in two tables of a database: one connection to read, one to write, each behind a lock.

Writers of one ledger must take turns anyway (each entry contains the hash of the one before), so a second writing
connection would only wait inside the database instead of here. Reads are short and never wait for writers.
"""

import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from math import inf
from pathlib import Path
from typing import Any
from weakref import finalize

from holdfast.cancel import about_to_wait
from holdfast.errors import HoldfastError, LedgerDamaged, LedgerUnavailable
from holdfast.ledger.concurrency import (
    Closeable,
    Connection,
    ConnectionSlot,
    GroupCommitter,
    OfOneProcess,
    PendingWrite,
    close_before_forks,
    duplicate,
    opening,
)
from holdfast.ledger.store import (
    MAX_DATASET_NAME,
    START,
    Row,
    Tip,
    Transaction,
    closed_error,
    nested_error,
    second_ledger,
)

ENTRIES, LEDGERS = "holdfast_entries", "holdfast_ledgers"

_TIP, _ROW = ", ".join(Tip._fields), ", ".join(Row._fields)
TABLES = (
    f"""CREATE TABLE {LEDGERS} (
        dataset VARCHAR({MAX_DATASET_NAME}) NOT NULL PRIMARY KEY, seq BIGINT NOT NULL, hash VARCHAR(64) NOT NULL,
        charge BIGINT NOT NULL, intervals BIGINT NOT NULL, peaks TEXT NOT NULL, taken_charge BIGINT NOT NULL,
        taken_intervals BIGINT NOT NULL, places BIGINT NOT NULL, secret VARCHAR(64) NOT NULL,
        content VARCHAR(64) UNIQUE)""",
    f"""CREATE TABLE {ENTRIES} (
        dataset VARCHAR({MAX_DATASET_NAME}) NOT NULL, seq BIGINT NOT NULL, key_digest VARCHAR(64), body TEXT NOT NULL,
        previous VARCHAR(64) NOT NULL, hash VARCHAR(64) NOT NULL, charge BIGINT NOT NULL, intervals BIGINT NOT NULL,
        PRIMARY KEY (dataset, seq))""",
    f"CREATE UNIQUE INDEX {ENTRIES}_by_key ON {ENTRIES} (dataset, key_digest)",
)


class Statements:
    """The SQL of one dialect: `mark` stands for a parameter."""

    def __init__(self, mark: str, *, lock: str, tables: tuple[str, ...]) -> None:
        row, tip = (", ".join([mark] * len(kind._fields)) for kind in (Row, Tip))
        self.tables = tables
        self.tip = f"SELECT {_TIP} FROM {LEDGERS} WHERE dataset = {mark}"
        self.lock = f"{self.tip}{lock}"
        self.find = f"SELECT {_ROW} FROM {ENTRIES} WHERE dataset = {mark} AND key_digest = {mark}"
        self.read = f"SELECT {_ROW} FROM {ENTRIES} WHERE dataset = {mark} AND seq >= {mark} ORDER BY seq LIMIT {mark}"
        self.hash_at = f"SELECT hash FROM {ENTRIES} WHERE dataset = {mark} AND seq = {mark}"
        self.insert = f"INSERT INTO {ENTRIES} (dataset, {_ROW}) VALUES ({mark}, {row})"
        self.append = f"{self.insert} ON CONFLICT (dataset, key_digest) DO NOTHING"  # a question is answered once
        self.advance = (
            f"UPDATE {LEDGERS} SET {', '.join(f'{name} = {mark}' for name in Tip._fields)} WHERE dataset = {mark}"
        )
        self.begin = f"INSERT INTO {LEDGERS} (dataset, {_TIP}, secret, content) VALUES ({mark}, {tip}, {mark}, {mark})"
        self.private = f"SELECT secret, content FROM {LEDGERS} WHERE dataset = {mark}"
        self.owner = f"SELECT dataset FROM {LEDGERS} WHERE content = {mark}"
        self.datasets = f"SELECT dataset FROM {LEDGERS} ORDER BY dataset"


AWAY = {  # libpq's limits on how long a server may be silent, in seconds unless noted
    "connect_timeout": 10,
    "tcp_user_timeout": 20_000,  # milliseconds until sent data must be acknowledged
    "keepalives_idle": 10,  # while waiting for an answer; the default is usually two hours
    "keepalives_interval": 5,
    "keepalives_count": 2,
}
_LOOK = 0.01  # seconds between two checks, while a fork waits, whether a connection is still open


class DatabaseTransaction:
    """An open write transaction; the tip is updated once for everything that is written in it."""

    def __init__(self, sql: Statements, dataset: str, connection: Connection) -> None:
        self._sql, self._dataset, self._connection = sql, dataset, connection
        found = connection.execute(sql.lock, (dataset,)).fetchone()
        self.start = self.tip = None if found is None else Tip._make(found)
        self.committed = False

    def hash_at(self, seq: int) -> str | None:
        """Return the hash of a row."""
        found = self._connection.execute(self._sql.hash_at, (self._dataset, seq)).fetchone()
        return None if found is None else found[0]

    def append(self, row: Row) -> Row:
        """Add the row, unless there is one with its key; `finish` updates the tip."""
        if self._connection.execute(self._sql.append, (self._dataset, *row)).rowcount == 0:
            found = self._connection.execute(self._sql.find, (self._dataset, row.key_digest)).fetchone()
            return Row._make(found)
        assert self.tip is not None
        self.tip = self.tip.after(row)
        return row

    def finish(self) -> None:
        """Write the new tip, if it has changed."""
        if self.tip is not None and self.tip != self.start:
            self._connection.execute(self._sql.advance, (*self.tip, self._dataset))


class Database(ABC, OfOneProcess):
    """What SQLite and PostgreSQL share."""

    begin_statement = "BEGIN"
    driver_errors: tuple[type[Exception], ...]
    patience = inf
    asking_folder: Path | None = None

    def __init__(self, location: str, dataset: str, sql: Statements, address: str | None = None) -> None:
        self.location = location
        self.address: str | None = f"{address or location} {dataset}"
        self.dataset = dataset
        self.sql = sql
        self._reads, self._writes = ConnectionSlot(), ConnectionSlot()
        self._writer: int | None = None  # the thread that holds the writing lock
        self._forked_while_open = False
        self._committer = GroupCommitter(location)
        self._resources: list[Closeable] = [self._writes, self._reads]
        self._closed = False
        super().__init__()
        # Closes a store that nobody closed; but not at exit, when a batch may still be in the middle of being written.
        finalize(self, _release, self._committer, self._resources).atexit = False
        close_before_forks(self)

    # -- what the dialects add ------------------------------------------------------------------------------------

    @abstractmethod
    def connect(self, *, to_write: bool = False) -> Connection:
        """Open a connection in autocommit mode."""

    @abstractmethod
    def in_transaction(self, connection: Any) -> bool:
        """Whether a transaction is open and can be committed."""

    @abstractmethod
    def translate(self, error: Exception) -> HoldfastError:
        """Turn the driver's error into one of holdfast's."""

    @abstractmethod
    def tables_missing(self, error: Exception) -> bool:
        """Whether the error says that the tables do not exist (yet)."""

    def connection_lost(self, error: Exception) -> bool:
        """Whether the error only says that an idle connection has died since it was last used."""
        return False

    @abstractmethod
    def create_alone(self, fill: Callable[[Connection], bool]) -> bool:
        """Implement `create`; called in the committer's thread with the lock held."""

    def present(self) -> bool:
        """Whether the database exists; checking must not create it."""
        return True

    def turn(self) -> AbstractContextManager[None]:
        """Wait for this process's turn to write, where the database itself does not queue writers."""
        return nullcontext()

    def look(self) -> None:
        """Raise if waiting for the turn has become pointless; called by the waiting threads."""

    # -- what a store does ----------------------------------------------------------------------------------------

    def tip(self) -> Tip | None:
        """Return the tip."""
        found = self._look_up(self.sql.tip)
        return Tip._make(found[0]) if found else None

    def find(self, key_digest: str) -> Row | None:
        """Return the row with this key."""
        found = self._look_up(self.sql.find, key_digest)
        return Row._make(found[0]) if found else None

    def read(self, start: int, limit: int) -> list[Row]:
        """Return up to `limit` rows from `start` on."""
        return [Row._make(row) for row in self._look_up(self.sql.read, start, limit)]

    def hash_at(self, seq: int) -> str | None:
        """Return the hash of a row."""
        found = self._look_up(self.sql.hash_at, seq)
        return found[0][0] if found else None

    def secret(self) -> bytes | None:
        """Return the secret."""
        found = self._look_up(self.sql.private)
        return bytes.fromhex(found[0][0]) if found else None

    def content(self) -> str | None:
        """Return the content."""
        found = self._look_up(self.sql.private)
        return found[0][1] if found else None

    def owner(self, content: str) -> str | None:
        """Return the dataset that has a ledger for this content here; None if there is none."""
        found = self._query(self.sql.owner, (content,)) if self.present() else []
        return found[0][0] if found else None

    def begin(self, genesis: Row, secret: bytes, content: str | None = None) -> bool:
        """Begin the ledger with this row, secret and content; False if somebody else was first."""
        return self.create(lambda connection: self.begin_ledger(connection, genesis, secret, content))

    def create(self, fill: Callable[[Connection], bool]) -> bool:
        """Create the tables if they are missing and fill them, all in one transaction; return what `fill` returns."""
        done: list[bool] = []
        pending = PendingWrite(lambda _: done.append(self.create_alone(fill)))
        self._submit(pending, partial(self._write_alone, pending), alone=True)
        return done[-1]

    def write(self, decide: Callable[[Transaction], None]) -> Transaction:
        """Write this, perhaps together with other threads' writes, and return when it is durable.

        An interrupted caller learns nothing: at worst the answer was paid for in vain, and asking again finds it.
        """
        about_to_wait()
        pending = PendingWrite(decide)
        self._submit(pending, self._write_batch)
        written: Transaction = pending.transaction
        return written

    def require_space(self) -> None:
        """Do nothing, where only the server knows."""

    def probe(self) -> None:
        """Raise if nothing could be written now; writes nothing."""
        if self.present() and self.tip() is not None:  # otherwise there is nothing to lock yet, perhaps no tables
            self.write(lambda _: None)

    def close(self) -> None:
        """Close both connections, except while the interpreter shuts down: the locks may then never be released.

        If a destructor or a signal handler calls this during a write, the connections stay open, because the write
        needs them to commit or roll back; they are closed when the store is garbage-collected.
        """
        self._closed = True
        if not sys.is_finalizing() and self._writer != threading.get_ident():
            self.check_process()
            # One after the other: a fork may wait for the first lock, and whoever holds the second for the fork.
            for slot in (self._writes, self._reads):
                with slot.lock:
                    slot.close()
            for resource in self._resources:
                if not isinstance(resource, ConnectionSlot):
                    resource.close()

    # -- writing --------------------------------------------------------------------------------------------------

    def _submit(self, pending: PendingWrite, work: Callable[[], None], alone: bool = False) -> None:
        if self._writer == threading.get_ident():  # a destructor or a signal handler that runs during a write
            raise nested_error(self.location)
        self.check_process()
        self._committer.submit(pending, work, self.look, alone)

    def _write_in_turn(self, write: Callable[[], None]) -> None:
        """Write once it is this process's turn. Only for the committer's thread, which no interrupt reaches."""
        with self.turn(), self._writes.lock:
            self._writer = threading.get_ident()
            try:
                write()
            finally:
                self._writer = None

    def _write_alone(self, pending: PendingWrite) -> None:
        try:
            self._write_in_turn(partial(pending.run, None))
        except BaseException as error:  # noqa: BLE001 - raised in the waiting thread
            pending.error = error
        pending.finish()

    def _write_batch(self) -> None:
        """Wait for the turn, then write everything that is pending by then, in one transaction."""
        if not self._committer:  # an earlier batch took everything
            return
        batch = list[PendingWrite]()
        try:
            self._write_in_turn(lambda: batch.extend(self._write_together(self._committer.take)))
        except BaseException as error:  # noqa: BLE001 - raised in each of the waiting threads
            batch = batch or _failed(self._committer.take(), error)  # a batch was written, even if the turn ended badly
        for pending in batch:  # only after the turn: a thread that continues finds it free
            pending.finish()

    def _write_together(self, take: Callable[[], list[PendingWrite]]) -> list[PendingWrite]:
        """Write what `take` returns once nobody else writes; return it, with each failed write's `error` set."""
        batch, deciding = list[PendingWrite](), False
        try:
            with self._transaction() as connection:
                transaction = DatabaseTransaction(self.sql, self.dataset, connection)
                batch, deciding = take(), True
                for pending in batch:
                    pending.transaction = transaction
                    pending.run(transaction)
                self._check_transaction(connection)
                transaction.finish()
                deciding = False  # until here a failure is certain to be undone; that of a COMMIT is not
            transaction.committed = True
        except BaseException as error:
            if not batch:
                raise
            if not deciding or len(batch) == 1:
                return _failed(batch, error)
            for place, pending in enumerate(batch):  # one write at a time: only the faulty one shall fail
                try:
                    self._write_together(partial(list, [pending]))
                except BaseException as again:  # noqa: BLE001 - no transaction began; raised in the waiting threads
                    _failed(batch[place:], again)
                    break  # each of the others would wait just as long, in vain
        return batch

    def commit(self, connection: Any) -> None:
        """Commit, or raise."""
        self._check_transaction(connection)
        about_to_wait()
        connection.execute("COMMIT")

    def _check_transaction(self, connection: Any) -> None:
        if not self.in_transaction(connection):  # COMMIT would seem to succeed
            raise LedgerUnavailable(
                f"Ledger {self.location} cannot be used: the database gave up the transaction. Try again.",
                location=self.location,
            )

    def begin_ledger(self, connection: Connection, genesis: Row, secret: bytes, content: str | None) -> bool:
        """Write the first row and the tip, inside an open transaction; return False if the ledger exists."""
        if connection.execute(self.sql.lock, (self.dataset,)).fetchone() is not None:
            return False
        if connection.execute(self.sql.read, (self.dataset, 0, 1)).fetchone() is not None:
            raise LedgerDamaged(  # beginning again would hand out the budget a second time
                f"Ledger {self.location} is damaged: it has entries of {self.dataset} but no head. Restore the ledger.",
                location=self.location,
            )
        self.insert_ledger(connection, START.after(genesis), secret, content)
        connection.execute(self.sql.insert, (self.dataset, *genesis))
        return True

    def insert_ledger(self, connection: Connection, tip: Tip, secret: bytes, content: str | None) -> None:
        """Write the tip of a new ledger; raise if its content already has one here, which would be a second budget."""
        found = None if content is None else connection.execute(self.sql.owner, (content,)).fetchone()
        if found is not None:
            raise second_ledger(self.location, found[0])
        connection.execute(self.sql.begin, (self.dataset, *tip, secret.hex(), content))

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """Begin, then commit or roll back; the caller must hold the writing lock."""
        try:
            connection = self._begin_transaction()
            try:
                yield connection
                self.commit(connection)
            except BaseException:
                self._roll_back(connection)
                raise
        except self.driver_errors as error:
            self._writes.close()
            raise self.translate(error) from error

    def _begin_transaction(self) -> Connection:
        reused = self._writes.connection is not None
        try:
            return self.execute_begin(self._open(self._writes))
        except self.driver_errors as error:
            if not (reused and self.connection_lost(error)):
                raise
        self._writes.close()
        return self.execute_begin(self._open(self._writes))

    def execute_begin(self, connection: Connection) -> Connection:
        """Begin a write transaction on this connection."""
        connection.execute(self.begin_statement)
        return connection

    def _roll_back(self, connection: Connection) -> None:
        try:
            connection.execute("ROLLBACK")
        except self.driver_errors:  # already rolled back, or unreachable: closing the connection rolls it back
            self._writes.close()

    # -- connections ----------------------------------------------------------------------------------------------

    def _look_up(self, sql: str, *parameters: object) -> list[Any]:
        """Run one SELECT about this dataset."""
        return self._query(sql, (self.dataset, *parameters)) if self.present() else []

    def _query(self, sql: str, parameters: tuple[object, ...]) -> list[Any]:
        """Run one SELECT, and run it again if the connection has died since it was last used."""
        self.check_process()
        began = time.monotonic()
        with self._reads.lock:  # do not `return f()` in here: an interrupt right after the call would leave it locked
            away = self._reads.away
            if away is not None and away[0] > began:  # another thread failed while this one waited: do not wait again
                raise duplicate(away[1])
            reused = self._reads.connection is not None
            try:
                rows: list[Any] = self._open(self._reads).execute(sql, parameters).fetchall()
            except self.driver_errors as error:
                rows = self._query_again(error, reused, sql, parameters)
        return rows

    def _query_again(self, error: Exception, reused: bool, sql: str, parameters: tuple[object, ...]) -> list[Any]:
        if self.tables_missing(error):
            return []
        self._reads.close()
        lost = self.connection_lost(error)
        if reused and lost:
            return self._query(sql, parameters)
        translated = self.translate(error)
        if lost:
            self._reads.away = time.monotonic(), duplicate(translated)  # a copy that no thread raises
        raise translated from error

    def _open(self, slot: ConnectionSlot) -> Connection:
        if self._closed:
            raise closed_error(self.location)
        if slot.connection is None:
            with self.no_fork():  # later forks see `connecting` and wait for this connection
                slot.connecting = True
            try:
                slot.connection = self.connect(to_write=slot is self._writes)
            finally:
                slot.connecting = False
        return slot.connection

    def _close_all(self) -> None:
        for resource in self._resources:
            resource.close()

    # -- forks ----------------------------------------------------------------------------------------------------

    def no_fork(self) -> AbstractContextManager[object]:
        """Wait for a fork in progress, and hold up others; but not the thread that writes, for which a fork waits."""
        writing = self._writer == threading.get_ident() and self._writes.connection is not None
        return nullcontext() if writing else opening

    def close_for_fork(self) -> None:
        """Close the connections once no thread uses them; threads that want to open one wait for the fork to end."""
        for slot in (self._writes, self._reads):
            while slot.connection is not None or slot.connecting:
                if slot.lock.acquire(timeout=_LOOK):
                    try:
                        slot.close()
                        slot.connecting = False  # in case opening was interrupted
                    finally:
                        slot.lock.release()

    def _forget(self) -> None:
        """Start with new locks, no thread and nothing pending: the parent's threads are not in this process."""
        self._writer = None
        self._committer.reset()
        for slot in (self._reads, self._writes):
            slot.lock = threading.RLock()
            if slot.connection is not None or slot.connecting:  # an interrupt ended the fork hook early
                if slot.connection is not None:
                    _inherited.append(slot.connection)  # closing it would break the parent's connection
                slot.connection, slot.connecting = None, False
                self._forked_while_open = True
        self._close_all()


def _failed(batch: list[PendingWrite], error: BaseException) -> list[PendingWrite]:
    for pending in batch:
        pending.error = duplicate(error)
    return batch


def _release(committer: GroupCommitter, resources: list[Closeable]) -> None:
    committer.stop()
    for resource in resources:
        resource.close()


_inherited: list[Connection] = []  # kept here so that they are never garbage-collected and closed
