"""What the token database keeps of a caller's questions: quota reservations, and responses under idempotency keys.

A quota is one analyst's part of a dataset's budget. It is counted in the ledger, as the budget is, and in the same
currency: answers. The price of a question is reserved before anything is drawn, and the reservation ends after the
answer is committed. A request reads other reservations first and the ledger second, so every process counts an answer
in progress at least once; between commit and end of the reservation it may be counted twice, and a retry then finds it
counted once. The reservation never ends if the draw was called off, or if another server answered the question first:
the budget has paid for the draw.

With an idempotency key, a request that is sent again gets the response it got, or would have got, the first time. Being
charged only once does not depend on this table: a question asked before is free, and a question that is new each time
(a flip) carries its key into the ledger. The table keeps whole responses, and detects a key that is reused for another
request. Every answer passes here, so a response is kept in memory at first and written in a batch a few times per
second. A process killed in between loses the stored response, not the answer: the retry finds it in the ledger, free.
"""

import secrets
import threading
import time
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json
from sqlalchemy import Connection, Engine, delete, func, insert, select, update

from holdfast.cancel import Work
from holdfast.errors import HoldfastError, InvalidArgument, LedgerUnavailable, QuotaExhausted, ServiceUnavailable
from holdfast.questions.price import Price, write_answers
from holdfast.questions.question import Question
from holdfast.service.database import (
    UNREACHABLE,
    TokenDatabase,
    idempotency_keys,
    read,
    reservations,
    translate_errors,
    write,
    write_transaction,
)
from holdfast.service.datasets import LEAST, ServedDataset
from holdfast.service.tokens import Token

RESERVATION_SECONDS = 120.0  # an older reservation must belong to a process that died
FOREVER = 1e12  # seconds since 1970: when the reservation of a draw that nobody sees ends
KEEP_SECONDS = 86_400.0
MAX_KEY_LENGTH = 200
SWEEP_SECONDS = 60.0
BATCH_SECONDS = 0.1
MOST_IDLE = 4  # connections that are kept; the others go back to the pool, which quotas also use


class Quotas:
    """The quota reservations of all server processes."""

    def __init__(self, database: TokenDatabase) -> None:
        self._engine = database.relaxed

    def reserve(
        self, served: ServedDataset, token: Token, questions: Sequence[Question], work: Work
    ) -> "QuotaReservation":
        """Hold what these questions take of the token's quota, if it has one, during `work`; refuse if less is left."""
        held = QuotaReservation(self._engine, served, questions, work)
        if token.quota is not None:
            held.open(token.name, token.quota)
        return held

    def lost(self, analyst: str, dataset: str) -> int:
        """Return how many answers went to draws that were never shown."""
        kept = _reserved(analyst, dataset).where(reservations.c.expires >= FOREVER)
        return int(read(self._engine, kept)[0]["answers"])


class QuotaReservation:
    """Answers of a quota that are held from before they are drawn until they are committed."""

    def __init__(self, engine: Engine, served: ServedDataset, questions: Sequence[Question], work: Work) -> None:
        self._engine, self._served, self._questions, self._work = engine, served, questions, work
        self._costs: list[tuple[str | None, int]] = []  # of each question: its identity, and how many answers it takes
        self._id = ""

    def open(self, analyst: str, quota: int) -> None:
        """Hold what the questions cost; refuse if less is left."""
        answering, dataset, new = self._served.session.answering, self._served.name, self._questions
        prices = [answering.price_of(new[0])] if len(new) == 1 else answering.prices_of(new).each
        self._costs = [(one.identity, of_quota(price)) for one, price in zip(new, prices, strict=True)]
        answers, now = sum(cost for _, cost in self._costs), time.time()
        if not answers:
            return
        self._id, self._work.begun = secrets.token_hex(16), False  # an earlier look had a reservation of its own
        held = {"id": self._id, "analyst": analyst, "dataset": dataset, "answers": answers}
        with write_transaction(self._engine) as connection:
            if self._engine.dialect.name == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(f"holdfast {dataset} {analyst}"))))
            connection.execute(delete(reservations).where(reservations.c.expires <= now))
            reserved = connection.scalar(_reserved(analyst, dataset))
            connection.execute(insert(reservations).values(held | {"expires": now + RESERVATION_SECONDS}))
        try:
            left = max(0, quota - self._served.usage.by_analyst()[analyst] - int(reserved or 0))
            if answers > left:
                message = (
                    f"Your quota cannot pay for this: it costs {write_answers(answers)}, and {left:,} of"
                    f" {quota:,} are left. Repeating an earlier question is free; the admin can raise the quota."
                )
                raise QuotaExhausted(message, cost=answers, left=left, total=quota, unit="answers")
        except BaseException as error:
            self.close(error)
            raise

    def close(self, error: BaseException | None = None) -> None:
        """End the reservation, but hold on to answers that are paid for and never shown.

        Those are draws that were dropped since another process had answered first; and after an error, if rows were
        drawn, all of them, unless they are in the ledger after all, and counted there.
        """
        if not self._id:
            return
        failed = error is not None and self._work.begun
        if failed and isinstance(error, LedgerUnavailable):
            failed = not self._is_written()
        kept = sum(cost for identity, cost in self._costs if failed or identity in self._work.dropped)
        this = reservations.c.id == self._id
        keep = update(reservations).where(this).values(answers=kept, expires=FOREVER)
        write(self._engine, keep if kept else delete(reservations).where(this))

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(error)

    def _is_written(self) -> bool:
        try:
            return all(map(self._served.session.answering.is_answered, self._questions))
        except HoldfastError:  # the ledger cannot be read
            return False


def _reserved(analyst: str, dataset: str) -> Any:
    total = func.coalesce(func.sum(reservations.c.answers), 0).label("answers")
    return select(total).where(reservations.c.analyst == analyst, reservations.c.dataset == dataset)


def of_quota(price: Price) -> int:
    """Return how many answers of a quota a question takes, also where it takes none of the budget, as a check."""
    return 0 if price.cached else max(LEAST, price.answers)


# -- idempotency keys -----------------------------------------------------------------------------------------------


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
