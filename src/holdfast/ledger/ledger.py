"""The rules of the budget: what was asked is free, what no longer fits is refused, what is written stays."""

from collections.abc import Iterator
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from holdfast import check
from holdfast.errors import BudgetExhausted, InvalidArgument, LedgerDamaged, UnknownName
from holdfast.ledger import chain
from holdfast.ledger.entry import Cost, Entry, Head, Receipt, Spent
from holdfast.ledger.store import Row, Store, Tip, Writing

PIECE = 2_000  # rows read at a time; keeps every read short
LONGEST_ANALYST = 200


class BudgetMoved(Exception):  # a signal to draw again, not an error; never leaves the session
    """Somebody spent charge since the caller looked; draw again from `spent.charge` on."""

    def __init__(self, spent: Spent) -> None:
        super().__init__(f"{spent.charge} charge are spent by now")
        self.spent = spent


class Ledger:
    """The budget of one dataset. Open it with `open_ledger`; safe to share between threads."""

    def __init__(self, store: Store, dataset: str, fingerprint: str, check: Any, begin: Any) -> None:
        self._store = store
        self.location = store.location
        self.dataset, self.fingerprint = dataset, fingerprint
        self.terms: dict[str, Any] | None = None
        self._check, self._begin_ledger = check, begin
        self.reproducible = False
        if store.tip() is not None:
            self._adopt()

    def _adopt(self) -> None:
        genesis = self._check()
        self.terms, self.reproducible = genesis["terms"], genesis["reproducible"]
        self.caps = Cost(self.terms["caps"]["charge"], self.terms["caps"]["intervals"])

    @property
    def begun(self) -> bool:
        return self.terms is not None

    def begin(self, terms: dict[str, Any]) -> bool:
        first = self._begin_ledger(terms)
        self._adopt()
        return bool(first)

    def __repr__(self) -> str:
        return f"<Ledger of {self.dataset}, {self.location}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of files and connections. The ledger may be used again: it reopens them."""
        self._store.close()

    @property
    def spent(self) -> Spent:
        """What all writers together have spent by now."""
        return _spent(self._tip()) if self.begun else Spent(0, 0, 0)

    @property
    def left(self) -> Cost:
        """What is left of the two caps."""
        spent = self.spent
        return Cost(self.caps.charge - spent.charge, self.caps.intervals - spent.intervals)

    @property
    def head(self) -> Head:
        """The newest entry."""
        tip = self._tip()
        return Head(tip.seq, tip.hash)

    def find(self, key: str) -> Entry | None:
        """Return the answer already given to the question with this canonical key."""
        if not self.begun:
            return None
        row = self._store.find(chain.digest(key))
        return None if row is None else chain.entry_of(row)

    def require(self, cost: Cost) -> None:
        """Raise BudgetExhausted if this cost does not fit; spend nothing."""
        self._require(cost, self._tip())

    def commit(
        self,
        *,
        key: str | None,
        question: dict[str, Any],
        answer: dict[str, Any],
        cost: Cost,
        rows_read: int,
        analyst: str | None = None,
        expected_charge: int | None = None,
    ) -> tuple[Entry, bool]:
        """Write the answer; return its entry, durable by then, and True. May be shown only after this returns.

        A key that is already there costs nothing: the entry that stands is returned, and False; the answer
        given here must be forgotten. If the cost no longer fits (BudgetExhausted), or `expected_charge` are not what
        is spent (BudgetMoved), nothing is written.
        """
        body: dict[str, Any] = {
            "analyst": analyst,
            "answer": answer,
            "cost": {"charge": cost.charge, "intervals": cost.intervals},
            "key": key,
            "question": question,
            "rows_read": rows_read,
        }
        _check(body)
        # Everything but the number and the time is written out before the lock; both sort last.
        start = chain.canonical(body, "question, answer, key and analyst")[:-1]
        key_digest = None if key is None else chain.digest(key)
        settled: list[Row | BudgetMoved | BudgetExhausted] = []
        fresh = False

        def settle(writing: Writing) -> None:
            """Decide inside the write transaction. A refusal writes nothing, and says so to its own caller alone."""
            nonlocal fresh
            settled.clear()  # an interrupted transaction is run again
            standing = None if key_digest is None else writing.find(key_digest)
            fresh = standing is None
            if standing is not None:
                settled.append(standing)
                return
            tip = self._present(writing.tip())
            try:
                if expected_charge is not None and expected_charge != tip.charge:
                    raise BudgetMoved(_spent(tip))
                self._require(cost, tip)
            except (BudgetMoved, BudgetExhausted) as refusal:
                settled.append(refusal)
                return
            row = _next_row(tip, start, key_digest, cost)
            writing.append(row)
            settled.append(row)

        self._store.write(settle)
        (outcome,) = settled
        if isinstance(outcome, Exception):
            raise outcome
        return chain.entry_of(outcome), fresh

    def entries(self, start: int = 1, limit: int | None = None) -> Iterator[Entry]:
        """Iterate over answers in the order they were given, from number `start` on."""
        check.whole(1, start=start)
        if limit is not None:
            check.whole(0, limit=limit)
        return self._entries(start, limit)

    def receipt(self, seq: int) -> Receipt:
        """Return the proof that entry `seq` lies under the present head."""
        check.whole(0, seq=seq)
        head = self.head
        if seq > head.seq:
            raise UnknownName(f"No entry {seq} in ledger {self.location}. It has entries 0 to {head.seq}.", name=seq)
        rows = self._rows(seq, head.seq - seq + 1)
        first = next(rows, None)
        later = tuple(chain.digest(row.body) for row in rows)
        if first is None or first.seq != seq or len(later) != head.seq - seq:
            raise chain.damaged(self.location, seq, "entries from here on are missing")
        return Receipt(seq, first.body, first.previous, later, head)

    def verify(self, head: str | None = None) -> Head:
        """Re-check every entry; `head` is a hash published earlier, which must be in the chain."""
        reached = walk(self._store, head).tip
        return Head(reached.seq, reached.hash)

    def _entries(self, start: int, limit: int | None) -> Iterator[Entry]:
        for row in self._rows(start, limit):
            yield chain.entry_of(row)

    def _rows(self, start: int, limit: int | None) -> Iterator[Row]:
        while limit is None or limit > 0:
            rows = self._store.read(start, PIECE if limit is None else min(limit, PIECE))
            yield from rows
            if not rows:
                return
            start += len(rows)
            if limit is not None:
                limit -= len(rows)

    def _tip(self) -> Tip:
        return self._present(self._store.tip())

    def _present(self, tip: Tip | None) -> Tip:
        if tip is None:
            raise LedgerDamaged(
                f"Ledger {self.location} is damaged: the head of {self.dataset} is gone. Restore the ledger.",
                location=self.location,
            )
        return tip

    def _require(self, cost: Cost, tip: Tip) -> None:
        wants = (
            ("charge", cost.charge, tip.charge, self.caps.charge),
            ("answers", cost.intervals, tip.intervals, self.caps.intervals),
        )
        for unit, price, spent, total in wants:
            if spent + price > total:
                raise BudgetExhausted(
                    f"Budget cannot pay for answer {tip.seq + 1}: it costs {price:,} {unit}, and "
                    f"{total - spent:,} of {total:,} are left. Ask for less, or repeat a question for free.",
                    cost=price,
                    left=total - spent,
                    total=total,
                    unit=unit,
                )


