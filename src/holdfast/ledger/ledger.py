"""The rules of the budget: what was asked is free, what no longer fits is refused, what is written stays."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from holdfast import check
from holdfast.errors import (
    BudgetExhausted,
    InvalidArgument,
    LedgerDamaged,
    PlanConflict,
    RowSourceError,
    UnknownName,
)
from holdfast.ledger import chain, tree
from holdfast.ledger.entry import Cost, Entry, Head, Spent
from holdfast.ledger.receipt import Receipt, TreeReceipt
from holdfast.ledger.store import START, Row, Store, Tip, Transaction, closed_error

READ_CHUNK = 2_000  # rows read at a time; keeps every read short
MAX_ANALYST_NAME = 200  # characters


class BudgetMoved(Exception):  # a signal to draw again, not an error; never leaves the session
    """Somebody spent charge since the caller looked; draw again from `spent.charge` on."""

    def __init__(self, spent: Spent) -> None:
        super().__init__(f"a charge of {spent.charge} is spent by now")
        self.spent = spent


class Ledger:
    """The budget of one dataset. Open it with `open_ledger`; safe to share between threads.

    A ledger that nobody has begun yet has no terms and nothing spent; `begin` writes its first entry. Until then every
    look at it also looks whether somebody else has begun it.
    """

    def __init__(self, store: Store, *, fingerprint: str, reproducible: bool = False) -> None:
        self._store = store
        self._genesis: dict[str, Any] | None = None
        self._caps = Cost(0, 0)
        self._fingerprint = fingerprint
        self._reproducible = bool(reproducible)
        self._closed = False
        self._tree = tree.Tree()
        self._look()

    def __repr__(self) -> str:
        return f"<Ledger of {self.dataset}, {self.location}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close files and connections for good. What was read of the terms stays readable; may be called again."""
        self._closed = True
        self._store.close()

    # -- the beginning --------------------------------------------------------------------------------------------

    @property
    def begun(self) -> bool:
        """Whether the first entry has been written, by anybody."""
        return self._look() is not None

    def begin(self, terms: Mapping[str, Any]) -> bool:
        """Write the first entry, durably; False if somebody else had begun the ledger: then `terms` is what stands.

        Parameters
        ----------
        terms
            The plan as plain JSON, with ``terms["caps"] = {"charge": ..., "intervals": ...}``.
        """
        self._check_open()
        row = self._first_row(terms)
        if self.begun:
            return False
        began = self._store.begin(row)
        if self._look() is None:
            raise LedgerDamaged(
                f"Ledger {self.location} is damaged: its first entry is gone right after it was written. "
                "Restore the ledger.",
                location=self.location,
            )
        return began

    @property
    def location(self) -> str:
        """Where the ledger is, as it may be shown."""
        return self._store.location

    @property
    def dataset(self) -> str:
        """The name of the data."""
        return self._store.dataset

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the data."""
        return self._fingerprint

    @property
    def reproducible(self) -> bool:
        """Whether draws are predictable, because the ledger was begun with a seed."""
        genesis = self._look()
        return self._reproducible if genesis is None else bool(genesis["reproducible"])

    @property
    def terms(self) -> Mapping[str, Any] | None:
        """The plan that stands, as given to `begin`; None before."""
        genesis = self._look()
        return None if genesis is None else genesis["terms"]

    @property
    def caps(self) -> Cost:
        """What may be spent in all."""
        self._begun()
        return self._caps

    # -- the budget -----------------------------------------------------------------------------------------------

    @property
    def spent(self) -> Spent:
        """What all writers together have spent by now."""
        self._check_open()
        return Spent(0, 0, 0) if self._look() is None else _spent(self._tip())

    @property
    def left(self) -> Cost:
        """What is left of the two caps."""
        caps, spent = self.caps, self.spent
        return Cost(caps.charge - spent.charge, caps.intervals - spent.intervals)

    @property
    def head(self) -> Head:
        """The newest entry."""
        self._begun()
        tip = self._tip()
        return Head(tip.seq, tip.hash)

    def find(self, key: str) -> Entry | None:
        """Return the answer already given to the question with this canonical key."""
        self._check_open()
        row = None if self._look() is None else self._store.find(chain.digest(key))
        return None if row is None else chain.entry_of(row)

    def require(self, cost: Cost) -> None:
        """Raise BudgetExhausted if this cost does not fit; spend nothing."""
        self._refuse_unbegun()
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
        given here must be forgotten. If the cost no longer fits (BudgetExhausted), or `expected_charge` is not what
        is spent (BudgetMoved), nothing is written.
        """
        self._refuse_unbegun()
        if type(rows_read) is not int or rows_read < 0:
            check.whole(0, rows_read=rows_read)
        _check_types(question=question, answer=answer, key=key)
        _check_analyst_length(analyst)
        body = {
            "analyst": analyst,
            "answer": answer,
            "cost": {"charge": cost.charge, "intervals": cost.intervals},
            "key": key,
            "question": question,
            "rows_read": rows_read,
        }
        # Everything but the number and the time is written out before the lock; both sort last.
        start = chain.canonical(body, "question, answer, key and analyst")[:-1]
        key_digest = None if key is None else chain.digest(key)
        outcome: Row | BudgetMoved | BudgetExhausted | None = None
        fresh = False

        def decide(transaction: Transaction) -> None:
            """Decide inside the write transaction. A refusal writes nothing and is raised for its own caller alone."""
            nonlocal outcome, fresh
            standing = None if key_digest is None else transaction.find(key_digest)
            fresh = standing is None
            if standing is not None:
                outcome = standing
                return
            tip = self._present(transaction.tip())
            try:
                if expected_charge is not None and expected_charge != tip.charge:
                    raise BudgetMoved(_spent(tip))
                self._require(cost, tip)
            except (BudgetMoved, BudgetExhausted) as refusal:
                outcome = refusal
                return
            outcome = _next_row(tip, start, key_digest, cost)
            transaction.append(outcome)

        self._store.write(decide)
        if not isinstance(outcome, Row):
            assert outcome is not None
            raise outcome
        return chain.entry_of(outcome), fresh

    # -- reading and re-checking ----------------------------------------------------------------------------------

    def entries(self, start: int = 1, limit: int | None = None) -> Iterator[Entry]:
        """Iterate over answers in the order they were given, from number `start` on."""
        check.whole(1, start=start)
        if limit is not None:
            check.whole(0, limit=limit)
        self._check_open()
        if self._look() is None:
            return iter(())
        return (chain.entry_of(row) for row in self._rows(start, limit))

    def receipt(self, seq: int) -> Receipt:
        """Return the proof that entry `seq` lies under the present head."""
        check.whole(0, seq=seq)
        head = self.head
        if seq > head.seq:
            raise UnknownName(f"No entry {seq} in ledger {self.location}. It has entries 0 to {head.seq}.", name=seq)
        try:
            known = self._tree
            if known.size < head.seq:
                known = known.grown(row.hash for row in self._rows(known.size, head.seq - known.size))
            root, path = known.prove(seq, head.seq, self._block)
            (own,), (newest,) = self._store.read(seq, 1), self._store.read(head.seq, 1)
            newest_digest = chain.digest(newest.body)
            receipt = TreeReceipt(seq, own.body, own.previous, head, root, path, newest.previous, newest_digest)
            sound = receipt.leads_to(head.hash)
        except (ValueError, IndexError):  # rows are missing, or no hashes are where they should be
            sound = False
        if not sound:
            raise chain.damaged(self.location, seq, f"it does not lead to the head, entry {head.seq}")
        self._tree = known
        return receipt

    def verify(self, head: str | None = None) -> Head:
        """Re-check every entry; `head` is a hash published earlier, which must be in the chain."""
        self._check_open()
        self._begun()
        reached = verify_store(self._store, head).tip
        return Head(reached.seq, reached.hash)

    def _block(self, number: int) -> list[str]:
        return [row.hash for row in self._store.read(number * tree.BLOCK, tree.BLOCK)]

    def _rows(self, start: int, limit: int | None) -> Iterator[Row]:
        while limit is None or limit > 0:
            rows = self._store.read(start, READ_CHUNK if limit is None else min(limit, READ_CHUNK))
            yield from rows
            if not rows:
                return
            start += len(rows)
            if limit is not None:
                limit -= len(rows)

    # -- checks ---------------------------------------------------------------------------------------------------

    def _look(self) -> dict[str, Any] | None:
        """Return the first entry; if it was not there the last time, look again and check all of the ledger."""
        if self._genesis is None and not self._closed:
            # Rows first: they are written together with the tip, so either of them alone is damage, not a beginning.
            rows = self._store.read(0, 1)
            if self._store.tip() is not None or rows:
                verified = verify_store(self._store)
                genesis, self._tree = verified.genesis, verified.tree
                self._check_data(genesis)
                self._caps, self._genesis = Cost(**genesis["terms"]["caps"]), genesis
        return self._genesis

    def _check_data(self, genesis: dict[str, Any]) -> None:
        if genesis["dataset"] != self.dataset:
            raise chain.damaged(self.location, 0, f"it belongs to dataset {genesis['dataset']!r}")
        if genesis["fingerprint"] != self._fingerprint:
            raise RowSourceError(
                f"Ledger {self.location} belongs to other data: its fingerprint is {genesis['fingerprint']!r}, "
                f"the data's is {self._fingerprint!r}. Open the data it was begun with, or begin another ledger.",
                ledger=genesis["fingerprint"],
                data=self._fingerprint,
            )
        if self._reproducible and not genesis["reproducible"]:
            raise PlanConflict(
                f"Ledger {self.location} was begun with unpredictable draws, which a seed would spoil. "
                "Leave the seed out, or use another ledger.",
                standing={"reproducible": False},
                asked={"reproducible": True},
            )

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error(self.location)

    def _begun(self) -> dict[str, Any]:
        genesis = self._look()
        if genesis is None:
            self._check_open()
            raise UnknownName(
                f"No ledger of {self.dataset!r} at {self.location} yet: its first entry is still to be written.",
                name=self.dataset,
            )
        return genesis

    def _refuse_unbegun(self) -> None:
        self._check_open()
        if self._look() is None:
            raise InvalidArgument(
                f"Ledger {self.location} has not begun: call begin(terms) before asking it for a budget.", name="ledger"
            )

    def _tip(self) -> Tip:
        self._check_open()
        return self._present(self._store.tip())

    def _present(self, tip: Tip | None) -> Tip:
        if tip is None:
            raise LedgerDamaged(
                f"Ledger {self.location} is damaged: the head of {self.dataset} is gone. Restore the ledger.",
                location=self.location,
            )
        return tip

    def _require(self, cost: Cost, tip: Tip) -> None:
        caps = self._caps
        if tip.charge + cost.charge > caps.charge:
            price, left, total, unit = cost.charge, caps.charge - tip.charge, caps.charge, "charge"
            need = f"it takes {price:,} of what the guarantee can carry, and {left:,} of {total:,} is left"
        elif tip.intervals + cost.intervals > caps.intervals:
            price, left, total, unit = cost.intervals, caps.intervals - tip.intervals, caps.intervals, "answers"
            need = f"it counts as {price:,} answers, and {left:,} of {total:,} are left"
        else:
            return
        raise BudgetExhausted(
            f"The budget cannot pay for answer {tip.seq + 1}: {need}. "
            "Ask for less, or repeat an earlier question for free.",
            cost=price,
            left=left,
            total=total,
            unit=unit,
        )

    def _first_row(self, terms: Mapping[str, Any]) -> Row:
        caps = terms.get("caps") if isinstance(terms, Mapping) else None
        if not isinstance(caps, dict) or set(caps) != {"charge", "intervals"}:
            raise InvalidArgument(f"terms['caps'] must be a dict of charge and intervals; got {caps!r}.", name="terms")
        Cost(**caps)  # checks both
        body = chain.canonical(
            {
                "dataset": self.dataset,
                "fingerprint": self._fingerprint,
                "format": chain.FORMAT,
                "reproducible": self._reproducible,
                "seq": 0,
                "terms": dict(terms),
                "time": _now(),
            },
            "terms and fingerprint",
        )
        return _row(START, body, None, Cost(0, 0))


