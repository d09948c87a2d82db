"""Witnesses remember the newest entry of a ledger, so that the ledger cannot go back in time unnoticed.

A ledger proves that nothing in it was changed, but not that nothing is missing at its end: an old copy is as consistent
as the ledger itself. So the newest state of the ledger is remembered elsewhere, too, for each content of data:

    the process    for every ledger that it has opened
    the data       in a small file beside it, `flights.parquet.witness`
    a server       in its own database

A witness is told once a commit is durable, so it is never ahead of the ledger. After a power failure or a kill it may
be behind; then it notices less.

A ledger must contain every entry that its witnesses saw. One that ends before has gone back in time: somebody put an
old copy in its place, or copied the file without its write-ahead log. One that is long enough, but has a different
entry there, is another ledger for the same data. Either would hand out the same budget a second time, so both are
refused: when the ledger is opened, when it is begun, and at every later read of the tip and every write.

A write compares what this process saw with the tip at the start of its transaction. Everything written in the
transaction follows that tip, so one comparison is enough for all answers that are written together. Once the
transaction is durable, the first of its threads to continue reports the new tip to the witnesses. So witnesses are
never ahead of the ledger, and no answer is shown before they have been told of it.
"""

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, NamedTuple
from weakref import finalize

from holdfast.errors import HoldfastError, InvalidArgument, LedgerDamaged, LedgerUnavailable
from holdfast.ledger.chain import LOST
from holdfast.ledger.concurrency import duplicate
from holdfast.ledger.store import Row, Store, Tip, Transaction, second_ledger
from holdfast.ledger.verify import rows_of

if sys.platform != "win32":
    import fcntl

LOCK_TIMEOUT = 20.0  # seconds to wait for another process that is beginning a ledger
_POLL = 0.005  # seconds between two attempts
_SLOT = 2_048  # bytes for one content; it lies within one page, so that a write happens entirely or not at all
_CHECKSUM = 16  # characters
BOARD = "sealed as "  # the same of labels: the ledger is that of their board
DEALT = "dealt as "  # the same of a table that was dealt: the ledger is that of its deck
SPLIT = "split into "  # the start of the address of rows that were split: the ledgers are those of the parts


def content_of(fingerprint: str) -> str:
    """Return the identity under which witnesses and databases know data; it does not reveal the fingerprint.

    It does not depend on which rows are kept for checks: the data have one budget either way.
    """
    return sha256(fingerprint.partition(", keeping ")[0].encode()).hexdigest()


class Seen(NamedTuple):
    """The newest state of a ledger that a witness saw, and the ledger's address at that time.

    Witnesses need not store the peaks, which follow from the entries.
    """

    address: str
    tip: Tip

    def is_newer_than(self, other: "Seen | None") -> bool:
        """Whether this came after the other, or has the same newest entry.

        With the same entry, this may have more taken or, after some was given back, less. A different entry with the
        same number is neither older nor newer: somebody has continued from a copy.
        """
        if other is None:
            return True
        mine, there = self.tip, other.tip
        return mine.seq > there.seq or (mine.seq == there.seq and mine.hash == there.hash)


class Witness(ABC):
    """Remembers the newest state of the ledger for one content."""

    name: str  # as the subject of a sentence

    @abstractmethod
    def newest(self) -> Seen | None:
        """Return the newest state that was seen; None if no ledger was seen."""

    def others(self) -> Seen | None:
        """Return what another process has stored here since this witness was last told; None if none has."""
        return None

    @abstractmethod
    def remember(self, seen: Seen) -> None:
        """Remember this, unless something newer is remembered."""

    @abstractmethod
    def accept(self, seen: Seen) -> None:
        """Remember this, even if it is older: the ledger has been restored and accounts for what was lost."""

    def alone(self) -> AbstractContextManager[None]:
        """Keep others with the same witness from beginning a ledger meanwhile, if they could."""
        return nullcontext()

    def close(self) -> None:  # noqa: B027  most have nothing to close
        """Write or close what is still open; may be called again."""


class ProcessWitness(Witness):
    """This process. It uses no lock, which a fork or a signal could leave held; a race loses at most one update.

    It has no `others`, since every write is compared with what this process saw before it is made. Threads that begin
    a ledger announce it, so none has to be kept from that.
    """

    name = "this process"
    _seen: ClassVar[dict[str, Seen]] = {}

    def __init__(self, content: str) -> None:
        self._content = content

    def newest(self) -> Seen | None:
        """Return what any session of this process saw."""
        return self._seen.get(self._content)

    def remember(self, seen: Seen) -> None:
        """Remember this, unless something newer is remembered."""
        if seen.is_newer_than(self._seen.get(self._content)):
            self._seen[self._content] = seen

    def accept(self, seen: Seen) -> None:
        """Remember this instead of all before."""
        self._seen[self._content] = seen

    @classmethod
    def forget_all(cls) -> None:
        """Forget every ledger, as a new process would. For tests."""
        cls._seen.clear()


