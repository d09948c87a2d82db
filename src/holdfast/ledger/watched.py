"""A ledger's store, watched by witnesses: what they saw must be in it, and they are told what becomes of it.

A ledger that ends before what a witness saw has gone back in time: somebody put an old copy in its place, or copied the
file without its write-ahead log. One that does not contain what a witness saw at all is another ledger for the same
data. Either would hand the same budget out a second time, so both are refused: when the ledger is opened, when it is
begun, and at every later look and write.

A write compares what this process saw with the tip that its transaction found: what is written in it follows that tip,
so one comparison does for all answers that are written together. The witnesses are told what the transaction reached,
once it is durable, by whichever of its threads comes first: they are never ahead of the ledger, and nobody is shown an
answer before they were told of it.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from holdfast.errors import HoldfastError, InvalidArgument, LedgerDamaged
from holdfast.ledger.chain import LOST
from holdfast.ledger.group_commit import duplicate
from holdfast.ledger.store import Row, Store, Tip, Transaction, second_ledger
from holdfast.ledger.witness import SPLIT, Seen, Witness

_READ = 2_000  # rows read at a time
_beginning: dict[str, str] = {}  # contents whose ledger a thread is beginning, and its address


class WatchedStore:
    """A store that compares itself with its witnesses. The first of them must be this process.

    Parameters
    ----------
    store
        What is watched.
    address
        Where it is, the same however its location is written.
    content
        What the data is known by; None for tests, which have budgets of their own.
    """

    def __init__(self, store: Store, address: str, content: str | None) -> None:
        self.store, self._address, self._content = store, address, content
        self.address = None if content is None and store.address is None else address
        self._witnesses: list[Witness] = []
        self._confirmed: list[str] = []
        self._told: Tip | None = None  # the witnesses, last
        self._forked: HoldfastError | None = None  # once somebody was seen to go on from a copy: no further

    @property
    def location(self) -> str:
        """Where the ledger is, as it may be shown."""
        return self.store.location

    @property
    def dataset(self) -> str:
        """Whose rows these are."""
        return self.store.dataset

    @property
    def patience(self) -> float:
        """Seconds to wait, at most, for whoever else writes."""
        return self.store.patience

    @patience.setter
    def patience(self, seconds: float) -> None:
        self.store.patience = seconds

    def watch(self, *witnesses: Witness) -> None:
        """Refuse the ledger if it lacks what one of these saw; from now on they are told what becomes of it."""
        self._confirmed += self.compare(*witnesses)  # before they are told
        self._witnesses.extend(witnesses)
        self._tell(self.store.tip())

    def confirmed_by(self) -> list[str]:
        """Return which witnesses, other than this process, have seen the newest entry."""
        return self._confirmed

    def compare(self, *witnesses: Witness) -> list[str]:
        """Refuse the ledger if it lacks what one of these saw; return who of them saw its newest entry."""
        confirmed = []
        for witness in witnesses:
            seen, tip = witness.newest(), self.store.tip()  # in this order: others may be writing
            if seen is not None:
                self._require(witness, seen, tip, self.store)
                if tip is not None and seen.tip.hash == tip.hash:
                    confirmed.append(witness.name)
        owner = None if self._content is None else self.store.owner(self._content)
        if owner not in (None, self.dataset):
            raise second_ledger(self.location, str(owner))
        return confirmed

    # -- what a store does ------------------------------------------------------------------------------------------

    def tip(self) -> Tip | None:
        """Return the tip, if it is not older than what this process saw."""
        if self._forked is not None:
            raise duplicate(self._forked)
        seen = self._newest()  # first: another thread may move the tip
        tip = self.store.tip()
        self._notice(seen, tip, self.store)
        return tip

    def find(self, key_digest: str) -> Row | None:
        """Return the row with this key."""
        return self.store.find(key_digest)

    def read(self, start: int, limit: int) -> list[Row]:
        """Return up to `limit` rows from `start` on."""
        return self.store.read(start, limit)

    def hash_at(self, seq: int) -> str | None:
        """Return the hash of a row."""
        return self.store.hash_at(seq)

    def secret(self) -> bytes | None:
        """Return the secret."""
        return self.store.secret()

    def content(self) -> str | None:
        """Return the content."""
        return self.store.content()

    def owner(self, content: str) -> str | None:
        """Return which dataset has a ledger for this content here."""
        return self.store.owner(content)

    def begin(self, genesis: Row, secret: bytes, content: str | None = None) -> bool:
        """Begin the ledger, unless a witness knows of another by now."""
        mine = content or self._content
        if mine is not None and _beginning.setdefault(mine, self._address) != self._address:  # first, then compare
            raise self._elsewhere(f"another thread begins one at {_beginning.get(mine)}", None)
        try:
            with ExitStack() as held:  # nobody else, in any process, begins one between the look and the word of it
                for witness in self._witnesses:
                    held.enter_context(witness.alone())
                self.compare(*self._witnesses)
                began = self.store.begin(genesis, secret, mine)
                self._tell(self.store.tip())
        finally:
            _beginning.pop(mine or "", None)
        return began

    def write(self, decide: Callable[[Transaction], None]) -> None:
        """Write, if the ledger is not older than what this process saw; then tell the witnesses."""
        if self._forked is not None:
            raise duplicate(self._forked)
        written: Transaction | None = None

        def watched(transaction: Transaction) -> None:
            nonlocal written
            self._notice(self._newest(), transaction.start(), transaction)
            decide(transaction)
            written = transaction

        self.store.write(watched)
        if written is not None:
            self._tell(written.tip(), written.start())  # also for those that it was written together with

    def probe(self) -> None:
        """Raise if nothing could be written now."""
        self.tip()
        self.store.probe()

    def close(self) -> None:
        """Close the store, and let the witnesses write what they still have to."""
        self.store.close()
        for witness in self._witnesses:
            witness.close()

    # -- comparing --------------------------------------------------------------------------------------------------

    def _newest(self) -> Seen | None:
        return self._witnesses[0].newest() if self._witnesses else None

    def _notice(self, seen: Seen | None, tip: Tip | None, within: Store | Transaction) -> None:
        """Refuse a tip that is older than what this process saw; from now on it has seen this one."""
        if seen is not None and (tip is None or tip.hash != seen.tip.hash):
            process = self._witnesses[0]
            self._require(process, seen, tip, within)
            if tip is not None:
                process.remember(self._seen(tip))

    def _tell(self, tip: Tip | None, start: Tip | None = None) -> None:
        """Tell the witnesses; what others have told them meanwhile must be in the ledger, too.

        Mostly that is `start`, which the newest entries follow: it need not be looked up.
        """
        if tip is None or tip is self._told:  # by a thread whose answer was written together with this one's
            return
        seen = self._seen(tip)
        for witness in self._witnesses:
            other = witness.others()
            if other is not None and (start is None or other.tip.hash != start.hash):
                self._require_other(witness, other)
            witness.remember(seen)
        self._told = tip

    def _require_other(self, witness: Witness, other: Seen) -> None:
        if self.store.hash_at(other.tip.seq) != other.tip.hash:
            try:
                self._require(witness, other, self.store.tip(), self.store)
            except HoldfastError as error:
                self._forked = error
                raise

    def _require(self, witness: Witness, seen: Seen, tip: Tip | None, within: Store | Transaction) -> None:
        """Refuse a ledger that ends with `tip` unless what was seen is in it, or was accounted for in a restore."""
        if contains(within, tip, seen.tip):
            return
        if tip is None or not any(covers(lost, seen.tip) for lost in restores(self.store)):
            raise self._refusal(witness.name, seen, tip)
        witness.accept(self._seen(tip))

    def _seen(self, tip: Tip) -> Seen:
        return Seen(self._address, Tip(*tip[:4], "", *tip.taken))  # peaks follow from the entries

    def _refusal(self, who: str, seen: Seen, tip: Tip | None) -> HoldfastError:
        here, there, count = self.location, seen.address, seen.tip.seq
        known = f"{who} saw {count:,} answer{'' if count == 1 else 's'}"
        if there.startswith(SPLIT):
            return InvalidArgument(
                f"These rows were {there}. Go on with the two parts: whoever asks all rows, or splits them again, sees"
                " rows that checks are held on.",
                name="data",
            )
        if there != self._address:
            return self._elsewhere(f"{known} at {there}", tip, ledger=there)
        advice = "Put the newest copy back with `holdfast restore BACKUP DATA`; what was spent since stays spent."
        if tip is None:
            fact = f"it is gone, and {known} in it"
        elif tip.seq < count:
            fact = (
                f"it went back in time: it ends with answer {tip.seq:,}, and {known}. An old copy took its place, or it"
                " was copied without its -wal file"
            )
        else:
            fact = f"its answer {count:,} is not the one that {who} saw"
        return LedgerDamaged(f"Ledger {here} cannot be trusted: {fact}. {advice}", location=here, seen=count)

    def _elsewhere(self, fact: str, tip: Tip | None, **fields: object) -> HoldfastError:
        copy = "" if tip is None else " (it is an old copy, or one without its -wal file)"
        return InvalidArgument(
            f"These rows have a ledger already: {fact}, and {self.location} does not have it{copy}. Use that one: name"
            " it as the ledger, or move it here. A second one would spend the same budget twice.",
            name="ledger",
            **fields,
        )


def contains(store: Store | Transaction, tip: Tip | None, seen: Tip) -> bool:
    """Whether a ledger that ends with `tip` goes on from what was seen.

    How much is taken is not compared at the same entry: it may be less by now, since whoever closes a ledger gives back
    what was taken ahead, and a witness need not have been told. An old copy with the same newest entry can thus hand
    places out again, but only those of draws that nobody was shown: what is shown has an entry.
    """
    if tip is None or tip.seq < seen.seq:
        return False
    if tip.seq == seen.seq:
        return tip.hash == seen.hash
    return store.hash_at(seen.seq) == seen.hash


def is_restore(row: Row) -> bool:
    """Whether a row records a restore, not an answer."""
    return f'"{LOST}":' in row.body and LOST in json.loads(row.body)


def restores(store: Store) -> Iterator[Tip]:
    """Yield what was lost in each restore that the ledger records."""
    start = 0
    while rows := store.read(start, _READ):
        yield from (Tip(**json.loads(row.body)[LOST]) for row in rows if is_restore(row))
        start += len(rows)


def covers(lost: Tip, seen: Tip) -> bool:
    """Whether a restore that counted `lost` as spent has counted all that was seen."""
    return lost.seq >= seen.seq and all(one >= other for one, other in zip(lost.taken, seen.taken, strict=True))
