"""The server's own database as a witness: it remembers the newest entry of each ledger, apart from the data.

It is told of every answer, but writes once a second and when the ledger is closed, so that answers do not wait for it.
It misses answers of the last second before a kill; the witness file beside the data has them.
"""

import json
import threading
from contextlib import AbstractContextManager, nullcontext, suppress
from time import monotonic

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from holdfast.errors import HoldfastError
from holdfast.ledger import Seen
from holdfast.ledger.store import Tip
from holdfast.service.database import TokenDatabase, ledgers_seen, read, write_transaction

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
        values = {"address": seen.address, "seq": seen.tip.seq, "tip": json.dumps(seen.tip._asdict())}
        older = mine if always else mine & (ledgers_seen.c.seq <= seen.tip.seq)
        with write_transaction(self._engine) as connection:
            known = connection.execute(sa.select(ledgers_seen.c.address, ledgers_seen.c.tip).where(mine)).first()
            if known is None:
                connection.execute(sa.insert(ledgers_seen).values(content=self._content, **values))
            else:
                connection.execute(sa.update(ledgers_seen).where(older).values(**values))
        if known is not None and known.tip != self._put_last and not always:
            self._other = Seen(known.address, Tip(**json.loads(known.tip)))
        self._put_last = str(values["tip"])
