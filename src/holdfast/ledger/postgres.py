"""Ledgers in a PostgreSQL database: many datasets, many machines.

The row of `holdfast_ledgers` is locked FOR UPDATE while an entry is added; PostgreSQL queues the writers.
If the server is lost during COMMIT, nobody knows whether the entry was written: the answer was not shown, so at worst
it was paid for in vain, and asking again finds it.
"""

from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import URL

from holdfast.errors import HoldfastError, LedgerDamaged, LedgerUnavailable
from holdfast.ledger.database import Database
from holdfast.ledger.store import Row
from holdfast.ledger.tables import LEDGERS, statements

PATIENCE = 60  # seconds to wait for a lock
_CREATING = 0x686F6C6466617374  # "holdfast": one session at a time creates the tables


class PostgresStore(Database):
    """The rows of one dataset in a PostgreSQL database."""

    begin = "BEGIN ISOLATION LEVEL READ COMMITTED"  # whatever the server prefers: writers queue, none is turned away
    driver_errors = (psycopg.Error,)

    def __init__(self, url: URL, dataset: str) -> None:
        url = url.set(drivername="postgresql+psycopg")
        dialect = url.get_dialect()()
        _, self._address = dialect.create_connect_args(url)
        super().__init__(url.render_as_string(hide_password=True), dataset, statements(dialect))

    def begin_at(self, genesis: Row) -> bool:
        """Begin the ledger; make the tables first if they are not there."""
        with self._transaction() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%(number)s)", {"number": _CREATING})
            if not self._has_tables(cursor):
                for statement in self.sql.schema:
                    cursor.execute(statement)
            return self.begin_ledger(cursor, genesis)

    def connect(self) -> psycopg.Connection[Any]:
        """Connect; commits wait for the disk whatever the server's default is."""
        connection = psycopg.connect(**{**self._address, "client_encoding": "utf8"}, autocommit=True)
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":  # some texts could not be written
            connection.close()
            raise LedgerUnavailable(
                f"Ledger {self.location} cannot be used: the database is encoded in {encoding}. Use one in UTF8.",
                location=self.location,
            )
        for setting in ("synchronous_commit TO on", f"lock_timeout TO '{PATIENCE}s'", "application_name TO holdfast"):
            connection.execute(f"SET {setting}")
        return connection

    def commit(self, cursor: Any) -> None:
        """Commit; outside a transaction, or after one that failed, PostgreSQL would call that a success."""
        if cursor.connection.info.transaction_status is not TransactionStatus.INTRANS:
            raise LedgerUnavailable(
                f"Ledger {self.location} cannot be used: PostgreSQL gave up the transaction. Try again.",
                location=self.location,
            )
        super().commit(cursor)

    def absent(self, error: Exception) -> bool:
        """Whether nobody has created the tables yet."""
        return isinstance(error, psycopg.errors.UndefinedTable)

    def gone(self, error: Exception) -> bool:
        """Whether the server has closed a connection since it was last used."""
        return isinstance(error, psycopg.OperationalError)

    def translate(self, error: Exception) -> HoldfastError:
        """Tell damage from a server that is away or busy."""
        if isinstance(error, psycopg.IntegrityError):
            return LedgerDamaged(
                f"Ledger {self.location} is damaged: entries of {self.dataset} lie beyond its head. "
                "Restore the ledger.",
                location=self.location,
            )
        return LedgerUnavailable(
            f"Ledger {self.location} cannot be used: PostgreSQL says {str(error).strip()!r}. "
            "Check the server and the address, then try again.",
            location=self.location,
        )

    @staticmethod
    def _has_tables(cursor: Any) -> bool:
        cursor.execute("SELECT to_regclass(%(table)s)", {"table": LEDGERS})
        return bool(cursor.fetchone() != (None,))
