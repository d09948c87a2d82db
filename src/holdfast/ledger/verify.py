"""Proofs: a receipt for one entry, and a re-check of the whole ledger.

A receipt proves one entry to somebody who has neither the data nor the ledger, only a published head:

    1  the entry's text, the hash before it and the root before it give the entry's hash
    2  the entry's hash and the path give the root that the head contains
    3  that root, the digest of the head's text and the hash before the head give the head's hash

A receipt is as large as the text, plus 64 characters for each doubling of the ledger. Receipts of ledgers of format 2
list the digests of all later entries instead; they can still be checked.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from typing import Any

from holdfast import check
from holdfast.errors import InvalidArgument, LedgerDamaged, UnknownName
from holdfast.ledger import chain, tree
from holdfast.ledger.store import START, Head, Row, Store, Tip

_HASH = re.compile(r"[0-9a-f]{64}")
_decode = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True, repr=False)
class Receipt(ABC):
    """Proof that an entry is in the ledger: its text, and hashes that lead from it to the head.

    Parameters
    ----------
    seq
        The number of the entry.
    body
        Its text.
    previous
        The hash of the entry before it.
    head
        The newest entry when the receipt was made.
    """

    seq: int
    body: str
    previous: str
    head: Head

    def __post_init__(self) -> None:
        check.whole(0, seq=self.seq, head_seq=self.head.seq)
        if not isinstance(self.body, str):
            raise InvalidArgument("receipt must have a text as its body; got another type.", name="receipt")
        for text in (self.previous, self.head.hash, *self._hashes()):
            # With fixed lengths, no text can be hashed as if it were two fields, or half of one.
            if not isinstance(text, str) or _HASH.fullmatch(text) is None:
                message = f"receipt must have hashes of 64 lower-case hexadecimal characters; got {text!r:.100}."
                raise InvalidArgument(message, name="receipt")

    @abstractmethod
    def _hashes(self) -> tuple[str, ...]:
        """Return the hashes that lead to the head."""

    @abstractmethod
    def leads_to(self, head_hash: str) -> bool:
        """Return whether the text is under the head that has the stated number and this hash.

        Parameters
        ----------
        head_hash
            The hash of a head.
        """

    def __repr__(self) -> str:
        return (
            f"Receipt of no. {self.seq} under head {self.head.hash} (no. {self.head.seq}). to_dict() writes it,"
            " holdfast.check_receipt(receipt, head) checks it."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the receipt as plain JSON values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> "Receipt":
        """Rebuild a receipt.

        Parameters
        ----------
        value
            What `to_dict` wrote.

        Returns
        -------
        Receipt
            The same receipt.
        """
        try:
            kind = ChainReceipt if "later" in value else TreeReceipt
            given = {field.name: value[field.name] for field in fields(kind)}
            for name in {"path", "later"} & given.keys():
                given[name] = tuple(given[name])
            given["head"] = Head(seq=given["head"]["seq"], hash=given["head"]["hash"])
        except (KeyError, TypeError):
            raise InvalidArgument(
                f"receipt must be a dict of {', '.join(field.name for field in fields(TreeReceipt))}; got another.",
                name="receipt",
            ) from None
        return kind(**given)


@dataclass(frozen=True, slots=True, repr=False)
class TreeReceipt(Receipt):
    """Leads to the head by a path in the tree over all entries before the head.

    Parameters
    ----------
    root
        The root over all entries before this one.
    path
        The sibling hashes on the way from the entry up to the root over all entries before the head; empty for the
        head.
    head_previous, head_digest
        The hash of the entry before the head, and the digest of the head's text.
    """

    root: str
    path: tuple[str, ...]
    head_previous: str
    head_digest: str

    def _hashes(self) -> tuple[str, ...]:
        return (self.root, self.head_previous, self.head_digest, *self.path)

    def leads_to(self, head_hash: str) -> bool:
        """Whether the path leads to the head with this hash."""
        own = (self.previous, chain.digest(self.body))
        reached = chain.link(self.seq, *own, self.root)
        if self.seq == self.head.seq:
            return reached == head_hash and own == (self.head_previous, self.head_digest) and not self.path
        root = tree.root_of_path(reached, self.seq, self.head.seq, self.path)
        return root is not None and head_hash == chain.link(self.head.seq, self.head_previous, self.head_digest, root)


@dataclass(frozen=True, slots=True, repr=False)
class ChainReceipt(Receipt):
    """A receipt of a ledger of format 2: leads to the head through `later`, the digests of all entries after it."""

    later: tuple[str, ...]

    def _hashes(self) -> tuple[str, ...]:
        return self.later

    def leads_to(self, head_hash: str) -> bool:
        """Whether the chain leads to the head with this hash."""
        reached = self.previous
        for body_digest in (chain.digest(self.body), *self.later):
            reached = sha256((reached + body_digest).encode()).hexdigest()
        return reached == head_hash and self.seq + len(self.later) == self.head.seq


def check_receipt(receipt: Receipt, head_hash: str) -> None:
    """Raise LedgerDamaged unless a receipt leads to a published head.

    Parameters
    ----------
    receipt
        The receipt; no ledger is needed.
    head_hash
        The hash of a head that was published.
    """
    if receipt.head.hash != head_hash or not receipt.leads_to(head_hash):
        raise LedgerDamaged(
            f"The receipt of entry {receipt.seq} does not lead to the head {head_hash}. "
            "Ask the ledger's administrator for a receipt against this head.",
            entry=receipt.seq,
        )
    try:
        body = json.loads(receipt.body)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict) or body.get("seq") != receipt.seq:
        raise LedgerDamaged(
            f"The receipt of entry {receipt.seq} carries another number inside. "
            "Ask the ledger's administrator for a new one.",
            entry=receipt.seq,
        )


class Tiles:
    """Shares of one amount that must not overlap. Adjacent shares are merged at once, so that few are stored."""

    def __init__(self) -> None:
        self._stops: dict[int, int] = {}  # by start
        self._starts: dict[int, int] = {}  # by stop

    def add(self, start: int, size: int) -> bool:
        """Add one share; return False if its start or size is invalid, or another share starts there."""
        if start in self._stops or start < 0 or size < 0:
            return size == 0 <= start
        if size:
            stop = self._stops.pop(start + size, start + size)
            start = self._starts.pop(start, start)
            self._starts[stop], self._stops[start] = start, stop
        return True

    def fit(self, end: int) -> bool:
        """Whether no two shares overlap, and all of them end by `end`."""
        edges = [edge for tile in sorted(self._stops.items()) for edge in tile]
        return edges == sorted(edges) and (not edges or edges[-1] <= end)


class Verification:
    """Re-checks a ledger from its first entry on. Give it all rows in order, then the tip.

    `published` is the hash of a head published earlier; `found` says whether one of the rows has it. `replaced` holds
    the numbers of entries that were lost, by the entry that records their restore.
    """

    def __init__(self, location: str, published: str | None = None) -> None:
        self.location = location
        self.found = published is None
        self.genesis: dict[str, Any] = {}
        self.replaced: list[range] = []
        self._published = published
        self.tree = tree.Tree()
        self._tip = START
        self._charges, self._intervals, self._numbers = Tiles(), Tiles(), Tiles()

    @property
    def tip(self) -> Tip:
        """The tip after the rows checked so far, all of which were correct."""
        return self._tip

    def check_rows(self, rows: Iterable[Row]) -> None:
        """Check the next rows."""
        seq, previous, charge, intervals = self._tip[:4]
        published = self._published
        for number, key_digest, text, stored_previous, stored_hash, stored_charge, stored_intervals in rows:
            seq += 1
            if number != seq:
                raise chain.damaged(self.location, seq, "it is missing")
            reached = chain.link(seq, previous, sha256(text.encode()).hexdigest(), self.tree.root)
            if stored_hash != reached or stored_previous != previous:
                against = f"entry {seq - 1}" if seq else "its text"
                raise chain.damaged(self.location, seq, f"its hash does not match {against}")
            try:
                body, end = _decode(text)
                stated, key, laid = body["seq"], None, True
                if seq:
                    key, cost, place = body["key"], body["cost"], body["place"]
                    charge += cost["charge"]
                    intervals += cost["intervals"]
                    laid = (
                        self._charges.add(place["charge"], cost["charge"])
                        and self._intervals.add(place["intervals"], cost["intervals"])
                        and self._numbers.add(place["number"] - 1, 1)
                        and place["reached"] >= place["charge"] + cost["charge"]
                    )
                    if chain.LOST in body:
                        self.replaced.append(range(seq, body[chain.LOST]["seq"] + 1))
                elif body["format"] != chain.FORMAT:
                    raise chain.unknown_format(self.location, body["format"])
                expected_digest = None if key is None else sha256(key.encode()).hexdigest()
            except (ValueError, KeyError, TypeError, AttributeError):
                raise chain.damaged(self.location, seq, "its text cannot be read") from None
            if stated != seq or end != len(text):
                raise chain.damaged(self.location, seq, f"its text says it is entry {stated}")
            if stored_charge != charge or stored_intervals != intervals:
                raise chain.damaged(self.location, seq, "its running totals do not match the costs up to it")
            if not laid:
                raise chain.damaged(self.location, seq, "its place is another entry's")
            if key_digest != expected_digest:
                raise chain.damaged(self.location, seq, "its key does not match its text")
            if reached == published:
                self.found = True
            if seq == 0:
                self.genesis = body
            self.tree.append(reached)
            previous = reached
        self._tip = Tip(seq, previous, charge, intervals, self.tree.peaks)

    def check_tip(self, tip: Tip) -> None:
        """Check that the rows ended where the stored tip says they end."""
        reached = self._tip
        if tip.seq > reached.seq:
            raise chain.damaged(self.location, reached.seq + 1, f"it is missing, though the head is entry {tip.seq}")
        if tip.seq < reached.seq:
            raise chain.damaged(self.location, tip.seq + 1, f"it lies beyond the head, entry {tip.seq}")
        if tip[:5] != reached[:5]:
            raise chain.damaged(self.location, tip.seq, "the head does not match it")
        if not all(map(Tiles.fit, (self._charges, self._intervals, self._numbers), tip.taken)):
            raise LedgerDamaged(
                f"Ledger {self.location} is damaged: two entries hold the same place, or one holds a place that was"
                " never taken. Restore the ledger.",
                location=self.location,
            )


READ_CHUNK = 2_000  # rows read at a time; keeps every read short


def rows_of(store: Store, start: int, limit: int | None = None) -> Iterator[Row]:
    """Iterate over rows from number `start` on."""
    while limit is None or limit > 0:
        rows = store.read(start, READ_CHUNK if limit is None else min(limit, READ_CHUNK))
        yield from rows
        if not rows:
            return
        start += len(rows)
        if limit is not None:
            limit -= len(rows)


def receipt_under(head: Head, store: Store, seq: int, known: tree.Tree) -> tuple[TreeReceipt, tree.Tree]:
    """Return the proof that entry `seq` is under the head, and `known` grown to the tree over all entries before it."""
    if seq > head.seq:
        raise UnknownName(f"No entry {seq} in ledger {store.location}. It has entries 0 to {head.seq}.", name=seq)

    def block(number: int) -> list[str]:
        return [row.hash for row in store.read(number * tree.BLOCK, tree.BLOCK)]

    try:
        if known.size < head.seq:
            known = known.grown(row.hash for row in rows_of(store, known.size, head.seq - known.size))
        root, path = known.prove(seq, head.seq, block)
        (own,), (newest,) = store.read(seq, 1), store.read(head.seq, 1)
        newest_digest = chain.digest(newest.body)
        receipt = TreeReceipt(seq, own.body, own.previous, head, root, path, newest.previous, newest_digest)
        sound = receipt.leads_to(head.hash)
    except (ValueError, IndexError):  # rows are missing, or stored hashes are not valid hashes
        sound = False
    if not sound:
        raise chain.damaged(store.location, seq, f"it does not lead to the head, entry {head.seq}")
    return receipt, known


def verify_store(store: Store, published: str | None = None) -> Verification:
    """Re-check the whole ledger, even while others are writing.

    A row and the tip that includes it are written together, so a tip read after the rows is never behind them. If it is
    ahead, because somebody wrote meanwhile, the rows up to it must exist by then, and are read next.
    """
    verification, expected = Verification(store.location, published), -1  # the tip's entry before the last read
    while True:
        rows = store.read(verification.tip.seq + 1, READ_CHUNK)
        verification.check_rows(rows)
        if len(rows) == READ_CHUNK:
            continue
        tip = store.tip()
        if tip is None:
            raise LedgerDamaged(
                f"Ledger {store.location} is damaged: it has entries of {store.dataset} but no head. "
                "Restore the ledger.",
                location=store.location,
            )
        if tip.seq <= verification.tip.seq or verification.tip.seq < expected:
            break
        expected = tip.seq
    verification.check_tip(tip)
    if not verification.found:
        reason = ": entries were dropped or rewritten since."
        if lost := [numbers for numbers in verification.replaced if numbers]:
            gaps = " and ".join(_numbers(each) for each in lost)
            reason = f". It was put back from a backup that lacked {gaps}, as it records: the head may belong to these."
        raise LedgerDamaged(
            f"Ledger {store.location} does not contain the published head {published}{reason} Restore the ledger from a"
            " copy that has it.",
            location=store.location,
        )
    return verification


def _numbers(entries: range) -> str:
    first, last = entries[0], entries[-1]
    return f"entry {first}" if first == last else f"entries {first} to {last}"
