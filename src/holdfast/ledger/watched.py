"""A ledger must contain every entry that its witnesses saw, and new entries are reported to them.

A ledger that ends before an entry that a witness saw has gone back in time: somebody put an old copy in its place, or
copied the file without its write-ahead log. A ledger that is long enough, but has a different entry there, is another
ledger for the same data. Either would hand out the same budget a second time, so both are refused: when the ledger is
opened, when it is begun, and at every later read of the tip and every write.

A write compares what this process saw with the tip at the start of its transaction. Everything written in the
transaction follows that tip, so one comparison is enough for all answers that are written together. Once the
transaction is durable, the first of its threads to continue reports the new tip to the witnesses. So witnesses are
never ahead of the ledger, and no answer is shown before they have been told of it.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from holdfast.errors import HoldfastError, InvalidArgument, LedgerDamaged
from holdfast.ledger.chain import LOST
from holdfast.ledger.concurrency import duplicate
from holdfast.ledger.store import Row, Store, Tip, Transaction, second_ledger
from holdfast.ledger.witness import BOARD, SPLIT, Seen, Witness

_READ = 2_000  # rows read at a time
_beginning: dict[str, str] = {}  # by content: the address of the ledger that a thread is beginning


class Watch:
    """Compares a store with its witnesses. The first of them must be this process.

    Parameters
    ----------
    store
        The store to watch.
    address
        Where it is, in one form however its location is written; None if no other store can reach it.
    content
        The identity of the data (`content_of`); None for tests, which have separate budgets.
    """

    def __init__(self, store: Store, address: str | None, content: str | None) -> None:
        self.address, self._where = address, address or store.location
        self._store, self._content = store, content
        self._witnesses: list[Witness] = []
        self.confirmed: list[str] = []  # the witnesses, other than this process, that have seen the newest entry
        self._told: Tip | None = None  # the tip last reported to the witnesses
        self._forked: HoldfastError | None = None  # once somebody has continued from a copy: every later call raises it

    def watch(self, *witnesses: Witness) -> None:
        """Refuse the ledger if it lacks an entry that one of these witnesses saw; report new entries to them."""
        self.confirmed += self.compare(*witnesses)  # before anything is reported to them
        self._witnesses.extend(witnesses)
        self._tell(self._store.tip())

    def compare(self, *witnesses: Witness) -> list[str]:
        """Refuse the ledger if it lacks an entry that one of these saw; return which of them saw its newest entry."""
        confirmed = []
        for witness in witnesses:
            seen, tip = witness.newest(), self._store.tip()  # in this order, since others may be writing
            if seen is not None:
                self._require(witness, seen, tip, self._store)
                if tip is not None and seen.tip.hash == tip.hash:
                    confirmed.append(witness.name)
        owner = None if self._content is None else self._store.owner(self._content)
        if owner not in (None, self._store.dataset):
            raise second_ledger(self._store.location, str(owner))
        return confirmed

    def tip(self) -> Tip | None:
        """Return the tip; raise if it is older than what this process saw."""
        if self._forked is not None:
            raise duplicate(self._forked)
        seen = self._newest()  # before the tip, which another thread may move
        tip = self._store.tip()
        self._notice(seen, tip, self._store)
        return tip

    def begin(self, genesis: Row, secret: bytes) -> bool:
        """Begin the ledger, unless a witness knows of another one by now."""
        mine, address = self._content, self._where
        if mine is not None and _beginning.setdefault(mine, address) != address:  # first, then compare
            raise self._elsewhere(f"another thread begins one at {_beginning.get(mine)}", None)
        try:
            with ExitStack() as held:  # no other process can begin one between the comparison and the report
                for witness in self._witnesses:
                    held.enter_context(witness.alone())
                self.compare(*self._witnesses)
                began = self._store.begin(genesis, secret, mine)
                self._tell(self._store.tip())
        finally:
            _beginning.pop(mine or "", None)
        return began

    def write(self, decide: Callable[[Transaction], None]) -> None:
        """Write, unless the ledger is older than what this process saw; then report to the witnesses."""
        if self._forked is not None:
            raise duplicate(self._forked)
        written: Transaction | None = None

        def watched(transaction: Transaction) -> None:
            nonlocal written
            self._notice(self._newest(), transaction.start(), transaction)
            decide(transaction)
            written = transaction

        self._store.write(watched)
        if written is not None:
            self._tell(written.tip(), written.start())  # also covers the other writes of the same transaction

    def close(self) -> None:
        """Close the witnesses."""
        for witness in self._witnesses:
            witness.close()

    def _newest(self) -> Seen | None:
        return self._witnesses[0].newest() if self._witnesses else None

    def _notice(self, seen: Seen | None, tip: Tip | None, within: Store | Transaction) -> None:
        """Refuse a tip that is older than what this process saw; otherwise remember it as seen."""
        if seen is not None and (tip is None or tip.hash != seen.tip.hash):
            process = self._witnesses[0]
            self._require(process, seen, tip, within)
            if tip is not None:
                process.remember(Seen(self._where, tip))

    def _tell(self, tip: Tip | None, start: Tip | None = None) -> None:
        """Report the tip to the witnesses; what others have reported to them meanwhile must be in the ledger, too.

        Mostly that is `start`, which the new entries follow, so it need not be looked up.
        """
        if tip is None or tip is self._told:  # a thread of the same transaction has reported it
            return
        seen = Seen(self._where, tip)
        for witness in self._witnesses:
            other = witness.others()
            if other is not None and (start is None or other.tip.hash != start.hash):
                self._require_other(witness, other)
            witness.remember(seen)
        self._told = tip

    def _require_other(self, witness: Witness, other: Seen) -> None:
        if self._store.hash_at(other.tip.seq) != other.tip.hash:
            try:
                self._require(witness, other, self._store.tip(), self._store)
            except HoldfastError as error:
                self._forked = error
                raise

    def _require(self, witness: Witness, seen: Seen, tip: Tip | None, within: Store | Transaction) -> None:
        """Refuse a ledger that ends with `tip` unless it contains what was seen, or a restore has accounted for it."""
        if contains(within, tip, seen.tip):
            return
        if tip is None or not any(covers(lost, seen.tip) for lost in restores(self._store)):
            raise self._refusal(witness.name, seen, tip)
        witness.accept(Seen(self._where, tip))

    def _refusal(self, who: str, seen: Seen, tip: Tip | None) -> HoldfastError:
        here, there, count = self._store.location, seen.address, seen.tip.seq
        known = f"{who} saw {count:,} answer{'' if count == 1 else 's'}"
        if there.startswith(SPLIT):
            return InvalidArgument(
                f"These rows were {there}. Continue with the two parts: asking all rows, or splitting them again, would"
                " show rows that are held out for checks.",
                name="data",
            )
        if there.startswith(BOARD):
            return InvalidArgument(
                f"The labels in these rows were {there}, a board: answers about them would break the seal. Submit"
                " predictions to it, or ask rows that are not on it.",
                name="data",
            )
        if there != self._where:
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
            f"These rows have a ledger already: {fact}, and {self._store.location} does not have it{copy}. Use that"
            " one: name it as the ledger, or move it here. A second one would spend the same budget twice.",
            name="ledger",
            **fields,
        )


def contains(store: Store | Transaction, tip: Tip | None, seen: Tip) -> bool:
    """Whether a ledger that ends with `tip` continues from what was seen.

    If both end with the same entry, the amounts taken are not compared: the ledger may have less by now, since closing
    it gives back what was taken ahead, and a witness need not have been told. An old copy with the same newest entry
    can thus hand out places again, but only places of draws that nobody was shown: every shown answer has an entry. It
    also lacks the checks that failed after that entry (docs/proofs/checks.md).
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
    """Yield, for each restore that the ledger records, the newest tip that was seen before it."""
    start = 0
    while rows := store.read(start, _READ):
        yield from (Tip(**json.loads(row.body)[LOST]) for row in rows if is_restore(row))
        start += len(rows)


def covers(lost: Tip, seen: Tip) -> bool:
    """Whether a restore that counted `lost` as spent has counted everything up to `seen`."""
    return lost.seq >= seen.seq and all(one >= other for one, other in zip(lost.taken, seen.taken, strict=True))
