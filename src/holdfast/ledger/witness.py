"""Witnesses remember the newest entry of a ledger, so that the ledger cannot go back in time unnoticed.

A ledger proves that nothing in it was changed, but not that nothing is missing at its end: an old copy is as consistent
as the ledger itself. So the newest state of the ledger is remembered elsewhere, too, for each content of data:

    the process    for every ledger that it has opened
    the data       in a small file beside it, `flights.parquet.witness`
    a server       in its own database

A witness is told once a commit is durable, so it is never ahead of the ledger. After a power failure or a kill it may
be behind; then it notices less. `watched.py` compares a ledger with what its witnesses saw.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol
from weakref import finalize

from holdfast.errors import LedgerUnavailable
from holdfast.ledger.store import Tip

if sys.platform != "win32":
    import fcntl

LOCK_TIMEOUT = 20.0  # seconds to wait for another process that is beginning a ledger
_POLL = 0.005  # seconds between two attempts
_SLOT = 2_048  # bytes for one content; it lies within one page, so that a write happens entirely or not at all
_CHECKSUM = 16  # characters
BOARD = "sealed as "  # the same of labels: the ledger is that of their board
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
        if other is None or self.tip.seq != other.tip.seq:
            return other is None or self.tip.seq > other.tip.seq
        return self.tip.hash == other.tip.hash


class Witness(Protocol):
    """Remembers the newest state of the ledger for one content."""

    @property
    def name(self) -> str:
        """The name of this witness, as the subject of a sentence."""
        ...

    def newest(self) -> Seen | None:
        """Return the newest state that was seen; None if no ledger was seen."""
        ...

    def others(self) -> Seen | None:
        """Return what another process has stored here since this witness was last told; None if none has."""
        ...

    def remember(self, seen: Seen) -> None:
        """Remember this, unless something newer is remembered."""
        ...

    def alone(self) -> AbstractContextManager[None]:
        """Keep others with the same witness from beginning a ledger meanwhile."""
        ...

    def accept(self, seen: Seen) -> None:
        """Remember this, even if it is older: the ledger has been restored and accounts for what was lost."""
        ...

    def close(self) -> None:
        """Close files; may be called again."""
        ...


class ProcessWitness:
    """This process. It uses no lock, which a fork or a signal could leave held; a race loses at most one update."""

    name = "this process"
    _seen: ClassVar[dict[str, Seen]] = {}

    def __init__(self, content: str) -> None:
        self._content = content

    def newest(self) -> Seen | None:
        """Return what any session of this process saw."""
        return self._seen.get(self._content)

    def others(self) -> Seen | None:
        """Return None: every write is compared with what this process saw before it is made."""
        return None

    def remember(self, seen: Seen) -> None:
        """Remember this, unless something newer is remembered."""
        if seen.is_newer_than(self.newest()):
            self._seen[self._content] = seen

    def alone(self) -> AbstractContextManager[None]:
        """Do nothing: threads that begin a ledger in this process announce it first (`watched.py`)."""
        return nullcontext()

    def accept(self, seen: Seen) -> None:
        """Remember this instead of all before."""
        self._seen[self._content] = seen

    def close(self) -> None:
        """Do nothing: what was seen is remembered as long as the process lives."""

    @classmethod
    def forget_all(cls) -> None:
        """Forget every ledger, as a new process would. For tests."""
        cls._seen.clear()


class FileWitness:
    """A file with a slot of fixed size for every content, written in place, without waiting for the disk.

    It takes no lock to write: if two processes write at the same moment, the newer state may be overwritten by the
    older one, until the next answer.
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
        """Hold a lock on the file; beginning a ledger takes some milliseconds."""
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
                        f"Another process has been beginning a ledger for these rows for {LOCK_TIMEOUT:g} s: it holds"
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

    def close(self) -> None:
        """Do nothing: another thread may be writing. The file is closed when this witness is garbage-collected."""

    def _put(self, seen: Seen, *, always: bool) -> None:
        text = _record(self._content, seen)
        if text is None:
            return
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


def _record(content: str, seen: Seen) -> bytes | None:
    """Return the bytes of a slot: a checksum, the content, the tip, the address; None if they do not fit."""
    tip = seen.tip._replace(peaks="")  # of a long ledger they would not fit
    body = f"{content} {' '.join(map(str, tip))} {seen.address}".encode("utf-8", "surrogateescape")
    text = _checksum(body) + b" " + body + b"\n"
    return text.ljust(_SLOT) if len(text) <= _SLOT else None


def _parse(slot: bytes) -> tuple[str | None, Seen | None]:
    """Read a slot; return (None, None) if it is empty or corrupted."""
    checksum, _, body = slot.rstrip().partition(b" ")
    if not body or checksum != _checksum(body):
        return None, None
    content, *rest = body.decode("utf-8", "surrogateescape").split(" ", len(Tip._fields) + 1)
    values = [
        value if name in ("hash", "peaks") else int(value) for name, value in zip(Tip._fields, rest, strict=False)
    ]
    return content, Seen(rest[-1], Tip._make(values))


def _checksum(body: bytes) -> bytes:
    return sha256(body).hexdigest()[:_CHECKSUM].encode()
