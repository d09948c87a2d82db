"""The token database: tokens, sign-ins, idempotency keys, quotas, datasets; and a witness of the ledgers it has seen.

Secrets are stored as digests only. There are two engines on one database. `durable` syncs every commit: a revoked token
stays revoked. `relaxed` does not: what it writes (idempotency keys, reservations) survives a killed process, and losing
it in a power failure is harmless, since the answers themselves are in the ledger.

As a witness, it remembers the newest entry of each ledger, apart from the data. It is told of every answer, but writes
once a second and when the ledger is closed, so that answers do not wait for it. It misses answers of the last second
before a kill; the witness file beside the data has them.
"""

import json
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnectionLeft

from holdfast.errors import HoldfastError, InvalidArgument, MissingExtra, ServiceUnavailable
from holdfast.ledger import Seen
from holdfast.ledger.concurrency import open_private
from holdfast.ledger.database import AWAY
from holdfast.ledger.store import Tip

UNREACHABLE = "The token database is unavailable. Check that it exists and is writable, then try again."
LOCK_TIMEOUT = 10.0  # seconds to wait for a busy file
POOL: dict[str, Any] = {"pool_size": 5, "max_overflow": 20, "pool_timeout": LOCK_TIMEOUT}  # enough for all threads
metadata = sa.MetaData()


def _table(name: str, *columns: sa.Column[Any]) -> sa.Table:
    return sa.Table(f"holdfast_{name}", metadata, *columns)


tokens = _table(
    "tokens",
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False, unique=True),
    sa.Column("name", sa.String(100), nullable=False),
    sa.Column("admin", sa.Boolean, nullable=False),
    sa.Column("datasets", sa.Text, nullable=False),  # JSON list of names, or "*"
    sa.Column("quota", sa.BigInteger),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("expires", sa.Float),
    sa.Column("revoked", sa.Float),
)
sign_ins = _table(  # cookies, and unused one-time links
    "sign_ins",
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("token", sa.String(32), nullable=False),
    sa.Column("once", sa.Boolean, nullable=False),
    sa.Column("expires", sa.Float, nullable=False),
)
idempotency_keys = _table(
    "idempotency_keys",
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("request", sa.String(64), nullable=False),
    sa.Column("response", sa.Text, nullable=False),
    sa.Column("expires", sa.Float, nullable=False, index=True),
)
reservations = _table(
    "reservations",
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("analyst", sa.String(100), nullable=False, index=True),
    sa.Column("dataset", sa.String(200), nullable=False),
    sa.Column("answers", sa.BigInteger, nullable=False),
    sa.Column("expires", sa.Float, nullable=False),
)
clock = _table(  # one row: the latest time that a server has seen
    "clock",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("latest", sa.Float, nullable=False),
)
registered_datasets = _table(
    "registered_datasets",
    sa.Column("name", sa.String(100), primary_key=True),
    sa.Column("settings", sa.Text, nullable=False),
)
ledgers_seen = _table(  # the newest entry that was seen of each content's ledger
    "ledgers_seen",
    sa.Column("content", sa.String(64), primary_key=True),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("tip", sa.Text, nullable=False),  # JSON
)


class TokenDatabase:
    """One database, two engines: `durable` syncs every commit, `relaxed` does not."""

    def __init__(self, url: str) -> None:
        try:
            parsed = sa.make_url(url)
        except (ArgumentError, ValueError):  # do not quote the URL: it may contain a password
            raise InvalidArgument("database must be a database URL; got one that cannot be parsed.") from None
        if parsed.get_backend_name() == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        try:
            self.durable = _engine(parsed, durable=True)
            self.relaxed = _engine(parsed, durable=False)
        except ImportError:
            message = "A server on PostgreSQL needs psycopg. Install it with: pip install 'holdfast[postgres]'."
            raise MissingExtra(message, extra="postgres") from None
        if parsed.get_backend_name() == "sqlite" and parsed.database:
            _make_private(Path(parsed.database))
        with translate_errors():
            try:
                metadata.create_all(self.durable)
            except SQLAlchemyError:  # perhaps another process created the tables just now; if not, this raises again
                metadata.create_all(self.durable)

    def probe(self) -> None:
        """Raise if nothing could be written now; writes nothing."""
        with write_transaction(self.durable):
            pass

    def close(self) -> None:
        """Close every connection."""
        self.durable.dispose()
        self.relaxed.dispose()


def _make_private(path: Path) -> None:
    """Create the file with access for its owner only; SQLite gives its log the same permissions.

    An existing file is not opened: closing it would drop all locks that this process has on it, also those of SQLite.
    """
    if not path.exists():
        with suppress(OSError):  # SQLite then reports the problem
            os.close(open_private(path))


