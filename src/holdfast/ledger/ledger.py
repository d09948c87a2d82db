"""The rules of the budget: what was asked is free, what no longer fits is refused, what is taken stays taken.

A question first *reserves*: the ledger takes its cost for good and gives it its place, durably. Only then are rows
drawn for it. So a draw that is dropped, because of an interrupt, an error, a kill or a race, was paid for all the same,
and nobody can choose among draws for free. Its answer is then *committed*, and shown when that is durable, too.

While questions come fast, the transaction that commits an answer also takes places for the next ones (`places.py`), so
that an answer waits for the disk once, not twice.
"""

import atexit
import hmac
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, NamedTuple, Self
from weakref import WeakSet

from holdfast import check
from holdfast.cancel import about_to_wait
from holdfast.errors import (
    BudgetExhausted,
    HoldfastError,
    InvalidArgument,
    LedgerDamaged,
    LedgerUnavailable,
    PlanConflict,
    RowSourceError,
    UnknownName,
)
from holdfast.ledger import chain, tree
from holdfast.ledger.entry import Cost, Entry, Head, Place, Spent
from holdfast.ledger.in_flight import InFlight
from holdfast.ledger.places import NOTHING, Grant, Held, Stock, give_back, grant, take_ahead
from holdfast.ledger.receipt import Receipt, TreeReceipt
from holdfast.ledger.store import START, Row, Store, Tip, Transaction, closed_error
from holdfast.ledger.watched import WatchedStore, is_restore
from holdfast.ledger.witness import Witness

READ_CHUNK = 2_000  # rows read at a time; keeps every read short
MAX_ANALYST_NAME = 200  # characters
SECRET_BYTES = 32
Finish = Callable[[dict[str, Any], Cost], tuple[dict[str, Any], Cost]]
CLOSING = 1.0  # seconds to wait for whoever else writes, when all there is to do is to give places back


