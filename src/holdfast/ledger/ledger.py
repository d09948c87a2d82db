"""The rules of the budget: repeated questions are free, unaffordable ones are refused, what is taken stays taken.

A question first *reserves*: the ledger durably takes its cost and gives it a place. Only then are rows drawn for it. A
draw that is dropped because of an interrupt, an error, a kill or a race has therefore been paid for, and nobody can
choose among draws for free. The answer is then *committed*, and shown only once the commit is durable.

While questions come fast, the transaction that commits an answer also takes places for the next questions
(`places.py`), so that each answer waits for the disk once, not twice.
"""

import atexit
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from types import TracebackType
from typing import Any, NoReturn, Self
from weakref import WeakSet

from holdfast import check
from holdfast.errors import BudgetExhausted, HoldfastError, InvalidArgument, LedgerDamaged, UnknownName
from holdfast.ledger import tree
from holdfast.ledger.chain import Drawn, Opened, answered, derive_key, digest, spent
from holdfast.ledger.places import NOTHING, PlacesAhead, ProcessStock, Stock, give_back, grant, refusal, take_ahead
from holdfast.ledger.store import (
    LARGEST,
    Answered,
    Cost,
    Entry,
    Head,
    Place,
    Reach,
    Row,
    Spent,
    Store,
    Tip,
    Transaction,
    closed_error,
)
from holdfast.ledger.underway import Asking, InFlight
from holdfast.ledger.verify import Receipt, receipt_under, rows_of, verify_store
from holdfast.ledger.witness import Watch, Witness, is_restore

SECRET_BYTES = 32
CLOSING = 1.0  # seconds to wait for whoever else writes, when all there is to do is to give places back