class FileWitness(Witness):
    """A file with a slot of fixed size for every content, written in place, without waiting for the disk.

    It takes no lock to write: if two processes write at the same moment, the newer state may be overwritten by the
    older one, until the next answer. The file is closed when this witness is garbage-collected, since another thread
    may be writing.
    """

    def __init__(self, path: Path, content: str) -> None:
        self.name = f"{path.name} beside the data"
        self._path, self._content = path, content
        self._file: tuple[int, int] | None = None  # its descriptor, and the offset of the slot for this content
        self._written = b""
        self._last: Seen | None = None
        self._read: tuple[bytes, tuple[str | None, Seen | None]] = b"", (None, None)  # a slot, and what it says

    def newest(self) -> Seen | None:
        """Return what the file says; None if there is no file, or if it cannot be read."""
        try:
            text = self._path.read_bytes()
        except OSError:
            return None
        newest: Seen | None = None
        for content, seen in map(_parse, _slots(text)):
            if content == self._content and seen is not None and seen.is_newer_than(newest):
                newest = seen
        return newest

    def others(self) -> Seen | None:
        """Return what another process has written into the slot since this one did."""
        try:
            descriptor, slot = self._file or self._open()
            there = os.pread(descriptor, _SLOT, slot)
        except OSError:
            return None
        if there == self._written:
            return None
        content, seen = self._parsed(there)
        return seen if content == self._content else None

    def remember(self, seen: Seen) -> None:
        """Remember this, unless something newer is remembered."""
        self._put(seen, always=False)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold a lock on the file: beginning a ledger takes milliseconds, splitting rows as long as writing them."""
        descriptor = None
        with suppress(OSError):  # data in a read-only folder has no witness beside it
            descriptor, _ = self._file or self._open()
        if descriptor is None or sys.platform == "win32":
            yield
            return
        deadline = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LedgerUnavailable(
                        f"Another process has been beginning a ledger for these rows, or splitting them, for"
                        f" {LOCK_TIMEOUT:g} s: it holds"
                        f" {self._path.name}. End it if it is stopped or stuck, then try again.",
                        location=str(self._path),
                    ) from None
            time.sleep(_POLL)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def accept(self, seen: Seen) -> None:
        """Remember this instead of all before."""
        self._put(seen, always=True)

    def _put(self, seen: Seen, *, always: bool) -> None:
        text = _record(self._content, seen)
        try:
            descriptor, slot = self._file or self._open()
            there = os.pread(descriptor, _SLOT, slot)
            mine = there == self._written and seen.is_newer_than(self._last)  # nobody else wrote: no need to parse
            if not mine and self._parsed(there)[0] not in (self._content, None):
                # Two contents chose the same free slot at the same moment, and the other one has it.
                _, slot = self._file = descriptor, self._slot_in(descriptor)
                there = os.pread(descriptor, _SLOT, slot)
            if always or mine or seen.is_newer_than(self._parsed(there)[1]):
                os.pwrite(descriptor, text, slot)
                self._written, self._last = text, seen
        except OSError:  # data in a read-only folder has no witness beside it
            return

    def _parsed(self, there: bytes) -> tuple[str | None, Seen | None]:
        slot, parsed = self._read  # both at once: other threads may replace it
        if slot != there:
            parsed = _parse(there)
            self._read = there, parsed
        return parsed

    def _open(self) -> tuple[int, int]:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        finalize(self, os.close, descriptor)
        self._file = descriptor, self._slot_in(descriptor)
        return self._file

    def _slot_in(self, descriptor: int) -> int:
        """Return the offset of the slot for this content: its own, else one that is free, else a new one."""
        contents = [_parse(slot)[0] for slot in _slots(os.pread(descriptor, os.fstat(descriptor).st_size, 0))]
        # A slot that a power failure has corrupted holds no information: it is free.
        place = next((contents.index(each) for each in (self._content, None) if each in contents), len(contents))
        return _SLOT * place


def _slots(text: bytes) -> Iterator[bytes]:
    return (text[start : start + _SLOT] for start in range(0, len(text), _SLOT))


def _record(content: str, seen: Seen) -> bytes:
    """Return the bytes of a slot: a checksum, the content, the tip, as much of the address as fits; and padding."""
    tip = seen.tip._replace(peaks="")  # of a long ledger they would not fit
    body = f"{content} {' '.join(map(str, tip))} {seen.address}".encode("utf-8", "surrogateescape")
    body = body[: _SLOT - _CHECKSUM - 2]
    return (_checksum(body) + b" " + body + b"\n").ljust(_SLOT)


def _parse(slot: bytes) -> tuple[str | None, Seen | None]:
    """Read a slot; return (None, None) if it is empty or corrupted."""
    checksum, _, body = slot.rstrip(b" ").removesuffix(b"\n").partition(b" ")  # an address may end in white space
    if not body or checksum != _checksum(body):
        return None, None
    content, *rest = body.decode("utf-8", "surrogateescape").split(" ", len(Tip._fields) + 1)
    values = [
        value if name in ("hash", "peaks") else int(value) for name, value in zip(Tip._fields, rest, strict=False)
    ]
    return content, Seen(rest[-1], Tip._make(values))


def _checksum(body: bytes) -> bytes:
    return sha256(body).hexdigest()[:_CHECKSUM].encode()


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
        self._last: Tip | None = None  # the tip last read here
        self._reported: Tip | None = None  # the tip last reported to the witnesses
        self._forked: HoldfastError | None = None  # once somebody has continued from a copy: every later call raises it

    def watch(self, *witnesses: Witness) -> None:
        """Refuse the ledger if it lacks an entry that one of these witnesses saw; report new entries to them."""
        self.confirmed += self.compare(*witnesses)  # before anything is reported to them
        self._witnesses.extend(witnesses)
        self._report(self._store.tip())

    def compare(self, *witnesses: Witness) -> list[str]:
        """Refuse the ledger if it lacks an entry that one of these saw; return which of them saw its newest entry."""
        owner = None if self._content is None else self._store.owner(self._content)
        if owner not in (None, self._store.dataset):
            raise second_ledger(self._store.location, str(owner))
        confirmed = []
        for witness in witnesses:
            seen, tip = witness.newest(), self._store.tip()  # in this order, since others may be writing
            if seen is not None:
                self._require(witness, seen, tip, self._store)
                if tip is not None and seen.tip.hash == tip.hash:
                    confirmed.append(witness.name)
        return confirmed

    def tip(self) -> Tip | None:
        """Return the tip; raise if it is older than what this process saw."""
        if self._forked is not None:
            raise duplicate(self._forked)
        seen = self._witnesses[0].newest() if self._witnesses else None  # before the tip, which others may move
        tip = self._store.tip()
        if seen is not None and (tip is None or tip.hash != seen.tip.hash):
            self._notice(seen, tip, self._store)
        self._last = tip
        return tip

    @property
    def last_seen(self) -> Tip | None:
        """The newest tip that this process saw; reads nothing."""
        seen = self._witnesses[0].newest() if self._witnesses else None
        return self._last if seen is None else seen.tip

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
                self._report(self._store.tip())
        finally:
            _beginning.pop(mine or "", None)
        return began

    def write(self, decide: Callable[[Transaction], None]) -> None:
        """Write, unless the ledger is older than what this process saw; then report to the witnesses."""
        if self._forked is not None:
            raise duplicate(self._forked)

        def watched(transaction: Transaction) -> None:
            seen, start = self._witnesses[0].newest() if self._witnesses else None, transaction.start
            if seen is not None and (start is None or start.hash != seen.tip.hash):
                self._notice(seen, start, transaction)
            decide(transaction)

        written = self._store.write(watched)
        self._report(written.tip, written.start)  # also covers the other writes of the same transaction

    def close(self) -> None:
        """Close the witnesses."""
        for witness in self._witnesses:
            witness.close()

    def _notice(self, seen: Seen, tip: Tip | None, within: Store | Transaction) -> None:
        """Refuse a tip that is older than what this process saw; otherwise remember it as seen."""
        process = self._witnesses[0]
        self._require(process, seen, tip, within)
        if tip is not None:
            process.remember(Seen(self._where, tip))

    def _report(self, tip: Tip | None, start: Tip | None = None) -> None:
        """Report the tip to the witnesses; what others have reported to them meanwhile must be in the ledger, too.

        Mostly that is `start`, which the new entries follow, so it need not be looked up.
        """
        self._last = tip
        if tip is None or tip is self._reported:  # a thread of the same transaction has reported it
            return
        seen = Seen(self._where, tip)
        for witness in self._witnesses:
            other = witness.others()
            if other is not None and (start is None or other.tip.hash != start.hash):
                self._require_other(witness, other)
            witness.remember(seen)
        self._reported = tip

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
        if there.startswith(DEALT):
            return InvalidArgument(
                f"The table of these rows was {there}. Continue with that deck and its ledger: a second ledger would"
                " spend the same budget twice. If nobody has asked the deck, remove it, and open this again.",
                name="data",
            )
        if there != self._where and not seen.tip.hash:  # it is not known how far that ledger has come
            return InvalidArgument(
                f"These rows have a ledger already: {who} has one at {there}. Go on with that: a second one would"
                " spend the same budget twice.",
                name="ledger",
                ledger=there,
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
    """Iterate over the newest tips that were seen before each restore that the ledger records."""
    return (Tip(**json.loads(row.body)[LOST]) for row in rows_of(store, 0) if is_restore(row))


def covers(lost: Tip, seen: Tip) -> bool:
    """Whether a restore that counted `lost` as spent has counted everything up to `seen`."""
    return lost.seq >= seen.seq and all(one >= other for one, other in zip(lost.taken, seen.taken, strict=True))
