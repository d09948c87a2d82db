"""The token database: tokens, sign-ins, idempotency keys, quota reservations, registered datasets.

Secrets are stored as digests only. There are two engines on one database. `durable` syncs every commit: a revoked token
stays revoked. `relaxed` does not: what it writes (idempotency keys, reservations) survives a killed process, and losing
it in a power failure is harmless, since the answers themselves are in the ledger.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Float,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    make_url,
)
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError

from holdfast.errors import InvalidArgument, LedgerUnavailable, MissingExtra

UNREACHABLE = "The token database is unavailable. Check that it exists and is writable, then try again."
metadata = MetaData()
tokens = Table(
    "holdfast_tokens",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    Column("name", String(100), nullable=False),
    Column("admin", Boolean, nullable=False),
    Column("datasets", Text, nullable=False),  # JSON list of names, or "*"
    Column("quota", BigInteger),
    Column("created", Float, nullable=False),
    Column("expires", Float),
    Column("revoked", Float),
)
sign_ins = Table(  # cookies, and one-time links that were not used yet
    "holdfast_sign_ins",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("token", String(32), nullable=False),
    Column("once", Boolean, nullable=False),
    Column("expires", Float, nullable=False),
)
idempotency_keys = Table(
    "holdfast_idempotency_keys",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("request", String(64), nullable=False),
    Column("response", Text, nullable=False),
    Column("expires", Float, nullable=False, index=True),
)
reservations = Table(
    "holdfast_reservations",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("analyst", String(100), nullable=False, index=True),
    Column("dataset", String(200), nullable=False),
    Column("answers", BigInteger, nullable=False),
    Column("expires", Float, nullable=False),
)
registered_datasets = Table(
    "holdfast_registered_datasets",
    metadata,
    Column("name", String(100), primary_key=True),
    Column("settings", Text, nullable=False),
)


class TokenDatabase:
    """One database, two engines: `durable` syncs every commit, `relaxed` does not."""

    def __init__(self, url: str) -> None:
        try:
            parsed = make_url(url)
        except (ArgumentError, ValueError):  # it may contain a password: do not quote it
            raise InvalidArgument("database must be a database URL; got one that cannot be parsed.") from None
        if parsed.get_backend_name() == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        try:
            self.durable = _engine(parsed, durable=True)
            self.relaxed = _engine(parsed, durable=False)
        except ImportError:
            raise MissingExtra(
                "A server on PostgreSQL needs psycopg. Install it with: pip install 'holdfast[postgres]'.",
                extra="postgres",
            ) from None
        with translate_errors():
            try:
                metadata.create_all(self.durable)
            except SQLAlchemyError:  # another process created them at the same moment; if not, this raises why
                metadata.create_all(self.durable)

    def close(self) -> None:
        """Close every connection."""
        self.durable.dispose()
        self.relaxed.dispose()


def _engine(url: Any, *, durable: bool) -> Engine:
    if url.get_backend_name() != "sqlite":
        engine = create_engine(url, pool_pre_ping=True, pool_size=5, max_overflow=20)
        setting = f"SET synchronous_commit TO {'on' if durable else 'off'}"
        event.listen(engine, "connect", lambda connection, _: _execute(connection, setting))
        return engine
    engine = create_engine(url, connect_args={"timeout": 60, "check_same_thread": False})

    def set_pragmas(connection: Any, _: Any) -> None:
        for pragma in ("journal_mode=WAL", f"synchronous={'FULL' if durable else 'NORMAL'}"):
            _execute(connection, f"PRAGMA {pragma}")

    event.listen(engine, "connect", set_pragmas)
    return engine


def _execute(connection: Any, statement: str) -> None:
    cursor = connection.cursor()
    cursor.execute(statement)
    cursor.close()
    connection.commit()


@contextmanager
def write_transaction(engine: Engine) -> Iterator[Connection]:
    """Open a transaction; SQLite takes the write lock at once, so that what was read cannot change before the write."""
    with translate_errors(), engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield connection
        connection.commit()


@contextmanager
def read_transaction(engine: Engine) -> Iterator[Connection]:
    """Open a short read."""
    with translate_errors(), engine.connect() as connection:
        yield connection


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise the driver's errors as ours."""
    try:
        yield
    except OperationalError as error:
        raise LedgerUnavailable(UNREACHABLE) from error
