"""A ledger's store, watched by witnesses: what they saw must be in it, and they are told what becomes of it.

A ledger that ends before what a witness saw has gone back in time: somebody put an old copy in its place, or copied the
file without its write-ahead log. One that does not contain what a witness saw at all is another ledger for the same
data. Either would hand the same budget out a second time, so both are refused: when the ledger is opened, when it is
begun, and at every later look and write.
"""

import json
import threading
from collections.abc import Callable, Iterator

from holdfast.errors import HoldfastError, InvalidArgument, LedgerDamaged
from holdfast.ledger.store import Row, Store, Tip, Transaction
from holdfast.ledger.witness import Seen, Witness

LOST = "lost"  # what the body of an entry holds that records a restore
_READ = 2_000  # rows read at a time

_beginning = threading.Lock()  # two sessions of one process never begin two ledgers for one content


class WatchedStore:
    """A store that compares itself with its witnesses. The first of them must be this process."""

    def __init__(self, store: Store, address: str) -> None:
        self._store, self._address = store, address
        self._witnesses: list[Witness] = []

    @property
    def location(self) -> str:
        """Where the ledger is, as it may be shown."""
        return self._store.location

    @property
    def dataset(self) -> str:
        """Whose rows these are."""
        return self._store.dataset

    @property
    def address(self) -> str:
        """Where the ledger is, the same however it was written."""
        return self._address

    def watch(self, *witnesses: Witness) -> None:
        """Refuse the ledger if it lacks what one of these saw; from now on they are told what becomes of it."""
        for witness in witnesses:
            self._compare(witness)
        self._witnesses.extend(witnesses)
        self._tell(self._store.tip())

    def confirmed_by(self) -> list[str]:
        """Return which witnesses have seen the newest entry."""
        tip = self._store.tip()
        seen = [(witness.name, witness.newest()) for witness in self._witnesses[1:]]  # another eye than our own
        return [name for name, newest in seen if newest is not None and tip is not None and newest.tip == tip]

    # -- what a store does ------------------------------------------------------------------------------------------

    def tip(self) -> Tip | None:
        """Return the tip, if it is not older than what this process saw."""
        seen = self._last_seen()  # first: another thread may move the tip meanwhile
        tip = self._store.tip()
        if seen is not None and not self._continues(seen.tip, tip):
            self._refuse_unless_restored(self._witnesses[0], seen, tip)
        return tip

    def find(self, key_digest: str) -> Row | None:
        """Return the row with this key."""
        return self._store.find(key_digest)

    def read(self, start: int, limit: int) -> list[Row]:
        """Return up to `limit` rows from `start` on."""
        return self._store.read(start, limit)

    def begin(self, genesis: Row) -> bool:
        """Begin the ledger, unless a witness knows of one by now."""
        with _beginning:
            for witness in self._witnesses:
                self._compare(witness)
            began = self._store.begin(genesis)
            self._tell(self._store.tip())
        return began

    def write(self, decide: Callable[[Transaction], None]) -> None:
        """Write, if the ledger is not older than what this process saw; then tell the witnesses."""
        reached: Tip | None = None

        def watched(transaction: Transaction) -> None:
            nonlocal reached
            seen, tip = self._last_seen(), transaction.tip()
            if seen is not None and not self._continues(seen.tip, tip):
                self._refuse_unless_restored(self._witnesses[0], seen, tip)
            decide(transaction)
            reached = transaction.tip()

        self._store.write(watched)
        self._tell(reached)

    def close(self) -> None:
        """Close the store and let the witnesses write what they still have to."""
        self._store.close()
        for witness in self._witnesses:
            witness.close()

    # -- comparing --------------------------------------------------------------------------------------------------

    def _last_seen(self) -> Seen | None:
        return self._witnesses[0].newest() if self._witnesses else None

    def _tell(self, tip: Tip | None) -> None:
        if tip is not None:
            seen = Seen(self._address, tip)
            for witness in self._witnesses:
                witness.saw(seen)

    def _compare(self, witness: Witness) -> None:
        seen = witness.newest()
        tip = self._store.tip()
        if seen is not None and not self._continues(seen.tip, tip):
            self._refuse_unless_restored(witness, seen, tip)

    def _continues(self, seen: Tip, tip: Tip | None) -> bool:
        """Whether a ledger that ends with `tip` goes on from what was seen."""
        if tip is None or tip.seq < seen.seq:
            return False
        if tip.seq == seen.seq:
            return tip.hash == seen.hash
        return [row.hash for row in self._store.read(seen.seq, 1)] == [seen.hash]

    def _refuse_unless_restored(self, witness: Witness, seen: Seen, tip: Tip | None) -> None:
        if tip is not None and any(covers(lost, seen.tip) for lost in restores(self._store)):
            witness.settle(Seen(self._address, tip))
            return
        raise self._refusal(witness.name, seen, tip)

    def _refusal(self, who: str, seen: Seen, tip: Tip | None) -> HoldfastError:
        here, there, count = self.location, seen.address, seen.tip.seq
        saw = f"{who} saw {count} answer{'' if count == 1 else 's'}"
        if there != self._address:
            return InvalidArgument(
                f"These rows have a ledger already: {saw} at {there}, which {here} does not contain. Use that one (give"
                " ledger= its location, or move it here): a second ledger would spend the same budget twice.",
                name="ledger",
                ledger=there,
            )
        advice = "Put the newest copy back with: holdfast restore BACKUP DATA. It counts what was spent since as spent."
        if tip is None:
            fact = f"Ledger {here} is gone: {saw} in it. {advice}"
        elif tip.seq < count:
            fact = (
                f"Ledger {here} went back in time: it ends with entry {tip.seq}, and {saw}. An old copy took its place,"
                f" or it was copied without its -wal file. {advice}"
            )
        else:
            fact = f"Ledger {here} is not the one it was: it lacks entry {count} as {who} saw it. {advice}"
        return LedgerDamaged(fact, location=here, seen=count)


def restores(store: Store) -> Iterator[Tip]:
    """Yield what was lost in each restore that the ledger records."""
    start = 0
    while rows := store.read(start, _READ):
        for row in rows:
            if f'"{LOST}":' in row.body and LOST in (body := json.loads(row.body)):
                yield Tip(**body[LOST])
        start += len(rows)


def covers(lost: Tip, seen: Tip) -> bool:
    """Whether a restore that counted `lost` as spent has counted all that was seen."""
    return all(one >= other for one, other in zip(lost, seen, strict=True) if isinstance(one, int))