def walk(store: Store, wanted: str | None = None) -> chain.Walk:
    """Re-check the whole ledger, while others may be writing.

    The tip and its row are written together, so whoever reads rows first and the tip afterwards never finds
    fewer than were there; if the tip has moved on meanwhile, the rows up to it must be there by now.
    """
    steps = chain.Walk(store.location, wanted)
    while True:
        rows = store.read(steps.tip.seq + 1, PIECE)
        steps.follow(rows)
        if len(rows) == PIECE:
            continue
        tip = store.tip()
        if tip is None:
            raise LedgerDamaged(
                f"Ledger {store.location} is damaged: it has entries but no head. Restore the ledger.",
                location=store.location,
            )
        if tip.seq <= steps.tip.seq or not rows:
            break
    steps.arrive(tip)
    if not steps.found:
        raise LedgerDamaged(
            f"Ledger {store.location} does not contain the published head {wanted}: entries were dropped or "
            "rewritten since. Restore the ledger from a copy that has it.",
            location=store.location,
        )
    return steps


def _check(body: dict[str, Any]) -> None:
    check.whole(0, rows_read=body["rows_read"])
    for name in ("question", "answer"):
        if not isinstance(body[name], dict):
            raise InvalidArgument(f"{name} must be a dict; got {type(body[name]).__name__}.", name=name)
    if body["key"] is not None and not isinstance(body["key"], str):
        raise InvalidArgument(f"key must be text or None; got {type(body['key']).__name__}.", name="key")
    check_analyst(body["analyst"])


def check_analyst(analyst: Any) -> None:
    """Refuse an analyst's label that the ledger could not write."""
    if analyst is None:
        return
    if not isinstance(analyst, str):
        raise InvalidArgument(f"analyst must be text or None; got {type(analyst).__name__}.", name="analyst")
    if len(analyst) > LONGEST_ANALYST:
        raise InvalidArgument(
            f"analyst must be at most {LONGEST_ANALYST} characters; got {len(analyst)}.", name="analyst"
        )
    chain.canonical({"analyst": analyst}, "analyst")


def _next_row(tip: Tip, start: str, key_digest: str | None, cost: Cost) -> Row:
    seq, time = tip.seq + 1, datetime.now(UTC).isoformat(timespec="milliseconds")
    body = f'{start},"seq":{seq},"time":"{time}"}}'
    reached = chain.link(tip.hash, chain.digest(body))
    return Row(seq, key_digest, body, tip.hash, reached, tip.charge + cost.charge, tip.intervals + cost.intervals)


def _spent(tip: Tip) -> Spent:
    return Spent(tip.charge, tip.intervals, tip.seq)
