"""One analyst's part of a dataset's budget, counted where the budget is: in the ledger.

Before an answer is drawn its cost is reserved; after it is committed the reservation goes. Whoever reserves reads the
others' reservations first and the ledger afterwards, so an answer on its way is counted at least once, by any process;
in the moment between commit and release it may be counted twice, and a retry then finds it counted once.
"""

import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import delete, func, insert, select

from holdfast.errors import QuotaExhausted
from holdfast.ledger import Ledger
from holdfast.service.tables import Tables, reservations, writing

LONGEST_ASK = 120.0  # seconds after which a reservation belongs to a process that died


class Usage:
    """How many answers of one dataset each analyst has used, read from the ledger as it grows."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._used: Counter[str | None] = Counter()
        self._next = 1
        self._lock = threading.Lock()

    def of(self, analyst: str | None) -> int:
        """Return the answers used so far."""
        return self.by_analyst()[analyst]

    def by_analyst(self) -> Counter[str | None]:
        """Return the answers used by everyone."""
        with self._lock:
            for entry in self._ledger.entries(self._next):
                self._used[entry.analyst] += entry.cost.intervals
                self._next = entry.seq + 1
            return self._used.copy()


class Quotas:
    """The reservations of all server processes."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    @contextmanager
    def reserved(self, usage: Usage, *, analyst: str, dataset: str, quota: int, answers: int) -> Iterator[None]:
        """Hold this many answers of the quota while the block asks for them; refuse if they are not there."""
        reservation = {"id": secrets.token_hex(16), "analyst": analyst, "dataset": dataset, "answers": answers}
        mine = reservations.c.id == reservation["id"]
        same = (reservations.c.analyst == analyst) & (reservations.c.dataset == dataset)
        now = time.time()
        with writing(self._tables.light) as connection:
            if self._tables.light.dialect.name == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(f"holdfast {dataset} {analyst}"))))
            connection.execute(delete(reservations).where(reservations.c.expires <= now))
            on_their_way = connection.scalar(select(func.coalesce(func.sum(reservations.c.answers), 0)).where(same))
            connection.execute(insert(reservations).values(reservation | {"expires": now + LONGEST_ASK}))
        try:
            left = quota - usage.of(analyst) - int(on_their_way or 0)
            if answers > left:
                raise QuotaExhausted(
                    f"Your quota cannot pay for this: it costs {answers:,} answers, and {max(0, left):,} of {quota:,}"
                    " are left. Repeat a question for free, or ask the keeper for more.",
                    cost=answers,
                    left=max(0, left),
                    total=quota,
                    unit="answers",
                )
            yield
        finally:
            with writing(self._tables.light) as connection:
                connection.execute(delete(reservations).where(mine))
