"""Entries that are not written yet: the first one, and answers that nobody has seen.

The first entry holds the plan and a keyed fingerprint of the data; keys are derived from the ledger's secret. The text
of an answer is prepared before the write as far as it is known by then.
"""

import hmac
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from holdfast import check
from holdfast.errors import InvalidArgument, LedgerUnavailable, PlanConflict, RowSourceError
from holdfast.ledger import chain
from holdfast.ledger.store import START, Answered, Cost, Entry, Place, Row, Tip


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
        body = chain.canonical(
            {
                "dataset": self.dataset,
                "fingerprint": self._keyed_fingerprint(secret),
                "format": chain.FORMAT,
                "reproducible": self.reproducible,
                "seq": 0,
                "terms": dict(terms),
                "time": now(),
            },
            "terms and fingerprint",
        )
        return chain.row_after(START, body, Cost(0, 0))

    def require(self, genesis: Mapping[str, Any], secret: bytes, location: str) -> None:
        """Refuse a ledger that was begun for other data, or one with unpredictable draws if a seed is given."""
        if genesis["dataset"] != self.dataset:
            raise chain.damaged(location, 0, f"it belongs to dataset {genesis['dataset']!r}")
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

    __slots__ = ("_answer", "_body", "_place", "_start", "cost", "finish", "key_digest")

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
        _check_types(question=question, answer=answer, key=key)
        _check_analyst_length(analyst)
        self.cost, self.key_digest = cost, None if key is None else chain.digest(key)
        self._place, self._answer, self.finish = place, answer, finish
        self._body = {
            "analyst": analyst,
            "key": key,
            "place": {
                "charge": place.charge,
                "intervals": place.intervals,
                "number": place.number,
                "reached": place.reached,
            },
            "question": question,
            "rows_read": rows_read,
        }
        # All but the number and the time, which sort last, is encoded before the lock is taken, if it is known by then.
        self._start = self._written(answer, cost) if finish is None else ""

    def row_after(self, tip: Tip, under_way: int = 0) -> Row:
        """Return the row of this answer, appended after the tip; `under_way` are statements of others to come."""
        start, cost = self._start, self.cost
        if self.finish is not None:
            answer, cost = self.finish(self._answer, answered(tip, under_way, own=cost.intervals))
            start = self._written(answer, cost)
        return chain.row_after(tip, f'{start},"seq":{tip.seq + 1},"time":"{now()}"}}', cost, self.key_digest)

    def entry(self, row: Row) -> Entry:
        """Return the entry that `row_after` returned as a row. Its fields are at hand, unless `finish` made some."""
        if self.finish is not None:
            return Entry(row)
        return Entry(row, **(self._body | {"answer": self._answer, "cost": self.cost, "place": self._place}))

    @property
    def number(self) -> int:
        """The number of its place."""
        return self._place.number

    @property
    def is_forked(self) -> bool:
        """Whether a forked child drew this for a place that its parent reserved: a place is for one answer."""
        return self._place.process != os.getpid()

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
        price = {"charge": cost.charge, "intervals": cost.intervals}
        return chain.canonical(self._body | {"answer": answer, "cost": price}, "question, answer, key and analyst")[:-1]


def answered(tip: Tip, under_way: int = 0, own: int = 0) -> Answered:
    """Return what the answers up to this tip took; what else is taken has failed, unless it is `under_way` or `own`."""
    failed = max(0, tip.taken_intervals - tip.intervals - under_way - own)
    return Answered(tip.charge, tip.intervals, failed, under_way)


def now() -> str:
    """Return the current time in the format of entries."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def check_analyst(analyst: str | None) -> None:
    """Refuse an analyst's name that the ledger could not write."""
    _check_analyst_length(analyst)
    chain.canonical({"analyst": analyst}, "analyst")


def _check_analyst_length(analyst: object) -> None:
    if analyst is None:
        return
    if not isinstance(analyst, str):
        raise InvalidArgument(f"analyst must be text or None; got {type(analyst).__name__}.", name="analyst")
    if len(analyst) > MAX_ANALYST_NAME:
        raise InvalidArgument(
            f"analyst must be at most {MAX_ANALYST_NAME} characters; got {len(analyst)}.", name="analyst"
        )


def _check_types(*, question: object, answer: object, key: object) -> None:
    for name, value in (("question", question), ("answer", answer)):
        if not isinstance(value, dict):
            raise InvalidArgument(f"{name} must be a dict; got {type(value).__name__}.", name=name)
    if key is not None and not isinstance(key, str):
        raise InvalidArgument(f"key must be text or None; got {type(key).__name__}.", name="key")
