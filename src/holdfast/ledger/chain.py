"""The hash chain of entries.

    body    canonical JSON text of everything in the entry: sorted keys, no spaces, no NaN, UTF-8
    digest  sha256(body)
    root    of the tree over the hashes of all entries before this one (tree.py)
    hash    sha256("number previous digest root"): previous is the hash of the entry before; all but the number are 64
            lower-case hexadecimal characters

Changing, dropping or swapping any entry changes every hash after it, so a published head pins all entries before it.
The chain proves this to a reader of all entries; the tree proves it to somebody who is shown one entry (verify.py).

>>> link(0, START.hash, digest(canonical({"b": 1, "a": "ü"})), tree.root(""))
'cc7cee03b3777595a419d0aa7f88254532e57d2a117193445e936481fc7504c8'
"""

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from holdfast.errors import InvalidArgument, LedgerDamaged, LedgerUnavailable
from holdfast.ledger import tree
from holdfast.ledger.store import START, Cost, Row, Tip

FORMAT = 4
LOST = "lost"  # what the body of an entry holds that records a restore: the newest tip that was seen before

_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

_decode = json.JSONDecoder().raw_decode


def canonical(value: object, name: str = "value") -> str:
    """Return the canonical text of a JSON value."""
    try:
        text = _encode(value)
        text.encode()  # a lone surrogate cannot be encoded in UTF-8
    except (TypeError, ValueError, RecursionError):
        raise InvalidArgument(
            f"{name} must be plain JSON (text keys, finite numbers, valid text); got something else.",
            name=name,
        ) from None
    return text


def digest(text: str) -> str:
    """Return sha256 of a text, in hexadecimal."""
    return sha256(text.encode()).hexdigest()


def link(seq: int, previous: str, body_digest: str, root: str) -> str:
    """Return the hash of an entry from its number, the hash before it, its digest and the root before it."""
    return sha256(f"{seq} {previous} {body_digest} {root}".encode()).hexdigest()


def row_after(tip: Tip, body: str, cost: Cost, key_digest: str | None = None) -> Row:
    """Return the row of an entry with this text, appended after the tip."""
    seq = tip.seq + 1
    reached = link(seq, tip.hash, digest(body), tree.root(tip.peaks))
    return Row(seq, key_digest, body, tip.hash, reached, tip.charge + cost.charge, tip.intervals + cost.intervals)


def damaged(location: str, seq: int, fact: str) -> LedgerDamaged:
    """Return the error for damage at entry `seq`."""
    intact = {0: "", 1: " Entry 0 is intact."}.get(seq, f" Entries 0-{seq - 1} are intact.")
    return LedgerDamaged(f"Ledger {location} is damaged at entry {seq}: {fact}.{intact}", location=location, entry=seq)


def unknown_format(location: str, found: object) -> LedgerUnavailable:
    """Return the error for a ledger that another version wrote."""
    if isinstance(found, int) and found > FORMAT:
        reason = f"a later version of holdfast (format {found}; this one reads {FORMAT}): use that version"
    else:
        reason = (
            f"an earlier, unreleased version of holdfast (this one reads format {FORMAT}): begin a new ledger with "
            "fresh data, or keep using that version"
        )
    return LedgerUnavailable(f"Ledger {location} was written by {reason}.", location=location)


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
                raise damaged(self.location, seq, "it is missing")
            reached = link(seq, previous, sha256(text.encode()).hexdigest(), self.tree.root)
            if stored_hash != reached or stored_previous != previous:
                against = f"entry {seq - 1}" if seq else "its text"
                raise damaged(self.location, seq, f"its hash does not match {against}")
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
                    if LOST in body:
                        self.replaced.append(range(seq, body[LOST]["seq"] + 1))
                elif body["format"] != FORMAT:
                    raise unknown_format(self.location, body["format"])
                expected_digest = None if key is None else sha256(key.encode()).hexdigest()
            except (ValueError, KeyError, TypeError, AttributeError):
                raise damaged(self.location, seq, "its text cannot be read") from None
            if stated != seq or end != len(text):
                raise damaged(self.location, seq, f"its text says it is entry {stated}")
            if stored_charge != charge or stored_intervals != intervals:
                raise damaged(self.location, seq, "its running totals do not match the costs up to it")
            if not laid:
                raise damaged(self.location, seq, "its place is another entry's")
            if key_digest != expected_digest:
                raise damaged(self.location, seq, "its key does not match its text")
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
            raise damaged(self.location, reached.seq + 1, f"it is missing, though the head is entry {tip.seq}")
        if tip.seq < reached.seq:
            raise damaged(self.location, tip.seq + 1, f"it lies beyond the head, entry {tip.seq}")
        if tip[:5] != reached[:5]:
            raise damaged(self.location, tip.seq, "the head does not match it")
        if not all(map(Tiles.fit, (self._charges, self._intervals, self._numbers), tip.taken)):
            raise LedgerDamaged(
                f"Ledger {self.location} is damaged: two entries hold the same place, or one holds a place that was"
                " never taken. Restore the ledger.",
                location=self.location,
            )
