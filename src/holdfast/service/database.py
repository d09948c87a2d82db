"""The token database: tokens, sign-ins, quotas, datasets; responses under idempotency keys; a witness of ledgers.

Secrets are stored as digests only. There are two engines on one database. `durable` syncs every commit: a revoked token
stays revoked. `relaxed` does not: what it writes (idempotency keys, reservations) survives a killed process, and losing
it in a power failure is harmless, since the answers themselves are in the ledger.

As a witness, it remembers the newest entry of each ledger, apart from the data. It is told of every answer, but writes
once a second and when the ledger is closed, so that answers do not wait for it. It misses answers of the last second
before a kill; the witness file beside the data has them.

With an idempotency key, a request that is sent again gets the response it got, or would have got, the first time. Being
charged only once does not depend on this table: a question asked before is free, and a question that is new each time
(a flip) carries its key into the ledger. The table keeps whole responses, and detects a key that is reused for another
request. Every answer passes here, so a response is kept in memory at first and written in a batch a few times per
second. A process killed in between loses the stored response, not the answer: the retry finds it in the ledger, free.
"""

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import sqlalchemy as sa
from pydantic_core import from_json, to_json
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnectionLeft

from holdfast.errors import HoldfastError, InvalidArgument, MissingExtra, ServiceUnavailable
from holdfast.ledger import Seen, Witness
from holdfast.ledger.concurrency import open_private
from holdfast.ledger.database import AWAY
from holdfast.ledger.store import Tip

UNREACHABLE = "The token database is unavailable. Check that it exists and is writable, then try again."
LOCK_TIMEOUT = 10.0  # seconds to wait for a busy file
POOL: dict[str, Any] = {"pool_size": 5, "max_overflow": 20, "pool_timeout": LOCK_TIMEOUT}  # enough for all threads
KEEP_SECONDS = 86_400.0
MAX_KEY_LENGTH = 200
SWEEP_SECONDS = 60.0
BATCH_SECONDS = 0.1
MOST_IDLE = 4  # connections that are kept; the others go back to the pool, which quotas also use
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
        engine = sa.create_engine(url.update_query_dict(_default_timeouts(url)), pool_pre_ping=True, **POOL)
        statements = [f"SET synchronous_commit TO {'on' if durable else 'off'}"]

    @sa.event.listens_for(engine, "connect")
    def configure(connection: Any, _: Any) -> None:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
            connection.commit()
        cursor.close()

    return engine


def _default_timeouts(url: sa.URL) -> dict[str, str]:
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


class DatabaseWitness(Witness):
    """Remembers one content in the server's database.

    The lock on the file beside the data keeps two servers from beginning a ledger at the same moment.
    """

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


# -- idempotency keys ---------------------------------------------------------------------------------------------


class Body(dict[str, Any]):
    """The body of a response, as JSON values. It is encoded once, to be stored under a key and to be sent."""

    __slots__ = ("_encoded",)
    _encoded: bytes

    def encoded(self) -> bytes:
        """Return the response as JSON."""
        if not hasattr(self, "_encoded"):
            self._encoded = encode(self)
        return self._encoded


_strictly = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def encode(payload: dict[str, Any]) -> bytes:
    """Write JSON; NaN and infinity are errors: written as null, a value would mean "too few rows to tell"."""
    body = to_json(payload, inf_nan_mode="constants")
    return _strictly(payload).encode() if b"NaN" in body or b"Infinity" in body else body


class _StoredResponse(NamedTuple):
    request: str
    response: Body
    expires: float


