"""A PostgreSQL table or query, through ADBC: one snapshot, whatever is written meanwhile."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import polars as pl

from holdfast.errors import InvalidArgument, MissingExtra, RowSourceError
from holdfast.rows.batches import cut
from holdfast.rows.scans.scan import BATCH, UNREADABLE, Origin, Scan

POSTGRES = ("postgresql://", "postgres://")
_BATCH_BYTES = 2 << 20  # small, so that the server keeps sending while rows are processed here


def scan_postgres(url: str) -> "PostgresScan":
    """Return the scan of `postgresql://user@host/database?table=schema.name`, or `...?query=SELECT ...`."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    table, query = options.pop("table", None), options.pop("query", None)
    shown = f"{parts.scheme}://{parts.hostname or ''}{parts.path}"  # never the password
    if (table is None) == (query is None):
        raise InvalidArgument(
            f"A database URL must name a table or a query: {shown}?table=events, or {shown}?query=SELECT ...",
            name="data",
        )
    address = urlunsplit(parts._replace(query=urlencode(options)))
    return PostgresScan(address, shown, table, query)


class PostgresScan(Scan):
    """Rows as one transaction sees them."""

    def __init__(self, address: str, shown: str, table: str | None, query: str | None) -> None:
        self._address = address
        self._connection: Any = None
        self.where = f"{shown}?table={table}" if table is not None else shown
        self.name = table.rpartition(".")[2] if table is not None else "query"
        quoted = ".".join('"' + part.replace('"', '""') + '"' for part in table.split(".")) if table else ""
        self._query = f"SELECT * FROM {quoted}" if table is not None else (query or "").rstrip().rstrip(";")

    def open(self) -> None:
        """Connect, begin the transaction, and ask for the columns."""
        try:
            from adbc_driver_manager import Error
            from adbc_driver_postgresql import dbapi
        except ImportError:
            raise MissingExtra(
                "Rows in PostgreSQL need ADBC. Install it with: pip install 'holdfast[adbc]'.", extra="adbc"
            ) from None
        self._errors: tuple[type[BaseException], ...] = (Error, *UNREADABLE)
        try:
            self._connection = dbapi.connect(self._address)
            with self._connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                # Otherwise a scan may start where a concurrent one is; the same rows must come in the same order twice.
                cursor.execute("SET LOCAL synchronize_seqscans = off")
                cursor.execute(f"SELECT * FROM ({self._query}) AS rows LIMIT 0")
                found = pl.DataFrame(cursor.fetch_arrow_table())
        except self._errors as problem:
            raise self._failed(problem) from None
        self.take_schema(found.schema)

    def origin(self) -> Origin:
        """Return the origin without a state: a database has no version."""
        return Origin(self.where, "")

    def rows(self) -> int | None:
        """Count the rows of the snapshot."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(f"SELECT count(*) FROM ({self._query}) AS rows")
                return int(cursor.fetchone()[0])
        except self._errors as problem:
            raise self._failed(problem) from None

    def batches(self, after: int = 0) -> Iterator[pl.DataFrame]:
        """Copy the rows of the snapshot."""
        try:
            with self._connection.cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
                cursor.execute(self._query)
                for batch in cursor.fetch_record_batch():
                    yield from cut(pl.DataFrame(batch), BATCH)
        except self._errors as problem:
            raise self._failed(problem) from None

    def close(self) -> None:
        """End the transaction and the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _failed(self, problem: BaseException) -> RowSourceError:
        """Return an error with only the code of the reason, since its text may quote values."""
        code = getattr(problem, "sqlstate", None)
        return RowSourceError(f"Cannot read {self.where} from PostgreSQL{f' (SQLSTATE {code})' if code else ''}.")
