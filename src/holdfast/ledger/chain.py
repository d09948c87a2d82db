"""Entries and the hash chain: their text, their hashes, and entries that are not written yet.

    body    canonical JSON text of everything in the entry: sorted keys, no spaces, no NaN, UTF-8
    digest  sha256(body)
    root    of the tree over the hashes of all entries before this one (tree.py)
    hash    sha256("number previous digest root"): previous is the hash of the entry before; all but the number are 64
            lower-case hexadecimal characters

Changing, dropping or swapping any entry changes every hash after it, so a published head pins all entries before it.
The chain proves this to a reader of all entries; the tree proves it to somebody who is shown one entry (verify.py).

The first entry holds the plan and a keyed fingerprint of the data; keys are derived from the ledger's secret. The text
of an answer is prepared before the write as far as it is known by then.

>>> link(0, START.hash, digest(canonical({"b": 1, "a": "ü"})), tree.root(""))
'cc7cee03b3777595a419d0aa7f88254532e57d2a117193445e936481fc7504c8'
"""

import hmac
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from time import time_ns
from typing import Any, NamedTuple, NoReturn

from holdfast import check
from holdfast.errors import InvalidArgument, LedgerDamaged, LedgerUnavailable, PlanConflict, RowSourceError
from holdfast.ledger import tree
from holdfast.ledger.store import START, Answered, Cost, Entry, Place, Row, Spent, Tip
from holdfast.process import this_process

FORMAT = 4
LOST = "lost"  # what the body of an entry holds that records a restore: the newest tip that was seen before

# A value that contains itself is refused without looking for it: it recurs too often.
_encode = json.JSONEncoder(
    check_circular=False, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":")
).encode


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


class Opened(NamedTuple):
    """What a ledger was opened for: the data's name and fingerprint, and whether its draws are predictable."""

    dataset: str
    fingerprint: str
    reproducible: bool

    def first_row(self, terms: Mapping[str, Any], secret: bytes) -> Row:
        """Return the first entry, as stored."""
        caps = terms.get("caps") if isinstance(terms, Mapping) else None
        if not isinstance(caps, dict) or set(caps) != {"charge", "intervals"}:
            raise InvalidArgument(f"terms['caps'] must be a dict of charge and intervals; got {caps!r}.", name="terms")
        Cost(**caps)  # checks both
        body = canonical(
            {
                "dataset": self.dataset,
                "fingerprint": self._keyed_fingerprint(secret),
                "format": FORMAT,
                "reproducible": self.reproducible,
                "seq": 0,
                "terms": dict(terms),
                "time": now(),
            },
            "terms and fingerprint",
        )
        return row_after(START, body, Cost(0, 0))

    def require(self, genesis: Mapping[str, Any], secret: bytes, location: str) -> None:
        """Refuse a ledger that was begun for other data, or one with unpredictable draws if a seed is given."""
        if genesis["dataset"] != self.dataset:
            raise damaged(location, 0, f"it belongs to dataset {genesis['dataset']!r}")
        if genesis["fingerprint"] != self._keyed_fingerprint(secret):
            raise RowSourceError(  # showing a fingerprint would confirm a guess of the table
                f"Ledger {location} belongs to other data: the fingerprints differ. Open the data it was begun with."
                " New rows need a ledger of their own: save them under a new name, or name a new ledger with ledger=."
            )
        if self.reproducible and not genesis["reproducible"]:
            raise PlanConflict(
                f"Ledger {location} was begun with unpredictable draws; a seed would make them predictable. "
                "Leave the seed out. Give ledger= a file of its own for a test.",
                standing={"reproducible": False},
                asked={"reproducible": True},
            )

    def _keyed_fingerprint(self, secret: bytes) -> str:
        """Return the fingerprint as the first entry has it: without the secret, nobody can tell which data it is of."""
        return hmac.digest(derive_key(secret, "fingerprint"), self.fingerprint.encode(), "sha256").hex()


def derive_key(secret: bytes, purpose: str) -> bytes:
    """Derive the key for a purpose from the secret: HMAC-SHA256."""
    return hmac.digest(secret, purpose.encode(), "sha256")


MAX_ANALYST_NAME = 200  # characters
Finish = Callable[[dict[str, Any], Answered], tuple[dict[str, Any], Cost]]


