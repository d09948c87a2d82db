"""What the server keeps beside the ledgers. Secrets are kept as digests only.

Two engines on one database. `durable` waits for the disk: a revoked token stays revoked. `light` does not wait: what it
writes (retries, reservations) survives the end of the process, and losing it with the machine's power costs nobody
anything, since the answers themselves are in the ledger.
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

UNREACHABLE = (
    "The database of tokens cannot be used just now. Check that it is there and may be written, then try again."
)
metadata = MetaData()
tokens = Table(
    "holdfast_tokens",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    Column("name", String(100), nullable=False),
    Column("keeper", Boolean, nullable=False),
    Column("datasets", Text, nullable=False),  # JSON list of names, or "*"
    Column("quota", BigInteger),
    Column("created", Float, nullable=False),
    Column("expires", Float),
    Column("revoked", Float),
)
sign_ins = Table(  # cookies (made from a token) and one-time links (not used yet)
    "holdfast_sign_ins",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("token", String(32), nullable=False),
    Column("once", Boolean, nullable=False),
    Column("expires", Float, nullable=False),
)
retries = Table(
    "holdfast_retries",
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
registered = Table(
    "holdfast_registered",
    metadata,
    Column("name", String(100), primary_key=True),
    Column("settings", Text, nullable=False),
)


class Tables:
    """The database of people: one engine that waits for the disk, one that does not."""

    def __init__(self, url: str) -> None:
        try:
            where = make_url(url)
        except (ArgumentError, ValueError):  # the text may hold a password: do not quote it
            raise InvalidArgument("database must be a database URL; got one that cannot be read.") from None
        if where.get_backend_name() == "postgresql":
            where = where.set(drivername="postgresql+psycopg")
        try:
            self.durable = _engine(where, durable=True)
            self.light = _engine(where, durable=False)
        except ImportError:
            raise MissingExtra(
                "A server on PostgreSQL needs psycopg. Install it with: pip install 'holdfast[postgres]'.",
                extra="postgres",
            ) from None
        with translated():
            try:
                metadata.create_all(self.durable)
            except SQLAlchemyError:  # another process made them at the same moment; if not, this says why
                metadata.create_all(self.durable)

    def close(self) -> None:
        """Let go of every connection."""
        self.durable.dispose()
        self.light.dispose()


def _engine(url: Any, *, durable: bool) -> Engine:
    if url.get_backend_name() != "sqlite":
        engine = create_engine(url, pool_pre_ping=True, pool_size=5, max_overflow=20)
        setting = f"SET synchronous_commit TO {'on' if durable else 'off'}"
        event.listen(engine, "connect", lambda connection, _: _run(connection, setting))
        return engine
    engine = create_engine(url, connect_args={"timeout": 60, "check_same_thread": False})

    def prepare(connection: Any, _: Any) -> None:
        for pragma in ("journal_mode=WAL", f"synchronous={'FULL' if durable else 'NORMAL'}"):
            _run(connection, f"PRAGMA {pragma}")

    event.listen(engine, "connect", prepare)
    return engine


def _run(connection: Any, statement: str) -> None:
    cursor = connection.cursor()
    cursor.execute(statement)
    cursor.close()
    connection.commit()


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """One transaction; on SQLite it takes the write lock at once, so that what it read cannot change under it."""
    with translated(), engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield connection
        connection.commit()


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A short read."""
    with translated(), engine.connect() as connection:
        yield connection


@contextmanager
def translated() -> Iterator[None]:
    """Turn the driver's errors into ours."""
    try:
        yield
    except OperationalError as error:
        raise LedgerUnavailable(UNREACHABLE) from error