def _engine(url: sa.URL, *, durable: bool) -> sa.Engine:
    if url.get_backend_name() == "sqlite":
        engine = sa.create_engine(url, connect_args={"timeout": LOCK_TIMEOUT, "check_same_thread": False}, **POOL)
        statements = ["PRAGMA journal_mode=WAL", f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}"]
    else:
        engine = sa.create_engine(url.update_query_dict(_unless_said(url)), pool_pre_ping=True, **POOL)
        statements = [f"SET synchronous_commit TO {'on' if durable else 'off'}"]

    @sa.event.listens_for(engine, "connect")
    def configure(connection: Any, _: Any) -> None:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
            connection.commit()
        cursor.close()

    return engine


def _unless_said(url: sa.URL) -> dict[str, str]:
    """Return the timeouts of the connection, except those that the URL sets."""
    return {name: str(most) for name, most in AWAY.items() if name not in url.query}


@contextmanager
def write_transaction(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Open a transaction; SQLite takes the write lock at once, so that what is read cannot change before the write."""
    with translate_errors(), engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield connection
        connection.commit()


def write(engine: sa.Engine, *statements: sa.Executable) -> None:
    """Execute the statements in one transaction."""
    with write_transaction(engine) as connection:
        for statement in statements:
            connection.execute(statement)


def read(engine: sa.Engine, statement: sa.Executable) -> Sequence[sa.RowMapping]:
    """Return the rows of one short read."""
    with translate_errors(), engine.connect() as connection:
        return connection.execute(statement).mappings().all()


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise the driver's errors as holdfast's."""
    try:
        yield
    except (OperationalError, NoConnectionLeft) as error:
        raise ServiceUnavailable(UNREACHABLE) from error


EVERY = 1.0  # seconds


class DatabaseWitness:
    """Remembers one content in the server's database."""

    name = "the server's database"

    def __init__(self, database: TokenDatabase, content: str) -> None:
        self._engine = database.relaxed
        self._content = content
        self._lock = threading.Lock()
        self._written = float("-inf")
        self._seen: Seen | None = None  # the newest state that this witness was told
        self._known: Seen | None = None  # the state that it last wrote to the database
        self._other: Seen | None = None
        self._put_last: str | None = None

    def newest(self) -> Seen | None:
        """Return what any server on this database saw."""
        mine = ledgers_seen.c.content == self._content
        for row in read(self._engine, sa.select(ledgers_seen).where(mine)):
            return Seen(row["address"], Tip(**json.loads(row["tip"])))
        return None

    def others(self) -> Seen | None:
        """Return what another server had written before this one last wrote; None if nothing, or if returned before."""
        other, self._other = self._other, None
        return other

    def alone(self) -> AbstractContextManager[None]:
        """Do nothing: the lock on the file beside the data keeps two servers from beginning at the same moment."""
        return nullcontext()

    def remember(self, seen: Seen) -> None:
        """Remember this, unless something newer is remembered; write at most once a second, in another thread."""
        if self._seen is self._known or seen.is_newer_than(self._seen):
            self._seen = seen
        if monotonic() - self._written >= EVERY:
            self._written = monotonic()
            # The answer is in the ledger and must be shown, even if no thread can be started.
            with suppress(RuntimeError):
                threading.Thread(target=self.close, name="holdfast witness", daemon=True).start()

    def accept(self, seen: Seen) -> None:
        """Remember this instead of all before."""
        with self._lock:
            self._put(seen, always=True)
            self._seen = self._known = seen

    def close(self) -> None:
        """Write what was seen last, unless it is in the database."""
        with self._lock:
            seen = self._seen
            if seen is not None and seen is not self._known:
                # The answer is in the ledger and must be shown, whatever goes wrong; the next answer tries again.
                with suppress(HoldfastError, SQLAlchemyError):
                    self._put(seen, always=False)
                    self._known = seen

    def _put(self, seen: Seen, *, always: bool) -> None:
        mine = ledgers_seen.c.content == self._content
        tip = json.dumps(seen.tip._replace(peaks="")._asdict())
        values = {"address": seen.address, "seq": seen.tip.seq, "tip": tip}
        older = mine if always else mine & (ledgers_seen.c.seq <= seen.tip.seq)
        with write_transaction(self._engine) as connection:
            known = connection.execute(sa.select(ledgers_seen.c.address, ledgers_seen.c.tip).where(mine)).first()
            if known is None:
                connection.execute(sa.insert(ledgers_seen).values(content=self._content, **values))
            else:
                connection.execute(sa.update(ledgers_seen).where(older).values(**values))
        if known is not None and known.tip != self._put_last and not always:
            self._other = Seen(known.address, Tip(**json.loads(known.tip)))
        self._put_last = tip
