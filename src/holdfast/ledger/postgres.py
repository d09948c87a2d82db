"""Ledgers in a PostgreSQL database: many datasets, many machines.

The row of `holdfast_ledgers` is locked FOR UPDATE while an entry is added; PostgreSQL queues the writers.
If the server is lost during COMMIT, nobody knows whether the entry was written: the answer was not shown, so at worst
it was paid for in vain, and asking again finds it. Anybody who may read `holdfast_ledgers` knows the ledgers' secrets:
grant access only to the accounts that run holdfast.
"""

from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import URL

from holdfast.errors import HoldfastError, LedgerDamaged, LedgerUnavailable
from holdfast.ledger import chain
from holdfast.ledger.concurrency import Connection
from holdfast.ledger.database import AWAY, ENTRIES, LEDGERS, TABLES, Database, Statements

LOCK_TIMEOUT = 20  # seconds to wait for a lock
_CREATING = 0x686F6C6466617374  # "holdfast": one session at a time creates the tables
_APPEND_ONLY = """CREATE OR REPLACE FUNCTION holdfast_append_only() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'a ledger is append-only'; END $$"""
_TRIGGER = """CREATE TRIGGER {table}_no_{act} BEFORE {act} ON {table}
FOR EACH STATEMENT EXECUTE FUNCTION holdfast_append_only()"""
_FORBIDDEN = ((ENTRIES, "UPDATE"), *((table, act) for table in (ENTRIES, LEDGERS) for act in ("DELETE", "TRUNCATE")))

SQL = Statements(
    "%s",
    lock=" FOR UPDATE",
    tables=(*TABLES, _APPEND_ONLY, *(_TRIGGER.format(table=table, act=act) for table, act in _FORBIDDEN)),
)


class PostgresStore(Database):
    """The rows of one dataset in a PostgreSQL database."""

    # Set explicitly, whatever the server's default: under a stricter level, queued writers would fail to serialize.
    begin_statement = "BEGIN ISOLATION LEVEL READ COMMITTED"
    driver_errors = (psycopg.Error,)

    def __init__(self, url: URL, dataset: str) -> None:
        url = url.set(drivername="postgresql+psycopg")
        _, address = url.get_dialect()().create_connect_args(url)
        self._address = {**AWAY, **address}
        super().__init__(url.render_as_string(hide_password=True), dataset, SQL)

    def create_alone(self, fill: Callable[[Connection], bool]) -> bool:
        """Create the tables if they are missing, and fill them."""
        with self._transaction() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATING,))
            if connection.execute("SELECT to_regclass(%s)", (LEDGERS,)).fetchone() == (None,):
                for statement in self.sql.tables:
                    connection.execute(statement)
            return fill(connection)

    def connect(self, *, to_write: bool = False) -> psycopg.Connection[Any]:
        """Connect; make commits wait for the disk, whatever the server's default."""
        connection = psycopg.connect(**{**self._address, "client_encoding": "utf8"}, autocommit=True)
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":  # some texts could not be stored
            connection.close()
            raise LedgerUnavailable(
                f"Ledger {self.location} cannot be used: the database is encoded in {encoding}. Use one in UTF8.",
                location=self.location,
            )
        for setting in (
            "synchronous_commit TO on",
            f"lock_timeout TO '{LOCK_TIMEOUT}s'",
            "application_name TO holdfast",
        ):
            connection.execute(f"SET {setting}")
        return connection

    def execute_begin(self, connection: Connection) -> Connection:
        """Begin; if `patience` is short, wait no longer than that for the lock."""
        super().execute_begin(connection)
        if self.patience < LOCK_TIMEOUT:
            connection.execute(f"SET LOCAL lock_timeout TO {int(1000 * self.patience)}")
        return connection

    def in_transaction(self, connection: psycopg.Connection[Any]) -> bool:
        """Whether a transaction is open and has not failed."""
        return connection.info.transaction_status is TransactionStatus.INTRANS

    def tables_missing(self, error: Exception) -> bool:
        """Whether nobody has created the tables yet."""
        return isinstance(error, psycopg.errors.UndefinedTable)

    def connection_lost(self, error: Exception) -> bool:
        """Whether the server has closed a connection since it was last used."""
        return isinstance(error, psycopg.OperationalError)

    def translate(self, error: Exception) -> HoldfastError:
        """Distinguish damage, and ledgers of an earlier version, from a server that is unreachable or busy."""
        if isinstance(error, psycopg.errors.UndefinedColumn):
            return chain.unknown_format(self.location, None)
        if isinstance(error, psycopg.IntegrityError):
            return LedgerDamaged(
                f"Ledger {self.location} is damaged: {self.dataset} has entries beyond its head. Restore the ledger.",
                location=self.location,
            )
        return LedgerUnavailable(
            f"Ledger {self.location} cannot be used: PostgreSQL says {str(error).strip()!r}. "
            "Check the server and the address, then try again.",
            location=self.location,
        )