class Ledger:
    """The budget of one dataset. Open it with `open_ledger`; safe to share between threads.

    Until somebody calls `begin`, which writes the first entry, a ledger has no terms and nothing spent, and every
    access checks whether another process has begun it.
    """

    def __init__(
        self, store: Store, *, fingerprint: str, reproducible: bool = False, watch: Watch | None = None
    ) -> None:
        self._store = store
        self._watch = watch or Watch(store, store.address, None)
        self._genesis: dict[str, Any] | None = None
        self._caps = Cost(0, 0)
        self._fingerprint = fingerprint
        self._reproducible = bool(reproducible)
        self._closed = False
        self._tree = tree.Tree()
        self._secret, self._first = b"", ""
        self._stock, self.in_flight = ProcessStock(), InFlight()
        self._waits = store.patience > 0  # a store in memory does not: taking places ahead would save nothing
        # Where the rows that this process can draw end, if they do. It refuses places beyond that, free of charge.
        self.reach: Callable[[], Reach] | None = None
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
        """Close files and connections for good. Terms that were read stay readable. May be called again.

        Places taken ahead are given back first, unless somebody else has taken places since.
        """
        self._give_back()
        self._stock.under_way.leave(self._watch.tip)
        self._closed = True
        self._store.close()
        self._watch.close()

    def watch(self, *witnesses: Witness) -> None:
        """Refuse this ledger if it lacks an entry that one of these witnesses saw; report new entries to them."""
        self._watch.watch(*witnesses)

    def confirmed_by(self) -> list[str]:
        """Return which witnesses, other than this process, have seen the newest entry."""
        return self._watch.confirmed

    # -- the beginning --------------------------------------------------------------------------------------------

    @property
    def begun(self) -> bool:
        """Whether the first entry has been written, by anybody."""
        return self._look() is not None

    def begin(self, terms: Mapping[str, Any], secret: bytes | None = None) -> bool:
        """Write the first entry durably. Return False if somebody else was first; their `terms` then stand.

        Parameters
        ----------
        terms
            The plan as plain JSON, with ``terms["caps"] = {"charge": ..., "intervals": ...}``.
        secret
            The secret from which `key` derives keys; by default 256 bits from the operating system.
        """
        self._check_open()
        secret = secrets.token_bytes(SECRET_BYTES) if secret is None else secret
        row = self._opened.first_row(terms, secret)
        if self.begun:
            return False
        began = self._watch.begin(row, secret)
        if self._look() is None:
            raise LedgerDamaged(
                f"Ledger {self.location} is damaged: its first entry is gone right after it was written. "
                "Restore the ledger.",
                location=self.location,
            )
        return began

    @property
    def location(self) -> str:
        """Where the ledger is, without passwords."""
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
    def _opened(self) -> Opened:
        return Opened(self.dataset, self._fingerprint, self._reproducible)  # the dataset name as the store has it

    @property
    def reproducible(self) -> bool:
        """Whether draws are predictable because the ledger was begun with a seed."""
        genesis = self._look()
        return self._reproducible if genesis is None else bool(genesis["reproducible"])

    @property
    def terms(self) -> Mapping[str, Any] | None:
        """The plan as given to `begin`; None before that."""
        genesis = self._look()
        return None if genesis is None else genesis["terms"]

    @property
    def first(self) -> str:
        """The hash of the first entry, which identifies this ledger; "" before it has begun."""
        self._look()
        return self._first

    @property
    def taken(self) -> Cost:
        """How much all processes have taken, including places taken ahead."""
        tip = self._tip() if self._has_begun() else None
        return Cost(0, 0) if tip is None else Cost(tip.taken_charge, tip.taken_intervals)

    def key(self, purpose: str) -> bytes:
        """Return the 256-bit key for a purpose. Secret: never show, log or send it to an analyst."""
        self._begun()
        return derive_key(self._secret, purpose)

    @property
    def caps(self) -> Cost:
        """The limits of what may be spent in total."""
        self._begun()
        return self._caps

    # -- the budget -----------------------------------------------------------------------------------------------

    @property
    def spent(self) -> Spent:
        """What all questions have taken so far, without the places that this process has merely taken ahead."""
        if not self._has_begun():
            return Spent(0, 0, 0)
        return spent(self._stock.total, self._tip())

    @property
    def answered(self) -> Answered:
        """What the committed answers cost, and what failed. `finish` starts from this."""
        return self._answered(self._tip()) if self._has_begun() else Answered(0, 0)

    def _answered(self, tip: Tip) -> Answered:
        return answered(tip, self._stock.under_way.here(tip.places))

    @property
    def last_seen(self) -> tuple[Spent, Answered]:
        """`spent` and `answered` when the ledger was last accessed: for printouts, which read nothing."""
        ahead, tip = self._stock.total, self._watch.last_seen
        return (Spent(0, 0, 0), Answered(0, 0)) if tip is None else (spent(ahead, tip), self._answered(tip))

    @property
    def left(self) -> Cost:
        """What is left of both caps."""
        caps, spent = self.caps, self.spent
        return Cost(caps.charge - spent.charge, caps.intervals - spent.intervals)

    @property
    def head(self) -> Head:
        """The newest entry."""
        self._check_open()
        self._begun()
        tip = self._tip()
        return Head(tip.seq, tip.hash)

    def find(self, key: str) -> Entry | None:
        """Return the answer already given to the question with this canonical key."""
        row = self._store.find(digest(key)) if self._has_begun() else None
        return None if row is None else Entry(row)

    def reserve(self, cost: Cost, asking: Asking | None = None) -> Place:
        """Take this cost for good and return the place of the question; both are durable when this returns.

        Raises BudgetExhausted and takes nothing if less than the cost is left. With `asking`, it counts as failed once
        that has ended without an answer. No places are taken ahead then: of a process that is killed, they would count.
        """
        if self._genesis is None or self._closed:
            self._refuse_unbegun()
        self._store.require_space()
        if not self._waits or asking is not None:
            return self._reserve([cost], None, asking)[0]
        place = self._stock.take(cost, self.reach and self.reach())
        if place is None:
            return self._reserve([cost], self._stock.demand(cost), None)[0]
        endless = self._caps.charge == LARGEST  # with a cap, no interval depends on how far others have come
        return self._stock.begun(place, cost, self._tip().taken_charge if endless else 0)

    def reserve_all(self, costs: Sequence[Cost], asking: Asking | None = None) -> list[Place]:
        """Take all of these costs, or none, in one transaction; return a place for each. Otherwise as `reserve`."""
        self._refuse_unbegun()
        self._store.require_space()
        return self._reserve(costs, None, asking) if costs else []

    def _reserve(self, costs: Sequence[Cost], demand: PlacesAhead | None, asking: Asking | None) -> list[Place]:
        """Reserve by a transaction of the store."""
        own, reach = self._stock, self.reach and self.reach()
        process = own.check_process()
        used: list[Stock] = []  # the stock taken by the last run of `decide`; whoever pops it may put it back
        places: list[Place] = []  # granted by the last run
        outcome: Stock | BudgetExhausted | None = None
        before = end = 0  # charge taken by all processes
        if asking is not None:
            own.under_way.listen(self._store.asking_folder, self._watch.tip)

        def decide(transaction: Transaction) -> None:
            nonlocal outcome, before, end
            if used or places:  # undo an earlier run, which did not count
                own.put_back(used, process)
                for place in places:
                    own.under_way.end(place.number)
                places.clear()
            after = transaction.tip or self._no_head()
            before = after.taken_charge
            stock = own.take_all()
            used.append(stock)
            for cost in costs:
                place, stock, after = grant(stock, after, cost, process)
                places.append(place)
            outcome = refusal(costs, places, after, self._caps, reach)
            if outcome is None:
                if demand is not None:
                    ahead, after = take_ahead(after, self._caps, reach, demand)
                    stock += ahead
                outcome, end = stock, after.taken_charge
                transaction.tip = after
                if asking is not None:
                    own.under_way.begin(places, costs, asking, transaction)

        try:
            self._watch.write(decide)
        except BaseException:
            own.put_back(used, process)
            raise
        if not isinstance(outcome, Stock):
            own.put_back(used, process)
            assert outcome is not None
            raise outcome
        own.took(before, end)
        if outcome is not NOTHING:
            own.put(outcome, process)
        if demand is not None:
            own.asked(demand)
        for i, cost in enumerate(costs):
            places[i] = own.begun(places[i], cost, end)
        return places

    def probe(self) -> None:
        """Raise if no answer could be written now. Writes nothing."""
        self._check_open()
        self._look()
        self._watch.tip()
        self._store.require_space()
        self._store.probe()

    def _give_back(self) -> None:
        """Give back places taken ahead and not used, as far as nobody has taken any since."""
        own = self._stock
        process = own.check_process()  # read first: if a signal handler forks below, the stock is the parent's alone
        stock = NOTHING if self._closed else own.take_all()
        if not any(stock):
            return

        def decide(transaction: Transaction) -> None:
            if own.check_process() == process:
                transaction.tip = give_back(stock, transaction.tip or self._no_head())

        own.giving_back()
        self._store.patience = CLOSING
        with suppress(HoldfastError):  # if that fails, they stay taken
            self._watch.write(decide)

    def commit(self, drawn: Drawn) -> tuple[Entry, bool]:
        """Write the answer durably and return its entry and True. Show the answer only after this returns.

        If an entry with its key exists, return that entry and False: the answer passed here must be discarded, and
        stays paid for.
        """
        return self.commit_all([drawn])[0]

    def commit_all(self, answers: Sequence[Drawn]) -> list[tuple[Entry, bool]]:
        """Write all of the answers, or none, in one transaction. Return for each what `commit` returns."""
        if self._genesis is None or self._closed:
            self._refuse_unbegun()
        own, process, demand = self._stock, 0, None
        finishing = any(one.finish is not None for one in answers)
        if self._waits and own.is_due and not finishing:
            process, demand = own.check_process(), own.demand(*(one.cost for one in answers))
        reach = None if demand is None or self.reach is None else self.reach()
        written: list[tuple[Row, bool]] = []
        ahead = NOTHING
        before = after = 0

        def decide(transaction: Transaction) -> None:
            nonlocal ahead, before, after
            written.clear()  # forget an earlier run, which did not count
            ahead, fresh = NOTHING, False
            elsewhere = _nobody
            if finishing:  # asked once for all: it is settled by now which answers are written, and in which order
                elsewhere = cache(partial(own.under_way.elsewhere, self._store.asking_folder, transaction.start))
            for one in answers:
                if one.is_forked:
                    raise one.forked_error(self.location)
                own.under_way.end(one.place.number)  # now: other threads may write in the same transaction
                tip = transaction.tip or self._no_head()
                row = one.row_after(tip, 0 if one.finish is None else self._under_way(one, tip, transaction, elsewhere))
                found = transaction.append(row)
                fresh |= found is row
                written.append((found, found is row))
            if demand is not None and fresh:
                newest = transaction.tip or self._no_head()
                ahead, taken = take_ahead(newest, self._caps, reach, demand)
                before, after = newest.taken_charge, taken.taken_charge
                transaction.tip = taken

        self._watch.write(decide)
        if ahead is not NOTHING:
            own.took(before, after)
        if demand is not None:
            own.put(ahead, process)
            own.asked(demand)
        return [
            (one.entry(row) if fresh else Entry(row), fresh) for one, (row, fresh) in zip(answers, written, strict=True)
        ]

    def _under_way(self, one: Drawn, tip: Tip, transaction: Transaction, elsewhere: Callable[[], int]) -> int:
        """Return how many statements others make that may still be answered, in any process that says so now."""
        here = self._stock.under_way.here(tip.places, transaction)
        return here + elsewhere() if answered(tip, here, own=one.cost.intervals).failed else here

    # -- reading and re-checking ----------------------------------------------------------------------------------

    def entries(self, start: int = 1, limit: int | None = None) -> Iterator[Entry]:
        """Iterate over answers in the order they were given, from number `start` on."""
        check.whole(1, start=start)
        if limit is not None:
            check.whole(0, limit=limit)
        if not self._has_begun():
            return iter(())
        return (Entry(row) for row in rows_of(self._store, start, limit) if not is_restore(row))

    def receipt(self, seq: int) -> Receipt:
        """Return a proof that entry `seq` is covered by the present head."""
        check.whole(0, seq=seq)
        receipt, self._tree = receipt_under(self.head, self._store, seq, self._tree)
        return receipt

    def verify(self, head: str | None = None) -> Head:
        """Check every entry again. `head` is a hash published earlier, which must be in the chain."""
        self._check_open()
        self._begun()
        self._tip()  # refuses a ledger that is older than what this process saw
        reached = verify_store(self._store, head).tip
        return Head(reached.seq, reached.hash)

    # -- checks ---------------------------------------------------------------------------------------------------

    def _look(self) -> dict[str, Any] | None:
        """Return the first entry. If it was missing so far, look again; once it is there, verify the whole ledger."""
        if self._genesis is None and not self._closed:
            # Rows and tip are written together: one without the other is damage, not a new ledger. Rows are read first.
            rows = self._store.read(0, 1)
            if self._watch.tip() is not None or rows:
                verified = verify_store(self._store)
                genesis, secret = verified.genesis, self._store.secret() or b""
                self._opened.require(genesis, secret, self.location)
                self._caps, self._secret, self._tree = Cost(**genesis["terms"]["caps"]), secret, verified.tree
                self._first = self._store.read(0, 1)[0].hash  # again: it may be newer than `rows`
                if self._watch.address is not None:  # without an address nobody else can open the store
                    self._stock, self.in_flight = _shared.setdefault(
                        (self._watch.address, self._first), (self._stock, self.in_flight)
                    )
                self._genesis = genesis  # set last: other threads rely on it alone
        return self._genesis

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

    def _has_begun(self) -> bool:
        """Whether there is a first entry; raises if the ledger was closed."""
        if self._closed:
            raise closed_error(self.location)
        return self._genesis is not None or self._look() is not None

    def _refuse_unbegun(self) -> None:
        if not self._has_begun():
            raise InvalidArgument(
                f"Ledger {self.location} has not begun: call begin(terms) before asking it for a budget.", name="ledger"
            )

    def _tip(self) -> Tip:
        """Return the tip, which every ledger that has begun must have."""
        return self._watch.tip() or self._no_head()

    def _no_head(self) -> NoReturn:
        raise LedgerDamaged(
            f"Ledger {self.location} is damaged: the head of {self.dataset} is gone. Restore the ledger.",
            location=self.location,
        )


def _nobody() -> int:
    return 0


_open: WeakSet[Ledger] = WeakSet()
_shared: dict[tuple[str, str], tuple[ProcessStock, InFlight]] = {}  # of this process, by address and first entry


@atexit.register
def _give_back_all() -> None:
    """At exit, give back the places that ledgers which were never closed have taken ahead."""
    for ledger in list(_open):
        ledger._give_back()
    for stock, _ in list(_shared.values()):
        stock.under_way.close()
