"""Idempotency keys: a request that is sent again gets the answer it got, or would have got, the first time.

That it is charged once does not rest on this table: a question asked before is free, and a question that is new each
time (a flip) carries its key into the ledger. The table remembers the whole response and notices a key that is used
for another request.

Every answer passes here, so responses are remembered in memory at once and written a few times a second, together. A
process that is killed in between loses the wording, not the answer: the retry finds it in the ledger, free.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, NamedTuple

from sqlalchemy import Connection

from holdfast.errors import InvalidArgument, LedgerUnavailable
from holdfast.service.tables import UNREACHABLE, Tables, retries, translated

KEPT_SECONDS = 86_400.0
LONGEST_KEY = 200
SWEEP_SECONDS = 60.0
GATHERED_SECONDS = 0.1
_COLUMNS = ("digest", "request", "response", "expires")


class _Kept(NamedTuple):
    request: str
    said: dict[str, Any]
    expires: float


class Retries:
    """The responses given under idempotency keys, for a day.

    Connections are kept and the statements are plain text for the driver: half of what an answer costs here otherwise.
    """

    def __init__(self, tables: Tables) -> None:
        self._engine = tables.light.execution_options(isolation_level="AUTOCOMMIT")
        self._failures: type[Exception] = self._engine.dialect.loaded_dbapi.Error
        mark = "?" if self._engine.dialect.paramstyle == "qmark" else "%s"
        marks = ", ".join(mark for _ in _COLUMNS)
        self._find = f"SELECT request, response, expires FROM {retries.name} WHERE digest = {mark}"
        self._keep = f"INSERT INTO {retries.name} ({', '.join(_COLUMNS)}) VALUES ({marks}) ON CONFLICT DO NOTHING"
        self._sweep = f"DELETE FROM {retries.name} WHERE expires <= {mark}"
        self._idle: list[Connection] = []
        self._unwritten: dict[str, _Kept] = {}
        self._some, self._ended = threading.Event(), threading.Event()
        self._turn = threading.Lock()
        self._swept = time.time()
        threading.Thread(target=self._write_sometimes, name="holdfast retries", daemon=True).start()

    def find(self, person: str, key: str, request: str) -> dict[str, Any] | None:
        """Return the response given to this request before; refuse a key that stands for another request."""
        digest = _digest(person, key)
        found = self._unwritten.get(digest) or self._read(digest)
        if found is None or found.expires <= time.time():
            return None
        if found.request != request:
            raise InvalidArgument(
                "Idempotency-Key must be new for each request; this one was used for another. Send a new key.",
                name="Idempotency-Key",
            )
        return found.said

    def keep(self, person: str, key: str, request: str, said: dict[str, Any]) -> None:
        """Remember a response; the first one stands."""
        self._unwritten.setdefault(_digest(person, key), _Kept(request, said, time.time() + KEPT_SECONDS))
        if not self._some.is_set():
            self._some.set()

    def write(self) -> None:
        """Write what is remembered. What cannot be written stays in memory for the next time."""
        with self._turn, self._connected() as connection:
            now = time.time()
            waiting = list(self._unwritten.items())
            rows = [(digest, kept.request, json.dumps(kept.said), kept.expires) for digest, kept in waiting]
            cursor = connection.cursor()
            cursor.execute("BEGIN")
            if now - self._swept > SWEEP_SECONDS:
                self._swept = now
                cursor.execute(self._sweep, (now,))
            cursor.executemany(self._keep, rows)
            cursor.execute("COMMIT")
            for digest, _ in waiting:
                del self._unwritten[digest]

    def close(self) -> None:
        """Write what is left and let go of the connections."""
        self._ended.set()
        self._some.set()
        if self._unwritten:
            self.write()
        self._let_go()

    def _read(self, digest: str) -> _Kept | None:
        with self._connected() as connection:
            cursor = connection.cursor()
            cursor.execute(self._find, (digest,))
            row = cursor.fetchone()
        return None if row is None else _Kept(row[0], json.loads(row[1]), row[2])

    def _write_sometimes(self) -> None:
        while True:
            self._some.wait()
            if self._ended.wait(GATHERED_SECONDS):
                return
            self._some.clear()
            try:
                self.write()
            except LedgerUnavailable:  # whoever asks next is told; nothing is lost meanwhile
                self._some.set()

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """Lend a connection of the driver; if it fails, none of those kept is used again."""
        try:
            connection = self._idle.pop()
        except IndexError:
            with translated():
                connection = self._engine.connect()
        try:
            yield connection.connection
        except self._failures as error:
            connection.invalidate()
            self._let_go(connection)
            raise LedgerUnavailable(UNREACHABLE) from error
        self._idle.append(connection)

    def _let_go(self, *more: Connection) -> None:
        for connection in more:
            connection.close()
        while self._idle:
            self._idle.pop().close()


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
