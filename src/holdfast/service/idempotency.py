"""Idempotency keys: a request that is sent again gets the response it got, or would have got, the first time.

Being charged only once does not depend on this table: a question asked before is free, and a question that is new each
time (a flip) carries its key into the ledger. The table keeps whole responses, and detects a key that is reused for
another request.

Every answer passes here, so a response is kept in memory at first and written in a batch a few times per second. A
process killed in between loses the stored response but not the answer: the retry finds it in the ledger, free.
"""

import threading
import time
from hashlib import sha256
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json
from sqlalchemy import Connection

from holdfast.errors import InvalidArgument, ServiceUnavailable
from holdfast.service.database import UNREACHABLE, TokenDatabase, idempotency_keys, translate_errors

KEEP_SECONDS = 86_400.0
MAX_KEY_LENGTH = 200
SWEEP_SECONDS = 60.0
BATCH_SECONDS = 0.1
MOST_IDLE = 4  # connections that are kept; the others go back to the pool, which quotas also use


class _StoredResponse(NamedTuple):
    request: str
    response: dict[str, Any]
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

    def find(self, token_id: str, key: str, request: str) -> dict[str, Any] | None:
        """Return the response given to this request before; refuse a key that was used for another request."""
        digest = _digest(token_id, key)
        found = self._unwritten.get(digest) or self._read(digest)
        if found is None or found.expires <= time.time():
            return None
        if found.request != request:
            message = "Idempotency-Key must be new for each request; this one was used for another. Send a new key."
            raise InvalidArgument(message, name="Idempotency-Key")
        return found.response

    def store(self, token_id: str, key: str, request: str, response: dict[str, Any]) -> None:
        """Keep a response; an earlier one under the same key takes precedence."""
        stored = _StoredResponse(request, response, time.time() + KEEP_SECONDS)
        self._unwritten.setdefault(_digest(token_id, key), stored)
        if not self._pending.is_set():
            self._pending.set()

    def write(self) -> None:
        """Write the responses that are only in memory. If that fails, they stay there for the next time."""
        with self._write_lock, self._cursor() as cursor:
            now = time.time()
            waiting = list(self._unwritten.items())
            rows = [(digest, one.request, to_json(one.response).decode(), one.expires) for digest, one in waiting]
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
        return None if row is None else _StoredResponse(row[0], from_json(row[1]), row[2])

    def _write_batches(self) -> None:
        while True:
            self._pending.wait()
            if self._closed.wait(BATCH_SECONDS):
                return
            self._pending.clear()
            try:
                self.write()
            except ServiceUnavailable:  # the next request reports it; nothing is lost until then
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

    def __init__(self, keys: IdempotencyKeys, connection: Connection) -> None:
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
