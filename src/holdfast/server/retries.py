"""Idempotency keys: a request that is sent again gets the answer it got, or would have got, the first time.

That it is charged once does not rest on this table: a question asked before is free, and a question that is new each
time (a flip) carries its key into the ledger. The table remembers the whole response and notices a key that is used
for another request.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

from sqlalchemy import Connection, delete

from holdfast.errors import InvalidArgument
from holdfast.server.tables import Tables, retries, translated

KEPT_SECONDS = 86_400.0
LONGEST_KEY = 200
SWEEP_SECONDS = 60.0
_COLUMNS = ("digest", "request", "response", "expires")


class Retries:
    """The responses given under idempotency keys, for a day.

    Every answer passes here, so connections are kept and the two statements are plain text.
    """

    def __init__(self, tables: Tables) -> None:
        self._engine = tables.light.execution_options(isolation_level="AUTOCOMMIT")
        if self._engine.dialect.paramstyle == "qmark":
            first, values = "?", ", ".join("?" for _ in _COLUMNS)
        else:
            first, values = "%(digest)s", ", ".join(f"%({name})s" for name in _COLUMNS)
        self._named = self._engine.dialect.paramstyle != "qmark"
        self._find = f"SELECT request, response, expires FROM {retries.name} WHERE digest = {first}"
        self._keep = f"INSERT INTO {retries.name} ({', '.join(_COLUMNS)}) VALUES ({values}) ON CONFLICT DO NOTHING"
        self._idle: list[Connection] = []
        self._swept = time.time()

    def find(self, person: str, key: str, request: str) -> str | None:
        """Return the response given to this request before; refuse a key that stands for another request."""
        digest = _digest(person, key)
        with self._connected() as connection:
            row = connection.exec_driver_sql(self._find, {"digest": digest} if self._named else (digest,)).first()
        if row is None or row[2] <= time.time():
            return None
        if row[0] != request:
            raise InvalidArgument(
                "Idempotency-Key must be new for each request; this one was used for another. Send a new key.",
                name="Idempotency-Key",
            )
        return str(row[1])

    def keep(self, person: str, key: str, request: str, response: str) -> None:
        """Remember a response; the first one stands."""
        now = time.time()
        row = (_digest(person, key), request, response, now + KEPT_SECONDS)
        with self._connected() as connection:
            if now - self._swept > SWEEP_SECONDS:
                self._swept = now
                connection.execute(delete(retries).where(retries.c.expires <= now))
            connection.exec_driver_sql(self._keep, dict(zip(_COLUMNS, row, strict=True)) if self._named else row)

    def close(self) -> None:
        """Let go of the connections."""
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        """Lend a connection; one that failed is not used again."""
        with translated():
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self._engine.connect()
            try:
                yield connection
            except BaseException:
                connection.invalidate()
                connection.close()
                raise
            self._idle.append(connection)


def check_key(key: str | None) -> str | None:
    """An idempotency key is a short printable text."""
    if key is not None and (not 0 < len(key) <= LONGEST_KEY or not key.isascii() or not key.isprintable()):
        raise InvalidArgument(
            f"Idempotency-Key must be 1 to {LONGEST_KEY} printable ASCII characters; got {len(key)} others.",
            name="Idempotency-Key",
        )
    return key


def _digest(person: str, key: str) -> str:
    return sha256(f"{person}\n{key}".encode()).hexdigest()