class Drawn(NamedTuple):
    """An answer that is paid for and not written yet; nobody may see it."""

    start: str  # its text up to the number and the time
    key_digest: str | None
    cost: Cost
    process: int  # that reserved its place
    finish: Callable[[Cost], tuple[str, Cost]] | None = None  # says both, if they depend on the answers before it


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
        self._secret, self._first = b"", ""
        self._held, self.in_flight = Held(), InFlight()
        _open.add(self)
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
        """Close files and connections for good. What was read of the terms stays readable; may be called again.

        Places taken ahead are given back first, unless somebody has taken more since.
        """
        self._give_back()
        self._closed = True
        self._store.close()

    def watch(self, *witnesses: Witness) -> None:
        """Refuse this ledger if it lacks what one of these saw; from now on they are told what becomes of it."""
        if isinstance(self._store, WatchedStore):
            self._store.watch(*witnesses)

    def confirmed_by(self) -> list[str]:
        """Return which witnesses, other than this process, have seen the newest entry."""
        return self._store.confirmed_by() if isinstance(self._store, WatchedStore) else []

    # -- the beginning --------------------------------------------------------------------------------------------

    @property
    def begun(self) -> bool:
        """Whether the first entry has been written, by anybody."""
        return self._look() is not None

    def begin(self, terms: Mapping[str, Any], secret: bytes | None = None) -> bool:
        """Write the first entry, durably; False if somebody else had begun the ledger: then `terms` is what stands.

        Parameters
        ----------
        terms
            The plan as plain JSON, with ``terms["caps"] = {"charge": ..., "intervals": ...}``.
        secret
            What `key` derives keys from; left out, 256 bits from the operating system.
        """
        self._check_open()
        secret = secrets.token_bytes(SECRET_BYTES) if secret is None else secret
        row = self._first_row(terms, secret)
        if self.begun:
            return False
        began = self._store.begin(row, secret)
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
    def first(self) -> str:
        """The hash of the first entry, which tells this ledger from every other; "" before."""
        self._look()
        return self._first

    @property
    def taken(self) -> int:
        """How much of the charge has been taken by anybody, ahead or not."""
        return self._tip().taken_charge if self.begun else 0

    def key(self, purpose: str) -> bytes:
        """Return the 256-bit key for a purpose. It is a secret: never shown, logged or sent to an analyst."""
        self._begun()
        return derive_key(self._secret, purpose)

    @property
    def caps(self) -> Cost:
        """What may be spent in all."""
        self._begun()
        return self._caps

    # -- the budget -----------------------------------------------------------------------------------------------

    @property
    def spent(self) -> Spent:
        """What all questions together have taken by now; not what this process has only taken ahead."""
        self._check_open()
        if self._look() is None:
            return Spent(0, 0, 0)
        ahead, tip = self._held.now.total, self._tip()
        return Spent(tip.taken_charge - ahead.charge, tip.taken_intervals - ahead.intervals, tip.seq)

    @property
    def told(self) -> Cost:
        """What the answers given so far cost, without what is taken beside them: what `finish` starts from."""
        self._check_open()
        return Cost(0, 0) if self._look() is None else _told(self._tip())

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

    def reserve(self, cost: Cost) -> Place:
        """Take this cost for good, and return the place of the question that pays it: durable when this returns.

        Raises BudgetExhausted, and takes nothing, if it is more than what is left.
        """
        self._refuse_unbegun()
        place = self._held.take(cost)
        return self._reserve(cost) if place is None else place

    def _reserve(self, cost: Cost) -> Place:
        """Reserve in the store."""
        held, wish = self._held, self._held.wish(cost)
        used: list[Stock] = []  # of the stock, by the last run of `decide`; whoever takes it out may put it back
        outcome: Grant | BudgetExhausted | None = None

        def restore() -> None:
            with suppress(IndexError):
                held.put(used.pop())

        def decide(transaction: Transaction) -> None:
            nonlocal outcome
            restore()  # an earlier run did not count
            tip = self._present(transaction.tip())
            there = held.take_all()
            used.append(there)
            place, stock, after = grant(there, tip, cost)
            outcome = self._refusal(cost, place, after)
            if outcome is None:
                ahead, after = (NOTHING, after) if wish is None else take_ahead(after, self._caps, cost, wish)
                outcome = Grant(place, stock + ahead, after)
                transaction.take(after)

        about_to_wait()
        try:
            self._store.write(decide)
        except BaseException:
            restore()
            raise
        if not isinstance(outcome, Grant):
            restore()
            assert outcome is not None
            raise outcome
        held.put(outcome.stock)
        if wish is not None:
            held.asked(cost)
        return outcome.place

    def probe(self) -> None:
        """Raise if no answer could be written now; writes nothing."""
        self._check_open()
        self._look()
        self._store.probe()

    def _give_back(self) -> None:
        """Give back what was taken ahead and not handed out, as far as nobody has taken more since; then close."""
        stock = NOTHING if self._closed else self._held.take_all()
        if not any(stock):
            return

        def decide(transaction: Transaction) -> None:
            transaction.take(give_back(stock, self._present(transaction.tip())))

        self._store.patience = CLOSING
        with suppress(HoldfastError):  # then it stays taken
            self._store.write(decide)

    def commit(
        self,
        *,
        place: Place,
        key: str | None,
        question: dict[str, Any],
        answer: dict[str, Any],
        cost: Cost,
        rows_read: int,
        analyst: str | None = None,
        finish: Finish | None = None,
    ) -> tuple[Entry, bool]:
        """Write the answer; return its entry, durable by then, and True. May be shown only after this returns.

        `place` is what `reserve` returned for the same `cost`. If the key is already there, the entry that stands is
        returned, and False; the answer given here must be forgotten, and stays paid for.

        `finish` is for answers that depend on the answers committed before them: inside the transaction that writes the
        entry, it turns `answer` and what the entries up to then cost into the answer and its own cost, at most `cost`.
        It may be called more than once; only the last call counts.
        """
        given = self.drawn(
            place=place,
            key=key,
            question=question,
            answer=answer,
            cost=cost,
            rows_read=rows_read,
            analyst=analyst,
            finish=finish,
        )
        return self.commit_all([given])[0]

    def drawn(
        self,
        *,
        place: Place,
        key: str | None,
        question: dict[str, Any],
        answer: dict[str, Any],
        cost: Cost,
        rows_read: int,
        analyst: str | None = None,
        finish: Finish | None = None,
    ) -> Drawn:
        """Return what `commit_all` writes: an answer that nobody may see yet. As for `commit`."""
        self._refuse_unbegun()
        if type(rows_read) is not int or rows_read < 0:
            check.whole(0, rows_read=rows_read)
        _check_types(question=question, answer=answer, key=key)
        _check_analyst_length(analyst)
        body = {
            "analyst": analyst,
            "key": key,
            "place": {"charge": place.charge, "intervals": place.intervals, "number": place.number},
            "question": question,
            "rows_read": rows_read,
        }
        # Everything but the number and the time is written out before the lock, if it is known by then; both sort last.
        key_digest = None if key is None else chain.digest(key)
        if finish is None:
            return Drawn(_start(body, answer, cost), key_digest, cost, place.process)
        given = finish

        def late(told: Cost) -> tuple[str, Cost]:
            finished, price = given(answer, told)
            return _start(body, finished, price), price

        return Drawn("", key_digest, cost, place.process, late)

    def commit_all(self, answers: Sequence[Drawn]) -> list[tuple[Entry, bool]]:
        """Write the answers in one transaction: all of them, or none. Returns, for each, what `commit` does."""
        self._refuse_unbegun()
        dearest = max((one.cost for one in answers), key=lambda cost: (cost.charge, cost.intervals))
        wish = self._held.wish(dearest)
        written: list[tuple[Row, bool]] = []
        ahead = NOTHING

        def decide(transaction: Transaction) -> None:
            nonlocal ahead
            written.clear()  # an earlier run did not count
            ahead, fresh = NOTHING, False
            for one in answers:
                self._refuse_forked(one)
                standing = None if one.key_digest is None else transaction.find(one.key_digest)
                row = standing or _next_row(self._present(transaction.tip()), one)
                if standing is None:
                    transaction.append(row)
                    fresh = True
                written.append((row, standing is None))
            if wish is not None and fresh:
                ahead, tip = take_ahead(self._present(transaction.tip()), self._caps, dearest, wish)
                transaction.take(tip)

        self._store.write(decide)
        if wish is not None:
            self._held.put(ahead)
            self._held.asked(dearest)
        return [(chain.entry_of(row), fresh) for row, fresh in written]

    def _refuse_forked(self, drawn: Drawn) -> None:
        """Refuse a child's answer to a question that its parent reserved: a place is for one answer."""
        if drawn.process != os.getpid():
            raise LedgerUnavailable(
                f"Ledger {self.location} does not take this answer: the process was forked while it was drawn, and its"
                " place is the parent's. Ask again.",
                location=self.location,
            )

    # -- reading and re-checking ----------------------------------------------------------------------------------

    def entries(self, start: int = 1, limit: int | None = None) -> Iterator[Entry]:
        """Iterate over answers in the order they were given, from number `start` on."""
        check.whole(1, start=start)
        if limit is not None:
            check.whole(0, limit=limit)
        self._check_open()
        if self._look() is None:
            return iter(())
        return (chain.entry_of(row) for row in self._rows(start, limit) if not is_restore(row))

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
                genesis, secret = verified.genesis, self._store.secret() or b""
                self._check_data(genesis, secret)
                self._caps, self._secret, self._tree = Cost(**genesis["terms"]["caps"]), secret, verified.tree
                self._first = self._store.read(0, 1)[0].hash  # anew: it may have been written since the look above
                if self._store.address is not None:  # else nobody else can open it
                    self._held, self.in_flight = _shared.setdefault(
                        (self._store.address, self._first), (self._held, self.in_flight)
                    )
                self._genesis = genesis  # last: other threads go by it
        return self._genesis

    def _check_data(self, genesis: dict[str, Any], secret: bytes) -> None:
        if genesis["dataset"] != self.dataset:
            raise chain.damaged(self.location, 0, f"it belongs to dataset {genesis['dataset']!r}")
        if genesis["fingerprint"] != _keyed_fingerprint(secret, self._fingerprint):
            raise RowSourceError(  # neither fingerprint is shown: it would confirm a guess of the table
                f"Ledger {self.location} belongs to other data: the fingerprints differ. Open the data it was begun"
                " with."
            )
        if self._reproducible and not genesis["reproducible"]:
            raise PlanConflict(
                f"Ledger {self.location} was begun with unpredictable draws, which a seed would spoil. "
                "Leave the seed out. Give ledger= a file of its own for a test.",
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

    def _refusal(self, cost: Cost, place: Place, tip: Tip) -> BudgetExhausted | None:
        """Return the refusal of a question that would have this place and leave the ledger at this tip."""
        caps = self._caps
        if tip.taken_charge > caps.charge:
            price, left, total, unit = cost.charge, caps.charge - place.charge, caps.charge, "charge"
            need = f"it takes {price:,} of what the guarantee can carry, and {left:,} of {total:,} is left"
        elif tip.taken_intervals > caps.intervals:
            price, left, total, unit = cost.intervals, caps.intervals - place.intervals, caps.intervals, "answers"
            need = f"it counts as {price:,} answers, and {left:,} of {total:,} are left"
        else:
            return None
        return BudgetExhausted(
            f"The budget cannot pay for answer {tip.seq + 1}: {need}. "
            "Ask for less, or repeat an earlier question for free.",
            cost=price,
            left=left,
            total=total,
            unit=unit,
        )

    def _first_row(self, terms: Mapping[str, Any], secret: bytes) -> Row:
        caps = terms.get("caps") if isinstance(terms, Mapping) else None
        if not isinstance(caps, dict) or set(caps) != {"charge", "intervals"}:
            raise InvalidArgument(f"terms['caps'] must be a dict of charge and intervals; got {caps!r}.", name="terms")
        Cost(**caps)  # checks both
        body = chain.canonical(
            {
                "dataset": self.dataset,
                "fingerprint": _keyed_fingerprint(secret, self._fingerprint),
                "format": chain.FORMAT,
                "reproducible": self._reproducible,
                "seq": 0,
                "terms": dict(terms),
                "time": _now(),
            },
            "terms and fingerprint",
        )
        return chain.row_after(START, body, Cost(0, 0))


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


def _told(tip: Tip) -> Cost:
    return Cost(tip.charge, tip.intervals)


def _start(body: dict[str, Any], answer: dict[str, Any], cost: Cost) -> str:
    """Write an entry up to its number."""
    price = {"charge": cost.charge, "intervals": cost.intervals}
    return chain.canonical(body | {"answer": answer, "cost": price}, "question, answer, key and analyst")[:-1]


def _next_row(tip: Tip, drawn: Drawn) -> Row:
    start, cost = (drawn.start, drawn.cost) if drawn.finish is None else drawn.finish(_told(tip))
    body = f'{start},"seq":{tip.seq + 1},"time":"{_now()}"}}'
    return chain.row_after(tip, body, cost, drawn.key_digest)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def derive_key(secret: bytes, purpose: str) -> bytes:
    """Return the key that the secret gives for a purpose: HMAC-SHA256."""
    return hmac.digest(secret, purpose.encode(), "sha256")


def _keyed_fingerprint(secret: bytes, content: str) -> str:
    """Return what the first entry says of the data: it tells nobody who lacks the secret which data these are."""
    return hmac.digest(derive_key(secret, "fingerprint"), content.encode(), "sha256").hex()


_open: WeakSet[Ledger] = WeakSet()
_shared: dict[tuple[str, str], tuple[Held, InFlight]] = {}  # by address and first entry: one for all in this process


@atexit.register
def _give_back_all() -> None:
    """Give back what ledgers that nobody closed have taken ahead."""
    for ledger in list(_open):
        ledger._give_back()