class Drawn:
    """An answer that is paid for but not written yet; nobody may see it.

    Parameters
    ----------
    place
        What `Ledger.reserve` returned for the same `cost`.
    key
        The question's canonical key, under which the answer is found again; None if the question is new each time.
    finish
        For answers that depend on the answers committed before them: called inside the transaction that writes the
        entry with `answer` and with what all earlier questions took, it returns the final answer and its own cost, at
        most `cost`. It may be called more than once; only the last call counts.
    """

    __slots__ = ("_fields", "_start", "cost", "finish", "key_digest", "place")

    def __init__(
        self,
        place: Place,
        *,
        key: str | None,
        question: dict[str, Any],
        answer: dict[str, Any],
        cost: Cost,
        rows_read: int,
        analyst: str | None = None,
        finish: Finish | None = None,
    ) -> None:
        if type(rows_read) is not int or rows_read < 0:
            check.whole(0, rows_read=rows_read)
        if not (isinstance(question, dict) and isinstance(answer, dict) and (key is None or isinstance(key, str))):
            _refuse_types(question=question, answer=answer, key=key)
        if analyst is not None:
            _check_analyst_length(analyst)
        self.place, self.cost, self.key_digest = place, cost, None if key is None else digest(key)
        self.finish = finish
        self._fields: dict[str, Any] = {
            "analyst": analyst,
            "answer": answer,
            "cost": cost,
            "key": key,
            "place": place,
            "question": question,
            "rows_read": rows_read,
        }
        # All but the number and the time, which sort last, is encoded before the lock is taken, if it is known by then.
        self._start = self._written(answer, cost) if finish is None else ""

    def row_after(self, tip: Tip, under_way: int = 0) -> Row:
        """Return the row of this answer, appended after the tip; `under_way` are statements of others to come."""
        start, cost = self._start, self.cost
        if self.finish is not None:
            answer, cost = self.finish(self._fields["answer"], answered(tip, under_way, own=cost.intervals))
            start = self._written(answer, cost)
        return row_after(tip, f'{start},"seq":{tip.seq + 1},"time":"{now()}"}}', cost, self.key_digest)

    def entry(self, row: Row) -> Entry:
        """Return the entry that `row_after` returned as a row. Its fields are at hand, unless `finish` made some."""
        return Entry(row, self._fields if self.finish is None else {})

    @property
    def is_forked(self) -> bool:
        """Whether a forked child drew this for a place that its parent reserved: a place is for one answer."""
        return self.place.process != this_process.number

    @staticmethod
    def forked_error(location: str) -> LedgerUnavailable:
        """Return the error for such an answer."""
        return LedgerUnavailable(
            f"Ledger {location} does not accept this answer: the process was forked while it was drawn, and its"
            " place belongs to the parent. Ask again.",
            location=location,
        )

    def _written(self, answer: dict[str, Any], cost: Cost) -> str:
        """Return the entry's text up to its number."""
        place = self.place
        numbers = {
            "answer": answer,
            "cost": {"charge": cost.charge, "intervals": cost.intervals},
            "place": {
                "charge": place.charge,
                "intervals": place.intervals,
                "number": place.number,
                "reached": place.reached,
            },
        }
        return canonical(self._fields | numbers, "question, answer, key and analyst")[:-1]


def answered(tip: Tip, under_way: int = 0, own: int = 0) -> Answered:
    """Return what the answers up to this tip took; what else is taken has failed, unless it is `under_way` or `own`."""
    failed = max(0, tip.taken_intervals - tip.intervals - under_way - own)
    return Answered(tip.charge, tip.intervals, failed, under_way)


def spent(ahead: tuple[int, int], tip: Tip) -> Spent:
    """Return what questions had taken by this tip, without the charge and intervals in stock, which are read first."""
    return Spent(max(0, tip.taken_charge - ahead[0]), max(0, tip.taken_intervals - ahead[1]), tip.seq)


def now() -> str:
    """Return the current time in the format of entries."""
    seconds, thousandths = divmod(time_ns() // 1_000_000, 1_000)
    return f"{_to_the_second(seconds)}.{thousandths:03}+00:00"


@lru_cache(maxsize=1)  # most answers come in the same second as others
def _to_the_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def check_analyst(analyst: str | None) -> None:
    """Refuse an analyst's name that the ledger could not write."""
    if analyst is not None:
        _check_analyst_length(analyst)
    canonical({"analyst": analyst}, "analyst")


def _check_analyst_length(analyst: object) -> None:
    if not isinstance(analyst, str):
        raise InvalidArgument(f"analyst must be text or None; got {type(analyst).__name__}.", name="analyst")
    if len(analyst) > MAX_ANALYST_NAME:
        raise InvalidArgument(
            f"analyst must be at most {MAX_ANALYST_NAME} characters; got {len(analyst)}.", name="analyst"
        )


def _refuse_types(*, question: object, answer: object, key: object) -> NoReturn:
    for name, value in (("question", question), ("answer", answer)):
        if not isinstance(value, dict):
            raise InvalidArgument(f"{name} must be a dict; got {type(value).__name__}.", name=name)
    raise InvalidArgument(f"key must be text or None; got {type(key).__name__}.", name="key")