def verify_store(store: Store, published: str | None = None) -> chain.Verification:
    """Re-check the whole ledger, while others may be writing.

    The tip and its row are written together, so whoever reads rows first and the tip afterwards never finds
    fewer than were there; if the tip has moved on meanwhile, the rows up to it must be there by now.
    """
    verification = chain.Verification(store.location, published)
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
        if tip.seq <= verification.tip.seq or not rows:
            break
    verification.check_tip(tip)
    if not verification.found:
        raise LedgerDamaged(
            f"Ledger {store.location} does not contain the published head {published}: entries were dropped or "
            "rewritten since. Restore the ledger from a copy that has it.",
            location=store.location,
        )
    return verification


def check_analyst(analyst: str | None) -> None:
    """Refuse an analyst's label that the ledger could not write."""
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


def _next_row(tip: Tip, start: str, key_digest: str | None, cost: Cost) -> Row:
    body = f'{start},"seq":{tip.seq + 1},"time":"{_now()}"}}'
    return _row(tip, body, key_digest, cost)


def _row(tip: Tip, body: str, key_digest: str | None, cost: Cost) -> Row:
    seq = tip.seq + 1
    reached = chain.link(seq, tip.hash, chain.digest(body), tree.root(tip.peaks))
    return Row(seq, key_digest, body, tip.hash, reached, tip.charge + cost.charge, tip.intervals + cost.intervals)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _spent(tip: Tip) -> Spent:
    return Spent(tip.charge, tip.intervals, tip.seq)