class IdempotencyKeys:
    """The responses given under idempotency keys, for a day.

    Connections are reused and statements are plain text for the driver, which halves the cost per answer.
    """

    def __init__(self, database: TokenDatabase) -> None:
        self._engine = database.relaxed.execution_options(isolation_level="AUTOCOMMIT")
        self._driver_error: type[Exception] = self._engine.dialect.loaded_dbapi.Error
        table = idempotency_keys.name
        mark = "?" if self._engine.dialect.paramstyle == "qmark" else "%s"
        self._select = f"SELECT request, response, expires FROM {table} WHERE digest = {mark}"
        columns, values = "digest, request, response, expires", ", ".join([mark] * 4)
        self._insert = f"INSERT INTO {table} ({columns}) VALUES ({values}) ON CONFLICT DO NOTHING"
        self._delete = f"DELETE FROM {table} WHERE expires <= {mark}"
        self._idle: list[_LentCursor] = []
        self._unwritten: dict[str, _StoredResponse] = {}
        self._pending, self._closed = threading.Event(), threading.Event()
        self._write_lock = threading.Lock()
        self._swept = time.time()
        threading.Thread(target=self._write_batches, name="holdfast idempotency", daemon=True).start()

    def find(self, token_id: str, key: str, request: str) -> Body | None:
        """Return the response given to this request before; refuse a key that was used for another request."""
        digest = _digest(token_id, key)
        found = self._unwritten.get(digest) or self._read(digest)
        if found is None or found.expires <= time.time():
            return None
        if found.request != request:
            message = "Idempotency-Key must be new for each request; this one was used for another. Send a new key."
            raise InvalidArgument(message, name="Idempotency-Key")
        return found.response

    def store(self, token_id: str, key: str, request: str, response: Body) -> None:
        """Keep a response; an earlier one under the same key takes precedence."""
        response.encoded()  # what cannot be encoded fails here, for this caller alone
        stored = _StoredResponse(request, response, time.time() + KEEP_SECONDS)
        self._unwritten.setdefault(_digest(token_id, key), stored)
        if not self._pending.is_set():
            self._pending.set()

    def write(self) -> None:
        """Write the responses that are only in memory. If that fails, they stay there for the next time."""
        with self._write_lock, self._cursor() as cursor:
            now = time.time()
            waiting = list(self._unwritten.items())
            rows = [(digest, one.request, one.response.encoded().decode(), one.expires) for digest, one in waiting]
            cursor.execute("BEGIN")
            if now - self._swept > SWEEP_SECONDS:
                self._swept = now
                cursor.execute(self._delete, (now,))
            cursor.executemany(self._insert, rows)
            cursor.execute("COMMIT")
            for digest, _ in waiting:
                del self._unwritten[digest]

    def close(self) -> None:
        """Write what is left and close the connections."""
        self._closed.set()
        self._pending.set()
        if self._unwritten:
            self.write()
        self._close_idle()

    def _read(self, digest: str) -> _StoredResponse | None:
        with self._cursor() as cursor:
            row = cursor.execute(self._select, (digest,)).fetchone()
        return None if row is None else _StoredResponse(row[0], Body(from_json(row[1])), row[2])

    def _write_batches(self) -> None:
        while True:
            self._pending.wait()
            if self._closed.wait(BATCH_SECONDS):
                return
            self._pending.clear()
            try:
                self.write()
            except Exception:  # noqa: BLE001  the next request reports it; nothing is lost until then
                self._pending.set()

    def _cursor(self) -> "_LentCursor":
        """Lend a driver's cursor during a block."""
        try:
            return self._idle.pop()
        except IndexError:
            with translate_errors():
                return _LentCursor(self, self._engine.connect())

    def take_back(self, lent: "_LentCursor", error: BaseException | None) -> None:
        """Keep a cursor for the next time, if there is room; after a failure, close all."""
        if error is not None:
            lent.connection.invalidate()
            lent.connection.close()
            self._close_idle()
            if isinstance(error, self._driver_error):
                raise ServiceUnavailable(UNREACHABLE) from error
        elif len(self._idle) < MOST_IDLE:
            self._idle.append(lent)
        else:
            lent.close()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()


class _LentCursor:
    """A driver's cursor and its connection. Every answer uses one, and a generator would be slower."""

    def __init__(self, keys: IdempotencyKeys, connection: sa.Connection) -> None:
        self._keys, self.connection, self._cursor = keys, connection, connection.connection.cursor()

    def __enter__(self) -> Any:
        return self._cursor

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._keys.take_back(self, error)

    def close(self) -> None:
        """Close the cursor, and give the connection back to the pool."""
        self._cursor.close()
        self.connection.close()


def check_key(key: str | None) -> None:
    """Require a short printable text."""
    if key is not None and (not 0 < len(key) <= MAX_KEY_LENGTH or not key.isascii() or not key.isprintable()):
        message = f"Idempotency-Key must be 1 to {MAX_KEY_LENGTH} printable ASCII characters."
        raise InvalidArgument(message, name="Idempotency-Key")


def _digest(token_id: str, key: str) -> str:
    return sha256(f"{token_id}\n{key}".encode()).hexdigest()
