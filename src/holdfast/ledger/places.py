"""Places that this process has taken ahead, so that most questions need not wait for the disk twice.

What a question takes has three amounts: its share of the two caps, and a number. What was taken from the ledger and is
not handed out yet is kept for each amount in ranges. A place handed out is cut from the beginning of a range.

Nothing here may ever be handed out twice, and a signal, a destructor or another thread may come between any two steps.
So whoever needs the stock takes all of it away in one step (`deque.pop`), and puts back what is left: whatever
interrupts him can only lose it. (No generators: an interrupt while one is closed would be swallowed.) A forked child
does not have its parent's.

Places are not always used in the order in which they were taken: two processes each have some ahead. Where that
matters, a place says how far all questions begun before it can have come (`Place.reached`): to the end of what this
process has handed out, or to the end of all that was ever taken if somebody else has taken more since.
"""

import threading
from collections import deque
from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter
from time import monotonic
from typing import NamedTuple

from holdfast.errors import BudgetExhausted
from holdfast.ledger.entry import APART, APART_CHARGE, LARGEST, Cost, Place, Reach
from holdfast.ledger.forks import OfOneProcess
from holdfast.ledger.store import Tip

Ranges = tuple[range, ...]

MOST_AHEAD = 64  # ordinary answers
SHARE_AHEAD = 100  # at most one part in so many of what is left
SHARE_OF_TAKEN = 10  # where there is no end: of what was taken so far
FAST = 1.0  # seconds between two questions, at most, that make it worth to take places ahead
REMEMBERED = 16  # more than a signal handler or a destructor can add while its thread is between two steps
MOST_RANGES = 16  # older remainders, each too small for what is asked, are given up

_INSTEAD = "Ask for less, or repeat an earlier question for free."
_NO_CHARGE = (
    "The budget cannot pay for answer {answer}: it takes {cost:,} of what the guarantee can carry, and {left:,} of"
    f" {{total:,}} is left. {_INSTEAD}"
)
_NO_ANSWERS = (
    "The budget cannot pay for answer {answer}: it counts as {cost:,} answers, and {left:,} of {total:,} are left."
    f" {_INSTEAD}"
)
_NO_ROWS = "There are not enough rows yet for this question: it takes {cost:,} of {left:,} that are left."


class Stock(NamedTuple):
    """What is free of the three amounts."""

    charge: Ranges = ()
    intervals: Ranges = ()
    numbers: Ranges = ()

    def __add__(self, other: "Stock") -> "Stock":  # type: ignore[override]
        return Stock(*map(_joined, self, other))

    def cut(self, cost: Cost) -> tuple[Place, "Stock"] | None:
        """Return a place for this cost and what is left then; None if it does not fit."""
        charge, intervals, number = map(_cut, self, _needs(cost))
        if charge is None or intervals is None or number is None:
            return None
        return Place(number[0] + 1, charge[0], intervals[0]), Stock(charge[1], intervals[1], number[1])

    def answers(self, cost: Cost) -> int:
        """Return how many places for this cost can be cut."""
        counts = [
            sum([len(each) // need for each in ranges]) for ranges, need in zip(self, _needs(cost), strict=True) if need
        ]
        return min(counts)


NOTHING = Stock()


class Grant(NamedTuple):
    """A place, what is in stock then, and the tip that says so."""

    place: Place
    stock: Stock
    tip: Tip


def grant(stock: Stock, tip: Tip, cost: Cost) -> Grant:
    """Return a place for this cost: from the stock, or going on where it ends if nobody has taken more, or a new one.

    A place of another account begins where all that was taken ends, and nothing is ever cut from it: so the shares of
    either account, counted without those of the other, are no less apart than they lie. The caps are the caller's to
    check.
    """
    starts, left, taken = [], [], []
    for ranges, need, end in zip(stock, _needs(cost), tip.taken, strict=True):
        cut = _cut(ranges, need)
        if cut is None:
            goes_on = ranges and ranges[-1].stop == end and cost.intervals < APART
            last = ranges[-1] if goes_on else range(end, end)
            cut, end = (last.start, ranges[:-1] if last else ranges), last.start + need
        starts.append(cut[0])
        left.append(cut[1])
        taken.append(end)
    charge, intervals, number = starts
    return Grant(Place(number + 1, charge, intervals), Stock(*left), tip.taking(*taken))


class PlacesAhead(NamedTuple):
    """How many answers of this cost a process would like to have ahead, and how many it has."""

    cost: Cost
    answers: int
    there: int


def take_ahead(tip: Tip, caps: Cost, reach: Reach, demand: PlacesAhead) -> tuple[Stock, Tip]:
    """Take answers ahead; near the end of the budget, or of what there are rows for, none."""
    needs, answers = _needs(demand.cost), demand.answers
    ends = reach.charge + tip.taken_charge // reach.account * reach.account, reach.intervals
    accounts = (APART_CHARGE, APART) if tip.taken_intervals >= APART else (2 * LARGEST, 2 * LARGEST)
    limits = zip((caps.charge, caps.intervals), ends, accounts, strict=True)
    for (cap, end, account), taken, need in zip(limits, tip.taken, needs, strict=False):
        if need:
            most = (min(cap, end) - taken) // SHARE_AHEAD
            if cap == LARGEST:
                most = min(most, taken % account // SHARE_OF_TAKEN)
            answers = min(answers, most // need)
    answers -= demand.there
    if answers <= 0:
        return NOTHING, tip
    after = [end + answers * need for end, need in zip(tip.taken, needs, strict=True)]
    new = [(range(start, end),) if start < end else () for start, end in zip(tip.taken, after, strict=True)]
    return Stock(*new), tip.taking(*after)


def give_back(stock: Stock, tip: Tip) -> Tip:
    """Return the tip without what nobody has taken anything after."""
    ends = []
    for ranges, end in zip(stock, tip.taken, strict=True):
        for each in reversed(ranges):
            end = each.start if each.stop == end else end
        ends.append(end)
    return tip.taking(*ends)


def refusal(
    costs: Sequence[Cost], places: Sequence[Place], tip: Tip, caps: Cost, reach: Reach
) -> BudgetExhausted | None:
    """Return why questions of these costs cannot have these places and leave the ledger at this tip; None if they can.

    The budget may not pay for them all, or there are no rows yet for one of them: it lies beyond `reach`.
    """
    if tip.taken_charge > caps.charge:
        words, amount, total = _NO_CHARGE, "charge", caps.charge
    elif tip.taken_intervals > caps.intervals:
        words, amount, total = _NO_ANSWERS, "intervals", caps.intervals
    elif all(map(Place.within, places, repeat(reach), costs)):
        return None
    elif reach.charge < LARGEST:
        words, amount, total = _NO_ROWS, "charge", reach.charge
    else:
        words, amount, total = _NO_ROWS, "intervals", reach.intervals
    cost, left = sum(getattr(each, amount) for each in costs), max(0, total - getattr(places[0], amount))
    return BudgetExhausted(
        words.format(answer=tip.seq + 1, cost=cost, left=left, total=total),
        cost=cost,
        left=left,
        total=total,
        unit="charge" if amount == "charge" else "answers",
    )


def _needs(cost: Cost) -> tuple[int, int, int]:
    return cost.charge, cost.intervals, 1


def _cut(ranges: Ranges, need: int) -> tuple[int, Ranges] | None:
    for i, each in enumerate(ranges):
        if len(each) >= need:
            rest = each[need:]
            return each.start, (*ranges[:i], *((rest,) if rest else ()), *ranges[i + 1 :])
    return None


def _joined(one: Ranges, other: Ranges) -> Ranges:
    if not one or not other:
        return one or other
    joined: list[range] = []
    for each in sorted(one + other, key=attrgetter("start")):
        if joined and joined[-1].stop == each.start:
            joined[-1] = range(joined[-1].start, each.stop)
        else:
            joined.append(each)
    return tuple(joined[-MOST_RANGES:])


def _pop_all(stocks: deque[Stock]) -> Stock:
    stock = NOTHING
    while stocks:
        try:
            popped = stocks.pop()
        except IndexError:  # another thread was faster
            break
        stock = popped if stock is NOTHING else stock + popped
    return stock


class Held(OfOneProcess):
    """The stock of a ledger in this process, and how much to take ahead: more while questions come fast.

    Everyone in the process who opens the ledger has the same one: what a session that nobody closed leaves, the next
    one has.
    """

    def _forget(self) -> None:
        self._stocks: deque[Stock] = deque()
        self._lock = threading.RLock()
        self._last, self._asking_until = float("-inf"), 0.0
        self._ahead = -1
        # How far the charge of all questions begun can have come is the largest of these. Whoever adds one adds the
        # largest, too, long before the oldest fall out: nothing that comes between two steps can lower it.
        self._reached: deque[int] = deque((0,), maxlen=REMEMBERED)
        self._taken = -1  # where the charge taken by all ended when this process last took some
        self._questions = self._enough = 0  # since places were last taken ahead; before more of them are

    def take(self, cost: Cost, reach: Reach) -> Place | None:
        """Return a place from the stock that ends within `reach`; None if it does not fit."""
        # Of one process, whatever a signal handler forks meanwhile: what a child goes on with stays its parent's.
        process, stocks = self.process, self._stocks
        now = monotonic()
        if now - self._last > FAST:
            self._ahead = -1  # a lone question: the next one decides whether to take any ahead
        elif self._ahead < 0:
            self._ahead = 0
        self._last = now
        self._questions += 1
        with self._lock:  # only so that other threads do not find it empty meanwhile
            stock = _pop_all(stocks)
            cut = stock.cut(cost)
            if cut is not None and not cut[0].within(reach, cost):  # taken by somebody who has more rows
                cut = None
            stocks.append(stock if cut is None else cut[1])
        if cut is None:
            return None
        place = cut[0]
        return Place(place.number, place.charge, place.intervals, place.reached, process)

    def took(self, before: int, after: int) -> None:
        """Remember that this process has taken some, and where the charge taken by all ended before and after it."""
        if before != self._taken:  # others have taken some, and may have used it
            self._reach(before)
        self._taken = max(self._taken, after)  # if a thread comes between, this process takes its own for others'

    def giving_back(self) -> None:
        """Forget where that was: what this process gives back, others may take."""
        self._taken = -1

    def begun(self, place: Place, cost: Cost, taken: int) -> Place:
        """Return the place with how far all questions begun by now can have come.

        `taken` is where the charge taken by all ends, read after the question was asked; 0 if that does not matter.
        """
        others = 0 if taken == self._taken else taken
        reached = self._reach(max(others, place.charge + cost.charge))
        return Place(place.number, place.charge, place.intervals, reached, place.process)

    def _reach(self, end: int) -> int:
        """Return how far the charge can have come, now that it can have come to `end`."""
        with self._lock:
            self._reached.append(end)
            reached = max(tuple(self._reached))
            self._reached.append(reached)
        return reached

    def take_all(self) -> Stock:
        """Return all there is, which is the caller's from now on."""
        self._check_process()
        return _pop_all(self._stocks)

    def put(self, stock: Stock, process: int) -> None:
        """Put back, or add, what the caller alone has; `process` is whose it is."""
        stocks = self._stocks
        if self.process == process:
            stocks.append(stock)

    @property
    def process(self) -> int:
        """This process, which has forgotten what its parent had."""
        self._check_process()
        assert self._process is not None
        return self._process

    def demand(self, *costs: Cost) -> PlacesAhead | None:
        """Say how many answers to have ahead now, if more: twice as many each time, while questions come fast.

        They should cost what the dearest of these did.
        """
        if self._ahead < 0 or self._questions < self._enough or not self._check_process():
            return None
        cost = max(costs, key=lambda cost: (cost.charge, cost.intervals))
        if cost.intervals >= APART:
            return None
        now, there = monotonic(), self.now.answers(cost)
        if now < self._asking_until or there > self._ahead // 2:
            return None
        self._ahead = min(MOST_AHEAD, max(1, 2 * self._ahead))
        self._asking_until = now + FAST  # by then it has been `asked`, or whoever did was interrupted
        return PlacesAhead(cost, self._ahead, there)

    def asked(self, demand: PlacesAhead) -> None:
        """Let the next one who wants to take places ahead do so, when half of them are used."""
        self._questions, self._enough = 0, self.now.answers(demand.cost) // 2
        self._asking_until = 0.0

    @property
    def total(self) -> tuple[int, int]:
        """How much charge and how many intervals there are at this moment."""
        self._check_process()
        charge = intervals = 0
        with self._lock:
            for stock in tuple(self._stocks):
                charge += sum(map(len, stock.charge))
                intervals += sum(map(len, stock.intervals))
        return charge, intervals

    @property
    def now(self) -> Stock:
        """What is there at this moment."""
        self._check_process()
        with self._lock:
            stocks = tuple(self._stocks)
        return stocks[0] if len(stocks) == 1 else sum(stocks, NOTHING)
